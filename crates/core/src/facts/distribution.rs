//! The distributions of Kubernetes (pure): the marks of their nodes, and the needs of a cloud-controller-manager on each.

use serde_json::Value;

use crate::api::placement::Distribution;

/// The annotation of a k3s node with the arguments that it was started with, including those of its configuration.
const K3S_ARGUMENTS: &str = "k3s.io/node-args";

/// A cloud-controller-manager that is part of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// The name, for people.
    pub name: &'static str,
    /// The prefix of the providerIDs that it writes, which are immutable.
    pub scheme: &'static str,
    /// The instructions for turning it off.
    pub off: &'static str,
}

/// The cloud controller of k3s.
pub const K3S: BuiltIn = BuiltIn {
    name: "the cloud controller of k3s",
    scheme: "k3s://",
    off: "start the servers of k3s with --disable-cloud-controller --disable=servicelb, and all nodes with \
          --kubelet-arg=cloud-provider=external",
};

/// The cloud controller of RKE2.
pub const RKE2: BuiltIn = BuiltIn {
    name: "the cloud controller of RKE2",
    scheme: "rke2://",
    off: "give the servers of RKE2 disable-cloud-controller: true and no enable-servicelb, and all nodes cloud-provider-name: external",
};

/// The cloud provider of k0s.
pub const K0S: BuiltIn = BuiltIn {
    name: "the cloud provider of k0s",
    scheme: "k0s-cloud-provider://",
    off: "start the controllers of k0s without --enable-k0s-cloud-provider",
};

/// Talos has none; Talos CCM, by the same vendor, writes such a providerID if it does not know the cloud.
const TALOS: BuiltIn =
    BuiltIn { name: "Talos CCM", scheme: "talos://", off: "leave cloud-node out of the controllers of Talos CCM" };

/// The address of the API server on a node itself, without kube-proxy and a pod network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The host.
    pub host: &'static str,
    /// The port.
    pub port: u16,
    /// The nodes with this address.
    pub on: NodesWithAddress,
}

/// The nodes with a local address of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodesWithAddress {
    /// All.
    All,
    /// All nodes, provided that the servers are registered as nodes.
    AllIfServersAreNodes,
    /// The servers only.
    Servers,
}

/// The properties of a distribution.
#[derive(Debug)]
pub struct Properties {
    /// The distribution.
    pub distribution: Distribution,
    /// Its name in manifests.
    pub name: &'static str,
    /// Its name as the value of a flag, and in the values of the chart.
    pub flag: &'static str,
    /// The help for that value.
    pub help: &'static str,
    /// The distribution's own name.
    pub title: &'static str,
    /// The part that its versions of Kubernetes contain, such as `+k3s` in `v1.35.4+k3s1`.
    version: Option<&'static str>,
    /// The prefix of the name of its nodes' operating system.
    system: Option<&'static str>,
    /// A label of its nodes.
    label: Option<&'static str>,
    /// The prefix of annotations of its nodes.
    annotation: Option<&'static str>,
    /// The field manager of its nodes.
    writer: Option<&'static str>,
    /// The cloud-controller-manager that is part of it, or by the same vendor.
    own: Option<BuiltIn>,
    /// The settings that start its kubelets with `--cloud-provider=external`.
    pub external_kubelets: &'static str,
    /// The address of the API server on its nodes.
    pub local: Option<Local>,
    /// The address of the API server for pods on the network of the host where no kube-proxy runs, for people.
    pub without_proxy: &'static str,
}

/// A distribution with only its names: in manifests, as the value of a flag, and its own.
const fn named(distribution: Distribution, name: &'static str, flag: &'static str, title: &'static str) -> Properties {
    Properties {
        distribution,
        name,
        flag,
        help: title,
        title,
        version: None,
        system: None,
        label: None,
        annotation: None,
        writer: None,
        own: None,
        external_kubelets: "`--cloud-provider=external` in the arguments of each kubelet",
        local: None,
        without_proxy: "an address that all nodes reach and that is in the API server's certificate",
    }
}

/// Any other distribution.
const OTHER: Properties = Properties { help: "Any other", ..named(Distribution::Other, "Other", "other", "unknown") };

/// The known distributions and their properties.
pub static KNOWN: [Properties; 5] = [
    Properties {
        help: "kubeadm, and what is built with it",
        // Removed in Kubernetes 1.34.
        annotation: Some("kubeadm.alpha.kubernetes.io/"),
        // kubeadm sets the label and the taint of the control-plane nodes.
        writer: Some("kubeadm"),
        external_kubelets: "`nodeRegistration.kubeletExtraArgs: [{name: cloud-provider, value: external}]` in the \
                            InitConfiguration and each JoinConfiguration",
        without_proxy: "the controlPlaneEndpoint of the ConfigMap kube-system/kubeadm-config",
        ..named(Distribution::Kubeadm, "Kubeadm", "kubeadm", "kubeadm")
    },
    Properties {
        version: Some("+k3s"),
        annotation: Some("k3s.io/"),
        own: Some(K3S),
        external_kubelets: "`--disable-cloud-controller --disable=servicelb` on servers, \
                            `--kubelet-arg=cloud-provider=external` on all nodes",
        // Agents have it at another port.
        local: Some(Local { host: "127.0.0.1", port: 6443, on: NodesWithAddress::Servers }),
        without_proxy: "127.0.0.1 with port 6444, where the pods run on agents",
        ..named(Distribution::K3s, "K3s", "k3s", "k3s")
    },
    Properties {
        version: Some("+rke2"),
        annotation: Some("rke2.io/"),
        own: Some(RKE2),
        external_kubelets: "`cloud-provider-name: external` on all nodes, `disable-cloud-controller: true` on servers",
        local: Some(Local { host: "127.0.0.1", port: 6443, on: NodesWithAddress::AllIfServersAreNodes }),
        without_proxy: "127.0.0.1 with port 6443",
        ..named(Distribution::Rke2, "RKE2", "rke2", "RKE2")
    },
    Properties {
        system: Some("Talos"),
        annotation: Some("talos.dev/"),
        own: Some(TALOS),
        external_kubelets: "`cluster.externalCloudProvider.enabled: true`",
        // KubePrism.
        local: Some(Local { host: "localhost", port: 7445, on: NodesWithAddress::All }),
        without_proxy: "localhost with port 7445 (KubePrism)",
        ..named(Distribution::Talos, "Talos", "talos", "Talos")
    },
    Properties {
        version: Some("+k0s"),
        label: Some("node.k0sproject.io/role"),
        own: Some(K0S),
        external_kubelets: "`--enable-cloud-provider=true --kubelet-extra-args=--cloud-provider=external` on all workers, and \
                            no `--enable-k0s-cloud-provider` on controllers",
        without_proxy: "127.0.0.1 with port 7443 if node-local load balancing is on, else the externalAddress of k0s",
        ..named(Distribution::K0s, "K0s", "k0s", "k0s")
    },
];

impl Distribution {
    /// Every distribution that can be named.
    pub const ALL: [Self; 6] = [Self::Kubeadm, Self::K3s, Self::Rke2, Self::Talos, Self::K0s, Self::Other];

    /// The properties of this distribution.
    pub fn properties(self) -> &'static Properties {
        KNOWN.iter().find(|one| one.distribution == self).unwrap_or(&OTHER)
    }

    /// Whether only its servers have a local address of the API server.
    pub fn is_local_to_servers(self) -> bool {
        self.properties().local.is_some_and(|local| local.on == NodesWithAddress::Servers)
    }
}

/// Returns the first distribution that matches.
fn shown(shows: impl FnMut(&&Properties) -> bool) -> Option<Distribution> {
    KNOWN.iter().find(shows).map(|one| one.distribution)
}

/// Returns the cloud-controller-manager of a distribution that writes such a providerID, which belongs to no cloud.
pub fn writer_of_provider_id(provider_id: &str) -> Option<BuiltIn> {
    KNOWN.iter().filter_map(|one| one.own).find(|own| provider_id.starts_with(own.scheme))
}

/// Returns the distribution that a version names, such as `v1.35.4+k3s1`.
pub fn of_version(version: &str) -> Option<Distribution> {
    shown(|one| one.version.is_some_and(|mark| version.contains(mark)))
}

/// Detects the distribution of a live Node.
pub fn of_node(live: &Value) -> Option<Distribution> {
    let (metadata, info) = (&live["metadata"], &live["status"]["nodeInfo"]);
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let of_kubelet = of_version(&text(&info["kubeletVersion"]));
    let of_system = || shown(|one| one.system.is_some_and(|start| text(&info["osImage"]).starts_with(start)));
    let of_label = || shown(|one| one.label.is_some_and(|label| !metadata["labels"][label].is_null()));
    let of_annotation = || {
        let mut keys = metadata["annotations"].as_object()?.keys();
        keys.find_map(|key| shown(|one| one.annotation.is_some_and(|start| key.starts_with(start))))
    };
    let of_writer = || {
        let entries = metadata["managedFields"].as_array()?;
        let wrote = |writer| entries.iter().any(|entry| entry["manager"] == writer);
        shown(|one| one.writer.is_some_and(wrote))
    };
    of_kubelet.or_else(of_system).or_else(of_label).or_else(of_annotation).or_else(of_writer)
}

/// Returns the controllers that the cloud controller of k3s runs on this server, as an argument `--controllers`; `None` if the node is
/// not a k3s server, or does not show it.
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

#[cfg(test)]
mod tests;
