//! A cluster in which every check passes or cannot run. For each check, one change makes only this check fail.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    check::{Check, CheckResult, line},
    check_input::{Other, Reader, Snapshot},
    pods::ObservedPod,
    *,
};
use crate::{
    api::{placement::Distribution, spec::Lifecycle},
    facts::{ccm::Ccm, cluster::Cluster, version::Minor},
    nodes::{
        evidence::{Lease, Unseen},
        node::{Node, Ready, UNINITIALIZED},
    },
    plan::kubernetes::{
        sources::{Checkers, Source, SourceState},
        validation::{Validation, validate},
    },
    provider::{catalog::Catalog, embedded},
};

mod others;

struct Fixture {
    catalog: Catalog,
    ccm: Ccm,
    by: Reader,
    secret: SourceState,
    /// The objects, with their precedence and their running specs.
    others: Vec<(Ccm, bool, Option<Ccm>)>,
    nodes: Result<Vec<Node>, Unseen>,
    snapshot: Snapshot,
    missing_permissions: Result<Vec<String>, Unseen>,
    deletion_permission: Result<Option<Vec<String>>, Unseen>,
    is_installed: Result<bool, Unseen>,
}

fn asked(name: &str, spec: Value) -> Ccm {
    let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 1 };
    Ccm::new(name.to_owned(), serde_json::from_value(spec).unwrap(), cluster)
}

fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        taints: vec![UNINITIALIZED.into()],
        ready: Some(Ready { status: "True".into(), ..Ready::default() }),
        has_pod_cidr: true,
        architecture: "amd64".into(),
        ..Node::default()
    }
}

/// Returns a pod in kube-system on the host network.
fn pod(name: &str, container: &Value) -> ObservedPod {
    let spec = json!({"hostNetwork": true, "nodeName": "ip-10-0-0-1.ec2.internal", "containers": [container]});
    let live = json!({"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec});
    ObservedPod::of(&live, &embedded::catalog().unwrap()).unwrap()
}

/// The taints of the control planes of kubeadm, Talos, k0s, k3s, RKE2 (as documented) and Rancher, and of Cluster
/// API's new nodes.
const DISTRIBUTION_TAINTS: [&str; 6] = [
    "node-role.kubernetes.io/control-plane=:NoSchedule",
    "node-role.kubernetes.io/control-plane=true:NoSchedule",
    "node-role.kubernetes.io/master=:NoSchedule",
    "CriticalAddonsOnly=true:NoExecute",
    "node-role.kubernetes.io/etcd=true:NoExecute",
    "node.cluster.x-k8s.io/uninitialized=:NoSchedule",
];

fn ccm(arguments: &[&str]) -> ObservedPod {
    pod("foreign", &json!({"name": "ccm", "image": "registry.example/cloud-controller-manager:v1", "args": arguments}))
}

/// Returns a terminating pod on this node.
fn leaving(node: &str) -> ObservedPod {
    let mut pod = ccm(&["--controllers=cloud-node", "--secure-port=0"]);
    (pod.seen.node, pod.seen.is_terminating) = (node.into(), true);
    pod
}

/// Adds the pod labels of a CloudControllerManager for AWS.
fn ours(mut pod: ObservedPod, name: &str) -> ObservedPod {
    let label = |key: &str, value: &str| (format!("app.kubernetes.io/{key}"), value.to_owned());
    pod.labels = BTreeMap::from([label("name", "aws-cloud-controller-manager"), label("instance", name)]);
    pod
}

fn secret(data: &Value) -> SourceState {
    let reference = crate::object::reference::Reference {
        kind: &crate::object::reference::SECRET,
        namespace: "kube-system".into(),
        name: "hcloud".into(),
    };
    SourceState::Present(Source::of(&json!({"data": data}), &reference, &Checkers::new()))
}

fn unseen() -> Unseen {
    Unseen { what: "it".into(), why: "forbidden".into(), command: "kubectl get it".into() }
}

/// AWS on a kubeadm cluster with one control-plane node and one other node, both just registered by their kubelets.
fn aws() -> Fixture {
    let mut control_plane = node("ip-10-0-0-1.ec2.internal");
    control_plane.is_control_plane = true;
    let namespace = json!({"metadata": {"name": "kube-system", "labels": {}}});
    Fixture {
        catalog: embedded::catalog().unwrap(),
        ccm: asked("cluster", json!({"provider": "aws"})),
        by: Reader::Operator,
        secret: SourceState::Absent,
        others: Vec::new(),
        nodes: Ok(vec![control_plane, node("i-0123456789abcdef0")]),
        snapshot: Snapshot {
            places: BTreeSet::from(["kube-system".to_owned()]),
            namespaces: BTreeMap::from([("kube-system".to_owned(), Ok(namespace))]),
            ..Snapshot::default()
        },
        missing_permissions: Ok(Vec::new()),
        deletion_permission: Ok(None),
        is_installed: Ok(false),
    }
}

fn hcloud() -> Fixture {
    let spec = json!({"provider": "hcloud", "credentials": {"secretRef": {"name": "hcloud"}}});
    let mut fixture = Fixture { ccm: asked("cluster", spec), secret: secret(&json!({"token": "eA=="})), ..aws() };
    for node in fixture.nodes.as_mut().unwrap() {
        node.provider_id = "hcloud://1".into();
        node.taints.clear();
    }
    fixture
}

impl Fixture {
    fn validation(&self) -> Validation {
        validate(&self.catalog, &self.ccm, |_| self.secret.clone())
    }

    fn rows(&self) -> Vec<Row> {
        let validation = self.validation();
        let others = self.others.iter().map(|(ccm, goes_first, runs)| Other {
            ccm,
            goes_first: *goes_first,
            runs: runs.clone(),
        });
        rows(&CheckInput {
            now: "2026-01-01T00:01:00Z".parse().unwrap(),
            by: self.by,
            catalog: &self.catalog,
            ccm: &self.ccm,
            provider: self.catalog.kubernetes_of(&self.ccm.spec.provider).unwrap(),
            validation: &validation,
            is_installed: self.is_installed.clone(),
            others: Ok(others.collect()),
            nodes: self.nodes.as_deref().map_err(Clone::clone),
            snapshot: &self.snapshot,
            missing_permissions: self.missing_permissions.clone(),
            deletion_permission: self.deletion_permission.clone(),
        })
    }

    fn nodes(&mut self) -> &mut Vec<Node> {
        self.nodes.as_mut().unwrap()
    }

    fn spec(&mut self, spec: Value) {
        self.ccm = asked("cluster", spec);
    }
}

/// Returns the checks that have not passed, except the checks that these tests can never run.
fn failed(rows: &[Row]) -> Vec<(Check, CheckResult)> {
    let never = [Check::AtCloud, Check::ImagePull, Check::CredentialsAccepted];
    let failed = rows.iter().filter(|row| row.result != CheckResult::Passed && !never.contains(&row.check));
    failed.map(|row| (row.check, row.result)).collect()
}

/// A change of a fixture, with the check that fails and its result.
type Case = (Check, CheckResult, &'static str, fn() -> Fixture, fn(&mut Fixture));

fn route(pods: &[&str]) -> Value {
    json!({"provider": "aws", "controllers": {"route": "Enabled"}, "network": {"podCIDRs": pods}})
}

fn only_routes() -> Value {
    let off = "Disabled";
    json!({"cloudNode": off, "cloudNodeLifecycle": off, "service": off, "route": "Enabled"})
}

fn allocator(arguments: &[&str]) -> ObservedPod {
    pod("kube-controller-manager-a", &json!({"name": "kube-controller-manager", "image": "k", "command": arguments}))
}

fn lease(name: &str, renewed: &str) -> Lease {
    Lease {
        namespace: "kube-system".into(),
        name: name.into(),
        holder: "elsewhere_1".into(),
        renewed: Some(renewed.parse().unwrap()),
        duration_seconds: 15,
    }
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    use CheckResult::{NotChecked, Refused, Warned};
    vec![
        (Check::Configuration, Refused, "does not allow --nope", aws, |fixture| {
            fixture.spec(json!({"provider": "aws", "arguments": {"--nope": "1"}}));
        }),
        (Check::Configuration, Warned, "did you mean `VPC`", aws, |fixture| {
            fixture.spec(json!({"provider": "aws", "cloudConfig": {"inline": "[Global]\nVPCC = x\n"}}));
        }),
        (Check::Credentials, Refused, "has no key token", hcloud, |fixture| {
            fixture.secret = secret(&json!({"t": "eA=="}));
        }),
        (Check::Credentials, Refused, "is empty", hcloud, |fixture| fixture.secret = secret(&json!({"token": ""}))),
        (Check::Credentials, Refused, "cannot be read", hcloud, |fixture| {
            fixture.secret = SourceState::Unreadable("no".into());
        }),
        (Check::Credentials, NotChecked, "cannot be read", hcloud, |fixture| {
            (fixture.secret, fixture.by) = (SourceState::Unreadable("no".into()), Reader::Caller);
        }),
        (Check::Version, Warned, "there is no tag for Kubernetes 1.60", aws, |fixture| {
            fixture.ccm.cluster.minor = Minor(60);
        }),
        (Check::Version, Warned, "1.35.2 is not among the tags", aws, |fixture| {
            fixture.spec(json!({"provider": "aws", "image": {"version": "1.35.2", "registryMirror": "mirror:5000"}}));
        }),
        (Check::AdditionalCcms, Refused, "runs in the CloudControllerManager older (provider aws)", aws, |fixture| {
            let spec = json!({"provider": "aws", "ports": {"secure": 10300}});
            fixture.others.push((asked("older", spec), true, None));
        }),
        (Check::OtherCcm, Refused, "pod kube-system/foreign runs cloudNode", aws, |fixture| {
            fixture.snapshot.pods = vec![ccm(&["--controllers=cloud-node", "--secure-port=0"])];
        }),
        (
            Check::OtherCcm,
            Refused,
            "the holder elsewhere_1 of the lease kube-system/cloud-controller-manager runs",
            aws,
            |fixture| {
                fixture.snapshot.leases = vec![lease("cloud-controller-manager", "2026-01-01T00:00:50Z")];
            },
        ),
        (Check::OtherCcm, NotChecked, "forbidden", aws, |fixture| fixture.snapshot.unseen_leases = Some(unseen())),
        (Check::AdditionalCcms, Refused, "runs in the CloudControllerManager younger", aws, |fixture| {
            let runs = asked("younger", json!({"provider": "aws"}));
            let asks = json!({"provider": "aws", "controllers": only_routes(), "network": {"podCIDRs": ["10.0.0.0/8"]}, "ports": {"secure": 1}});
            fixture.others.push((asked("younger", asks), false, Some(runs)));
        }),
        // The remaining pod of a cloud-controller-manager that is being removed.
        (Check::OtherCcm, Refused, "pod kube-system/foreign runs cloudNode", aws, |fixture| {
            let removed = json!({"provider": "aws", "management": "Removed"});
            fixture.others.push((asked("removed", removed), true, None));
            fixture.snapshot.pods = vec![ours(ccm(&["--controllers=*", "--secure-port=0"]), "removed")];
        }),
        (Check::OtherCcm, Refused, "of the lease kube-system/cloud-controller-manager-removed", aws, |fixture| {
            let removed = json!({"provider": "aws", "management": "Removed"});
            fixture.others.push((asked("removed", removed), true, None));
            fixture.snapshot.leases = vec![lease("cloud-controller-manager-removed", "2026-01-01T00:01:00Z")];
        }),
        // A chart's manifest may use the same ServiceAccount.
        (Check::OtherCcm, Warned, "by its name, pod kube-system/foreign runs cloudNode", aws, |fixture| {
            fixture.snapshot.pods = vec![ccm(&["--secure-port=0"])];
        }),
        (Check::OtherCcm, Refused, "pod kube-system/foreign runs cloudNode", aws, |fixture| {
            let image = "digitalocean/digitalocean-cloud-controller-manager:v0.1.68";
            let arguments = ["--leader-elect=false", "--secure-port=0"];
            fixture.snapshot.pods = vec![pod("foreign", &json!({"name": "ccm", "image": image, "args": arguments}))];
        }),
        // The pod was deleted, and its node is dead.
        (
            Check::OtherCcm,
            Warned,
            "pod kube-system/foreign (being deleted on node old, whose kubelet does not report) ran cloudNode",
            aws,
            |fixture| fixture.snapshot.pods = vec![leaving("old")],
        ),
        (Check::OtherCcm, Refused, "pod kube-system/foreign (being deleted) runs cloudNode", aws, |fixture| {
            fixture.snapshot.pods = vec![leaving("ip-10-0-0-1.ec2.internal")];
        }),
        (Check::OtherCcm, Refused, "pod kube-system/foreign (being deleted) runs cloudNode", aws, |fixture| {
            let holder = "old_1".into();
            fixture.snapshot.leases =
                vec![Lease { holder, ..lease("cloud-controller-manager", "2026-01-01T00:01:00Z") }];
            fixture.snapshot.pods = vec![leaving("old")];
        }),
        // It is unknown whether the pod leads.
        (Check::OtherCcm, Refused, "pod kube-system/foreign (being deleted) runs cloudNode", aws, |fixture| {
            (fixture.snapshot.pods, fixture.snapshot.unseen_leases) = (vec![leaving("old")], Some(unseen()));
        }),
        // A pod that leads is a cloud-controller-manager.
        (Check::OtherCcm, Refused, "pod kube-system/foreign runs cloudNode", aws, |fixture| {
            fixture.snapshot.pods = vec![ccm(&["--secure-port=0"])];
            let holder = "ip-10-0-0-1_1".into();
            fixture.snapshot.leases =
                vec![Lease { holder, ..lease("cloud-controller-manager", "2026-01-01T00:01:00Z") }];
        }),
        (Check::OtherCcm, Warned, "pod kube-system/foreign runs cloudNode", aws, |fixture| {
            fixture.ccm.skips = vec!["other-ccm".into()];
            fixture.snapshot.pods = vec![ccm(&["--controllers=cloud-node", "--secure-port=0"])];
        }),
        (Check::OtherCcm, NotChecked, "forbidden", aws, |fixture| {
            fixture.is_installed = Err(unseen());
            fixture.snapshot.leases = vec![lease("cloud-controller-manager", "2026-01-01T00:01:00Z")];
        }),
        (Check::Ports, Warned, "10258 of pod kube-system/web", aws, |fixture| {
            fixture.snapshot.pods = vec![pod("web", &json!({"image": "web", "ports": [{"containerPort": 10258}]}))];
        }),
        (Check::Ports, Warned, "10258 of pod kube-system/web (being deleted)", aws, |fixture| {
            let mut web = pod("web", &json!({"image": "web", "ports": [{"containerPort": 10258}]}));
            web.seen.is_terminating = true;
            fixture.snapshot.pods = vec![web];
        }),
        (Check::Ports, Warned, "10258 of the CloudControllerManager older", aws, |fixture| {
            let only = json!({"cloudNode": "Disabled", "cloudNodeLifecycle": "Disabled"});
            fixture.others.push((asked("older", json!({"provider": "aws", "controllers": only})), true, None));
            fixture.spec(json!({"provider": "aws", "controllers": {"service": "Disabled"}}));
        }),
        (Check::Kubelets, Warned, "neither a providerID nor the taint", aws, |fixture| {
            fixture.nodes()[1].taints.clear();
        }),
        (Check::ProviderIds, Warned, "of another cloud (k3s://): i-0123456789abcdef0", aws, |fixture| {
            fixture.nodes()[1].provider_id = "k3s://a".into();
        }),
        (Check::ProviderIds, Refused, "takes such nodes for gone", vsphere, |fixture| {
            fixture.ccm.spec.controllers.cloud_node_lifecycle = Lifecycle::Enabled;
            fixture.nodes()[1].provider_id = "aws:///a/i-1".into();
        }),
        (Check::Region, Refused, "the region eu-west-1", aws, |fixture| {
            fixture.spec(json!({"provider": "aws", "cloudConfig": {"inline": "[Global]\nRegion = eu-west-1\n"}}));
            let node = &mut fixture.nodes()[1];
            (node.provider_id, node.region) = ("aws:///us-east-1a/i-1".into(), "us-east-1".into());
            node.taints.clear();
        }),
        (Check::NodeNames, Warned, "the private DNS name or the id of the instance: worker", aws, |fixture| {
            fixture.nodes()[1].name = "worker".into();
        }),
        (Check::NodeNames, NotChecked, "the name of the server", hcloud, |fixture| {
            fixture.nodes()[1].provider_id.clear();
            fixture.nodes()[1].taints.push(UNINITIALIZED.into());
        }),
        (Check::NodeIps, Warned, "needs the key network in the Secret", hcloud, |fixture| {
            fixture.nodes()[1].provided_ip = "10.0.0.2".into();
        }),
        (Check::NotReadyNodes, Warned, "would delete these first", hcloud, |fixture| fixture.nodes()[1].ready = None),
        (Check::NotReadyNodes, Refused, "would delete these first", hcloud, |fixture| {
            fixture.nodes()[1].ready = None;
            fixture.ccm.spec.controllers.cloud_node_lifecycle = Lifecycle::Enabled;
        }),
        (Check::ControlPlane, Warned, "no node has the label", hcloud, |fixture| {
            fixture.nodes()[0].is_control_plane = false;
            fixture.ccm.cluster.control_plane_nodes = 0;
        }),
        // For each distribution: its built-in cloud-controller-manager is refused by name.
        (
            Check::OtherCcm,
            Refused,
            "the cloud controller of k3s (on the servers ip-10-0-0-1.ec2.internal) runs cloudNode",
            aws,
            |fixture| {
                fixture.nodes()[0].k3s_controllers = Some("*,-route".into());
                // It also holds a lease.
                fixture.snapshot.leases = vec![lease("k3s-cloud-controller-manager", "2026-01-01T00:01:00Z")];
            },
        ),
        (
            Check::OtherCcm,
            Refused,
            "the cloud controller of k3s (the holder elsewhere_1 of the lease",
            aws,
            |fixture| {
                fixture.snapshot.leases = vec![lease("k3s-cloud-controller-manager", "2026-01-01T00:01:00Z")];
            },
        ),
        (
            Check::OtherCcm,
            Refused,
            "the cloud controller of RKE2 (pod kube-system/cloud-controller-manager-ip-10-0-0-1.ec2.internal) runs cloudNode",
            aws,
            |fixture| {
                fixture.ccm.cluster.distribution = Distribution::Rke2;
                let image =
                    json!({"name": "ccm", "image": "rancher/rke2-cloud-provider:v1", "args": ["--secure-port=0"]});
                fixture.snapshot.pods = vec![pod("cloud-controller-manager-ip-10-0-0-1.ec2.internal", &image)];
            },
        ),
        (Check::OtherCcm, Refused, "the cloud provider of k0s (the holder elsewhere_1 of the lease", aws, |fixture| {
            fixture.ccm.cluster.distribution = Distribution::K0s;
            fixture.snapshot.leases = vec![lease("cloud-controller-manager", "2026-01-01T00:01:00Z")];
        }),
        (Check::ProviderIds, Warned, "written by the cloud provider of k0s, and read by no cloud", aws, |fixture| {
            fixture.nodes()[1].provider_id = "k0s-cloud-provider://a".into();
        }),
        (
            Check::Distribution,
            Warned,
            "spec.distribution is K3s, and the node ip-10-0-0-1.ec2.internal shows Talos",
            aws,
            |fixture| {
                fixture.spec(json!({"provider": "aws", "distribution": "K3s"}));
                fixture.nodes()[0].distribution = Some(Distribution::Talos);
            },
        ),
        (
            Check::ControlPlane,
            Warned,
            "no node of the control plane has the labels of spec.placement.nodeSelector, foo=bar",
            aws,
            |fixture| {
                fixture.spec(json!({"provider": "aws", "placement": {"nodeSelector": {"foo": "bar"}}}));
            },
        ),
        (
            Check::Taints,
            Warned,
            "ip-10-0-0-1.ec2.internal (node-role.kubernetes.io/control-plane=:NoExecute)",
            aws,
            |fixture| {
                let taints = [
                    "node-role.kubernetes.io/control-plane=:NoSchedule",
                    "node-role.kubernetes.io/control-plane=:NoExecute",
                ];
                fixture.nodes()[0].own_taints = taints.map(str::to_owned).into();
            },
        ),
        (Check::Architecture, Refused, "built for amd64, arm64", aws, |fixture| {
            fixture.nodes()[0].architecture = "s390x".into();
        }),
        (Check::Architecture, NotChecked, "own.example/ccm is built for", aws, |fixture| {
            fixture.spec(json!({"provider": "aws", "image": {"repository": "own.example/ccm", "version": "v1.35.0"}}));
        }),
        (Check::Architecture, Warned, "built for amd64, arm64", hcloud_anywhere, |fixture| {
            fixture.nodes()[1].architecture = "s390x".into();
        }),
        (Check::Network, Warned, "no network plugin yet", aws, |fixture| {
            fixture.nodes()[1].ready.as_mut().unwrap().lacks_network = true;
        }),
        (Check::PodCidrs, Warned, "no spec.podCIDR", aws, |fixture| {
            fixture.spec(route(&["10.0.0.0/8"]));
            fixture.nodes()[1].has_pod_cidr = false;
            fixture.snapshot.pods = vec![allocator(&["--cluster-cidr=10.0.0.0/8"])];
        }),
        (Check::PodCidrs, Refused, "subnets of 10.0.0.0/8, not of 10.1.0.0/16", aws, |fixture| {
            fixture.spec(route(&["10.1.0.0/16"]));
            fixture.snapshot.pods = vec![allocator(&["--allocate-node-cidrs=true", "--cluster-cidr=10.0.0.0/8"])];
        }),
        (Check::PodSecurity, Warned, "enforces the level baseline", aws, |fixture| {
            let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
            fixture.snapshot.namespaces.insert("kube-system".into(), Ok(json!({"metadata": {"labels": labels}})));
        }),
        (Check::PodSecurity, Refused, "there is no namespace kube-system", aws, |fixture| {
            fixture.snapshot.namespaces.insert("kube-system".into(), Ok(Value::Null));
        }),
        (Check::PodSecurity, NotChecked, "forbidden", aws, |fixture| {
            fixture.snapshot.namespaces.insert("kube-system".into(), Err(unseen()));
        }),
        (Check::Permissions, Refused, "the operator may not create nodes", aws, |fixture| {
            fixture.missing_permissions = Ok(vec!["create nodes".into()]);
        }),
        (Check::Permissions, NotChecked, "forbidden", aws, |fixture| fixture.missing_permissions = Err(unseen())),
        (Check::Permissions, Warned, "that somebody grants it", aws, |fixture| {
            fixture.missing_permissions = Ok(vec!["create validatingadmissionpolicies".into()]);
        }),
        (Check::DeletionPermission, Refused, "may delete nodes already, by free, other: ", aws, |fixture| {
            fixture.deletion_permission = Ok(Some(vec!["free".into(), "other".into()]));
        }),
        (
            Check::DeletionPermission,
            Refused,
            "aws-cloud-controller-manager may delete nodes already: ",
            aws,
            |fixture| {
                fixture.deletion_permission = Ok(Some(Vec::new()));
            },
        ),
        (Check::DeletionPermission, NotChecked, "forbidden", aws, |fixture| {
            fixture.deletion_permission = Err(unseen());
        }),
    ]
}

fn vsphere() -> Fixture {
    let inline = "global:\n  secretName: vsphere\n  secretNamespace: kube-system\nvcenter:\n  a:\n    server: vc.example\n    datacenters: [dc]\n";
    let spec = json!({
        "provider": "vsphere", "cloudConfig": {"inline": inline}, "credentials": {"secretRef": {"name": "vsphere"}},
    });
    let data = json!({"vc.example.username": "eA==", "vc.example.password": "eA=="});
    let mut fixture = Fixture { ccm: asked("cluster", spec), secret: secret(&data), ..hcloud() };
    fixture.nodes().iter_mut().for_each(|node| node.provider_id = "vsphere://1".into());
    fixture
}

/// Azure with a managed identity, which needs no Secret.
fn azure() -> Fixture {
    let config = json!({"inline": "{\"useManagedIdentityExtension\": true}"});
    let spec = json!({"provider": "azure", "cloudConfig": config});
    let mut fixture = Fixture { ccm: asked("cluster", spec), secret: SourceState::Absent, ..hcloud() };
    fixture.nodes().iter_mut().for_each(|node| node.provider_id = "azure:///subscriptions/1".into());
    fixture
}

/// The control plane is elsewhere.
fn hcloud_anywhere() -> Fixture {
    let mut fixture = hcloud();
    fixture.nodes()[1].is_control_plane = true;
    fixture
}

#[test]
fn a_good_cluster_passes_and_what_cannot_be_known_says_how_to_check_it() {
    for fixture in [aws(), hcloud(), vsphere(), azure(), hcloud_anywhere()] {
        let rows = fixture.rows();
        assert_eq!(failed(&rows), [], "{rows:#?}");
        assert_eq!(rows.iter().map(|row| row.check).collect::<Vec<_>>(), Check::ALL);
        let not_checked = rows.iter().filter(|row| row.result == CheckResult::NotChecked);
        assert!(not_checked.clone().count() >= 2 && not_checked.clone().all(|row| !row.fix.is_empty()), "{rows:#?}");
    }
}

#[test]
fn nodes_that_do_not_exist_have_no_taints_and_no_architecture() {
    let mut fixture = aws();
    fixture.spec(json!({"provider": "aws", "placement": {"nodeSelector": {"foo": "bar"}}}));
    let rows = fixture.rows();
    for check in [Check::Taints, Check::Architecture] {
        let row = rows.iter().find(|row| row.check == check).unwrap();
        assert_eq!(
            (row.result, row.message.as_str()),
            (CheckResult::NotChecked, "no node has the labels that the pods need")
        );
    }
}

#[test]
fn each_check_fails_by_one_change_and_no_other_does() {
    let mut seen = Vec::new();
    for (check, outcome, text, base, change) in cases() {
        let mut fixture = base();
        change(&mut fixture);
        let rows = fixture.rows();
        // Without nodes for the pods, their taints and architectures are not checked.
        let is_dependent = |row: &(Check, CheckResult)| row.0 != check && row.1 == CheckResult::NotChecked;
        let failed: Vec<_> = failed(&rows).into_iter().filter(|row| !is_dependent(row)).collect();
        assert_eq!(failed, [(check, outcome)], "{text}: {rows:#?}");
        let row = rows.iter().find(|row| row.check == check).unwrap();
        assert!(row.message.contains(text), "{}", row.message);
        // The messages of these checks include the fix.
        let in_message = matches!(check, Check::Configuration | Check::Credentials | Check::AdditionalCcms);
        assert!(in_message || !row.fix.is_empty(), "{check:?}");
        seen.push(check);
    }
    let untested: Vec<_> = Check::ALL.iter().filter(|check| !seen.contains(check)).collect();
    assert_eq!(untested, [&Check::AtCloud, &Check::ImagePull, &Check::CredentialsAccepted]);
}

#[test]
fn what_is_well_in_spite_of_its_looks_passes() {
    type Good = fn() -> Fixture;
    type Change = fn(&mut Fixture);
    let changes: &[(Good, Change)] = &[
        // An additional CCM with other controllers, and a younger one.
        (aws, |fixture| fixture.snapshot.pods = vec![ccm(&["--controllers=route", "--secure-port=0"])]),
        (aws, |fixture| fixture.others.push((asked("younger", json!({"provider": "aws"})), false, None))),
        (aws, |fixture| {
            let spec = json!({"provider": "aws", "management": "Removed"});
            fixture.others.push((asked("removed", spec), true, None));
        }),
        // An expired lease, our own lease, the lease of another CloudControllerManager, and the lease of ServiceLB.
        (aws, |fixture| fixture.snapshot.leases = vec![lease("cloud-controller-manager", "2026-01-01T00:00:40Z")]),
        (aws, |fixture| {
            fixture.snapshot.leases = vec![lease("cloud-controller-manager", "2026-01-01T00:01:00Z")];
            fixture.is_installed = Ok(true);
        }),
        (aws, |fixture| {
            fixture.snapshot.leases = vec![lease("cloud-controller-manager-younger", "2026-01-01T00:01:00Z")];
            fixture.others.push((asked("younger", json!({"provider": "aws"})), false, None));
        }),
        (aws, |fixture| {
            fixture.spec(json!({"provider": "aws", "controllers": {"service": "Disabled"}}));
            fixture.snapshot.leases = vec![lease("k3s-cloud-controller-manager", "2026-01-01T00:01:00Z")];
        }),
        (aws, |fixture| {
            fixture.spec(json!({"provider": "aws", "controllers": {"service": "Disabled"}}));
            fixture.nodes()[0].k3s_controllers = Some("*,-route,-cloud-node,-cloud-node-lifecycle".into());
            // From the time before it was turned off.
            fixture.nodes()[1].provider_id = "aws:///a/i-1".into();
            fixture.snapshot.leases = vec![lease("k3s-cloud-controller-manager", "2026-01-01T00:01:00Z")];
        }),
        (aws, |fixture| {
            let off = "-cloud-node,-cloud-node-lifecycle,-service";
            fixture.nodes()[0].k3s_controllers = Some(format!("*,-route,{off}"));
        }),
        // The CCM of k0s has no controller for Services, and this CCM uses another lease.
        (aws, |fixture| {
            let spec = json!({
                "provider": "aws", "leaderElection": {"leaseName": "own"},
                "controllers": {"cloudNode": "Disabled", "cloudNodeLifecycle": "Disabled"},
            });
            fixture.spec(spec);
            fixture.ccm.cluster.distribution = Distribution::K0s;
            fixture.snapshot.leases = vec![lease("cloud-controller-manager", "2026-01-01T00:01:00Z")];
        }),
        // The taints of the distributions, and one on another node.
        (aws, |fixture| {
            fixture.nodes()[0].own_taints = DISTRIBUTION_TAINTS.map(str::to_owned).into();
            fixture.nodes()[1].own_taints = vec!["dedicated=gpu:NoSchedule".into()];
        }),
        (aws, |fixture| {
            let tolerations =
                json!([{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}]);
            fixture.spec(json!({"provider": "aws", "placement": {"tolerations": tolerations}}));
            fixture.nodes()[0].own_taints = vec!["dedicated=gpu:NoSchedule".into()];
        }),
        // kube-proxy runs, but no network plugin yet.
        (aws, |fixture| {
            fixture.snapshot.has_kube_proxy = true;
            fixture.nodes()[0].ready.as_mut().unwrap().lacks_network = true;
        }),
        // The control plane is elsewhere, and the placement selects the nodes of the pods.
        (aws, |fixture| {
            fixture.spec(json!({"provider": "aws", "placement": {"nodeSelector": {"ccm": "here"}}}));
            fixture.ccm.cluster.control_plane_nodes = 0;
            fixture.nodes()[0].is_control_plane = false;
            fixture.nodes()[0].labels.insert("ccm".into(), "here".into());
        }),
        // One of its own pods.
        (aws, |fixture| {
            fixture.snapshot.pods = vec![ours(ccm(&["--cloud-provider=aws"]), "cluster")];
        }),
        // One of its own pods still holds its lease, although the workload is gone.
        (aws, |fixture| {
            fixture.snapshot.pods = vec![ours(ccm(&["--cloud-provider=aws"]), "cluster")];
            let holder = "ip-10-0-0-1_1".into();
            fixture.snapshot.leases =
                vec![Lease { holder, ..lease("cloud-controller-manager", "2026-01-01T00:01:00Z") }];
        }),
        // A port on a node that the pods do not run on.
        (aws, |fixture| {
            let mut pod = ccm(&[]);
            (pod.seen.node, pod.controllers) = ("i-0123456789abcdef0".into(), None);
            fixture.snapshot.pods = vec![pod];
        }),
        // A subnet that is not allocated yet.
        (aws, |fixture| {
            fixture.spec(route(&["10.0.0.0/8"]));
            fixture.nodes()[1].has_pod_cidr = false;
            fixture.snapshot.pods = vec![allocator(&["--allocate-node-cidrs=true", "--cluster-cidr=10.0.0.0/8"])];
        }),
        // Deletion is disabled, and a waiting node may stay unready for a long time.
        (hcloud, |fixture| {
            fixture.nodes()[1].ready = None;
            fixture.ccm.spec.controllers.cloud_node_lifecycle = Lifecycle::Disabled;
        }),
        (aws, |fixture| fixture.nodes()[1].ready = None),
        // The plan selects the architecture.
        (vsphere, |fixture| {
            let mut other = fixture.nodes()[0].clone();
            other.architecture = "arm64".into();
            fixture.nodes().push(other);
        }),
        (aws, |fixture| {
            fixture.ccm.cluster.distribution = Distribution::Rke2;
            fixture.nodes()[1].ready.as_mut().unwrap().lacks_network = true;
        }),
    ];
    for (number, (base, change)) in changes.iter().enumerate() {
        let mut fixture = base();
        change(&mut fixture);
        assert_eq!(failed(&fixture.rows()), [], "{number}");
    }
}

#[test]
fn a_node_that_nobody_initializes_counts_where_its_cloud_would_take_it_for_gone() {
    let result = |fixture: Fixture| {
        let rows = fixture.rows();
        let row = rows.into_iter().find(|row| row.check == Check::ProviderIds).unwrap();
        (row.result, row.message)
    };
    for (base, enabled, expected) in [
        (hcloud as fn() -> Fixture, false, CheckResult::Warned),
        (hcloud, true, CheckResult::Refused),
        (vsphere, true, CheckResult::Passed),
    ] {
        let mut fixture = base();
        fixture.nodes()[1].provider_id.clear();
        if enabled {
            fixture.ccm.spec.controllers.cloud_node_lifecycle = Lifecycle::Enabled;
        }
        let (found, message) = result(fixture);
        assert_eq!(found, expected, "{message}");
        assert!(found == CheckResult::Passed || message.contains("without a providerID: i-"), "{message}");
    }
    let mut waits = hcloud();
    waits.nodes()[1].provider_id.clear();
    waits.nodes()[1].taints.push(UNINITIALIZED.into());
    assert_eq!(result(waits).0, CheckResult::Passed);
}

#[test]
fn missing_permissions_name_the_flag_of_the_installation() {
    for (missing, expected) in [
        (
            &["create deployments.apps in namespace elsewhere"][..],
            "aws in --providers, with kube-system in --namespaces",
        ),
        (
            &["get secrets prod", "patch services"],
            "aws in --providers, with its Secret in --secrets, besides those that are there",
        ),
        (&["delete nodes"], "--node-deletion"),
        (
            &["create validatingadmissionpolicies.admissionregistration.k8s.io aws-second", "delete nodes"],
            "aws in --providers, with second in --names, with --node-deletion",
        ),
        (&["patch services", "delete nodes"], "aws in --providers, with --node-deletion"),
    ] {
        let mut fixture = aws();
        if expected.contains("--names") {
            fixture.ccm.name = "second".into();
        }
        fixture.missing_permissions = Ok(missing.iter().map(|need| (*need).to_owned()).collect());
        let rows = fixture.rows();
        let row = rows.iter().find(|row| row.check == Check::Permissions).unwrap();
        assert_eq!(row.fix, format!("install the operator again with {expected}"));
    }
}

#[test]
fn what_passes_for_want_of_a_question_says_so() {
    let said = |fixture: &Fixture, check: Check| {
        let rows = fixture.rows();
        let row = rows.into_iter().find(|row| row.check == check).unwrap();
        assert_eq!(row.result, CheckResult::Passed);
        row.message
    };
    assert_eq!(said(&aws(), Check::Region), "no region is configured");
    assert_eq!(said(&aws(), Check::PodCidrs), "routes are off");
    assert_eq!(said(&hcloud(), Check::AtCloud), "nothing is known to be needed");
    assert_eq!(said(&hcloud(), Check::NodeNames), "no node waits for its initialization");
    let mut waits = aws();
    waits.nodes()[1].ready = None;
    assert!(said(&waits, Check::NotReadyNodes).contains("while they wait for their initialization: i-"));
    waits.nodes = Ok(Vec::new());
    assert_eq!(said(&waits, Check::ProviderIds), "there is no node yet");
}

#[test]
fn unread_nodes_are_not_checked() {
    let mut fixture = aws();
    fixture.nodes = Err(unseen());
    let failed = failed(&fixture.rows());
    assert_eq!(failed.len(), 11, "{failed:?}");
    assert!(failed.iter().all(|(_, outcome)| *outcome == CheckResult::NotChecked), "{failed:?}");
}

#[test]
fn a_line_and_a_screen_name_what_is_wrong_and_what_to_do() {
    let mut fixture = aws();
    fixture.missing_permissions = Ok((0..8).map(|number| format!("get a{number}")).collect());
    let rows = fixture.rows();
    assert_eq!(
        line(&rows, CheckResult::Refused),
        "permissions: the operator may not get a0, get a1, get a2, get a3, get a4 and 3 more: install the operator again with aws in \
         --providers"
    );
    let report = screen::PreflightReport::new("cluster", "aws", rows);
    let text = report.text();
    assert!(!report.passed && text.contains("REFUSED") && text.contains("-> install the operator again"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    let row = json["checks"].as_array().unwrap().iter().find(|row| row["check"] == "permissions").unwrap();
    assert_eq!((&row["result"], &row["reason"]), (&json!("Refused"), &json!("Permissions")));
}

#[test]
fn the_page_describes_each_check() {
    let page = include_str!("../../docs/preflight.md");
    let described: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let missing: Vec<_> = Check::ALL.iter().filter(|check| !described.contains(&check.id())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn no_advice_makes_a_server_leave_etcd_unseen_and_a_node_of_no_cloud_is_fine() {
    let fix = |check: Check, is_etcd: bool, change: fn(&mut Node)| {
        let mut fixture = aws();
        fixture.nodes()[1].is_etcd = is_etcd;
        change(&mut fixture.nodes()[1]);
        let row = fixture.rows().into_iter().find(|row| row.check == check).unwrap();
        assert!(row.result == CheckResult::Passed || !row.fix.is_empty(), "{row:?}");
        row.fix
    };
    let bare = |node: &mut Node| node.taints.clear();
    let other = |node: &mut Node| node.provider_id = "metal://1".into();
    assert!(fix(Check::Kubelets, true, bare).contains("; keep the Nodes of the control plane and of etcd"));
    assert!(!fix(Check::Kubelets, false, bare).contains("etcd"));
    assert!(fix(Check::ProviderIds, true, other).contains("servers one at a time"));
    assert!(!fix(Check::ProviderIds, false, other).contains("etcd"));
    let no_cloud = |node: &mut Node| {
        node.taints.clear();
        (node.has_no_cloud, node.name) = (true, "edge".into());
    };
    assert_eq!(fix(Check::Kubelets, false, no_cloud), "");
    assert_eq!(fix(Check::NodeNames, false, no_cloud), "");
}
