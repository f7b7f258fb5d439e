//! Which kind of cluster a process is in: OpenShift, or another Kubernetes with `CloudControllerManager`s (IO, by watches).
//!
//! OpenShift serves Infrastructures. Only where the API server says that it does not are `CloudControllerManager`s looked
//! for: on OpenShift this costs no request. A process that is told namespaces for `CloudControllerManager`s asks for nothing
//! else before, and so needs no right to OpenShift's other documents.

use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;
use tracing::warn;

use super::{Id, Observer, keep, one};
use crate::{
    api::CLOUD_CONTROLLER_MANAGER,
    apply::inventory::{PART_OF_LABEL, Place},
    cluster::{
        seen::Seen,
        watch::{Heard, Selector, Target},
    },
    facts::{DOCUMENTS, Document},
    nodes::{evidence::NodeEvent, node::Node},
    object::{EVENT, Kind, NODE},
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

    /// The document by which OpenShift is known.
    pub(in crate::controllers) fn infrastructure(&self) -> Option<&Value> {
        self.watches.seen(&INFRASTRUCTURE)?.objects().next()
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

    /// Watches our objects in a place.
    pub(in crate::controllers) fn watch_place(&mut self, place: &Place) {
        let label = format!("{PART_OF_LABEL}={}", self.set_id);
        self.watches.start(Id::Ours(place.clone()), || Target {
            namespace: place.namespace.clone(),
            ..all(place.kind, &label)
        });
    }

    pub(in crate::controllers) fn watch_status(&mut self) {
        self.watches.start(Id::Status, || one(&status::write::KIND, "", status::write::NAME));
    }

    /// Watches the nodes.
    pub(in crate::controllers) fn watch_nodes(&mut self) {
        self.watches.start(Id::Nodes, || all(&NODE, ""));
    }

    /// Watches what cloud-controller-managers say of nodes.
    pub(in crate::controllers) fn watch_deletions(&mut self) {
        self.watches.start(Id::Deletions, || Target {
            kind: &EVENT,
            namespace: "default".to_owned(),
            // Of the two Events of each try the one that names the user.
            selector: Selector::Fields(
                "involvedObject.kind=Node,reason=DeletingNodeFailed,source=cloud-node-lifecycle-controller",
            ),
            heard: Heard::default(),
        });
    }

    /// The nodes, as far as they have been seen.
    pub(in crate::controllers) fn nodes(&self) -> impl Iterator<Item = Node> {
        let seen = self.watches.seen(&Id::Nodes).into_iter().flat_map(Seen::objects);
        seen.filter_map(keep::kept_node)
    }

    /// The deletions of nodes that cloud-controller-managers were refused; nothing before these have been seen, and while they
    /// have not been for long.
    pub(in crate::controllers) fn refusals(&self) -> Option<Vec<NodeEvent>> {
        let events = self.watches.seen(&Id::Deletions).filter(|seen| seen.is_synced())?;
        if self.refusals_trouble().is_some() {
            return None;
        }
        // Of others nothing is kept.
        let events = events.objects().filter_map(|kept| NodeEvent::deserialize(kept).ok());
        Some(events.filter(|event| !event.uid.is_empty()).collect())
    }

    /// Why these have not been seen for long, if so.
    pub(in crate::controllers) fn refusals_trouble(&self) -> Option<String> {
        self.watches.lasting_trouble(TRANSIENT_ERROR_PATIENCE, |id| *id == Id::Deletions)
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
