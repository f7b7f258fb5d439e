//! Counts the work for an untrusted text, for tests: it must grow with the length of the text (pure).
//!
//! Time depends on the machine; the number of steps does not. Code whose work depends on two sizes at once adds its steps here. A
//! release build counts nothing.

use std::cell::Cell;

thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Adds steps: comparisons of texts, or bytes read.
#[inline]
pub fn add(steps: usize) {
    if cfg!(debug_assertions) {
        STEPS.set(STEPS.get().saturating_add(steps));
    }
}

/// Returns the number of steps of a call.
pub fn of(call: impl FnOnce()) -> usize {
    let before = STEPS.get();
    call();
    STEPS.get() - before
}
