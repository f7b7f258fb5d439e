//! Decides whether two `CloudControllerManager`s can be in one cluster (pure).
//!
//! k8s.io/cloud-provider v0.36.2 watches all nodes and all Services: nothing limits a cloud-controller-manager to its own
//! cloud. Two of them may run the node controllers only if each ignores the nodes of the other. Two service
//! controllers would both create a load balancer for each Service and write its only status. Two route controllers
//! would write the same condition of each node.

use crate::{
    api::spec::{Lifecycle, OffByDefault, OnByDefault},
    facts::ccm::{Ccm, Controller},
    provider::{
        catalog::Catalog,
        kubernetes::{Answer, Descriptor},
    },
};

/// The configuration of the running workload of a `CloudControllerManager`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The controllers.
    pub controllers: Vec<Controller>,
    /// The name of its lease.
    pub lease_name: String,
}

/// The rank of a `CloudControllerManager` in a conflict. The first variant wins; with equal variants, the older object wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It runs, and everything in its spec is in effect.
    Runs,
    /// It is installed, and its spec requests more than the running configuration.
    Changes,
    /// It is not installed yet.
    New,
}

impl Standing {
    /// Returns the rank of a `CloudControllerManager`, which may still be starting.
    pub fn of(ccm: &Ccm, is_installed: bool, running: Option<&Running>) -> Self {
        let is_as_asked = |running: &Running| {
            running.lease_name == ccm.lease_name() && ccm.controllers().all(|one| running.controllers.contains(&one))
        };
        match running {
            Some(running) if is_as_asked(running) => Self::Runs,
            Some(_) => Self::Changes,
            None if is_installed => Self::Changes,
            None => Self::New,
        }
    }
}

/// Returns a `CloudControllerManager` with its running configuration instead of the requested one.
pub fn as_it_runs(ccm: &Ccm, running: &Running) -> Ccm {
    let mut ccm = ccm.clone();
    let is_on = |controller: Controller| running.controllers.contains(&controller);
    let on_by_default = |is_on: bool| if is_on { OnByDefault::Enabled } else { OnByDefault::Disabled };
    let on = &mut ccm.spec.controllers;
    on.cloud_node = on_by_default(is_on(Controller::CloudNode));
    on.cloud_node_lifecycle =
        if is_on(Controller::CloudNodeLifecycle) { Lifecycle::Rehearsal } else { Lifecycle::Disabled };
    on.service = on_by_default(is_on(Controller::Service));
    on.route = if is_on(Controller::Route) { OffByDefault::Enabled } else { OffByDefault::Disabled };
    ccm.spec.leader_election.lease_name = Some(running.lease_name.clone());
    ccm
}

/// Returns a human-readable reason if two `CloudControllerManager`s exclude each other.
pub fn conflict(catalog: &Catalog, ccm: &Ccm, other: &Ccm) -> Option<String> {
    // A CloudControllerManager with an unknown provider never runs.
    let cloud = |one: &Ccm| catalog.kubernetes_of(&one.spec.provider).ok().map(|found| &found.descriptor);
    let are_apart = leave_each_other(cloud(ccm)?, cloud(other)?);
    let lease = |one: &Ccm| (one.spec.namespace.clone(), one.lease_name());
    if lease(ccm) == lease(other) {
        let name = &other.name;
        return Some(format!("spec.leaderElection.leaseName: the CloudControllerManager {name} has this lease"));
    }
    let shared: Vec<_> = other.controllers().filter(|one| ccm.controllers().any(|own| own == *one)).collect();
    let of_nodes = |one: &Controller| matches!(one, Controller::CloudNode | Controller::CloudNodeLifecycle);
    let fields: Vec<_> = shared.iter().filter(|one| !(are_apart && of_nodes(one))).map(|one| one.field()).collect();
    if fields.is_empty() {
        return None;
    }
    let why = if !fields.contains(&"cloudNode") && !fields.contains(&"cloudNodeLifecycle") {
        "each would act on every Service and node"
    } else if ccm.spec.provider == other.spec.provider {
        "both would act on the same nodes"
    } else {
        "one of the two clouds takes the nodes of the other for gone"
    };
    Some(format!(
        "spec.controllers: {} runs in the CloudControllerManager {} (provider {}): {why}; disable it in one of them",
        fields.join(", "),
        other.name,
        other.spec.provider
    ))
}

/// Whether the cloud-controller-managers of two clouds ignore the nodes of each other. A node without a providerID does not count:
/// while it waits for its initialization no cloud is queried for it, and a node that does not wait belongs to no cloud.
pub fn leave_each_other(one: &Descriptor, other: &Descriptor) -> bool {
    let owns_none = |one: &Descriptor, other: &Descriptor| {
        one.nodes.other_cloud_provider_id != Answer::Gone
            && !other.nodes.provider_ids.iter().any(|id| one.nodes.owns(id))
    };
    owns_none(one, other) && owns_none(other, one)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        api::placement::Distribution,
        facts::{cluster::Cluster, version::Minor},
        provider::embedded,
    };

    fn ccm(name: &str, provider: &str, on: &[&str]) -> Ccm {
        let state = |field: &str, state: &str| if on.contains(&field) { state.to_owned() } else { "Disabled".into() };
        let spec = json!({
            "provider": provider, "network": {"podCIDRs": ["10.244.0.0/16"]},
            "controllers": {
                "cloudNode": state("cloudNode", "Enabled"),
                "cloudNodeLifecycle": state("cloudNodeLifecycle", "Rehearsal"),
                "service": state("service", "Enabled"),
                "route": state("route", "Enabled"),
            },
        });
        let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 1 };
        Ccm::new(name.to_owned(), serde_json::from_value(spec).unwrap(), cluster)
    }

    #[test]
    fn what_runs_goes_before_what_would_be_a_change() {
        let asked = ccm("cluster", "aws", &["service"]);
        let lease_name = "cloud-controller-manager".to_owned();
        let running =
            |controllers: &[Controller]| Running { controllers: controllers.to_vec(), lease_name: lease_name.clone() };
        let more = running(&[Controller::Service, Controller::Route]);
        let other = running(&[Controller::Route]);
        let elsewhere = Running { lease_name: "elsewhere".into(), ..more.clone() };
        for (is_installed, running, expected) in [
            (true, Some(&more), Standing::Runs),
            (true, Some(&other), Standing::Changes),
            (true, Some(&elsewhere), Standing::Changes),
            (true, None, Standing::Changes),
            (false, None, Standing::New),
        ] {
            assert_eq!(Standing::of(&asked, is_installed, running), expected, "{running:?}");
        }
        assert!(Standing::Runs < Standing::Changes && Standing::Changes < Standing::New);
        let live = as_it_runs(&asked, &other);
        assert_eq!(live.controllers().collect::<Vec<_>>(), [Controller::Route]);
        assert_eq!(as_it_runs(&asked, &elsewhere).lease_name(), "elsewhere");
    }

    #[test]
    fn the_same_controller_runs_once_unless_both_clouds_leave_nodes_of_other_clouds_alone() {
        let catalog = embedded::catalog().unwrap();
        let nodes = ["cloudNode", "cloudNodeLifecycle"];
        for (first, second, expected) in [
            (("aws", &nodes[..]), ("aws", &["service", "route"][..]), None),
            (("aws", &nodes), ("aws", &["cloudNode"]), Some("cloudNode runs")),
            (("aws", &nodes), ("aws", &nodes[1..]), Some("cloudNodeLifecycle runs")),
            (("aws", &["service"]), ("aws", &["service"]), Some("service runs")),
            (("aws", &nodes), ("hcloud", &nodes), None),
            (("aws", &["service"]), ("hcloud", &["service"]), Some("every Service")),
            (("aws", &["route"]), ("hcloud", &["route"]), Some("route runs")),
            (("aws", &nodes), ("vsphere", &nodes), Some("cloudNode, cloudNodeLifecycle runs")),
            (("vsphere", &nodes), ("hcloud", &nodes[..1]), Some("takes the nodes of the other for gone")),
            (("vsphere", &nodes), ("hcloud", &["service"]), None),
            // Both answer with an error, but one treats providerIDs of the other as its own.
            (("openstack", &nodes), ("stackit", &nodes[1..]), Some("cloudNodeLifecycle runs")),
            (("none", &nodes), ("aws", &nodes), None),
        ] {
            let (older, younger) = (ccm("cluster", first.0, first.1), ccm("other", second.0, second.1));
            for found in [conflict(&catalog, &younger, &older), conflict(&catalog, &older, &younger)] {
                match (&found, expected) {
                    (None, None) => {}
                    (Some(text), Some(part)) if text.contains(part) => {}
                    _ => panic!("{first:?} {second:?}: {found:?}"),
                }
            }
        }
        let mut same_lease = ccm("other", "aws", &["service"]);
        same_lease.spec.leader_election.lease_name = Some("cloud-controller-manager".into());
        let found = conflict(&catalog, &same_lease, &ccm("cluster", "hcloud", &nodes)).unwrap();
        assert_eq!(found, "spec.leaderElection.leaseName: the CloudControllerManager cluster has this lease");
    }
}
