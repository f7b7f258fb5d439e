//! The operator of a process, whose fleet depends on the type of the cluster.

use tracing::info;

use super::{ccms::KubernetesFleet, executor::Executor, openshift::OpenShiftFleet, view::View};
use crate::process::leadership::Authority;

/// The operator, without a fleet while the type of the cluster is not known.
pub(super) struct Operator {
    authority: Authority,
    is_dry_run: bool,
    openshift: Option<OpenShiftFleet>,
    ccms: Option<KubernetesFleet>,
}

impl Operator {
    /// Creates an operator that writes with this authority, or that only logs what it would do.
    pub(super) fn new(authority: Authority, is_dry_run: bool) -> Self {
        Self { authority, is_dry_run, openshift: None, ccms: None }
    }

    /// Returns the fleet on OpenShift.
    pub(super) fn openshift(&mut self, view: &View) -> &mut OpenShiftFleet {
        let Self { authority, is_dry_run, openshift, .. } = self;
        openshift.get_or_insert_with(|| OpenShiftFleet::new(authority.clone(), executor(view, *is_dry_run)))
    }

    /// Returns the fleet on any other Kubernetes. It replaces the fleet of a cluster that was only assumed to be OpenShift.
    pub(super) fn kubernetes(&mut self, view: &View) -> &mut KubernetesFleet {
        let Self { authority, is_dry_run, openshift, ccms } = self;
        *openshift = None;
        ccms.get_or_insert_with(|| {
            info!("this cluster is not OpenShift: acting on CloudControllerManagers");
            // On these clusters, only the command line has TLS settings.
            view.publish_tls();
            KubernetesFleet::new(authority.clone(), executor(view, *is_dry_run))
        })
    }

    /// Waits for the answer to a read of the fleet; returns `None` at once if there is none to wait for.
    pub(super) async fn answered(&mut self) -> Option<()> {
        self.ccms.as_mut()?.snapshots.answered().await;
        Some(())
    }

    /// Returns the fleet of `CloudControllerManager`s, once the cluster is known to be such a Kubernetes.
    pub(super) fn ccms(&mut self) -> Option<&mut KubernetesFleet> {
        self.ccms.as_mut()
    }
}

fn executor(view: &View, is_dry_run: bool) -> Executor {
    if is_dry_run {
        Executor::dry_run()
    } else {
        Executor::writing(&view.settings.own_namespace, view.target.events.clone())
    }
}
