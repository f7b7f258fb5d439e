//! Rules about containers: their names, arguments, probes, resources and privileges (pure).

use serde_json::Value;

use crate::provider::{
    CCM, Flavor, Phase,
    kubernetes::Descriptor,
    verify::parts::{BOOTSTRAP_KUBECONFIG, BOOTSTRAP_SECRETS, Defects, Part, RuleInput, items},
};
use crate::{error::brief, text::suggest::Hints};

/// The ConfigMap in which the operator keeps the cloud's configuration.
const CLOUD_CONF: &str = "cloud-conf";

pub(super) fn names(input: RuleInput, defects: &mut Defects) {
    let images = input.parsed.of_openshift().map(|descriptor| &descriptor.images);
    for container in input.containers().filter(|one| images.is_some_and(|images| !images.contains_key(one.name()))) {
        defects.add(container.defect("/name", "no entry in `images` of provider.yaml"));
    }
    for phase in [Phase::Cluster, Phase::Bootstrap] {
        let first = input.pods_of(phase).next();
        if let Some(pod) = first.filter(|_| input.ccms(phase).next().is_none()) {
            defects.add(pod.defect("/containers", format!("no container is named {CCM}")));
        }
    }
}

/// Init containers are skipped: the scheduler does not add their requests to those of the other containers.
pub(super) fn requests(container: &Part, defects: &mut Defects) {
    let requests = &container.value["resources"]["requests"];
    for name in ["cpu", "memory"].into_iter().filter(|name| requests[name].is_null()) {
        defects.add(container.defect("/resources/requests", format!("no request of {name}")));
    }
}

/// For the CCM only: a node manager opens no port by default, and opening one requires the permissions of a server that
/// authenticates its clients.
pub(super) fn probes(container: &Part, defects: &mut Defects) {
    for probe in ["startupProbe", "livenessProbe"].into_iter().filter(|_| container.name() == CCM) {
        if let Some(what) = probe_problem(container, &container.value[probe]) {
            defects.add(container.defect(&format!("/{probe}"), format!("{probe}: {what}")));
        }
    }
}

fn probe_problem(ccm: &Part, probe: &Value) -> Option<String> {
    let get = &probe["httpGet"];
    if probe.is_null() {
        return Some("missing".to_owned());
    }
    if get["scheme"] != "HTTPS" || get["path"] != "/healthz" {
        return Some("not an HTTPS request of /healthz".to_owned());
    }
    let served = ccm.flag("--secure-port").map_or("10258", |(_, port)| port);
    let named = items(&ccm.value["ports"]).iter().find(|port| port["name"] == get["port"]);
    let probed = named.map_or(&get["port"], |port| &port["containerPort"]);
    let same = probed.as_u64().is_some_and(|port| served.parse() == Ok(port));
    (!same).then(|| format!("port {probed} is not that of --secure-port, {served}"))
}

pub(super) fn cloud_config(container: &Part, defects: &mut Defects) {
    let Some((pointer, path)) = container.flag("--cloud-config") else { return };
    let parsed = container.input.parsed;
    let what = match (parsed.flavor, parsed.of_kubernetes()) {
        (Flavor::Kubernetes, Some(descriptor)) => kubernetes_config_problem(container, path, descriptor),
        // Its descriptor cannot be read, which another rule reports.
        (Flavor::Kubernetes, None) => None,
        (Flavor::OpenShift, _) => cloud_config_problem(container, path),
    };
    if let Some(what) = what {
        defects.add(container.defect(&pointer, format!("--cloud-config {}: {what}", brief(path))));
    }
}

fn cloud_config_problem<'a>(container: &Part<'a>, path: &'a str) -> Option<String> {
    let Some((volume, file)) = container.volume_at(path) else { return Some("no volume is mounted there".to_owned()) };
    let name = volume["name"].as_str().unwrap_or_default();
    let is_filled = container.volumes.filled.contains(name);
    let name = brief(name);
    if !volume["emptyDir"].is_null() {
        return (!is_filled).then(|| format!("no init container writes to the emptyDir {name}"));
    }
    if container.manifest.phase == Phase::Bootstrap {
        let what = || format!("volume {name} is not a folder of the bootstrap VM");
        return volume["hostPath"].is_null().then(what);
    }
    if volume["configMap"]["name"] != CLOUD_CONF {
        return Some(format!("volume {name} is not ConfigMap {CLOUD_CONF}"));
    }
    let items = items(&volume["configMap"]["items"]);
    // Without items every key is a file.
    let exists = if items.is_empty() { file == "cloud.conf" } else { items.iter().any(|item| item["path"] == file) };
    (!exists).then(|| format!("volume {name} has no file {file}"))
}

/// Ignores the source, because the operator sets it for the volume of this name.
fn kubernetes_config_problem(container: &Part, path: &str, descriptor: &Descriptor) -> Option<String> {
    let Some(config) = &descriptor.cloud_config else {
        return Some("`cloudConfig` is missing in provider.yaml".to_owned());
    };
    let found = container.volume_at(path).map(|(volume, file)| (volume["name"].as_str().unwrap_or_default(), file));
    let is_there = found == Some(("cloud-config", config.file.as_str()));
    (!is_there).then(|| format!("volume cloud-config with the file {} is not mounted there", config.file))
}

pub(super) fn volume_mounts(input: RuleInput, defects: &mut Defects) {
    let hints = Hints::default();
    for container in input.containers() {
        let volumes = &container.volumes.by_name;
        for (index, mount) in items(&container.value["volumeMounts"]).iter().enumerate() {
            let Some(name) = mount["name"].as_str().filter(|name| !volumes.contains_key(name)) else { continue };
            let hint = hints.of(name, volumes.keys().copied());
            let what = format!("the pod has no volume {:?}{hint}", brief(name));
            defects.add(container.defect(&format!("/volumeMounts/{index}/name"), what));
        }
    }
}

pub(super) fn privilege_escalation(container: &Part, defects: &mut Defects) {
    let context = &container.value["securityContext"];
    if context["privileged"] == true {
        defects.add(container.defect("/securityContext/privileged", "the container is privileged"));
    } else if context["allowPrivilegeEscalation"] != false {
        let pointer = "/securityContext/allowPrivilegeEscalation";
        defects.add(container.defect(pointer, "allowPrivilegeEscalation is not false"));
    }
}

pub(super) fn capabilities(container: &Part, defects: &mut Defects) {
    let capabilities = &container.value["securityContext"]["capabilities"];
    if !items(&capabilities["drop"]).iter().any(|name| name == "ALL") {
        defects.add(container.defect("/securityContext/capabilities/drop", "not all capabilities are dropped"));
    } else if !items(&capabilities["add"]).is_empty() {
        defects.add(container.defect("/securityContext/capabilities/add", "capabilities are added"));
    }
}

/// The container's profile overrides the pod's.
pub(super) fn seccomp(container: &Part, defects: &mut Defects) {
    let profiles =
        [container.value, container.pod].map(|one| one["securityContext"]["seccompProfile"]["type"].as_str());
    if !matches!(profiles[0].or(profiles[1]), Some("RuntimeDefault" | "Localhost")) {
        defects.add(container.defect("/securityContext/seccompProfile", "no seccomp profile"));
    }
}

pub(super) fn bootstrap_kubeconfig(ccm: &Part, defects: &mut Defects) {
    let Some((pointer, path)) = ccm.flag("--kubeconfig") else {
        return defects.add(ccm.defect("/args", "--kubeconfig is missing"));
    };
    let is_mounted = ccm.volume_at(path).is_some_and(|(volume, file)| {
        let host_path = &volume["hostPath"]["path"];
        *host_path == BOOTSTRAP_SECRETS || (*host_path == BOOTSTRAP_KUBECONFIG && file.is_empty())
    });
    if !is_mounted {
        let what = format!("--kubeconfig {} is no mount of hostPath {BOOTSTRAP_KUBECONFIG}", brief(path));
        defects.add(ccm.defect(&pointer, what));
    }
}
