//! A stand-in for an API server: namespaces and lists of pods, as the sweep reads them.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

/// What is answered to one read of all pods.
#[derive(Clone)]
pub(crate) enum Pods {
    /// Pages of UIDs.
    Pages(Vec<Vec<&'static str>>),
    /// A first page, and then a failure with this code.
    FailsWith(u16),
    /// This answer.
    Raw(&'static str),
}

/// The requests in order, and what is still to be answered.
#[derive(Default)]
struct State {
    cluster: VecDeque<&'static str>,
    pods: VecDeque<Pods>,
    requests: Vec<String>,
    before_second_read: Option<Box<dyn FnOnce() + Send>>,
}

/// The stand-in. Its last answers are repeated.
pub(crate) struct ApiServer {
    state: Arc<Mutex<State>>,
    address: String,
}

impl ApiServer {
    /// Serves ids of the cluster and reads of pods, one after the other.
    pub(crate) fn new(cluster: &[&'static str], pods: &[Pods]) -> Self {
        let state = State {
            cluster: cluster.iter().copied().collect(),
            pods: pods.iter().cloned().collect(),
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, shared) = (listener.local_addr().unwrap().to_string(), state.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let shared = shared.clone();
                thread::spawn(move || serve(client.unwrap(), &shared));
            }
        });
        Self { state, address }
    }

    /// Writes a kubeconfig for it.
    pub(crate) fn write_kubeconfig(&self, path: &Path) {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.address)}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        });
        std::fs::write(path, config.to_string()).unwrap();
    }

    /// Does something before the second read of all pods is answered.
    pub(crate) fn before_second_read(&self, work: impl FnOnce() + Send + 'static) {
        self.state.lock().unwrap().before_second_read = Some(Box::new(work));
    }

    /// The paths and queries of all lists of pods.
    pub(crate) fn lists(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        state.requests.iter().filter(|request| request.starts_with("/api/v1/pods")).cloned().collect()
    }
}

fn serve(mut client: TcpStream, state: &Mutex<State>) {
    let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
    while let Some(Ok(first)) = lines.next() {
        for line in lines.by_ref() {
            if line.unwrap_or_default().is_empty() {
                break;
            }
        }
        let path = first.split(' ').nth(1).unwrap().to_owned();
        let (code, body) = answer(&path, &mut state.lock().unwrap());
        let body = body.to_string();
        let head =
            format!("HTTP/1.1 {code} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        if client.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

/// Returns the next answer, and keeps the last one.
fn next<T: Clone>(answers: &mut VecDeque<T>) -> T {
    if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0].clone() }
}

fn answer(path: &str, state: &mut State) -> (u16, Value) {
    state.requests.push(path.to_owned());
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let failure =
        |code: u16| (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": ""}));
    match path {
        "/api/v1/namespaces/kube-system" => {
            // After a slash, the name of the namespace that is answered.
            let uid = next(&mut state.cluster);
            let (uid, name) = uid.split_once('/').unwrap_or((uid, "kube-system"));
            (
                200,
                json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {"name": name, "uid": uid}}),
            )
        }
        "/api" => (200, json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})),
        "/apis" => (200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []})),
        "/api/v1" => {
            let resource = |name: &str, kind: &str, verbs: &[&str]| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs});
            let resources = [resource("pods", "Pod", &["get", "list"]), resource("bindings", "Binding", &["create"])];
            (200, json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": resources}))
        }
        "/api/v1/pods" => {
            let page = query.split('&').find_map(|part| part.strip_prefix("continue=")?.parse::<usize>().ok());
            let list = |uids: &[&str], more: Option<usize>| {
                let items: Vec<_> = uids.iter().map(|uid| json!({"metadata": {"name": uid, "uid": uid}})).collect();
                let token = more.map(|page| page.to_string()).unwrap_or_default();
                (
                    200,
                    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {"continue": token}, "items": items}),
                )
            };
            let reads =
                state.requests.iter().filter(|path| path.starts_with("/api/v1/pods") && !path.contains("continue="));
            if reads.count() == 2 {
                state.before_second_read.take().into_iter().for_each(|work| work());
            }
            // The later pages of a read are of the same read.
            let is_last = |read: &Pods| match read {
                Pods::Pages(pages) => page.unwrap_or_default() + 1 >= pages.len(),
                Pods::FailsWith(_) => page.is_some(),
                Pods::Raw(_) => true,
            };
            let read = state.pods[0].clone();
            if is_last(&read) {
                next(&mut state.pods);
            }
            match read {
                Pods::Pages(pages) => {
                    let page = page.unwrap_or_default();
                    list(&pages[page], Some(page + 1).filter(|next| *next < pages.len()))
                }
                Pods::FailsWith(_) if page.is_none() => list(&["first"], Some(1)),
                Pods::FailsWith(code) => failure(code),
                Pods::Raw(answer) => (200, serde_json::from_str(answer).unwrap()),
            }
        }
        _ => failure(404),
    }
}
