use axum::Router;
use serde_json::json;

use super::*;
use crate::controllers::metrics::Metrics;

/// An applier in a cluster in which nothing exists.
fn applier() -> Applier {
    let client = Client::new(Router::new(), "own");
    let events = Events::start(client.clone(), Metrics::default());
    let mut applier = Applier::new(events, Duration::from_secs(150));
    applier.unseen = LiveState::Absent;
    applier
}

fn object(name: &str) -> Object {
    let metadata = json!({"name": name, "namespace": "n"});
    Object::new(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})).unwrap()
}

/// Lets other managers keep changing an object, so that its repairs are held back for about a minute.
fn contest(applier: &mut Applier, object: &Object) {
    let mut at = Instant::now();
    for _ in 0..20 {
        if let Err(free) = applier.limiter.repair(object.key(), at) {
            at = free;
        }
    }
}

#[tokio::test]
async fn an_object_that_is_held_back_takes_no_room_of_others() {
    let mut applier = applier();
    let contested = ["a", "b", "c", "d", "e"].map(object);
    for one in &contested {
        contest(&mut applier, one);
    }
    applier.limit_writes(4);
    assert!(contested.iter().all(|one| applier.start(one, None).is_none()));
    assert!(!applier.has_reached_limit, "no pass would ever be whole, and no status written");
    assert_eq!(applier.contested.len(), contested.len());
    let others = ["f", "g", "h", "i", "j"].map(object);
    let started = others.iter().filter(|one| applier.start(one, None).is_some()).count();
    assert_eq!((started, applier.has_reached_limit), (4, true));
}

#[tokio::test]
async fn what_has_no_room_counts_as_no_repair() {
    let mut applier = applier();
    let (written, deleted) = (object("written"), object("deleted"));
    applier.limit_writes(0);
    for _ in 0..=REPAIR_BURST {
        assert!(
            applier.start(&written, None).is_none() && !(applier.may_write_more() && applier.may_repair(deleted.key()))
        );
    }
    assert!(applier.has_reached_limit && applier.contested.is_empty());
    applier.limit_writes(1);
    assert!(applier.may_write_more() && applier.may_repair(deleted.key()), "the room is used by the deletion itself");
    assert!(applier.start(&written, None).is_some() && !applier.has_reached_limit);
    assert!(applier.start(&written, None).is_none() && applier.has_reached_limit);
}

#[tokio::test]
async fn a_role_that_the_api_server_does_not_find_yet_is_reported_only_the_second_time() {
    let mut applier = applier();
    let binding = object("binding");
    let mut fail = || {
        let status = kube::core::Status { code: 404, message: "roles \"a\" not found".into(), ..Default::default() };
        let source = Cause::Api(kube::Error::Api(Box::new(status)));
        applier.fail(&Error { object: binding.key(), action: "apply", source }, binding.value());
        applier.objects[&binding.key()].error().unwrap().to_owned()
    };
    let first = fail();
    assert!(first.contains("found a moment later"), "{first}");
    assert!(first.starts_with(&fail()), "the second one is another text, which is logged");
}
