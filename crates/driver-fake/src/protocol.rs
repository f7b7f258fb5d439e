//! The protocol of the fake cloud (pure): one request or answer is one line of JSON. A client writes a [`Request`] and reads an
//! [`Answer`]. The first request of each connection is a login.
//!
//! ```text
//! {"action":"login","token":"fake-token"}
//! {"result":{"id":"acct-8d7c6c3a1e0b5f42","name":"fake"}}
//! {"action":"get-instance","id":"i-0"}
//! {"error":{"code":"not-found","message":"there is no instance \"i-0\""}}
//! ```

use std::collections::BTreeMap;

use ccm_drivers::contract::ResourceKind;
use serde::{Deserialize, Serialize};

/// The maximum number of bytes of a line.
pub const MAX_LINE: usize = 16 << 20;

/// The maximum number of bytes of user data.
pub const MAX_USER_DATA: usize = 64 << 10;

/// What the cloud can be asked. It has no `Debug`, because it has the token and user data.
#[derive(Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Request {
    /// Begins a session, and returns the [`Account`] of a token.
    Login {
        /// The token.
        token: String,
    },
    /// Lists the regions.
    ListRegions,
    /// Lists the zones.
    ListZones {
        /// Only those of this region.
        region: Option<String>,
    },
    /// Lists resources.
    ListResources {
        /// Their kind.
        kind: ResourceKind,
        /// Only those of this region.
        region: Option<String>,
    },
    /// Lists the [`Instance`]s that fit.
    ListInstances(Query),
    /// Returns an [`Instance`].
    GetInstance {
        /// Its whole id.
        id: String,
    },
    /// Makes an [`Instance`], and does not start it.
    CreateInstance(NewInstance),
    /// Starts an instance, and returns it.
    StartInstance {
        /// Its whole id.
        id: String,
    },
    /// Stops an instance, and returns it.
    StopInstance {
        /// Its whole id.
        id: String,
    },
    /// Deletes an instance.
    DeleteInstance {
        /// Its whole id.
        id: String,
    },
    /// Changes labels of an instance, and returns it.
    LabelInstance {
        /// Its whole id.
        id: String,
        /// The labels. `null` removes one.
        labels: BTreeMap<String, Option<String>>,
    },
    /// Returns what an instance uses.
    GetUsage {
        /// Its whole id.
        id: String,
    },
    /// Runs a command inside of an instance that runs.
    RunCommand {
        /// Its whole id.
        id: String,
        /// The command and its arguments.
        command: Vec<String>,
    },
}

impl Request {
    /// The name of the request, as in the protocol.
    pub const fn action(&self) -> &'static str {
        match self {
            Self::Login { .. } => "login",
            Self::ListRegions => "list-regions",
            Self::ListZones { .. } => "list-zones",
            Self::ListResources { .. } => "list-resources",
            Self::ListInstances(_) => "list-instances",
            Self::GetInstance { .. } => "get-instance",
            Self::CreateInstance(_) => "create-instance",
            Self::StartInstance { .. } => "start-instance",
            Self::StopInstance { .. } => "stop-instance",
            Self::DeleteInstance { .. } => "delete-instance",
            Self::LabelInstance { .. } => "label-instance",
            Self::GetUsage { .. } => "get-usage",
            Self::RunCommand { .. } => "run-command",
        }
    }
}

/// The answer to a request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<T> {
    /// What was asked for; `null` where there is nothing to return.
    Result(T),
    /// Why there is no result.
    Error(Failure),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// The class.
    pub code: Code,
    /// What failed, for people.
    pub message: String,
    /// The field of the request that is wrong or in conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// The class of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// It does not exist.
    NotFound,
    /// Another instance has the same key or name.
    Conflict,
    /// The token is wrong, or there was no login.
    Unauthorized,
    /// The account may only read.
    Forbidden,
    /// A field of the request is wrong.
    Invalid,
    /// The cloud failed. Codes that a client does not know mean the same.
    #[serde(other)]
    Internal,
}

/// The account of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// Which instances to list. All that is given has to fit.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Query {
    /// The id of a region.
    pub region: Option<String>,
    /// The id of a zone.
    pub zone: Option<String>,
    /// The whole name.
    pub name: Option<String>,
    /// Labels with these values.
    pub labels: BTreeMap<String, String>,
}

/// What an instance is made of. It has no `Debug`, because it has user data.
#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NewInstance {
    /// No two instances have the same key. An instance may have none.
    #[serde(default)]
    pub key: Option<String>,
    /// No two instances have the same name.
    pub name: String,
    /// The id of a region; empty for the one of the zone, or for the first one.
    #[serde(default)]
    pub region: String,
    /// The id of a zone; empty for the first one of the region.
    #[serde(default)]
    pub zone: String,
    /// The name of an image.
    pub image: String,
    /// The name of an instance type.
    pub instance_type: String,
    /// The names of networks. The instance gets an address of each.
    pub networks: Vec<String>,
    /// The number of processors; that of the instance type if it is not given.
    #[serde(default)]
    pub cpus: Option<u64>,
    /// The bytes of the user data in hexadecimal digits, at most [`MAX_USER_DATA`] bytes.
    #[serde(default)]
    pub user_data: String,
    /// The labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// The state of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is made, and was never started.
    Created,
    /// It runs.
    Running,
    /// It was stopped.
    Stopped,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

/// An instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// `i-` and 16 hexadecimal digits, which no other instance ever has.
    pub id: String,
    /// Its key, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Its name.
    pub name: String,
    /// The id of its region.
    pub region: String,
    /// The id of its zone.
    pub zone: String,
    /// Its state.
    pub state: State,
    /// The name of its image.
    pub image: String,
    /// The name of its instance type.
    pub instance_type: String,
    /// The number of its processors.
    pub cpus: u64,
    /// The names of its networks.
    pub networks: Vec<String>,
    /// Its address in each network.
    pub addresses: Vec<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// When it was made, in RFC 3339.
    pub created: String,
}
