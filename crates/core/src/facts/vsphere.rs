//! Facts of a cluster on vSphere (pure): fields of `spec.platformSpec.vsphere` of OpenShift's Infrastructure.
#![allow(missing_docs, reason = "the API documents its fields; only what it leaves open is documented here")]

use crate::facts::api_types;

api_types! {
    /// The vCenters of a cluster and the places in them.
    pub struct VSphere {
        pub vcenters: Vec<VCenter>,
        pub failure_domains: Vec<FailureDomain>,
        pub node_networking: NodeNetworking,
    }

    /// A vCenter of [`VSphere`].
    pub struct VCenter {
        pub server: String,
        /// Its TCP port; 0 if none is given.
        pub port: u16,
        pub datacenters: Vec<String>,
    }

    /// A failure domain of [`VSphere`], as far as it is read.
    pub struct FailureDomain {
        /// The vCenter's name in the list of vCenters.
        pub server: String,
        pub topology: Topology,
    }

    /// The place of a [`FailureDomain`], as far as it is read.
    pub struct Topology {
        pub datacenter: String,
    }

    /// `nodeNetworking` of [`VSphere`].
    pub struct NodeNetworking {
        pub external: NodeNetwork,
        pub internal: NodeNetwork,
    }

    /// One side of [`NodeNetworking`].
    pub struct NodeNetwork {
        pub network: String,
        /// Subnets that addresses are taken from.
        pub network_subnet_cidr: Vec<String>,
        /// Subnets that addresses are never taken from.
        pub exclude_network_subnet_cidr: Vec<String>,
    }
}
