//! The placement of the pods of a `CloudControllerManager` (pure).

use std::collections::BTreeMap;

use super::api_types;
#[cfg(test)]
use super::pattern::HOST;

api_types! {
    /// The placement of the cloud-controller-manager. The provider decides whether it is a Deployment or a DaemonSet.
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    pub struct Placement {
        /// The number of replicas of a Deployment. Defaults to two, or to one if there is only one control-plane node.
        #[cfg_attr(test, schemars(range(min = 1, max = 5)))]
        pub replicas: Option<u8>,
        /// Labels that a node must have. If there are control-plane nodes, it must also be one of them.
        #[cfg_attr(test, schemars(extend("maxProperties" = 16)))]
        pub node_selector: BTreeMap<String, String>,
        /// Additional tolerations.
        #[cfg_attr(test, schemars(length(max = 16)))]
        pub tolerations: Vec<Toleration>,
        /// The address of the API server. Defaults to the distribution's local address, else to its Service.
        pub api_server: Option<ApiServer>,
    }

    /// A toleration, as in a pod.
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    pub struct Toleration {
        /// The taint's key. Empty with operator `Exists` means every taint.
        #[cfg_attr(test, schemars(length(max = 317)))]
        pub key: String,
        /// The relation between key and value.
        pub operator: TolerationOperator,
        /// The taint's value.
        #[cfg_attr(test, schemars(length(max = 63)))]
        pub value: String,
        /// The taint's effect. Absent means every effect.
        pub effect: Option<TaintEffect>,
    }

    /// The operator of a toleration.
    #[derive(Copy, Default)]
    pub enum TolerationOperator {
        /// Any value.
        Exists,
        /// The same value.
        #[default]
        Equal,
    }

    /// The effect of a taint.
    #[derive(Copy)]
    pub enum TaintEffect {
        /// Pods are not scheduled.
        NoSchedule,
        /// Pods are scheduled only if no other node fits.
        PreferNoSchedule,
        /// Pods are evicted.
        NoExecute,
    }

    /// An address of the API server that every control-plane node reaches without the pod network.
    pub struct ApiServer {
        /// A host name or an IP address.
        #[cfg_attr(test, schemars(regex(pattern = HOST.regex), length(min = 1, max = HOST.longest)))]
        pub host: String,
        /// The port.
        #[serde(default = "api_server_port")]
        #[cfg_attr(test, schemars(range(min = 1)))]
        pub port: u16,
    }

    /// A distribution of Kubernetes. Its properties are in `facts/distribution.rs`.
    #[derive(Copy, Default)]
    pub enum Distribution {
        /// Detected from the nodes.
        #[default]
        Auto,
        /// kubeadm, and distributions built with it.
        Kubeadm,
        /// k3s.
        K3s,
        /// RKE2.
        #[serde(rename = "RKE2")]
        Rke2,
        /// Talos.
        Talos,
        /// k0s.
        K0s,
        /// Any other distribution.
        Other,
    }
}

fn api_server_port() -> u16 {
    6443
}
