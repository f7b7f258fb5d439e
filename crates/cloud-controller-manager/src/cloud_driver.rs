//! The driver of the controllers (IO), which is opened when it is first asked, and opened again when its files change.
//!
//! - It answers only for the account that the cluster used first, which `account.rs` keeps. The id is kept before the first answer.
//! - Nothing can be changed in the cloud by it.
//! - While it cannot be opened, each operation fails with the reason, and an Event on the lease says it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use ccm_drivers::{
    contract::{
        Account, AccountInfo, Driver, DriverType, Error, ErrorKind, Filter, Instance, InstanceSpec, Instances, Region,
        Result, Topology, Zone,
    },
    middleware::{InFlightHandle, NOT_FIRST_ACCOUNT, Session},
    settings::{READ_ONLY, Values},
};
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};
use tracing::{info, warn};

use crate::{
    account::{AccountId, FirstAccount},
    metrics::Metrics,
    node_events::{CloudName, advice, cloud_error, is_of_another_account},
};

/// The pause after the first failure to open the driver; it doubles after each further one.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause between two attempts to open the driver.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Reads the values of the driver's settings.
pub(crate) type ReadValues = Box<dyn Fn() -> anyhow::Result<Values> + Send + Sync>;

/// Reports why the driver cannot be used: with the reason of an Event, and with what is wrong and what to do.
pub(crate) type OnFailure = Box<dyn Fn(&'static str, &str) + Send + Sync>;

/// The driver of the controllers.
pub(crate) struct CloudDriver {
    driver: &'static dyn DriverType,
    values: ReadValues,
    account: FirstAccount,
    first: AccountId,
    metrics: Metrics,
    in_flight: InFlightHandle,
    /// Whether each operation is logged.
    trace: bool,
    on_failure: OnFailure,
    problem: watch::Sender<Option<String>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    /// The last failure, and the time of the next attempt.
    failure: Option<(Error, Instant)>,
    /// How many attempts have failed in a row.
    failures: u32,
}

/// What it is made of.
pub(crate) struct Parts {
    pub(crate) driver: &'static dyn DriverType,
    pub(crate) values: ReadValues,
    pub(crate) account: FirstAccount,
    pub(crate) metrics: Metrics,
    pub(crate) in_flight: InFlightHandle,
    pub(crate) trace: bool,
    pub(crate) on_failure: OnFailure,
}

impl CloudDriver {
    /// A driver that is not opened yet, and the channel that says why it cannot be opened.
    pub(crate) fn new(parts: Parts) -> (Self, watch::Receiver<Option<String>>) {
        let Parts { driver, values, account, metrics, in_flight, trace, on_failure } = parts;
        let (problem, receiver) = watch::channel(None);
        let (first, state) = Default::default();
        (Self { driver, values, account, first, metrics, in_flight, trace, on_failure, problem, state }, receiver)
    }

    /// The id of the account that was used first, once it is known.
    pub(crate) fn first_account(&self) -> AccountId {
        self.first.clone()
    }

    /// Opens the driver unless it is open.
    pub(crate) async fn open_now(&self) -> Result<()> {
        self.session().await.map(drop)
    }

    /// Opens the driver again at the next operation, with the values and files as they are then.
    pub(crate) async fn reopen(&self) {
        let mut state = self.state.lock().await;
        state.failure = None;
        if let Some(session) = state.session.take() {
            // Its operations may still run, and end by themselves.
            let _ = session.close().await;
        }
    }

    async fn session(&self) -> Result<Arc<Session>> {
        let mut state = self.state.lock().await;
        if let Some(session) = &state.session {
            return Ok(Arc::clone(session));
        }
        if let Some((error, retry_at)) = &state.failure
            && Instant::now() < *retry_at
        {
            return Err(error.clone());
        }
        match self.open().await {
            Ok(session) => {
                let account = session.account_info();
                info!(driver = self.driver.name(), account = account.id, name = account.name, "opened the cloud");
                self.problem.send_replace(None);
                let session = Arc::new(session);
                *state = State { session: Some(Arc::clone(&session)), ..State::default() };
                Ok(session)
            }
            Err(error) => {
                self.report(&error);
                let error = self.short(error);
                let pause = PAUSE.saturating_mul(1 << state.failures.min(8)).min(LONGEST_PAUSE);
                state.failures = state.failures.saturating_add(1);
                state.failure = Some((error.clone(), Instant::now() + pause));
                Err(error)
            }
        }
    }

    /// Reports why the cloud cannot be asked, with the way out: in the log where that is new, and by an Event.
    fn report(&self, error: &Error) {
        let name = CloudName {
            cloud: self.driver.name().to_owned(),
            account: self.first_account(),
            place: self.account.place().clone(),
        };
        let (reason, advice) = advice(error, &name);
        let problem = format!("{}. {advice}", cloud_error(error));
        if self.problem.send_replace(Some(problem.clone())).as_ref() != Some(&problem) {
            warn!("failed to use the cloud {}: {problem}", self.driver.name());
        }
        (self.on_failure)(reason, &problem);
    }

    /// What an error says to each node: another account is reported once, and not on all nodes.
    fn short(&self, mut error: Error) -> Error {
        if is_of_another_account(&error) {
            let than =
                if error.message.contains(NOT_FIRST_ACCOUNT) { NOT_FIRST_ACCOUNT } else { "not that of accountID" };
            error.message = format!("{than}: {}", self.account.place().reported());
        }
        error
    }

    /// Notes what an operation of the open driver says about the account.
    fn noted<T>(&self, result: Result<T>) -> Result<T> {
        match result {
            Ok(done) => {
                self.problem.send_if_modified(|problem| problem.take().is_some());
                Ok(done)
            }
            Err(error) => {
                if is_of_another_account(&error) {
                    self.report(&error);
                }
                Err(self.short(error))
            }
        }
    }

    async fn open(&self) -> Result<Session> {
        let values = (self.values)().map_err(|error| Error::invalid("settings", format!("{error:#}")))?;
        let values = values.with(READ_ONLY, "true");
        if self.first.get().is_none()
            && let Some(kept) = self.account.read().await?
        {
            self.first.set(&kept);
        }
        let first = self.first.get();
        let open = Session::open_listed(self.driver, &values, first, self.trace, self.in_flight.clone());
        let session = self.measured("verify_credentials", open).await?;
        if first.is_some() {
            return Ok(session);
        }
        let id = &session.account_info().id;
        self.account.keep(id).await?;
        self.first.set(id);
        // When it reconnects, a driver looks only for the account that it was opened with. To verify the account after each answer would
        // not replace that: both may be of different connections.
        let _ = session.close().await;
        Box::pin(self.open()).await
    }

    /// Runs an operation, and notes it in the metrics.
    async fn measured<T>(&self, request: &'static str, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let begin = Instant::now();
        let result = operation.await;
        let has_failed = result.as_ref().is_err_and(|error| !error.is_not_found());
        self.metrics.cloud_request(request, begin.elapsed(), has_failed);
        result
    }
}

fn instances(session: &Session) -> Result<&dyn Instances> {
    session.instances().ok_or_else(|| Error::not_supported("the driver has no instances: a node needs one"))
}

fn read_only(operation: &str) -> Error {
    Error::new(ErrorKind::ReadOnly, format!("{operation}: a cloud-controller-manager changes nothing in the cloud"))
}

#[async_trait]
impl Driver for CloudDriver {
    fn account(&self) -> &dyn Account {
        self
    }

    fn topology(&self) -> &dyn Topology {
        self
    }

    fn instances(&self) -> Option<&dyn Instances> {
        Some(self)
    }
}

#[async_trait]
impl Account for CloudDriver {
    async fn verify(&self) -> Result<AccountInfo> {
        let session = self.session().await?;
        self.noted(self.measured("verify_credentials", session.account().verify()).await)
    }
}

#[async_trait]
impl Topology for CloudDriver {
    fn id_prefix(&self) -> String {
        format!("{}/", self.driver.name())
    }

    async fn regions(&self) -> Result<Vec<Region>> {
        let session = self.session().await?;
        self.noted(self.measured("list_regions", session.topology().regions()).await)
    }

    async fn zones(&self, region: Option<&str>) -> Result<Vec<Zone>> {
        let session = self.session().await?;
        self.noted(self.measured("list_zones", session.topology().zones(region)).await)
    }
}

#[async_trait]
impl Instances for CloudDriver {
    async fn list(&self, filter: &Filter) -> Result<Vec<Instance>> {
        let session = self.session().await?;
        self.noted(self.measured("list_instances", instances(&session)?.list(filter)).await)
    }

    async fn get(&self, id: &str) -> Result<Instance> {
        let session = self.session().await?;
        self.noted(self.measured("get_instance", instances(&session)?.get(id)).await)
    }

    async fn get_by_provider_id(&self, provider_id: &str) -> Result<Instance> {
        let session = self.session().await?;
        self.noted(
            self.measured("get_instance_by_provider_id", instances(&session)?.get_by_provider_id(provider_id)).await,
        )
    }

    async fn create(&self, _: &InstanceSpec) -> Result<Instance> {
        Err(read_only("create"))
    }

    async fn delete(&self, _: &str) -> Result<()> {
        Err(read_only("delete"))
    }

    async fn start(&self, _: &str) -> Result<()> {
        Err(read_only("start"))
    }

    async fn stop(&self, _: &str) -> Result<()> {
        Err(read_only("stop"))
    }
}

#[cfg(test)]
mod tests;
