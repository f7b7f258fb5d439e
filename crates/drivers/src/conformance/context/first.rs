//! The first instance of a run. If it cannot be made, no check tries it again: one reason is enough.

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

    /// Ends a check that has to make an instance, if none can be made.
    pub(in super::super) fn demand_first(&self) -> Verdict {
        if self.makes_nothing.load(Ordering::Relaxed) {
            return Err(Stop::NotRun("I1 has failed, so no instance can be made".to_owned()));
        }
        Ok(())
    }
}
