//! The failures of a pass (pure).

use crate::{object::Key, provider::Origin};

/// The reason why a pass stopped.
#[derive(Clone, Debug)]
pub(super) struct PassError {
    /// The error, with its causes.
    pub error: String,
    /// Whether the error is reported, because it has lasted long enough and its retry is not pending.
    pub is_reported: bool,
    /// Whether the same request can never succeed.
    pub is_terminal: bool,
    /// Whether a permission is missing.
    pub is_denied: bool,
}

impl PassError {
    /// Returns the error. If a permission is missing for an external provider, the text also names the command that prints the needed
    /// permissions.
    pub(super) fn advised(&self, external: Option<&Origin>) -> String {
        match external.filter(|_| self.is_denied) {
            None => self.error.clone(),
            Some(origin) => format!(
                "{}; `ccm-operator provider rbac {}` prints the permissions that the operator needs for this provider",
                self.error, origin.path
            ),
        }
    }
}

impl From<String> for PassError {
    fn from(error: String) -> Self {
        Self { error, is_reported: false, is_terminal: false, is_denied: false }
    }
}

struct Failure {
    object: Key,
    /// Whether the API server as a whole has failed, and not the object.
    is_servers: bool,
    stopped: PassError,
}

#[derive(Default)]
pub(super) struct Failures(Vec<Failure>);

impl Failures {
    /// Adds the failure of an object; `is_servers` if the API server as a whole has failed.
    pub(super) fn add(&mut self, object: Key, is_servers: bool, stopped: PassError) {
        self.0.push(Failure { object, is_servers, stopped });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn has(&self, object: &Key) -> bool {
        self.0.iter().any(|failure| failure.object == *object)
    }

    pub(super) fn of_object(&self, object: &Key) -> Option<&PassError> {
        self.0.iter().find(|failure| failure.object == *object).map(|failure| &failure.stopped)
    }

    pub(super) fn is_servers(&self) -> bool {
        self.0.iter().any(|failure| failure.is_servers)
    }

    /// Returns the most important failure for these objects: a reported one before others, then a terminal one, then the first one.
    pub(super) fn of(&self, counts: impl Fn(&Key) -> bool) -> Option<&PassError> {
        let failures = self.0.iter().rev().filter(|failure| failure.is_servers || counts(&failure.object));
        let worst = failures.max_by_key(|failure| (failure.stopped.is_reported, failure.stopped.is_terminal))?;
        Some(&worst.stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { group: String::new(), kind: "Service".into(), namespace: "n".into(), name: name.into() }
    }

    #[test]
    fn the_failure_that_matters_most_is_shown() {
        let mut failures = Failures::default();
        assert!(failures.is_empty() && failures.of(|_| true).is_none());
        let stopped = |error: &str, is_reported, is_terminal| PassError {
            error: error.into(),
            is_reported,
            is_terminal,
            is_denied: false,
        };
        failures.add(key("a"), false, stopped("first", false, false));
        failures.add(key("b"), false, stopped("second", false, false));
        assert_eq!(failures.of(|_| true).unwrap().error, "first");
        failures.add(key("b"), false, stopped("terminal", false, true));
        assert_eq!(failures.of(|_| true).unwrap().error, "terminal");
        assert_eq!(failures.of(|object| *object == key("a")).unwrap().error, "first");
        assert!(failures.of(|object| *object == key("c")).is_none() && !failures.has(&key("c")));
        assert!(failures.has(&key("a")) && !failures.is_servers());
        failures.add(key("b"), true, stopped("the API server", true, false));
        assert_eq!(failures.of(|object| *object == key("c")).unwrap().error, "the API server", "it concerns all");
        assert!(failures.is_servers());
    }
}
