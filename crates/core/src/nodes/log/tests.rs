use super::*;

fn of(text: &str) -> Log {
    Log::of(&text.lines().map(str::to_owned).collect::<Vec<_>>())
}

fn failed(error: &str) -> Attempt {
    Attempt::Failed(error.to_owned())
}

#[test]
fn an_error_is_read_in_every_form_in_which_it_is_logged() {
    for (text, error) in [
        ("I0102 15:04:05.000000       1 node_controller.go:236] error syncing 'a': no \"b\", requeuing", "no \"b\""),
        (
            "E0102 15:04:05.000000       1 node_controller.go:237] \"Unhandled Error\" err=\"error syncing 'a': no \\\"b\\\"\\n, requeuing\" logger=\"UnhandledError\"",
            "no \"b\" ",
        ),
        (
            "E0102 15:04:05.000000       1 x.go:1] \"Unhandled Error\" err=<\n\terror syncing 'a': no\n\tb, requeuing\n > logger=\"UnhandledError\"",
            "no b",
        ),
        (
            "{\"ts\":1.5,\"caller\":\"x.go:1\",\"msg\":\"Unhandled Error\",\"err\":\"error syncing 'a': no, requeuing\"}",
            "no",
        ),
        ("{\"ts\":1.5,\"msg\":\"error syncing 'a': no, requeuing\",\"v\":0}", "no"),
        ("2026-01-02T15:04:05.123456Z  WARN error syncing 'a': no, requeuing", "no"),
        ("2026-01-02T15:04:05.123456Z ERROR error syncing 'a': no, requeuing", "no"),
        (
            "{\"timestamp\":\"2026-01-02T15:04:05.123456Z\",\"level\":\"WARN\",\"message\":\"error syncing 'a': no, requeuing\"}",
            "no",
        ),
    ] {
        assert_eq!(of(text).attempts.get("a"), Some(&failed(error)), "{text}");
    }
}

#[test]
fn the_newest_attempt_counts() {
    let header = "I0102 15:04:05.000000       1 node_controller.go:1] ";
    let (begun, done) =
        ("Initializing node a with cloud provider", "Successfully initialized node a with cloud provider");
    let end = |messages: &[&str]| {
        let text = messages.iter().map(|message| format!("{header}{message}")).collect::<Vec<_>>().join("\n");
        of(&text).attempts.get("a").cloned()
    };
    let error = |error: &str| format!("error syncing 'a': {error}, requeuing");
    assert_eq!(end(&[begun]), Some(Attempt::Started));
    assert_eq!(end(&[begun, &error("one"), begun, &error("two"), begun]), Some(failed("two")));
    assert_eq!(end(&[&error("one"), begun, done]), Some(Attempt::Done));
    assert_eq!(end(&[done, &error("one")]), Some(failed("one")));
    assert_eq!(end(&[&error("one"), "Skip sync node a because cloud provided nil metadata"]), Some(Attempt::Skipped));
}

#[test]
fn an_error_that_repeats_itself_has_ended_when_other_lines_follow_for_long() {
    let log = |last: &str| {
        of(&format!(
            "E0101 23:59:00.000000       1 x.go:1] error checking if node a exists: no\n\
             E0101 23:59:01.000000       1 x.go:1] unable to delete node \"b\": no\n\
             E0101 23:59:02.000000       1 x.go:1] Failed to update node addresses for node \"c\": no\n\
             I0102 {last}.000000       1 x.go:1] other\n"
        ))
    };
    let count = |log: Log| (log.unknown.len(), log.kept.len(), log.addresses.len());
    let deleted = |last: &str| {
        let line = "deleting node since it is no longer present in cloud provider: a";
        let text = format!("I0101 23:00:00.000000       1 x.go:1] {line}\nI0101 {last}.000000       1 x.go:1] other\n");
        of(&text).deleted.len()
    };
    assert_eq!((deleted("23:59:59"), deleted("22:59:59")), (1, 0), "a day has 24 hours");
    assert_eq!(count(log("00:00:10")), (1, 1, 1), "over midnight");
    assert_eq!(count(log("00:10:00")), (0, 0, 1));
    assert_eq!(count(log("01:00:00")), (0, 0, 0));
    assert_eq!(count(log("99:00:00")), (1, 1, 1), "no time");
    let own = |last: &str| {
        of(&format!(
            "2026-01-01T23:59:00.000000Z  WARN error checking if node a exists: no\n\
             {{\"timestamp\":\"2026-01-02T{last}.000000Z\",\"message\":\"other\"}}\n"
        ))
    };
    assert_eq!((own("00:00:10").unknown.len(), own("00:10:00").unknown.len()), (1, 0), "our own");
}

#[test]
fn words_inside_of_a_message_are_no_message() {
    let forged =
        "I0102 15:04:05.000000       1 x.go:1] error syncing 'b': server said: error syncing 'a': no, requeuing";
    let log = of(forged);
    assert_eq!(log.attempts.keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(of("error syncing 'a': no, requeuing\n").attempts.len(), 0, "a line without a header, and none before");
    assert_eq!(of("{\"msg\":1}\n{\nE01 x] y\n").attempts.len(), 0);
    let followed =
        of("I0102 15:04:05.000000       1 x.go:1] error syncing 'a': no, requeuing\nrequest 403 of a library\n");
    assert_eq!(followed.attempts.get("a"), Some(&failed("no")));
}

#[test]
fn our_own_lines_show_who_leads_and_whether_the_api_server_was_reached() {
    const LEASE: &str = "kube-system/cloud-controller-manager";
    let own = |line: &str| of(&format!("2026-01-02T15:04:05.123456Z  INFO {line}\n"));
    let waits = own(&format!("waiting for the lease lease=\"{LEASE}\" holder=\"b_1\""));
    assert_eq!((waits.leads, waits.leads()), (Some(false), false));
    let leads = own(&format!("acquired the lease lease=\"{LEASE}\" identity=\"a_1\""));
    assert!(leads.leads() && leads.api_server.is_none());
    let json = "{\"timestamp\":\"2026-01-02T15:04:05.123456Z\",\"message\":\"acquired the lease\",\"lease\":\"x\"}\n";
    assert!(of(json).leads());
    let refused = "ServiceError: client error (Connect): tcp connect error: Connection refused (os error 111)";
    for (line, is_it) in [
        (format!("failed to acquire the lease {LEASE}: {refused}"), true),
        (format!("failed to renew the lease: {refused} lease=\"{LEASE}\""), true),
        (format!("failed to watch nodes: {refused}"), true),
        (format!("failed to acquire the lease {LEASE}: leases is forbidden"), false),
        (format!("failed to use the cloud docker: {refused}"), false),
    ] {
        assert_eq!(own(&line).api_server.is_some(), is_it, "{line}");
    }
}

#[test]
fn only_the_api_server_has_its_paths_right_behind_the_host() {
    for (url, is_it) in [
        ("https://10.96.0.1:443/api/v1/nodes", true),
        ("https://10.96.0.1:443/apis/coordination.k8s.io/v1/x", true),
        ("https://api.example.com/client/api?command=x", false),
        ("https://pve.example.com:8006/api2/json/version", false),
    ] {
        assert_eq!(misses_api_server(&format!("Get \"{url}\": dial tcp: i/o timeout")), is_it, "{url}");
    }
}

#[test]
fn the_last_words_are_those_that_are_fatal() {
    let (info, fatal) =
        ("I1123 01:06:37.692753    3768 aws.go:3748] Zone", "F1123 01:06:37.693382    3768 main.go:104] no");
    for (text, words) in [
        (format!("{info} {fatal}"), fatal),
        (format!("{info} {fatal} {info}"), fatal),
        (format!("usage {info}"), info),
        ("flag: missing unit in duration".to_owned(), "flag: missing unit in duration"),
        (format!("{} end", "ü".repeat(5_000)), &format!("{} end", "ü".repeat(297))),
        (String::new(), ""),
    ] {
        assert_eq!(last_words(&text), words, "{text}");
    }
}

#[test]
fn a_text_is_cut_and_steers_nothing() {
    assert_eq!(clean(" a\x1b[2J\tb\n"), "a\u{fffd}[2J b");
    let long = clean(&"ü".repeat(2_000));
    assert_eq!(long.chars().count(), LONGEST + 1);
    assert!(long.ends_with('…'));
}

#[test]
fn a_deletion_counts_unless_an_error_follows_and_one_more_try_of_a_deleted_node_is_none() {
    let deleted = |messages: &[&str]| {
        let line = |message: &&str| format!("I0102 15:04:05.000000       1 x.go:1] {message}\n");
        of(&messages.iter().map(line).collect::<String>()).deleted.into_keys().collect::<Vec<_>>()
    };
    let tries = "deleting node since it is no longer present in cloud provider: a";
    let (denied, gone) = (
        "unable to delete node \"a\": nodes \"a\" is forbidden: no",
        "unable to delete node \"a\": nodes \"a\" not found",
    );
    for (messages, expected) in [
        (&[tries][..], &["a"][..]),
        (&[tries, denied], &[]),
        (&[tries, denied, tries], &["a"]),
        (&[tries, denied, tries, tries, gone], &["a"]),
        // Another client was faster.
        (&[tries, denied, tries, gone], &[]),
        (&[tries, tries, denied], &[]),
    ] {
        assert_eq!(deleted(messages), expected, "{messages:?}");
    }
}
