//! The flags: those of k8s.io/cloud-provider with their names and defaults, and a few of this program.

use std::{convert::Infallible, net::IpAddr, path::PathBuf, time::Duration};

use ccm_all_drivers::DriverFlags;
use ccm_kit::process::leadership::Timings;
use clap::{ArgAction, Args, ValueEnum};

use crate::text::{boolean, go};

pub(crate) mod accepted;
pub(crate) mod controllers;

use controllers::Chosen;
pub(crate) use controllers::Controller;

const CLOUD: &str = "Cloud";
const CONTROLLERS: &str = "Controllers";
const DELETION: &str = "Deletion of nodes";
const CONNECTION: &str = "Connection to the API server";
const ELECTION: &str = "Leader election";
const SERVING: &str = "Serving of /healthz, /livez, /readyz and /metrics";
const LOGS: &str = "Logs";

/// What a command line asks for.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) flags: Flags,
    pub(crate) controllers: Chosen,
    /// The name of the cloud that the program's own name says; `None` if it says none.
    pub(crate) called_as: Option<String>,
    /// A line for each flag that has no effect.
    pub(crate) warnings: Vec<String>,
}

/// The flags that have an effect.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "flags")]
pub(crate) struct Flags {
    /// Print the version and end.
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) version: Option<String>,

    /// The driver of the cloud [default: the name of the program without -cloud-controller-manager].
    #[arg(long, value_name = "NAME", help_heading = CLOUD)]
    pub(crate) cloud_provider: Option<String>,

    /// The file with the settings of the account, in the form of ccm-cloud's --config. It has one account of the driver. Variables such
    /// as `DOCKER_HOST` win over it.
    #[arg(long, value_name = "FILE", value_parser = path, help_heading = CLOUD)]
    pub(crate) cloud_config: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) driver: DriverFlags,

    /// The controllers to run, comma-separated: * for all, a name or an alias for one, and with - in front all but this one. The
    /// controllers are cloud-node-controller (cloud-node) and cloud-node-lifecycle-controller (cloud-node-lifecycle). The library's
    /// service-lb-controller (service) and node-route-controller (route) are known and not supported.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "*", allow_hyphen_values = true,
        help_heading = CONTROLLERS)]
    pub(crate) controllers: Vec<String>,

    /// The time between two passes of cloud-node-lifecycle-controller over all nodes.
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "5s", help_heading = CONTROLLERS)]
    pub(crate) node_monitor_period: Duration,

    /// The time between two updates of the addresses and labels of all nodes.
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "5m0s", help_heading = CONTROLLERS)]
    pub(crate) node_status_update_frequency: Duration,

    /// The maximum number of nodes that are initialized or updated at once.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..), default_value_t = 1,
        help_heading = CONTROLLERS)]
    pub(crate) concurrent_node_syncs: u16,

    /// Decide in this process which nodes may be deleted. Set it to false only where ccm-operator decides, by its policy and role.
    #[arg(long, value_name = "BOOL", value_parser = boolean_flag, num_args = 0..=1, require_equals = true, default_value = "true",
        default_missing_value = "true", action = ArgAction::Set, help_heading = DELETION)]
    pub(crate) node_deletion_guard: bool,

    /// The time for which a node must not have been ready before it may be deleted: from 1m0s to 168h.
    #[arg(long, value_name = "DURATION", value_parser = not_ready, default_value = "10m0s", help_heading = DELETION)]
    pub(crate) node_deletion_min_not_ready: Duration,

    /// The maximum number of nodes that are deleted per hour: from 1 to 1000.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000), default_value_t = 5,
        help_heading = DELETION)]
    pub(crate) node_deletion_max_per_hour: u32,

    /// The maximum percentage of the cloud's nodes that may wait for their deletion at once; one node always may. With more, none is
    /// deleted.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100), default_value_t = 20,
        help_heading = DELETION)]
    pub(crate) node_deletion_max_percent: u8,

    /// The kubeconfig to use [default: KUBECONFIG or ~/.kube/config; in a Pod its own credentials].
    #[arg(long, value_name = "FILE", value_parser = path, help_heading = CONNECTION)]
    pub(crate) kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) election: ElectionFlags,

    #[command(flatten)]
    pub(crate) serving: ServingFlags,

    /// The verbosity of the log: from 4 on debug messages and each operation of the driver, from 6 on those of libraries.
    #[arg(long, short, value_name = "LEVEL", default_value_t = 0, help_heading = LOGS)]
    pub(crate) v: u8,

    /// The format of the log.
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text", help_heading = LOGS)]
    pub(crate) logging_format: LoggingFormat,
}

/// The format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoggingFormat {
    /// Lines for people.
    Text,
    /// One JSON document for each line.
    Json,
}

/// Flags of leader election.
#[derive(Args, Debug)]
#[allow(clippy::struct_field_names, reason = "the fields are the names of the flags")]
pub(crate) struct ElectionFlags {
    /// Compete for the lease, and act only while holding it.
    #[arg(long, value_name = "BOOL", value_parser = boolean_flag, num_args = 0..=1, require_equals = true, default_value = "true",
        default_missing_value = "true", action = ArgAction::Set, help_heading = ELECTION)]
    pub(crate) leader_elect: bool,

    /// The name of the lease. It also keeps the account that was used first.
    #[arg(long, value_name = "NAME", default_value = "cloud-controller-manager", help_heading = ELECTION)]
    pub(crate) leader_elect_resource_name: String,

    /// The namespace of the lease.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", help_heading = ELECTION)]
    pub(crate) leader_elect_resource_namespace: String,

    /// How long a lease stays valid without a renewal.
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "15s", help_heading = ELECTION)]
    pub(crate) leader_elect_lease_duration: Duration,

    /// How long the holder retries a renewal before it gives up the lease.
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "10s", help_heading = ELECTION)]
    pub(crate) leader_elect_renew_deadline: Duration,

    /// The time between two attempts to acquire or renew the lease.
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "2s", help_heading = ELECTION)]
    pub(crate) leader_elect_retry_period: Duration,

    /// The kind of the lock: always leases.
    #[arg(long, value_name = "KIND", value_parser = ["leases"], default_value = "leases", help_heading = ELECTION,
        hide_short_help = true)]
    pub(crate) leader_elect_resource_lock: String,
}

impl ElectionFlags {
    /// Returns namespace and name of the lease.
    pub(crate) fn lease(&self) -> (&str, &str) {
        (&self.leader_elect_resource_namespace, &self.leader_elect_resource_name)
    }

    /// Returns the timings. The error describes the problem.
    pub(crate) fn timings(&self) -> Result<Timings, &'static str> {
        let timings = Timings {
            lease_duration: self.leader_elect_lease_duration,
            renew_deadline: self.leader_elect_renew_deadline,
            retry_period: self.leader_elect_retry_period,
        };
        timings.problem().map_or(Ok(timings), Err)
    }
}

/// Flags of the server.
#[derive(Args, Debug)]
pub(crate) struct ServingFlags {
    /// The address to listen on; an unspecified one means all addresses of both families.
    #[arg(long, value_name = "IP", default_value = "0.0.0.0", help_heading = SERVING)]
    pub(crate) bind_address: IpAddr,

    /// The port of HTTPS; 0 serves nothing.
    #[arg(long, value_name = "PORT", default_value_t = 10258, help_heading = SERVING)]
    pub(crate) secure_port: u16,

    /// The certificate of the server, which may be replaced while the process runs [default: a self-signed one].
    #[arg(long, value_name = "FILE", value_parser = path, help_heading = SERVING)]
    pub(crate) tls_cert_file: Option<PathBuf>,

    /// The private key of --tls-cert-file.
    #[arg(long, value_name = "FILE", value_parser = path, help_heading = SERVING)]
    pub(crate) tls_private_key_file: Option<PathBuf>,

    /// The folder with cloud-controller-manager.crt and cloud-controller-manager.key, used once both exist; --tls-cert-file wins.
    /// Nothing is written there.
    #[arg(long, value_name = "DIR", value_parser = path, help_heading = SERVING)]
    pub(crate) cert_dir: Option<PathBuf>,

    /// The cipher suites below TLS 1.3, by IANA names [default: all that this program knows].
    #[arg(long, value_name = "SUITES", value_delimiter = ',', help_heading = SERVING)]
    pub(crate) tls_cipher_suites: Vec<String>,

    /// The minimum version of TLS. Below 1.2 nothing is served.
    #[arg(long, value_name = "VERSION", value_parser = ["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"],
        default_value = "VersionTLS12", help_heading = SERVING)]
    pub(crate) tls_min_version: String,

    /// The kubeconfig for reviews of tokens and of permissions for /metrics [default: that of the controllers].
    #[arg(long, value_name = "FILE", value_parser = path, help_heading = SERVING)]
    pub(crate) authentication_kubeconfig: Option<PathBuf>,

    /// The same as --authentication-kubeconfig, which is used if both are given.
    #[arg(long, value_name = "FILE", value_parser = path, help_heading = SERVING)]
    pub(crate) authorization_kubeconfig: Option<PathBuf>,

    /// The paths that need no token, comma-separated. Those of health never need one; name /metrics to open it as well.
    #[arg(long, value_name = "PATHS", value_delimiter = ',', default_value = "/healthz,/readyz,/livez", help_heading = SERVING)]
    pub(crate) authorization_always_allow_paths: Vec<String>,
}

/// Parses a path. As in the library, an empty one counts as not given: see [`given`].
#[allow(clippy::unnecessary_wraps, reason = "a parser")]
fn path(text: &str) -> Result<PathBuf, Infallible> {
    Ok(text.into())
}

/// Returns the path of a flag, unless it is empty.
pub(crate) fn given(path: Option<&PathBuf>) -> Option<&PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

/// Parses a boolean in Go's spellings.
fn boolean_flag(text: &str) -> Result<bool, &'static str> {
    boolean(text).ok_or("must be true or false")
}

/// Parses the time for which a node must not have been ready. A shorter one would delete nodes that restart.
fn not_ready(text: &str) -> Result<Duration, &'static str> {
    let allowed = Duration::from_secs(60)..=Duration::from_secs(604_800);
    period(text).ok().filter(|time| allowed.contains(time)).ok_or("must be a duration from 1m0s to 168h")
}

/// Parses a duration in Go's form that is longer than zero.
fn period(text: &str) -> Result<Duration, &'static str> {
    let nanoseconds = go::duration(text).and_then(|nanoseconds| u64::try_from(nanoseconds).ok());
    let period = nanoseconds.filter(|nanoseconds| *nanoseconds > 0).map(Duration::from_nanos);
    period.ok_or("must be a positive duration such as 5s or 1m30s")
}
