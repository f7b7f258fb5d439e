//! Why an object could not be brought to what it should be, and what that means (no IO; knows the client's errors).

use std::time::Duration;

use crate::object::Key;

/// The fields that cannot be changed, as the API server names them: what has another value there is made anew.
const IMMUTABLE: [&str; 2] = ["spec.selector", "roleRef"];

/// How long rights that are missing may be missing unsaid: an API server that has just started denies everybody what it has
/// not read yet.
const RIGHTS_PATIENCE: Duration = Duration::from_secs(5);

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

/// Why an object could not be applied.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The API server's answer, or none at all.
    #[error("{}", crate::words(.0))]
    Api(#[from] kube::Error),
    /// No answer in time.
    #[error("no answer from the API server in time")]
    Timeout,
    /// It was deleted, and is held by a finalizer.
    #[error("it was deleted, and is not gone before its finalizers are: {0}")]
    Held(String),
    /// The operator lost its lease, or is being stopped.
    #[error("the operator may not write any more: it is no longer the leader, or is being stopped")]
    NotLeading,
}

impl Cause {
    /// Whether somebody else was faster.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 409)
    }

    /// Whether the same request can never succeed: the object has to change first, or the operator's rights.
    pub fn is_terminal(&self) -> bool {
        let Self::Api(kube::Error::Api(status)) = self else { return false };
        match status.code {
            401 | 404 | 408 | 409 | 429 => false,
            400..500 => true,
            _ => self.is_invalid(),
        }
    }

    /// How long such an error has to last before it is reported; `transient` is how long one has to that passes by itself.
    pub fn patience(&self, transient: Duration) -> Duration {
        match self {
            Self::Api(kube::Error::Api(status)) if status.code == 403 => RIGHTS_PATIENCE,
            terminal if terminal.is_terminal() => Duration::ZERO,
            _ => transient,
        }
    }

    /// Whether the object was refused because it changes a field that cannot be changed.
    pub(crate) fn is_immutable(&self) -> bool {
        let Self::Api(kube::Error::Api(status)) = self else { return false };
        let causes = status.details.iter().flat_map(|details| &details.causes);
        status.code == 422 && causes.into_iter().any(|cause| IMMUTABLE.contains(&cause.field.as_str()))
    }

    /// Whether there is nothing (any more).
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Api(kube::Error::Api(status)) if status.code == 404)
    }

    /// Whether the object was refused for what it holds.
    pub(super) fn is_invalid(&self) -> bool {
        let Self::Api(kube::Error::Api(status)) = self else { return false };
        // The second is how the API server answers an object that does not fit its schema.
        let misfit = status.reason.is_empty() && status.message.contains("failed to create typed patch object");
        status.code == 422 || (status.code == 500 && misfit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_terminal_by_their_status() {
        let status = |code, reason: &str, message: &str| {
            let status = kube::core::Status {
                code,
                reason: reason.into(),
                message: message.into(),
                ..kube::core::Status::default()
            };
            Cause::Api(kube::Error::Api(Box::new(status))).is_terminal()
        };
        assert!(status(422, "Invalid", ""));
        assert!(status(403, "Forbidden", ""));
        assert!(status(500, "", "failed to create typed patch object (ns/x; apps/v1, Kind=Deployment): …"));
        assert!(!status(500, "InternalError", "etcd is slow"));
        for code in [404, 409, 429, 503] {
            assert!(!status(code, "", ""), "{code}");
        }
        assert!(!Cause::Timeout.is_terminal());
    }

    #[test]
    fn a_right_that_is_missing_may_come() {
        let patience = |code| {
            let status = kube::core::Status { code, ..kube::core::Status::default() };
            Cause::Api(kube::Error::Api(Box::new(status))).patience(Duration::from_secs(150)).as_secs()
        };
        assert_eq!([403, 422, 503].map(patience), [5, 0, 150]);
    }
}
