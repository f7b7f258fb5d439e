//! The rules that a provider must keep, each with what it protects from (pure).
//!
//! The API server accepts many manifests that do not do what a cloud-controller-manager (CCM) needs. A rule is a small
//! function over a provider's folder as it was read. This file owns the table of them and what a finding is.

mod bootstrap;
mod containers;
mod folder;
mod pods;
mod scalars;

use serde::Serialize;

use crate::{
    provider::folder::{Bundle, Manifest, Payload},
    text::output::{Failure, Suite, table, wrap},
};

/// A rule.
pub struct Rule {
    /// Its name.
    pub id: &'static str,
    /// What it protects from.
    pub why: &'static str,
    /// How to mend what breaks it.
    pub mend: &'static str,
    check: fn(&Bundle, Option<&Payload>) -> Vec<Violation>,
}

/// A place that breaks a rule.
struct Violation {
    file: String,
    line: u64,
    what: String,
}

/// A rule that a provider breaks, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The provider.
    pub provider: String,
    /// The rule's name.
    pub rule: &'static str,
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// What is wrong there.
    pub what: String,
    /// What the rule protects from.
    pub why: &'static str,
    /// How to mend it.
    pub mend: &'static str,
}

/// What was checked, and what was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The providers that were checked.
    pub providers: Vec<String>,
    /// The rules that were applied.
    pub rules: Vec<&'static str>,
    /// What was found, by provider and rule.
    pub findings: Vec<Finding>,
}

const fn rule(
    id: &'static str,
    why: &'static str,
    mend: &'static str,
    check: fn(&Bundle, Option<&Payload>) -> Vec<Violation>,
) -> Rule {
    Rule { id, why, mend, check }
}

/// Every rule.
pub static RULES: [Rule; 30] = [
    rule(
        "readable",
        "the operator does not start with a folder that it cannot read",
        "do what the message says; docs/adding-a-provider.md has the format",
        folder::readable,
    ),
    rule(
        "ambiguous-scalar",
        "YAML 1.1 and 1.2 read the word as different types: what one tool takes for text is a boolean or a number to another",
        "quote it when it is text, else write true, false or a decimal number",
        folder::ambiguous_scalars,
    ),
    rule(
        "placeholder",
        "nothing replaces it: there is no template language, so it reaches the cluster as it stands",
        "write the value, or let the descriptor set it from a fact",
        folder::placeholders,
    ),
    rule(
        "container-names",
        "images are put in place by the container's name: without its name a container keeps its built-in image",
        "name the CCM's container cloud-controller-manager, and give every container a key and a tag in `images` of provider.yaml",
        containers::names,
    ),
    rule(
        "image-key",
        "without its key in the images ConfigMap the operator ends in a terminal error on that cloud",
        "add the key to manifests/…_01_images.configmap.yaml and the tag to image-references, or correct it in provider.yaml",
        folder::image_keys,
    ),
    rule(
        "credentials-requested",
        "nobody else makes the Secret: without a CredentialsRequest the pod waits for it for ever",
        "add a CredentialsRequest with this secretRef to manifests/",
        folder::credentials,
    ),
    rule(
        "rbac-wildcard",
        "whoever takes over the CCM's node would hold every right that a wildcard covers",
        "list the groups, resources and verbs that the CCM uses",
        folder::rbac_wildcards,
    ),
    rule(
        "namespace",
        "the operator has rights in the managed namespace and in kube-system, and nowhere else",
        "use openshift-cloud-controller-manager, which follows --namespace, or kube-system",
        folder::namespaces,
    ),
    rule(
        "replicas",
        "while the one node with the one replica is away nothing initialises nodes or makes load balancers",
        "set replicas: 2; a single-node cluster gets one by itself",
        pods::replicas,
    ),
    rule(
        "anti-affinity",
        "replicas that share a node go away together with it",
        "add a podAntiAffinity over kubernetes.io/hostname whose labelSelector matches the pod's own labels",
        pods::anti_affinity,
    ),
    rule(
        "priority-class",
        "under pressure a node evicts the pods that initialise nodes, and the cluster cannot recover",
        "set priorityClassName: system-cluster-critical, and system-node-critical where every node runs one",
        pods::priority_class,
    ),
    rule(
        "host-network",
        "a node has no pod network before the cloud's controllers have initialised it",
        "set hostNetwork: true",
        pods::host_network,
    ),
    rule(
        "service-account",
        "the namespace's default ServiceAccount has none of the rights of a CCM",
        "set serviceAccountName, such as cloud-controller-manager",
        pods::service_account,
    ),
    rule(
        "tolerations",
        "only these pods take the taints of new nodes away: kept away by one of them, the installation never ends",
        "add a toleration with operator: Exists and effect: NoSchedule for the taint",
        pods::tolerations,
    ),
    rule(
        "host-path",
        "a file of the host is a way out of the container, and is not there on another cluster",
        "use a ConfigMap, Secret or emptyDir; a bootstrap pod may mount the folders that the bootstrap VM prepares",
        pods::host_paths,
    ),
    rule(
        "requests",
        "without requests the scheduler overbooks the node; clusters refuse workloads of the platform without them",
        "set resources.requests.cpu and .memory",
        containers::requests,
    ),
    rule(
        "no-limits",
        "with a limit the CCM is throttled or killed just when a big cluster needs it",
        "remove resources.limits",
        containers::no_limits,
    ),
    rule(
        "probes",
        "a CCM that hangs is never restarted, or a slow start is taken for one",
        "add a livenessProbe and a startupProbe, both HTTPS on /healthz at the port of --secure-port",
        containers::probes,
    ),
    rule(
        "cloud-config",
        "the CCM ends at once when --cloud-config names a file that is not there",
        "mount ConfigMap cloud-conf (at bootstrap hostPath /etc/kubernetes/bootstrap-configs) at the folder of --cloud-config",
        containers::cloud_config,
    ),
    rule(
        "leader-election",
        "two replicas without an election both act, and undo each other's work",
        "set --leader-elect=true",
        containers::leader_election,
    ),
    rule(
        "read-only-root",
        "who breaks into the container can change its program",
        "set securityContext.readOnlyRootFilesystem: true, and mount an emptyDir where it writes",
        containers::read_only_root,
    ),
    rule(
        "privilege-escalation",
        "a setuid program in the image makes its user root on a pod of the host's network",
        "set securityContext.allowPrivilegeEscalation: false, and not privileged",
        containers::privilege_escalation,
    ),
    rule(
        "capabilities",
        "the container runtime's default capabilities allow more on the host's network than a CCM needs",
        "set securityContext.capabilities.drop: [ALL], and add none",
        containers::capabilities,
    ),
    rule(
        "seccomp",
        "without a profile every system call of the kernel can be reached",
        "set securityContext.seccompProfile.type: RuntimeDefault for the pod",
        containers::seccomp,
    ),
    rule(
        "bootstrap-static-pod",
        "the bootstrap VM's kubelet runs static Pods from files, and nothing applies other objects there",
        "keep only Pods in namespace kube-system in bootstrap/; other objects belong into assets/",
        bootstrap::static_pods,
    ),
    rule(
        "bootstrap-service-account",
        "a static Pod cannot use a ServiceAccount: the API server refuses its mirror",
        "remove serviceAccountName; the bootstrap kubeconfig takes its place",
        bootstrap::service_account,
    ),
    rule(
        "bootstrap-controllers",
        "at bootstrap other controllers would delete nodes, or make load balancers that nobody owns later",
        "set --controllers=cloud-node",
        bootstrap::controllers,
    ),
    rule(
        "bootstrap-kubeconfig",
        "without the bootstrap kubeconfig the pod cannot reach the API server",
        "mount hostPath /etc/kubernetes/bootstrap-secrets and set --kubeconfig=<mountPath>/kubeconfig",
        bootstrap::kubeconfig,
    ),
    rule(
        "bootstrap-election",
        "a lease that the bootstrap VM held would keep the cluster's own CCM waiting",
        "set --leader-elect=false",
        bootstrap::leader_election,
    ),
    rule(
        "bootstrap-port",
        "the cluster's own CCM listens on 10258 of the same hosts: the second one ends at once",
        "set another --secure-port, such as 10267",
        bootstrap::port,
    ),
];

/// The rule of the live API server, which [`Report::with_refusals`] applies.
static DRY_RUN: Rule = rule(
    "cluster-dry-run",
    "the API server of the cluster would refuse the object, and the operator would be degraded",
    "change the manifest as the API server's words say",
    |_, _| Vec::new(),
);

/// A manifest that the API server refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The provider.
    pub provider: String,
    /// The file.
    pub file: String,
    /// The line, from 1: that of the field where the API server names one.
    pub line: u64,
    /// The API server's words.
    pub what: String,
}

/// Checks providers. What needs the install payload is checked only when there is one.
pub fn verify(bundles: &[Bundle], payload: Option<&Payload>) -> Report {
    let of_rule = |bundle: &Bundle, rule: &'static Rule| -> Vec<Finding> {
        let Rule { id, why, mend, check } = rule;
        let violations = check(bundle, payload).into_iter();
        violations
            .map(|Violation { file, line, what }| Finding {
                provider: bundle.name.clone(),
                rule: id,
                file,
                line,
                what,
                why,
                mend,
            })
            .collect()
    };
    Report {
        providers: bundles.iter().map(|bundle| bundle.name.clone()).collect(),
        rules: RULES.iter().map(|rule| rule.id).collect(),
        findings: bundles.iter().flat_map(|bundle| RULES.iter().flat_map(move |rule| of_rule(bundle, rule))).collect(),
    }
}

impl Manifest {
    /// What is wrong at a JSON pointer of it.
    fn violation(&self, pointer: &str, what: impl Into<String>) -> Violation {
        Violation { file: self.file.clone(), line: self.lines.of(pointer), what: what.into() }
    }
}

impl Report {
    /// The same, with what a live API server refuses.
    #[must_use]
    pub fn with_refusals(mut self, refusals: Vec<Refusal>) -> Self {
        let Rule { id, why, mend, .. } = DRY_RUN;
        self.rules.push(id);
        self.findings.extend(refusals.into_iter().map(|refusal| {
            let Refusal { provider, file, line, what } = refusal;
            Finding { provider, rule: id, file, line, what, why, mend }
        }));
        self
    }

    /// For people: a line for each finding, then why each of the broken rules is one and how to mend it.
    pub fn table(&self) -> String {
        let (providers, rules) = (self.providers.len(), self.rules.len());
        let checked = format!("{} checked by {rules} rules", count(providers, "provider"));
        if self.findings.is_empty() {
            return format!("{checked}: nothing found\n");
        }
        let row = |finding: &Finding| {
            let Finding { rule, file, line, what, .. } = finding;
            [(*rule).to_owned(), format!("{file}:{line}"), what.clone()]
        };
        let rows: Vec<_> = self.findings.iter().map(row).collect();
        let broken =
            RULES.iter().chain([&DRY_RUN]).filter(|rule| self.findings.iter().any(|finding| finding.rule == rule.id));
        let reasons: Vec<_> = broken.map(Rule::reason).collect();
        let found = count(self.findings.len(), "finding");
        format!("{}\n{}\n{checked}: {found}\n", table(["RULE", "WHERE", "WHAT"], &rows), reasons.concat())
    }

    /// As JUnit knows them: a suite for each provider, a case for each rule.
    pub fn suites(&self) -> Vec<Suite> {
        let failures = |provider: &str, rule: &str| -> Vec<Failure> {
            let found = self.findings.iter().filter(|finding| finding.provider == provider && finding.rule == rule);
            found.map(Finding::failure).collect()
        };
        let suite = |provider: &String| Suite {
            name: provider.clone(),
            cases: self.rules.iter().map(|rule| ((*rule).to_owned(), failures(provider, rule))).collect(),
        };
        self.providers.iter().map(suite).collect()
    }
}

impl Rule {
    fn reason(&self) -> String {
        let text = format!("{}. To mend it: {}.", self.why, self.mend);
        format!("{}:\n  {}\n", self.id, wrap(&text, 96).join("\n  "))
    }
}

impl Finding {
    fn failure(&self) -> Failure {
        let Self { file, line, what, why, mend, .. } = self;
        Failure { message: format!("{file}:{line}: {what}"), text: format!("{why}. To mend it: {mend}.") }
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests;
