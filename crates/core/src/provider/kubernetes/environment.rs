//! The environment variables that an administrator may set (pure).

use super::Descriptor;
use crate::{error::brief, provider::CCM, text::mask};

/// Variables that determine whom a program trusts, where it sends its requests, or what it loads; other fields of a
/// `CloudControllerManager` are for them.
const RESERVED: [&str; 4] = ["GODEBUG", "HOME", "KUBECONFIG", "PATH"];
const RESERVED_PREFIXES: [&str; 3] = ["KUBERNETES_", "LD_", "SSL_CERT_"];

/// Returns the entries of `allowedEnvironment` that no administrator may set: JSON pointer and text.
pub(super) fn misfits(descriptor: &Descriptor) -> Vec<(String, String)> {
    let all = descriptor.allowed_environment.iter().enumerate();
    let found = all.filter_map(|(index, name)| {
        let problem = problem(descriptor, name)?;
        Some((format!("/allowedEnvironment/{index}"), format!("the variable {:?} {problem}", brief(name))))
    });
    found.collect()
}

fn problem(descriptor: &Descriptor, name: &str) -> Option<&'static str> {
    let is_inner = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    let is_of_credentials = descriptor.credentials.as_ref().is_some_and(|one| one.environment.contains_key(name));
    let is_set = descriptor.environment.get(CCM).is_some_and(|set| set.contains_key(name));
    if !name.starts_with(|first: char| first.is_ascii_uppercase()) || !name.bytes().all(is_inner) {
        Some("does not consist of upper-case letters, digits and _")
    } else if is_of_credentials || mask::is_secret_key(name) {
        Some("is secret: it belongs in credentials.environment, and its key in credentials.optionalKeys")
    } else if is_set {
        Some("is set in environment already")
    } else if RESERVED.contains(&name)
        || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || name.ends_with("_PROXY")
    {
        Some("is set by other fields, or by nobody: proxies, certificates, the API server, and what a program loads")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::embedded;

    #[test]
    fn what_is_secret_reserved_or_set_is_in_no_list() {
        let catalog = embedded::catalog().unwrap();
        let mut descriptor = catalog.kubernetes_descriptors().find(|one| one.name == "hcloud").unwrap().clone();
        let ours = descriptor.allowed_environment.clone();
        assert!(misfits(&descriptor).is_empty() && !ours.is_empty());
        for (name, expected) in [
            ("HCLOUD_LOAD_BALANCERS_TYPE", None),
            ("HCLOUD_TOKEN", Some("is secret")),
            ("ROBOT_PASSWORD", Some("is secret")),
            ("CLOUD_API_KEY", Some("is secret")),
            ("HCLOUD_NETWORK_ROUTES_ENABLED", Some("is set in environment")),
            ("HTTPS_PROXY", Some("is set by other fields")),
            ("SSL_CERT_DIR", Some("is set by other fields")),
            ("LD_PRELOAD", Some("is set by other fields")),
            ("KUBERNETES_SERVICE_HOST", Some("is set by other fields")),
            ("KUBECONFIG", Some("is set by other fields")),
            ("https_proxy", Some("does not consist of")),
            ("1A", Some("does not consist of")),
            ("", Some("does not consist of")),
        ] {
            descriptor.allowed_environment = vec![name.to_owned()];
            let found = misfits(&descriptor);
            assert_eq!(found.is_empty(), expected.is_none(), "{name}: {found:?}");
            assert!(found.iter().all(|(_, text)| text.contains(expected.unwrap_or_default())), "{name}: {found:?}");
        }
    }
}
