//! Flags of the commands that run controllers, and of their leader election.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{
    flags::{Connection, duration},
    go_operator::KlogFlags,
    limits::LimitFlags,
    provider_flags::{EXTERNAL_PROVIDERS, ProviderFlags},
};
use crate::{
    facts::{DEFAULT_NAMESPACE, OPERATOR_LEASE},
    process::lease::Timings,
};

/// The lease of the config-sync controllers, the same as the Go operator's.
pub(super) const CONFIG_SYNC_LEASE: &str = "cluster-cloud-config-sync-leader";

/// OpenShift's timings for highly available clusters: a lease survives 60 s without an API server.
pub(super) const HIGHLY_AVAILABLE: Timings = Timings::seconds(137, 107, 26);

/// OpenShift's timings for a single node, whose API server is unavailable for longer.
pub(super) const SINGLE_REPLICA: Timings = Timings::seconds(270, 240, 60);

const LEADER_ELECTION: &str = "Leader election";

/// A group of controllers that run under one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ControllerGroup {
    /// All groups.
    #[value(name = "*")]
    All,
    /// Applies the provider's manifests and reports the ClusterOperator's status.
    Operator,
    /// Syncs the cloud's configuration and the trusted certificates.
    ConfigSync,
}

/// Flags of every command that runs controllers.
#[derive(Args, Debug)]
pub struct ControllersArgs {
    /// The namespace to manage.
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// The operator's own namespace [default: the Pod's].
    #[arg(long, value_name = "NAMESPACE")]
    pub operator_namespace: Option<String>,

    /// The address that serves /healthz and /readyz; without a host, all addresses.
    #[arg(long, value_name = "ADDRESS", default_value = ":9440")]
    pub health_addr: String,

    #[command(flatten)]
    pub connection: Connection,

    /// A file with the address of the API server, such as /etc/kubernetes/apiserver-url.env on OpenShift nodes. It takes
    /// precedence over the Pod's environment, whose address works only with a pod network.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context", "cluster", "user"])]
    pub api_server_env_file: Option<PathBuf>,

    /// The system's trusted certificates, merged into the bundle that the cloud-controller-manager trusts.
    #[arg(long, value_name = "FILE", default_value = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem")]
    pub system_trust_bundle: PathBuf,

    #[command(flatten)]
    pub providers: ProviderFlags,

    /// The external providers to remove, comma-separated: their objects are deleted, and a built-in provider that serves the cluster
    /// takes over.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = EXTERNAL_PROVIDERS)]
    pub remove_provider: Vec<String>,

    /// The version that this operator reports.
    #[arg(env = "RELEASE_VERSION", long, value_name = "VERSION", hide_short_help = true)]
    pub release_version: Option<String>,

    #[command(flatten)]
    pub leader_election: LeaderElectionArgs,

    #[command(flatten)]
    pub klog: KlogFlags,
}

#[derive(Args, Debug)]
pub struct ConfigSyncArgs {
    #[command(flatten)]
    pub common: ControllersArgs,

    /// The name of the lease.
    #[arg(long, value_name = "NAME", default_value = CONFIG_SYNC_LEASE, help_heading = LEADER_ELECTION)]
    pub leader_elect_resource_name: String,
}

#[derive(Args, Debug)]
pub struct OperatorArgs {
    /// Log what the operator would do, and write nothing: no object, no status, no lease.
    #[arg(long, conflicts_with = "controllers")]
    pub dry_run: bool,

    #[command(flatten)]
    pub common: ControllersArgs,

    /// The controllers to run in this process, each group with its own lease.
    #[arg(long, value_enum, value_name = "GROUPS", value_delimiter = ',', default_value = "*")]
    pub controllers: Vec<ControllerGroup>,

    /// The name of the operator's lease.
    #[arg(long, value_name = "NAME", default_value = OPERATOR_LEASE,
        help_heading = LEADER_ELECTION)]
    pub leader_elect_resource_name: String,

    /// The file with the images of all providers, a JSON object from keys to image references. Changes take effect at once.
    #[arg(long, value_name = "FILE", default_value = "/etc/cloud-controller-manager-config/images.json")]
    pub images_json: PathBuf,

    /// On clusters other than OpenShift: the namespaces that a CloudControllerManager may name [default: kube-system]. The operator needs a
    /// Role in each. With this flag the operator never treats the cluster as OpenShift.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',')]
    pub namespaces: Vec<String>,

    /// On clusters other than OpenShift: let cloud-controller-managers delete nodes that the operator has confirmed, if a
    /// CloudControllerManager requests it. The operator needs the permissions of an installation with this flag.
    #[arg(long)]
    pub node_deletion: bool,

    #[command(flatten)]
    pub limits: LimitFlags,

    /// The minimum TLS version of /metrics, and on OpenShift of the cloud-controller-manager's servers; overrides the cluster's
    /// TLS profile.
    #[arg(long, value_name = "VERSION", value_parser = ["VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"])]
    pub tls_min_version: Option<String>,

    /// The cipher suites of /metrics, and on OpenShift of the cloud-controller-manager's servers, by IANA names; overrides the
    /// TLS profile.
    #[arg(long, value_name = "SUITES", value_delimiter = ',')]
    pub tls_cipher_suites: Vec<String>,

    /// The address that serves /metrics over HTTPS, to clients with a token and permission to get it; 0 disables it.
    #[arg(long, value_name = "ADDRESS", default_value = ":9258")]
    pub metrics_bind_address: String,

    /// The folder with tls.crt and tls.key of the /metrics server. Until both exist, the server uses its own certificate.
    #[arg(long, value_name = "DIR", default_value = "/tmp/k8s-metrics-server/serving-certs")]
    pub metrics_cert_dir: PathBuf,

    /// Accepted for the Go operator's command lines; nothing is served.
    #[arg(long, value_name = "PORT", default_value_t = 9443, hide_short_help = true)]
    pub webhook_port: u16,
}

/// Flags of leader election.
#[derive(Args, Debug)]
#[allow(clippy::struct_field_names, reason = "the fields are the names of the flags")]
pub struct LeaderElectionArgs {
    /// Compete for the lease, and act only while holding it.
    #[arg(long, help_heading = LEADER_ELECTION, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
        default_missing_value = "true", action = clap::ArgAction::Set)]
    pub leader_elect: bool,

    /// The namespace of the lease [default: the operator's own].
    #[arg(long, help_heading = LEADER_ELECTION, value_name = "NAMESPACE")]
    pub leader_elect_resource_namespace: Option<String>,

    /// How long a lease stays valid without a renewal [default: 137s; 270s on a single node].
    #[arg(long, help_heading = LEADER_ELECTION, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_lease_duration: Option<Duration>,

    /// How long the holder retries a renewal before it gives up the lease [default: 107s; 240s on a single node].
    #[arg(long, help_heading = LEADER_ELECTION, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_renew_deadline: Option<Duration>,

    /// The time between two attempts to acquire or renew the lease [default: 26s; 60s on a single node].
    #[arg(long, help_heading = LEADER_ELECTION, value_name = "DURATION", value_parser = duration)]
    pub leader_elect_retry_period: Option<Duration>,

    /// Accepted for the Go operator's command lines; the lock is always a Lease.
    #[arg(long, help_heading = LEADER_ELECTION, value_name = "KIND", hide_short_help = true)]
    pub leader_elect_resource_lock: Option<String>,
}

impl LeaderElectionArgs {
    /// Returns the timings if at least one is given. The error describes the problem.
    pub fn timings(&self) -> Result<Option<Timings>, &'static str> {
        let given =
            [self.leader_elect_lease_duration, self.leader_elect_renew_deadline, self.leader_elect_retry_period];
        if given.iter().all(Option::is_none) {
            return Ok(None);
        }
        let default = HIGHLY_AVAILABLE;
        let timings = Timings {
            lease_duration: given[0].unwrap_or(default.lease_duration),
            renew_deadline: given[1].unwrap_or(default.renew_deadline),
            retry_period: given[2].unwrap_or(default.retry_period),
        };
        timings.problem().map_or(Ok(Some(timings)), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn operator(arguments: &str) -> Result<OperatorArgs, clap::Error> {
        let cli = Cli::try_parse_from(["ccm-operator", "operator"].into_iter().chain(arguments.split_whitespace()))?;
        match cli.command {
            Command::Operator(operator) => Ok(operator),
            _ => unreachable!(),
        }
    }

    #[test]
    fn the_go_operators_command_line_is_accepted() {
        let args = operator(
            "--leader-elect=true --leader-elect-lease-duration=137s --leader-elect-renew-deadline=1m47s \
             --leader-elect-retry-period=26s --leader-elect-resource-namespace=openshift-cloud-controller-manager-operator \
             --images-json=/x/images.json --webhook-port=9443 --metrics-bind-address=:9258 --health-addr=127.0.0.1:9259 -v=2 \
             --logtostderr=true --stderrthreshold=INFO --one_output",
        )
        .unwrap();
        assert!(args.common.leader_election.leader_elect);
        assert_eq!(args.common.leader_election.timings(), Ok(Some(HIGHLY_AVAILABLE)));
        assert!(!operator("--leader-elect=false").unwrap().common.leader_election.leader_elect);
        assert!(operator("--leader-elect").unwrap().common.leader_election.leader_elect);
        assert_eq!(operator("").unwrap().common.leader_election.timings(), Ok(None));
        assert!(operator("--leader-elect-lease-duration=60s").unwrap().common.leader_election.timings().is_err());
    }

    #[test]
    fn the_timings_of_openshift_are_allowed() {
        assert_eq!((HIGHLY_AVAILABLE.problem(), SINGLE_REPLICA.problem()), (None, None));
    }

    #[test]
    fn durations_are_parsed_as_in_go() {
        for (text, seconds) in [("137s", 137.0), ("1m30s", 90.0), ("2h", 7200.0), ("500ms", 0.5), ("1.5h", 5400.0)] {
            assert_eq!(duration(text).map(|duration| duration.as_secs_f64()), Ok(seconds), "{text}");
        }
        for text in ["", "5", "-1s", "0s", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
