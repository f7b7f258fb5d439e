//! The rules of the API, for manifests that no API server has checked (pure).
//!
//! The CustomResourceDefinition has the same rules. `tests/it/kubernetes.rs` runs the same cases against both.

use std::net::IpAddr;

use super::{
    pattern::{CLUSTER_NAME, DOTTED_NAME, HOST, KEY, LABEL_NAME, LABEL_VALUE, NAME, REPOSITORY, TAG},
    spec::{Lifecycle, OffByDefault, OnByDefault, Spec},
};
use crate::object::reference::is_digest;

/// Leases of other programs.
const OTHER_LEASES: [&str; 3] = ["kube-controller-manager", "kube-scheduler", "k3s-cloud-controller-manager"];

/// A broken rule: the field and the problem.
pub type Broken = (&'static str, &'static str);

/// Whether a name is valid for a `CloudControllerManager`.
pub fn name(name: &str) -> Result<(), Broken> {
    if name.len() > 40 {
        return Err(("metadata.name", "a name has at most 40 characters"));
    }
    if name == "next" || name.ends_with("-next") {
        return Err(("metadata.name", "a name does not end with next, which stands for objects that replace others"));
    }
    if !DOTTED_NAME.fits(name) {
        return Err(("metadata.name", DOTTED_NAME.words));
    }
    Ok(())
}

impl Spec {
    /// Fails with the first broken rule.
    pub fn check(&self) -> Result<(), Broken> {
        self.check_texts()?;
        let labels = &self.node_deletion.selector.match_labels;
        let is_label = |(key, value): (&String, &String)| LABEL_NAME.fits(key) && LABEL_VALUE.fits(value);
        let rules = [
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
                labels.len() <= 8 && labels.iter().all(is_label),
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

    fn check_texts(&self) -> Result<(), Broken> {
        let (image, config) = (&self.image, self.cloud_config.as_ref());
        let host = self.placement.api_server.as_ref().map(|api_server| &api_server.host);
        let keys = [
            ("cloudConfig.configMapRef.key", config.and_then(|config| config.config_map_ref.as_ref())),
            ("cloudConfig.secretRef.key", config.and_then(|config| config.secret_ref.as_ref())),
            ("trustBundle.configMapRef.key", self.trust_bundle.as_ref().map(|bundle| &bundle.config_map_ref)),
        ];
        let texts = [
            ("provider", NAME, Some(&self.provider)),
            ("namespace", NAME, Some(&self.namespace)),
            ("clusterName", CLUSTER_NAME, Some(&self.cluster_name)),
            ("placement.apiServer.host", HOST, host),
            ("image.version", TAG, image.version.as_ref()),
            ("image.repository", REPOSITORY, image.repository.as_ref()),
            ("image.registryMirror", REPOSITORY, image.registry_mirror.as_ref()),
            ("leaderElection.leaseName", DOTTED_NAME, self.leader_election.lease_name.as_ref()),
        ];
        let keys = keys.into_iter().map(|(field, one)| (field, KEY, one.map(|one| &one.key)));
        let mut all = texts.into_iter().chain(keys);
        let broken = all.find(|(_, pattern, text)| text.is_some_and(|text| !pattern.fits(text)));
        broken.map_or(Ok(()), |(field, pattern, _)| Err((field, pattern.words)))
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

    /// The addresses of the pod subnets; `None` for an invalid subnet.
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

/// Whether a text consists of the name and the UID of a node, and a time.
fn is_node(text: &str) -> bool {
    let parts: Vec<_> = text.split('/').collect();
    text.len() <= 320 && parts.len() == 3 && parts.iter().all(|part| !part.is_empty())
}

/// Returns the address of a subnet.
fn subnet(text: &str) -> Option<IpAddr> {
    let (address, length) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    length.parse::<u8>().ok().filter(|length| *length <= longest).map(|_| address)
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
    fn a_text_has_the_pattern_of_its_field() {
        type Fields<'a> = &'a dyn Fn(&str) -> Value;

        let with = |field: &str, value: Value| json!({"provider": "aws", field: value});
        let keyed = |key: &str| json!({"configMapRef": {"name": "a", "key": key}});
        let secret = |key: &str| json!({"secretRef": {"name": "a", "key": key}});
        let cases: [(_, Fields, &[&str], &[&str]); 10] = [
            ("namespace", &|text| with("namespace", json!(text)), &["a", "a-1"], &["", "a-", "a.b", "A"]),
            ("clusterName", &|text| with("clusterName", json!(text)), &["a", "A.b_c-1"], &["", "-a", "a.", "a b", "ä"]),
            (
                "placement.apiServer.host",
                &|text| with("placement", json!({"apiServer": {"host": text}})),
                &["api.example.com", "fd00::1"],
                &["", "https://a", "a b"],
            ),
            ("image.version", &|text| with("image", json!({"version": text})), &["v1.35.2", "_a"], &["", ".a", "a@b"]),
            (
                "image.repository",
                &|text| with("image", json!({"repository": text})),
                &["registry:5000/a/b_c", "ab"],
                &["", "a", "A/b", "a/"],
            ),
            (
                "image.registryMirror",
                &|text| with("image", json!({"registryMirror": text})),
                &["mirror:5000/a"],
                &["https://a\n"],
            ),
            (
                "leaderElection.leaseName",
                &|text| with("leaderElection", json!({"leaseName": text})),
                &["a", "a.b-c"],
                &["", "a_b", ".a", "Own"],
            ),
            ("cloudConfig.configMapRef.key", &|text| with("cloudConfig", keyed(text)), &["cloud.conf"], &["", "a/b"]),
            ("cloudConfig.secretRef.key", &|text| with("cloudConfig", secret(text)), &["-"], &["a b"]),
            ("trustBundle.configMapRef.key", &|text| with("trustBundle", keyed(text)), &["ca_1.crt"], &["../a"]),
        ];
        for (field, spec, valid, invalid) in cases {
            for text in valid {
                assert_eq!(broken(spec(text)), None, "{field}: {text}");
            }
            for text in invalid.iter().copied().chain([&*"a".repeat(256)]) {
                assert_eq!(broken(spec(text)), Some(field), "{field}: {text}");
            }
        }
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
