//! The API server's audit log as a list of requests: what a client really asked for, as the server saw it.
//!
//! Reads only. The log is written in blocking mode, yet the line of a request may come a moment after its answer: a
//! test that expects a request waits for it, a test that expects none leaves it some time.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File},
    io::{ErrorKind, Read, Seek, SeekFrom},
    path::PathBuf,
};

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;

/// The audit log of one control plane.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
}

/// A point in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

/// One request. What does not apply to it is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `update`, `patch` (server-side apply too), `delete`, `deletecollection`.
    pub verb: String,
    /// The plural, `configmaps`; empty for paths such as `/readyz`.
    pub resource: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// `status`, `token`, ...
    pub subresource: String,
    /// The object's namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Who asked; for `ServiceAccounts` `system:serviceaccount:<namespace>:<name>`. With impersonation, the one acted as.
    pub user: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// When the server received it.
    pub at: Timestamp,
    /// Whether it was only tried.
    pub dry_run: bool,
}

impl AuditLog {
    /// The log in the file `path`, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The end of the log as it is now.
    pub fn mark(&self) -> Result<Mark> {
        match fs::metadata(&self.path) {
            Ok(metadata) => Ok(Mark(metadata.len())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Mark(0)),
            Err(error) => Err(error).with_context(|| format!("failed to read {}", self.path.display())),
        }
    }

    /// Every request, each once.
    pub fn all(&self) -> Result<Vec<Request>> {
        self.since(Mark(0))
    }

    /// The requests logged after `mark`, each once. A line that is still being written is left for the next read.
    pub fn since(&self, mark: Mark) -> Result<Vec<Request>> {
        let mut text = Vec::new();
        // One byte earlier: a mark inside a line, taken while it was written, leaves that line out, and the newline
        // before a mark between two lines is an empty rest of a line.
        let start = mark.0.saturating_sub(1);
        let mut file = File::open(&self.path).with_context(|| format!("failed to open {}", self.path.display()))?;
        file.seek(SeekFrom::Start(start))?;
        file.read_to_end(&mut text)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let lines = text[..whole].split_inclusive(|byte| *byte == b'\n').skip(usize::from(mark.0 > 0));

        let mut seen = HashSet::new();
        let mut requests = Vec::new();
        for line in lines {
            let event: Event = serde_json::from_slice(line).context("failed to parse a line of the audit log")?;
            if !event.ends_a_watch() && seen.insert(event.audit_id.clone()) {
                requests.push(event.into());
            }
        }
        Ok(requests)
    }
}

impl Request {
    /// Whether it changes something.
    pub fn is_write(&self) -> bool {
        !self.dry_run && matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether it is about leader election.
    pub fn is_lease(&self) -> bool {
        self.group == "coordination.k8s.io" && self.resource == "leases"
    }

    /// Whether it is about an event, of either API.
    pub fn is_event(&self) -> bool {
        self.resource == "events" && matches!(self.group.as_str(), "" | "events.k8s.io")
    }
}

/// The requests of one user.
pub fn by_user(requests: Vec<Request>, user: &str) -> Vec<Request> {
    requests.into_iter().filter(|request| request.user == user).collect()
}

/// How many requests there are of each verb.
pub fn count_by_verb(requests: &[Request]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(request.verb.as_str()).or_default() += 1;
    }
    counts
}

/// What is read of an `audit.k8s.io/v1` Event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    request_received_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ObjectRef {
    resource: String,
    api_group: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseStatus {
    code: u16,
}

impl Event {
    /// A watch was counted when its answer began; that it ends may be logged after a later mark.
    fn ends_a_watch(&self) -> bool {
        self.stage == "ResponseComplete" && self.verb == "watch" && self.response_status.code == 200
    }
}

impl From<Event> for Request {
    fn from(event: Event) -> Self {
        Self {
            verb: event.verb,
            resource: event.object_ref.resource,
            group: event.object_ref.api_group,
            subresource: event.object_ref.subresource,
            namespace: event.object_ref.namespace,
            name: event.object_ref.name,
            user: event.impersonated_user.unwrap_or(event.user).username,
            code: event.response_status.code,
            at: event.request_received_timestamp,
            dry_run: event.request_uri.contains("dryRun=All"),
        }
    }
}
