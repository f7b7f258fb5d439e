//! The clean-up after a run that did not reach its end.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use super::{MAX_DELETES, PAUSE, limit_of_change, of_run};
use crate::contract::{Driver, Filter, Instance, Result, State};

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
    let (begin, limit) = (Instant::now(), limit_of_change(limit));
    let (mut deleted, mut repeated, mut rounds): (Vec<Instance>, _, _) = (Vec::new(), BTreeSet::new(), 0);
    loop {
        let listed = instances.list(&Filter::default()).await;
        let listed = listed.map_err(|error| if rounds == 0 { error } else { error.context("list after delete") })?;
        let left: Vec<_> = of_run(listed, run).collect();
        // A delete that was interrupted goes on only when it is repeated.
        let needs_delete = |one: &&Instance| one.state != State::Deleting || repeated.insert(one.id.clone());
        let active: Vec<_> = left.iter().filter(needs_delete).collect();
        let is_given_up = !active.is_empty() && rounds == MAX_DELETES;
        if left.is_empty() || is_given_up || begin.elapsed() > limit {
            deleted.retain(|one| left.iter().all(|left| left.id != one.id));
            return Ok(CleanedUp { deleted, left });
        }
        if active.is_empty() {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        let mut failed = None;
        for instance in active {
            match instances.delete(&instance.id).await {
                Ok(()) if rounds == 0 => deleted.push(instance.clone()),
                Ok(()) => {}
                Err(error) => failed = Some(error.context(format!("delete of the instance {:?}", instance.id))),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        rounds += 1;
    }
}
