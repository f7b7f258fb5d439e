//! Permissions that no policy can allow (pure), because an account with one of them can obtain every other one.

pub(super) const READ: [&str; 3] = ["get", "list", "watch"];

/// Verbs by which every permission can be had, on whatever resource: RBAC's own (bind, escalate), the permission to act as somebody
/// else, and those of signers of certificates.
const VERBS: [&str; 6] = ["approve", "attest", "bind", "escalate", "impersonate", "sign"];

/// Resources of the core group that must not be touched at all. They run commands in the containers of others, reach what only the
/// API server reaches (kubelets, and pods without a password), or are the tokens of other accounts. To get one is enough.
const UNTOUCHABLE: [&str; 7] = [
    "nodes/proxy",
    "pods/attach",
    "pods/exec",
    "pods/portforward",
    "pods/proxy",
    "serviceaccounts/token",
    "services/proxy",
];

/// API groups whose objects may only be read: who may do what, what the API server asks before it stores something, who serves parts
/// of the API, and whose certificates it trusts.
const READ_ONLY: [&str; 5] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "certificates.k8s.io",
    "rbac.authorization.k8s.io",
];

/// API groups of workloads. A pod runs as any account of its namespace, and on the node as whatever it asks for.
const WORKLOADS: [&str; 2] = ["apps", "batch"];

/// Resources of the core group by which the same can be had. A Secret can be made a token of any account.
const LIKE_WORKLOADS: [&str; 5] =
    ["pods", "pods/ephemeralcontainers", "podtemplates", "replicationcontrollers", "secrets"];

/// The verbs that write the content of an object.
pub(super) const WRITES: [&str; 3] = ["create", "patch", "update"];

/// The cluster's own roles that hold most permissions or can give them away. Those that begin with `system:` have a rule of their own.
pub(super) const ROLES: [&str; 3] = ["admin", "cluster-admin", "edit"];

/// Whether a permission is one of these. Wildcards are: they grant also what is invented later.
pub(super) fn is_mighty(group: &str, resource: &str, verb: &str) -> bool {
    let is_core = group.is_empty();
    let runs_pods = WORKLOADS.contains(&group) || (is_core && LIKE_WORKLOADS.contains(&resource));
    [group, resource, verb].iter().any(|text| text.contains('*'))
        || VERBS.contains(&verb)
        || (is_core && UNTOUCHABLE.contains(&resource))
        || (READ_ONLY.contains(&group) && !READ.contains(&verb))
        || (runs_pods && WRITES.contains(&verb))
}
