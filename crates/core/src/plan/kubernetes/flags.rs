//! The values of flags that cloud-controller-managers refuse when they start, and the feature gates that they know
//! (pure).
//!
//! A program ends at a value that it refuses, and the operator would have replaced its pods by then. The facts are from
//! these sources:
//!
//! - Types and defaults of the flags of every cloud: k8s.io/cloud-provider, k8s.io/controller-manager and
//!   k8s.io/component-base, the same from v0.29.6 to v0.37.2. github.com/spf13/pflag v1.0.10 parses the values with
//!   Go's `strconv`, `time` and `encoding/csv`.
//! - The burst of requests: `kubernetes/clientset.go` of k8s.io/client-go v0.37.0.
//! - The leader election: `tools/leaderelection/leaderelection.go` there.
//! - Linode: `main.go`, `cloud/linode/cloud.go` and `cloud/linode/services/vpc.go` of linode-cloud-controller-manager
//!   v0.9.8, the same from v0.9.0.
//! - Outscale: `ccm/options.go` of cloud-provider-osc v1.36.7.
//!
//! No other program changes a type or a default. Flags that are missing here take any text.

use std::collections::BTreeMap;

use crate::text::{
    boolean,
    go::{duration, float, integer, is_csv},
    suggest::Hints,
};

/// The arguments of a `CloudControllerManager`.
type Arguments = BTreeMap<String, String>;

const BURST: &str = "--kube-api-burst";
const QPS: &str = "--kube-api-qps";

/// The default of `--kube-api-qps`.
const DEFAULT_QPS: f32 = 20.0;

/// The leader election, with its defaults.
const LEASE: (&str, &str) = ("--leader-elect-lease-duration", "15s");
const RENEW: (&str, &str) = ("--leader-elect-renew-deadline", "10s");
const RETRY: (&str, &str) = ("--leader-elect-retry-period", "2s");

/// A second in nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// The shortest time between two runs of a loop, in nanoseconds.
const SHORTEST_PERIOD: i64 = SECOND / 10;

/// The maximum number of characters of a value in a message.
const LONGEST_SHOWN: usize = 64;

/// The type of a flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The number of workers of a controller. The programs start with 0, and then the controller does nothing.
    Workers,
    Int32,
    Int64,
    Float32,
    Duration,
    /// The time between two runs of a loop. The programs start with 0, and then run without a pause; what is as good as
    /// no pause is refused with it.
    Period,
    Bool,
    /// Texts, as a line of CSV.
    Texts,
    Numbers,
    /// Pairs such as `a=b`.
    Pairs,
    /// The prefix of the names of Linode's load balancers.
    Prefix,
}

impl Kind {
    fn words(self) -> &'static str {
        match self {
            Self::Workers => "a whole number from 1 to 2147483647",
            Self::Int32 => "a whole number up to 2147483647",
            Self::Int64 => "a whole number",
            Self::Float32 => "a number",
            Self::Duration => "a duration",
            Self::Period => "a duration of at least 100ms",
            Self::Bool => "a boolean",
            Self::Texts => "a list with commas, and quotation marks only around whole items,",
            Self::Numbers => "a list of whole numbers with commas and no blanks",
            Self::Pairs => "a list of pairs",
            Self::Prefix => "a text of 1 to 19 letters, digits, hyphens and underscores",
        }
    }

    /// Whether the program accepts a value.
    fn accepts(self, text: &str) -> bool {
        match self {
            Self::Workers => integer(text).is_some_and(|number| (1..=i64::from(i32::MAX)).contains(&number)),
            Self::Int32 => integer(text).is_some_and(|number| i32::try_from(number).is_ok()),
            Self::Int64 => integer(text).is_some(),
            Self::Float32 => float(text).is_some(),
            Self::Duration => duration(text).is_some(),
            Self::Period => duration(text).is_some_and(|period| period >= SHORTEST_PERIOD),
            Self::Bool => boolean(text).is_some(),
            Self::Texts => is_csv(text),
            Self::Numbers => text.split(',').all(|number| number.parse::<i64>().is_ok()),
            Self::Pairs => text.split(',').all(|pair| pair.is_empty() || pair.contains('=')),
            Self::Prefix => {
                let fits = |one: u8| one.is_ascii_alphanumeric() || matches!(one, b'-' | b'_');
                (1..=19).contains(&text.len()) && text.bytes().all(fits)
            }
        }
    }
}

/// A flag whose values are checked.
struct Flag {
    /// The provider, if only its program has the flag.
    cloud: Option<&'static str>,
    name: &'static str,
    kind: Kind,
    /// A value that the program accepts. The examples of a program's flags fit together, except for flags that exclude
    /// each other.
    example: &'static str,
}

const fn common(name: &'static str, kind: Kind, example: &'static str) -> Flag {
    Flag { cloud: None, name, kind, example }
}

const fn of(cloud: &'static str, name: &'static str, kind: Kind, example: &'static str) -> Flag {
    Flag { cloud: Some(cloud), name, kind, example }
}

static FLAGS: [Flag; 24] = [
    common("--concurrent-node-syncs", Kind::Workers, "5"),
    common("--concurrent-service-syncs", Kind::Workers, "5"),
    common(BURST, Kind::Int32, "30"),
    common(QPS, Kind::Float32, "20"),
    common(LEASE.0, Kind::Duration, "30s"),
    common(RENEW.0, Kind::Duration, "20s"),
    common(RETRY.0, Kind::Duration, "5s"),
    common("--min-resync-period", Kind::Duration, "12h"),
    common("--node-monitor-period", Kind::Period, "5s"),
    common("--node-status-update-frequency", Kind::Period, "5m"),
    common("--route-reconciliation-period", Kind::Period, "1m30s"),
    of("linode", "--disable-nodebalancer-vpc-backends", Kind::Bool, "true"),
    of("linode", "--enable-ipv6-for-loadbalancers", Kind::Bool, "true"),
    of("linode", "--enable-ipv6-for-nodebalancer-backends", Kind::Bool, "true"),
    of("linode", "--enable-token-health-checker", Kind::Bool, "true"),
    of("linode", "--nodebalancer-backend-ipv4-subnet-id", Kind::Int64, "1234"),
    of("linode", "--nodebalancer-prefix", Kind::Prefix, "ccm"),
    of("linode", "--nodebalancer-tags", Kind::Texts, "team-a,prod"),
    of("linode", "--subnet-ids", Kind::Numbers, "1234,5678"),
    of("linode", "--subnet-names", Kind::Texts, "default"),
    of("linode", "--vpc-ids", Kind::Numbers, "1234,5678"),
    of("linode", "--vpc-names", Kind::Texts, "vpc-a,vpc-b"),
    of("outscale", "--extra-loadbalancer-tags", Kind::Pairs, "team=a,env=prod"),
    of("outscale", "--extra-node-labels", Kind::Pairs, "team=a,env=prod"),
];

/// A provider, and two flags of which its program accepts only one.
const EXCLUSIVE: [(&str, &str, &str); 2] = [
    ("linode", "--vpc-ids", "--vpc-names"),
    ("linode", "--nodebalancer-backend-ipv4-subnet-id", "--nodebalancer-backend-ipv4-subnet-name"),
];

/// A provider, and two flags of which its program accepts the first only with the second.
const NEEDED: [(&str, &str, &str); 2] =
    [("linode", "--vpc-ids", "--subnet-ids"), ("linode", "--subnet-ids", "--vpc-ids")];

fn known(provider: &str, flag: &str) -> Option<&'static Flag> {
    FLAGS.iter().find(|known| known.name == flag && known.cloud.is_none_or(|cloud| cloud == provider))
}

/// Returns a value of a flag that the program of a provider accepts; `None` if the flag takes any text.
pub fn example(provider: &str, flag: &str) -> Option<&'static str> {
    known(provider, flag).map(|known| known.example)
}

/// Returns the first problem of the arguments: the program would refuse them.
pub(super) fn problem(provider: &str, arguments: &Arguments) -> Option<String> {
    let refused = arguments.iter().find_map(|(flag, value)| refused(provider, flag, value));
    refused
        .or_else(|| burst(arguments))
        .or_else(|| leader_election(arguments))
        .or_else(|| combination(provider, arguments))
}

fn refused(provider: &str, flag: &str, value: &str) -> Option<String> {
    let known = known(provider, flag)?;
    if known.kind.accepts(value) {
        return None;
    }
    Some(format!("{flag}: {} is not {} such as {}", shown(value), known.kind.words(), known.example))
}

/// Returns the quoted beginning of a text.
fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(LONGEST_SHOWN).collect::<String>())
}

fn burst(arguments: &Arguments) -> Option<String> {
    let burst = arguments.get(BURST)?;
    let qps = arguments.get(QPS).map_or(Some(DEFAULT_QPS), |text| float(text))?;
    let is_refused = integer(burst)? < 1 && qps > 0.0;
    is_refused.then(|| format!("{BURST}: {} has to be at least 1, unless {QPS} is 0 or less", shown(burst)))
}

fn leader_election(arguments: &Arguments) -> Option<String> {
    let timing = |(flag, default): (&str, &str)| {
        let (text, note) = arguments.get(flag).map_or((default, " by default"), |text| (text.as_str(), ""));
        Some((duration(text)?, format!("{flag} ({text}{note})")))
    };
    let ((lease, lease_words), (renew, renew_words), (retry, retry_words)) =
        (timing(LEASE)?, timing(RENEW)?, timing(RETRY)?);
    if lease <= renew {
        Some(format!("{lease_words} has to be longer than {renew_words}"))
    } else if i128::from(renew) * 10 <= i128::from(retry) * 12 {
        Some(format!("{renew_words} has to be longer than 1.2 times {retry_words}"))
    } else if retry < 1 {
        Some(format!("{retry_words} has to be longer than 0s"))
    } else if lease / SECOND > i64::from(i32::MAX) {
        Some(format!("{lease_words} has to be at most {} seconds, the longest of a Lease", i32::MAX))
    } else if lease < SECOND {
        // The Lease has whole seconds, and the program would never become the leader.
        Some(format!("{lease_words} has to be at least 1s: the API server refuses a Lease of 0 seconds"))
    } else {
        None
    }
}

fn combination(provider: &str, arguments: &Arguments) -> Option<String> {
    let is_set = |flag: &str| arguments.get(flag).is_some_and(|value| !value.is_empty() && value != "0");
    let both = EXCLUSIVE.iter().find(|(cloud, one, other)| *cloud == provider && is_set(one) && is_set(other));
    let alone = NEEDED.iter().find(|(cloud, one, other)| *cloud == provider && is_set(one) && !is_set(other));
    let both = both.map(|(_, one, other)| format!("{one} and {other} exclude each other: remove one of them"));
    both.or_else(|| alone.map(|(_, one, other)| format!("{one} needs {other}")))
}

/// The feature gates of cloud-controller-managers, of all versions together: those of k8s.io/apiserver,
/// k8s.io/controller-manager and k8s.io/component-base from v0.29.6 to v0.37.2, which programs with
/// k8s.io/cloud-provider register. Each program has those of its version.
///
/// A program with k8s.io/kubernetes may also have the gates of that version of Kubernetes, as OpenStack's does
/// (`cmd/openstack-cloud-controller-manager/main.go` of cloud-provider-openstack v1.36.0). So a gate that is not listed
/// is not certainly refused.
const GATES: &str = "
    APIListChunking APIPriorityAndFairness APIResponseCompression APIServerIdentity APIServerTracing
    APIServerWebhookAuthenticationToken APIServingWithRoutine AdmissionWebhookMatchConditions
    AggregatedDiscoveryEndpoint AggregatedDiscoveryRemoveBetaType AllAlpha AllBeta AllowParsingUserUIDFromCertAuth
    AllowUnsafeMalformedObjectDeletion AnonymousAuthConfigurableEndpoints AuthorizeWithSelectors BtreeWatchCache
    CBORServingAndStorage CloudControllerManagerWatchBasedRoutesReconciliation CloudControllerManagerWebhook
    CloudDualStackNodeIPs ComponentFlagz ComponentSLIs ComponentStatusz ConcurrentWatchObjectDecode
    ConsistentListFromCache ConsistentListFromCacheSkipTimeoutFallback ConstrainedImpersonation ContextualLogging
    ControllerManagerReleaseLeaderElectionLockOnExit CoordinatedLeaderElection CustomResourceValidationExpressions
    DeclarativeValidation DeclarativeValidationBeta DeclarativeValidationTakeover DetectCacheInconsistency
    EfficientWatchResumption EtcdRangeStream ExcludeAdmissionWebhookVirtualResources InPlacePodVerticalScaling
    KMSv1 KMSv2 KMSv2KDF ListFromCacheSnapshot LoggingAlphaOptions LoggingBetaOptions LoggingStableOptions
    ManifestBasedAdmissionControlConfig MutatingAdmissionPolicy NativeHistograms OpenAPIEnums RemainingItemCount
    RemoteRequestHeaderUID RemoveSelfLink ResilientWatchCacheInitialization RetryGenerateName SeparateCacheWatchRPC
    ServerSideApply ServerSideFieldValidation ShardedListAndWatch SizeBasedListCostEstimate
    StableLoadBalancerNodeSet StorageVersionAPI StorageVersionHash StreamingCollectionEncodingToJSON
    StreamingCollectionEncodingToProtobuf StrictCostEnforcementForVAP StrictCostEnforcementForWebhooks
    StructuredAuthenticationConfiguration StructuredAuthenticationConfigurationEgressSelector
    StructuredAuthenticationConfigurationJWKSMetrics StructuredAuthorizationConfiguration
    TokenRequestServiceAccountUIDValidation UnauthenticatedHTTP2DOSMitigation UnknownVersionInteroperabilityProxy
    ValidatingAdmissionPolicy WatchBookmark WatchCacheInitializationPostStartHook
    WatchFromStorageWithoutResourceVersion WatchList WatchListCompression WebhookRoundTripLoadBalancing
    ZeroLimitedNominalConcurrencyShares
";

/// Returns the problem of a name that cannot stand in `--feature-gates`.
pub(super) fn unfit_gate(gates: &BTreeMap<String, bool>) -> Option<String> {
    let unfit = gates.keys().find(|gate| gate.trim().is_empty() || gate.contains([',', '=']))?;
    Some(format!("{} is not the name of a feature gate such as ContextualLogging", shown(unfit)))
}

/// Returns human-readable warnings about feature gates that the program may not know.
pub(super) fn unknown_gates(gates: &BTreeMap<String, bool>) -> Vec<String> {
    let hints = Hints::default();
    let known: Vec<&str> = GATES.split_whitespace().collect();
    let unknown = gates.keys().map(String::as_str).map(str::trim).filter(|gate| !known.contains(gate));
    let warning = |gate: &str| {
        let hint = hints.of(gate, known.iter().copied());
        format!(
            "spec.featureGates: {} is no feature gate of k8s.io/cloud-provider 0.29 to 0.37{hint}: the \
             cloud-controller-manager ends when it starts, unless its own code has this gate",
            shown(gate)
        )
    };
    unknown.map(warning).collect()
}

#[cfg(test)]
mod tests;
