//! What is known about a cluster on vSphere (pure). The fields are those of `spec.platformSpec.vsphere` of OpenShift's
//! Infrastructure.

use serde::Deserialize;

/// Which vCenters a cluster uses, and where in them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct VSphere {
    /// The vCenters that the cluster uses.
    #[serde(rename = "vcenters")]
    pub vcenters: Vec<VCenter>,
    /// Where machines may be.
    pub failure_domains: Vec<FailureDomain>,
    /// Which networks nodes have their addresses in.
    pub node_networking: NodeNetworking,
}

/// A vCenter of [`VSphere`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct VCenter {
    /// Its host name or address.
    pub server: String,
    /// Its TCP port; 0 means that none is given.
    pub port: u16,
    /// The datacenters in use.
    pub datacenters: Vec<String>,
}

/// A failure domain of [`VSphere`], as far as it is read.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct FailureDomain {
    /// The vCenter, by the same name as in the list of vCenters.
    pub server: String,
    /// Where in that vCenter.
    pub topology: Topology,
}

/// The place of a [`FailureDomain`], as far as it is read.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Topology {
    /// The datacenter.
    pub datacenter: String,
}

/// `nodeNetworking` of [`VSphere`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct NodeNetworking {
    /// Of a node's external addresses.
    pub external: NodeNetwork,
    /// Of a node's internal addresses.
    pub internal: NodeNetwork,
}

/// One side of [`NodeNetworking`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeNetwork {
    /// The name of the network.
    pub network: String,
    /// Subnets that addresses are taken from.
    pub network_subnet_cidr: Vec<String>,
    /// Subnets that addresses are never taken from.
    pub exclude_network_subnet_cidr: Vec<String>,
}
