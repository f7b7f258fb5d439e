use super::*;

const GLOBAL_SET: &str =
    "[Global]\nuse-clouds = true\nclouds-file = /etc/openstack/secret/clouds.yaml\ncloud = openstack\n";
const BALANCER_SET: &str = "[LoadBalancer]\nmax-shared-lb = 1\nmanage-security-groups = true\n";

fn transformed(source: &str) -> Output {
    transform(source).unwrap_or_else(|error| panic!("{source:?}: {error}"))
}

#[test]
fn a_configuration_is_completed() {
    let both = format!("{GLOBAL_SET}\n{BALANCER_SET}");
    let cases = [
        (String::new(), both.clone()),
        ("[Global]\n".to_owned(), both.clone()),
        (both.clone(), both.clone()),
        (format!("{GLOBAL_SET}\n[loadbalancer]\nuse-octavia = true\n"), both.replace("LoadB", "loadb")),
        (
            both.replace("= 1", "= 2").replace("groups = true", "groups = no"),
            both.replace("= 1", "= 2").replace("groups = true", "groups = no"),
        ),
        (
            "[Global]\nsecret-name = openstack-credentials\nsecret-namespace = kube-system\nkubeconfig-path = \"\"\n\
             region = r\n[BlockStorage]\nbs-version = v3\nignore-volume-az = yes\n\n[LoadBalancer]\nuse-octavia=true\n"
                .to_owned(),
            format!("{}\n{BALANCER_SET}", GLOBAL_SET.replace("[Global]\n", "[Global]\nregion = r\n")),
        ),
        (
            "[GLOBAL]\nSecret-Name = \"openstack-credentials\"\nUse-Clouds\nCloud = mine\n".to_owned(),
            format!(
                "[GLOBAL]\nUse-Clouds = true\nCloud = openstack\nclouds-file = /etc/openstack/secret/clouds.yaml\n\n\
                 {BALANCER_SET}"
            ),
        ),
        (
            format!("{GLOBAL_SET}[LoadBalancer]\nmax-shared-lb =\nmanage-security-groups\n"),
            format!("{GLOBAL_SET}{BALANCER_SET}"),
        ),
        (format!("\u{feff}{both}"), both.clone()),
        (both.replace('\n', "\r\n"), both.replace('\n', "\r\n")),
    ];
    for (source, expected) in cases {
        let output = transformed(&source);
        assert_eq!(output.text, expected, "{source:?}");
        assert_eq!(output.warnings, [], "{source:?}");
        assert_eq!(output.changes.is_empty(), source == expected, "{source:?}");
        assert_eq!(transformed(&expected), Output { text: expected, ..Output::default() }, "its own output");
    }
}

#[test]
fn each_change_has_the_previous_value() {
    let changes =
        transformed("[Global]\nsecret-name = openstack-credentials\ncloud = mine\n[BlockStorage]\na = b\n").changes;
    let expected = [
        ("[Global] secret-name", Some("openstack-credentials"), None),
        ("[Global] use-clouds", None, Some("true")),
        ("[Global] clouds-file", None, Some("/etc/openstack/secret/clouds.yaml")),
        ("[Global] cloud", Some("mine"), Some("openstack")),
        ("[BlockStorage]", Some(""), None),
        ("[BlockStorage] a", Some("b"), None),
        ("[LoadBalancer] max-shared-lb", None, Some("1")),
        ("[LoadBalancer] manage-security-groups", None, Some("true")),
    ];
    assert_eq!(crate::config::tests::keys_and_values(&changes), expected);
}

#[test]
fn a_legacy_key_with_another_value_is_an_error() {
    for key in ["secret-name", "SECRET-NAMESPACE", "kubeconfig-path"] {
        let error = transform(&format!("[Global]\nregion = r\n{key} = other-value\n")).unwrap_err();
        assert_eq!(error.place.map(|place| place.line), Some(3));
        assert!(error.message.contains(&key.to_lowercase()) && !error.message.contains("other-value"), "{error}");
        for fine in
            [format!("[Global]\n{key} =\n"), format!("[Global]\n{key}\n"), format!("[Global \"x\"]\n{key} = other\n")]
        {
            assert!(transform(&fine).is_ok(), "{fine:?}");
        }
    }
}

#[test]
fn ignored_keys_and_sections_are_warnings() {
    let cases = [
        ("[Global]\nauth-ulr = a\n", 2, "ignores it (did you mean `auth-url`?)"),
        ("[Global]\nlb-provider = a\n", 2, "it belongs in [LoadBalancer]"),
        ("[Networkin]\n", 1, "did you mean `Networking`?"),
        ("[LoadBalancer \"x\"]\n", 1, "has no sub-sections"),
        ("[BlockStorage \"x\"]\n", 1, "does not know this section"),
        ("[Route]\nuse-octavia = true\n", 2, "does not know this key of [Route]"),
    ];
    for (source, line, words) in cases {
        let warnings = transformed(source).warnings;
        assert_eq!(warnings.len(), 1, "{source:?}: {warnings:?}");
        assert_eq!(warnings[0].place.map(|place| place.line), Some(line), "{source:?}");
        assert!(warnings[0].message.contains(words), "{source:?}: {}", warnings[0]);
    }
    assert_eq!(
        transformed("[loadbalancerclass \"x\"]\nSubnet-ID = a\n[Networking]\npublic-network-name\n").warnings,
        []
    );
}

#[test]
fn refused_values_are_errors() {
    let cases = [
        ("[LoadBalancer]\ncreate-monitor = maybe\n", "create-monitor"),
        ("[LoadBalancer]\nmonitor-delay = 60\n", "monitor-delay"),
        ("[LoadBalancer]\nmonitor-max-retries = -1\n", "monitor-max-retries"),
        ("[LoadBalancer]\nmax-shared-lb = many\n", "max-shared-lb"),
        ("[Global]\nos-endpoint-type =\n", "os-endpoint-type"),
        ("[Global]\nauth-url\n", "auth-url"),
    ];
    for (source, key) in cases {
        let error = transform(source).unwrap_err();
        assert_eq!(error.place.map(|place| place.line), Some(2), "{source:?}: {error}");
        assert!(error.message.contains(key), "{source:?}: {error}");
    }
    let before =
        "[Global]\nuse-clouds = maybe\nuse-clouds = maybe\n[LoadBalancer]\nmax-shared-lb = x\nmax-shared-lb =\n";
    let text = transformed(before).text;
    assert!(!text.contains("maybe") && !text.contains("= x"), "{text}");
}
