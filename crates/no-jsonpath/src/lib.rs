//! Stands in for the `JSONPath` library of kube, which the program never reaches (pure): `ccm_kit::cluster::kubeconfig` refuses the
//! only users that need it, those with an `auth-provider`.

use serde_json::Value;

/// Why a query has no answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("JSONPath is not supported")]
pub struct Unsupported;

/// The part of the library that kube calls.
pub trait JsonPath {
    /// Refuses each query.
    fn query(&self, _: &str) -> Result<Vec<&Self>, Unsupported> {
        Err(Unsupported)
    }
}

impl JsonPath for Value {}
