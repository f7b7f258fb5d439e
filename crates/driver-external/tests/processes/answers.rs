//! What a driver answers, and what comes of it.

use std::{collections::BTreeMap, fs, sync::Mutex};

use ccm_driver_external::{External, Problem};
use ccm_drivers::{
    contract::{
        Capability, DriverType, Endpoint, Error, ErrorKind, Filter, InstanceSpec, Mode, ResourceKind, UserData,
        capabilities,
    },
    settings::Values,
};
use tempfile::NamedTempFile;

use crate::lab::{ACCOUNT, DESCRIBED, Lab, open, run, values};

crate::tests![
    a_driver_says_what_it_can_do,
    a_request_has_the_context_and_the_settings,
    a_result_is_returned,
    an_address_that_is_none_is_a_wrong_answer,
    an_error_keeps_its_class,
    only_a_whole_answer_of_the_right_account_says_that_something_is_gone,
    the_first_account_is_the_only_one,
    what_is_no_answer_is_internal,
    another_version_or_name_is_refused,
    declarations_that_cannot_work_are_refused,
    an_endpoint_leads_to_the_same_cloud,
    secrets_and_user_data_are_in_no_error_and_no_log,
];

/// The error of `get` of the instance `i-1`, from a driver that does this.
fn get(given: &[(&str, &str)], body: &str) -> Error {
    let (lab, id) = (Lab::new(), "i-1");
    let opened = open(&lab.shell(body), given);
    run(opened.instances().unwrap().get(id)).unwrap_err()
}

fn print(answer: &str) -> String {
    format!("cat <<'END'\n{answer}\nEND\n")
}

fn a_driver_says_what_it_can_do() {
    let driver = Lab::new().shell("");
    assert_eq!((driver.name(), driver.version(), driver.summary()), ("cloud", "1.2", "A cloud."));
    let names: Vec<_> = driver.settings().iter().map(|setting| &*setting.name).collect();
    assert_eq!(names, ["token", "certPath", "proxy", "noProxy", "caBundle"]);
    assert!(driver.settings()[0].secret);
    assert_eq!(driver.options()[0].name, "pin");
    let opened = open(&driver, &[]);
    assert_eq!(opened.topology().id_prefix(), "cloud/");
    let networks = Capability::Inventory(ResourceKind::Network);
    let all = [
        (Capability::Account, Mode::default()),
        (Capability::Topology, Mode::default()),
        (Capability::Instances, Mode::default()),
        (networks, Mode { read_only: true, emulated: false }),
        (Capability::Metrics, Mode::default()),
        (Capability::RunCommand, Mode::default()),
    ];
    assert_eq!(capabilities(&*opened), BTreeMap::from(all));
    let images = run(opened.inventory().unwrap().list(ResourceKind::Image, None)).unwrap_err();
    assert_eq!(images.kind, ErrorKind::NotSupported);
}

fn a_request_has_the_context_and_the_settings() {
    let lab = Lab::new();
    let driver = lab.python("regions(request=json.dumps(request, sort_keys=True))");
    let request = |given: &[(&str, &str)]| {
        let opened = open(&driver, given);
        let regions = run(opened.topology().regions()).unwrap();
        serde_json::from_str::<serde_json::Value>(&regions[0].name).unwrap()
    };
    assert_eq!(
        request(&[]),
        serde_json::json!({
            "protocolVersion": 1, "operation": "region-list", "arguments": {}, "settings": {},
            "context": {"timeoutSeconds": 30, "readOnly": false},
        })
    );
    let given = [
        ("accountID", ACCOUNT),
        ("timeout", "1m0.5s"),
        ("readOnly", "true"),
        ("proxy", "http://p:1"),
        ("noProxy", "a,b"),
        ("caBundle", "/ca.pem"),
        ("token", "hunter22"),
    ];
    assert_eq!(
        request(&given),
        serde_json::json!({
            "protocolVersion": 1, "operation": "region-list", "arguments": {}, "settings": {"token": "hunter22"},
            "context": {
                "accountID": ACCOUNT, "timeoutSeconds": 61, "readOnly": true, "proxy": "http://p:1", "noProxy": "a,b",
                "caBundle": "/ca.pem",
            },
        })
    );
    // The driver has another folder than the program.
    let here = std::env::current_dir().unwrap();
    let paths = request(&[("certPath", "certificates"), ("caBundle", "ca.pem")]);
    assert_eq!(paths["settings"]["certPath"], here.join("certificates").to_str().unwrap());
    assert_eq!(paths["context"]["caBundle"], here.join("ca.pem").to_str().unwrap());
    assert_eq!(request(&[("timeout", "0")])["context"]["timeoutSeconds"], 0);
}

const INSTANCE: &str = r#"{"id":"i-1","providerID":"cloud:///i-1","name":"worker-1","region":"r","zone":"z","state":"running",
    "image":"debian","instanceType":"","addresses":[{"type":"InternalIP","address":"192.0.2.1"}],"labels":{},
    "owner":"uid","created":"","new":1}"#;

fn a_result_is_returned() {
    let lab = Lab::new();
    let answer = |result: &str| {
        let answer = format!(r#"{{"protocolVersion":1,"account":"{ACCOUNT}","result":{result},"new":1}}"#);
        open(&lab.shell(&print(&answer)), &[("accountID", ACCOUNT)])
    };
    let opened = answer(&format!(r#"{{"instance":{INSTANCE},"instances":[{INSTANCE}]}}"#));
    let all = opened.instances().unwrap();
    let instance = run(all.get("i-1")).unwrap();
    assert_eq!((instance.name.as_str(), instance.addresses.len()), ("worker-1", 1));
    assert_eq!(instance.marks.owner.as_deref(), Some("uid"));
    assert_eq!(run(all.get_by_provider_id("cloud:///i-1")).unwrap(), instance);
    assert_eq!(run(all.list(&Filter::default())).unwrap(), std::slice::from_ref(&instance));
    assert_eq!(run(all.create(&InstanceSpec::default())).unwrap(), instance);
    run(all.delete("i-1")).unwrap();
    // An answer to another question is none.
    let other = Filter { owner: Some("other".to_owned()), ..Filter::default() };
    let error = run(all.list(&other)).unwrap_err();
    assert!(error.kind == ErrorKind::Internal && error.message.contains("does not fit"), "{error}");
    let error = run(opened.topology().regions()).unwrap_err();
    assert!(
        error.kind == ErrorKind::Internal && error.message.contains("wrong answer: result: missing field `regions`"),
        "{error}"
    );

    let account = run(answer(r#"{"id":"account-1","name":"","subAccounts":[]}"#).account().verify()).unwrap();
    assert_eq!(account.id, ACCOUNT);
    let other = run(answer(r#"{"id":"account-2","name":"","subAccounts":[]}"#).account().verify()).unwrap_err();
    assert!(other.kind == ErrorKind::Internal && other.message.contains("account-2"), "{other}");
    assert!(other.message.contains(r#"result.id is "account-2", and the field "account" is "account-1""#), "{other}");
    let usage = run(answer(r#"{"processorSeconds":1.5}"#).metrics().unwrap().usage("i-1")).unwrap();
    assert_eq!((usage.processor_seconds, usage.memory_bytes), (Some(1.5), None));
    let ran = answer(r#"{"exitCode":3,"stdout":"o","stderr":"e"}"#);
    assert_eq!(run(ran.run_command().unwrap().run("i-1", &["true".to_owned()])).unwrap().exit_code, 3);
}

fn an_address_that_is_none_is_a_wrong_answer() {
    let lab = Lab::new();
    let with = |kind: &str, address: &str| {
        let addresses = format!(r#"{{"type":"InternalIP","address":"::1"}},{{"type":"{kind}","address":"{address}"}}"#);
        let one = INSTANCE.replace(r#"{"type":"InternalIP","address":"192.0.2.1"}"#, &addresses);
        let result = format!(r#"{{"instance":{one},"instances":[{INSTANCE},{one}]}}"#);
        open(&lab.shell(&print(&format!(r#"{{"protocolVersion":1,"account":"{ACCOUNT}","result":{result}}}"#))), &[])
    };
    run(with("Hostname", "999.0.0.2").instances().unwrap().get("i-1")).unwrap();
    for (kind, address) in [("InternalIP", "999.0.0.2"), ("ExternalIP", ""), ("InternalIP", "10.0.0.1/24")] {
        let opened = with(kind, address);
        let all = opened.instances().unwrap();
        let wrong = |error: Error, path: &str| {
            let expected = format!("wrong answer: result.{path}.addresses[1].address {address:?} is no IP address;");
            assert!(error.kind == ErrorKind::Internal && error.message.contains(&expected), "{error}");
        };
        wrong(run(all.get("i-1")).unwrap_err(), "instance");
        wrong(run(all.create(&InstanceSpec::default())).unwrap_err(), "instance");
        wrong(run(all.list(&Filter::default())).unwrap_err(), "instances[1]");
    }
    let error = run(with("internalIP", "::1").instances().unwrap().get("i-1")).unwrap_err();
    assert!(error.message.contains("result.instance.addresses[1].type: unknown variant `internalIP`"), "{error}");
}

fn an_error_keeps_its_class() {
    let second = std::time::Duration::from_secs(1);
    for (fields, kind) in [
        (r#""class":"AlreadyExists""#, ErrorKind::AlreadyExists),
        (r#""class":"InvalidCredentials""#, ErrorKind::InvalidCredentials),
        (r#""class":"Forbidden""#, ErrorKind::Forbidden),
        (r#""class":"InvalidArgument","field":"image""#, ErrorKind::InvalidArgument("image".to_owned())),
        (r#""class":"InvalidArgument""#, ErrorKind::Internal),
        (r#""class":"NotSupported""#, ErrorKind::NotSupported),
        (r#""class":"ReadOnly""#, ErrorKind::ReadOnly),
        (r#""class":"RateLimited","retryAfterSeconds":1"#, ErrorKind::RateLimited(Some(second))),
        (r#""class":"RateLimited""#, ErrorKind::RateLimited(None)),
        (r#""class":"Timeout""#, ErrorKind::Timeout),
        (r#""class":"Unavailable""#, ErrorKind::Unavailable),
        (r#""class":"Internal""#, ErrorKind::Internal),
        (r#""class":"notFound","id":"i-1""#, ErrorKind::Internal),
    ] {
        let answer = format!(
            r#"{{"protocolVersion":1,"account":"{ACCOUNT}","error":{{{fields},"message":"the reason","instance":"i-2"}}}}"#
        );
        let error = get(&[], &print(&answer));
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains("the reason"), "{error}");
        let is_whole = fields.contains("Internal") || kind != ErrorKind::Internal;
        assert_eq!(error.instance.is_some(), is_whole);
    }
}

fn only_a_whole_answer_of_the_right_account_says_that_something_is_gone() {
    let set = [("accountID", ACCOUNT)];
    let not_found = |account: &str, id: &str| {
        format!(r#"{{"protocolVersion":1,{account}"error":{{"class":"NotFound",{id}"message":"it is gone"}}}}"#)
    };
    let (account, id) = (r#""account":"account-1","#, r#""id":"i-1","#);
    let whole = not_found(account, id);
    let error = get(&set, &print(&whole));
    assert!(error.is_not_found() && error.message == "it is gone", "{error}");
    // From here on nothing is gone.
    for (body, kind, problem) in [
        (print(&not_found(account, "")), ErrorKind::Internal, "without error.id"),
        (print(&not_found(account, r#""id":"i-10","#)), ErrorKind::Internal, "\"i-10\", which was not asked for"),
        (print(&not_found(account, r#""id":"i-","#)), ErrorKind::Internal, "which was not asked for"),
        (print(&not_found("", id)), ErrorKind::Internal, "without the field \"account\""),
        (print(&not_found(r#""account":"","#, id)), ErrorKind::Internal, "without the field \"account\""),
        (print(&not_found(r#""account":"account-2","#, id)), ErrorKind::InvalidCredentials, "\"account-2\""),
        (print(&whole) + "exit 1", ErrorKind::Internal, "exited with status 1"),
        (
            print(&whole) + "echo why >&2; kill -9 $$",
            ErrorKind::Internal,
            "ended by signal 9; the end of its standard error: why",
        ),
        (print(&whole) + &print(&whole), ErrorKind::Internal, "no single JSON value: trailing characters"),
        (print(&whole[..whole.len() - 1]), ErrorKind::Internal, "no single JSON value: EOF"),
        (print(&whole.replacen(":1", ":2", 1)), ErrorKind::Internal, "version 2 of the protocol"),
        (print(&whole.replacen(r#""protocolVersion":1,"#, "", 1)), ErrorKind::Internal, "no protocolVersion"),
        (
            print(&whole.replacen("\"error\"", "\"result\":{},\"error\"", 1)),
            ErrorKind::Internal,
            "a result and an error",
        ),
        (print(&whole) + "exec sleep 86400", ErrorKind::Timeout, "has not ended within 1s"),
    ] {
        let given = if kind == ErrorKind::Timeout { &[set[0], ("timeout", "1s")][..] } else { &set };
        let error = get(given, &body);
        assert_eq!(error.kind, kind, "{error}\n{body}");
        assert!(error.message.contains(problem), "{error}\n{body}");
    }
    // Nobody has asked for one of these.
    let lab = Lab::new();
    let opened = open(&lab.shell(&print(&whole)), &set);
    let all = opened.instances().unwrap();
    for error in [
        run(opened.account().verify()).unwrap_err(),
        run(opened.topology().regions()).unwrap_err(),
        run(all.list(&Filter::default())).unwrap_err(),
        run(all.create(&InstanceSpec { key: "i-1".to_owned(), ..InstanceSpec::default() })).unwrap_err(),
        run(all.get("i-2")).unwrap_err(),
        run(all.get_by_provider_id("cloud:///i-1")).unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::Internal, "{error}");
    }
    assert!(run(all.delete("i-1")).unwrap_err().is_not_found());
}

fn the_first_account_is_the_only_one() {
    let lab = Lab::new();
    let counter = lab.folder().join("count");
    let driver = lab.shell(&format!(
        "echo x >> {0}; printf '{{\"protocolVersion\":1,\"account\":\"a-%s\",\"result\":{{\"regions\":[]}}}}' $(wc -l < {0})",
        counter.display()
    ));
    let opened = open(&driver, &[]);
    run(opened.topology().regions()).unwrap();
    let error = run(opened.topology().regions()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidCredentials, "{error}");
    assert!(error.message.contains("\"a-2\"") && error.message.contains("\"a-1\""), "{error}");
}

fn what_is_no_answer_is_internal() {
    let flood = "yes 012345678901234567890123456789012345678901234567890123456789";
    for (body, problem) in [
        ("", "it is empty"),
        (
            "echo hello",
            "expected value at line 1 column 1; it begins with \"hello\"; it is for the answer alone: print all else",
        ),
        ("printf 'a\\033[2J%s' hunter2; seq 99", "; it begins with \"a\u{fffd}[2Jhunter21 2 3"),
        ("echo hello >&2; echo '{'", "the end of its standard error: hello"),
        ("printf '\\377\\000'", "no single JSON value"),
        ("echo '[]'", "no single JSON value"),
        (r#"echo '{"protocolVersion":1}'"#, "neither a result nor an error"),
        (r#"echo '{"protocolVersion":1,"result":{"instance":{}}}'"#, "no field \"account\""),
        (
            r#"echo '{"protocolVersion":1,"account":"a","result":{"instance":{}}}'"#,
            "result.instance: missing field `id`;",
        ),
        (r#"echo '{"protocolVersion":"1","account":"a","result":{}}'"#, "version \"1\" of the protocol"),
        ("exec nothing-of-this-name", "exited with status 127"),
        ("exit 255", "exited with status 255"),
        (flood, "more than 32 MiB to standard output"),
        (&format!("{flood} >&2 & {flood}"), "more than 32 MiB to standard output"),
        // Standard error has no limit, and only its end is kept.
        (
            &format!("{flood} | head -c 100000000 >&2; echo end >&2; exit 3"),
            "status 3; the end of its standard error: ",
        ),
    ] {
        let error = get(&[("timeout", "0")], body);
        assert_eq!(error.kind, ErrorKind::Internal, "{body}: {error}");
        assert!(error.message.contains(problem), "{body}: {error}");
        assert!(error.message.len() < 2000, "{body}: {error}");
    }
}

fn another_version_or_name_is_refused() {
    let lab = Lab::new();
    let problem = |name: &str, answer: &str| {
        let path = lab.file(name, format!("#!/bin/sh\n{}", print(answer)));
        lab.problem(&path)
    };
    assert!(
        matches!(problem("other.sh", DESCRIBED), Problem::OtherName { expected, found, .. } if expected == "other" && found == "cloud")
    );
    assert!(matches!(problem("cloud.v1.sh", DESCRIBED), Problem::OtherName { .. }));
    let two = problem("cloud", r#"{"protocolVersion":2,"description":{}}"#);
    assert!(matches!(&two, Problem::OtherProtocol { found, .. } if found == "2"), "{two}");
    let error = r#"{"protocolVersion":1,"error":{"class":"Internal","message":"no module named libvirt"}}"#;
    let refused = problem("cloud", error);
    assert!(matches!(&refused, Problem::Undescribed { .. }), "{refused}");
    assert!(refused.to_string().ends_with("cloud does not describe itself: no module named libvirt"), "{refused}");
}

fn declarations_that_cannot_work_are_refused() {
    let lab = Lab::new();
    for (from, to, reason) in [
        ("\"token\"", "\"proxy\"", "setting \"proxy\": it has the name, the flag or the variable of"),
        ("\"token\"", "\"timeout\"", "setting \"timeout\": it has the name"),
        ("\"pin\"", "\"Pin\"", "option \"Pin\": a name is written in camelCase"),
    ] {
        let path = lab.file("cloud", format!("#!/bin/sh\n{}", print(&DESCRIBED.replace(from, to))));
        let problem = lab.problem(&path);
        assert!(matches!(&problem, Problem::Declaration { .. }), "{problem}");
        assert!(problem.to_string().contains(reason), "{problem}");
    }
    let path = lab.file("cloud", format!("#!/bin/sh\n{}", print(&DESCRIBED.replace("\"text\"", "\"color\""))));
    let problem = lab.problem(&path);
    assert!(problem.to_string().contains("unknown variant `color`"), "{problem}");
    // What it says cannot control a terminal.
    let help = DESCRIBED.replace("The token.", "\\u001b[2JThe token.");
    let path = lab.file("cloud", format!("#!/bin/sh\n{}", print(&help)));
    let driver = run(External::describe(lab.load(&path).unwrap())).unwrap();
    assert_eq!(driver.settings()[0].help, "\u{fffd}[2JThe token.");
}

fn an_endpoint_leads_to_the_same_cloud() {
    let lab = Lab::new();
    let driver = lab.python(
        "through = request['arguments'].get('through')\n\
         assert request['operation'] == 'endpoint'\n\
         settings = {'token': json.dumps(through)} if through else {}\n\
         print(json.dumps({'protocolVersion': 1, 'result': {'endpoint': {'tcp': {'host': 'h', 'port': 1}}, 'settings': settings}}))",
    );
    let given = values(&driver, &[]);
    assert_eq!(run(driver.endpoint(&given)).unwrap(), Some(Endpoint::Tcp("h".to_owned(), 1)));
    let through = |endpoint| run(driver.through(&given, &endpoint)).unwrap().text("token").unwrap().to_owned();
    assert_eq!(through(Endpoint::Tcp("p".to_owned(), 7)), r#"{"tcp": {"host": "p", "port": 7}}"#);
    assert_eq!(through(Endpoint::Unix("/s".into())), r#"{"unix": "/s"}"#);

    let other = lab.shell(&print(r#"{"protocolVersion":1,"result":{"endpoint":null,"settings":{"uri":"x"}}}"#));
    assert_eq!(run(other.endpoint(&given)).unwrap(), None);
    let error = run(other.through(&given, &Endpoint::Unix("/s".into()))).unwrap_err();
    assert!(error.kind == ErrorKind::Internal && error.message.contains("\"uri\""), "{error}");

    let none = lab.shell(&print(r#"{"protocolVersion":1,"error":{"class":"NotSupported","message":"no"}}"#));
    assert_eq!(run(none.endpoint(&given)).unwrap(), None);
    assert_eq!(run(none.through(&given, &Endpoint::Unix("/s".into()))).unwrap(), given);
    let broken = lab.shell("exit 1");
    assert_eq!(run(broken.endpoint(&given)).unwrap_err().kind, ErrorKind::Internal);
}

fn secrets_and_user_data_are_in_no_error_and_no_log() {
    let lab = Lab::new();
    let driver = lab.shell(
        "for i in $(seq 60); do echo line $i; done >&2\necho \"$request\" >&2\necho \"$request\" | sed 's/.*\"userData\":\"\\([^\"]*\\).*/\\1/' | base64 -d >&2\nprintf '\\033[2Jswordfish-of-the-token\\n' >&2\nexit 1",
    );
    let opened = open(&driver, &[("token", "swordfish-of-the-token"), ("proxy", "http://user:hunter22@proxy:1")]);
    let options = BTreeMap::from([("pin".to_owned(), "swordfish-of-the-pin".to_owned())]);
    let spec = InstanceSpec {
        key: "uid".to_owned(),
        name: "worker-1".to_owned(),
        user_data: UserData::new(b"#cloud-config\n- swordfish-of-the-user\n".to_vec()),
        options: Values::options(driver.options(), &options).unwrap(),
        ..InstanceSpec::default()
    };
    let log = NamedTempFile::new().unwrap();
    let logger = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_ansi(false);
    let logger = logger.with_writer(Mutex::new(log.reopen().unwrap())).finish();
    let created = tracing::subscriber::with_default(logger, || run(opened.instances().unwrap().create(&spec)));
    let (error, log) = (created.unwrap_err(), fs::read_to_string(log.path()).unwrap());
    let lines: Vec<_> = log.lines().filter(|line| line.contains("stderr=")).collect();
    assert!(lines.len() == 40 && lines[0].ends_with("stderr=line 23"), "{log}");
    assert!(log.contains("\u{fffd}[2J(secret)"), "{log}");
    assert!(error.message.contains("exited with status 1; the end of its standard error: "), "{error}");
    assert!(error.message.contains("(secret)"), "{error}");
    for secret in ["swordfish", "hunter22", "I2Nsb3VkLWNvbmZpZw"] {
        assert!(!error.message.contains(secret), "{error}");
        assert!(!log.contains(secret), "{log}");
    }
}
