use ccm_drivers::{
    contract::{AddressKind, Capability, Filter, Instance, InstanceSpec, Marks, State, UserData, capabilities},
    settings::{COMMON, Given},
};

use super::*;
use crate::protocol::{MAX_LINE, MAX_USER_DATA};

mod faults;

/// The values of the settings that are given here.
fn values(given: &[(&str, &str)]) -> Values {
    let flags = given.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let given = Given { flags, ..Given::default() };
    Values::resolve("fake", SETTINGS.iter().chain(&COMMON), &given).unwrap()
}

async fn open(fake: &Fake, given: &[(&str, &str)]) -> Box<dyn Driver> {
    fake.open(&values(given)).await.unwrap()
}

fn instances(driver: &dyn Driver) -> &dyn Instances {
    driver.instances().unwrap()
}

fn spec(name: &str) -> InstanceSpec {
    InstanceSpec { key: format!("uid of {name}"), name: name.to_owned(), ..InstanceSpec::default() }
}

/// What `create` is given with an option.
fn with_option(name: &str, option: &str, text: &str) -> InstanceSpec {
    let given = BTreeMap::from([(option.to_owned(), text.to_owned())]);
    InstanceSpec { options: Values::options(&OPTIONS, &given).unwrap(), ..spec(name) }
}

async fn all(driver: &dyn Driver) -> Vec<Instance> {
    instances(driver).list(&Filter::default()).await.unwrap()
}

async fn run(driver: &dyn Driver, id: &str, command: &[&str]) -> (i64, String) {
    let command: Vec<_> = command.iter().map(|&word| word.to_owned()).collect();
    let output = driver.run_command().unwrap().run(id, &command).await.unwrap();
    (output.exit_code, output.stdout + &output.stderr)
}

#[tokio::test]
async fn create_twice_is_one_and_another_spec_already_exists() {
    let fake = Fake::new();
    let driver = open(&fake, &[]).await;
    let labels = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
    let first = InstanceSpec { labels, cluster: "cluster".to_owned(), ..spec("a") };
    let made = instances(&*driver).create(&first).await.unwrap();
    assert_eq!(made.state, State::Running);
    assert_eq!(made.provider_id, format!("fake:///north-1/{}", made.id));
    assert_eq!(made.marks, Marks { owner: Some("uid of a".to_owned()), cluster: Some("cluster".to_owned()) });
    assert_eq!((&made.labels, &*made.image, &*made.instance_type), (&first.labels, "debian", "small"));
    let addresses: Vec<_> = made.addresses.iter().map(|one| (one.kind, one.address.as_str())).collect();
    assert_eq!(addresses, [(AddressKind::Hostname, "a"), (AddressKind::InternalIP, "10.1.0.2")]);

    // The digest is of what was given: the same with another default, and after a stop.
    instances(&*driver).stop(&made.id).await.unwrap();
    let other = open(&fake, &[(IMAGE, "gone")]).await;
    let again = instances(&*other).create(&first).await.unwrap();
    assert_eq!(again, Instance { state: State::Stopped, ..made.clone() });
    assert_eq!(
        instances(&*driver).create(&InstanceSpec { cluster: String::new(), ..first.clone() }).await.unwrap(),
        again
    );

    for another in [
        InstanceSpec { image: "fedora".to_owned(), ..first.clone() },
        InstanceSpec { name: "b".to_owned(), ..first.clone() },
        InstanceSpec { user_data: UserData::new(b"x".to_vec()), ..first.clone() },
        InstanceSpec { options: with_option("a", CPUS, "3").options, ..first.clone() },
        InstanceSpec { key: "other".to_owned(), ..first.clone() },
    ] {
        let error = instances(&*driver).create(&another).await.unwrap_err();
        assert_eq!((error.kind, error.instance), (ErrorKind::AlreadyExists, None), "{another:?}");
    }
    assert_eq!(all(&*driver).await, [again]);
}

#[tokio::test]
async fn concurrent_creates_of_one_key_are_one() {
    let fake = Fake::new();
    let mut drivers = Vec::new();
    for _ in 0..4 {
        drivers.push(open(&fake, &[]).await);
    }
    let (one, spec) = (&drivers, &spec("a"));
    let create = |number: usize| async move { instances(&*one[number % 4]).create(spec).await.unwrap() };
    let made = tokio::join!(create(0), create(1), create(2), create(3), create(4), create(5), create(6), create(7));
    let made = [made.0, made.1, made.2, made.3, made.4, made.5, made.6, made.7];
    let found = all(&*drivers[0]).await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].state, State::Running);
    for one in made {
        assert_eq!(one.id, found[0].id);
    }
}

#[tokio::test]
async fn two_drivers_have_one_cloud_in_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cloud.json");
    let file: &[_] = &[(FILE, path.to_str().unwrap())];
    let (first, second, memory) = (Fake::new(), Fake::new(), Fake::new());
    let (first, second, memory) = (open(&first, file).await, open(&second, file).await, open(&memory, &[]).await);
    assert_eq!(first.account().verify().await.unwrap(), second.account().verify().await.unwrap());
    assert_ne!(memory.account().verify().await.unwrap(), first.account().verify().await.unwrap());
    let (one, same) = tokio::join!(async { instances(&*first).create(&spec("a")).await.unwrap() }, async {
        instances(&*second).create(&spec("a")).await.unwrap()
    },);
    assert_eq!(one.id, same.id);
    assert_eq!(all(&*first).await, all(&*second).await);
    assert_eq!(all(&*memory).await, []);
    instances(&*second).delete(&one.id).await.unwrap();
    assert!(instances(&*first).get(&one.id).await.unwrap_err().is_not_found());
    assert_eq!(all(&*first).await, []);
}

#[tokio::test]
async fn what_is_gone_or_was_never_there_is_not_found_and_deleted() {
    let fake = Fake::new();
    let driver = open(&fake, &[]).await;
    let all_of = instances(&*driver);
    let gone = all_of.create(&spec("gone")).await.unwrap().id;
    all_of.delete(&gone).await.unwrap();
    let kept = all_of.create(&spec("kept")).await.unwrap();
    // A name that is an id, or the beginning of one, is of no use as an id.
    let named = all_of.create(&spec(&kept.id[..10])).await.unwrap();
    for id in [gone.as_str(), &kept.id[..17], &named.name, "kept", "i-", "", "north", "*"] {
        all_of.delete(id).await.unwrap();
        for result in [all_of.get(id).await.map(drop), all_of.start(id).await, all_of.stop(id).await] {
            assert_eq!(result.unwrap_err().kind, ErrorKind::NotFound, "{id}");
        }
        assert!(driver.metrics().unwrap().usage(id).await.unwrap_err().is_not_found());
        assert!(driver.run_command().unwrap().run(id, &["true".to_owned()]).await.unwrap_err().is_not_found());
    }
    assert_eq!(all(&*driver).await, [kept, named]);
}

#[tokio::test]
async fn an_instance_of_others_is_not_changed() {
    let fake = Fake::new();
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("cloud.json");
    let driver = open(&fake, &[(FILE, path.to_str().unwrap())]).await;
    let made = instances(&*driver).create(&spec("a")).await.unwrap();
    let mut cloud: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let without =
        |cloud: &mut serde_json::Value| cloud["instances"][0]["labels"].as_object_mut().unwrap().remove(Marks::OWNER);
    let empty = |cloud: &mut serde_json::Value| {
        let labels = cloud["instances"][0]["labels"].as_object_mut().unwrap();
        labels.insert(Marks::OWNER.to_owned(), String::new().into())
    };
    let (all, commands) = (instances(&*driver), driver.run_command().unwrap());
    for change in [&empty as &dyn Fn(&mut _) -> _, &without] {
        change(&mut cloud).unwrap();
        std::fs::write(&path, cloud.to_string()).unwrap();
        for result in [
            all.delete(&made.id).await,
            all.stop(&made.id).await,
            all.start(&made.id).await,
            commands.run(&made.id, &["true".to_owned()]).await.map(drop),
        ] {
            assert_eq!(result.unwrap_err().kind, ErrorKind::Forbidden);
        }
        let found = all.get(&made.id).await.unwrap();
        assert_eq!((found.marks, found.state), (Marks::default(), State::Running));
        driver.metrics().unwrap().usage(&made.id).await.unwrap();
    }
}

#[tokio::test]
async fn user_data_that_is_too_long_is_not_sent() {
    let fake = Fake::new();
    let driver = open(&fake, &[]).await;
    let of = |name: &str, length| InstanceSpec { user_data: UserData::new(vec![b'x'; length]), ..spec(name) };
    instances(&*driver).create(&of("a", MAX_USER_DATA)).await.unwrap();
    // The second one would be a longer line than the cloud reads.
    for length in [MAX_USER_DATA + 1, MAX_LINE / 2] {
        let error = instances(&*driver).create(&of("b", length)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument("userData".to_owned()), "{error}");
        // The cloud's own errors name its address.
        assert!(!error.message.contains("fake cloud at"), "{error}");
    }
    assert_eq!(all(&*driver).await.len(), 1);
}

#[tokio::test]
async fn filters_are_exact() {
    let fake = Fake::new();
    let driver = open(&fake, &[]).await;
    for (name, zone) in [("a", "north-1"), ("ab", "north-2"), ("b", "south-1")] {
        let labels = BTreeMap::from([("name".to_owned(), name.to_owned())]);
        let spec = InstanceSpec { zone: zone.to_owned(), labels, ..spec(name) };
        instances(&*driver).create(&spec).await.unwrap();
    }
    let some = |text: &str| Some(text.to_owned());
    let label = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    for (filter, expected) in [
        (Filter::default(), vec!["a", "ab", "b"]),
        (Filter { region: some("north"), ..Filter::default() }, vec!["a", "ab"]),
        (Filter { zone: some("north-2"), ..Filter::default() }, vec!["ab"]),
        (Filter { region: some("south"), zone: some("north-2"), ..Filter::default() }, vec![]),
        (Filter { name: some("a"), ..Filter::default() }, vec!["a"]),
        (Filter { owner: some("uid of b"), ..Filter::default() }, vec!["b"]),
        (Filter { owner: some("uid of"), ..Filter::default() }, vec![]),
        (Filter { owner: some(""), ..Filter::default() }, vec![]),
        (Filter { labels: label("name", "ab"), ..Filter::default() }, vec!["ab"]),
        (Filter { labels: label("name", ""), ..Filter::default() }, vec![]),
        (Filter { labels: label(Marks::OWNER, "uid of a"), ..Filter::default() }, vec![]),
    ] {
        let found = instances(&*driver).list(&filter).await.unwrap();
        assert_eq!(found.iter().map(|one| &*one.name).collect::<Vec<_>>(), expected, "{filter:?}");
    }
    for (filter, field) in [
        (Filter { region: some("nort"), ..Filter::default() }, "region"),
        (Filter { region: some("north-1"), ..Filter::default() }, "region"),
        (Filter { zone: some("north"), ..Filter::default() }, "zone"),
        (Filter { region: some("north"), zone: some(""), ..Filter::default() }, "zone"),
    ] {
        let error = instances(&*driver).list(&filter).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument(field.to_owned()), "{filter:?}");
    }
}

#[tokio::test]
async fn what_only_create_needs_blocks_nothing_else() {
    let fake = Fake::new();
    let made = instances(&*open(&fake, &[]).await).create(&spec("a")).await.unwrap();
    for (setting, field) in [(IMAGE, "image"), (NETWORK, "networks"), (INSTANCE_TYPE, "instanceType")] {
        let driver = open(&fake, &[(setting, "gone")]).await;
        let error = instances(&*driver).create(&spec("b")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument(field.to_owned()));
        let error = driver.account().verify_settings().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument(setting.to_owned()));
        driver.account().verify().await.unwrap();
        assert_eq!(all(&*driver).await, std::slice::from_ref(&made));
        assert_eq!(instances(&*driver).get(&made.id).await.unwrap(), made);
    }
    let driver = open(&fake, &[(IMAGE, "gone")]).await;
    instances(&*driver).delete(&made.id).await.unwrap();
    open(&fake, &[]).await.account().verify_settings().await.unwrap();
}

#[tokio::test]
async fn settings_options_and_the_spec_have_an_effect() {
    let fake = Fake::new();
    let driver = open(&fake, &[(IMAGE, "fedora"), (NETWORK, "private"), (INSTANCE_TYPE, "large")]).await;
    let made = instances(&*driver).create(&spec("a")).await.unwrap();
    assert_eq!((&*made.image, &*made.instance_type, &*made.addresses[1].address), ("fedora", "large", "172.16.0.2"));
    let mut given = with_option("b", CPUS, "3");
    given.image = "debian".to_owned();
    given.instance_type = "small".to_owned();
    given.networks = vec!["default".to_owned(), "private".to_owned()];
    given.region = "south".to_owned();
    given.zone = "south-2".to_owned();
    given.user_data = UserData::new(b"#cloud-config\n".to_vec());
    let other = instances(&*driver).create(&given).await.unwrap();
    assert_eq!((&*other.region, &*other.zone, &*other.image), ("south", "south-2", "debian"));
    assert_eq!((&*other.addresses[1].address, &*other.addresses[2].address), ("10.2.0.2", "172.17.0.2"));
    assert_eq!(
        run(&*driver, &other.id, &["cat", "/var/lib/cloud/seed/nocloud/user-data"]).await,
        (0, "#cloud-config\n".to_owned())
    );
    // Nothing of that call is left for the next.
    let third = instances(&*driver).create(&spec("c")).await.unwrap();
    assert_eq!((&*third.zone, &*third.image, third.addresses.len()), ("north-1", "fedora", 2));
    assert_eq!(run(&*driver, &third.id, &["cat", "/var/lib/cloud/seed/nocloud/user-data"]).await, (0, String::new()));

    let zero = instances(&*driver).create(&with_option("d", CPUS, "0")).await.unwrap_err();
    assert_eq!(zero.kind, ErrorKind::InvalidArgument(CPUS.to_owned()));
    let reserved = BTreeMap::from([(Marks::CLUSTER.to_owned(), String::new())]);
    for (wrong, field) in [
        (InstanceSpec { labels: reserved, ..spec("d") }, "labels"),
        (InstanceSpec { key: String::new(), ..spec("d") }, "key"),
        (InstanceSpec { name: String::new(), ..spec("d") }, "name"),
        (InstanceSpec { region: "east".to_owned(), ..spec("d") }, "region"),
        (InstanceSpec { zone: "east-1".to_owned(), ..spec("d") }, "zone"),
    ] {
        let error = instances(&*driver).create(&wrong).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument(field.to_owned()));
    }
}

#[tokio::test]
async fn regions_zones_and_the_inventory_are_as_the_cloud_has_them() {
    let fake = Fake::new();
    let driver = open(&fake, &[]).await;
    let topology = driver.topology();
    let invalid_region = || ErrorKind::InvalidArgument("region".to_owned());
    let ids = |zones: Vec<ccm_drivers::contract::Zone>| zones.into_iter().map(|zone| zone.id).collect::<Vec<_>>();
    assert_eq!(topology.regions().await.unwrap().len(), 2);
    assert_eq!(ids(topology.zones(None).await.unwrap()), ["north-1", "north-2", "south-1", "south-2"]);
    assert_eq!(ids(topology.zones(Some("south")).await.unwrap()), ["south-1", "south-2"]);
    assert_eq!(topology.zone("north-2").await.unwrap().region, "north");
    for region in ["east", "nort", "north-1", ""] {
        assert_eq!(topology.zones(Some(region)).await.unwrap_err().kind, invalid_region());
        assert!(topology.zone(&format!("{region}-9")).await.unwrap_err().is_not_found());
        assert!(topology.region(region).await.unwrap_err().is_not_found());
    }
    let inventory = driver.inventory().unwrap();
    for kind in ResourceKind::ALL {
        let found = inventory.list(kind, None).await.unwrap();
        let south = inventory.list(kind, Some("south")).await.unwrap();
        assert!(south.len() * 2 == found.len() && south.iter().all(|one| found.contains(one) && one.region == "south"));
        let ids: std::collections::BTreeSet<_> = found.iter().map(|one| &one.id).collect();
        assert_eq!(ids.len(), found.len());
        assert_eq!(inventory.get(kind, &found[0].id).await.unwrap(), found[0]);
        assert!(inventory.get(kind, &found[0].id[1..]).await.unwrap_err().is_not_found());
        assert_eq!(inventory.list(kind, Some("east")).await.unwrap_err().kind, invalid_region());
    }
    assert_eq!(capabilities(&*driver).len(), 5 + ResourceKind::ALL.len());
    assert!(capabilities(&*driver).contains_key(&Capability::RunCommand));
}

#[tokio::test]
async fn commands_and_metrics_are_of_instances_that_run() {
    let fake = Fake::new();
    let driver = open(&fake, &[]).await;
    let id = instances(&*driver).create(&spec("a")).await.unwrap().id;
    for (command, expected) in [
        (&["echo", "a", "b c"][..], (0, "a b c\n")),
        (&["true"], (0, "")),
        (&["false"], (1, "")),
        (&["hostname"], (0, "a\n")),
        (&["cat", "/x"], (1, "cat: /x: No such file or directory\n")),
        (&["reboot", "now"], (127, "reboot: command not found\n")),
    ] {
        assert_eq!(run(&*driver, &id, command).await, (expected.0, expected.1.to_owned()));
    }
    let commands = driver.run_command().unwrap();
    assert_eq!(commands.run(&id, &[]).await.unwrap_err().kind, ErrorKind::InvalidArgument("command".to_owned()));
    let usage = driver.metrics().unwrap().usage(&id).await.unwrap();
    assert_eq!((usage.memory_bytes, usage.memory_limit_bytes), (Some(1 << 29), Some(2 << 30)));
    assert!(usage.processor_seconds.is_some_and(|seconds| seconds >= 0.0));
    instances(&*driver).stop(&id).await.unwrap();
    let error = commands.run(&id, &["true".to_owned()]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument("id".to_owned()));
    let usage = driver.metrics().unwrap().usage(&id).await.unwrap();
    assert_eq!((usage.processor_seconds, usage.memory_bytes), (Some(0.0), Some(0)));
}
