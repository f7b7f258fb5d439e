//! Permissions that no policy can allow (pure), because an account with one of them can obtain every permission.

pub(super) const READ: [&str; 3] = ["get", "list", "watch"];

/// Verbs that lead to every permission, on any resource: RBAC's own (bind, escalate), impersonation, and those of certificate
/// signers.
const VERBS: [&str; 6] = ["approve", "attest", "bind", "escalate", "impersonate", "sign"];

/// Resources of the core group on which no verb is allowed. They run commands in other containers, reach targets that only the API
/// server can reach (kubelets, and pods without a password), or are the tokens of other accounts. The verb `get` is enough.
const UNTOUCHABLE: [&str; 7] = [
    "nodes/proxy",
    "pods/attach",
    "pods/exec",
    "pods/portforward",
    "pods/proxy",
    "serviceaccounts/token",
    "services/proxy",
];

/// API groups whose objects may only be read. They define permissions, admission, the servers of parts of the API, and the trusted
/// certificates.
const READ_ONLY: [&str; 5] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "certificates.k8s.io",
    "rbac.authorization.k8s.io",
];

/// API groups of workloads. A pod can use any account of its namespace, and any user and privilege on its node.
const WORKLOADS: [&str; 2] = ["apps", "batch"];

/// Resources of the core group with the same effect. A Secret can become a token of any account.
const LIKE_WORKLOADS: [&str; 5] =
    ["pods", "pods/ephemeralcontainers", "podtemplates", "replicationcontrollers", "secrets"];

/// The verbs that write the content of an object.
pub(super) const WRITES: [&str; 3] = ["create", "patch", "update"];

/// The cluster's own roles that hold or can grant most permissions. Another rule covers roles that begin with `system:`.
pub(super) const ROLES: [&str; 3] = ["admin", "cluster-admin", "edit"];

/// Whether a permission is one of these. A wildcard is, because it also grants future permissions.
pub(super) fn is_mighty(group: &str, resource: &str, verb: &str) -> bool {
    let is_core = group.is_empty();
    let runs_pods = WORKLOADS.contains(&group) || (is_core && LIKE_WORKLOADS.contains(&resource));
    [group, resource, verb].iter().any(|text| text.contains('*'))
        || VERBS.contains(&verb)
        || (is_core && UNTOUCHABLE.contains(&resource))
        || (READ_ONLY.contains(&group) && !READ.contains(&verb))
        || (runs_pods && WRITES.contains(&verb))
}
