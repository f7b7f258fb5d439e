use std::collections::BTreeSet;

use super::*;
use crate::provider::{
    Flavor, embedded,
    folder::{ParsedProvider, parsed_providers_of},
    verify::{
        Policy, check_external,
        policy::{policy_for, values},
        verify,
    },
};

mod accounts;
mod fixtures;
mod hostile;
mod openshift;
mod policy;

pub(crate) use fixtures::*;

/// Permissions that lead to every other one, which no policy allows: (API group, resource, verb).
const MIGHTY: [(&str, &str, &str); 24] = [
    ("", "pods/exec", "get"),
    ("", "pods/exec", "create"),
    ("", "pods/attach", "get"),
    ("", "pods/portforward", "create"),
    ("", "pods/ephemeralcontainers", "patch"),
    ("", "pods/proxy", "get"),
    ("", "services/proxy", "get"),
    ("", "nodes/proxy", "get"),
    ("", "serviceaccounts/token", "create"),
    ("", "pods", "create"),
    ("", "secrets", "create"),
    ("apps", "deployments", "patch"),
    ("batch", "jobs", "create"),
    ("rbac.authorization.k8s.io", "clusterroles", "create"),
    ("rbac.authorization.k8s.io", "rolebindings", "patch"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "create"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "update"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "create"),
    ("apiregistration.k8s.io", "apiservices", "update"),
    ("certificates.k8s.io", "certificatesigningrequests/approval", "update"),
    ("", "pods", "patch"),
    ("batch", "cronjobs", "update"),
    ("certificates.k8s.io", "signers", "sign"),
    ("", "serviceaccounts", "impersonate"),
];

/// Permissions on machines or on data of other programs, which a policy allows.
const UNUSUAL: [(&str, &str, &str); 12] = [
    ("", "nodes/log", "get"),
    ("", "secrets", "get"),
    ("", "configmaps", "update"),
    ("", "persistentvolumes", "create"),
    ("authentication.k8s.io", "userextras", "create"),
    ("", "endpoints", "list"),
    ("", "pods", "get"),
    ("", "pods", "delete"),
    ("", "secrets", "delete"),
    ("", "serviceaccounts", "list"),
    ("apps", "deployments", "delete"),
    ("", "configmaps", "list"),
];

fn parsed_providers_with<'a>(
    name: &str,
    files: &'a [(&str, &'a str)],
    changed: usize,
    text: &'a str,
) -> Vec<ParsedProvider> {
    let files = files.iter().enumerate();
    let files = files.map(|(index, (path, sound))| (*path, if index == changed { text } else { sound }));
    parsed_providers_of(name, files.map(|(path, text)| (path, text.as_bytes())))
}

fn allowing(name: &str, rule: &str, value: &str) -> Policy {
    Policy::parse(&format!("{name}:\n  {rule}: [{value:?}]\n")).unwrap()
}

/// Changes one part of a provider: exactly one rule reports it, at its line, and only a policy with its value allows it.
fn expect(name: &str, files: &[(&str, &str)], (rule, file, from, to, place, value): Fixture) {
    let (path, sound) = files[file];
    let text = sound.replacen(from, to, 1);
    assert_ne!(text, sound, "{rule}: {from:?} is missing");
    let parsed_providers = parsed_providers_with(name, files, file, &text);
    let found = check_external(&parsed_providers, &Policy::default()).findings;
    let start = text.find(place).unwrap_or_else(|| panic!("{rule}: {place:?} is missing"));
    let line = 1 + text[..start].matches('\n').count();
    let [finding] = &found[..] else { panic!("{rule}: {to:?}: {found:#?}") };
    let finding = serde_json::to_value(finding).unwrap();
    assert_eq!(
        (&finding["rule"], &finding["file"], &finding["line"]),
        (&rule.into(), &path.into(), &line.into()),
        "{to:?}: {finding:#}"
    );
    assert_eq!(finding["value"].as_str().unwrap_or_default(), value, "{to:?}");
    assert!(finding["what"].as_str().unwrap().contains(value), "{finding:#}");
    if value.is_empty() {
        assert!(
            Policy::parse(&format!("{name}: {{{rule}: [x]}}\n"))
                .unwrap_err()
                .message
                .contains("cannot be allowed by a policy")
        );
        return;
    }
    let policy = allowing(name, rule, value);
    assert_eq!(check_external(&parsed_providers, &policy).findings, [], "{rule}: {value}");
    assert_eq!(check_external(&parsed_providers, &policy).exceptions, [format!("{rule}: {value}")]);
    assert_eq!(policy.unused(&parsed_providers), []);
    for other in [
        allowing("other", rule, value),
        allowing(name, rule, &format!("{value}x")),
        allowing(name, "external-host-port", "1"),
    ] {
        assert_eq!(check_external(&parsed_providers, &other).findings.len(), 1, "{rule}: {value}");
        assert!(check_external(&parsed_providers, &other).exceptions.is_empty());
    }
}

#[test]
fn each_rule_reports_what_breaks_only_it_and_a_policy_allows_only_that() {
    assert_eq!(
        check_external(&parsed_providers_with("exoscale", &KUBERNETES, 0, KUBERNETES[0].1), &Policy::default())
            .findings,
        []
    );
    for fixture in FIXTURES {
        expect("exoscale", &KUBERNETES, *fixture);
    }
}

#[test]
fn every_permission_that_leads_to_others_is_reported() {
    let never = MIGHTY.into_iter().map(|one| (one, "(external-rbac)"));
    for ((group, resource, verb), expected) in
        never.chain(UNUSUAL.into_iter().map(|one| (one, "(external-permission)")))
    {
        let rule = format!("- apiGroups: [{group:?}] # here\n  resources: [{resource}]\n  verbs: [{verb}]\n");
        for before in ["- apiGroups: [authentication.k8s.io]", "- apiGroups: [coordination.k8s.io]"] {
            let text = KUBERNETES[RBAC].1.replacen(before, &format!("{rule}{before}"), 1);
            let found =
                check_external(&parsed_providers_with("exoscale", &KUBERNETES, RBAC, &text), &Policy::default())
                    .findings;
            let [finding] = &found[..] else { panic!("{rule}: {found:#?}") };
            assert!(finding.to_string().ends_with(expected), "{finding}");
        }
    }
}

#[test]
fn every_rule_has_a_fixture_and_a_unique_name() {
    let rules: BTreeSet<_> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(rules.len(), RULES.len());
    let is_external = |rule: &&str| rule.starts_with("external-");
    assert!(rules.iter().all(is_external), "they are told apart from those of every provider");
    let fixtures = FIXTURES.iter().map(|(rule, ..)| *rule);
    // Only OpenShift has it.
    assert_eq!(rules, fixtures.chain(["external-cloud-config"]).collect());
}

#[test]
fn kinds_that_the_operator_does_not_apply_are_refused_before_any_rule() {
    for (api_version, kind) in [
        ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("apiregistration.k8s.io/v1", "APIService"),
        ("batch/v1", "Job"),
        ("v1", "Namespace"),
        ("v1", "Secret"),
    ] {
        let text = format!("apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: exoscale-cloud-x}}\n");
        let parsed_providers = parsed_providers_with("exoscale", &KUBERNETES, BUDGET, &text);
        let error = parsed_providers[0].kubernetes().unwrap_err().to_string();
        assert!(error.contains(&format!("unsupported kind {api_version} {kind}")), "{error}");
    }
}

/// The exceptions that the built-in providers would need as external ones. Those for OpenShift share an account, have the images of the
/// release, and historical names; those for any Kubernetes show how strict the rules are.
#[test]
fn of_the_built_in_providers_for_any_kubernetes_only_four_would_need_a_policy() {
    let mut needed: Vec<_> = Vec::new();
    let kubernetes: Vec<_> =
        embedded::parsed_providers().into_iter().filter(|parsed| parsed.flavor == Flavor::Kubernetes).collect();
    for (provider, rule, value) in
        values(&kubernetes).into_iter().filter(|(_, rule, _)| *rule != "external-image-digest")
    {
        needed.push(format!("{provider}: {rule}: {value}"));
    }
    let expected = [
        "azure: external-kind: ValidatingAdmissionPolicy azure-cloud-node-manager-own-node",
        "azure: external-kind: ValidatingAdmissionPolicyBinding azure-cloud-node-manager-own-node",
        "azure: external-permission: coordination.k8s.io/leases:update aks-managed-resource-locker",
        "gcp: external-permission: configmaps:create",
        "nutanix: external-permission: configmaps:list",
        "nutanix: external-permission: configmaps:watch",
        "nutanix: external-permission: secrets:list",
        "nutanix: external-permission: secrets:watch",
        "oci: external-permission: serviceaccounts:list",
        "oci: external-permission: serviceaccounts:watch",
    ];
    assert_eq!(needed, expected);
    // The tags of the built-in table were looked up when this program was built; none has a digest.
    let tags = values(&kubernetes).into_iter().filter(|(_, rule, _)| *rule == "external-image-digest").count();
    assert!(tags > kubernetes.len());
    // Their own code writes these with any enabled controllers: an external provider would have to name all of them.
    let found = check_external(&kubernetes, &Policy::default())
        .findings
        .into_iter()
        .map(|one| serde_json::to_value(one).unwrap());
    let (open, others): (Vec<_>, Vec<_>) = found.partition(|one| one["value"].is_null());
    let open: Vec<_> = open.iter().map(|one| format!("{}: {}", one["provider"], one["what"])).collect();
    let writes = |provider: &str, what: &str| {
        format!("\"{provider}/kubernetes\": \"writes {what} whichever controllers are on: no controllers are given\"")
    };
    let expected_open = [
        ("azure", "nodes"),
        ("cherry", "nodes"),
        ("linode", "nodes"),
        ("oci", "nodes"),
        ("scaleway", "nodes"),
        ("scaleway", "services"),
    ];
    assert_eq!(open, expected_open.map(|(provider, what)| writes(provider, what)));
    // The permissions of oci are in its role and in its descriptor.
    assert_eq!(others.len(), expected.len() + 2 + tags);
    assert!(kubernetes.len() > 20, "{}", kubernetes.len());
}

#[test]
fn of_the_built_in_providers_for_openshift_none_breaks_a_rule_that_cannot_be_allowed() {
    let openshift: Vec<_> =
        embedded::parsed_providers().into_iter().filter(|parsed| parsed.flavor == Flavor::OpenShift).collect();
    let needed = values(&openshift);
    let rules: BTreeSet<_> = needed.iter().map(|(_, rule, _)| *rule).collect();
    let expected = [
        "external-budget",
        "external-root",
        "external-pod-label",
        "external-cloud-config",
        "external-host-path",
        "external-image",
        "external-kind",
        "external-label",
        "external-metadata",
        "external-name",
        "external-reference",
        "external-permission",
        "external-secret",
        "external-selector",
    ];
    assert_eq!(rules, BTreeSet::from(expected));
    for (provider, _, value) in needed.iter().filter(|(_, rule, _)| *rule == "external-permission") {
        let expected: &[&str] = match *provider {
            "azure" | "azurestack" => &["coordination.k8s.io/leases:update aks-managed-resource-locker"],
            "nutanix" => &["configmaps:", "secrets:"],
            "vsphere" => &["secrets:"],
            other => panic!("{other}: {value}"),
        };
        assert!(expected.iter().any(|start| value.starts_with(start)), "{provider}: {value}");
    }
    let fixed = check_external(&openshift, &Policy::default()).findings;
    assert!(fixed.iter().all(|finding| serde_json::to_value(finding).unwrap()["value"].is_string()));
}

#[test]
fn an_image_of_the_manifest_may_have_the_digest_of_its_tag() {
    let image = format!(":0.34.0@sha256:{}", "0a".repeat(32));
    let text = KUBERNETES[DEPLOYMENT].1.replacen(":0.34.0", &image, 1);
    assert_eq!(
        check_external(&parsed_providers_with("exoscale", &KUBERNETES, DEPLOYMENT, &text), &Policy::default()).findings,
        []
    );
}

#[test]
fn the_policy_that_is_proposed_allows_all_that_one_can() {
    let text = KUBERNETES[DEPLOYMENT]
        .1
        .replace("hostNetwork: true", "hostNetwork: true\n      hostPID: true\n      hostIPC: true");
    let parsed_providers = parsed_providers_with("exoscale", &KUBERNETES, DEPLOYMENT, &text);
    let policy = policy_for(&parsed_providers, &allowing("exoscale", "external-host-namespace", "hostIPC")).unwrap();
    assert_eq!(policy, "exoscale:\n  external-host-namespace:\n  - hostPID\n");
    let policy = Policy::parse(&policy_for(&parsed_providers, &Policy::default()).unwrap()).unwrap();
    assert_eq!(check_external(&parsed_providers, &policy).findings, []);
    assert_eq!(policy_for(&parsed_providers, &policy), None, "nothing is left");
    let text =
        text.replace("allowPrivilegeEscalation: false", "allowPrivilegeEscalation: false\n          privileged: true");
    let parsed_providers = parsed_providers_with("exoscale", &KUBERNETES, DEPLOYMENT, &text);
    assert_eq!(policy_for(&parsed_providers, &Policy::default()), None, "no policy would be enough");
}
