//! The parts of the fixture that are not written in Rust: the control plane's binaries, OpenShift's CRDs, the clouds'
//! cloud-controller-managers, a vCenter, Helm and a Docker Engine.
//!
//! `hack/testplane/build.sh`, `hack/ccm/build.sh`, `hack/ccm/fake/build.sh`, `hack/vcsim/build.sh`, `hack/helm/build.sh`,
//! `hack/moby/build.sh` and `hack/containerd/build.sh` build them once, `hack/debian.sh` gets them, `hack/e2e/` puts them together.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use tokio::sync::OnceCell;

use super::lab::repository;

/// The folder of etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kubeadm and kubectl. The first call on
/// a machine builds them, which takes minutes.
pub async fn binaries() -> Result<PathBuf> {
    build_sh("hack/testplane/build.sh", &[]).await
}

/// The folder of the Go module github.com/openshift/api.
pub async fn openshift_api() -> Result<PathBuf> {
    build_sh("hack/testplane/build.sh", &["crds"]).await
}

/// The folder of real cloud-controller-managers, and of a generic one for the clouds whose own cannot be built. The first
/// call on a machine builds them; concurrent tests wait for one build.
pub async fn cloud_controller_managers() -> Result<&'static Path> {
    static FOLDER: OnceCell<PathBuf> = OnceCell::const_new();
    Ok(FOLDER.get_or_try_init(|| build_sh("hack/ccm/build.sh", &[])).await?)
}

/// k8s.io/cloud-provider on the cloud of the driver fake, which the first call on a machine builds; concurrent tests wait for one
/// build.
pub async fn library_on_fake_cloud() -> Result<PathBuf> {
    static FOLDER: OnceCell<PathBuf> = OnceCell::const_new();
    let folder = FOLDER.get_or_try_init(|| build_sh("hack/ccm/fake/build.sh", &[])).await?;
    Ok(folder.join("fake-cloud-controller-manager"))
}

/// The simulator of a vCenter, which the first call on a machine builds.
pub async fn vcenter_simulator() -> Result<PathBuf> {
    Ok(build_sh("hack/vcsim/build.sh", &[]).await?.join("vcsim"))
}

/// Helm, which the first call on a machine builds; concurrent tests wait for one build.
pub async fn helm() -> Result<PathBuf> {
    static FOLDER: OnceCell<PathBuf> = OnceCell::const_new();
    Ok(FOLDER.get_or_try_init(|| build_sh("hack/helm/build.sh", &[])).await?.join("helm"))
}

/// The program of a current Docker Engine, which the first call on a machine builds.
pub async fn current_engine() -> Result<PathBuf> {
    Ok(build_sh("hack/moby/build.sh", &[]).await?.join("dockerd"))
}

/// The folder of a current containerd and its shim, which the first call on a machine builds.
pub async fn current_containerd() -> Result<PathBuf> {
    build_sh("hack/containerd/build.sh", &[]).await
}

/// A Python interpreter, as a file for `docker import`.
pub async fn python_image() -> Result<PathBuf> {
    build_sh("hack/e2e/python.sh", &[]).await
}

/// The folder of Debian's `prometheus` and `promtool`.
pub async fn prometheus() -> Result<PathBuf> {
    Ok(build_sh("hack/debian.sh", &["prometheus"]).await?.join("usr/bin"))
}

/// The folder of the images of a node and of what runs on it.
pub async fn node_images() -> Result<PathBuf> {
    build_sh("hack/e2e/node.sh", &[]).await
}

/// The Python that has moto and the client of AWS.
pub async fn moto() -> Result<PathBuf> {
    Ok(build_sh("hack/e2e/moto.sh", &[]).await?.join("bin/python"))
}

async fn build_sh(name: &'static str, arguments: &'static [&str]) -> Result<PathBuf> {
    let script = repository().join(name);
    tokio::task::spawn_blocking(move || {
        let output = Command::new(&script)
            .args(arguments)
            .stdin(Stdio::null())
            // A build takes minutes: show its progress.
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("failed to run {}", script.display()))?;
        ensure!(
            output.status.success(),
            "failed to get the programs that the tests run: {name} exited with {} (see its output above)",
            output.status
        );
        Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
    })
    .await?
}
