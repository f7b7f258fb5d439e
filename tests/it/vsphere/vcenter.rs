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
pub(super) const USER: &str = "ccm@vsphere.local";
/// Its password.
pub(super) const PASSWORD: &str = "correct-password";

/// A running vCenter.
pub(super) struct VCenter {
    pub(super) about: About,
    program: PathBuf,
    _process: Process,
    _dir: TempDir,
}

/// What it prints about itself.
#[derive(Deserialize)]
pub(super) struct About {
    url: String,
    pub(super) port: String,
    /// Of its server, which signs itself, as PEM.
    pub(super) certificate: String,
    pub(super) datacenter: String,
    pub(super) machines: Vec<Machine>,
}

/// A machine of the vCenter.
#[derive(Deserialize)]
pub(super) struct Machine {
    name: String,
    /// The name of its Node.
    pub(super) hostname: String,
    pub(super) uuid: String,
    pub(super) address: String,
}

impl VCenter {
    pub(super) async fn start() -> Result<Self> {
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

    /// Changes a machine: `power-off`, `power-on` or `destroy`.
    pub(super) fn change(&self, what: &str, machine: &Machine) -> Result<()> {
        let mut command = Command::new(&self.program);
        let ended =
            command.args([what, &machine.name]).env("VCENTER", &self.about.url).stdin(Stdio::null()).output()?;
        ensure!(ended.status.success(), "{what} {}: {}", machine.name, String::from_utf8_lossy(&ended.stderr));
        Ok(())
    }
}
