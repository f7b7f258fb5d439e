//! An object in the words of the contract: each field that counts, by a name that is easy to read.

use super::*;

/// An object in the words of the contract.
pub(super) fn meaning(object: &Object) -> Meaning {
    let value = object.value();
    let mut meaning = Meaning::new();
    let mut say = |key: String, value: Value| drop(meaning.insert(key, value));
    for (prefix, of) in [("label", "labels"), ("annotation", "annotations")] {
        for (name, text) in members(&value["metadata"][of]) {
            say(format!("{prefix}:{name}"), text.clone());
        }
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
        for field in ["replicas", "selector", "strategy", "updateStrategy"] {
            leaves(&format!("spec:/{field}"), &value["spec"][field], &mut say);
        }
        for list in ["initContainers", "containers"] {
            for container in items(&pod[list]) {
                container_meaning(list, container, pod, &mut say);
            }
        }
    } else {
        leaves("/spec", &value["spec"], &mut say);
        leaves("/roleRef", &value["roleRef"], &mut say);
        leaves("/subjects", &value["subjects"], &mut say);
        for rule in items(&value["rules"]) {
            rule_meaning(rule, &mut say);
        }
    }
    meaning
}

fn rule_meaning(rule: &Value, say: &mut impl FnMut(String, Value)) {
    let texts = |field: &str| items(&rule[field]).iter().map(|item| item.as_str().unwrap().to_owned());
    let names = texts("resourceNames").collect::<Vec<_>>().join(",");
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            for verb in texts("verbs") {
                say(format!("rule:{group}/{resource}[{names}] {verb}"), json!(true));
            }
        }
    }
}

fn container_meaning(list: &str, container: &Value, pod: &Value, say: &mut impl FnMut(String, Value)) {
    let prefix = format!("{list}[{}]", container["name"].as_str().unwrap());
    say(format!("{prefix} image"), container["image"].clone());
    say(format!("{prefix} exe"), container["command"][0].clone());
    for argument in items(&container["args"]) {
        // A flag without a value is a Boolean that is set.
        let argument = argument.as_str().unwrap();
        let (name, value) = argument.split_once('=').unwrap_or((argument, "true"));
        say(format!("{prefix} arg:--{}", name.trim_start_matches('-')), json!(value));
    }
    for variable in items(&container["env"]) {
        let field = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str();
        let value = match field {
            Some(path) => json!(format!("{{'fieldRef': {{'apiVersion': 'v1', 'fieldPath': '{path}'}}}}")),
            None => variable["value"].clone(),
        };
        say(format!("{prefix} env:{}", variable["name"].as_str().unwrap()), value);
    }
    for mount in items(&container["volumeMounts"]) {
        let volume = items(&pod["volumes"]).iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        say(format!("{prefix} mount:{}", mount["mountPath"].as_str().unwrap()), json!(source(volume)));
    }
    for (resource, quantity) in members(&container["resources"]["requests"]) {
        say(format!("{prefix} requests/{resource}"), quantity.clone());
    }
    for (resource, quantity) in members(&container["resources"]["limits"]) {
        say(format!("{prefix} limits/{resource}"), quantity.clone());
    }
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let path = &container[probe]["httpGet"]["path"];
        if !path.is_null() {
            say(format!("{prefix} {probe}"), path.clone());
        }
    }
    leaves(&prefix, &container["securityContext"], &mut |path, value| say(path.replacen("]/", "] ", 1), value));
}

/// Where a volume's files come from, and which of them, as `kind name [files]`.
fn source(volume: &Value) -> String {
    let files = |source: &Value| {
        let keys = items(&source["items"])
            .iter()
            .map(|item| format!("('{}', '{}')", item["key"].as_str().unwrap(), item["path"].as_str().unwrap()));
        keys.collect::<Vec<_>>().join(", ")
    };
    if let Some(name) = volume["configMap"]["name"].as_str() {
        return format!("configMap {name} [{}]", files(&volume["configMap"]));
    }
    if let Some(name) = volume["secret"]["secretName"].as_str() {
        return format!("secret {name} [{}]", files(&volume["secret"]));
    }
    if let [source] = items(&volume["projected"]["sources"]) {
        let token = &source["serviceAccountToken"];
        let fields: Vec<_> = members(token).map(|(name, value)| format!("'{name}': {value}")).collect();
        let text = format!("{{'serviceAccountToken': {{{}}}}}", fields.join(", ")).replace('"', "'");
        return format!("projected  [\"{text}\"]");
    }
    assert!(volume["emptyDir"].is_object(), "a source that the contract has no word for: {volume}");
    "emptyDir  []".to_owned()
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

pub(super) fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
