//! The policies that the operator may not create (pure, except for reads of the watches).
//!
//! An installation may withhold the permission to create policies. The operator then does everything else, because a policy is only the
//! second lock: the role grants no node. The status reports that the policy is missing.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use crate::{
    api::spec::Lifecycle,
    apply::inventory::Location,
    cluster::seen::{Problem, Seen},
    controllers::{
        applier::Applier,
        ccms::Member,
        failures::PassError,
        observer::{Id, Observer},
    },
    grace::TRANSIENT_ERROR_GRACE,
    object::{Key, Object},
    plan::kubernetes::guard::{is_of_guard, is_policy},
};

/// The pause before a refused write of a policy is retried.
const PAUSE: Duration = Duration::from_secs(600);

/// The policies whose writes were refused because of a missing permission, with the error and its time.
#[derive(Default)]
pub(in super::super) struct Withheld(BTreeMap<Key, (String, Instant)>);

impl Withheld {
    /// Records which of these policies could be written in the last pass.
    pub(in super::super) fn note(&mut self, policies: &BTreeSet<Key>, applier: &Applier) {
        self.0.retain(|key, _| policies.contains(key));
        for key in policies {
            self.note_one(key, applier.failures.of_object(key), applier.settled.contains(key));
        }
    }

    /// Updates one policy from its result. Without a write, the permission is unknown.
    fn note_one(&mut self, key: &Key, failure: Option<&PassError>, is_settled: bool) {
        match failure {
            Some(stopped) if stopped.is_denied => {
                self.0.insert(key.clone(), (stopped.error.clone(), Instant::now()));
            }
            None if is_settled && !self.is_retry_pending(key) => {
                self.0.remove(key);
            }
            _ => {}
        }
    }

    /// Whether the write of an object is not retried yet.
    pub(in super::super) fn is_retry_pending(&self, key: &Key) -> bool {
        self.0.get(key).is_some_and(|(_, refused)| refused.elapsed() < PAUSE)
    }

    /// Whether the write of an object was refused.
    pub(in super::super) fn has(&self, key: &Key) -> bool {
        self.0.contains_key(key)
    }

    /// Returns the reason why the policies of a member are not written.
    pub(in super::super) fn why(&self, member: &Member, observer: &Observer) -> Option<String> {
        let own = member.optional_policies().map(Object::key).find_map(|key| self.0.get(&key));
        let refused = own.map(|(error, _)| error.clone());
        refused.or_else(|| member.optional_policies().find_map(|object| denied(observer, &Location::of(object))))
    }
}

/// Returns the error of a location that the operator may not watch, once the permission is certainly missing.
pub(in super::super) fn denied(observer: &Observer, location: &Location) -> Option<String> {
    let is_denied = |problem: &&Problem| {
        problem.denied_since.is_some() && problem.lasts_at(TRANSIENT_ERROR_GRACE) <= Instant::now()
    };
    let problem = observer.watches.seen(&Id::Ours(location.clone())).and_then(Seen::problem).filter(is_denied)?;
    Some(problem.error.clone())
}

impl Member {
    /// The policies of its guard that are optional, including deleted ones. While nodes may be deleted, no policy is optional.
    pub(in super::super) fn optional_policies(&self) -> impl Iterator<Item = &Object> {
        let needs_them = !self.is_removed()
            && self.ccm().is_some_and(|ccm| ccm.spec.controllers.cloud_node_lifecycle == Lifecycle::Enabled);
        let own = self.planned().iter().chain(self.removed()).filter(move |_| !needs_them);
        own.filter(|object| is_policy(object) && is_of_guard(object.value()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_that_was_given_and_taken_away_again_is_reported() {
        let key = Key {
            group: String::new(),
            kind: "ValidatingAdmissionPolicy".into(),
            namespace: String::new(),
            name: "p".into(),
        };
        let failed = |is_denied| PassError { error: "no".into(), is_reported: true, is_terminal: false, is_denied };
        let mut withheld = Withheld::default();
        withheld.note_one(&key, Some(&failed(true)), true);
        withheld.note_one(&key, None, true);
        assert!(
            withheld.has(&key) && withheld.is_retry_pending(&key),
            "nothing is tried meanwhile, so nothing was written"
        );
        withheld.0.values_mut().for_each(|(_, refused)| *refused = Instant::now().checked_sub(PAUSE).unwrap());
        withheld.note_one(&key, Some(&failed(false)), true);
        withheld.note_one(&key, None, false);
        assert!(withheld.has(&key), "it was not written");
        withheld.note_one(&key, None, true);
        assert!(!withheld.has(&key));
        withheld.note_one(&key, Some(&failed(true)), true);
        assert!(withheld.is_retry_pending(&key));
    }
}
