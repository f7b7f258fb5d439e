//! What the checks have in common: drivers whose operations have a limit, the instances of the run, and the problems that were
//! seen.

use std::{
    any::Any,
    collections::BTreeSet,
    panic::AssertUnwindSafe,
    sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Instant,
};

use futures::FutureExt;

use super::{Outcome, PAUSE, Plan, RUN_LABEL, instance_keys, instance_names, limit_of_change, may_be_of, proxy::Proxy};
use crate::{
    contract::{Endpoint, Error, ErrorKind, Filter, Instance, InstanceSpec, Result, State},
    error::brief,
    settings::{Secrets, Values},
};

mod client;
mod first;
mod sweep;
mod words;

pub(super) use client::{Client, Operation};
pub(super) use words::{count, filter_words, mark_words, name_of, seen, shown};

/// Why a check ends before its last step.
pub(super) enum Stop {
    /// A precondition does not hold.
    NotRun(String),
    /// The driver does not do what the check asks for.
    Failed(String),
}

/// The end of a check. Problems that did not end it are in the context.
pub(super) type Verdict = std::result::Result<(), Stop>;

/// The state of a run.
pub(super) struct Context<'a> {
    pub(super) plan: &'a Plan<'a>,
    problems: Mutex<Vec<String>>,
    /// The ids that were made and were not seen to go.
    made: Mutex<BTreeSet<String>>,
    /// Why the list could not be read, if a create was asked for since it was read.
    unlisted: Mutex<Option<String>>,
    /// Whether the first check has shown that no instance can be made.
    makes_nothing: AtomicBool,
    /// Whether the second check has shown that instances cannot be deleted.
    deletes_nothing: AtomicBool,
    /// The ids whose deletion was answered with success.
    deleted: Mutex<BTreeSet<String>>,
    /// What no result may have: clouds repeat it.
    secrets: Secrets,
}

/// Does some work with a driver. Fails with the words of the panic if it panics.
pub(super) async fn caught<T>(work: impl Future<Output = T>) -> std::result::Result<T, String> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.map_err(|panic| format!("the driver panicked: {}", words_of(&*panic)))
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    brief(text.unwrap_or("no words")).into_owned()
}

/// The filter for the instance of a key.
pub(super) fn owned_by(spec: &InstanceSpec) -> Filter {
    Filter { owner: Some(spec.key.clone()), ..Filter::default() }
}

/// The end of a check that needs the endpoint of a driver. Only a driver that cannot have one passes without it.
fn not_answered(what: &str, error: &Error) -> Stop {
    match error.kind {
        ErrorKind::NotSupported => Stop::NotRun(format!("{what}: {}", shown(error))),
        _ => Stop::Failed(format!("{what}: expected an answer or NotSupported, seen {}", shown(error))),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Context<'a> {
    pub(super) fn new(plan: &'a Plan<'a>) -> Self {
        let Plan { values, wrong_credentials, template, .. } = plan;
        let all = [*values, &template.options].into_iter().chain(wrong_credentials);
        let secrets = Secrets::of(all.flat_map(Values::secrets));
        Self {
            plan,
            problems: Mutex::default(),
            made: Mutex::default(),
            unlisted: Mutex::default(),
            makes_nothing: AtomicBool::default(),
            deletes_nothing: AtomicBool::default(),
            deleted: Mutex::default(),
            secrets,
        }
    }

    /// Replaces secrets in the texts of an outcome.
    pub(super) fn masked(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Passed => Outcome::Passed,
            Outcome::Failed(problems) => {
                Outcome::Failed(problems.iter().map(|problem| self.secrets.mask(problem)).collect())
            }
            Outcome::NotRun(reason) => Outcome::NotRun(self.secrets.mask(&reason)),
        }
    }

    /// Why no check can be run: the driver does not open, or the account cannot be verified.
    pub(super) async fn unusable(&self) -> Option<String> {
        let verified = caught(async { self.open(self.plan.values).await?.verify().await }).await;
        self.take_problems();
        let reason = match verified {
            Ok(Ok(_)) => return None,
            Ok(Err(error)) => shown(&error),
            Err(panic) => panic,
        };
        Some(format!("the account could not be verified: {reason}"))
    }

    /// Notes a problem unless the condition holds.
    pub(super) fn demand(&self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problem(problem());
        }
    }

    /// Notes a problem.
    pub(super) fn problem(&self, problem: String) {
        locked(&self.problems).push(problem);
    }

    /// Returns the problems that were noted, and forgets them.
    pub(super) fn take_problems(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.problems))
    }

    /// Opens a driver with some values.
    pub(super) async fn open(&self, values: &Values) -> Result<Client<'_>> {
        let opened = self.within("open", 1, self.plan.driver.open(values)).await?;
        Ok(Client::new(opened, self))
    }

    /// Opens a driver as the user wants it.
    pub(super) async fn direct(&self) -> std::result::Result<Client<'_>, Stop> {
        let opened = self.open(self.plan.values).await;
        opened.map_err(|error| Stop::NotRun(format!("open: {}", shown(&error))))
    }

    /// What one of the instances of the run is made of. The first number is 1.
    pub(super) fn spec(&self, number: usize) -> InstanceSpec {
        let Plan { run, template, .. } = self.plan;
        let (names, keys) = (instance_names(run), instance_keys(run));
        let mut spec =
            InstanceSpec { name: names[number - 1].clone(), key: keys[number - 1].clone(), ..template.clone() };
        spec.labels.insert(RUN_LABEL.to_owned(), run.clone());
        spec
    }

    /// Makes an instance, for a check of something else.
    pub(super) async fn make(&self, client: &Client<'_>, spec: &InstanceSpec) -> std::result::Result<Instance, Stop> {
        if !client.has_instances() {
            return Err(Stop::NotRun("the driver has no instances".to_owned()));
        }
        self.demand_first()?;
        let made = client.create(spec).await;
        let made = made.map_err(|error| Stop::NotRun(format!("create: {}", shown(&error))))?;
        self.is_own(made, spec)
    }

    /// Reads an instance until it has left a state.
    pub(super) async fn settled(&self, client: &Client<'_>, id: &str, leaves: State) -> Result<Instance> {
        let limit = limit_of_change(self.plan.limit);
        let begin = Instant::now();
        loop {
            let read = client.get(id).await;
            if !matches!(&read, Ok(one) if one.state == leaves) || begin.elapsed() > limit {
                return read;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until an instance of the run runs, for a check of something else.
    pub(super) async fn runs(&self, client: &Client<'_>, own: &Instance) -> Verdict {
        match self.settled(client, &own.id, State::Pending).await {
            Ok(one) if one.state == State::Running => Ok(()),
            Ok(one) => Err(Stop::NotRun(format!(
                "the instance is {} after create: give --image and --option with which it runs",
                one.state.word()
            ))),
            Err(error) => Err(Stop::NotRun(format!("get: {}", shown(&error)))),
        }
    }

    /// Deletes an instance of the run, for a check of something else.
    pub(super) async fn remove(&self, client: &Client<'_>, own: &Instance) -> Verdict {
        client.delete(&own.id).await.map_err(|error| Stop::NotRun(format!("delete: {}", shown(&error))))
    }

    /// Lists the instances of the run with a key.
    pub(super) async fn own(
        &self,
        client: &Client<'_>,
        spec: &InstanceSpec,
    ) -> std::result::Result<Vec<Instance>, Stop> {
        let mut all =
            client.list(&owned_by(spec)).await.map_err(|error| Stop::NotRun(format!("list: {}", shown(&error))))?;
        // A driver that knows no filter returns others, too.
        all.retain(|one| one.marks.owner.as_ref() == Some(&spec.key) && one.name == spec.name);
        Ok(all)
    }

    /// Returns an instance that `create` has returned, unless it is not the one that was asked for: no check may touch that.
    pub(super) fn is_own(&self, made: Instance, spec: &InstanceSpec) -> std::result::Result<Instance, Stop> {
        if made.marks.owner.as_ref() == Some(&spec.key) && made.name == spec.name {
            return Ok(made);
        }
        if !may_be_of(&made, &self.plan.run) {
            locked(&self.made).remove(&made.id);
        }
        Err(Stop::Failed(format!(
            "create: expected the instance {:?} with the owner {:?}, seen {:?}, which has the name {:?} and {}",
            spec.name,
            spec.key,
            brief(&made.id),
            brief(&made.name),
            mark_words(&made.marks)
        )))
    }

    /// Returns the ids that a check can use: that of an instance of the run or, if the run only reads or none can be made, those of
    /// any instance to read and of none to delete.
    pub(super) async fn subject(&self, client: &Client<'_>) -> Subject {
        if !self.plan.read_only
            && let Ok(own) = self.make(client, &self.spec(1)).await
        {
            return Subject { read: own.id.clone(), delete: own.id, exists: true, own: true };
        }
        let nothing = format!("ccm-verify-{}-nothing", self.plan.run);
        let any = client.list(&Filter::default()).await.ok().and_then(|all| all.into_iter().next());
        let exists = any.is_some();
        Subject { read: any.map_or_else(|| nothing.clone(), |any| any.id), delete: nothing, exists, own: false }
    }

    /// Starts a proxy at the driver's endpoint, through which the driver works.
    pub(super) async fn proxied(&self) -> std::result::Result<Proxied, Stop> {
        let Plan { driver, values, .. } = self.plan;
        let endpoint = match self.within("endpoint", 1, driver.endpoint(values)).await {
            Ok(Some(endpoint)) => endpoint,
            Ok(None) => {
                return Err(Stop::NotRun("with these settings the driver has no endpoint, or several".to_owned()));
            }
            Err(error) => return Err(not_answered("endpoint", &error)),
        };
        let proxy = Proxy::start(&endpoint)
            .await
            .map_err(|error| Stop::NotRun(format!("the proxy at the driver's endpoint: {error}")))?;
        let values = self.through(values, proxy.endpoint()).await?;
        let verified = async { self.open(&values).await?.verify().await }.await;
        if verified.is_err() {
            let seen = seen(&verified);
            return Err(Stop::NotRun(format!("verify through a proxy at the driver's endpoint: {seen}")));
        }
        if !proxy.was_used() {
            let reason = "the driver has an endpoint setting, and does not connect to another place that it is given";
            return Err(Stop::NotRun(reason.to_owned()));
        }
        Ok(Proxied { proxy, values, endpoint })
    }

    /// Returns the values with which the driver connects to another place.
    pub(super) async fn through(&self, values: &Values, endpoint: &Endpoint) -> std::result::Result<Values, Stop> {
        let moved = self.within("through", 1, self.plan.driver.through(values, endpoint)).await;
        moved.map_err(|error| not_answered("settings for a proxy at the driver's endpoint", &error))
    }
}

/// The ids that a check uses.
pub(super) struct Subject {
    /// An id to read.
    pub(super) read: String,
    /// An id to change: of an instance of the run, or of none.
    pub(super) delete: String,
    /// Whether there is an instance with the id to read.
    pub(super) exists: bool,
    /// Whether the instance is one of the run.
    pub(super) own: bool,
}

/// A proxy in front of the cloud.
pub(super) struct Proxied {
    pub(super) proxy: Proxy,
    /// The values with which the driver connects to the proxy.
    pub(super) values: Values,
    /// The place of the cloud.
    pub(super) endpoint: Endpoint,
}
