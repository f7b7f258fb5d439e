//! The rules that check whether a provider works, as a table (pure).

use serde_json::Value;

use crate::provider::{
    Phase,
    verify::{
        AppliesTo::{BuiltIn, Every, EveryKubernetes},
        Rule, containers, fields, folder, kubernetes,
        parts::Scope::{Ccms, Containers, Manifests, Pods, Provider, Running},
        pods, rule,
    },
};

pub(super) static RULES: &[Rule] = &[
    rule("readable", Every, Provider(folder::readable)),
    rule("known-field", BuiltIn, Manifests(fields::known)),
    rule("ambiguous-scalar", Every, Provider(folder::ambiguous_scalars)),
    rule("placeholder", Every, Provider(folder::placeholders)),
    rule("container-names", Every, Provider(containers::names)),
    rule("image-key", Every, Provider(folder::image_keys)),
    rule("credentials-requested", Every, Pods(folder::credentials)),
    rule("one-object", Every, Provider(folder::duplicates)),
    rule("rbac-wildcard", Every, Manifests(folder::rbac_wildcards)),
    rule("namespace", BuiltIn, Manifests(folder::namespaces)),
    rule("replicas", Every, Pods(pods::replicas)),
    rule("anti-affinity", Every, Pods(pods::anti_affinity)),
    rule("priority-class", Every, Pods(pods::priority_class)),
    rule(
        "host-network",
        Every,
        Pods(|pod, defects| {
            pod.require("/hostNetwork", |host| *host == true, "the pod does not use the host's network", defects);
        }),
    ),
    rule(
        "service-account",
        Every,
        Pods(|pod, defects| {
            let is_own = |name: &Value| !matches!(name.as_str(), None | Some("" | "default"));
            if pod.manifest.phase == Phase::Cluster {
                pod.require("/serviceAccountName", is_own, "the pod uses the default ServiceAccount", defects);
            }
        }),
    ),
    rule("tolerations", Every, Pods(pods::tolerations)),
    rule("host-path", BuiltIn, Pods(pods::host_paths)),
    rule("requests", Every, Running(containers::requests)),
    rule(
        "no-limits",
        Every,
        Containers(|container, defects| {
            container.require("/resources/limits", Value::is_null, "the container has limits", defects);
        }),
    ),
    rule("probes", Every, Running(containers::probes)),
    rule("volume-mounts", Every, Provider(containers::volume_mounts)),
    rule("cloud-config", Every, Containers(containers::cloud_config)),
    rule(
        "leader-election",
        Every,
        Ccms(Phase::Cluster, |ccm, defects| {
            ccm.require_flag("--leader-elect", |value| value != Some("false"), "true", defects);
        }),
    ),
    rule(
        "read-only-root",
        Every,
        Containers(|container, defects| {
            let (pointer, what) = ("/securityContext/readOnlyRootFilesystem", "the root file system is writable");
            container.require(pointer, |read_only| *read_only == true, what, defects);
        }),
    ),
    rule("privilege-escalation", BuiltIn, Containers(containers::privilege_escalation)),
    rule("capabilities", BuiltIn, Containers(containers::capabilities)),
    rule("seccomp", BuiltIn, Containers(containers::seccomp)),
    rule("bootstrap-static-pod", Every, Manifests(pods::static_pods)),
    rule(
        "bootstrap-service-account",
        Every,
        Pods(|pod, defects| {
            if pod.manifest.phase == Phase::Bootstrap {
                pod.require("/serviceAccountName", Value::is_null, "a static Pod names a ServiceAccount", defects);
            }
        }),
    ),
    rule(
        "bootstrap-controllers",
        Every,
        Ccms(Phase::Bootstrap, |ccm, defects| {
            ccm.require_flag("--controllers", |value| value == Some("cloud-node"), "cloud-node", defects);
        }),
    ),
    rule("bootstrap-kubeconfig", Every, Ccms(Phase::Bootstrap, containers::bootstrap_kubeconfig)),
    rule(
        "bootstrap-election",
        Every,
        Ccms(Phase::Bootstrap, |ccm, defects| {
            ccm.require_flag("--leader-elect", |value| value == Some("false"), "false", defects);
        }),
    ),
    rule(
        "bootstrap-port",
        Every,
        Ccms(Phase::Bootstrap, |ccm, defects| {
            // 10258 is the default.
            let is_free = |port: Option<&str>| port.is_some_and(|port| port != "10258");
            ccm.require_flag("--secure-port", is_free, "a port other than 10258", defects);
        }),
    ),
    rule(
        "kubernetes-dns-policy",
        EveryKubernetes,
        Pods(|pod, defects| {
            pod.require("/dnsPolicy", |policy| policy == "Default", "dnsPolicy is not Default", defects);
        }),
    ),
    rule("kubernetes-node-affinity", EveryKubernetes, Pods(kubernetes::node_affinity)),
    rule("kubernetes-tolerations", EveryKubernetes, Pods(kubernetes::tolerations)),
    rule("kubernetes-non-root", EveryKubernetes, Pods(kubernetes::non_root)),
    rule(
        "kubernetes-single-identity",
        EveryKubernetes,
        Ccms(Phase::Cluster, |ccm, defects| {
            ccm.require_flag("--use-service-account-credentials", |value| value == Some("false"), "false", defects);
        }),
    ),
    rule("kubernetes-webhook-port", EveryKubernetes, Ccms(Phase::Cluster, kubernetes::webhook_port)),
    rule("kubernetes-node-manager", EveryKubernetes, Provider(kubernetes::node_manager)),
    rule("kubernetes-arguments", EveryKubernetes, Provider(kubernetes::arguments)),
    rule("kubernetes-instance-label", EveryKubernetes, Manifests(kubernetes::instance_label)),
    rule("kubernetes-disruption-budget", EveryKubernetes, Pods(kubernetes::disruption_budget)),
    rule("kubernetes-eviction-policy", EveryKubernetes, Manifests(kubernetes::eviction_policy)),
    rule("kubernetes-deployment-strategy", EveryKubernetes, Pods(kubernetes::deployment_strategy)),
    rule("kubernetes-daemonset-strategy", EveryKubernetes, Pods(kubernetes::daemon_set_strategy)),
];
