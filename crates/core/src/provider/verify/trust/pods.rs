//! Rules about pods: their use of the node, and their volumes (pure).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    error::brief,
    provider::{
        Phase,
        folder::Manifest,
        verify::{
            fields::unknown,
            parts::{BOOTSTRAP_CONFIG, BOOTSTRAP_KUBECONFIG, Defects, Part, RuleInput, items},
        },
    },
    text::yaml::outline::child,
};

/// The files of the bootstrap VM that its pod may read. The folder around the kubeconfig has the keys of the cluster's signers, which
/// outlive the machine.
const BOOTSTRAP_FILES: [&str; 2] = [BOOTSTRAP_CONFIG, BOOTSTRAP_KUBECONFIG];

/// The usual types of volumes. Another rule checks folders of the node.
const VOLUMES: [&str; 6] = ["configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"];

/// The usual sources of a projected volume.
const PROJECTED: [&str; 5] = ["clusterTrustBundle", "configMap", "downwardAPI", "secret", "serviceAccountToken"];

/// The usual audiences of a pod's token: empty, which is the API server, and the one that OpenShift's clouds trust.
const AUDIENCES: [&str; 2] = ["", "openshift"];

/// The field with the termination grace period of a pod.
const GRACE_FIELD: &str = "terminationGracePeriodSeconds";

/// The longest termination grace period, in seconds. Until its end the pod acts, even if its objects are removed.
const LONGEST_GRACE: f64 = 120.0;

/// The resources that a container may request of its node.
const RESOURCES: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

/// The usual fields of a pod. Other rules check their values.
const POD: [&str; 21] = [
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "dnsPolicy",
    "enableServiceLinks",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "imagePullSecrets",
    "initContainers",
    "nodeSelector",
    "priorityClassName",
    "restartPolicy",
    "securityContext",
    "serviceAccountName",
    "shareProcessNamespace",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
];

const CONTAINER: [&str; 18] = [
    "args",
    "command",
    "env",
    "envFrom",
    "image",
    "imagePullPolicy",
    "livenessProbe",
    "name",
    "ports",
    "readinessProbe",
    "resources",
    "restartPolicy",
    "securityContext",
    "startupProbe",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeMounts",
    "workingDir",
];

pub(super) fn host_namespaces(pod: &Part, defects: &mut Defects) {
    for field in ["hostPID", "hostIPC"].into_iter().filter(|field| pod.value[field] == true) {
        defects.add_unless(field, pod.defect(&format!("/{field}"), field));
    }
}

pub(super) fn host_paths(pod: &Part, defects: &mut Defects) {
    let is_bootstrap = pod.manifest.phase == Phase::Bootstrap;
    let mut read_only = BTreeMap::new();
    for (index, volume) in items(&pod.value["volumes"]).iter().enumerate() {
        let host_path = &volume["hostPath"];
        let Some(path) = host_path["path"].as_str() else { continue };
        if is_bootstrap && BOOTSTRAP_FILES.contains(&path) && host_path["type"] == "File" {
            read_only.insert(volume["name"].as_str().unwrap_or_default(), path);
        } else {
            let type_ = if BOOTSTRAP_FILES.contains(&path) { " without type: File" } else { "" };
            let problem = format!("hostPath {}{type_}", brief(path));
            defects.add_unless(path, pod.defect(&format!("/volumes/{index}/hostPath/path"), problem));
        }
    }
    // The mounts through which a container could write to these files.
    for list in ["initContainers", "containers"] {
        for (number, container) in items(&pod.value[list]).iter().enumerate() {
            for (index, mount) in items(&container["volumeMounts"]).iter().enumerate() {
                let path = read_only.get(mount["name"].as_str().unwrap_or_default());
                if let Some(path) = path.filter(|_| mount["readOnly"] != true) {
                    let pointer = format!("/{list}/{number}/volumeMounts/{index}");
                    let problem = format!("hostPath {path} writable: its mount lacks readOnly: true");
                    defects.add_unless(format!("{path} writable"), pod.defect(&pointer, problem));
                }
            }
        }
    }
}

pub(super) fn host_ports(container: &Part, defects: &mut Defects) {
    // On the host network, the API server sets each hostPort to the containerPort.
    if container.pod["hostNetwork"] == true {
        return;
    }
    for (index, port) in items(&container.value["ports"]).iter().enumerate() {
        // A number with a fraction is one to the API server, too.
        if let Some(port) = port.get("hostPort").filter(|port| **port != 0) {
            let defect = container.defect(&format!("/ports/{index}/hostPort"), format!("hostPort {port}"));
            defects.add_unless(port.to_string(), defect);
        }
    }
}

pub(super) fn unusual_fields(input: RuleInput, defects: &mut Defects) {
    // Another rule refuses misspelled fields.
    let pointers = |one: &Manifest| unknown(&one.object).into_iter().map(|(pointer, _)| pointer).collect();
    let unknown = input.parsed.manifests.iter().map(|one| (one.object.key(), pointers(one)));
    let unknown: BTreeMap<_, BTreeSet<_>> = unknown.collect();
    let is_known = |part: &Part, pointer: &str| {
        unknown.get(&part.manifest.object.key()).is_none_or(|pointers| !pointers.contains(&part.at(pointer)))
    };
    for pod in input.pods() {
        others(&pod, &POD, is_known, defects);
        // A number with a fraction is one to the API server, too.
        if pod.value[GRACE_FIELD].as_f64().is_some_and(|seconds| seconds > LONGEST_GRACE) {
            let value = format!("{GRACE_FIELD} {}", pod.value[GRACE_FIELD]);
            let problem = format!("{value}: more than {LONGEST_GRACE}");
            defects.add_unless(value, pod.defect(&format!("/{GRACE_FIELD}"), problem));
        }
    }
    for container in input.containers() {
        others(&container, &CONTAINER, is_known, defects);
        let resources = &container.value["resources"];
        for list in ["limits", "requests"] {
            for name in fields(&resources[list]).filter(|name| !RESOURCES.contains(name)) {
                let problem = format!("the resource {}", brief(name));
                defects.add_unless(name, container.defect(&format!("/resources/{list}"), problem));
            }
        }
        if !items(&resources["claims"]).is_empty() {
            defects.add_unless("claims", container.defect("/resources/claims", "claims of devices"));
        }
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            for way in ["httpGet", "tcpSocket"] {
                let host = container.value[probe][way]["host"].as_str().unwrap_or_default();
                if !matches!(host, "" | "localhost" | "127.0.0.1" | "::1") {
                    let value = format!("host {host}");
                    let problem = format!("kubelet asks {}", brief(&value));
                    defects.add_unless(value, container.defect(&format!("/{probe}/{way}/host"), problem));
                }
            }
        }
    }
}

/// Whether a field has no effect with this value.
fn is_default(field: &str, value: &Value) -> bool {
    let is_of_field = [("schedulerName", "default-scheduler"), ("preemptionPolicy", "Never")];
    value == "" || value == false || is_of_field.iter().any(|(name, default)| *name == field && value == default)
}

/// Reports unusual fields, each with its value if that is a scalar.
fn others(part: &Part, usual: &[&str], is_known: impl Fn(&Part, &str) -> bool, defects: &mut Defects) {
    for field in fields(part.value).filter(|field| !usual.contains(field)) {
        let (pointer, value) = (child("", field), &part.value[field]);
        if is_default(field, value) || !is_known(part, &pointer) {
            continue;
        }
        let value = match value {
            Value::Object(_) | Value::Array(_) => field.to_owned(),
            Value::String(text) => format!("{field} {text}"),
            scalar => format!("{field} {scalar}"),
        };
        let problem = format!("the field {}", brief(&value));
        defects.add_unless(value, part.defect(&pointer, problem));
    }
}

pub(super) fn volumes(pod: &Part, defects: &mut Defects) {
    let mut see = |pointer: &str, value: String| {
        let problem = format!("a volume with {}", brief(&value));
        defects.add_unless(value, pod.defect(pointer, problem));
    };
    for (index, volume) in items(&pod.value["volumes"]).iter().enumerate() {
        let at = format!("/volumes/{index}");
        for kind in fields(volume).filter(|field| *field != "name" && !VOLUMES.contains(field)) {
            see(&child(&at, kind), kind.to_owned());
        }
        for (number, source) in items(&volume["projected"]["sources"]).iter().enumerate() {
            let at = format!("{at}/projected/sources/{number}");
            for kind in fields(source).filter(|field| !PROJECTED.contains(field)) {
                see(&child(&at, kind), format!("projected {kind}"));
            }
            let audience = source["serviceAccountToken"]["audience"].as_str().unwrap_or_default();
            if !AUDIENCES.contains(&audience) {
                see(&format!("{at}/serviceAccountToken/audience"), format!("audience {audience}"));
            }
        }
    }
}

/// Returns the names of the fields that are set.
pub(super) fn fields(value: &Value) -> impl Iterator<Item = &str> {
    value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str())
}
