#![allow(clippy::needless_pass_by_value, reason = "a literal reads best where it stands")]

use serde_json::{Value, json};

use super::*;
use crate::facts::{DEFAULT_NAMESPACE, Documents, Settings, images::Images};

const DESCRIPTOR: &str = "\
name: demo
platform: {type: Demo}
images:
  cloud-controller-manager: {key: demo, tag: demo}
  init: {key: init, tag: init}
arguments:
  cloud-controller-manager:
    --cluster-name: infrastructureName
    --feature-gates: {fact: featureGates, optional: true}
    --node-labels: {value: a=b, featureGate: SomeGate}
environment:
  cloud-controller-manager: {SECRET_NAMESPACE: namespace}
";

const MANIFESTS: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: demo, namespace: openshift-cloud-controller-manager}
spec:
  replicas: 2
  template:
    spec:
      initContainers:
      - {name: init, image: built-in}
      containers:
      - name: cloud-controller-manager
        image: built-in
        args: [--leader-elect-resource-namespace=openshift-cloud-controller-manager]
        env: [{name: SECRET_NAMESPACE, value: replaced}]
      volumes:
      - {name: config, configMap: {name: cloud-conf}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: demo, namespace: openshift-cloud-controller-manager}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: demo, namespace: kube-system}
subjects:
- {kind: ServiceAccount, name: a, namespace: openshift-cloud-controller-manager}
- {kind: ServiceAccount, name: b, namespace: kube-system}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: demo}
spec: {expression: request.userInfo.username == 'system:serviceaccount:openshift-cloud-controller-manager:x'}
";

fn catalog() -> Catalog {
    Catalog::new([
        ("assets/demo/provider.yaml", DESCRIPTOR.as_bytes()),
        ("assets/demo/manifests.yaml", MANIFESTS.as_bytes()),
    ])
    .unwrap()
}

fn facts(namespace: &str, status: Value) -> Facts {
    facts_with(namespace, status, Documents::default())
}

fn facts_with(namespace: &str, status: Value, documents: Documents) -> Facts {
    let images = Images::parse(r#"{"demo": "registry/demo", "init": "registry/init"}"#, "images.json");
    let mut all = json!({"platformStatus": {"type": "Demo"}, "infrastructureName": "lab"});
    all.as_object_mut().unwrap().extend(status.as_object().unwrap().clone());
    let infrastructure = serde_json::from_value(json!({ "status": all })).unwrap();
    let settings = Settings { namespace: namespace.to_owned(), ..Settings::default() };
    Facts { images, ..Documents { infrastructure, ..documents }.facts(&settings) }
}

fn plan(facts: &Facts) -> Vec<Object> {
    Plan::new(&catalog(), facts, Phase::Cluster).unwrap().objects().to_vec()
}

fn pod(objects: &[Object]) -> &Value {
    objects.iter().find_map(Object::pod_spec).unwrap()
}

#[test]
fn images_arguments_and_variables_enter_by_container_name() {
    let objects = plan(&facts(DEFAULT_NAMESPACE, json!({})));
    let pod = pod(&objects);
    assert_eq!(pod["initContainers"][0], json!({"name": "init", "image": "registry/init"}));
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry/demo");
    assert_eq!(
        container["args"],
        json!(["--leader-elect-resource-namespace=openshift-cloud-controller-manager", "--cluster-name=lab"]),
        "what has no value or no gate is left out"
    );
    assert_eq!(container["env"], json!([{"name": "SECRET_NAMESPACE", "value": DEFAULT_NAMESPACE}]));
}

#[test]
fn objects_are_in_the_order_of_applying() {
    let objects = plan(&facts(DEFAULT_NAMESPACE, json!({})));
    let kinds: Vec<_> = objects.iter().map(|object| object.kind().kind).collect();
    assert_eq!(kinds, ["ValidatingAdmissionPolicy", "RoleBinding", "PodDisruptionBudget", "Deployment"]);
}

#[test]
fn another_namespace_replaces_the_default_one_everywhere() {
    let objects = plan(&facts("other", json!({})));
    let text = serde_json::to_string(&objects).unwrap();
    assert!(!text.contains(DEFAULT_NAMESPACE), "{text}");
    assert!(text.contains("system:serviceaccount:other:x"), "{text}");
    assert!(text.contains("--leader-elect-resource-namespace=other"), "{text}");
    // Objects for another namespace stay there, and nothing is added.
    assert_eq!(
        objects[1].value(),
        &json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "demo", "namespace": "kube-system"},
            "subjects": [
                {"kind": "ServiceAccount", "name": "a", "namespace": "other"},
                {"kind": "ServiceAccount", "name": "b", "namespace": "kube-system"},
            ],
        })
    );
}

#[test]
fn the_endpoint_and_the_proxy_enter_every_container_but_no_init_container() {
    let proxy = serde_json::from_value(json!({"status": {"httpProxy": "http://p", "noProxy": "x"}})).unwrap();
    let status = json!({"apiServerInternalURI": "https://[fd00::1]:6443"});
    let objects = plan(&facts_with(DEFAULT_NAMESPACE, status, Documents { proxy, ..Documents::default() }));
    let pod = pod(&objects);
    let variable = |name: &str| {
        let variables = pod["containers"][0]["env"].as_array().unwrap();
        variables.iter().find(|variable| variable["name"] == name).map(|variable| variable["value"].clone())
    };
    assert_eq!(variable("KUBERNETES_SERVICE_HOST"), Some(json!("fd00::1")));
    assert_eq!(variable("KUBERNETES_SERVICE_PORT"), Some(json!("6443")));
    assert_eq!(variable("HTTP_PROXY"), Some(json!("http://p")));
    assert_eq!(variable("NO_PROXY"), Some(json!("x")));
    assert_eq!(variable("HTTPS_PROXY"), None);
    assert_eq!(pod["initContainers"][0].get("env"), None);
}

#[test]
fn a_single_node_gets_one_replica_and_no_budget() {
    let objects = plan(&facts(DEFAULT_NAMESPACE, json!({"controlPlaneTopology": "SingleReplica"})));
    assert!(objects.iter().all(|object| object.kind().kind != "PodDisruptionBudget"));
    let deployment = objects.iter().find(|object| object.kind().kind == "Deployment").unwrap();
    assert_eq!(deployment.value()["spec"]["replicas"], 1);
    let policy = objects.iter().find(|object| object.kind().kind == "ValidatingAdmissionPolicy").unwrap();
    assert_eq!(policy.value()["spec"].get("replicas"), None);
    let objects = plan(&facts(DEFAULT_NAMESPACE, json!({})));
    let deployment = objects.iter().find(|object| object.kind().kind == "Deployment").unwrap();
    assert_eq!(deployment.value()["spec"]["replicas"], 2);
}

#[test]
fn a_change_of_what_pods_mount_restarts_them_and_does_nothing_else() {
    let with = |text: &str, facts: Facts| {
        let mounted = reference::Reference::config_map(DEFAULT_NAMESPACE, "cloud-conf");
        let digests = Some(reference::Digests::from([(mounted, text.to_owned())]));
        Plan::new(&catalog(), &Facts { digests, ..facts }, Phase::Cluster).unwrap()
    };
    let usual = || facts(DEFAULT_NAMESPACE, json!({}));
    let (first, second) = (with("a", usual()), with("b", usual()));
    assert_ne!(first, second);
    assert!(only_restarts(second.objects(), first.objects()));
    let annotations = |plan: &Plan| {
        let workload = plan.objects().iter().find(|object| object.kind().kind == "Deployment").unwrap();
        workload.value()["spec"]["template"]["metadata"]["annotations"].as_object().cloned().unwrap_or_default()
    };
    assert!(annotations(&first).contains_key(reference::ANNOTATION));
    let cluster = Plan::new(&catalog(), &usual(), Phase::Cluster).unwrap();
    assert!(annotations(&cluster).is_empty(), "no digests are known without a cluster");

    let renamed = facts(DEFAULT_NAMESPACE, json!({"infrastructureName": "other"}));
    assert!(!only_restarts(with("a", renamed).objects(), first.objects()));
    let single = facts(DEFAULT_NAMESPACE, json!({"controlPlaneTopology": "SingleReplica"}));
    assert!(!only_restarts(with("a", single).objects(), first.objects()), "an object less");
}

#[test]
fn an_error_names_the_missing_value() {
    let error = |facts: &Facts| crate::error::chain(&Plan::new(&catalog(), facts, Phase::Cluster).unwrap_err());
    assert_eq!(
        error(&facts(DEFAULT_NAMESPACE, json!({"infrastructureName": ""}))),
        "Deployment openshift-cloud-controller-manager/demo: argument --cluster-name of container \
         cloud-controller-manager needs the fact infrastructureName, which this cluster does not have"
    );
    let mut without = facts(DEFAULT_NAMESPACE, json!({}));
    without.images = Images::parse("{}", "images.json");
    assert_eq!(
        error(&without),
        "failed to set an image of Deployment openshift-cloud-controller-manager/demo: images in images.json have no \
         key \"demo\": add it with the image of container cloud-controller-manager"
    );
}

#[test]
fn a_feature_gate_enables_its_argument() {
    let feature_gates = vec!["SomeGate".to_owned()];
    let objects = plan(&Facts { feature_gates, ..facts(DEFAULT_NAMESPACE, json!({})) });
    let arguments = pod(&objects)["containers"][0]["args"].to_string();
    assert!(arguments.contains("--node-labels=a=b"), "{arguments}");
    assert!(!arguments.contains("--feature-gates"), "no gate of a cloud-controller-manager: {arguments}");
}

#[test]
fn each_plan_is_new() {
    let (catalog, facts) = (catalog(), facts(DEFAULT_NAMESPACE, json!({})));
    let first = Plan::new(&catalog, &facts, Phase::Cluster).unwrap();
    if let Plan::Objects { mut objects, .. } = first.clone() {
        objects[0].set_label("changed", "x");
    }
    assert_eq!(Plan::new(&catalog, &facts, Phase::Cluster).unwrap(), first);
}

#[test]
fn a_cluster_without_infrastructure_needs_nothing() {
    assert!(matches!(Plan::new(&catalog(), &Facts::default(), Phase::Cluster).unwrap(), Plan::Nothing { .. }));
}
