//! The loop of a target: observe, plan, act, report. OpenShift is a fleet of one member that reports to the
//! ClusterOperator. Elsewhere the fleet is all `CloudControllerManager`s, and each has its own status.

use crate::{
    controllers::{Pass, view::View},
    process::leadership::Authority,
};

/// Those that want something of a target, and are reported to.
pub(super) trait Fleet {
    /// What acting has come to for all of them.
    type Acted;

    /// What allows them to write.
    fn authority(&self) -> &Authority;

    /// Brings up to date what is known; returns what has to be seen before anything can be planned.
    async fn observe(&mut self, view: &mut View, pass: &mut Pass) -> Vec<String>;

    /// Validates what is wanted, and plans it again if an input has changed.
    fn plan(&mut self, view: &mut View, pass: &mut Pass);

    /// Decides which nodes may be deleted.
    async fn guard(&mut self, _: &mut View, _: &mut Pass) {}

    /// Watches the objects where they are planned or may be left; returns what of that has to be seen before anything is written.
    fn follow(&mut self, view: &mut View, pass: &mut Pass) -> Vec<String>;

    /// Reports that something has not been seen, if that lasts, and takes back what must not stay meanwhile.
    async fn report_blindness(&mut self, view: &mut View, pending: Vec<String>, pass: &mut Pass);

    /// Brings about what is planned; `None` if the pass has to end before that.
    async fn act(&mut self, view: &mut View, pass: &mut Pass) -> Option<Self::Acted>;

    /// Reports to each what has come of it.
    async fn report(&mut self, view: &mut View, acted: Self::Acted, pass: &mut Pass);
}

/// A pass over a target. A step that does not say otherwise sends no request.
pub(super) async fn pass(fleet: &mut impl Fleet, view: &mut View) -> Pass {
    let mut pass = Pass::default();
    // Observe: asks for the version of the API server where no node shows it.
    let mut pending = fleet.observe(view, &mut pass).await;
    let problem = fleet.authority().problem();
    let leads = problem.is_none() && fleet.authority().write_budget().is_some();
    if pending.is_empty() {
        // Validate and plan.
        fleet.plan(view, &mut pass);
        if leads {
            // Asks for permissions and leaders while a node may have to be deleted, and takes permissions back.
            fleet.guard(view, &mut pass).await;
        }
        // Starts and ends watches.
        pending = fleet.follow(view, &mut pass);
    }
    if !leads {
        pass.waiting.extend(pending.into_iter().chain(problem));
        return pass;
    }
    if !pending.is_empty() {
        // Writes statuses, and takes permissions back.
        fleet.report_blindness(view, pending, &mut pass).await;
        return pass;
    }
    // Act: writes what differs from the plan.
    if let Some(acted) = fleet.act(view, &mut pass).await {
        // Report: writes statuses that differ.
        fleet.report(view, acted, &mut pass).await;
    }
    pass
}
