//! The location of a cloud-controller-manager in a cluster, from its plan (pure).

use k8s_openapi::api::authorization::v1::{ResourceAttributes, ResourceRule};
use serde_json::{Value, json};

use crate::{
    facts::{
        ccm::{Ccm, Controller, LEASE},
        infrastructure_region,
    },
    object::{KUBE_SYSTEM, Kind, Object, permissions},
    plan::needs,
    provider::{
        OpenShiftProvider,
        kubernetes::{INSTANCE_LABEL, KubernetesProvider},
    },
    text::ini,
};

/// The ServiceAccount in kube-system that the node controllers use on OpenShift.
const NODE_IDENTITY: (&str, &str) = (KUBE_SYSTEM, "node-controller");

/// The location and the requirements of a cloud-controller-manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CcmIdentity {
    /// The name of the `CloudControllerManager`; empty on OpenShift.
    pub name: String,
    /// The provider, such as `aws`.
    pub provider: String,
    /// The namespace of the pods and the lease.
    pub namespace: String,
    /// The kind of the workload: Deployment or DaemonSet; `None` only in the empty identity.
    pub kind: Option<&'static Kind>,
    /// The name of the workload.
    pub workload: String,
    /// The labels of the pods, as a selector.
    pub selector: String,
    /// The labels of the node manager's pods, if any.
    pub node_manager: Option<String>,
    /// The name of the lease.
    pub lease_name: String,
    /// The ServiceAccount.
    pub account: String,
    /// The providerID prefixes of the cloud, such as `aws:///`; empty if the provider does not declare them.
    pub provider_ids: Vec<String>,
    /// Whether the cloud has zones, which become node labels.
    pub has_zones: bool,
    /// The region in the cloud configuration, if any.
    pub region: Option<String>,
    /// The permissions that are required to initialize nodes.
    pub needs: Vec<Need>,
}

/// A permission. Fields that do not apply are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The verb, such as `update`.
    pub verb: String,
    /// The API group.
    pub group: String,
    /// The resource, such as `nodes/status`.
    pub resource: String,
    /// The namespace.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
}

impl Need {
    /// Returns the permission in words, such as `update nodes`.
    pub fn words(&self) -> String {
        let of = |prefix: &str, text: &str| if text.is_empty() { String::new() } else { format!("{prefix}{text}") };
        let Self { verb, group, resource, namespace, name } = self;
        format!("{verb} {resource}{}{}{}", of(".", group), of(" ", name), of(" in namespace ", namespace))
    }
}

impl CcmIdentity {
    /// Returns the identity for a `CloudControllerManager`; `None` if its provider has no workload.
    pub fn kubernetes(provider: &KubernetesProvider, ccm: &Ccm) -> Option<Self> {
        let (workload, pod) = provider.workload()?;
        let (descriptor, namespace) = (&provider.descriptor, ccm.spec.namespace.clone());
        let of_instance = |(key, value): (&String, &Value)| {
            let value = if key == INSTANCE_LABEL { ccm.name.as_str() } else { value.as_str().unwrap_or_default() };
            format!("{key}={value}")
        };
        let initializes = ccm.controllers().any(|controller| controller == Controller::CloudNode);
        let node_manager = provider.node_manager().filter(|_| initializes);
        let controllers: Vec<_> = descriptor.own(ccm).controllers().collect();
        let mut needs = needs(&needs::rules(&controllers, &descriptor.permissions));
        needs.push(of_lease(&namespace, &ccm.lease_name()));
        let inline = ccm.spec.cloud_config.as_ref().and_then(|config| config.inline.as_deref());
        Some(Self {
            name: ccm.name.clone(),
            provider: descriptor.name.clone(),
            kind: Some(workload.kind()),
            workload: ccm.named(workload.name()),
            selector: selector(workload, of_instance),
            node_manager: node_manager.map(|workload| selector(workload, of_instance)),
            lease_name: ccm.lease_name(),
            account: ccm.named(pod["serviceAccountName"].as_str()?),
            provider_ids: descriptor.nodes.provider_ids.clone(),
            has_zones: descriptor.nodes.zones,
            region: inline.and_then(region),
            needs,
            namespace,
        })
    }

    /// Returns the identity on an OpenShift cluster; `None` if the provider has no workload.
    pub fn openshift(provider: &OpenShiftProvider, infrastructure: &Value, namespace: &str) -> Option<Self> {
        let (workload, pod) = provider.workload()?;
        let as_planned = |(key, value): (&String, &Value)| format!("{key}={}", value.as_str().unwrap_or_default());
        let ccm = provider.manifests.iter().find(|one| one.kind().kind == "DaemonSet" && one.name() != workload.name());
        let region = infrastructure_region(infrastructure);
        let nodes = provider.descriptor.nodes.as_ref();
        let (of_nodes, identity) = (["list", "watch"], NODE_IDENTITY);
        let mut needs: Vec<_> = of_nodes.iter().map(|verb| Need::new(verb, "", "nodes")).collect();
        needs.push(of_lease(namespace, LEASE));
        needs.push(Need {
            namespace: identity.0.to_owned(),
            name: identity.1.to_owned(),
            ..Need::new("create", "", "serviceaccounts/token")
        });
        Some(Self {
            name: String::new(),
            provider: provider.name().to_owned(),
            namespace: namespace.to_owned(),
            kind: Some(workload.kind()),
            workload: workload.name().to_owned(),
            selector: selector(workload, as_planned),
            node_manager: ccm.map(|ccm| selector(ccm, as_planned)),
            lease_name: LEASE.to_owned(),
            account: pod["serviceAccountName"].as_str()?.to_owned(),
            provider_ids: nodes.map(|nodes| nodes.provider_ids.clone()).unwrap_or_default(),
            has_zones: nodes.is_some_and(|nodes| nodes.zones),
            region: region.map(ToOwned::to_owned),
            needs,
        })
    }

    /// Returns the user name of the ServiceAccount.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.account)
    }
}

impl Need {
    /// Returns the permission as attributes of an access review.
    pub fn attributes(&self) -> ResourceAttributes {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (resource, subresource) = self.resource.split_once('/').unwrap_or((&self.resource, ""));
        ResourceAttributes {
            namespace: given(&self.namespace),
            group: given(&self.group),
            resource: given(resource),
            subresource: given(subresource),
            name: given(&self.name),
            verb: given(&self.verb),
            ..ResourceAttributes::default()
        }
    }

    /// Whether a rule grants this permission in its namespace.
    pub fn is_granted_by(&self, rule: &ResourceRule) -> bool {
        let has = |list: Option<&Vec<String>>, wanted: &str| {
            list.is_some_and(|list| list.iter().any(|one| one == wanted || one == "*"))
        };
        let of_any = self.resource.split_once('/').map(|(_, subresource)| format!("*/{subresource}"));
        let resources = rule.resources.as_ref();
        let names = rule.resource_names.as_deref().unwrap_or_default();
        has(Some(&rule.verbs), &self.verb)
            && has(rule.api_groups.as_ref(), &self.group)
            && (has(resources, &self.resource) || of_any.is_some_and(|any| has(resources, &any)))
            && (names.is_empty() || names.contains(&self.name))
    }

    fn new(verb: &str, group: &str, resource: &str) -> Self {
        Self { verb: verb.to_owned(), group: group.to_owned(), resource: resource.to_owned(), ..Self::default() }
    }
}

fn selector(workload: &Object, label: impl Fn((&String, &Value)) -> String) -> String {
    let labels = workload.value()["spec"]["selector"]["matchLabels"].as_object();
    labels.into_iter().flatten().map(label).collect::<Vec<_>>().join(",")
}

fn of_lease(namespace: &str, name: &str) -> Need {
    let of_any = Need::new("update", "coordination.k8s.io", "leases");
    Need { namespace: namespace.to_owned(), name: name.to_owned(), ..of_any }
}

/// Returns the permissions that a role grants on all nodes. Unreadable rules grant none.
fn needs(rules: &Value) -> Vec<Need> {
    let role = json!({ "rules": rules });
    let granted = permissions::of_role(&role).unwrap_or_default();
    let of_nodes = granted.iter().filter(|one| one.resource == "nodes" || one.resource.starts_with("nodes/"));
    of_nodes.filter(|one| one.names.is_empty()).map(|one| Need::new(one.verb, "", one.resource)).collect()
}

/// Returns the region in an INI configuration.
fn region(config: &str) -> Option<String> {
    let config = ini::Document::parse(config).ok()?;
    config.get("Global", "region")?.entry.set().map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{placement::Distribution, spec::Spec},
        facts::{DEFAULT_NAMESPACE, Platform, cluster::Cluster, version::Minor},
        provider::embedded,
    };

    fn ccm(name: &str, spec: Value) -> Ccm {
        let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 3 };
        Ccm::new(name.to_owned(), serde_json::from_value::<Spec>(spec).unwrap(), cluster)
    }

    #[test]
    fn one_is_looked_for_by_the_names_of_its_plan() {
        let catalog = embedded::catalog().unwrap();
        let inline = "[Global]\nZone = eu-west-1a\nRegion = eu-west-1\n";
        let asked = ccm("second", json!({"provider": "aws", "cloudConfig": {"inline": inline}}));
        let identity = CcmIdentity::kubernetes(catalog.kubernetes_of("aws").unwrap(), &asked).unwrap();
        assert_eq!(
            (identity.kind.map_or("", |kind| kind.kind), identity.workload.as_str()),
            ("DaemonSet", "aws-cloud-controller-manager-second")
        );
        assert_eq!(
            identity.selector,
            "app.kubernetes.io/instance=second,app.kubernetes.io/name=aws-cloud-controller-manager"
        );
        assert_eq!(identity.user(), "system:serviceaccount:kube-system:aws-cloud-controller-manager-second");
        assert_eq!(identity.lease_name, "cloud-controller-manager-second");
        assert_eq!(identity.region.as_deref(), Some("eu-west-1"));
        assert!(identity.has_zones && identity.provider_ids == ["aws:///"]);
        let needs: Vec<_> = identity.needs.iter().map(Need::words).collect();
        assert_eq!(
            needs,
            [
                "get nodes",
                "list nodes",
                "watch nodes",
                "update nodes",
                "patch nodes",
                "patch nodes/status",
                "update leases.coordination.k8s.io cloud-controller-manager-second in namespace kube-system",
            ]
        );
    }

    #[test]
    fn a_rule_grants_what_it_lists() {
        let rule = |verbs: &[&str], groups: &[&str], resources: &[&str], names: &[&str]| {
            let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            ResourceRule {
                verbs: list(verbs),
                api_groups: Some(list(groups)),
                resources: Some(list(resources)),
                resource_names: Some(list(names)),
            }
        };
        let scale = Need { name: "a".into(), ..Need::new("patch", "apps", "deployments/scale") };
        assert!(scale.is_granted_by(&rule(&["get", "patch"], &["", "apps"], &["deployments/scale"], &[])));
        assert!(scale.is_granted_by(&rule(&["*"], &["*"], &["*"], &["a", "b"])));
        assert!(scale.is_granted_by(&rule(&["patch"], &["apps"], &["*/scale"], &[])));
        assert!(!scale.is_granted_by(&rule(&["get"], &["apps"], &["deployments/scale"], &[])));
        assert!(!scale.is_granted_by(&rule(&["patch"], &[""], &["deployments/scale"], &[])));
        assert!(!scale.is_granted_by(&rule(&["patch"], &["apps"], &["deployments", "*/status"], &[])));
        assert!(!scale.is_granted_by(&rule(&["patch"], &["apps"], &["deployments/scale"], &["b"])));
        let any = Need::new("patch", "apps", "deployments");
        assert!(!any.is_granted_by(&rule(&["patch"], &["apps"], &["deployments"], &["a"])), "of one name only");
    }

    #[test]
    fn on_openshift_the_provider_of_the_platform_is_looked_for() {
        let catalog = embedded::catalog().unwrap();
        let of = |platform: &str, status: Value| {
            let platform = Platform { name: platform.to_owned(), variant: None };
            let infrastructure = json!({"status": {"platformStatus": status}});
            CcmIdentity::openshift(catalog.select(&platform).unwrap(), &infrastructure, DEFAULT_NAMESPACE).unwrap()
        };
        let aws = of("AWS", json!({"type": "AWS", "aws": {"region": "eu-west-1"}}));
        assert_eq!(
            aws.selector,
            "infrastructure.openshift.io/cloud-controller-manager=AWS,k8s-app=aws-cloud-controller-manager"
        );
        assert_eq!((aws.region.as_deref(), aws.node_manager.as_deref()), (Some("eu-west-1"), None));
        let azure = of("Azure", json!({"type": "Azure"}));
        assert!(azure.node_manager.as_ref().unwrap().contains("k8s-app=azure-cloud-node-manager"), "{azure:?}");
        assert_eq!(azure.provider_ids, ["azure://"]);
        assert!(
            azure.needs.iter().any(|need| {
                need.words() == "create serviceaccounts/token node-controller in namespace kube-system"
            })
        );
        // If both flavors have a cloud, they declare the same node properties.
        for provider in catalog.providers() {
            // A provider may omit the declaration.
            let Some(nodes) = &provider.descriptor.nodes else { continue };
            assert!(!nodes.provider_ids.is_empty(), "{}", provider.name());
            if let Ok(kubernetes) = catalog.kubernetes_of(provider.name()) {
                assert_eq!(nodes.provider_ids, kubernetes.descriptor.nodes.provider_ids, "{}", provider.name());
                assert_eq!(nodes.zones, kubernetes.descriptor.nodes.zones, "{}", provider.name());
            }
        }
    }
}
