//! The clean-up after a run that did not reach its end.

use std::time::Duration;

use super::{PAUSE, deletions::Deletions, of_run};
use crate::contract::{Driver, Filter, Instance, Result};

/// What a clean-up has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanedUp {
    /// The instances that were deleted, and that the list has no longer.
    pub deleted: Vec<Instance>,
    /// Those that the list still has.
    pub left: Vec<Instance>,
}

/// Deletes the instances of one run, or of every run, and waits until the list has none of them, for at most `limit`; 0 means the
/// limit of an operation that has none.
///
/// # Errors
/// The list cannot be read, or a deletion has failed; the others were asked for all the same.
pub async fn clean_up(driver: &dyn Driver, run: Option<&str>, limit: Duration) -> Result<CleanedUp> {
    let Some(instances) = driver.instances() else { return Ok(CleanedUp::default()) };
    let (mut deletions, mut deleted) = (Deletions::begin(limit), Vec::<Instance>::new());
    loop {
        let listed = instances.list(&Filter::default()).await;
        let listed =
            listed.map_err(|error| if deleted.is_empty() { error } else { error.context("list after delete") })?;
        let left: Vec<_> = of_run(listed, run).collect();
        let Some(now) = deletions.next(&left, false) else {
            deleted.retain(|one| left.iter().all(|left| left.id != one.id));
            return Ok(CleanedUp { deleted, left });
        };
        if now.is_empty() {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let mut failed = None;
        for instance in now {
            match instances.delete(&instance.id).await {
                Ok(()) if deleted.iter().any(|one| one.id == instance.id) => {}
                Ok(()) => deleted.push(instance.clone()),
                Err(error) => failed = Some(error.context(format!("delete of the instance {:?}", instance.id))),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
}
