//! The shell of somebody who follows a page: one folder, and variables that last from command to command.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::page::{Block, Mark};
use crate::{
    lab::{LIMIT, binary},
    support::{artifacts, eventually},
};

/// Longer than any command takes; one that hangs fails.
const TIMEOUT: &str = "300";

/// A shell for an administrator of a cluster.
pub(crate) struct Shell {
    programs: TempDir,
    folder: TempDir,
    kubeconfig: PathBuf,
}

impl Shell {
    pub(crate) async fn new(kubeconfig: &Path) -> Result<Self> {
        let (programs, folder) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let kubectl = artifacts::binaries().await?.join("kubectl");
        ensure!(kubectl.exists(), "{} is missing: unset KUBEBUILDER_ASSETS, or add kubectl there", kubectl.display());
        symlink(&kubectl, programs.path().join("kubectl"))?;
        symlink(binary(), programs.path().join("ccm-operator"))?;
        let shell = Self { programs, folder, kubeconfig: kubeconfig.to_owned() };
        // `oc` has kubectl's commands.
        shell.program("oc", &format!("exec {}/kubectl \"$@\"", shell.programs.path().display()))?;
        Ok(shell)
    }

    /// Adds a program that is this script.
    pub(crate) fn program(&self, name: &str, script: &str) -> Result<()> {
        let path = self.programs.path().join(name);
        fs::write(&path, format!("#!/bin/bash\n{script}\n"))?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    }

    /// The folder in which commands run.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a block as its mark says.
    pub(super) async fn follow(&self, block: &Block) -> Result<()> {
        for command in &block.commands {
            let run = async |expected| {
                let (code, output) = self.run(command).await?;
                ensure!(code == Some(expected), "{}: exit code {code:?} of {command}\n{output}", block.place);
                Ok(Some(()))
            };
            match block.mark {
                Mark::NotRun => {}
                Mark::ExitCode(expected) => run(expected).await.map(drop)?,
                Mark::Repeated => eventually("success", LIMIT, async || run(0).await).await?,
                Mark::None => run(0).await.map(drop)?,
            }
        }
        Ok(())
    }

    /// The exit code of a command, and what it prints.
    pub(crate) async fn run(&self, command: &str) -> Result<(Option<i32>, String)> {
        let variables = self.programs.path().join("variables");
        let script = format!(
            "set -o pipefail; [ ! -e {0} ] || . {0}\nset -o allexport\n{command}\ncode=$?; export -p >{0}; exit $code",
            variables.display()
        );
        let mut bash = Command::new("timeout");
        bash.args([TIMEOUT, "bash", "-c", &script]).current_dir(self.folder.path()).env_clear();
        let path = std::env::var("PATH").unwrap_or_default();
        bash.env("PATH", format!("{}:{path}", self.programs.path().display()));
        bash.env("HOME", self.programs.path()).env("KUBECONFIG", &self.kubeconfig);
        let output = tokio::task::spawn_blocking(move || bash.output()).await??;
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        Ok((output.status.code(), text))
    }
}
