//! The operator as a process, seen from outside.
//!
//! Owns the process, its log and its temporary folder.

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
    /// Starts `binary` with `args`, with `KUBECONFIG` set to `kubeconfig` and with the variables `env`.
    pub fn start(binary: &Path, kubeconfig: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<Self> {
        let dir = process::temp_dir()?;
        let mut command = Command::new(binary);
        command
            .args(args)
            // The tests may themselves run in a cluster.
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env("KUBECONFIG", kubeconfig)
            .envs(env.iter().copied());
        let process = Process::spawn("the operator", command, &dir.path().join("operator.log"))?;
        Ok(Self { process, dir })
    }

    /// A folder for the operator's files, removed with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops it as a kubelet does (SIGTERM).
    pub fn terminate(&self) -> Result<()> {
        self.process.terminate()
    }

    /// Asks it what it does (SIGUSR1).
    pub fn ask(&self) -> Result<()> {
        self.process.ask()
    }

    /// Stops it for some time, as a paused machine does (SIGSTOP).
    pub fn pause(&self) -> Result<()> {
        self.process.pause()
    }

    /// Lets it go on after [`Self::pause`].
    pub fn resume(&self) -> Result<()> {
        self.process.resume()
    }

    /// Stops it like a crash (SIGKILL).
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// Waits until it has exited.
    pub async fn wait(&self, timeout: Duration) -> Result<ExitStatus> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            if started.elapsed() > timeout {
                bail!("the operator is still running after {timeout:?}:\n{}", self.process.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The standard output and standard error of the operator.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Resident memory in KiB; zero once it has exited.
    pub fn rss_kib(&self) -> u64 {
        self.process.rss_kib()
    }

    /// Resident memory that is backed by no file, in KiB; zero once it has exited.
    pub fn anonymous_kib(&self) -> u64 {
        self.process.anonymous_kib()
    }

    /// Processor time, user and system.
    pub fn cpu_seconds(&self) -> f64 {
        self.process.cpu_seconds()
    }
}
