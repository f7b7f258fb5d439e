//! The protocol, version 1 (pure): what a driver is asked, and what it answers. docs/drivers/protocol.md has it for people. Names and
//! meanings never change within a version; fields may be added to answers, which are ignored by older programs.

use std::{collections::BTreeMap, net::IpAddr};

use ccm_base::error::brief;
use ccm_drivers::{
    contract::{
        AccountInfo, Address, AddressKind, CommandOutput, Endpoint, Error, ErrorKind, Instance, Mode, Region, Resource,
        Usage, Zone,
    },
    settings::{Kind, Setting},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

mod call;

pub(crate) use call::{Asked, Call};

/// The version that this program speaks.
pub const VERSION: u32 = 1;

/// What a driver reads from standard input.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(Deserialize, schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    /// The version of the protocol.
    pub(crate) protocol_version: u32,
    /// What is to be done.
    #[serde(flatten)]
    pub(crate) call: Call,
    /// What applies to every operation. Only `describe` does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<Context>,
    /// The values of the driver's own settings, also of those that are defaults, by their names. Only `describe` does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) settings: Option<BTreeMap<String, String>>,
}

/// What applies to every operation, whatever the driver is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize, schemars::JsonSchema), serde(deny_unknown_fields))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Context {
    /// The id of the only account that may be answered for. Without it any account may.
    #[serde(rename = "accountID", skip_serializing_if = "Option::is_none")]
    pub(crate) account_id: Option<String>,
    /// The driver is stopped after this time, in seconds. 0 means that it is not.
    pub(crate) timeout_seconds: u64,
    /// Nothing may be changed. Operations that change something are not called.
    pub(crate) read_only: bool,
    /// The URL of the HTTP proxy by which the cloud is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) proxy: Option<String>,
    /// What is reached without the proxy: hosts, domains and networks, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) no_proxy: Option<String>,
    /// The path of a file of certificates in PEM. The cloud is only trusted if one of them has signed its certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ca_bundle: Option<String>,
}

/// What a driver writes to standard output. It has either `result` or `error`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    /// The id of the account that has answered.
    pub(crate) account: Option<String>,
    /// The result of the operation.
    pub(crate) result: Option<Box<RawValue>>,
    /// Why there is no result.
    pub(crate) error: Option<Failure>,
}

/// The part of an answer that every version of the protocol has.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Version {
    /// The version of the protocol.
    pub(crate) protocol_version: Option<serde_json::Value>,
}

/// Why an operation failed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Failure {
    /// The class of the error.
    #[cfg_attr(test, schemars(with = "schema::Class"))]
    pub(crate) class: String,
    /// What failed, on which object, why, and what to do. Without secrets.
    pub(crate) message: String,
    /// Required with `NotFound`: exactly the id, providerID, region or zone that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<String>,
    /// Required with `InvalidArgument`: the field that is wrong, such as `image`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// With `RateLimited`: how long the cloud asks to wait, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after_seconds: Option<u32>,
    /// The id of the instance that a failed `instance-create` has made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<String>,
}

/// The result of `describe`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Described {
    /// The name of the driver: that of its file without its extension.
    pub(crate) name: String,
    /// The version of the driver, for logs.
    pub(crate) version: String,
    /// One sentence for the help.
    pub(crate) summary: String,
    /// The driver's own settings.
    #[serde(default)]
    pub(crate) settings: Vec<Declared>,
    /// The options of `instance-create`.
    #[serde(default)]
    pub(crate) options: Vec<Declared>,
    /// What the driver can do: `instances`, `networks`, `hosts`, `storages`, `images`, `instance-types`, `metrics`, `run-command`, and how.
    /// It always has `account` and `topology`. Unknown names are ignored.
    #[serde(default)]
    pub(crate) capabilities: BTreeMap<String, Advertised>,
    /// The text that stands before the ids of regions and zones where those of several clouds stand together, such as `libvirt/`.
    pub(crate) id_prefix: String,
}

/// How a driver has a capability.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Advertised {
    /// Nothing can be changed.
    read_only: bool,
    /// The cloud has no such thing, and the driver answers as if it had one.
    emulated: bool,
}

impl From<Advertised> for Mode {
    fn from(Advertised { read_only, emulated }: Advertised) -> Self {
        Self { read_only, emulated }
    }
}

/// The declaration of a setting, or of an option.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Declared {
    /// Its name in camelCase, such as `certPath`. Its flag and its variable follow from it.
    name: String,
    /// The type of its values. They are texts in any case.
    #[serde(rename = "type")]
    #[cfg_attr(test, schemars(with = "schema::Kind"))]
    kind: Kind,
    /// The value if none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<String>,
    /// Whether a value has to be given.
    #[serde(default)]
    required: bool,
    /// Whether the value belongs into a Secret, and into no output.
    #[serde(default)]
    secret: bool,
    /// One or two sentences for the help.
    help: String,
}

impl Declared {
    /// The declaration as those of built-in drivers are. `clean` makes texts fit for a terminal.
    pub(crate) fn setting(self, clean: impl Fn(&str) -> String) -> Setting {
        let Self { name, kind, default, required, secret, help } = self;
        Setting {
            name: name.into(),
            kind,
            default: default.map(Into::into),
            required,
            secret,
            help: clean(&help).into(),
        }
    }
}

/// A place that a driver connects to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) enum Place {
    /// A host and a port.
    Tcp {
        /// The name or the address of the host.
        host: String,
        /// The port.
        port: u16,
    },
    /// The path of a socket.
    Unix(String),
}

impl From<&Endpoint> for Place {
    fn from(endpoint: &Endpoint) -> Self {
        match endpoint {
            Endpoint::Tcp(host, port) => Self::Tcp { host: host.clone(), port: *port },
            Endpoint::Unix(path) => Self::Unix(path.to_string_lossy().into_owned()),
        }
    }
}

impl From<Place> for Endpoint {
    fn from(place: Place) -> Self {
        match place {
            Place::Tcp { host, port } => Self::Tcp(host, port),
            Place::Unix(path) => Self::Unix(path.into()),
        }
    }
}

/// The result of `endpoint`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub(crate) struct Connects {
    /// The place that the driver connects to with these settings; null if there is none, or several.
    pub(crate) endpoint: Option<Place>,
    /// The settings that change so that the driver reaches the same cloud by the place `through`.
    #[serde(default)]
    pub(crate) settings: BTreeMap<String, String>,
}

/// A result that says no more than that it is done.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Done {}

/// The result of an operation that lists or shows. Each has one field, which is named after what it has.
macro_rules! results {
    ($($(#[$doc:meta])* $name:ident { $field:ident: $type:ty as $schema:literal })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub(crate) struct $name {
            /// What was asked for.
            #[cfg_attr(test, schemars(with = $schema))]
            pub(crate) $field: $type,
        }
    )*};
}

results! {
    /// The result of `region-list`.
    Regions { regions: Vec<Region> as "Vec<schema::Region>" }
    /// The result of `zone-list`.
    Zones { zones: Vec<Zone> as "Vec<schema::Zone>" }
    /// The result of `instance-list`.
    Instances { instances: Vec<Instance> as "Vec<schema::Instance>" }
    /// The result of `instance-show` and of `instance-create`.
    One { instance: Instance as "schema::Instance" }
    /// The result of the lists of the inventory.
    Resources { resources: Vec<Resource> as "Vec<schema::Resource>" }
}

/// What is known of the results of operations.
pub(crate) trait Outcome: for<'de> Deserialize<'de> {
    /// Whether the answer has to say which account it is of.
    const HAS_ACCOUNT: bool = true;

    /// The account that the result names.
    fn account(&self) -> Option<&str> {
        None
    }

    /// What is wrong with a value that has the right type, beginning with its path.
    fn problem(&self) -> Option<String> {
        None
    }
}

impl Outcome for Described {
    const HAS_ACCOUNT: bool = false;
}

impl Outcome for Connects {
    const HAS_ACCOUNT: bool = false;
}

impl Outcome for AccountInfo {
    fn account(&self) -> Option<&str> {
        Some(&self.id)
    }
}

impl Outcome for Done {}
impl Outcome for Regions {}
impl Outcome for Zones {}
impl Outcome for Resources {}
impl Outcome for Usage {}
impl Outcome for CommandOutput {}

impl Outcome for Instances {
    fn problem(&self) -> Option<String> {
        let mut all = self.instances.iter().enumerate();
        all.find_map(|(index, instance)| no_ip_address(&format!("instances[{index}]"), instance))
    }
}

impl Outcome for One {
    fn problem(&self) -> Option<String> {
        no_ip_address("instance", &self.instance)
    }
}

/// Names the first IP address of an instance that is none. It would be written to the Node.
fn no_ip_address(path: &str, instance: &Instance) -> Option<String> {
    let is_wrong = |one: &Address| {
        matches!(one.kind, AddressKind::InternalIP | AddressKind::ExternalIP) && one.address.parse::<IpAddr>().is_err()
    };
    let (index, wrong) = instance.addresses.iter().enumerate().find(|(_, one)| is_wrong(one))?;
    Some(format!("{path}.addresses[{index}].address {:?} is no IP address", brief(&wrong.address)))
}

impl Failure {
    /// The error of this failure, with the message that is fit for output. Fails with what is wrong with it.
    pub(crate) fn error(self, message: String) -> Result<Error, String> {
        let Self { class, field, retry_after_seconds, instance, .. } = self;
        let after = retry_after_seconds.map(|seconds| std::time::Duration::from_secs(seconds.into()));
        let kind = match class.as_str() {
            "NotFound" => ErrorKind::NotFound,
            "AlreadyExists" => ErrorKind::AlreadyExists,
            "InvalidCredentials" => ErrorKind::InvalidCredentials,
            "Forbidden" => ErrorKind::Forbidden,
            "InvalidArgument" => match field.filter(|field| !field.is_empty()) {
                Some(field) => ErrorKind::InvalidArgument(field),
                None => return Err(format!("InvalidArgument without error.field, the field that is wrong: {message}")),
            },
            "NotSupported" => ErrorKind::NotSupported,
            "ReadOnly" => ErrorKind::ReadOnly,
            "RateLimited" => ErrorKind::RateLimited(after),
            "Timeout" => ErrorKind::Timeout,
            "Unavailable" => ErrorKind::Unavailable,
            "Internal" => ErrorKind::Internal,
            _ => return Err(format!("an error of the unknown class {:?}: {message}", brief(&class))),
        };
        let error = Error::new(kind, message);
        Ok(match instance.filter(|id| !id.is_empty()) {
            Some(id) => error.after(id),
            None => error,
        })
    }
}

#[cfg(test)]
mod schema;

#[cfg(test)]
mod tests;
