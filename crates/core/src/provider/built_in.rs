//! A built-in provider, whose flavors are parsed when they are first used (pure).

use std::sync::OnceLock;

use serde::Deserialize;

use crate::provider::{
    Error, Flavor, KubernetesProvider, OpenShiftProvider, ParsedProvider, Platform, folder, kubernetes,
};

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
    /// Creates a provider with these files. Parses only its platform, which selects among providers.
    pub(super) fn new(name: &'static str, files: Files) -> Result<Self, Error> {
        let own = files(name);
        let descriptor = |flavor| {
            let path = folder::descriptor_path(flavor, &format!("{name}/"));
            own.iter().find(|(file, _)| *file == path)
        };
        Ok(Self {
            name,
            platform: descriptor(Flavor::OpenShift).map(|(path, bytes)| platform(path, bytes)).transpose()?,
            has_kubernetes: descriptor(Flavor::Kubernetes).is_some(),
            files,
            openshift: OnceLock::new(),
            kubernetes: OnceLock::new(),
            kubernetes_descriptor: OnceLock::new(),
        })
    }

    /// Returns its flavor for OpenShift, if it has one.
    pub(super) fn openshift(&self) -> Option<Result<&OpenShiftProvider, &Error>> {
        let parse = || Some(self.parsed(Flavor::OpenShift)?.openshift());
        self.openshift.get_or_init(parse).as_ref().map(Result::as_ref)
    }

    /// Returns its flavor kubernetes, if it has one.
    pub(super) fn kubernetes(&self) -> Option<Result<&KubernetesProvider, &Error>> {
        let parse = || Some(self.parsed(Flavor::Kubernetes)?.kubernetes());
        self.kubernetes.get_or_init(parse).as_ref().map(Result::as_ref)
    }

    /// Returns the descriptor of its flavor kubernetes, if it has one. Does not parse the manifests.
    pub(super) fn kubernetes_descriptor(&self) -> Option<Result<&kubernetes::Descriptor, &Error>> {
        let parse = || {
            let own = folder::descriptor_path(Flavor::Kubernetes, &format!("{}/", self.name));
            let (path, bytes) = (self.files)(self.name).into_iter().find(|(path, _)| *path == own)?;
            Some(folder::descriptor(&path, bytes))
        };
        self.kubernetes_descriptor.get_or_init(parse).as_ref().map(Result::as_ref)
    }

    fn parsed(&self, flavor: Flavor) -> Option<ParsedProvider> {
        folder::parsed_provider(self.name, flavor, (self.files)(self.name))
    }
}

/// Parses the field `platform` of a descriptor, and no other.
fn platform(path: &str, bytes: &[u8]) -> Result<Platform, Error> {
    #[derive(Deserialize)]
    struct OnlyPlatform {
        platform: Platform,
    }
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let mut lines = text.split_inclusive('\n').skip_while(|line| !line.starts_with("platform:"));
    let first = lines.next().unwrap_or_default();
    let field: String = std::iter::once(first).chain(lines.take_while(|line| line.starts_with(' '))).collect();
    folder::descriptor::<OnlyPlatform>(path, field.as_bytes()).map(|one| one.platform)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::embedded;

    #[test]
    fn the_platform_that_is_looked_up_is_that_of_the_descriptor() {
        let mut with_platform = 0;
        for parsed in embedded::parsed_providers() {
            let Some(platform) = parsed.platform() else { continue };
            with_platform += 1;
            let name = embedded::names().into_iter().find(|name| *name == parsed.name).unwrap();
            let looked_up = BuiltIn::new(name, embedded::files).unwrap();
            assert_eq!(looked_up.platform.as_ref(), Some(platform), "{name}");
        }
        assert!(with_platform > 5);
    }
}
