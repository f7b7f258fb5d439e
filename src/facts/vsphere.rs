//! Facts about a cluster on vSphere (pure): fields of `spec.platformSpec.vsphere` of OpenShift's Infrastructure.

use crate::facts::api_types;

api_types! {
    /// The vCenters of a cluster and the places in them.
    pub struct VSphere {
        /// The vCenters that the cluster uses.
        pub vcenters: Vec<VCenter>,
        /// Where machines may be.
        pub failure_domains: Vec<FailureDomain>,
        /// The networks of node addresses.
        pub node_networking: NodeNetworking,
    }

    /// A vCenter of [`VSphere`].
    pub struct VCenter {
        /// Its host name or address.
        pub server: String,
        /// Its TCP port; 0 if none is given.
        pub port: u16,
        /// The datacenters in use.
        pub datacenters: Vec<String>,
    }

    /// A failure domain of [`VSphere`], as far as it is read.
    pub struct FailureDomain {
        /// The vCenter's name in the list of vCenters.
        pub server: String,
        /// The place in that vCenter.
        pub topology: Topology,
    }

    /// The place of a [`FailureDomain`], as far as it is read.
    pub struct Topology {
        /// The datacenter.
        pub datacenter: String,
    }

    /// `nodeNetworking` of [`VSphere`].
    pub struct NodeNetworking {
        /// The networks of external addresses.
        pub external: NodeNetwork,
        /// The networks of internal addresses.
        pub internal: NodeNetwork,
    }

    /// One side of [`NodeNetworking`].
    pub struct NodeNetwork {
        /// The name of the network.
        pub network: String,
        /// Subnets that addresses are taken from.
        pub network_subnet_cidr: Vec<String>,
        /// Subnets that addresses are never taken from.
        pub exclude_network_subnet_cidr: Vec<String>,
    }
}
