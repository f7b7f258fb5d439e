//! Counts the work for a text of others, in tests: it must grow with the length of the text (pure).
//!
//! Time depends on the machine, and steps do not. Code whose work depends on two sizes at once adds its steps here.
//! Outside of tests this does nothing.

#[cfg(test)]
use std::cell::Cell;

#[cfg(test)]
thread_local! {
    static STEPS: Cell<usize> = const { Cell::new(0) };
}

/// Adds steps: comparisons of texts, or bytes that are looked at.
#[inline]
pub(crate) fn add(steps: usize) {
    #[cfg(test)]
    STEPS.with(|all| all.set(all.get().saturating_add(steps)));
    let _ = steps;
}

/// The steps of a call.
#[cfg(test)]
pub(crate) fn of(call: impl FnOnce()) -> usize {
    let before = STEPS.with(Cell::get);
    call();
    STEPS.with(Cell::get) - before
}
