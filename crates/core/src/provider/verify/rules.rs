//! The rules that check whether a provider works, as a table (pure).

use serde_json::Value;

use crate::provider::{
    Phase,
    verify::{
        Check::{Kubernetes, Own, Works},
        Rule, containers, fields, folder, kubernetes,
        parts::Walk::{Ccms, Containers, Manifests, Pods, Provider, Running},
        pods, rule,
    },
};

pub(super) static RULES: &[Rule] = &[
    rule("readable", Works(Provider(folder::readable))),
    rule("known-field", Own(Manifests(fields::known))),
    rule("ambiguous-scalar", Works(Provider(folder::ambiguous_scalars))),
    rule("placeholder", Works(Provider(folder::placeholders))),
    rule("container-names", Works(Provider(containers::names))),
    rule("image-key", Works(Provider(folder::image_keys))),
    rule("credentials-requested", Works(Pods(folder::credentials))),
    rule("one-object", Works(Provider(folder::duplicates))),
    rule("rbac-wildcard", Works(Manifests(folder::rbac_wildcards))),
    rule("namespace", Own(Manifests(folder::namespaces))),
    rule("replicas", Works(Pods(pods::replicas))),
    rule("anti-affinity", Works(Pods(pods::anti_affinity))),
    rule("priority-class", Works(Pods(pods::priority_class))),
    rule(
        "host-network",
        Works(Pods(|pod, found| {
            pod.require("/hostNetwork", |host| *host == true, "the pod does not use the host's network", found);
        })),
    ),
    rule(
        "service-account",
        Works(Pods(|pod, found| {
            let is_own = |name: &Value| !matches!(name.as_str(), None | Some("" | "default"));
            if pod.manifest.phase == Phase::Cluster {
                pod.require("/serviceAccountName", is_own, "the pod uses the default ServiceAccount", found);
            }
        })),
    ),
    rule("tolerations", Works(Pods(pods::tolerations))),
    rule("host-path", Own(Pods(pods::host_paths))),
    rule("requests", Works(Running(containers::requests))),
    rule(
        "no-limits",
        Works(Containers(|container, found| {
            container.require("/resources/limits", Value::is_null, "the container has limits", found);
        })),
    ),
    rule("probes", Works(Running(containers::probes))),
    rule("volume-mounts", Works(Provider(containers::volume_mounts))),
    rule("cloud-config", Works(Containers(containers::cloud_config))),
    rule(
        "leader-election",
        Works(Ccms(Phase::Cluster, |ccm, found| {
            ccm.require_flag("--leader-elect", |value| value != Some("false"), "true", found);
        })),
    ),
    rule(
        "read-only-root",
        Works(Containers(|container, found| {
            let (pointer, what) = ("/securityContext/readOnlyRootFilesystem", "the root file system is writable");
            container.require(pointer, |read_only| *read_only == true, what, found);
        })),
    ),
    rule("privilege-escalation", Own(Containers(containers::privilege_escalation))),
    rule("capabilities", Own(Containers(containers::capabilities))),
    rule("seccomp", Own(Containers(containers::seccomp))),
    rule("bootstrap-static-pod", Works(Manifests(pods::static_pods))),
    rule(
        "bootstrap-service-account",
        Works(Pods(|pod, found| {
            if pod.manifest.phase == Phase::Bootstrap {
                pod.require("/serviceAccountName", Value::is_null, "a static Pod names a ServiceAccount", found);
            }
        })),
    ),
    rule(
        "bootstrap-controllers",
        Works(Ccms(Phase::Bootstrap, |ccm, found| {
            ccm.require_flag("--controllers", |value| value == Some("cloud-node"), "cloud-node", found);
        })),
    ),
    rule("bootstrap-kubeconfig", Works(Ccms(Phase::Bootstrap, containers::bootstrap_kubeconfig))),
    rule(
        "bootstrap-election",
        Works(Ccms(Phase::Bootstrap, |ccm, found| {
            ccm.require_flag("--leader-elect", |value| value == Some("false"), "false", found);
        })),
    ),
    rule(
        "bootstrap-port",
        Works(Ccms(Phase::Bootstrap, |ccm, found| {
            // 10258 is the default.
            let is_free = |port: Option<&str>| port.is_some_and(|port| port != "10258");
            ccm.require_flag("--secure-port", is_free, "a port other than 10258", found);
        })),
    ),
    rule(
        "kubernetes-dns-policy",
        Kubernetes(Pods(|pod, found| {
            pod.require("/dnsPolicy", |policy| policy == "Default", "dnsPolicy is not Default", found);
        })),
    ),
    rule("kubernetes-node-affinity", Kubernetes(Pods(kubernetes::node_affinity))),
    rule("kubernetes-tolerations", Kubernetes(Pods(kubernetes::tolerations))),
    rule("kubernetes-non-root", Kubernetes(Pods(kubernetes::non_root))),
    rule(
        "kubernetes-single-identity",
        Kubernetes(Ccms(Phase::Cluster, |ccm, found| {
            ccm.require_flag("--use-service-account-credentials", |value| value == Some("false"), "false", found);
        })),
    ),
    rule("kubernetes-webhook-port", Kubernetes(Ccms(Phase::Cluster, kubernetes::webhook_port))),
    rule("kubernetes-node-manager", Kubernetes(Provider(kubernetes::node_manager))),
    rule("kubernetes-arguments", Kubernetes(Provider(kubernetes::arguments))),
    rule("kubernetes-instance-label", Kubernetes(Manifests(kubernetes::instance_label))),
    rule("kubernetes-disruption-budget", Kubernetes(Pods(kubernetes::disruption_budget))),
    rule("kubernetes-eviction-policy", Kubernetes(Manifests(kubernetes::eviction_policy))),
    rule("kubernetes-deployment-strategy", Kubernetes(Pods(kubernetes::deployment_strategy))),
    rule("kubernetes-daemonset-strategy", Kubernetes(Pods(kubernetes::daemon_set_strategy))),
];
