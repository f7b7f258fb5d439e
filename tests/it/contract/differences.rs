//! The intended differences from the objects of the Go operator, each with its reason.

use super::*;

pub(super) const DEPLOYMENT: &str = "Deployment/";
pub(super) const NODE_MANAGER: &str = "DaemonSet/";
pub(super) const NO_SHELL: &str = "no shell and no host path: the API server's endpoint is a fact";

/// An intended difference between the contract and our objects.
pub(super) struct Difference {
    /// The prefix of the names of the objects that have it; all of them must.
    pub(super) objects: &'static str,
    pub(super) key: String,
    /// Our value; `None`: absent.
    pub(super) ours: Option<Value>,
    pub(super) why: &'static str,
}

impl Difference {
    pub(super) fn changed(objects: &'static str, key: &str, ours: Value, why: &'static str) -> Self {
        Self { objects, key: key.to_owned(), ours: Some(ours), why }
    }

    pub(super) fn gone(objects: &'static str, key: &str, why: &'static str) -> Self {
        Self { objects, key: key.to_owned(), ours: None, why }
    }
}

/// The differences of every platform, except one that Azure cannot have.
pub(super) fn everywhere(platform: &Known) -> Vec<Difference> {
    let probed = "probed and scraped on the secure port";
    let tolerated = "control planes are tainted under both names; Cluster API taints as well";
    let ccm = |key: &str| format!("containers[cloud-controller-manager] {key}");
    let mut all = vec![
        // IBM's clouds do not set it; the default is the same port.
        Difference::changed(DEPLOYMENT, &ccm("arg:--secure-port"), json!("10258"), probed),
        Difference::gone(DEPLOYMENT, &ccm("mount:/etc/kubernetes"), NO_SHELL),
        Difference::changed(
            DEPLOYMENT,
            "toleration:node-role.kubernetes.io/control-plane/Exists/NoSchedule/None",
            json!(true),
            tolerated,
        ),
        Difference::changed(
            DEPLOYMENT,
            "toleration:node.cluster.x-k8s.io/uninitialized/Exists/NoSchedule/None",
            json!(true),
            tolerated,
        ),
        Difference::changed(DEPLOYMENT, &ccm("startupProbe"), json!("/healthz"), probed),
        Difference::changed(DEPLOYMENT, &ccm("livenessProbe"), json!("/healthz"), probed),
    ];
    // Azure's has neither webhooks nor the flag.
    if !platform.name.starts_with("Azure") {
        let why = "otherwise it binds 10260, which nothing uses";
        all.push(Difference::changed(DEPLOYMENT, &ccm("arg:--webhook-secure-port"), json!("0"), why));
    }
    all.extend(confined(DEPLOYMENT, "containers[cloud-controller-manager]"));
    all.extend(endpoint(DEPLOYMENT, "containers[cloud-controller-manager]"));
    all.push(seccomp(DEPLOYMENT));
    all
}

/// The differences of both kinds of Azure.
pub(super) fn of_azure() -> Vec<Difference> {
    let one_user = "every container can read the merged configuration, whatever its mode";
    let mut all = vec![loopback(), seccomp(NODE_MANAGER)];
    all.extend(confined(NODE_MANAGER, "containers[cloud-node-manager]"));
    all.extend(endpoint(NODE_MANAGER, "containers[cloud-node-manager]"));
    for objects in [DEPLOYMENT, NODE_MANAGER] {
        all.extend(confined(objects, "initContainers[azure-inject-credentials]"));
        for (field, value) in [("runAsNonRoot", json!(true)), ("runAsUser", json!(65532)), ("runAsGroup", json!(65532))]
        {
            all.push(Difference::changed(objects, &format!("pod:/securityContext/{field}"), value, one_user));
        }
    }
    all
}

pub(super) fn confined(objects: &'static str, container: &str) -> [Difference; 4] {
    let why = "confined: no privilege, no capability, a read-only root with an emptyDir at /tmp";
    [
        Difference::changed(objects, &format!("{container} mount:/tmp"), json!("emptyDir  []"), why),
        Difference::changed(objects, &format!("{container} readOnlyRootFilesystem"), json!(true), why),
        Difference::changed(objects, &format!("{container} allowPrivilegeEscalation"), json!(false), why),
        Difference::changed(objects, &format!("{container} capabilities/drop/0"), json!("ALL"), why),
    ]
}

pub(super) fn seccomp(objects: &'static str) -> Difference {
    let field = "pod:/securityContext/seccompProfile/type";
    Difference::changed(
        objects,
        field,
        json!("RuntimeDefault"),
        "confined: the runtime's default filter of system calls",
    )
}

pub(super) fn endpoint(objects: &'static str, container: &str) -> [Difference; 2] {
    let variable = |name: &str, value: &str| {
        Difference::changed(objects, &format!("{container} env:{name}"), json!(value), NO_SHELL)
    };
    [variable("KUBERNETES_SERVICE_HOST", "api-int.lab.example.com"), variable("KUBERNETES_SERVICE_PORT", "6443")]
}

/// The Go operator binds the CCM to an address that cannot be probed or scraped.
pub(super) fn loopback() -> Difference {
    let argument = "containers[cloud-controller-manager] arg:--bind-address";
    Difference::gone(DEPLOYMENT, argument, "probed and scraped on the secure port, on every address")
}

/// The Go operator passes an empty list of feature gates.
pub(super) fn no_gates() -> Difference {
    let argument = "containers[cloud-controller-manager] arg:--feature-gates";
    Difference::gone(DEPLOYMENT, argument, "no gate that a cloud-controller-manager knows, no argument")
}
