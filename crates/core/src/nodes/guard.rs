//! The nodes that a cloud-controller-manager may delete (pure).
//!
//! A cloud-controller-manager with the wrong account, region or credentials treats every machine as gone, and deletes
//! each node that is not ready within seconds. So it gets the permission to delete a node only if the node has not been
//! ready for long, the cloud-controller-manager has recently tried to delete it, and nothing shows another cause.
//! Events are hints that anybody may write: each rule has to hold by itself, and no Event alone confirms a node.

pub mod leader;
pub mod lists;
mod why;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::{
    api::{
        spec::{NodeDeletion, NodeLabels},
        status::{Deleted, Deletion},
    },
    nodes::{CLOCK_SKEW, evidence::NodeEvent, node::Node},
    provider::owns,
};
pub use why::Why;

/// The reason of the Event with which a cloud-controller-manager reports that it was not let delete a node. The other one of each
/// try, `DeletingNode`, names nobody.
pub const REFUSED: &str = "DeletingNodeFailed";

/// The component that reports it.
pub const COMPONENT: &str = "cloud-node-lifecycle-controller";

/// How long such an Event counts. It is repeated within five minutes at the latest.
const FRESH: SignedDuration = SignedDuration::from_secs(330);

/// How long a pod of the cloud-controller-manager must have led. What it reads restarts it, so nothing of that has changed
/// meanwhile; and as this is longer than an Event counts, all Events that count are its own.
const SETTLED: SignedDuration = SignedDuration::from_mins(10);

/// How long deletions count for the limit.
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// The most nodes that are confirmed at a time besides those that people have allowed.
const MOST: usize = 256;

/// The most characters of the list of the policy. The API server takes expressions of 100,000.
const LONGEST_LIST: usize = 90_000;

/// The most prefixes of providerIDs that a message names: clouds have one or two.
const MOST_NAMED: usize = 4;

/// A node in one state: an entry of the list that the policy compares with what is to be deleted. A node that becomes ready, or
/// is created again, is another entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name of the node.
    pub name: String,
    /// Its unique id.
    pub uid: String,
    /// When its condition `Ready` last changed.
    pub since: String,
}

impl Entry {
    /// Of a node; `None` if a part of it is not as Kubernetes writes it: the parts stand in an expression of the policy.
    pub fn of(node: &Node) -> Option<Self> {
        let since = &node.ready.as_ref()?.since;
        let is_name = |text: &str, others: &str| {
            let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || others.contains(c);
            (1..=253).contains(&text.len()) && text.chars().all(is_part)
        };
        let is_time = since.len() == "2006-01-02T15:04:05Z".len() && since.parse::<Timestamp>().is_ok();
        let is_plain = since.chars().all(|c| c.is_ascii_digit() || "-:TZ".contains(c));
        let is_valid = is_name(&node.name, "-.") && is_name(&node.uid, "-") && is_time && is_plain;
        is_valid.then(|| Self { name: node.name.clone(), uid: node.uid.clone(), since: since.clone() })
    }

    /// The node, in whatever state: `NAME/UID`.
    pub fn node(&self) -> String {
        format!("{}/{}", self.name, self.uid)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.name, self.uid, self.since)
    }
}

/// The input of a decision.
#[derive(Clone, Debug)]
pub struct GuardInput<'a> {
    /// The current time.
    pub now: Timestamp,
    /// Every node.
    pub nodes: &'a [Node],
    /// Events about nodes.
    pub events: &'a [NodeEvent],
    /// The user name of the cloud-controller-manager.
    pub user: &'a str,
    /// The name of its policy.
    pub policy: &'a str,
    /// The prefixes of the providerIDs of its cloud.
    pub provider_ids: &'a [String],
    /// The settings of the administrator.
    pub settings: &'a NodeDeletion,
    /// The time since when the leader has led, if it is a pod of the current rollout; else why that is unknown.
    pub leads_since: Result<Timestamp, &'a str>,
    /// Why nothing may be confirmed now, if so.
    pub obstacle: Option<&'a str>,
    /// Why only what people have allowed may be confirmed now, if so.
    pub unsettled: Option<&'a str>,
    /// The nodes whose deletions count for the limit of an hour.
    pub deleted: &'a [Deleted],
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The nodes that may be deleted.
    pub confirmed: Vec<Entry>,
    /// The nodes that the cloud-controller-manager would delete, or that people have allowed, and that stay.
    pub waiting: Vec<UnconfirmedNode>,
    /// The names of the nodes that the cloud-controller-manager would delete.
    pub asked_for: Vec<String>,
    /// When time alone may change this.
    pub due: Option<Timestamp>,
}

/// A node that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnconfirmedNode {
    /// Its name.
    pub node: String,
    /// Its unique id.
    pub uid: String,
    /// Since when it is not ready.
    pub since: String,
    /// Why.
    pub why: Why,
}

/// Decides which nodes may be deleted. Those that have not been ready for longest come first.
pub fn decide(input: &GuardInput) -> Decision {
    let asked = asked(input);
    let allowed: BTreeSet<&str> = input.settings.allow.iter().map(String::as_str).collect();
    // The entry is for one failure: a node that came back and failed again needs a new entry.
    let is_allowed = |node: &Node| Entry::of(node).is_some_and(|entry| allowed.contains(entry.to_string().as_str()));
    let is_asked_for = |node: &Node| asked.contains_key(node.uid.as_str());
    let mut candidates: Vec<&Node> = input.nodes.iter().collect();
    candidates.retain(|node| !node.is_terminating && !node.is_ready() && (is_asked_for(node) || is_allowed(node)));
    candidates.sort_by(|one, other| (since(one), &one.name).cmp(&(since(other), &other.name)));

    let would = candidates.iter().copied().filter(|node| is_asked_for(node) && input.owns(node));
    let (would, kept): (Vec<&Node>, Vec<&Node>) = would.partition(|node| input.fixed_rules(node).is_ok());
    let alarms = alarms(input, would.len(), kept.len());
    let recent = input.deleted.iter().filter_map(|one| one.at.parse::<Timestamp>().ok());
    let most = usize::try_from(input.settings.max_per_hour).unwrap_or(MOST).min(MOST);
    let mut left = most.saturating_sub(input.deleted.len());
    let mut room = LONGEST_LIST;

    let mut decision = Decision::default();
    let mut due: Vec<Timestamp> = asked.values().map(|last| later(*last, FRESH)).collect();
    due.extend(recent.map(|at| later(at, HOUR)));
    for node in candidates {
        if is_asked_for(node) {
            decision.asked_for.push(node.name.clone());
        }
        let decided = input.fixed_rules(node).and_then(|entry| {
            if let Some(why) = input.obstacle {
                return Err(Why::Obstacle(why.to_owned()));
            }
            if !is_allowed(node) {
                alarms.clone()?;
                age(input, node, asked.get(node.uid.as_str()).copied())?;
                settled(input)?;
                left = left.checked_sub(1).ok_or(Why::PerHour(most))?;
            }
            // With quotes, comma and space.
            room = room.checked_sub(entry.to_string().len() + 4).ok_or(Why::ListFull)?;
            Ok(entry)
        });
        match decided {
            Ok(entry) => decision.confirmed.push(entry),
            Err(why) => {
                if let Why::Young(_, until) | Why::Unsettled(until) = &why {
                    due.push(*until);
                }
                let (name, uid) = (node.name.clone(), node.uid.clone());
                decision.waiting.push(UnconfirmedNode { node: name, uid, since: since(node).to_owned(), why });
            }
        }
    }
    decision.due = due.into_iter().filter(|at| *at > input.now).min();
    decision
}

/// How much longer a deletion counts for the limit, by this clock.
pub fn counts_for(deleted: &Deleted, now: Timestamp) -> Duration {
    let at: Timestamp = deleted.at.parse().unwrap_or(Timestamp::MIN);
    let age = now.duration_since(at).max(SignedDuration::ZERO);
    Duration::try_from(HOUR.saturating_sub(age)).unwrap_or_default()
}

/// The nodes whose deletions count: those of the last status that still do, and those that it calls confirmed and that are gone, as
/// of now.
pub fn deleted(
    before: &Deletion,
    nodes: &[Node],
    now: Timestamp,
    mut counts: impl FnMut(&Deleted) -> bool,
) -> Vec<Deleted> {
    let mut all: Vec<_> = before.deleted.iter().filter(|one| counts(one)).cloned().collect();
    for (node, uid) in before.confirmed.iter().filter_map(|confirmed| confirmed.split_once('/')) {
        let exists = nodes.iter().any(|one| one.uid == uid && !one.is_terminating);
        if !exists && all.iter().all(|known| known.uid != uid) {
            all.push(Deleted { node: node.to_owned(), uid: uid.to_owned(), at: now.to_string() });
        }
    }
    all
}

impl GuardInput<'_> {
    /// Whether the cloud-controller-manager may delete a node at all. Other nodes are no evidence either.
    fn owns(&self, node: &Node) -> bool {
        owns(self.provider_ids, &node.provider_id) && is_selected(&self.settings.selector, node)
    }

    fn fixed_rules(&self, node: &Node) -> Result<Entry, Why> {
        fixed_rules(self.nodes, (self.provider_ids, &self.settings.selector), node)
    }

    /// Whether an Event reports that this cloud-controller-manager was refused a deletion. The refusal of a missing permission names
    /// the user, that of a policy the policy.
    fn is_refusal(&self, event: &NodeEvent) -> bool {
        let names_it = event.message.contains(&format!("User \"{}\"", self.user))
            || event.message.contains(&format!("ValidatingAdmissionPolicy '{}'", self.policy));
        event.reason == REFUSED && event.component == COMPONENT && names_it
    }
}

fn since(node: &Node) -> &str {
    node.ready.as_ref().map_or("", |ready| ready.since.as_str())
}

fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// The nodes that the cloud-controller-manager has lately tried to delete, by uid, each with the last time.
fn asked<'a>(input: &GuardInput<'a>) -> BTreeMap<&'a str, Timestamp> {
    let mut asked: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for event in input.events.iter().filter(|event| input.is_refusal(event)) {
        let fresh = event.last.filter(|last| input.now.duration_since(*last) < FRESH);
        if let Some(last) = fresh {
            // A time in the future does not hide another one.
            let rank = |time: Timestamp| (time <= later(input.now, CLOCK_SKEW), time);
            let known = asked.entry(&event.uid).or_insert(last);
            *known = std::cmp::max_by_key(last, *known, |time| rank(*time));
        }
    }
    asked
}

/// The prefixes that a message names. A message for each node is in the status.
fn named(provider_ids: &[String]) -> Vec<String> {
    let more = provider_ids.get(MOST_NAMED..).filter(|more| !more.is_empty());
    let more = more.map(|more| format!("and {} more", more.len()));
    provider_ids.iter().take(MOST_NAMED).cloned().chain(more).collect()
}

/// Whether a node has all labels of a selector.
fn is_selected(selector: &NodeLabels, node: &Node) -> bool {
    selector.match_labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
}

/// The rules that hold for every deletion; the policy has them, too, but for the last node of the control plane. `nodes` are all.
/// Fails with the first rule that keeps the node.
pub fn fixed_rules(
    nodes: &[Node],
    (provider_ids, selector): (&[String], &NodeLabels),
    node: &Node,
) -> Result<Entry, Why> {
    let is_other = |other: &Node| other.uid != node.uid && other.is_control_plane && other.is_ready();
    // Only here: for each node of a cluster of thousands the list would be copied in each decision.
    if !owns(provider_ids, &node.provider_id) {
        return Err(Why::OtherCloudProviderID(named(provider_ids)));
    }
    let rules = [
        (is_selected(selector, node), Why::NotSelected),
        (!node.is_kept, Why::Kept),
        (!node.is_uninitialized(), Why::Uninitialized),
        (node.ready.is_some(), Why::NeverReported),
        (!node.is_ready(), Why::Ready),
        (!(node.is_control_plane || node.is_etcd) || node.allows_control_plane_deletion, Why::ControlPlane),
        (!node.is_control_plane || nodes.iter().any(is_other), Why::LastControlPlane),
    ];
    rules.into_iter().try_for_each(|(holds, why)| if holds { Ok(()) } else { Err(why) })?;
    Entry::of(node).ok_or(Why::Unreadable)
}

/// Whether a node has been unready for long enough, by our clock and by that of the cloud-controller-manager.
fn age(input: &GuardInput, node: &Node, asked: Option<Timestamp>) -> Result<(), Why> {
    let seconds = input.settings.min_not_ready_seconds;
    let since: Timestamp = since(node).parse().map_err(|_| Why::Unreadable)?;
    let until = later(since, SignedDuration::from_secs(seconds.into()));
    let asked = asked.ok_or(Why::NotAskedFor)?;
    let rules = [
        (asked <= later(input.now, CLOCK_SKEW), Why::ClocksDiffer),
        (input.now >= until, Why::Young(seconds, until)),
        (asked >= until, Why::NotAskedFor),
    ];
    rules.into_iter().try_for_each(|(holds, why)| if holds { Ok(()) } else { Err(why) })
}

/// The rules about the cloud's nodes together, of which some would be deleted, and others not in any case.
fn alarms(input: &GuardInput, would: usize, kept: usize) -> Result<(), Why> {
    let owned: Vec<_> = input.nodes.iter().filter(|node| input.owns(node)).collect();
    if !owned.iter().any(|node| node.is_ready() && !node.is_uninitialized()) {
        return Err(Why::NoReadyNode);
    }
    let (of, percent) = (owned.len(), usize::from(input.settings.max_percent));
    let may = (of * percent / 100).max(1);
    if would <= may { Ok(()) } else { Err(Why::TooMany { would, of, may, kept }) }
}

/// The rules about the cloud-controller-manager: nothing of it has changed lately.
fn settled(input: &GuardInput) -> Result<(), Why> {
    if let Some(why) = input.unsettled {
        return Err(Why::Obstacle(why.to_owned()));
    }
    let since = input.leads_since.map_err(|why| Why::NoLeader(why.to_owned()))?;
    let settled = later(since, SETTLED);
    if input.now >= settled { Ok(()) } else { Err(Why::Unsettled(settled)) }
}

#[cfg(test)]
mod tests;
