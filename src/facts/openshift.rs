//! Facts from OpenShift's documents (pure): the few fields of config.openshift.io/v1 that are read, and what they mean.
//!
//! Partial on purpose: objects of newer and of older APIs are read, unknown fields and values are no error, and nothing
//! here is ever written back whole.
#![allow(missing_docs, reason = "the API documents its fields; only what it leaves open is documented here")]

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    facts::{
        ConfigMapKey, Error, Facts, Platform, Settings,
        tls::{Profile, TlsSettings},
        vsphere::VSphere,
    },
    object::{Kind, reference::Reference},
};

/// The namespace of the ConfigMaps that administrators write and these documents name.
const USER_NAMESPACE: &str = "openshift-config";

/// The version in manifests until the release tooling replaces it.
const VERSION_PLACEHOLDER: &str = "0.0.1-snapshot";

/// How errors name the Infrastructure.
const INFRASTRUCTURE: &str = "Infrastructure/cluster";

/// A document that facts are taken from.
#[derive(Debug, PartialEq, Eq)]
pub struct Document {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: &'static str,
}

const fn document(kind: &'static str, plural: &'static str, name: &'static str) -> Document {
    let kind = Kind { group: "config.openshift.io", version: "v1", kind, plural, namespaced: false, wave: 0 };
    Document { kind, name }
}

static DOCUMENTS: [Document; 6] = [
    document("Infrastructure", "infrastructures", "cluster"),
    document("Proxy", "proxies", "cluster"),
    document("FeatureGate", "featuregates", "cluster"),
    document("APIServer", "apiservers", "cluster"),
    document("Network", "networks", "cluster"),
    document("ClusterVersion", "clusterversions", "version"),
];

/// The documents that facts are taken from; one that the cluster does not have is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Documents {
    pub infrastructure: Option<Infrastructure>,
    pub proxy: Option<Proxy>,
    pub network: Option<Network>,
    pub feature_gate: Option<FeatureGate>,
    pub api_server: Option<ApiServer>,
    pub cluster_version: Option<ClusterVersion>,
}

impl Documents {
    /// Every document.
    pub fn all() -> impl Iterator<Item = &'static Document> {
        DOCUMENTS.iter()
    }

    /// The documents that a process with these settings needs; only the cloud's configuration depends on the network.
    pub fn needed(settings: &Settings, with_cloud_config: bool) -> impl Iterator<Item = &'static Document> {
        let needs_version = needs_cluster_version(settings);
        Self::all().filter(move |document| match document.kind.kind {
            "ClusterVersion" => needs_version,
            "Network" => with_cloud_config,
            _ => true,
        })
    }

    /// Reads a document; `None` is one that the cluster does not have.
    pub fn take(&mut self, document: &Document, object: Option<&Value>) -> Result<(), serde_json::Error> {
        match document.kind.kind {
            "Infrastructure" => self.infrastructure = parse(object)?,
            "Proxy" => self.proxy = parse(object)?,
            "FeatureGate" => self.feature_gate = parse(object)?,
            "APIServer" => self.api_server = parse(object)?,
            "Network" => self.network = parse(object)?,
            _ => self.cluster_version = parse(object)?,
        }
        Ok(())
    }

    /// The facts in these documents; images and digests have other sources.
    pub fn facts(&self, settings: &Settings) -> Facts {
        let infrastructure = self.infrastructure.as_ref();
        let status = infrastructure.and_then(|found| found.status.as_ref());
        let platform = status.and_then(|status| status.platform_status.as_ref());
        let vips = platform.and_then(|platform| platform.vsphere.as_ref());
        Facts {
            platform: infrastructure.map(|_| platform_of(platform)).transpose(),
            infrastructure_name: status.and_then(|status| text(&status.infrastructure_name)),
            namespace: settings.namespace.clone(),
            single_replica: status.is_some_and(|status| status.control_plane_topology == "SingleReplica"),
            api_server: status.map_or(Ok(None), |status| api_server(&status.api_server_internal_uri)),
            proxy: self.proxy.as_ref().map_or_else(Vec::new, |proxy| proxy.status.variables()),
            feature_gates: self.feature_gates(settings),
            tls: TlsSettings::choose(self.api_server.as_ref().and_then(ApiServer::profile), &settings.tls),
            service_networks: self.network.iter().flat_map(|network| network.spec.service_network.clone()).collect(),
            vsphere: infrastructure.and_then(|found| found.spec.platform_spec.vsphere.clone()),
            vips: vips.map_or_else(Vec::new, |vsphere| {
                vsphere.api_server_internal_ips.iter().chain(&vsphere.ingress_ips).cloned().collect()
            }),
            cloud_config: infrastructure.map(|found| found.spec.cloud_config.key()).unwrap_or_default(),
            user_ca: self.proxy.as_ref().and_then(|proxy| user_config_map(&proxy.spec.trusted_ca.name)),
            has_trusted_ca: self.proxy.is_some(),
            ..Facts::default()
        }
    }

    /// Every feature gate that the cluster enables for this version.
    fn feature_gates(&self, settings: &Settings) -> Vec<String> {
        let version = if needs_cluster_version(settings) {
            self.cluster_version.as_ref().and_then(ClusterVersion::current)
        } else {
            settings.release_version.as_deref()
        };
        let gates = self.feature_gate.iter().flat_map(|gates| &gates.status.feature_gates);
        gates
            .filter(|details| Some(details.version.as_str()) == version)
            .flat_map(|details| details.enabled.iter().map(|gate| gate.name.clone()))
            .collect()
    }
}

/// Whether only `ClusterVersion` tells which version this is.
fn needs_cluster_version(settings: &Settings) -> bool {
    settings.release_version.as_deref().is_none_or(|version| version == VERSION_PLACEHOLDER)
}

fn parse<T: DeserializeOwned>(object: Option<&Value>) -> Result<Option<T>, serde_json::Error> {
    object.map(T::deserialize).transpose()
}

/// A field's text; empty means that the field is not set.
fn text(field: &str) -> Option<String> {
    Some(field.to_owned()).filter(|text| !text.is_empty())
}

fn user_config_map(name: &str) -> Option<Reference> {
    (!name.is_empty()).then(|| Reference::config_map(USER_NAMESPACE, name))
}

fn platform_of(status: Option<&PlatformStatus>) -> Result<Platform, Error> {
    let status = status.filter(|status| !status.type_.is_empty()).ok_or_else(|| Error::Field {
        object: INFRASTRUCTURE,
        problem: "status.platformStatus.type is empty; the installer sets it to the cluster's platform".into(),
    })?;
    let variant = status.azure.as_ref().and_then(|azure| text(&azure.cloud_name));
    Ok(Platform { name: status.type_.clone(), variant })
}

fn api_server(uri: &str) -> Result<Option<(String, String)>, Error> {
    if uri.is_empty() {
        return Ok(None);
    }
    let problem = || format!("status.apiServerInternalURI {uri:?} is not an https:// URL with a host");
    host_and_port(uri)
        .map(|(host, port)| Some((host, port.to_string())))
        .ok_or_else(|| Error::Field { object: INFRASTRUCTURE, problem: problem() })
}

/// Host (IPv6 without its brackets) and port (443 when none is given) of an HTTPS URL.
fn host_and_port(url: &str) -> Option<(String, u16)> {
    let rest = url.strip_prefix("https://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (host, after) = bracketed.split_once(']')?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = port.map_or(Some(443), |port| port.parse().ok())?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct Infrastructure {
    pub spec: InfrastructureSpec,
    /// Absent in a manifest that the installer has not completed.
    pub status: Option<InfrastructureStatus>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct InfrastructureSpec {
    pub cloud_config: ConfigMapFileReference,
    pub platform_spec: PlatformSpec,
}

/// A key of a ConfigMap of namespace openshift-config; an empty name means none.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ConfigMapFileReference {
    pub name: String,
    pub key: String,
}

impl ConfigMapFileReference {
    fn key(&self) -> ConfigMapKey {
        ConfigMapKey { config_map: user_config_map(&self.name), key: self.key.clone() }
    }
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct PlatformSpec {
    pub vsphere: Option<VSphere>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct InfrastructureStatus {
    pub platform_status: Option<PlatformStatus>,
    pub infrastructure_name: String,
    /// `HighlyAvailable`, `SingleReplica` or what a newer API adds.
    pub control_plane_topology: String,
    /// The URL at which nodes reach the API server, such as `https://api-int.example.com:6443`.
    #[serde(rename = "apiServerInternalURI")]
    pub api_server_internal_uri: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct PlatformStatus {
    #[serde(rename = "type")]
    pub type_: String,
    pub azure: Option<AzurePlatformStatus>,
    pub vsphere: Option<VSpherePlatformStatus>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct VSpherePlatformStatus {
    #[serde(rename = "apiServerInternalIPs")]
    pub api_server_internal_ips: Vec<String>,
    #[serde(rename = "ingressIPs")]
    pub ingress_ips: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct AzurePlatformStatus {
    /// Which of Azure's clouds, such as `AzureStackCloud`; empty means the public one.
    pub cloud_name: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Network {
    pub spec: NetworkSpec,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkSpec {
    pub service_network: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Proxy {
    pub spec: ProxySpec,
    pub status: ProxyStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ProxySpec {
    #[serde(rename = "trustedCA")]
    pub trusted_ca: ConfigMapNameReference,
}

/// A ConfigMap of namespace openshift-config; an empty name means none.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ConfigMapNameReference {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyStatus {
    pub http_proxy: String,
    pub https_proxy: String,
    pub no_proxy: String,
}

impl ProxyStatus {
    fn variables(&self) -> Vec<(&'static str, String)> {
        [("HTTP_PROXY", &self.http_proxy), ("HTTPS_PROXY", &self.https_proxy), ("NO_PROXY", &self.no_proxy)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, text(value)?)))
            .collect()
    }
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct FeatureGate {
    pub status: FeatureGateStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct FeatureGateStatus {
    /// One entry for each version that runs in the cluster.
    pub feature_gates: Vec<FeatureGateDetails>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct FeatureGateDetails {
    pub version: String,
    pub enabled: Vec<FeatureGateName>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct FeatureGateName {
    pub name: String,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ApiServer {
    pub spec: ApiServerSpec,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiServerSpec {
    /// Absent means the default profile.
    pub tls_security_profile: Option<Profile>,
    /// `LegacyAdheringComponentsOnly`, `StrictAllComponents`, or empty for the first.
    pub tls_adherence: String,
}

impl ApiServer {
    /// The profile, where components other than the API server have to adhere to it.
    fn profile(&self) -> Option<&Profile> {
        let is_legacy = matches!(&*self.spec.tls_adherence, "" | "LegacyAdheringComponentsOnly");
        self.spec.tls_security_profile.as_ref().filter(|_| !is_legacy)
    }
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ClusterVersion {
    pub status: ClusterVersionStatus,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ClusterVersionStatus {
    pub desired: Release,
    /// Versions that were installed or begun, the newest first.
    pub history: Vec<Release>,
}

#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Release {
    pub version: String,
}

impl ClusterVersion {
    /// The version that the cluster is at or moves to; `None` when it is not known yet.
    fn current(&self) -> Option<&str> {
        std::iter::once(&self.status.desired)
            .chain(self.status.history.first())
            .map(|release| release.version.as_str())
            .find(|version| !version.is_empty())
    }
}

#[cfg(test)]
mod tests;
