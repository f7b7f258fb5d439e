//! The installation of the operator on any Kubernetes: `install/`, for the providers that are chosen (pure).
//!
//! The operator's rights follow from those of the cloud-controller-managers: the API server lets it grant only what it holds. So
//! they are computed from the providers' descriptors and manifests, and appended to the rules that stand in the files.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    rights,
    substitute::{common_environment, containers_mut, push},
};
use crate::{
    api::placement::{ApiServer, Distribution},
    facts::{Facts, manager::api_server},
    object::{KINDS, Kind, Object},
    provider::upstream::{CONTROL_PLANE_LABEL, Upstream},
    text::yaml,
};

/// The name of the operator's objects in the files, and of its namespace.
pub const NAME: &str = "ccm-operator";

/// The name of the Role and its binding that each managed namespace gets.
const MANAGED: &str = "ccm-operator-managed";

/// The flag of the operator with the managed namespaces.
const NAMESPACES_FLAG: &str = "--manager-namespaces=";

/// The flag of the operator that lets it confirm deletions of nodes.
const NODE_DELETION_FLAG: &str = "--node-deletion";

/// The verbs for the kinds of objects that the operator applies. A server-side apply that creates needs `create` as well, and
/// `get` looks whether somebody else has an object of that name.
const VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// What an installation fills in.
#[derive(Clone, Debug)]
pub struct Installation<'a> {
    /// The providers that may be asked for.
    pub providers: Vec<&'a Upstream>,
    /// The namespaces in which cloud-controller-managers may be.
    pub namespaces: Vec<String>,
    /// The operator's own namespace.
    pub operator_namespace: String,
    /// The Secrets in the managed namespaces that cloud-controller-managers may use.
    pub secrets: Vec<String>,
    /// The operator's image.
    pub image: Option<String>,
    /// The distribution of Kubernetes; never `Auto`.
    pub distribution: Distribution,
    /// How many nodes have the label of the control plane.
    pub control_plane_nodes: usize,
    /// The address of the API server; `None`: as the distribution offers it.
    pub api_server: Option<ApiServer>,
    /// Whether cloud-controller-managers may be allowed to delete nodes.
    pub node_deletion: bool,
}

impl Installation<'_> {
    /// A file of `install/`; empty if this installation needs nothing of it.
    pub fn of(&self, file: &str) -> Result<String, yaml::Error> {
        let parse = |text| Ok((text, yaml::from_str::<Value>(text)?));
        let documents: Vec<_> = file.split("\n---\n").map(parse).collect::<Result<_, yaml::Error>>()?;
        let is_managed = documents.iter().any(|(_, value)| value["metadata"]["name"] == MANAGED);
        let places: Vec<_> = if is_managed { self.namespaces.iter().collect() } else { vec![&self.operator_namespace] };
        let mut texts = Vec::new();
        for namespace in places {
            for (text, value) in documents.iter().filter(|(_, value)| self.needs(value)) {
                texts.push(self.document(text, value, namespace)?);
            }
        }
        Ok(texts.join("---\n"))
    }

    fn needs(&self, document: &Value) -> bool {
        match document["kind"].as_str() {
            // It exists, and the administrator's labels on it are not ours to change.
            Some("Namespace") => !self.namespaces.contains(&self.operator_namespace),
            Some("PodDisruptionBudget") => self.replicas() > 1,
            _ => true,
        }
    }

    /// Two, where there are two nodes for them.
    fn replicas(&self) -> u8 {
        if self.control_plane_nodes == 1 { 1 } else { 2 }
    }

    fn document(&self, text: &str, value: &Value, namespace: &str) -> Result<String, yaml::Error> {
        let mut filled = value.clone();
        self.place(&mut filled, namespace);
        if filled["kind"] == "Deployment" {
            filled = self.workload(filled);
        }
        let text = format!("{}\n", text.trim_end());
        let mut text = yaml::edit::change(&text, value, &filled).map_or_else(|| yaml::to_string(&filled), Ok)?;
        let computed = match (value["kind"].as_str(), value["metadata"]["name"].as_str()) {
            (Some("ClusterRole"), Some(NAME)) => self.cluster_rules(),
            (Some("Role"), Some(MANAGED)) => self.namespace_rules(namespace),
            _ => Vec::new(),
        };
        for (comment, rules) in computed.iter().filter(|(_, rules)| rules != &json!([])) {
            text.push_str(&["# ", comment, "\n", &written(rules)?].concat());
        }
        Ok(text)
    }

    /// Sets the namespaces.
    fn place(&self, document: &mut Value, namespace: &str) {
        if document["kind"] == "Namespace" {
            document["metadata"]["name"] = self.operator_namespace.as_str().into();
        } else if document["metadata"]["name"] == MANAGED {
            document["metadata"]["namespace"] = namespace.into();
        } else if document["metadata"]["namespace"] == NAME {
            document["metadata"]["namespace"] = self.operator_namespace.as_str().into();
        }
        for subject in document.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
            subject["namespace"] = self.operator_namespace.as_str().into();
        }
    }

    /// The operator's Deployment for the cluster.
    fn workload(&self, mut deployment: Value) -> Value {
        deployment["spec"]["replicas"] = self.replicas().into();
        // An agent of k3s has the API server at another port than a server.
        if self.api_server.is_none() && self.distribution == Distribution::K3s && self.control_plane_nodes > 0 {
            let on_a_server = json!({"matchExpressions": [{"key": CONTROL_PLANE_LABEL, "operator": "Exists"}]});
            deployment["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": [on_a_server]});
        }
        let Ok(mut object) = Object::new(deployment.clone()) else { return deployment };
        for container in containers_mut(&mut object, &["containers"]) {
            if let Some(image) = &self.image {
                container["image"] = image.as_str().into();
            }
            for argument in container["args"].as_array_mut().into_iter().flatten() {
                if argument.as_str().is_some_and(|text| text.starts_with(NAMESPACES_FLAG)) {
                    *argument = format!("{NAMESPACES_FLAG}{}", self.namespaces.join(",")).into();
                }
            }
            if self.node_deletion {
                push(container, "args", NODE_DELETION_FLAG.into());
            }
        }
        let endpoint = api_server(self.api_server.as_ref(), self.distribution, self.control_plane_nodes);
        common_environment(&mut object, &Facts { api_server: Ok(endpoint), ..Facts::default() });
        object.value().clone()
    }

    /// What the providers' roles of the cluster may grant, with a comment.
    fn cluster_rules(&self) -> Vec<(String, Value)> {
        let computed = self.providers.iter().map(|one| &one.descriptor);
        let computed = computed.flat_map(|one| rights::grants(&one.controllers(), &one.rights).collect::<Vec<_>>());
        // The ClusterRole of the account is computed for each CloudControllerManager; others stay as they are.
        let others = self.manifests().filter(|object| object.kind().kind == "ClusterRole").filter(|role| {
            let mut accounts = self.providers.iter().filter_map(|one| one.account());
            accounts.all(|account| account != role.name())
        });
        let others = others.flat_map(|role| rights::of_role(role.value()));
        let granted = format!("What the ClusterRoles of {} grant.", self.names());
        let mut rules = vec![(granted, rights::merged(computed.chain(others)))];
        let is_policy = |kind: &Kind| kind.kind.starts_with("ValidatingAdmissionPolicy");
        let policies: Vec<_> = KINDS.iter().filter(|kind| is_policy(kind)).collect();
        let group = policies.first().map_or("", |kind| kind.group);
        let plurals: Vec<_> = policies.iter().map(|kind| kind.plural).collect();
        let policies = json!({"apiGroups": [group], "resources": plurals, "verbs": VERBS});
        if self.node_deletion {
            rules.push((
                "With --node-deletion: the policies that restrict which nodes are deleted, and the right that their roles grant by \
                 name. The operator itself deletes no node."
                    .to_owned(),
                json!([policies, {"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]}]),
            ));
        } else if self.manifests().any(|object| is_policy(object.kind())) {
            let comment = "The policies that restrict each pod of a node manager to its own node.".to_owned();
            rules.push((comment, json!([policies])));
        }
        rules
    }

    /// What the operator needs in a managed namespace, with comments.
    fn namespace_rules(&self, namespace: &str) -> Vec<(String, Value)> {
        let may_be = |one: &&&Upstream| one.descriptor.namespaces.include(namespace);
        let here = Installation { providers: self.providers.iter().filter(may_be).copied().collect(), ..self.clone() };
        here.rules_here()
    }

    fn rules_here(&self) -> Vec<(String, Value)> {
        let mut kinds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for kind in self.manifests().map(Object::kind).filter(|kind| kind.namespaced) {
            kinds.entry(kind.group).or_default().insert(kind.plural);
        }
        // A configuration that stands in a CloudControllerManager becomes a ConfigMap.
        if self.providers.iter().any(|one| one.descriptor.cloud_config.is_some()) {
            kinds.entry("").or_default().insert("configmaps");
        }
        let rule = |(group, resources)| json!({"apiGroups": [group], "resources": resources, "verbs": VERBS});
        let kinds: Value = kinds.into_iter().map(rule).collect();

        let roles = self.manifests().filter(|object| object.kind().kind == "Role");
        let grants = roles.flat_map(|role| rights::of_role(role.value()));
        // A CloudControllerManager may name its lease.
        let grants = grants.map(|grant| if grant.resource == "leases" { grant.of_any_name() } else { grant });

        let secrets = json!([{
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": self.secrets, "verbs": ["list", "watch"],
        }]);
        // Without a name the rule would be for all.
        let secrets = if self.secrets.is_empty() { json!([]) } else { secrets };
        vec![
            (
                format!(
                    "The objects of {}. No names: those of a further CloudControllerManager end with its name.",
                    self.names()
                ),
                kinds,
            ),
            (format!("What the Roles of {} grant, with any name of a lease.", self.names()), rights::merged(grants)),
            ("Credentials, whose keys are checked, and whose change restarts the pods.".to_owned(), secrets),
        ]
    }

    fn manifests(&self) -> impl Iterator<Item = &Object> {
        self.providers.iter().flat_map(|provider| &provider.manifests)
    }

    fn names(&self) -> String {
        self.providers.iter().map(|provider| provider.descriptor.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

/// Rules in the style of the files.
fn written(rules: &Value) -> Result<String, yaml::Error> {
    let scalars = |list: &Value| {
        let items = list.as_array().into_iter().flatten();
        items.map(|item| Ok(yaml::to_string(item)?.trim().to_owned())).collect::<Result<Vec<_>, yaml::Error>>()
    };
    let mut lines = Vec::new();
    for rule in rules.as_array().into_iter().flatten() {
        let mut before = "-";
        for field in ["apiGroups", "resources", "resourceNames", "verbs"] {
            if let Some(list) = rule.get(field) {
                lines.push(format!("{before} {field}: [{}]\n", scalars(list)?.join(", ")));
                before = " ";
            }
        }
    }
    Ok(lines.concat())
}

#[cfg(test)]
mod tests;
