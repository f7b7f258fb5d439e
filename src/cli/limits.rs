//! The flags that limit what `CloudControllerManager`s may ask for. An installation passes them to its operator.

use clap::Args;

use crate::{api::check, object::is_name, plan::limits::Limits};

/// The limits of `CloudControllerManager`s, on clusters other than OpenShift.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct LimitFlags {
    /// The names that `CloudControllerManager`s may have, comma-separated; on clusters other than OpenShift
    /// [default: cluster]. The operator needs permissions for the objects of each.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = ccm_name)]
    pub names: Vec<String>,

    /// The repositories whose images a CloudControllerManager may run, comma-separated; a trailing / includes all repositories below it. On
    /// clusters other than OpenShift [default: those of its provider].
    #[arg(long, value_name = "REPOSITORIES", value_delimiter = ',', value_parser = repository)]
    pub image_repositories: Vec<String>,

    /// The registries, each optionally with a path, that a CloudControllerManager may name in spec.image.registryMirror,
    /// comma-separated; on clusters other than OpenShift [default: none].
    #[arg(long, value_name = "REGISTRIES", value_delimiter = ',', value_parser = mirror)]
    pub registry_mirrors: Vec<String>,

    /// The Secrets that a CloudControllerManager may name in spec.image.pullSecrets, comma-separated; on clusters other than
    /// OpenShift [default: none].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = name)]
    pub image_pull_secrets: Vec<String>,

    /// The leases that a CloudControllerManager may name in spec.leaderElection.leaseName, comma-separated, in addition to
    /// cloud-controller-manager, and cloud-controller-manager-NAME for an object that is not named cluster; on clusters other than
    /// OpenShift [default: none].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = name)]
    pub leases: Vec<String>,
}

impl LimitFlags {
    /// The limits that the flags set.
    pub(super) fn limits(&self) -> Limits {
        let list = |given: &[String]| or_default(given, Vec::new);
        Limits {
            names: or_default(&self.names, || Limits::default().names),
            image_repositories: list(&self.image_repositories),
            registry_mirrors: list(&self.registry_mirrors),
            image_pull_secrets: list(&self.image_pull_secrets),
            leases: list(&self.leases),
        }
    }
}

/// Returns each name once, in the given order, or the default if none is given.
pub(super) fn or_default(given: &[String], default: impl FnOnce() -> Vec<String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in given {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    if names.is_empty() { default() } else { names }
}

/// Parses the name of an object.
pub(super) fn name(text: &str) -> Result<String, &'static str> {
    if is_name(text) {
        Ok(text.to_owned())
    } else {
        Err("a name consists of lower-case letters, digits, hyphens and dots")
    }
}

/// Parses the name of a `CloudControllerManager`.
pub(super) fn ccm_name(text: &str) -> Result<String, &'static str> {
    check::name(text).map(|()| text.to_owned()).map_err(|(_, problem)| problem)
}

/// Parses a repository, or a path with a trailing slash, which stands for all repositories below it.
fn repository(text: &str) -> Result<String, &'static str> {
    mirror(text.strip_suffix('/').unwrap_or(text)).map(|_| text.to_owned())
}

/// Parses a registry, optionally with a path.
fn mirror(text: &str) -> Result<String, &'static str> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._:/".contains(&byte);
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = text.as_bytes().first().zip(text.as_bytes().last());
    let fits = text.bytes().all(is_inner) && ends.is_some_and(|(first, last)| is_end(first) && is_end(last));
    if fits {
        Ok(text.to_owned())
    } else {
        Err("must be a registry with a path, such as registry.example.com/cloud/ccm")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_may_stand_for_all_below_it() {
        for text in ["ghcr.io/acme/ccm", "mirror:5000", "mirror:5000/", "a/b_c/"] {
            assert!(repository(text).is_ok(), "{text}");
        }
        for text in ["", "/", "a//", "A/b", "a b", "-a", "https://a/b\n", "a@sha256:0"] {
            assert!(repository(text).is_err(), "{text}");
        }
        assert!(mirror("mirror/").is_err());
    }

    #[test]
    fn a_name_is_one_that_the_operator_takes() {
        assert!(ccm_name("cluster").is_ok() && ccm_name("a.b").is_ok());
        for text in ["", "*", "a-next", &"a".repeat(41)] {
            assert!(ccm_name(text).is_err(), "{text}");
        }
    }
}
