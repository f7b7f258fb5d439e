//! The instances of the run that are left: found, deleted, and waited for.

use std::collections::BTreeSet;

use super::{Client, Context, caught, locked, shown};
use crate::{
    conformance::{PAUSE, deletions::Deletions, is_of, may_be_of, of_run},
    contract::{Filter, Instance},
};

impl Context<'_> {
    /// Deletes the instances of the run, waits until they are gone, and returns the ids of those that are left.
    pub(in super::super) async fn sweep(&self) -> BTreeSet<String> {
        // A driver that panics leaves what is known to exist.
        if let Err(panic) = caught(self.delete_own()).await {
            self.was_not_listed(panic);
        }
        self.take_problems();
        locked(&self.made).clone()
    }

    /// Notes that a create is asked for: until the next list it is not known what there is.
    pub(super) fn asks_for_an_instance(&self) {
        *locked(&self.unlisted) = Some("it was not asked for".to_owned());
    }

    /// Notes why the list was not read. Returns what is known of it: nothing.
    fn was_not_listed(&self, reason: String) -> Vec<Instance> {
        if let Some(known) = &mut *locked(&self.unlisted) {
            *known = reason;
        }
        Vec::new()
    }

    /// Why it is not known which instances of the run there are.
    pub(in super::super) fn list_error(&self) -> Option<String> {
        locked(&self.unlisted).as_ref().map(|reason| self.secrets.mask(reason))
    }

    /// Finds the instances of the run: those of the list, and those that were made and that a wrong list lacks. Returns as well whether
    /// there may be others, of which the cloud could not tell at the moment.
    async fn left(&self, client: &Client<'_>) -> (Vec<Instance>, bool) {
        let run = &self.plan.run;
        let listed = match caught(client.list(&Filter::default())).await {
            Ok(Ok(listed)) => {
                *locked(&self.unlisted) = None;
                listed
            }
            Ok(Err(error)) => self.was_not_listed(shown(&error)),
            Err(panic) => self.was_not_listed(panic),
        };
        let mut own: Vec<_> = of_run(listed, Some(run)).collect();
        let mut ids: BTreeSet<_> = own.iter().map(|one| one.id.clone()).collect();
        let lacking: Vec<_> = locked(&self.made).difference(&ids).cloned().collect();
        let mut is_unknown = false;
        for id in lacking {
            match caught(client.get(&id)).await {
                Ok(Err(error)) if error.is_not_found() => continue,
                // No read has it, and the driver has only the wrong class for that.
                Ok(Err(error)) if !error.kind.is_transient() && locked(&self.deleted).contains(&id) => continue,
                Ok(Ok(one)) if one.id == id && !may_be_of(&one, run) => continue,
                Ok(Ok(one)) if one.id == id && is_of(&one, run) => own.push(one),
                Ok(Err(error)) if error.kind.is_transient() => is_unknown = true,
                // It may be there, and nothing shows that it is one of the run.
                _ => {}
            }
            ids.insert(id);
        }
        *locked(&self.made) = ids;
        (own, is_unknown)
    }

    async fn delete_own(&self) {
        let mut deletions = Deletions::begin(self.plan.limit);
        let client = loop {
            match self.open(self.plan.values).await {
                Ok(client) => break client,
                Err(error) if error.kind.is_transient() && !deletions.is_late() => tokio::time::sleep(PAUSE).await,
                Err(error) => {
                    self.was_not_listed(format!("open: {}", shown(&error)));
                    return;
                }
            }
        };
        if !client.has_instances() {
            return;
        }
        loop {
            let (own, is_unknown) = self.left(&client).await;
            let Some(now) = deletions.next(&own, is_unknown) else { return };
            if now.is_empty() {
                tokio::time::sleep(PAUSE).await;
            }
            for one in now {
                // A failure shows in the next list.
                drop(caught(client.delete(&one.id)).await);
            }
        }
    }
}
