//! The rules of the API, for manifests that no API server has checked (pure).
//!
//! The CustomResourceDefinition has the same rules. `tests/it/kubernetes.rs` runs the same cases against both.

use std::net::IpAddr;

use super::spec::{Lifecycle, OffByDefault, OnByDefault, Spec};
use crate::object::reference::is_digest;

/// Leases of other programs.
const OTHER_LEASES: [&str; 3] = ["kube-controller-manager", "kube-scheduler", "k3s-cloud-controller-manager"];

/// A broken rule: the field, and what is wrong with it.
pub type Broken = (&'static str, &'static str);

/// Whether a name is valid for a `CloudControllerManager`.
pub fn name(name: &str) -> Result<(), Broken> {
    if name.len() > 40 {
        return Err(("metadata.name", "a name has at most 40 characters"));
    }
    if name == "next" || name.ends_with("-next") {
        return Err(("metadata.name", "a name does not end with next, which stands for objects that replace others"));
    }
    if !is_name(name, "-.") {
        return Err(("metadata.name", "a name consists of lower-case letters, digits, - and ."));
    }
    Ok(())
}

impl Spec {
    /// The first rule that it breaks.
    pub fn check(&self) -> Result<(), Broken> {
        let labels = &self.node_deletion.selector.match_labels;
        let rules = [
            (is_name(&self.provider, "-"), ("provider", "a name consists of lower-case letters, digits and -")),
            (is_name(&self.namespace, "-"), ("namespace", "a name consists of lower-case letters, digits and -")),
            (self.has_controller(), ("controllers", "at least one controller must be on")),
            (self.has_subnets_for_routes(), ("controllers.route", "the route controller needs network.podCIDRs")),
            (
                self.subnets().iter().all(Option::is_some),
                ("network.podCIDRs", "each must be a subnet, such as 10.244.0.0/16"),
            ),
            (self.has_families(), ("network.podCIDRs", "two subnets must be of different IP families")),
            (self.has_one_source(), ("cloudConfig", "exactly one of inline, configMapRef and secretRef must be given")),
            (
                self.image.version.as_deref() != Some("latest"),
                ("image.version", "name a version: latest changes by itself"),
            ),
            (
                self.image.version.is_some() || (self.image.digest.is_none() && self.image.digests.is_empty()),
                ("image.digest", "a digest belongs to a version: give image.version too"),
            ),
            (
                self.image.digest.is_none() || self.image.digests.is_empty(),
                ("image.digests", "give one digest, or digests by container, not both"),
            ),
            (
                self.image.digest.iter().chain(self.image.digests.values()).all(|digest| is_digest(digest)),
                ("image.digest", "a digest is sha256: and 64 hexadecimal digits"),
            ),
            (
                self.image.repository.is_none() || self.image.registry_mirror.is_none(),
                ("image.repository", "give a repository or a mirror of the provider's, not both"),
            ),
            (
                self.placement.replicas.is_none_or(|replicas| (1..=5).contains(&replicas)),
                ("placement.replicas", "from 1 to 5"),
            ),
            (
                self.placement.api_server.as_ref().is_none_or(|api_server| api_server.port > 0),
                ("placement.apiServer.port", "from 1 to 65535"),
            ),
            (
                !self.leader_election.lease_name.as_deref().is_some_and(|name| OTHER_LEASES.contains(&name)),
                ("leaderElection.leaseName", "this lease belongs to another program"),
            ),
            (self.ports.secure >= 1024, ("ports.secure", "1024 or more: the process is not root")),
            (
                self.logging.verbosity <= 6,
                ("logging.verbosity", "from 0 to 6: above, the bodies of requests are logged, Secrets too"),
            ),
            (
                (60..=604_800).contains(&self.node_deletion.min_not_ready_seconds),
                ("nodeDeletion.minNotReadySeconds", "from 60 to 604800"),
            ),
            ((1..=1000).contains(&self.node_deletion.max_per_hour), ("nodeDeletion.maxPerHour", "from 1 to 1000")),
            ((1..=100).contains(&self.node_deletion.max_percent), ("nodeDeletion.maxPercent", "from 1 to 100")),
            (
                labels.len() <= 8 && labels.iter().all(|(key, value)| is_label_name(key) && is_label_value(value)),
                (
                    "nodeDeletion.selector.matchLabels",
                    "each must be the name of a label with a value of it, at most eight",
                ),
            ),
            (
                self.node_deletion.allow.len() <= 100 && self.node_deletion.allow.iter().all(|node| is_node(node)),
                ("nodeDeletion.allow", "each is NAME/UID/TIME, at most a hundred: see ccm-operator nodes allow-delete"),
            ),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, broken)| Err(broken))
    }

    fn has_controller(&self) -> bool {
        let on = &self.controllers;
        on.cloud_node == OnByDefault::Enabled
            || on.cloud_node_lifecycle != Lifecycle::Disabled
            || on.service == OnByDefault::Enabled
            || on.route == OffByDefault::Enabled
    }

    fn has_subnets_for_routes(&self) -> bool {
        self.controllers.route == OffByDefault::Disabled || !self.subnets().is_empty()
    }

    /// The addresses of the pods' subnets; `None` for what is none.
    fn subnets(&self) -> Vec<Option<IpAddr>> {
        let written = self.network.iter().flat_map(|network| &network.pod_cidrs);
        written.map(|text| subnet(text)).collect()
    }

    fn has_families(&self) -> bool {
        match self.subnets()[..] {
            [] | [_] => true,
            [Some(first), Some(second)] => first.is_ipv4() != second.is_ipv4(),
            _ => false,
        }
    }

    fn has_one_source(&self) -> bool {
        self.cloud_config.as_ref().is_none_or(|config| {
            let given = [config.inline.is_some(), config.config_map_ref.is_some(), config.secret_ref.is_some()];
            given.into_iter().filter(|is_given| *is_given).count() == 1
        })
    }
}

/// Whether a text is the name and the unique id of a node, with a time.
fn is_node(text: &str) -> bool {
    let parts: Vec<_> = text.split('/').collect();
    text.len() <= 320 && parts.len() == 3 && parts.iter().all(|part| !part.is_empty())
}

/// Whether this is a value of a label, as Kubernetes defines it.
fn is_label_value(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.len() <= 63 && is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inner)
}

/// Whether this may be the name of a label. What is none matches no node.
fn is_label_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    !text.is_empty() && text.bytes().all(is_part)
}

/// The address of a subnet.
fn subnet(text: &str) -> Option<IpAddr> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    length.parse::<u8>().ok().filter(|length| *length <= longest).map(|_| address)
}

fn is_name(text: &str, between: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || between.contains(c);
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 63 && text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn broken(spec: Value) -> Option<&'static str> {
        serde_json::from_value::<Spec>(spec).unwrap().check().err().map(|(field, _)| field)
    }

    #[test]
    fn a_broken_rule_is_found_by_its_field() {
        let with = |field: &str, value: Value| json!({"provider": "aws", field: value});
        assert_eq!(broken(json!({"provider": "aws"})), None);
        assert_eq!(broken(json!({"provider": "Aws"})), Some("provider"));
        assert_eq!(broken(with("namespace", json!("-a"))), Some("namespace"));
        assert_eq!(broken(with("placement", json!({"replicas": 0}))), Some("placement.replicas"));
        assert_eq!(broken(with("placement", json!({"replicas": 5}))), None);
        for (subnet, expected) in [
            ("10.0.0.0/8", None),
            ("fd00::/48", None),
            ("10.0.0.0", Some("network.podCIDRs")),
            ("10.0.0.0/33", Some("network.podCIDRs")),
            ("fd00::/129", Some("network.podCIDRs")),
            ("a/8", Some("network.podCIDRs")),
        ] {
            assert_eq!(broken(with("network", json!({"podCIDRs": [subnet]}))), expected, "{subnet}");
        }
        let three = json!({"podCIDRs": ["10.0.0.0/8", "fd00::/48", "fd01::/48"]});
        assert_eq!(broken(with("network", three)), Some("network.podCIDRs"));
    }

    #[test]
    fn a_name_fits_into_the_names_of_objects() {
        for valid in ["cluster", "a", "a-b.c", "next-a", &"a".repeat(40)] {
            assert_eq!(name(valid), Ok(()), "{valid}");
        }
        for invalid in ["", "A", "-a", "a.", "a_b", "next", "a-next", &"a".repeat(41)] {
            assert!(name(invalid).is_err(), "{invalid}");
        }
    }
}
