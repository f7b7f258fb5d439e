//! Rules about containers: their names, arguments, probes, resources and privileges (pure).

use serde_json::Value;

use crate::provider::{
    CCM, Error, Flavor, Phase,
    kubernetes::Descriptor,
    verify::parts::{BOOTSTRAP_KUBECONFIG, BOOTSTRAP_SECRETS, Input, Part, items, report},
};
use crate::{error::brief, text::suggest::Hints};

/// The ConfigMap that the operator keeps with the cloud's configuration.
const CLOUD_CONF: &str = "cloud-conf";

pub(super) fn names(input: Input) -> Vec<Error> {
    let images = input.parsed.of_openshift().map(|descriptor| &descriptor.images);
    let has_image = |container: &Part| images.is_none_or(|images| images.contains_key(container.name()));
    let unknown = input.containers().filter(|container| !has_image(container));
    let unknown = unknown.map(|container| container.defect("/name", "no entry in `images` of provider.yaml"));
    let phases = [Phase::Cluster, Phase::Bootstrap].into_iter();
    let without = phases.filter(|phase| input.ccms(*phase).next().is_none());
    let first_pods = without.filter_map(|phase| input.pods_of(phase).next());
    unknown.chain(first_pods.map(|pod| pod.defect("/containers", format!("no container is named {CCM}")))).collect()
}

/// Init containers are skipped: the scheduler does not add their requests to those of the other containers.
pub(super) fn requests(input: Input) -> Vec<Error> {
    report(input.running(), |container| {
        let requests = &container.value["resources"]["requests"];
        let absent = ["cpu", "memory"].into_iter().filter(|name| requests[name].is_null());
        absent.map(|name| ("/resources/requests", format!("no request of {name}")))
    })
}

/// For the CCM only: a node manager opens no port by default, and opening one requires the permissions of a server that
/// authenticates its clients.
pub(super) fn probes(input: Input) -> Vec<Error> {
    let ccms = input.ccms(Phase::Cluster).chain(input.ccms(Phase::Bootstrap));
    report(ccms, |ccm| {
        let problem = |probe: &str| {
            let what = probe_problem(ccm, &ccm.value[probe])?;
            Some((format!("/{probe}"), format!("{probe}: {what}")))
        };
        ["startupProbe", "livenessProbe"].map(problem).into_iter().flatten()
    })
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

pub(super) fn cloud_config(input: Input) -> Vec<Error> {
    report(input.containers(), |container| {
        let (pointer, path) = container.flag("--cloud-config")?;
        let what = match (input.parsed.flavor, input.parsed.of_kubernetes()) {
            (Flavor::Kubernetes, Some(descriptor)) => kubernetes_config_problem(container, path, descriptor),
            // Its descriptor cannot be read, which a rule of its own says.
            (Flavor::Kubernetes, None) => None,
            (Flavor::OpenShift, _) => cloud_config_problem(container, path),
        }?;
        Some((pointer, format!("--cloud-config {}: {what}", brief(path))))
    })
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

/// The operator gives the volume of this name its source.
fn kubernetes_config_problem(container: &Part, path: &str, descriptor: &Descriptor) -> Option<String> {
    let Some(config) = &descriptor.cloud_config else {
        return Some("`cloudConfig` is missing in provider.yaml".to_owned());
    };
    let found = container.volume_at(path).map(|(volume, file)| (volume["name"].as_str().unwrap_or_default(), file));
    let is_there = found == Some(("cloud-config", config.file.as_str()));
    (!is_there).then(|| format!("volume cloud-config with the file {} is not mounted there", config.file))
}

pub(super) fn volume_mounts(input: Input) -> Vec<Error> {
    let hints = Hints::default();
    report(input.containers(), |container| {
        let volumes = &container.volumes.by_name;
        let mounts = items(&container.value["volumeMounts"]).iter().enumerate();
        let missing = mounts.filter_map(|(index, mount)| {
            let name = mount["name"].as_str().filter(|name| !volumes.contains_key(name))?;
            let hint = hints.of(name, volumes.keys().copied());
            let what = format!("the pod has no volume {:?}{hint}", brief(name));
            Some((format!("/volumeMounts/{index}/name"), what))
        });
        missing.collect::<Vec<_>>()
    })
}

pub(super) fn privilege_escalation(input: Input) -> Vec<Error> {
    report(input.containers(), |container| {
        let context = &container.value["securityContext"];
        if context["privileged"] == true {
            return Some(("/securityContext/privileged", "the container is privileged"));
        }
        let is_allowed = context["allowPrivilegeEscalation"] != false;
        is_allowed.then_some(("/securityContext/allowPrivilegeEscalation", "allowPrivilegeEscalation is not false"))
    })
}

pub(super) fn capabilities(input: Input) -> Vec<Error> {
    report(input.containers(), |container| {
        let capabilities = &container.value["securityContext"]["capabilities"];
        if !items(&capabilities["drop"]).iter().any(|name| name == "ALL") {
            return Some(("/securityContext/capabilities/drop", "not all capabilities are dropped"));
        }
        let has_added = !items(&capabilities["add"]).is_empty();
        has_added.then_some(("/securityContext/capabilities/add", "capabilities are added"))
    })
}

pub(super) fn seccomp<'a>(input: Input<'a>) -> Vec<Error> {
    report(input.containers(), |container| {
        // The container's profile overrides the pod's.
        let profile = |value: &'a Value| value["securityContext"]["seccompProfile"]["type"].as_str();
        let profile = profile(container.value).or_else(|| profile(container.pod));
        let is_safe = matches!(profile, Some("RuntimeDefault" | "Localhost"));
        (!is_safe).then_some(("/securityContext/seccompProfile", "no seccomp profile"))
    })
}

pub(super) fn bootstrap_kubeconfig(input: Input) -> Vec<Error> {
    report(input.ccms(Phase::Bootstrap), |ccm| {
        let Some((pointer, path)) = ccm.flag("--kubeconfig") else {
            return Some(("/args".to_owned(), "--kubeconfig is missing".to_owned()));
        };
        let is_mounted = ccm.volume_at(path).is_some_and(|(volume, file)| {
            let host_path = &volume["hostPath"]["path"];
            *host_path == BOOTSTRAP_SECRETS || (*host_path == BOOTSTRAP_KUBECONFIG && file.is_empty())
        });
        let what = || format!("--kubeconfig {} is no mount of hostPath {BOOTSTRAP_KUBECONFIG}", brief(path));
        (!is_mounted).then(|| (pointer, what()))
    })
}
