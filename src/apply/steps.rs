//! The steps from a live object to the planned one (pure).
//!
//! Everything that changes objects or shows changes uses these steps. The next step follows from the responses to the
//! previous ones. [`super::write`] performs the steps, and [`super::dry_run`] performs them as dry runs.

use std::ops::ControlFlow;

use serde_json::{Value, json};

use crate::{
    apply::{
        inventory,
        ownership::{self, Need, need},
    },
    object::{Object, PART_OF_LABEL, STAND_IN},
};

/// How often a fold is tried while other managers write the object.
const FOLD_TRIES: usize = 3;

/// A request to the API server about one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read the object.
    Read,
    /// Ask by a dry run of [`ownership::bare`] who owns the fields of this object, whose managed fields were wiped.
    Probe(Value),
    /// Move other managers' fields of this live object into our entry of the managed fields, unless it has changed.
    Fold(Value),
    /// Apply the object.
    Apply,
    /// Read what has the name of the stand-in: it may be somebody else's.
    ReadStandIn,
    /// Apply the object under the name of its stand-in: the API server has to accept it before the old one is deleted.
    /// A binding's stand-in is real, so that its rights are granted without a gap; others are dry runs.
    StandIn,
    /// Delete an old stand-in that the new one cannot replace.
    DeleteStandIn,
    /// Delete this live object, and no other state of it.
    Delete(Value),
}

/// The next step, or the end.
pub type Next = ControlFlow<End, Step>;

/// How a ladder ends.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The object is as planned.
    Unchanged,
    /// The object is annotated to be left alone; its state, if the ladder has read it.
    LeftAlone(Option<Value>),
    /// The object was applied; this is its state.
    Applied(Value),
    /// The object was deleted and created, because an immutable field differed.
    Recreated {
        /// The state before.
        before: Value,
        /// The state now.
        after: Value,
    },
    /// These finalizers keep the object from being deleted.
    Held(String),
    /// The object belongs to this set of another tool, which keeps it as that tool wants it.
    OfAnotherSet(String),
    /// The object was made by this manager, and is not taken over.
    OfOthers(String),
    /// The last refusal stands.
    Refused,
}

/// What is known about the live object before the first step.
#[derive(Clone, Copy, Debug)]
pub enum Sight<'a> {
    /// It is this.
    Seen(&'a Value),
    /// It does not exist.
    Absent,
    /// It may exist without our label, by which objects are watched.
    Unknown,
}

impl<'a> Sight<'a> {
    /// Of an object that was read.
    pub fn of(live: Option<&'a Value>) -> Self {
        live.map_or(Self::Absent, Self::Seen)
    }
}

/// The answer to a step: the object as it is now, `None` if there is none or the step has no answer; or a refusal.
pub type Answer = Result<Option<Value>, Refusal>;

/// Why the API server refused, as far as it decides the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An immutable field differs.
    Immutable,
    /// The object is not valid.
    Invalid,
    /// Another manager has changed the object.
    Conflict,
    /// Another reason, or no answer.
    Other,
}

/// The step that the ladder waits for.
#[derive(Debug)]
enum Stage {
    Start,
    /// Does an object without our label exist, and may it be taken over?
    Look,
    /// The first apply.
    Apply,
    /// An unseen object was refused: because of other managers' fields?
    LookForFold(Refusal),
    Probe(Value),
    Fold,
    /// Another manager has changed the object before the fold.
    Reread,
    /// The apply after a fold.
    ApplyFolded,
    LookForRecreate,
    LookAtStandIn(Value),
    StandIn(Value),
    /// The stand-in after an old one was deleted.
    StandInAgain(Value),
    DeleteStandIn(Value),
    Delete(Value),
    Create(Value),
}

/// The ladder of one object.
#[derive(Debug)]
pub struct Ladder<'a> {
    desired: &'a Object,
    sight: Sight<'a>,
    takes_over: bool,
    folds: usize,
    stage: Stage,
}

impl<'a> Ladder<'a> {
    /// The ladder from what is known about the live object.
    pub fn new(desired: &'a Object, sight: Sight<'a>) -> Self {
        Self { desired, sight, takes_over: true, folds: 0, stage: Stage::Start }
    }

    /// The same, but for `takes_over`: whether an object that somebody else has made becomes ours.
    #[must_use]
    pub fn taking_over(self, takes_over: bool) -> Self {
        Self { takes_over, ..self }
    }

    /// The planned object.
    pub fn desired(&self) -> &'a Object {
        self.desired
    }

    /// The object as it was seen.
    pub fn seen(&self) -> Option<&'a Value> {
        match self.sight {
            Sight::Seen(live) => Some(live),
            Sight::Absent | Sight::Unknown => None,
        }
    }

    /// The first step.
    pub fn first(&mut self) -> Next {
        match self.sight {
            Sight::Unknown if self.is_member() => self.step(Stage::Look, Step::Read),
            Sight::Unknown | Sight::Absent => self.step(Stage::Apply, Step::Apply),
            Sight::Seen(live) if self.is_foreign(live) => self.take_over(live),
            Sight::Seen(live) if self.is_left_alone(live) => Next::Break(End::LeftAlone(None)),
            Sight::Seen(live) => self.take_over(live),
        }
    }

    /// The next step after an answer.
    pub fn next(&mut self, answer: Answer) -> Next {
        match (std::mem::replace(&mut self.stage, Stage::Start), answer) {
            (Stage::Look, Ok(None)) => self.step(Stage::Apply, Step::Apply),
            (Stage::Look | Stage::Reread, Ok(Some(live))) => self.take_over(&live),
            (Stage::Apply, Ok(Some(now))) => {
                // The answer is the first to show other managers' fields of an unseen object.
                let needs_fold = need(self.desired.value(), &now) == Need::FoldThenApply;
                if needs_fold { self.fold(now) } else { Next::Break(End::Applied(now)) }
            }
            (Stage::ApplyFolded, Ok(Some(now))) => Next::Break(End::Applied(now)),
            (Stage::Apply, Err(refusal @ (Refusal::Invalid | Refusal::Immutable))) if self.seen().is_none() => {
                // A field of another manager can make the whole object invalid.
                self.step(Stage::LookForFold(refusal), Step::Read)
            }
            (Stage::Apply | Stage::ApplyFolded, Err(Refusal::Immutable)) => {
                self.step(Stage::LookForRecreate, Step::Read)
            }
            (Stage::LookForFold(refusal), Ok(live)) => match live {
                Some(live) if self.hands_off(&live).is_some() => self.take_over(&live),
                Some(live) if need(self.desired.value(), &live) == Need::FoldThenApply => self.fold(live),
                Some(live) if refusal == Refusal::Immutable => self.recreate(live),
                _ => Next::Break(End::Refused),
            },
            (Stage::Probe(mut live), Ok(Some(shown))) => {
                // An item of a list has no types, and our new entry needs them.
                live["apiVersion"] = shown["apiVersion"].clone();
                live["metadata"]["managedFields"] = shown["metadata"]["managedFields"].clone();
                self.folds += 1;
                self.step(Stage::Fold, Step::Fold(live))
            }
            (Stage::Fold, Err(Refusal::Conflict)) if self.folds < FOLD_TRIES => self.step(Stage::Reread, Step::Read),
            // After the last conflict the refusal stands: an apply alone would leave other managers' fields.
            (Stage::Fold, Ok(_)) => self.step(Stage::ApplyFolded, Step::Apply),
            (Stage::LookForRecreate, Ok(Some(live))) => self.recreate(live),
            (Stage::LookAtStandIn(live), Ok(stand_in)) => match stand_in.as_ref().and_then(|one| self.hands_off(one)) {
                Some(end) => Next::Break(end),
                None => self.step(Stage::StandIn(live), Step::StandIn),
            },
            (Stage::StandIn(live) | Stage::StandInAgain(live), Ok(_)) => {
                self.step(Stage::Delete(live.clone()), Step::Delete(live))
            }
            (Stage::StandIn(live), Err(Refusal::Immutable)) if is_binding(self.desired) => {
                self.step(Stage::DeleteStandIn(live), Step::DeleteStandIn)
            }
            (Stage::DeleteStandIn(live), Ok(_)) => self.step(Stage::StandInAgain(live), Step::StandIn),
            (Stage::Delete(live), Ok(left)) => match left.as_ref().map(finalizers) {
                Some(finalizers) if !finalizers.is_empty() => Next::Break(End::Held(finalizers)),
                _ => self.step(Stage::Create(live), Step::Apply),
            },
            (Stage::Create(before), Ok(Some(after))) => Next::Break(End::Recreated { before, after }),
            _ => Next::Break(End::Refused),
        }
    }

    /// Whether an administrator has annotated the object to be left alone. Only members of the set can be: synced objects,
    /// such as `cloud-conf`, are not labeled and are always ours.
    fn is_left_alone(&self, live: &Value) -> bool {
        self.is_member() && inventory::is_left_alone(live)
    }

    fn is_member(&self) -> bool {
        !set_of(self.desired.value()).is_null()
    }

    /// Whether a live object is not ours and stays so. One of ours may have lost its label or its managed fields, not both.
    fn is_foreign(&self, live: &Value) -> bool {
        let is_wiped = ownership::is_wiped(live) && *set_of(live) == *set_of(self.desired.value());
        !self.takes_over && !ownership::is_applied_by_us(live) && !is_wiped
    }

    /// Why a live object is not changed, if it is not ours to change.
    fn hands_off(&self, live: &Value) -> Option<End> {
        if self.is_foreign(live) {
            let manager = ownership::last_foreign_manager(live).unwrap_or("another manager");
            return Some(End::OfOthers(manager.to_owned()));
        }
        if self.is_left_alone(live) {
            return Some(End::LeftAlone(Some(live.clone())));
        }
        if let Some(set) = live["metadata"]["labels"][PART_OF_LABEL].as_str() {
            let is_another = self.is_member() && *set_of(self.desired.value()) != *set;
            // A label of our own is that of this operator in another namespace.
            let is_owned = ownership::is_label_of_others(live, PART_OF_LABEL);
            if is_another && is_owned {
                return Some(End::OfAnotherSet(set.to_owned()));
            }
        }
        None
    }

    /// The next step for a live object.
    fn take_over(&mut self, live: &Value) -> Next {
        if let Some(end) = self.hands_off(live) {
            return Next::Break(end);
        }
        match need(self.desired.value(), live) {
            Need::Nothing => Next::Break(End::Unchanged),
            Need::Apply => self.step(Stage::Apply, Step::Apply),
            Need::FoldThenApply => self.fold(live.clone()),
        }
    }

    fn step(&mut self, stage: Stage, step: Step) -> Next {
        self.stage = stage;
        Next::Continue(step)
    }

    fn fold(&mut self, live: Value) -> Next {
        if ownership::is_wiped(&live) {
            return self.step(Stage::Probe(live.clone()), Step::Probe(live));
        }
        self.folds += 1;
        self.step(Stage::Fold, Step::Fold(live))
    }

    /// Deletes nothing before the API server has accepted the stand-in.
    fn recreate(&mut self, live: Value) -> Next {
        if let Some(end) = self.hands_off(&live) {
            return Next::Break(end);
        }
        if !live["metadata"]["deletionTimestamp"].is_null() {
            return Next::Break(End::Held(finalizers(&live)));
        }
        // Only a binding's is written.
        if is_binding(self.desired) {
            return self.step(Stage::LookAtStandIn(live), Step::ReadStandIn);
        }
        self.step(Stage::StandIn(live), Step::StandIn)
    }
}

/// The set that an object belongs to; null for none.
fn set_of(object: &Value) -> &Value {
    &object["metadata"]["labels"][PART_OF_LABEL]
}

/// Whether the stand-in of an object is created, not only dry-run.
pub(super) fn is_binding(object: &Object) -> bool {
    matches!(object.kind().kind, "ClusterRoleBinding" | "RoleBinding")
}

/// The stand-in of an object.
pub(super) fn stand_in(object: &Object) -> Value {
    let mut stand_in = object.value().clone();
    stand_in["metadata"]["name"] = format!("{}{STAND_IN}", object.name()).into();
    stand_in
}

/// The merge patch that moves other managers' fields of a live object into our entry, guarded by the resource version.
pub(super) fn fold_patch(live: &Value) -> Value {
    json!({"metadata": {
        "resourceVersion": live["metadata"]["resourceVersion"],
        "managedFields": ownership::fold(live),
    }})
}

/// The finalizers of an object, comma-separated; empty if it has none.
pub(crate) fn finalizers(live: &Value) -> String {
    let finalizers = live["metadata"]["finalizers"].as_array().into_iter().flatten();
    finalizers.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
