//! What a cloud has besides instances (pure).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Region {
    /// Its id, unique in the account, also among zones.
    pub id: String,
    /// The name for people.
    pub name: String,
}

/// A zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    /// Its id, unique in the account, also among regions.
    pub id: String,
    /// The name for people.
    pub name: String,
    /// The id of its region.
    pub region: String,
}

/// A kind of the inventory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceKind {
    /// A network.
    Network,
    /// A machine that instances run on.
    Host,
    /// A place for disks.
    Storage,
    /// An image.
    Image,
    /// An instance type.
    InstanceType,
}

impl ResourceKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Network, Self::Host, Self::Storage, Self::Image, Self::InstanceType];

    /// Its word, as in the commands: `instance-type` of `instance-type-list`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Host => "host",
            Self::Storage => "storage",
            Self::Image => "image",
            Self::InstanceType => "instance-type",
        }
    }

    /// Its plural.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Network => "networks",
            Self::Host => "hosts",
            Self::Storage => "storages",
            Self::Image => "images",
            Self::InstanceType => "instance-types",
        }
    }
}

/// One of the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Its global id: of no other one of its kind in any region of the account.
    pub id: String,
    /// The name, by which `create` takes it.
    pub name: String,
    /// The id of its region.
    pub region: String,
    /// Further properties by their names, such as `subnet`.
    pub details: BTreeMap<String, String>,
}

/// What an instance has used. Counters begin at its start. `None`: the cloud does not say it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Processor time in seconds.
    pub processor_seconds: Option<f64>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// The limit of memory in bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Bytes received from networks.
    pub network_received_bytes: Option<u64>,
    /// Bytes sent to networks.
    pub network_sent_bytes: Option<u64>,
    /// Bytes read from disks.
    pub disk_read_bytes: Option<u64>,
    /// Bytes written to disks.
    pub disk_written_bytes: Option<u64>,
}

/// The end of a command inside of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandOutput {
    /// Its exit code.
    pub exit_code: i64,
    /// What it wrote to standard output.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}
