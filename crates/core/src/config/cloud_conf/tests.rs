#![allow(clippy::needless_pass_by_value, reason = "a literal reads best where it stands")]

use super::*;
use crate::{
    config::Transform,
    facts::{ConfigMapKey, vsphere::VSphere},
};

fn settings(allow_empty: bool, sources: &[ConfigSource]) -> CloudConfigSettings {
    CloudConfigSettings {
        sources: sources.to_vec(),
        allow_empty,
        empty: String::new(),
        transform: None,
        publish_with_feature_gate: None,
    }
}

fn named(name: &str, key: &str) -> ConfigMapKey {
    let config_map = (!name.is_empty()).then(|| Reference::config_map("openshift-config", name));
    ConfigMapKey { config_map, key: key.into() }
}

fn run(
    settings: &CloudConfigSettings,
    named: &ConfigMapKey,
    managed: Option<Value>,
    user: Option<Value>,
) -> Result<Synced, String> {
    let facts = Facts { feature_gates: vec!["Gate".into()], cloud_config: named.clone(), ..Facts::default() };
    let inputs = Inputs { settings, facts: &facts, managed: managed.as_ref(), user: user.as_ref() };
    compute(&inputs).map_err(|error| error.to_string())
}

const BOTH: [ConfigSource; 2] = [ConfigSource::Managed, ConfigSource::User];
const USER: [ConfigSource; 1] = [ConfigSource::User];

#[test]
fn the_managed_source_comes_first_if_the_provider_uses_it() {
    let of = |text: &str| Some(json!({"data": {"cloud.conf": text}}));
    let named = named("mine", "");
    for (sources, managed, user, expected) in [
        (&BOTH[..], of("m"), of("u"), "m"),
        (&BOTH[..], None, of("u"), "u"),
        (&BOTH[..], of("m"), None, "m"),
        (&USER[..], of("m"), of("u"), "u"),
        (&USER[..], of("m"), None, ""),
    ] {
        assert_eq!(run(&settings(true, sources), &named, managed, user).unwrap().text(), expected);
    }
}

#[test]
fn the_key_is_cloud_conf_or_else_the_named_one() {
    let settings = settings(true, &USER);
    let data = json!({"data": {"config": "a", "ca-bundle.pem": "b"}, "binaryData": {"x": "YQ=="}, "immutable": true});
    let synced = run(&settings, &named("mine", "config"), None, Some(data.clone())).unwrap();
    assert_eq!(
        *synced.objects("n").unwrap()[0].value(),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cloud-conf", "namespace": "n"},
            "data": {"ca-bundle.pem": "b", "cloud.conf": "a"}, "binaryData": {"x": "YQ=="},
        }),
        "all else is carried along, but not that it cannot be changed"
    );
    assert_eq!(synced.from.as_deref(), Some("ConfigMap openshift-config/mine, key config"));

    let both = json!({"data": {"cloud.conf": "a", "config": "b"}});
    let synced = run(&settings, &named("mine", "config"), None, Some(both)).unwrap();
    assert_eq!((synced.text(), synced.data.len()), ("a", 2));

    let error = run(&settings, &named("mine", "other"), None, Some(data.clone())).unwrap_err();
    assert_eq!(
        error,
        "ConfigMap openshift-config/mine has no key \"other\", which spec.cloudConfig.key of Infrastructure cluster \
         names; it has ca-bundle.pem, config"
    );
    assert_eq!(run(&settings, &named("mine", ""), None, Some(data)).unwrap().text(), "");
}

#[test]
fn a_binary_configuration_is_refused() {
    for (key, data) in [
        ("", json!({"binaryData": {"cloud.conf": "YQ=="}})),
        ("config", json!({"binaryData": {"config": "YQ=="}, "data": {"other": "x"}})),
    ] {
        let error = run(&settings(true, &USER), &named("mine", key), None, Some(data)).unwrap_err();
        assert!(error.starts_with("ConfigMap openshift-config/mine: key c") && error.contains("binaryData"), "{error}");
    }
}

#[test]
fn a_missing_source_is_empty_or_an_error_depending_on_the_cloud() {
    for (name, key) in [("", ""), ("mine", ""), ("mine", "cloud.conf")] {
        let synced = run(&settings(true, &BOTH), &named(name, key), None, None).unwrap();
        assert_eq!((synced.text(), &synced.from), ("", &None));
    }
    for (allow_empty, sources, name, key, expected) in [
        (
            true,
            &BOTH[..],
            "mine",
            "config",
            "ConfigMap openshift-config-managed/kube-cloud-config does not exist, and ConfigMap openshift-config/mine does not exist; \
             create it with key config",
        ),
        (false, &USER[..], "mine", "", "ConfigMap openshift-config/mine does not exist; create it with key cloud.conf"),
        (
            false,
            &USER[..],
            "",
            "",
            "Infrastructure/cluster: spec.cloudConfig.name is empty; set it to a ConfigMap of namespace openshift-config",
        ),
        (
            false,
            &BOTH[..],
            "",
            "",
            "kube-cloud-config does not exist, and Infrastructure/cluster: spec.cloudConfig.name is empty",
        ),
    ] {
        let error = run(&settings(allow_empty, sources), &named(name, key), None, None).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    for data in [json!({}), json!({"data": {"cloud.conf": " \n"}}), json!({"data": {"other": "x"}})] {
        let error = run(&settings(false, &USER), &named("mine", ""), None, Some(data)).unwrap_err();
        assert_eq!(
            error,
            "ConfigMap openshift-config/mine: key cloud.conf is missing or empty, but this cloud needs a configuration"
        );
    }
}

#[test]
fn a_published_configuration_starts_from_the_minimal_one() {
    let mut settings = settings(false, &USER);
    settings.publish_with_feature_gate = Some("Gate".into());
    let synced = run(&settings, &named("mine", "config"), None, None).unwrap();
    assert_eq!((synced.text(), synced.is_published), (vsphere::MINIMAL, true));
    assert!(run(&settings, &named("", ""), None, None).is_err(), "nothing is named");
    settings.publish_with_feature_gate = Some("Other".into());
    assert!(run(&settings, &named("mine", "config"), None, None).is_err());
}

#[test]
fn an_error_names_object_key_and_line() {
    let mut settings = settings(false, &USER);
    settings.transform = Some(Transform::Azure);
    let data = json!({"data": {"config": "{\n\n?"}});
    let error = run(&settings, &named("mine", "config"), None, Some(data)).unwrap_err();
    assert!(error.starts_with("ConfigMap openshift-config/mine, key config:3:"), "{error}");
}

#[test]
fn a_configuration_as_large_as_a_config_map_is_accepted() {
    let lines = |line: fn(usize) -> String| {
        (0..).map(line).scan(0, |length, line| {
            *length += line.len();
            (*length < 900 * 1024).then_some(line)
        })
    };
    let many = |line| lines(line).collect::<String>();
    let ini = || many(|number| format!("unknown-key-{number} = some value\n"));
    let json = many(|number| format!("  \"unknownKey{number}\": \"some value\",\n"));
    let yaml = many(|number| format!("unknownKey{number}: some value\n"));
    let minimal = vsphere::MINIMAL;
    for (transform, text) in [
        (Transform::Aws, format!("[Global]\n{}", ini())),
        (Transform::OpenStack, format!("[Global]\n{}", ini())),
        (Transform::Azure, format!("{{\n{json}  \"cloud\": \"\"\n}}\n")),
        (Transform::AzureStack, format!("{{\n{json}  \"vmType\": \"\"\n}}\n")),
        (Transform::VSphere, format!("{minimal}{yaml}")),
    ] {
        let facts = Facts { vsphere: Some(VSphere::default()), ..Facts::default() };
        let output = transform.apply(&text, &facts).unwrap();
        assert!(output.text.len() > 890 * 1024 && output.warnings.len() > 10_000, "{transform:?}");
    }
}
