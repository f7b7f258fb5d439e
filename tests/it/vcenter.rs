//! A vCenter with a few machines: govmomi's simulator, which `hack/vcsim/build.sh` builds.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};
use serde::Deserialize;
use tempfile::TempDir;

use crate::{
    lab::LIMIT,
    support::{artifacts, eventually, process, process::Process},
};

/// The user that the vCenter knows.
pub(crate) const USER: &str = "ccm@vsphere.local";
/// The password of the vCenter.
pub(crate) const PASSWORD: &str = "correct-password";

/// A running vCenter.
pub(crate) struct VCenter {
    pub(crate) about: About,
    program: PathBuf,
    _process: Process,
    _dir: TempDir,
}

/// The JSON that vcsim prints: its address, certificate, datacenters and machines.
#[derive(Deserialize)]
pub(crate) struct About {
    url: String,
    pub(crate) port: String,
    /// The self-signed certificate of the server, as PEM.
    pub(crate) certificate: String,
    /// The datacenter of all machines.
    pub(crate) datacenter: String,
    /// A datacenter without machines.
    pub(crate) empty: String,
    pub(crate) machines: Vec<Machine>,
}

/// A machine of the vCenter.
#[derive(Deserialize)]
pub(crate) struct Machine {
    name: String,
    /// The name of its Node.
    pub(crate) hostname: String,
    pub(crate) uuid: String,
    pub(crate) address: String,
}

impl VCenter {
    pub(crate) async fn start() -> Result<Self> {
        let program = artifacts::vcenter_simulator().await?;
        let dir = process::temp_dir()?;
        let mut command = Command::new(&program);
        command.args(["serve", USER, PASSWORD]).env("TMPDIR", dir.path());
        let process = Process::spawn("the vCenter", command, &dir.path().join("log"))?;
        let about = eventually("the vCenter's line", LIMIT, async || {
            ensure!(process.try_wait()?.is_none(), "{}", process.log());
            Ok(Some(serde_json::from_str(&process.log())?))
        });
        Ok(Self { about: about.await?, program, _process: process, _dir: dir })
    }

    /// Changes a machine: `power-off`, `power-on`, `destroy`.
    pub(crate) fn change(&self, what: &str, machine: &Machine) -> Result<()> {
        self.command(&[what, &machine.name])
    }

    /// Changes the host name that the tools of a guest report of a machine; without one they are not there.
    pub(crate) fn rename(&self, machine: &Machine, hostname: &str) -> Result<()> {
        self.command(&["hostname", &machine.name, hostname])
    }

    fn command(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.program);
        let ended = command.args(arguments).env("VCENTER", &self.about.url).stdin(Stdio::null()).output()?;
        ensure!(ended.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ended.stderr));
        Ok(())
    }
}
