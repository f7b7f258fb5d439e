//! Reads a cluster before a first installation (IO), beside the passes, because a large cluster needs many requests.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use tokio::sync::mpsc;

use super::DEFAULT_NAMESPACE;
use crate::{
    cluster::read::Error,
    nodes::{evidence::Seen, identity::Need},
    preflight::{evidence::Snapshot, read},
    provider::catalog::Catalog,
};

/// What is asked about one `CloudControllerManager`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Question {
    /// The namespace of its pods.
    pub(super) namespace: String,
    /// The user name of its ServiceAccount.
    pub(super) user: Option<String>,
    /// What the operator needs for it.
    pub(super) needs: BTreeSet<Need>,
}

/// What was found.
pub(super) struct Found {
    pub(super) snapshot: Snapshot,
    /// What the operator lacks, of all that it needs.
    pub(super) missing: Seen<BTreeSet<Need>>,
    /// By whose bindings each account may delete nodes already.
    pub(super) deletion_permissions: BTreeMap<String, Seen<Option<Vec<String>>>>,
}

/// The questions, by the names of the `CloudControllerManager`s, and the answer.
pub(super) type Answer = (BTreeMap<String, Question>, Result<Found, Error>);

/// Asks for one snapshot at a time.
pub(super) struct SnapshotReader {
    results: mpsc::UnboundedSender<Answer>,
    answers: mpsc::UnboundedReceiver<Answer>,
    is_asking: bool,
    answer: Option<Answer>,
}

impl Default for SnapshotReader {
    fn default() -> Self {
        let (results, answers) = mpsc::unbounded_channel();
        Self { results, answers, is_asking: false, answer: None }
    }
}

impl SnapshotReader {
    /// Waits for an answer, for the next pass.
    pub(super) async fn answered(&mut self) {
        // Never closed: this has a sender, too.
        if let Some(answer) = self.answers.recv().await {
            self.is_asking = false;
            self.answer = Some(answer);
        }
    }

    /// The answer that has come since the last pass.
    pub(super) fn take(&mut self) -> Option<Answer> {
        self.answer.take()
    }

    /// Asks, unless it is asking already.
    pub(super) fn ask(&mut self, client: &Client, catalog: &Catalog, questions: BTreeMap<String, Question>) {
        if self.is_asking || questions.is_empty() {
            return;
        }
        self.is_asking = true;
        let (client, results, catalog) = (client.clone(), self.results.clone(), catalog.clone());
        tokio::spawn(async move {
            let found = find(&client, &catalog, &questions).await;
            // Nobody asks any more if this process stops.
            drop(results.send((questions, found)));
        });
    }
}

async fn find(client: &Client, catalog: &Catalog, questions: &BTreeMap<String, Question>) -> Result<Found, Error> {
    let namespaces: BTreeSet<_> = questions.values().map(|question| question.namespace.as_str()).collect();
    // Others are in kube-system, or where ours are: there the operator may look.
    let locations = namespaces.iter().copied().chain([DEFAULT_NAMESPACE]).collect();
    let snapshot = read::snapshot(client, catalog, &locations, &namespaces).await?;
    let needs = questions.values().flat_map(|question| &question.needs).cloned().collect();
    let missing = read::own_missing(client, &needs).await?;
    let mut deletion_permissions = BTreeMap::new();
    for user in questions.values().filter_map(|question| question.user.as_ref()) {
        deletion_permissions.insert(user.clone(), read::deletion_permission(client, user).await?);
    }
    Ok(Found { snapshot, missing, deletion_permissions })
}
