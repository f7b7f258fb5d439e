//! The next steps (pure): the commands that lead from the files to initialized nodes, and the commands of a migration
//! and its rollback.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::{
    existing::{Existing, text},
    proposed::ProposedCcm,
};
use crate::{
    facts::{
        OPERATOR_LEASE,
        ccm::{LEASE, ONLY, SKIP_PREFLIGHT, named},
        cluster::Cluster,
    },
    object::{INSTANCE_LABEL, KUBE_SYSTEM, items},
    plan::install::NAME,
    text::{kubectl::Access, shell::quoted},
};

pub(crate) const CCM_FILE: &str = "ccm.yaml";
pub(crate) const SECRET_FILE: &str = "secret.yaml";
/// The file with the previous objects.
pub(crate) const EXISTING_FILE: &str = "existing.yaml";

/// An action of the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    pub(crate) title: String,
    pub(crate) commands: Vec<String>,
}

/// All steps for the user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitSteps {
    pub(crate) next: Vec<Step>,
    /// The rollback of a migration.
    pub(crate) back: Vec<Step>,
    /// The cleanup, once no rollback is needed.
    pub(crate) clean_up: Vec<Step>,
}

/// The permissions of the existing cloud-controller-manager.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Permissions {
    /// The account.
    pub(crate) account: Option<Value>,
    /// The account, and the bindings and roles that only this account uses, or accounts of its controllers.
    pub(crate) objects: Vec<Value>,
    /// Bindings with additional subjects.
    pub(crate) shared: Vec<String>,
    /// The other users of the account. If any exist, the account and its permissions must stay.
    pub(crate) users: Vec<String>,
}

/// The input of the steps.
pub(crate) struct StepsInput<'a> {
    pub(crate) proposed: &'a ProposedCcm,
    pub(crate) cluster: Cluster,
    pub(crate) folder: &'a Path,
    pub(crate) has_operator: bool,
    pub(crate) operator_namespace: &'a str,
    /// Whether the namespace of the proposal exists.
    pub(crate) has_namespace: bool,
    /// The connection flags of the printed commands.
    pub(crate) access: &'a Access,
    /// Other given flags that a migration also accepts; each begins with a space.
    pub(crate) flags: &'a str,
}

/// A flag and its value; `None` if it is not needed.
type Flag = (&'static str, Option<String>);

fn joined(flags: impl IntoIterator<Item = Flag>) -> String {
    let given = flags.into_iter().filter_map(|(flag, value)| Some(format!("{flag} {}", quoted(&value?))));
    given.collect::<Vec<_>>().join(" ")
}

fn step(title: impl Into<String>, commands: impl IntoIterator<Item = String>) -> Step {
    Step { title: title.into(), commands: commands.into_iter().collect() }
}

impl StepsInput<'_> {
    fn file(&self, name: &str) -> String {
        let path = if self.folder == Path::new(".") { name.into() } else { self.folder.join(name) };
        argument(&path.display().to_string())
    }

    fn kubectl(&self) -> String {
        self.access.kubectl()
    }

    fn look(&self) -> Step {
        step("Look at the nodes: none may wait", [format!("ccm-operator nodes{}", self.access.flags())])
    }

    /// Returns the steps for a cluster. If it already has another cloud-controller-manager, the migration comes first.
    pub(crate) fn first(&self, others: &[Existing]) -> InitSteps {
        let migrate = others.first().map(|other| {
            let title = format!("Unless both are to run: migrate from {}, which keeps its settings", other.key());
            let command = format!("ccm-operator init --from-existing{}{}", self.access.flags(), self.flags);
            step(title, [format!("{command} --dest-dir {}", self.file("migration"))])
        });
        let apply = [self.apply("Apply the files"), self.look()];
        InitSteps { next: migrate.into_iter().chain(self.install()).chain(apply).collect(), ..InitSteps::default() }
    }

    /// Returns the Secrets that the operator reads.
    fn secrets(&self) -> Vec<&str> {
        let name = |field: &str| self.proposed.spec[field]["secretRef"]["name"].as_str();
        let mut secrets: Vec<_> = ["credentials", "cloudConfig"].into_iter().filter_map(name).collect();
        secrets.dedup();
        secrets
    }

    /// Returns the step that creates a missing namespace and allows pods on the host network in it.
    fn namespace(&self) -> Option<Step> {
        let (kubectl, name) = (self.kubectl(), quoted(self.proposed.namespace()));
        let commands = [
            format!("{kubectl} create namespace {name}"),
            format!("{kubectl} label namespace {name} pod-security.kubernetes.io/enforce=privileged"),
        ];
        let is_needed = !self.has_namespace && self.proposed.namespace() != KUBE_SYSTEM;
        is_needed.then(|| step("Create the namespace, and allow pods on the network of the host in it", commands))
    }

    fn install(&self) -> Vec<Step> {
        let (secrets, namespace) = (self.secrets(), self.proposed.namespace());
        let mut steps: Vec<_> = self.namespace().into_iter().collect();
        let limits = self.limits();
        if self.has_operator {
            if limits.iter().any(|(_, value)| value.is_some()) {
                let namespace = quoted(self.operator_namespace);
                let shown = "--output=jsonpath='{.spec.template.spec.containers[0].args}{\"\\n\"}'";
                let get = format!("{} --namespace {namespace} get deployment {NAME} {shown}", self.kubectl());
                let title =
                    "The installation has to allow this, beside what it allows already: else install it again with";
                steps.push(step(format!("{title} {}", joined(limits)), [get]));
            }
            let kubectl = self.access.kubectl_as(&format!("system:serviceaccount:{}:{NAME}", self.operator_namespace));
            let ask = |secret: &&str| {
                let secret = quoted(&format!("secrets/{secret}"));
                format!("{kubectl} --namespace {} auth can-i watch {secret}", quoted(namespace))
            };
            let title = format!(
                "The operator has to be allowed to read it: else install it again with --secrets {}, and with the names that this flag \
                 has already, because it replaces all of them",
                quoted(&secrets.join(","))
            );
            if !secrets.is_empty() {
                steps.push(step(title, secrets.iter().map(ask)));
            }
            return steps;
        }
        let of_provider = [
            ("--providers", Some(text(&self.proposed.spec["provider"]))),
            ("--secrets", (!secrets.is_empty()).then(|| secrets.join(","))),
        ];
        let (distribution, operator_namespace) = (self.cluster.distribution.properties(), self.operator_namespace);
        let of_cluster = [
            ("--namespaces", (namespace != KUBE_SYSTEM).then(|| format!("{KUBE_SYSTEM},{namespace}"))),
            ("--operator-namespace", (operator_namespace != NAME).then(|| operator_namespace.to_owned())),
            ("--distribution", distribution.local.is_some().then(|| distribution.flag.to_owned())),
            ("--api-server", self.api_server()),
            ("--control-plane-nodes", (self.cluster.control_plane_nodes == 1).then(|| "1".to_owned())),
        ];
        let flags = joined(of_provider.into_iter().chain(limits).chain(of_cluster));
        let render = format!("ccm-operator render install {flags} --image IMAGE >ccm-operator.yaml");
        let apply = format!("{} apply --server-side -f ccm-operator.yaml", self.kubectl());
        steps.push(step("Install the operator; IMAGE is where you have pushed it", [render, apply]));
        steps
    }

    /// Returns the installation flags that allow the proposal to exceed the default limits.
    fn limits(&self) -> [Flag; 5] {
        let spec = &self.proposed.spec;
        let given = |group: &str, field: &str| spec[group][field].as_str().map(ToOwned::to_owned);
        let secrets: Vec<_> =
            items(&spec["image"]["pullSecrets"]).iter().filter_map(|one| one["name"].as_str()).collect();
        let name = &self.proposed.name;
        let is_default = |lease: &String| *lease == LEASE || *lease == named(LEASE, name);
        [
            ("--names", (name != ONLY).then(|| format!("{ONLY},{name}"))),
            ("--image-repositories", given("image", "repository")),
            ("--registry-mirrors", given("image", "registryMirror")),
            ("--image-pull-secrets", (!secrets.is_empty()).then(|| secrets.join(","))),
            ("--leases", given("leaderElection", "leaseName").filter(|lease| !is_default(lease))),
        ]
    }

    /// Returns the API server address of the pods, which the operator also needs.
    fn api_server(&self) -> Option<String> {
        let address = &self.proposed.spec["placement"]["apiServer"];
        let (host, port) = (address["host"].as_str()?, address["port"].as_u64().unwrap_or(443));
        Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    }

    /// Returns the step that waits for the operator. Without a lease, the old cloud-controller-manager may be stopped only when the
    /// operator can start the new one.
    fn wait_for_operator(&self) -> Step {
        let shown = r#"--output=jsonpath='{.spec.holderIdentity}{" "}{.spec.renewTime}{"\n"}'"#;
        let namespace = quoted(self.operator_namespace);
        let get = format!("{} --namespace {namespace} get lease {OPERATOR_LEASE} {shown}", self.kubectl());
        step("Go on only once the operator runs: its lease has a holder that has renewed it within a minute", [get])
    }

    fn apply(&self, title: &str) -> Step {
        let kubectl = self.kubectl();
        let apply = |file| format!("{kubectl} apply --server-side -f {}", self.file(file));
        let secret = self.proposed.secret.as_ref().map(|_| apply(SECRET_FILE));
        let wait = format!("{kubectl} wait --for=condition=Ready --timeout=5m ccm/{}", self.proposed.name);
        step(title, secret.into_iter().chain([apply(CCM_FILE), wait]))
    }

    /// Returns the steps of the migration and its rollback. The first cloud-controller-manager is the leader.
    pub(crate) fn migration(&self, all: &[Existing], permissions: &Permissions) -> InitSteps {
        let Some(existing) = all.first() else { return InitSteps::default() };
        let (kubectl, name) = (self.kubectl(), &self.proposed.name);
        let mut next = self.install();
        let keepers = all.iter().filter_map(|one| Some((one, one.keeper?)));
        next.extend(keepers.map(|(one, keeper)| {
            step(format!("Tell {keeper} to leave {} alone, or it comes back after it was deleted", one.key()), [])
        }));
        // Several workloads may belong to one release.
        let is_first = |(index, one): &(usize, &Existing)| {
            one.helm.is_none() || all.iter().position(|other| other.helm == one.helm) == Some(*index)
        };
        let each = || all.iter().enumerate().filter(is_first).map(|(_, one)| one);
        let stop = each().map(|one| self.stop(one, all));
        if let Some((namespace, lease)) = existing.lease() {
            let twice = if all.iter().any(|one| one.is_node_manager) {
                ". Only the node managers, which have no lease, both act, each on its own node, until the old one is deleted"
            } else {
                ": nothing acts twice"
            };
            next.push(self.apply(&format!("Apply the files. The new pods start and wait for the lease{twice}")));
            next.extend(stop);
            let (namespace, lease) = (quoted(namespace), quoted(lease));
            let shown = r#"--output=jsonpath='{.spec.holderIdentity}{"\n"}'"#;
            let holder = format!("{kubectl} --namespace {namespace} get lease {lease} {shown}");
            next.push(step("Within about 20 seconds the lease has another holder: a pod of the new one", [holder]));
        } else {
            next.push(self.wait_for_operator());
            next.extend(stop);
            next.push(self.apply("Apply the files: until the new pods run there is no cloud-controller-manager"));
        }
        next.push(self.look());
        let (removed, reason) =
            (r#"{"spec": {"management": "Removed"}}"#, r#"{.status.conditions[?(@.type=="Ready")].reason}"#);
        let namespace = quoted(self.proposed.namespace());
        let remove = step(
            "Remove the new one: where they share a lease the old one gets it within about 20 seconds",
            [
                format!("{kubectl} patch ccm {name} --type=merge --patch='{removed}'"),
                format!("{kubectl} wait --for=jsonpath='{reason}'=Removed --timeout=5m ccm/{name}"),
                // Its objects are deleted before its pods have ended.
                format!(
                    "{kubectl} --namespace {namespace} wait --for=delete pods --selector={INSTANCE_LABEL}={name} --timeout=5m"
                ),
                format!("{kubectl} delete ccm {name}"),
            ],
        );
        let mut back: Vec<_> = each().map(|one| self.start(one)).collect();
        back.insert(if existing.lease().is_some() { back.len() } else { 0 }, remove);
        InitSteps { next, back, clean_up: self.clean_up(existing, permissions) }
    }

    fn start(&self, one: &Existing) -> Step {
        let title = format!("Start {} again", one.key());
        if !one.static_on.is_empty() {
            return step(format!("{title}: put its manifest back on {}", one.static_on.join(", ")), []);
        }
        match &one.helm {
            Some((release, namespace)) => {
                let helm = self.access.helm();
                let (release, namespace) = (quoted(release), quoted(namespace));
                let title = format!("{title}; REVISION is the last one with it, as the first command lists it");
                let history = format!("{helm} history {release} --namespace {namespace}");
                step(title, [history, format!("{helm} rollback {release} REVISION --namespace {namespace}")])
            }
            None => step(title, [format!("{} apply --server-side -f {}", self.kubectl(), self.file(EXISTING_FILE))]),
        }
    }

    fn stop(&self, one: &Existing, all: &[Existing]) -> Step {
        let title = format!("Stop {}", one.key());
        if !one.static_on.is_empty() {
            let nodes = one.static_on.join(", ");
            let how = "take its manifest out of the folder of static pods, such as /etc/kubernetes/manifests (RKE2: \
                       disable-cloud-controller: true), and keep the file";
            return step(format!("{title}: on {nodes} {how}"), []);
        }
        if let Some((release, namespace)) = &one.helm {
            return self.uninstall(&title, (release, namespace), one, all);
        }
        let (namespace, kind, name) = (quoted(&one.namespace), one.kind.to_lowercase(), quoted(&one.name));
        let delete = format!("{} --namespace {namespace} delete {kind} {name} --cascade=foreground", self.kubectl());
        step(format!("{title}; {EXISTING_FILE} has it"), [delete])
    }

    fn uninstall(&self, title: &str, (release, namespace): (&str, &str), one: &Existing, all: &[Existing]) -> Step {
        let helm = self.access.helm();
        let others: Vec<_> = one.of_release.iter().filter(|key| !all.iter().any(|one| one.key() == **key)).collect();
        let names = others.iter().map(|key| key.as_str()).collect::<Vec<_>>().join(", ");
        let release_and_namespace = format!("{} --namespace {}", quoted(release), quoted(namespace));
        let manifest = format!("{helm} get manifest {release_and_namespace}");
        let history = format!("{helm} history {release_and_namespace}");
        let note = self.access.helm_problem().map(|note| format!(". {note}")).unwrap_or_default();
        if !others.is_empty() {
            let how = "turn off only the cloud-controller-manager by the values of the chart: to uninstall the release deletes them, too";
            let title = format!("TO DO: {title}. The Helm release {release} has {names}, too: {how}{note}");
            return step(title, [manifest, history]);
        }
        let uninstall = format!("{helm} uninstall {release_and_namespace} --keep-history --wait --cascade=foreground");
        step(
            format!(
                "{title}, the Helm release {release}. All that the first command shows is deleted: go on only if nothing else \
                 needs it. Note the last revision of the second one for the way back{note}"
            ),
            [manifest, history, uninstall],
        )
    }

    fn clean_up(&self, existing: &Existing, permissions: &Permissions) -> Vec<Step> {
        let mut steps = Vec::new();
        if existing.helm.is_none() && !permissions.objects.is_empty() {
            let delete = |object: &Value| {
                let (kind, metadata) = (text(&object["kind"]).to_lowercase(), &object["metadata"]);
                let namespace = metadata["namespace"].as_str().map(|name| format!(" --namespace {}", quoted(name)));
                let namespace = namespace.unwrap_or_default();
                format!("{}{namespace} delete {kind} {}", self.kubectl(), quoted(&text(&metadata["name"])))
            };
            let title = "Delete the account and the permissions that only the old one had";
            steps.push(step(title, permissions.objects.iter().map(delete)));
        }
        if !permissions.users.is_empty() {
            let title = "Leave the account of the old one, and its permissions, to those who use it, too";
            steps.push(step(format!("{title}: {}", permissions.users.join(", ")), []));
        }
        if !permissions.shared.is_empty() {
            let title = "Take its account out of what others use, too";
            steps.push(step(format!("{title}: {}", permissions.shared.join(", ")), []));
        }
        if self.proposed.skips.is_some() {
            let annotate = format!("{} annotate ccm {} {SKIP_PREFLIGHT}-", self.kubectl(), self.proposed.name);
            let title = format!("Let the next first installation be checked again, in {CCM_FILE}, too");
            steps.push(step(title, [annotate]));
        }
        steps
    }
}

/// Returns a path as an argument that cannot be mistaken for a flag.
pub(crate) fn argument(path: &str) -> String {
    if path.starts_with('-') { quoted(&format!("./{path}")) } else { quoted(path) }
}

#[cfg(test)]
mod tests;
