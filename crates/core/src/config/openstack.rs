//! The configuration of the OpenStack cloud-controller-manager (pure).

use crate::{
    config::{Output, Problem, ini_keys, keys::KEYS},
    object::KUBE_SYSTEM,
    text::ini::Document,
};

const GLOBAL: &str = "Global";
const LOAD_BALANCER: &str = "LoadBalancer";
const BLOCK_STORAGE: &str = "BlockStorage";

/// Keys of the in-tree cloud provider, with the only value that OpenShift set.
const LEGACY: [(&str, &str); 3] =
    [("secret-name", "openstack-credentials"), ("secret-namespace", KUBE_SYSTEM), ("kubeconfig-path", "")];

/// The path and name of the credentials that the manifest mounts.
const CLOUDS: [(&str, &str); 3] =
    [("use-clouds", "true"), ("clouds-file", "/etc/openstack/secret/clouds.yaml"), ("cloud", "openstack")];

const LEGACY_RULE: &str = "credentials come from a mounted file, not from the API server";
const CLOUDS_RULE: &str = "credentials come from the mounted clouds.yaml";
const BLOCK_STORAGE_RULE: &str = "block storage belongs to Cinder's CSI driver, not to the cloud-controller-manager";
const OCTAVIA_RULE: &str = "Octavia is the only load balancer; the key no longer exists";
const OCTAVIA: &str = "use-octavia";

/// Keys that are set unless the source sets them, with their values and rules.
const DEFAULTS: [(&str, &str, &str); 2] = [
    ("max-shared-lb", "1", "a load balancer serves one Service unless set otherwise"),
    ("manage-security-groups", "true", "node ports are opened by managed security groups unless set otherwise"),
];

pub(super) fn transform(source: &str) -> Result<Output, Problem> {
    let mut document = Document::parse(source)?;
    for (key, allowed) in LEGACY {
        check_legacy(&document, key, allowed)?;
    }
    let is_unset = |key| document.get(LOAD_BALANCER, key).is_some_and(|found| found.entry.set().is_none());
    let unset: Vec<_> = DEFAULTS.iter().map(|(key, ..)| *key).filter(|key| is_unset(key)).collect();
    let warnings = ini_keys::check(&document, &KEYS.openstack, |section, key| match key {
        None => section.eq_ignore_ascii_case(BLOCK_STORAGE),
        Some(key) if section == GLOBAL => {
            LEGACY.iter().chain(&CLOUDS).any(|(owned, _)| owned.eq_ignore_ascii_case(key))
        }
        Some(key) if section == LOAD_BALANCER => {
            OCTAVIA.eq_ignore_ascii_case(key) || unset.iter().any(|owned| owned.eq_ignore_ascii_case(key))
        }
        Some(_) => false,
    })?;
    for (key, _) in LEGACY {
        document.drop_key(LEGACY_RULE, GLOBAL, key);
    }
    for (key, value) in CLOUDS {
        document.set(CLOUDS_RULE, GLOBAL, key, value);
    }
    document.drop_section(BLOCK_STORAGE_RULE, BLOCK_STORAGE);
    document.drop_key(OCTAVIA_RULE, LOAD_BALANCER, OCTAVIA);
    for (key, value, rule) in DEFAULTS {
        document.set_unless_set(rule, LOAD_BALANCER, key, value);
    }
    let (text, changes) = document.finish();
    Ok(Output { text, changes, warnings })
}

/// Checks a configuration that is used as it is.
pub(super) fn check(source: &str) -> Result<Vec<Problem>, Problem> {
    ini_keys::check(&Document::parse(source)?, &KEYS.openstack, |_, _| false)
}

/// A legacy key with OpenShift's own value can be removed; any other value is no longer supported.
fn check_legacy(document: &Document, key: &str, allowed: &str) -> Result<(), Problem> {
    let found = document.get(GLOBAL, key).filter(|found| found.entry.set().is_some_and(|value| value != allowed));
    let Some(found) = found else { return Ok(()) };
    let takes = if allowed.is_empty() { "no value".to_owned() } else { format!("`{allowed}` only") };
    let message = format!("[{GLOBAL}] {key} takes {takes}; remove it: credentials come from the cluster's own Secret");
    Err(Problem::at(found.line, message))
}

#[cfg(test)]
mod tests;
