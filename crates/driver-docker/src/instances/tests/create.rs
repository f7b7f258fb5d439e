use ccm_drivers::contract::{Error, UserData};

use super::*;

/// An Engine that keeps containers.
#[derive(Clone, Default)]
struct Store {
    all: Arc<Mutex<Vec<Value>>>,
    fault: Arc<Mutex<Option<Fault>>>,
}

struct Fault {
    /// The beginning of the request that it is for.
    line: String,
    /// Whether the request is done all the same.
    is_done: bool,
    /// The error; without one the connection is cut.
    answer: Option<(u16, String)>,
}

impl Store {
    fn start(&self) -> StandIn {
        let store = self.clone();
        StandIn::start(move |asked| store.answer(asked))
    }

    /// The next request with this beginning gets an error, or with the status 0 no answer.
    fn fails(&self, line: &str, is_done: bool, status: u16, message: &str) {
        let answer = (status > 0).then(|| (status, message.to_owned()));
        *self.fault.lock().unwrap() = Some(Fault { line: line.to_owned(), is_done, answer });
    }

    fn answer(&self, asked: &Asked) -> Option<Reply> {
        let mut fault = self.fault.lock().unwrap();
        let Some(Fault { is_done, answer, .. }) = fault.take_if(|fault| asked.line.starts_with(&fault.line)) else {
            return self.done(asked);
        };
        if is_done {
            self.done(asked);
        }
        Some(answer.map_or(Reply::Cut, |(status, message)| Reply::Json(status, json!({"message": message}))))
    }

    fn done(&self, asked: &Asked) -> Option<Reply> {
        let mut all = self.all.lock().unwrap();
        if let Some(name) = asked.line.strip_prefix("POST /containers/create?name=") {
            if all.iter().any(|one| one["Name"] == format!("/{name}")) {
                let message = format!("Conflict. The container name \"/{name}\" is already in use by container \"x\".");
                return Some(Reply::Json(409, json!({"message": message})));
            }
            let id = format!("{:064x}", all.len() + 10);
            all.push(described(&id, name, "created", &asked.json()["Labels"]));
            return Some(Reply::Json(201, json!({"Id": id})));
        }
        if let Some(path) = asked.line.strip_prefix("DELETE /containers/") {
            all.retain(|one| !path.starts_with(one["Id"].as_str().unwrap()));
            return Some(Reply::Json(204, Value::Null));
        }
        if let Some(path) = asked.line.strip_prefix("PUT /containers/") {
            // Nothing below /var/lib exists.
            let is_there = path.ends_with("path=%2Fvar%2Flib");
            let missing = json!({"message": "Could not find the file in container x"});
            return Some(if is_there { Reply::Json(200, Value::Null) } else { Reply::Json(404, missing) });
        }
        if asked.line.ends_with("/start") {
            let id = asked.line.split('/').nth(2)?;
            all.iter_mut().find(|one| one["Id"] == id)?["State"]["Status"] = "running".into();
            return Some(Reply::Json(204, Value::Null));
        }
        if asked.line == "GET /networks" {
            return Some(Reply::Json(200, json!([{"Name": "one"}, {"Name": "two"}])));
        }
        if asked.line.ends_with("/connect") {
            return Some(Reply::Json(200, Value::Null));
        }
        let all = all.clone();
        with(&all)(asked)
    }

    fn statuses(&self) -> Vec<Value> {
        self.all.lock().unwrap().iter().map(|one| one["State"]["Status"].clone()).collect()
    }
}

fn spec() -> InstanceSpec {
    InstanceSpec {
        key: "uid-1".to_owned(),
        name: "node-1".to_owned(),
        image: "image".to_owned(),
        user_data: UserData::new(b"#cloud-config\n".to_vec()),
        ..InstanceSpec::default()
    }
}

/// With two networks.
fn spec_of_two() -> InstanceSpec {
    InstanceSpec { networks: vec!["one".to_owned(), "two".to_owned()], ..spec() }
}

async fn create(engine: &StandIn, spec: &InstanceSpec) -> Result<Instance> {
    instances(&*engine.driver().await).create(spec).await
}

async fn fails(engine: &StandIn, spec: &InstanceSpec) -> Error {
    create(engine, spec).await.unwrap_err()
}

#[tokio::test]
async fn an_instance_is_made_once() {
    let store = Store::default();
    let engine = store.start();
    let made = create(&engine, &spec()).await.unwrap();
    assert_eq!((made.state, made.marks.owner.as_deref()), (ccm_drivers::contract::State::Running, Some("uid-1")));
    let steps: Vec<_> = changes(&engine).iter().map(|line| line.replace(&made.id, "ID")).collect();
    let put = |path: &str| format!("PUT /v1.41/containers/ID/archive?path={path}");
    assert_eq!(
        steps,
        [
            "POST /v1.41/containers/create?name=node-1".to_owned(),
            put("%2Fvar%2Flib%2Fcloud%2Fseed%2Fnocloud"),
            put("%2Fvar%2Flib%2Fcloud%2Fseed"),
            put("%2Fvar%2Flib%2Fcloud"),
            put("%2Fvar%2Flib"),
            "POST /v1.41/containers/ID/start".to_owned(),
        ]
    );
    // The cluster is no part of the spec.
    let again = create(&engine, &InstanceSpec { cluster: "c".to_owned(), ..spec() }).await.unwrap();
    assert_eq!((again.id, changes(&engine).len()), (made.id, 6));
}

#[tokio::test]
async fn calls_at_once_make_one() {
    let engine = Store::default().start();
    let driver = engine.driver().await;
    let (all, spec, other) = (instances(&*driver), spec(), InstanceSpec { name: "node-2".to_owned(), ..spec() });
    let (first, second, third) = tokio::join!(all.create(&spec), all.create(&spec), all.create(&other));
    assert_eq!(first.unwrap().id, second.unwrap().id);
    assert_eq!(third.unwrap_err().kind, ErrorKind::AlreadyExists, "one key has one instance");
    // Another process sees the container only when it creates its own.
    let store = Store::default();
    store.fails("POST /containers/create", true, 409, "Conflict. The name is already in use by container x");
    create(&store.start(), &spec).await.unwrap();
    assert_eq!(store.statuses(), ["running"]);
    // It has the name before it is listed.
    let (store, lists) = (Store::default(), AtomicUsize::new(0));
    store.fails("POST /containers/create", true, 409, "Conflict. The name is already in use by container x");
    let shared = store.clone();
    let engine = StandIn::start(move |asked| {
        let is_list = asked.line.starts_with("GET /containers/json");
        let is_early = is_list && lists.fetch_add(1, Ordering::SeqCst) < 6;
        if is_early { Some(Reply::Json(200, json!([]))) } else { shared.answer(asked) }
    });
    create(&engine, &spec).await.unwrap();
    assert_eq!(store.statuses(), ["running"]);
}

#[tokio::test]
async fn calls_at_once_do_each_step_once() {
    let (engine, spec) = (Store::default().start(), spec_of_two());
    let driver = engine.driver().await;
    let all = instances(&*driver);
    let (first, second) = tokio::join!(all.create(&spec), all.create(&spec));
    assert_eq!(first.unwrap(), second.unwrap());
    let lines = changes(&engine);
    let count = |end: &str| lines.iter().filter(|line| line.ends_with(end)).count();
    assert_eq!([count("/connect"), count("nocloud"), count("/start")], [1, 1, 1], "{lines:?}");
}

#[tokio::test]
async fn what_another_process_finishes_is_left_alone() {
    for status in [200, 403] {
        let store = Store::default();
        let shared = store.clone();
        let engine = StandIn::start(move |asked| {
            if asked.line.ends_with("/connect") {
                shared.all.lock().unwrap()[0]["State"]["Status"] = "running".into();
                return Some(Reply::Json(status, json!({"message": "container is in the network already"})));
            }
            shared.answer(asked)
        });
        let made = create(&engine, &spec_of_two()).await.unwrap();
        assert_eq!(made.state, ccm_drivers::contract::State::Running);
        let lines = changes(&engine);
        assert!(!lines.iter().any(|line| line.starts_with("PUT ") || line.ends_with("/start")), "{lines:?}");
    }
}

#[tokio::test]
async fn two_processes_do_not_make_two_of_one_key() {
    for (status, is_left) in [(204, false), (409, true)] {
        let store = Store::default();
        let shared = store.clone();
        let engine = StandIn::start(move |asked| {
            if asked.line.starts_with("DELETE ") && is_left {
                return Some(Reply::Json(status, json!({"message": "You cannot remove a running container x"})));
            }
            let reply = shared.answer(asked);
            if asked.line.starts_with("POST /containers/create") {
                let other = described(&id('f'), "node-9", "created", &json!({Marks::OWNER: "uid-1"}));
                shared.all.lock().unwrap().push(other);
            }
            reply
        });
        let error = fails(&engine, &spec()).await;
        assert_eq!(error.kind, ErrorKind::AlreadyExists);
        assert!(error.message.contains(&id('f')), "{error}");
        assert_eq!(error.instance.is_some(), is_left);
        let lines = changes(&engine);
        assert!(lines[1].starts_with("DELETE ") && lines[1].ends_with("?v=1") && lines.len() == 2, "{lines:?}");
        assert_eq!(store.statuses().len(), 1 + usize::from(is_left));
        if is_left {
            let error = fails(&engine, &spec()).await;
            assert_eq!(error.kind, ErrorKind::AlreadyExists);
            assert!(error.message.contains(&id('f')) && error.message.contains(&format!("{:064x}", 10)), "{error}");
        }
    }
}

#[tokio::test]
async fn an_answer_that_is_none_hides_no_container() {
    for status in [201, 500, 502, 408] {
        let store = Store::default();
        let engine = store.start();
        store.fails("POST /containers/create", true, status, "x");
        create(&engine, &spec()).await.unwrap();
        assert_eq!(store.statuses(), ["running"], "{status}");
    }
    // A refusal is one.
    let store = Store::default();
    let engine = store.start();
    store.fails("POST /containers/create", false, 400, "invalid");
    assert_eq!(fails(&engine, &spec()).await.kind, ErrorKind::InvalidArgument("options".to_owned()));
    let lists = engine.requests().iter().filter(|line| line.contains("/containers/json")).count();
    assert_eq!(lists, 2, "nothing is looked for after it");
}

#[tokio::test]
async fn what_does_not_start_has_to_be_made_again() {
    let store = Store::default();
    let engine = store.start();
    store.fails("POST /containers/0", false, 500, "Bind for 127.0.0.1:80 failed: port is already allocated");
    let error = fails(&engine, &spec()).await;
    assert_eq!(error.kind, ErrorKind::InvalidArgument("ports".to_owned()));
    assert!(error.message.ends_with("delete it, then create it with another value of ports"), "{error}");
    assert!(error.instance.is_some());
}

#[tokio::test]
async fn what_is_half_made_is_finished_by_the_next_call() {
    for (step, status) in
        [("PUT /containers/", 0), ("PUT /containers/", 500), ("POST /containers/0", 0), ("POST /containers/0", 500)]
    {
        let store = Store::default();
        let engine = store.start();
        store.fails(step, false, status, "no");
        let error = fails(&engine, &spec()).await;
        let made = error.instance.unwrap();
        assert!(error.message.contains("node-1"), "{}", error.message);
        assert_eq!(store.statuses(), ["created"], "{step}");
        let seen = changes(&engine).len();
        assert_eq!(create(&engine, &spec()).await.unwrap().id, made);
        assert_eq!(store.statuses(), ["running"]);
        let steps: Vec<_> = changes(&engine)[seen..].iter().map(|line| line[..4].to_owned()).collect();
        assert_eq!(steps, ["PUT ", "PUT ", "PUT ", "PUT ", "POST"], "the user data is put before the start");
    }
}

#[tokio::test]
async fn a_lost_answer_makes_no_second_container() {
    let store = Store::default();
    let engine = store.start();
    store.fails("POST /containers/create", true, 0, "");
    create(&engine, &spec()).await.unwrap();
    assert_eq!(store.statuses(), ["running"]);
    store.fails("POST /containers/create", false, 0, "");
    let error = fails(&engine, &InstanceSpec { key: "k".to_owned(), name: "node-2".to_owned(), ..spec() }).await;
    assert_eq!((error.kind, error.instance), (ErrorKind::Unavailable, None));
}

#[tokio::test]
async fn another_one_with_the_key_or_the_name_is_in_the_way() {
    let store = Store::default();
    let engine = store.start();
    let made = create(&engine, &spec()).await.unwrap();
    let seen = changes(&engine).len();
    for other in [
        InstanceSpec { name: "node-2".to_owned(), ..spec() },
        InstanceSpec { key: "uid-2".to_owned(), ..spec() },
        InstanceSpec { image: "other".to_owned(), ..spec() },
        InstanceSpec { user_data: UserData::default(), ..spec() },
    ] {
        let error = fails(&engine, &other).await;
        assert_eq!((&error.kind, &error.instance), (&ErrorKind::AlreadyExists, &None), "{error}");
        assert!(error.message.contains(&made.id), "{error}");
    }
    assert_eq!(changes(&engine).len(), seen);
    store.all.lock().unwrap()[0]["State"]["Status"] = "removing".into();
    assert_eq!(fails(&engine, &spec()).await.kind, ErrorKind::Unavailable);
}

#[tokio::test]
async fn one_that_was_stopped_is_returned_as_it_is() {
    let store = Store::default();
    let engine = store.start();
    create(&engine, &spec()).await.unwrap();
    store.all.lock().unwrap()[0]["State"]["Status"] = "exited".into();
    assert_eq!(create(&engine, &spec()).await.unwrap().state, ccm_drivers::contract::State::Stopped);
}

#[tokio::test]
async fn one_that_is_deleted_meanwhile_is_never_not_found() {
    for message in ["No such container: ", "Could not find the file / in container "] {
        let shared = Store::default();
        let engine = StandIn::start(move |asked| {
            let mut answer = shared.answer(asked);
            if asked.line.starts_with("PUT /containers/") {
                let gone = shared.all.lock().unwrap().pop();
                let id = asked.line.split('/').nth(2)?;
                answer = gone.map(|_| Reply::Json(404, json!({"message": format!("{message}{id}")}))).or(answer);
            }
            answer
        });
        let error = fails(&engine, &spec()).await;
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.contains("deleted at the same time") && error.instance.is_some(), "{error}");
    }
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let store = Store::default();
    let engine = store.start();
    let field = |name: &str| ErrorKind::InvalidArgument(name.to_owned());
    store.fails("POST /containers/create", false, 404, "No such image: image:latest");
    let error = fails(&engine, &spec()).await;
    assert_eq!((&error.kind, &error.instance), (&field("image"), &None));
    assert!(error.message.contains("docker pull image"), "{error}");
    let networks =
        |names: &[&str]| InstanceSpec { networks: names.iter().map(ToString::to_string).collect(), ..spec() };
    assert_eq!(fails(&engine, &networks(&["one", "tw"])).await.kind, field("network"));
    assert_eq!(fails(&engine, &InstanceSpec { region: "r".to_owned(), ..spec() }).await.kind, field("region"));
    assert_eq!(fails(&engine, &InstanceSpec { zone: "z".to_owned(), ..spec() }).await.kind, field("zone"));
    assert_eq!(changes(&engine).len(), 1);
    let made = create(&engine, &networks(&["one", "two"])).await.unwrap();
    let lines = changes(&engine);
    assert!(lines.contains(&"POST /v1.41/networks/two/connect".to_owned()), "{lines:?}");
    assert!(!lines.contains(&"POST /v1.41/networks/one/connect".to_owned()), "{lines:?}");
    assert_eq!((made.region.as_str(), made.zone.as_str()), ("default", "default-a"));
}

#[tokio::test]
async fn an_old_engine_has_no_namespaces_of_control_groups() {
    let store = Store::default();
    let engine = StandIn::start(move |asked| match asked.line.as_str() {
        "GET /version" => Some(Reply::Json(200, json!({"ApiVersion": "1.40", "MinAPIVersion": "1.12"}))),
        _ => store.answer(asked),
    });
    let options = InstanceSpec::default().options.with("cgroupNamespace", "private");
    assert_eq!(fails(&engine, &InstanceSpec { options, ..spec() }).await.kind, ErrorKind::NotSupported);
    create(&engine, &spec()).await.unwrap();
}
