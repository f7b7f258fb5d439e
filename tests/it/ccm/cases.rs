//! The cases of the comparison, as data: a Node as its kubelet has registered it, the instances of the cloud, and for some a
//! change of both.

use serde_json::{Value, json};

mod lifecycle;
mod nodes;

/// The taint of a Node that waits for its cloud-controller-manager.
pub(super) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The taint of a Node whose instance is stopped.
pub(super) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// The annotation of a kubelet with `--node-ip`.
const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// The address of the instance of a case, unless it says otherwise.
const ADDRESS: &str = "10.1.0.2";
/// Its second address in the cases with two stacks.
const ADDRESS_V6: &str = "fd00::2";

/// A case. Its name is the name of its Node.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) name: &'static str,
    /// What is special about it, for the page.
    pub(super) what: &'static str,
    /// The Node as it is created. `ID` in its providerID stands for the id of the first instance.
    node: Value,
    pub(super) instances: Vec<Instance>,
    /// What changes after the first comparison.
    pub(super) then: Option<Then>,
}

/// An instance of the cloud.
#[derive(Clone)]
pub(super) struct Instance {
    pub(super) name: String,
    pub(super) state: &'static str,
    pub(super) region: &'static str,
    pub(super) zone: &'static str,
    pub(super) type_name: &'static str,
    pub(super) addresses: Vec<&'static str>,
}

/// A change of a case.
#[derive(Clone)]
pub(super) struct Then {
    /// In words, for the page.
    pub(super) what: &'static str,
    pub(super) instances: Vec<Instance>,
    /// The status of the condition `Ready`, if it changes.
    pub(super) ready: Option<&'static str>,
}

/// All cases.
pub(super) fn all() -> Vec<Case> {
    [nodes::initialization(), nodes::provided_addresses(), nodes::known(), lifecycle::cases()].concat()
}

impl Case {
    /// A Node that waits, is ready, and has a running instance of its name.
    pub(super) fn waits(name: &'static str, what: &'static str) -> Self {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}, "annotations": {}},
            "spec": {"taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
            "status": {
                "addresses": [{"type": "Hostname", "address": name}],
                "conditions": [ready("True")],
            },
        });
        Self { name, what, node, instances: vec![Instance::named(name)], then: None }
    }

    /// A Node that is initialized, as both programs leave it.
    pub(super) fn known(name: &'static str, what: &'static str) -> Self {
        let mut case = Self::waits(name, what).provider_id("fake:///north-1/ID");
        case.node["spec"]["taints"] = json!([]);
        case.node["status"]["addresses"] = addresses(&[("Hostname", name), ("InternalIP", ADDRESS)]);
        for (label, value) in [
            ("node.kubernetes.io/instance-type", "small"),
            ("beta.kubernetes.io/instance-type", "small"),
            ("topology.kubernetes.io/zone", "north-1"),
            ("failure-domain.beta.kubernetes.io/zone", "north-1"),
            ("topology.kubernetes.io/region", "north"),
            ("failure-domain.beta.kubernetes.io/region", "north"),
        ] {
            case.node["metadata"]["labels"][label] = json!(value);
        }
        case
    }

    /// The status of `Ready`; an empty text for a Node without that condition.
    pub(super) fn ready(mut self, status: &'static str) -> Self {
        self.node["status"]["conditions"] = if status.is_empty() { json!([]) } else { json!([ready(status)]) };
        self
    }

    fn without_instance(mut self) -> Self {
        self.instances.clear();
        self
    }

    fn instance(mut self, change: impl FnOnce(&mut Instance)) -> Self {
        change(&mut self.instances[0]);
        self
    }

    pub(super) fn state(self, state: &'static str) -> Self {
        self.instance(|instance| instance.state = state)
    }

    fn addresses_of_instance(self, addresses: &[&'static str]) -> Self {
        self.instance(|instance| instance.addresses = addresses.to_vec())
    }

    fn another_instance(mut self, instance: Instance) -> Self {
        self.instances.push(instance);
        self
    }

    pub(super) fn provider_id(mut self, id: &str) -> Self {
        self.node["spec"]["providerID"] = json!(id);
        self
    }

    fn without_provider_id(mut self) -> Self {
        self.node["spec"]["providerID"] = Value::Null;
        self
    }

    fn provided_ip(mut self, text: &str) -> Self {
        self.node["metadata"]["annotations"][PROVIDED_IP] = json!(text);
        self
    }

    fn label(mut self, name: &str, value: &str) -> Self {
        self.node["metadata"]["labels"][name] = json!(value);
        self
    }

    fn without_labels(mut self, names: &[&str]) -> Self {
        for name in names {
            self.node["metadata"]["labels"].as_object_mut().map(|labels| labels.remove(*name));
        }
        self
    }

    fn taints(mut self, taints: &[(&str, &str, &str)]) -> Self {
        let taints = taints.iter().map(|(key, value, effect)| json!({"key": key, "value": value, "effect": effect}));
        self.node["spec"]["taints"] = taints.collect();
        self
    }

    fn addresses_of_node(mut self, all: &[(&str, &str)]) -> Self {
        self.node["status"]["addresses"] = addresses(all);
        self
    }

    fn then(
        mut self,
        what: &'static str,
        ready: Option<&'static str>,
        change: impl FnOnce(&mut Vec<Instance>),
    ) -> Self {
        let mut instances = self.instances.clone();
        change(&mut instances);
        self.then = Some(Then { what, instances, ready });
        self
    }

    /// The Node, whose first instance has this id.
    pub(super) fn node(&self, id: &str) -> Value {
        let mut node = self.node.clone();
        if let Some(text) = node["spec"]["providerID"].as_str() {
            node["spec"]["providerID"] = json!(text.replace("ID", id));
        }
        node
    }
}

impl Instance {
    /// A running instance with all that instances have.
    pub(super) fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            state: "running",
            region: "north",
            zone: "north-1",
            type_name: "small",
            addresses: vec![ADDRESS],
        }
    }

    /// As the file of the cloud has it.
    pub(super) fn json(&self, id: &str) -> Value {
        json!({
            "id": id, "name": self.name, "region": self.region, "zone": self.zone, "state": self.state,
            "image": "debian", "instanceType": self.type_name, "cpus": 2, "networks": ["default"],
            "addresses": self.addresses, "labels": {}, "created": "2026-11-28T08:00:00Z",
        })
    }
}

fn addresses(all: &[(&str, &str)]) -> Value {
    all.iter().map(|(kind, address)| json!({"type": kind, "address": address})).collect()
}

/// The condition `Ready` with this status.
pub(super) fn ready(status: &str) -> Value {
    let time = "2026-11-28T08:00:00Z";
    json!({
        "type": "Ready", "status": status, "reason": "Test", "message": "",
        "lastHeartbeatTime": time, "lastTransitionTime": time,
    })
}
