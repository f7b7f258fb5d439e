//! Where the fixture gets what is not written in Rust: the control plane's binaries and OpenShift's CRDs.
//!
//! Both come from `hack/testplane/build.sh`, which builds them once and answers at once afterwards.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

/// The folder of etcd, kube-apiserver, kube-controller-manager and kube-scheduler. The first call on a machine builds
/// them, which takes minutes.
pub async fn binaries() -> Result<PathBuf> {
    build_sh(&[]).await
}

/// The folder of the Go module github.com/openshift/api.
pub async fn openshift_api() -> Result<PathBuf> {
    build_sh(&["crds"]).await
}

async fn build_sh(arguments: &'static [&str]) -> Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/testplane/build.sh");
    tokio::task::spawn_blocking(move || {
        let output = Command::new(&script)
            .args(arguments)
            .stdin(Stdio::null())
            // A build of minutes must be seen to be one.
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("failed to run {}", script.display()))?;
        ensure!(
            output.status.success(),
            "the test control plane cannot be built: hack/testplane/build.sh ended with {} (its own words are above)",
            output.status
        );
        Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
    })
    .await?
}
