//! Nodes that a cloud-controller-manager has deleted.
//!
//! A cloud-controller-manager announces each attempt with an Event, but its client drops Events: after 25 Events about a node it sends one
//! every five minutes. So the Event of the successful attempt may be missing. The status of a `CloudControllerManager` lists the nodes
//! whose deletion the operator has allowed, and the log of the leader has the latest attempts.

use std::collections::BTreeMap;

use super::{ClusterContext, clean, events};
use crate::nodes::{
    diagnosis::{Diagnosis, Observation, State},
    evidence::NodeEvent,
};

/// Returns the diagnosis of a deleted node, with the evidence of the deletion.
fn gone((node, uid): (&str, &str), provider: &str, since: Option<String>, (what, shown): (String, &str)) -> Diagnosis {
    let finding = events::deletion(shown);
    Diagnosis {
        node: clean(node),
        uid: clean(uid),
        state: State::Deleted,
        provider: provider.to_owned(),
        provider_id: String::new(),
        since,
        observations: vec![Observation { what, showed: finding.evidence.clone(), was_seen: true }],
        findings: vec![finding],
    }
}

impl ClusterContext<'_> {
    /// Returns the deleted nodes. If several sources show a deletion, the Event wins because it has the time, then the status.
    pub(super) fn deleted(&self) -> Vec<Diagnosis> {
        let mut gone: BTreeMap<&str, Diagnosis> = self.by_log().collect();
        gone.extend(self.by_status());
        gone.extend(self.by_event());
        for node in &self.evidence.nodes {
            gone.remove(node.name.as_str());
        }
        gone.into_values().collect()
    }

    fn by_log(&self) -> impl Iterator<Item = (&str, Diagnosis)> {
        self.ccms.iter().flat_map(|diagnosed| {
            diagnosed.log.deleted.iter().map(|(node, message)| {
                let sign = (format!("the log of {}", diagnosed.name), message.as_str());
                (node.as_str(), gone((node, ""), &diagnosed.identity().provider, None, sign))
            })
        })
    }

    fn by_status(&self) -> impl Iterator<Item = (&str, Diagnosis)> {
        self.evidence.deleted.iter().map(|(ccm, deleted)| {
            let diagnosed = self.ccms.iter().find(|diagnosed| diagnosed.identity().name == *ccm);
            let provider = diagnosed.map_or("", |diagnosed| &diagnosed.identity().provider);
            let shown = format!("status.nodeDeletion.deleted of CloudControllerManager/{ccm}");
            let sign = (format!("the status of CloudControllerManager/{ccm}"), shown.as_str());
            (deleted.node.as_str(), gone((&deleted.node, &deleted.uid), provider, Some(deleted.at.clone()), sign))
        })
    }

    /// Returns the deleted nodes by their newest Events.
    fn by_event(&self) -> impl Iterator<Item = (&str, Diagnosis)> {
        let all = || self.evidence.events.iter().flatten();
        let mut last: BTreeMap<&str, &NodeEvent> = BTreeMap::new();
        for event in all().filter(|event| events::is_deletion(event)) {
            if all().any(|other| events::undoes(other, event)) {
                continue;
            }
            let known = last.entry(&event.node).or_insert(event);
            if known.last < event.last {
                *known = event;
            }
        }
        let provider = match self.ccms.as_slice() {
            [one] => one.identity().provider.as_str(),
            _ => "",
        };
        last.into_iter().map(move |(node, event)| {
            let sign = ("the Events about the node".to_owned(), event.message.as_str());
            (node, gone((node, &event.uid), provider, event.last.map(|last| last.to_string()), sign))
        })
    }
}
