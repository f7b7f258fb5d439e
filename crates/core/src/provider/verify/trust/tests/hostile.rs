//! Packages that try to do harm: each is refused by the expected rule or accepted, and none causes a panic.

use std::fmt::Write;

use serde_json::json;

use super::*;
use crate::{
    error::MOST_OF_A_MESSAGE,
    provider::{external::ProviderRequest, package::Package},
    text::work,
};

/// Returns the reasons for refusing a package: `package` if it is not read at all, `defect` if the operator refuses its folder, or the
/// rules.
fn refused(files: &[(String, String)]) -> BTreeSet<String> {
    let files = files.iter().map(|(path, text)| (path.clone(), text.clone().into_bytes()));
    let Ok(package) = Package::new("exoscale", files) else { return BTreeSet::from(["package".to_owned()]) };
    let parsed_providers = package.parsed_providers();
    // Like `provider verify`, whatever the folder is.
    let report = serde_json::to_value(verify(&parsed_providers, None, Some(&Policy::default()))).unwrap();
    if parsed_providers.iter().any(|parsed| parsed.first_defect().is_err()) {
        return BTreeSet::from(["defect".to_owned()]);
    }
    let found = check_external(&parsed_providers, &Policy::default()).findings;
    let found: BTreeSet<_> =
        found.iter().map(|one| serde_json::to_value(one).unwrap()["rule"].as_str().unwrap().to_owned()).collect();
    let reported = report["findings"].as_array().unwrap().iter().map(|one| one["rule"].as_str().unwrap());
    let is_external = |rule: &&str| rule.starts_with("external-");
    assert_eq!(reported.filter(is_external).map(str::to_owned).collect::<BTreeSet<_>>(), found);
    found
}

fn sound() -> Vec<(String, String)> {
    KUBERNETES.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

/// The sound package with a text replaced.
fn changed(file: usize, from: &str, to: &str) -> Vec<(String, String)> {
    let mut files = sound();
    let text = files[file].1.replacen(from, to, 1);
    assert_ne!(text, files[file].1, "{from:?} is missing");
    files[file].1 = text;
    files
}

/// The sound package with a further manifest.
fn with(text: &str) -> Vec<(String, String)> {
    let mut files = sound();
    files.push(("assets/kubernetes/x.yaml".to_owned(), text.to_owned()));
    files
}

const NETWORK: &str = "      hostNetwork: true";

/// The file to change, the text to replace, its replacement, and what refuses it; nothing if it is harmless.
const CHANGES: &[(usize, &str, &str, &[&str])] = &[
    // Pods.
    (DEPLOYMENT, NETWORK, "      hostNetwork: true\n      hostPID: true", &["external-host-namespace"]),
    (DEPLOYMENT, NETWORK, "      hostNetwork: true\n      hostIPC: true", &["external-host-namespace"]),
    (DEPLOYMENT, NETWORK, "      hostNetwork: true\n      nodeName: a", &["external-field"]),
    (DEPLOYMENT, NETWORK, "      hostNetwork: true\n      schedulerName: a", &["external-field"]),
    (DEPLOYMENT, NETWORK, "      hostNetwork: true\n      runtimeClassName: a", &["external-field"]),
    (
        DEPLOYMENT,
        NETWORK,
        "      hostNetwork: true\n      hostAliases: [{ip: 10.0.0.1, hostnames: [a]}]",
        &["external-field"],
    ),
    (DEPLOYMENT, NETWORK, "      hostNetwork: true\n      resourceClaims: [{name: a}]", &["external-field"]),
    (DEPLOYMENT, NETWORK, "      hostNetwork: true\n      subdomain: a\n      hostname: b", &["external-field"]),
    (DEPLOYMENT, NETWORK, "      hostNetwork: true\n      shareProcessNamespace: true", &[]),
    (DEPLOYMENT, NETWORK, "      hostNetwork: true\n      hostUsers: false", &[]),
    // Containers.
    (
        DEPLOYMENT,
        CONTEXT,
        "          allowPrivilegeEscalation: false\n          privileged: true\n",
        &["external-privileged"],
    ),
    (
        DEPLOYMENT,
        CONTEXT,
        "          allowPrivilegeEscalation: false\n          procMount: Unmasked\n",
        &["external-security-context"],
    ),
    (
        DEPLOYMENT,
        CONTEXT,
        "          allowPrivilegeEscalation: false\n          seLinuxOptions: {type: spc_t}\n",
        &["external-security-context"],
    ),
    (DEPLOYMENT, "            drop: [ALL]", "            drop: [all]", &["external-security-context"]),
    (
        DEPLOYMENT,
        "            drop: [ALL]",
        "            drop: [ALL]\n            add: [SYS_ADMIN]",
        &["external-capability"],
    ),
    (
        DEPLOYMENT,
        "        ports:\n",
        "        lifecycle: {postStart: {exec: {command: [a]}}}\n        ports:\n",
        &["external-field"],
    ),
    (
        DEPLOYMENT,
        "        ports:\n",
        "        volumeDevices: [{name: tmp, devicePath: /dev/a}]\n        ports:\n",
        &["external-field"],
    ),
    (DEPLOYMENT, "        ports:\n", "        env: [{name: LD_PRELOAD, value: a}]\n        ports:\n", &[]),
    // Volumes.
    (DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        hostPath: {path: /}", &["external-host-path"]),
    (DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        csi: {driver: a}", &["external-volume"]),
    (
        DEPLOYMENT,
        LAST_VOLUME,
        "      - name: tmp\n        csi: {driver: a, nodePublishSecretRef: {name: b}}",
        &["external-secret", "external-volume"],
    ),
    (DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        image: {reference: a}", &["external-volume"]),
    (DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        nfs: {server: a, path: /}", &["external-volume"]),
    (
        DEPLOYMENT,
        LAST_VOLUME,
        "      - name: tmp\n        projected: {sources: [{serviceAccountToken: {path: a, audience: vault}}]}",
        &["external-volume"],
    ),
    (DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        configMap: {name: a}", &[]),
    // YAML.
    (DEPLOYMENT, "kind: Deployment", "kind: Deployment\nkind: Deployment", &["defect"]),
    (DEPLOYMENT, "kind: Deployment", "kind: *a", &["defect"]),
    (DEPLOYMENT, "kind: Deployment", "kind: deployment", &["defect"]),
    (DEPLOYMENT, "kind: Deployment", "kind: \"Deployment\\0\"", &["defect"]),
    (DEPLOYMENT, "kind: Deployment", "kind: Deployment\nx: \"\\e[2J\"", &["defect"]),
    (DEPLOYMENT, "kind: Deployment", "kind: Deployment\nx: \"\\u202e\"", &["defect"]),
    (DEPLOYMENT, "kind: Deployment", "kind: Deployment\n\"\\N\": x", &["defect"]),
    (DEPLOYMENT, "kind: Deployment", "kind: Deployment # \u{85}", &["package"]),
    (DEPLOYMENT, "kind: Deployment", "kind: Deployment # \u{2028}", &["package"]),
    (DEPLOYMENT, "kind: Deployment", "kind: Deployment # a\r#", &["package"]),
    (DEPLOYMENT, "kind: Deployment", "kind: Deployment # \u{202e}", &["package"]),
    (DEPLOYMENT, "kind: Deployment", "kind: Deployment # \u{1b}[8m", &["package"]),
    (DEPLOYMENT, "kind: Deployment", "kind: Deployment # \u{0}", &["package"]),
    (DEPLOYMENT, "kind: Deployment", "kind: Deployment\r", &[]),
    // The descriptor.
    (DESCRIPTOR, "name: exoscale", "name: other", &["defect"]),
    (DESCRIPTOR, "name: exoscale", "name: exoscale\nunknown: 1", &["defect"]),
    (DESCRIPTOR, "name: exoscale", "name: exoscale\nname: exoscale", &["defect"]),
    // Roles.
    (RBAC, EVENTS, "  resources: [secrets]\n  verbs: [list]", &["external-permission"]),
    (RBAC, EVENTS, "  resources: [pods]\n  verbs: [create]", &["external-rbac"]),
    (RBAC, EVENTS, "  resources: [nodes]\n  verbs: [delete]", &["external-node-deletion"]),
    (RBAC, EVENTS, "  resources: [\"*\"]\n  verbs: [create]", &["external-rbac"]),
    (RBAC, EVENTS, "  resources: [serviceaccounts]\n  verbs: [impersonate]", &["external-rbac"]),
    (RBAC, CLUSTER_ROLE, "kind: ClusterRole\n  name: cluster-admin", &["external-rbac"]),
    // Accounts, budgets and the descriptor's permissions.
    (DEPLOYMENT, AFFINITY, "", &["external-placement"]),
    (DEPLOYMENT, "        runAsUser: 65532\n", "        runAsUser: 0\n", &["external-root"]),
    (DEPLOYMENT, "serviceAccountName: exo", "automountServiceAccountToken: false\n      serviceAccountName: exo", &[]),
    (BUDGET, "maxUnavailable: 1", "maxUnavailable: 0%", &["external-budget"]),
    (BUDGET, "maxUnavailable: 1", "maxUnavailable: 1%", &[]),
    (DESCRIPTOR, "  controllers: [service]\n", "", &["external-cluster-role"]),
    (DESCRIPTOR, "  controllers: [service]\n", "  controllers: [services]\n", &["defect"]),
    (DESCRIPTOR, "nodes:\n", "services: {metadataPrefixes: [example.com/]}\nnodes:\n", &[]),
    (DESCRIPTOR, "nodes:\n", "services: {metadataPrefixes: [x.k8s.io/]}\nnodes:\n", &["external-service-metadata"]),
    (DESCRIPTOR, "nodes:\n", "services: {prefixes: []}\nnodes:\n", &["defect"]),
];

#[test]
fn a_change_of_a_package_is_refused_as_expected() {
    assert_eq!(refused(&sound()), BTreeSet::new());
    for (file, from, to, expected) in CHANGES {
        let expected: BTreeSet<_> = expected.iter().map(|rule| (*rule).to_owned()).collect();
        assert_eq!(refused(&changed(*file, from, to)), expected, "{to:?}");
    }
}

#[test]
fn a_further_manifest_is_refused_as_expected() {
    let object = |kind: &str, name: &str, rest: &str| {
        format!(
            "{kind}\nmetadata: {{name: {name}, namespace: kube-system, labels: {{app.kubernetes.io/instance: cluster}}}}\n{rest}"
        )
    };
    let config_map = "apiVersion: v1\nkind: ConfigMap";
    let service = "apiVersion: v1\nkind: Service";
    let own = "selector: {app.kubernetes.io/name: exoscale-cloud-a}";
    for (text, expected) in [
        (object(config_map, "exoscale-cloud-a", "data: {a: b}\n"), ""),
        (object(config_map, "exoscale-cloud-a", "data: {a: \"\\tb\\nc\\n\"}\n"), ""),
        (object(config_map, "exoscale-cloud-next", "data: {a: b}\n"), "external-name"),
        (object(config_map, "coredns", "data: {a: b}\n"), "external-name"),
        (object(service, "exoscale-cloud-a", &format!("spec: {{type: NodePort, {own}}}\n")), "external-service"),
        (
            object(service, "exoscale-cloud-a", &format!("spec: {{externalIPs: [10.0.0.1], {own}}}\n")),
            "external-service",
        ),
        (object(service, "exoscale-cloud-a", "spec: {selector: {k8s-app: kube-dns}}\n"), "external-selector"),
        (object("apiVersion: v1\nkind: Secret", "exoscale-cloud-a", ""), "defect"),
        (object("apiVersion: batch/v1\nkind: Job", "exoscale-cloud-a", ""), "defect"),
        (object("apiVersion: v1\nkind: Pod", "exoscale-cloud-a", "spec: {}\n"), "external-kind"),
        (object(config_map, "exoscale-cloud-a", "") + "---\n[]\n", "defect"),
        (format!("a: {}b{}\n", "[".repeat(100_000), "]".repeat(100_000)), "defect"),
        (format!("{config_map}\nx: [{}]\n", "a,".repeat(30_000)), "package"),
        (format!("{config_map}\n? {}\n: [{}]\n", "k".repeat(1_000), "a,".repeat(10_000)), "package"),
        (object(config_map, "exoscale-cloud-a", "data: {a: b}\n---\n").repeat(257), "defect"),
    ] {
        let found = refused(&with(&text));
        let expected: BTreeSet<_> = [expected].into_iter().filter(|rule| !rule.is_empty()).map(str::to_owned).collect();
        // Other rules may report a Pod as well.
        let is_as_expected =
            found == expected || (!expected.is_empty() && text.contains("kind: Pod") && found.is_superset(&expected));
        assert!(is_as_expected, "{found:?}, not {expected:?}: {}", &text[..text.len().min(200)]);
    }
}

/// All places on one line are the same.
#[test]
fn a_misspelt_field_hides_nothing_else_on_its_line() {
    let manifest = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "exoscale-cloud-x", "namespace": "kube-system"},
        "spec": {"template": {"spec": {
            "nodeName": "a", "runtimeClassName": "b", "hostAliases": [], "misspelt": 1, "containers": [],
        }}},
    });
    let files = with(&(manifest.to_string() + "\n"));
    let parsed_providers =
        parsed_providers_of("exoscale", files.iter().map(|(path, text)| (path.as_str(), text.as_bytes())));
    let report = serde_json::to_value(verify(&parsed_providers, None, Some(&Policy::default()))).unwrap();
    let of_rule = |rule: &str| {
        let all = report["findings"].as_array().unwrap().iter().filter(|one| one["rule"] == rule);
        all.map(|one| one["value"].as_str().unwrap_or_default().to_owned()).collect::<BTreeSet<_>>()
    };
    let expected = ["hostAliases", "nodeName a", "runtimeClassName b"].map(str::to_owned);
    assert_eq!(of_rule("external-field"), BTreeSet::from(expected), "{report:#}");
    assert_eq!(of_rule("external-type").len(), 1);
}

/// An untrusted text at each place of a message.
#[test]
fn a_message_holds_little_of_what_a_package_says() {
    let long = "a".repeat(900_000);
    let words = "a ".repeat(400_000);
    let label = "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: exoscale-cloud-x\n  namespace: kube-system\n  labels:\n    x: ";
    let cases = [
        with(&format!("{label}{long}\n")),
        with(&format!("{label}\"{words}\"\n")),
        with(&format!("{}{long}: x\n", label.trim_end_matches("x: "))),
        with(&format!("apiVersion: v1\nkind: {long}\nmetadata: {{name: a}}\n")),
        with(&format!("apiVersion: {long}\nkind: ConfigMap\nmetadata: {{name: a}}\n")),
        with(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {long}}}\n")),
        with(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {long}, namespace: kube-system}}\n")),
        with(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: x, namespace: {long}}}\n")),
        with(&format!("{long}: 1\n{long}: 2\n")[..])
            .into_iter()
            .map(|(path, text)| (path, text.replace("1\n", "1 #\n")))
            .collect(),
        changed(DESCRIPTOR, "name: exoscale", &format!("name: {long}")),
        changed(DESCRIPTOR, "name: exoscale", &format!("name: exoscale\n? {long}\n: 1")),
        changed(DESCRIPTOR, "name: exoscale", &format!("name: exoscale\nnodeManager: [\"{words}\"]")),
        changed(DEPLOYMENT, "- name: cloud-controller-manager", &format!("- name: \"{words}\"")),
        changed(DEPLOYMENT, NETWORK, &format!("      hostNetwork: true\n      nodeName: {long}")),
        changed(DEPLOYMENT, LAST_VOLUME, &format!("      - name: tmp\n        hostPath: {{path: /{long}}}")),
        changed(DEPLOYMENT, "image: docker.io/exoscale/cloud", &format!("image: {long}")),
        changed(RBAC, EVENTS, &format!("  resources: [{long}]\n  verbs: [create]")),
        changed(RBAC, EVENTS, &format!("  resources: [\"<{long}>\"]\n  verbs: [create]")),
    ];
    for files in cases {
        let package = files.iter().map(|(path, text)| (path.clone(), text.clone().into_bytes()));
        let mut messages = Vec::new();
        match Package::new("exoscale", package) {
            Err(error) => messages.push(error.to_string()),
            Ok(package) => {
                let parsed_providers = package.parsed_providers();
                messages.extend(parsed_providers.iter().flat_map(|one| {
                    one.defects.iter().chain(&one.misfits()).map(ToString::to_string).collect::<Vec<_>>()
                }));
                messages.extend(
                    check_external(&parsed_providers, &Policy::default()).findings.iter().map(ToString::to_string),
                );
                messages.extend(verify(&parsed_providers, None, None).findings.iter().map(ToString::to_string));
                let digest = package.digest();
                messages.extend(
                    ProviderRequest::default()
                        .check_identity(("exoscale", digest), &parsed_providers)
                        .err()
                        .map(|one| one.to_string()),
                );
            }
        }
        assert!(!messages.is_empty());
        for message in &messages {
            assert!(
                message.chars().count() < 1_500 && !message.contains(&"a".repeat(201)),
                "{}: {message:.3000}",
                message.len()
            );
        }
        let all = ProviderRequest::default().refused(messages.join("; ").repeat(100)).to_string();
        assert!(all.len() <= MOST_OF_A_MESSAGE + 200, "{}", all.len());
    }
}

/// Sizes that some code could multiply, each as a package of two sizes.
type Shape = (&'static str, fn(usize) -> Vec<(String, String)>);

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "{}", line(n));
        text
    })
}

const SHAPES: [Shape; 10] = [
    ("names of containers that there are not", |n| {
        let unknown = lines(n, |n| format!("  \"cloud-controller-manage{n:05}\": {{}}"));
        changed(DESCRIPTOR, "arguments:\n", &format!("arguments:\n{unknown}"))
    }),
    ("a long name that there is not", |n| {
        let name = "b".repeat(n);
        changed(DESCRIPTOR, "arguments:\n", &format!("arguments:\n  \"{name}\": {{}}\n  \"{name}c\": {{}}\n"))
    }),
    ("brackets", |n| {
        changed(DEPLOYMENT, NETWORK, &format!("      hostNetwork: true\n      nodeName: \"{}\"", "<".repeat(n)))
    }),
    ("arguments", |n| {
        let mut files = changed(
            DESCRIPTOR,
            "arguments:\n  cloud-controller-manager:\n",
            &format!(
                "arguments:\n  cloud-controller-manager:\n{}",
                lines(n, |n| format!("    --b{n:05}: {{value: c}}"))
            ),
        );
        let own = lines(n, |n| format!("        - --a{n:05}"));
        files[DEPLOYMENT].1 = files[DEPLOYMENT].1.replacen("        args:\n", &format!("        args:\n{own}"), 1);
        files
    }),
    ("volumes that are replaced", |n| {
        let volumes = lines(n, |_| "      - {name: credentials, emptyDir: {}}".to_owned());
        changed(DEPLOYMENT, "      volumes:\n", &format!("      volumes:\n{volumes}"))
    }),
    ("labels", |n| {
        let labels = lines(n, |n| format!("    a{n:05}: b"));
        with(&format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: exoscale-cloud-x\n  namespace: kube-system\n  labels:\n{labels}"
        ))
    }),
    ("Secrets in a namespace with a long name", |n| {
        let volumes = lines(n, |n| format!("      - {{name: v{n:05}, secret: {{secretName: s{n:05}}}}}"));
        let mut files = changed(DEPLOYMENT, "      volumes:\n", &format!("      volumes:\n{volumes}"));
        let namespace = format!("namespace: {}", "n".repeat(n.min(253)));
        files[DEPLOYMENT].1 = files[DEPLOYMENT].1.replacen("namespace: kube-system", &namespace, 1);
        files
    }),
    ("permissions of a long API group", |n| {
        let verbs = lines(n, |n| format!("  - v{n:05}"));
        let rule = format!("- apiGroups: [{}]\n  resources: [x]\n  verbs:\n{verbs}", "g".repeat(n));
        changed(RBAC, "- apiGroups: [authentication.k8s.io]", &format!("{rule}- apiGroups: [authentication.k8s.io]"))
    }),
    ("tags of a long repository", |n| {
        let tags = (0..n).map(|n| format!("\"1.{}\": v{n}, ", n + 100)).collect::<Vec<_>>().concat();
        let files = changed(DESCRIPTOR, "tags: {", &format!("tags: {{{tags}"));
        let long = format!("docker.io/{}/", "x".repeat(n));
        files.into_iter().map(|(path, text)| (path, text.replace("docker.io/", &long))).collect()
    }),
    ("images of containers that there are not", |n| {
        let image = "{repository: docker.io/a/b, versions: {rule: OneLine, tags: {\"1.35\": v1}, asOf: x}, architectures: [arm]}";
        let images = lines(n, |n| format!("  cloud-controller-manage{n:05}: {image}"));
        changed(DESCRIPTOR, "images:\n", &format!("images:\n{images}"))
    }),
];

#[test]
fn the_work_for_a_package_grows_with_its_size() {
    for (name, shape) in SHAPES {
        let steps = |n| {
            let files = shape(n);
            work::of(|| {
                let parsed_providers =
                    parsed_providers_of("exoscale", files.iter().map(|(path, text)| (path.as_str(), text.as_bytes())));
                let found = verify(&parsed_providers, None, Some(&Policy::default()));
                assert!(!found.suites().is_empty());
                for parsed in &parsed_providers {
                    drop(parsed.misfits());
                }
            })
        };
        let (small, large) = (steps(400), steps(4_000));
        // Allows for a logarithmic factor.
        assert!(large < 15 * small.max(1), "{name}: {small} steps, and {large} for ten times the size");
    }
}
