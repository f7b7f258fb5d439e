//! Rules about containers: their names, arguments, probes, resources and rights (pure).

use serde_json::Value;

use crate::provider::verify::{
    Violation,
    pods::{self, Pods, items},
};
use crate::{
    object::container_name,
    provider::{
        Phase,
        folder::{Bundle, Payload},
    },
};

/// The name of the CCM's container.
const CCM: &str = "cloud-controller-manager";
/// The ConfigMap that the operator keeps with the cloud's configuration.
const CLOUD_CONF: &str = "cloud-conf";

/// A container and where it is.
pub(super) struct Container<'a> {
    pods: Pods<'a>,
    value: &'a Value,
    list: &'static str,
    index: usize,
}

impl<'a> Container<'a> {
    fn name(&self) -> &'a str {
        container_name(self.value)
    }

    fn is_init(&self) -> bool {
        self.list == "initContainers"
    }

    /// What is wrong at a JSON pointer of the container.
    pub(super) fn violation(&self, pointer: &str, what: impl Into<String>) -> Violation {
        let what = format!("{}: {}", self.name(), what.into());
        self.pods.violation(&format!("/{}/{}{pointer}", self.list, self.index), what)
    }

    /// The value of a flag, `--flag=value` or in the next argument, and its JSON pointer in the container.
    pub(super) fn flag(&self, flag: &str) -> Option<(String, &'a str)> {
        ["command", "args"].into_iter().find_map(|list| {
            let arguments = items(&self.value[list]);
            arguments.iter().enumerate().find_map(|(index, argument)| {
                let rest = argument.as_str()?.strip_prefix(flag)?;
                let value = match rest.strip_prefix('=') {
                    Some(value) => value,
                    None if rest.is_empty() => arguments.get(index + 1).and_then(Value::as_str).unwrap_or_default(),
                    None => return None,
                };
                Some((format!("/{list}/{index}"), value))
            })
        })
    }

    /// The volume in which a file stands, that of the deepest mount around it, and the file's path there.
    pub(super) fn volume_at(&self, path: &'a str) -> Option<(&'a Value, &'a str)> {
        let mounts = items(&self.value["volumeMounts"]).iter().filter_map(|mount| {
            let rest = path.strip_prefix(mount["mountPath"].as_str()?.trim_end_matches('/'))?;
            Some((rest.strip_prefix('/')?, mount))
        });
        let (file, mount) = mounts.min_by_key(|(file, _)| file.len())?;
        let volume = items(&self.pods.spec["volumes"]).iter().find(|volume| volume["name"] == mount["name"])?;
        Some((volume, file))
    }
}

fn all(bundle: &Bundle) -> impl Iterator<Item = Container<'_>> {
    pods::all(bundle).flat_map(|pods| {
        ["initContainers", "containers"].into_iter().flat_map(move |list| {
            let values = items(&pods.spec[list]).iter().enumerate();
            values.map(move |(index, value)| Container { pods, value, list, index })
        })
    })
}

/// The CCM's containers of one phase.
pub(super) fn ccms(bundle: &Bundle, phase: Phase) -> impl Iterator<Item = Container<'_>> {
    all(bundle).filter(move |one| one.name() == CCM && !one.is_init() && one.pods.manifest.phase == phase)
}

pub(super) fn names(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let images = bundle.descriptor.as_ref().map(|descriptor| &descriptor.images);
    let unknown = all(bundle).filter(|one| images.is_some_and(|images| !images.contains_key(one.name())));
    let unknown = unknown.map(|one| one.violation("/name", "`images` of provider.yaml says nothing of this container"));
    let without = [Phase::Cluster, Phase::Bootstrap].into_iter().filter_map(|phase| {
        let mut pods = pods::all(bundle).filter(|pods| pods.manifest.phase == phase);
        let first = pods.next()?;
        ccms(bundle, phase)
            .next()
            .is_none()
            .then(|| first.violation("/containers", format!("no container is named {CCM}")))
    });
    unknown.chain(without).collect()
}

pub(super) fn requests(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    // An init container has gone before the pod counts: its requests are not added to those of the others.
    let running = all(bundle).filter(|one| !one.is_init());
    let missing = running.flat_map(|one| {
        let absent = ["cpu", "memory"].into_iter().filter(|name| one.value["resources"]["requests"][name].is_null());
        let what = |name| one.violation("/resources/requests", format!("no request of {name}"));
        absent.map(what).collect::<Vec<_>>()
    });
    missing.collect()
}

pub(super) fn no_limits(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let limited = all(bundle).filter(|one| !one.value["resources"]["limits"].is_null());
    limited.map(|one| one.violation("/resources/limits", "the container has limits")).collect()
}

/// Of the CCM alone: a node manager listens on no port unless it is told to, and then needs the rights of a server that
/// checks who asks.
pub(super) fn probes(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let ccms = ccms(bundle, Phase::Cluster).chain(ccms(bundle, Phase::Bootstrap));
    let wrong = ccms.flat_map(|ccm| {
        let of_probe = |probe| {
            let what = probe_problem(&ccm, &ccm.value[probe])?;
            Some(ccm.violation(&format!("/{probe}"), format!("{probe}: {what}")))
        };
        ["startupProbe", "livenessProbe"].into_iter().filter_map(of_probe).collect::<Vec<_>>()
    });
    wrong.collect()
}

fn probe_problem(ccm: &Container, probe: &Value) -> Option<String> {
    let get = &probe["httpGet"];
    if probe.is_null() {
        return Some("missing".to_owned());
    }
    if get["scheme"] != "HTTPS" || get["path"] != "/healthz" {
        return Some("not an HTTPS request of /healthz".to_owned());
    }
    let served = ccm.flag("--secure-port").map_or("10258", |(_, port)| port);
    let named = items(&ccm.value["ports"]).iter().find(|port| port["name"] == get["port"]);
    let asked = named.map_or(&get["port"], |port| &port["containerPort"]);
    let same = asked.as_u64().is_some_and(|port| served.parse() == Ok(port));
    (!same).then(|| format!("port {asked} is not that of --secure-port, {served}"))
}

pub(super) fn cloud_config(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let missing = all(bundle).filter_map(|one| {
        let (pointer, path) = one.flag("--cloud-config")?;
        let what = cloud_config_problem(&one, path)?;
        Some(one.violation(&pointer, format!("--cloud-config {path}: {what}")))
    });
    missing.collect()
}

fn cloud_config_problem<'a>(one: &Container<'a>, path: &'a str) -> Option<String> {
    let Some((volume, file)) = one.volume_at(path) else { return Some("nothing is mounted there".to_owned()) };
    let name = volume["name"].as_str().unwrap_or_default();
    match one.pods.manifest.phase {
        _ if !volume["emptyDir"].is_null() => {
            let filled = fills(one, name);
            (!filled).then(|| format!("no init container writes to the emptyDir {name}"))
        }
        Phase::Bootstrap => {
            volume["hostPath"].is_null().then(|| format!("volume {name} is no folder of the bootstrap VM"))
        }
        Phase::Cluster if volume["configMap"]["name"] != CLOUD_CONF => {
            Some(format!("volume {name} is not ConfigMap {CLOUD_CONF}"))
        }
        Phase::Cluster => {
            let items = items(&volume["configMap"]["items"]);
            // Without items every key is a file.
            let there =
                if items.is_empty() { file == "cloud.conf" } else { items.iter().any(|item| item["path"] == file) };
            (!there).then(|| format!("volume {name} has no file {file}"))
        }
    }
}

/// Whether an init container of the same pod can write to a volume.
fn fills(one: &Container, volume: &str) -> bool {
    let mounts = items(&one.pods.spec["initContainers"]).iter().flat_map(|init| items(&init["volumeMounts"]));
    mounts.into_iter().any(|mount| mount["name"] == volume && mount["readOnly"] != true)
}

pub(super) fn leader_election(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let without = ccms(bundle, Phase::Cluster).filter_map(|ccm| {
        // Without the flag it is on.
        let (pointer, value) = ccm.flag("--leader-elect")?;
        (value == "false").then(|| ccm.violation(&pointer, "--leader-elect is false"))
    });
    without.collect()
}

pub(super) fn read_only_root(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let writable = all(bundle).filter(|one| one.value["securityContext"]["readOnlyRootFilesystem"] != true);
    writable
        .map(|one| one.violation("/securityContext/readOnlyRootFilesystem", "the root file system can be written"))
        .collect()
}

pub(super) fn privilege_escalation(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let wrong = all(bundle).filter_map(|one| {
        let context = &one.value["securityContext"];
        if context["privileged"] == true {
            return Some(one.violation("/securityContext/privileged", "the container is privileged"));
        }
        let what = "allowPrivilegeEscalation is not false";
        (context["allowPrivilegeEscalation"] != false)
            .then(|| one.violation("/securityContext/allowPrivilegeEscalation", what))
    });
    wrong.collect()
}

pub(super) fn capabilities(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let wrong = all(bundle).filter_map(|one| {
        let capabilities = &one.value["securityContext"]["capabilities"];
        if !items(&capabilities["drop"]).iter().any(|name| name == "ALL") {
            return Some(one.violation("/securityContext/capabilities", "not all capabilities are dropped"));
        }
        let added = !items(&capabilities["add"]).is_empty();
        added.then(|| one.violation("/securityContext/capabilities/add", "capabilities are added"))
    });
    wrong.collect()
}

pub(super) fn seccomp(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let without = all(bundle).filter(|one| {
        let profile = |context: &Value| context["securityContext"]["seccompProfile"]["type"].clone();
        // The container's comes before the pod's.
        let (own, of_pod) = (profile(one.value), profile(one.pods.spec));
        let effective = if own.is_null() { of_pod } else { own };
        effective != "RuntimeDefault" && effective != "Localhost"
    });
    without.map(|one| one.violation("/securityContext/seccompProfile", "no seccomp profile")).collect()
}
