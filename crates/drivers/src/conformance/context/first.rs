//! The first instance of a run. If it cannot be made or deleted, no check tries it again: one reason is enough.

use std::sync::atomic::Ordering;

use super::{Client, Context, Stop, Verdict, shown};
use crate::contract::Instance;

impl Context<'_> {
    /// Makes the first instance. That it can be made is what its check asks for.
    pub(in super::super) async fn make_first(&self, client: &Client<'_>) -> std::result::Result<Instance, Stop> {
        // Also if the driver panics.
        self.makes_nothing.store(true, Ordering::Relaxed);
        let spec = self.spec(1);
        let made = client.create(&spec).await;
        let made =
            made.map_err(|error| Stop::Failed(format!("create: expected an instance, seen {}", shown(&error))))?;
        let made = self.is_own(made, &spec)?;
        self.makes_nothing.store(false, Ordering::Relaxed);
        Ok(made)
    }

    /// Notes that instances cannot be deleted, so that one check finds those of another.
    pub(in super::super) fn deletes_nothing(&self) {
        self.deletes_nothing.store(true, Ordering::Relaxed);
    }

    /// Ends a check that has to make an instance, if none can be made or deleted.
    pub(in super::super) fn demand_first(&self) -> Verdict {
        if self.makes_nothing.load(Ordering::Relaxed) {
            return Err(Stop::NotRun("I1 has failed, so no instance can be made".to_owned()));
        }
        if self.deletes_nothing.load(Ordering::Relaxed) {
            return Err(Stop::NotRun("I2 has failed, and its instance could not be deleted".to_owned()));
        }
        Ok(())
    }
}
