//! Logs what the operator would do (IO): takes the place of [`super::apply_plan`] in `operator --dry-run`.
//!
//! Sends dry runs to the API server, for an object again only when it or the plan has changed: idle costs no request.

use std::{collections::BTreeMap, time::Instant};

use kube::Client;
use serde_json::Value;
use tracing::{info, warn};

use crate::{
    apply::{
        change::{Action, essence},
        diff::Diff,
        dry_run::{self, Error},
    },
    cluster::read,
    controllers::{applier::Stopped, apply_plan::verdicts, backoff::Backoff, observer::Observer},
    error::chain,
    object::{Key, Object},
};

/// An object as it was when it was last asked about: the plan for it, and its live state.
type Asked = (Object, Option<Value>);

/// What asks, and what it remembers from one pass to the next.
pub(super) struct DryRun {
    client: Client,
    set_id: String,
    asked: BTreeMap<Key, Asked>,
    /// What was last logged about each object.
    logged: BTreeMap<Key, String>,
    pub(super) backoff: Backoff,
}

impl DryRun {
    /// `set_id` marks our objects.
    pub(super) fn new(client: Client, set_id: String) -> Self {
        Self { client, set_id, asked: BTreeMap::new(), logged: BTreeMap::new(), backoff: Backoff::default() }
    }

    /// Logs what would become of each object.
    pub(super) async fn act(&mut self, observer: &Observer, objects: &[Object]) -> Result<(), Stopped> {
        if let Some(error) = self.backoff.pending_error(Instant::now()) {
            return Err(Stopped { error: error.to_owned(), is_reported: false });
        }
        for object in objects {
            let live = observer.live(object);
            let now = (object.clone(), live.map(essence));
            if self.asked.get(&object.key()) == Some(&now) {
                continue;
            }
            match self.ask(object, live).await {
                Ok(diff) => {
                    self.asked.insert(object.key(), now);
                    self.log(&diff);
                }
                Err(error) => {
                    let text = chain(&error);
                    if self.backoff.failed(&text, error.retry_after(), Instant::now()) {
                        warn!("{text}; retrying");
                    }
                    return Err(Stopped { error: text, is_reported: false });
                }
            }
        }
        // Without a plan the operator does nothing with objects that are left over.
        if !objects.is_empty() && !observer.awaits_leftovers() {
            for (_, live, verdict) in verdicts(observer, objects, &self.set_id) {
                if let Ok(Some(diff)) = dry_run::removal(live, verdict) {
                    self.log(&diff);
                }
            }
        }
        self.backoff = Backoff::default();
        Ok(())
    }

    /// What would become of an object. No watch sees one that does not carry our label.
    async fn ask(&self, object: &Object, live: Option<&Value>) -> Result<Diff, Error> {
        let read = match live {
            Some(_) => None,
            None => read::live(&self.client, object).await?,
        };
        dry_run::change(&self.client, object, live.or(read.as_ref())).await
    }

    fn log(&mut self, diff: &Diff) {
        let (key, line) = (&diff.change.object, diff.line());
        if self.logged.get(key) == Some(&line) {
            return;
        }
        match diff.change.action {
            // Worth a line only where something else was logged before.
            Action::Unchanged if !self.logged.contains_key(key) => {}
            Action::Refuse => warn!("dry run: {line}"),
            _ => info!("dry run: {line}"),
        }
        self.logged.insert(key.clone(), line);
    }
}
