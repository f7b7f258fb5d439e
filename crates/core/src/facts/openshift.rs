//! Facts from OpenShift's documents (pure): the few fields of config.openshift.io/v1 that are read, and their meaning.
//!
//! The types are partial on purpose: objects of newer and older APIs are read, unknown values are accepted, and nothing
//! is written back.
#![allow(missing_docs, reason = "the API documents its fields; only what it leaves open is documented here")]

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use crate::{
    facts::{
        ConfigMapKey, Error, Facts, Platform, Settings, api_types,
        images::Images,
        proxy_variables,
        tls::{Profile, TlsSettings},
        vsphere::VSphere,
    },
    object::{self, Kind, reference::Reference},
    text::mask,
};

/// The namespace of the ConfigMaps that administrators write.
const USER_NAMESPACE: &str = "openshift-config";

/// The version in manifests until the release tooling replaces it.
pub const VERSION_PLACEHOLDER: &str = "0.0.1-snapshot";

/// The name of the Infrastructure in errors.
const INFRASTRUCTURE: &str = "Infrastructure/cluster";

/// A source document of facts.
#[derive(Debug, PartialEq, Eq)]
pub struct Document {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: &'static str,
}

const fn document(kind: &'static str, plural: &'static str, name: &'static str) -> Document {
    Document { kind: object::kind("config.openshift.io", "v1", kind, plural, false, 0), name }
}

/// The document that names the platform. Every OpenShift cluster has it, and no other cluster.
pub const PLATFORM_DOCUMENT: Document = document("Infrastructure", "infrastructures", "cluster");

/// Every document.
pub static DOCUMENTS: [Document; 6] = [
    PLATFORM_DOCUMENT,
    document("Proxy", "proxies", "cluster"),
    document("FeatureGate", "featuregates", "cluster"),
    document("APIServer", "apiservers", "cluster"),
    document("Network", "networks", "cluster"),
    document("ClusterVersion", "clusterversions", "version"),
];

/// The source documents of facts; `None` if the cluster does not have one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Documents {
    /// A manifest that the installer has not completed has no status.
    pub infrastructure: Option<Resource<InfrastructureSpec, Option<InfrastructureStatus>>>,
    pub proxy: Option<Resource<ProxySpec, ProxyStatus>>,
    pub network: Option<Resource<NetworkSpec, IgnoredAny>>,
    pub feature_gate: Option<Resource<IgnoredAny, FeatureGateStatus>>,
    pub api_server: Option<Resource<ApiServerSpec, IgnoredAny>>,
    pub cluster_version: Option<Resource<IgnoredAny, ClusterVersionStatus>>,
}

/// The region of the cluster in a live Infrastructure; `None` if its platform has none.
pub fn infrastructure_region(infrastructure: &Value) -> Option<&str> {
    let platform = infrastructure["status"]["platformStatus"].as_object()?;
    // Each platform has its own object.
    platform.values().find_map(|own| own["region"].as_str())
}

impl Documents {
    /// Returns the documents that a process with these settings needs. Only the configuration of vSphere depends on the
    /// network: the Network is needed once the platform is known to be vSphere.
    pub fn needed(
        settings: &Settings,
        with_cloud_config: bool,
        platform: Option<&Platform>,
    ) -> impl Iterator<Item = &'static Document> {
        let needs_version = needs_cluster_version(settings);
        let needs_network = with_cloud_config && platform.is_some_and(|platform| platform.name == "VSphere");
        DOCUMENTS.iter().filter(move |document| match document.kind.kind {
            "ClusterVersion" => needs_version,
            "Network" => needs_network,
            _ => true,
        })
    }

    /// Reads a document; `None` if the cluster does not have it.
    pub fn take(&mut self, document: &Document, object: Option<&Value>) -> Result<(), serde_json::Error> {
        match document.kind.kind {
            "Infrastructure" => self.infrastructure = parse(object)?,
            "Proxy" => self.proxy = parse(object)?,
            "FeatureGate" => self.feature_gate = parse(object)?,
            "APIServer" => self.api_server = parse(object)?,
            "Network" => self.network = parse(object)?,
            "ClusterVersion" => self.cluster_version = parse(object)?,
            other => return Err(serde::de::Error::custom(format_args!("no fact is taken from {other}"))),
        }
        Ok(())
    }

    /// The facts in these documents; images and digests have other sources.
    pub fn facts(&self, settings: &Settings) -> Facts {
        let infrastructure = self.infrastructure.as_ref();
        let status = infrastructure.and_then(|found| found.status.as_ref());
        let platform = status.and_then(|status| status.platform_status.as_ref());
        let vsphere = platform.map(|platform| &platform.vsphere);
        let cloud_config = infrastructure.map(|found| &found.spec.cloud_config);
        let proxy = self.proxy.as_ref().map(|proxy| proxy.status.clone()).unwrap_or_default();
        Facts {
            platform: infrastructure.map(|found| platform_of(&found.spec.platform_spec, platform)).transpose(),
            infrastructure_name: status.and_then(|status| text(&status.infrastructure_name)),
            namespace: settings.namespace.clone(),
            single_replica: status.is_some_and(|status| status.control_plane_topology == "SingleReplica"),
            api_server: status.map_or(Ok(None), |status| api_server(&status.api_server_internal_uri)),
            proxy: proxy_variables(proxy.http_proxy, proxy.https_proxy, proxy.no_proxy),
            feature_gates: self.feature_gates(settings),
            tls: TlsSettings::choose(self.api_server.as_ref().and_then(|found| found.spec.profile()), &settings.tls),
            service_networks: self.network.iter().flat_map(|network| network.spec.service_network.clone()).collect(),
            vsphere: infrastructure.and_then(|found| found.spec.platform_spec.vsphere.clone()),
            vips: vsphere.map_or_else(Vec::new, |found| [&*found.api_server_internal_ips, &found.ingress_ips].concat()),
            cloud_config: cloud_config.map_or_else(ConfigMapKey::default, |named| ConfigMapKey {
                config_map: user_config_map(&named.name),
                key: named.key.clone(),
            }),
            user_ca: self.proxy.as_ref().and_then(|proxy| user_config_map(&proxy.spec.trusted_ca.name)),
            has_trusted_ca: self.proxy.is_some() || infrastructure.is_some(),
            images: Ok(Images::default()),
            digests: None,
            ccm: None,
        }
    }

    /// Every feature gate that the cluster enables for this version.
    fn feature_gates(&self, settings: &Settings) -> Vec<String> {
        let version = if needs_cluster_version(settings) {
            self.cluster_version.as_ref().and_then(|found| found.status.current())
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

/// Whether the version is known from the `ClusterVersion` only.
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

/// The type of a platform that provides its own cloud-controller-manager, and the value of `cloudControllerManager.state` that expects one.
pub const EXTERNAL: &str = "External";

fn platform_of(spec: &PlatformSpec, status: Option<&PlatformStatus>) -> Result<Platform, Error> {
    let status = status.filter(|status| !status.type_.is_empty()).ok_or_else(|| Error::Field {
        object: INFRASTRUCTURE,
        problem: "status.platformStatus.type is empty; the installer sets it to the cluster's platform".into(),
    })?;
    let external = &status.external.cloud_controller_manager.state;
    let variant = match status.type_.as_str() {
        // Otherwise kubelets expect no cloud-controller-manager.
        EXTERNAL if external == EXTERNAL => text(&spec.external.platform_name),
        EXTERNAL => None,
        _ => text(&status.azure.cloud_name),
    };
    Ok(Platform { name: status.type_.clone(), variant })
}

fn api_server(uri: &str) -> Result<Option<(String, String)>, Error> {
    if uri.is_empty() {
        return Ok(None);
    }
    let (host, port) = host_and_port(uri).ok_or_else(|| Error::Field {
        object: INFRASTRUCTURE,
        problem: format!("status.apiServerInternalURI {:?} is not an https:// URL with a host", mask::text(uri)),
    })?;
    Ok(Some((host, port.to_string())))
}

/// Host (IPv6 without its brackets) and port (443 when none is given) of an HTTPS URL.
fn host_and_port(url: &str) -> Option<(String, u16)> {
    let authority = url.strip_prefix("https://")?.split(['/', '?', '#']).next().filter(|text| !text.contains('@'))?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, port.parse().ok().filter(|port| *port > 0)?),
        _ => (authority, 443),
    };
    let host = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.strip_suffix(']').filter(|host| !host.contains(']'))?,
        None => Some(host).filter(|host| !host.contains(':'))?,
    };
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

api_types! {
    /// The parts of a document that are read.
    pub struct Resource<S, T> {
        spec: S,
        status: T,
    }

    pub struct InfrastructureSpec {
        cloud_config: ConfigMapFileReference,
        platform_spec: PlatformSpec,
    }

    /// A key of a ConfigMap in namespace openshift-config; an empty name means none.
    struct ConfigMapFileReference {
        name: String,
        key: String,
    }

    struct PlatformSpec {
        vsphere: Option<VSphere>,
        external: ExternalPlatformSpec,
    }

    struct ExternalPlatformSpec {
        /// The cloud's name, as set at the installation; `Unknown` if it was not set.
        platform_name: String,
    }

    pub struct InfrastructureStatus {
        platform_status: Option<PlatformStatus>,
        infrastructure_name: String,
        /// `HighlyAvailable`, `SingleReplica` or a value of a newer API.
        control_plane_topology: String,
        /// The URL at which nodes reach the API server, such as `https://api-int.example.com:6443`.
        #[serde(rename = "apiServerInternalURI")]
        api_server_internal_uri: String,
    }

    struct PlatformStatus {
        #[serde(rename = "type")]
        type_: String,
        azure: AzurePlatformStatus,
        vsphere: VSpherePlatformStatus,
        external: ExternalPlatformStatus,
    }

    struct ExternalPlatformStatus {
        cloud_controller_manager: ExternalManagerStatus,
    }

    struct ExternalManagerStatus {
        /// `External` if kubelets expect a cloud-controller-manager, else `None` or empty.
        state: String,
    }

    struct AzurePlatformStatus {
        /// Azure's cloud, such as `AzureStackCloud`; empty means the public one.
        cloud_name: String,
    }

    struct VSpherePlatformStatus {
        #[serde(rename = "apiServerInternalIPs")]
        api_server_internal_ips: Vec<String>,
        #[serde(rename = "ingressIPs")]
        ingress_ips: Vec<String>,
    }

    pub struct NetworkSpec {
        service_network: Vec<String>,
    }

    pub struct ProxySpec {
        /// A ConfigMap in namespace openshift-config; an empty name means none.
        #[serde(rename = "trustedCA")]
        trusted_ca: Name,
    }

    struct Name {
        name: String,
    }

    pub struct ProxyStatus {
        pub http_proxy: String,
        pub https_proxy: String,
        pub no_proxy: String,
    }

    pub struct FeatureGateStatus {
        /// One entry for each version that runs in the cluster.
        feature_gates: Vec<FeatureGateDetails>,
    }

    struct FeatureGateDetails {
        version: String,
        enabled: Vec<Name>,
    }

    pub struct ApiServerSpec {
        /// Absent means the default profile.
        tls_security_profile: Option<Profile>,
        /// `LegacyAdheringComponentsOnly`, `StrictAllComponents`, or empty for the first.
        tls_adherence: String,
    }

    pub struct ClusterVersionStatus {
        desired: Release,
        /// Versions that were installed or begun, the newest first.
        history: Vec<Release>,
    }

    struct Release {
        version: String,
    }
}

impl ApiServerSpec {
    /// The profile, if components other than the API server have to adhere to it.
    fn profile(&self) -> Option<&Profile> {
        let is_legacy = matches!(&*self.tls_adherence, "" | "LegacyAdheringComponentsOnly");
        self.tls_security_profile.as_ref().filter(|_| !is_legacy)
    }
}

impl ClusterVersionStatus {
    /// The version that the cluster has or updates to; `None` if it is not known yet.
    fn current(&self) -> Option<&str> {
        let releases = std::iter::once(&self.desired).chain(self.history.first());
        releases.map(|release| release.version.as_str()).find(|version| !version.is_empty())
    }
}

#[cfg(test)]
mod tests;
