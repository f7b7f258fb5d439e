//! The installation of the operator on any Kubernetes: `install/`, for the chosen providers (pure).
//!
//! The API server lets the operator grant only permissions that it holds. So its permissions are computed from the descriptors
//! and manifests of the providers, and appended to the rules in the files.

pub mod external;

use serde_json::{Value, json};

use external::CarriedProviders;

use super::{
    grants::{GrantedRules, written},
    limits::Limits,
    substitute::{common_environment, containers_mut, mount, push},
};
use crate::{
    api::placement::{ApiServer, Distribution},
    facts::ccm::api_server,
    object::Object,
    provider::kubernetes::{CONTROL_PLANE_LABEL, KubernetesProvider},
    text::yaml,
};

/// The name of the operator's objects in the files, and of its namespace.
pub const NAME: &str = "ccm-operator";

/// The name of the Role and the `RoleBinding` in each managed namespace.
const MANAGED: &str = "ccm-operator-managed";

/// The volume with the certificate of the metrics, and its mount path.
const CERTIFICATE: &str = "metrics-certificate";
const CERTIFICATE_PATH: &str = "/etc/ccm-operator/metrics-certificate";

/// The values that an installation fills in.
#[derive(Clone, Debug)]
pub struct Installation<'a> {
    /// The providers that may be requested.
    pub providers: Vec<&'a KubernetesProvider>,
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
    /// The number of nodes with the label of the control plane.
    pub control_plane_nodes: usize,
    /// The address of the API server; `None` means the default of the distribution.
    pub api_server: Option<ApiServer>,
    /// Whether cloud-controller-managers may be allowed to delete nodes.
    pub node_deletion: bool,
    /// Whether the operator's metrics are served on every address of its nodes.
    pub expose_metrics: bool,
    /// The Secret in the operator's namespace with the certificate of the metrics; `None` means that the operator creates one.
    pub metrics_certificate: Option<String>,
    /// The limits for the specs of `CloudControllerManager`s.
    pub limits: Limits,
    /// The providers that do not come with the operator.
    pub external: CarriedProviders,
}

impl Installation<'_> {
    /// Fills in a file of `install/`. The result is empty if this installation does not need the file.
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
            // This namespace exists, and its labels belong to the administrator.
            Some("Namespace") => !self.namespaces.contains(&self.operator_namespace),
            Some("PodDisruptionBudget") => self.replicas() > 1,
            _ => true,
        }
    }

    /// Returns two, or one if there is only one node.
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
        let grants = GrantedRules {
            providers: &self.providers,
            secrets: &self.secrets,
            names: &self.limits.names,
            leases: &self.limits.leases,
            node_deletion: self.node_deletion,
        };
        let computed = match (value["kind"].as_str(), value["metadata"]["name"].as_str()) {
            (Some("ClusterRole"), Some(NAME)) => grants.of_cluster()?,
            (Some("Role"), Some(MANAGED)) => grants.of_managed(namespace)?,
            _ => Vec::new(),
        };
        text.push_str(&written(&computed)?);
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
        if self.api_server.is_none() && self.distribution.is_local_to_servers() && self.control_plane_nodes > 0 {
            let on_a_server = json!({"matchExpressions": [{"key": CONTROL_PLANE_LABEL, "operator": "Exists"}]});
            deployment["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": [on_a_server]});
        }
        let Ok(mut object) = Object::new(deployment.clone()) else { return deployment };
        for container in containers_mut(&mut object, &["containers"]) {
            if let Some(image) = &self.image {
                container["image"] = image.as_str().into();
            }
            let values = [
                ("--namespaces=", Some(self.namespaces.join(","))),
                ("--names=", Some(self.limits.names.join(","))),
                // At the default address, only the nodes themselves can read the metrics.
                ("--metrics-bind-address=", self.expose_metrics.then(|| ":10358".to_owned())),
            ];
            for argument in container["args"].as_array_mut().into_iter().flatten() {
                let is_given = |(flag, _): &&(&str, _)| argument.as_str().is_some_and(|text| text.starts_with(flag));
                if let Some((flag, Some(value))) = values.iter().find(is_given) {
                    *argument = format!("{flag}{value}").into();
                }
            }
            let node_deletion = self.node_deletion.then(|| "--node-deletion".to_owned());
            let of_certificate = |_: &String| format!("--metrics-cert-dir={CERTIFICATE_PATH}");
            let certificate = self.metrics_certificate.as_ref().map(of_certificate);
            let arguments = self.limits.arguments().into_iter().chain(node_deletion);
            for argument in arguments.chain(self.external.arguments()).chain(certificate) {
                push(container, "args", argument.into());
            }
        }
        self.external.mount(&mut object);
        if let Some(secret) = &self.metrics_certificate {
            // Optional, because a certificate issuer may need working nodes, which need the operator. The operator reads the files
            // once they appear.
            let source = json!({"secretName": secret, "optional": true});
            mount(&mut object, CERTIFICATE_PATH, json!({"name": CERTIFICATE, "secret": source}));
        }
        let endpoint = api_server(self.api_server.as_ref(), self.distribution, self.control_plane_nodes);
        common_environment(&mut object, endpoint.as_ref(), &[]);
        object.value().clone()
    }
}

#[cfg(test)]
mod tests;
