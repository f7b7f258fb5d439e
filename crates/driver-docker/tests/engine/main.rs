//! The life of instances on real Docker Engines: the one of `hack/e2e/run.sh`, which runs this, and another one with mutual TLS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends at the first surprise")]

use std::{
    collections::BTreeMap,
    env, fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use ccm_driver_docker::Docker;
use ccm_drivers::{
    contract::{
        AddressKind, Driver, DriverType, ErrorKind, Filter, InstanceSpec, Instances, ResourceKind, State, UserData,
    },
    settings::{COMMON, Given, Values},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

mod regions;
mod secured;

/// Ends at once when it is told to.
const SCRIPT: &str = "trap 'exit 0' TERM; while true; do sleep 3600 & wait; done";

fn values(given: &[(&str, &str)]) -> Values {
    let flags = given.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
    let given = Given { flags, ..Given::default() };
    Values::resolve("docker", Docker.settings().iter().chain(&COMMON), &given).unwrap()
}

/// The Engine that `hack/e2e/run.sh` has started; never one that happens to run on this machine.
fn host() -> String {
    assert!(
        env::var_os("CCM_OPERATOR_E2E").is_some_and(|value| value == "namespaces"),
        "run this with hack/e2e/run.sh"
    );
    env::var("DOCKER_HOST").unwrap()
}

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn docker(host: &[String], arguments: &[&str]) -> String {
    run(Command::new("docker").env_remove("DOCKER_HOST").args(host).args(arguments))
}

/// The program of the Engine, and its packages' folder.
fn dockerd() -> (PathBuf, PathBuf) {
    let path = env::var_os("PATH").unwrap();
    let program = env::split_paths(&path).map(|folder| folder.join("dockerd")).find(|file| file.exists()).unwrap();
    let packages = program.ancestors().nth(3).unwrap().to_owned();
    (program, packages)
}

/// An image with busybox only, of this name.
fn import(host: &[String], name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let bin = folder.path().join("root/bin");
    fs::create_dir_all(&bin).unwrap();
    fs::copy(dockerd().1.join("bin/busybox"), bin.join("busybox")).unwrap();
    for applet in ["sh", "sleep", "cat", "ls", "stat", "hostname", "dd", "grep", "nc", "mount"] {
        std::os::unix::fs::symlink("busybox", bin.join(applet)).unwrap();
    }
    let tar = folder.path().join("root.tar");
    run(Command::new("tar").arg("-C").arg(folder.path().join("root")).arg("-cf").arg(&tar).arg("."));
    docker(host, &["import", "--change", "CMD [\"/bin/sh\",\"-c\",\"sleep 3600\"]", &tar.to_string_lossy(), name]);
}

/// A spec with a key and a name of its own.
fn spec(image: &str, name: &str) -> InstanceSpec {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let key = format!("uid-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let command = ["/bin/sh", "-c", SCRIPT].join(",");
    InstanceSpec {
        key,
        cluster: "cluster-1".to_owned(),
        name: name.to_owned(),
        image: image.to_owned(),
        options: Values::default().with("command", &command),
        ..InstanceSpec::default()
    }
}

fn instances(driver: &dyn Driver) -> &dyn Instances {
    driver.instances().unwrap()
}

async fn output(driver: &dyn Driver, id: &str, command: &[&str]) -> String {
    let command: Vec<_> = command.iter().map(ToString::to_string).collect();
    let output = driver.run_command().unwrap().run(id, &command).await.unwrap();
    assert_eq!(output.exit_code, 0, "{output:?}");
    output.stdout
}

#[tokio::test]
async fn an_instance_lives_and_is_gone() {
    let (host, image) = (host(), "localhost/life:1");
    let client = ["--host".to_owned(), host.clone()];
    import(&client, image);
    for network in [["life", "172.30.41.0/24"], ["life-too", "172.30.42.0/24"]] {
        docker(&client, &["network", "create", "--subnet", network[1], network[0]]);
    }
    let driver = Docker.open(&values(&[("host", &host), ("network", "life"), ("image", image)])).await.unwrap();
    let account = driver.account().verify().await.unwrap();
    assert!(!account.id.is_empty());
    driver.account().verify_settings().await.unwrap();
    let shared = tempfile::tempdir().unwrap();
    fs::write(shared.path().join("file"), "of the host").unwrap();

    let user_data = UserData::new(b"#cloud-config\nhostname: x\n".to_vec());
    let labels = BTreeMap::from([("a/b".to_owned(), "c=d, e".to_owned())]);
    let mut spec = InstanceSpec { image: String::new(), user_data, labels, ..spec(image, "life-1") };
    spec.options = spec
        .options
        .with("tmpfs", "/run")
        .with("volumes", "/var")
        .with("ports", "127.0.0.1:18080:80")
        .with("mounts", &format!("{}:/shared:ro", shared.path().display()))
        .with("privileged", "true")
        .with("cgroupNamespace", "private");
    let all = instances(&*driver);
    let (made, again) = tokio::join!(all.create(&spec), all.create(&spec));
    let made = made.unwrap();
    assert_eq!(made.id, again.unwrap().id);
    assert_eq!((made.state, made.name.as_str(), made.image.as_str()), (State::Running, "life-1", image));
    assert_eq!(
        (made.provider_id.as_str(), &made.marks, &made.labels),
        ("docker:////life-1", &spec.marks(), &spec.labels)
    );
    assert_eq!((made.addresses[0].kind, made.addresses[0].address.as_str()), (AddressKind::Hostname, "life-1"));
    let (kind, address) = (made.addresses[1].kind, made.addresses[1].address.clone());
    assert!(kind == AddressKind::InternalIP && address.starts_with("172.30.41."), "{:?}", made.addresses);
    assert_eq!(all.get(&made.id).await.unwrap(), made);
    let of_name = Filter { name: Some("life-1".to_owned()), ..Filter::default() };
    assert_eq!(all.list(&of_name).await.unwrap(), std::slice::from_ref(&made));
    let of_labels = Filter { labels: spec.labels.clone(), owner: Some(spec.key.clone()), ..Filter::default() };
    assert_eq!(all.list(&of_labels).await.unwrap(), std::slice::from_ref(&made));

    options_are_in_effect(&*driver, &made.id).await;
    metrics_grow(&*driver, &made.id).await;

    let other = InstanceSpec { name: "life-2".to_owned(), ..spec.clone() };
    assert_eq!(all.create(&other).await.unwrap_err().kind, ErrorKind::AlreadyExists);
    let other = InstanceSpec { key: "another".to_owned(), ..spec.clone() };
    assert_eq!(all.create(&other).await.unwrap_err().kind, ErrorKind::AlreadyExists);

    for _ in 0..2 {
        all.stop(&made.id).await.unwrap();
    }
    let stopped = all.get(&made.id).await.unwrap();
    assert_eq!((stopped.state, stopped.addresses.len()), (State::Stopped, 0));
    assert_eq!(all.list(&of_name).await.unwrap(), [stopped]);
    assert_eq!(driver.metrics().unwrap().usage(&made.id).await.unwrap().processor_seconds, None);
    let error = driver.run_command().unwrap().run(&made.id, &["ls".to_owned()]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument("id".to_owned()), "{error}");
    assert_eq!(all.create(&spec).await.unwrap().state, State::Stopped);
    for _ in 0..2 {
        all.start(&made.id).await.unwrap();
    }
    assert_eq!(all.get(&made.id).await.unwrap().state, State::Running);

    let volume = docker(&client, &["inspect", "--format", "{{range .Mounts}}{{.Name}}{{end}}", "life-1"]);
    let volumes = || docker(&client, &["volume", "ls", "--quiet"]);
    assert!(!volume.is_empty() && volumes().contains(&volume), "{volume}");
    let (first, second) = tokio::join!(all.delete(&made.id), all.delete(&made.id));
    first.unwrap();
    second.unwrap();
    assert_eq!(all.list(&of_name).await.unwrap(), []);
    assert!(all.get(&made.id).await.unwrap_err().is_not_found());
    all.delete(&made.id).await.unwrap();
    assert!(!volumes().contains(&volume), "its volume is deleted with it");
}

async fn options_are_in_effect(driver: &dyn Driver, id: &str) {
    let seed = "/var/lib/cloud/seed/nocloud";
    let read = async |file: &str| output(driver, id, &["cat", &format!("{seed}/{file}")]).await;
    assert_eq!(read("user-data").await, "#cloud-config\nhostname: x\n");
    assert_eq!(read("meta-data").await, format!("{{\"instance-id\":\"{id}\",\"local-hostname\":\"life-1\"}}\n"));
    let modes =
        output(driver, id, &["stat", "-c", "%a %u", "/var", "/var/lib", seed, &format!("{seed}/user-data")]).await;
    assert_eq!(modes, "755 0\n755 0\n755 0\n600 0\n");
    let mounts = output(driver, id, &["cat", "/proc/mounts"]).await;
    assert!(mounts.contains("tmpfs /run ") && mounts.contains(" /var ") && mounts.contains("/shared"), "{mounts}");
    assert_eq!(output(driver, id, &["cat", "/shared/file"]).await, "of the host");
    assert_eq!(output(driver, id, &["hostname"]).await, "life-1\n");
    // With all permissions it can mount.
    output(driver, id, &["mount", "-t", "tmpfs", "none", "/run"]).await;
    let groups = output(driver, id, &["cat", "/proc/1/cgroup"]).await;
    assert!(groups.lines().all(|line| line.ends_with(":/")), "{groups}");
    let command = ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"].map(str::to_owned);
    let failed = driver.run_command().unwrap().run(id, &command).await.unwrap();
    assert_eq!((failed.exit_code, failed.stdout.as_str(), failed.stderr.as_str()), (7, "out\n", "err\n"));
    let missing = driver.run_command().unwrap().run(id, &["/nope".to_owned()]).await.unwrap();
    assert!([126, 127].contains(&missing.exit_code), "{missing:?}");

    let served = async || {
        output(driver, id, &["/bin/sh", "-c", "echo hello | nc -l -p 80"]).await;
    };
    let asked = async || {
        for _ in 0..100 {
            // The proxy of the port accepts before the container listens.
            let mut stream = TcpStream::connect("127.0.0.1:18080").await.unwrap();
            let (mut text, _) = (String::new(), stream.shutdown().await);
            if stream.read_to_string(&mut text).await.is_ok() && text == "hello\n" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the published port leads nowhere");
    };
    tokio::join!(served(), asked());
}

async fn metrics_grow(driver: &dyn Driver, id: &str) {
    let usage = async || driver.metrics().unwrap().usage(id).await.unwrap();
    let before = usage().await;
    output(driver, id, &["/bin/sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]).await;
    let after = usage().await;
    assert!(after.processor_seconds > before.processor_seconds, "{before:?} {after:?}");
    let (Some(used), Some(limit)) = (after.memory_bytes, after.memory_limit_bytes) else { panic!("{after:?}") };
    assert!(used < limit && after.network_received_bytes > Some(0), "{after:?}");
}

#[tokio::test]
async fn what_others_made_is_seen_and_not_changed() {
    let (host, image) = (host(), "localhost/foreign:1");
    let client = ["--host".to_owned(), host.clone()];
    import(&client, image);
    let driver = Docker.open(&values(&[("host", &host)])).await.unwrap();
    let all = instances(&*driver);
    let id = docker(&client, &["run", "--detach", "--network", "none", "--label", "a=b", "--name", "foreign-1", image]);
    let found = all.list(&Filter { name: Some("foreign-1".to_owned()), ..Filter::default() }).await.unwrap();
    assert_eq!((found[0].id.as_str(), &found[0].marks.owner, found[0].labels.len()), (id.as_str(), &None, 1));
    for result in [all.delete(&id).await, all.stop(&id).await, all.start(&id).await] {
        assert_eq!(result.unwrap_err().kind, ErrorKind::Forbidden);
    }
    let in_the_way = InstanceSpec { networks: vec!["none".to_owned()], ..spec(image, "foreign-1") };
    let error = all.create(&in_the_way).await.unwrap_err();
    assert_eq!((error.kind, error.instance), (ErrorKind::AlreadyExists, None));

    // The Engine takes the beginning of an id, or a name, for the id. The driver never lets it.
    let own = InstanceSpec { networks: vec!["none".to_owned()], ..spec(image, &id[..12]) };
    let own = all.create(&own).await.unwrap();
    for part in [&id[..12], &id[..63], "foreign-1"] {
        assert!(all.get(part).await.unwrap_err().is_not_found());
        assert_eq!(all.delete(part).await.unwrap_err().kind, ErrorKind::InvalidArgument("id".to_owned()));
    }
    all.delete(&own.id).await.unwrap();
    all.delete(&own.id).await.unwrap();
    assert_eq!(all.get(&id).await.unwrap().state, State::Running);

    // One that is paused has a state that the contract has no word for.
    docker(&client, &["pause", "foreign-1"]);
    assert_eq!(all.get(&id).await.unwrap().state, State::Unknown);
    docker(&client, &["unpause", "foreign-1"]);
    docker(&client, &["rm", "--force", "foreign-1"]);
}

#[tokio::test]
async fn a_failure_names_its_field_and_carries_the_id() {
    let (host, image) = (host(), "localhost/failures:1");
    let client = ["--host".to_owned(), host.clone()];
    import(&client, image);
    let driver = Docker.open(&values(&[("host", &host)])).await.unwrap();
    let all = instances(&*driver);
    let base = |name: &str| InstanceSpec { networks: vec!["none".to_owned()], ..spec(image, name) };
    let option = |name: &str, option: &str, value: &str| {
        let base = base(name);
        InstanceSpec { options: base.options.clone().with(option, value), ..base }
    };
    let before = [
        (InstanceSpec { image: "localhost/nope:1".to_owned(), ..base("fail-1") }, "image"),
        (InstanceSpec { networks: vec!["nope".to_owned()], ..base("fail-1") }, "network"),
        (option("fail-1", "mounts", "/nope:/x"), "mounts"),
    ];
    for (spec, field) in before {
        let error = all.create(&spec).await.unwrap_err();
        assert_eq!((&error.kind, &error.instance), (&ErrorKind::InvalidArgument(field.to_owned()), &None), "{error}");
    }
    docker(&client, &["network", "create", "--subnet", "172.30.43.0/24", "failures"]);
    let networks = vec!["failures".to_owned()];
    let first = InstanceSpec { networks: networks.clone(), ..option("fail-2", "ports", "127.0.0.1:18081:80") };
    let second = InstanceSpec { networks, ..option("fail-3", "ports", "127.0.0.1:18081:80") };
    let first = all.create(&first).await.unwrap();
    let after = [(second.clone(), "ports"), (option("fail-4", "command", "/nope"), "command")];
    for (spec, field) in after {
        let error = all.create(&spec).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument(field.to_owned()), "{error}");
        let made = all.get(error.instance.as_ref().unwrap()).await.unwrap();
        assert_eq!((made.state, made.name.as_str()), (State::Pending, spec.name.as_str()));
        assert_eq!(all.start(&made.id).await.unwrap_err().kind, ErrorKind::InvalidArgument("id".to_owned()));
        assert_eq!(all.create(&spec).await.unwrap_err().instance.as_ref(), Some(&made.id));
    }
    // Once the reason is gone, the next call finishes it.
    all.delete(&first.id).await.unwrap();
    let second = all.create(&second).await.unwrap();
    assert_eq!(second.state, State::Running);
    let own = all.list(&Filter::default()).await.unwrap().into_iter().filter(|one| one.name.starts_with("fail-"));
    for one in own.collect::<Vec<_>>() {
        all.delete(&one.id).await.unwrap();
    }
}

#[tokio::test]
async fn an_instance_is_in_several_networks_before_it_starts() {
    let (host, image) = (host(), "localhost/networks:1");
    let client = ["--host".to_owned(), host.clone()];
    import(&client, image);
    for network in [["first", "172.30.44.0/24"], ["a-second", "172.30.45.0/24"]] {
        docker(&client, &["network", "create", "--subnet", network[1], network[0]]);
    }
    let driver = Docker.open(&values(&[("host", &host)])).await.unwrap();
    let all = instances(&*driver);
    let spec =
        InstanceSpec { networks: ["first", "a-second"].map(str::to_owned).to_vec(), ..spec(image, "networks-1") };
    let spec = InstanceSpec { user_data: UserData::new(b"#!/bin/sh\n".to_vec()), ..spec };
    // As two processes.
    let second = Docker.open(&values(&[("host", &host)])).await.unwrap();
    let (made, same) = tokio::join!(all.create(&spec), instances(&*second).create(&spec));
    let made = made.unwrap();
    assert_eq!(same.unwrap().id, made.id);
    let internal: Vec<_> = made.addresses.iter().skip(1).map(|one| one.address.as_str()).collect();
    assert!(internal[0].starts_with("172.30.44.") && internal[1].starts_with("172.30.45."), "{internal:?}");
    assert_eq!(all.create(&spec).await.unwrap(), made);
    all.delete(&made.id).await.unwrap();
}

#[tokio::test]
async fn the_inventory_is_that_of_the_engine() {
    let (host, image) = (host(), "localhost/inventory:1");
    let client = ["--host".to_owned(), host.clone()];
    import(&client, image);
    docker(&client, &["volume", "create", "inventory"]);
    docker(&client, &["network", "create", "--subnet", "172.30.46.0/24", "inventory"]);
    let driver = Docker.open(&values(&[("host", &format!("here={host}"))])).await.unwrap();
    let account = driver.account().verify().await.unwrap();
    let inventory = driver.inventory().unwrap();
    let find = async |kind, name: &str| {
        let all = inventory.list(kind, Some("here")).await.unwrap();
        let found = all.into_iter().find(|one| one.name == name).unwrap();
        assert_eq!(inventory.get(kind, &found.id).await.unwrap(), found);
        assert_eq!(found.region, "here");
        found
    };
    assert_eq!(find(ResourceKind::Network, "inventory").await.details["subnet"], "172.30.46.0/24");
    assert_eq!(find(ResourceKind::Storage, "inventory").await.id, "here/inventory");
    assert!(find(ResourceKind::Image, image).await.details["digest"].starts_with("sha256:"));
    let engine = &inventory.list(ResourceKind::Host, None).await.unwrap()[0];
    assert_eq!((&engine.id, &engine.name), (&account.id, &account.name));
    let version = docker(&client, &["version", "--format", "{{.Server.Version}}"]);
    assert_eq!(engine.details["version"], version);
    let error = inventory.list(ResourceKind::InstanceType, None).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotSupported);
}
