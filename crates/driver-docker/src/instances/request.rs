//! What is given for an instance, checked and as the Engine wants it (pure).

use ccm_drivers::contract::{Error, InstanceSpec, Marks, Result};
use serde_json::{Map, Value, json};

use super::options::Options;
use crate::brief;

/// The maximum length of a part of a host name, which the name of a container becomes.
const MAX_NAME: usize = 63;

/// The maximum length of a key, which becomes a label.
const MAX_KEY: usize = 253;

/// A request to create a container.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) image: String,
    pub(super) networks: Vec<String>,
    pub(super) has_cgroup_namespace: bool,
    pub(super) body: Value,
}

/// Whether a text can be the name of a container.
pub(super) fn is_name(text: &str) -> bool {
    let may_stand = |at: u8| at.is_ascii_alphanumeric() || b"_.-".contains(&at);
    (2..=MAX_NAME).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(may_stand)
}

impl Request {
    pub(super) fn new(spec: &InstanceSpec, image: Option<&str>, network: Option<&str>) -> Result<Self> {
        let InstanceSpec { key, cluster, name, instance_type, user_data, labels, options, .. } = spec;
        if key.is_empty() {
            return Err(Error::invalid("key", "the key is empty: an instance needs the UID of its owner"));
        }
        if key.len() > MAX_KEY || key.contains(char::is_control) {
            let problem = format!("key {:?}: it has at most {MAX_KEY} bytes, and no control characters", brief(key));
            return Err(Error::invalid("key", problem));
        }
        if !is_name(name) {
            return Err(Error::invalid(
                "name",
                format!(
                    "name {:?}: the name of a container has 2 to {MAX_NAME} letters, digits and the characters _.- and \
                     begins with a letter or a digit",
                    brief(name)
                ),
            ));
        }
        if !instance_type.is_empty() {
            return Err(Error::not_supported("instanceType: a Docker Engine has no instance types; leave it empty"));
        }
        if let Some(label) = labels.keys().find(|label| label.is_empty() || label.starts_with(Marks::PREFIX)) {
            let label = brief(label);
            return Err(Error::invalid(
                "labels",
                format!("label {label:?}: it is empty or begins with {}", Marks::PREFIX),
            ));
        }
        let image = Some(spec.image.as_str()).filter(|image| !image.is_empty()).or(image);
        let image =
            image.ok_or_else(|| Error::invalid("image", "no image is given, and the setting image is empty"))?;
        let Options { config, mut host, has_cgroup_namespace, has_ports } =
            Options::parse(options, !user_data.bytes().is_empty())?;
        let networks = if spec.networks.is_empty() {
            network.map(str::to_owned).into_iter().collect()
        } else {
            spec.networks.clone()
        };
        if let Some(network) = networks.iter().find(|name| has_ports && ["none", "host"].contains(&name.as_str())) {
            let problem = format!("ports: the network {network} opens none; leave them out, or choose another network");
            return Err(Error::invalid("ports", problem));
        }
        if let Some(network) = networks.first() {
            host.insert("NetworkMode".to_owned(), json!(network));
        }
        let mut labels: Map<String, Value> = labels.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        labels.insert(Marks::OWNER.to_owned(), json!(key));
        labels.insert(Marks::SPEC.to_owned(), json!(spec.digest()));
        if !cluster.is_empty() {
            labels.insert(Marks::CLUSTER.to_owned(), json!(cluster));
        }
        let mut body = config;
        body.extend([
            ("Image".to_owned(), json!(image)),
            ("Hostname".to_owned(), json!(name)),
            ("Labels".to_owned(), labels.into()),
            ("HostConfig".to_owned(), host.into()),
        ]);
        Ok(Self { image: image.to_owned(), networks, has_cgroup_namespace, body: body.into() })
    }
}

#[cfg(test)]
mod tests {
    use ccm_drivers::contract::ErrorKind;

    use super::*;

    fn spec() -> InstanceSpec {
        let owned = str::to_owned;
        InstanceSpec { key: owned("uid-1"), name: owned("node-1"), image: owned("image"), ..InstanceSpec::default() }
    }

    #[test]
    fn defaults_are_those_of_the_settings() {
        let mut spec = spec();
        spec.cluster = "c".to_owned();
        spec.labels = [("a".to_owned(), "b".to_owned())].into();
        let request = Request::new(&spec, Some("other"), Some("net")).unwrap();
        let marks = json!({
            "a": "b",
            "ccm-operator.dev/owner": "uid-1",
            "ccm-operator.dev/cluster": "c",
            "ccm-operator.dev/spec": spec.digest(),
        });
        let body = &request.body;
        assert_eq!((&body["Image"], &body["Hostname"], &body["Labels"]), (&json!("image"), &json!("node-1"), &marks));
        assert_eq!(body["HostConfig"]["NetworkMode"], "net");
        spec.image = String::new();
        spec.networks = vec!["x".to_owned(), "y".to_owned()];
        let request = Request::new(&spec, Some("other"), Some("net")).unwrap();
        assert_eq!(
            (request.body["Image"].clone(), request.networks),
            (json!("other"), vec!["x".to_owned(), "y".to_owned()])
        );
        assert_eq!(request.body["HostConfig"]["NetworkMode"], "x");
        spec.networks = Vec::new();
        assert_eq!(Request::new(&spec, Some("other"), None).unwrap().body["HostConfig"].get("NetworkMode"), None);
    }

    #[test]
    fn a_bad_field_is_named() {
        let refused = |change: fn(&mut InstanceSpec), expected: &str| {
            let mut spec = spec();
            change(&mut spec);
            let kind = Request::new(&spec, None, None).unwrap_err().kind;
            let expected = match expected {
                "" => ErrorKind::NotSupported,
                field => ErrorKind::InvalidArgument(field.to_owned()),
            };
            assert_eq!(kind, expected);
        };
        refused(|spec| spec.key = String::new(), "key");
        refused(|spec| spec.key = "a".repeat(254), "key");
        refused(|spec| spec.key = "a\nb".to_owned(), "key");
        refused(|spec| spec.name = "a".to_owned(), "name");
        refused(|spec| spec.name = "-ab".to_owned(), "name");
        refused(|spec| spec.name = "a b".to_owned(), "name");
        refused(|spec| spec.name = "a".repeat(64), "name");
        refused(|spec| spec.image = String::new(), "image");
        refused(|spec| spec.instance_type = "large".to_owned(), "");
        refused(|spec| spec.labels = [(Marks::OWNER.to_owned(), String::new())].into(), "labels");
        refused(|spec| spec.options = spec.options.clone().with("mounts", "x"), "mounts");
        for network in ["none", "host"] {
            let mut spec = spec();
            spec.options = spec.options.clone().with("ports", "80");
            let error = Request::new(&spec, None, Some(network)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument("ports".to_owned()));
            spec.networks = vec!["x".to_owned()];
            Request::new(&spec, None, Some(network)).unwrap();
            spec.networks = vec![network.to_owned()];
            assert_eq!(Request::new(&spec, None, None).unwrap_err().kind, error.kind);
        }
    }
}
