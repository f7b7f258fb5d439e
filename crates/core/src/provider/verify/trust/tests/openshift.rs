//! The rules for providers for OpenShift.

use super::*;

const DIGEST: &str = "@sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";

/// A provider for OpenShift that breaks no rule: the test provider with its own account and image.
fn openshift() -> Vec<(&'static str, String)> {
    let image = ["quay.io/demo/ccm:1.2.3", DIGEST].concat();
    let files = [
        ("assets/deployment.yaml", include_str!("../../../../../../../tests/sound/assets/demo/deployment.yaml")),
        ("assets/provider.yaml", include_str!("../../../../../../../tests/sound/assets/demo/provider.yaml")),
        ("assets/role.yaml", include_str!("../../../../../../../tests/sound/assets/demo/role.yaml")),
        ("bootstrap/pod.yaml", include_str!("../../../../../../../tests/sound/bootstrap/demo/pod.yaml")),
    ];
    let account = "---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: demo-cloud-controller-manager\n  namespace: \
                   openshift-cloud-controller-manager\n";
    let own = |text: &str| {
        text.replace("serviceAccountName: cloud", "serviceAccountName: demo-cloud")
            .replace("- kind: ServiceAccount\n  name: cloud", "- kind: ServiceAccount\n  name: demo-cloud")
            .replace("quay.io/openshift/origin-demo-ccm", &image)
            .replace("        seccompProfile:\n", "        runAsNonRoot: true\n        seccompProfile:\n")
            .replace(
                "path: /etc/kubernetes/bootstrap-secrets",
                "path: /etc/kubernetes/bootstrap-secrets/kubeconfig\n      type: File",
            )
            .replace("mountPath: /etc/kubernetes/secrets", "mountPath: /etc/kubernetes/secrets/kubeconfig")
            .replace(
                "path: /etc/kubernetes/bootstrap-configs",
                "path: /etc/kubernetes/bootstrap-configs/cloud.conf\n      type: File",
            )
            .replace("mountPath: /etc/kubernetes/configs", "mountPath: /etc/kubernetes/configs/cloud.conf")
    };
    let end = |path: &str| if path == "assets/role.yaml" { account } else { "" };
    files.map(|(path, text)| (path, own(text) + end(path))).into()
}

#[test]
fn the_rules_hold_on_openshift_too() {
    const DESCRIPTOR_OF_OPENSHIFT: usize = 1;
    const ROLE: usize = 2;
    const POD: usize = 3;
    let files = openshift();
    let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
    assert_eq!(check_external(&parsed_providers_with("demo", &files, 0, files[0].1), &Policy::default()).findings, []);
    #[rustfmt::skip]
    let fixtures: &[Fixture] = &[
        ("external-kind", POD, "", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: demo-cloud-x, namespace: kube-system}\n---\n", "kind: ConfigMap", "ConfigMap demo-cloud-x"),
        ("external-namespace", ROLE, "", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: demo-cloud-x, namespace: openshift-config}\n---\n", "metadata:", "openshift-config"),
        ("external-host-path", POD, "path: /etc/kubernetes/bootstrap-secrets", "path: /etc/kubernetes", "path: /etc/kubernetes/kubeconfig\n", "/etc/kubernetes/kubeconfig"),
        ("external-host-path", POD, "path: /etc/kubernetes/bootstrap-secrets/kubeconfig\n      type: File", "path: /etc/kubernetes/bootstrap-secrets", "path: /etc/kubernetes/bootstrap-secrets\n", "/etc/kubernetes/bootstrap-secrets"),
        ("external-host-path", POD, "bootstrap-secrets/kubeconfig\n      type: File", "bootstrap-secrets/kubeconfig", "path: /etc/kubernetes/bootstrap-secrets/kubeconfig", "/etc/kubernetes/bootstrap-secrets/kubeconfig"),
        ("external-host-path", POD, "bootstrap-secrets/kubeconfig\n      type: File", "bootstrap-secrets/kubeconfig\n      type: FileOrCreate", "path: /etc/kubernetes/bootstrap-secrets/kubeconfig", "/etc/kubernetes/bootstrap-secrets/kubeconfig"),
        ("external-host-path", POD, "secrets/kubeconfig\n      readOnly: true", "secrets/kubeconfig", "- name: secrets\n      mountPath", "/etc/kubernetes/bootstrap-secrets/kubeconfig writable"),
        ("external-image", DEPLOYMENT, DIGEST, "", "image:", "quay.io/demo/ccm:1.2.3"),
        ("external-image", POD, DIGEST, "", "image:", "quay.io/demo/ccm:1.2.3"),
        ("external-secret", DEPLOYMENT, "secretName: demo-cloud-credentials", "secretName: aws-cloud-credentials", "secretName", "openshift-cloud-controller-manager/aws-cloud-credentials"),
        ("external-placement", DEPLOYMENT, "      nodeSelector:\n        node-role.kubernetes.io/master: \"\"\n", "", "affinity:", "Deployment demo-cloud-controller-manager"),
        ("external-service-metadata", DESCRIPTOR_OF_OPENSHIFT, "platform: {type: Demo}", "platform: {type: Demo}\nservices: {metadataPrefixes: [k8s.io/]}", "services:", "k8s.io/"),
        ("external-cloud-config", DESCRIPTOR_OF_OPENSHIFT, "platform: {type: Demo}", "platform: {type: Demo} # here\ncloudConfig: {sources: [], allowEmpty: true, publishWithFeatureGate: Gate}", "cloudConfig:", "Gate"),
        ("external-permission", ROLE, "verbs: [get, update]", "verbs: [get, delete]", "- apiGroups", "coordination.k8s.io/leases:delete cloud-controller-manager"),
        ("external-permission", ROLE, "- apiGroups: [coordination.k8s.io]\n  resources: [leases]\n  resourceNames: [cloud-controller-manager]\n  verbs: [get, update]", "- apiGroups: [\"\"]\n  resources: [nodes]\n  verbs: [delete]", "- apiGroups", "nodes:delete"),
    ];
    for fixture in fixtures {
        expect("demo", &files, *fixture);
    }
}
