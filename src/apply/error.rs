//! Why an object could not be brought to what it should be, and what that means (no IO; knows the client's errors).

use crate::{cluster::request::Cause, object::Key};

/// An object that could not be applied.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} {object}")]
pub struct Error {
    /// The object.
    pub object: Key,
    /// What was tried.
    pub action: &'static str,
    /// The cause.
    #[source]
    pub source: Cause,
}

impl Error {
    /// See [`Cause::retry_after`].
    pub fn retry_after(&self) -> std::time::Duration {
        self.source.retry_after()
    }
}
