//! Determines why nodes wait for their initialization (IO).
//!
//! It reads the cluster only while a node has waited for long, and less often while the diagnosis stays the same. It runs beside the
//! passes, because a read of a log may take long: the API server forwards it to a kubelet. It writes only Events.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use kube::Client;
use tracing::warn;

use crate::{
    api::placement::Distribution,
    controllers::{
        background::Background,
        events::Events,
        observer::{InputKind, Observer},
    },
    evidence,
    grace::NODE_GRACE,
    nodes::{
        diagnose::diagnose,
        diagnosis::Diagnosis,
        evidence::Evidence,
        identity::CcmIdentity,
        node::Node,
        reason::Reason,
        waiting::{Waiting, by_reason, waiting},
    },
};

/// The first and the longest pause between two diagnoses. Each pause is twice the previous one, as long as the diagnosis stays the same.
const PAUSE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(600));

/// The pause if the waiting nodes have changed since the last diagnosis.
const SHORTEST_PAUSE: Duration = Duration::from_secs(10);

/// The period after which an Event that is still true is repeated. The API server deletes Events after an hour, and the next diagnosis may
/// be ten minutes late.
const EVENT_PERIOD: Duration = Duration::from_secs(2700);

/// The maximum number of Events of one diagnosis. Further nodes get their Events at the next one.
const MOST_EVENTS: usize = 100;

/// The known reasons why nodes wait.
pub(super) struct Diagnoser {
    pub(super) diagnoses: Background<DiagnosisResult>,
    /// The names of the cloud-controller-managers of the last diagnosis; `None` before the first one.
    answered: Option<BTreeSet<String>>,
    /// The names of the installed cloud-controller-managers, and the time since which this process has known them.
    known: (BTreeSet<String>, Instant),
    /// The waiting nodes, each with the comma-separated providers whose cloud-controller-managers should initialize it.
    found: Vec<(String, Waiting)>,
    /// The cloud-controller-managers and the revision of the nodes of the last diagnosis, and the time of its start.
    asked: Option<(Vec<CcmIdentity>, u64, Instant)>,
    pause: Duration,
    sent: Sent,
}

/// The names of the diagnosed cloud-controller-managers, and the diagnoses.
type DiagnosisResult = (BTreeSet<String>, Vec<Diagnosis>);

impl Default for Diagnoser {
    fn default() -> Self {
        Self {
            diagnoses: Background::default(),
            answered: None,
            known: (BTreeSet::new(), Instant::now()),
            found: Vec::new(),
            asked: None,
            pause: PAUSE.0,
            sent: BTreeMap::new(),
        }
    }
}

impl Diagnoser {
    /// Whether the nodes that wait for this cloud-controller-manager are known: there was a diagnosis, or no node has waited for long.
    pub(super) fn has_diagnosed(&self, identity: &CcmIdentity, node_counts: &NodeCounts) -> bool {
        let is_old = |since: &Timestamp| age(*since, Timestamp::now()) >= NODE_GRACE;
        let has_answered = self.answered.as_ref().is_some_and(|names| names.contains(&identity.name));
        has_answered || !node_counts.waiting.first().is_some_and(is_old)
    }

    /// Starts a diagnosis if it is due. Returns the time of the next call, even without a change.
    pub(super) fn pass(
        &mut self,
        (client, events): (&Client, &Events),
        observer: &Observer,
        node_counts: &NodeCounts,
        identities: &[CcmIdentity],
    ) -> Option<Instant> {
        self.forget(observer, node_counts);
        let names: BTreeSet<_> = identities.iter().map(|identity| identity.name.clone()).collect();
        if self.known.0 != names {
            self.known = (names.clone(), Instant::now());
        }
        if identities.is_empty() {
            (self.diagnoses.answer, self.answered) = (None, None);
            self.found.clear();
            self.sent.clear();
        }
        if let Some((of, mut diagnoses)) = self.diagnoses.answer.take() {
            // Nodes may have been initialized since the diagnosis began.
            let waiting = still_waiting(observer);
            diagnoses.retain(|one| waiting.contains(&one.uid));
            self.update(&diagnoses, events);
            self.answered = Some(of);
        }
        let Some(first) = node_counts.waiting.first().filter(|_| !identities.is_empty()) else {
            (self.asked, self.pause) = (None, PAUSE.0);
            return None;
        };
        let (now, clock) = (Instant::now(), Timestamp::now());
        // A new cloud-controller-manager gets the whole grace period, even if the nodes are older.
        let earliest = self.known.1 + NODE_GRACE;
        let due = match &self.asked {
            None => (now + NODE_GRACE.saturating_sub(age(*first, clock))).max(earliest),
            Some((before, revision, asked)) => {
                let is_other = before != identities || *revision != node_counts.revision;
                // Nodes that have crossed the limit since then, or are about to, also need a diagnosis.
                let crossing = |since: &Timestamp| {
                    (now + NODE_GRACE).checked_sub(age(*since, clock)).filter(|crossing| crossing > asked)
                };
                let next = *asked + if is_other { SHORTEST_PAUSE } else { self.pause };
                let crossing = node_counts.waiting.iter().filter_map(crossing).min();
                crossing.map_or(next, |crossing| crossing.max(*asked + SHORTEST_PAUSE).min(next)).max(earliest)
            }
        };
        if due > now {
            return Some(due);
        }
        if !self.diagnoses.is_running {
            self.asked = Some((identities.to_vec(), node_counts.revision, now));
            let (client, nodes, identities) = (client.clone(), observer.nodes().collect(), identities.to_vec());
            self.diagnoses.start(async move { (names, diagnose(&observe(&client, nodes, &identities).await)) });
        }
        None
    }

    /// Returns the nodes that wait for the cloud-controller-managers of a provider, longest wait first.
    pub(super) fn waiting<'a>(&'a self, provider: &'a str) -> impl Iterator<Item = &'a Waiting> {
        let is_of = move |providers: &str| providers.is_empty() || providers.split(',').any(|one| one == provider);
        self.found.iter().filter(move |(providers, _)| is_of(providers)).map(|(_, waiting)| waiting)
    }

    /// Returns the number of waiting nodes by the ID of their reason.
    pub(super) fn reasons(&self) -> Vec<(&'static str, usize)> {
        let all: Vec<_> = self.found.iter().map(|(_, one)| one.clone()).collect();
        let counts: BTreeMap<_, _> = by_reason(&all).into_iter().collect();
        Reason::ALL.iter().map(|reason| (reason.id(), counts.get(reason).copied().unwrap_or_default())).collect()
    }

    /// Returns the time since which the first waiting node has waited.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.found.iter().filter_map(|(_, one)| one.since.parse().ok()).min()
    }

    /// Stores the diagnoses, and records Events on the nodes.
    fn update(&mut self, diagnoses: &[Diagnosis], events: &Events) {
        let providers: BTreeMap<_, _> = diagnoses.iter().map(|one| (one.uid.as_str(), one.provider.as_str())).collect();
        let old_enough = |one: &Waiting| {
            let since: Option<Timestamp> = one.since.parse().ok();
            since.is_none_or(|since| age(since, Timestamp::now()) >= NODE_GRACE)
        };
        let waiting = waiting(diagnoses).into_iter().filter(old_enough);
        let found = waiting.map(|one| (providers.get(one.uid.as_str()).copied().unwrap_or_default().to_owned(), one));
        let found: Vec<_> = found.collect();
        self.pause = if found == self.found { (self.pause * 2).min(PAUSE.1) } else { PAUSE.0 };
        self.found = found;
        let now = Instant::now();
        let due = due_events(self.found.iter().map(|(_, one)| one), &self.sent, now);
        let mut left = due.len();
        for one in due.into_iter().take(MOST_EVENTS) {
            let id = one.reason.id();
            let message = format!("{id}: {}; `ccm-operator explain {id}` tells what to do", one.cause);
            if events.of_node((&one.node, &one.uid), one.reason.name(), true, message.clone()) {
                warn!("Node {}: {message}", one.node);
                self.sent.insert(one.uid, (one.reason, one.cause, now));
                left -= 1;
            }
        }
        if left > 0 {
            self.pause = PAUSE.0;
        }
    }

    fn forget(&mut self, observer: &Observer, node_counts: &NodeCounts) {
        if self.found.is_empty() && self.sent.is_empty() {
            return;
        }
        if node_counts.waiting.is_empty() {
            self.found.clear();
            self.sent.clear();
            return;
        }
        if self.asked.as_ref().is_some_and(|(_, revision, _)| *revision == node_counts.revision) {
            return;
        }
        let waiting = still_waiting(observer);
        self.found.retain(|(_, one)| waiting.contains(&one.uid));
        self.sent.retain(|uid, _| waiting.contains(uid));
    }
}

/// Returns the uids of the nodes that no cloud-controller-manager has initialized.
fn still_waiting(observer: &Observer) -> BTreeSet<String> {
    observer.nodes().filter(Node::may_wait).map(|node| node.uid).collect()
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// The Events that were sent, by the uid of the node.
type Sent = BTreeMap<String, (Reason, String, Instant)>;

/// Returns the nodes whose Events are due. New nodes come first, then the nodes with the oldest Events.
fn due_events<'a>(found: impl Iterator<Item = &'a Waiting>, sent: &Sent, now: Instant) -> Vec<Waiting> {
    let is_due = |one: &&Waiting| {
        sent.get(&one.uid).is_none_or(|(reason, cause, at)| {
            (*reason, cause) != (one.reason, &one.cause) || now.duration_since(*at) >= EVENT_PERIOD
        })
    };
    let mut due: Vec<_> = found.filter(is_due).cloned().collect();
    due.sort_by_key(|one| sent.get(&one.uid).map(|(_, _, at)| *at));
    due
}

/// Reads the evidence about these cloud-controller-managers and nodes.
async fn observe(client: &Client, nodes: Vec<Node>, identities: &[CcmIdentity]) -> Evidence {
    let mut evidence = Evidence { now: Timestamp::now(), nodes, ..Evidence::default() };
    evidence::add_ccms(client, (identities, None), true, &mut evidence).await;
    evidence
}

/// The counts of the nodes.
#[derive(Debug, Default)]
pub(super) struct NodeCounts {
    /// The number of all nodes.
    pub(super) total: usize,
    /// The number of nodes with the taint of uninitialized nodes.
    pub(super) uninitialized: usize,
    /// The creation time of the oldest node with the taint.
    pub(super) tainted: Option<Timestamp>,
    /// The creation times of the nodes that no cloud-controller-manager has initialized, oldest first.
    pub(super) waiting: Vec<Timestamp>,
    /// The providerIDs of the nodes that are not ready.
    pub(super) unready: Vec<String>,
    /// The version of the kubelet and the distribution of each node of the control plane.
    pub(super) control_plane: Vec<(String, Option<Distribution>)>,
    /// A number that grows with each count.
    pub(super) revision: u64,
}

impl NodeCounts {
    /// Counts the nodes again if one has changed.
    pub(super) fn update(&mut self, observer: &mut Observer) {
        if !observer.take_change(InputKind::Nodes) {
            return;
        }
        *self = Self { revision: self.revision + 1, ..Self::default() };
        for node in observer.nodes() {
            self.total += 1;
            self.uninitialized += usize::from(node.is_uninitialized());
            if node.is_uninitialized() {
                let created = node.created.parse::<Timestamp>().ok();
                self.tainted = [self.tainted, created].into_iter().flatten().min();
            }
            if node.may_wait() {
                self.waiting.extend(node.created.parse::<Timestamp>());
            }
            if !node.is_ready() {
                self.unready.push(node.provider_id.clone());
            }
            if node.is_control_plane {
                self.control_plane.push((node.kubelet, node.distribution));
            }
        }
        self.waiting.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_known_after_the_first_answer_or_if_no_node_has_waited_for_long() {
        let mut diagnoser = Diagnoser::default();
        let identity = CcmIdentity { name: "cluster".into(), ..CcmIdentity::default() };
        let now = Timestamp::now();
        let since = |seconds: i64| NodeCounts {
            waiting: vec![Timestamp::from_second(now.as_second() - seconds).unwrap()],
            ..NodeCounts::default()
        };
        assert!(
            diagnoser.has_diagnosed(&identity, &NodeCounts::default()) && diagnoser.has_diagnosed(&identity, &since(5))
        );
        assert!(!diagnoser.has_diagnosed(&identity, &since(500)));
        diagnoser.answered = Some(BTreeSet::from(["other".into()]));
        assert!(!diagnoser.has_diagnosed(&identity, &since(500)));
        diagnoser.answered = Some(BTreeSet::from(["cluster".into()]));
        assert!(diagnoser.has_diagnosed(&identity, &since(500)));
    }

    #[test]
    fn who_was_never_told_comes_first_and_an_event_is_repeated_before_it_is_forgotten() {
        let one = |uid: &str, reason| Waiting {
            node: uid.into(),
            uid: uid.into(),
            since: String::new(),
            reason,
            cause: String::new(),
        };
        let (start, crash) = (Instant::now(), Reason::CrashLoop);
        let now = start + Duration::from_secs(3000);
        let told = |reason, seconds| (reason, String::new(), start + Duration::from_secs(seconds));
        let sent = Sent::from([
            ("lately".into(), told(crash, 2_000)),
            ("changed".into(), told(Reason::NoLeader, 2_900)),
            ("long ago".into(), told(crash, 0)),
        ]);
        let found = ["lately", "changed", "long ago", "new"].map(|uid| one(uid, crash));
        let due: Vec<_> = due_events(found.iter(), &sent, now).into_iter().map(|one| one.uid).collect();
        assert_eq!(due, ["new", "long ago", "changed"]);
    }
}
