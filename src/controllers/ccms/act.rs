//! Applies the plans of all `CloudControllerManager`s (IO), and limits the work of one pass.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde_json::Value;

use super::{Grants, KubernetesFleet, Member, Withheld, guard::denied, owner};
use crate::{
    apply::{inventory::Location, ownership::is_label_of_others},
    controllers::{
        apply_plan::DesiredObjects,
        failures::PassError,
        observer::{Id, Observer},
        view::View,
    },
    object::{Kind, Object},
    plan::kubernetes::guard::{is_of_guard, is_policy},
    provider::{kubernetes::INSTANCE_LABEL, restriction::is_restriction},
};

/// The limit of the work of a pass while nodes may be deleted, so that the withdrawal of a permission waits for few requests.
const LIMIT: usize = 4;

impl KubernetesFleet {
    /// Returns the maximum number of objects and of statuses that this pass writes, and of permissions that it asks for. The limit starts
    /// with the pass that grants the first name, because a name is in force as soon as the role is written.
    pub(super) fn work_limit(&self) -> usize {
        let of_members = self.members.values().map(Member::work_limit).min().unwrap_or(usize::MAX);
        if self.grants.is_none() { of_members } else { LIMIT }
    }

    /// Applies the plans. An object that may not be applied yet waits, and nothing is pruned in its place.
    pub(super) async fn apply(&mut self, view: &mut View) -> Result<(), PassError> {
        let limit = self.work_limit();
        let ready = Readiness::of(self, &view.target.observer);
        let (objects, waiting): (Vec<_>, Vec<_>) = self.objects.iter().partition(|object| ready.has(object));
        let pruning = Pruning::of(&self.members, &self.grants, &self.withheld, &waiting);
        let objects: Cow<[Object]> =
            if waiting.is_empty() { Cow::Borrowed(&self.objects) } else { objects.into_iter().cloned().collect() };
        let may_prune = |live: &Value| pruning.allows(live);
        let wave = Kind::wave_after_roles;
        let desired =
            DesiredObjects { objects: &objects, wave, owner, may_prune: &may_prune, adopts: false, external: None };
        let budget = || self.authority.write_budget();
        let acted = self.executor.act(&mut view.target, desired, limit, budget).await;
        if let Some(applier) = self.executor.applier() {
            let policies = self.members.values().flat_map(Member::optional_policies).map(Object::key).collect();
            self.withheld.note(&policies, applier);
        }
        acted
    }
}

impl Member {
    pub(super) fn work_limit(&self) -> usize {
        if self.guard.deletable.granted.is_empty() { usize::MAX } else { LIMIT }
    }
}

/// The planned objects that may be applied in a pass.
struct Readiness<'a> {
    observer: &'a Observer,
    withheld: &'a Withheld,
    /// The locations that no watch has shown yet.
    unseen: BTreeSet<Location>,
    /// The members whose objects are not applied.
    closed: BTreeSet<&'a str>,
    /// The members that get no new workload.
    unlocked: BTreeSet<&'a str>,
}

impl<'a> Readiness<'a> {
    fn of(ccms: &'a KubernetesFleet, observer: &'a Observer) -> Self {
        let unseen = observer.watches.iter().filter_map(|(id, seen)| match id {
            Id::Ours(location) if !seen.is_synced() => Some(location.clone()),
            _ => None,
        });
        let unseen: BTreeSet<Location> = unseen.collect();
        let is_unseen = |object: &Object| unseen.contains(&Location::of(object));
        // No object of an external provider, new or not, is applied before the policies that restrict the provider.
        let is_restriction = |object: &Object| is_restriction(object.value()) && is_unseen(object);
        let unrestricted = DesiredObjects::owners(&ccms.objects, owner, is_restriction);
        // A workload is applied after the policy that keeps it from deleting nodes, unless the operator may not read policies.
        let is_lock = |object: &Object| {
            let is_policy = is_policy(object) && is_of_guard(object.value());
            is_policy && is_unseen(object) && denied(observer, &Location::of(object)).is_none()
        };
        let unlocked = DesiredObjects::owners(&ccms.objects, owner, is_lock);
        let gated = ccms.members.values().filter(|member| !member.gate.is_open).map(|member| member.name.as_str());
        Self { observer, withheld: &ccms.withheld, closed: gated.chain(unrestricted).collect(), unlocked, unseen }
    }

    fn has(&self, object: &Object) -> bool {
        let (owner, is_live) = (owner(object.value()), || self.observer.live(object).is_some());
        // A live grant is withdrawn even if other objects wait.
        let is_open = !self.closed.contains(owner) || (is_of_guard(object.value()) && is_live());
        let has_lock = !self.unlocked.contains(owner) || object.pod_spec().is_none() || is_live();
        let is_unseen = self.unseen.contains(&Location::of(object));
        is_open && has_lock && !is_unseen && !self.withheld.is_retry_pending(&object.key())
    }
}

/// The live objects that may be pruned in a pass, if they are no longer planned.
struct Pruning<'a> {
    members: &'a BTreeMap<String, Member>,
    grants: &'a Grants,
    /// The planned objects that wait.
    waiting: BTreeSet<[&'a str; 3]>,
    /// The members with objects that wait.
    incomplete: BTreeSet<&'a str>,
    /// Whether the plan of each member is based on its current inputs, and no object waits.
    is_complete: bool,
}

impl<'a> Pruning<'a> {
    fn of(
        members: &'a BTreeMap<String, Member>,
        grants: &'a Grants,
        withheld: &Withheld,
        waiting: &[&'a Object],
    ) -> Self {
        // A policy that the operator may not write does not block pruning.
        let counted = waiting.iter().filter(|object| !withheld.has(&object.key()));
        let incomplete: BTreeSet<_> = counted.map(|object| owner(object.value())).collect();
        let is_complete = members.values().all(Member::may_prune) && incomplete.is_empty();
        let waiting = waiting.iter().map(|object| identity(object.value())).collect();
        Self { members, grants, waiting, incomplete, is_complete }
    }

    fn allows(&self, live: &Value) -> bool {
        let owner = owner(live);
        // Only our own label shows the owner. An object that has lost the label, or that has another client's value of it, may belong to
        // any member.
        let has_owner = !(owner.is_empty() || is_label_of_others(live, INSTANCE_LABEL));
        let is_current = |member: &Member| member.may_prune() && !self.incomplete.contains(owner);
        !self.waiting.contains(&identity(live))
            && !self.grants.may_lag(live)
            && (self.is_complete || has_owner)
            && self.members.get(owner).is_none_or(is_current)
    }
}

/// Returns the kind, namespace and name of an object.
fn identity(object: &Value) -> [&str; 3] {
    let fields = [&object["kind"], &object["metadata"]["namespace"], &object["metadata"]["name"]];
    fields.map(|field| field.as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pass_that_grants_the_first_name_is_limited_as_well() {
        let mut ccms = KubernetesFleet::of_a_standby();
        ccms.members.entry("other".into()).or_default();
        assert!(ccms.grants.is_none());
        assert_eq!(ccms.work_limit(), usize::MAX);
        let granting = ccms.members.entry("cluster".into()).or_default();
        granting.guard.deletable.granted.insert("a".into());
        assert!(ccms.grants.is_none(), "no role grants it yet");
        assert_eq!(ccms.work_limit(), LIMIT);
    }
}
