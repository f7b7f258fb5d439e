//! The command `version`: the version of this program and of the cluster's API server.

use anyhow::Context;
use clap::Args;
use k8s_openapi::apimachinery::pkg::version::Info;
use serde::Serialize;

use super::flags::{AnyCluster, OutputFormat, print, runtime};
use crate::{
    cluster::request::{self, NO_DEADLINE},
    version::{COMMIT, VERSION},
};

#[derive(Args, Debug)]
pub struct VersionArgs {
    /// Print only this program's version, without a request to a cluster.
    #[arg(long)]
    pub client: bool,

    #[command(flatten)]
    pub cluster: AnyCluster,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Both versions, with the names of `kubectl version -o json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    client_version: ClientVersion,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_version: Option<Info>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ClientVersion {
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    git_commit: Option<&'static str>,
    platform: String,
}

/// Prints the versions; this program's version even if the cluster does not answer.
pub(super) fn run(args: &VersionArgs) -> anyhow::Result<()> {
    let server = if args.client { Ok(None) } else { runtime()?.block_on(server(args)).map(Some) };
    let (server_version, failure) = match server {
        Ok(version) => (version, None),
        Err(error) => (None, Some(error)),
    };
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let client_version = ClientVersion { version: VERSION, git_commit: COMMIT, platform };
    let versions = Versions { client_version, server_version };
    print(&args.output.write(&versions, || lines(&versions))?)?;
    failure.map_or(Ok(()), Err)
}

async fn server(args: &VersionArgs) -> anyhow::Result<Info> {
    let client = args.cluster.client().await?;
    let version = request::send(NO_DEADLINE, client.apiserver_version()).await;
    version.context("failed to read the version of the API server")
}

fn lines(Versions { client_version, server_version }: &Versions) -> String {
    let ClientVersion { version, git_commit, platform } = client_version;
    let commit = git_commit.map(|commit| format!(", commit {commit}")).unwrap_or_default();
    let server = server_version
        .as_ref()
        .map(|server| format!("Server  Kubernetes {}, {}\n", server.git_version, server.platform));
    format!("Client  ccm-operator {version}{commit}, {platform}\n{}", server.unwrap_or_default())
}
