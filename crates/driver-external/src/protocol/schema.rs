//! Types of the contract and of settings as the schemas have them. The crates that own them have no schemas; a test holds that both are
//! written alike.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The class of an error, which decides what the caller does.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) enum Class {
    /// The account was looked at, and does not have it. The only class that may lead to a deletion.
    NotFound,
    /// There is another one of the same name or key.
    AlreadyExists,
    /// The credentials are wrong or have ended, or belong to another account than `accountID`.
    InvalidCredentials,
    /// The credentials are right, and do not allow it; or others have made the instance.
    Forbidden,
    /// A field of the request is wrong.
    InvalidArgument,
    /// The driver or the cloud cannot do it.
    NotSupported,
    /// The account is read-only.
    ReadOnly,
    /// Too many requests.
    RateLimited,
    /// No answer in time. It may have happened all the same.
    Timeout,
    /// The cloud was not reached, or cannot answer now.
    Unavailable,
    /// A fault of the driver or of the cloud.
    Internal,
}

/// The type of a setting.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A whole number that is not negative.
    Integer,
    /// A duration such as `1m30s`.
    Duration,
    /// Texts separated by commas.
    List,
    /// The path of a file or a folder.
    Path,
}

/// An instance, as the cloud has it now.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "the names of the protocol")]
#[serde(rename_all = "camelCase")]
pub(super) struct Instance {
    /// Its id: of no other instance in any region of the account, now or ever.
    id: String,
    /// The `spec.providerID` of its Node.
    #[serde(rename = "providerID")]
    provider_id: String,
    /// Its name.
    name: String,
    /// The id of its region.
    region: String,
    /// The id of its zone.
    zone: String,
    /// Its state.
    state: State,
    /// The image that it was made of.
    image: String,
    /// Its instance type; empty if the cloud has none.
    instance_type: String,
    /// Its addresses.
    addresses: Vec<Address>,
    /// Its labels, without those that begin with `ccm-operator.dev/`.
    labels: BTreeMap<String, String>,
    /// The key of `instance-create`, as it was kept with the instance; missing for an instance that others have made.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// The cluster of `instance-create`, as it was kept with the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster: Option<String>,
    /// When it was made, such as `2026-11-28T08:00:00Z`; empty if the cloud does not say it.
    created: String,
}

/// The state of an instance. In each of them it exists.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum State {
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
    /// Something that the cloud has a word for, and this protocol has not.
    Unknown,
}

/// An address of an instance.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct Address {
    /// Its type.
    #[serde(rename = "type")]
    kind: AddressKind,
    /// The address.
    address: String,
}

/// The type of an address, with the names of Kubernetes.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
enum AddressKind {
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

/// A region. No zone of the account has its id.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Region {
    /// Its id.
    id: String,
    /// The name for people.
    name: String,
}

/// A zone. No region of the account has its id.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Zone {
    /// Its id.
    id: String,
    /// The name for people.
    name: String,
    /// The id of its region.
    region: String,
}

/// One of the inventory.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct Resource {
    /// Its global id: of no other one of its kind in any region of the account.
    id: String,
    /// The name, by which `instance-create` takes it.
    name: String,
    /// The id of its region.
    region: String,
    /// Further properties by their names, such as `subnet`.
    details: BTreeMap<String, String>,
}

/// The result of `account-show`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Account {
    /// The id of the account: the same for as long as it exists, and of no other account of this kind of cloud. The same as `account`.
    id: String,
    /// The name that people give to it, or an empty text.
    name: String,
    /// Parts of the account with instances of their own; empty if it has none.
    sub_accounts: Vec<SubAccount>,
}

/// A part of an account.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
struct SubAccount {
    /// Its id.
    id: String,
    /// Its name.
    name: String,
}

/// The result of `instance-metrics`. Counters begin at the start of the instance. What is null or missing the cloud does not say.
#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Usage {
    /// Processor time in seconds.
    processor_seconds: Option<f64>,
    /// Memory in bytes.
    memory_bytes: Option<u64>,
    /// The limit of memory in bytes.
    memory_limit_bytes: Option<u64>,
    /// Bytes received from networks.
    network_received_bytes: Option<u64>,
    /// Bytes sent to networks.
    network_sent_bytes: Option<u64>,
    /// Bytes read from disks.
    disk_read_bytes: Option<u64>,
    /// Bytes written to disks.
    disk_written_bytes: Option<u64>,
}

/// The result of `instance-run`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommandOutput {
    /// The exit code of the command.
    exit_code: i64,
    /// What it wrote to standard output.
    stdout: String,
    /// What it wrote to standard error.
    stderr: String,
}

/// The result of the operation that was asked for.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum AnyResult {
    Described(super::Described),
    Connects(super::Connects),
    Account(Account),
    Regions(super::Regions),
    Zones(super::Zones),
    Instances(super::Instances),
    One(super::One),
    Resources(super::Resources),
    Usage(Usage),
    CommandOutput(CommandOutput),
    Done(super::Done),
}

/// What a driver writes to standard output: one JSON object with either `result` or `error`. Fields that are not in this schema are
/// ignored.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct Answer {
    /// The version of the protocol: 1.
    protocol_version: u32,
    /// The id of the account that has answered. Required in every result but those of `describe` and `endpoint`, and with `NotFound`.
    account: Option<String>,
    /// The result of the operation.
    result: Option<AnyResult>,
    /// Why there is no result.
    error: Option<super::Failure>,
}
