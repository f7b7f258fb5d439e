//! One pass of the controllers over a target: observe, plan, act, report.
//!
//! On OpenShift the fleet has one member, which reports to the ClusterOperator. Elsewhere the fleet is all
//! `CloudControllerManager`s, and each has its own status.

use crate::{
    controllers::{Pass, view::View},
    process::leadership::Authority,
};

/// The cloud-controller-managers that one process installs in a target. Each is a member with its own status.
pub(super) trait Fleet {
    /// The result of [`Fleet::act`], which [`Fleet::report`] reports.
    type Acted;

    /// The permission to write.
    fn authority(&self) -> &Authority;

    /// Updates the observed state of the cluster. Returns the watches that must deliver before anything can be planned.
    async fn observe(&mut self, view: &mut View, pass: &mut Pass) -> Vec<String>;

    /// Validates the inputs, and plans again if one has changed.
    fn plan(&mut self, view: &mut View, pass: &mut Pass);

    /// Decides which nodes may be deleted.
    async fn guard(&mut self, _: &mut View, _: &mut Pass) {}

    /// Collects the objects in force, which depend on the decisions about nodes.
    fn assemble(&mut self) {}

    /// Watches the locations of planned and possibly remaining objects. Returns the watches that must deliver before anything is written.
    fn watch_objects(&mut self, view: &mut View, pass: &mut Pass) -> Vec<String>;

    /// Returns the error of the watches that everything depends on, once its grace period has passed.
    fn lasting_problem(&self, view: &View, pass: &mut Pass) -> Option<String>;

    /// Reports pending watches once their problem has lasted, and withdraws the permissions that need a recent observation.
    async fn report_pending(&mut self, view: &mut View, pending: Vec<String>, pass: &mut Pass);

    /// Makes the cluster match the plan. Returns `None` if the pass has to end without a report.
    async fn act(&mut self, view: &mut View, pass: &mut Pass) -> Option<Self::Acted>;

    /// Reports the result to each member.
    async fn report(&mut self, view: &mut View, acted: Self::Acted, pass: &mut Pass);
}

/// Runs one pass. The comment of each step says whether it sends requests. A process that does not lead, or is about to stop, only observes
/// and plans.
pub(super) async fn pass(fleet: &mut impl Fleet, view: &mut View) -> Pass {
    let mut pass = Pass::default();
    // Observe: asks for the version of the API server if no node shows it.
    let mut pending = fleet.observe(view, &mut pass).await;
    let not_leading = fleet.authority().problem();
    let leads = not_leading.is_none() && fleet.authority().write_budget().is_some();
    if pending.is_empty() {
        // Validate and plan.
        fleet.plan(view, &mut pass);
        if leads {
            // Asks for permissions and leaders while a node may have to be deleted, and withdraws permissions.
            fleet.guard(view, &mut pass).await;
        }
        fleet.assemble();
        // Starts and ends watches.
        pending = fleet.watch_objects(view, &mut pass);
    }
    pass.watch_problem = fleet.lasting_problem(view, &mut pass);
    pass.waiting.extend(pass.watch_problem.clone());
    if !leads {
        pass.waiting.extend(pending.into_iter().chain(not_leading));
        return pass;
    }
    if !pending.is_empty() {
        // Writes statuses, and withdraws permissions.
        fleet.report_pending(view, pending, &mut pass).await;
        return pass;
    }
    // Act: writes the objects that differ from the plan.
    if let Some(acted) = fleet.act(view, &mut pass).await {
        // Report: writes the statuses that differ.
        fleet.report(view, acted, &mut pass).await;
    }
    pass
}
