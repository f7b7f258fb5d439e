//! The operator as a cluster runs it: a process of its own, seen from outside.
//!
//! Owns its process, its log and its temporary folder; what it should do, the tests know.

use std::{
    path::Path,
    process::{Command, ExitStatus},
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use tempfile::TempDir;

use super::process::{self, Process};

/// A running operator; dropping it kills it.
#[derive(Debug)]
pub struct Operator {
    process: Process,
    /// Dropped after the process that writes to it.
    dir: TempDir,
}

impl Operator {
    /// Starts `binary` with `args`. It finds `kubeconfig` by the variable `KUBECONFIG`; `env` adds to the environment.
    pub fn start(binary: &Path, kubeconfig: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<Self> {
        let dir = process::temp_dir()?;
        let mut command = Command::new(binary);
        command
            .args(args)
            // Tests that themselves run in a cluster must not show through.
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env("KUBECONFIG", kubeconfig)
            .envs(env.iter().copied());
        let process = Process::spawn("the operator", command, &dir.path().join("operator.log"))?;
        Ok(Self { process, dir })
    }

    /// A folder for files of the operator's own; gone with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Asks it to end, as a kubelet does (SIGTERM).
    pub fn terminate(&self) -> Result<()> {
        self.process.terminate()
    }

    /// Ends it as a crash would (SIGKILL).
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Waits until it has ended by itself or by a signal.
    pub async fn wait(&self, timeout: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            if started.elapsed() > timeout {
                bail!("the operator still runs after {timeout:?}:\n{}", self.process.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Everything that it has written to standard output and standard error.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Resident memory in KiB; zero once it has ended.
    pub fn rss_kib(&self) -> u64 {
        self.process.rss_kib()
    }

    /// Processor time used so far, user and system.
    pub fn cpu_seconds(&self) -> f64 {
        self.process.cpu_seconds()
    }
}
