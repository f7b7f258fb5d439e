//! What becomes of a cloud's configuration on its way to the cloud-controller-manager (pure).
//!
//! One function a cloud, `(source, context) → text or error`. What a function does not own stays as it is, byte for byte:
//! order, comments, blank lines, repeated and unknown keys. An error is given for what the cloud-controller-manager would
//! refuse or the contract forbids; what it would silently ignore is a warning. It reads no cluster and no file.

use serde::Deserialize;

use crate::{
    facts::{Sources, openshift::VSpherePlatformSpec},
    text::suggest::did_you_mean,
};

mod aws;
pub mod azure;
pub mod certificates;
pub mod cloud_conf;
mod ini_keys;
mod openstack;
pub mod preview;
mod vsphere;

#[cfg(test)]
mod laws;
#[cfg(test)]
mod samples;

pub use crate::text::{Change, Error, Warning};
pub use vsphere::MINIMAL as MINIMAL_VSPHERE;

/// How the configuration reaches a cloud's cloud-controller-manager, as key `cloud.conf` of ConfigMap `cloud-conf`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CloudConfig {
    /// Where it is looked for, in this order.
    pub sources: Vec<ConfigSource>,
    /// Whether a cluster may do without: then the cloud-controller-manager gets an empty one.
    pub allow_empty: bool,
    /// How it is completed and checked; absent means that it is copied.
    pub transform: Option<Transform>,
    /// With this feature gate the result is written to `openshift-config-managed/kube-cloud-config` as well, and a cluster
    /// without a configuration starts from the smallest one.
    pub publish_with_feature_gate: Option<String>,
}

/// A place where a cloud's configuration may be.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum ConfigSource {
    /// ConfigMap `openshift-config-managed/kube-cloud-config`.
    Managed,
    /// The ConfigMap of namespace `openshift-config` that `Infrastructure.spec.cloudConfig` names.
    User,
}

/// Which function completes a cloud's configuration.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Transform {
    /// INI of the AWS cloud-controller-manager.
    Aws,
    /// JSON of the Azure cloud-controller-manager.
    Azure,
    /// The same on Azure Stack Hub.
    AzureStack,
    /// INI of the OpenStack cloud-controller-manager.
    OpenStack,
    /// YAML of the vSphere cloud-controller-manager, or its legacy INI.
    VSphere,
}

/// What a function may know of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// `Infrastructure.status.platformStatus.azure.cloudName`; empty means the public cloud.
    pub azure_cloud_name: String,
    /// Every feature gate that the cluster enables.
    pub feature_gates: Vec<String>,
    /// `Network.spec.serviceNetwork`.
    pub service_networks: Vec<String>,
    /// `Infrastructure.spec.platformSpec.vsphere`.
    pub vsphere: Option<VSpherePlatformSpec>,
    /// The addresses of the API server and then of the ingress, of `Infrastructure.status.platformStatus.vsphere`.
    pub vips: Vec<String>,
}

/// What became of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The configuration as the cloud-controller-manager is to read it.
    pub text: String,
    /// What is different from the source, in the order of the rules. Empty when the text is the source's.
    pub changes: Vec<Change>,
    /// What the cloud-controller-manager would silently ignore, in the order of the source.
    pub warnings: Vec<Warning>,
}

/// How many warnings of a configuration name the nearest known key. Nobody reads more of them, and to look for it is what
/// costs.
const HINTED: usize = 100;

/// The nearest of the known words, if there were not too many warnings already.
fn hint<'a>(warnings: &[Warning], word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    if warnings.len() < HINTED { did_you_mean(word, known) } else { String::new() }
}

impl Transform {
    /// Completes and checks a configuration.
    pub fn apply(self, source: &str, context: &Context) -> Result<Output, Error> {
        match self {
            Self::Aws => aws::transform(source, context),
            Self::Azure => azure::transform(source, context),
            Self::AzureStack => azure::transform_stack(source),
            Self::OpenStack => openstack::transform(source),
            Self::VSphere => vsphere::transform(source, context),
        }
    }
}

impl Context {
    /// What was read of the cluster.
    pub fn gather(sources: &Sources) -> Self {
        let platform = sources.platform().ok().flatten();
        let vsphere = platform.and_then(|platform| platform.vsphere.as_ref());
        Self {
            azure_cloud_name: platform
                .and_then(|platform| platform.azure.as_ref())
                .map_or_else(String::new, |azure| azure.cloud_name.clone()),
            feature_gates: sources.feature_gates(),
            service_networks: sources.network.iter().flat_map(|network| network.spec.service_network.clone()).collect(),
            vsphere: sources.infrastructure.as_ref().and_then(|found| found.spec.platform_spec.vsphere.clone()),
            vips: vsphere.map_or_else(Vec::new, |vsphere| {
                vsphere.api_server_internal_ips.iter().chain(&vsphere.ingress_ips).cloned().collect()
            }),
        }
    }

    /// Whether the cluster enables a feature gate; one that it does not list is off.
    pub fn has_feature_gate(&self, gate: &str) -> bool {
        self.feature_gates.iter().any(|enabled| enabled == gate)
    }
}
