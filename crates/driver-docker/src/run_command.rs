//! Commands in containers.

use std::time::Duration;

use async_trait::async_trait;
use ccm_drivers::contract::{CommandOutput, Error, ErrorKind, Result, RunCommand, State};
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use crate::{
    client::{Body, Engine},
    driver::Engines,
};

mod output;

use output::Output;

/// How often the exit code is asked for after the end of the output, and the pause in between.
const ATTEMPTS: usize = 100;
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "Id")]
    id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Exec {
    running: bool,
    exit_code: Option<i64>,
}

#[async_trait]
impl RunCommand for Engines {
    async fn run(&self, id: &str, command: &[String]) -> Result<CommandOutput> {
        if command.is_empty() {
            return Err(Error::invalid("command", "the command is empty"));
        }
        let (engine, container) = self.locate_own(id).await?;
        if container.state() == State::Stopped {
            let problem = format!("the container {id} is stopped: start it with instance-start");
            return Err(Error::invalid("id", problem));
        }
        let body = json!({"AttachStdout": true, "AttachStderr": true, "Cmd": command});
        let path = format!("/containers/{}/exec", container.id);
        let answer = engine.send(Method::POST, &path, Body::Json(body)).await?.ok()?;
        let Created { id } = answer.json()?;
        if id.is_empty() || !id.bytes().all(|at| at.is_ascii_alphanumeric()) {
            return Err(Error::new(ErrorKind::Internal, "the Engine has answered no id of the command"));
        }
        let body = Body::Json(json!({"Detach": false, "Tty": false}));
        let mut stream = engine.stream(Method::POST, &format!("/exec/{id}/start"), body).await?;
        let mut output = Output::default();
        while let Some(piece) = stream.next().await? {
            output.push(&piece)?;
        }
        let (stdout, stderr) = output.end()?;
        Ok(CommandOutput { exit_code: exit_code(engine, &id).await?, stdout, stderr })
    }
}

/// The exit code, which the Engine may know a moment after the end of the output.
async fn exit_code(engine: &Engine, id: &str) -> Result<i64> {
    for _ in 0..ATTEMPTS {
        let exec: Exec = engine.get(&format!("/exec/{id}/json")).await?;
        if let (false, Some(code)) = (exec.running, exec.exit_code) {
            return Ok(code);
        }
        tokio::time::sleep(PAUSE).await;
    }
    let region = &engine.host.region;
    Err(Error::new(ErrorKind::Timeout, format!("region {region}: the command has closed its output and did not end")))
}
