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
    rule(
        "readable",
        "the operator uses no provider whose folder it cannot read",
        "follow the message; docs/adding-a-provider.md and docs/new-provider.md describe the format",
        Works(Provider(folder::readable)),
    ),
    rule(
        "known-field",
        "the API server refuses to apply an object with a field that it does not know, or with a value of another type",
        "correct the spelling, the level or the type; the fields are those of Kubernetes 1.35, and an older cluster has fewer",
        Own(Manifests(fields::known)),
    ),
    rule(
        "ambiguous-scalar",
        "YAML 1.1 and 1.2 read the word as different types: one tool reads text, another a boolean or a number",
        "quote it if it is text, otherwise write true, false or a decimal number",
        Works(Provider(folder::ambiguous_scalars)),
    ),
    rule(
        "placeholder",
        "manifests are not templates: the text reaches the cluster unchanged",
        "write the value, or let the descriptor set it from a fact",
        Works(Provider(folder::placeholders)),
    ),
    rule(
        "container-names",
        "images are set by container name: a container without an entry keeps its built-in image",
        "name the CCM's container cloud-controller-manager, and give every container a key and a tag in `images` of provider.yaml, in kubernetes/ \
         repository and versions",
        Works(Provider(containers::names)),
    ),
    rule(
        "image-key",
        "without its key in the images ConfigMap the operator reports Degraded on that cloud",
        "run `make generate`, which adds the key and the tag to manifests/, or correct the key in provider.yaml",
        Works(Provider(folder::image_keys)),
    ),
    rule(
        "credentials-requested",
        "nothing else creates the Secret: without a CredentialsRequest the pod waits for it forever",
        "add a CredentialsRequest with this secretRef to manifests/",
        Works(Pods(folder::credentials)),
    ),
    rule(
        "one-object",
        "the two would be applied in turn, and each pass would undo what the other one wrote",
        "remove one, or give it another name",
        Works(Provider(folder::duplicates)),
    ),
    rule(
        "rbac-wildcard",
        "an attacker on the CCM's node would hold every permission that the wildcard covers",
        "list the groups, resources and verbs that the CCM uses",
        Works(Manifests(folder::rbac_wildcards)),
    ),
    rule(
        "namespace",
        "the operator has permissions in the managed namespace and in kube-system only",
        "use openshift-cloud-controller-manager, which follows --namespace, or kube-system; in kubernetes/ only the latter",
        Own(Manifests(folder::namespaces)),
    ),
    rule(
        "replicas",
        "while the node of the only replica is down nothing initializes nodes or creates load balancers",
        "set replicas: 2; the operator sets one replica on a single-node cluster",
        Works(Pods(pods::replicas)),
    ),
    rule(
        "anti-affinity",
        "replicas on the same node fail together with it",
        "add a podAntiAffinity over kubernetes.io/hostname whose labelSelector matches the pod's own labels",
        Works(Pods(pods::anti_affinity)),
    ),
    rule(
        "priority-class",
        "under pressure a node evicts the pods that initialize nodes, and the cluster cannot recover",
        "set priorityClassName: system-cluster-critical, or system-node-critical for a pod on every node",
        Works(Pods(pods::priority_class)),
    ),
    rule(
        "host-network",
        "a node has no pod network before the cloud's controllers have initialized it",
        "set hostNetwork: true",
        Works(Pods(|pod, found| {
            pod.require("/hostNetwork", |host| *host == true, "the pod does not use the host's network", found);
        })),
    ),
    rule(
        "service-account",
        "the namespace's default ServiceAccount has none of the permissions of a CCM",
        "set serviceAccountName, such as cloud-controller-manager, in kubernetes/ NAME-cloud-controller-manager",
        Works(Pods(|pod, found| {
            let is_own = |name: &Value| !matches!(name.as_str(), None | Some("" | "default"));
            if pod.manifest.phase == Phase::Cluster {
                pod.require("/serviceAccountName", is_own, "the pod uses the default ServiceAccount", found);
            }
        })),
    ),
    rule(
        "tolerations",
        "only these pods remove the taints of new nodes: if a taint repels them, the installation never ends",
        "add a toleration with operator: Exists and effect: NoSchedule for the taint",
        Works(Pods(pods::tolerations)),
    ),
    rule(
        "host-path",
        "a file of the host is a way out of the container, and may be absent on other clusters",
        "use a ConfigMap, Secret or emptyDir; a bootstrap pod may mount the files that the bootstrap VM prepares",
        Own(Pods(pods::host_paths)),
    ),
    rule(
        "requests",
        "without requests the scheduler overbooks the node, and clusters may refuse platform pods without them",
        "set resources.requests.cpu and .memory",
        Works(Running(containers::requests)),
    ),
    rule(
        "no-limits",
        "a limit throttles or kills the CCM of a big cluster when it is needed most",
        "remove resources.limits",
        Works(Containers(|container, found| {
            container.require("/resources/limits", Value::is_null, "the container has limits", found);
        })),
    ),
    rule(
        "probes",
        "without a livenessProbe a hanging CCM is never restarted; without a startupProbe a slow start counts as a hang",
        "add a livenessProbe and a startupProbe, both HTTPS on /healthz at the port of --secure-port",
        Works(Running(containers::probes)),
    ),
    rule(
        "volume-mounts",
        "the API server refuses a pod that mounts a volume that it does not have",
        "correct the name of the mount, or add the volume to the pod",
        Works(Provider(containers::volume_mounts)),
    ),
    rule(
        "cloud-config",
        "the CCM exits when the file of --cloud-config does not exist",
        "mount ConfigMap cloud-conf at the folder of --cloud-config (at bootstrap hostPath /etc/kubernetes/bootstrap-configs/cloud.conf at its path); in kubernetes/ \
         the volume cloud-config, with the file that `cloudConfig` of provider.yaml names",
        Works(Containers(containers::cloud_config)),
    ),
    rule(
        "leader-election",
        "without leader election both replicas act, and undo each other's work",
        "set --leader-elect=true",
        Works(Ccms(Phase::Cluster, |ccm, found| {
            ccm.require_flag("--leader-elect", |value| value != Some("false"), "true", found);
        })),
    ),
    rule(
        "read-only-root",
        "an attacker in the container could change its program",
        "set securityContext.readOnlyRootFilesystem: true, and mount an emptyDir for files that it writes",
        Works(Containers(|container, found| {
            let (pointer, what) = ("/securityContext/readOnlyRootFilesystem", "the root file system is writable");
            container.require(pointer, |read_only| *read_only == true, what, found);
        })),
    ),
    rule(
        "privilege-escalation",
        "a setuid program in the image would make an attacker root in a pod on the host's network",
        "set securityContext.allowPrivilegeEscalation: false, and do not set privileged",
        Own(Containers(containers::privilege_escalation)),
    ),
    rule(
        "capabilities",
        "the container runtime's default capabilities allow more on the host's network than a CCM needs",
        "set securityContext.capabilities.drop: [ALL], and add none",
        Own(Containers(containers::capabilities)),
    ),
    rule(
        "seccomp",
        "without a profile the container can use every system call of the kernel",
        "set securityContext.seccompProfile.type: RuntimeDefault for the pod",
        Own(Containers(containers::seccomp)),
    ),
    rule(
        "bootstrap-static-pod",
        "the bootstrap VM's kubelet runs static Pods from files, and nothing applies other objects there",
        "keep only Pods in namespace kube-system in bootstrap/, and move other objects to assets/",
        Works(Manifests(pods::static_pods)),
    ),
    rule(
        "bootstrap-service-account",
        "a static Pod cannot use a ServiceAccount: the API server refuses its mirror Pod",
        "remove serviceAccountName; the pod uses the bootstrap kubeconfig",
        Works(Pods(|pod, found| {
            if pod.manifest.phase == Phase::Bootstrap {
                pod.require("/serviceAccountName", Value::is_null, "a static Pod names a ServiceAccount", found);
            }
        })),
    ),
    rule(
        "bootstrap-controllers",
        "at bootstrap other controllers would delete nodes, or create load balancers that nothing owns later",
        "set --controllers=cloud-node",
        Works(Ccms(Phase::Bootstrap, |ccm, found| {
            ccm.require_flag("--controllers", |value| value == Some("cloud-node"), "cloud-node", found);
        })),
    ),
    rule(
        "bootstrap-kubeconfig",
        "without the bootstrap kubeconfig the pod cannot reach the API server",
        "mount hostPath /etc/kubernetes/bootstrap-secrets/kubeconfig with type: File and readOnly: true, and set --kubeconfig to its mountPath",
        Works(Ccms(Phase::Bootstrap, containers::bootstrap_kubeconfig)),
    ),
    rule(
        "bootstrap-election",
        "the cluster's own CCM would have to wait for a lease of the bootstrap VM to expire",
        "set --leader-elect=false",
        Works(Ccms(Phase::Bootstrap, |ccm, found| {
            ccm.require_flag("--leader-elect", |value| value == Some("false"), "false", found);
        })),
    ),
    rule(
        "bootstrap-port",
        "the cluster's own CCM listens on 10258 of the same hosts: the second one to start exits",
        "set another --secure-port, such as 10267",
        Works(Ccms(Phase::Bootstrap, |ccm, found| {
            // 10258 is the default.
            let is_free = |port: Option<&str>| port.is_some_and(|port| port != "10258");
            ccm.require_flag("--secure-port", is_free, "a port other than 10258", found);
        })),
    ),
    rule(
        "kubernetes-dns-policy",
        "otherwise the pod uses the cluster's DNS, which waits for the nodes that this pod initializes",
        "set dnsPolicy: Default",
        Kubernetes(Pods(|pod, found| {
            pod.require("/dnsPolicy", |policy| policy == "Default", "dnsPolicy is not Default", found);
        })),
    ),
    rule(
        "kubernetes-node-affinity",
        "the label's value differs by distribution: a nodeSelector with an empty one never matches on k3s, RKE2 and k0s",
        "require node-role.kubernetes.io/control-plane with operator: Exists in a nodeAffinity, and select it nowhere else",
        Kubernetes(Pods(kubernetes::node_affinity)),
    ),
    rule(
        "kubernetes-tolerations",
        "distributions taint control planes in ways of their own, and the pod must stay on nodes that are not ready",
        "add a toleration with operator: Exists for the taint, with its effect or with none",
        Kubernetes(Pods(kubernetes::tolerations)),
    ),
    rule(
        "kubernetes-non-root",
        "root in a pod on the host's network can open every port of the node",
        "set securityContext.runAsNonRoot: true and a numeric runAsUser for the pod",
        Kubernetes(Pods(kubernetes::non_root)),
    ),
    rule(
        "kubernetes-single-identity",
        "the accounts of single controllers may delete nodes on every cluster, and the API server restores that permission",
        "set --use-service-account-credentials=false",
        Kubernetes(Ccms(Phase::Cluster, |ccm, found| {
            ccm.require_flag("--use-service-account-credentials", |value| value == Some("false"), "false", found);
        })),
    ),
    rule(
        "kubernetes-webhook-port",
        "the CCM makes a certificate for webhooks that it does not have, and older ones bind a port of the host for them",
        "set --webhook-secure-port=0, or name it in `absentFlags` if the program does not have it",
        Kubernetes(Ccms(Phase::Cluster, kubernetes::webhook_port)),
    ),
    rule(
        "kubernetes-node-manager",
        "nothing would initialize nodes: the controller cloudNode is off where there is a node manager",
        "add the DaemonSet, or correct its name in `nodeManager` of provider.yaml",
        Kubernetes(Provider(kubernetes::node_manager)),
    ),
    rule(
        "kubernetes-arguments",
        "what the CloudControllerManager object asks for would not reach the CCM",
        "set the flag from the fact in `arguments` of provider.yaml",
        Kubernetes(Provider(kubernetes::arguments)),
    ),
    rule(
        "kubernetes-instance-label",
        "the pods of two CloudControllerManager objects would be taken for each other's",
        "set the label app.kubernetes.io/instance: cluster on every object, in selectors and on the pods",
        Kubernetes(Manifests(kubernetes::instance_label)),
    ),
    rule(
        "kubernetes-disruption-budget",
        "a drain of two nodes at once would stop both replicas",
        "add a PodDisruptionBudget with maxUnavailable: 1",
        Kubernetes(Pods(kubernetes::disruption_budget)),
    ),
    rule(
        "kubernetes-eviction-policy",
        "replicas that do not work would hold up the drain of every node that one of them is on",
        "set unhealthyPodEvictionPolicy: AlwaysAllow",
        Kubernetes(Manifests(kubernetes::eviction_policy)),
    ),
    rule(
        "kubernetes-deployment-strategy",
        "Recreate takes all pods away and waits for the pod of a dead node before it makes a new one; more than one at a time leaves none if \
         the new version does not start",
        "set strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}",
        Kubernetes(Pods(kubernetes::deployment_strategy)),
    ),
    rule(
        "kubernetes-daemonset-strategy",
        "the pod of a dead node is missing already: with a lower limit it keeps the others from being updated, with a higher one no pod of \
         two is left if the new version does not start",
        "set updateStrategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 50%}}, and tolerate \
         node.kubernetes.io/unreachable with effect NoSchedule, without which a dead node is not one of those that half is taken of",
        Kubernetes(Pods(kubernetes::daemon_set_strategy)),
    ),
];
