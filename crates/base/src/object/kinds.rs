//! The kinds of objects, with the properties of each (pure).

/// A kind as API discovery describes it, and how the API server treats its objects.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// API version inside the group.
    pub version: &'static str,
    /// The kind's name.
    pub kind: &'static str,
    /// The resource's name in URLs and RBAC rules.
    pub plural: &'static str,
    /// Whether objects of this kind live in a namespace.
    pub namespaced: bool,
    /// Objects of a lower wave are applied before those of a higher one.
    pub wave: u8,
    /// Whether the `assets/` of every provider may contain it. A policy may allow single objects of other kinds to external providers.
    pub is_usual: bool,
    /// The immutable fields, as the API server names them: an object with another value there is recreated.
    pub immutable: &'static [&'static str],
    /// The fields that are immutable if the API server reports a change of them as forbidden. Other errors about them prove nothing.
    pub forbidden: &'static [&'static str],
    /// The JSON pointer of its pod specification.
    pub pods: Option<&'static str>,
    /// The fields with names of other objects of a provider: the JSON pointer of each, and the kind of the named object. RBAC bindings
    /// name the kind themselves.
    pub names: &'static [(&'static str, &'static str)],
}

/// A kind without further properties.
pub const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    wave: u8,
) -> Kind {
    Kind {
        group,
        version,
        kind,
        plural,
        namespaced,
        wave,
        is_usual: false,
        immutable: &[],
        forbidden: &[],
        pods: None,
        names: &[],
    }
}

impl Kind {
    /// Returns the kind as one that every provider may contain.
    const fn usual(self) -> Self {
        Self { is_usual: true, ..self }
    }

    /// Returns the wave for a writer that may not bind roles that do not exist: a binding follows the roles of its wave.
    pub fn wave_after_roles(&self) -> u8 {
        self.wave * 2 + u8::from(matches!(self.kind, "ClusterRoleBinding" | "RoleBinding"))
    }
}

/// A kind whose objects create pods from a template.
const fn workload(name: &'static str, plural: &'static str) -> Kind {
    Kind {
        immutable: &["spec.selector"],
        pods: Some("/spec/template/spec"),
        names: &[("/spec/template/spec/serviceAccountName", SERVICE_ACCOUNT.kind)],
        ..kind("apps", "v1", name, plural, true, 4).usual()
    }
}

const fn binding(name: &'static str, plural: &'static str, namespaced: bool) -> Kind {
    Kind { immutable: &["roleRef"], ..kind(RBAC, "v1", name, plural, namespaced, 2).usual() }
}

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Admission policies.
const POLICY: Kind = kind(ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false, 1);

/// The kind of service accounts.
pub const SERVICE_ACCOUNT: Kind = kind("", "v1", "ServiceAccount", "serviceaccounts", true, 2).usual();

/// The kind of cluster roles.
pub const CLUSTER_ROLE: Kind = kind(RBAC, "v1", "ClusterRole", "clusterroles", false, 2).usual();

/// The kind of cluster role bindings.
pub const CLUSTER_ROLE_BINDING: Kind = binding("ClusterRoleBinding", "clusterrolebindings", false);

/// The kind of ConfigMaps. A ConfigMap with `immutable` cannot be changed.
pub const CONFIG_MAP: Kind = Kind {
    forbidden: &["data", "binaryData", "immutable"],
    ..kind("", "v1", "ConfigMap", "configmaps", true, 3).usual()
};

/// The kind of pods. Most of a pod specification is immutable. `assets/` contains no pods.
pub const POD: Kind = Kind {
    forbidden: &["spec"],
    pods: Some("/spec"),
    names: &[("/spec/serviceAccountName", SERVICE_ACCOUNT.kind)],
    ..kind("", "v1", "Pod", "pods", true, 4)
};

/// Every kind that a provider may contain. Policies come before the objects that they guard and before the permissions that they
/// restrict, service accounts and roles before the pods that use them, and disruption budgets before the pods that they count.
pub static KINDS: &[Kind] = &[
    POLICY,
    Kind {
        names: &[("/spec/policyName", POLICY.kind)],
        ..kind(ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false, 1)
    },
    SERVICE_ACCOUNT,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    kind(RBAC, "v1", "Role", "roles", true, 2).usual(),
    binding("RoleBinding", "rolebindings", true),
    CONFIG_MAP,
    kind("", "v1", "Service", "services", true, 3).usual(),
    workload("Deployment", "deployments"),
    workload("DaemonSet", "daemonsets"),
    POD,
    kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true, 3).usual(),
];

/// The kind of Secrets. A provider contains none.
pub const SECRET: Kind = kind("", "v1", "Secret", "secrets", true, 0);

/// The kind of namespaces. A provider contains none.
pub const NAMESPACE: Kind = kind("", "v1", "Namespace", "namespaces", false, 0);

/// The kind of nodes. A provider contains none.
pub const NODE: Kind = kind("", "v1", "Node", "nodes", false, 0);

/// The kind of Events. A provider contains none.
pub const EVENT: Kind = kind("", "v1", "Event", "events", true, 0);

impl Kind {
    /// The kind of this name, if a provider may contain it.
    pub fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|known| known.kind == name)
    }

    /// Whether objects of this kind are accounts or permissions, without which pods fail.
    pub fn is_prerequisite_of_pods(&self) -> bool {
        self.group == RBAC || self.kind == SERVICE_ACCOUNT.kind
    }

    /// Whether a change may require that an object is recreated. A temporary object is tried before.
    pub fn may_be_recreated(&self) -> bool {
        !self.immutable.is_empty() || !self.forbidden.is_empty()
    }

    /// Whether objects of this kind are admission policies or their bindings: they deny, and grant nothing.
    pub fn is_policy(&self) -> bool {
        self.group == ADMISSION
    }

    /// The `apiVersion` of manifests.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_named_as_it_is_listed() {
        for kind in KINDS {
            assert_eq!(Kind::named(kind.kind), Some(kind));
            for (pointer, other) in kind.names {
                assert!(pointer.starts_with(kind.pods.unwrap_or("/spec")) && Kind::named(other).is_some(), "{kind:?}");
            }
        }
    }
}
