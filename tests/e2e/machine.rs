//! A machine: a container with a real containerd and, once it is configured, a real kubelet, see `hack/e2e/node.sh`.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use tokio::sync::OnceCell;

use crate::{
    docker::{Container, docker_at_length},
    support::{artifacts, eventually, lab::LIMIT},
};

/// The image of a machine.
pub(crate) const IMAGE: &str = "localhost/ccm-operator-e2e-node:latest";

/// Loads the image of a machine. Returns the folder of all images.
pub(crate) async fn load_image() -> Result<PathBuf> {
    static LOADED: OnceCell<()> = OnceCell::const_new();
    let folder = artifacts::node_images().await?;
    let load = async || {
        let file = folder.join("node.tar");
        docker_at_length(&["load", "--quiet", "--input", &file.to_string_lossy()]).await.map(drop)
    };
    LOADED.get_or_try_init(load).await?;
    Ok(folder)
}

/// A running machine, removed when it is dropped.
pub(crate) struct Machine {
    container: Container,
}

impl Machine {
    /// Starts one with this host name and arguments of `docker run`, such as its network; returns once containerd serves.
    pub(crate) async fn start(name: &str, arguments: &[&str]) -> Result<Self> {
        let folder = load_image().await?;
        let mut all: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        // As kind and others run their nodes: all permissions, and the files of containers on a file system that is no overlay.
        let of_machine = ["--privileged", "--cgroupns=private", "--tmpfs=/run", "--tmpfs=/tmp", "--volume=/var"];
        all.extend(of_machine.map(ToOwned::to_owned));
        all.push(format!("--hostname={name}"));
        all.push(format!("--volume={}:/images:ro", folder.display()));
        all.push(format!("--volume={}:/opt/testplane:ro", folder.join("testplane").display()));
        all.push(IMAGE.to_owned());
        let machine = Self::begins(Container::run(&all)?).await?;
        machine.load("pause", &[]).await?;
        Ok(machine)
    }

    /// The machine of this name, which a driver has made with the mounts of [`Machine::start`]; returns once containerd serves. The
    /// image "pause" is loaded by its user data, or else by the caller: two at once would fail.
    pub(crate) async fn of(name: &str) -> Result<Self> {
        Self::begins(Container::of(name)?).await
    }

    async fn begins(container: Container) -> Result<Self> {
        let machine = Self { container };
        eventually("containerd serves", LIMIT, async || machine.exec(&["ctr", "version"]).await.map(Some)).await?;
        Ok(machine)
    }

    /// The output of a command on it.
    pub(crate) async fn exec(&self, command: &[&str]) -> Result<String> {
        self.container.exec(command).await
    }

    /// Runs a command in the machine; an error also has the last lines of the kubelet's log.
    pub(crate) async fn exec_or_log(&self, command: &[&str]) -> Result<String> {
        self.exec(command).await.map_err(|error| error.context(self.log()))
    }

    /// Gives it an image of `hack/e2e/node.sh`, under these names.
    pub(crate) async fn load(&self, image: &str, names: &[&str]) -> Result<()> {
        self.import(&format!("/images/{image}.tar"), &format!("localhost/ccm-operator-e2e-{image}:latest"), names).await
    }

    /// Gives it an image of a file on it, under these names.
    pub(crate) async fn import(&self, file: &str, reference: &str, names: &[&str]) -> Result<()> {
        let ctr = ["ctr", "--namespace=k8s.io", "images"];
        self.exec(&[&ctr[..], &["import", file]].concat()).await?;
        if !names.is_empty() {
            self.exec(&[&ctr[..], &["tag", reference], names].concat()).await?;
        }
        Ok(())
    }

    /// Writes a file on it.
    pub(crate) async fn write(&self, path: &str, text: &str) -> Result<()> {
        ensure!(path.starts_with('/'), "{path} is not absolute");
        let script = "mkdir -p \"${1%/*}\"; printf %s \"$2\" >\"$1\"";
        self.exec(&["sh", "-euc", script, "sh", path, text]).await.map(drop)
    }

    /// Copies a file of this host to it.
    pub(crate) async fn copy(&self, file: &Path, path: &str) -> Result<()> {
        self.container.copy(file, path).await
    }

    /// Cuts its power.
    pub(crate) async fn cut_power(&self) -> Result<()> {
        self.container.cut_power().await
    }

    /// The last lines of containerd and the kubelet.
    pub(crate) fn log(&self) -> String {
        let log = self.container.client.log();
        let lines: Vec<&str> = log.lines().filter(|line| !line.contains("level=info")).collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}
