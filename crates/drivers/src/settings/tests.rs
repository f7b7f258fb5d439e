//! One declaration for each setting: its names, and which values are taken.

use std::{collections::BTreeMap, time::Duration};

use super::*;

const ADDRESS: Setting = Setting::new("host", Kind::Text, "The address.");

fn settings() -> Vec<Setting> {
    let own = [
        ADDRESS.required(),
        Setting::new("certPath", Kind::Path, "The folder of certificates."),
        Setting::with_default("regions", Kind::List, "a,b", "Regions."),
        Setting::new("token", Kind::Text, "The token.").secret(),
        Setting::new("tokenLifetime", Kind::Duration, "Its lifetime.").secret(),
    ];
    COMMON.iter().cloned().chain(own).collect()
}

fn texts(texts: &[(&str, &str)]) -> BTreeMap<String, String> {
    texts.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

/// Resolves values of flags, beside a value for what is required.
fn resolve(flags: &[(&str, &str)]) -> Result<Values, Problem> {
    Values::resolve(
        "docker",
        &settings(),
        &Given { flags: texts(flags), file: texts(&[("host", "h")]), ..Given::default() },
    )
}

#[test]
fn flag_and_variable_follow_from_the_name() {
    for (name, flag, variable) in [
        ("accountID", "account-id", "DOCKER_ACCOUNT_ID"),
        ("certPath", "cert-path", "DOCKER_CERT_PATH"),
        ("operationsPerSecond", "operations-per-second", "DOCKER_OPERATIONS_PER_SECOND"),
        ("host", "host", "DOCKER_HOST"),
        ("tlsVerify", "tls-verify", "DOCKER_TLS_VERIFY"),
        ("ipv6Prefix", "ipv6-prefix", "DOCKER_IPV6_PREFIX"),
    ] {
        let setting = Setting::new(name, Kind::Text, "");
        assert_eq!((setting.flag().as_str(), setting.variable("docker").as_str()), (flag, variable));
    }
    assert_eq!(ADDRESS.variable("my-cloud"), "MY_CLOUD_HOST");
}

#[test]
fn the_flag_wins_over_the_environment_and_that_over_the_file_and_that_over_the_default() {
    let mut given = Given {
        flags: texts(&[("timeout", "1s"), ("host", "a")]),
        environment: texts(&[("timeout", "2s"), ("host", "b")]),
        file: texts(&[("timeout", "3s"), ("host", "c")]),
    };
    let resolved = |given: &Given| {
        let values = Values::resolve("docker", &settings(), given).unwrap();
        (values.duration(TIMEOUT).unwrap().as_secs(), values.text("host").unwrap().to_owned())
    };
    assert_eq!(resolved(&given), (1, "a".to_owned()));
    given.flags = texts(&[("timeout", ""), ("host", "")]);
    assert_eq!(resolved(&given), (2, "b".to_owned()), "an empty text is not given");
    given.environment = given.flags.clone();
    assert_eq!(resolved(&given), (3, "c".to_owned()));
    given.file.remove("timeout");
    assert_eq!(resolved(&given), (30, "c".to_owned()));
    given.file = texts(&[("host", ""), ("timeout", "")]);
    let problem = Values::resolve("docker", &settings(), &given).unwrap_err();
    assert_eq!(
        problem.to_string(),
        "the setting \"host\" has no value: give the flag --host or the environment variable DOCKER_HOST"
    );
}

#[test]
fn values_are_read_by_their_types() {
    let values = resolve(&[
        ("readOnly", "T"),
        ("operationsPerSecond", "18446744073709551615"),
        ("timeout", "1m0.5s"),
        ("regions", " a,, b ,"),
    ])
    .unwrap();
    assert!(values.is(READ_ONLY) && !resolve(&[]).unwrap().is(READ_ONLY));
    assert_eq!(values.integer(RATE), Some(u64::MAX));
    assert_eq!(values.duration(TIMEOUT), Some(Duration::from_millis(60_500)));
    assert_eq!(values.list("regions"), ["a", "b"]);
    assert_eq!((values.text("certPath"), values.text("none"), values.integer("none")), (None, None, None));
    assert!(values.list("none").is_empty() && !values.is("none") && values.duration("none").is_none());
}

#[test]
fn a_bad_value_is_an_error_that_names_its_origin() {
    for (name, text, problem) in [
        ("timeout", "5", "the flag --timeout: \"5\" is not a duration such as 30s"),
        ("timeout", "-5s", "the flag --timeout: \"-5s\" is not a duration such as 30s"),
        ("readOnly", "yes", "the flag --read-only: \"yes\" is not a boolean such as true"),
        ("operationsPerSecond", "-1", "the flag --operations-per-second: \"-1\" is not a whole number such as 10"),
        ("operationsPerSecond", "1\n2", "the flag --operations-per-second: \"1 2\" is not a whole number such as 10"),
    ] {
        assert_eq!(resolve(&[(name, text)]).unwrap_err().to_string(), problem);
    }
    let mut given = Given { environment: texts(&[("timeout", "x")]), ..Given::default() };
    let problem = |given: &Given| Values::resolve("docker", &settings(), given).unwrap_err().to_string();
    assert_eq!(problem(&given), "the environment variable DOCKER_TIMEOUT: \"x\" is not a duration such as 30s");
    given = Given { file: texts(&[("timeout", "x")]), ..Given::default() };
    assert_eq!(problem(&given), "the file, setting timeout: \"x\" is not a duration such as 30s");
    // Only the value that wins is read.
    given.flags = texts(&[("timeout", "1s"), ("host", "a")]);
    assert!(Values::resolve("docker", &settings(), &given).is_ok());
}

#[test]
fn a_name_that_no_setting_has_is_an_error() {
    for (name, problem) in [
        ("timeuot", "there is no setting \"timeuot\" (did you mean `timeout`?)"),
        ("accountId", "there is no setting \"accountId\" (did you mean `accountID`?)"),
        ("zebra", "there is no setting \"zebra\""),
    ] {
        assert_eq!(resolve(&[(name, "hunter2")]).unwrap_err().to_string(), problem);
        let file = texts(&[("host", "a"), (name, "hunter2")]);
        let found = Values::resolve("docker", &settings(), &Given { file, ..Given::default() }).unwrap_err();
        assert_eq!(found.to_string(), problem);
    }
}

#[test]
fn a_secret_is_in_no_error_and_in_no_debug() {
    let values = resolve(&[("token", "hunter2")]).unwrap();
    assert_eq!(values.text("token"), Some("hunter2"));
    assert!(values.all().any(|one| one == ("token", "hunter2")) && values.secrets().eq(["hunter2"]));
    assert!(values.shown().any(|one| one == ("token", "(secret)".to_owned())));
    assert!(values.shown().any(|one| one == ("host", "h".to_owned())));
    let url = resolve(&[("host", "tcp://root:hunter2@h")]).unwrap();
    assert!(!format!("{url:?}").contains("hunter2"), "{url:?}");
    assert_eq!(values.mask("wrong token hunter2 at h"), "wrong token (secret) at h");
    assert_eq!(resolve(&[("token", "abc")]).unwrap().mask("wrong token abc"), "wrong token abc", "it is in many words");
    // Also one that the driver sets itself.
    let set = resolve(&[]).unwrap().with("token", "hunter2");
    let given = Given {
        flags: texts(&[("token", "hunter2")]),
        environment: texts(&[("token", "hunter2")]),
        file: texts(&[("token", "hunter2")]),
    };
    let problem = resolve(&[("tokenLifetime", "hunter2")]).unwrap_err();
    assert_eq!(problem.to_string(), "the flag --token-lifetime: the value is not a duration such as 30s");
    for shown in [format!("{values:?}"), format!("{set:?}"), format!("{given:?}"), format!("{problem:?}")] {
        assert!(shown.contains("token") && !shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn a_secret_that_is_its_declared_default_is_none() {
    let token = [Setting::with_default("token", Kind::Text, "fake-token", "The token.").secret()];
    let mask = |given: &[(&str, &str)]| {
        let values = Values::resolve("fake", &token, &Given { flags: texts(given), ..Given::default() }).unwrap();
        assert!(values.shown().eq([("token", "(secret)".to_owned())]));
        values.mask("fake-token and hunter2")
    };
    assert_eq!(mask(&[]), "fake-token and hunter2");
    assert_eq!(mask(&[("token", "fake-token")]), "fake-token and hunter2");
    assert_eq!(mask(&[("token", "hunter2")]), "fake-token and (secret)");
}

#[test]
fn options_are_checked_as_settings_are() {
    let declared = [
        Setting::with_default("privileged", Kind::Boolean, "false", "All rights."),
        Setting::new("command", Kind::Text, "What is run.").required(),
    ];
    let options = |given: &[(&str, &str)]| Values::options(&declared, &texts(given));
    let values = options(&[("command", "init"), ("privileged", "true")]).unwrap();
    assert!(values.is("privileged") && values.text("command") == Some("init"));
    assert_eq!(options(&[("command", "init")]).unwrap().text("privileged"), Some("false"));
    for (given, problem) in [
        (&[("privileged", "maybe")][..], "the option privileged: \"maybe\" is not a boolean such as true"),
        (&[("priviledged", "true")], "there is no option \"priviledged\" (did you mean `privileged`?)"),
        (&[], "the option command is missing"),
        (&[("command", "")], "the option command is missing"),
    ] {
        assert_eq!(options(given).unwrap_err().to_string(), problem);
    }
}
