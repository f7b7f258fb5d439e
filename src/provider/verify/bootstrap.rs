//! Rules about the static pods of the bootstrap VM (pure).

use crate::provider::verify::{Violation, containers, pods};
use crate::provider::{
    Phase,
    folder::{Bundle, Payload},
};

/// Where the bootstrap VM has its kubeconfig.
pub(super) const SECRETS: &str = "/etc/kubernetes/bootstrap-secrets";

pub(super) fn static_pods(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let manifests = bundle.manifests.iter().filter(|manifest| manifest.phase == Phase::Bootstrap);
    let others = manifests.filter_map(|manifest| {
        let (kind, namespace) = (manifest.object.kind().kind, manifest.object.namespace());
        if kind != "Pod" {
            return Some(manifest.violation("/kind", format!("a {kind} in bootstrap/")));
        }
        let what = || format!("the static Pod is in namespace {namespace}, not in kube-system");
        (namespace != "kube-system").then(|| manifest.violation("/metadata/namespace", what()))
    });
    others.collect()
}

pub(super) fn service_account(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let named = pods::of_bootstrap(bundle).filter(|pods| !pods.spec["serviceAccountName"].is_null());
    named.map(|pods| pods.violation("/serviceAccountName", "a static Pod names a ServiceAccount")).collect()
}

pub(super) fn controllers(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    flag_must_be(bundle, "--controllers", "cloud-node")
}

pub(super) fn leader_election(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    flag_must_be(bundle, "--leader-elect", "false")
}

fn flag_must_be(bundle: &Bundle, flag: &str, wanted: &str) -> Vec<Violation> {
    let other = containers::ccms(bundle, Phase::Bootstrap).filter_map(|ccm| {
        let (pointer, value) = ccm.flag(flag).unzip();
        let value = value.unwrap_or("missing");
        let what = || format!("{flag} is {value}, not {wanted}");
        (value != wanted).then(|| ccm.violation(pointer.as_deref().unwrap_or("/args"), what()))
    });
    other.collect()
}

pub(super) fn kubeconfig(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let without = containers::ccms(bundle, Phase::Bootstrap).filter_map(|ccm| {
        let Some((pointer, path)) = ccm.flag("--kubeconfig") else {
            return Some(ccm.violation("/args", "--kubeconfig is missing"));
        };
        let mounted = ccm.volume_at(path).is_some_and(|(volume, _)| volume["hostPath"]["path"] == SECRETS);
        let what = || format!("--kubeconfig {path} is not below a mount of hostPath {SECRETS}");
        (!mounted).then(|| ccm.violation(&pointer, what()))
    });
    without.collect()
}

pub(super) fn port(bundle: &Bundle, _: Option<&Payload>) -> Vec<Violation> {
    let same = containers::ccms(bundle, Phase::Bootstrap).filter_map(|ccm| {
        let (pointer, value) = ccm.flag("--secure-port").unzip();
        // Without the flag it is the default.
        let taken = value.is_none_or(|value| value == "10258");
        taken.then(|| ccm.violation(pointer.as_deref().unwrap_or("/args"), "--secure-port is 10258, as in the cluster"))
    });
    same.collect()
}
