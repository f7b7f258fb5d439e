//! The Docker Engine of the tests, and the operator's image on it.

use std::{
    env,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::OnceCell,
};

use crate::support::{
    eventually,
    lab::{LIMIT, binary, repository},
    operator::Operator,
};

/// The base of the image under test: a few files of Debian at the places of UBI.
pub(crate) const BASE: &str = "localhost/ccm-operator-e2e-base:latest";
/// The image under test.
const IMAGE: &str = "localhost/ccm-operator-e2e:latest";

/// The output of a `docker` command.
pub(crate) fn docker(arguments: &[&str]) -> Result<String> {
    // Never an engine that happens to run on this machine.
    ensure!(env::var_os("CCM_OPERATOR_E2E").is_some(), "these tests need the engine that `make e2e` starts: use it");
    run(Command::new("docker").args(arguments))
}

/// Runs a command of docker that takes some time, while other tasks continue.
pub(crate) async fn docker_at_length(arguments: &[&str]) -> Result<String> {
    let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    let all = move || docker(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(all).await?
}

/// Whether the tests run in their own namespaces with their own engine: privileged machines and a cloud must not run elsewhere.
pub(crate) fn owns_the_engine() -> Result<bool> {
    let is_own = env::var_os("CCM_OPERATOR_E2E").is_some_and(|value| value == "namespaces");
    ensure!(is_own || env::var_os("CI").is_none(), "this needs the engine that `make e2e` starts: use it");
    if !is_own {
        writeln!(io::stderr(), "skipped: a kubelet needs an engine of its own; run it without DOCKER_HOST")?;
    }
    Ok(is_own)
}

/// The binary of the operator: `OPERATOR`, or the one that cargo has built for the tests.
pub(crate) fn operator() -> Result<PathBuf> {
    env::var_os("OPERATOR").map_or_else(binary, |named| Ok(named.into()))
}

/// The output of a command.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("failed to run {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} exited with {}:\n{error}", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// The body of an answer from a port of this host.
pub(crate) async fn http_get(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    // HTTP 1.0 has no chunks.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| answer.clone())?;
    ensure!(head.split(' ').nth(1) == Some("200"), "{path}: {answer}");
    Ok(body.to_owned())
}

/// Builds the image under test from the binary that cargo has built for the tests, as `make image` does from the release
/// binary; returns its name. `OPERATOR` names another binary.
pub(crate) async fn image() -> Result<&'static str> {
    static BUILT: OnceCell<()> = OnceCell::const_new();
    let build = || async {
        let base = run(&mut Command::new(repository().join("hack/e2e/base.sh")))?;
        docker(&["import", &base, BASE])?;
        let mut build = Command::new(repository().join("hack/image.sh"));
        build.arg(operator()?).args([
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

/// The engine's description of the image.
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

    /// The container of this name, which something else has made.
    pub(crate) fn of(name: &str) -> Result<Self> {
        let client = Operator::start(Path::new("docker"), Path::new("/nonexistent"), &["logs", "--follow", name], &[])?;
        Ok(Self { name: name.to_owned(), client })
    }

    /// The output of a command in it.
    pub(crate) async fn exec(&self, command: &[&str]) -> Result<String> {
        docker_at_length(&[&["exec", &self.name], command].concat()).await
    }

    /// Copies a file of this host into it.
    pub(crate) async fn copy(&self, file: &Path, path: &str) -> Result<()> {
        docker_at_length(&["cp", &file.to_string_lossy(), &format!("{}:{path}", self.name)]).await.map(drop)
    }

    /// Ends it at once, as a machine whose power is cut.
    pub(crate) async fn cut_power(&self) -> Result<()> {
        docker_at_length(&["kill", &self.name]).await.map(drop)
    }

    /// The time since the container started.
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
