//! Nodes that a cloud-controller-manager has deleted.
//!
//! It announces each attempt by an Event, but its client drops Events: after 25 Events about a node it sends one in
//! five minutes. So the Event of the successful attempt may be missing. The status of a `CloudControllerManager` lists
//! the nodes whose deletion the operator has allowed, and the log of the leader has the latest attempts.

use std::collections::{BTreeMap, BTreeSet};

use super::{Cluster, clean, events};
use crate::nodes::{
    diagnosis::{Diagnosis, Observation, State},
    evidence::NodeEvent,
};

/// What shows that a node was deleted.
struct Sign<'a> {
    uid: &'a str,
    provider: &'a str,
    since: Option<String>,
    what: String,
    shown: String,
}

impl Cluster<'_> {
    /// The nodes that are gone; of several signs of one the Event, which has its time, or else the status.
    pub(super) fn deleted(&self) -> Vec<Diagnosis> {
        let names: BTreeSet<&str> = self.evidence.nodes.iter().map(|node| node.name.as_str()).collect();
        let mut signs: BTreeMap<&str, Sign> = self.by_log().collect();
        signs.extend(self.by_status());
        signs.extend(self.by_event());
        let diagnosis = |(node, sign): (&str, Sign)| {
            let finding = events::deletion(&sign.shown);
            Diagnosis {
                node: clean(node),
                uid: clean(sign.uid),
                state: State::Deleted,
                provider: sign.provider.to_owned(),
                provider_id: String::new(),
                since: sign.since,
                observations: vec![Observation { what: sign.what, showed: finding.evidence.clone(), was_seen: true }],
                findings: vec![finding],
            }
        };
        signs.into_iter().filter(|(node, _)| !names.contains(node)).map(diagnosis).collect()
    }

    fn by_log(&self) -> impl Iterator<Item = (&str, Sign<'_>)> {
        self.ccms.iter().flat_map(|diagnosed| {
            diagnosed.log.deleted.iter().map(|(node, message)| {
                let what = format!("the log of {}", diagnosed.name);
                let provider = &diagnosed.identity().provider;
                (node.as_str(), Sign { uid: "", provider, since: None, what, shown: message.clone() })
            })
        })
    }

    fn by_status(&self) -> impl Iterator<Item = (&str, Sign<'_>)> {
        self.evidence.deleted.iter().map(|(ccm, deleted)| {
            let provider = self.ccms.iter().find(|diagnosed| diagnosed.identity().name == *ccm);
            let shown = format!("status.nodeDeletion.deleted of CloudControllerManager/{ccm}");
            let sign = Sign {
                uid: &deleted.uid,
                provider: provider.map_or("", |diagnosed| &diagnosed.identity().provider),
                since: Some(deleted.at.clone()),
                what: format!("the status of CloudControllerManager/{ccm}"),
                shown,
            };
            (deleted.node.as_str(), sign)
        })
    }

    /// The newest Event of each.
    fn by_event(&self) -> BTreeMap<&str, Sign<'_>> {
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
        let signs = last.into_iter().map(|(node, event)| {
            let since = event.last.map(|last| last.to_string());
            let what = "the Events about the node".to_owned();
            (node, Sign { uid: &event.uid, provider, since, what, shown: event.message.clone() })
        });
        signs.collect()
    }
}
