//! Helpers of the clouds' tests.

use crate::config::Change;

/// The key, the previous and the new value of each change.
pub(super) fn keys_and_values(changes: &[Change]) -> Vec<(&str, Option<&str>, Option<&str>)> {
    changes.iter().map(|change| (change.key.as_str(), change.before.as_deref(), change.after.as_deref())).collect()
}
