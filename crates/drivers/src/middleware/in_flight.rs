//! The operations that have begun and not ended.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// An operation that has begun and not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Its name, such as `create instance`.
    pub operation: &'static str,
    /// The id or the name of the object; empty if it has none.
    pub object: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The time since the first attempt began, with all waiting.
    pub elapsed: Duration,
}

impl fmt::Display for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, object, attempt, elapsed } = self;
        f.write_str(operation)?;
        if !object.is_empty() {
            write!(f, " {object:?}")?;
        }
        write!(f, ", attempt {attempt}, for {:.1}s", elapsed.as_secs_f64())
    }
}

/// Lists the operations in flight of the sessions that it was given to, also while they are in use. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct InFlightHandle(Arc<Mutex<Running>>);

#[derive(Debug, Default)]
struct Running {
    next: u64,
    /// By the order in which they began.
    operations: BTreeMap<u64, Operation>,
}

#[derive(Debug)]
struct Operation {
    name: &'static str,
    object: String,
    attempt: u32,
    begin: Instant,
}

impl InFlightHandle {
    /// Returns the operations in flight, the oldest first.
    pub fn list(&self) -> Vec<InFlight> {
        let shown = |Operation { name, object, attempt, begin }: &Operation| InFlight {
            operation: name,
            object: object.clone(),
            attempt: *attempt,
            elapsed: begin.elapsed(),
        };
        self.lock().operations.values().map(shown).collect()
    }

    /// Adds an operation until the guard is dropped.
    pub(super) fn begin(&self, name: &'static str, object: &str) -> Guard {
        let mut running = self.lock();
        let number = running.next;
        running.next += 1;
        let operation = Operation { name, object: object.to_owned(), attempt: 1, begin: Instant::now() };
        running.operations.insert(number, operation);
        Guard { handle: self.clone(), number }
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes its operation when it is dropped, also where a caller drops an operation before its end.
pub(super) struct Guard {
    handle: InFlightHandle,
    number: u64,
}

impl Guard {
    pub(super) fn set_attempt(&self, attempt: u32) {
        if let Some(operation) = self.handle.lock().operations.get_mut(&self.number) {
            operation.attempt = attempt;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.handle.lock().operations.remove(&self.number);
    }
}
