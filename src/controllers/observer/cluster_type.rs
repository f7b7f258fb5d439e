//! The kind of cluster that a process is in: OpenShift, or another Kubernetes with `CloudControllerManager`s (IO, by
//! watches).
//!
//! OpenShift has the Infrastructure `cluster` or the ClusterOperator. A definition of these kinds proves nothing, because any cluster may
//! have it. `CloudControllerManager`s are watched only if the Infrastructure does not exist, so they cost no request on OpenShift. With
//! namespaces for `CloudControllerManager`s on its command line, a process is on another Kubernetes: it requests none of OpenShift's kinds,
//! and needs no permission for them.

use std::time::Instant;

use serde::Deserialize;
use serde_json::Value;
use tracing::warn;

use super::{Id, Observer, keep};
use crate::{
    api::CLOUD_CONTROLLER_MANAGER,
    apply::inventory::Location,
    cluster::{
        seen::Seen,
        watch::{Collection, Selector},
    },
    facts::{DOCUMENTS, Document, PLATFORM_DOCUMENT},
    grace::TRANSIENT_ERROR_GRACE,
    nodes::{evidence::NodeEvent, node::Node},
    object::{EVENT, NODE, PART_OF_LABEL},
    status,
};

/// The type of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::controllers) enum ClusterType {
    /// The watches have not answered yet.
    #[default]
    Unknown,
    /// The cluster has neither OpenShift's objects nor a `CloudControllerManager` so far.
    Neither,
    /// OpenShift or OKD: the cluster has the Infrastructure or the ClusterOperator.
    OpenShift,
    /// Any other Kubernetes, with `CloudControllerManager`s.
    Kubernetes,
}

/// The first watch that shows whether a cluster is OpenShift.
const PLATFORM_WATCH: Id = Id::Document(PLATFORM_DOCUMENT.kind.plural);

/// Whether a watch is of a kind that only one type of cluster serves.
pub(super) fn is_of_one_cluster_type(id: &Id) -> bool {
    matches!(id, Id::Document(_) | Id::Status | Id::Ccms)
}

/// The problem of a cluster that serves neither kind.
const NEITHER: &str = "this cluster serves neither infrastructures.config.openshift.io (OpenShift) nor \
                                  cloudcontrollermanagers.ccm-operator.dev: install the CustomResourceDefinition of the \
                                  latter, which `ccm-operator render install` prints";

/// The problem of a cluster without the definition, if the command line says that it is not OpenShift.
const NO_DEFINITION: &str = "this cluster does not serve cloudcontrollermanagers.ccm-operator.dev: install the \
                             CustomResourceDefinition, which `ccm-operator render install` prints";

/// The problem of a cluster that serves OpenShift's kinds and has no object of either.
const NO_OBJECT: &str = "this cluster has neither infrastructures.config.openshift.io cluster nor clusteroperators.config.openshift.io \
                         cloud-controller-manager (OpenShift), nor a CloudControllerManager: waiting for one of them";

impl Observer {
    /// The live Infrastructure, which shows that the cluster is OpenShift.
    pub(in crate::controllers) fn platform_document(&self) -> Option<&Value> {
        self.watches.seen(&PLATFORM_WATCH)?.objects().next()
    }

    /// Whether the document that shows the platform is the only watched one.
    pub(in crate::controllers) fn watches_only_platform(&self) -> bool {
        *self.documents == [&PLATFORM_DOCUMENT]
    }

    /// Watches a cluster that is not OpenShift according to the command line, whichever kinds it serves.
    pub(in crate::controllers) fn watch_given_kubernetes(&mut self) {
        self.is_kubernetes_given = true;
        self.watch_ccms();
    }

    /// Returns the reasons why the type of the cluster is not known yet.
    pub(in crate::controllers) fn pending_cluster_type(&self) -> Vec<String> {
        if let Some(why) = self.why_undecided() {
            return vec![why.to_owned()];
        }
        self.watches.pending(|id| *id == PLATFORM_WATCH || *id == Id::Ccms)
    }

    /// Returns the reason why the type of the cluster stays unknown although every watch has answered.
    fn why_undecided(&self) -> Option<&'static str> {
        let is_defined = !self.is_unserved(&Id::Ccms);
        if self.is_kubernetes_given {
            return (!is_defined).then_some(NO_DEFINITION);
        }
        if self.is_unserved(&PLATFORM_WATCH) {
            return (!is_defined).then_some(NEITHER);
        }
        let is_absent = self.watches.seen(&PLATFORM_WATCH).is_some_and(Seen::is_synced);
        (is_absent && self.is_answered(&Id::Ccms) && !self.exists(&Id::Ccms)).then_some(NO_OBJECT)
    }

    fn is_unserved(&self, id: &Id) -> bool {
        self.watches.seen(id).and_then(Seen::problem).is_some_and(|problem| problem.is_unserved)
    }

    fn is_answered(&self, id: &Id) -> bool {
        self.watches.seen(id).is_some_and(|seen| seen.is_synced() || seen.problem().is_some())
    }

    /// Whether a watch has seen an object.
    fn exists(&self, id: &Id) -> bool {
        self.watches.seen(id).is_some_and(|seen| seen.is_synced() && seen.objects().next().is_some())
    }

    /// Starts and ends the watches that show the type of the cluster, and returns the type, which does not change once it is known. If the
    /// Infrastructure cannot be read for long, the cluster counts as OpenShift, so that the problem is reported if it is OpenShift.
    pub(in crate::controllers) fn observe_cluster_type(&mut self) -> ClusterType {
        if matches!(self.cluster_type, ClusterType::OpenShift | ClusterType::Kubernetes) {
            return self.cluster_type;
        }
        let is_synced = self.watches.seen(&PLATFORM_WATCH).is_some_and(Seen::is_synced);
        if is_synced {
            self.watch_status();
        }
        let is_absent = is_synced && self.is_answered(&Id::Status);
        let problem = self.watches.seen(&PLATFORM_WATCH).and_then(Seen::problem);
        if self.exists(&PLATFORM_WATCH) || self.exists(&Id::Status) {
            self.watches.keep(|id| *id != Id::Ccms);
            self.cluster_type = ClusterType::OpenShift;
        } else if self.is_kubernetes_given || is_absent || self.is_unserved(&PLATFORM_WATCH) {
            self.watch_for_ccms();
        } else if problem.is_some_and(|problem| problem.lasts_at(TRANSIENT_ERROR_GRACE) <= Instant::now()) {
            self.watch_status();
            return ClusterType::OpenShift;
        }
        self.cluster_type
    }

    pub(in crate::controllers) fn watch_location(&mut self, location: &Location) {
        let label = format!("{PART_OF_LABEL}={}", self.set_id);
        let target = || Collection::labeled(location.kind, &location.namespace, &label);
        self.watches.start(Id::Ours(location.clone()), target);
    }

    pub(in crate::controllers) fn watch_status(&mut self) {
        self.watches.start(Id::Status, || Collection::named(&status::write::KIND, "", status::write::NAME));
    }

    pub(in crate::controllers) fn watch_nodes(&mut self) {
        self.watches.start(Id::Nodes, || Collection::labeled(&NODE, "", ""));
    }

    /// Watches the Events of cloud-controller-managers whose deletions of nodes were refused.
    pub(in crate::controllers) fn watch_refused_deletions(&mut self) {
        self.watches.start(Id::RefusedDeletions, || Collection {
            kind: &EVENT,
            namespace: "default".to_owned(),
            // Each attempt has two Events. Only this one names the user.
            selector: Selector::Fields(
                "involvedObject.kind=Node,reason=DeletingNodeFailed,source=cloud-node-lifecycle-controller",
            ),
        });
    }

    /// Returns the nodes that have been seen.
    pub(in crate::controllers) fn nodes(&self) -> impl Iterator<Item = Node> {
        let seen = self.watches.seen(&Id::Nodes).into_iter().flat_map(Seen::objects);
        seen.filter_map(keep::kept_node)
    }

    /// Returns the Events of refused deletions of nodes, or `None` before their watch has delivered, and while it has failed for long.
    pub(in crate::controllers) fn refusals(&self) -> Option<Vec<NodeEvent>> {
        let events = self.watches.seen(&Id::RefusedDeletions).filter(|seen| seen.is_synced())?;
        if self.refusals_problem().is_some() {
            return None;
        }
        // Other Events are kept without their content.
        let events = events.objects().filter_map(|kept| NodeEvent::deserialize(kept).ok());
        Some(events.filter(|event| !event.uid.is_empty()).collect())
    }

    /// Returns the problem of the watch of refused deletions, once it has failed for long.
    pub(in crate::controllers) fn refusals_problem(&self) -> Option<String> {
        self.watches.lasting_problem(TRANSIENT_ERROR_GRACE, |id| *id == Id::RefusedDeletions)
    }

    fn watch_ccms(&mut self) {
        self.watches.start(Id::Ccms, || Collection::labeled(&CLOUD_CONTROLLER_MANAGER, "", ""));
    }

    fn watch_for_ccms(&mut self) {
        // If the cluster serves OpenShift's kinds, their objects may follow.
        let may_be_openshift = !self.is_kubernetes_given && !self.is_unserved(&PLATFORM_WATCH);
        if !self.is_kubernetes_given {
            self.watches.keep(|id| *id != Id::Status || may_be_openshift);
            let is_asked_for = |document: &&Document| PLATFORM_WATCH == Id::Document(document.kind.plural);
            self.want_documents(DOCUMENTS.iter().filter(is_asked_for).collect());
            self.watch_ccms();
        }
        let is_synced = self.watches.seen(&Id::Ccms).is_some_and(Seen::is_synced);
        if is_synced && (!may_be_openshift || self.exists(&Id::Ccms)) {
            self.want_documents(Vec::new());
            self.watches.keep(|id| *id != Id::Status);
            self.cluster_type = ClusterType::Kubernetes;
        } else if let Some(why) = self.why_undecided()
            && std::mem::replace(&mut self.cluster_type, ClusterType::Neither) != ClusterType::Neither
        {
            warn!("{why}");
        }
    }
}
