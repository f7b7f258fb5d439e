//! The file of `--provider-policy`.

use super::*;

#[test]
fn a_policy_is_strict() {
    for (text, expected) in [
        (
            "exoscale:\n  external-hostpath: [/a]\n",
            "2: unknown rule `external-hostpath` (did you mean `external-host-path`?)",
        ),
        ("exoscale:\n  privileged: [a]\n", "2: unknown rule `privileged`; expected one of external-kind, "),
        (
            "a: {}\nexoscale:\n  external-rbac: [a]\n",
            "3: external-rbac cannot be allowed by a policy, because wildcards include",
        ),
        ("exoscale: [external-kind]\n", "1: expected lists of values by rule"),
        ("- exoscale\n", "1: expected rules by provider"),
        ("exoscale:\n  external-kind: Pod a\n", "2: expected a list of values"),
        ("exoscale:\n  external-kind:\n  - Pod a\n  - {Pod: a}\n", "4: expected a text"),
        ("exoscale:\n  external-kind:\n  - \"\"\n", "3: the value is empty"),
        ("exoscale:\n  external-permission: [\"secrets:*\"]\n", "2: a wildcard; values are exact"),
        ("exoscale: {}\n---\nother: {}\n", "3: a second document"),
        ("exoscale: {}\nexoscale: {}\n", "2"),
        ("exoscale: [\n", "1:11: unclosed bracket"),
    ] {
        let error = Policy::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

#[test]
fn an_empty_policy_allows_nothing() {
    let text = KUBERNETES[DEPLOYMENT].1.replace("hostNetwork: true", "hostNetwork: true\n      hostPID: true");
    let parsed_providers = parsed_providers_with("exoscale", &KUBERNETES, DEPLOYMENT, &text);
    for policy in ["", "# Nothing.\n", "{}\n", "exoscale: {}\n", "exoscale: {external-host-namespace: []}\n"] {
        assert_eq!(check_external(&parsed_providers, &Policy::parse(policy).unwrap()).findings.len(), 1, "{policy:?}");
    }
}

#[test]
fn a_value_that_allows_nothing_is_unused() {
    let policy = "other:\n  external-kind: [Pod a]\nexoscale:\n  external-host-port: [80]\n  external-host-path:\n  - /a\n  - /b\n";
    let text = KUBERNETES[DEPLOYMENT].1.replace(LAST_VOLUME, "      - name: tmp\n        hostPath: {path: /a}");
    let parsed_providers = parsed_providers_with("exoscale", &KUBERNETES, DEPLOYMENT, &text);
    let policy = Policy::parse(policy).unwrap();
    let unused: Vec<_> = policy.unused(&parsed_providers).iter().map(ToString::to_string).collect();
    // The entry of another provider is for another package.
    let expected = [
        "7: exoscale: external-host-path: unused: nothing of the provider has \"/b\"; remove it",
        "4: exoscale: external-host-port: unused: nothing of the provider has \"80\"; remove it",
    ];
    assert_eq!(unused, expected);
    assert_eq!(check_external(&parsed_providers, &policy).exceptions, ["external-host-path: /a"]);
    assert_eq!(policy.is_of_others("exoscale"), None);
}

#[test]
fn a_policy_for_other_providers_only_is_noticed() {
    let problem = Policy::parse("exosale:\n  external-kind: [Pod a]\n").unwrap().is_of_others("exoscale");
    assert_eq!(problem.unwrap(), "it allows nothing for exoscale, only for exosale");
    assert_eq!(Policy::default().is_of_others("exoscale"), None);
}

#[test]
fn what_both_flavors_need_is_allowed_once() {
    let both = |name: &str| {
        let text = KUBERNETES[DEPLOYMENT].1.replace("hostNetwork: true", "hostNetwork: true\n      hostPID: true");
        [(format!("assets/{name}deployment.yaml"), text)]
    };
    let files = both("").into_iter().chain(both("kubernetes/"));
    let parsed_providers = parsed_providers_of("exoscale", files.map(|(path, text)| (path, text.into_bytes())));
    assert_eq!(
        check_external(&parsed_providers, &allowing("exoscale", "external-host-namespace", "hostPID")).exceptions,
        ["external-host-namespace: hostPID"]
    );
}
