//! The settings of a cloud's own charts and manifests that a `CloudControllerManager` does not have (pure).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::facts::ccm::Controller;

/// The settings, each by its name: a flag, a flag with its value, an environment variable, a folder of the machine, a volume or a
/// container.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Migration {
    /// Those on which neither nodes nor load balancers depend, each with the reason.
    pub harmless: BTreeMap<String, String>,
    /// Those on which nodes or load balancers depend, each with the effect of losing it.
    pub lost: BTreeMap<String, String>,
    /// The environment variables that turn controllers off: the controllers by the value, or by an entry of a list of values.
    pub switches: BTreeMap<String, BTreeMap<String, Vec<Controller>>>,
}
