//! The guard over deletions of a cloud-controller-manager that runs alone (pure): the rules and limits of ccm-operator, with what this
//! process knows itself.

use std::{collections::BTreeMap, time::Duration};

use ccm_core::{
    api::{deletion::NodeDeletion, status::Deleted},
    nodes::{
        guard::{Attempts, Decision, GuardInput, KeepReason, counts_for, decide},
        node::Node,
    },
};
use k8s_openapi::jiff::Timestamp;

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

/// The guard of a process, from when it began to lead.
pub(crate) struct Guard {
    settings: NodeDeletion,
    leads_since: Timestamp,
    /// The nodes that this process has deleted within the last hour.
    deleted: Vec<Deleted>,
}

impl Guard {
    pub(crate) fn new(options: &GuardOptions, leads_since: Timestamp) -> Self {
        let settings = NodeDeletion {
            min_not_ready_seconds: options.min_not_ready.as_secs().try_into().unwrap_or(u32::MAX),
            max_per_hour: options.max_per_hour,
            max_percent: options.max_percent,
            ..NodeDeletion::default()
        };
        Self { settings, leads_since, deleted: Vec::new() }
    }

    /// Decides which of the nodes whose instances are gone may be deleted. `nodes` are all nodes, `gone` has the uids of those, and
    /// `provider_ids` the beginnings of the cloud's providerIDs.
    pub(crate) fn decide(
        &mut self,
        now: Timestamp,
        nodes: &[Node],
        provider_ids: &[String],
        gone: &[&str],
    ) -> Decision {
        self.deleted.retain(|one| !counts_for(one, now).is_zero());
        let attempts: BTreeMap<_, _> = gone.iter().map(|uid| ((*uid).to_owned(), now)).collect();
        decide(&GuardInput {
            now,
            nodes,
            attempts: Attempts::Own(&attempts),
            provider_ids,
            settings: &self.settings,
            leads_since: Ok(self.leads_since),
            obstacle: None,
            unsettled: None,
            deleted: &self.deleted,
        })
    }

    /// Counts a node that was deleted toward the hourly limit.
    pub(crate) fn count(&mut self, node: &str, uid: &str, now: Timestamp) {
        self.deleted.push(Deleted { node: node.to_owned(), uid: uid.to_owned(), at: now.to_string() });
    }
}

/// Says why a node stays although its instance is gone, with the flag of a limit.
pub(crate) fn message(why: &KeepReason) -> String {
    let flag = match why {
        KeepReason::Young(..) => " (--node-deletion-min-not-ready)",
        KeepReason::PerHour(_) => " (--node-deletion-max-per-hour)",
        KeepReason::TooMany { .. } => " (--node-deletion-max-percent)",
        _ => "",
    };
    format!(
        "the cloud does not have the instance of this node, and the Node is kept: {why}{flag}. To remove it now, delete it with \
         kubectl delete node"
    )
}

#[cfg(test)]
mod tests {
    use ccm_core::nodes::node::{KEEP, Ready};
    use serde_json::json;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

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

    fn decided(guard: &mut Guard, nodes: &[Node], now: Timestamp, gone: &[&str]) -> (Vec<String>, Vec<&'static str>) {
        let Decision { confirmed, waiting, .. } = guard.decide(now, nodes, &["docker://".to_owned()], gone);
        let waiting = waiting.iter().map(|one| one.why.reason()).collect();
        (confirmed.into_iter().map(|entry| entry.name).collect(), waiting)
    }

    /// What is changed, how, which nodes are gone, which of them are deleted, and why the others stay.
    type Case = (
        &'static str,
        fn(&mut GuardOptions, &mut Vec<Node>, &mut Timestamp),
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
            ("it leads too short", |_, _, since| *since = at(-599), &["u0"], &[], &["LeaderTooNew"]),
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
            let (mut options, mut nodes, mut since) = (options(), nodes(2), at(-3600));
            change(&mut options, &mut nodes, &mut since);
            let mut guard = Guard::new(&options, since);
            let (confirmed, waiting) = decided(&mut guard, &nodes, at(0), gone);
            assert_eq!(
                (&confirmed[..], &waiting[..]),
                (&deleted.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>()[..], kept),
                "{what}"
            );
        }
    }

    #[test]
    fn what_was_deleted_counts_for_an_hour() {
        let mut guard = Guard::new(&GuardOptions { max_per_hour: 1, ..options() }, at(-3600));
        let nodes = nodes(2);
        let (confirmed, waiting) = decided(&mut guard, &nodes, at(0), &["u0", "u1"]);
        assert_eq!((confirmed.len(), &waiting[..]), (1, &["MaxPerHour"][..]));
        guard.count("n0", "u0", at(0));
        assert_eq!(decided(&mut guard, &nodes[1..], at(3599), &["u1"]).1, ["MaxPerHour"]);
        assert_eq!(decided(&mut guard, &nodes[1..], at(3600), &["u1"]).0, ["n1"]);
    }

    #[test]
    fn the_annotation_keeps_a_node_and_the_message_has_the_flag() {
        let live = json!({
            "metadata": {"name": "n0", "uid": "u0", "annotations": {KEEP: ""}},
            "spec": {"providerID": "docker:////n0"},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown", "lastTransitionTime": at(-660).to_string()}]},
        });
        let mut nodes = nodes(1);
        nodes[0] = Node::of(&live);
        let mut guard = Guard::new(&options(), at(-3600));
        assert_eq!(decided(&mut guard, &nodes, at(0), &["u0"]).1, ["Kept"]);
        assert!(message(&KeepReason::Kept).contains(KEEP));
        for (why, flag) in [
            (KeepReason::Young(600, at(0)), "--node-deletion-min-not-ready"),
            (KeepReason::PerHour(5), "--node-deletion-max-per-hour"),
            (KeepReason::TooMany { would: 3, of: 10, may: 2, kept: 0 }, "--node-deletion-max-percent"),
        ] {
            assert!(message(&why).contains(flag), "{why}");
        }
    }
}
