//! The nodes that a cloud-controller-manager may delete (pure).
//!
//! A cloud-controller-manager with the wrong account, region or credentials treats every machine as gone, and within
//! seconds deletes each node that is not ready. So it gets the permission to delete a node only if the node has been
//! unready for long enough, the cloud-controller-manager has recently tried to delete it, and nothing indicates another cause. Any client
//! may write Events, so they are only hints: each rule must hold by itself, and no Event alone confirms a node.

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
        deletion::{NodeDeletion, NodeLabels},
        status::{Deleted, Deletion},
    },
    nodes::{CLOCK_SKEW, evidence::NodeEvent, node::Node},
    provider::owns,
};
pub use why::KeepReason;

/// The reason of the Event in which a cloud-controller-manager reports a refused deletion. The other Event of each attempt, [`ATTEMPT`],
/// does not name the cloud-controller-manager.
pub const REFUSED: &str = "DeletingNodeFailed";

/// The reason of the Event that precedes each attempt to delete a node. It does not mean that the node is gone.
pub const ATTEMPT: &str = "DeletingNode";

/// The component that reports both Events.
pub const COMPONENT: &str = "cloud-node-lifecycle-controller";

/// The time for which such an Event counts. The Event is repeated at least every five minutes.
const FRESH: SignedDuration = SignedDuration::from_secs(330);

/// The time for which a pod of the cloud-controller-manager must have led. A changed input restarts the pod, so the inputs have not changed
/// meanwhile. This time is longer than `FRESH`, so all Events that count come from this leader.
pub const MIN_LEADING_TIME: SignedDuration = SignedDuration::from_mins(10);

/// The time for which deletions count toward the limit.
pub const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// The maximum number of nodes that are confirmed at a time, besides the nodes that users have allowed.
pub const MOST: usize = 256;

/// The maximum length of the list in the policy. The API server accepts expressions of 100,000 characters.
const LONGEST_LIST: usize = 90_000;

/// The maximum number of providerID prefixes in a message: clouds have one or two.
const MOST_NAMED: usize = 4;

/// A node in one state: an entry of the list that the policy compares with the object to delete. A node that becomes ready or is recreated
/// needs a new entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name of the node.
    pub name: String,
    /// The unique id.
    pub uid: String,
    /// The time when the `Ready` condition last changed.
    pub since: String,
}

impl Entry {
    /// Returns the entry of a node; `None` if a part has an invalid format, because the parts go into an expression of the policy.
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

    /// Returns the node without its state: `NAME/UID`.
    pub fn node(&self) -> String {
        format!("{}/{}", self.name, self.uid)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.name, self.uid, self.since)
    }
}

/// What shows which nodes a cloud-controller-manager would delete.
#[derive(Clone, Copy, Debug)]
pub enum Attempts<'a> {
    /// Events about deletions that were refused.
    Refused {
        /// Events about nodes.
        events: &'a [NodeEvent],
        /// The user name of the cloud-controller-manager.
        user: &'a str,
        /// The name of the admission policy.
        policy: &'a str,
    },
    /// The cloud-controller-manager itself knows them. Holds the time when it would last have deleted each node, by uid.
    Own(&'a BTreeMap<String, Timestamp>),
}

/// The input of a decision.
#[derive(Clone, Debug)]
pub struct GuardInput<'a> {
    /// The current time.
    pub now: Timestamp,
    /// Every node.
    pub nodes: &'a [Node],
    /// What shows which nodes the cloud-controller-manager would delete.
    pub attempts: Attempts<'a>,
    /// The providerID prefixes of the cloud.
    pub provider_ids: &'a [String],
    /// The settings of the administrator.
    pub settings: &'a NodeDeletion,
    /// The time when the leader began to lead, if it is a pod of the current rollout; else the reason why the time is unknown.
    pub leads_since: Result<Timestamp, &'a str>,
    /// The reason why nothing may be confirmed now, if any.
    pub obstacle: Option<&'a str>,
    /// The reason why only nodes that users have allowed may be confirmed now, if any.
    pub unsettled: Option<&'a str>,
    /// The nodes whose deletions count toward the hourly limit.
    pub deleted: &'a [Deleted],
}

/// A decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The nodes that may be deleted.
    pub confirmed: Vec<Entry>,
    /// The nodes that stay although the cloud-controller-manager would delete them or users have allowed their deletion.
    pub waiting: Vec<UnconfirmedNode>,
    /// The names of the nodes that the cloud-controller-manager would delete.
    pub asked_for: Vec<String>,
    /// The time when the decision may change without another event.
    pub due: Option<Timestamp>,
}

/// A node that stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnconfirmedNode {
    /// The name.
    pub node: String,
    /// The unique id.
    pub uid: String,
    /// The time when the node became unready.
    pub since: String,
    /// The reason.
    pub why: KeepReason,
}

/// Decides which nodes may be deleted. The nodes that have been unready the longest come first.
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
                return Err(KeepReason::Obstacle(why.to_owned()));
            }
            if !is_allowed(node) {
                alarms.clone()?;
                age(input, node, asked.get(node.uid.as_str()).copied())?;
                settled(input)?;
                left = left.checked_sub(1).ok_or(KeepReason::PerHour(most))?;
            }
            // Plus quotes, comma and space.
            room = room.checked_sub(entry.to_string().len() + 4).ok_or(KeepReason::ListFull)?;
            Ok(entry)
        });
        match decided {
            Ok(entry) => decision.confirmed.push(entry),
            Err(why) => {
                if let KeepReason::Young(_, until) | KeepReason::Unsettled(until) = &why {
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

/// Returns the time for which a deletion still counts toward the limit at `now`.
pub fn counts_for(deleted: &Deleted, now: Timestamp) -> Duration {
    let at: Timestamp = deleted.at.parse().unwrap_or(Timestamp::MIN);
    let age = now.duration_since(at).max(SignedDuration::ZERO);
    Duration::try_from(HOUR.saturating_sub(age)).unwrap_or_default()
}

/// Returns the nodes whose deletions count: deleted nodes in the previous status that still count, and confirmed nodes in it that no longer
/// exist.
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
    /// Whether the cloud-controller-manager may delete a node at all. Other nodes do not count as evidence either.
    fn owns(&self, node: &Node) -> bool {
        owns(self.provider_ids, &node.provider_id) && is_selected(&self.settings.selector, node)
    }

    fn fixed_rules(&self, node: &Node) -> Result<Entry, KeepReason> {
        fixed_rules(self.nodes, (self.provider_ids, &self.settings.selector), node)
    }
}

/// Whether an Event reports a refused deletion by this cloud-controller-manager. The message names the user who lacks a permission, or
/// the policy that denies the deletion.
fn is_refusal(event: &NodeEvent, user: &str, policy: &str) -> bool {
    let names_it = event.message.contains(&format!("User \"{user}\""))
        || event.message.contains(&format!("ValidatingAdmissionPolicy '{policy}'"));
    event.reason == REFUSED && event.component == COMPONENT && names_it
}

fn since(node: &Node) -> &str {
    node.ready.as_ref().map_or("", |ready| ready.since.as_str())
}

fn later(time: Timestamp, by: SignedDuration) -> Timestamp {
    time.checked_add(by).unwrap_or(Timestamp::MAX)
}

/// Returns the nodes that the cloud-controller-manager has recently tried to delete, by uid, each with the time of the last attempt.
fn asked<'a>(input: &GuardInput<'a>) -> BTreeMap<&'a str, Timestamp> {
    let attempts: Vec<(&str, Timestamp)> = match input.attempts {
        Attempts::Refused { events, user, policy } => {
            let refused = events.iter().filter(|event| is_refusal(event, user, policy));
            refused.filter_map(|event| Some((event.uid.as_str(), event.last?))).collect()
        }
        Attempts::Own(attempts) => attempts.iter().map(|(uid, last)| (uid.as_str(), *last)).collect(),
    };
    let mut asked: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for (uid, last) in attempts.into_iter().filter(|(_, last)| input.now.duration_since(*last) < FRESH) {
        // A future time must not hide a valid time.
        let rank = |time: Timestamp| (time <= later(input.now, CLOCK_SKEW), time);
        let known = asked.entry(uid).or_insert(last);
        *known = std::cmp::max_by_key(last, *known, |time| rank(*time));
    }
    asked
}

/// Returns the prefixes for a message. The limit keeps the status small, because it has a message for each node.
fn named(provider_ids: &[String]) -> Vec<String> {
    let more = provider_ids.get(MOST_NAMED..).filter(|more| !more.is_empty());
    let more = more.map(|more| format!("and {} more", more.len()));
    provider_ids.iter().take(MOST_NAMED).cloned().chain(more).collect()
}

/// Whether a node has all labels of a selector.
fn is_selected(selector: &NodeLabels, node: &Node) -> bool {
    selector.match_labels.iter().all(|(key, value)| node.labels.get(key) == Some(value))
}

/// Checks the rules for every deletion, and fails with the first one that keeps the node. The policy has the same rules, except for the
/// last control-plane node. `nodes` are all nodes.
pub fn fixed_rules(
    nodes: &[Node],
    (provider_ids, selector): (&[String], &NodeLabels),
    node: &Node,
) -> Result<Entry, KeepReason> {
    let is_other = |other: &Node| other.uid != node.uid && other.is_control_plane && other.is_ready();
    // Copies the list only on failure, not in every decision for each of thousands of nodes.
    if !owns(provider_ids, &node.provider_id) {
        return Err(KeepReason::OtherCloudProviderID(named(provider_ids)));
    }
    let rules = [
        (is_selected(selector, node), KeepReason::NotSelected),
        (!node.is_kept, KeepReason::Kept),
        (!node.is_uninitialized(), KeepReason::Uninitialized),
        (node.ready.is_some(), KeepReason::NeverReported),
        (!node.is_ready(), KeepReason::Ready),
        (!(node.is_control_plane || node.is_etcd) || node.allows_control_plane_deletion, KeepReason::ControlPlane),
        (!node.is_control_plane || nodes.iter().any(is_other), KeepReason::LastControlPlane),
    ];
    rules.into_iter().try_for_each(|(holds, why)| if holds { Ok(()) } else { Err(why) })?;
    Entry::of(node).ok_or(KeepReason::Unreadable)
}

/// Checks whether a node has been unready for long enough, by the local clock and by the clock of the cloud-controller-manager.
fn age(input: &GuardInput, node: &Node, asked: Option<Timestamp>) -> Result<(), KeepReason> {
    let seconds = input.settings.min_not_ready_seconds;
    let since: Timestamp = since(node).parse().map_err(|_| KeepReason::Unreadable)?;
    let until = later(since, SignedDuration::from_secs(seconds.into()));
    let asked = asked.ok_or(KeepReason::NotAskedFor)?;
    let rules = [
        (asked <= later(input.now, CLOCK_SKEW), KeepReason::ClocksDiffer),
        (input.now >= until, KeepReason::Young(seconds, until)),
        (asked >= until, KeepReason::NotAskedFor),
    ];
    rules.into_iter().try_for_each(|(holds, why)| if holds { Ok(()) } else { Err(why) })
}

/// Checks the rules about all nodes of the cloud: `would` nodes would be deleted, and `kept` nodes stay in any case.
fn alarms(input: &GuardInput, would: usize, kept: usize) -> Result<(), KeepReason> {
    let owned: Vec<_> = input.nodes.iter().filter(|node| input.owns(node)).collect();
    if !owned.iter().any(|node| node.is_ready() && !node.is_uninitialized()) {
        return Err(KeepReason::NoReadyNode);
    }
    let (of, percent) = (owned.len(), usize::from(input.settings.max_percent));
    let may = (of * percent / 100).max(1);
    if would <= may { Ok(()) } else { Err(KeepReason::TooMany { would, of, may, kept }) }
}

/// Checks that the cloud-controller-manager has not changed recently.
fn settled(input: &GuardInput) -> Result<(), KeepReason> {
    if let Some(why) = input.unsettled {
        return Err(KeepReason::Obstacle(why.to_owned()));
    }
    let since = input.leads_since.map_err(|why| KeepReason::NoLeader(why.to_owned()))?;
    let settled = later(since, MIN_LEADING_TIME);
    if input.now >= settled { Ok(()) } else { Err(KeepReason::Unsettled(settled)) }
}

#[cfg(test)]
mod tests;
