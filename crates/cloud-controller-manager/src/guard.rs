//! The guard over deletions of a cloud-controller-manager that runs alone (pure): the rules and limits of ccm-operator, with what this
//! process knows itself.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use ccm_core::{
    api::{deletion::NodeDeletion, status::Deleted},
    nodes::{
        guard::{
            Attempts, Decision, GuardInput, HOUR, KeepReason, MIN_LEADING_TIME, MOST, UnconfirmedNode, counts_for,
            decide,
        },
        node::Node,
    },
};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The limits of deletions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuardOptions {
    /// The time for which a node must not have been ready.
    pub(crate) min_not_ready: Duration,
    /// The maximum number of deleted nodes per hour.
    pub(crate) max_per_hour: u32,
    /// The maximum percentage of the cloud's nodes that may wait for their deletion at once; one node always may.
    pub(crate) max_percent: u8,
}

/// The largest difference between the clocks that is not taken for a wall clock that was set.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(30);

/// A time of both clocks. The wall clock, which the times of nodes are compared with, may be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) wall: Timestamp,
    pub(crate) monotonic: Instant,
}

impl Clocks {
    /// Reads both clocks.
    pub(crate) fn read() -> Self {
        Self { wall: Timestamp::now(), monotonic: Instant::now() }
    }

    /// Whether the wall clock was set between this time and a later one.
    fn were_set(self, later: Self) -> bool {
        let passed = later.monotonic.saturating_duration_since(self.monotonic);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        later.wall.duration_since(self.wall).saturating_sub(passed).abs() > CLOCK_SKEW
    }
}

/// The guard of a process, from when it began to lead.
pub(crate) struct Guard {
    settings: NodeDeletion,
    leads_since: Clocks,
    /// The nodes that this process has deleted within the last hour.
    deleted: Vec<Deleted>,
}

impl Guard {
    pub(crate) fn new(options: &GuardOptions, leads_since: Clocks) -> Self {
        let settings = NodeDeletion {
            min_not_ready_seconds: options.min_not_ready.as_secs().try_into().unwrap_or(u32::MAX),
            max_per_hour: options.max_per_hour,
            max_percent: options.max_percent,
            ..NodeDeletion::default()
        };
        Self { settings, leads_since, deleted: Vec::new() }
    }

    /// Decides which of the nodes whose instances are gone may be deleted. `nodes` are all nodes, `provider_ids` the beginnings of the
    /// cloud's providerIDs, and `gone` has the uids of those nodes. `obstacle` is why none may be deleted now.
    pub(crate) fn decide(
        &mut self,
        now: Clocks,
        nodes: &[Node],
        (provider_ids, gone): (&[String], &[&str]),
        obstacle: Option<&str>,
    ) -> Decision {
        if self.leads_since.were_set(now) {
            // What seems to be ten minutes may have been a second.
            self.leads_since = now;
        }
        let now = now.wall;
        self.deleted.retain(|one| !counts_for(one, now).is_zero());
        let attempts: BTreeMap<_, _> = gone.iter().map(|uid| ((*uid).to_owned(), now)).collect();
        decide(&GuardInput {
            now,
            nodes,
            attempts: Attempts::Own(&attempts),
            provider_ids,
            settings: &self.settings,
            leads_since: Ok(self.leads_since.wall),
            obstacle,
            unsettled: None,
            deleted: &self.deleted,
        })
    }

    /// Counts a node that was deleted toward the hourly limit.
    pub(crate) fn count(&mut self, node: &str, uid: &str, now: Timestamp) {
        self.deleted.push(Deleted { node: node.to_owned(), uid: uid.to_owned(), at: now.to_string() });
    }

    /// Says why a node stays although its instance is gone: with the flag of a limit, and until when it stays if that is known.
    pub(crate) fn message(&self, kept: &UnconfirmedNode, provider_id: &str) -> String {
        let why = match &kept.why {
            KeepReason::OtherCloudProviderID(_) if provider_id.is_empty() => {
                "it has no providerID, so that it is not known to be of this cloud".to_owned()
            }
            KeepReason::Young(seconds, until) => format!(
                "it must not have been ready for {seconds} s (--node-deletion-min-not-ready); {}",
                self.later(*until)
            ),
            KeepReason::Unsettled(until) => format!(
                "this process must have led for {} minutes without a change of the clock; {}",
                MIN_LEADING_TIME.as_mins(),
                self.later(*until)
            ),
            KeepReason::PerHour(most) => format!(
                "{most} nodes may be deleted in an hour (--node-deletion-max-per-hour, at most {MOST}){}",
                self.next_in_the_hour().map_or_else(String::new, |until| format!(", so it stays until {until:.0}"))
            ),
            KeepReason::TooMany { would, of, may, kept } => {
                let others = if *kept == 0 { String::new() } else { format!("; {kept} more are kept by other rules") };
                format!(
                    "{would} of {of} nodes would be deleted, and {may} may (--node-deletion-max-percent){others}: check the account, \
                     the region and the credentials"
                )
            }
            why => why.to_string(),
        };
        format!(
            "the cloud does not have the instance of this node, and the Node is kept: {why}. To remove it now, delete it with kubectl \
             delete node"
        )
    }

    /// Says when a node is deleted that waits until a time: the latest of all times that are known now, because nothing happens before.
    fn later(&self, until: Timestamp) -> String {
        let leads = self.leads_since.wall.checked_add(MIN_LEADING_TIME).unwrap_or(until);
        let is_full = u32::try_from(self.deleted.len()).is_ok_and(|deleted| deleted >= self.settings.max_per_hour);
        let in_the_hour = if is_full { self.next_in_the_hour() } else { None };
        let until = until.max(leads).max(in_the_hour.unwrap_or(until));
        format!("it is deleted after {until:.0} if its instance is still gone")
    }

    /// The time from which the first of the counted deletions no longer counts.
    fn next_in_the_hour(&self) -> Option<Timestamp> {
        let first = self.deleted.iter().filter_map(|one| one.at.parse::<Timestamp>().ok()).min()?;
        first.checked_add(HOUR).ok()
    }
}

#[cfg(test)]
mod tests {
    use ccm_core::nodes::node::{KEEP, Ready};
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    /// The time of both clocks, of which the wall clock was set by this many seconds.
    fn clocks(seconds: u32, set_by: i64) -> Clocks {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        let monotonic = *START + Duration::from_secs(seconds.into());
        Clocks { wall: at(i64::from(seconds) - 3600 + set_by), monotonic }
    }

    /// The time at which most cases are decided.
    const NOW: u32 = 3600;

    /// Ten nodes, of which `n0` to `n<gone>` have been unready for 11 minutes.
    fn nodes(gone: usize) -> Vec<Node> {
        let ready = |number: usize| {
            let (status, since) = if number < gone { ("Unknown", -660) } else { ("True", -9999) };
            Some(Ready { status: status.into(), since: at(since).to_string(), ..Ready::default() })
        };
        let node = |number: usize| Node {
            name: format!("n{number}"),
            uid: format!("u{number}"),
            provider_id: format!("docker:////n{number}"),
            ready: ready(number),
            ..Node::default()
        };
        (0..10).map(node).collect()
    }

    fn options() -> GuardOptions {
        GuardOptions { min_not_ready: Duration::from_secs(600), max_per_hour: 5, max_percent: 20 }
    }

    /// The message about a node that stays.
    fn message(guard: &Guard, why: KeepReason, provider_id: &str) -> String {
        let kept = UnconfirmedNode { node: "n0".into(), uid: "u0".into(), since: String::new(), why };
        guard.message(&kept, provider_id)
    }

    fn decided(guard: &mut Guard, nodes: &[Node], now: Clocks, gone: &[&str]) -> (Vec<String>, Vec<&'static str>) {
        let Decision { confirmed, waiting, .. } = guard.decide(now, nodes, (&["docker://".to_owned()], gone), None);
        let waiting = waiting.iter().map(|one| one.why.reason()).collect();
        (confirmed.into_iter().map(|entry| entry.name).collect(), waiting)
    }

    /// What is changed, how, which nodes are gone, which of them are deleted, and why the others stay.
    type Case = (
        &'static str,
        fn(&mut GuardOptions, &mut Vec<Node>, &mut u32),
        &'static [&'static str],
        &'static [&'static str],
        &'static [&'static str],
    );

    #[test]
    fn the_figures_are_those_of_the_flags() {
        let cases: [Case; 9] = [
            ("as it is", |_, _, _| {}, &["u0"], &["n0"], &[]),
            ("nothing is gone", |_, _, _| {}, &[], &[], &[]),
            ("a ready node", |_, _, _| {}, &["u5"], &[], &[]),
            (
                "unready for too short",
                |options, _, _| options.min_not_ready = Duration::from_secs(661),
                &["u0"],
                &[],
                &["NotReadyTooShort"],
            ),
            (
                "unready for long enough",
                |options, _, _| options.min_not_ready = Duration::from_secs(660),
                &["u0"],
                &["n0"],
                &[],
            ),
            ("it leads too short", |_, _, since| *since = NOW - 599, &["u0"], &[], &["LeaderTooNew"]),
            (
                "too many",
                |options, _, _| options.max_percent = 10,
                &["u0", "u1"],
                &[],
                &["TooManyNodes", "TooManyNodes"],
            ),
            ("as many as may", |_, _, _| {}, &["u0", "u1"], &["n0", "n1"], &[]),
            ("another cloud", |_, nodes, _| nodes[0].provider_id = "aws:///a".into(), &["u0"], &[], &["OtherCloud"]),
        ];
        for (what, change, gone, deleted, kept) in cases {
            let (mut options, mut nodes, mut since) = (options(), nodes(2), 0);
            change(&mut options, &mut nodes, &mut since);
            let mut guard = Guard::new(&options, clocks(since, 0));
            let (confirmed, waiting) = decided(&mut guard, &nodes, clocks(NOW, 0), gone);
            assert_eq!(
                (&confirmed[..], &waiting[..]),
                (&deleted.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>()[..], kept),
                "{what}"
            );
        }
    }

    #[test]
    fn nothing_is_deleted_while_the_nodes_cannot_be_seen() {
        let (mut guard, nodes) = (Guard::new(&options(), clocks(0, 0)), nodes(1));
        let ids = ["docker://".to_owned()];
        for (obstacle, kept) in [(None, &[][..]), (Some("the watch fails"), &["Blocked"])] {
            let decision = guard.decide(clocks(NOW, 0), &nodes, (&ids, &["u0"]), obstacle);
            assert_eq!(decision.waiting.iter().map(|one| one.why.reason()).collect::<Vec<_>>(), kept);
            assert_eq!(decision.confirmed.len(), 1 - kept.len());
        }
    }

    #[test]
    fn what_was_deleted_counts_for_an_hour() {
        let mut guard = Guard::new(&GuardOptions { max_per_hour: 1, ..options() }, clocks(0, 0));
        let nodes = nodes(2);
        let (confirmed, waiting) = decided(&mut guard, &nodes, clocks(NOW, 0), &["u0", "u1"]);
        assert_eq!((confirmed.len(), &waiting[..]), (1, &["MaxPerHour"][..]));
        guard.count("n0", "u0", at(0));
        assert_eq!(decided(&mut guard, &nodes[1..], clocks(NOW + 3599, 0), &["u1"]).1, ["MaxPerHour"]);
        assert_eq!(decided(&mut guard, &nodes[1..], clocks(NOW + 3600, 0), &["u1"]).0, ["n1"]);
    }

    #[test]
    fn the_ten_minutes_begin_again_when_the_clock_is_set() {
        for set_by in [3600, -7200] {
            let mut guard = Guard::new(&options(), clocks(0, 0));
            let mut nodes = nodes(1);
            let mut kept = |seconds: u32, set_by: i64| {
                // It became unready a day ago by any clock.
                nodes[0].ready.as_mut().unwrap().since = at(-86_400).to_string();
                decided(&mut guard, &nodes, clocks(seconds, set_by), &["u0"]).1
            };
            assert_eq!(kept(601, 0), [""; 0]);
            assert_eq!(kept(602, set_by), ["LeaderTooNew"], "{set_by}");
            assert_eq!(kept(1201, set_by), ["LeaderTooNew"], "{set_by}");
            assert_eq!(kept(1202, set_by), [""; 0], "{set_by}");
        }
    }

    #[test]
    fn the_annotation_keeps_a_node_and_the_message_names_it() {
        let live = json!({
            "metadata": {"name": "n0", "uid": "u0", "annotations": {KEEP: ""}},
            "spec": {"providerID": "docker:////n0"},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-660).to_string()}]},
        });
        let mut nodes = nodes(1);
        nodes[0] = Node::of(&live);
        let mut guard = Guard::new(&options(), clocks(0, 0));
        assert_eq!(decided(&mut guard, &nodes, clocks(NOW, 0), &["u0"]).1, ["Kept"]);
        assert!(message(&guard, KeepReason::Kept, "docker:////n0").contains(KEEP));
        let other = KeepReason::OtherCloudProviderID(vec!["docker://".to_owned()]);
        assert!(message(&guard, other.clone(), "aws:///i-1").contains("is not of this cloud"));
        assert!(message(&guard, other, "").contains("it has no providerID"));
    }

    /// The module of the rules is the operator's as well, whose settings are fields.
    #[test]
    fn a_message_names_the_flag_and_the_time_and_no_field_of_the_operator() {
        let mut guard = Guard::new(&options(), clocks(0, 0));
        guard.count("n1", "u1", at(-60));
        guard.count("n0", "u0", at(-3000));
        for (why, expected) in [
            (
                KeepReason::Young(600, at(90)),
                "it must not have been ready for 600 s (--node-deletion-min-not-ready); it is deleted after 2027-01-15T08:01:30Z if",
            ),
            (
                KeepReason::Unsettled(at(60)),
                "must have led for 10 minutes without a change of the clock; it is deleted after 2027-01-15T08:01:00Z if its",
            ),
            (
                KeepReason::PerHour(5),
                "5 nodes may be deleted in an hour (--node-deletion-max-per-hour, at most 256), so it stays until 2027-01-15T08:10:00Z.",
            ),
            (
                KeepReason::TooMany { would: 3, of: 10, may: 2, kept: 1 },
                "3 of 10 nodes would be deleted, and 2 may (--node-deletion-max-percent); 1 more are kept by other rules: check",
            ),
        ] {
            let message = message(&guard, why, "docker:////n0");
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains("nodeDeletion"), "{message}");
        }
    }

    /// A node that is not ready for long enough at one time may have to wait for another one, and nothing happens in between.
    #[test]
    fn the_time_is_the_latest_that_is_known() {
        let (mut nodes, mut options) = (nodes(1), options());
        nodes[0].ready.as_mut().unwrap().since = at(-599).to_string();
        options.max_per_hour = 1;
        let mut guard = Guard::new(&options, clocks(NOW - 60, 0));
        let kept = |guard: &mut Guard| {
            let decision = guard.decide(clocks(NOW, 0), &nodes, (&["docker://".to_owned()], &["u0"]), None);
            assert_eq!(decision.waiting[0].why.reason(), "NotReadyTooShort");
            guard.message(&decision.waiting[0], "docker:////n0")
        };
        let deleted_after =
            |seconds: i64| format!("; it is deleted after {} if its instance is still gone.", at(seconds));
        let of_leader = kept(&mut guard);
        assert!(of_leader.contains(&deleted_after(540)), "{of_leader}");
        guard.count("n1", "u1", at(-60));
        let of_hour = kept(&mut guard);
        assert!(of_hour.contains(&deleted_after(3540)), "{of_hour}");
    }
}
