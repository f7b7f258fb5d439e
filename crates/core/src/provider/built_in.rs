//! A built-in provider, whose flavors are parsed when they are first used (pure).

use std::sync::OnceLock;

use serde::de::DeserializeOwned;

use crate::provider::{Descriptor, Error, Flavor, KubernetesProvider, OpenShiftProvider, Platform, folder, kubernetes};

/// Returns the files of the built-in provider with a name as (path from the repository's root, bytes).
pub(super) type Files = fn(&str) -> Vec<(String, &'static [u8])>;

type Parsed<T> = OnceLock<Option<Result<T, Error>>>;

/// A provider of which only the name, the platform and the flavors are known until it is used. Each error is a defect of this build,
/// which the tests exclude.
#[derive(Debug)]
pub(super) struct BuiltIn {
    /// Its name.
    pub(super) name: &'static str,
    /// The platform that its flavor for OpenShift serves, if it has that flavor.
    pub(super) platform: Option<Platform>,
    /// Whether it has the flavor kubernetes.
    pub(super) has_kubernetes: bool,
    files: Files,
    openshift: Parsed<OpenShiftProvider>,
    kubernetes: Parsed<KubernetesProvider>,
    kubernetes_descriptor: Parsed<kubernetes::Descriptor>,
}

impl BuiltIn {
    /// Creates a provider with these files. Parses only the descriptor for OpenShift, because the platform selects among providers.
    pub(super) fn new(name: &'static str, files: Files) -> Result<Self, Error> {
        let descriptor = descriptor::<Descriptor>(name, files, Flavor::OpenShift).transpose()?;
        let kubernetes = folder::descriptor_path(Flavor::Kubernetes, &format!("{name}/"));
        Ok(Self {
            name,
            platform: descriptor.map(|one| one.platform),
            has_kubernetes: files(name).iter().any(|(path, _)| *path == kubernetes),
            files,
            openshift: OnceLock::new(),
            kubernetes: OnceLock::new(),
            kubernetes_descriptor: OnceLock::new(),
        })
    }

    /// Returns its flavor for OpenShift, if it has one.
    pub(super) fn openshift(&self) -> Option<Result<&OpenShiftProvider, &Error>> {
        let parse =
            || Some(folder::parsed_provider(self.name, Flavor::OpenShift, (self.files)(self.name))?.openshift());
        self.openshift.get_or_init(parse).as_ref().map(Result::as_ref)
    }

    /// Returns its flavor kubernetes, if it has one.
    pub(super) fn kubernetes(&self) -> Option<Result<&KubernetesProvider, &Error>> {
        let parse =
            || Some(folder::parsed_provider(self.name, Flavor::Kubernetes, (self.files)(self.name))?.kubernetes());
        self.kubernetes.get_or_init(parse).as_ref().map(Result::as_ref)
    }

    /// Returns the descriptor of its flavor kubernetes, if it has one. Does not parse the manifests.
    pub(super) fn kubernetes_descriptor(&self) -> Option<Result<&kubernetes::Descriptor, &Error>> {
        let parse = || descriptor(self.name, self.files, Flavor::Kubernetes);
        self.kubernetes_descriptor.get_or_init(parse).as_ref().map(Result::as_ref)
    }
}

fn descriptor<D: DeserializeOwned>(name: &str, files: Files, flavor: Flavor) -> Option<Result<D, Error>> {
    let own = folder::descriptor_path(flavor, &format!("{name}/"));
    let (path, bytes) = files(name).into_iter().find(|(path, _)| *path == own)?;
    Some(folder::descriptor(&path, bytes))
}
