//! The objects that need no write (pure).

use std::collections::HashMap;

use serde_json::Value;

use crate::object::{Key, Object};

/// The objects that need no write, each with its plan and the version of its live state. To find that out again would parse its managed
/// fields in each pass.
#[derive(Default)]
pub(super) struct Unchanged(HashMap<Key, (Object, Value)>);

impl Unchanged {
    /// Whether an object with this plan and this live state needs no write.
    pub(super) fn has(&self, object: &Object, live: &Value) -> bool {
        let known = self.0.get(&object.key());
        known.is_some_and(|(planned, version)| version == version_of(live) && planned == object)
    }

    pub(super) fn insert(&mut self, object: &Object, live: &Value) {
        if version_of(live).is_string() {
            self.0.insert(object.key(), (object.clone(), version_of(live).clone()));
        }
    }

    pub(super) fn keep_only(&mut self, is_planned: impl Fn(&Key) -> bool) {
        self.0.retain(|key, _| is_planned(key));
    }
}

/// Each write changes it, also that of an object that is deleted and created again.
fn version_of(live: &Value) -> &Value {
    &live["metadata"]["resourceVersion"]
}
