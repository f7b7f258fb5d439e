//! The steps from a live object to the planned one (pure).
//!
//! Everything that changes objects or shows changes uses these steps. The next step follows from the responses to the
//! previous ones. [`super::write`] performs the steps, and [`super::dry_run`] performs them as dry runs.

use std::ops::ControlFlow;

use serde_json::{Value, json};

use crate::{
    apply::{
        inventory,
        ownership::{self, RequiredWrites, required_writes},
    },
    object::{Object, PART_OF_LABEL, TEMPORARY},
};

/// How often a migration of field managers is tried while other managers write the object.
const MIGRATION_TRIES: usize = 3;

/// A request to the API server about one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read the object.
    Read,
    /// Ask by a dry run of [`ownership::bare`] who owns the fields of this object, whose managed fields were wiped.
    Probe(Value),
    /// Move other managers' fields of this live object into our entry of the managed fields, unless it has changed.
    Migrate(Value),
    /// Apply the object.
    Apply,
    /// Read what has the name of the temporary object: it may be somebody else's.
    ReadTemporary,
    /// Apply the object under the name of its temporary object: the API server has to accept it before the old one is deleted.
    /// A binding's temporary object is real, so that its permissions are granted without a gap; others are dry runs.
    ApplyTemporary,
    /// Delete an old temporary object that the new one cannot replace.
    DeleteTemporary,
    /// Delete this live object, and no other state of it.
    Delete(Value),
}

/// The next step, or the end.
pub type Next = ControlFlow<End, Step>;

/// How the steps end.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The object is as planned.
    Unchanged,
    /// The object is annotated to be left alone; its state, if a step has read it.
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
    BlockedByFinalizers(String),
    /// The object belongs to this set of another tool, which keeps it as that tool wants it.
    OtherApplySet(String),
    /// The object was made by this manager, and is not taken over.
    NotOwned(String),
    /// The last refusal stands.
    Refused,
}

/// The knowledge about the live object before the first step.
#[derive(Clone, Copy, Debug)]
pub enum LiveState<'a> {
    /// The object is live as given.
    Seen(&'a Value),
    /// It does not exist.
    Absent,
    /// It may exist without our label, by which objects are watched.
    Unknown,
}

impl<'a> LiveState<'a> {
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

/// The step whose answer is awaited.
#[derive(Debug)]
enum Stage {
    Start,
    /// Does an object without our label exist, and may it be taken over?
    Read,
    Apply,
    /// An unseen object was refused: because of other managers' fields?
    ReadForMigration(Refusal),
    Probe(Value),
    Migrate,
    /// Another manager has changed the object before the migration.
    Reread,
    ApplyMigrated,
    ReadForRecreate,
    ReadTemporary(Value),
    ApplyTemporary(Value),
    /// The temporary object after an old one was deleted.
    ApplyTemporaryAgain(Value),
    DeleteTemporary(Value),
    Delete(Value),
    Create(Value),
}

/// The steps of one object.
#[derive(Debug)]
pub struct Steps<'a> {
    desired: &'a Object,
    live_state: LiveState<'a>,
    adopts: bool,
    migrations: usize,
    stage: Stage,
}

impl<'a> Steps<'a> {
    /// The steps from what is known about the live object.
    pub fn new(desired: &'a Object, live_state: LiveState<'a>) -> Self {
        Self { desired, live_state, adopts: true, migrations: 0, stage: Stage::Start }
    }

    /// The same, but for `adopts`: whether an object that somebody else has made becomes ours.
    #[must_use]
    pub fn adopting(self, adopts: bool) -> Self {
        Self { adopts, ..self }
    }

    /// The planned object.
    pub fn desired(&self) -> &'a Object {
        self.desired
    }

    /// The object as it was seen.
    pub fn seen(&self) -> Option<&'a Value> {
        match self.live_state {
            LiveState::Seen(live) => Some(live),
            LiveState::Absent | LiveState::Unknown => None,
        }
    }

    /// The first step.
    pub fn first(&mut self) -> Next {
        match self.live_state {
            LiveState::Unknown if self.is_in_our_set() => self.step(Stage::Read, Step::Read),
            LiveState::Unknown | LiveState::Absent => self.step(Stage::Apply, Step::Apply),
            LiveState::Seen(live) if self.is_of_others(live) => self.adopt(live),
            LiveState::Seen(live) if self.is_left_alone(live) => Next::Break(End::LeftAlone(None)),
            LiveState::Seen(live) => self.adopt(live),
        }
    }

    /// The next step after an answer.
    pub fn next(&mut self, answer: Answer) -> Next {
        match (std::mem::replace(&mut self.stage, Stage::Start), answer) {
            (Stage::Read, Ok(None)) => self.step(Stage::Apply, Step::Apply),
            (Stage::Read | Stage::Reread, Ok(Some(live))) => self.adopt(&live),
            (Stage::Apply, Ok(Some(now))) => {
                // The answer is the first to show other managers' fields of an unseen object.
                let needs_migration = required_writes(self.desired.value(), &now) == RequiredWrites::MigrateThenApply;
                if needs_migration { self.migrate(now) } else { Next::Break(End::Applied(now)) }
            }
            (Stage::ApplyMigrated, Ok(Some(now))) => Next::Break(End::Applied(now)),
            (Stage::Apply, Err(refusal @ (Refusal::Invalid | Refusal::Immutable))) if self.seen().is_none() => {
                // A field of another manager can make the whole object invalid.
                self.step(Stage::ReadForMigration(refusal), Step::Read)
            }
            (Stage::Apply | Stage::ApplyMigrated, Err(Refusal::Immutable)) => {
                self.step(Stage::ReadForRecreate, Step::Read)
            }
            (Stage::ReadForMigration(refusal), Ok(live)) => match live {
                Some(live) if self.left_alone(&live).is_some() => self.adopt(&live),
                Some(live) if required_writes(self.desired.value(), &live) == RequiredWrites::MigrateThenApply => {
                    self.migrate(live)
                }
                Some(live) if refusal == Refusal::Immutable => self.recreate(live),
                _ => Next::Break(End::Refused),
            },
            (Stage::Probe(mut live), Ok(Some(shown))) => {
                // An item of a list has no types, and our new entry needs them.
                live["apiVersion"] = shown["apiVersion"].clone();
                live["metadata"]["managedFields"] = shown["metadata"]["managedFields"].clone();
                self.migrations += 1;
                self.step(Stage::Migrate, Step::Migrate(live))
            }
            (Stage::Migrate, Err(Refusal::Conflict)) if self.migrations < MIGRATION_TRIES => {
                self.step(Stage::Reread, Step::Read)
            }
            // After the last conflict the refusal stands: an apply alone would leave other managers' fields.
            (Stage::Migrate, Ok(_)) => self.step(Stage::ApplyMigrated, Step::Apply),
            (Stage::ReadForRecreate, Ok(Some(live))) => self.recreate(live),
            (Stage::ReadTemporary(live), Ok(temporary)) => {
                match temporary.as_ref().and_then(|one| self.left_alone(one)) {
                    Some(end) => Next::Break(end),
                    None => self.step(Stage::ApplyTemporary(live), Step::ApplyTemporary),
                }
            }
            (Stage::ApplyTemporary(live) | Stage::ApplyTemporaryAgain(live), Ok(_)) => {
                self.step(Stage::Delete(live.clone()), Step::Delete(live))
            }
            (Stage::ApplyTemporary(live), Err(Refusal::Immutable)) if is_binding(self.desired) => {
                self.step(Stage::DeleteTemporary(live), Step::DeleteTemporary)
            }
            (Stage::DeleteTemporary(live), Ok(_)) => self.step(Stage::ApplyTemporaryAgain(live), Step::ApplyTemporary),
            (Stage::Delete(live), Ok(left)) => match left.as_ref().map(finalizers) {
                Some(finalizers) if !finalizers.is_empty() => Next::Break(End::BlockedByFinalizers(finalizers)),
                _ => self.step(Stage::Create(live), Step::Apply),
            },
            (Stage::Create(before), Ok(Some(after))) => Next::Break(End::Recreated { before, after }),
            _ => Next::Break(End::Refused),
        }
    }

    /// Whether an administrator has annotated the object to be left alone. Only members of the set can be: synced objects,
    /// such as `cloud-conf`, are not labeled and are always ours.
    fn is_left_alone(&self, live: &Value) -> bool {
        self.is_in_our_set() && inventory::is_left_alone(live)
    }

    fn is_in_our_set(&self) -> bool {
        !set_of(self.desired.value()).is_null()
    }

    /// Whether a live object is not ours and stays so. One of ours may have lost its label or its managed fields, not both.
    fn is_of_others(&self, live: &Value) -> bool {
        let is_wiped = ownership::is_wiped(live) && *set_of(live) == *set_of(self.desired.value());
        !self.adopts && !ownership::is_applied_by_us(live) && !is_wiped
    }

    /// Why a live object is not changed, if it is not ours to change.
    fn left_alone(&self, live: &Value) -> Option<End> {
        if self.is_of_others(live) {
            let manager = ownership::last_other_manager(live).unwrap_or("another manager");
            return Some(End::NotOwned(manager.to_owned()));
        }
        if self.is_left_alone(live) {
            return Some(End::LeftAlone(Some(live.clone())));
        }
        if let Some(set) = live["metadata"]["labels"][PART_OF_LABEL].as_str() {
            let is_another = self.is_in_our_set() && *set_of(self.desired.value()) != *set;
            // Our label with another value belongs to this operator in another namespace.
            let is_owned = ownership::is_label_of_others(live, PART_OF_LABEL);
            if is_another && is_owned {
                return Some(End::OtherApplySet(set.to_owned()));
            }
        }
        None
    }

    fn adopt(&mut self, live: &Value) -> Next {
        if let Some(end) = self.left_alone(live) {
            return Next::Break(end);
        }
        match required_writes(self.desired.value(), live) {
            RequiredWrites::Nothing => Next::Break(End::Unchanged),
            RequiredWrites::Apply => self.step(Stage::Apply, Step::Apply),
            RequiredWrites::MigrateThenApply => self.migrate(live.clone()),
        }
    }

    fn step(&mut self, stage: Stage, step: Step) -> Next {
        self.stage = stage;
        Next::Continue(step)
    }

    fn migrate(&mut self, live: Value) -> Next {
        if ownership::is_wiped(&live) {
            return self.step(Stage::Probe(live.clone()), Step::Probe(live));
        }
        self.migrations += 1;
        self.step(Stage::Migrate, Step::Migrate(live))
    }

    /// Deletes nothing before the API server has accepted the temporary object.
    fn recreate(&mut self, live: Value) -> Next {
        if let Some(end) = self.left_alone(&live) {
            return Next::Break(end);
        }
        if !live["metadata"]["deletionTimestamp"].is_null() {
            return Next::Break(End::BlockedByFinalizers(finalizers(&live)));
        }
        // Only a binding's is written.
        if is_binding(self.desired) {
            return self.step(Stage::ReadTemporary(live), Step::ReadTemporary);
        }
        self.step(Stage::ApplyTemporary(live), Step::ApplyTemporary)
    }
}

/// The set that an object belongs to; null for none.
fn set_of(object: &Value) -> &Value {
    &object["metadata"]["labels"][PART_OF_LABEL]
}

/// Whether the temporary object of an object is created, not only dry-run.
pub(super) fn is_binding(object: &Object) -> bool {
    matches!(object.kind().kind, "ClusterRoleBinding" | "RoleBinding")
}

pub(super) fn temporary(object: &Object) -> Value {
    let mut temporary = object.value().clone();
    temporary["metadata"]["name"] = format!("{}{TEMPORARY}", object.name()).into();
    temporary
}

/// The merge patch that moves other managers' fields of a live object into our entry, guarded by the resource version.
pub(super) fn migration_patch(live: &Value) -> Value {
    json!({"metadata": {
        "resourceVersion": live["metadata"]["resourceVersion"],
        "managedFields": ownership::migrate(live),
    }})
}

/// The finalizers of an object, comma-separated; empty if it has none.
pub(crate) fn finalizers(live: &Value) -> String {
    let finalizers = live["metadata"]["finalizers"].as_array().into_iter().flatten();
    finalizers.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
