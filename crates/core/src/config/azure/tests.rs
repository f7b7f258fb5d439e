use proptest::prelude::*;
use serde_json::Value;

use super::*;

use crate::{
    config::{Transform, tests::keys_and_values},
    facts::Platform,
    text::json::is_named,
};

fn azure(source: &str, cloud_name: &str) -> Result<Output, Problem> {
    let platform = Platform { name: "Azure".into(), variant: Some(cloud_name.to_owned()) };
    Transform::Azure.apply(source, &Facts { platform: Ok(Some(platform)), ..Facts::default() })
}

fn stack(source: &str) -> Result<Output, Problem> {
    Transform::AzureStack.apply(source, &Facts::default())
}

#[test]
fn what_is_added_is_written_as_the_object_is() {
    const COMPACT: &str =
        r#""cloud":"AzurePublicCloud","vmType":"standard","clusterServiceLoadBalancerHealthProbeMode":"shared""#;
    for (source, expected) in [
        ("{}", format!("{{{COMPACT}}}")),
        ("{ }\n", format!("{{{COMPACT} }}\n")),
        ("{\n}", format!("{{{COMPACT}\n}}")),
        (r#"{"tags":"a=b"}"#, format!(r#"{{"tags":"a=b",{COMPACT}}}"#)),
        (
            "{\r\n\t\"a\" :\t[ 1e400,\r\n{ } ]\r\n}\r\n",
            "{\r\n\t\"a\" :\t[ 1e400,\r\n{ } ],\r\n\t\"cloud\": \"AzurePublicCloud\",\r\n\t\"vmType\": \"standard\",\r\n\t\
             \"clusterServiceLoadBalancerHealthProbeMode\": \"shared\"\r\n}\r\n"
                .to_owned(),
        ),
        (
            "{ \"b\": 12345678901234567890.0, \"b\": {\"Cloud\": 1} }",
            "{ \"b\": 12345678901234567890.0, \"b\": {\"Cloud\": 1}, \"cloud\": \"AzurePublicCloud\", \"vmType\": \"standard\", \
             \"clusterServiceLoadBalancerHealthProbeMode\": \"shared\" }"
                .to_owned(),
        ),
    ] {
        assert_eq!(azure(source, "").unwrap().text, expected, "{source}");
    }
}

#[test]
fn members_are_matched_as_go_does() {
    let own = r#""clusterServiceLoadBalancerHealthProbeMode":"shared""#;
    for (source, cloud_name, expected) in [
        // In any case, also in a different case than the API's.
        (
            r#"{"CLOUD":"azurechinacloud","VmType":"vmss",X}"#,
            "AzureChinaCloud",
            r#"{"CLOUD":"AzureChinaCloud","VmType":"vmss",X}"#,
        ),
        // As an escape.
        (
            r#"{"\u0063loud":"\u0041zurePublicCloud","vmType":"vmss",X}"#,
            "",
            r#"{"\u0063loud":"\u0041zurePublicCloud","vmType":"vmss",X}"#,
        ),
        // Blank and null count as unset.
        (r#"{"cloud":" ","vmType":null,X}"#, "", r#"{"cloud":"AzurePublicCloud","vmType":"standard",X}"#),
        (
            r#"{"cloud":"","vmType":"\t",X}"#,
            "AzureGermanCloud",
            r#"{"cloud":"AzureGermanCloud","vmType":"standard",X}"#,
        ),
        // The last one that is not null is effective, and all are set to it.
        (
            r#"{"cloud":"","vmType":"a","vmtype":"vmss",X,"vmType":null}"#,
            "",
            r#"{"cloud":"AzurePublicCloud","vmType":"vmss","vmtype":"vmss",X,"vmType":"vmss"}"#,
        ),
        // Go folds two non-ASCII letters.
        (
            "{\"cloud\":\"\",\"vmType\":\"vmss\",\"clu\u{17f}terServiceLoadBalancerHealthProbeMode\":\"x\"}",
            "",
            "{\"cloud\":\"AzurePublicCloud\",\"vmType\":\"vmss\",\"clu\u{17f}terServiceLoadBalancerHealthProbeMode\":\"shared\"}",
        ),
    ] {
        let (source, expected) = (source.replace('X', own), expected.replace('X', own));
        assert_eq!(azure(&source, cloud_name).unwrap().text, expected);
    }
}

#[test]
fn a_complete_configuration_stays_and_nothing_is_reported() {
    let source =
        r#"{"cloud":"AzurePublicCloud","vmType":"vmss","clusterServiceLoadBalancerHealthProbeMode":"shared"} "#;
    assert_eq!(azure(source, ""), Ok(Output { text: source.to_owned(), ..Output::default() }));
}

#[test]
fn changes_name_rule_key_and_values() {
    let output =
        azure(r#"{"vmType":"vmss","clusterServiceLoadBalancerHealthProbeMode":"servicenodeport"}"#, "").unwrap();
    assert_eq!(
        keys_and_values(&output.changes),
        [
            ("cloud", None, Some("AzurePublicCloud")),
            ("clusterServiceLoadBalancerHealthProbeMode", Some("servicenodeport"), Some("shared")),
        ]
    );
    assert!(output.changes.iter().all(|change| !change.rule.is_empty()));
}

#[test]
fn azure_stack_hub_gets_a_vm_type_only() {
    assert_eq!(
        stack(r#"{"cloud":"AzureStackCloud"}"#).unwrap().text,
        r#"{"cloud":"AzureStackCloud","vmType":"standard"}"#
    );
    assert_eq!(stack(r#"{"cloud":"Mine","vmType":"vmss"}"#).unwrap().changes, []);
}

#[test]
fn what_the_yaml_decoder_refuses_is_written_in_another_way() {
    for (source, expected) in [
        (r#"{"vmType":"a","x":"http:\/\/y"}"#, r#"{"vmType":"a","x":"http://y"}"#),
        (r#"{"vmType":"a","x":"\\/ \" \ud83d\ude00 \u00e9"}"#, r#"{"vmType":"a","x":"\\/ \" 😀 \u00e9"}"#),
        (r#"{"vmType":"a","x":"\ud83dx\ude00"}"#, "{\"vmType\":\"a\",\"x\":\"\u{fffd}x\u{fffd}\"}"),
        (r#"{"vmType":"a","x":"\ud83d\ud83d\ude00"}"#, "{\"vmType\":\"a\",\"x\":\"\u{fffd}😀\"}"),
        (
            "{\"vmType\":\"a\",\"x\":\"\u{7f}\u{85}\u{9f}\u{feff}é\"}",
            "{\"vmType\":\"a\",\"x\":\"\\u007f\u{85}\\u009f\\ufeffé\"}",
        ),
        ("\u{feff}{\"vmType\":\"a\"}", r#"{"vmType":"a"}"#),
    ] {
        let output = stack(source).unwrap();
        assert_eq!(output.text, expected);
        assert_eq!(output.changes.len(), 1, "{source}");
        assert_eq!(stack(expected).unwrap().changes, []);
    }
}

#[test]
fn unknown_and_repeated_members_are_named_without_their_values() {
    let source = "{\n\"vmtype\": \"vmss\",\n\"cloud\": \"\", \"cloud\": null,\n\"locaton\": \"s3cret\",\n\"routeRateLimit\": {}\n}";
    let warnings: Vec<_> = azure(source, "").unwrap().warnings.iter().map(Problem::to_string).collect();
    assert_eq!(
        warnings,
        [
            "3: `cloud` is given again further down: the last one counts",
            "4: `locaton` is unknown and has no effect (did you mean `location`?)",
            "5: this name is unknown and has no effect",
        ]
    );
}

#[test]
fn errors_name_the_place_and_hold_no_values() {
    for (source, cloud_name, expected) in [
        ("", "", "the text is empty; expected a JSON object"),
        (" \n", "", "the text is empty; expected a JSON object"),
        ("null", "", "1: expected a JSON object, found another value"),
        ("\n \"s3cret\"", "", "2: expected a JSON object, found another value"),
        ("[{}]", "", "1: expected a JSON object, found another value"),
        ("cloud: s3cret\n", "", "1:1: invalid JSON: expected value"),
        ("{\"a\": \"s3cret\",}", "", "1:16: invalid JSON: trailing comma"),
        ("{\n  \"a\": 1\n  \"b\": 2\n}", "", "3:3: invalid JSON: expected `,` or `}`"),
        ("{\"a\": 1", "", "1:7: invalid JSON: EOF while parsing an object"),
        ("{} {}", "", "1:4: invalid JSON: trailing characters"),
        (
            "{\"a\": \"\u{1}\"}",
            "",
            "1:7: invalid JSON: control character (\\u0000-\\u001F) found while parsing a string",
        ),
        ("\u{a0}{}", "", "1:1: invalid JSON: expected value"),
        ("{// no\n}", "", "1:2: invalid JSON: key must be a string"),
        ("{\n\"cloud\": 5}", "", "2: `cloud` must be a string"),
        ("{\"cloud\": {}}", "", "1: `cloud` must be a string"),
        ("{\"vmType\": true}", "", "1: `vmType` must be a string"),
        ("{\"useInstanceMetadata\": \"true\"}", "", "1: `useInstanceMetadata` must be true or false, without quotes"),
        (
            "{\"maximumLoadBalancerRuleCount\": \"5\"}",
            "",
            "1: `maximumLoadBalancerRuleCount` must be a number, without quotes",
        ),
        ("{\"tagsMap\": []}", "", "1: `tagsMap` must be an object"),
        (
            "{\"multipleStandardLoadBalancerConfigurations\": {}}",
            "",
            "1: `multipleStandardLoadBalancerConfigurations` must be a list",
        ),
        (
            "{\n\n\"cloud\": \"AzureChinaCloud\"}",
            "",
            "3: `cloud` differs from AzurePublicCloud, the cloud of an Infrastructure/cluster without \
             status.platformStatus.azure.cloudName; correct it, or leave it out",
        ),
        (
            "{}",
            "AzurePublicClod",
            "Infrastructure/cluster: status.platformStatus.azure.cloudName \"AzurePublicClod\" is not one of AzurePublicCloud, \
             AzureUSGovernmentCloud, AzureChinaCloud, AzureGermanCloud, AzureStackCloud (did you mean `AzurePublicCloud`?)",
        ),
    ] {
        assert_eq!(
            azure(source, cloud_name).map_err(|error| error.to_string()),
            Err(expected.to_owned()),
            "{source:?}"
        );
    }
    // As everywhere else, the API's spelling is the only one.
    assert!(azure("{}", "azurepubliccloud").is_err());
}

/// Generates JSON with owned, known, unknown, repeated and nested members, and spaces.
fn object() -> impl Strategy<Value = String> {
    let cloud = prop::sample::select(vec![r#""""#, r#"" ""#, "null", r#""azurePUBLICcloud""#, r#""AzurePublicCloud""#]);
    let text = prop::sample::select(vec![r#""""#, r#""vmss""#, r#""shared""#, "\"é\u{2028}\"", "null"]);
    let other = prop::sample::select(vec![
        "null",
        "1e400",
        "-0.10",
        "12345678901234567890123",
        "[ ]",
        "{\"cloud\":[\n1,2]}",
        r#""\n\u00e9 \\""#,
    ]);
    let name = prop::sample::select(vec!["vmType", "VMTYPE", "clusterServiceLoadBalancerHealthProbeMode", "location"]);
    let member = prop_oneof![
        (prop::sample::select(vec!["cloud".to_owned(), "Cloud".to_owned()]), cloud),
        (name.prop_map(str::to_owned), text),
        ("x[a-c]{0,2}", other)
    ];
    let space = prop::sample::select(vec!["", " ", "\n", "\r\n\t", "\n  "]);
    (prop::collection::vec((member, space.clone(), space.clone()), 0..8), space.clone(), space).prop_map(
        |(members, before, after)| {
            let members: Vec<_> = members
                .into_iter()
                .map(|((name, value), a, b)| format!("{b}{before}\"{name}\"{a}:{b}{value}{a}"))
                .collect();
            format!("{after}{{{}{after}}}{before}", members.join(","))
        },
    )
}

fn pairs(text: &str) -> Vec<(String, String)> {
    Document::parse(text)
        .unwrap()
        .members
        .iter()
        .map(|member| (member.name.to_string(), member.value.to_owned()))
        .collect()
}

const OWNED: [&str; 3] = [CLOUD, VM_TYPE, PROBE_MODE];

proptest! {
    #[test]
    fn is_idempotent_and_keeps_what_it_does_not_own(source in object()) {
        let first = azure(&source, "").unwrap();
        let second = azure(&first.text, "").unwrap();
        prop_assert_eq!(&second.text, &first.text);
        prop_assert_eq!(second.changes, vec![]);

        // Members that no rule owns keep their order and spelling; new members come after them.
        let (before, after) = (pairs(&source), pairs(&first.text));
        prop_assert!(after.len() <= before.len() + OWNED.len());
        for (index, (name, value)) in before.iter().enumerate() {
            prop_assert_eq!(name, &after[index].0);
            if !OWNED.iter().any(|owned| is_named(name, owned)) {
                prop_assert_eq!(value, &after[index].1);
            }
        }
        prop_assert!(after[before.len()..].iter().all(|(name, _)| OWNED.contains(&name.as_str())));

        // The same checks with another reader.
        if let (Ok(Value::Object(before)), Ok(Value::Object(after))) = (serde_json::from_str(&source), serde_json::from_str(&first.text)) {
            for (name, value) in before.iter().filter(|(name, _)| !OWNED.iter().any(|owned| is_named(name, owned))) {
                prop_assert_eq!(after.get(name), Some(value));
            }
            for owned in after.iter().filter(|(name, _)| is_named(name, CLOUD)) {
                prop_assert_eq!(owned.1, "AzurePublicCloud");
            }
        }
    }

    #[test]
    fn untouched_text_stays_byte_for_byte(source in object()) {
        let source = source.replace("\"vmType\"", "\"x1\"").replace("\"VMTYPE\"", "\"x2\"");
        let output = stack(&source).unwrap().text;
        let end = Document::parse(&source).unwrap();
        let last = end.members.last().map_or(source.find('{').unwrap() + 1, |last| last.span.end);
        prop_assert_eq!(&output[..last], &source[..last]);
        prop_assert!(output.ends_with(&source[last..]));
    }

    #[test]
    fn takes_what_gos_decoder_takes(text in "[{}\\[\\]:,\"\\\\ u0d8a-c1.e+-]{0,12}") {
        let object = matches!(serde_json::from_str(&text), Ok(Value::Object(_)));
        // A lone surrogate in a value is valid in Go, and here.
        prop_assert!(!object || stack(&text).is_ok());
    }

    #[test]
    fn never_panics(text in any::<String>(), cloud_name in any::<String>()) {
        let _ = azure(&text, &cloud_name);
        let _ = stack(&text);
        let _ = json::readable_as_yaml(&text);
    }

    #[test]
    fn never_panics_on_damaged_json(source in object(), cut in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = source.into_bytes();
        let place = cut.index(bytes.len());
        bytes[place] = byte;
        let _ = azure(&String::from_utf8_lossy(&bytes), "");
        bytes.truncate(place);
        let _ = azure(&String::from_utf8_lossy(&bytes), "");
    }

    #[test]
    fn the_meaning_stays_when_escapes_are_rewritten(text in any::<String>()) {
        let json = serde_json::to_string(&text).unwrap().replace('/', "\\/");
        let readable = json::readable_as_yaml(&json).unwrap_or(json);
        prop_assert_eq!(serde_json::from_str::<String>(&readable).unwrap(), text);
        prop_assert_eq!(json::readable_as_yaml(&readable), None);
    }
}
