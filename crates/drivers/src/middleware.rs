//! The layer around each driver: trace, read-only refusal, limits of time and rate, retries, and the check that the account is
//! the right one.
//!
//! - Credentials are verified before anything else. A session is of one account from its beginning to its end.
//! - What is not allowed is refused before the driver hears of it, and so is what no driver can make.
//! - An instance without an owner is not changed. It is read before each change.
//! - A `create` that fails says which instance it has made, also where the driver was not heard to its end.
//! - Only transient errors are retried. A command inside of an instance is only retried if the cloud refused it for its rate.
//! - No secret and no user data is in the trace.

use async_trait::async_trait;

use crate::{
    contract::{
        Account, AccountInfo, Capability, Driver, DriverType, Instances, Inventory, Metrics, Mode, Result, RunCommand,
        Topology,
    },
    settings::{ACCOUNT_ID, READ_ONLY, Values},
};

mod calls;
mod in_flight;
mod layer;
mod outcome;
mod pace;

pub use in_flight::{InFlight, InFlightHandle};

use calls::Calls;
use layer::{Expected, Layer};

/// The beginning of each error about credentials of another account than the one that was seen first. It says nothing about what to do:
/// that depends on where the caller keeps the id.
pub const NOT_FIRST_ACCOUNT: &str = "not the account of the first use";

/// A driver whose credentials are verified. It is itself a driver: each operation of its capabilities goes through the layer.
pub struct Session {
    layer: Layer,
    account: AccountInfo,
}

impl Session {
    /// Opens a driver and verifies its credentials. `first_seen` is the account id that a controller saw first; `trace` logs the
    /// start and the end of each operation; `in_flight` lists the operations, the verification included.
    ///
    /// Fails with [`crate::contract::ErrorKind::InvalidCredentials`] if the account is not the one of the setting `accountID`, or not the one that
    /// was seen first.
    pub async fn open_listed(
        driver: &dyn DriverType,
        values: &Values,
        first_seen: Option<&str>,
        trace: bool,
        in_flight: InFlightHandle,
    ) -> Result<Self> {
        let calls = Calls::new(driver.name(), values, trace, in_flight);
        let set = values.text(ACCOUNT_ID).map(str::to_owned);
        // The driver looks at the account again whenever it reconnects, but only if the setting has a value.
        let pinned = match (&set, first_seen) {
            (None, Some(seen)) => &values.clone().with(ACCOUNT_ID, seen),
            _ => values,
        };
        if trace {
            tracing::info!(driver = driver.name(), settings = ?pinned, "open");
        }
        let is_pinned = set.is_none() && first_seen.is_some();
        let account = Expected { set, seen: first_seen.map(str::to_owned), is_pinned };
        let opened = driver.open(pinned).await;
        let inner = opened.map_err(|error| account.explain(calls.without_secrets(error)))?;
        let mut layer = Layer { inner, calls, read_only: values.is(READ_ONLY), account };
        let account = match layer.verify().await {
            Ok(account) => account,
            Err(error) => {
                // Its own error would hide the one that counts.
                let _ = layer.close().await;
                return Err(error);
            }
        };
        layer.account.seen = Some(account.id.clone());
        Ok(Self { layer, account })
    }

    /// The account of the credentials, as it was when the session was opened.
    pub fn account_info(&self) -> &AccountInfo {
        &self.account
    }
}

#[async_trait]
impl Driver for Session {
    fn account(&self) -> &dyn Account {
        &self.layer
    }

    fn topology(&self) -> &dyn Topology {
        &self.layer
    }

    fn instances(&self) -> Option<&dyn Instances> {
        self.layer.inner.instances().map(|_| &self.layer as &dyn Instances)
    }

    fn inventory(&self) -> Option<&dyn Inventory> {
        self.layer.inner.inventory().map(|_| &self.layer as &dyn Inventory)
    }

    fn metrics(&self) -> Option<&dyn Metrics> {
        self.layer.inner.metrics().map(|_| &self.layer as &dyn Metrics)
    }

    fn run_command(&self) -> Option<&dyn RunCommand> {
        self.layer.inner.run_command().map(|_| &self.layer as &dyn RunCommand)
    }

    fn mode(&self, capability: Capability) -> Mode {
        let mode = self.layer.inner.mode(capability);
        Mode { read_only: mode.read_only || self.layer.read_only, ..mode }
    }

    async fn close(&self) -> Result<()> {
        self.layer.close().await
    }
}

#[cfg(test)]
mod tests;
