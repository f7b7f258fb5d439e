//! The problems in a status that wait for an administrator (pure). Each becomes a Warning Event once.

use super::{NODE_DELETION_SAFE, READY, RECONCILING};
use crate::{
    api::status::{Condition, Status},
    provider::versions::VERSION_BROKEN,
};

/// Reasons of `Ready` that the administrator has asked for.
const ASKED_FOR: [&str; 2] = ["Removing", "Removed"];

/// The reason of `Ready` that is a problem even while the operator tries again: it has done so for a while.
const FAILED: &str = "ApplyFailed";

/// Returns the conditions of a status whose problem the previous status did not have, or had while the operator was still at work.
pub(crate) fn new<'a>(previous: &Status, next: &'a Status) -> Vec<&'a Condition> {
    // The message of NodeDeletionSafe has counts.
    let is_same = |had: &Condition, one: &Condition| {
        had.type_ == one.type_ && had.reason == one.reason && (one.type_ != READY || had.message == one.message)
    };
    let had = |one: &&Condition| problems(previous).any(|had| is_same(had, one));
    problems(next).filter(|one| !had(one)).collect()
}

fn problems(status: &Status) -> impl Iterator<Item = &Condition> {
    let is_at_work = status.conditions.iter().any(|one| one.type_ == RECONCILING && one.status == "True");
    let is_problem = move |one: &&Condition| {
        one.status == "False"
            && (one.type_ == NODE_DELETION_SAFE
                || one.reason == VERSION_BROKEN
                || (one.type_ == READY
                    && (!is_at_work || one.reason == FAILED)
                    && !ASKED_FOR.contains(&one.reason.as_str())))
    };
    status.conditions.iter().filter(is_problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(ready: (&str, &str), reconciling: &str, safe: (&str, &str)) -> Status {
        let one = |type_: &str, (status, reason): (&str, &str)| Condition {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            ..Condition::default()
        };
        let conditions = vec![one(READY, ready), one(RECONCILING, (reconciling, "a")), one(NODE_DELETION_SAFE, safe)];
        Status { conditions, ..Status::default() }
    }

    #[test]
    fn a_problem_is_new_once_and_not_while_the_operator_is_at_work() {
        let good = || status(("True", "Running"), "False", ("True", "Safe"));
        let bad = || status(("False", "BadInput"), "False", ("True", "Safe"));
        let reasons = |previous: &Status, next: &Status| {
            new(previous, next).into_iter().map(|one| one.reason.clone()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(reasons(&Status::default(), &good()), "");
        assert_eq!(reasons(&good(), &bad()), "BadInput");
        assert_eq!(reasons(&bad(), &bad()), "");
        assert_eq!(reasons(&bad(), &status(("False", "Conflict"), "False", ("True", "Safe"))), "Conflict");
        let mut other = bad();
        other.conditions[0].message = "another one".into();
        assert_eq!(reasons(&bad(), &other), "BadInput");
        assert_eq!(reasons(&good(), &status(("False", "ApplyFailed"), "True", ("True", "Safe"))), "ApplyFailed");
        let rolling_out = || status(("False", "NoPodReady"), "True", ("True", "Safe"));
        assert_eq!(reasons(&good(), &rolling_out()), "");
        assert_eq!(reasons(&rolling_out(), &status(("False", "NoPodReady"), "False", ("True", "Safe"))), "NoPodReady");
        assert_eq!(reasons(&good(), &status(("False", "Removed"), "False", ("True", "Safe"))), "");
        assert_eq!(reasons(&good(), &status(("Unknown", "Paused"), "False", ("False", "TooMany"))), "TooMany");
        let mut broken = good();
        let of_version = |reason: &str| Condition {
            type_: "VersionSupported".into(),
            status: "False".into(),
            reason: reason.into(),
            ..Condition::default()
        };
        broken.conditions.push(of_version(VERSION_BROKEN));
        assert_eq!(reasons(&good(), &broken), VERSION_BROKEN, "it runs, and must not");
        broken.conditions[3] = of_version("NoTagForMinor");
        assert_eq!(reasons(&good(), &broken), "");
    }
}
