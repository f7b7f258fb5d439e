//! The namespaces that a cloud-controller-manager may run in (pure).

use serde::Deserialize;

use super::NAMESPACE;

/// The namespaces that a cloud-controller-manager may run in.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Namespaces {
    /// Any.
    #[default]
    Any,
    /// Only `kube-system`, because its code has an object there.
    KubeSystem,
    /// Any except `kube-system`, because it reads every Secret of its namespace.
    NotKubeSystem,
}

impl Namespaces {
    /// Whether a namespace is allowed.
    pub fn include(self, namespace: &str) -> bool {
        match self {
            Self::Any => true,
            Self::KubeSystem => namespace == NAMESPACE,
            Self::NotKubeSystem => namespace != NAMESPACE,
        }
    }

    /// Returns the human-readable restriction, if any.
    pub fn words(self) -> Option<&'static str> {
        match self {
            Self::Any => None,
            Self::KubeSystem => Some("it can only be in kube-system, because its code has an object there"),
            Self::NotKubeSystem => {
                Some("it reads every Secret of its namespace: give it one of its own, which is not kube-system")
            }
        }
    }
}
