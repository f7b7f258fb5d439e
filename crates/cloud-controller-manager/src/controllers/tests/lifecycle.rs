//! What happens to nodes that are not ready, pass by pass.

use ccm_core::{
    api::deletion::NodeDeletion,
    nodes::{
        evidence::NodeEvent,
        guard::{self, Attempts, GuardInput},
        node::{Node, SHUTDOWN},
    },
};
use ccm_drivers::contract::{Error, ErrorKind, State};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{
    super::monitor::{Memory, pass},
    cloud::Script,
    *,
};
use crate::guard::{Clocks, Guard};

/// A world with the nodes `a` and `b`, both not ready, of which only `b` has an instance.
fn world() -> World {
    let world = World::new(&["b"]);
    for name in ["a", "b"] {
        world.api.state().put(known_node(name, "Unknown"));
    }
    world
}

/// Runs passes, and lets the watch deliver what they have changed.
async fn passes(context: &Context, memory: &mut Memory, count: usize) {
    for _ in 0..count {
        pass(context, memory).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_instance_is_gone_is_deleted_in_the_second_pass() {
    let (world, mut memory) = (world(), Memory::default());
    let context = world.context(options(None)).await;
    passes(&context, &mut memory, 1).await;
    assert_eq!(world.api.writes(), [""; 0]);
    world.cloud.calls();
    let before = world.api.node("a");
    passes(&context, &mut memory, 1).await;
    assert_eq!(world.cloud.calls(), ["get fake:///a", "list", "get fake:///b", "verify"]);
    let (write, body, code) = world.api.state().writes[0].clone();
    assert_eq!((write.as_str(), code), ("DELETE a", 200));
    assert_eq!(
        body["preconditions"],
        json!({"uid": "uid-a", "resourceVersion": before["metadata"]["resourceVersion"]})
    );
    assert_eq!((world.api.node("a"), world.api.writes().len()), (Value::Null, 1));
    let event = world.api.state().events[0].clone();
    assert_eq!(
        (&event["type"], &event["reason"], &event["message"], &event["source"]["component"]),
        (
            &json!("Normal"),
            &json!("DeletingNode"),
            &json!("Deleting node a because it does not exist in the cloud provider"),
            &json!("cloud-node-lifecycle-controller")
        )
    );
}

type Change<'a> = &'a dyn Fn(&mut Script);

/// Whatever happens between or in the passes, nothing is deleted.
#[tokio::test(start_paused = true)]
async fn only_two_answers_in_a_row_and_a_list_that_has_others_delete_a_node() {
    let error = |kind: ErrorKind, message: &str| Some(Error::new(kind, message));
    let other = "not the account of the first use: the credentials belong to the account \"B\"";
    let cases: [(&str, Change<'_>, &[&str]); 8] = [
        ("unreachable", &|script| script.get = error(ErrorKind::Unavailable, "x"), &["CloudUnavailable"]),
        ("another class", &|script| script.get = error(ErrorKind::Internal, "x"), &["CloudRequestFailed"]),
        ("credentials", &|script| script.get = error(ErrorKind::InvalidCredentials, "x"), &["CredentialsRejected"]),
        ("the list fails", &|script| script.list = error(ErrorKind::Timeout, "x"), &["CloudUnavailable"]),
        ("the list is empty", &|script| script.listed = Some(Vec::new()), &["AccountIsEmpty"]),
        ("the list has it", &|script| script.listed = Some(vec![instance("a")]), &["DriverContradictsItself"]),
        ("another account", &|script| script.verify = error(ErrorKind::InvalidCredentials, other), &["AccountChanged"]),
        ("the instance is found", &|script| script.instances.push(instance("a")), &[]),
    ];
    for (what, change, reasons) in cases {
        let (world, mut memory) = (world(), Memory::default());
        let context = world.context(options(None)).await;
        // The cloud is known to have others.
        passes(&context, &mut memory, 1).await;
        world.cloud.with(change);
        passes(&context, &mut memory, 3).await;
        assert_eq!(
            (world.api.writes(), world.api.reasons("a")),
            (vec![], reasons.iter().map(|reason| (*reason).to_owned()).collect::<Vec<_>>()),
            "{what}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_from_before_the_pass_proves_nothing() {
    let (world, mut memory) = (world(), Memory::default());
    let context = world.context(options(None)).await;
    passes(&context, &mut memory, 1).await;
    context.cloud.list(tokio::time::Instant::now()).await.unwrap();
    world.cloud.with(|script| script.listed = Some(vec![instance("a")]));
    tokio::time::sleep(Duration::from_millis(1)).await;
    passes(&context, &mut memory, 1).await;
    assert_eq!((world.api.writes(), world.api.reasons("a")), (vec![], vec!["DriverContradictsItself".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_ready_again_stays() {
    let (world, mut memory) = (world(), Memory::default());
    let context = world.context(options(None)).await;
    passes(&context, &mut memory, 1).await;
    world.api.state().change("a", |node| node["status"]["conditions"][0]["status"] = "True".into());
    passes(&context, &mut memory, 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    passes(&context, &mut memory, 2).await;
    assert!(world.api.writes().iter().all(|write| write.ends_with("409")), "{:?}", world.api.writes());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_recreated_or_gets_another_provider_id_begins_the_count_again() {
    let changes: [fn(&mut Value); 2] =
        [|node| node["metadata"]["uid"] = "uid-new".into(), |node| node["spec"]["providerID"] = "fake:///new".into()];
    for change in changes {
        let (world, mut memory) = (world(), Memory::default());
        let context = world.context(options(None)).await;
        passes(&context, &mut memory, 1).await;
        let mut node = known_node("a", "Unknown");
        change(&mut node);
        world.api.state().remove("a");
        world.api.state().put(node);
        tokio::time::sleep(Duration::from_secs(1)).await;
        passes(&context, &mut memory, 1).await;
        assert_eq!(world.api.writes(), [""; 0]);
        passes(&context, &mut memory, 1).await;
        assert_eq!(world.api.writes(), ["DELETE a 200"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_between_begins_the_count_again() {
    let (world, mut memory) = (world(), Memory::default());
    let context = world.context(options(None)).await;
    for error in [None, Some(ErrorKind::Unavailable), None, Some(ErrorKind::Internal), None] {
        world.cloud.with(|script| script.get = error.map(|kind| Error::new(kind, "x")));
        passes(&context, &mut memory, 1).await;
    }
    world.cloud.with(|script| script.instances.push(instance("a")));
    passes(&context, &mut memory, 1).await;
    world.cloud.with(|script| drop(script.instances.pop()));
    passes(&context, &mut memory, 1).await;
    assert_eq!(world.api.writes(), [""; 0]);
    passes(&context, &mut memory, 1).await;
    assert_eq!(world.api.writes(), ["DELETE a 200"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_changes_before_its_deletion_stays_and_is_looked_at_again() {
    let (world, mut memory) = (world(), Memory::default());
    let context = world.context(options(None)).await;
    world.api.state().before_write =
        Some(Box::new(|state| state.change("a", |node| node["metadata"]["labels"]["x"] = "y".into())));
    passes(&context, &mut memory, 3).await;
    assert_eq!(world.api.writes(), ["DELETE a 409", "DELETE a 409"]);
    assert_eq!(world.api.reasons("a"), ["DeletingNode"], "a conflict is no refusal");
    assert!(world.api.node("a").is_object());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_reported_with_the_words_that_the_operator_reads() {
    let user = "system:serviceaccount:kube-system:docker-cloud-controller-manager";
    let refusal = format!(
        "nodes \"a\" is forbidden: User \"{user}\" cannot delete resource \"nodes\" in API group \"\" at the cluster scope"
    );
    let (world, mut memory) = (world(), Memory::default());
    let context = world.context(options(None)).await;
    world.api.state().refusals.insert("DELETE", (403, refusal.clone()));
    passes(&context, &mut memory, 40).await;
    assert_eq!(world.api.writes().len(), 39, "each pass tries it");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let events = world.api.state().events.clone();
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!(
        (&events[1]["reason"], &events[1]["type"], &events[1]["message"], &events[1]["count"]),
        (
            &json!("DeletingNodeFailed"),
            &json!("Warning"),
            &json!(format!("Failed deleting node a: {refusal}")),
            &json!(39)
        )
    );
    let nodes = ["a", "b"].map(|name| Node::of(&world.api.node(name)));
    let decision = guard::decide(&GuardInput {
        now: Timestamp::now(),
        nodes: &nodes,
        attempts: Attempts::Refused { events: &[NodeEvent::of(&events[1])], user, policy: "" },
        provider_ids: &["fake://".to_owned()],
        settings: &NodeDeletion::default(),
        leads_since: Err("nobody leads"),
        obstacle: None,
        unsettled: None,
        deleted: &[],
    });
    assert_eq!(decision.asked_for, ["a"], "the guard of the operator reads it");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_instance_taints_its_node_until_it_is_ready() {
    let (world, mut memory) = (World::new(&["a"]), Memory::default());
    world.api.state().put(known_node("a", "Unknown"));
    let context = world.context(options(None)).await;
    passes(&context, &mut memory, 1).await;
    assert_eq!(world.api.writes(), [""; 0], "it runs");
    world.cloud.with(|script| script.instances[0].state = State::Stopped);
    passes(&context, &mut memory, 3).await;
    assert_eq!(world.api.node("a")["spec"]["taints"], json!([{"key": SHUTDOWN, "effect": "NoSchedule"}]));
    world.api.state().change("a", |node| node["status"]["conditions"][0]["status"] = "True".into());
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.cloud.calls();
    passes(&context, &mut memory, 3).await;
    assert_eq!(world.api.node("a")["spec"]["taints"], json!([]));
    assert_eq!(world.api.writes(), ["PATCH a 200", "PATCH a 200"]);
    assert_eq!(world.cloud.calls(), [""; 0], "a ready node asks nothing");
}

/// Before the first list that has an instance, nobody knows which providerIDs are of this cloud.
#[tokio::test(start_paused = true)]
async fn a_node_of_another_cloud_stays_when_the_first_instance_appears() {
    let (world, mut memory) = (World::new(&[]), Memory::default());
    let mut other = node("a", "Unknown");
    other["spec"]["providerID"] = "docker:////a".into();
    world.api.state().put(other);
    let context = world.context(options(None)).await;
    passes(&context, &mut memory, 1).await;
    // Another controller has just listed the account, which was still empty.
    context.cloud.list(tokio::time::Instant::now()).await.unwrap();
    world.cloud.with(|script| script.instances.push(instance("b")));
    tokio::time::sleep(Duration::from_millis(1)).await;
    passes(&context, &mut memory, 3).await;
    assert_eq!((world.api.writes(), world.api.reasons("a")), (vec![], vec!["ProviderIDOfOtherCloud".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_provider_id_is_looked_for_by_its_name() {
    let (world, mut memory) = (World::new(&["b"]), Memory::default());
    world.api.state().put(node("a", "Unknown"));
    let context = world.context(options(None)).await;
    world.cloud.with(|script| script.listed = Some(vec![instance("a")]));
    passes(&context, &mut memory, 2).await;
    assert_eq!((world.api.writes(), world.api.reasons("a")), (vec![], vec!["DriverContradictsItself".to_owned()]));
    world.cloud.with(|script| script.listed = None);
    passes(&context, &mut memory, 1).await;
    assert_eq!(world.api.writes(), ["DELETE a 200"]);
}

/// Its instance was not found by its name; the one of the providerID was never looked for.
#[tokio::test(start_paused = true)]
async fn a_node_that_gets_a_provider_id_before_its_deletion_stays() {
    let (world, mut memory) = (World::new(&["b"]), Memory::default());
    world.api.state().put(node("a", "Unknown"));
    let context = world.context(options(None)).await;
    passes(&context, &mut memory, 1).await;
    let api = world.api.clone();
    world.cloud.with(|script| {
        script.meanwhile =
            Some(Box::new(move || api.state().change("a", |node| node["spec"]["providerID"] = "fake:///b".into())));
    });
    passes(&context, &mut memory, 3).await;
    assert!(world.cloud.calls().contains(&"verify".to_owned()));
    assert_eq!(world.api.writes(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn one_list_answers_for_several_nodes_and_only_missing_ones_are_asked_for() {
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    let world = World::new(&names[1..].iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        world.api.state().put(known_node(name, "Unknown"));
    }
    let (context, mut memory) = (world.context(options(None)).await, Memory::default());
    passes(&context, &mut memory, 1).await;
    assert_eq!(world.cloud.calls(), ["list", "get fake:///n0"]);
    passes(&context, &mut memory, 1).await;
    assert_eq!(world.cloud.calls(), ["list", "get fake:///n0", "verify"]);
    assert_eq!(world.api.writes(), ["DELETE n0 200"]);
}

#[tokio::test(start_paused = true)]
async fn the_guard_keeps_nodes_with_a_reason_and_lets_others_go() {
    let figures = GuardOptions { min_not_ready: Duration::from_secs(600), max_per_hour: 1, max_percent: 50 };
    let world = World::new(&["b", "c", "d"]);
    let now = Timestamp::now();
    for (name, minutes, ready) in [("a", 20, "Unknown"), ("e", 15, "Unknown"), ("b", 99, "True"), ("c", 99, "True")] {
        let mut node = known_node(name, ready);
        let since = now.checked_sub(SignedDuration::from_mins(minutes)).unwrap();
        let since = since.round(k8s_openapi::jiff::Unit::Second).unwrap().to_string();
        node["status"]["conditions"][0]["lastTransitionTime"] = since.into();
        world.api.state().put(node);
    }
    let context = world.context(options(Some(figures.clone()))).await;
    let mut memory = Memory::default();
    memory.guard = Some(Guard::new(&figures, Clocks::read()));
    passes(&context, &mut memory, 2).await;
    assert_eq!(world.api.writes(), [""; 0], "it has just begun to lead");
    assert_eq!(
        (world.api.reasons("a"), world.api.reasons("e")),
        (vec!["NodeKept".to_owned()], vec!["NodeKept".to_owned()])
    );

    let Clocks { wall, monotonic } = Clocks::read();
    let since = Clocks {
        wall: wall.checked_sub(SignedDuration::from_mins(11)).unwrap(),
        monotonic: monotonic.checked_sub(Duration::from_secs(660)).unwrap(),
    };
    memory.guard = Some(Guard::new(&figures, since));
    world.api.state().stop_watches();
    tokio::time::sleep(Duration::from_secs(60)).await;
    passes(&context, &mut memory, 1).await;
    assert_eq!(world.api.writes(), [""; 0], "the nodes may have changed, unseen");
    world.api.state().refusals.clear();
    tokio::time::sleep(Duration::from_secs(60)).await;
    passes(&context, &mut memory, 1).await;
    assert_eq!(world.api.writes(), ["DELETE a 200"]);
    passes(&context, &mut memory, 3).await;
    assert_eq!(world.api.writes(), ["DELETE a 200"], "one in an hour");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let kept = world.api.state().events.iter().find(|event| event["involvedObject"]["name"] == "e").unwrap()["message"]
        .clone();
    assert!(kept.as_str().unwrap().contains("--node-deletion-max-per-hour"), "{kept}");
}
