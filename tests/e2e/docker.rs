//! The Docker Engine of the tests, and the operator's image on it.

use std::{
    env,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::support::{
    eventually,
    lab::{LIMIT, binary, repository},
    operator::Operator,
};

/// The base of the image under test: a few files of Debian at the places of UBI.
const BASE: &str = "localhost/ccm-operator-e2e-base:latest";
/// The image under test.
const IMAGE: &str = "localhost/ccm-operator-e2e:latest";

/// The output of a `docker` command.
pub(crate) fn docker(arguments: &[&str]) -> Result<String> {
    // Never an engine that happens to run on this machine.
    ensure!(env::var_os("CCM_OPERATOR_E2E").is_some(), "these tests need the engine that `make e2e` starts: use it");
    run(Command::new("docker").args(arguments))
}

/// The output of a command.
fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("failed to run {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} exited with {}:\n{error}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// Builds the image under test from the binary that cargo has built for the tests, as `make image` does from the release
/// binary; returns its name. `OPERATOR` names another binary.
pub(crate) async fn image() -> Result<&'static str> {
    static BUILT: OnceCell<()> = OnceCell::const_new();
    let build = || async {
        let base = run(&mut Command::new(repository().join("hack/e2e/base.sh")))?;
        docker(&["import", &base, BASE])?;
        let binary = env::var_os("OPERATOR").map_or_else(binary, |named| Ok(named.into()))?;
        let mut build = Command::new(repository().join("hack/image.sh"));
        build.arg(binary).args([
            "--build-arg",
            &format!("BASE={BASE}"),
            "--build-arg",
            &format!("CERTIFICATES={BASE}"),
        ]);
        run(build.env("CONTAINER_TOOL", "docker").env("IMAGE", IMAGE)).map(drop)
    };
    BUILT.get_or_try_init(build).await?;
    Ok(IMAGE)
}

/// What the engine knows of the image.
pub(crate) async fn inspect_image() -> Result<Value> {
    let found: Value = serde_json::from_str(&docker(&["image", "inspect", image().await?])?)?;
    Ok(found[0].clone())
}

/// A running container, removed when it is dropped.
pub(crate) struct Container {
    name: String,
    /// The attached client: its log is the container's, it passes signals on, and it exits as the container does.
    pub(crate) client: Operator,
}

impl Container {
    /// `docker run` with these arguments, which name the image.
    pub(crate) fn run(arguments: &[String]) -> Result<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // Longer than an id, because the engine also takes a part of an id for a name.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ccm-operator-e2e-{:0>64}-{count}", std::process::id());
        let all: Vec<&str> = ["run", "--name", &name].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        let client = Operator::start(Path::new("docker"), Path::new("/nonexistent"), &all, &[])?;
        Ok(Self { name, client })
    }

    /// How long it has been running.
    pub(crate) async fn age(&self) -> Result<SignedDuration> {
        let inspected = eventually("the container", LIMIT, async || {
            docker(&["container", "inspect", "--format", "{{.State.StartedAt}}", &self.name]).map(Some)
        });
        let started: Timestamp = inspected.await?.parse()?;
        Ok(Timestamp::now().duration_since(started))
    }

    /// Waits until it has ended well.
    pub(crate) async fn succeeded(&self) -> Result<()> {
        let status = self.client.wait(LIMIT).await?;
        ensure!(status.success(), "exited with {status}:\n{}", self.client.log());
        Ok(())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = docker(&["rm", "--force", "--volumes", &self.name]);
    }
}
