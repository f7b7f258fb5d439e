//! The rules for external providers, as a table (pure).

use super::{accounts, containers, metadata, objects, permissions, pods, secrets};
use crate::provider::verify::{
    Check::{Never, Unless},
    Rule, fields,
    parts::Walk::{Containers, Manifests, Pods, Provider},
    rule,
};

pub(in crate::provider::verify) static RULES: &[Rule] = &[
    rule(
        "external-type",
        "the API server reads null, and refuses or drops other types and unknown fields: what it stores would not be what these rules \
         have seen",
        "correct the spelling, the level or the type, and remove keys without a value; the fields are those of Kubernetes 1.35",
        Never(Manifests(fields::misread)),
    ),
    rule(
        "external-object-name",
        "a name is a part of paths: in the API, where it would be another object, and of the files that `render` writes",
        "use lower-case letters, digits, - and ., at most 253 of them, and begin and end with a letter or a digit",
        Never(Manifests(objects::syntax_of_names)),
    ),
    rule(
        "external-kind",
        "an admission policy can refuse the requests of everybody in the cluster, and nothing replaces a Pod that is gone",
        "keep Deployments, DaemonSets, ServiceAccounts, roles and their bindings, ConfigMaps, Services and \
         PodDisruptionBudgets in assets/, and Pods in bootstrap/; or list `KIND NAME` in the policy",
        Unless(Manifests(objects::kinds)),
    ),
    rule(
        "external-name",
        "Kubernetes gives permissions and meaning to names, such as the ServiceAccounts of its controllers in kube-system, whether \
         the objects exist or not",
        "name the object after the provider, such as NAME-cloud-controller-manager: it has to begin with NAME-cloud-, and not to end as \
         objects do that the operator makes; or list `KIND NAME` in the policy",
        Unless(Manifests(objects::names)),
    ),
    rule(
        "external-system-name",
        "names that begin with system: are those of Kubernetes itself: of its roles, users and groups",
        "use another name, and grant the permissions with a role of the provider's own",
        Never(Manifests(objects::system_names)),
    ),
    rule(
        "external-namespace",
        "objects in another namespace act on what belongs to somebody else",
        "use the managed namespace or kube-system, in kubernetes/ only the latter; or list the namespace in the policy",
        Unless(Manifests(objects::namespaces)),
    ),
    rule(
        "external-reference",
        "a role that the folder does not contain grants what nobody sees in it, and so does an account, which others use too",
        "bind roles of the folder to ServiceAccounts of the folder, and run pods as these; of the cluster's own roles only \
         extension-apiserver-authentication-reader may be bound; or list `KIND NAME` in the policy, with NAMESPACE/NAME where \
         it has one",
        Unless(Provider(objects::references)),
    ),
    rule(
        "external-cluster-role",
        "the operator takes from the account of a cloud-controller-manager what only controllers need that are off; by another role, or \
         another account, the permissions would stay",
        "bind each ClusterRole to the account of the same name only: those of the cloud-controller-manager and of the node manager, \
         with nodes and events alone for the latter; use Roles for the rest; give each of `permissions` in provider.yaml that writes nodes or \
         services the `controllers` that need it",
        Never(Provider(accounts::roles)),
    ),
    rule(
        "external-aggregation",
        "an aggregated role gets rules that the folder does not show, or gives its own to everybody who has the other role",
        "write the rules into the role, and remove aggregationRule and labels with aggregate-to-",
        Never(Manifests(objects::aggregation)),
    ),
    rule(
        "external-metadata",
        "annotations steer controllers, container runtimes and the operator itself, and finalizers and owners decide what is deleted",
        "keep name, namespace and labels; or list the field of metadata, or the annotation's key, in the policy",
        Unless(Manifests(metadata::metadata)),
    ),
    rule(
        "external-label",
        "by its labels a pod becomes one of somebody else's Service, such as the cluster's DNS, and gets what is meant for that",
        "use app.kubernetes.io/name or k8s-app with a value that begins with NAME-cloud-, and app.kubernetes.io/instance: cluster; or list \
         `KEY=VALUE` in the policy",
        Unless(Manifests(metadata::labels)),
    ),
    rule(
        "external-selector",
        "a budget for the pods of others keeps these from being evicted, a Service draws their traffic, and an anti-affinity keeps them \
         from being scheduled",
        "select by the provider's own label, as its workload does, and in its own namespace; or list `KIND NAME` in the policy, or \
         podAffinity or podAntiAffinity",
        Unless(Provider(metadata::selectors)),
    ),
    rule(
        "external-pod-label",
        "a workload adopts the pods of others that its selector fits, and the Services and NetworkPolicies of others take its pods",
        "give the pods, and the selector of the workload, app.kubernetes.io/name or k8s-app with a value that begins with NAME-cloud-; or \
         list `KIND NAME` in the policy",
        Unless(Manifests(metadata::pod_labels)),
    ),
    rule(
        "external-budget",
        "a budget that lets no pod be evicted blocks the drain of its node, and with it the upgrade of the cluster; minAvailable lets none be \
         evicted where there are no more pods",
        "set maxUnavailable: 1, and remove minAvailable; or list `KIND NAME` in the policy",
        Unless(Manifests(metadata::budgets)),
    ),
    rule(
        "external-service",
        "a Service can draw the traffic of an address or a name to itself, or open a port on every node",
        "use type: ClusterIP, without externalIPs, and leave the address to the cluster (None is fine); or list the field \
         and its value in the policy",
        Unless(Manifests(objects::services)),
    ),
    rule(
        "external-cloud-config",
        "the configuration would be written to openshift-config-managed/kube-cloud-config too, which other operators read",
        "remove publishWithFeatureGate; or list the gate in the policy",
        Unless(Provider(objects::published)),
    ),
    rule(
        "external-host-namespace",
        "the container sees and signals the processes of the node, and reads their environment",
        "remove hostPID and hostIPC; hostNetwork is fine; or list the field in the policy",
        Unless(Pods(pods::host_namespaces)),
    ),
    rule(
        "external-host-path",
        "a file of the node is a way out of the container: kubelet's folder has the credentials of every pod",
        "use a ConfigMap, Secret or emptyDir; a bootstrap pod may mount /etc/kubernetes/bootstrap-secrets/kubeconfig and \
         /etc/kubernetes/bootstrap-configs/cloud.conf, with type: File and readOnly: true; or list the path in the policy",
        Unless(Pods(pods::host_paths)),
    ),
    rule(
        "external-host-port",
        "the port of the node is taken from others, and open to everybody who reaches the node",
        "remove hostPort: on the host's network, containerPort is enough; or list the port in the policy",
        Unless(Containers(pods::host_ports)),
    ),
    rule(
        "external-volume",
        "other types of volumes read what the manifest does not show: disks, file servers, other images, credentials of drivers; and \
         who trusts the cluster's tokens may trust those of kube-system more",
        "use configMap, secret, emptyDir, downwardAPI or projected, and tokens without an audience; or list the type, or \
         `audience AUDIENCE`, in the policy",
        Unless(Pods(pods::volumes)),
    ),
    rule(
        "external-field",
        "a pod can choose its node past the scheduler, another runtime, devices, or what kubelet asks from the node's network",
        "remove the field, which a cloud-controller-manager does not need, and `host` of a probe; or list the field in the policy, with its \
         value behind it where that is a single one; of resources each that is not cpu, memory or ephemeral-storage",
        Unless(Provider(pods::unusual_fields)),
    ),
    rule(
        "external-privileged",
        "a privileged container owns the node, and on the control plane with it the cluster",
        "remove privileged and hostProcess: a cloud-controller-manager talks to two APIs, and needs nothing of its machine",
        Never(Provider(containers::privileged)),
    ),
    rule(
        "external-security-context",
        "what confines a container is switched off or replaced: seccomp, SELinux, AppArmor, /proc, or root by a setuid program",
        "set allowPrivilegeEscalation: false, capabilities.drop: [ALL] and seccompProfile.type: RuntimeDefault, and remove the \
         field; or list it in the policy",
        Unless(Provider(containers::security_contexts)),
    ),
    rule(
        "external-capability",
        "a capability is a part of root's power over the node",
        "remove it from capabilities.add; or list it in the policy",
        Unless(Containers(containers::capabilities)),
    ),
    rule(
        "external-image",
        "the image that runs would not be the one that was reviewed, or not one that the cluster's administrator chooses",
        "give the container an entry in `images` of provider.yaml, and name the same image in the manifest: in kubernetes/ from its \
         `repository`, with no digest or the one of its tag there, for OpenShift by digest (@sha256:…); or list the image in the policy",
        Unless(Containers(containers::images)),
    ),
    rule(
        "external-image-digest",
        "a registry can serve another image for the same tag at any time: the package would be the one that was reviewed, and what \
         runs would not",
        "write {tag: TAG, digest: \"sha256:…\"} in `tags` of provider.yaml, with the digest that the registry has for the tag, such as \
         `skopeo inspect --format '{{.Digest}}' docker://REPOSITORY:TAG` prints it; or list `REPOSITORY:TAG` in the policy",
        Unless(Provider(containers::image_digests)),
    ),
    rule(
        "external-secret",
        "who mounts or reads a Secret can use it as its owner does, and kube-system has Secrets of everybody",
        "in kubernetes/ declare `credentials` or `cloudConfig`, and use the volume of that name, or the variables of \
         `credentials.environment`; for OpenShift use the Secret NAME-cloud-credentials of the managed namespace; or list \
         `NAMESPACE/NAME` in the policy",
        Unless(Provider(secrets::secrets)),
    ),
    rule(
        "external-rbac",
        "wildcards grant also what is invented later, and by some permissions every other one can be had: bind, escalate, impersonate, to \
         write roles, webhooks, policies, API services, certificates, Secrets or what runs pods, tokens of accounts, commands in pods, \
         kubelets, and the roles admin, edit and cluster-admin",
        "list the groups, resources and verbs that the cloud-controller-manager uses, without these and without nonResourceURLs; \
         no policy allows them",
        Never(Provider(permissions::rbac)),
    ),
    rule(
        "external-permissions",
        "nobody can review so many permissions, and to work them out takes the memory of the operator",
        "list the groups, resources and verbs that the cloud-controller-manager uses, each rule for what belongs together",
        Never(Provider(permissions::too_many)),
    ),
    rule(
        "external-node-deletion",
        "the operator confirms each deletion of a node and grants it by name: a permission of the provider's own would bypass that",
        "remove the verbs delete and deletecollection on nodes; spec.controllers.cloudNodeLifecycle allows deletions",
        Never(Provider(permissions::node_deletion)),
    ),
    rule(
        "external-permission",
        "what is not usual for a cloud-controller-manager tells or changes what it has no use for: passwords in pods, ConfigMaps and Secrets, \
         the machines behind a Service, the lease of another program",
        "remove it; give a rule to update leases resourceNames that are cloud-controller-manager or begin with NAME-cloud-, and one to \
         read ConfigMaps their names; or list it in the policy, as it is written here: GROUP/RESOURCE:VERB, with the object's name behind \
         it if the rule has resourceNames",
        Unless(Provider(permissions::unusual)),
    ),
    rule(
        "external-account",
        "whoever owns a node can read the tokens of the pods on it, so a policy keeps accounts of DaemonSets to the node of their pod, which \
         the account of the cloud-controller-manager cannot be kept to",
        "give the DaemonSet a ServiceAccount of its own; or list `ServiceAccount NAMESPACE/NAME` in the policy",
        Unless(Provider(accounts::shared)),
    ),
    rule(
        "external-placement",
        "whoever owns a node can read the tokens of the pods on it: on a worker that of the cloud-controller-manager is the permission to change \
         every Node",
        "require {key: node-role.kubernetes.io/control-plane, operator: Exists} in each of the nodeSelectorTerms of the required nodeAffinity, \
         on OpenShift by nodeSelector; or give a DaemonSet for every node a ServiceAccount of its own; or list `KIND NAME` in the policy",
        Unless(Provider(accounts::placement)),
    ),
    rule(
        "external-node-metadata",
        "labels and annotations of nodes steer the scheduler, the network of the pods and what manages the machines",
        "write the cloud's own domain and a slash, such as example.com/; or list the prefix in the policy",
        Unless(Provider(|input, found| {
            metadata::prefixes(input, "/nodes/metadataPrefixes", |said| said.of_nodes, found);
        })),
    ),
    rule(
        "external-service-metadata",
        "labels and annotations of Services steer DNS, the network of the cluster and other load balancers",
        "write the cloud's own domain and a slash, such as example.com/; what begins with service.beta.kubernetes.io/ need not be declared; or \
         list the prefix in the policy",
        Unless(Provider(|input, found| {
            metadata::prefixes(input, "/services/metadataPrefixes", |said| said.of_services, found);
        })),
    ),
    rule(
        "external-root",
        "root of a container is root of the node once anything that confines it fails, and on the host's network it reaches what listens for \
         root only",
        "set runAsNonRoot: true in the securityContext of each pod in assets/, and no runAsUser: 0 there; or list the field in the policy, \
         runAsUser with its value",
        Unless(Containers(containers::root)),
    ),
];
