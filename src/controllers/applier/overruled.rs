//! Objects whose planned values the API server overrules, for example by an admission webhook (IO, by the clock).

use std::time::{Duration, Instant};

use serde_json::Value;

use super::Applier;
use crate::{
    apply::{
        change,
        ownership::{self, RequiredWrites},
    },
    object::{Key, Object},
};

/// The lifetime of the response to an apply. After that, the same apply may have another result, for example without a webhook. If the
/// result is the same, nothing is written.
const ANSWER_LIFETIME: Duration = Duration::from_secs(45);

/// An object whose planned values the API server has changed.
pub(super) struct Overruled {
    planned: Object,
    /// The essence of the response to the apply.
    answer: Value,
    /// The paths of the changed values; empty if they are equivalent.
    fields: Vec<String>,
    since: Instant,
}

impl Overruled {
    /// Returns the time of the next apply, or `None` if the changed values are equivalent.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.fields.is_empty()).then(|| self.since + ANSWER_LIFETIME)
    }
}

impl Applier {
    /// Returns the objects whose planned values the API server has changed, with the paths of the values.
    pub(in crate::controllers) fn overruled(&self) -> impl Iterator<Item = (&Key, &[String])> {
        let all = self.overruled.iter().map(|(key, overruled)| (key, overruled.fields.as_slice()));
        all.filter(|(_, fields)| !fields.is_empty())
    }

    /// Stores the response to an apply if it differs from the plan, because the same apply would have the same response.
    pub(super) fn compare(&mut self, object: &Object, answer: Option<&Value>) {
        let Some(answer) = answer else { return };
        if ownership::required_writes(object.value(), answer) == RequiredWrites::Nothing {
            self.overruled.remove(&object.key());
            return;
        }
        let fields = change::unmet(object.value(), answer);
        let overruled =
            Overruled { planned: object.clone(), answer: change::essence(answer), fields, since: Instant::now() };
        self.overruled.insert(object.key(), overruled);
    }

    /// Whether a live object equals the response of the API server to the same plan.
    pub(super) fn is_answered(&self, object: &Object, live: &Value) -> bool {
        let known = self.overruled.get(&object.key());
        known.is_some_and(|known| {
            let is_current = known.since.elapsed() < ANSWER_LIFETIME && known.planned == *object;
            is_current && known.answer == change::essence(live)
        })
    }
}
