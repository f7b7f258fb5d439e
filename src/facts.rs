//! What the plan knows about a cluster (pure).
//!
//! [`Sources`] are the documents as they were read, from a cluster ([`crate::controllers`]) or from files ([`files`]);
//! [`Facts`] are what was found in them, checked. Every error here is terminal: the same input gives the same error.

pub mod images;
pub mod openshift;
pub mod read;
pub mod tls;

use serde::Deserialize;

use crate::{
    facts::openshift::{
        ApiServer, ClusterVersion, FeatureGate, Infrastructure, InfrastructureStatus, Network, PlatformStatus, Proxy,
    },
    object::reference::Digests,
};
use images::Images;
use tls::{TlsFlags, TlsSettings};

/// The namespace that manifests are written for, and that is managed unless another is given.
pub const DEFAULT_NAMESPACE: &str = "openshift-cloud-controller-manager";

/// The version that stands in manifests until the release tooling puts the real one in its place.
const VERSION_PLACEHOLDER: &str = "0.0.1-snapshot";

/// The gates that a cloud-controller-manager of k8s.io/cloud-provider knows; it refuses to start with any other.
const CCM_FEATURE_GATES: [&str; 3] = [
    "CloudControllerManagerWatchBasedRoutesReconciliation",
    "CloudControllerManagerWebhook",
    "ControllerManagerReleaseLeaderElectionLockOnExit",
];

/// What a provider's descriptor can ask for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Fact {
    /// The cluster's name at the cloud, `Infrastructure.status.infrastructureName`.
    #[serde(rename = "infrastructureName")]
    InfrastructureName,
    /// The namespace that is managed.
    #[serde(rename = "namespace")]
    Namespace,
    /// The lowest TLS version to be served, in Kubernetes' spelling (`VersionTLS12`).
    #[serde(rename = "tls.minVersion")]
    TlsMinVersion,
    /// The TLS cipher suites to be served, by IANA's names, comma-separated; without a value for TLS 1.3.
    #[serde(rename = "tls.cipherSuites")]
    TlsCipherSuites,
    /// The feature gates that the cluster enables and a cloud-controller-manager knows, as `Name=true`, comma-separated.
    #[serde(rename = "featureGates")]
    FeatureGates,
}

impl Fact {
    /// Every fact with the name that descriptors use.
    pub const ALL: [(Self, &str); 5] = [
        (Self::InfrastructureName, "infrastructureName"),
        (Self::Namespace, "namespace"),
        (Self::TlsMinVersion, "tls.minVersion"),
        (Self::TlsCipherSuites, "tls.cipherSuites"),
        (Self::FeatureGates, "featureGates"),
    ];

    /// The name that descriptors use.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(fact, _)| *fact == self).map_or("", |(_, name)| name)
    }
}

/// The documents that facts are taken from; a document that the cluster does not have is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sources {
    /// `Infrastructure/cluster`.
    pub infrastructure: Option<Infrastructure>,
    /// `Proxy/cluster`.
    pub proxy: Option<Proxy>,
    /// `Network/cluster`.
    pub network: Option<Network>,
    /// `FeatureGate/cluster`.
    pub feature_gate: Option<FeatureGate>,
    /// `APIServer/cluster`.
    pub api_server: Option<ApiServer>,
    /// `ClusterVersion/version`.
    pub cluster_version: Option<ClusterVersion>,
    /// The images, or why they cannot be known: an error only where a provider needs them.
    pub images: Result<Images, images::Error>,
    /// The namespace to be managed.
    pub namespace: String,
    /// The version of this operator, from the environment.
    pub release_version: Option<String>,
    /// TLS settings given on the command line.
    pub tls_flags: TlsFlags,
    /// What the ConfigMaps and Secrets hold that pods refer to; `None` when there is no cluster to look at.
    pub digests: Option<Digests>,
}

/// Why the facts of a cluster cannot be known.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The installer did not say which platform it is.
    #[error("Infrastructure cluster has no status.platformStatus.type: the platform of this cluster is not known")]
    NoPlatform,
    /// The images are needed and not known.
    #[error(transparent)]
    Images(#[from] images::Error),
    /// The internal URL of the API server is no URL of a host.
    #[error("Infrastructure cluster: status.apiServerInternalURI {0:?} is not a URL with a host")]
    ApiServerUri(String),
    /// The TLS profile is incomplete.
    #[error(transparent)]
    Tls(#[from] tls::Error),
}

/// What the plan knows about a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The cluster's name at the cloud.
    pub infrastructure_name: Option<String>,
    /// The namespace that is managed.
    pub namespace: String,
    /// The control plane is one node.
    pub single_replica: bool,
    /// Host and port at which pods on the host's network reach the API server.
    pub api_server: Option<(String, u16)>,
    /// The proxy's environment variables that are set.
    pub proxy: Vec<(&'static str, String)>,
    /// Image references by key.
    pub images: Images,
    /// Every feature gate that the cluster enables for this version.
    pub feature_gates: Vec<String>,
    /// What the served TLS must be.
    pub tls: TlsSettings,
    /// What the ConfigMaps and Secrets hold that pods refer to; `None` when that is not known.
    pub digests: Option<Digests>,
}

impl Facts {
    /// Finds the facts in what was read.
    pub fn gather(sources: &Sources) -> Result<Self, Error> {
        let status = sources.infrastructure_status();
        let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let proxy = sources.proxy.as_ref().map(|proxy| &proxy.status);
        Ok(Self {
            infrastructure_name: status.and_then(|status| text(&status.infrastructure_name)),
            namespace: sources.namespace.clone(),
            single_replica: sources.is_single_replica(),
            api_server: match status.and_then(|status| text(&status.api_server_internal_uri)) {
                Some(uri) => Some(host_and_port(&uri).ok_or(Error::ApiServerUri(uri))?),
                None => None,
            },
            proxy: proxy.map_or_else(Vec::new, |proxy| {
                [("HTTP_PROXY", &proxy.http_proxy), ("HTTPS_PROXY", &proxy.https_proxy), ("NO_PROXY", &proxy.no_proxy)]
                    .into_iter()
                    .filter_map(|(name, value)| Some((name, text(value)?)))
                    .collect()
            }),
            images: sources.images.clone()?,
            feature_gates: sources.feature_gates(),
            tls: TlsSettings::choose(sources.api_server.as_ref(), &sources.tls_flags)?,
            digests: sources.digests.clone(),
        })
    }

    /// A fact's value, `None` when the cluster has none.
    pub fn value(&self, fact: Fact) -> Option<String> {
        match fact {
            Fact::InfrastructureName => self.infrastructure_name.clone(),
            Fact::Namespace => Some(self.namespace.clone()),
            Fact::TlsMinVersion => Some(self.tls.min_version.clone()),
            Fact::TlsCipherSuites => Some(self.tls.cipher_suites.join(",")).filter(|suites| !suites.is_empty()),
            Fact::FeatureGates => {
                let gates: Vec<_> = CCM_FEATURE_GATES
                    .into_iter()
                    .filter(|gate| self.has_feature_gate(gate))
                    .map(|gate| format!("{gate}=true"))
                    .collect();
                Some(gates.join(",")).filter(|gates| !gates.is_empty())
            }
        }
    }

    /// Whether the cluster enables a feature gate; one that it does not list is off.
    pub fn has_feature_gate(&self, gate: &str) -> bool {
        self.feature_gates.iter().any(|enabled| enabled == gate)
    }
}

impl Sources {
    /// A cluster of which only these two are known.
    pub fn new(namespace: &str, images: Result<Images, images::Error>) -> Self {
        Self {
            infrastructure: None,
            proxy: None,
            network: None,
            feature_gate: None,
            api_server: None,
            cluster_version: None,
            images,
            namespace: namespace.to_owned(),
            release_version: None,
            tls_flags: TlsFlags::default(),
            digests: None,
        }
    }

    /// The platform of the cluster; `None` without an Infrastructure object.
    pub fn platform(&self) -> Result<Option<&PlatformStatus>, Error> {
        if self.infrastructure.is_none() {
            return Ok(None);
        }
        let platform = self.infrastructure_status().and_then(|status| status.platform_status.as_ref());
        platform.filter(|platform| !platform.type_.is_empty()).map(Some).ok_or(Error::NoPlatform)
    }

    /// Whether the control plane is one node.
    pub fn is_single_replica(&self) -> bool {
        self.infrastructure_status().is_some_and(|status| status.control_plane_topology == "SingleReplica")
    }

    fn infrastructure_status(&self) -> Option<&InfrastructureStatus> {
        self.infrastructure.as_ref()?.status.as_ref()
    }

    /// Whether `ClusterVersion` has to be read to know which version this is.
    pub fn needs_cluster_version(release_version: Option<&str>) -> bool {
        release_version.is_none_or(|version| version == VERSION_PLACEHOLDER)
    }

    /// Every feature gate that the cluster enables for this version.
    pub fn feature_gates(&self) -> Vec<String> {
        let version = if Self::needs_cluster_version(self.release_version.as_deref()) {
            self.cluster_version.as_ref().and_then(ClusterVersion::current)
        } else {
            self.release_version.as_deref()
        };
        self.feature_gate
            .iter()
            .flat_map(|gates| &gates.status.feature_gates)
            .filter(|details| Some(details.version.as_str()) == version)
            .flat_map(|details| details.enabled.iter().map(|gate| gate.name.clone()))
            .collect()
    }
}

/// The URL of the API server in a file of `KUBERNETES_SERVICE_HOST='…'` and `KUBERNETES_SERVICE_PORT='…'`, as OpenShift puts
/// it on every node; `None` when it does not say.
pub fn api_server_of_env_file(text: &str) -> Option<String> {
    let value = |name: &str| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim().trim_matches(['\'', '"'])).filter(|value| !value.is_empty())
    };
    let host = value("KUBERNETES_SERVICE_HOST")?;
    let port: u16 = value("KUBERNETES_SERVICE_PORT").map_or(Ok(443), str::parse).ok()?;
    Some(if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") })
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sources(infrastructure: serde_json::Value) -> Sources {
        Sources {
            infrastructure: Some(serde_json::from_value(infrastructure).unwrap()),
            ..Sources::new(DEFAULT_NAMESPACE, Ok(Images::default()))
        }
    }

    #[test]
    fn the_host_is_found_in_every_form_of_url() {
        for (url, expected) in [
            ("https://api-int.example.com:6443", Some(("api-int.example.com", 6443))),
            ("https://api-int.example.com", Some(("api-int.example.com", 443))),
            ("https://[fd00::1]:6443/", Some(("fd00::1", 6443))),
            ("https://[fd00::1]", Some(("fd00::1", 443))),
            ("api-int.example.com:6443", None),
            ("https://", None),
            ("https://host:port", None),
        ] {
            assert_eq!(host_and_port(url), expected.map(|(host, port)| (host.to_owned(), port)), "{url}");
        }
    }

    #[test]
    fn the_file_of_a_node_says_where_the_api_server_is() {
        let file = |host: &str, port: &str| format!("KUBERNETES_SERVICE_HOST={host}\nKUBERNETES_SERVICE_PORT={port}\n");
        for (text, expected) in [
            (file("'api-int.example.com'", "'6443'"), Some("https://api-int.example.com:6443")),
            (file("api-int.example.com", ""), Some("https://api-int.example.com:443")),
            (file("\"fd00::1\"", "6443"), Some("https://[fd00::1]:6443")),
            (file("'api-int.example.com'", "'port'"), None),
            (file("''", "'6443'"), None),
            (String::new(), None),
        ] {
            assert_eq!(api_server_of_env_file(&text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_platform_must_have_a_type() {
        for infrastructure in [
            json!({}),
            json!({"status": {}}),
            json!({"status": {"platformStatus": {}}}),
            json!({"status": {"platformStatus": {"type": ""}}}),
        ] {
            assert_eq!(sources(infrastructure).platform(), Err(Error::NoPlatform));
        }
        assert_eq!(Sources::new(DEFAULT_NAMESPACE, Ok(Images::default())).platform(), Ok(None));
    }

    #[test]
    fn gates_are_those_of_the_running_version() {
        let gates = json!({"status": {"featureGates": [
            {"version": "1", "enabled": [{"name": "Old"}]},
            {"version": "2", "enabled": [{"name": "CloudControllerManagerWebhook"}, {"name": "Other"}]},
        ]}});
        let version = json!({"status": {"desired": {"version": ""}, "history": [{"version": "2"}, {"version": "1"}]}});
        let mut sources = sources(json!({"status": {"platformStatus": {"type": "AWS"}}}));
        sources.feature_gate = Some(serde_json::from_value(gates).unwrap());
        sources.cluster_version = Some(serde_json::from_value(version).unwrap());
        for (release, expected) in [
            (None, &["CloudControllerManagerWebhook", "Other"][..]),
            (Some("0.0.1-snapshot"), &["CloudControllerManagerWebhook", "Other"]),
            (Some("1"), &["Old"]),
            (Some("3"), &[]),
        ] {
            sources.release_version = release.map(Into::into);
            assert_eq!(sources.feature_gates(), expected);
        }
        sources.release_version = None;
        let facts = Facts::gather(&sources).unwrap();
        assert_eq!(facts.value(Fact::FeatureGates).as_deref(), Some("CloudControllerManagerWebhook=true"));
    }

    #[test]
    fn every_fact_is_read_by_its_name() {
        for (fact, name) in Fact::ALL {
            assert_eq!(serde_json::from_value::<Fact>(name.into()).unwrap(), fact);
            assert_eq!(fact.name(), name);
        }
    }
}
