//! Our cloud-controller-manager with external drivers that lie. The Node is not ready all the time, so that a wrong answer could
//! delete it.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::{
    cases::Case,
    cluster::Cluster,
    program::{Running, digest, ours},
};
use crate::{
    lab::LIMIT,
    support::{eventually, process},
};

const LIAR: &str = include_str!("liars/liar.sh");
const NODE: &str = "kept";

/// What a driver does that would lead to the deletion of the Node if it were believed.
const MODES: [&str; 13] = [
    "hangs",
    "forks",
    "floods",
    "other-instance",
    "other-version",
    "other-account",
    "other-id",
    "no-id",
    "two-answers",
    "exit-status",
    "cut-off",
    "contradiction",
    "no-list",
];

/// A driver in a folder of its own.
struct Liar {
    dir: TempDir,
    program: PathBuf,
    /// The argument of `sleep`, by which its processes are found.
    marker: String,
}

impl Liar {
    fn new() -> Result<Self> {
        let dir = process::temp_dir()?;
        let program = dir.path().join("liar.sh");
        let marker = format!("36{}.5", std::process::id());
        let folder = dir.path().display().to_string();
        fs::write(&program, LIAR.replace("FOLDER", &folder).replace("MARKER", &marker))?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        let liar = Self { dir, program, marker };
        liar.becomes("honest")?;
        Ok(liar)
    }

    fn becomes(&self, mode: &str) -> Result<()> {
        let next = self.dir.path().join("mode.next");
        fs::write(&next, mode)?;
        Ok(fs::rename(next, self.dir.path().join("mode"))?)
    }

    /// Our program with this driver.
    fn command(&self, digest: &str) -> Result<Command> {
        let mut command = Command::new(ours()?);
        command
            .arg("--cloud-provider=liar")
            .arg(format!("--driver={}@sha256:{digest}", self.program.display()))
            .arg(format!("--driver-folder={}", self.dir.path().display()))
            .arg("--node-deletion-guard=false")
            .env("LIAR_TIMEOUT", "1s");
        Ok(command)
    }

    /// Waits until it was asked for the instance of the Node several times in a mode.
    async fn was_asked(&self, mode: &str) -> Result<()> {
        eventually(&format!("questions in the mode {mode}"), LIMIT, async || {
            let calls = fs::read_to_string(self.dir.path().join("calls"))?;
            let count = calls.lines().filter(|line| *line == format!("{mode} instance-show")).count();
            ensure!(count >= 3, "{count}\n{calls}");
            Ok(Some(()))
        })
        .await
    }

    /// How many of its processes there are.
    fn processes(&self) -> Result<usize> {
        let has_marker = |path: &Path| {
            let line = fs::read(path.join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word == self.marker.as_bytes())
        };
        Ok(fs::read_dir("/proc")?.flatten().filter(|entry| has_marker(&entry.path())).count())
    }
}

#[tokio::test]
async fn a_driver_that_lies_deletes_no_node() -> Result<()> {
    let (cluster, liar) = (Cluster::new().await?, Liar::new()?);
    let kubeconfig = cluster.account("ccm").await?;
    cluster.register(&Case::known(NODE, "").provider_id("liar:///a").ready("Unknown").node("")).await?;
    let command = liar.command(&digest(&liar.program)?)?;
    let running = Running::start("ours", command, &kubeconfig, &liar.dir.path().join("log"))?;
    let played = async {
        liar.was_asked("honest").await?;
        for mode in MODES {
            liar.becomes(mode)?;
            liar.was_asked(mode).await?;
            running.passes(2).await.context(mode)?;
            ensure!(cluster.shown(NODE).await?.is_some(), "{mode}: the Node was deleted");
            if mode == "contradiction" {
                cluster.has_event(NODE, "DriverContradictsItself").await?;
            }
        }
        // The same question, answered as it should be.
        liar.becomes("gone")?;
        cluster.until(NODE, "is deleted", |shown| shown.is_none()).await
    };
    played.await.with_context(|| running.process.log_tail())?;
    running.process.terminate()?;
    eventually("the end of the program", LIMIT, async || running.process.try_wait()).await?;
    ensure!(liar.processes()? == 0, "processes of the driver are left");
    Ok(())
}

#[tokio::test]
async fn a_driver_with_one_other_byte_does_not_start() -> Result<()> {
    let liar = Liar::new()?;
    let (digest, good) = (digest(&liar.program)?, fs::read(&liar.program)?);
    for at in [0, good.len() / 2, good.len() - 1] {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        fs::write(&liar.program, bytes)?;
        let mut command = liar.command(&digest)?;
        command.arg("--kubeconfig=/nonexistent");
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let log = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        ensure!(!output.status.success() && log.contains(&digest), "byte {at}: {}\n{log}", output.status);
    }
    ensure!(!liar.dir.path().join("calls").exists(), "a driver with another byte was run");
    Ok(())
}
