//! The project's own API: the kind `CloudControllerManager`, by which clusters other than OpenShift say what they want (pure).
//!
//! The Rust types are the source. The CustomResourceDefinition with its descriptions, defaults and rules is generated from
//! them (`make generate`). What an object says is strict: an unknown field is an error, because what it asks for would not
//! be done.

pub mod check;
#[cfg(test)]
mod crd;
pub mod placement;
pub mod spec;
pub mod status;

use crate::object::{self, Kind};

/// Declares types of the API: fields in camel case, unknown fields refused, schema and serialization for tests.
macro_rules! api_types {
    ($($(#[$attribute:meta])* pub $what:ident $name:ident { $($body:tt)* })+) => {$(
        #[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
        #[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema))]
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
