//! The project's own API (pure): the kind `CloudControllerManager`, with which users configure clusters other than
//! OpenShift.
//!
//! The Rust types are the source. `make generate` generates the CustomResourceDefinition from them, with its
//! descriptions, defaults and rules. Reading is strict: an unknown field is an error, because the operator would ignore
//! it.

pub mod check;
pub mod deletion;
mod pattern;
pub mod placement;
pub mod spec;
pub mod status;

use crate::object::{self, Kind};

/// Declares types of the API: fields in camel case, unknown fields refused, schema and serialization for tests.
macro_rules! api_types {
    ($($(#[$attribute:meta])* pub $what:ident $name:ident { $($body:tt)* })+) => {$(
        #[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(deny_unknown_fields)]
        $(#[$attribute])*
        pub $what $name { $($body)* }
    )+};
}
use api_types;

/// The API group.
pub const GROUP: &str = "ccm-operator.dev";

/// The kind `CloudControllerManager`: cluster-scoped, one object for each cloud-controller-manager.
pub static CLOUD_CONTROLLER_MANAGER: Kind =
    object::kind(GROUP, "v1alpha1", "CloudControllerManager", "cloudcontrollermanagers", false, 0);

#[cfg(test)]
mod tests;
