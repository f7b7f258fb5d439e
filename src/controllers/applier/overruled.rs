//! Objects whose planned values the API server overrules, for example by an admission webhook (IO, by the clock).

use std::time::{Duration, Instant};

use serde_json::Value;

use super::Applier;
use crate::{
    apply::{
        change,
        ownership::{self, Need},
    },
    object::{Key, Object},
};

/// How long the answer to an apply counts. Then the same apply may be answered in another way, such as without a webhook; if
/// it is not, nothing is written.
const ANSWER_LIFETIME: Duration = Duration::from_secs(45);

/// An object of which the API server keeps other values than planned.
pub(super) struct Overruled {
    planned: Object,
    /// The essence of the answer to the apply.
    answer: Value,
    /// The paths of the other values; empty if they mean the same.
    fields: Vec<String>,
    since: Instant,
}

impl Overruled {
    /// When the API server is asked again; `None` if the other values mean the same.
    pub(super) fn due(&self) -> Option<Instant> {
        (!self.fields.is_empty()).then(|| self.since + ANSWER_LIFETIME)
    }
}

impl Applier {
    /// The objects of which the API server keeps other values than planned, with the paths of these.
    pub(in crate::controllers) fn overruled(&self) -> impl Iterator<Item = (&Key, &[String])> {
        let all = self.overruled.iter().map(|(key, overruled)| (key, overruled.fields.as_slice()));
        all.filter(|(_, fields)| !fields.is_empty())
    }

    /// Remembers the fields in which the API server's answer to an apply is not as planned: another apply would be answered
    /// in the same way.
    pub(super) fn compare(&mut self, object: &Object, answer: Option<&Value>) {
        let Some(answer) = answer else { return };
        if ownership::need(object.value(), answer) == Need::Nothing {
            self.overruled.remove(&object.key());
            return;
        }
        let fields = change::unmet(object.value(), answer);
        let overruled =
            Overruled { planned: object.clone(), answer: change::essence(answer), fields, since: Instant::now() };
        self.overruled.insert(object.key(), overruled);
    }

    /// Whether a live object is as the API server has answered to the same plan.
    pub(super) fn is_answered(&self, object: &Object, live: &Value) -> bool {
        let known = self.overruled.get(&object.key());
        known.is_some_and(|known| {
            let is_current = known.since.elapsed() < ANSWER_LIFETIME && known.planned == *object;
            is_current && known.answer == change::essence(live)
        })
    }
}
