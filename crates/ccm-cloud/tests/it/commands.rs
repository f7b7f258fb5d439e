//! The commands that ask a cloud.

use std::{fs, io::Write, process::Stdio};

use serde_json::{Value, json};

use crate::{Cloud, Done, ccm_cloud};

#[test]
fn an_instance_is_made_once_and_found_by_its_whole_id_or_name() {
    let cloud = Cloud::new();
    let words =
        ["--label", "a=b", "--network", "private", "--option", "cpus=3", "--cluster-id", "c1", "--image", "fedora"];
    let id = cloud.create("worker-1", "key-1", &words);
    assert_eq!(cloud.create("worker-1", "key-1", &words), id);
    let other = cloud.create("worker-10", "key-2", &[]);
    assert_ne!(other, id);

    for word in ["worker-1", &id] {
        let shown = cloud.json(&["instance-show", word]);
        assert_eq!(shown["id"], *id);
        assert_eq!((&shown["labels"], &shown["image"]), (&json!({"a": "b"}), &json!("fedora")));
        assert_eq!((&shown["owner"], &shown["cluster"]), (&json!("key-1"), &json!("c1")));
    }
    let beginning = &id[..id.len() - 1];
    for word in ["worker-", "orker-1", beginning] {
        for command in ["instance-show", "instance-start", "instance-stop", "instance-metrics"] {
            let line = cloud.run(&[command, word]).bad(10);
            assert!(line.starts_with("ccm-cloud: NotFound: ") && line.contains(word), "{line}");
        }
        cloud.run(&["instance-run", word, "--", "true"]).bad(10);
        assert_eq!(cloud.run(&["instance-delete", word]).good(), format!("{word} does not exist\n"));
    }
    assert_eq!(cloud.names().len(), 2);
    let line = cloud.run(&["instance-create", "--name", "other", "--key", "key-1"]).bad(11);
    assert!(line.starts_with("ccm-cloud: AlreadyExists: "), "{line}");
}

#[test]
fn a_list_has_what_fits_its_flags() {
    let cloud = Cloud::new();
    cloud.create("n", "1", &["--zone", "north-2", "--label", "a=1", "--label", "b=1"]);
    cloud.create("s", "2", &["--region", "south", "--label", "a=1"]);
    for (words, expected) in [
        (&[][..], "n s"),
        (&["--region", "north"], "n"),
        (&["--zone", "north-2"], "n"),
        (&["--zone", "north-1"], ""),
        (&["-l", "a=1"], "n s"),
        (&["-l", "a=1,b=1"], "n"),
        (&["-l", "a=1", "--selector", "b=1"], "n"),
        (&["-l", "a=2"], ""),
    ] {
        let words: Vec<_> = ["instance-list", "-o", "json"].iter().chain(words).copied().collect();
        let listed: Value = serde_json::from_str(&cloud.run(&words).good()).unwrap();
        let names: Vec<_> = listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names.join(" "), expected, "{words:?}");
    }
    let listed = cloud.run(&["instance-list"]).good();
    let rows: Vec<_> = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        rows,
        ["NAME STATE ZONE ADDRESSES OWNER", "n running north-2 10.1.0.2 1", "s running south-1 10.2.0.2 2"]
    );
    assert!(cloud.run(&["instance-list", "-l", "a=1,a=2"]).bad(2).contains("\"a\" is given twice"));
}

#[test]
fn an_instance_stops_starts_and_is_deleted_and_what_is_gone_is_a_success() {
    let cloud = Cloud::new();
    let (id, other) = (cloud.create("a", "1", &[]), cloud.create("b", "2", &[]));
    let state = || cloud.json(&["instance-show", "a"])["state"].clone();
    assert_eq!(state(), "running");
    assert_eq!(cloud.run(&["instance-stop", "a"]).good(), format!("a {id} stopped\n"));
    assert_eq!(state(), "stopped");
    let again = cloud.run(&["instance-create", "--name", "a", "--key", "1"]);
    assert!(again.code == Some(0) && again.stderr == format!("ccm-cloud: note: a {id} is stopped\n"), "{again:?}");
    cloud.run(&["instance-stop", "a"]).good();
    assert_eq!(cloud.run(&["instance-start", &id]).good(), format!("a {id} started\n"));
    assert_eq!(state(), "running");
    let deleted = cloud.run(&["instance-delete", "a", "gone", &other]).good();
    assert_eq!(deleted, format!("a {id} deleted\ngone does not exist\nb {other} deleted\n"));
    assert_eq!(cloud.names(), [""; 0]);
    assert_eq!(cloud.run(&["instance-delete", &id]).good(), format!("{id} does not exist\n"));
    cloud.run(&["instance-show", &id]).bad(10);
}

#[test]
fn output_that_cannot_be_written_hides_no_instance_and_keeps_none() {
    let cloud = Cloud::new();
    let full = |words: &[&str]| {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        Done::of(cloud.command(words).stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap())
    };
    for (name, key) in [("a", "1"), ("b", "2")] {
        let line = full(&["instance-create", "--name", name, "--key", key]).bad(2);
        assert!(line.starts_with(&format!("ccm-cloud: the instance {name} i-")), "{line}");
    }
    let done = full(&["instance-delete", "a", "b"]);
    assert!(done.code == Some(2) && done.stderr.matches("failed to write the output").count() == 2, "{done:?}");
    assert_eq!(cloud.names(), [""; 0]);
}

#[test]
fn a_failed_deletion_does_not_stop_the_others_and_has_its_exit_code() {
    let cloud = Cloud::new();
    cloud.create("mine", "1", &[]);
    // Made by others: without the labels of an owner.
    let mut file: Value = serde_json::from_str(&fs::read_to_string(cloud.file()).unwrap()).unwrap();
    let mut theirs = file["instances"][0].clone();
    (theirs["id"], theirs["name"], theirs["labels"]) = (json!("i-00000000000000aa"), json!("theirs"), json!({}));
    file["instances"].as_array_mut().unwrap().push(theirs);
    fs::write(cloud.file(), file.to_string()).unwrap();
    let done = cloud.run(&["instance-delete", "theirs", "mine"]);
    assert!(done.stdout.starts_with("mine ") && done.stdout.ends_with(" deleted\n"), "{done:?}");
    assert!(done.bad(13).starts_with("ccm-cloud: Forbidden: failed to delete \"theirs\": "));
    assert_eq!(cloud.names(), ["theirs"]);
}

#[test]
fn a_command_inside_of_an_instance_has_its_output_and_one_of_two_exit_codes() {
    let cloud = Cloud::new();
    cloud.create("a", "1", &[]);
    assert_eq!(cloud.run(&["instance-run", "a", "--", "echo", "x y"]).good(), "x y\n");
    assert!(cloud.run(&["instance-run", "a", "--", "false"]).bad(1).ends_with("exit code 1"));
    let failed = cloud.run(&["instance-run", "a", "-o", "json", "--", "false"]);
    assert_eq!((failed.code, failed.stderr.as_str()), (Some(1), ""));
    assert_eq!(serde_json::from_str::<Value>(&failed.stdout).unwrap()["exitCode"], 1);
}

#[test]
fn user_data_is_taken_from_a_file_or_standard_input() {
    let cloud = Cloud::new();
    let bytes = [0xff, 0, b'a'];
    fs::write(cloud.path("data"), bytes).unwrap();
    cloud.create("file", "1", &["--user-data", "data"]);
    let words = ["instance-create", "--name", "pipe", "--key", "2", "--user-data", "-"];
    let mut child =
        cloud.command(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    Done::of(child.wait_with_output().unwrap()).good();
    let file: Value = serde_json::from_str(&fs::read_to_string(cloud.file()).unwrap()).unwrap();
    for instance in file["instances"].as_array().unwrap() {
        assert_eq!(instance["userData"], "ff0061", "{instance}");
    }
    let line = cloud.run(&["instance-create", "--name", "x", "--key", "3", "--user-data", "none"]).bad(2);
    assert!(line.starts_with("ccm-cloud: --user-data: failed to read none: "), "{line}");
}

#[test]
fn options_are_those_of_the_driver() {
    let cloud = Cloud::new();
    let create = |option: &str| cloud.run(&["instance-create", "--name", "a", "--key", "1", "--option", option]);
    assert!(create("cpu=1").bad(2).contains("there is no option \"cpu\" (did you mean `cpus`?)"));
    assert!(create("cpus=many").bad(2).contains("cpus"));
    assert_eq!(cloud.names(), [""; 0]);
    assert_eq!(create("cpus=1").code, Some(0));
}

#[test]
fn regions_zones_inventory_metrics_and_capabilities_are_listed_in_each_format() {
    let cloud = Cloud::new();
    let id = cloud.create("a", "1", &[]);
    for words in [
        &["account-show"][..],
        &["verify-credentials"],
        &["region-list"],
        &["region-show", "north"],
        &["zone-list"],
        &["zone-list", "--region", "south"],
        &["zone-show", "south-1"],
        &["network-list"],
        &["host-list", "--region", "north"],
        &["storage-list"],
        &["image-list"],
        &["instance-type-list"],
        &["instance-list"],
        &["instance-show", &id],
        &["instance-metrics", "a"],
        &["capabilities"],
        &["config"],
    ] {
        let json = cloud.json(words);
        assert!(json.as_array().is_none_or(|list| !list.is_empty()) && !json.is_null(), "{words:?}: {json}");
        let with = |format| cloud.run(&words.iter().copied().chain(["-o", format]).collect::<Vec<_>>()).good();
        let yaml: Value = ccm_base::text::yaml::from_str(&with("yaml")).unwrap();
        // Processor time is another one each time.
        let names = |value: &Value| value.as_object().map(|object| object.keys().cloned().collect::<Vec<_>>());
        assert_eq!(names(&yaml), names(&json), "{words:?}");
        assert!(yaml == json || words[0] == "instance-metrics", "{words:?}");
        let table = with("table");
        assert!(
            table.lines().count() > 1 && table.lines().next().unwrap().to_uppercase() == table.lines().next().unwrap()
        );
    }
    assert_eq!(cloud.json(&["zone-list", "--region", "south"]).as_array().unwrap().len(), 2);
    for words in [["region-show", "north-1"], ["zone-show", "north"], ["zone-show", "nort"]] {
        cloud.run(&words).bad(10);
    }
    cloud.run(&["zone-list", "--region", "nowhere"]).bad(14);
    let advertised = cloud.json(&["--read-only", "capabilities"]);
    let is_read_only = |row: &Value| row["readOnly"] == true && row["emulated"] == false;
    assert!(advertised.as_array().unwrap().iter().all(is_read_only), "{advertised}");
}

#[test]
fn a_cloud_that_is_not_there_is_unavailable() {
    let line = ccm_cloud(&["fake", "--endpoint", "127.0.0.1:1", "instance-list"]).bad(19);
    assert!(line.starts_with("ccm-cloud: Unavailable: ") && line.contains("127.0.0.1:1"), "{line}");
}
