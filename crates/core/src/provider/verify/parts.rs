//! The parts of a provider that rules check: pods and containers, each with its place (pure).

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use serde_json::Value;

use crate::{
    error::brief,
    object::{container_name, permissions},
    provider::{
        CCM, Error, Phase,
        folder::{Manifest, ParsedProvider},
        payload::Payload,
    },
};

pub(super) use crate::object::items;

/// The folder of the bootstrap VM with its kubeconfig, and with the keys of the cluster's signers: openshift/cluster-bootstrap copies
/// both there (`pkg/start/bootstrap.go`).
pub(super) const BOOTSTRAP_SECRETS: &str = "/etc/kubernetes/bootstrap-secrets";

/// The kubeconfig in this folder.
pub(super) const BOOTSTRAP_KUBECONFIG: &str = "/etc/kubernetes/bootstrap-secrets/kubeconfig";

/// The cloud's configuration on the bootstrap VM.
pub(super) const BOOTSTRAP_CONFIG: &str = "/etc/kubernetes/bootstrap-configs/cloud.conf";

/// The function of a rule, by the kind of part that it checks.
#[derive(Clone, Copy)]
pub(super) enum Scope {
    /// The whole provider.
    Provider(fn(RuleInput, &mut Defects)),
    /// Every manifest.
    Manifests(fn(RuleInput, &Manifest, &mut Defects)),
    /// Every pod specification.
    Pods(fn(&Part, &mut Defects)),
    /// Every container, init containers first.
    Containers(fn(&Part, &mut Defects)),
    /// Every container that is not an init container.
    Running(fn(&Part, &mut Defects)),
    Ccms(Phase, fn(&Part, &mut Defects)),
}

impl Scope {
    pub(super) fn defects(self, input: RuleInput) -> Vec<(Error, Option<String>)> {
        let mut defects = Defects::default();
        match self {
            Self::Provider(check) => check(input, &mut defects),
            Self::Manifests(check) => input.parsed.manifests.iter().for_each(|one| check(input, one, &mut defects)),
            Self::Pods(check) => input.pods().for_each(|pod| check(&pod, &mut defects)),
            Self::Containers(check) => input.containers().for_each(|one| check(&one, &mut defects)),
            Self::Running(check) => input.running().for_each(|one| check(&one, &mut defects)),
            Self::Ccms(phase, check) => input.ccms(phase).for_each(|ccm| check(&ccm, &mut defects)),
        }
        defects.0
    }
}

/// The defects that a rule has found so far, each with the value that allows it in a policy.
#[derive(Default)]
pub(super) struct Defects(Vec<(Error, Option<String>)>);

impl Defects {
    pub(super) fn add(&mut self, defect: Error) {
        self.0.push((defect, None));
    }

    /// Adds a defect that this value allows in a policy.
    pub(super) fn add_unless(&mut self, value: impl Into<String>, defect: Error) {
        self.0.push((defect, Some(value.into())));
    }
}

/// The input of a rule: a provider, and the install payload if there is one.
#[derive(Clone, Copy)]
pub(super) struct RuleInput<'a> {
    pub(super) parsed: &'a ParsedProvider,
    pub(super) payload: Option<&'a Payload>,
}

/// A pod specification, or a container in one.
#[derive(Clone)]
pub(super) struct Part<'a> {
    pub(super) input: RuleInput<'a>,
    pub(super) manifest: &'a Manifest,
    pub(super) pod: &'a Value,
    /// The container; for a pod, the same as `pod`.
    pub(super) value: &'a Value,
    pub(super) volumes: Rc<Volumes<'a>>,
    pointer: String,
}

/// An index of a pod's volumes, so that a container finds its volumes without a scan.
#[derive(Default)]
pub(super) struct Volumes<'a> {
    pub(super) by_name: BTreeMap<&'a str, &'a Value>,
    /// The names of the volumes that init containers may write to.
    pub(super) filled: BTreeSet<&'a str>,
}

impl<'a> Volumes<'a> {
    fn of(pod: &'a Value) -> Self {
        let mut volumes = Self::default();
        for volume in items(&pod["volumes"]) {
            if let Some(name) = volume["name"].as_str() {
                volumes.by_name.entry(name).or_insert(volume);
            }
        }
        let mounts = items(&pod["initContainers"]).iter().flat_map(|init| items(&init["volumeMounts"]));
        let writable = mounts.filter(|mount| mount["readOnly"] != true);
        volumes.filled = writable.filter_map(|mount| mount["name"].as_str()).collect();
        volumes
    }
}

impl Manifest {
    pub(super) fn is(&self, kind: &str) -> bool {
        self.object.kind().kind == kind
    }

    /// Returns the text at a JSON pointer, empty if there is none.
    pub(super) fn text(&self, pointer: &str) -> &str {
        self.object.value().pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the rules of a role, each with its JSON pointer. An unreadable role is a defect of the folder, and refused as such.
    pub(super) fn rules(&self) -> impl Iterator<Item = (String, permissions::PolicyRule<'_>)> {
        let rules = permissions::rules(self.object.value()).unwrap_or_default();
        rules.into_iter().enumerate().map(|(index, rule)| (format!("/rules/{index}"), rule))
    }

    /// Returns the subjects of a binding, each with its JSON pointer.
    pub(super) fn subjects(&self) -> impl Iterator<Item = (String, &Value)> {
        let subjects = items(&self.object.value()["subjects"]).iter().enumerate();
        subjects.map(|(index, subject)| (format!("/subjects/{index}"), subject))
    }
}

impl<'a> RuleInput<'a> {
    pub(super) fn manifests(self, phase: Phase) -> impl Iterator<Item = &'a Manifest> {
        self.parsed.manifests.iter().filter(move |manifest| manifest.phase == phase)
    }

    pub(super) fn pods(self) -> impl Iterator<Item = Part<'a>> {
        self.parsed.manifests.iter().filter_map(move |manifest| {
            let (pod, pointer) = (manifest.object.pod_spec()?, manifest.object.pod_spec_pointer()?.to_owned());
            Some(Part { input: self, manifest, pod, value: pod, volumes: Rc::new(Volumes::of(pod)), pointer })
        })
    }

    pub(super) fn pods_of(self, phase: Phase) -> impl Iterator<Item = Part<'a>> {
        self.pods().filter(move |pod| pod.manifest.phase == phase)
    }

    /// Returns all containers, including init containers.
    pub(super) fn containers(self) -> impl Iterator<Item = Part<'a>> {
        self.listed("initContainers").chain(self.running())
    }

    /// Returns the containers except init containers.
    pub(super) fn running(self) -> impl Iterator<Item = Part<'a>> {
        self.listed("containers")
    }

    /// Returns the CCM's containers of one phase.
    pub(super) fn ccms(self, phase: Phase) -> impl Iterator<Item = Part<'a>> {
        self.running().filter(move |container| container.name() == CCM && container.manifest.phase == phase)
    }

    fn listed(self, list: &'static str) -> impl Iterator<Item = Part<'a>> {
        self.pods().flat_map(move |pod| {
            let part = move |(index, value)| {
                let (pointer, volumes) = (format!("{}/{list}/{index}", pod.pointer), Rc::clone(&pod.volumes));
                Part { value, volumes, pointer, ..pod }
            };
            items(&pod.pod[list]).iter().enumerate().map(part)
        })
    }
}

impl<'a> Part<'a> {
    /// Returns the container's name, empty for a pod.
    pub(super) fn name(&self) -> &'a str {
        container_name(self.value)
    }

    pub(super) fn kind(&self) -> &'static str {
        self.manifest.object.kind().kind
    }

    /// Whether the part belongs to a Deployment of the running cluster.
    pub(super) fn is_deployment(&self) -> bool {
        self.kind() == "Deployment" && self.manifest.phase == Phase::Cluster
    }

    /// Returns the terms of the pod's node affinity. Its node has to match one of them.
    pub(super) fn affinity_terms(&self) -> &'a [Value] {
        let required = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        items(self.pod.pointer(required).unwrap_or(&Value::Null))
    }

    /// Converts a JSON pointer in the part to one in the manifest.
    pub(super) fn at(&self, pointer: &str) -> String {
        format!("{}{pointer}", self.pointer)
    }

    /// Returns a defect at a JSON pointer in the part.
    pub(super) fn defect(&self, pointer: &str, what: impl Into<String>) -> Error {
        let (name, what) = (self.name(), what.into());
        let what = if name.is_empty() { what } else { format!("{}: {what}", brief(name)) };
        self.manifest.defect(&self.at(pointer), what)
    }

    /// Reports the value at a JSON pointer unless it satisfies the predicate.
    pub(super) fn require(&self, pointer: &str, predicate: fn(&Value) -> bool, what: &str, defects: &mut Defects) {
        if !predicate(self.value.pointer(pointer).unwrap_or(&Value::Null)) {
            defects.add(self.defect(pointer, what));
        }
    }

    /// Reports a flag unless its value, `None` if absent, satisfies the predicate.
    pub(super) fn require_flag(
        &self,
        flag: &str,
        predicate: fn(Option<&str>) -> bool,
        wanted: &str,
        defects: &mut Defects,
    ) {
        let (pointer, value) = self.flag(flag).unzip();
        if !predicate(value) {
            let what = format!("{flag} is {}; it must be {wanted}", brief(value.unwrap_or("missing")));
            defects.add(self.defect(&pointer.unwrap_or_else(|| "/args".to_owned()), what));
        }
    }

    /// Returns the value of a flag, `--flag=value` or in the next argument, and its JSON pointer in the container.
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

    /// Returns the volume of a file in the container, from the deepest mount that contains it, and the file's path in the volume. The path
    /// is empty if a file of the node is mounted directly.
    pub(super) fn volume_at(&self, path: &'a str) -> Option<(&'a Value, &'a str)> {
        let mounts = items(&self.value["volumeMounts"]).iter().filter_map(|mount| {
            let rest = path.strip_prefix(mount["mountPath"].as_str()?.trim_end_matches('/'))?;
            Some((if rest.is_empty() { rest } else { rest.strip_prefix('/')? }, mount))
        });
        let (file, mount) = mounts.min_by_key(|(file, _)| file.len())?;
        let volume = self.volumes.by_name.get(mount["name"].as_str()?)?;
        (!file.is_empty() || volume["hostPath"]["type"] == "File").then_some((volume, file))
    }
}
