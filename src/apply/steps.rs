//! The steps from a live object to the planned one (pure).
//!
//! One ladder for everything that changes objects or shows what would change: it decides which step comes next from the
//! answers to the steps before. [`super::write`] performs the steps, [`super::dry_run`] asks the API server about them.

use serde_json::{Value, json};

use crate::{
    apply::{
        inventory,
        ownership::{self, Need, need},
    },
    object::Object,
};

/// How often a fold is tried while other managers write the object.
const FOLD_TRIES: usize = 3;

/// What is appended to the name of an object for its stand-in. The operator's rights name the stand-ins.
pub(crate) const STAND_IN: &str = "-next";

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
    /// Apply the object under the name of its stand-in: the API server has to accept it before the old one is deleted. A
    /// binding's stand-in is real, so that what it grants is granted all the time; others are dry runs.
    StandIn,
    /// Delete an old stand-in that the new one cannot replace.
    DeleteStandIn,
    /// Delete this live object, and no other state of it.
    Delete(Value),
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// This step.
    Step(Step),
    /// Nothing: the ladder has ended.
    End(End),
}

/// How a ladder ends.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The object is as planned.
    Unchanged,
    /// The object is annotated to be left alone; its state, if the ladder has read it.
    LeftAlone(Option<Value>),
    /// The object was applied; this is its state.
    Applied(Value),
    /// The object was deleted and created, because a field that cannot be changed was to change.
    Recreated {
        /// The state before.
        before: Value,
        /// The state now.
        after: Value,
    },
    /// These finalizers keep the object from being deleted.
    Held(String),
    /// The last refusal stands.
    Refused,
}

/// The answer to a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The object as it is now; `None` when there is none, or when the step has no answer.
    Object(Option<Value>),
    /// The API server refused.
    Refused(Refusal),
}

/// Why the API server refused, as far as it decides the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A field that cannot be changed was to change.
    Immutable,
    /// The object is not valid.
    Invalid,
    /// Another manager was faster.
    Conflict,
    /// Another reason, or no answer.
    Other,
}

/// Where the ladder is: which step is waited for.
#[derive(Debug)]
enum Stage {
    Start,
    /// The first apply.
    Apply,
    /// After an object that was not seen was refused: was it refused for other managers' fields?
    LookForFold(Refusal),
    Probe(Value),
    Fold,
    /// Another manager crossed the fold.
    Reread,
    /// The apply after a fold: nothing is folded twice.
    ApplyFolded,
    LookForRecreate,
    StandIn {
        live: Value,
        is_retry: bool,
    },
    DeleteStandIn(Value),
    Delete(Value),
    Create(Value),
}

/// The way of one object.
#[derive(Debug)]
pub struct Ladder<'a> {
    desired: &'a Object,
    seen: Option<&'a Value>,
    folds: usize,
    stage: Stage,
}

impl<'a> Ladder<'a> {
    /// Begins with the object as it was seen; `None` is one that does not exist, or does not carry our label.
    pub fn new(desired: &'a Object, seen: Option<&'a Value>) -> Self {
        Self { desired, seen, folds: 0, stage: Stage::Start }
    }

    /// The planned object.
    pub fn desired(&self) -> &'a Object {
        self.desired
    }

    /// The object as it was seen.
    pub fn seen(&self) -> Option<&'a Value> {
        self.seen
    }

    /// The first step.
    pub fn first(&mut self) -> Next {
        let Some(live) = self.seen else { return self.step(Stage::Apply, Step::Apply) };
        if inventory::is_left_alone(live) {
            return Next::End(End::LeftAlone(None));
        }
        match need(self.desired.value(), live) {
            Need::Nothing => Next::End(End::Unchanged),
            Need::Apply => self.step(Stage::Apply, Step::Apply),
            Need::FoldThenApply => self.fold(live.clone()),
        }
    }

    /// What follows the answer to a step.
    pub fn next(&mut self, answer: Answer) -> Next {
        match (std::mem::replace(&mut self.stage, Stage::Start), answer) {
            (Stage::Apply, Answer::Object(Some(now))) => {
                // Only the answer shows what other managers own of an object that was not seen.
                let needs_fold = need(self.desired.value(), &now) == Need::FoldThenApply;
                if needs_fold { self.fold(now) } else { Next::End(End::Applied(now)) }
            }
            (Stage::ApplyFolded, Answer::Object(Some(now))) => Next::End(End::Applied(now)),
            (Stage::Apply, Answer::Refused(refusal @ (Refusal::Invalid | Refusal::Immutable)))
                if self.seen.is_none() =>
            {
                // A field of another manager can make the whole object invalid.
                self.step(Stage::LookForFold(refusal), Step::Read)
            }
            (Stage::Apply | Stage::ApplyFolded, Answer::Refused(Refusal::Immutable)) => {
                self.step(Stage::LookForRecreate, Step::Read)
            }
            (Stage::LookForFold(refusal), Answer::Object(live)) => match live {
                Some(live) if need(self.desired.value(), &live) == Need::FoldThenApply => self.fold(live),
                Some(live) if refusal == Refusal::Immutable => self.recreate(live),
                _ => Next::End(End::Refused),
            },
            (Stage::Probe(mut live), Answer::Object(Some(shown))) => {
                live["metadata"]["managedFields"] = shown["metadata"]["managedFields"].clone();
                self.folds += 1;
                self.step(Stage::Fold, Step::Fold(live))
            }
            (Stage::Fold, Answer::Refused(Refusal::Conflict)) if self.folds < FOLD_TRIES => {
                self.step(Stage::Reread, Step::Read)
            }
            (Stage::Reread, Answer::Object(Some(live))) => self.fold(live),
            (Stage::Fold, Answer::Object(_) | Answer::Refused(Refusal::Conflict)) => {
                self.step(Stage::ApplyFolded, Step::Apply)
            }
            (Stage::LookForRecreate, Answer::Object(Some(live))) => self.recreate(live),
            (Stage::StandIn { live, .. }, Answer::Object(_)) => {
                self.step(Stage::Delete(live.clone()), Step::Delete(live))
            }
            (Stage::StandIn { live, is_retry: false }, Answer::Refused(Refusal::Immutable)) if self.is_binding() => {
                self.step(Stage::DeleteStandIn(live), Step::DeleteStandIn)
            }
            (Stage::DeleteStandIn(live), Answer::Object(_)) => {
                self.step(Stage::StandIn { live, is_retry: true }, Step::StandIn)
            }
            (Stage::Delete(live), Answer::Object(left)) => match left.as_ref().map(finalizers) {
                Some(finalizers) if !finalizers.is_empty() => Next::End(End::Held(finalizers)),
                _ => self.step(Stage::Create(live), Step::Apply),
            },
            (Stage::Create(before), Answer::Object(Some(after))) => Next::End(End::Recreated { before, after }),
            (_, Answer::Refused(_) | Answer::Object(_)) => Next::End(End::Refused),
        }
    }

    fn step(&mut self, stage: Stage, step: Step) -> Next {
        self.stage = stage;
        Next::Step(step)
    }

    fn fold(&mut self, live: Value) -> Next {
        if ownership::is_wiped(&live) {
            return self.step(Stage::Probe(live.clone()), Step::Probe(live));
        }
        self.folds += 1;
        self.step(Stage::Fold, Step::Fold(live))
    }

    /// What is taken away is taken away last.
    fn recreate(&mut self, live: Value) -> Next {
        if inventory::is_left_alone(&live) {
            return Next::End(End::LeftAlone(Some(live)));
        }
        if live["metadata"]["deletionTimestamp"].is_null() {
            return self.step(Stage::StandIn { live, is_retry: false }, Step::StandIn);
        }
        Next::End(End::Held(finalizers(&live)))
    }

    fn is_binding(&self) -> bool {
        is_binding(self.desired)
    }
}

/// Whether the stand-in of an object is real.
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

fn finalizers(live: &Value) -> String {
    let finalizers = live["metadata"]["finalizers"].as_array().into_iter().flatten();
    finalizers.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
