//! The two programs: k8s.io/cloud-provider and ours.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use ccm_operator::object::reference::hex;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::cloud::Cloud;
use crate::{
    lab::{LIMIT, binary},
    support::{
        artifacts, eventually,
        process::Process,
        scrape::{free_port, get},
    },
};

/// A program of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// k8s.io/cloud-provider.
    Library,
    /// Ours.
    Ours,
}

/// The name of our cloud-controller-manager.
pub(crate) const NAME: &str = "docker-cloud-controller-manager";

/// Our cloud-controller-manager: `CLOUD_CONTROLLER_MANAGER`, or the one beside the operator's binary.
pub(crate) fn ours() -> Result<PathBuf> {
    let named = env::var_os("CLOUD_CONTROLLER_MANAGER").map(PathBuf::from);
    let program = named.unwrap_or_else(|| binary().with_file_name(NAME));
    ensure!(
        program.is_file(),
        "the program {} does not exist: run `cargo build --package ccm-cloud-controller-manager`, or set \
         CLOUD_CONTROLLER_MANAGER to another one",
        program.display()
    );
    Ok(program)
}

/// The digest of a file, as `sha256sum` prints it.
pub(super) fn digest(file: &Path) -> Result<String> {
    Ok(hex(&Sha256::digest(fs::read(file)?)))
}

/// The flags of both programs: they look more often than by default, and are not limited by the client.
pub(super) fn flags(kubeconfig: &Path, port: u16) -> Vec<String> {
    let kubeconfig = kubeconfig.display();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--controllers=cloud-node-controller,cloud-node-lifecycle-controller".to_owned(),
        "--node-monitor-period=200ms".to_owned(),
        "--node-status-update-frequency=500ms".to_owned(),
        "--kube-api-qps=200".to_owned(),
        "--kube-api-burst=400".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        "--v=2".to_owned(),
    ]
}

impl Side {
    /// The name of its account.
    pub(super) const fn account(self) -> &'static str {
        match self {
            Self::Library => "ccm",
            Self::Ours => NAME,
        }
    }

    /// Its name in the page.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Library => "k8s.io/cloud-provider",
            Self::Ours => "ours",
        }
    }

    /// The command on a cloud. Deletions are guarded in neither.
    pub(super) async fn command(self, cloud: &Cloud) -> Result<Command> {
        let mut command = match self {
            Self::Library => Command::new(artifacts::library_on_fake_cloud().await?),
            Self::Ours => Command::new(ours()?),
        };
        match self {
            Self::Library => {
                command.arg(format!("--cloud-config={}", cloud.file.display())).arg("--webhook-secure-port=0")
            }
            Self::Ours => command.env("FAKE_ENDPOINT", cloud.endpoint()).arg("--node-deletion-guard=false"),
        };
        command.arg("--cloud-provider=fake");
        Ok(command)
    }
}

/// A program that runs, and its server of metrics.
pub(super) struct Running {
    pub(super) process: Process,
    port: u16,
    token: String,
}

impl Running {
    /// Starts a command with the flags of both programs.
    pub(super) fn start(name: &str, mut command: Command, kubeconfig: &Path, log: &Path) -> Result<Self> {
        let port = free_port()?;
        command.args(flags(kubeconfig, port)).env_remove("KUBECONFIG");
        let credentials: Value = serde_json::from_str(&fs::read_to_string(kubeconfig)?)?;
        // A proxy has the credentials itself.
        let token = credentials["users"][0]["user"]["token"].as_str().unwrap_or_default().to_owned();
        Ok(Self { process: Process::spawn(name, command, log)?, port, token })
    }

    /// The sum of a metric over all labels, once the program serves it; zero if there is none.
    pub(super) async fn metric(&self, name: &str) -> Result<f64> {
        let text = eventually("the metrics", LIMIT, async || {
            ensure!(self.process.try_wait()?.is_none(), "it has ended");
            let (code, text, _) = get(self.port, Some(&self.token), "/metrics").await?;
            ensure!(code == 200, "{code} {text}");
            Ok(Some(text))
        })
        .await
        .with_context(|| self.process.log_tail())?;
        let lines = text.lines().filter_map(|line| line.strip_prefix(name));
        let values = lines.filter(|rest| rest.starts_with([' ', '{'])).filter_map(|rest| rest.rsplit(' ').next());
        values.map(|value| Ok(value.parse::<f64>()?)).sum()
    }

    /// Waits until the lifecycle controller has looked at all Nodes so many times more.
    pub(super) async fn passes(&self, number: u32) -> Result<()> {
        const PASSES: &str = "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count";
        let before = self.metric(PASSES).await?;
        eventually("passes of the lifecycle controller", LIMIT, async || {
            let passes = self.metric(PASSES).await? - before;
            ensure!(passes > f64::from(number), "{passes}");
            Ok(Some(()))
        })
        .await
        .with_context(|| self.process.log_tail())
    }
}

/// The largest resident memory of a process so far, in KiB.
pub(super) fn peak_kib(process: &Process) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid()))?;
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
    Ok(value.trim().trim_end_matches(" kB").parse()?)
}
