//! The placement of the pods of a `CloudControllerManager` (pure).

use std::collections::BTreeMap;

use super::api_types;
#[cfg(test)]
use super::pattern::HOST;

api_types! {
    /// Where the cloud-controller-manager runs. Whether it is a Deployment or a DaemonSet is the provider's choice.
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    pub struct Placement {
        /// The replicas of a Deployment; absent: two, or one where there is only one control-plane node.
        #[cfg_attr(test, schemars(range(min = 1, max = 5)))]
        pub replicas: Option<u8>,
        /// Labels that a node must have, besides being one of the control plane where there are such nodes.
        #[cfg_attr(test, schemars(extend("maxProperties" = 16)))]
        pub node_selector: BTreeMap<String, String>,
        /// Further taints that are tolerated.
        #[cfg_attr(test, schemars(length(max = 16)))]
        pub tolerations: Vec<Toleration>,
        /// How the API server is reached; absent: as the distribution offers it, or else by its Service.
        pub api_server: Option<ApiServer>,
    }

    /// A taint that is tolerated, as in a pod.
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    pub struct Toleration {
        /// The taint's key; empty with operator `Exists`: every taint.
        #[cfg_attr(test, schemars(length(max = 317)))]
        pub key: String,
        /// How key and value match.
        pub operator: TolerationOperator,
        /// The taint's value.
        #[cfg_attr(test, schemars(length(max = 63)))]
        pub value: String,
        /// The taint's effect; absent: every effect.
        pub effect: Option<TaintEffect>,
    }

    /// How a toleration matches.
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
        /// Pods are scheduled only where there is no other place.
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

    /// A distribution of Kubernetes. What is known of each stands in `facts/distribution.rs`.
    #[derive(Copy, Default)]
    pub enum Distribution {
        /// Found by the nodes.
        #[default]
        Auto,
        /// kubeadm, and what is built with it.
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
        /// Any other.
        Other,
    }
}

fn api_server_port() -> u16 {
    6443
}
