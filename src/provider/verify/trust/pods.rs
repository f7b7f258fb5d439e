//! Rules about pods: their use of the node, and their volumes (pure).

use std::collections::BTreeMap;

use serde_json::Value;

use super::types::unknown_fields;
use crate::{
    error::brief,
    provider::{
        Error, Phase,
        verify::{
            Values,
            parts::{BOOTSTRAP_CONFIG, BOOTSTRAP_KUBECONFIG, Input, Part, items},
        },
    },
    text::yaml::outline::child,
};

/// The files of the bootstrap VM that its pod may read. The folder around the kubeconfig has the keys of the cluster's signers, which
/// outlive the machine.
const BOOTSTRAP_FILES: [&str; 2] = [BOOTSTRAP_CONFIG, BOOTSTRAP_KUBECONFIG];

/// The types of volumes. Folders of the node have a rule of their own.
const VOLUMES: [&str; 6] = ["configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"];

/// The sources of a projected volume.
const PROJECTED: [&str; 5] = ["clusterTrustBundle", "configMap", "downwardAPI", "secret", "serviceAccountToken"];

/// The audiences of a pod's token: none, which is the API server, and the one that OpenShift's clouds trust.
const AUDIENCES: [&str; 2] = ["", "openshift"];

/// The field with the time that a pod may take to end.
const GRACE: &str = "terminationGracePeriodSeconds";

/// The longest time that a pod may take to end, in seconds: until then it acts, whatever has been removed.
const LONGEST_GRACE: f64 = 120.0;

/// What a container may ask its node for.
const RESOURCES: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

/// The fields of a pod. Rules of their own check what they hold.
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

/// The fields of a container.
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

/// Reports the values of each part, as (JSON pointer in the part, text, value).
pub(super) fn each<'a>(
    parts: impl Iterator<Item = Part<'a>>,
    values: impl Fn(&Part<'a>) -> Vec<(String, String, String)>,
) -> Values {
    let of_part = |part: Part<'a>| -> Vec<(Error, String)> {
        let found = values(&part).into_iter();
        found.map(|(pointer, what, value)| (part.defect(&pointer, what), value)).collect()
    };
    parts.flat_map(of_part).collect()
}

pub(super) fn host_namespaces(input: Input) -> Values {
    each(input.pods(), |pod| {
        let used = ["hostPID", "hostIPC"].into_iter().filter(|field| pod.value[field] == true);
        used.map(|field| (format!("/{field}"), field.to_owned(), field.to_owned())).collect()
    })
}

pub(super) fn host_paths(input: Input) -> Values {
    each(input.pods(), |pod| {
        let is_bootstrap = pod.manifest.phase == Phase::Bootstrap;
        let (mut found, mut read_only) = (Vec::new(), BTreeMap::new());
        for (index, volume) in items(&pod.value["volumes"]).iter().enumerate() {
            let host_path = &volume["hostPath"];
            let Some(path) = host_path["path"].as_str() else { continue };
            if is_bootstrap && BOOTSTRAP_FILES.contains(&path) && host_path["type"] == "File" {
                read_only.insert(volume["name"].as_str().unwrap_or_default(), path);
            } else {
                let type_ = if BOOTSTRAP_FILES.contains(&path) { " without type: File" } else { "" };
                let what = format!("hostPath {}{type_}", brief(path));
                found.push((format!("/volumes/{index}/hostPath/path"), what, path.to_owned()));
            }
        }
        found.extend(writable(pod, &read_only));
        found
    })
}

/// The mounts of these volumes, by name, through which a container could write.
fn writable(pod: &Part, read_only: &BTreeMap<&str, &str>) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    for list in ["initContainers", "containers"] {
        for (number, container) in items(&pod.value[list]).iter().enumerate() {
            for (index, mount) in items(&container["volumeMounts"]).iter().enumerate() {
                let path = read_only.get(mount["name"].as_str().unwrap_or_default());
                if let Some(path) = path.filter(|_| mount["readOnly"] != true) {
                    let pointer = format!("/{list}/{number}/volumeMounts/{index}");
                    found.push((
                        pointer,
                        format!("hostPath {path} writable: its mount lacks readOnly: true"),
                        format!("{path} writable"),
                    ));
                }
            }
        }
    }
    found
}

pub(super) fn host_ports(input: Input) -> Values {
    each(input.containers(), |container| {
        // There the API server sets each hostPort to the containerPort.
        if container.pod["hostNetwork"] == true {
            return Vec::new();
        }
        let ports = items(&container.value["ports"]).iter().enumerate();
        // A number with a fraction is one to the API server, too.
        let ports = ports.filter_map(|(index, port)| Some((index, port.get("hostPort").filter(|port| **port != 0)?)));
        ports
            .map(|(index, port)| (format!("/ports/{index}/hostPort"), format!("hostPort {port}"), port.to_string()))
            .collect()
    })
}

pub(super) fn unusual_fields(input: Input) -> Values {
    // A rule of its own refuses what is misspelt.
    let unknown = unknown_fields(input);
    let is_known = |part: &Part, (pointer, ..): &(String, String, String)| {
        unknown.get(&part.manifest.object.key()).is_none_or(|pointers| !pointers.contains(&part.at(pointer)))
    };
    let of_pods = each(input.pods(), |pod| {
        let mut found = others(pod.value, &POD);
        found.retain(|one| is_known(pod, one));
        // A number with a fraction is one to the API server, too.
        if pod.value[GRACE].as_f64().is_some_and(|seconds| seconds > LONGEST_GRACE) {
            let value = format!("{GRACE} {}", pod.value[GRACE]);
            found.push((format!("/{GRACE}"), format!("{value}: more than {LONGEST_GRACE}"), value));
        }
        found
    });
    let of_containers = each(input.containers(), |container| {
        let mut found = others(container.value, &CONTAINER);
        found.retain(|one| is_known(container, one));
        for list in ["limits", "requests"] {
            for name in fields(&container.value["resources"][list]).filter(|name| !RESOURCES.contains(name)) {
                found.push((format!("/resources/{list}"), format!("the resource {}", brief(name)), name.to_owned()));
            }
        }
        if !items(&container.value["resources"]["claims"]).is_empty() {
            found.push(("/resources/claims".to_owned(), "claims of devices".to_owned(), "claims".to_owned()));
        }
        for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
            for way in ["httpGet", "tcpSocket"] {
                let host = container.value[probe][way]["host"].as_str().unwrap_or_default();
                if !matches!(host, "" | "localhost" | "127.0.0.1" | "::1") {
                    let value = format!("host {host}");
                    found.push((format!("/{probe}/{way}/host"), format!("kubelet asks {}", brief(&value)), value));
                }
            }
        }
        found
    });
    of_pods.into_iter().chain(of_containers).collect()
}

/// Whether a field is of no use to anybody with this value.
fn is_default(field: &str, value: &Value) -> bool {
    let is_of_field = [("schedulerName", "default-scheduler"), ("preemptionPolicy", "Never")];
    value == "" || value == false || is_of_field.iter().any(|(name, default)| *name == field && value == default)
}

/// The fields that are not among the usual ones: those of a single value with it.
fn others(part: &Value, usual: &[&str]) -> Vec<(String, String, String)> {
    let of_field = |field: &str| {
        let value = match &part[field] {
            Value::Object(_) | Value::Array(_) => field.to_owned(),
            Value::String(text) => format!("{field} {text}"),
            scalar => format!("{field} {scalar}"),
        };
        (child("", field), format!("the field {}", brief(&value)), value)
    };
    let is_unusual = |field: &&str| !usual.contains(field) && !is_default(field, &part[*field]);
    fields(part).filter(is_unusual).map(of_field).collect()
}

pub(super) fn volumes(input: Input) -> Values {
    each(input.pods(), |pod| {
        let mut found = Vec::new();
        for (index, volume) in items(&pod.value["volumes"]).iter().enumerate() {
            for kind in fields(volume).filter(|field| *field != "name" && !VOLUMES.contains(field)) {
                found.push((child(&format!("/volumes/{index}"), kind), kind.to_owned()));
            }
            for (number, source) in items(&volume["projected"]["sources"]).iter().enumerate() {
                for kind in fields(source).filter(|field| !PROJECTED.contains(field)) {
                    let pointer = child(&format!("/volumes/{index}/projected/sources/{number}"), kind);
                    found.push((pointer, format!("projected {kind}")));
                }
                let audience = source["serviceAccountToken"]["audience"].as_str().unwrap_or_default();
                if !AUDIENCES.contains(&audience) {
                    let pointer = format!("/volumes/{index}/projected/sources/{number}/serviceAccountToken/audience");
                    found.push((pointer, format!("audience {audience}")));
                }
            }
        }
        found.into_iter().map(|(pointer, value)| (pointer, format!("a volume with {}", brief(&value)), value)).collect()
    })
}

/// The names of the fields that are set.
pub(super) fn fields(value: &Value) -> impl Iterator<Item = &str> {
    value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str())
}
