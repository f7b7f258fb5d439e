//! The input of a cloud-controller-manager besides its manifests: configuration, credentials, trusted certificates
//! (pure).
//!
//! Each cloud has one function, `(source, facts) → text or error`. It keeps all text that it does not own byte for
//! byte: order, comments, blank lines, repeated and unknown keys. It is an error if the cloud-controller-manager would
//! refuse a value, or if the contract forbids it. It is a warning if the cloud-controller-manager would silently ignore
//! a key.

use serde::Deserialize;

use crate::facts::Facts;

mod aws;
pub mod azure;
pub mod certificates;
pub mod cloud_conf;
pub mod fields;
mod ini_keys;
mod keys;
mod openstack;
pub mod preview;
mod vsphere;

pub use crate::text::{Change, Problem};

/// The source and processing of key `cloud.conf` in ConfigMap `cloud-conf`, from which the cloud-controller-manager reads it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CloudConfigSettings {
    /// The possible sources, in this order.
    pub sources: Vec<ConfigSource>,
    /// Whether the configuration is optional: without a source the cloud-controller-manager gets an empty one.
    pub allow_empty: bool,
    /// The text of an empty configuration, for a cloud-controller-manager that refuses an empty file.
    #[serde(default)]
    pub empty: String,
    /// The function that completes and checks it; without a function it is copied.
    pub transform: Option<Transform>,
    /// With this feature gate the result is written to `openshift-config-managed/kube-cloud-config` as well, and a cluster
    /// without a configuration starts from the smallest one.
    pub publish_with_feature_gate: Option<String>,
}

/// A possible source of a cloud's configuration.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum ConfigSource {
    /// ConfigMap `openshift-config-managed/kube-cloud-config`.
    Managed,
    /// The ConfigMap of namespace `openshift-config` that `Infrastructure.spec.cloudConfig` names.
    User,
}

/// The function that completes a cloud's configuration.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Transform {
    /// INI of the AWS cloud-controller-manager.
    Aws,
    /// JSON of the Azure cloud-controller-manager.
    Azure,
    /// The same JSON on Azure Stack Hub.
    AzureStack,
    /// INI of the OpenStack cloud-controller-manager.
    OpenStack,
    /// YAML of the vSphere cloud-controller-manager, or its legacy INI.
    VSphere,
}

/// The result of a transform.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The configuration for the cloud-controller-manager.
    pub text: String,
    /// The changes to the source, in the order of the rules. Empty if the text is unchanged.
    pub changes: Vec<Change>,
    /// The settings that the cloud-controller-manager ignores silently, in the order of the source.
    pub warnings: Vec<Problem>,
}

impl Transform {
    /// Completes and checks a configuration.
    pub fn apply(self, source: &str, facts: &Facts) -> Result<Output, Problem> {
        match self {
            Self::Aws => aws::transform(source, facts),
            Self::Azure => azure::transform(source, facts),
            Self::AzureStack => azure::transform_stack(source),
            Self::OpenStack => openstack::transform(source),
            Self::VSphere => vsphere::transform(source, facts),
        }
    }

    /// Checks a configuration that is used unchanged. Warns about settings that the cloud-controller-manager would ignore.
    pub fn check(self, source: &str) -> Result<Vec<Problem>, Problem> {
        match self {
            // OpenShift's own values and refusals do not apply.
            Self::Azure | Self::AzureStack => azure::check(source),
            Self::OpenStack => openstack::check(source),
            Self::Aws | Self::VSphere => Ok(self.apply(source, &Facts::default())?.warnings),
        }
    }
}

#[cfg(test)]
mod tests;
