//! The objects of a test. They are created and never applied, so that existing objects remain unchanged, and they are removed.

use std::time::Duration;

use anyhow::Context;
use kube::{
    Client,
    api::{DeleteParams, PostParams, Preconditions},
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    cluster::{
        read,
        request::{self, Cause, NO_DEADLINE, api, describe_objects},
    },
    error::chain,
    nodes::observed::sanitized,
    object::Kind,
    plan::kubernetes::trial::LABEL,
    status::trial::LeftoverObject,
    text::kubectl::Access,
};

/// The time limit of the removal: a pod may take half a minute to terminate, and its namespace terminates after it.
const LONGEST: Duration = Duration::from_secs(120);

/// The interval between two checks whether an object is gone.
const PAUSE: Duration = Duration::from_millis(500);

/// An object that was created, or may have been created.
pub(super) struct CreatedObject {
    kind: &'static Kind,
    namespace: String,
    name: String,
    /// Whether the object has the test's label. A lease has none, because pods create it.
    is_labeled: bool,
    /// The reason why the object still exists.
    why: String,
    /// Whether another attempt to delete it cannot succeed.
    is_refused: bool,
}

impl CreatedObject {
    fn new(kind: &'static Kind, namespace: &str, name: &str, is_labeled: bool) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { kind, namespace, name, is_labeled, why: "nobody has tried".to_owned(), is_refused: false }
    }

    fn title(&self) -> String {
        describe_objects(self.kind, &self.namespace, &self.name)
    }

    fn left(&self, access: &Access) -> LeftoverObject {
        let Self { kind, namespace, name, .. } = self;
        let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
        let place = if namespace.is_empty() { String::new() } else { format!(" --namespace {namespace}") };
        let command = format!("{} delete {}{group} {name}{place}", access.kubectl(), kind.plural);
        LeftoverObject { object: self.title(), why: self.why.clone(), command }
    }
}

pub(super) struct Objects<'a> {
    client: &'a Client,
    test: &'a str,
    made: Vec<CreatedObject>,
}

impl<'a> Objects<'a> {
    pub(super) fn new(client: &'a Client, test: &'a str) -> Self {
        Self { client, test, made: Vec::new() }
    }

    /// Creates an object. Fails if an object with its name exists.
    pub(super) async fn create(&mut self, kind: &'static Kind, manifest: &Value) -> anyhow::Result<()> {
        let text = |field: &str| manifest["metadata"][field].as_str().unwrap_or_default();
        let one = CreatedObject::new(kind, text("namespace"), text("name"), true);
        let what = one.title();
        let object = serde_json::from_value(manifest.clone()).with_context(|| format!("failed to write {what}"))?;
        // Recorded before the request, because the response may be lost.
        self.made.push(one);
        let params = PostParams { field_manager: Some("ccm-operator".to_owned()), ..PostParams::default() };
        let objects = api(self.client, kind, text("namespace"));
        let sent = request::send(NO_DEADLINE, objects.create(&params, &object)).await;
        if sent.as_ref().is_err_and(|cause| (400..500).contains(&cause.code())) {
            // The request was refused, so any existing object is not the test's.
            self.made.pop();
        }
        sent.with_context(|| format!("failed to create {what}"))?;
        Ok(())
    }

    /// Also removes an object that pods create under this name.
    pub(super) fn also(&mut self, kind: &'static Kind, namespace: &str, name: &str) {
        self.made.push(CreatedObject::new(kind, namespace, name, false));
    }

    pub(super) fn len(&self) -> usize {
        self.made.len()
    }

    /// Removes all objects, the last one first; those that cannot be removed stay in the list.
    pub(super) async fn remove(&mut self) {
        let deadline = Instant::now() + LONGEST;
        loop {
            for index in (0..self.made.len()).rev() {
                let gone = remove_one(self.client, self.test, &self.made[index]).await;
                let one = &mut self.made[index];
                match gone {
                    Ok(None) => drop(self.made.remove(index)),
                    Ok(Some(why)) => one.why = why,
                    Err(error) => {
                        one.why = sanitized(&chain(&error));
                        one.is_refused = matches!(&error, read::Error::Read { source, .. } if source.is_terminal());
                    }
                }
            }
            if self.made.iter().all(|one| one.is_refused) || Instant::now() >= deadline {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns the remaining objects, each with the command that deletes it.
    pub(super) fn left(&self, access: &Access) -> Vec<LeftoverObject> {
        self.made.iter().rev().map(|one| one.left(access)).collect()
    }
}

/// Removes an object if it is the test's. Returns `None` once it is gone, else the reason why it still exists.
async fn remove_one(client: &Client, test: &str, one: &CreatedObject) -> Result<Option<String>, read::Error> {
    let CreatedObject { kind, namespace, name, is_labeled, .. } = one;
    let Some(live) = read::get(client, kind, namespace, name).await? else { return Ok(None) };
    if *is_labeled && live["metadata"]["labels"][LABEL] != test {
        return Ok(None);
    }
    if live["metadata"]["deletionTimestamp"].is_string() {
        let conditions = live["status"]["conditions"].as_array().into_iter().flatten();
        let open = conditions.filter(|one| one["status"] == "True").filter_map(|one| one["message"].as_str());
        let open: Vec<_> = open.map(sanitized).collect();
        let open = if kind.kind == "Namespace" { open.join("; ") } else { String::new() };
        return Ok(Some(format!("is still being deleted{}{open}", if open.is_empty() { "" } else { ": " })));
    }
    let preconditions =
        Preconditions { uid: live["metadata"]["uid"].as_str().map(ToOwned::to_owned), resource_version: None };
    // Foreground deletion removes a workload only after its pods.
    let has_pods = matches!(kind.kind, "Deployment" | "DaemonSet");
    let params = if has_pods { DeleteParams::foreground() } else { DeleteParams::default() };
    let params = params.preconditions(preconditions);
    match request::send(NO_DEADLINE, api(client, kind, namespace).delete(name, &params)).await {
        Ok(_) => Ok(Some("its deletion was requested".to_owned())),
        Err(cause) if cause.is_absent() || cause.is_conflict() => Ok(Some("has changed".to_owned())),
        Err(source) => Err(read::Error::Read { what: describe_objects(kind, namespace, name), source }),
    }
}

pub(super) fn may_pass(error: &read::Error) -> bool {
    matches!(error, read::Error::Read { source: Cause::Timeout, .. }) || !error.is_an_answer()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::{
        Router,
        extract::State,
        http::{Method, StatusCode, Uri},
    };
    use serde_json::json;

    use super::*;
    use crate::object::{NAMESPACE, reference::SECRET};

    /// The objects of the API server, and the writes that it has received.
    type Server = Arc<Mutex<(Vec<Value>, Vec<String>)>>;

    /// Already has a namespace that is not the test's, and stores a Secret but responds with a timeout.
    async fn answer(State(server): State<Server>, method: Method, uri: Uri) -> (StatusCode, String) {
        let name = uri.path().rsplit('/').next().unwrap_or_default().to_owned();
        let (objects, asked) = &mut *server.lock().unwrap();
        let status = |code: StatusCode, reason: &str| {
            let body =
                json!({"kind": "Status", "status": "Failure", "message": "", "reason": reason, "code": code.as_u16()});
            (code, body.to_string())
        };
        if method != Method::GET {
            asked.push(format!("{method} {name}"));
        }
        let found = objects.iter().position(|one| one["metadata"]["name"] == name.as_str());
        match (method.as_str(), found) {
            ("POST", _) if name == "namespaces" => status(StatusCode::CONFLICT, "AlreadyExists"),
            ("POST", _) => status(StatusCode::GATEWAY_TIMEOUT, "Timeout"),
            (_, None) => status(StatusCode::NOT_FOUND, "NotFound"),
            ("DELETE", Some(at)) => (StatusCode::OK, objects.remove(at).to_string()),
            (_, Some(at)) => (StatusCode::OK, objects[at].to_string()),
        }
    }

    #[tokio::test]
    async fn what_others_have_made_stays_and_what_was_made_without_an_answer_goes() {
        let object = |kind: &str, name: &str, labels: Value| {
            json!({"apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "uid": "1", "labels": labels}})
        };
        let has = vec![object("Namespace", "t", json!({})), object("Secret", "made", json!({LABEL: "t"}))];
        let server = Server::new(Mutex::new((has, Vec::new())));
        let client = Client::new(Router::new().fallback(answer).with_state(server.clone()), "own");
        let mut objects = Objects::new(&client, "t");
        let labeled = |name: &str, namespace: Option<&str>| {
            json!({"apiVersion": "v1",
            "metadata": {"name": name, "namespace": namespace, "labels": {LABEL: "t"}}})
        };
        let error = objects.create(&NAMESPACE, &labeled("t", None)).await.unwrap_err();
        assert_eq!(error.to_string(), "failed to create namespaces t");
        assert_eq!(objects.len(), 0, "it is not the test's");
        objects.create(&SECRET, &labeled("made", Some("t"))).await.unwrap_err();
        // The missing label protects the namespace even if it is in the list.
        objects.made.push(CreatedObject::new(&NAMESPACE, "", "t", true));
        objects.remove().await;
        assert_eq!(objects.left(&Access::default()), []);
        let (left, asked) = &*server.lock().unwrap();
        assert_eq!(asked, &["POST namespaces", "POST secrets", "DELETE made"]);
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
