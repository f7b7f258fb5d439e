//! Applies the plans of all `CloudControllerManager`s (IO), and limits the work of one pass.

use std::{borrow::Cow, collections::BTreeSet};

use serde_json::Value;

use super::{Ccms, Member, guard::denied, owner};
use crate::{
    apply::{inventory::Location, ownership::is_label_of_others},
    controllers::{
        apply_plan::DesiredObjects,
        failures::Stopped,
        observer::{Id, Observer},
        view::View,
    },
    object::{Kind, Object},
    plan::kubernetes::guard::{is_of_guard, is_policy},
    provider::{kubernetes::INSTANCE_LABEL, restriction::is_restriction},
};

/// The work of a pass while nodes may be deleted, so that the withdrawal of a permission waits for few requests.
const LIMIT: usize = 4;

impl Ccms {
    /// The most objects that this pass writes, the most statuses, and the most permissions that it asks for. The limit begins with the
    /// pass that grants the first name, because a name counts as soon as the role is written.
    pub(super) fn work_limit(&self) -> usize {
        let grants = |member: &Member| !member.guard.deletable.granted.is_empty();
        let may_be_deleted = !self.grants.is_none() || self.fleet.values().any(grants);
        if may_be_deleted { LIMIT } else { usize::MAX }
    }

    /// Applies the plans. Objects whose locations have not been seen yet wait.
    pub(super) async fn apply(&mut self, view: &mut View) -> Result<(), Stopped> {
        let limit = self.work_limit();
        let unseen: BTreeSet<Location> = unseen_locations(&view.target.observer).collect();
        // A workload does not come before the policy that keeps it from deleting nodes, unless the operator may not look at policies.
        let awaits_policy = |object: &Object| {
            let location = Location::of(object);
            let is_lock = is_policy(object) && is_of_guard(object.value());
            is_lock && unseen.contains(&location) && denied(&view.target.observer, &location).is_none()
        };
        let unlocked = DesiredObjects::owners(&self.objects, owner, awaits_policy);
        // No object of an external provider, new or not, comes before the policies that restrict the provider have been seen.
        let awaits_restriction =
            |object: &Object| is_restriction(object.value()) && unseen.contains(&Location::of(object));
        let unrestricted = DesiredObjects::owners(&self.objects, owner, awaits_restriction);
        // The members that may not be installed yet.
        let gated = self.fleet.iter().filter(|(_, member)| !member.gate.is_open).map(|(name, _)| name.as_str());
        let closed: BTreeSet<&str> = gated.chain(unrestricted).collect();
        // A live grant is withdrawn whatever else waits.
        let is_left = |object: &Object| is_of_guard(object.value()) && view.target.observer.live(object).is_some();
        let is_ready = |object: &&Object| {
            let may_be = !closed.contains(owner(object.value())) || is_left(object);
            let is_new_workload = object.pod_spec().is_some() && view.target.observer.live(object).is_none();
            let has_lock = !is_new_workload || !unlocked.contains(owner(object.value()));
            may_be
                && has_lock
                && !unseen.contains(&Location::of(object))
                && !self.withheld.is_retry_pending(&object.key())
        };
        let waiting: Vec<&Object> = self.objects.iter().filter(|object| !is_ready(object)).collect();
        let objects: Cow<[Object]> = if waiting.is_empty() {
            Cow::Borrowed(&self.objects)
        } else {
            self.objects.iter().filter(is_ready).cloned().collect()
        };
        // A policy that the operator may not write does not keep it from pruning.
        let is_missed = |object: &&&Object| !self.withheld.has(&object.key());
        let incomplete: BTreeSet<&str> = waiting.iter().filter(is_missed).map(|object| owner(object.value())).collect();
        let waiting: BTreeSet<_> = waiting.iter().map(|object| identity(object.value())).collect();
        let fleet = &self.fleet;
        let is_all_known = fleet.values().all(Member::may_prune) && incomplete.is_empty();
        let may_prune = |live: &Value| {
            let owner = owner(live);
            // Only our own label shows the owner. An object that has lost the label, or that somebody has given another one, may belong to
            // any member.
            let is_known = is_all_known || !(owner.is_empty() || is_label_of_others(live, INSTANCE_LABEL));
            let is_current = |member: &Member| member.may_prune() && !incomplete.contains(owner);
            let is_free = !waiting.contains(&identity(live)) && !self.grants.may_lag(live);
            is_free && is_known && fleet.get(owner).is_none_or(is_current)
        };
        let desired =
            DesiredObjects { objects: &objects, wave, owner, may_prune: &may_prune, adopts: false, external: None };
        let budget = || self.authority.write_budget();
        let acted = self.executor.act(&mut view.target, desired, limit, budget).await;
        if let Some(applier) = self.executor.applier() {
            let policies = self.fleet.values().flat_map(Member::optional_policies).map(Object::key).collect();
            self.withheld.note(&policies, applier);
        }
        acted
    }
}

/// The order of applying. A binding needs its role: the operator may not bind roles that do not exist.
pub(super) fn wave(kind: &Kind) -> u8 {
    kind.wave * 2 + u8::from(matches!(kind.kind, "ClusterRoleBinding" | "RoleBinding"))
}

/// Kind, namespace and name of an object.
fn identity(object: &Value) -> [&str; 3] {
    let fields = [&object["kind"], &object["metadata"]["namespace"], &object["metadata"]["name"]];
    fields.map(|field| field.as_str().unwrap_or_default())
}

fn unseen_locations(observer: &Observer) -> impl Iterator<Item = Location> {
    observer.watches.iter().filter_map(|(id, seen)| match id {
        Id::Ours(location) if !seen.is_synced() => Some(location.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pass_that_grants_the_first_name_is_limited_as_well() {
        let mut ccms = Ccms::of_a_standby();
        ccms.fleet.entry("other".into()).or_default();
        assert!(ccms.grants.is_none());
        assert_eq!(ccms.work_limit(), usize::MAX);
        let granting = ccms.fleet.entry("cluster".into()).or_default();
        granting.guard.deletable.granted.insert("a".into());
        assert!(ccms.grants.is_none(), "no role grants it yet");
        assert_eq!(ccms.work_limit(), LIMIT);
    }
}
