//! Initialization of nodes, and updates of their addresses.

use ccm_core::nodes::node::PROVIDED_IP;
use ccm_drivers::contract::{Error, ErrorKind};

use super::*;

fn cloud_node() -> Options {
    Options { controllers: BTreeSet::from([Controller::CloudNode]), ..options(None) }
}

fn is_initialized(node: &Value) -> bool {
    node["spec"]["taints"].as_array().is_some_and(Vec::is_empty) && node["spec"]["providerID"].is_string()
}

#[tokio::test(start_paused = true)]
async fn a_node_is_initialized_and_then_gets_its_addresses() {
    let world = World::new(&["a"]);
    world.api.state().put(new_node("a"));
    world.run(cloud_node());
    world.until("it is initialized", |api| api.reasons("a") == ["Synced"]).await;
    assert_eq!(world.api.writes(), ["PATCH a 200", "PATCH a/status 200"]);
    let node = world.api.node("a");
    assert!(is_initialized(&node), "{node}");
    assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "north-1");
    assert_eq!(
        (&node["metadata"]["labels"]["own"], &node["status"]["images"][0]["names"][0]),
        (&json!("1"), &json!("x"))
    );
    assert_eq!(
        node["status"]["addresses"],
        json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "a"}])
    );
    assert_eq!(world.cloud.calls()[0], "list a", "by its name");
    let event = world.api.state().events[0].clone();
    assert_eq!(
        (&event["type"], &event["message"], &event["source"]["component"], &event["reportingComponent"]),
        (
            &json!("Normal"),
            &json!("Node synced successfully"),
            &json!("cloud-node-controller"),
            &json!("cloud-node-controller")
        )
    );
    assert_eq!(event["involvedObject"], json!({"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "uid-a"}));
    assert_eq!(event["metadata"]["namespace"], "default");
}

#[tokio::test(start_paused = true)]
async fn a_change_by_others_is_kept_and_the_node_is_initialized_all_the_same() {
    let world = World::new(&["a"]);
    world.api.state().put(new_node("a"));
    let mut left = 3;
    world.api.state().before_write = Some(Box::new(move |state| {
        if left > 0 {
            left -= 1;
            state.change("a", |node| {
                node["spec"]["taints"]
                    .as_array_mut()
                    .unwrap()
                    .push(json!({"key": format!("x{left}"), "effect": "NoSchedule"}));
            });
        }
    }));
    world.run(cloud_node());
    world.until("it is initialized", |api| api.reasons("a") == ["Synced"]).await;
    let conflicts = vec!["PATCH a 409"; 3];
    assert_eq!(world.api.writes(), [conflicts, vec!["PATCH a 200", "PATCH a/status 200"]].concat());
    let taints = world.api.node("a")["spec"]["taints"].clone();
    assert_eq!(
        taints.as_array().unwrap().iter().map(|taint| taint["key"].as_str().unwrap()).collect::<Vec<_>>(),
        ["x2", "x1", "x0"]
    );
}

#[tokio::test(start_paused = true)]
async fn another_node_of_the_same_name_never_gets_what_was_decided_for_the_first() {
    let world = World::new(&["a"]);
    world.api.state().put(new_node("a"));
    let mut is_first = true;
    world.api.state().before_write = Some(Box::new(move |state| {
        if std::mem::take(&mut is_first) {
            state.remove("a");
            let mut other = new_node("a");
            other["metadata"]["uid"] = "uid-other".into();
            other["spec"]["providerID"] = "fake:///other".into();
            state.put(other);
        }
    }));
    world.run(cloud_node());
    world.until("the other one is explained", |api| api.reasons("a") == ["InstanceNotFound"]).await;
    assert_eq!(world.api.writes(), ["PATCH a 409"]);
    assert_eq!(world.api.node("a")["metadata"]["labels"], json!({"own": "1"}));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_gets_a_provider_id_meanwhile_gets_nothing_of_the_instance_of_its_name() {
    let world = World::new(&["a"]);
    world.api.state().put(new_node("a"));
    let mut is_first = true;
    world.api.state().before_write = Some(Box::new(move |state| {
        if std::mem::take(&mut is_first) {
            state.change("a", |node| node["spec"]["providerID"] = "fake:///other".into());
        }
    }));
    world.run(cloud_node());
    world.until("it is explained", |api| api.reasons("a") == ["InstanceNotFound"]).await;
    assert_eq!(world.api.writes(), ["PATCH a 409"]);
    assert_eq!(world.api.node("a")["metadata"]["labels"], json!({"own": "1"}));
}

#[tokio::test(start_paused = true)]
async fn a_failure_keeps_the_taint_is_explained_and_heals() {
    let world = World::new(&[]);
    world.api.state().put(new_node("a"));
    world.run(cloud_node());
    world.until("it is explained", |api| api.reasons("a") == ["InstanceNotFound"]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let calls = world.cloud.calls().iter().filter(|call| *call == "list a").count();
    assert!((10..20).contains(&calls), "pauses grow: {calls}");
    assert_eq!((world.api.writes(), world.api.reasons("a").len()), (vec![], 1));

    world.cloud.with(|script| script.instances = vec![instance("a"), instance("b")]);
    world
        .api
        .state()
        .change("a", |node| node["metadata"]["annotations"] = json!({"retry": "now", PROVIDED_IP: "10.0.0.9"}));
    world.until("it is explained", |api| api.reasons("a").contains(&"ProvidedNodeIPNotFound".to_owned())).await;
    assert_eq!(world.api.writes(), [""; 0]);
    let before = tokio::time::Instant::now();
    world.api.state().change("a", |node| node["metadata"]["annotations"][PROVIDED_IP] = "10.0.0.1".into());
    world.until("it is initialized", |api| is_initialized(&api.node("a"))).await;
    assert!(before.elapsed() < Duration::from_secs(1), "each change is tried at once");
}

#[tokio::test(start_paused = true)]
async fn each_error_of_the_cloud_has_its_event_and_changes_nothing() {
    for (kind, message, reason) in [
        (ErrorKind::Unavailable, "no route", "CloudUnavailable"),
        (ErrorKind::InvalidCredentials, "bad certificate", "CredentialsRejected"),
        (ErrorKind::InvalidCredentials, "the Engine has the id B, and accountID demands A", "AccountChanged"),
        (ErrorKind::Internal, "garbage", "CloudRequestFailed"),
    ] {
        let world = World::new(&["a"]);
        world.cloud.with(|script| {
            let error = Some(Error::new(kind, message));
            (script.get, script.list) = (error.clone(), error);
        });
        let mut node = new_node("a");
        node["spec"]["providerID"] = "fake:///a".into();
        world.api.state().put(node);
        world.run(options(None));
        world.until(reason, |api| api.reasons("a").iter().any(|found| found == reason)).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(world.api.writes(), [""; 0], "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_list_answers_for_several_nodes() {
    let names: Vec<String> = (0..50).map(|number| format!("n{number}")).collect();
    let world = World::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        world.api.state().put(new_node(name));
    }
    world.run(cloud_node());
    world.until("all are initialized", |api| names.iter().all(|name| is_initialized(&api.node(name)))).await;
    let calls = world.cloud.calls();
    assert_eq!(calls.iter().filter(|call| *call == "list").count(), 1, "{calls:?}");
    assert!(calls.len() < 6, "the last few are asked for alone: {calls:?}");
}

/// Nodes that wait for their instances, so that one list is asked for.
async fn waiting(world: &World) {
    for name in ["w1", "w2", "w3", "w4", "w5"] {
        world.api.state().put(new_node(name));
    }
    world.run(cloud_node());
    world.until("it is explained", |api| !api.reasons("w5").is_empty()).await;
    // The next attempts are a while away.
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.cloud.calls();
}

#[tokio::test(start_paused = true)]
async fn a_changed_node_gets_no_failure_from_before_its_change() {
    let world = World::new(&[]);
    let down = || Some(Error::new(ErrorKind::Unavailable, "no route"));
    world.cloud.with(|script| script.list = down());
    waiting(&world).await;
    for name in ["w1", "w2"] {
        world.api.state().change(name, |node| node["metadata"]["annotations"] = json!({"retry": "now"}));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(world.cloud.calls(), ["list"], "{name}");
    }
    world.cloud.with(|script| (script.list, script.instances) = (None, vec![instance("w3")]));
    world.api.state().change("w3", |node| node["metadata"]["annotations"] = json!({"retry": "now"}));
    let before = tokio::time::Instant::now();
    world.until("it is initialized", |api| is_initialized(&api.node("w3"))).await;
    assert!(before.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_changed_node_that_does_not_fit_an_old_list_is_asked_for_alone() {
    let world = World::new(&["x"]);
    waiting(&world).await;
    let change = |name: &str, ip: &str| {
        world.api.state().change(name, |node| node["metadata"]["annotations"] = json!({PROVIDED_IP: ip}));
    };
    // Two instances have its name, and one of them goes.
    world.cloud.with(|script| script.instances.extend([instance("w1"), instance("w1"), instance("w2")]));
    change("w1", "10.0.0.1");
    tokio::time::sleep(Duration::from_millis(100)).await;
    world.cloud.with(|script| drop(script.instances.remove(1)));
    world.cloud.with(|script| script.instances[2].addresses[0].address = "10.0.0.2".to_owned());
    for (name, ip) in [("w1", "10.0.0.1"), ("w2", "10.0.0.2")] {
        change(name, ip);
        let before = tokio::time::Instant::now();
        world.until("it is initialized", |api| is_initialized(&api.node(name))).await;
        assert!(before.elapsed() < Duration::from_secs(1), "{name}");
    }
    assert_eq!(world.cloud.calls().iter().filter(|call| *call == "list").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn thousands_of_failures_share_a_list() {
    let world = World::new(&[]);
    for number in 0..1000 {
        world.api.state().put(new_node(&format!("n{number}")));
    }
    world.cloud.with(|script| script.list = Some(Error::new(ErrorKind::Unavailable, "no route")));
    world.run(cloud_node());
    tokio::time::sleep(Duration::from_secs(60)).await;
    let calls = world.cloud.calls().len();
    assert!((5..40).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_cloud_is_never_touched() {
    let world = World::new(&["a"]);
    let mut other = new_node("b");
    other["spec"]["providerID"] = "docker:////b".into();
    world.api.state().put(other);
    let mut labeled = node("c", "True");
    labeled["spec"]["providerID"] = "docker:////c".into();
    labeled["metadata"]["labels"]["failure-domain.beta.kubernetes.io/zone"] = "z".into();
    world.api.state().put(labeled);
    let mut lost = node("d", "Unknown");
    lost["spec"]["providerID"] = "docker:////d".into();
    world.api.state().put(lost);
    world.run(options(None));
    world.until("it is explained", |api| api.reasons("b") == ["ProviderIDOfOtherCloud"]).await;
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(world.api.writes(), [""; 0]);
    assert!(world.cloud.calls().iter().all(|call| call == "list"));
}

#[tokio::test(start_paused = true)]
async fn addresses_and_labels_of_initialized_nodes_are_corrected() {
    let world = World::new(&["a", "b"]);
    let mut old = known_node("a", "True");
    old["metadata"]["labels"]["beta.kubernetes.io/instance-type"] = "large".into();
    world.api.state().put(old);
    world.run(cloud_node());
    let changes = |api: &ApiServer| api.writes().iter().filter(|write| write.ends_with(" 200")).count();
    world.until("it gets its addresses", |api| changes(api) == 2).await;
    assert_eq!(world.api.node("a")["metadata"]["labels"]["node.kubernetes.io/instance-type"], "large");
    world.cloud.with(|script| script.instances[0].addresses[0].address = "10.0.0.2".to_owned());
    let before = tokio::time::Instant::now();
    world
        .until("it gets the new address", |api| api.node("a")["status"]["addresses"][0]["address"] == "10.0.0.2")
        .await;
    assert!((200..=301).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
    tokio::time::sleep(Duration::from_secs(1000)).await;
    assert_eq!(changes(&world.api), 3, "nothing else is written: {:?}", world.api.writes());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_without_the_lease_and_its_loss_ends_the_controllers() {
    let world = World::new(&["a"]);
    let running = world.run(options(None));
    tokio::time::sleep(Duration::from_secs(10)).await;
    world.leading.send_replace(Leadership::Waiting(Some("cut off".to_owned())));
    world.api.state().put(new_node("a"));
    let ended = running.await.unwrap().unwrap_err();
    assert_eq!(ended.to_string(), "this process no longer leads: cut off");

    // The time of the lease is over, and nobody has noticed yet.
    let world = World::new(&["a"]);
    world.leading.send_replace(Leadership::Leading(Deadline::after(Now::read(), Duration::ZERO)));
    world.api.state().put(new_node("a"));
    world.api.state().put(known_node("gone", "Unknown"));
    let running = world.run(options(None));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(world.api.writes(), [""; 0]);
    assert!(!running.is_finished());
    world.stop.send_replace(true);
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_change_is_explained() {
    let world = World::new(&["a"]);
    world.api.state().refusals.insert("PATCH", (403, "nodes \"a\" is forbidden: User \"x\" cannot patch".to_owned()));
    world.api.state().put(new_node("a"));
    world.run(cloud_node());
    world.until("it is explained", |api| api.reasons("a") == ["NodeUpdateRefused"]).await;
}
