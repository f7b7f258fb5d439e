//! What becomes of a cloud's configuration on its way to the cloud-controller-manager (pure).
//!
//! One function a cloud, `(source, facts) → text or error`. What a function does not own stays as it is, byte for byte:
//! order, comments, blank lines, repeated and unknown keys. An error is given for what the cloud-controller-manager would
//! refuse or the contract forbids; what it would silently ignore is a warning. It reads no cluster and no file.

use serde::Deserialize;

use crate::{facts::Facts, text::suggest::did_you_mean};

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
    pub fn apply(self, source: &str, facts: &Facts) -> Result<Output, Error> {
        match self {
            Self::Aws => aws::transform(source, facts),
            Self::Azure => azure::transform(source, facts),
            Self::AzureStack => azure::transform_stack(source),
            Self::OpenStack => openstack::transform(source),
            Self::VSphere => vsphere::transform(source, facts),
        }
    }
}
