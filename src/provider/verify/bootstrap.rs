//! Rules about the static pods of the bootstrap VM (pure).

use crate::provider::{
    Phase,
    verify::{
        Violation,
        parts::{BOOTSTRAP_SECRETS, Subject},
    },
};

pub(super) fn static_pods(subject: Subject) -> Vec<Violation> {
    let others = subject.manifests(Phase::Bootstrap).filter_map(|manifest| {
        let (kind, namespace) = (manifest.object.kind().kind, manifest.object.namespace());
        if kind != "Pod" {
            return Some(manifest.violation("/kind", format!("a {kind} in bootstrap/")));
        }
        let what = || format!("the static Pod is in namespace {namespace}, not in kube-system");
        (namespace != "kube-system").then(|| manifest.violation("/metadata/namespace", what()))
    });
    others.collect()
}

pub(super) fn kubeconfig(subject: Subject) -> Vec<Violation> {
    let without = subject.ccms(Phase::Bootstrap).filter_map(|ccm| {
        let Some((pointer, path)) = ccm.flag("--kubeconfig") else {
            return Some(ccm.violation("/args", "--kubeconfig is missing"));
        };
        let mounted = ccm.volume_at(path).is_some_and(|(volume, _)| volume["hostPath"]["path"] == BOOTSTRAP_SECRETS);
        let what = || format!("--kubeconfig {path} is not below a mount of hostPath {BOOTSTRAP_SECRETS}");
        (!mounted).then(|| ccm.violation(&pointer, what()))
    });
    without.collect()
}
