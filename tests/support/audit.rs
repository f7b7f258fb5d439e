//! The API server's audit log as a list of requests: what a client really sent, as the server received it.
//!
//! Even in blocking mode the line of a request may follow its answer a moment later: see [`AuditLog::mark_after`].

use std::{
    collections::HashSet,
    fs::{self, File},
    io::{ErrorKind, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use serde::Deserialize;

use super::eventually;

/// The audit log of one control plane.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
}

/// A point in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

/// One request. Fields that do not apply are empty.
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
    /// The user, the impersonated one if there is one; a `ServiceAccount` is `system:serviceaccount:<namespace>:<name>`.
    pub user: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// When the server received it.
    pub at: Timestamp,
    /// Whether the request was a dry run.
    pub dry_run: bool,
}

impl AuditLog {
    /// The log in the file `path`, which need not exist yet.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
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

    /// The end of the log, after the line of every request that has been answered: sends a request with `client` and
    /// waits for its line.
    pub async fn mark_after(&self, client: &Client) -> Result<Mark> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let uri = format!("/version?mark={}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let from = self.mark()?;
        client.request_text(http::Request::get(&uri).body(Vec::new())?).await?;
        let quoted = format!("\"{uri}\"");
        eventually("the line of a request in the audit log", Duration::from_secs(60), async || {
            let text = String::from_utf8(self.read(from)?)?;
            let end = text.find(&quoted).and_then(|at| Some(at + text[at..].find('\n')? + 1));
            Ok(end.map(u64::try_from).transpose()?.map(|end| Mark(from.0 + end)))
        })
        .await
    }

    /// The log from a mark on.
    fn read(&self, from: Mark) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        let mut file = File::open(&self.path).with_context(|| format!("failed to open {}", self.path.display()))?;
        file.seek(SeekFrom::Start(from.0))?;
        file.read_to_end(&mut text)?;
        Ok(text)
    }

    /// The requests of a `ServiceAccount` after `mark`, with all that have been answered.
    pub async fn of_account(
        &self,
        client: &Client,
        mark: Mark,
        (namespace, name): (&str, &str),
    ) -> Result<Vec<Request>> {
        self.mark_after(client).await?;
        Ok(by_user(self.since(mark)?, &account(namespace, name)))
    }

    /// The requests logged after `mark`, each once, without a line that is still being written.
    pub fn since(&self, mark: Mark) -> Result<Vec<Request>> {
        // One byte earlier: a mark inside a line excludes that line, and a mark between two lines follows a newline.
        let text = self.read(Mark(mark.0.saturating_sub(1)))?;
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
    /// Whether the request was refused; a read of an object that does not exist is not refused.
    pub fn is_refused(&self) -> bool {
        self.code >= 400 && !(self.verb == "get" && self.code == 404)
    }

    /// Whether the request changes an object.
    pub fn is_write(&self) -> bool {
        !self.dry_run && matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether the request belongs to leader election.
    pub fn is_lease(&self) -> bool {
        self.group == "coordination.k8s.io" && self.resource == "leases"
    }

    /// Whether the request is for an Event, of either API.
    pub fn is_event(&self) -> bool {
        self.resource == "events" && matches!(self.group.as_str(), "" | "events.k8s.io")
    }

    /// Whether the request is a successful write, neither of a Lease nor of an Event.
    pub fn counts_as_write(&self) -> bool {
        self.is_write() && !self.is_lease() && !self.is_event() && self.code < 400
    }
}

/// The user name of a `ServiceAccount`.
pub fn account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The requests of one user.
pub fn by_user(requests: Vec<Request>, user: &str) -> Vec<Request> {
    requests.into_iter().filter(|request| request.user == user).collect()
}

/// The fields of an `audit.k8s.io/v1` Event that are read.
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
    /// Absent where nobody was recognized.
    #[serde(default)]
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
    /// Whether the entry is the end of a watch, which may follow a later mark. The watch is counted when its answer begins.
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
