//! Facts from a `CloudControllerManager` and its cluster (pure).

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    api::{
        placement::{ApiServer, Distribution},
        spec::{Lifecycle, OffByDefault, OnByDefault, Spec},
    },
    facts::{Fact, Facts, cluster::Cluster, distribution::NodesWithAddress, proxy_variables},
};

/// The lease of a cluster's only object, and of each cloud-controller-manager without `--leader-elect-resource-name`.
pub const LEASE: &str = "cloud-controller-manager";

/// The name of a cluster's only `CloudControllerManager`: its objects have the names in the manifests.
pub const ONLY: &str = "cluster";

/// The addresses of the metadata services of machines. A proxy cannot serve them: it hides the machine that asks.
const METADATA_SERVICES: [&str; 3] = ["169.254.169.254", "fd00:ec2::254", "metadata.exoscale.com"];

/// A desired cloud-controller-manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ccm {
    /// The name of the `CloudControllerManager`.
    pub name: String,
    /// The spec.
    pub spec: Spec,
    /// The cluster.
    pub cluster: Cluster,
    /// The ids of the preflight checks that must not block its first installation.
    pub skips: Vec<String>,
}

/// The annotation with the preflight checks that must not block a first installation, comma-separated.
pub const SKIP_PREFLIGHT: &str = "ccm-operator.dev/skip-preflight";

/// The nodes that a cloud-controller-manager may delete. The policy and the role have lists of their own, because they change at
/// different times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deletable {
    /// The entries of the policy, each as `NAME/UID/TIME` with the time at which the node became unready.
    pub listed: BTreeSet<String>,
    /// The names that the role grants.
    pub granted: BTreeSet<String>,
}

/// A controller of k8s.io/cloud-provider, by the field of `spec.controllers`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Controller {
    /// Initializes nodes.
    CloudNode,
    /// Taints and deletes nodes.
    CloudNodeLifecycle,
    /// Creates load balancers.
    Service,
    /// Creates routes.
    Route,
}

/// Returns host and port of the API server for pods on the host's network, as given or as the distribution provides them.
/// `None` means its Service.
pub fn api_server(
    given: Option<&ApiServer>,
    distribution: Distribution,
    control_plane_nodes: usize,
) -> Option<(String, String)> {
    // Without servers among the nodes, the pods run on nodes without an API server.
    let local =
        distribution.properties().local.filter(|local| local.on == NodesWithAddress::All || control_plane_nodes > 0);
    let given = given.map(|given| (given.host.clone(), given.port));
    let found = given.or_else(|| local.map(|local| (local.host.to_owned(), local.port)));
    found.map(|(host, port)| (host, port.to_string()))
}

/// Returns the name of a manifest's object for the `CloudControllerManager` of this name.
pub fn named(object: &str, ccm: &str) -> String {
    if ccm == ONLY { object.to_owned() } else { format!("{object}-{ccm}") }
}

impl Controller {
    /// Every controller.
    pub const ALL: [Self; 4] = [Self::CloudNode, Self::CloudNodeLifecycle, Self::Service, Self::Route];

    /// The field of `spec.controllers`, and the names in `--controllers`: the names since k8s.io/cloud-provider 0.27, and the older ones,
    /// which still work.
    fn names(self) -> (&'static str, [&'static str; 2]) {
        match self {
            Self::CloudNode => ("cloudNode", ["cloud-node-controller", "cloud-node"]),
            Self::CloudNodeLifecycle => {
                ("cloudNodeLifecycle", ["cloud-node-lifecycle-controller", "cloud-node-lifecycle"])
            }
            Self::Service => ("service", ["service-lb-controller", "service"]),
            Self::Route => ("route", ["node-route-controller", "route"]),
        }
    }

    /// The field of `spec.controllers`.
    pub fn field(self) -> &'static str {
        self.names().0
    }

    /// Returns the name in `--controllers`; the old one is that of libraries before k8s.io/cloud-provider 0.27.
    pub fn flag_name(self, is_old: bool) -> &'static str {
        self.names().1[usize::from(is_old)]
    }

    /// Returns the controllers that an argument `--controllers` turns on, by the names of any version; all without the argument.
    pub fn of_argument(argument: Option<&str>) -> Vec<Self> {
        let items: Vec<_> = argument.unwrap_or("*").split(',').map(str::trim).collect();
        let is_on = |controller: &Self| {
            let (_, names) = controller.names();
            let is_off = items.iter().any(|item| item.strip_prefix('-').is_some_and(|name| names.contains(&name)));
            !is_off && items.iter().any(|item| *item == "*" || names.contains(item))
        };
        Self::ALL.into_iter().filter(is_on).collect()
    }
}

impl Ccm {
    /// Combines a spec and a cluster. A distribution in the spec takes precedence over the detected one.
    pub fn new(name: String, spec: Spec, found: Cluster) -> Self {
        let named = Some(spec.distribution).filter(|named| *named != Distribution::Auto);
        let cluster = Cluster { distribution: named.unwrap_or(found.distribution), ..found };
        Self { name, spec, cluster, skips: Vec::new() }
    }

    /// Reads a live object. Its name and its deletion do not matter.
    /// Fails if its spec has another version.
    pub fn of_live(live: &Value, found: Cluster) -> Result<Self, serde_json::Error> {
        let metadata = &live["metadata"];
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        let spec = Spec::deserialize(&live["spec"])?;
        Ok(Self::new(name, spec, found).annotated(metadata["annotations"][SKIP_PREFLIGHT].as_str()))
    }

    /// Adds the preflight checks in the object's annotation.
    #[must_use]
    pub fn annotated(mut self, skips: Option<&str>) -> Self {
        self.skips = skips.into_iter().flat_map(|ids| ids.split(',')).map(|id| id.trim().to_owned()).collect();
        self
    }

    /// The controllers that are on.
    pub fn controllers(&self) -> impl Iterator<Item = Controller> {
        let on = &self.spec.controllers;
        Controller::ALL.into_iter().filter(|controller| match controller {
            Controller::CloudNode => on.cloud_node == OnByDefault::Enabled,
            Controller::CloudNodeLifecycle => on.cloud_node_lifecycle != Lifecycle::Disabled,
            Controller::Service => on.service == OnByDefault::Enabled,
            Controller::Route => on.route == OffByDefault::Enabled,
        })
    }

    /// The name of its lease.
    pub fn lease_name(&self) -> String {
        let given = self.spec.leader_election.lease_name.clone();
        given.unwrap_or_else(|| self.named(LEASE))
    }

    /// Returns the name of an object that has this name in the manifests.
    pub fn named(&self, name: &str) -> String {
        named(name, &self.name)
    }

    /// Returns host and port of the API server for pods on the network of the nodes of its placement. `None` means its Service.
    pub fn api_server(&self) -> Option<(String, String)> {
        let Cluster { distribution, control_plane_nodes, .. } = self.cluster;
        api_server(self.spec.placement.api_server.as_ref(), distribution, control_plane_nodes)
    }

    /// Returns the same for pods on the network of any node.
    pub fn api_server_of_every_node(&self) -> Option<(String, String)> {
        let distribution = self.cluster.distribution;
        let distribution = if distribution.is_local_to_servers() { Distribution::Other } else { distribution };
        api_server(self.spec.placement.api_server.as_ref(), distribution, self.cluster.control_plane_nodes)
    }

    fn proxy(&self) -> Vec<(&'static str, String)> {
        let mut proxy = self.spec.proxy.clone().unwrap_or_default();
        if !proxy.http_proxy.is_empty() || !proxy.https_proxy.is_empty() {
            let own = (!proxy.no_proxy.is_empty()).then_some(proxy.no_proxy.as_str());
            proxy.no_proxy = own.into_iter().chain(METADATA_SERVICES).collect::<Vec<_>>().join(",");
        }
        proxy_variables(proxy.http_proxy, proxy.https_proxy, proxy.no_proxy)
    }

    /// Returns the facts that manifests may depend on.
    pub(crate) fn facts(self) -> Facts {
        Facts {
            namespace: self.spec.namespace.clone(),
            api_server: Ok(self.api_server()),
            proxy: self.proxy(),
            ccm: Some(self),
            ..Facts::default()
        }
    }

    /// A fact's value; `None` if it has none.
    pub(super) fn value(&self, fact: Fact) -> Option<String> {
        let Spec { network, ports, logging, .. } = &self.spec;
        let list = |items: Vec<String>| (!items.is_empty()).then(|| items.join(","));
        let names = |is_old: bool| {
            self.controllers().map(|controller| controller.flag_name(is_old)).collect::<Vec<_>>().join(",")
        };
        match fact {
            Fact::ClusterName => Some(self.spec.cluster_name.clone()),
            // `--controllers=` without a name starts no controller; without the argument, all would start.
            Fact::Controllers => Some(names(false)),
            Fact::OldControllers => Some(names(true)),
            Fact::Routes => Some(self.controllers().any(|controller| controller == Controller::Route).to_string()),
            Fact::PodCidrs => list(network.as_ref()?.pod_cidrs.clone()),
            Fact::LeaseName => Some(self.lease_name()),
            Fact::SecurePort => Some(ports.secure.to_string()),
            Fact::Verbosity => Some(logging.verbosity.to_string()),
            Fact::FeatureGates => {
                list(self.spec.feature_gates.iter().map(|(gate, on)| format!("{gate}={on}")).collect())
            }
            Fact::InfrastructureName
            | Fact::Namespace
            | Fact::TlsMinVersion
            | Fact::TlsCipherSuites
            | Fact::TlsDisableHttp2 => None,
        }
    }
}
