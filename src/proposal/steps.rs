//! What to do next: the commands from the files to nodes that are initialised, and those of a migration and of the way back (pure).

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::{
    draft::Draft,
    existing::{Existing, text},
};
use crate::{
    api::placement::Distribution,
    facts::{cluster::Cluster, manager::SKIP_PREFLIGHT},
    plan::install::NAME,
};

/// The file of the `CloudControllerManager`.
pub const CCM_FILE: &str = "ccm.yaml";
/// The file of the Secret.
pub const SECRET_FILE: &str = "secret.yaml";
/// The file with what there was.
pub const EXISTING_FILE: &str = "existing.yaml";

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What for.
    pub title: String,
    /// The commands.
    pub commands: Vec<String>,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Steps {
    /// In this order.
    pub next: Vec<Step>,
    /// The way back from a migration.
    pub back: Vec<Step>,
    /// Once nobody wants to go back.
    pub clean_up: Vec<Step>,
}

/// The rights of what there was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rights {
    /// The account, and the bindings and roles that only it has.
    pub objects: Vec<Value>,
    /// Bindings that it shares with others.
    pub shared: Vec<String>,
}

/// What the steps depend on.
pub struct Situation<'a> {
    /// What is proposed.
    pub draft: &'a Draft,
    /// The cluster.
    pub cluster: Cluster,
    /// The folder with the files.
    pub folder: &'a Path,
    /// Whether the operator is installed.
    pub has_operator: bool,
    /// Its namespace.
    pub operator_namespace: &'a str,
}

fn step(title: impl Into<String>, commands: impl IntoIterator<Item = String>) -> Step {
    Step { title: title.into(), commands: commands.into_iter().collect() }
}

impl Situation<'_> {
    fn file(&self, name: &str) -> String {
        let path = if self.folder == Path::new(".") { name.into() } else { self.folder.join(name) };
        quoted(&path.display().to_string())
    }

    /// The steps of a cluster; of one that has the cloud-controller-manager of somebody else, first how to migrate.
    pub fn first(&self, others: &[Existing]) -> Steps {
        let mut next: Vec<_> = others
            .first()
            .map(|other| {
                let title =
                    format!("Unless both are to run: migrate from {}, which keeps what it is told", other.key());
                step(title, ["ccm-operator init --from-existing".to_owned()])
            })
            .into_iter()
            .collect();
        next.extend(self.install());
        next.push(self.apply("Apply the files"));
        next.push(look());
        Steps { next, ..Steps::default() }
    }

    /// The Secrets that the operator reads.
    fn secrets(&self) -> Vec<&str> {
        let spec = &self.draft.spec;
        let names = [
            spec.get("credentials").map(|one| &one["secretRef"]["name"]),
            spec.get("cloudConfig").map(|one| &one["secretRef"]["name"]),
        ];
        let mut secrets: Vec<_> = names.into_iter().flatten().filter_map(Value::as_str).collect();
        secrets.dedup();
        secrets
    }

    fn install(&self) -> Vec<Step> {
        let (secrets, namespace) = (self.secrets(), self.draft.namespace());
        if self.has_operator {
            let account = format!("system:serviceaccount:{}:{NAME}", self.operator_namespace);
            let ask = |secret: &&str| {
                format!("kubectl --namespace {namespace} auth can-i watch secrets/{secret} --as={account}")
            };
            let title = format!(
                "The operator has to be allowed to read it: else install it again with --secrets {}",
                secrets.join(",")
            );
            return if secrets.is_empty() { Vec::new() } else { vec![step(title, secrets.iter().map(ask))] };
        }
        let mut flags = Vec::new();
        let mut add = |flag: &str, value: &str| flags.push(format!("{flag} {value}"));
        add("--providers", &text(self.draft.spec.get("provider").unwrap_or(&Value::Null)));
        if !secrets.is_empty() {
            add("--secrets", &secrets.join(","));
        }
        if namespace != "kube-system" {
            add("--namespaces", namespace);
        }
        if self.operator_namespace != NAME {
            add("--operator-namespace", self.operator_namespace);
        }
        match self.cluster.distribution {
            Distribution::K3s | Distribution::Rke2 | Distribution::Talos => {
                add("--distribution", &self.cluster.distribution.name().to_lowercase());
            }
            _ => {}
        }
        if self.cluster.control_plane_nodes == 1 {
            add("--control-plane-nodes", "1");
        }
        let render = "ccm-operator render --phase install --flavour upstream";
        let render = format!("{render} {} --image IMAGE >ccm-operator.yaml", flags.join(" "));
        let apply = "kubectl apply --server-side -f ccm-operator.yaml".to_owned();
        vec![step("Install the operator; IMAGE is where you have pushed it", [render, apply])]
    }

    fn apply(&self, title: &str) -> Step {
        let secret =
            self.draft.secret.as_ref().map(|_| format!("kubectl apply --server-side -f {}", self.file(SECRET_FILE)));
        let rest = [
            format!("kubectl apply --server-side -f {}", self.file(CCM_FILE)),
            format!("kubectl wait --for=condition=Ready --timeout=5m ccm/{}", self.draft.name),
        ];
        step(title, secret.into_iter().chain(rest))
    }

    /// The steps from what there was, the first of which leads, and back.
    pub fn migration(&self, all: &[Existing], rights: &Rights) -> Steps {
        let Some(existing) = all.first() else { return Steps::default() };
        let name = &self.draft.name;
        let mut next = self.install();
        let keepers = all.iter().filter_map(|one| Some((one, one.keeper?)));
        next.extend(keepers.map(|(one, keeper)| {
            step(format!("Tell {keeper} to leave {} alone, or it comes back after it was deleted", one.key()), [])
        }));
        let stop = all.iter().flat_map(stop);
        if let Some((namespace, lease)) = existing.lease() {
            next.push(self.apply("Apply the files. The new pods start and wait for the lease: nothing acts twice"));
            next.extend(stop);
            let holder = format!(
                "kubectl --namespace {namespace} get lease {lease} --output=jsonpath='{{.spec.holderIdentity}}{{\"\\n\"}}'"
            );
            next.push(step("Within about 20 seconds the lease has another holder: a pod of the new one", [holder]));
        } else {
            next.extend(stop);
            next.push(self.apply("Apply the files: until the new pods run there is no cloud-controller-manager"));
        }
        next.push(look());
        let start = all.iter().map(|one| self.start(one));
        let remove = step(
            "Remove the new one: where they share a lease the old one gets it within about 20 seconds",
            [
                format!(
                    "kubectl patch ccm {name} --type=merge --patch='{{\"spec\": {{\"management\": \"Removed\"}}}}'"
                ),
                format!(
                    "kubectl wait --for=jsonpath='{{.status.conditions[?(@.type==\"Ready\")].reason}}'=Removed --timeout=5m ccm/{name}"
                ),
                format!("kubectl delete ccm {name}"),
            ],
        );
        let mut back: Vec<_> = start.collect();
        back.insert(if existing.lease().is_some() { back.len() } else { 0 }, remove);
        Steps { next, back, clean_up: self.clean_up(existing, rights) }
    }

    fn start(&self, one: &Existing) -> Step {
        let title = format!("Start {} again", one.key());
        if !one.static_on.is_empty() {
            return step(format!("{title}: put its manifest back on {}", one.static_on.join(", ")), []);
        }
        match &one.helm {
            Some((release, namespace)) => step(title, [format!("helm rollback {release} --namespace {namespace}")]),
            None => step(title, [format!("kubectl apply --server-side -f {}", self.file(EXISTING_FILE))]),
        }
    }

    fn clean_up(&self, existing: &Existing, rights: &Rights) -> Vec<Step> {
        let mut steps = Vec::new();
        if existing.helm.is_none() && !rights.objects.is_empty() {
            let delete = |object: &Value| {
                let (kind, metadata) = (text(&object["kind"]).to_lowercase(), &object["metadata"]);
                let namespace =
                    metadata["namespace"].as_str().map(|name| format!(" --namespace {name}")).unwrap_or_default();
                format!("kubectl{namespace} delete {kind} {}", quoted(&text(&metadata["name"])))
            };
            steps.push(step(
                "Delete the account and the rights that only the old one had",
                rights.objects.iter().map(delete),
            ));
        }
        if !rights.shared.is_empty() {
            steps.push(step(format!("Take its account out of what others use, too: {}", rights.shared.join(", ")), []));
        }
        if self.draft.skips.is_some() {
            let annotate = format!("kubectl annotate ccm {} {SKIP_PREFLIGHT}-", self.draft.name);
            steps.push(step(
                format!("Let the next first installation be checked again, in {CCM_FILE}, too"),
                [annotate],
            ));
        }
        steps
    }
}

fn look() -> Step {
    step("Look at the nodes: none may wait", ["ccm-operator nodes".to_owned()])
}

fn stop(one: &Existing) -> Vec<Step> {
    let title = format!("Stop {}", one.key());
    if !one.static_on.is_empty() {
        let nodes = one.static_on.join(", ");
        let how = "take its manifest out of the folder of static pods, such as /etc/kubernetes/manifests (RKE2: \
                   disable-cloud-controller: true), and keep the file";
        return vec![step(format!("{title}: on {nodes} {how}"), [])];
    }
    if let Some((release, namespace)) = &one.helm {
        let uninstall = format!("helm uninstall {release} --namespace {namespace} --keep-history --wait");
        return vec![step(format!("{title}, the Helm release {release}"), [uninstall])];
    }
    let (namespace, kind, name) = (&one.namespace, one.kind.to_lowercase(), &one.name);
    let delete = format!("kubectl --namespace {namespace} delete {kind} {name} --cascade=foreground");
    vec![step(format!("{title}; {EXISTING_FILE} has it"), [delete])]
}

/// A word of a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
