//! Rules about pods: what they use of the node, and their volumes (pure).

use serde_json::Value;

use crate::provider::{
    Error, Phase,
    foreign::Values,
    verify::{
        parts::{Part, Subject, items},
        pods::BOOTSTRAP_HOST_PATHS,
    },
};

/// The types of volumes. Folders of the node have a rule of their own.
const VOLUMES: [&str; 6] = ["configMap", "downwardAPI", "emptyDir", "hostPath", "projected", "secret"];

/// The sources of a projected volume. A token is one of the pod's own account, for whatever audience.
const PROJECTED: [&str; 5] = ["clusterTrustBundle", "configMap", "downwardAPI", "secret", "serviceAccountToken"];

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

pub(super) fn host_namespaces(subject: Subject) -> Values {
    each(subject.pods(), |pod| {
        let used = ["hostPID", "hostIPC"].into_iter().filter(|field| pod.value[field] == true);
        used.map(|field| (format!("/{field}"), field.to_owned(), field.to_owned())).collect()
    })
}

pub(super) fn host_paths(subject: Subject) -> Values {
    each(subject.pods(), |pod| {
        let is_bootstrap = pod.manifest.phase == Phase::Bootstrap;
        let volumes = items(&pod.value["volumes"]).iter().enumerate();
        let paths = volumes.filter_map(|(index, volume)| Some((index, volume.get("hostPath")?["path"].as_str()?)));
        let others = paths.filter(|(_, path)| !(is_bootstrap && BOOTSTRAP_HOST_PATHS.contains(path)));
        let found = others.map(|(index, path)| {
            (format!("/volumes/{index}/hostPath/path"), format!("hostPath {path}"), path.to_owned())
        });
        found.collect()
    })
}

pub(super) fn host_ports(subject: Subject) -> Values {
    each(subject.containers(), |container| {
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

pub(super) fn volumes(subject: Subject) -> Values {
    each(subject.pods(), |pod| {
        let mut found = Vec::new();
        for (index, volume) in items(&pod.value["volumes"]).iter().enumerate() {
            for kind in fields(volume).filter(|field| *field != "name" && !VOLUMES.contains(field)) {
                found.push((format!("/volumes/{index}/{kind}"), kind.to_owned()));
            }
            for (number, source) in items(&volume["projected"]["sources"]).iter().enumerate() {
                for kind in fields(source).filter(|field| !PROJECTED.contains(field)) {
                    let pointer = format!("/volumes/{index}/projected/sources/{number}/{kind}");
                    found.push((pointer, format!("projected {kind}")));
                }
            }
        }
        found.into_iter().map(|(pointer, value)| (pointer, format!("a volume of the type {value}"), value)).collect()
    })
}

/// The names of the fields that are set.
pub(super) fn fields(value: &Value) -> impl Iterator<Item = &str> {
    value.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()).map(|(name, _)| name.as_str())
}
