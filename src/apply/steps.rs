//! The steps that turn a live object into the planned one (pure).
//!
//! All code that changes objects or shows changes uses these steps. The responses to the previous steps decide the next
//! one. [`super::write`] performs the steps, and [`super::dry_run`] performs them as dry runs.

use std::ops::ControlFlow;

use serde_json::{Value, json};

use crate::{
    apply::{
        inventory,
        ownership::{self, RequiredWrites, required_writes},
    },
    object::{Object, PART_OF_LABEL, TEMPORARY},
};

/// The maximum number of attempts to migrate field managers while other managers write the object.
const MIGRATION_TRIES: usize = 3;

/// A request to the API server about one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Read the object.
    Read,
    /// Find the field owners of this object, whose managed fields were wiped, by a dry run of [`ownership::bare`].
    Probe(Value),
    /// Move other managers' fields of this live object into our managed fields entry, unless the object has changed.
    Migrate(Value),
    /// Apply the object.
    Apply,
    /// Read the object with the temporary object's name: it may belong to another manager.
    ReadTemporary,
    /// Apply the object under the temporary object's name: the API server has to accept it before the old object is deleted.
    /// A binding's temporary object is created, so that its permissions are granted without a gap; others are only dry-run.
    ApplyTemporary,
    /// Delete an old temporary object that an apply cannot change into the new one.
    DeleteTemporary,
    /// Delete this live object, but only if it is still in this state.
    Delete(Value),
}

/// The next step, or the end.
pub type Next = ControlFlow<End, Step>;

/// The end of the steps.
#[derive(Clone, Debug, PartialEq)]
pub enum End {
    /// The object is as planned.
    Unchanged,
    /// An annotation excludes the object from changes. Holds its state, if a step has read it.
    LeftAlone(Option<Value>),
    /// The object was applied. Holds its state.
    Applied(Value),
    /// The object was deleted and recreated, because an immutable field differed.
    Recreated {
        /// The state before the deletion.
        before: Value,
        /// The current state.
        after: Value,
    },
    /// These finalizers block the deletion of the object.
    BlockedByFinalizers(String),
    /// Another tool manages the object as a member of this set.
    OtherApplySet(String),
    /// This manager created the object, which is not taken over.
    NotOwned(String),
    /// The last refusal is final.
    Refused,
}

/// The known state of the live object before the first step.
#[derive(Clone, Copy, Debug)]
pub enum LiveState<'a> {
    /// The object exists in this state.
    Seen(&'a Value),
    /// The object does not exist.
    Absent,
    /// The object may exist without our label, so no watch shows it.
    Unknown,
}

impl<'a> LiveState<'a> {
    /// Returns the state for the result of a read.
    pub fn of(live: Option<&'a Value>) -> Self {
        live.map_or(Self::Absent, Self::Seen)
    }
}

/// The response to a step: the current object (`None` if it does not exist or is not returned), or a refusal.
pub type Answer = Result<Option<Value>, Refusal>;

/// The reason for a refusal, as far as the next step depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An immutable field differs.
    Immutable,
    /// The object is not valid.
    Invalid,
    /// Another manager has changed the object.
    Conflict,
    /// Another reason, or no response.
    Other,
}

/// The step that waits for its response.
#[derive(Debug)]
enum Stage {
    Start,
    /// Checks whether an object without our label exists and may be taken over.
    Read,
    Apply,
    /// Checks whether an unseen object was refused because of other managers' fields.
    ReadForMigration(Refusal),
    Probe(Value),
    Migrate,
    /// Another manager changed the object before the migration.
    Reread,
    ApplyMigrated,
    ReadForRecreate,
    ReadTemporary(Value),
    ApplyTemporary(Value),
    /// Applies the temporary object after an old one was deleted.
    ApplyTemporaryAgain(Value),
    DeleteTemporary(Value),
    Delete(Value),
    Create(Value),
}

/// The steps for one object.
#[derive(Debug)]
pub struct Steps<'a> {
    desired: &'a Object,
    live_state: LiveState<'a>,
    adopts: bool,
    migrations: usize,
    stage: Stage,
}

impl<'a> Steps<'a> {
    /// Creates the steps from the known state of the live object.
    pub fn new(desired: &'a Object, live_state: LiveState<'a>) -> Self {
        Self { desired, live_state, adopts: true, migrations: 0, stage: Stage::Start }
    }

    /// Sets `adopts`: whether we take over objects that another manager created.
    #[must_use]
    pub fn adopting(self, adopts: bool) -> Self {
        Self { adopts, ..self }
    }

    /// Returns the planned object.
    pub fn desired(&self) -> &'a Object {
        self.desired
    }

    /// Returns the last seen state of the object.
    pub fn seen(&self) -> Option<&'a Value> {
        match self.live_state {
            LiveState::Seen(live) => Some(live),
            LiveState::Absent | LiveState::Unknown => None,
        }
    }

    /// Returns the first step.
    pub fn first(&mut self) -> Next {
        match self.live_state {
            LiveState::Unknown if self.is_in_our_set() => self.step(Stage::Read, Step::Read),
            LiveState::Unknown | LiveState::Absent => self.step(Stage::Apply, Step::Apply),
            LiveState::Seen(live) if self.is_of_others(live) => self.adopt(live),
            LiveState::Seen(live) if self.is_left_alone(live) => Next::Break(End::LeftAlone(None)),
            LiveState::Seen(live) => self.adopt(live),
        }
    }

    /// Returns the next step after a response.
    pub fn next(&mut self, answer: Answer) -> Next {
        match (std::mem::replace(&mut self.stage, Stage::Start), answer) {
            (Stage::Read, Ok(None)) => self.step(Stage::Apply, Step::Apply),
            (Stage::Read | Stage::Reread, Ok(Some(live))) => self.adopt(&live),
            (Stage::Apply, Ok(Some(now))) => {
                // For an unseen object, this response is the first to show other managers' fields.
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
                // A list item has no `apiVersion`, and our new entry needs one.
                live["apiVersion"] = shown["apiVersion"].clone();
                live["metadata"]["managedFields"] = shown["metadata"]["managedFields"].clone();
                self.migrations += 1;
                self.step(Stage::Migrate, Step::Migrate(live))
            }
            (Stage::Migrate, Err(Refusal::Conflict)) if self.migrations < MIGRATION_TRIES => {
                self.step(Stage::Reread, Step::Read)
            }
            // After the last conflict, the refusal is final: an apply alone would keep other managers' fields.
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

    /// Whether an administrator has excluded the object from changes by an annotation. Only members of the set can be excluded:
    /// synced objects, such as `cloud-conf`, are not labeled and are always ours.
    fn is_left_alone(&self, live: &Value) -> bool {
        self.is_in_our_set() && inventory::is_left_alone(live)
    }

    fn is_in_our_set(&self) -> bool {
        !set_of(self.desired.value()).is_null()
    }

    /// Whether a live object is not ours and is not adopted. Our objects may have lost their label or managed fields, but not both.
    fn is_of_others(&self, live: &Value) -> bool {
        let is_wiped = ownership::is_wiped(live) && *set_of(live) == *set_of(self.desired.value());
        !self.adopts && !ownership::is_applied_by_us(live) && !is_wiped
    }

    /// Returns the reason for leaving a live object alone, if there is one.
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
            // Another value of our label means that an operator in another namespace owns the object.
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
        // Only a binding's temporary object is written.
        if is_binding(self.desired) {
            return self.step(Stage::ReadTemporary(live), Step::ReadTemporary);
        }
        self.step(Stage::ApplyTemporary(live), Step::ApplyTemporary)
    }
}

/// Returns the set of an object; null if it belongs to none.
fn set_of(object: &Value) -> &Value {
    &object["metadata"]["labels"][PART_OF_LABEL]
}

/// Whether an object's temporary object is created, not only dry-run.
pub(super) fn is_binding(object: &Object) -> bool {
    matches!(object.kind().kind, "ClusterRoleBinding" | "RoleBinding")
}

pub(super) fn temporary(object: &Object) -> Value {
    let mut temporary = object.value().clone();
    temporary["metadata"]["name"] = format!("{}{TEMPORARY}", object.name()).into();
    temporary
}

/// Returns the merge patch that moves other managers' fields of a live object into our entry, guarded by the resource version.
pub(super) fn migration_patch(live: &Value) -> Value {
    json!({"metadata": {
        "resourceVersion": live["metadata"]["resourceVersion"],
        "managedFields": ownership::migrate(live),
    }})
}

/// Returns the finalizers of an object, comma-separated; empty if it has none.
pub(crate) fn finalizers(live: &Value) -> String {
    let finalizers = live["metadata"]["finalizers"].as_array().into_iter().flatten();
    finalizers.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
