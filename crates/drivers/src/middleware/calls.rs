//! What is the same for every operation: trace, read-only refusal, limits of time and rate, retries.

use std::{fmt::Debug, future::Future, time::Duration};

use tokio::time::{Instant, sleep, timeout};
use tracing::field::display;

use super::{in_flight::InFlightHandle, outcome::Outcome, pace::Pace};
use crate::{
    contract::{Error, ErrorKind, Result},
    settings::{RATE, Secrets, TIMEOUT, Values},
};

/// The maximum number of attempts of one operation.
pub(super) const MAX_ATTEMPTS: u32 = 3;

/// The pause after the first attempt; it doubles after each further one.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest pause that a cloud may ask for. With a longer one the error is returned, which holds it.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// How many times the limit of other operations a long one may take.
const LONG: u32 = 10;

/// The limit of `close`.
const CLOSE: Duration = Duration::from_secs(10);

/// An operation on an object.
pub(super) struct Call<'a> {
    /// Its name, such as `create instance`.
    pub(super) operation: &'static str,
    /// The id or the name of the object; empty if it has none.
    pub(super) object: &'a str,
    /// What else is asked, for the trace. Its `Debug` shows no secret.
    pub(super) request: Option<&'a (dyn Debug + Sync)>,
    /// The limit of one attempt.
    pub(super) limit: Limit,
    /// Whether it can be repeated after an attempt that may have succeeded.
    pub(super) is_idempotent: bool,
}

/// The limit of one attempt.
#[derive(Clone, Copy)]
pub(super) enum Limit {
    /// That of the setting.
    Normal,
    /// Ten times that of the setting.
    Long,
    /// 10 seconds, whatever the setting is.
    Close,
}

/// Runs the operations of one driver.
pub(super) struct Calls {
    driver: String,
    trace: bool,
    limit: Option<Duration>,
    pace: Pace,
    secrets: Secrets,
    pub(super) in_flight: InFlightHandle,
}

impl Calls {
    pub(super) fn new(driver: &str, values: &Values, trace: bool, in_flight: InFlightHandle) -> Self {
        Self {
            driver: driver.to_owned(),
            trace,
            limit: values.duration(TIMEOUT).filter(|limit| !limit.is_zero()),
            pace: Pace::new(values.integer(RATE).unwrap_or_default()),
            secrets: Secrets::of(values.secrets()),
            in_flight,
        }
    }

    /// Runs an operation until it succeeds, fails for good, or has failed too often. `attempt` begins an attempt each time.
    pub(super) async fn run<T: Outcome, F: Future<Output = Result<T>>>(
        &self,
        call: Call<'_>,
        attempt: impl Fn() -> F,
    ) -> Result<T> {
        let guard = self.in_flight.begin(call.operation, call.object);
        let mut made = None;
        let mut number = 1;
        loop {
            guard.set_attempt(number);
            self.pace.turn().await;
            let mut error = match self.attempt(&call, number, attempt()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // An instance that an earlier attempt has made is still there.
            error.instance = error.instance.or(made);
            match pause(&error.kind, call.is_idempotent, number) {
                Some(pause) if number < MAX_ATTEMPTS => sleep(pause).await,
                _ => return Err(self.finished(error, number)),
            }
            made = error.instance;
            number += 1;
        }
    }

    /// Traces and limits one attempt.
    async fn attempt<T: Outcome>(
        &self,
        call: &Call<'_>,
        number: u32,
        attempt: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let Call { operation, request, limit, .. } = *call;
        let (driver, object) = (&self.driver, self.secrets.mask(call.object));
        if self.trace {
            let request = request.map(|request| display(self.secrets.mask(&format!("{request:?}"))));
            tracing::info!(driver, operation, ?object, attempt = number, request, "begin");
        }
        let begin = Instant::now();
        let limit = match limit {
            Limit::Normal => self.limit,
            Limit::Long => self.limit.map(|limit| limit * LONG),
            Limit::Close => Some(CLOSE),
        };
        let result = match limit {
            None => attempt.await,
            Some(limit) => timeout(limit, attempt).await.unwrap_or_else(|_| Err(too_late(call, limit))),
        };
        if self.trace {
            let duration = format!("{:.3}s", begin.elapsed().as_secs_f64());
            match &result {
                Ok(answer) => {
                    let result = self.secrets.mask(&answer.outcome());
                    tracing::info!(driver, operation, ?object, attempt = number, duration, result, "end");
                }
                Err(error) => {
                    let (class, reason) = (error.kind.name(), self.secrets.mask(&error.message));
                    tracing::info!(driver, operation, ?object, attempt = number, duration, class, reason, "end");
                }
            }
        }
        result
    }

    fn finished(&self, mut error: Error, attempts: u32) -> Error {
        error = self.without_secrets(error);
        if attempts > 1 {
            error.message = format!("{} ({attempts} attempts)", error.message);
        }
        error
    }

    /// Replaces secret values in an error.
    pub(super) fn without_secrets(&self, error: Error) -> Error {
        without_secrets(&self.secrets, error)
    }
}

/// Replaces secrets in an error, because clouds repeat them.
pub(super) fn without_secrets(secrets: &Secrets, mut error: Error) -> Error {
    error.message = secrets.mask(&error.message);
    if let ErrorKind::InvalidArgument(field) = &mut error.kind {
        *field = secrets.mask(field);
    }
    error
}

fn too_late(call: &Call<'_>, limit: Duration) -> Error {
    let Call { operation, object, .. } = call;
    let object = if object.is_empty() { String::new() } else { format!(" {object:?}") };
    let advice = match call.limit {
        Limit::Close => String::new(),
        Limit::Normal | Limit::Long => format!(". A higher {TIMEOUT} waits longer"),
    };
    let message = format!("{operation}{object}: no answer within {limit:?}; it may have happened all the same{advice}");
    Error::new(ErrorKind::Timeout, message)
}

/// The pause before the next attempt; `None` if another attempt cannot help or could do harm.
fn pause(kind: &ErrorKind, is_idempotent: bool, attempts: u32) -> Option<Duration> {
    let growing = PAUSE * 2_u32.pow(attempts - 1);
    match kind {
        // The cloud refused it, so it has not happened.
        ErrorKind::RateLimited(after) => Some(after.unwrap_or(growing)).filter(|pause| *pause <= MAX_PAUSE),
        kind if kind.is_transient() && is_idempotent => Some(growing),
        _ => None,
    }
}
