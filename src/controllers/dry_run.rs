//! Logs what the operator would do (IO): replaces [`super::apply_plan`] in `operator --dry-run`.
//!
//! It sends a dry run for an object only when the object or the plan has changed, so an idle process sends no requests.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kube::Client;
use serde_json::Value;
use tracing::{info, warn};

use crate::{
    apply::{
        change::{Action, essence},
        diff::Diff,
        dry_run::{self, Error},
        steps::{Sight, Steps},
    },
    cluster::read,
    controllers::{apply_plan::Wanted, backoff::Backoff, failures::Stopped, target::Target},
    error::chain,
    object::{Key, Object},
};

#[derive(Default)]
pub(super) struct DryRun {
    /// The plan and the live state of each object at its last dry run.
    asked: BTreeMap<Key, (Object, Option<Value>)>,
    /// The last line logged about each object.
    logged: BTreeMap<Key, String>,
    pub(super) backoff: Backoff,
}

impl DryRun {
    pub(super) async fn act(&mut self, target: &Target, wanted: Wanted<'_>) -> Result<(), Stopped> {
        let Target { client, observer, .. } = target;
        let Wanted { objects, may_prune, adopts, .. } = wanted;
        self.backoff.ready(Instant::now())?;
        for object in objects {
            let live = observer.live(object);
            let now = (object.clone(), live.map(essence));
            if self.asked.get(&object.key()) == Some(&now) {
                continue;
            }
            match ask(client, (object, live), adopts).await {
                Ok(diff) => {
                    self.asked.insert(object.key(), now);
                    self.log(&diff);
                }
                Err(error) => {
                    let text = chain(&error);
                    if self.backoff.failed(&text, Duration::ZERO, error.retry_after(), Instant::now()) {
                        warn!("{text}; retrying");
                    }
                    return Err(text.into());
                }
            }
        }
        if !observer.awaits_leftovers() {
            for (_, live, decision) in
                observer.prune_decisions(objects).into_iter().filter(|(_, live, _)| may_prune(live))
            {
                if let Ok(Some(diff)) = dry_run::removal(live, decision) {
                    self.log(&diff);
                }
            }
        }
        self.backoff = Backoff::default();
        Ok(())
    }

    fn log(&mut self, diff: &Diff) {
        let (key, line) = (&diff.change.object, diff.line());
        if self.logged.get(key) == Some(&line) {
            return;
        }
        match diff.change.action {
            // Logged only after something else.
            Action::Unchanged if !self.logged.contains_key(key) => {}
            Action::Refuse => warn!("dry run: {line}"),
            _ => info!("dry run: {line}"),
        }
        self.logged.insert(key.clone(), line);
    }
}

/// The change that the operator would make. An object without our label is seen by no watch, so it is read.
async fn ask(client: &Client, (object, live): (&Object, Option<&Value>), adopts: bool) -> Result<Diff, Error> {
    let read = match live {
        None if adopts => read::live(client, object).await?,
        _ => None,
    };
    let sight = match live.or(read.as_ref()) {
        None if !adopts => Sight::Unknown,
        live => Sight::of(live),
    };
    dry_run::change(client, Steps::new(object, sight).adopting(adopts)).await
}
