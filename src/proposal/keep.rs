//! The fields of a `CloudControllerManager` that make it behave like an existing cloud-controller-manager (pure).
//!
//! Nothing is dropped silently: each setting is kept, or is reported with the consequence.

use super::{
    existing::Existing,
    keep_arguments, keep_controllers, keep_environment, keep_files, keep_inputs, keep_place, keep_pod,
    proposed::{Handling, Input, ProposedCcm},
};
use crate::{api::spec::Logging, facts::ccm::ONLY, provider::kubernetes::KubernetesProvider, text::boolean};

/// The highest value of `spec.logging.verbosity`.
const HIGHEST_LEVEL: u8 = 6;

/// The candidate ports while two cloud-controller-managers run.
const PORTS: [u16; 5] = [10258, 10268, 10278, 10288, 10298];

/// Proposes a `CloudControllerManager` that replaces an existing cloud-controller-manager.
pub(crate) fn proposal(existing: &Existing, provider: &KubernetesProvider, input: &Input) -> ProposedCcm {
    let lease = existing.lease();
    // The two exclude each other only with a lease in the same namespace.
    let namespace = lease.map_or(existing.namespace.as_str(), |(namespace, _)| namespace);
    let mut proposed = ProposedCcm::new(input.name, &provider.descriptor.name, namespace);
    let has_name = existing.flag("cluster-name").is_some();
    let existing = &keep_arguments::without_open(&mut proposed, existing, provider, input);
    let cluster_name = existing.flag("cluster-name").or((!has_name).then_some("kubernetes"));
    if let Some(cluster_name) = cluster_name {
        proposed.set("clusterName", cluster_name);
        proposed.note(
            Handling::Kept,
            format!("--cluster-name={cluster_name}"),
            "spec.clusterName: the names by which the cloud finds load balancers and routes stay",
        );
    }
    keep_controllers::controllers(&mut proposed, existing, provider, input);
    leader_election(&mut proposed, existing, lease);
    port(&mut proposed, existing, input, lease.is_some());
    let level = existing.flag("v").and_then(|level| level.parse::<u8>().ok());
    if let Some(most) = level.map(|level| level.min(HIGHEST_LEVEL)).filter(|most| *most != Logging::default().verbosity)
    {
        proposed.set("logging.verbosity", most);
        if level == Some(most) {
            proposed.note(Handling::Kept, format!("--v={most}"), "spec.logging.verbosity");
        }
    }
    if let Some(level) = level.filter(|level| *level > HIGHEST_LEVEL) {
        let how =
            format!("spec.logging.verbosity: {HIGHEST_LEVEL}, because above it the bodies of requests are logged");
        proposed.note(Handling::Changed, format!("--v={level}"), how);
    }
    feature_gates(&mut proposed, existing);
    keep_arguments::arguments(&mut proposed, existing, provider);
    if input.cloud_config.is_some() {
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
    keep_pod::fields(&mut proposed, existing);
    keep_pod::containers(&mut proposed, existing, provider, "");
    keep_files::volumes(&mut proposed, existing, provider, input);
    proposed
}

fn leader_election(proposed: &mut ProposedCcm, existing: &Existing, lease: Option<(&str, &str)>) {
    let Some((namespace, name)) = lease else {
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

fn port(proposed: &mut ProposedCcm, existing: &Existing, input: &Input, shares_lease: bool) {
    let own = existing.port();
    // The existing cloud-controller-manager frees its port if it is stopped first.
    let is_free = |port: &u16| !input.taken_ports.contains(port) && (*port != own || !existing.is_on_host());
    let wanted = if !shares_lease && own >= 1024 {
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
