use serde_json::{Value, json};

use super::*;
use crate::{object::Object, provider::embedded};

fn arguments(given: Value) -> Arguments {
    serde_json::from_value(given).unwrap()
}

fn gates(given: &[&str]) -> BTreeMap<String, bool> {
    given.iter().map(|gate| ((*gate).to_owned(), true)).collect()
}

/// The values are between vertical bars. Most were tried with the generic program of `hack/ccm/`.
#[test]
fn values_are_accepted_as_go_accepts_them() {
    for (kind, accepted, refused) in [
        (Kind::Workers, "1|+5|0x10|2147483647", "0|-1|2147483648||five|1.5"),
        (
            Kind::Int32,
            "0|00|-1|010|0x1f|0X1F|-0x1|0x_1f|0b101|0B1|0o17|0_7|1_000|+5|-2147483648|2147483647",
            "|abc|08|2147483648|-2147483649|0x|-|+|-+5|0x-1|0b2|_7|7_|0_|1__0| 1|1.0",
        ),
        (
            Kind::Int64,
            "2147483648|9223372036854775807|-9223372036854775808",
            "9223372036854775808|-9223372036854775809|99999999999999999999999999999999999999999999",
        ),
        (
            Kind::Float32,
            "20|0|-1|.5|5.|1e3|1E5|1e-60|1_000|inf|-inf|+inf|Infinity|NAN",
            "|abc| 20|.|1e|0x10|1e50|-1e50|3.5e38|1e400|infinit|_1|1_|1__0",
        ),
        (
            Kind::Duration,
            "1m30s|1.5h|1h1h|0|-0|+0|+5s|-5s|.5s|5.s|3us|3\u{b5}s|3\u{3bc}s|0.00000000000000000000000001s|\
             9223372036854775807ns|-9223372036854775808ns|2562047h47m16.854775807s",
            "|5|5.|s|.s|00|1d|1 s|++5s|1e3s|0x1s|1.2.3s|9223372036854775808ns|2562048h|99999999999999999999ns|\
             99999999999999999999999999999999999999999999h",
        ),
        (Kind::Period, "100ms|5s|1m30s", "|0|0s|99.9ms|-5s|5"),
        (Kind::Bool, "1|t|T|TRUE|true|True|0|f|F|FALSE|false|False", "|tRUE|yes|on|2| true"),
        (
            Kind::Texts,
            "|a|a,b|,|a b|\"a,b\"|\"a\"\"b\"|\"\"|\"a\",b|\"a\",",
            "a\"b|\"a|\"a\"b|a,\"b|a, \"b\"|\"a\" ,b|\"a\"\"|\"",
        ),
        (Kind::Numbers, "1|1,2|-1,+2", "|a|1,|1, 2|0x1|1_0|9223372036854775808"),
        (Kind::Pairs, "|a=b|a=b,c=d|a=b,|a=b=c|a=", "a|a=b,c"),
        (Kind::Prefix, "ccm|A_b-1|a234567890123456789", "|a b|\u{e4}|a.b|a2345678901234567890"),
    ] {
        for text in accepted.split('|') {
            assert!(kind.accepts(text), "{kind:?} accepts {text:?}");
        }
        for text in refused.split('|') {
            assert!(!kind.accepts(text), "{kind:?} refuses {text:?}");
        }
    }
}

#[test]
fn a_refused_value_is_reported_with_its_type_and_an_example() {
    for (provider, given, expected) in [
        ("aws", json!({QPS: "abc"}), "--kube-api-qps: \"abc\" is not a number such as 20"),
        (
            "aws",
            json!({"--node-monitor-period": "5"}),
            "--node-monitor-period: \"5\" is not a duration of at least 100ms such as 5s",
        ),
        (
            "aws",
            json!({"--concurrent-node-syncs": "0"}),
            "--concurrent-node-syncs: \"0\" is not a whole number from 1 to 2147483647 such as 5",
        ),
        (
            "linode",
            json!({"--enable-ipv6-for-loadbalancers": "yes"}),
            "--enable-ipv6-for-loadbalancers: \"yes\" is not a boolean such as true",
        ),
        (
            "linode",
            json!({"--subnet-ids": "1, 2", "--vpc-ids": "1"}),
            "--subnet-ids: \"1, 2\" is not a list of whole numbers with commas and no blanks such as 1234,5678",
        ),
        (
            "outscale",
            json!({"--extra-node-labels": "team"}),
            "--extra-node-labels: \"team\" is not a list of pairs such as team=a,env=prod",
        ),
    ] {
        assert_eq!(problem(provider, &arguments(given)).as_deref(), Some(expected));
    }
    let long = problem("aws", &arguments(json!({QPS: "\u{e4}".repeat(10_000)}))).unwrap();
    assert!(long.chars().count() < 2 * LONGEST_SHOWN, "{long}");
}

#[test]
fn unknown_flags_are_not_checked() {
    assert_eq!(problem("aws", &arguments(json!({"--of-a-cloud": "x"}))), None);
    // Another cloud's flag of this name may take something else.
    assert_eq!(problem("demo", &arguments(json!({"--subnet-ids": "subnet-0123"}))), None);
    assert_eq!(problem("linode", &arguments(json!({"--default-nodebalancer-type": "new"}))), None);
}

#[test]
fn flags_have_to_fit_together() {
    let (lease, renew, retry) = (LEASE.0, RENEW.0, RETRY.0);
    for (given, expected) in [
        (json!({lease: "30s", renew: "20s", retry: "5s"}), None),
        (json!({lease: "1s", renew: "500ms", retry: "100ms"}), None),
        (json!({renew: "2.5s"}), None),
        (
            json!({lease: "10s"}),
            Some(
                "--leader-elect-lease-duration (10s) has to be longer than --leader-elect-renew-deadline (10s by default)",
            ),
        ),
        (
            json!({renew: "2.4s"}),
            Some(
                "--leader-elect-renew-deadline (2.4s) has to be longer than 1.2 times --leader-elect-retry-period (2s by default)",
            ),
        ),
        (json!({retry: "0s"}), Some("--leader-elect-retry-period (0s) has to be longer than 0s")),
        (json!({retry: "-1s"}), Some("--leader-elect-retry-period (-1s) has to be longer than 0s")),
        (
            json!({lease: "900ms", renew: "500ms", retry: "100ms"}),
            Some(
                "--leader-elect-lease-duration (900ms) has to be at least 1s: the API server refuses a Lease of 0 seconds",
            ),
        ),
        (json!({BURST: "1"}), None),
        (json!({BURST: "0"}), Some("--kube-api-burst: \"0\" has to be at least 1, unless --kube-api-qps is 0 or less")),
        (json!({BURST: "-1", QPS: "-1"}), None),
        (json!({BURST: "0", QPS: "0"}), None),
        (json!({"--vpc-names": "a", "--subnet-names": "b"}), None),
        (json!({"--vpc-ids": "1", "--subnet-ids": "2"}), None),
        (json!({"--vpc-ids": "1"}), Some("--vpc-ids needs --subnet-ids")),
        (json!({"--subnet-ids": "1"}), Some("--subnet-ids needs --vpc-ids")),
        (
            json!({"--vpc-ids": "1", "--subnet-ids": "2", "--vpc-names": "a"}),
            Some("--vpc-ids and --vpc-names exclude each other: remove one of them"),
        ),
        (json!({"--nodebalancer-backend-ipv4-subnet-id": "0", "--nodebalancer-backend-ipv4-subnet-name": "a"}), None),
        (
            json!({"--nodebalancer-backend-ipv4-subnet-id": "1", "--nodebalancer-backend-ipv4-subnet-name": "a"}),
            Some(
                "--nodebalancer-backend-ipv4-subnet-id and --nodebalancer-backend-ipv4-subnet-name exclude each other: remove \
                 one of them",
            ),
        ),
    ] {
        assert_eq!(problem("linode", &arguments(given.clone())).as_deref(), expected, "{given}");
    }
    assert_eq!(problem("aws", &arguments(json!({"--vpc-ids": "1"}))), None, "a flag that AWS does not have");
}

#[test]
fn every_checked_flag_is_allowed_somewhere_and_has_an_example() {
    let catalog = embedded::catalog().unwrap();
    let mut checked = Vec::new();
    for descriptor in catalog.kubernetes().map(|provider| &provider.descriptor) {
        let examples = descriptor.allowed_arguments.iter().filter_map(|flag| {
            let example = example(&descriptor.name, flag)?;
            assert_eq!(refused(&descriptor.name, flag, example), None);
            checked.push(flag.clone());
            Some((flag.clone(), example.to_owned()))
        });
        let mut examples: Arguments = examples.collect();
        for (_, one, _) in EXCLUSIVE {
            examples.remove(one);
        }
        examples.remove("--subnet-ids");
        assert_eq!(problem(&descriptor.name, &examples), None, "the examples of {} fit together", descriptor.name);
    }
    for flag in &FLAGS {
        assert!(checked.iter().any(|one| one == flag.name), "no provider allows {}", flag.name);
    }
}

#[test]
fn the_arguments_of_every_provider_are_accepted() {
    let mut tried = 0;
    for provider in embedded::catalog().unwrap().kubernetes() {
        for pod in provider.manifests.iter().filter_map(Object::pod_spec) {
            let containers = pod["containers"].as_array().unwrap().iter();
            let written = containers.flat_map(|container| container["args"].as_array().into_iter().flatten());
            let pairs = written.filter_map(|argument| argument.as_str()?.split_once('='));
            let given: Arguments = pairs.map(|(flag, value)| (flag.to_owned(), value.to_owned())).collect();
            tried += given.len();
            assert_eq!(problem(&provider.descriptor.name, &given), None, "{}", provider.descriptor.name);
        }
    }
    assert!(tried > 50, "{tried}");
}

#[test]
fn a_feature_gate_that_no_version_knows_is_a_warning() {
    let known = ["AllAlpha", "CloudControllerManagerWebhook", "LoggingBetaOptions", "WatchList", " ContextualLogging"];
    assert_eq!(unknown_gates(&gates(&known)), [""; 0]);
    assert_eq!(
        unknown_gates(&gates(&["CloudControllerManagerWebhok", "NodeSwap"])),
        [
            "spec.featureGates: \"CloudControllerManagerWebhok\" is no feature gate of k8s.io/cloud-provider 0.29 to 0.37 (did \
             you mean `CloudControllerManagerWebhook`?): the cloud-controller-manager ends when it starts, unless its own \
             code has this gate",
            "spec.featureGates: \"NodeSwap\" is no feature gate of k8s.io/cloud-provider 0.29 to 0.37: the \
             cloud-controller-manager ends when it starts, unless its own code has this gate",
        ]
    );
}

#[test]
fn a_name_that_no_flag_can_hold_is_refused() {
    assert_eq!(unfit_gate(&gates(&["AllAlpha", "NodeSwap"])), None);
    for name in ["", " ", "A,B", "A=true"] {
        let expected = format!("{name:?} is not the name of a feature gate such as ContextualLogging");
        assert_eq!(unfit_gate(&gates(&[name])), Some(expected));
    }
}
