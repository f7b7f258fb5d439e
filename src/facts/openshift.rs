//! The few fields of config.openshift.io/v1 that are read (pure).
//!
//! Partial on purpose: an object of a newer API is read as well as one of an older, unknown fields and values are
//! no error, and nothing here is ever written back whole.

use serde::Deserialize;

/// `Infrastructure/cluster`: which cloud, and what the cluster is called.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct Infrastructure {
    /// What the administrator wants.
    pub spec: InfrastructureSpec,
    /// What the installer found; absent in a manifest that was not completed.
    pub status: Option<InfrastructureStatus>,
}

/// The specification of [`Infrastructure`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct InfrastructureSpec {
    /// The ConfigMap of namespace openshift-config that holds the cloud's configuration.
    pub cloud_config: ConfigMapFileReference,
    /// What the administrator wants of the platform.
    pub platform_spec: PlatformSpec,
}

/// `spec.platformSpec` of [`Infrastructure`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct PlatformSpec {
    /// vSphere's own block.
    pub vsphere: Option<VSpherePlatformSpec>,
}

/// `spec.platformSpec.vsphere` of [`Infrastructure`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct VSpherePlatformSpec {
    /// The vCenters that the cluster uses.
    #[serde(rename = "vcenters")]
    pub vcenters: Vec<VSphereVCenter>,
    /// Where machines may be.
    pub failure_domains: Vec<VSphereFailureDomain>,
    /// Which networks nodes have their addresses in.
    pub node_networking: VSphereNodeNetworking,
}

/// A vCenter of [`VSpherePlatformSpec`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct VSphereVCenter {
    /// Its host name or address.
    pub server: String,
    /// Its TCP port; 0 means that none is given.
    pub port: u16,
    /// The datacenters in use.
    pub datacenters: Vec<String>,
}

/// A failure domain of [`VSpherePlatformSpec`], as far as it is read.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct VSphereFailureDomain {
    /// The vCenter, by the same name as in the list of vCenters.
    pub server: String,
    /// Where in that vCenter.
    pub topology: VSphereTopology,
}

/// The place of a [`VSphereFailureDomain`], as far as it is read.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct VSphereTopology {
    /// The datacenter.
    pub datacenter: String,
}

/// `nodeNetworking` of [`VSpherePlatformSpec`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct VSphereNodeNetworking {
    /// Of a node's external addresses.
    pub external: VSphereNodeNetwork,
    /// Of a node's internal addresses.
    pub internal: VSphereNodeNetwork,
}

/// One side of [`VSphereNodeNetworking`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct VSphereNodeNetwork {
    /// The name of the network.
    pub network: String,
    /// Subnets that addresses are taken from.
    pub network_subnet_cidr: Vec<String>,
    /// Subnets that addresses are never taken from.
    pub exclude_network_subnet_cidr: Vec<String>,
}

/// A key of a ConfigMap; an empty name means none.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ConfigMapFileReference {
    /// The ConfigMap's name.
    pub name: String,
    /// The key.
    pub key: String,
}

/// The status of [`Infrastructure`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct InfrastructureStatus {
    /// The platform and its own block.
    pub platform_status: Option<PlatformStatus>,
    /// The cluster's name at the cloud.
    pub infrastructure_name: String,
    /// `HighlyAvailable`, `SingleReplica` or what a newer API adds.
    pub control_plane_topology: String,
    /// The URL at which nodes reach the API server, such as `https://api-int.example.com:6443`.
    #[serde(rename = "apiServerInternalURI")]
    pub api_server_internal_uri: String,
}

/// `status.platformStatus` of [`Infrastructure`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct PlatformStatus {
    /// The platform type, such as `AWS`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Azure's own block.
    pub azure: Option<AzurePlatformStatus>,
    /// vSphere's own block.
    pub vsphere: Option<VSpherePlatformStatus>,
}

/// `status.platformStatus.vsphere` of [`Infrastructure`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct VSpherePlatformStatus {
    /// Addresses of the API server inside the cluster's network.
    #[serde(rename = "apiServerInternalIPs")]
    pub api_server_internal_ips: Vec<String>,
    /// Addresses of the default ingress.
    #[serde(rename = "ingressIPs")]
    pub ingress_ips: Vec<String>,
}

/// `status.platformStatus.azure` of [`Infrastructure`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct AzurePlatformStatus {
    /// Which of Azure's clouds, such as `AzureStackCloud`; empty means the public one.
    pub cloud_name: String,
}

/// `Network/cluster`, as far as it is read.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Network {
    /// What the administrator wants.
    pub spec: NetworkSpec,
}

/// The specification of [`Network`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct NetworkSpec {
    /// The subnets of Services: one, or two in a dual-stack cluster, the preferred first.
    pub service_network: Vec<String>,
}

/// `Proxy/cluster`: the proxy that the cluster really uses.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Proxy {
    /// What the administrator wants.
    pub spec: ProxySpec,
    /// What is in force.
    pub status: ProxyStatus,
}

/// The specification of [`Proxy`], as far as it is read.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ProxySpec {
    /// The ConfigMap of namespace openshift-config with certificates to be trusted.
    #[serde(rename = "trustedCA")]
    pub trusted_ca: ConfigMapNameReference,
}

/// A ConfigMap; an empty name means none.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ConfigMapNameReference {
    /// Its name.
    pub name: String,
}

/// The status of [`Proxy`]; an empty field is not set.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct ProxyStatus {
    /// URL for HTTP requests.
    pub http_proxy: String,
    /// URL for HTTPS requests.
    pub https_proxy: String,
    /// Comma-separated hosts that are reached without a proxy.
    pub no_proxy: String,
}

/// `FeatureGate/cluster`: which gates are on, by version.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct FeatureGate {
    /// What is in force.
    pub status: FeatureGateStatus,
}

/// The status of [`FeatureGate`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct FeatureGateStatus {
    /// One entry for each version that runs in the cluster.
    pub feature_gates: Vec<FeatureGateDetails>,
}

/// The gates of one version.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct FeatureGateDetails {
    /// The version.
    pub version: String,
    /// The gates that are on.
    pub enabled: Vec<FeatureGateName>,
}

/// One gate.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct FeatureGateName {
    /// Its name.
    pub name: String,
}

/// `APIServer/cluster`: the TLS profile and who has to keep to it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ApiServer {
    /// What the administrator wants.
    pub spec: ApiServerSpec,
}

/// The specification of [`ApiServer`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct ApiServerSpec {
    /// The profile; absent means the default one.
    pub tls_security_profile: Option<TlsSecurityProfile>,
    /// `LegacyAdheringComponentsOnly`, `StrictAllComponents`, or empty for the first.
    pub tls_adherence: String,
}

/// A TLS security profile.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct TlsSecurityProfile {
    /// `Old`, `Intermediate`, `Modern` or `Custom`; empty means the default one.
    #[serde(rename = "type")]
    pub type_: String,
    /// The settings of a `Custom` profile.
    pub custom: Option<CustomTlsProfile>,
}

/// The settings of a `Custom` [`TlsSecurityProfile`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct CustomTlsProfile {
    /// Cipher suites by `OpenSSL`'s names, TLS 1.3 suites by their own.
    pub ciphers: Vec<String>,
    /// The lowest version, such as `VersionTLS12`.
    #[serde(rename = "minTLSVersion")]
    pub min_tls_version: String,
}

/// `ClusterVersion/version`: which version the cluster is at or moves to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ClusterVersion {
    /// What is in force.
    pub status: ClusterVersionStatus,
}

/// The status of [`ClusterVersion`].
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ClusterVersionStatus {
    /// The version that is to be reached.
    pub desired: Release,
    /// Versions that were installed or begun, the newest first.
    pub history: Vec<Release>,
}

/// A release of the cluster.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Release {
    /// Its version.
    pub version: String,
}

impl ClusterVersion {
    /// The version that the cluster is at or moves to; `None` when it does not say yet.
    pub fn current(&self) -> Option<&str> {
        std::iter::once(&self.status.desired)
            .chain(self.status.history.first())
            .map(|release| release.version.as_str())
            .find(|version| !version.is_empty())
    }
}
