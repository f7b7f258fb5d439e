use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use ccm_drivers::contract::{Driver, Filter, ResourceKind};
use serde_json::{Value, json};

use super::*;
use crate::stand_in::{Asked, Reply, StandIn, open};

mod create;

fn id(digit: char) -> String {
    digit.to_string().repeat(64)
}

/// A container as both answers have it.
fn container(id: &str, name: &str, owner: &str) -> Value {
    let labels = if owner.is_empty() { json!({}) } else { json!({Marks::OWNER: owner}) };
    described(id, name, "running", &labels)
}

fn described(id: &str, name: &str, status: &str, labels: &Value) -> Value {
    json!({"Id": id, "Name": format!("/{name}"), "Created": "2026-11-28T08:18:20.2Z",
        "Config": {"Image": "image", "Labels": labels}, "State": {"Status": status}})
}

fn as_listed(one: &Value) -> Value {
    json!({"Id": one["Id"], "Names": [one["Name"]], "Created": 1_795_853_900, "Image": one["Config"]["Image"],
        "Labels": one["Config"]["Labels"], "State": one["State"]["Status"]})
}

/// An Engine with containers, which resolves an id as a real one: by the id, and by the name.
fn with(all: &[Value]) -> impl Fn(&Asked) -> Option<Reply> + Send + Sync + use<> {
    let all = all.to_vec();
    move |asked| {
        if asked.line.starts_with("GET /containers/json") {
            return Some(Reply::Json(200, all.iter().map(as_listed).collect()));
        }
        let (verb, path) = asked.line.split_once(" /containers/")?;
        let key = path.split(['/', '?']).next()?;
        let named = format!("/{key}");
        let found = all.iter().find(|one| one["Id"] == key).or_else(|| all.iter().find(|one| one["Name"] == *named))?;
        Some(if verb == "GET" { Reply::Json(200, found.clone()) } else { Reply::Json(204, Value::Null) })
    }
}

fn changes(engine: &StandIn) -> Vec<String> {
    engine.requests().into_iter().filter(|line| !line.starts_with("GET ")).collect()
}

fn instances(driver: &dyn Driver) -> &dyn Instances {
    driver.instances().unwrap()
}

#[tokio::test]
async fn only_a_whole_id_is_given_to_an_engine() {
    let engine = StandIn::start(with(&[container(&id('c'), "cafe", "uid")]));
    let driver = engine.driver().await;
    let all = instances(&*driver);
    for text in
        ["cafe", "cccccccccccc", "", &id('C'), &format!("{}?x", &id('c')[2..]), &format!("../{}", &id('c')[3..])]
    {
        for result in [all.get(text).await.map(drop), all.start(text).await, all.stop(text).await] {
            assert!(result.unwrap_err().is_not_found(), "{text}");
        }
        let error = all.delete(text).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument("id".to_owned()), "{text}");
    }
    let lines = engine.requests();
    assert!(lines.iter().all(|line| line == "GET /v1.41/info"), "{lines:?}");
}

#[tokio::test]
async fn what_is_no_id_is_only_gone_if_the_right_engine_answers() {
    for (status, body, expected) in [
        (200, json!({"ID": "OTHER"}), ErrorKind::InvalidCredentials),
        (200, json!("OK"), ErrorKind::Internal),
        (503, json!({}), ErrorKind::Unavailable),
    ] {
        let count = AtomicUsize::new(0);
        let engine = StandIn::start(move |asked: &Asked| {
            // The first one is of the connection.
            let is_later = asked.line == "GET /info" && count.fetch_add(1, Ordering::SeqCst) > 0;
            is_later.then(|| Reply::Json(status, body.clone()))
        });
        let driver = engine.driver().await;
        driver.account().verify().await.unwrap();
        assert_eq!(instances(&*driver).get("name").await.unwrap_err().kind, expected);
        assert_eq!(instances(&*driver).delete("name").await.unwrap_err().kind, expected);
        assert_eq!(driver.account().verify().await.unwrap_err().kind, expected);
    }
}

#[tokio::test]
async fn a_container_whose_name_is_the_id_is_another_one() {
    let engine = StandIn::start(with(&[container(&id('a'), &id('b'), "uid")]));
    let driver = engine.driver().await;
    let all = instances(&*driver);
    assert!(all.get(&id('b')).await.unwrap_err().is_not_found());
    assert!(all.stop(&id('b')).await.unwrap_err().is_not_found());
    all.delete(&id('b')).await.unwrap();
    assert_eq!(changes(&engine), Vec::<String>::new());
    assert_eq!(all.get(&id('a')).await.unwrap().name, id('b'));
}

#[tokio::test]
async fn another_container_than_the_one_asked_for_is_no_answer() {
    let other = container(&id('a'), "other", "uid");
    let engine = StandIn::start(move |asked: &Asked| {
        asked.line.contains(" /containers/").then(|| Reply::Json(200, other.clone()))
    });
    let driver = engine.driver().await;
    let all = instances(&*driver);
    for result in [all.get(&id('b')).await.map(drop), all.delete(&id('b')).await, all.stop(&id('b')).await] {
        assert_eq!(result.unwrap_err().kind, ErrorKind::Internal);
    }
    assert_eq!(changes(&engine), Vec::<String>::new());
}

#[tokio::test]
async fn containers_of_others_are_not_changed() {
    let engine = StandIn::start(with(&[container(&id('a'), "other", "")]));
    let driver = engine.driver().await;
    let all = instances(&*driver);
    let foreign = id('a');
    let run = driver.run_command().unwrap().run(&foreign, &["true".to_owned()]).await.map(drop);
    for result in [all.delete(&foreign).await, all.start(&foreign).await, all.stop(&foreign).await, run] {
        assert_eq!(result.unwrap_err().kind, ErrorKind::Forbidden);
    }
    assert_eq!(changes(&engine), Vec::<String>::new());
    assert_eq!(all.list(&Filter::default()).await.unwrap()[0].marks.owner, None);
}

#[tokio::test]
async fn a_page_that_is_not_found_is_no_instance_that_is_gone() {
    let other = json!({"message": format!("No such container: {}", id('b'))});
    for body in [json!({"message": "page not found"}), json!("No such container: x"), Value::Null, other] {
        let answer = move |asked: &Asked| asked.line.contains(" /containers/").then(|| Reply::Json(404, body.clone()));
        let engine = StandIn::start(answer);
        let driver = engine.driver().await;
        assert_eq!(instances(&*driver).get(&id('a')).await.unwrap_err().kind, ErrorKind::Internal);
        assert_eq!(instances(&*driver).delete(&id('a')).await.unwrap_err().kind, ErrorKind::Internal);
    }
}

#[tokio::test]
async fn a_removal_by_somebody_else_is_waited_for() {
    let count = AtomicUsize::new(0);
    let all = with(&[container(&id('a'), "node-1", "uid")]);
    let engine = StandIn::start(move |asked: &Asked| {
        let deletes = || count.load(Ordering::SeqCst);
        if asked.line.starts_with("DELETE ") {
            let reason = format!("removal of container {} is already in progress", id('a'));
            count.fetch_add(1, Ordering::SeqCst);
            return (deletes() < 3).then(|| Reply::Json(409, json!({"message": reason})));
        }
        if deletes() < 3 { all(asked) } else { None }
    });
    let driver = engine.driver().await;
    instances(&*driver).delete(&id('a')).await.unwrap();
    let path = format!("DELETE /v1.41/containers/{}?force=1&v=1", id('a'));
    assert_eq!(changes(&engine), vec![path; 3]);
}

#[tokio::test]
async fn a_removal_that_fails_is_no_success() {
    for (status, text, expected) in [(500, "driver failed", "Internal"), (409, "other conflict", "InvalidArgument")] {
        let all = with(&[container(&id('a'), "node-1", "uid")]);
        let engine = StandIn::start(move |asked: &Asked| {
            let is_delete = asked.line.starts_with("DELETE ");
            if is_delete { Some(Reply::Json(status, json!({"message": text}))) } else { all(asked) }
        });
        let error = instances(&*engine.driver().await).delete(&id('a')).await.unwrap_err();
        assert_eq!(error.kind.name(), expected, "{error}");
    }
}

/// Two Engines with a container each.
async fn two() -> (StandIn, StandIn, Box<dyn Driver>) {
    let info = |id: &'static str| {
        move |asked: &Asked| (asked.line == "GET /info").then(|| Reply::Json(200, json!({"ID": id})))
    };
    let (first, second) = (info("A"), info("B"));
    let (ones, others) =
        (with(&[container(&id('1'), "node-1", "uid")]), with(&[container(&id('2'), "node-2", "uid-2")]));
    let one = StandIn::start(move |asked| first(asked).or_else(|| ones(asked)));
    let other = StandIn::start(move |asked| second(asked).or_else(|| others(asked)));
    let driver = open(&[("host", &format!("a={},b={}", one.host, other.host)), ("accountID", "A+B")]).await.unwrap();
    (one, other, driver)
}

#[tokio::test]
async fn several_engines_are_one_cloud() {
    let (one, other, driver) = two().await;
    let account = driver.account().verify().await.unwrap();
    let parts: Vec<_> = account.sub_accounts.iter().map(|one| one.id.as_str()).collect();
    assert_eq!((account.id.as_str(), parts), ("A+B", vec!["A", "B"]));
    assert_eq!(one.driver().await.account().verify().await.unwrap().sub_accounts, []);
    let all = instances(&*driver);
    let names =
        |found: Vec<Instance>| found.into_iter().map(|one| format!("{}/{}", one.zone, one.name)).collect::<Vec<_>>();
    assert_eq!(names(all.list(&Filter::default()).await.unwrap()), ["a-a/node-1", "b-a/node-2"]);
    assert_eq!(all.get(&id('2')).await.unwrap().region, "b");
    assert!(all.get(&id('3')).await.unwrap_err().is_not_found());
    all.delete(&id('3')).await.unwrap();
    all.stop(&id('2')).await.unwrap();
    assert_eq!((changes(&one).len(), changes(&other).len()), (0, 1));

    let before = one.requests().len();
    let of = |region: Option<&str>, zone: Option<&str>| {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Filter { region: owned(region), zone: owned(zone), ..Filter::default() }
    };
    assert_eq!(names(all.list(&of(Some("b"), None)).await.unwrap()), ["b-a/node-2"]);
    assert_eq!(names(all.list(&of(None, Some("b-a"))).await.unwrap()), ["b-a/node-2"]);
    assert_eq!(names(all.list(&of(Some("a"), Some("b-a"))).await.unwrap()), [""; 0]);
    assert_eq!(one.requests().len(), before, "an Engine of another region is not asked");
    let error = all.list(&of(Some("c"), None)).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument("region".to_owned()));
    let error = all.list(&of(Some("a"), Some("a"))).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument("zone".to_owned()));
    let topology = driver.topology();
    assert_eq!(topology.zones(None).await.unwrap().len(), 2);
    assert_eq!(topology.zones(Some("b")).await.unwrap()[0].id, "b-a");
    let inventory = driver.inventory().unwrap();
    for region in ["b-a", ""] {
        let errors = [
            topology.zones(Some(region)).await.map(drop).unwrap_err(),
            inventory.list(ResourceKind::Network, Some(region)).await.map(drop).unwrap_err(),
        ];
        assert!(errors.iter().all(|error| error.kind == ErrorKind::InvalidArgument("region".to_owned())), "{errors:?}");
        assert!(topology.region(region).await.unwrap_err().is_not_found());
        assert!(topology.zone(region).await.is_ok() == (region == "b-a"));
    }
}

#[tokio::test]
async fn an_engine_that_is_not_reached_hides_nothing() {
    let (one, other, driver) = two().await;
    let host = other.host.clone();
    drop(other);
    let all = instances(&*driver);
    let errors = [
        all.list(&Filter::default()).await.map(drop).unwrap_err(),
        all.get(&id('2')).await.map(drop).unwrap_err(),
        all.get("node-2").await.map(drop).unwrap_err(),
        all.delete(&id('2')).await.unwrap_err(),
        all.delete("node-2").await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.message.contains("region b") && error.message.contains(&host), "{error}");
    }
    // What the other Engine has is found all the same.
    assert_eq!(all.get(&id('1')).await.unwrap().name, "node-1");
    assert_eq!(changes(&one), Vec::<String>::new());
}

#[tokio::test]
async fn an_engine_that_hangs_holds_up_no_other() {
    let limit = std::time::Duration::from_secs(60);
    let all = with(&[container(&id('2'), "node-2", "uid-2")]);
    let hangs = StandIn::start(|asked| match asked.line.as_str() {
        "GET /info" => Some(Reply::Json(200, json!({"ID": "A"}))),
        _ => asked.line.contains("/containers/").then_some(Reply::Never),
    });
    let other = StandIn::start(all);
    let driver = open(&[("host", &format!("a={},b={}", hangs.host, other.host))]).await.unwrap();
    let found = tokio::time::timeout(limit, instances(&*driver).get(&id('2'))).await.unwrap().unwrap();
    assert_eq!(found.region, "b");
    // The list needs both, and asks both at once.
    let is_asked = async {
        while !other.requests().iter().any(|line| line.contains("/containers/json")) {
            tokio::task::yield_now().await;
        }
    };
    let filter = Filter::default();
    tokio::select! {
        _ = instances(&*driver).list(&filter) => panic!("an Engine has not answered"),
        asked = tokio::time::timeout(limit, is_asked) => asked.unwrap(),
    }
}

#[tokio::test]
async fn what_is_half_made_is_not_started_and_what_is_stopped_runs_no_command() {
    let labels = json!({Marks::OWNER: "uid"});
    let engine = StandIn::start(with(&[
        described(&id('a'), "node-1", "created", &labels),
        described(&id('b'), "node-2", "exited", &labels),
    ]));
    let driver = engine.driver().await;
    let error = instances(&*driver).start(&id('a')).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument("id".to_owned()));
    assert!(error.message.contains("repeat instance-create"), "{error}");
    let error = driver.run_command().unwrap().run(&id('b'), &["true".to_owned()]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument("id".to_owned()));
    assert!(error.message.contains("start it with instance-start"), "{error}");
    assert_eq!(changes(&engine), Vec::<String>::new());
    instances(&*driver).start(&id('b')).await.unwrap();
}

#[tokio::test]
async fn a_filter_is_asked_for_and_checked_again() {
    // This Engine filters nothing.
    let all =
        with(&[container(&id('1'), "a.b", "uid"), container(&id('2'), "axb", "uid"), container(&id('3'), "a.b", "x")]);
    let engine = StandIn::start(all);
    let driver = engine.driver().await;
    let filter = Filter { name: Some("a.b".to_owned()), owner: Some("uid".to_owned()), ..Filter::default() };
    let found = instances(&*driver).list(&filter).await.unwrap();
    assert_eq!(found.iter().map(|one| one.id.clone()).collect::<Vec<_>>(), [id('1')]);
    let labels = BTreeMap::from([("k".to_owned(), "v=w".to_owned()), ("a=b".to_owned(), "c".to_owned())]);
    let filter = Filter { labels, name: Some("not a name".to_owned()), ..Filter::default() };
    assert_eq!(instances(&*driver).list(&filter).await.unwrap(), []);
    let expected = [
        json!({"label": ["ccm-operator.dev/owner=uid"], "name": ["^/a\\.b$"]}),
        // What the Engine would read otherwise is only checked here.
        json!({"label": ["k=v=w"]}),
    ];
    let path = |filters: &Value| query("/containers/json", &[("all", "1"), ("filters", &filters.to_string())]);
    assert_eq!(engine.requests(), expected.each_ref().map(|filters| format!("GET /v1.41{}", path(filters))));
}

#[tokio::test]
async fn a_command_is_run_and_its_exit_code_waited_for() {
    let all = with(&[container(&id('a'), "node-1", "uid")]);
    let looks = AtomicUsize::new(0);
    let asked_for = Arc::new(Mutex::new(Value::Null));
    let shared = asked_for.clone();
    let engine = StandIn::start(move |asked: &Asked| {
        if asked.line.ends_with("/exec") {
            *shared.lock().unwrap() = asked.json();
            return Some(Reply::Json(201, json!({"Id": "e1"})));
        }
        match asked.line.as_str() {
            "POST /exec/e1/start" => {
                let frames = b"HTTP/1.1 200 OK\r\n\r\n\x01\0\0\0\0\0\0\x03out\x02\0\0\0\0\0\0\x03err";
                Some(Reply::Bytes(frames.to_vec()))
            }
            "GET /exec/e1/json" => {
                let is_running = looks.fetch_add(1, Ordering::SeqCst) == 0;
                let code = if is_running { 0 } else { 3 };
                Some(Reply::Json(200, json!({"Running": is_running, "ExitCode": code})))
            }
            _ => all(asked),
        }
    });
    let driver = engine.driver().await;
    let run = driver.run_command().unwrap();
    let output = run.run(&id('a'), &["a".to_owned(), "b c".to_owned()]).await.unwrap();
    assert_eq!((output.exit_code, output.stdout.as_str(), output.stderr.as_str()), (3, "out", "err"));
    assert_eq!(*asked_for.lock().unwrap(), json!({"AttachStdout": true, "AttachStderr": true, "Cmd": ["a", "b c"]}));
    assert_eq!(run.run(&id('a'), &[]).await.unwrap_err().kind, ErrorKind::InvalidArgument("command".to_owned()));
    assert!(run.run(&id('b'), &["a".to_owned()]).await.unwrap_err().is_not_found());
}
