use std::{collections::BTreeSet, time::Duration};

use super::*;
use crate::flags::Controller;

/// The flags of the library: name, type, default.
const LIBRARY: &str = include_str!("../flags/library.txt");

fn given(arguments: &str) -> Result<Given, clap::Error> {
    let program = "docker-cloud-controller-manager";
    parse([program].into_iter().chain(arguments.split_whitespace()).map(OsString::from))
}

fn library() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let lines = LIBRARY.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let mut words = line.split(' ');
        let mut next = || words.next().unwrap_or_default();
        (next(), next(), next())
    })
}

/// A value of a type, as a manifest may have it.
fn example<'a>(name: &str, kind: &str, default: &'a str) -> &'a str {
    match kind {
        _ if !default.is_empty() => default,
        "bool" => "false",
        "duration" => "10s",
        "int" | "int32" | "Level" | "float32" => "3",
        "ip" => "127.0.0.1",
        "version" => "raw",
        _ if name == "tls-min-version" => "VersionTLS12",
        _ => "a=b,c",
    }
}

#[test]
fn every_flag_of_the_library_is_accepted_with_its_default() {
    assert_eq!(library().count(), 84);
    for (name, kind, default) in library() {
        let value = example(name, kind, default);
        // Files of certificates come in pairs.
        let pair = match name {
            "tls-cert-file" => " --tls-private-key-file=k",
            "tls-private-key-file" => " --tls-cert-file=c",
            _ => "",
        };
        for arguments in [format!("--{name}={value}{pair}"), format!("--{}={value}{pair}", name.replace('-', "_"))] {
            assert!(given(&arguments).is_ok(), "{arguments}: {}", given(&arguments).unwrap_err());
        }
        // Booleans need the sign of equality, and other flags do not.
        let alone = if kind == "bool" { format!("--{name}") } else { format!("--{name} {value}{pair}") };
        assert_eq!(given(&alone).is_ok(), kind != "version", "{alone}");
        let other = given(&format!("--{name} false"));
        assert_eq!(other.is_ok(), !matches!(kind, "bool" | "version") && is_text(name, kind), "{name}");
        if !default.is_empty() {
            let own = command().get_arguments().find(|one| one.get_long() == Some(name)).unwrap().clone();
            let own: Vec<_> = own.get_default_values().iter().map(|text| text.to_string_lossy().into_owned()).collect();
            assert!(own.is_empty() || own.join(",") == default, "{name}: {own:?}");
        }
    }
}

/// Whether a flag takes any text, such as `false`.
fn is_text(name: &str, kind: &str) -> bool {
    let is_accepted = accepted::names().any(|one| one == name);
    let is_one_of = ["controllers", "leader-elect-resource-lock", "logging-format", "tls-cert-file", "tls-min-version"];
    let is_typed = ["duration", "int", "int32", "ip", "Level"].contains(&kind) || is_one_of.contains(&name);
    is_accepted || !(is_typed || name == "tls-private-key-file")
}

#[test]
fn a_flag_without_effect_has_one_warning_unless_its_value_describes_this_program() {
    for (name, kind, default) in library() {
        let is_accepted = accepted::names().any(|one| one == name);
        let value = if kind == "bool" { "true" } else { example(name, kind, default) };
        let other = if kind == "bool" { "false" } else { value };
        let warnings: BTreeSet<_> = [value, other]
            .into_iter()
            .flat_map(|value| {
                given(&format!("--{name}={value} --{name}={value}")).map(|given| given.warnings).unwrap_or_default()
            })
            .collect();
        assert_eq!(warnings.len(), usize::from(is_accepted), "{name}: {warnings:?}");
    }
    let quiet = "--webhook-secure-port=0 --authentication-skip-lookup --use-service-account-credentials=false \
                 --configure-cloud-routes=false --profiling=false --allocate-node-cidrs=f";
    assert_eq!(given(quiet).unwrap().warnings, Vec::<String>::new());
    let two = given("--authentication-kubeconfig=a --authorization-kubeconfig=b").unwrap().warnings;
    assert!(two.len() == 1 && two[0].contains("used for both"), "{two:?}");
}

#[test]
fn the_flags_with_an_effect_have_it() {
    let given = given(
        "--cloud-provider=fake --controllers=cloud-node --controllers -service,route --node-monitor-period=1m30s \
         --concurrent-node-syncs=4 --leader-elect=false --leader-elect=F --secure-port=0 --bind-address=:: -v=4 \
         --node-deletion-guard=false --node-deletion-min-not-ready=1h --node-deletion-max-per-hour=9 \
         --node-deletion-max-percent=50 --logging-format=json --kubeconfig= --cloud-config=/etc/cloud.yaml",
    )
    .unwrap();
    let flags = &given.flags;
    assert_eq!(given.controllers.run, BTreeSet::from([Controller::CloudNode]));
    assert_eq!(given.controllers.not_supported, BTreeSet::from([Controller::Route]));
    assert_eq!(given.called_as.as_deref(), Some("docker"));
    assert_eq!(flags.node_monitor_period, Duration::from_secs(90));
    assert_eq!((flags.concurrent_node_syncs, flags.v, flags.serving.secure_port), (4, 4, 0));
    assert!(!flags.election.leader_elect && !flags.node_deletion_guard);
    assert_eq!(flags.node_deletion_min_not_ready, Duration::from_secs(3600));
    assert_eq!((flags.node_deletion_max_per_hour, flags.node_deletion_max_percent), (9, 50));
    assert_eq!(flags.logging_format, LoggingFormat::Json);
    assert_eq!(crate::flags::given(flags.kubeconfig.as_ref()), None, "an empty path is none");
    assert!(crate::flags::given(flags.cloud_config.as_ref()).is_some());
}

#[test]
fn a_wrong_command_line_is_an_error_that_says_what_is_right() {
    for (arguments, expected) in [
        ("--controllers=nodeipam", "there is no controller \"nodeipam\""),
        ("--controllers=cloud-nod", "did you mean `cloud-node`?"),
        ("--cloud-provider=", "name the driver"),
        ("--node-monitor-period=0s", "positive duration"),
        ("--node-monitor-period=5", "positive duration"),
        ("--concurrent-node-syncs=0", "1.."),
        ("--node-deletion-min-not-ready=30s", "from 1m0s"),
        ("--node-deletion-max-per-hour=0", "1..=1000"),
        ("--node-deletion-max-percent=101", "1..=100"),
        ("--leader-elect-lease-duration=5s", "--leader-elect-lease-duration must be longer"),
        ("--leader-elect-resource-lock=endpoints", "leases"),
        ("--tls-cert-file=a", "give both, or none"),
        ("--profiling=maybe", "true or false"),
        ("--no-such-flag=1", "--no-such-flag"),
        ("--driver=/cloud-providers/x", "sha256"),
        ("word", "unexpected argument"),
    ] {
        let error = given(arguments).unwrap_err().to_string();
        assert!(error.contains(expected), "{arguments}: {error}");
    }
}

#[test]
fn the_name_of_the_program_says_the_cloud() {
    for (program, cloud) in [
        ("/usr/bin/docker-cloud-controller-manager", Some("docker")),
        ("my-cloud-cloud-controller-manager", Some("my-cloud")),
        ("cloud-controller-manager", None),
        ("/-cloud-controller-manager", None),
        ("ccm", None),
    ] {
        assert_eq!(cloud_of(Path::new(program)).as_deref(), cloud, "{program}");
    }
}

#[test]
fn the_help_is_in_groups_and_fits_its_width() {
    let help = command().render_long_help().to_string();
    for heading in
        ["Cloud:", "Controllers:", "Deletion of nodes:", "Leader election:", "accepted, and have no effect:\n--"]
    {
        assert!(help.contains(heading), "{heading}");
    }
    assert!(help.starts_with("The cloud-controller-manager of a cloud"), "{help}");
    assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    let narrow = command().term_width(80).render_long_help().to_string();
    let (_, accepted) = narrow.split_once("accepted, and have no effect:\n").unwrap();
    // Each line but the last one is full: the first flag of the next one would not fit.
    for (line, next) in accepted.trim_end().lines().zip(accepted.trim_end().lines().skip(1)) {
        let first = next.split(' ').next().unwrap();
        assert!(line.len() <= 80 && line.len() + 1 + first.len() > 80, "{narrow}");
    }
    let page = include_str!("../../../../docs/drivers/cloud-controller-manager.md");
    for argument in command().get_arguments().filter_map(clap::Arg::get_long).filter(|name| *name != "help") {
        assert!(page.contains(&format!("`--{argument}`")), "--{argument} is not in the page");
    }
}

/// The verbs of nodes in a text, after some words and up to the end of their list.
fn verbs(text: &str, before: &str, end: char) -> BTreeSet<String> {
    let list = text.split_once(before).unwrap().1.split(end).next().unwrap().replace(" and ", ", ");
    list.split(", ").map(|verb| verb.trim_matches('`').to_owned()).collect()
}

#[test]
fn the_permissions_for_nodes_are_the_same_wherever_they_stand() {
    let page = include_str!("../../../../docs/drivers/cloud-controller-manager.md");
    let in_a_pod = include_str!("../../../../docs/drivers/driver-in-a-pod.md");
    let under_the_operator = include_str!("../../../../assets/docker/kubernetes/rbac.yaml");
    let alone = verbs(page, "needs these permissions: nodes ", ';');
    assert_eq!(verbs(in_a_pod, "resources: [nodes], verbs: [", ']'), alone);
    let mut granted = alone;
    // The operator grants `delete` by name, and `update` to every CCM that initializes nodes, as the page says.
    assert!(granted.remove("delete") && granted.insert("update".to_owned()));
    assert_eq!(verbs(under_the_operator, "resources: [nodes]\n  verbs: [", ']'), granted);
}
