//! Reads the fields of live pods, leases and Events (pure). Untrusted text is masked and made printable here, as soon as it arrives.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::{
    facts::{
        OPERATOR_LEASE,
        ccm::{Controller, LEASE},
    },
    nodes::evidence::{Lease, NodeEvent, Pod},
    object::{condition, container_statuses, items},
    provider::{CCM, kubernetes::Descriptor},
    text::{mask, output::printable},
};

/// Parts of the image names and pod names of cloud-controller-managers.
const CCMS: [&str; 3] = ["cloud-controller-manager", "cloud-provider", "cloudstack-kubernetes-provider"];

/// Parts of the names of other programs that contain one of [`CCMS`], or that run from the same image.
const OTHERS: [&str; 7] = [
    "admission-server",
    "cloud-controller-manager-operator",
    "csi",
    "flexvolume",
    "provisioner",
    "credential-provider",
    // kube-vip has a controller for Services only.
    "kube-vip",
];

/// The names of shells.
const SHELLS: [&str; 5] = ["ash", "bash", "busybox", "dash", "sh"];

/// Flags that almost every cloud-controller-manager needs.
const CERTAIN: [&str; 2] = ["controllers", "cloud-provider"];

/// The maximum length of stored untrusted text, in bytes: searching a long text for secrets takes disproportionately long.
const LONGEST: usize = 8 << 10;

/// Returns untrusted text on one line, without secrets and control characters.
pub fn sanitized(text: &str) -> String {
    let end = (0..=LONGEST.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    printable(&mask::message(&text[..end])).replace('\t', " ")
}

/// Returns the lines of a log, each [`sanitized`].
pub fn lines(log: &str) -> Vec<String> {
    log.lines().map(sanitized).filter(|line| !line.trim().is_empty()).collect()
}

/// Whether a pod holds a lease. The holder is `<host name>_<uuid>`. A host-network pod has the host name of its node, possibly with a
/// domain that the node's name lacks, or vice versa.
pub fn holds(lease: &Lease, pod: &Pod) -> bool {
    let holder = lease.holder.rsplit_once('_').map_or(lease.holder.as_str(), |(host, _)| host).to_lowercase();
    let host = if pod.is_on_host_network { pod.node.to_lowercase() } else { pod.name.to_lowercase() };
    let is_short = |short: &str, long: &str| long.strip_prefix(short).is_some_and(|rest| rest.starts_with('.'));
    // Host names are cut at 63 characters, and do not end with a separator.
    let is_cut = holder.len() >= 60 && host.starts_with(&holder);
    !host.is_empty() && (holder == host || is_short(&holder, &host) || is_short(&host, &holder) || is_cut)
}

/// Returns the pods that are not being deleted, or all pods if all are being deleted.
pub fn current(pods: &[Pod]) -> Vec<&Pod> {
    let staying: Vec<_> = pods.iter().filter(|pod| !pod.is_terminating).collect();
    if staying.is_empty() { pods.iter().collect() } else { staying }
}

fn text(value: &Value) -> String {
    value.as_str().map(sanitized).unwrap_or_default()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

/// Whether a live pod runs a cloud-controller-manager, installed by the operator or not.
pub fn is_ccm(live: &Value) -> bool {
    let is_named = live["metadata"]["name"].as_str().is_some_and(is_ccms) && !is_other_pod(live);
    is_named || runs_image(live, is_ccms)
}

/// The cloud program that a pod runs, installed by the operator or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Whether the program is a node manager, which initializes only its own node, instead of a cloud-controller-manager.
    pub is_node_manager: bool,
    /// Whether the image or the flags identify the program; otherwise only its name does.
    pub is_certain: bool,
}

impl Program {
    /// Returns the program of a live pod, identified by the images of these providers or by name; `None` if it is neither. The proposal and
    /// the preflight share this function, so that both find the same programs.
    pub fn of<'a, I: Iterator<Item = &'a Descriptor>>(live: &Value, descriptors: impl Fn() -> I) -> Option<Self> {
        let runs = |fits: fn(&Descriptor, &str) -> bool| {
            runs_image(live, |image| descriptors().any(|descriptor| fits(descriptor, image)))
        };
        if runs(has_ccm) {
            return Some(Self { is_node_manager: false, is_certain: true });
        }
        if runs(has_node_manager) {
            return Some(Self { is_node_manager: true, is_certain: true });
        }
        is_ccm(live).then(|| Self::named(container(&live["spec"])))
    }

    /// Returns the program of this container, a cloud-controller-manager identified by name.
    pub fn named(container: &Value) -> Self {
        let is_certain = CERTAIN.iter().any(|name| flag(container, name).is_some());
        Self { is_node_manager: false, is_certain }
    }
}

/// Whether an image is that of a provider's cloud-controller-manager.
fn has_ccm(descriptor: &Descriptor, image: &str) -> bool {
    descriptor.container_of(image) == Some(CCM)
}

/// Whether an image is that of another program of a provider with a node manager.
fn has_node_manager(descriptor: &Descriptor, image: &str) -> bool {
    descriptor.node_manager.is_some() && descriptor.container_of(image).is_some()
}

/// Whether a live pod runs a known image of a cloud-controller-manager and does not have the name of another program.
fn runs_image(live: &Value, is_known: impl Fn(&str) -> bool) -> bool {
    let containers = items(&live["spec"]["containers"]).iter().filter(|container| !is_other_program(container));
    !is_other_pod(live) && containers.filter_map(|container| container["image"].as_str()).any(is_known)
}

/// Whether a live pod has the name of another program, although it may have the image of a cloud-controller-manager.
fn is_other_pod(live: &Value) -> bool {
    let name = live["metadata"]["name"].as_str().unwrap_or_default();
    // The name of a static pod ends with the name of its node.
    let node = live["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
    is_other(node.and_then(|node| name.strip_suffix(node)).unwrap_or(name))
}

/// Whether a container has the name or the command of another program.
fn is_other_program(container: &Value) -> bool {
    let words = items(&container["command"]).iter().chain(items(&container["args"]).first());
    let words = words.filter_map(Value::as_str).flat_map(str::split_whitespace).filter(|word| !word.starts_with('-'));
    container["name"].as_str().into_iter().chain(words).any(is_other)
}

fn is_other(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    OTHERS.iter().any(|part| name.contains(part))
}

fn is_ccms(name: &str) -> bool {
    // Ignore the registry and the project of an image.
    let last = name.rsplit('/').next().unwrap_or_default();
    CCMS.iter().any(|part| last.contains(part)) && !is_other(name)
}

/// Returns the container of the cloud-controller-manager.
pub fn container(spec: &Value) -> &Value {
    let containers = items(&spec["containers"]);
    let named = containers.iter().find(|container| container["name"] == CCM);
    let is_it = |container: &&Value| container["image"].as_str().is_some_and(is_ccms) && !is_other_program(container);
    let by_image = || containers.iter().find(is_it);
    named.or_else(by_image).or(containers.first()).unwrap_or(&Value::Null)
}

/// Returns the value of a flag on the command line of a container, which may be a shell command.
pub fn flag(container: &Value, name: &str) -> Option<String> {
    // The last occurrence wins, as in Go.
    flags(container).into_iter().rev().find_map(|(flag, value)| value.filter(|_| flag == name))
}

/// Returns the container of the program that [`Program::of`] finds: by the images of these providers, wherever it is among the
/// containers, or else as [`container`] does.
pub fn program_container<'a, 'd, I: Iterator<Item = &'d Descriptor>>(
    spec: &'a Value,
    descriptors: impl Fn() -> I,
) -> &'a Value {
    let find = |fits: fn(&Descriptor, &str) -> bool| {
        let is_it = |image: &str| descriptors().any(|descriptor| fits(descriptor, image));
        let mut own = items(&spec["containers"]).iter().filter(|container| !is_other_program(container));
        own.find(|container| container["image"].as_str().is_some_and(is_it))
    };
    find(has_ccm).or_else(|| find(has_node_manager)).unwrap_or_else(|| container(spec))
}

/// Returns the flags on the command line of a container, without hyphens, each with its value, if any.
pub fn flags(container: &Value) -> Vec<(String, Option<String>)> {
    let words = words(container);
    let mut given = words.iter().map(String::as_str).peekable();
    let mut found = Vec::new();
    while let Some(argument) = given.next() {
        let bare = argument.trim_start_matches('-');
        if bare.len() == argument.len() || bare.is_empty() {
            continue;
        }
        let (flag, value) = match bare.split_once('=') {
            Some((flag, value)) => (flag, Some(value)),
            None => (bare, given.next_if(|next| !next.starts_with('-'))),
        };
        found.push((flag.to_owned(), value.map(|value| value.trim_matches(['"', '\'']).to_owned())));
    }
    found
}

/// Whether a container runs a script of a shell, in which `$` refers to a variable.
pub fn runs_script(container: &Value) -> bool {
    script(&arguments(container)).is_some()
}

fn arguments(container: &Value) -> Vec<&str> {
    items(&container["command"]).iter().chain(items(&container["args"])).filter_map(Value::as_str).collect()
}

/// Returns the index of the script among the arguments of a shell.
fn script(arguments: &[&str]) -> Option<usize> {
    let is_shell = |one: &&str| one.rsplit('/').next().is_some_and(|name| SHELLS.contains(&name));
    // `-c` may be combined with other options, as in `-ec`.
    let is_option = |one: &&str| one.starts_with('-') && !one.starts_with("--") && one.ends_with('c');
    let shell = arguments.iter().position(is_shell)?;
    let option = arguments.iter().skip(shell).position(is_option)?;
    Some(shell + option + 1).filter(|at| *at < arguments.len())
}

/// Returns the words of a command line. Only the script of a shell is split: in any other argument a space is part of the value.
fn words(container: &Value) -> Vec<String> {
    let arguments = arguments(container);
    let plain = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    match script(&arguments) {
        Some(at) => [shell_words(arguments[at]), plain(&arguments[at + 1..])].concat(),
        None => plain(&arguments),
    }
}

/// Returns the words of a script, without quotes, comments, operators and escaped line breaks.
fn shell_words(script: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote) = (None::<String>, None::<char>);
    let mut characters = script.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            // In single quotes a backslash is plain text, in double quotes before most characters.
            (None | Some('"'), '\\') => {
                let next = characters.next();
                let word = word.get_or_insert_default();
                if quote.is_some() && next.is_some_and(|next| !"$`\"\\\n".contains(next)) {
                    word.push(character);
                }
                word.extend(next.filter(|next| *next != '\n'));
            }
            (None, '#') if word.is_none() => {
                let _ = characters.by_ref().find(|next| *next == '\n');
            }
            (None, _) if character.is_whitespace() || ";&|<>".contains(character) => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    if quote.is_some() {
        // It has forms that are not known here.
        return script.split_whitespace().map(str::to_owned).collect();
    }
    words.extend(word);
    words
}

/// Returns the log from its last fatal line on; `None` if it has none.
fn give_up(log: &Value) -> Option<String> {
    let log = log.as_str()?;
    let gives_up = |line: &str| {
        let is_fatal = line.strip_prefix('F').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        is_fatal || ["panic: ", "Error: ", "error: "].iter().any(|word| line.starts_with(word))
    };
    let at = log.match_indices('\n').map(|(at, _)| at + 1).chain([0]).filter(|at| gives_up(&log[*at..])).max()?;
    Some(sanitized(&log[at..]))
}

impl Pod {
    /// Reads the fields of a live Pod.
    pub fn of(live: &Value) -> Self {
        let (metadata, spec, status) = (&live["metadata"], &live["spec"], &live["status"]);
        let containers = || container_statuses(live).map(|(container, _)| container);
        let said = |state: &Value| state.is_object().then(|| (text(&state["reason"]), text(&state["message"])));
        // The message is the end of a log, so its last words matter.
        let last_words =
            |state: &Value| said(state).map(|(reason, log)| (reason, give_up(&state["message"]).unwrap_or(log)));
        let waiting = containers().find_map(|one| said(&one["state"]["waiting"]));
        let ended = |one: &Value| {
            // The init containers of a healthy pod have terminated as well.
            let failed = |state: &Value| last_words(state).filter(|_| state["exitCode"] != 0);
            failed(&one["state"]["terminated"]).or_else(|| failed(&one["lastState"]["terminated"]))
        };
        let scheduled = condition(live, "PodScheduled");
        let ccm = container(spec);
        let restarts: u64 = containers().filter_map(|one| one["restartCount"].as_u64()).sum();
        Self {
            name: text(&metadata["name"]),
            namespace: text(&metadata["namespace"]),
            node: text(&spec["nodeName"]),
            is_on_host_network: spec["hostNetwork"] == true,
            phase: text(&status["phase"]),
            is_ready: condition(live, "Ready")["status"] == "True",
            is_terminating: metadata["deletionTimestamp"].is_string(),
            created: text(&metadata["creationTimestamp"]),
            restarts: u32::try_from(restarts).unwrap_or(u32::MAX),
            waiting,
            terminated: containers().find_map(ended),
            unschedulable: (scheduled["status"] == "False").then(|| text(&scheduled["message"])),
            controllers: flag(ccm, "controllers").map(|names| Controller::of_argument(Some(&names))),
            lease_name: flag(ccm, "leader-elect-resource-name")
                .map_or_else(|| LEASE.to_owned(), |name| sanitized(&name)),
        }
    }
}

impl Lease {
    /// Reads the fields of a live Lease.
    pub fn of(live: &Value) -> Self {
        let (metadata, spec) = (&live["metadata"], &live["spec"]);
        Self {
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            holder: text(&spec["holderIdentity"]),
            renewed: time(&spec["renewTime"]),
            duration_seconds: spec["leaseDurationSeconds"].as_i64().unwrap_or_default(),
        }
    }

    /// Whether the lease name is one of a cloud-controller-manager.
    pub fn is_ccms(&self) -> bool {
        self.name.contains(LEASE) && self.name != OPERATOR_LEASE
    }
}

impl NodeEvent {
    /// Reads the fields of a live Event (v1) about a node.
    pub fn of(live: &Value) -> Self {
        let (about, series) = (&live["involvedObject"], &live["series"]);
        let times = [&series["lastObservedTime"], &live["lastTimestamp"], &live["eventTime"], &live["firstTimestamp"]];
        let component = text(&live["source"]["component"]);
        Self {
            node: text(&about["name"]),
            uid: text(&about["uid"]),
            reason: text(&live["reason"]),
            component: if component.is_empty() { text(&live["reportingComponent"]) } else { component },
            message: text(&live["message"]),
            last: times.into_iter().find_map(time),
        }
    }
}

#[cfg(test)]
mod tests;
