//! What the plan makes for AWS, compared by meaning with what the Go operator's objects mean in a cluster
//! (`tests/contract/AWS.json`). Every difference is one that is wanted, and stands here with its reason.

use std::{collections::BTreeMap, fs};

use anyhow::Result;
use ccm_operator::{
    embedded,
    facts::{DEFAULT_NAMESPACE, Sources, images::Images},
    object::Object,
    plan::{Phase, Plan},
};
use serde_json::{Value, json};

use crate::lab::repository;

type Meaning = BTreeMap<String, Value>;

/// What the operator applies to a cluster on AWS.
pub(crate) fn plan_of_aws() -> Result<Plan> {
    let images = Images::parse(r#"{"cloudControllerManagerAWS": "registry.example/ocp/aws-ccm:lab"}"#, "images.json");
    let mut sources = Sources::new(DEFAULT_NAMESPACE, images);
    sources.infrastructure = Some(serde_json::from_value(json!({"status": {
        "platformStatus": {"type": "AWS"},
        "infrastructureName": "lab-x7k2p",
        "controlPlaneTopology": "HighlyAvailable",
        "apiServerInternalURI": "https://api-int.lab.example.com:6443",
    }}))?);
    Ok(Plan::new(&embedded::catalog()?, &sources, Phase::Cluster)?)
}

/// An object in the words of the contract.
fn meaning(object: &Object) -> Meaning {
    let value = object.value();
    let mut meaning = Meaning::new();
    let mut say = |key: String, value: Value| drop(meaning.insert(key, value));
    for (name, label) in members(&value["metadata"]["labels"]) {
        say(format!("label:{name}"), label.clone());
    }
    if let Some(pod) = object.pod_spec() {
        let template = &value["spec"]["template"]["metadata"];
        for (name, label) in members(&template["labels"]) {
            say(format!("podlabel:{name}"), label.clone());
        }
        for (name, annotation) in members(&template["annotations"]) {
            say(format!("podannotation:{name}"), annotation.clone());
        }
        for field in
            ["affinity", "hostNetwork", "nodeSelector", "priorityClassName", "serviceAccountName", "securityContext"]
        {
            leaves(&format!("pod:/{field}"), &pod[field], &mut say);
        }
        for toleration in items(&pod["tolerations"]) {
            let text = |field: &str| toleration[field].as_str().unwrap_or("None").to_owned();
            let seconds =
                toleration["tolerationSeconds"].as_i64().map_or("None".to_owned(), |seconds| seconds.to_string());
            say(format!("toleration:{}/{}/{}/{seconds}", text("key"), text("operator"), text("effect")), json!(true));
        }
        for field in ["replicas", "selector", "strategy"] {
            leaves(&format!("spec:/{field}"), &value["spec"][field], &mut say);
        }
        for container in items(&pod["containers"]) {
            container_meaning(container, pod, &mut say);
        }
    } else {
        leaves("/spec", &value["spec"], &mut say);
    }
    meaning
}

fn container_meaning(container: &Value, pod: &Value, say: &mut impl FnMut(String, Value)) {
    let prefix = format!("containers[{}]", container["name"].as_str().unwrap());
    say(format!("{prefix} image"), container["image"].clone());
    say(format!("{prefix} exe"), container["command"][0].clone());
    for argument in items(&container["args"]) {
        let (name, value) = argument.as_str().unwrap().split_once('=').unwrap();
        say(format!("{prefix} arg:--{}", name.trim_start_matches('-')), json!(value));
    }
    for variable in items(&container["env"]) {
        say(format!("{prefix} env:{}", variable["name"].as_str().unwrap()), variable["value"].clone());
    }
    for mount in items(&container["volumeMounts"]) {
        let volume = items(&pod["volumes"]).iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        let keys: Vec<_> = items(&volume["configMap"]["items"])
            .iter()
            .map(|item| format!("('{}', '{}')", item["key"].as_str().unwrap(), item["path"].as_str().unwrap()))
            .collect();
        let source = match volume["configMap"]["name"].as_str() {
            Some(name) => format!("configMap {name} [{}]", keys.join(", ")),
            None => format!("emptyDir {}", volume["emptyDir"]),
        };
        say(format!("{prefix} mount:{}", mount["mountPath"].as_str().unwrap()), json!(source));
    }
    for (resource, quantity) in members(&container["resources"]["requests"]) {
        say(format!("{prefix} requests/{resource}"), quantity.clone());
    }
}

fn leaves(path: &str, value: &Value, say: &mut impl FnMut(String, Value)) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| leaves(&format!("{path}/{name}"), value, say));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| leaves(&format!("{path}/{index}"), value, say));
        }
        Value::Null => {}
        scalar => say(path.to_owned(), scalar.clone()),
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The wanted differences: the key, what it is with us (`None`: it is not there), and why.
fn wanted() -> Vec<(&'static str, Option<Value>, &'static str)> {
    let own = |key, value, why| (key, Some(value), why);
    let gone = |key, why| (key, None, why);
    let probe = "probed and scraped on the secure port";
    let confined = "confined: no privilege escalation, a read-only root with an emptyDir at /tmp";
    let shell = "no shell and no host path: the API server's endpoint is a fact";
    let tolerated = "control planes are tainted under both names; Cluster API taints as well";
    vec![
        own("containers[cloud-controller-manager] arg:--secure-port", json!("10258"), probe),
        own(
            "containers[cloud-controller-manager] arg:--webhook-secure-port",
            json!("0"),
            "else it binds 10260 for nothing",
        ),
        gone("containers[cloud-controller-manager] mount:/etc/kubernetes", shell),
        own(
            "containers[cloud-controller-manager] env:KUBERNETES_SERVICE_HOST",
            json!("api-int.lab.example.com"),
            shell,
        ),
        own("containers[cloud-controller-manager] env:KUBERNETES_SERVICE_PORT", json!("6443"), shell),
        own("containers[cloud-controller-manager] mount:/tmp", json!("emptyDir {}"), confined),
        own("pod:/securityContext/seccompProfile/type", json!("RuntimeDefault"), confined),
        own("toleration:node-role.kubernetes.io/control-plane/Exists/NoSchedule/None", json!(true), tolerated),
        own("toleration:node.cluster.x-k8s.io/uninitialized/Exists/NoSchedule/None", json!(true), tolerated),
    ]
}

#[test]
fn the_plan_means_what_the_contract_says_but_for_the_wanted_differences() -> Result<()> {
    let text = fs::read_to_string(repository().join("tests/contract/AWS.json"))?;
    let mut contract: BTreeMap<String, Meaning> = serde_json::from_str(&text)?;
    // The ClusterOperator is not planned; what it says is tested where the operator runs.
    contract.retain(|object, _| !object.starts_with("ClusterOperator/"));
    for (key, value, _) in wanted() {
        let deployment =
            contract.get_mut("Deployment/openshift-cloud-controller-manager/aws-cloud-controller-manager").unwrap();
        match value {
            Some(value) => {
                let before = deployment.insert(key.to_owned(), value.clone());
                assert_ne!(before, Some(value), "{key} is no difference any more");
            }
            None => assert!(deployment.remove(key).is_some(), "{key} is no difference any more"),
        }
    }
    let plan = plan_of_aws()?;
    let mut ours: BTreeMap<String, Meaning> = BTreeMap::new();
    for object in plan.objects() {
        let namespace = if object.namespace().is_empty() { "-" } else { object.namespace() };
        ours.insert(format!("{}/{namespace}/{}", object.kind().kind, object.name()), meaning(object));
    }
    assert_eq!(ours.keys().collect::<Vec<_>>(), contract.keys().collect::<Vec<_>>());
    for (object, expected) in &contract {
        let found = &ours[object];
        for (key, value) in expected {
            // The contract was read from a live cluster: what the server fills in need not stand in the manifest.
            let filled_in = ["internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "sessionAffinity"];
            if filled_in.iter().any(|field| key.contains(field)) {
                continue;
            }
            assert_eq!(found.get(key), Some(value), "{object}: {key}");
        }
        let wording = ["/expression", "/message"];
        let more: Vec<_> = found
            .keys()
            .filter(|key| !expected.contains_key(*key) && !wording.iter().any(|field| key.ends_with(field)))
            .collect();
        assert_eq!(more, Vec::<&String>::new(), "{object} says more than the contract");
    }
    Ok(())
}
