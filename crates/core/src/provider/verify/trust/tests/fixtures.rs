//! A provider that breaks no rule for external providers, and for each rule a change that breaks it; for tests, also of other
//! crates.

use std::sync::LazyLock;

/// A built-in provider as an external one: with the digests of its images.
pub(crate) static KUBERNETES: LazyLock<&'static [(&'static str, &'static str)]> = LazyLock::new(|| {
    let descriptor = pinned(include_str!("../../../../../../../assets/exoscale/kubernetes/provider.yaml"));
    Vec::leak(vec![
        (
            "assets/kubernetes/deployment.yaml",
            include_str!("../../../../../../../assets/exoscale/kubernetes/deployment.yaml"),
        ),
        (
            "assets/kubernetes/poddisruptionbudget.yaml",
            include_str!("../../../../../../../assets/exoscale/kubernetes/poddisruptionbudget.yaml"),
        ),
        ("assets/kubernetes/provider.yaml", String::leak(descriptor)),
        ("assets/kubernetes/rbac.yaml", include_str!("../../../../../../../assets/exoscale/kubernetes/rbac.yaml")),
    ])
});

/// The descriptor of Exoscale with made-up digests.
pub(crate) fn pinned(descriptor: &str) -> String {
    ["0.32.3", "0.33.0", "0.34.0"].iter().fold(descriptor.to_owned(), |text, tag| {
        text.replace(&format!(": {tag}"), &format!(": {{tag: {tag}, digest: \"sha256:{}\"}}", "0a".repeat(32)))
    })
}

pub(crate) const DEPLOYMENT: usize = 0;
pub(crate) const BUDGET: usize = 1;
pub(crate) const DESCRIPTOR: usize = 2;
pub(crate) const RBAC: usize = 3;

/// For each rule: the file to change, the text to replace (the start of the file if it is empty), its replacement, a text on the line of
/// the finding, and the value that allows it in a policy; empty if none does.
pub(crate) type Fixture = (&'static str, usize, &'static str, &'static str, &'static str, &'static str);

pub(crate) const CLUSTER_ROLE: &str = "kind: ClusterRole\n  name: exoscale-cloud-controller-manager";
pub(crate) const SUBJECT: &str =
    "- kind: ServiceAccount\n  name: exoscale-cloud-controller-manager\n  namespace: kube-system\n---\n# The lease";
pub(crate) const READER: &str = "kind: Role\n  name: extension-apiserver-authentication-reader";
pub(crate) const CONTEXT: &str = "          allowPrivilegeEscalation: false\n";
pub(crate) const LAST_VOLUME: &str = "      - name: tmp\n        emptyDir: {}";
pub(crate) const EVENTS: &str = "  resources: [events]\n  verbs: [create, patch]";
pub(crate) const LEASE: &str = "  resources: [leases]\n  verbs: [create]";

macro_rules! ten {
    ($text:literal) => {
        concat!($text, $text, $text, $text, $text, $text, $text, $text, $text, $text)
    };
}

macro_rules! hundred {
    ($text:literal) => {
        concat!(
            ten!($text),
            ten!($text),
            ten!($text),
            ten!($text),
            ten!($text),
            ten!($text),
            ten!($text),
            ten!($text),
            ten!($text),
            ten!($text)
        )
    };
}

/// More than ten thousand permissions in two lines.
pub(crate) const MANY: &str =
    concat!("  resources: [", hundred!("events, "), "events]\n  verbs: [", hundred!("create, "), "patch]");

/// Another workload whose container has the name of the cloud-controller-manager's, and an account. The arguments are its kind, its
/// selector, the account that it uses, and more lines of its pods and of its container.
macro_rules! workload {
    ($kind:literal, $selector:literal, $account:literal, $pod:literal, $container:literal) => {
        concat!(
            "apiVersion: apps/v1\nkind: ",
            $kind,
            "\nmetadata: {name: exoscale-cloud-x, namespace: kube-system}\nspec:\n  selector: {matchLabels: {",
            $selector,
            "}}\n  template:\n    metadata: {labels: {k8s-app: exoscale-cloud-x, app.kubernetes.io/component: controller}}\n    spec:\n      \
             serviceAccountName: ",
            $account,
            "\n",
            $pod,
            "      securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}\n      containers:\n      - name: \
             cloud-controller-manager\n        image: docker.io/exoscale/cloud-controller-manager:0.34.0\n        securityContext: \
             {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}\n",
            $container,
            "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: exoscale-cloud-x, namespace: kube-system}\n---\n"
        )
    };
}

/// Another DaemonSet, with the account of the cloud-controller-manager.
pub(crate) const SHARING: &str =
    workload!("DaemonSet", "k8s-app: exoscale-cloud-x", "exoscale-cloud-controller-manager", "", "");

/// The node selector that keeps the cloud-controller-manager on the control plane.
pub(crate) const AFFINITY: &str = "        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - {key: node-role.kubernetes.io/control-plane, operator: Exists}
";

/// A role that the operator would leave as it is.
pub(crate) const OTHER_ROLE: &str = "\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: exoscale-cloud-x}
rules: [{apiGroups: [\"\"], resources: [services], verbs: [patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: exoscale-cloud-x}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: exoscale-cloud-x}
subjects: [{kind: ServiceAccount, name: exoscale-cloud-controller-manager, namespace: kube-system}]
---
";

#[rustfmt::skip]
pub(crate) const FIXTURES: &[Fixture] = &[
    ("external-type", RBAC, EVENTS, "  resources: [events, null]\n  verbs: [create, patch]", "  resources: [events, null]", ""),
    ("external-type", RBAC, LEASE, "  resources: [leases]\n  verbs: [create]\n- apiGroups: [~]\n  resources: [configmaps]\n  verbs: [create, patch]", "- apiGroups: [~]", ""),
    ("external-type", RBAC, LEASE, "  resources: [leases]\n  verbs: [create]\n- apiGroups: [\"\"] # here\n  resources: [configmaps]\n  resourceNames:\n  - a\n  -\n  verbs: [get]", "  -\n  verbs", ""),
    ("external-type", BUDGET, "  labels:", "  annotations: {descheduler.alpha.kubernetes.io/evict: null}\n  labels:", "annotations", ""),
    ("external-type", DEPLOYMENT, "    metadata:\n      labels:", "    metadata:\n      annotations: []\n      labels:", "annotations", ""),
    ("external-type", DEPLOYMENT, "      hostNetwork: true", "      hostNetwork: true\n      nodeName:", "nodeName:", ""),
    ("external-type", DEPLOYMENT, "      hostNetwork: true", "      hostNetwork: true\n      hostNetwrok: true", "hostNetwrok", ""),
    ("external-type", BUDGET, "", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: exoscale-cloud-x, namespace: kube-system}\ndata: []\n---\n", "data: []", ""),
    ("external-object-name", BUDGET, "name: exoscale-cloud-controller-manager\n  namespace", "name: exoscale-cloud-/../../../pwned\n  namespace", "name: exoscale-cloud-/", ""),
    ("external-object-name", BUDGET, "name: exoscale-cloud-controller-manager\n  namespace", "name: exoscale-cloud-A\n  namespace", "name: exoscale-cloud-A", ""),
    ("external-object-name", RBAC, "kind: RoleBinding\nmetadata:\n  name: exoscale-cloud-controller-manager", "kind: RoleBinding\nmetadata:\n  name: exoscale-cloud-x:/y", "name: exoscale-cloud-x:/y", ""),
    ("external-cluster-role", RBAC, "", OTHER_ROLE, "subjects: [", ""),
    ("external-cluster-role", DESCRIPTOR, "  controllers: [service]\n", "", "- reason: the id of a load balancer", ""),
    ("external-cluster-role", DESCRIPTOR, "  controllers: [service]\n", "  controllers: []\n", "- reason: the id of a load balancer", ""),
    ("external-cluster-role", DESCRIPTOR, "  resource: nodes\n  verbs: [get]", "  resource: nodes/status\n  verbs: [update]", "- reason: a machine", ""),
    ("external-aggregation", DEPLOYMENT, "      labels:\n", "      labels:\n        evil.test/aggregate-to-x: kube-dns\n", "evil.test", ""),
    ("external-rbac", RBAC, CLUSTER_ROLE, "kind: ClusterRole\n  name: cluster-admin", "name: cluster-admin", ""),
    ("external-rbac", RBAC, CLUSTER_ROLE, "kind: ClusterRole\n  name: edit", "name: edit", ""),
    ("external-rbac", RBAC, CLUSTER_ROLE, "kind: ClusterRole\n  name: admin", "name: admin", ""),
    ("external-permission", RBAC, EVENTS, "  resources: [events]\n  verbs: [create]\n- apiGroups: [\"\"] # here\n  resources: [pods]\n  verbs: [list]", "- apiGroups: [\"\"] # here", "pods:list"),
    ("external-permission", RBAC, LEASE, "  resources: [leases]\n  verbs: [create]\n- apiGroups: [\"\"] # here\n  resources: [configmaps]\n  verbs: [get]", "- apiGroups: [\"\"] # here", "configmaps:get"),
    ("external-permission", RBAC, LEASE, "  resources: [leases]\n  verbs: [create]\n- apiGroups: [\"\"] # here\n  resources: [services]\n  verbs: [patch]", "- apiGroups: [\"\"] # here", "services:patch"),
    ("external-kind", BUDGET, "", "apiVersion: v1\nkind: Pod\nmetadata: {name: exoscale-cloud-x, namespace: kube-system}\nspec: {serviceAccountName: exoscale-cloud-controller-manager, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]}]}}}}\n---\n", "kind: Pod", "Pod exoscale-cloud-x"),
    ("external-kind", BUDGET, "", "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: exoscale-cloud-policy}\n---\n", "kind: Val", "ValidatingAdmissionPolicy exoscale-cloud-policy"),
    ("external-name", BUDGET, "name: exoscale-cloud-controller-manager\n  namespace", "name: node-controller\n  namespace", "name: node-controller", "PodDisruptionBudget node-controller"),
    ("external-system-name", BUDGET, "name: exoscale-cloud-controller-manager\n  namespace", "name: system:exoscale-cloud-x\n  namespace", "name: system:", ""),
    ("external-system-name", RBAC, CLUSTER_ROLE, "kind: ClusterRole\n  name: system:auth-delegator", "name: system:", ""),
    ("external-system-name", RBAC, SUBJECT, "- kind: Group\n  name: system:authenticated\n---\n# The lease", "name: system:", ""),
    ("external-namespace", BUDGET, "namespace: kube-system", "namespace: default", "namespace: default", "default"),
    ("external-reference", RBAC, READER, "kind: Role\n  name: other-reader", "name: other-reader", "Role kube-system/other-reader"),
    ("external-reference", RBAC, READER, "kind: ClusterRole\n  name: extension-apiserver-authentication-reader", "name: extension", "ClusterRole extension-apiserver-authentication-reader"),
    ("external-reference", RBAC, CLUSTER_ROLE, "kind: ClusterRole\n  name: view", "name: view", "ClusterRole view"),
    ("external-reference", RBAC, SUBJECT, "- kind: ServiceAccount\n  name: default\n  namespace: kube-system\n---\n# The lease", "name: default", "ServiceAccount kube-system/default"),
    ("external-reference", RBAC, SUBJECT, "- kind: ServiceAccount\n  name: exoscale-cloud-controller-manager\n  namespace: other # here\n---\n# The lease", "name: exoscale-cloud-controller-manager\n  namespace: other", "ServiceAccount other/exoscale-cloud-controller-manager"),
    ("external-reference", RBAC, SUBJECT, "- kind: User\n  name: mallory\n---\n# The lease", "name: mallory", "User mallory"),
    ("external-reference", DEPLOYMENT, "serviceAccountName: exoscale-cloud-controller-manager", "serviceAccountName: admin", "serviceAccountName", "ServiceAccount kube-system/admin"),
    ("external-reference", DEPLOYMENT, "      serviceAccountName: exoscale-cloud-controller-manager\n", "", "spec:\n      priority", "ServiceAccount kube-system/default"),
    ("external-aggregation", RBAC, "rules:\n- apiGroups: [authentication", "aggregationRule:\n  clusterRoleSelectors: []\nrules:\n- apiGroups: [authentication", "aggregationRule", ""),
    ("external-aggregation", RBAC, "rules:\n- apiGroups: [authentication", "# The next.\n    rbac.authorization.k8s.io/aggregate-to-admin: \"true\"\nrules:\n- apiGroups: [authentication", "    rbac.authorization.k8s.io/aggregate", ""),
    ("external-metadata", BUDGET, "  labels:", "  finalizers: [a/b]\n  labels:", "finalizers", "finalizers"),
    ("external-metadata", BUDGET, "  labels:", "  annotations:\n    client.lifecycle.config.k8s.io/deletion: detach\n  labels:", "client.lifecycle", "client.lifecycle.config.k8s.io/deletion"),
    ("external-label", DEPLOYMENT, "      labels:\n", "      labels:\n        k8s-app: kube-dns\n", "k8s-app", "k8s-app=kube-dns"),
    ("external-label", BUDGET, "  labels:\n", "  labels:\n    component: kube-scheduler\n", "component", "component=kube-scheduler"),
    ("external-selector", BUDGET, "    matchLabels:\n      app.kubernetes.io/name: exoscale-cloud-controller-manager\n", "    matchLabels:\n", "spec:", "PodDisruptionBudget exoscale-cloud-controller-manager"),
    ("external-budget", BUDGET, "maxUnavailable: 1", "maxUnavailable: 0", "maxUnavailable: 0", "PodDisruptionBudget exoscale-cloud-controller-manager"),
    ("external-budget", BUDGET, "maxUnavailable: 1", "maxUnavailable: \"00%\"", "maxUnavailable", "PodDisruptionBudget exoscale-cloud-controller-manager"),
    ("external-budget", BUDGET, "maxUnavailable: 1", "minAvailable: 100%", "minAvailable: 100%", "PodDisruptionBudget exoscale-cloud-controller-manager"),
    ("external-budget", BUDGET, "maxUnavailable: 1", "minAvailable: 2147483647", "minAvailable", "PodDisruptionBudget exoscale-cloud-controller-manager"),
    ("external-budget", BUDGET, "maxUnavailable: 1", "minAvailable: 1", "minAvailable", "PodDisruptionBudget exoscale-cloud-controller-manager"),
    ("external-pod-label", DEPLOYMENT, "    metadata:\n      labels:\n        app.kubernetes.io/name: exoscale-cloud-controller-manager\n", "    metadata:\n      labels:\n", "spec:", "Deployment exoscale-cloud-controller-manager"),
    ("external-name", BUDGET, "name: exoscale-cloud-controller-manager\n  namespace", "name: aws-exoscale-cloud-x\n  namespace", "name: aws-", "PodDisruptionBudget aws-exoscale-cloud-x"),
    ("external-name", BUDGET, "name: exoscale-cloud-controller-manager\n  namespace", "name: exoscale-cloud-x-delete-nodes\n  namespace", "name: exoscale-cloud-x-", "PodDisruptionBudget exoscale-cloud-x-delete-nodes"),
    ("external-name", BUDGET, "name: exoscale-cloud-controller-manager\n  namespace", "name: exoscale-cloud-x-delete-nodes-cluster\n  namespace", "name: exoscale-cloud-x-", "PodDisruptionBudget exoscale-cloud-x-delete-nodes-cluster"),
    ("external-selector", DEPLOYMENT, "matchLabels:\n                app.kubernetes.io/name: exoscale-cloud-controller-manager\n", "matchLabels:\n                k8s-app: kube-dns\n", "- topologyKey", "podAntiAffinity"),
    ("external-selector", DEPLOYMENT, "          - topologyKey: kubernetes.io/hostname\n", "          - topologyKey: kubernetes.io/hostname\n            namespaces: [other]\n", "- topologyKey", "podAntiAffinity"),
    ("external-service", BUDGET, "", "apiVersion: v1\nkind: Service\nmetadata: {name: exoscale-cloud-x, namespace: kube-system}\nspec:\n  selector: {k8s-app: exoscale-cloud-x}\n  type: NodePort\n---\n", "type: NodePort", "type NodePort"),
    ("external-service", BUDGET, "", "apiVersion: v1\nkind: Service\nmetadata: {name: exoscale-cloud-x, namespace: kube-system}\nspec:\n  selector: {k8s-app: exoscale-cloud-x}\n  clusterIP: 10.96.0.10\n---\n", "clusterIP", "clusterIP 10.96.0.10"),
    ("external-service", BUDGET, "", "apiVersion: v1\nkind: Service\nmetadata: {name: exoscale-cloud-x, namespace: kube-system}\nspec:\n  selector: {k8s-app: exoscale-cloud-x}\n  externalIPs:\n  - 192.0.2.1\n---\n", "- 192.0.2.1", "externalIPs 192.0.2.1"),
    ("external-host-namespace", DEPLOYMENT, "      hostNetwork: true", "      hostNetwork: true\n      hostPID: true", "hostPID", "hostPID"),
    ("external-host-namespace", DEPLOYMENT, "      hostNetwork: true", "      hostNetwork: true\n      hostIPC: true", "hostIPC", "hostIPC"),
    ("external-host-path", DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        hostPath:\n          path: /etc/ssl/certs", "path: /etc/ssl/certs", "/etc/ssl/certs"),
    ("external-host-path", DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        hostPath: {path: /etc/kubernetes/bootstrap-secrets}", "bootstrap-secrets", "/etc/kubernetes/bootstrap-secrets"),
    ("external-host-port", BUDGET, "", workload!("DaemonSet", "k8s-app: exoscale-cloud-x", "exoscale-cloud-x", "", "        ports: [{containerPort: 8080, hostPort: 8080}]\n"), "ports:", "8080"),
    ("external-account", BUDGET, "", workload!("DaemonSet", "k8s-app: exoscale-cloud-x", "exoscale-cloud-controller-manager", "      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]}]}}}\n", ""), "serviceAccountName", "ServiceAccount kube-system/exoscale-cloud-controller-manager"),
    ("external-placement", BUDGET, "", workload!("Deployment", "k8s-app: exoscale-cloud-x", "exoscale-cloud-x", "", ""), "    spec:\n      serviceAccountName", "Deployment exoscale-cloud-x"),
    ("external-placement", BUDGET, "", workload!("Deployment", "k8s-app: exoscale-cloud-x", "exoscale-cloud-x", "      nodeSelector: {node-role.kubernetes.io/control-plane: \"\"}\n", ""), "    spec:\n      serviceAccountName", "Deployment exoscale-cloud-x"),
    ("external-placement", DEPLOYMENT, AFFINITY, "", "affinity:", "Deployment exoscale-cloud-controller-manager"),
    ("external-placement", DEPLOYMENT, "control-plane, operator: Exists}\n", "control-plane, operator: Exists}\n            - matchExpressions:\n              - {key: kubernetes.io/os, operator: Exists}\n", "affinity:", "Deployment exoscale-cloud-controller-manager"),
    ("external-placement", DEPLOYMENT, "control-plane, operator: Exists}\n", "control-plane, operator: DoesNotExist}\n", "affinity:", "Deployment exoscale-cloud-controller-manager"),
    ("external-pod-label", BUDGET, "", workload!("DaemonSet", "app.kubernetes.io/component: controller", "exoscale-cloud-x", "", ""), "spec:", "DaemonSet exoscale-cloud-x"),
    ("external-volume", DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        csi: {driver: secrets-store.csi.k8s.io}", "csi", "csi"),
    ("external-volume", DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        projected:\n          sources:\n          - podCertificate: {}", "podCertificate", "projected podCertificate"),
    ("external-volume", DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        projected: {sources: [{serviceAccountToken: {path: t, audience: vault}}]}", "projected", "audience vault"),
    ("external-field", DEPLOYMENT, "      hostNetwork: true", "      hostNetwork: true\n      nodeName: n1", "nodeName", "nodeName n1"),
    ("external-field", DEPLOYMENT, "      hostNetwork: true", "      hostNetwork: true\n      serviceAccount: exoscale-cloud-controller-manager", "serviceAccount: ", "serviceAccount exoscale-cloud-controller-manager"),
    ("external-field", DEPLOYMENT, "      hostNetwork: true", "      hostNetwork: true\n      terminationGracePeriodSeconds: 121", "terminationGrace", "terminationGracePeriodSeconds 121"),
    ("external-field", DEPLOYMENT, "          requests:\n", "          limits: {smarter-devices/mem: 1}\n          requests:\n", "limits", "smarter-devices/mem"),
    ("external-field", DEPLOYMENT, "          requests:\n", "          claims: [{name: gpu}]\n          requests:\n", "claims", "claims"),
    ("external-field", DEPLOYMENT, "      hostNetwork: true", "      hostNetwork: true\n      resourceClaims: [{name: gpu}]", "resourceClaims", "resourceClaims"),
    ("external-field", DEPLOYMENT, "        ports:\n", "        stdin: true\n        ports:\n", "stdin", "stdin true"),
    ("external-field", DEPLOYMENT, "        ports:\n", "        lifecycle: {preStop: {httpGet: {host: 192.0.2.1, port: 80}}}\n        ports:\n", "lifecycle", "lifecycle"),
    ("external-field", DEPLOYMENT, "        ports:\n", "        readinessProbe: {tcpSocket: {host: 192.0.2.1, port: 80}}\n        ports:\n", "readinessProbe", "host 192.0.2.1"),
    ("external-privileged", DEPLOYMENT, CONTEXT, "          allowPrivilegeEscalation: false\n          privileged: true\n", "privileged: true", ""),
    ("external-privileged", DEPLOYMENT, "        runAsNonRoot: true\n", "        runAsNonRoot: true\n        windowsOptions: {hostProcess: true}\n", "windowsOptions", ""),
    ("external-security-context", DEPLOYMENT, CONTEXT, "", "securityContext:\n          readOnly", "allowPrivilegeEscalation"),
    ("external-security-context", DEPLOYMENT, CONTEXT, "          allowPrivilegeEscalation: false\n          procMount: Unmasked\n", "procMount", "procMount Unmasked"),
    ("external-security-context", DEPLOYMENT, CONTEXT, "          allowPrivilegeEscalation: false\n          seLinuxOptions: {type: spc_t}\n", "seLinuxOptions", "seLinuxOptions"),
    ("external-security-context", DEPLOYMENT, CONTEXT, "          allowPrivilegeEscalation: false\n          appArmorProfile: {type: Unconfined}\n", "appArmorProfile", "appArmorProfile Unconfined"),
    ("external-security-context", DEPLOYMENT, CONTEXT, "          allowPrivilegeEscalation: false\n          seccompProfile: {type: Unconfined}\n", "seccompProfile: {", "seccompProfile Unconfined"),
    ("external-security-context", DEPLOYMENT, "            drop: [ALL]", "            drop: [NET_RAW]", "drop:", "capabilities"),
    ("external-security-context", DEPLOYMENT, "            drop: [ALL]", "            drop: [all]", "drop:", "capabilities"),
    ("external-security-context", DEPLOYMENT, "        seccompProfile:\n          type: RuntimeDefault\n", "", "securityContext:\n          readOnly", "seccompProfile"),
    ("external-security-context", DEPLOYMENT, "        seccompProfile:\n          type: RuntimeDefault\n", "        seccompProfile:\n          type: Unconfined\n", "seccompProfile:", "seccompProfile Unconfined"),
    ("external-security-context", DEPLOYMENT, "        runAsNonRoot: true\n", "        runAsNonRoot: true\n        sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: \"0\"}]\n", "sysctls", "sysctls"),
    ("external-security-context", DEPLOYMENT, "    metadata:\n      labels:", "    metadata:\n      annotations: {container.apparmor.security.beta.kubernetes.io/cloud-controller-manager: unconfined}\n      labels:", "annotations:", "appArmorProfile unconfined"),
    ("external-security-context", DEPLOYMENT, CONTEXT, "          allowPrivilegeEscalation: false\n          seccompProfile: {type: Localhost, localhostProfile: a.json}\n", "seccompProfile: {", "seccompProfile Localhost a.json"),
    ("external-capability", DEPLOYMENT, "            drop: [ALL]", "            drop: [ALL]\n            add: [NET_ADMIN]", "add:", "NET_ADMIN"),
    ("external-image", DEPLOYMENT, "image: docker.io/exoscale/cloud", "image: docker.io/mallory/cloud", "image:", "docker.io/mallory/cloud-controller-manager:0.34.0"),
    ("external-image", DEPLOYMENT, "      containers:\n", "      initContainers:\n      - name: setup\n        image: docker.io/mallory/setup:1\n        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}\n      containers:\n", "image: docker.io/mallory", "docker.io/mallory/setup:1"),
    ("external-image", DEPLOYMENT, ":0.34.0", ":0.34.0@sha256:0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "image:", "docker.io/exoscale/cloud-controller-manager:0.34.0@sha256:0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b"),
    ("external-image", DEPLOYMENT, ":0.34.0", ":0.35.0@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a", "image:", "docker.io/exoscale/cloud-controller-manager:0.35.0@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"),
    ("external-image-digest", DESCRIPTOR, "{tag: 0.33.0, digest: \"sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a\"}", "0.33.0", "tags:", "docker.io/exoscale/cloud-controller-manager:0.33.0"),
    ("external-image-digest", DESCRIPTOR, "      asOf:", "      verified: [0.34.0, 0.31.0]\n      asOf:", "verified:", "docker.io/exoscale/cloud-controller-manager:0.31.0"),
    ("external-secret", DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        secret:\n          secretName: admin", "secretName", "kube-system/admin"),
    ("external-secret", DEPLOYMENT, LAST_VOLUME, "      - name: tmp\n        projected: {sources: [{secret: {name: admin}}]}", "projected", "kube-system/admin"),
    ("external-secret", DEPLOYMENT, "        ports:\n", "        envFrom:\n        - secretRef: {name: admin}\n        ports:\n", "secretRef", "kube-system/admin"),
    ("external-secret", DEPLOYMENT, "        ports:\n", "        env:\n        - name: TOKEN\n          valueFrom: {secretKeyRef: {name: admin, key: token}}\n        ports:\n", "secretKeyRef", "kube-system/admin"),
    ("external-secret", DEPLOYMENT, "      hostNetwork: true", "      imagePullSecrets: [{name: admin}]\n      hostNetwork: true", "imagePullSecrets", "kube-system/admin"),
    ("external-secret", RBAC, "---\n# The permissions of all", "imagePullSecrets:\n- name: admin\n---\n# What all", "- name: admin", "kube-system/admin"),
    ("external-secret", RBAC, LEASE, "  resources: [leases]\n  verbs: [create]\n- apiGroups: [\"\"] # here\n  resources: [secrets]\n  resourceNames: [admin]\n  verbs: [get]", "- apiGroups: [\"\"] # here", "kube-system/admin"),
    ("external-permissions", RBAC, EVENTS, MANY, "- apiGroups: [\"\"]\n  resources: [events, ", ""),
    ("external-rbac", RBAC, EVENTS, "  resources: [events]\n  verbs: [\"*\"]", "- apiGroups: [\"\"]\n  resources: [events]", ""),
    ("external-rbac", RBAC, EVENTS, "  resources: [\"events/*\"]\n  verbs: [create]", "- apiGroups: [\"\"]\n  resources: [\"events", ""),
    ("external-rbac", RBAC, "[authentication.k8s.io]", "[\"*\"]", "- apiGroups: [\"*\"]", ""),
    ("external-rbac", RBAC, EVENTS, "  resources: [events]\n  verbs: [create]\n- nonResourceURLs: [/logs]\n  verbs: [get]", "- nonResourceURLs", ""),
    ("external-rbac", RBAC, "- apiGroups: [authentication.k8s.io]\n  resources: [tokenreviews]\n  verbs: [create]", "- apiGroups: [rbac.authorization.k8s.io]\n  resources: [clusterroles]\n  resourceNames: [edit]\n  verbs: [bind]", "- apiGroups: [rbac", ""),
    ("external-rbac", DESCRIPTOR, "  resource: nodes\n  verbs: [get]", "  resource: nodes\n  verbs: [impersonate]", "- reason: a machine", ""),
    ("external-node-deletion", RBAC, "[get, list, watch, update, patch]", "[get, list, watch, update, patch, delete]", "- apiGroups: [\"\"]\n  resources: [nodes]", ""),
    ("external-node-deletion", DESCRIPTOR, "  resource: nodes\n  verbs: [get]", "  resource: nodes\n  verbs: [deletecollection]", "- reason: a machine", ""),
    ("external-permission", DESCRIPTOR, "  resource: nodes\n  verbs: [get]", "  resource: secrets\n  verbs: [list]", "- reason: a machine", "secrets:list"),
    ("external-permission", RBAC, LEASE, "  resources: [leases]\n  verbs: [create]\n- apiGroups: [\"\"] # here\n  resources: [secrets]\n  resourceNames: [\"\"]\n  verbs: [list]", "- apiGroups: [\"\"] # here", "secrets:list"),
    ("external-permission", RBAC, EVENTS, "  resources: [events]\n  verbs: [create]\n- apiGroups: [\"\"] # here\n  resources: [configmaps]\n  verbs: [create]", "- apiGroups: [\"\"] # here", "configmaps:create"),
    ("external-permission", RBAC, LEASE, "  resources: [leases]\n  verbs: [create, update]", "- apiGroups: [coordination.k8s.io]\n  resources: [leases]\n  verbs: [create", "coordination.k8s.io/leases:update"),
    ("external-permission", RBAC, LEASE, "  resources: [leases]\n  resourceNames: [exoscale-cloud-x, kube-scheduler]\n  verbs: [patch]", "- apiGroups: [coordination.k8s.io]\n  resources: [leases]\n  resourceNames: [exo", "coordination.k8s.io/leases:patch kube-scheduler"),
    ("external-node-metadata", DESCRIPTOR, "nodes:\n", "nodes:\n  metadataPrefixes: [kubernetes.io/]\n", "metadataPrefixes", "kubernetes.io/"),
    ("external-node-metadata", DESCRIPTOR, "nodes:\n", "nodes:\n  metadataPrefixes: [flannel.alpha.coreos.com/]\n", "metadataPrefixes", "flannel.alpha.coreos.com/"),
    ("external-node-metadata", DESCRIPTOR, "nodes:\n", "nodes:\n  metadataPrefixes: [example.com]\n", "metadataPrefixes", "example.com"),
    ("external-service-metadata", DESCRIPTOR, "nodes:\n", "services: {metadataPrefixes: [example.com/, external-dns.alpha.kubernetes.io/]}\nnodes:\n", "services:", "external-dns.alpha.kubernetes.io/"),
    ("external-service-metadata", DESCRIPTOR, "nodes:\n", "services: {metadataPrefixes: [io.cilium/, lb.cilium.io/]}\nnodes:\n", "services:", "lb.cilium.io/"),
    ("external-service-metadata", DESCRIPTOR, "nodes:\n", "services: {metadataPrefixes: [\"lb-\"]}\nnodes:\n", "services:", "lb-"),
    ("external-root", DEPLOYMENT, "        runAsNonRoot: true\n", "", "securityContext:\n          readOnly", "runAsNonRoot"),
    ("external-root", DEPLOYMENT, "        runAsNonRoot: true\n", "        runAsNonRoot: false\n", "securityContext:\n          readOnly", "runAsNonRoot"),
    ("external-root", DEPLOYMENT, "        runAsUser: 65532\n", "        runAsUser: 0\n", "securityContext:\n          readOnly", "runAsUser 0"),
    ("external-root", DEPLOYMENT, CONTEXT, "          allowPrivilegeEscalation: false\n          runAsUser: 0\n", "runAsUser: 0", "runAsUser 0"),
    ("external-root", DEPLOYMENT, CONTEXT, "          allowPrivilegeEscalation: false\n          runAsNonRoot: false\n", "runAsNonRoot: false", "runAsNonRoot"),
    ("external-rbac", RBAC, EVENTS, "  resources: [events]\n  verbs: [create]\n- apiGroups: [certificates.k8s.io]\n  resources: [signers]\n  resourceNames: [kubernetes.io/kubelet-serving]\n  verbs: [approve]", "- apiGroups: [certificates.k8s.io]", ""),
];
