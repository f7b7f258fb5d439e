//! The health of the process, and the endpoint that shows it.
//!
//! `/healthz` succeeds while the main loop runs, because a restart does not help against an unreachable API server. `/readyz`
//! succeeds while the process does its work, even if that work fails: the statuses report failures. Both print the problems.

use std::time::{Duration, Instant};

use axum::{Router, extract, http::StatusCode, routing::get};
use tokio::sync::watch;

/// The state of the process. Clones share it.
#[derive(Clone, Debug)]
pub struct Health(watch::Sender<State>);

#[derive(Debug)]
struct State {
    /// The conditions that the process waits for; empty while it does its work.
    pending: Vec<String>,
    /// The errors that the process retries while it does its work.
    remarks: Vec<String>,
    /// The time of the last pass of the loop.
    turned: Instant,
}

/// The maximum time between two passes. A pass happens at least every ten minutes, and may take minutes while requests are not
/// answered.
const LONGEST_TURN: Duration = Duration::from_secs(1800);

impl Health {
    /// The health of a process before its first pass.
    pub fn starting() -> Self {
        let (pending, turned) = (vec!["starting".to_owned()], Instant::now());
        Self(watch::Sender::new(State { pending, remarks: Vec::new(), turned }))
    }

    /// Notes a pass of the loop, with the conditions that the process waits for and the errors that it retries.
    pub fn set(&self, pending: Vec<String>, remarks: Vec<String>) {
        self.0.send_replace(State { pending, remarks, turned: Instant::now() });
    }

    /// Describes the state of the process, in lines for people.
    pub fn describe(&self) -> String {
        let now = Instant::now();
        let turned = now.saturating_duration_since(self.0.borrow().turned).as_secs();
        format!("{}the controllers last passed {turned} s ago\n", self.ready(now).1)
    }

    /// The response of `/healthz`: whether the loop runs, with its state.
    fn alive(&self, now: Instant) -> (StatusCode, String) {
        let since = now.saturating_duration_since(self.0.borrow().turned);
        if since > LONGEST_TURN {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the controllers have stood still for {} s\n", since.as_secs()),
            );
        }
        (StatusCode::OK, self.ready(now).1)
    }

    /// The response of `/readyz`: whether the process does its work, successfully or not.
    fn ready(&self, now: Instant) -> (StatusCode, String) {
        let state = self.0.borrow();
        let is_ready = state.pending.is_empty() && now.saturating_duration_since(state.turned) <= LONGEST_TURN;
        let line = |title: &'static str| move |text: &String| format!("{title}: {text}\n");
        let lines = state.pending.iter().map(line("waiting")).chain(state.remarks.iter().map(line("retrying")));
        let lines: Vec<_> = lines.collect();
        let text = if lines.is_empty() { "ok\n".to_owned() } else { lines.concat() };
        (if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
    }
}

/// The paths of the endpoint.
pub fn routes(health: Health) -> Router {
    let route = |answer: fn(&Health, Instant) -> (StatusCode, String)| {
        get(move |extract::State(health): extract::State<Health>| async move { answer(&health, Instant::now()) })
    };
    Router::new().route("/healthz", route(Health::alive)).route("/readyz", route(Health::ready)).with_state(health)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_is_about_the_process_and_health_about_its_loop() {
        let (health, now) = (Health::starting(), Instant::now());
        assert_eq!(health.ready(now), (StatusCode::SERVICE_UNAVAILABLE, "waiting: starting\n".into()));
        assert_eq!(health.alive(now).0, StatusCode::OK);
        health.set(Vec::new(), vec!["failed to apply x".into()]);
        assert_eq!(health.ready(Instant::now()), (StatusCode::OK, "retrying: failed to apply x\n".into()));
        let later = Instant::now() + LONGEST_TURN + Duration::from_secs(1);
        assert_eq!([health.ready(later).0, health.alive(later).0], [StatusCode::SERVICE_UNAVAILABLE; 2]);
    }
}
