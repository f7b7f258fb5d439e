//! Which kind of cluster a process is in: OpenShift, or another Kubernetes with `CloudControllerManager`s (IO, by watches).
//!
//! OpenShift serves Infrastructures. Only where the API server says that it does not are `CloudControllerManager`s looked
//! for: on OpenShift this costs no request. A process that is told namespaces for `CloudControllerManager`s asks for nothing
//! else before, and so needs no right to OpenShift's other documents.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use tracing::warn;

use super::{Id, Observer, one};
use crate::{
    api::CLOUD_CONTROLLER_MANAGER,
    cluster::{
        seen::Seen,
        watch::{Heard, Selector, Target},
    },
    facts::{DOCUMENTS, Document},
    object::{EVENT, Kind, NODE},
    provider::upstream::CONTROL_PLANE_LABEL,
    status::{self, cluster_operator::TRANSIENT_ERROR_PATIENCE},
};

/// The kind of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::controllers) enum World {
    /// Nothing has said yet which.
    #[default]
    Unknown,
    /// It serves neither kind so far.
    Neither,
    /// OpenShift or OKD: the Infrastructure and the ClusterOperator.
    OpenShift,
    /// Any other: `CloudControllerManager`s.
    Kubernetes,
}

/// The watch of what a cluster is asked for first.
const INFRASTRUCTURE: Id = Id::Document("infrastructures");

/// How long the Event about a node counts. It is repeated within five minutes.
const LATELY: Duration = Duration::from_secs(600);

/// Whether a watch is of a kind that only one kind of cluster serves.
pub(super) fn is_question(id: &Id) -> bool {
    matches!(id, Id::Document(_) | Id::Status | Id::Managers)
}

/// A watch of all objects of a kind with a label; an empty one: of all.
fn all(kind: &'static Kind, label: &str) -> Target {
    let (selector, heard) = (Selector::Label(label.to_owned()), Heard::default());
    Target { kind, namespace: String::new(), selector, heard }
}

/// What is said of a cluster that is neither.
const NEITHER: &str = "this cluster serves neither infrastructures.config.openshift.io (OpenShift) nor \
                                  cloudcontrollermanagers.ccm-operator.dev: install the CustomResourceDefinition of the \
                                  latter, which `ccm-operator render --phase install --flavour upstream` prints";

impl Observer {
    /// Asks for the one document by which OpenShift is known.
    pub(in crate::controllers) fn ask_for_world(&mut self) {
        let is_asked_for = |document: &&Document| INFRASTRUCTURE == Id::Document(document.kind.plural);
        self.want_documents(DOCUMENTS.iter().filter(is_asked_for).collect());
    }

    /// What is waited for while the kind of the cluster is not known.
    pub(in crate::controllers) fn waits_for_world(&self) -> Vec<String> {
        let is_unserved = |id| self.watches.seen(id).and_then(Seen::trouble).is_some_and(|trouble| trouble.is_unserved);
        if is_unserved(&INFRASTRUCTURE) && is_unserved(&Id::Managers) {
            return vec![NEITHER.to_owned()];
        }
        self.watches.pending(|id| *id == INFRASTRUCTURE || *id == Id::Managers)
    }

    /// The kind of the cluster; once it is known it stays. An Infrastructure that cannot be read for long is reported as on
    /// OpenShift, in case this is one.
    pub(in crate::controllers) fn world(&mut self) -> World {
        if matches!(self.world, World::OpenShift | World::Kubernetes) {
            return self.world;
        }
        let infrastructure = self.watches.seen(&INFRASTRUCTURE);
        let trouble = infrastructure.and_then(Seen::trouble);
        if infrastructure.is_some_and(Seen::is_synced) {
            self.watch_status();
            self.watches.keep(|id| *id != Id::Managers);
            self.world = World::OpenShift;
        } else if trouble.is_some_and(|trouble| trouble.is_unserved) {
            self.look_for_managers();
        } else if trouble.is_some_and(|trouble| trouble.lasts_at(TRANSIENT_ERROR_PATIENCE) <= Instant::now()) {
            self.watch_status();
            return World::OpenShift;
        }
        self.world
    }

    pub(in crate::controllers) fn watch_status(&mut self) {
        self.watches.start(Id::Status, || one(&status::write::KIND, "", status::write::NAME));
    }

    /// Watches the nodes of the control plane, and what cloud-controller-managers say of nodes.
    pub(in crate::controllers) fn watch_nodes(&mut self) {
        self.watches.start(Id::Nodes, || all(&NODE, CONTROL_PLANE_LABEL));
        self.watches.start(Id::Deletions, || Target {
            kind: &EVENT,
            namespace: "default".to_owned(),
            // Of the two Events of each try the first: the library repeats the other one only a few times.
            selector: Selector::Fields(
                "involvedObject.kind=Node,reason=DeletingNode,source=cloud-node-lifecycle-controller",
            ),
            heard: Heard::default(),
        });
    }

    /// The nodes that cloud-controller-managers have lately tried to delete, and when the first of these is forgotten; nothing
    /// before that has been seen.
    pub(in crate::controllers) fn gone_nodes(&self, now: Timestamp) -> Option<(BTreeSet<String>, Option<Instant>)> {
        let events = self.watches.seen(&Id::Deletions).filter(|seen| seen.is_synced())?;
        let recent = events.objects().filter_map(|event| {
            let last: Timestamp = event["lastTimestamp"].as_str()?.parse().ok()?;
            let age = Duration::try_from(now.duration_since(last)).unwrap_or_default();
            Some((event["node"].as_str()?.to_owned(), LATELY.checked_sub(age)?))
        });
        let recent: Vec<_> = recent.collect();
        let next = recent.iter().map(|(_, left)| Instant::now() + *left).min();
        Some((recent.into_iter().map(|(node, _)| node).collect(), next))
    }

    fn look_for_managers(&mut self) {
        // What was watched only in case this is OpenShift.
        self.watches.keep(|id| *id != Id::Status);
        self.ask_for_world();
        self.watches.start(Id::Managers, || all(&CLOUD_CONTROLLER_MANAGER, ""));
        let managers = self.watches.seen(&Id::Managers);
        if managers.is_some_and(Seen::is_synced) {
            self.want_documents(Vec::new());
            self.world = World::Kubernetes;
        } else if managers.and_then(Seen::trouble).is_some_and(|trouble| trouble.is_unserved)
            && std::mem::replace(&mut self.world, World::Neither) != World::Neither
        {
            warn!("{NEITHER}");
        }
    }
}
