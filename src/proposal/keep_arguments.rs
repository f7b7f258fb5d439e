//! The flags of an existing cloud-controller-manager without code of their own (pure).

use std::collections::BTreeMap;

use super::{
    existing::Existing,
    keep_controllers::{is_of_routes, runs_node_ipam},
    proposed::{Handling, Input, ProposedCcm},
    provider::argument,
};
use crate::{
    nodes::observed::flags,
    provider::kubernetes::{Descriptor, KubernetesProvider},
    text::mask,
};

/// Flags with a field in the specification, or with separate code.
const FIELDS: [&str; 16] = [
    "allocate-node-cidrs",
    "cluster-name",
    "controllers",
    "configure-cloud-routes",
    "cluster-cidr",
    "leader-elect",
    "leader-elect-resource-lock",
    "leader-elect-resource-name",
    "leader-elect-resource-namespace",
    "secure-port",
    "feature-gates",
    "v",
    "cloud-config",
    "cloud-config-secret-name",
    "cloud-config-secret-namespace",
    "cloud-config-key",
];

/// Those on which nodes, load balancers or routes depend, each with the way to keep a value that the API does not show.
const BY_HAND: [(&str, &str); 10] = [
    ("cloud-config", "give the configuration with --cloud-config"),
    ("cluster-cidr", "write it into spec.network.podCIDRs, and set spec.controllers.route if there are routes today"),
    ("cluster-name", "write it into spec.clusterName, or load balancers and routes get other names"),
    ("configure-cloud-routes", "set spec.controllers.route"),
    ("controllers", "set spec.controllers"),
    ("feature-gates", "write it into spec.featureGates"),
    ("leader-elect", LEASE),
    ("leader-elect-resource-lock", LEASE),
    ("leader-elect-resource-name", LEASE),
    ("leader-elect-resource-namespace", LEASE),
];

/// The effect of a lease that the API does not show.
const LEASE: &str = "which lease the old one has is not known, so that it has to be stopped first";

/// Flags with their default values.
const DEFAULTS: [(&str, &str); 4] = [
    ("allow-untagged-cloud", "false"),
    ("bind-address", "0.0.0.0"),
    ("logtostderr", "true"),
    ("use-service-account-credentials", "false"),
];

/// The beginnings of flags for the log, the port and the requests of any program of Kubernetes. Neither nodes nor load balancers depend
/// on them.
const OF_PROCESS: [&str; 17] = [
    "authentication-",
    "authorization-",
    "bind-address",
    "cert-dir",
    "client-ca-file",
    "contention-profiling",
    "controller-start-interval",
    "http2-max-streams",
    "kube-api-",
    "log",
    "permit-",
    "profiling",
    "requestheader-",
    "stderrthreshold",
    "tls-",
    "vmodule",
    "webhook-",
];

/// Flags that only the controller of the nodes' pod subnets reads.
const OF_NODE_IPAM: [&str; 6] = [
    "cidr-allocator-type",
    "disable-ipv6-node-cidr-allocation",
    "node-cidr-mask-size",
    "node-cidr-mask-size-ipv4",
    "node-cidr-mask-size-ipv6",
    "service-cluster-ip-range",
];

/// The effects of losing flags of any program of Kubernetes.
const LOST: [(&str, &str); 2] = [
    ("kubeconfig", "the pods connect as their ServiceAccount, to the API server of this cluster"),
    ("master", "the pods connect to the API server of this cluster, or to that of spec.placement.apiServer"),
];

/// Whether a flag is only for the log, the port or the requests of a program.
pub(super) fn is_of_process(flag: &str) -> bool {
    ["v", "secure-port"].contains(&flag) || OF_PROCESS.iter().any(|begin| flag.starts_with(begin))
}

/// Returns the flags of a program without hyphens, each with its value, and as the manifest writes it. Variables in values may be
/// credentials, so they are shown unexpanded.
pub(super) fn given<'a>(existing: &'a Existing) -> BTreeMap<&'a str, (&'a str, String)> {
    let written: BTreeMap<_, _> = flags(&existing.container).into_iter().collect();
    // Other words with a hyphen are those of a shell.
    let is_flag = |flag: &str| {
        (flag.len() > 1 || flag == "v")
            && flag.starts_with(|first: char| first.is_ascii_lowercase())
            && flag.chars().all(|one| one.is_ascii_alphanumeric() || "-._".contains(one))
    };
    let names = existing.flags.iter().map(|(flag, _)| flag.as_str()).filter(|flag| is_flag(flag));
    let shown = |flag: &str, value: &str| {
        let shown = written.get(flag).and_then(Option::as_deref).unwrap_or(value);
        mask::text(&format!("--{flag}={shown}"))
    };
    let one = |flag: &'a str| {
        let value = existing.flag(flag).unwrap_or_default();
        (flag, (value, shown(flag, value)))
    };
    names.map(one).collect()
}

/// Returns the cloud-controller-manager without the flags that refer to variables that the API does not show as text, and reports them.
pub(super) fn without_open(
    proposed: &mut ProposedCcm,
    existing: &Existing,
    provider: &KubernetesProvider,
    input: &Input,
) -> Existing {
    let mut closed = existing.with_config_maps(input.found);
    let open = closed.open_flags();
    let has_lease = existing.lease().is_some();
    for (flag, (_, what)) in given(existing).into_iter().filter(|(flag, _)| open.contains(*flag)) {
        // The namespace of the pods is known.
        if has_lease && flag == "leader-elect-resource-namespace" {
            continue;
        }
        let is_allowed = provider.descriptor.allowed_arguments.iter().any(|one| one.trim_start_matches('-') == flag);
        let by_hand = BY_HAND.iter().find(|(known, _)| *known == flag).map(|(_, by_hand)| *by_hand);
        let by_hand = by_hand.or(is_allowed.then_some("write it into spec.arguments, if it is no secret"));
        let is_switch = is_of_routes(provider, &format!("--{flag}"));
        let by_hand =
            by_hand.or(is_switch.then_some("set spec.controllers.route to Enabled if there are routes today"));
        let (result, how) = match by_hand {
            Some(by_hand) => {
                let how = "its value is in a variable that the API does not show as text";
                (Handling::NotKept, format!("{how}: {by_hand}"))
            }
            None => handling(existing, provider, &format!("--{flag}"), ""),
        };
        proposed.note(result, what, how);
    }
    closed.flags.retain(|(flag, _)| !open.contains(flag));
    closed
}

/// Keeps or reports the flags without a field.
pub(super) fn arguments(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider) {
    let others = given(existing).into_iter().filter(|(flag, (value, _))| {
        !FIELDS.contains(flag) && !DEFAULTS.contains(&(*flag, *value)) && !is_of_routes(provider, &format!("--{flag}"))
    });
    for (flag, (value, what)) in others {
        let flag = format!("--{flag}");
        if provider.descriptor.allowed_arguments.contains(&flag) {
            proposed.set_at(&["arguments", &flag], value);
            proposed.note(Handling::Kept, what, "spec.arguments");
        } else {
            let (result, how) = handling(existing, provider, &flag, value);
            proposed.note(result, what, how);
        }
    }
}

/// Returns what happens to a flag that `spec.arguments` does not take.
fn handling(existing: &Existing, provider: &KubernetesProvider, flag: &str, value: &str) -> (Handling, String) {
    let Descriptor { name, arguments, .. } = &provider.descriptor;
    let (bare, ours) = (flag.trim_start_matches('-'), argument(provider, flag.trim_start_matches('-')));
    if bare == "use-service-account-credentials" {
        let how = "one account has the permissions of the controllers that are on, so that the deletion of nodes can be withheld";
        return (Handling::Changed, how.to_owned());
    }
    if ours.as_deref() == Some(value) {
        return (Handling::Kept, format!("provider {name} sets it"));
    }
    if arguments.values().any(|set| set.contains_key(flag)) {
        return (Handling::Changed, format!("provider {name} sets it by fields of the specification"));
    }
    if let Some(ours) = ours {
        return (Handling::Changed, format!("provider {name} sets it to {ours}"));
    }
    if let Some(why) = harmless(provider, flag, value) {
        return (Handling::Unused, why.to_owned());
    }
    if OF_NODE_IPAM.contains(&bare) {
        return if runs_node_ipam(existing, provider) == Some(true) {
            let how = "it is for the controller of the nodes' pod subnets: give it to kube-controller-manager, if that has such a flag";
            (Handling::NotKept, how.to_owned())
        } else {
            (Handling::Unused, "the controller of the nodes' pod subnets, which would read it, does not run".to_owned())
        };
    }
    let how = format!("provider {name} does not allow it in spec.arguments");
    if is_of_process(bare) {
        return (Handling::Changed, format!("{how}; nodes and load balancers do not depend on it"));
    }
    (Handling::NotKept, format!("{how}{}", loss(provider, flag)))
}

/// Returns the reason why neither nodes nor load balancers depend on a setting, if so.
pub(super) fn harmless<'a>(provider: &'a KubernetesProvider, setting: &str, value: &str) -> Option<&'a str> {
    let known = &provider.descriptor.migration.harmless;
    known.get(setting).or_else(|| known.get(&format!("{setting}={value}"))).map(String::as_str)
}

/// Returns the effect of losing a setting, as the end of a sentence.
pub(super) fn loss(provider: &KubernetesProvider, setting: &str) -> String {
    let of_any = || LOST.iter().find(|(flag, _)| *flag == setting.trim_start_matches('-')).map(|(_, lost)| *lost);
    let lost = provider.descriptor.migration.lost.get(setting).map(String::as_str).or_else(of_any);
    lost.map(|lost| format!(": {lost}")).unwrap_or_default()
}
