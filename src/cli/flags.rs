//! Flags and output that several commands share.

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

use anyhow::Context;
use clap::{Args, CommandFactory, ValueEnum, error::ErrorKind};
use kube::Client;
use serde::Serialize;

use super::{Cli, cluster_reader::ClusterReader};
use crate::{
    cluster::client,
    facts::DEFAULT_NAMESPACE,
    text::{output, yaml},
};

/// The operator's namespace if it does not run in a Pod.
const OPERATOR_NAMESPACE: &str = "openshift-cloud-controller-manager-operator";

/// How to reach a cluster.
#[derive(Args, Debug)]
pub struct Connection {
    /// The kubeconfig to use [default: KUBECONFIG or ~/.kube/config; in a Pod its own credentials].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

impl Connection {
    /// A client; sends no request.
    pub async fn client(&self) -> anyhow::Result<Client> {
        client::connect(self.kubeconfig.as_deref(), None).await
    }
}

/// The cluster that a command reads.
#[derive(Args, Debug)]
pub struct ClusterArgs {
    /// The connection to it.
    #[command(flatten)]
    pub connection: Connection,

    /// The managed namespace.
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// The file with the images of all providers [default: the ConfigMap cloud-controller-manager-images of the cluster].
    #[arg(long, value_name = "FILE")]
    pub images_json: Option<PathBuf>,
}

impl ClusterArgs {
    /// The cluster, to be read.
    pub(super) async fn reader(&self) -> anyhow::Result<ClusterReader> {
        let client = self.connection.client().await?;
        Ok(ClusterReader { client, namespace: self.namespace.clone(), own_namespace: own_namespace() })
    }
}

/// The format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people, at most 100 columns wide.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

impl OutputFormat {
    pub(super) fn write<T: Serialize>(self, output: &T, table: impl FnOnce() -> String) -> anyhow::Result<String> {
        Ok(match self {
            Self::Table => table(),
            Self::Json => output::json(output)?,
            Self::Yaml => yaml::to_string(output)?,
        })
    }
}

/// Parses a boolean in Go's spellings.
pub(super) fn boolean(text: &str) -> Result<bool, &'static str> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false"),
    }
}

/// The namespace of the Pod.
pub(super) fn own_namespace() -> String {
    fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        .unwrap_or_else(|_| OPERATOR_NAMESPACE.to_owned())
}

/// One thread is enough: the work between two requests takes microseconds.
pub(super) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Ends with exit code 2.
pub(super) fn wrong_usage(message: &str) -> ! {
    Cli::command().error(ErrorKind::ValueValidation, message).exit()
}

/// Writes a line to standard error. A failure, such as a closed pipe, is ignored.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes the output of a command to standard output.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    io::stdout().write_all(text.as_bytes()).context("failed to write to standard output")
}
