//! The stored fields of a pod (pure).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    facts::ccm::Controller,
    nodes::{
        evidence::{self, Lease},
        observed::{self, Program, container, flag},
    },
    object::items,
    plan::kubernetes::conflict::Running,
    provider::{catalog::Catalog, kubernetes},
};

/// The default `--secure-port` of a cloud-controller-manager.
pub const DEFAULT_PORT: u16 = 10258;

/// A part of the image name of kube-vip, which runs only the controller of Services, but has no argument for it.
const KUBE_VIP: &str = "kube-vip-cloud-provider";

/// A pod that is relevant to the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedPod {
    /// The fields that the diagnosis also reads.
    pub seen: evidence::Pod,
    /// The labels of the pod.
    pub labels: BTreeMap<String, String>,
    /// The ports that the pod uses on its node.
    pub ports: Vec<u16>,
    /// The controllers that the pod runs, if it is a cloud-controller-manager or a node manager.
    pub controllers: Option<Vec<Controller>>,
    /// Whether the arguments or the image identify the pod as a cloud-controller-manager; otherwise only its name does.
    pub is_certain: bool,
    /// Whether the pod is a node manager.
    pub is_node_manager: bool,
    /// For a kube-controller-manager: the ranges of the subnets that it allocates to nodes; empty if it allocates none.
    pub subnets: Option<Vec<String>>,
}

impl ObservedPod {
    /// Reads a live Pod; returns `None` if it is irrelevant.
    pub fn of(live: &Value, catalog: &Catalog) -> Option<Self> {
        if matches!(live["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            return None;
        }
        let spec = &live["spec"];
        let main = container(spec);
        let program = Program::of(live, || catalog.kubernetes_descriptors())
            .or_else(|| is_kube_vip(main).then(|| Program::named(main)));
        let controllers = program.and_then(|program| controllers_of(program, spec));
        let subnets =
            items(&spec["containers"]).iter().find(|one| one["name"] == "kube-controller-manager").map(subnets);
        let ports = ports(spec, program);
        let is_kept = controllers.is_some() || subnets.is_some() || !ports.is_empty();
        is_kept.then(|| Self {
            seen: evidence::Pod::of(live),
            labels: serde_json::from_value(live["metadata"]["labels"].clone()).unwrap_or_default(),
            is_certain: program.is_some_and(|program| program.is_certain),
            is_node_manager: program.is_some_and(|program| program.is_node_manager),
            ports,
            controllers,
            subnets,
        })
    }

    /// Returns the human-readable namespace and name.
    pub fn key(&self) -> String {
        self.seen.key()
    }

    /// Whether a label selector (a list of `key=value`) selects the pod.
    pub fn is_selected(&self, selector: &str) -> bool {
        let has = |(key, value): (&str, &str)| self.labels.get(key).is_some_and(|label| label == value);
        selector.split(',').all(|label| label.split_once('=').is_some_and(has))
    }

    /// Whether the pod holds a lease. A node manager holds no lease, but shares its host name with a leader on the same node.
    pub fn holds(&self, lease: &Lease) -> bool {
        !self.is_node_manager && observed::holds(lease, &self.seen)
    }
}

/// Whether a live Pod has a container named `kube-proxy`.
pub fn is_kube_proxy(live: &Value) -> bool {
    items(&live["spec"]["containers"]).iter().any(|container| container["name"] == "kube-proxy")
}

/// Returns the configuration of our live workloads: a cloud-controller-manager, and a node manager if it initializes the nodes.
pub fn running<'a>(workloads: impl Iterator<Item = &'a Value>) -> Option<Running> {
    let pods = workloads.map(|workload| &workload["spec"]["template"]["spec"]);
    let (ccms, others): (Vec<_>, Vec<_>) = pods.partition(|pod| kubernetes::is_ccm(pod));
    let ccm = container(ccms.first()?);
    let mut controllers = controllers(ccm);
    if !others.is_empty() && !controllers.contains(&Controller::CloudNode) {
        controllers.push(Controller::CloudNode);
    }
    Some(Running { controllers, lease_name: flag(ccm, "leader-elect-resource-name").unwrap_or_default() })
}

fn is_kube_vip(container: &Value) -> bool {
    container["image"].as_str().is_some_and(|image| image.contains(KUBE_VIP))
}

/// Returns the controllers in the pods of a program; `None` if the pods share no node with our pods.
fn controllers_of(program: Program, spec: &Value) -> Option<Vec<Controller>> {
    if !program.is_node_manager {
        return Some(controllers(container(spec)));
    }
    // Our node manager is for Linux; clouds have a separate one for Windows.
    (spec["nodeSelector"]["kubernetes.io/os"] != "windows").then(|| vec![Controller::CloudNode])
}

fn controllers(container: &Value) -> Vec<Controller> {
    if is_kube_vip(container) {
        return vec![Controller::Service];
    }
    let mut on = Controller::of_argument(flag(container, "controllers").as_deref());
    let is_off = flag(container, "configure-cloud-routes").as_deref() == Some("false");
    on.retain(|controller| !(is_off && *controller == Controller::Route));
    on
}

/// Returns the ranges of the subnets that kube-controller-manager allocates to nodes.
fn subnets(container: &Value) -> Vec<String> {
    let is_on = flag(container, "allocate-node-cidrs").as_deref() == Some("true");
    let subnets = flag(container, "cluster-cidr").filter(|_| is_on).unwrap_or_default();
    subnets.split(',').filter(|subnet| !subnet.is_empty()).map(str::to_owned).collect()
}

fn ports(spec: &Value, program: Option<Program>) -> Vec<u16> {
    let number = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok());
    let is_on_host = spec["hostNetwork"] == true;
    let declared = items(&spec["containers"]).iter().flat_map(|one| items(&one["ports"]));
    let taken = declared
        .filter_map(|port| number(&port["hostPort"]).or_else(|| number(&port["containerPort"]).filter(|_| is_on_host)));
    let served = program.filter(|_| is_on_host).and_then(|program| {
        let given = flag(container(spec), "secure-port").and_then(|port| port.parse().ok());
        // A node manager serves no port without the flag.
        given.or_else(|| (!program.is_node_manager).then_some(DEFAULT_PORT))
    });
    let mut ports: Vec<_> = taken.chain(served).filter(|port| *port > 0).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::provider::embedded;

    fn pod(name: &str, container: &Value) -> Option<ObservedPod> {
        let metadata = json!({"name": name, "namespace": "kube-system"});
        read(&json!({"metadata": metadata, "spec": {"hostNetwork": true, "containers": [container]}}))
    }

    fn read(live: &Value) -> Option<ObservedPod> {
        ObservedPod::of(live, &embedded::catalog().unwrap())
    }

    #[test]
    fn cloud_controller_managers_are_known_by_their_images_and_names() {
        use Controller::{CloudNode, CloudNodeLifecycle, Route, Service};
        let of = |name: &str, container: &Value| pod(name, container).and_then(|pod| pod.controllers);
        let image = |image: &str, args: &[&str]| json!({"name": "main", "image": image, "args": args});
        let all = Some(Controller::ALL.to_vec());
        for (name, container, expected) in [
            ("aws-x", image("registry.k8s.io/provider-aws/cloud-controller-manager:v1.35.2", &[]), all.clone()),
            ("cpi", image("registry.k8s.io/cloud-pv-vsphere/cloud-provider-vsphere:v1", &[]), all.clone()),
            ("cloud-controller-manager-server-0", image("index.docker.io/rancher/hardened:v1", &[]), all.clone()),
            (
                "cloud-controller-manager-a",
                image("rancher/rke2-cloud-provider:v1", &["--controllers=*,-route,-cloud-node"]),
                Some(vec![CloudNodeLifecycle, Service]),
            ),
            (
                "talos",
                image(
                    "ghcr.io/siderolabs/talos-cloud-controller-manager:v1",
                    &["--controllers=cloud-node,node-csr-approval"],
                ),
                Some(vec![CloudNode]),
            ),
            (
                "a",
                image("a/cloud-controller-manager", &["--controllers=service-lb-controller,node-route-controller"]),
                Some(vec![Service, Route]),
            ),
            (
                "a",
                image(
                    "a/cloud-controller-manager",
                    &["--controllers=node-route-controller,service", "--configure-cloud-routes=false"],
                ),
                Some(vec![Service]),
            ),
            ("vip", image("ghcr.io/kube-vip/kube-vip-cloud-provider:v0.0.12", &[]), Some(vec![Service])),
            // The node manager as published by Azure, from a mirror, and with a name from a chart.
            (
                "cloud-node-manager-x",
                image("mcr.microsoft.com/oss/kubernetes/azure-cloud-node-manager:v1.28.0", &[]),
                Some(vec![CloudNode]),
            ),
            (
                "cloud-provider-azure-x",
                image("mirror:5000/azure-cloud-node-manager@sha256:1", &[]),
                Some(vec![CloudNode]),
            ),
            ("web", image("registry.example/cloud-provider/web:v1", &[]), None),
            ("operator", image("a/cluster-cloud-controller-manager-operator:v1", &[]), None),
            ("web", image("a/web", &[]), None),
        ] {
            assert_eq!(of(name, &container), expected, "{name} {container}");
        }
        let mut done =
            json!({"metadata": {"name": "a"}, "spec": {"containers": [image("a/cloud-controller-manager", &[])]}});
        assert!(read(&done).is_some_and(|pod| !pod.seen.is_terminating));
        done["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(read(&done).is_some_and(|pod| pod.seen.is_terminating));
        done["status"]["phase"] = "Failed".into();
        assert_eq!(read(&done), None);
    }

    #[test]
    fn the_image_of_a_provider_makes_one_certain_and_another_program_in_it_none() {
        let is_certain = |name: &str, container: Value| pod(name, &container).map(|pod| pod.is_certain);
        let started = |image: &str, command: &[&str]| json!({"name": "main", "image": image, "command": command});
        for image in [
            "digitalocean/digitalocean-cloud-controller-manager:v0.1.68",
            "docker.io/digitalocean/digitalocean-cloud-controller-manager:v0.1.68",
            "mirror.example/do/digitalocean-cloud-controller-manager@sha256:1",
            "ghcr.io/oracle/cloud-provider-oci:v1",
            // The last part of the image name is common, and the pod does not have the name of a cloud-controller-manager.
            "mirror.example/cloud-provider-nutanix/controller:v1",
        ] {
            assert_eq!(is_certain("a", started(image, &["--leader-elect=false"])), Some(true), "{image}");
        }
        let oci = "ghcr.io/oracle/cloud-provider-oci:v1";
        let nutanix = "ghcr.io/nutanix-cloud-native/cloud-provider-nutanix/controller:v1";
        for (name, image, command) in [
            ("csi-oci-controller", oci, "main"),
            ("a", oci, "/usr/local/bin/oci-csi-controller-driver"),
            ("nutanix-csi", nutanix, "main"),
            // An image of another project with a common name.
            ("a", "registry.example/ingress/controller:v1", "main"),
        ] {
            let ports = json!({"containerPort": 10258});
            let mut container = started(image, &[command]);
            container["ports"] = json!([ports]);
            assert_eq!(is_certain(name, container), Some(false), "{name} {image} {command}");
        }
        let unknown = started("registry.example/cloud-controller-manager:v1", &[]);
        assert_eq!(is_certain("a", unknown), Some(false));
    }

    #[test]
    fn the_ports_of_the_host_are_found() {
        let ports = |container: Value| pod("a", &container).map(|pod| pod.ports);
        let ccm = |args: &[&str]| json!({"image": "a/cloud-controller-manager", "args": args});
        assert_eq!(ports(ccm(&[])), Some(vec![10258]));
        assert_eq!(ports(ccm(&["--secure-port=10300", "--secure-port=0"])), Some(vec![]));
        let web = json!({"image": "web", "ports": [{"containerPort": 10258}, {"containerPort": 80, "hostPort": 8080}]});
        assert_eq!(ports(web.clone()), Some(vec![8080, 10258]));
        let node_manager = |args: &[&str]| ports(json!({"image": "a/azure-cloud-node-manager:v1", "args": args}));
        assert_eq!((node_manager(&[]), node_manager(&["--secure-port=10263"])), (Some(vec![]), Some(vec![10263])));
        let in_network = json!({"metadata": {}, "spec": {"containers": [web]}});
        assert_eq!(read(&in_network).map(|pod| pod.ports), Some(vec![8080]));
    }

    #[test]
    fn kube_controller_manager_says_whether_it_gives_subnets_to_nodes() {
        let subnets = |args: &[&str]| {
            pod("kube-controller-manager-a", &json!({"name": "kube-controller-manager", "image": "k", "command": args}))
                .and_then(|pod| pod.subnets)
        };
        assert_eq!(subnets(&["kube-controller-manager", "--cluster-cidr=10.0.0.0/8"]), Some(vec![]));
        let on = ["--allocate-node-cidrs=true", "--cluster-cidr=10.0.0.0/8,fd00::/48"];
        assert_eq!(subnets(&on), Some(vec!["10.0.0.0/8".to_owned(), "fd00::/48".to_owned()]));
    }
}
