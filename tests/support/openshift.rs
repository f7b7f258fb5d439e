//! The OpenShift objects that the operator reads: the real CRDs and the cluster-wide singletons.
//!
//! Acts as the installer and as the operators that own those objects.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Client, ResourceExt,
    api::{Api, ListParams},
};
use serde_json::{Value, json};

use super::{
    artifacts, eventually,
    objects::{self, apply, apply_status, delete},
};

/// The CRDs: plural, group, and file in the group's folder of the module github.com/openshift/api.
///
/// Where one has variants, it is that of a cluster without preview features. `APIServer` is the exception: only the
/// preview variants have `tlsAdherence`.
const CRDS: &[(&str, &str, &str)] = &[
    ("apiservers", CONFIG, "0000_10_config-operator_01_apiservers-TechPreviewNoUpgrade.crd.yaml"),
    ("clusteroperators", CONFIG, "0000_00_cluster-version-operator_01_clusteroperators.crd.yaml"),
    ("clusterversions", CONFIG, "0000_00_cluster-version-operator_01_clusterversions-Default.crd.yaml"),
    ("featuregates", CONFIG, "0000_10_config-operator_01_featuregates.crd.yaml"),
    ("infrastructures", CONFIG, "0000_10_config-operator_01_infrastructures-Default.crd.yaml"),
    ("kubecontrollermanagers", OPERATOR, "0000_25_kube-controller-manager_01_kubecontrollermanagers.crd.yaml"),
    ("networks", CONFIG, "0000_10_config-operator_01_networks-Default.crd.yaml"),
    ("proxies", CONFIG, "0000_03_config-operator_01_proxies.crd.yaml"),
];
const CONFIG: &str = "config";
const OPERATOR: &str = "operator";

/// `controlPlaneTopology` and `infrastructureTopology`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Three control-plane nodes.
    HighlyAvailable,
    /// The control plane has one node.
    SingleReplica,
}

impl Topology {
    fn as_str(self) -> &'static str {
        match self {
            Self::HighlyAvailable => "HighlyAvailable",
            Self::SingleReplica => "SingleReplica",
        }
    }
}

/// The cluster that [`seed`] creates; by default a highly available one on AWS.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// `Infrastructure.status.infrastructureName`, also a part of the API's host names.
    pub infrastructure_name: String,
    /// The topology of the control plane and of the infrastructure.
    pub topology: Topology,
    /// `Infrastructure.status.platformStatus`; none if `null`.
    pub platform_status: Value,
    /// `Infrastructure.spec.platformSpec`; none if `null`.
    pub platform_spec: Value,
    /// `Infrastructure.spec.cloudConfig`: a `ConfigMap` in `openshift-config` and its key.
    pub cloud_config: Option<(String, String)>,
    /// The data of that `ConfigMap`, if it exists.
    pub cloud_config_data: Option<Value>,
    /// The data of the `ConfigMap` `openshift-config-managed/kube-cloud-config`, if it exists.
    pub kube_cloud_config: Option<Value>,
    /// `Network.spec.serviceNetwork`.
    pub service_network: Vec<String>,
    /// `Proxy.spec`.
    pub proxy_spec: Value,
    /// `Proxy.status`.
    pub proxy_status: Value,
    /// `APIServer.spec`.
    pub api_server_spec: Value,
    /// `ClusterVersion.status.desired.version`, and the version that the feature gates are listed for.
    pub version: String,
    /// The feature gates that are enabled.
    pub enabled_gates: Vec<String>,
    /// The feature gates that are listed as disabled.
    pub disabled_gates: Vec<String>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            infrastructure_name: "lab-x7k2p".into(),
            topology: Topology::HighlyAvailable,
            platform_status: json!({"type": "AWS", "aws": {"region": "us-east-1"}}),
            platform_spec: Value::Null,
            cloud_config: None,
            cloud_config_data: None,
            kube_cloud_config: Some(json!({"cloud.conf": "[Global]\n"})),
            service_network: vec!["172.30.0.0/16".into()],
            proxy_spec: json!({}),
            proxy_status: json!({}),
            api_server_spec: json!({}),
            version: "4.99.0-lab".into(),
            enabled_gates: Vec::new(),
            disabled_gates: Vec::new(),
        }
    }
}

impl Cluster {
    /// The default cluster on another platform, with this `platformStatus`. Clouds that need a configuration have one.
    pub fn on(platform_status: Value) -> Self {
        let kube_cloud_config = match platform_status["type"].as_str() {
            Some("AWS") => Some(json!({"cloud.conf": "[Global]\n"})),
            Some("Azure") => Some(json!({"cloud.conf": "{\n\t\"resourceGroup\": \"lab-rg\"\n}\n"})),
            _ => None,
        };
        let needed = platform_status["type"] == "VSphere";
        let text = "global:\n  secretName: vsphere-creds\n  secretNamespace: kube-system\nvcenter:\n  lab:\n    server: vcenter.example.com\n";
        Self {
            platform_status,
            kube_cloud_config,
            cloud_config: needed.then(|| ("cloud-provider-config".into(), "config".into())),
            cloud_config_data: needed.then(|| json!({"config": text})),
            ..Self::default()
        }
    }

    /// `spec` and `status` of `Infrastructure/cluster`.
    fn infrastructure(&self) -> (Value, Value) {
        let name = &self.infrastructure_name;
        let mut spec = json!({});
        if let Some((name, key)) = &self.cloud_config {
            spec["cloudConfig"] = json!({"name": name, "key": key});
        }
        if !self.platform_spec.is_null() {
            spec["platformSpec"] = self.platform_spec.clone();
        }
        let mut status = json!({
            "infrastructureName": name,
            "controlPlaneTopology": self.topology.as_str(),
            "infrastructureTopology": self.topology.as_str(),
            "apiServerURL": format!("https://api.{name}.example.com:6443"),
            "apiServerInternalURI": format!("https://api-int.{name}.example.com:6443"),
        });
        if !self.platform_status.is_null() {
            status["platform"] = self.platform_status["type"].clone();
            status["platformStatus"] = self.platform_status.clone();
        }
        (spec, status)
    }

    /// `status` of `FeatureGate/cluster`.
    fn feature_gates(&self) -> Value {
        let names = |gates: &[String]| gates.iter().map(|name| json!({"name": name})).collect::<Vec<_>>();
        json!({"featureGates": [{
            "version": self.version,
            "enabled": names(&self.enabled_gates),
            "disabled": names(&self.disabled_gates),
        }]})
    }

    /// `status` of `ClusterVersion/version`, at the end of its installation.
    fn cluster_version(&self) -> Value {
        let image = format!("quay.io/openshift-release-dev/ocp-release:{}", self.version);
        json!({
            "desired": {"version": self.version, "image": image},
            "history": [{
                "state": "Completed", "version": self.version, "image": image, "verified": false,
                "startedTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:30:00Z",
            }],
            "observedGeneration": 1,
            "versionHash": "lab",
            "availableUpdates": [],
        })
    }
}

/// Installs the CRDs, waits until they are served, and creates the namespaces of every OpenShift cluster. Later calls
/// change nothing.
pub async fn install_crds(client: &Client) -> Result<()> {
    for namespace in ["openshift-config", "openshift-config-managed"] {
        apply(client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).await?;
    }
    if established(client).await.is_ok() {
        return Ok(());
    }
    let module = artifacts::openshift_api().await?;
    let files = CRDS.iter().map(|(_, group, file)| module.join(group).join("v1/zz_generated.crd-manifests").join(file));
    try_join_all(files.map(|file| install_crd(client, file))).await?;
    let limit = Duration::from_secs(20);
    eventually("the CRDs are established", limit, async || established(client).await.map(Some)).await?;
    let served = CRDS.iter().map(|(plural, group, _)| {
        eventually("the CRDs are served", limit, async || read_absent(client, plural, group).await.map(Some))
    });
    try_join_all(served).await.map(drop)
}

/// Succeeds once the kind is served. The first read of a new kind takes a second, as never in a real cluster: this one.
async fn read_absent(client: &Client, plural: &str, group: &str) -> Result<()> {
    let path = format!("/apis/{group}.openshift.io/v1/{plural}/absent");
    match client.request_text(http::Request::get(path).body(Vec::new())?).await {
        // The answer for a kind that is not served is also 404, without a name.
        Err(kube::Error::Api(status)) if status.details.as_ref().is_some_and(|details| details.name == "absent") => {
            Ok(())
        }
        result => Ok(result.map(drop)?),
    }
}

async fn install_crd(client: &Client, file: PathBuf) -> Result<()> {
    let document = objects::read_yaml(&file)?.pop().context("a CRD's file is empty")?;
    apply(client, document).await.map(drop)
}

/// Succeeds if all CRDs are established; the error names the others.
async fn established(client: &Client) -> Result<()> {
    let installed = Api::<CustomResourceDefinition>::all(client.clone()).list(&ListParams::default()).await?;
    let is_established = |name: &String| {
        let crd = installed.iter().find(|crd| crd.name_any() == *name);
        let conditions = crd.and_then(|crd| crd.status.as_ref()?.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Established" && condition.status == "True")
    };
    let names = CRDS.iter().map(|(plural, group, _)| format!("{plural}.{group}.openshift.io"));
    let missing: Vec<_> = names.filter(|name| !is_established(name)).collect();
    ensure!(missing.is_empty(), "not established: {}", missing.join(", "));
    Ok(())
}

/// Creates or changes the cluster's singletons. The CRDs must be installed.
///
/// Their rules forbid some changes, such as unsetting `spec.tlsAdherence`: a test that must not depend on the previous
/// objects calls [`reset`] first.
pub async fn seed(client: &Client, cluster: &Cluster) -> Result<()> {
    if let (Some((name, _)), Some(data)) = (&cluster.cloud_config, &cluster.cloud_config_data) {
        let metadata = json!({"name": name, "namespace": "openshift-config"});
        apply(client, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})).await?;
    }
    let (spec, status) = cluster.infrastructure();
    singleton(client, "Infrastructure", "cluster", spec, status).await?;
    singleton(client, "FeatureGate", "cluster", json!({}), cluster.feature_gates()).await?;
    singleton(client, "Proxy", "cluster", cluster.proxy_spec.clone(), cluster.proxy_status.clone()).await?;
    let cluster_id = "5f3c2a1e-0b7d-4c6a-9e8f-1d2b3c4a5e6f";
    singleton(client, "ClusterVersion", "version", json!({"clusterID": cluster_id}), cluster.cluster_version()).await?;
    apply(client, config("APIServer", "cluster", "spec", cluster.api_server_spec.clone())).await?;
    apply(client, config("Network", "cluster", "spec", json!({"serviceNetwork": cluster.service_network}))).await?;

    let mut kube_cloud_config = kube_cloud_config();
    match &cluster.kube_cloud_config {
        Some(data) => {
            kube_cloud_config["data"] = data.clone();
            apply(client, kube_cloud_config).await.map(drop)
        }
        None => delete(client, &kube_cloud_config).await,
    }
}

/// Deletes the objects of [`seed`], and the operator's `ClusterOperator`.
pub async fn reset(client: &Client) -> Result<()> {
    for kind in ["Infrastructure", "FeatureGate", "Proxy", "APIServer", "Network"] {
        delete(client, &config(kind, "cluster", "spec", json!({}))).await?;
    }
    delete(client, &config("ClusterVersion", "version", "spec", json!({}))).await?;
    delete(client, &config("ClusterOperator", "cloud-controller-manager", "spec", json!({}))).await?;
    delete(client, &kube_cloud_config()).await
}

async fn singleton(client: &Client, kind: &str, name: &str, spec: Value, status: Value) -> Result<()> {
    apply(client, config(kind, name, "spec", spec)).await?;
    apply_status(client, config(kind, name, "status", status)).await.map(drop)
}

fn config(kind: &str, name: &str, field: &str, value: Value) -> Value {
    let mut object = json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": {"name": name}});
    object[field] = value;
    object
}

fn kube_cloud_config() -> Value {
    let metadata = json!({"name": "kube-cloud-config", "namespace": "openshift-config-managed"});
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

/// Deletes the operator's `ClusterOperator`.
pub async fn delete_cluster_operator(client: &Client) -> Result<()> {
    delete(client, &config("ClusterOperator", "cloud-controller-manager", "spec", json!({}))).await
}

/// Sets the specification of `APIServer/cluster`.
pub async fn set_api_server(client: &Client, spec: Value) -> Result<()> {
    apply(client, config("APIServer", "cluster", "spec", spec)).await.map(drop)
}

/// Sets the status of `Proxy/cluster`.
pub async fn set_proxy_status(client: &Client, status: Value) -> Result<()> {
    apply_status(client, config("Proxy", "cluster", "status", status)).await.map(drop)
}

/// Deletes `Proxy/cluster`.
pub async fn delete_proxy(client: &Client) -> Result<()> {
    delete(client, &config("Proxy", "cluster", "spec", json!({}))).await
}

/// Changes a condition of the operator's `ClusterOperator` to Unknown with this reason, as another writer.
pub async fn set_condition(client: &Client, type_: &str, reason: &str) -> Result<()> {
    let condition = json!({"type": type_, "status": "Unknown", "reason": reason, "message": "",
        "lastTransitionTime": "2020-01-01T00:00:00Z"});
    let status = json!({"conditions": [condition]});
    let object = config("ClusterOperator", "cloud-controller-manager", "status", status);
    objects::apply_status_as(client, "another-writer", object).await.map(drop)
}

/// Gives the operator's `ClusterOperator` conditions of these types, all True, as another writer.
pub async fn set_conditions(client: &Client, types: &[&str]) -> Result<()> {
    let conditions: Vec<_> = types
        .iter()
        .map(|type_| json!({"type": type_, "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}))
        .collect();
    let status = json!({"conditions": conditions});
    apply_status(client, config("ClusterOperator", "cloud-controller-manager", "status", status)).await.map(drop)
}
