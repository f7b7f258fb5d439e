//! Providers: reads, selects and verifies the manifests and descriptor of each cloud; and the install payload (pure).

mod built_in;
pub mod catalog;
mod descriptor;
pub mod embedded;
pub mod external;
pub mod folder;
pub mod kubernetes;
pub mod package;
mod patterns;
pub mod payload;
pub mod read;
mod renamed;
pub mod restriction;
pub mod scaffold;
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

pub use descriptor::{
    Common, Descriptor, DescriptorFields, FactOrText, ImageSource, Platform, Services, Sources, ValueSource,
};
pub use external::Origin;
use folder::ParsedProvider;
pub use kubernetes::KubernetesProvider;
pub use patterns::{is_file, is_variable, repository_and_tag};

/// The name of the CCM's container.
pub const CCM: &str = "cloud-controller-manager";

/// The Role in kube-system that lets a cloud-controller-manager read which client certificates its port must accept. It is the only
/// one of the cluster's own roles that providers bind. Most providers do not start without it.
pub const AUTHENTICATION_READER: &str = "extension-apiserver-authentication-reader";

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
pub enum Flavor {
    /// For OpenShift: `assets/<cloud>/*.yaml` and `bootstrap/<cloud>/*.yaml`.
    #[default]
    OpenShift,
    /// For any Kubernetes: `assets/<cloud>/kubernetes/*.yaml`.
    Kubernetes,
}

impl Flavor {
    /// Returns the namespaces of a provider's own objects. On any Kubernetes, kube-system also represents the managed namespace.
    fn namespaces(self) -> &'static [&'static str] {
        match self {
            Self::OpenShift => &[DEFAULT_NAMESPACE, kubernetes::NAMESPACE],
            Self::Kubernetes => &[kubernetes::NAMESPACE],
        }
    }
}

/// Whether a providerID begins with one of the prefixes of a cloud.
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
    /// The problem and its fix, with little untrusted text.
    pub problem: String,
}

impl Error {
    /// Returns a defect of a file, or of a place in it.
    pub fn new(file: &str, place: Option<Place>, problem: impl Into<String>) -> Self {
        Self { file: error::brief(file).into_owned(), place, problem: error::problem(problem.into()) }
    }

    /// Returns the same defect with another description.
    #[must_use]
    fn described(self, problem: impl Into<String>) -> Self {
        Self { problem: error::problem(problem.into()), ..self }
    }
}

/// A provider from a folder without defects. It has at least one flavor.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its name.
    pub name: String,
    /// Its flavor for OpenShift.
    pub openshift: Option<OpenShiftProvider>,
    /// Its flavor kubernetes.
    pub kubernetes: Option<KubernetesProvider>,
}

/// One flavor of a provider.
#[derive(Clone, Debug)]
pub struct ProviderFlavor<D> {
    /// Its descriptor.
    pub descriptor: D,
    /// The manifests of the running cluster, in the order of applying.
    pub manifests: Vec<Object>,
    /// The manifests of the bootstrap VM, unchanged. Only the flavor for OpenShift has some.
    pub bootstrap_manifests: Vec<Object>,
    /// The origin of the provider, if it is not built in.
    pub origin: Option<Origin>,
}

/// The flavor openshift of a provider.
pub type OpenShiftProvider = ProviderFlavor<Descriptor>;

/// The descriptor of either flavor.
#[derive(Clone, Debug)]
pub enum AnyDescriptor {
    /// The flavor openshift.
    OpenShift(Box<Descriptor>),
    /// The flavor kubernetes.
    Kubernetes(Box<kubernetes::Descriptor>),
}

impl DescriptorFields for AnyDescriptor {
    fn common(&self) -> Common<'_> {
        match self {
            Self::OpenShift(descriptor) => descriptor.common(),
            Self::Kubernetes(descriptor) => descriptor.common(),
        }
    }
}

impl Provider {
    /// Combines parsed providers of different flavors into one provider, or returns their first defect.
    pub fn of(name: &str, parsed_providers: &[ParsedProvider]) -> Result<Self, Error> {
        let mut provider = Self { name: name.to_owned(), openshift: None, kubernetes: None };
        for parsed in parsed_providers {
            match parsed.flavor {
                Flavor::OpenShift => provider.openshift = Some(parsed.openshift()?),
                Flavor::Kubernetes => provider.kubernetes = Some(parsed.kubernetes()?),
            }
        }
        Ok(provider)
    }

    /// Returns the platform that its flavor for OpenShift serves, if it has that flavor.
    fn platform(&self) -> Option<&Platform> {
        self.openshift.as_ref().map(|one| &one.descriptor.platform)
    }

    /// Returns the origin of an external provider, or `None` for a built-in one.
    pub fn origin(&self) -> Option<&Origin> {
        let of_openshift = self.openshift.as_ref().and_then(|one| one.origin.as_ref());
        of_openshift.or_else(|| self.kubernetes.as_ref()?.origin.as_ref())
    }
}

impl<D: DescriptorFields> ProviderFlavor<D> {
    /// The provider's name.
    pub fn name(&self) -> &str {
        self.descriptor.common().name
    }
}

impl<D> ProviderFlavor<D> {
    /// Returns the ConfigMaps and Secrets that its pods refer to when they run in this namespace.
    pub fn references(&self, namespace: &str) -> BTreeSet<Reference> {
        let workloads = self.manifests.iter().filter_map(|object| Some((object.namespace(), object.pod_spec()?)));
        let in_namespace = |own: &'_ str| if own == DEFAULT_NAMESPACE { namespace.to_owned() } else { own.to_owned() };
        workloads.flat_map(|(own, pod)| reference::references(pod, &in_namespace(own))).collect()
    }
}
