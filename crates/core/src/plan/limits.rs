//! The limits of an installation for what `CloudControllerManager`s may ask for (pure).
//!
//! Without limits, a user who may write a `CloudControllerManager` could run any program with the permissions and
//! credentials of a cloud-controller-manager.

use crate::{
    facts::ccm::{Ccm, LEASE, ONLY, named},
    plan::kubernetes,
    provider::kubernetes::{Descriptor, ProviderImage},
};

/// The limits for the specs of `CloudControllerManager`s. An installation passes them to the operator as arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The names that they may have. The operator's permissions on cluster-scoped objects are limited to these names.
    pub names: Vec<String>,
    /// The allowed image repositories. An entry that ends in `/` allows all below it. An empty list allows those of the providers.
    pub image_repositories: Vec<String>,
    /// The registries, optionally with a path, that may serve the providers' repositories under their own paths.
    pub registry_mirrors: Vec<String>,
    /// The Secrets with which images may be pulled.
    pub image_pull_secrets: Vec<String>,
    /// The leases that they may name, besides the default ones.
    pub leases: Vec<String>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            names: vec![ONLY.to_owned()],
            image_repositories: Vec::new(),
            registry_mirrors: Vec::new(),
            image_pull_secrets: Vec::new(),
            leases: Vec::new(),
        }
    }
}

/// A machine-readable reason and a human-readable message.
pub type LimitError = (&'static str, String);

impl Limits {
    /// Returns the operator's arguments for these limits, without default values.
    pub fn arguments(&self) -> Vec<String> {
        let lists = [
            ("--image-repositories", &self.image_repositories),
            ("--registry-mirrors", &self.registry_mirrors),
            ("--image-pull-secrets", &self.image_pull_secrets),
            ("--leases", &self.leases),
        ];
        let given = lists.into_iter().filter(|(_, list)| !list.is_empty());
        given.map(|(flag, list)| format!("{flag}={}", list.join(","))).collect()
    }

    /// Refuses a `CloudControllerManager` that exceeds the limits. Without a descriptor its provider is unknown, and it has no image.
    ///
    /// # Errors
    ///
    /// The first value that the installation does not allow, with the flag that would allow it.
    pub fn check(&self, ccm: &Ccm, descriptor: Option<&Descriptor>) -> Result<(), LimitError> {
        self.name(ccm)?;
        self.lease(ccm)?;
        for image in descriptor.into_iter().flat_map(|one| one.images.values()) {
            self.image(image, ccm)?;
        }
        self.pull_secrets(ccm)
    }

    fn name(&self, ccm: &Ccm) -> Result<(), LimitError> {
        let name = &ccm.name;
        if self.names.contains(name) {
            return Ok(());
        }
        let problem = format!("the operator may not keep the objects of a CloudControllerManager named {name}");
        Err(refusal("NameNotAllowed", "metadata.name", &problem, "--names", &self.names))
    }

    fn lease(&self, ccm: &Ccm) -> Result<(), LimitError> {
        let lease = ccm.lease_name();
        if self.leases.contains(&lease) || self.names.iter().any(|name| named(LEASE, name) == lease) {
            return Ok(());
        }
        let field = "spec.leaderElection.leaseName";
        let problem = format!("{lease} may be the lease of another program");
        Err(refusal("LeaseNotAllowed", field, &problem, "--leases", &self.leases))
    }

    fn image(&self, image: &ProviderImage, ccm: &Ccm) -> Result<(), LimitError> {
        let repository = kubernetes::images::repository(image, ccm);
        if self.has_repository(image, &repository) {
            return Ok(());
        }
        let asked = &ccm.spec.image;
        let (field, flag, list) = match (&asked.repository, &asked.registry_mirror) {
            (None, Some(_)) if self.image_repositories.is_empty() => {
                ("spec.image.registryMirror", "--registry-mirrors", &self.registry_mirrors)
            }
            (None, Some(_)) => ("spec.image.registryMirror", "--image-repositories", &self.image_repositories),
            (Some(_), _) => ("spec.image.repository", "--image-repositories", &self.image_repositories),
            (None, None) => ("spec.image", "--image-repositories", &self.image_repositories),
        };
        let problem = format!("the operator may not run an image of {repository}");
        Err(refusal("ImageNotAllowed", field, &problem, flag, list))
    }

    fn has_repository(&self, image: &ProviderImage, repository: &str) -> bool {
        let is_mirrored =
            || self.registry_mirrors.iter().any(|mirror| kubernetes::images::mirrored(image, mirror) == repository);
        if self.image_repositories.is_empty() {
            return repository == image.repository || is_mirrored();
        }
        let fits = |entry: &String| repository == entry || (entry.ends_with('/') && repository.starts_with(entry));
        self.image_repositories.iter().any(fits) || is_mirrored()
    }

    fn pull_secrets(&self, ccm: &Ccm) -> Result<(), LimitError> {
        let mut asked = ccm.spec.image.pull_secrets.iter().map(|secret| &secret.name);
        let Some(other) = asked.find(|name| !self.image_pull_secrets.contains(name)) else { return Ok(()) };
        let problem = format!("no image may be pulled with the Secret {other}");
        let field = "spec.image.pullSecrets";
        Err(refusal("PullSecretNotAllowed", field, &problem, "--image-pull-secrets", &self.image_pull_secrets))
    }
}

fn refusal(reason: &'static str, field: &str, problem: &str, flag: &str, allowed: &[String]) -> LimitError {
    let allowed = match allowed {
        [] => "is not given".to_owned(),
        names => format!("lists {}", names.join(", ")),
    };
    (reason, format!("{field}: {problem}: {flag} of its installation {allowed}"))
}

#[cfg(test)]
mod tests;
