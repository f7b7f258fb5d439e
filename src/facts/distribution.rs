//! What is known of the distributions of Kubernetes (pure): by what their nodes are known, and what stands in the way of a
//! cloud-controller-manager on each.

use serde_json::Value;

use crate::api::placement::Distribution;

/// The annotation in which a node of k3s shows with which arguments it was started, those of its configuration included.
const K3S_ARGUMENTS: &str = "k3s.io/node-args";

/// The beginnings of annotations, each with the distribution whose nodes have them. That of kubeadm is gone with Kubernetes 1.34.
const ANNOTATIONS: [(&str, Distribution); 4] = [
    ("k3s.io/", Distribution::K3s),
    ("rke2.io/", Distribution::Rke2),
    ("talos.dev/", Distribution::Talos),
    ("kubeadm.alpha.kubernetes.io/", Distribution::Kubeadm),
];

/// A cloud-controller-manager that is part of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// What it is called, for people.
    pub name: &'static str,
    /// The beginning of the providerIDs that it writes, which nobody can change later.
    pub scheme: &'static str,
    /// How it is turned off.
    pub off: &'static str,
}

/// That of k3s.
pub const K3S: BuiltIn = BuiltIn {
    name: "the cloud controller of k3s",
    scheme: "k3s://",
    off: "start the servers of k3s with --disable-cloud-controller --disable=servicelb, and all nodes with \
          --kubelet-arg=cloud-provider=external",
};

/// That of RKE2.
pub const RKE2: BuiltIn = BuiltIn {
    name: "the cloud controller of RKE2",
    scheme: "rke2://",
    off: "give the servers of RKE2 disable-cloud-controller: true and no enable-servicelb, and all nodes cloud-provider-name: external",
};

/// That of k0s.
pub const K0S: BuiltIn = BuiltIn {
    name: "the cloud provider of k0s",
    scheme: "k0s-cloud-provider://",
    off: "start the controllers of k0s without --enable-k0s-cloud-provider",
};

/// Talos has none; that of its makers writes such a providerID where it does not know the cloud.
const TALOS: BuiltIn =
    BuiltIn { name: "Talos CCM", scheme: "talos://", off: "leave cloud-node out of the controllers of Talos CCM" };

/// Whose providerID this is, if it is of a distribution and of no cloud.
pub fn author(provider_id: &str) -> Option<BuiltIn> {
    [K3S, RKE2, K0S, TALOS].into_iter().find(|one| provider_id.starts_with(one.scheme))
}

/// The distribution that a version names, such as `v1.35.4+k3s1`.
pub fn of_version(version: &str) -> Option<Distribution> {
    let known = [("+k3s", Distribution::K3s), ("+rke2", Distribution::Rke2), ("+k0s", Distribution::K0s)];
    known.into_iter().find(|(mark, _)| version.contains(mark)).map(|(_, distribution)| distribution)
}

/// The distribution that a live Node shows.
pub fn of_node(live: &Value) -> Option<Distribution> {
    let (metadata, info) = (&live["metadata"], &live["status"]["nodeInfo"]);
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let of_kubelet = of_version(&text(&info["kubeletVersion"]));
    let of_system = || text(&info["osImage"]).starts_with("Talos").then_some(Distribution::Talos);
    let of_label = || (!metadata["labels"]["node.k0sproject.io/role"].is_null()).then_some(Distribution::K0s);
    let of_annotation = || {
        let keys = metadata["annotations"].as_object()?.keys();
        let known = |key: &String| ANNOTATIONS.iter().find(|(start, _)| key.starts_with(start));
        keys.filter_map(known).map(|(_, distribution)| *distribution).next()
    };
    // It gives the nodes of the control plane their label and their taint.
    let of_writer = || {
        let mut entries = metadata["managedFields"].as_array()?.iter();
        entries.any(|entry| entry["manager"] == "kubeadm").then_some(Distribution::Kubeadm)
    };
    of_kubelet.or_else(of_system).or_else(of_label).or_else(of_annotation).or_else(of_writer)
}

/// The controllers that the cloud controller of k3s runs on this server, as an argument `--controllers`; `None` if the node is no
/// server of k3s, or does not show it.
pub fn k3s_controllers(live: &Value) -> Option<String> {
    let arguments: Vec<String> = serde_json::from_str(live["metadata"]["annotations"][K3S_ARGUMENTS].as_str()?).ok()?;
    let (command, arguments) = arguments.split_first()?;
    if command != "server" {
        return None;
    }
    let after = |position: usize| arguments.get(position + 1).map_or("", String::as_str);
    let values = |flag: &'static str| {
        arguments.iter().enumerate().filter(move |(_, argument)| *argument == flag).map(move |(at, _)| after(at))
    };
    let mut controllers = "*,-route".to_owned();
    if values("--disable-cloud-controller").any(|value| value != "false") {
        controllers.push_str(",-cloud-node,-cloud-node-lifecycle");
    }
    if values("--disable").any(|parts| parts.split(',').any(|part| part.trim() == "servicelb")) {
        controllers.push_str(",-service");
    }
    Some(controllers)
}

impl Distribution {
    /// Its own name for itself.
    pub fn title(self) -> &'static str {
        match self {
            Self::Kubeadm => "kubeadm",
            Self::K3s => "k3s",
            Self::Rke2 => "RKE2",
            Self::Talos => "Talos",
            Self::K0s => "k0s",
            Self::Auto | Self::Other => "unknown",
        }
    }

    /// How its kubelets are started with `--cloud-provider=external`.
    pub fn external_kubelets(self) -> &'static str {
        match self {
            Self::Kubeadm => {
                "`nodeRegistration.kubeletExtraArgs: [{name: cloud-provider, value: external}]` in the InitConfiguration and each \
                 JoinConfiguration"
            }
            Self::K3s => {
                "`--disable-cloud-controller --disable=servicelb` on servers, `--kubelet-arg=cloud-provider=external` on all nodes"
            }
            Self::Rke2 => "`cloud-provider-name: external` on all nodes, `disable-cloud-controller: true` on servers",
            Self::Talos => "`cluster.externalCloudProvider.enabled: true`",
            Self::K0s => {
                "`--enable-cloud-provider=true --kubelet-extra-args=--cloud-provider=external` on all workers, and no \
                 `--enable-k0s-cloud-provider` on controllers"
            }
            Self::Auto | Self::Other => "`--cloud-provider=external` in the arguments of each kubelet",
        }
    }

    /// The address by which pods on the network of the host reach the API server where no kube-proxy runs, for people.
    pub fn without_proxy(self) -> &'static str {
        match self {
            Self::Kubeadm => "the controlPlaneEndpoint of the ConfigMap kube-system/kubeadm-config",
            Self::K3s => "127.0.0.1 with port 6444, where the pods run on agents",
            Self::Rke2 => "127.0.0.1 with port 6443",
            Self::Talos => "localhost with port 7445 (KubePrism)",
            Self::K0s => "127.0.0.1 with port 7443 if node-local load balancing is on, else the externalAddress of k0s",
            Self::Auto | Self::Other => "an address that all nodes reach and that is in the API server's certificate",
        }
    }
}

#[cfg(test)]
mod tests;
