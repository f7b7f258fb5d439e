//! The controllers with the driver of the fake cloud, by the layer that all programs use.

use std::{collections::BTreeMap, path::Path};

use ccm_driver_fake::Fake;
use ccm_drivers::{
    contract::{DriverType, InstanceSpec},
    middleware::{InFlightHandle, Session},
    settings::{COMMON, Given, Values},
};

use super::*;

/// The time is real, because the fake cloud has sockets.
#[tokio::test]
async fn the_life_of_a_node_in_the_fake_cloud() {
    let folder = tempfile::tempdir().unwrap();
    let session = Arc::new(open(&Fake::new(), &folder.path().join("cloud.json"), None).await);
    let instances = session.instances().unwrap();
    let made = instances.create(&spec("a")).await.unwrap();
    instances.create(&spec("b")).await.unwrap();

    let world = World::new(&[]);
    world.api.state().put(new_node("a"));
    let fast = Options { node_monitor_period: Duration::from_millis(20), ..options(None) };
    world.run_with(Arc::clone(&session) as Arc<dyn Driver>, fast);
    world.until("it is initialized", |api| api.reasons("a") == ["Synced"]).await;
    assert_eq!(world.api.node("a")["spec"]["providerID"], made.provider_id);
    instances.stop(&made.id).await.unwrap();
    world.until("it is tainted", |api| api.node("a")["spec"]["taints"][0]["key"].is_string()).await;
    instances.start(&made.id).await.unwrap();
    world.api.state().change("a", |node| node["status"]["conditions"][0]["status"] = "True".into());
    world.until("the taint is gone", |api| api.node("a")["spec"]["taints"] == json!([])).await;
    instances.delete(&made.id).await.unwrap();
    world.api.state().change("a", |node| node["status"]["conditions"][0]["status"] = "Unknown".into());
    world.until("it is deleted", |api| api.node("a").is_null()).await;
}

/// Replaces the account in the file of a cloud by another one with the same credentials.
fn become_another(file: &Path) {
    let mut cloud: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    cloud["account"]["id"] = "acct-other".into();
    let next = file.with_extension("next");
    std::fs::write(&next, cloud.to_string()).unwrap();
    std::fs::rename(next, file).unwrap();
}

/// A driver that is opened with the id of the account that was used first has no answer of another one, even if an instance fits.
#[tokio::test]
async fn another_account_initializes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cloud.json");
    let fake = Fake::new();
    let first = open(&fake, &file, None).await;
    for name in ["a", "b"] {
        first.instances().unwrap().create(&spec(name)).await.unwrap();
    }
    let session = open(&fake, &file, Some(&first.account_info().id)).await;

    let world = World::new(&[]);
    world.api.state().put(new_node("a"));
    world.run_with(Arc::new(session), options(None));
    world.until("it is initialized", |api| api.reasons("a") == ["Synced"]).await;
    become_another(&file);
    world.api.state().put(new_node("b"));
    world.until("it is explained", |api| api.reasons("b").contains(&"AccountChanged".to_owned())).await;
    assert!(world.api.writes().iter().all(|write| write.starts_with("PATCH a")), "{:?}", world.api.writes());
}

fn spec(name: &str) -> InstanceSpec {
    InstanceSpec { key: name.to_owned(), name: name.to_owned(), ..InstanceSpec::default() }
}

async fn open(fake: &Fake, file: &Path, first: Option<&str>) -> Session {
    let flags = BTreeMap::from([("file".to_owned(), file.to_str().unwrap().to_owned())]);
    let given = Given { flags, ..Given::default() };
    let values = Values::resolve("fake", fake.settings().iter().chain(&COMMON), &given).unwrap();
    Session::open_listed(fake, &values, first, false, InFlightHandle::default()).await.unwrap()
}
