use std::{
    borrow::Borrow, fs, future::poll_fn, os::unix::fs::PermissionsExt, pin::pin, sync::mpsc, task::Poll, thread,
};

use serde_json::{Value, json};

use super::*;

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

/// A client that has its answers without a connection.
struct Line<'a> {
    cloud: &'a Cloud,
    session: Option<Session>,
}

impl<'a> Line<'a> {
    fn new(cloud: &'a Cloud) -> Self {
        Self { cloud, session: None }
    }

    fn logged_in(cloud: &'a Cloud) -> Self {
        let mut line = Self::new(cloud);
        line.ok(json!({"action": "login", "token": "fake-token"}));
        line
    }

    fn send(&mut self, request: impl AsRef<[u8]>) -> Value {
        let answer = wait(self.cloud.answer(&mut self.session, request.as_ref()));
        assert_eq!(answer.iter().position(|byte| *byte == b'\n'), Some(answer.len() - 1));
        serde_json::from_slice(&answer).unwrap()
    }

    fn ok(&mut self, request: impl Borrow<Value>) -> Value {
        let request = request.borrow();
        let mut answer = self.send(request.to_string());
        assert!(answer.get("result").is_some(), "{request}: {answer}");
        answer["result"].take()
    }

    /// The code and the field of a failure.
    fn fails(&mut self, request: impl Borrow<Value>) -> (String, String) {
        let request = request.borrow();
        let answer = self.send(request.to_string());
        let text = |name: &str| answer["error"][name].as_str().unwrap_or_default().to_owned();
        assert!(!text("message").is_empty(), "{request}: {answer}");
        (text("code"), text("field"))
    }

    fn create(&mut self, name: &str) -> String {
        self.ok(new(name))["id"].as_str().unwrap().to_owned()
    }
}

fn new(name: &str) -> Value {
    json!({"action": "create-instance", "name": name, "key": format!("key of {name}"), "image": "debian",
           "instanceType": "small", "networks": ["default"], "labels": {"a": "1"}})
}

fn with(mut request: Value, name: &str, value: impl Into<Value>) -> Value {
    request[name] = value.into();
    request
}

fn failure(code: &str, field: &str) -> (String, String) {
    (code.to_owned(), field.to_owned())
}

#[test]
fn only_a_login_with_the_token_begins_a_session() {
    let cloud = Cloud::in_memory();
    let mut line = Line::new(&cloud);
    let list = json!({"action": "list-instances"});
    assert_eq!(line.fails(&list), failure("unauthorized", ""));
    assert_eq!(line.fails(json!({"action": "login", "token": "other"})), failure("unauthorized", ""));
    assert_eq!(line.fails(&list), failure("unauthorized", ""));
    let account = line.ok(json!({"action": "login", "token": "fake-token"}));
    assert!(account["id"].as_str().unwrap().starts_with("acct-") && account.get("token").is_none(), "{account}");
    assert_eq!(line.ok(&list), json!([]));
    assert_eq!(line.fails(json!({"action": "login", "token": "other"})), failure("unauthorized", ""));
    assert_eq!(line.fails(list), failure("unauthorized", ""));
    let other = Line::logged_in(&Cloud::in_memory()).ok(json!({"action": "login", "token": "fake-token"}));
    assert_ne!(other["id"], account["id"]);
}

#[test]
fn what_is_no_request_is_invalid() {
    let cloud = Cloud::in_memory();
    for line in ["", "{}", "[]", "x", "{\"action\":\"explode\"}", "{\"action\":\"get-instance\"}", "\u{0}"] {
        let answer = Line::logged_in(&cloud).send(line);
        assert_eq!(answer["error"]["code"], "invalid", "{line:?}: {answer}");
        assert_eq!(answer["error"]["field"], "request");
    }
    assert_eq!(Line::logged_in(&cloud).send([0xff])["error"]["code"], "invalid");
}

#[test]
fn an_instance_is_made_started_stopped_labeled_and_deleted() {
    let cloud = Cloud::in_memory();
    let mut line = Line::logged_in(&cloud);
    let made = line.ok(new("a"));
    let id = made["id"].as_str().unwrap();
    assert!(id.len() == 18 && id.starts_with("i-"), "{id}");
    let found =
        |made: &Value| (made["state"].clone(), made["zone"].clone(), made["region"].clone(), made["addresses"].clone());
    let expected = |state: &str| (json!(state), json!("north-1"), json!("north"), json!(["10.1.0.2"]));
    assert_eq!(found(&made), expected("created"));
    assert_eq!(made["cpus"], 2);
    for (action, state) in [("start", "running"), ("start", "running"), ("stop", "stopped"), ("stop", "stopped")] {
        let answer = line.ok(json!({"action": format!("{action}-instance"), "id": id}));
        assert_eq!(found(&answer), expected(state));
        assert_eq!(line.ok(json!({"action": "get-instance", "id": id})), answer);
    }
    let labeled = line.ok(json!({"action": "label-instance", "id": id, "labels": {"a": null, "b": "2"}}));
    assert_eq!(labeled["labels"], json!({"b": "2"}));
    for (query, count) in [
        (json!({"labels": {"a": "1"}}), 0),
        (json!({"labels": {"b": "2"}}), 1),
        (json!({"labels": {"b": ""}}), 0),
        (json!({"region": "north", "zone": "north-1", "name": "a"}), 1),
        (json!({"region": "south"}), 0),
        (json!({"region": "south", "zone": "north-1"}), 0),
        (json!({"zone": "north-2"}), 0),
        (json!({"name": "A"}), 0),
        (json!({"name": ""}), 0),
    ] {
        let listed = line.ok(with(query.clone(), "action", "list-instances"));
        assert_eq!(listed.as_array().unwrap().len(), count, "{query}");
    }
    for (query, field) in [(json!({"region": "east"}), "region"), (json!({"zone": "north"}), "zone")] {
        assert_eq!(line.fails(with(query, "action", "list-instances")), failure("invalid", field));
    }
    for prefix in ["", "i-", &id[..17], "a"] {
        for action in ["get", "start", "stop", "delete"] {
            let request = json!({"action": format!("{action}-instance"), "id": prefix});
            assert_eq!(line.fails(request), failure("not-found", ""));
        }
    }
    assert_eq!(line.ok(json!({"action": "delete-instance", "id": id})), Value::Null);
    assert_eq!(line.fails(json!({"action": "delete-instance", "id": id})), failure("not-found", ""));
    assert_eq!(line.ok(json!({"action": "list-instances"})), json!([]));
    assert_ne!(line.create("a"), id);
}

#[test]
fn a_wrong_field_is_named_and_nothing_is_made() {
    let cloud = Cloud::in_memory();
    let mut line = Line::logged_in(&cloud);
    let new = new("a");
    for (name, value, field) in [
        ("name", json!(""), "name"),
        ("name", json!("a b"), "name"),
        ("name", json!("x".repeat(254)), "name"),
        ("region", json!("east"), "region"),
        ("zone", json!("north"), "zone"),
        ("image", json!("north/debian"), "image"),
        ("image", json!(""), "image"),
        ("instanceType", json!("huge"), "instanceType"),
        ("networks", json!(["default", "other"]), "networks"),
        ("cpus", json!(0), "cpus"),
        ("cpus", json!(257), "cpus"),
        ("userData", json!("0"), "userData"),
        ("userData", json!("0g"), "userData"),
        ("userData", json!("00".repeat((64 << 10) + 1)), "userData"),
    ] {
        assert_eq!(line.fails(with(new.clone(), name, value)), failure("invalid", field), "{name}");
    }
    assert_eq!(line.fails(with(with(new.clone(), "zone", "north-1"), "region", "south")), failure("invalid", "zone"));
    assert_eq!(line.ok(json!({"action": "list-instances"})), json!([]));
    // A conflict comes first, so that what was made is found whatever else has changed.
    line.create("a");
    assert_eq!(line.fails(with(new.clone(), "image", "gone")), failure("conflict", "key"));
    assert_eq!(line.fails(with(with(new, "key", "other"), "image", "gone")), failure("conflict", "name"));
    assert_eq!(line.ok(json!({"action": "list-instances"})).as_array().unwrap().len(), 1);
}

#[test]
fn addresses_are_of_the_networks_and_of_one_instance() {
    let cloud = Cloud::in_memory();
    let mut line = Line::logged_in(&cloud);
    let both = with(with(new("a"), "networks", json!(["private", "default", "default"])), "zone", "south-2");
    assert_eq!(line.ok(both)["addresses"], json!(["172.17.0.2", "10.2.0.2", "10.2.0.3"]));
    let other = with(new("b"), "region", "south");
    assert_eq!(line.ok(other)["addresses"], json!(["10.2.0.4"]));
    assert_eq!(line.ok(new("c"))["addresses"], json!(["10.1.0.2"]));
}

#[test]
fn an_account_that_may_only_read_is_forbidden_to_write() {
    let cloud = Cloud::in_memory();
    let mut line = Line::logged_in(&cloud);
    let id = line.create("a");
    let set = |read_only| {
        wait(cloud.with(|state| {
            let mut account = serde_json::to_value(&state.account).unwrap();
            account["readOnly"] = Value::Bool(read_only);
            state.account = serde_json::from_value(account).unwrap();
            Ok(())
        }))
    };
    set(true).unwrap();
    for action in ["start", "stop", "delete"] {
        assert_eq!(line.fails(json!({"action": format!("{action}-instance"), "id": id})), failure("forbidden", ""));
    }
    assert_eq!(line.fails(new("b")), failure("forbidden", ""));
    let label = json!({"action": "label-instance", "id": id, "labels": {}});
    assert_eq!(line.fails(label), failure("forbidden", ""));
    assert_eq!(line.ok(json!({"action": "get-instance", "id": id}))["state"], "created");
    set(false).unwrap();
    line.ok(json!({"action": "delete-instance", "id": id}));
}

#[test]
fn a_file_has_the_cloud_for_all_processes_and_editors() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.json");
    let (one, two) = (Cloud::in_file(&path), Cloud::in_file(&path));
    let wrong = Line::new(&one).fails(json!({"action": "login", "token": "other"}));
    assert_eq!(wrong, failure("unauthorized", ""));
    let (mut first, mut second) = (Line::logged_in(&one), Line::logged_in(&two));
    let id = first.create("a");
    assert_eq!(second.ok(json!({"action": "get-instance", "id": id}))["name"], "a");
    assert_eq!(second.fails(new("a")), failure("conflict", "key"));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "it has the token");

    // What only reads does not write.
    let text = fs::read_to_string(&path).unwrap();
    let compact = serde_json::from_str::<Value>(&text).unwrap().to_string();
    fs::write(&path, &compact).unwrap();
    second.ok(json!({"action": "list-instances"}));
    second.fails(new("a"));
    assert_eq!(fs::read_to_string(&path).unwrap(), compact);

    // People and other programs may edit the file.
    let mut edited: Value = serde_json::from_str(&compact).unwrap();
    assert_eq!(edited["instances"][0]["id"], *id);
    edited["instances"][0]["state"] = json!("exploded");
    edited["images"] = json!([]);
    fs::write(&path, edited.to_string()).unwrap();
    assert_eq!(first.ok(json!({"action": "get-instance", "id": id}))["state"], "unknown");
    assert_eq!(first.fails(new("b")), failure("invalid", "image"));
    edited["account"]["id"] = json!("acct-other");
    fs::write(&path, edited.to_string()).unwrap();
    assert_eq!(first.fails(json!({"action": "get-instance", "id": id})), failure("unauthorized", ""));
}

#[test]
fn what_happens_to_a_file_at_the_same_time_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = &folder.path().join("cloud.json");
    std::thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                let cloud = Cloud::in_file(path);
                let mut line = Line::logged_in(&cloud);
                (0..10).for_each(|number| drop(line.create(&format!("{writer}-{number}"))));
            });
        }
    });
    let cloud = Cloud::in_file(path);
    let found = Line::logged_in(&cloud).ok(json!({"action": "list-instances"}));
    assert_eq!(found.as_array().unwrap().len(), 40);
}

#[test]
fn a_file_that_is_locked_holds_up_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.json");
    let held = wait(lock_file(&path)).unwrap();
    let (release, released) = mpsc::channel();
    // A request that blocks this thread never releases it.
    let holder = thread::spawn(move || {
        let is_released = released.recv_timeout(Duration::from_secs(60)).is_ok();
        drop(held);
        is_released
    });
    let (cloud, mut session) = (Cloud::in_file(&path), None);
    let answer = wait(async {
        let login = json!({"action": "login", "token": "fake-token"}).to_string();
        let mut answer = pin!(cloud.answer(&mut session, login.as_bytes()));
        assert!(poll_fn(|context| Poll::Ready(answer.as_mut().poll(context).is_pending())).await);
        release.send(()).unwrap();
        answer.await
    });
    assert!(answer.starts_with(b"{\"result\":"));
    assert!(holder.join().unwrap());
}

#[test]
fn what_a_killed_process_has_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let left = files::beside(folder.path(), "token", Readers::Owner).unwrap();
    left.as_file().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let (_, left) = left.keep().unwrap();
    let cloud = Cloud::in_file(folder.path().join("cloud.json"));
    Line::logged_in(&cloud);
    assert!(!left.exists());
}

#[test]
fn a_file_that_is_no_cloud_is_an_error_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.json");
    for text in ["", "{}", "x"] {
        fs::write(&path, text).unwrap();
        let cloud = Cloud::in_file(&path);
        assert_eq!(Line::new(&cloud).fails(json!({"action": "login", "token": "fake-token"})), failure("internal", ""));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    let nowhere = Cloud::in_file(folder.path().join("none/cloud.json"));
    assert_eq!(Line::new(&nowhere).fails(json!({"action": "login", "token": "fake-token"})), failure("internal", ""));
}

#[test]
fn the_documented_file_is_one() {
    let lines = include_str!("../cloud.rs").lines().map(|line| line.trim_start_matches("//!"));
    let json: String =
        lines.skip_while(|line| *line != " ```json").skip(1).take_while(|line| *line != " ```").collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.json");
    fs::write(&path, json.replace("created, running or stopped", "running")).unwrap();
    let cloud = Cloud::in_file(&path);
    let mut line = Line::logged_in(&cloud);
    assert_eq!(line.ok(json!({"action": "list-instances"}))[0]["state"], "running");
    line.create("other");
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let (documented, written): (Value, Value) =
        (serde_json::from_str(&json).unwrap(), serde_json::from_slice(&fs::read(&path).unwrap()).unwrap());
    assert_eq!(names(&written), names(&documented));
    assert_eq!(names(&written["account"]), names(&documented["account"]));
    assert_eq!(names(&written["instances"][0]), names(&documented["instances"][0]));
}
