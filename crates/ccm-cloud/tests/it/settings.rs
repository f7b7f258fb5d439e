//! Where the values of settings come from, what they do, and that secrets are in no output.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::ffi::OsStrExt,
    thread,
};

use crate::{Cloud, Done, program, text};

/// The value of a variable in what a deployment takes.
fn configured(done: Done, variable: &str) -> String {
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines = done.stdout;
    let line = lines.lines().find_map(|line| line.strip_prefix(variable)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("{variable} in {lines}")).to_owned()
}

#[test]
fn a_flag_wins_over_a_variable_over_the_file_over_the_default() {
    let cloud = Cloud::new();
    let of = |settings: &str| {
        fs::write(
            cloud.path("accounts"),
            format!("accounts:\n- {{name: a, driver: fake, settings: {{{settings}}}}}\n"),
        )
        .unwrap();
    };
    let network = |flag: &[&str], variable: Option<&str>| {
        let words: Vec<_> = ["--config", "accounts", "config", "--format", "env"].iter().chain(flag).copied().collect();
        let mut command = cloud.command(&words);
        command.envs(variable.map(|value| ("FAKE_NETWORK", value)));
        configured(Done::of(command.output().unwrap()), "FAKE_NETWORK")
    };
    of("network: by-file");
    assert_eq!(network(&["--network", "by-flag"], Some("by-variable")), "by-flag");
    assert_eq!(network(&[], Some("by-variable")), "by-variable");
    assert_eq!(network(&[], Some("")), "by-file", "an empty variable is none");
    assert_eq!(network(&[], None), "by-file");
    of("");
    assert_eq!(network(&[], None), "default");
}

#[test]
fn config_shows_each_value_and_its_source_and_a_variable_that_wins_over_the_file_is_named() {
    let cloud = Cloud::new();
    let settings = "{network: by-file, image: by-file, instanceType: by-file, token: Qk7token9Zx}";
    fs::write(cloud.path("accounts"), format!("accounts:\n- {{name: a, driver: fake, settings: {settings}}}\n"))
        .unwrap();
    let words = ["--config", "accounts", "--image", "by-flag", "config"];
    let run = |more: &[&str]| {
        let words: Vec<_> = words.iter().chain(more).copied().collect();
        let variables = [("FAKE_NETWORK", "by-variable"), ("FAKE_IMAGE", "by-variable")];
        Done::of(cloud.command(&words).envs(variables).output().unwrap())
    };
    let done = run(&["-o", "json"]);
    let note = "ccm-cloud: note: the variable FAKE_NETWORK wins over the setting network of --config\n";
    assert!(done.code == Some(0) && done.stderr == note, "{done:?}");
    let rows: Vec<serde_json::Value> = serde_json::from_str(&done.stdout).unwrap();
    for (name, value, source) in [
        ("image", "by-flag", "flag"),
        ("network", "by-variable", "variable"),
        ("instanceType", "by-file", "file"),
        ("token", "(secret)", "file"),
        ("timeout", "30s", "default"),
    ] {
        let row = rows.iter().find(|row| row["name"] == name).unwrap();
        assert!(row["value"] == value && row["source"] == source, "{row}");
    }
    let table = run(&[]);
    assert!(table.stdout.contains("by-variable (variable)") && !table.stdout.contains("Qk7token9Zx"), "{table:?}");
    for (name, variable, rest) in [
        ("operationsPerSecond", "FAKE_OPERATIONS_PER_SECOND", "0 (default)"),
        ("", "", "integer: The maximum number of operations"),
        ("accountID", "FAKE_ACCOUNT_ID", "text: The id of the account"),
        ("", "", "text, secret: The token"),
    ] {
        let line = format!("{name:19}  {variable:26}  {rest}");
        assert!(table.stdout.lines().any(|one| one.starts_with(&line)), "{line:?}: {}", table.stdout);
    }
    assert!(table.stdout.lines().all(|line| line.chars().count() <= 100), "{}", table.stdout);
    // Declarations and help use the word of the table.
    let integer = rows.iter().find(|row| row["name"] == "operationsPerSecond").unwrap();
    assert_eq!(integer["type"], "integer");
    assert!(cloud.run(&["config", "--help"]).good().contains("--operations-per-second <INTEGER>"));
    let address = cloud.run(&["--endpoint", "http://user:hunter22@127.0.0.1:1", "config"]).good();
    assert!(address.contains("@127.0.0.1:1") && !address.contains("hunter22"), "{address}");
}

#[test]
fn the_value_of_a_setting_reaches_the_driver_from_each_place() {
    let cloud = Cloud::new();
    fs::write(cloud.path("accounts"), "accounts:\n- {name: a, driver: fake, settings: {image: fedora}}\n").unwrap();
    let image = |name: &str, before: &[&str], variable: Option<&str>| {
        let words: Vec<_> =
            before.iter().copied().chain(["instance-create", "--name", name, "--key", name, "-o", "json"]).collect();
        let mut command = cloud.command(&words);
        command.envs(variable.map(|value| ("FAKE_IMAGE", value)));
        let made: serde_json::Value = serde_json::from_str(&Done::of(command.output().unwrap()).good()).unwrap();
        made["image"].as_str().unwrap().to_owned()
    };
    assert_eq!(image("a", &[], None), "debian");
    assert_eq!(image("b", &["--config", "accounts"], None), "fedora");
    assert_eq!(image("c", &[], Some("fedora")), "fedora");
    assert_eq!(image("d", &["--image", "fedora"], None), "fedora");
}

#[test]
fn a_bad_value_is_an_error_wherever_it_comes_from_and_a_secret_one_is_not_shown() {
    let cloud = Cloud::new();
    let file = |settings: &str| {
        fs::write(
            cloud.path("accounts"),
            format!("accounts:\n- {{name: a, driver: fake, settings: {{{settings}}}}}\n"),
        )
        .unwrap();
        cloud.run(&["--config", "accounts", "region-list"]).bad(2)
    };
    let line = file("timeout: soon");
    assert!(
        line.starts_with("ccm-cloud: accounts: ") && line.contains("timeout: \"soon\" is not a duration"),
        "{line}"
    );
    let line = file("tiemout: 1s");
    let problem = "there is no setting \"tiemout\" (did you mean `timeout`?)";
    assert!(line.starts_with("ccm-cloud: accounts: ") && line.contains(problem), "{line}");
    assert!(cloud.run(&["--timeout", "soon", "region-list"]).bad(2).contains("--timeout: \"soon\""));
    let line = Done::of(cloud.command(&["region-list"]).env("FAKE_READ_ONLY", "maybe").output().unwrap()).bad(2);
    assert!(line.contains("FAKE_READ_ONLY: \"maybe\""), "{line}");
    let line = Done::of(cloud.command(&["region-list"]).env("CLOUD_CONFIG_VERIFY", "maybe").output().unwrap());
    assert!(line.code == Some(2) && line.stderr.contains("must be true or false"), "{line:?}");
    assert!(cloud.run(&["--config", "none", "region-list"]).bad(2).starts_with("ccm-cloud: failed to read none: "));
    let no_text = OsStr::from_bytes(b"\xff");
    for variable in ["FAKE_READ_ONLY", "FAKE_ACCOUNT_ID", "FAKE_TOKEN"] {
        let line = Done::of(cloud.command(&["region-list"]).env(variable, no_text).output().unwrap()).bad(2);
        assert_eq!(line, format!("ccm-cloud: the environment variable {variable}: the value is not UTF-8"));
    }
    let done = Done::of(cloud.command(&["region-list"]).env("CLOUD_CONFIG_VERIFY", no_text).output().unwrap());
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(!cloud.file().exists(), "nothing was asked");
}

#[test]
fn an_account_is_chosen_by_its_name_and_all_are_verified_together() {
    let cloud = Cloud::new();
    let (one, two) = (cloud.path("one.json"), cloud.path("two.json"));
    let write = |second: &str| {
        let accounts = format!(
            "accounts:\n- {{name: first, driver: fake, settings: {{file: {}}}}}\n- {{name: second, driver: fake, settings: {{file: {second}}}}}\n",
            text(&one)
        );
        fs::write(cloud.path("accounts"), accounts).unwrap();
    };
    let run = |words: &[&str]| {
        let words: Vec<_> = ["fake", "--config", "accounts"].iter().chain(words).copied().collect();
        Done::of(program().args(words).current_dir(cloud.folder.path()).output().unwrap())
    };
    write(text(&two));
    let line = run(&["account-show"]).bad(2);
    assert!(line.contains("accounts: several accounts of the driver fake: give --account"), "{line}");
    run(&["--account", "second", "instance-create", "--name", "a", "--key", "1"]).good();
    assert!(two.exists() && !one.exists());
    assert!(run(&["--account", "third", "account-show"]).bad(2).contains("there is no account \"third\""));
    let verified: serde_json::Value = serde_json::from_str(&run(&["verify-credentials", "-o", "json"]).good()).unwrap();
    let names: Vec<_> = verified.as_array().unwrap().iter().map(|one| one["account"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "second"]);
    assert_ne!(verified[0]["id"], verified[1]["id"]);
    // Only the cloud knows that both are one.
    write(text(&one));
    assert!(run(&["verify-credentials"]).bad(2).contains("are one account of fake"));
    run(&["--account", "first", "verify-credentials"]).good();
    // The file and its account stand on both sides of the command.
    for words in [
        ["--config", "accounts", "account-show", "--account", "second"],
        ["--account", "second", "account-show", "--config", "accounts"],
    ] {
        Done::of(program().arg("fake").args(words).current_dir(cloud.folder.path()).output().unwrap()).good();
    }
}

#[test]
fn each_setting_that_every_driver_has_has_an_effect() {
    let cloud = Cloud::new();
    let id = cloud.json(&["account-show"])["id"].as_str().unwrap().to_owned();
    cloud.run(&["--account-id", &id, "instance-list"]).good();
    let line = cloud.run(&["--account-id", "another", "instance-list"]).bad(12);
    assert!(line.starts_with("ccm-cloud: InvalidCredentials: ") && line.contains("another"), "{line}");
    let create = ["instance-create", "--name", "a", "--key", "1"];
    for read_only in ["--read-only", "--read-only=true"] {
        let words: Vec<_> = create.iter().copied().chain([read_only]).collect();
        assert!(cloud.run(&words).bad(16).starts_with("ccm-cloud: ReadOnly: "));
    }
    // Refused before it is looked for: what does not exist would be a success.
    for words in [
        &["instance-delete", "none"][..],
        &["instance-start", "none"],
        &["instance-stop", "none"],
        &["instance-run", "none", "--", "true"],
        &["instance-sweep", "--owners", "pods", "--kubeconfig", "none", "--yes"],
    ] {
        let words: Vec<_> = ["--read-only"].iter().chain(words).copied().collect();
        let line = cloud.run(&words).bad(16);
        assert!(line.starts_with("ccm-cloud: ReadOnly: ") && line.contains("readOnly"), "{line}");
    }
    cloud.run(&["--read-only", "instance-show", "none"]).bad(10);
    cloud.run(&["--read-only", "instance-sweep", "--owners", "pods", "--kubeconfig", "none"]).bad(2);
    assert_eq!(cloud.names(), [""; 0]);
    // A server that never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = silent.local_addr().unwrap().to_string();
    let line = cloud.run(&["--endpoint", &endpoint, "--timeout", "50ms", "instance-list"]).bad(18);
    assert!(line.starts_with("ccm-cloud: Timeout: "), "{line}");
}

#[test]
fn what_settings_name_is_verified_only_if_asked_for_and_blocks_no_clean_up() {
    let cloud = Cloud::new();
    cloud.create("a", "1", &[]);
    let missing = |words: &[&str], variable: &str| {
        let mut command = cloud.command(words);
        Done::of(command.env("FAKE_IMAGE", "nowhere").env("CLOUD_CONFIG_VERIFY", variable).output().unwrap())
    };
    // It exists already, so that the driver itself does not need the image.
    let create = ["instance-create", "--name", "a", "--key", "1"];
    assert_eq!(missing(&create, "").code, Some(0));
    for words in [&["verify-credentials"][..], &create, &["verify", "--only", "I3"]] {
        for flag in ["--cloud-config-verify", "--cloud-config-verify=true"] {
            let words: Vec<_> = words.iter().copied().chain([flag]).collect();
            let line = missing(&words, "").bad(14);
            assert!(line.starts_with("ccm-cloud: InvalidArgument (image): ") && line.contains("nowhere"), "{line}");
        }
        missing(words, "true").bad(14);
    }
    missing(&["verify-credentials"], "false").good();
    missing(&["verify-credentials", "--cloud-config-verify=false"], "true").good();
    missing(&["instance-list"], "true").good();
    missing(&["instance-delete", "a"], "true").good();
    assert_eq!(cloud.names(), [""; 0]);
}

#[test]
fn a_secret_is_in_no_output_but_that_of_its_format() {
    const TOKEN: &str = "Qk7token9Zx";
    let cloud = Cloud::new();
    cloud.set_token(TOKEN);
    let all = [
        &["account-show"][..],
        &["verify-credentials"],
        &["instance-create", "--name", "a", "--key", "1", "--user-data", "data"],
        &["instance-list"],
        &["instance-show", "a", "-o", "json"],
        &["capabilities"],
        &["config"],
        &["config", "-o", "json"],
        &["config", "--format", "env"],
        &["config", "--format", "configmap"],
        &["verify", "-o", "json"],
        &["instance-list", "--help"],
        &["instance-list", "--timeout", "x"],
        &["--endpoint", "127.0.0.1:1", "instance-list"],
    ];
    fs::write(cloud.path("data"), "Uk3userdata8").unwrap();
    for words in all {
        let words: Vec<_> = ["--debug"].iter().chain(words).copied().collect();
        let done = Done::of(cloud.command(&words).env("FAKE_TOKEN", TOKEN).output().unwrap());
        for output in [&done.stdout, &done.stderr] {
            assert!(!output.contains(TOKEN) && !output.contains("Uk3userdata8"), "{words:?}: {done:?}");
        }
        assert_ne!(done.code, Some(12), "{words:?}");
    }
    let secret = Done::of(cloud.command(&["config", "--format", "secret"]).env("FAKE_TOKEN", TOKEN).output().unwrap());
    assert!(secret.good().contains(TOKEN));
    // A wrong one is not repeated either.
    let line = Done::of(cloud.command(&["--debug", "account-show"]).env("FAKE_TOKEN", "Wr0ngtoken").output().unwrap());
    assert!(line.code == Some(12) && !line.stderr.contains("Wr0ngtoken") && !line.stderr.contains(TOKEN), "{line:?}");
}

/// Serves a cloud that repeats the token in every failure, and lets nobody in whose account has no name.
fn echo(token: &'static str, account: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            thread::spawn(move || {
                for request in BufReader::new(client.try_clone().unwrap()).lines().map_while(Result::ok) {
                    let answer = if request.contains("\"action\":\"login\"") && !account.is_empty() {
                        serde_json::json!({"result": {"id": account, "name": "echo"}})
                    } else {
                        let code = if account.is_empty() { "unauthorized" } else { "internal" };
                        serde_json::json!({"error": {"code": code, "message": format!("{token} in {request}")}})
                    };
                    let _ = writeln!(client, "{answer}");
                }
            });
        }
    });
    address
}

#[test]
fn a_secret_is_in_no_output_although_the_cloud_repeats_it() {
    const TOKEN: &str = "Qk7token9Zx";
    let cloud = Cloud::new();
    for endpoint in [echo(TOKEN, ""), echo(TOKEN, "acct-1")] {
        for words in [
            &["account-show"][..],
            &["verify-credentials"],
            &["region-list"],
            &["instance-list"],
            &["instance-show", "a"],
            &["instance-create", "--name", "a", "--key", "1"],
            &["instance-delete", "a"],
            &["image-list"],
            &["capabilities"],
            &["config"],
            &["verify", "--only", "I1,I3,I9"],
            &["verify", "--only", "I1,I3,I9", "-o", "json"],
            &["verify", "--only", "I1,I3,I9", "-o", "junit"],
            &["verify", "--clean-up"],
        ] {
            for words in [words.to_vec(), ["--debug"].iter().chain(words).copied().collect()] {
                let mut command = cloud.command(&words);
                let command =
                    command.env("FAKE_TOKEN", TOKEN).env("FAKE_ENDPOINT", &endpoint).env("FAKE_TIMEOUT", "10s");
                let done = Done::of(command.output().unwrap());
                assert!(!done.stdout.contains(TOKEN) && !done.stderr.contains(TOKEN), "{words:?}: {done:?}");
            }
        }
    }
}

#[test]
fn the_trace_has_each_operation_and_of_user_data_only_its_length_and_its_digest() {
    let cloud = Cloud::new();
    fs::write(cloud.path("data"), "Uk3userdata8").unwrap();
    let done = cloud.run(&["instance-create", "--name", "a", "--key", "1", "--user-data", "data", "--debug"]);
    for part in ["begin", "end", "verify credentials", "create instance", "12 bytes, sha256:"] {
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    assert!(cloud.run(&["instance-list"]).stderr.is_empty());
}
