//! The flags of k8s.io/cloud-provider that are accepted and have no effect, so that its command lines work.

use clap::{Arg, ArgAction, ArgMatches, Command, parser::ValueSource};

use crate::text::boolean;

/// Those with a value, with the reason why they have no effect.
const VALUES: [(&str, &str); 49] = [
    ("authentication-token-webhook-cache-ttl", REVIEWS),
    ("authorization-webhook-cache-authorized-ttl", REVIEWS),
    ("authorization-webhook-cache-unauthorized-ttl", REVIEWS),
    ("cidr-allocator-type", NO_ROUTES),
    ("client-ca-file", TOKENS),
    ("cluster-cidr", NO_ROUTES),
    ("cluster-name", NO_SERVICES),
    ("concurrent-node-lifecycle-syncs", "one list of the cloud answers for all nodes"),
    ("concurrent-node-status-updates", "--concurrent-node-syncs decides"),
    ("concurrent-service-syncs", NO_SERVICES),
    ("controller-start-interval", "the controllers start at once"),
    ("external-cloud-volume-plugin", "it is a flag of kube-controller-manager"),
    ("feature-gates", "the library's features are not in this program"),
    ("http2-max-streams-per-connection", HTTP1),
    ("kube-api-burst", "the API server limits requests by priority and fairness"),
    ("kube-api-content-type", "requests are JSON"),
    ("kube-api-qps", "the API server limits requests by priority and fairness"),
    ("leader-migration-config", MIGRATION),
    ("log-flush-frequency", "each line is written at once"),
    ("log-json-info-buffer-size", "each line is written at once"),
    ("log-text-info-buffer-size", "each line is written at once"),
    ("master", "the server of the kubeconfig is used: name the server there"),
    ("min-resync-period", "watches need no periodic lists"),
    ("node-sync-period", "the library ignores it as well"),
    ("requestheader-allowed-names", TOKENS),
    ("requestheader-client-ca-file", TOKENS),
    ("requestheader-extra-headers-prefix", TOKENS),
    ("requestheader-group-headers", TOKENS),
    ("requestheader-uid-headers", TOKENS),
    ("requestheader-username-headers", TOKENS),
    ("route-reconciliation-period", NO_ROUTES),
    ("tls-curve-preferences", "the library of TLS decides"),
    ("tls-sni-cert-key", "one certificate is served"),
    ("vmodule", "-v holds for all"),
    ("webhook-bind-address", NO_WEBHOOKS),
    ("webhook-cert-dir", NO_WEBHOOKS),
    (WEBHOOK_PORT, NO_WEBHOOKS),
    ("webhook-tls-cert-file", NO_WEBHOOKS),
    ("webhook-tls-cipher-suites", NO_WEBHOOKS),
    ("webhook-tls-curve-preferences", NO_WEBHOOKS),
    ("webhook-tls-min-version", NO_WEBHOOKS),
    ("webhook-tls-private-key-file", NO_WEBHOOKS),
    ("webhook-tls-sni-cert-key", NO_WEBHOOKS),
    ("webhooks", NO_WEBHOOKS),
    // Older versions of the library have these.
    ("log-backtrace-at", REMOVED),
    ("log-dir", REMOVED),
    ("log-file", REMOVED),
    ("log-file-max-size", REMOVED),
    ("stderrthreshold", REMOVED),
];

/// Those that are switches, with the value that describes this program, which gives no warning.
const SWITCHES: [(&str, bool, &str); 21] = [
    ("allocate-node-cidrs", false, NO_ROUTES),
    ("allow-untagged-cloud", false, "the library ignores it as well"),
    ("authentication-skip-lookup", true, TOKENS),
    ("authentication-tolerate-lookup-failure", false, TOKENS),
    ("configure-cloud-routes", false, NO_ROUTES),
    ("contention-profiling", false, PROFILING),
    ("disable-http2-serving", true, HTTP1),
    ("enable-leader-migration", false, MIGRATION),
    ("log-json-split-stream", false, "all lines go to standard error"),
    ("log-text-split-stream", false, "all lines go to standard error"),
    ("permit-address-sharing", false, "the port is this process's own"),
    ("permit-port-sharing", false, "the port is this process's own"),
    ("profiling", false, PROFILING),
    ("use-service-account-credentials", false, "all controllers have the rights of one account"),
    ("webhook-disable-http2-serving", true, NO_WEBHOOKS),
    ("add-dir-header", false, REMOVED),
    ("alsologtostderr", true, REMOVED),
    ("logtostderr", true, REMOVED),
    ("one-output", false, REMOVED),
    ("skip-headers", false, REMOVED),
    ("skip-log-headers", false, REMOVED),
];

const HTTP1: &str = "HTTP/1.1 is served";
const MIGRATION: &str = "there is one lease";
const NO_ROUTES: &str = "drivers have no routes";
const NO_SERVICES: &str = "drivers have no load balancers";
const NO_WEBHOOKS: &str = "there are no webhooks";
const PROFILING: &str = "there is no profiler; SIGUSR1 shows what the process does";
const REMOVED: &str = "logs go to standard error; the library has removed it as well";
const REVIEWS: &str = "allowed reviews are kept for 60 s, and others for 10 s";
const TOKENS: &str = "clients are known by their tokens";

/// The port of webhooks, whose value 0 describes this program.
const WEBHOOK_PORT: &str = "webhook-secure-port";

/// Adds these flags to a command.
pub(crate) fn augment(command: Command) -> Command {
    let flag = |name: &'static str| Arg::new(name).long(name).hide(true).action(ArgAction::Set);
    let switch = |(name, ..): (&'static str, bool, &str)| {
        let is_boolean = |text: &str| boolean(text).ok_or("must be true or false");
        flag(name).num_args(0..=1).require_equals(true).default_missing_value("true").value_parser(is_boolean)
    };
    command.args(VALUES.map(|(name, _)| flag(name).allow_hyphen_values(true))).args(SWITCHES.map(switch))
}

/// Returns a line for each of these flags that was given, unless its value describes what this program does.
pub(crate) fn warnings(matches: &ArgMatches) -> Vec<String> {
    let is_given = |name: &str| matches.value_source(name) == Some(ValueSource::CommandLine);
    let is_port_0 =
        |name: &str| name == WEBHOOK_PORT && matches.get_one::<String>(name).is_some_and(|port| port == "0");
    let values = VALUES.iter().filter(|(name, _)| is_given(name) && !is_port_0(name));
    let switches = SWITCHES.iter().filter(|(name, does, _)| is_given(name) && matches.get_one(name) != Some(does));
    let switches = switches.map(|(name, _, reason)| (name, reason));
    let all = values.map(|(name, reason)| (name, reason)).chain(switches);
    all.map(|(name, reason)| format!("--{name} has no effect: {reason}")).collect()
}

/// The names of these flags.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    VALUES.iter().map(|(name, _)| *name).chain(SWITCHES.iter().map(|(name, ..)| *name))
}
