//! Providers, each one cloud's manifests and descriptor: read, selected, verified; and the install payload (pure).

pub mod catalog;
mod descriptor;
pub mod embedded;
pub mod external;
pub mod folder;
pub mod foreign;
pub mod package;
mod patterns;
pub mod payload;
pub mod read;
pub mod restriction;
pub mod scaffold;
pub mod upstream;
pub mod verify;
pub mod versions;

use std::collections::BTreeSet;

use crate::{
    error,
    facts::DEFAULT_NAMESPACE,
    object::{
        Object,
        reference::{self, Reference},
    },
    text::{Place, located},
};

pub use external::Origin;

pub use descriptor::{Descriptor, FactOrText, ImageSource, Platform, Services, ValueSource};

/// The name of the CCM's container.
pub(crate) const CCM: &str = "cloud-controller-manager";

/// The Role of kube-system with which a cloud-controller-manager reads whose client certificates its port accepts. Of the cluster's
/// own roles it is the only one that providers bind; without it most do not start.
pub(crate) const AUTHENTICATION_READER: &str = "extension-apiserver-authentication-reader";

/// The place that a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The bootstrap VM: static pods.
    Bootstrap,
    /// The running cluster.
    Cluster,
}

/// A whole set of manifests of a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavour {
    /// For OpenShift: `assets/<cloud>/*.yaml` and `bootstrap/<cloud>/*.yaml`.
    #[default]
    OpenShift,
    /// For any Kubernetes: `assets/<cloud>/upstream/*.yaml`.
    Upstream,
}

/// Whether a providerID is of the cloud whose providerIDs begin like this.
pub fn owns(provider_ids: &[String], provider_id: &str) -> bool {
    provider_ids.iter().any(|prefix| provider_id.starts_with(prefix.as_str()))
}

/// A defect of a provider's folder.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}", located(file, *place, problem))]
pub struct Error {
    /// The file, relative to the catalog's root.
    pub file: String,
    /// The place in the file, where it is known.
    pub place: Option<Place>,
    /// The problem and its fix, with little of what others have written.
    pub problem: String,
}

impl Error {
    /// A defect of a file, or of a place in it.
    pub fn new(file: &str, place: Option<Place>, problem: impl Into<String>) -> Self {
        Self { file: error::brief(file).into_owned(), place, problem: error::problem(problem.into()) }
    }

    /// The same defect, described in other words.
    #[must_use]
    fn described(self, problem: impl Into<String>) -> Self {
        Self { problem: error::problem(problem.into()), ..self }
    }
}

/// A provider from a folder without defects.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// The manifests of `assets/<name>/`, in the order of applying.
    pub manifests: Vec<Object>,
    /// The manifests of `bootstrap/<name>/`, unchanged.
    pub bootstrap_manifests: Vec<Object>,
    /// Where it comes from, if not with this program.
    pub origin: Option<Origin>,
}

impl Provider {
    /// The ConfigMaps and Secrets that its pods refer to when they run in this namespace.
    pub fn references(&self, namespace: &str) -> BTreeSet<Reference> {
        let workloads = self.manifests.iter().filter_map(|object| Some((object.namespace(), object.pod_spec()?)));
        let in_namespace = |own: &'_ str| if own == DEFAULT_NAMESPACE { namespace.to_owned() } else { own.to_owned() };
        workloads.flat_map(|(own, pod)| reference::references(pod, &in_namespace(own))).collect()
    }

    /// The provider's name.
    pub fn name(&self) -> &str {
        &self.descriptor.name
    }
}
