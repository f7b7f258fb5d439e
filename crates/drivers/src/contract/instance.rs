//! Instances, and what is given to make one (pure).

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::settings::Values;

/// The state of an instance. All of them exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// It is made or started, and does not run yet.
    Pending,
    /// It runs.
    Running,
    /// It is about to stop.
    Stopping,
    /// It is stopped, and can be started.
    Stopped,
    /// The cloud is deleting it.
    Deleting,
    /// Something that the cloud has a word for, and this contract has not.
    Unknown,
}

impl State {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Deleting => "deleting",
            Self::Unknown => "unknown",
        }
    }
}

/// The type of an address, with the names of Kubernetes' `NodeAddress`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AddressKind {
    /// The name of the machine.
    Hostname,
    /// An address inside the cloud.
    InternalIP,
    /// An address from outside.
    ExternalIP,
    /// A name inside the cloud.
    InternalDNS,
    /// A name from outside.
    ExternalDNS,
}

/// An address of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: AddressKind,
    /// The address.
    pub address: String,
}

/// Who an instance belongs to. The driver keeps both with the instance, as labels or tags with these names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marks {
    /// The UID of the owner, the key of `create`; `None` for an instance that others have made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The id of the cluster: the UID of its namespace `kube-system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

impl Marks {
    /// The label of the owner.
    pub const OWNER: &'static str = "ccm-operator.dev/owner";
    /// The label of the cluster.
    pub const CLUSTER: &'static str = "ccm-operator.dev/cluster";
    /// The label of the digest of what the instance was made of.
    pub const SPEC: &'static str = "ccm-operator.dev/spec";

    /// What begins the names of all labels that the driver keeps for itself. Callers cannot give such labels.
    pub const PREFIX: &'static str = "ccm-operator.dev/";
}

/// An instance, as the cloud has it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// Its id: of no other instance in any region of the account, now or ever.
    pub id: String,
    /// The `spec.providerID` of its Node.
    #[serde(rename = "providerID")]
    pub provider_id: String,
    /// Its name.
    pub name: String,
    /// The id of its region.
    pub region: String,
    /// The id of its zone.
    pub zone: String,
    /// Its state.
    pub state: State,
    /// The image that it was made of.
    pub image: String,
    /// Its instance type; empty if the cloud has none.
    pub instance_type: String,
    /// Its addresses; none while it is stopped, if the cloud says so.
    pub addresses: Vec<Address>,
    /// Its labels, without those of [`Marks`].
    pub labels: BTreeMap<String, String>,
    /// Who it belongs to.
    #[serde(flatten)]
    pub marks: Marks,
    /// When it was made, in RFC 3339; empty if the cloud does not say it.
    pub created: String,
}

/// Returns a time, in seconds since 1970, as [`Instance::created`] has it; an empty text for a time of no calendar.
pub fn rfc3339(seconds: i64) -> String {
    Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}

/// Which instances to list. All that is given has to fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// The id of a region.
    pub region: Option<String>,
    /// The id of a zone.
    pub zone: Option<String>,
    /// The whole name.
    pub name: Option<String>,
    /// The owner.
    pub owner: Option<String>,
    /// Labels with these values.
    pub labels: BTreeMap<String, String>,
}

impl Filter {
    /// Whether an instance fits. A driver may ask the cloud for less, and has to return only these.
    pub fn fits(&self, instance: &Instance) -> bool {
        let Self { region, zone, name, owner, labels } = self;
        let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        is(region, &instance.region)
            && is(zone, &instance.zone)
            && is(name, &instance.name)
            && (owner.is_none() || *owner == instance.marks.owner)
            && labels.iter().all(|(name, value)| instance.labels.get(name) == Some(value))
    }
}

/// What an instance reads at its first start. It may have secrets: only its length and its digest are shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UserData(Vec<u8>);

impl UserData {
    /// Wraps the bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes, sha256:{}", self.0.len(), hex(&Sha256::digest(&self.0)))
    }
}

/// What is given to make an instance. Texts that are empty, and a list that is empty, mean the default of the driver's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceSpec {
    /// The key: the UID of the owner, of 1 to 253 characters. There is one instance with a key.
    pub key: String,
    /// The id of the cluster, or an empty text.
    pub cluster: String,
    /// The name, not empty.
    pub name: String,
    /// The id of the region; empty for the first one.
    pub region: String,
    /// The id of the zone; empty for one of the region.
    pub zone: String,
    /// The image.
    pub image: String,
    /// The instance type.
    pub instance_type: String,
    /// What the instance reads at its first start.
    pub user_data: UserData,
    /// The networks.
    pub networks: Vec<String>,
    /// Labels. None begins with [`Marks::PREFIX`].
    pub labels: BTreeMap<String, String>,
    /// What only this driver has, checked against its declaration.
    pub options: Values,
}

impl InstanceSpec {
    /// The digest of everything but the cluster. It decides whether a repeated `create` asks for the same, so a driver computes it
    /// of what it was given, before defaults. Texts are compared as they were given. What is empty, and an option that has its declared
    /// default, is left out, so that a field or an option that is added later changes no digest. The number in front changes with the
    /// rule.
    pub fn digest(&self) -> String {
        let Self { key, cluster: _, name, region, zone, image, instance_type, user_data, networks, labels, options } =
            self;
        let mut hash = Sha256::new();
        let mut add = |field: &str, values: &[&[u8]]| {
            if values.iter().all(|value| value.is_empty()) {
                return;
            }
            hash.update((values.len() as u64).to_be_bytes());
            for part in [field.as_bytes()].iter().chain(values) {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        };
        for (field, text) in [
            ("key", key),
            ("name", name),
            ("region", region),
            ("zone", zone),
            ("image", image),
            ("instanceType", instance_type),
        ] {
            add(field, &[text.as_bytes()]);
        }
        add("userData", &[&user_data.0]);
        add("networks", &networks.iter().map(String::as_bytes).collect::<Vec<_>>());
        for (name, value) in labels {
            add("label", &[name.as_bytes(), value.as_bytes()]);
        }
        for (name, value) in options.changed() {
            add("option", &[name.as_bytes(), value.as_bytes()]);
        }
        format!("v1:{}", hex(&hash.finalize()))
    }

    /// The marks of the instance.
    pub fn marks(&self) -> Marks {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Marks { owner: given(&self.key), cluster: given(&self.cluster) }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Kind, Setting};

    #[test]
    fn a_time_is_written_as_the_calendar_has_it() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_795_852_800, "2026-11-28T08:00:00Z"),
            (1_795_853_900, "2026-11-28T08:18:20Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
        // No number panics.
        let _ = (rfc3339(i64::MAX), rfc3339(i64::MIN));
    }

    fn spec(options: &[Setting], given: &[(&str, &str)]) -> InstanceSpec {
        let texts = |texts: &[(&str, &str)]| -> BTreeMap<String, String> {
            texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
        };
        InstanceSpec {
            key: "uid".to_owned(),
            cluster: "cluster".to_owned(),
            name: "worker-1".to_owned(),
            region: "north".to_owned(),
            zone: "north-1".to_owned(),
            image: "debian".to_owned(),
            instance_type: "small".to_owned(),
            user_data: UserData::new(b"#cloud-config".to_vec()),
            networks: vec!["default".to_owned(), "private".to_owned()],
            labels: texts(&[("a", "b"), ("empty", "")]),
            options: Values::options(options, &texts(given)).unwrap(),
        }
    }

    /// Instances keep their digests, so a digest must not change with a version of the program.
    #[test]
    fn a_digest_is_the_same_forever() {
        let command = Setting::new("command", Kind::Text, "");
        let spec = |given| spec(std::slice::from_ref(&command), given);
        let digest = "v1:4f1e8736e1faa4c7fd8d7d3efe79337e0442c156f90a2ae3f7e858d83e4c2295";
        assert_eq!(spec(&[("command", "init")]).digest(), digest);
        let least =
            InstanceSpec { key: "uid".to_owned(), name: "worker-1".to_owned(), ..InstanceSpec::default() }.digest();
        assert_eq!(least, "v1:50db96ab010d116d779ba02981d3004300f774f28ac119fd0a4538c4895c0853");
    }

    #[test]
    fn an_option_that_is_added_with_a_default_changes_no_digest() {
        let cpus = [Setting::with_default("cpus", Kind::Integer, "1", "")];
        let before = spec(&[], &[]).digest();
        assert_eq!(spec(&cpus, &[]).digest(), before);
        assert_eq!(spec(&cpus, &[("cpus", "1")]).digest(), before);
        assert_ne!(spec(&cpus, &[("cpus", "2")]).digest(), before);
    }

    #[test]
    fn each_field_but_the_cluster_is_in_the_digest() {
        let one = spec(&[], &[]);
        let text = || "other".to_owned();
        let others = [
            InstanceSpec { key: text(), ..one.clone() },
            InstanceSpec { name: text(), ..one.clone() },
            InstanceSpec { region: text(), ..one.clone() },
            InstanceSpec { zone: text(), ..one.clone() },
            InstanceSpec { zone: String::new(), ..one.clone() },
            InstanceSpec { image: text(), ..one.clone() },
            InstanceSpec { instance_type: text(), ..one.clone() },
            InstanceSpec { user_data: UserData::default(), ..one.clone() },
            InstanceSpec { networks: vec!["default".to_owned()], ..one.clone() },
            InstanceSpec { networks: vec!["defaultprivate".to_owned()], ..one.clone() },
            InstanceSpec { labels: BTreeMap::from([("ab".to_owned(), String::new())]), ..one.clone() },
            InstanceSpec { labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]), ..one.clone() },
            // The same texts in two other fields.
            InstanceSpec { region: one.zone.clone(), zone: one.region.clone(), ..one.clone() },
        ];
        let digests: std::collections::BTreeSet<_> = others.iter().chain([&one]).map(InstanceSpec::digest).collect();
        assert_eq!(digests.len(), others.len() + 1);
        assert_eq!(InstanceSpec { cluster: text(), ..one.clone() }.digest(), one.digest());
    }
}
