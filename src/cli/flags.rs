//! Flags and output that several commands share.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use clap::{
    Args, CommandFactory, ValueEnum,
    builder::{NonEmptyStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser},
    error::ErrorKind,
};
use k8s_openapi::jiff::SignedDuration;
use kube::Client;
use serde::Serialize;

use super::{Cli, cluster_reader::ClusterReader, limits::name, provider_flags::ProviderFlags};
use crate::{
    api::placement::ApiServer,
    cluster::{client, request::REQUEST_TIMEOUT},
    facts::DEFAULT_NAMESPACE,
    files::STANDARD,
    text::{self, kubectl::Access, output, yaml},
};

/// The operator's namespace if it does not run in a Pod.
pub(super) const OPERATOR_NAMESPACE: &str = "openshift-cloud-controller-manager-operator";

const CONNECTION: &str = "Connection";

/// The connection to a cluster, and the identity to use.
#[derive(Args, Debug)]
pub struct Connection {
    /// The kubeconfig to use [default: KUBECONFIG or ~/.kube/config; in a Pod its own credentials].
    #[arg(long, value_name = "FILE", help_heading = CONNECTION)]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use [default: its current one].
    #[arg(long, value_name = "NAME", help_heading = CONNECTION)]
    pub context: Option<String>,

    /// The cluster of the kubeconfig to use [default: the context's].
    #[arg(long, value_name = "NAME", help_heading = CONNECTION)]
    pub cluster: Option<String>,

    /// The user of the kubeconfig to use [default: the context's].
    #[arg(long, value_name = "NAME", help_heading = CONNECTION)]
    pub user: Option<String>,

    /// The user to impersonate.
    #[arg(id = "as", long = "as", value_name = "USER", help_heading = CONNECTION,
        value_parser = NonEmptyStringValueParser::new())]
    pub as_user: Option<String>,

    /// A group of the user to impersonate; may be repeated.
    #[arg(long, value_name = "GROUP", requires = "as", help_heading = CONNECTION)]
    pub as_group: Vec<String>,
}

impl Connection {
    pub fn is_given(&self) -> bool {
        let Self { kubeconfig, context, cluster, user, as_user, as_group: _ } = self;
        let names = [context, cluster, user, as_user].into_iter().any(Option::is_some);
        names || kubeconfig.is_some()
    }

    pub(super) fn access(&self) -> Access {
        Access {
            kubeconfig: self.kubeconfig.clone(),
            context: given(self.context.as_ref()),
            cluster: given(self.cluster.as_ref()),
            user: given(self.user.as_ref()),
            as_user: self.as_user.clone(),
            as_groups: self.as_group.clone(),
        }
    }

    /// Creates a client for the cluster, without sending a request. A long-running process passes a file with the API server's address and
    /// a callback for each request.
    pub async fn observed_client(
        &self,
        request_timeout: Duration,
        env_file: Option<&Path>,
        on_request: Option<client::OnRequest>,
    ) -> anyhow::Result<Client> {
        client::connect(&self.access(), request_timeout, env_file, on_request).await
    }
}

/// Returns the value of a flag; as in kubectl, an empty value counts as none.
fn given(value: Option<&String>) -> Option<String> {
    value.filter(|value| !value.is_empty()).cloned()
}

/// A cluster of any kind, for a command that reads it once.
#[derive(Args, Debug)]
pub struct AnyCluster {
    #[command(flatten)]
    pub connection: Connection,

    /// The timeout of one request, such as 30 (seconds) or 1m30s; 0 means no limit [default: 15s].
    #[arg(long, value_name = "DURATION", value_parser = request_timeout, help_heading = CONNECTION)]
    pub request_timeout: Option<Duration>,
}

impl AnyCluster {
    /// Creates a client for the cluster.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let request_timeout = self.request_timeout.unwrap_or(REQUEST_TIMEOUT);
        self.connection.observed_client(request_timeout, None, None).await
    }
}

/// Parses kubectl's request timeout: a duration, seconds without a unit, or 0 for no limit.
fn request_timeout(text: &str) -> Result<Duration, &'static str> {
    match text.strip_suffix('s').unwrap_or(text).parse() {
        Ok(0) => Ok(Duration::MAX),
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => duration(text).map_err(|_| "must be seconds, a duration such as 1m30s, or 0 for no limit"),
    }
}

/// Parses a duration in Go's spelling, such as `137s` or `1m30s`.
pub(super) fn duration(text: &str) -> Result<Duration, &'static str> {
    let duration = text.parse::<SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    duration.filter(|duration| !duration.is_zero()).ok_or("must be a positive duration such as 137s or 1m30s")
}

/// The OpenShift cluster that a command reads.
#[derive(Args, Debug)]
pub struct ClusterArgs {
    #[command(flatten)]
    pub cluster: AnyCluster,

    /// The managed namespace.
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// The operator's own namespace.
    #[arg(long, value_name = "NAMESPACE", default_value = OPERATOR_NAMESPACE)]
    pub operator_namespace: String,

    #[command(flatten)]
    pub providers: ProviderFlags,

    /// The file with the images of all providers [default: the ConfigMap cloud-controller-manager-images of the cluster].
    #[arg(long, value_name = "FILE")]
    pub images_json: Option<PathBuf>,
}

impl ClusterArgs {
    /// Creates a reader of the cluster.
    pub(super) async fn reader(&self) -> anyhow::Result<ClusterReader> {
        let client = self.cluster.client().await?;
        let (namespace, own_namespace) = (self.namespace.clone(), self.operator_namespace.clone());
        Ok(ClusterReader { client, namespace, own_namespace })
    }
}

/// The format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people, 100 columns wide unless a word is longer than its column.
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
            Self::Table => output::printable(&table()),
            Self::Json => output::json(output)?,
            Self::Yaml => yaml::to_string(output)?,
        })
    }
}

/// Parses the name of a namespace.
pub(super) fn namespace(text: &str) -> Result<String, &'static str> {
    if text.contains('.') || text.len() > 63 {
        return Err("a namespace has at most 63 lower-case letters, digits and hyphens");
    }
    name(text)
}

/// Parses an address: `HOST:PORT` or `[IPV6]:PORT`.
pub(super) fn api_server(text: &str) -> Result<ApiServer, &'static str> {
    const PROBLEM: &str = "must be HOST:PORT, such as 10.0.0.10:6443 or [fd00::10]:6443";
    let (host, port) = text.rsplit_once(':').ok_or(PROBLEM)?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let bare = if is_bracketed { &host[1..host.len() - 1] } else { host };
    let is_host = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte));
    if !is_host || bare.contains(':') != is_bracketed {
        return Err(PROBLEM);
    }
    match port.parse() {
        Ok(port) if port > 0 => Ok(ApiServer { host: bare.to_owned(), port }),
        _ => Err(PROBLEM),
    }
}

/// Refuses `-`, the standard output, as a folder.
pub(super) fn folder(path: PathBuf) -> Result<PathBuf, &'static str> {
    if path.as_os_str() == STANDARD { Err("the files go into a folder, not to the standard output") } else { Ok(path) }
}

/// A parser of a type that does not depend on flags; each value has a name and a help text.
pub(super) fn choice<T: Clone + Send + Sync + 'static>(
    known: impl IntoIterator<Item = (T, &'static str, &'static str)>,
) -> impl TypedValueParser<Value = T> {
    let known: Vec<_> = known.into_iter().collect();
    let values = known.iter().map(|(_, name, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(values).try_map(move |given| {
        known.iter().find(|(_, name, _)| *name == given).map(|(value, ..)| value.clone()).ok_or("no such value")
    })
}

/// Parses a boolean in Go's spellings.
pub(super) fn boolean(text: &str) -> Result<bool, &'static str> {
    text::boolean(text).ok_or("must be true or false")
}

/// Returns the namespace of the Pod.
pub(super) fn own_namespace() -> String {
    fs::read_to_string("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
        .unwrap_or_else(|_| OPERATOR_NAMESPACE.to_owned())
}

/// One thread is enough: the work between two requests takes microseconds.
pub(super) fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Returns the error of a wrong command line, which ends with the usage of the called subcommand.
pub(super) fn wrong_usage(message: &str) -> anyhow::Error {
    let mut called = Cli::command();
    called.build();
    for word in env::args().skip(1) {
        let Some(next) = called.find_subcommand(&word).cloned() else { break };
        called = next;
    }
    called.error(ErrorKind::ValueValidation, output::printable(message)).into()
}

/// Writes a line to standard error, without terminal control characters, because parts of it may be untrusted text. Ignores failures, such
/// as a closed pipe.
pub(super) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{}", output::printable(text));
}

/// Writes the output of a command to standard output. A closed pipe, such as that to `head`, is not a failure.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("failed to write to standard output")
        }
        _ => Ok(()),
    }
}

/// Refuses more than one flag that reads standard input.
pub(super) fn one_reads_stdin<'a>(files: impl IntoIterator<Item = Option<&'a PathBuf>>) -> anyhow::Result<()> {
    let readers = files.into_iter().flatten().filter(|file| file.as_os_str() == STANDARD);
    if readers.count() > 1 {
        return Err(wrong_usage("only one of the files can be -, the standard input"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_requests_is_given_as_to_kubectl() {
        for (text, expected) in [
            ("1", Ok(Duration::from_secs(1))),
            ("30s", Ok(Duration::from_secs(30))),
            ("1m30s", Ok(Duration::from_secs(90))),
            ("500ms", Ok(Duration::from_millis(500))),
            ("0", Ok(Duration::MAX)),
            ("0s", Ok(Duration::MAX)),
        ] {
            assert_eq!(request_timeout(text), expected, "{text}");
        }
        for text in ["", "-1", "soon", "s"] {
            assert!(request_timeout(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (text, host, port) in
            [("api.lab:6443", "api.lab", 6443), ("10.0.0.1:443", "10.0.0.1", 443), ("[fd00::1]:6443", "fd00::1", 6443)]
        {
            assert_eq!(api_server(text), Ok(ApiServer { host: host.to_owned(), port }), "{text}");
        }
        for text in [
            "",
            "api.lab",
            ":6443",
            "api.lab:",
            "api.lab:0",
            "api.lab:65536",
            "fd00::1:6443",
            "[a]:1",
            "https://a:1",
            "[]:1",
        ] {
            assert!(api_server(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_those_that_kubernetes_takes() {
        for text in ["a", "kube-system", "0"] {
            assert!(namespace(text).is_ok() && name(text).is_ok(), "{text}");
        }
        assert!(namespace("a.b").is_err() && name("a.b").is_ok());
        for text in ["", "-a", "a-", "A", "a b", "*", "a/b"] {
            assert!(name(text).is_err(), "{text}");
        }
    }
}
