//! The fields of a `CloudControllerManager` that make it behave like an existing cloud-controller-manager (pure).
//!
//! Nothing is dropped silently: each argument and variable is kept, or is reported with the consequence.

use std::collections::BTreeMap;

use super::{
    existing::Existing,
    keep_environment, keep_inputs, keep_place,
    proposed::{Handling, Input, ProposedCcm},
    provider::argument,
};
use crate::{
    api::spec::Logging,
    facts::ccm::{Controller, ONLY},
    nodes::observed::flags,
    provider::kubernetes::{KubernetesProvider, NodeIpam},
    text::{boolean, mask},
};

/// The candidate ports while two cloud-controller-managers run.
const PORTS: [u16; 5] = [10258, 10268, 10278, 10288, 10298];

/// Flags with a field in the specification, or with separate code below.
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

/// The names of the controller that assigns pod subnets to nodes.
const NODE_IPAM: [&str; 3] = ["node-ipam-controller", "node-ipam", "nodeipam"];

/// Flags with their default values.
const DEFAULTS: [(&str, &str); 4] = [
    ("allow-untagged-cloud", "false"),
    ("bind-address", "0.0.0.0"),
    ("logtostderr", "true"),
    ("use-service-account-credentials", "false"),
];

/// The beginnings of flags for the log and the port of any program of Kubernetes. Neither nodes nor load balancers depend on them.
const OF_PROCESS: [&str; 15] = [
    "authentication-",
    "authorization-",
    "bind-address",
    "cert-dir",
    "client-ca-file",
    "contention-profiling",
    "http2-max-streams",
    "log",
    "permit-",
    "profiling",
    "requestheader-",
    "stderrthreshold",
    "tls-",
    "vmodule",
    "webhook-",
];

/// Proposes a `CloudControllerManager` that replaces an existing cloud-controller-manager.
pub(crate) fn proposal(existing: &Existing, provider: &KubernetesProvider, input: &Input) -> ProposedCcm {
    let lease = existing.lease();
    // The two exclude each other only with a lease in the same namespace.
    let namespace = lease.map_or(existing.namespace.as_str(), |(namespace, _)| namespace);
    let mut proposed = ProposedCcm::new(input.name, &provider.descriptor.name, namespace);
    let cluster_name = existing.flag("cluster-name").unwrap_or("kubernetes");
    proposed.set("clusterName", cluster_name);
    proposed.note(
        Handling::Kept,
        format!("--cluster-name={cluster_name}"),
        "spec.clusterName: the names by which the cloud finds load balancers and routes stay",
    );
    controllers(&mut proposed, existing, provider);
    leader_election(&mut proposed, existing);
    port(&mut proposed, existing, input);
    let level = existing.flag("v").and_then(|level| level.parse::<u8>().ok());
    if let Some(level) = level.map(|level| level.min(6)).filter(|level| *level != Logging::default().verbosity) {
        proposed.set("logging.verbosity", level);
    }
    feature_gates(&mut proposed, existing);
    arguments(&mut proposed, existing, provider);
    if input.has_cloud_config {
        proposed.note(Handling::Changed, "--cloud-config", "what you have given");
    } else {
        keep_inputs::cloud_config(&mut proposed, existing, provider, input);
    }
    if input.has_credentials {
        proposed.note(Handling::Changed, "the credentials", "what you have given");
    } else {
        keep_inputs::credentials(&mut proposed, existing, provider, input);
    }
    keep_environment::environment(&mut proposed, existing, provider, input);
    keep_place::image(&mut proposed, existing, provider, input.minor);
    keep_place::ports(&mut proposed, existing);
    keep_place::placement(&mut proposed, existing, provider);
    keep_place::volumes(&mut proposed, existing);
    proposed
}

fn controllers(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider) {
    let on = existing.controllers();
    // A node manager on each node replaces this controller.
    let has_node_manager = provider.descriptor.node_manager.is_some();
    for controller in Controller::ALL {
        let is_on = on.contains(&controller);
        let path = format!("controllers.{}", controller.field());
        match controller {
            Controller::Route if is_on && provider.descriptor.routes.is_none() => proposed.note(
                Handling::Unused,
                "the controller of routes",
                format!("the cloud-controller-manager of provider {} has none", provider.descriptor.name),
            ),
            Controller::Route if is_on => {
                proposed.set(&path, "Enabled");
                proposed.note(Handling::Kept, "the controller of routes", format!("spec.{path}: Enabled"));
            }
            Controller::CloudNodeLifecycle if is_on => proposed.note(
                Handling::Changed,
                "the deletion of nodes whose machines are gone",
                "spec.controllers.cloudNodeLifecycle is Rehearsal: the status names them, and nobody deletes them until you set \
                 Enabled",
            ),
            Controller::CloudNode if !is_on && has_node_manager => {}
            Controller::CloudNode | Controller::CloudNodeLifecycle | Controller::Service if !is_on => {
                proposed.set(&path, "Disabled");
                proposed.note(Handling::Kept, format!("{} is off", controller.field()), format!("spec.{path}: Disabled"));
            }
            _ => {}
        }
    }
    let subnets: Vec<_> = existing.flag("cluster-cidr").into_iter().flat_map(|given| given.split(',')).collect();
    let arguments = provider.descriptor.arguments.values().flat_map(BTreeMap::keys);
    if !subnets.is_empty() && arguments.into_iter().any(|flag| flag == "--cluster-cidr") {
        proposed.set("network.podCIDRs", subnets.clone());
        proposed.note(Handling::Kept, format!("--cluster-cidr={}", subnets.join(",")), "spec.network.podCIDRs");
    }
    node_ipam(proposed, existing, provider);
    let named = existing.flag("controllers").unwrap_or("*").split(',').map(str::trim);
    let is_known = |item: &&str| item.starts_with('-') || !Controller::of_argument(Some(item)).is_empty();
    let is_unknown = |item: &&str| !item.is_empty() && !is_known(item) && !NODE_IPAM.contains(item);
    for unknown in named.filter(is_unknown) {
        proposed.note(
            Handling::NotKept,
            format!("the controller {unknown} (--controllers)"),
            "a CloudControllerManager has none of this name: leave it to a cloud-controller-manager with no other controllers",
        );
    }
}

/// Reports the controller that assigns pod subnets to nodes.
fn node_ipam(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider) {
    if existing.flag("allocate-node-cidrs").and_then(boolean) != Some(true) {
        return;
    }
    let (what, name) = ("--allocate-node-cidrs=true", &provider.descriptor.name);
    let Some(node_ipam) = provider.descriptor.node_ipam else {
        let how = format!("the cloud-controller-manager of provider {name} has no controller that reads it");
        return proposed.note(Handling::Unused, what, how);
    };
    let named = || existing.flag("controllers").unwrap_or("*").split(',').map(str::trim);
    let is_named = named().any(|item| item == "*" || NODE_IPAM.contains(&item));
    let is_off = named().any(|item| item.strip_prefix('-').is_some_and(|name| NODE_IPAM.contains(&name)));
    if node_ipam == NodeIpam::Controllers && (!is_named || is_off) {
        return proposed.note(Handling::Unused, what, "its controller, node-ipam-controller, is off");
    }
    proposed.note(
        Handling::NotKept,
        format!("{what}, the controller of the nodes' pod subnets"),
        "new nodes get no spec.podCIDR, which routes and many network plugins need, unless kube-controller-manager assigns it: give it \
         --allocate-node-cidrs=true and --cluster-cidr first",
    );
}

fn leader_election(proposed: &mut ProposedCcm, existing: &Existing) {
    let Some((namespace, name)) = existing.lease() else {
        let until = if existing.is_certain {
            "until then the check other-ccm refuses"
        } else {
            // A workload identified only by its name may be another program.
            "the check other-ccm only warns until then, because nothing but its name tells that it is a cloud-controller-manager"
        };
        let how = "nothing keeps the two from acting at the same time: the old one has to be stopped first";
        return proposed.note(Handling::Changed, "no leader election by a lease", format!("{how}, and {until}"));
    };
    proposed.skips = Some("other-ccm");
    proposed.note(
        Handling::Kept,
        format!("lease {namespace}/{name}"),
        "spec.leaderElection.leaseName: the new one waits until the old one has stopped",
    );
    if proposed.name != ONLY || name != "cloud-controller-manager" {
        proposed.set("leaderElection.leaseName", name);
    }
}

fn port(proposed: &mut ProposedCcm, existing: &Existing, input: &Input) {
    let own = existing.port();
    // The existing cloud-controller-manager frees its port if it is stopped first.
    let is_free = |port: &u16| !input.taken_ports.contains(port) && (*port != own || !existing.is_on_host());
    let wanted = if existing.lease().is_none() && own >= 1024 {
        Some(own)
    } else {
        [own].iter().chain(&PORTS).copied().find(|port| *port >= 1024 && is_free(port))
    };
    let Some(port) = wanted else { return };
    if port != PORTS[0] {
        proposed.set("ports.secure", port);
    }
    if port != own {
        proposed.note(
            Handling::Changed,
            format!("--secure-port={own}"),
            format!("spec.ports.secure: {port}, because both run on the network of the host for a while"),
        );
    }
}

fn feature_gates(proposed: &mut ProposedCcm, existing: &Existing) {
    let gates = existing.flag("feature-gates").unwrap_or_default();
    for (gate, value) in gates.split(',').filter_map(|gate| gate.split_once('=')) {
        proposed.set(&format!("featureGates.{gate}"), boolean(value) == Some(true));
        proposed.note(Handling::Kept, format!("--feature-gates={gate}={value}"), "spec.featureGates");
    }
}

/// Keeps or reports the flags without a field.
fn arguments(proposed: &mut ProposedCcm, existing: &Existing, provider: &KubernetesProvider) {
    // Variables in values may be credentials, so they are shown unexpanded.
    let written: BTreeMap<_, _> = flags(existing.container()).into_iter().collect();
    let mut given: BTreeMap<&str, &str> = BTreeMap::new();
    for (flag, _) in &existing.flags {
        given.insert(flag, existing.flag(flag).unwrap_or_default());
    }
    // Single letters are shell flags.
    let others = given.into_iter().filter(|(flag, _)| !FIELDS.contains(flag) && flag.len() > 1);
    for (flag, value) in others.filter(|pair| !DEFAULTS.contains(pair)) {
        let shown = written.get(flag).and_then(Option::as_deref).unwrap_or(value);
        let (written, name) = (format!("--{flag}"), &provider.descriptor.name);
        let what = mask::text(&format!("{written}={shown}"));
        let ours = argument(provider, flag);
        if provider.descriptor.allowed_arguments.contains(&written) {
            proposed.set_at(&["arguments", &written], value);
            proposed.note(Handling::Kept, what, "spec.arguments");
        } else if flag == "use-service-account-credentials" {
            let how = "one account has the permissions of the controllers that are on, so that the deletion of nodes can be withheld";
            proposed.note(Handling::Changed, what, how);
        } else if ours.as_deref() == Some(value) {
            proposed.note(Handling::Kept, what, format!("provider {name} sets it"));
        } else if provider.descriptor.arguments.values().any(|set| set.contains_key(&written)) {
            proposed.note(Handling::Changed, what, format!("provider {name} sets it by fields of the specification"));
        } else if let Some(ours) = ours {
            proposed.note(Handling::Changed, what, format!("provider {name} sets it to {ours}"));
        } else {
            let how = format!("provider {name} does not allow it in spec.arguments");
            if OF_PROCESS.iter().any(|begin| flag.starts_with(begin)) {
                proposed.note(Handling::Changed, what, format!("{how}; nodes and load balancers do not depend on it"));
            } else {
                proposed.note(Handling::NotKept, what, how);
            }
        }
    }
}
