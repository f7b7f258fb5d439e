use ccm_drivers::contract::Endpoint;
use serde_json::{Value, json};

use super::*;

/// Answers of Docker 20.10.24: a container with a network, one that was only created, and one that is paused.
const LIST: &str = include_str!("list.json");
const INSPECTED: &str = include_str!("inspect.json");

fn host() -> Host {
    Host { region: "r".to_owned(), endpoint: Endpoint::Tcp("h".to_owned(), 1) }
}

fn listed(text: &str) -> Vec<Instance> {
    let all: Vec<Listed> = serde_json::from_str(text).unwrap();
    all.into_iter().map(|one| Container::try_from(one).unwrap().instance(&host())).collect()
}

#[test]
fn a_container_is_the_same_in_both_answers() {
    let inspected: Container = serde_json::from_str::<Inspected>(INSPECTED).unwrap().into();
    assert_eq!(inspected.digest(), Some("abc"));
    let instance = inspected.instance(&host());
    assert_eq!(instance, listed(LIST)[2]);
    assert_eq!(
        serde_json::to_value(&instance).unwrap(),
        json!({
            "id": "383a9237d316623fb855abc3bbe9a370101cbfab660a1f6847e206a04c891611",
            "providerID": "docker:////rec-1",
            "name": "rec-1",
            "region": "r",
            "zone": "r-a",
            "state": "running",
            "image": "localhost/busybox",
            "instanceType": "",
            "addresses": [
                {"type": "Hostname", "address": "rec-1"},
                {"type": "InternalIP", "address": "172.30.1.2"},
            ],
            "labels": {"a": "b"},
            "owner": "uid-1",
            "cluster": "c-1",
            "created": "2026-11-28T08:18:20Z",
        })
    );
}

#[test]
fn what_does_not_run_has_no_addresses() {
    let all = listed(LIST);
    assert_eq!((all[1].state, &all[1].addresses, all[1].marks.owner.as_ref()), (State::Pending, &Vec::new(), None));
    assert_eq!(all[0].state, State::Unknown, "paused");
    let mut stopped: Value = serde_json::from_str(LIST).unwrap();
    stopped[2]["State"] = "exited".into();
    let all = listed(&stopped.to_string());
    assert_eq!((all[2].state, &all[2].addresses), (State::Stopped, &Vec::new()));
}

#[test]
fn every_state_of_the_engine_has_one_of_the_contract() {
    let state = |status: &str| Container { status: status.to_owned(), ..Container::default() }.state();
    let states = ["created", "running", "paused", "restarting", "removing", "exited", "dead", "new"].map(state);
    let (pending, unknown) = (State::Pending, State::Unknown);
    let expected =
        [pending, State::Running, unknown, pending, State::Deleting, State::Stopped, State::Deleting, unknown];
    assert_eq!(states, expected);
}

#[test]
fn the_first_address_is_of_the_first_network() {
    let mut inspected: Value = serde_json::from_str(INSPECTED).unwrap();
    let networks = &mut inspected["NetworkSettings"]["Networks"];
    networks["a"] = json!({"IPAddress": "172.30.2.2", "GlobalIPv6Address": "fd00::2"});
    networks["b"] = Value::Null;
    let container: Container = serde_json::from_value::<Inspected>(inspected).unwrap().into();
    assert!(container.is_in("a") && !container.is_in("c"));
    let addresses: Vec<_> = container.addresses().into_iter().map(|address| address.address).collect();
    assert_eq!(addresses, ["rec-1", "172.30.1.2", "172.30.2.2", "fd00::2"]);
}

#[test]
fn odd_answers_are_read_or_refused() {
    let id = "a".repeat(64);
    let least = json!({"Id": id, "Image": "", "Created": -1, "State": "x", "Names": null, "Labels": null,
        "HostConfig": null, "NetworkSettings": null});
    let all = listed(&json!([least]).to_string());
    assert_eq!((all[0].name.as_str(), all[0].created.as_str()), ("", "1969-12-31T23:59:59Z"));
    let short = json!({"Id": "abc", "Image": "", "Created": 0, "State": "x"});
    let error = Container::try_from(serde_json::from_value::<Listed>(short).unwrap()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
    for bad in ["{}", "[]", r#"{"Id": 7}"#, "null"] {
        assert!(serde_json::from_str::<Listed>(bad).is_err() && serde_json::from_str::<Inspected>(bad).is_err());
    }
}
