//! The controllers of a process, and the one loop that drives them (IO).
//!
//! Everything that changes wakes the loop. Each controller then takes its turn: the configuration first, so that what runs
//! with it is applied once and not twice. A turn costs no request unless something is to be written.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::process::lease::Authority;
use crate::{
    controllers::events::Events,
    process::{http::Health, metrics::Metrics},
};
use apply_plan::Applying;
use cloud_conf::CloudConfig;
use operator::Operator;
use trusted_ca::TrustedCa;
use view::View;

mod apply_plan;
mod backoff;
mod cloud_conf;
pub mod dry_run;
pub mod events;
mod images_file;
mod observer;
mod operator;
mod sync;
mod trusted_ca;
pub mod view;

/// How often files are looked at again: kubelets swap them without a sign that every file system gives.
const FILES_PERIOD: Duration = Duration::from_millis(500);

/// How long without a trigger before everything is looked at again. It costs no request.
const RESYNC_PERIOD: Duration = Duration::from_secs(600);

/// The shortest time between two passes that nothing but the clock has asked for.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// Waits until whoever leads has changed; for ever where there is nothing to lead.
async fn leadership_changed(authority: &mut Option<Authority>) {
    match authority {
        Some(authority) => drop(authority.leadership.changed().await),
        None => std::future::pending().await,
    }
}

/// What a controller's turn came to.
#[derive(Debug, Default)]
struct Round {
    /// What it waits for.
    waiting: Vec<String>,
    /// When it wants another turn, if nothing happens before.
    due: Vec<Instant>,
}

/// The controllers of a process.
pub struct Controllers {
    view: View,
    operator: Option<Operator>,
    config_sync: Option<(CloudConfig, TrustedCa)>,
    authorities: [Option<Authority>; 2],
    shutdown: watch::Receiver<bool>,
    health: Health,
    metrics: Metrics,
    events: Events,
}

impl Controllers {
    /// No controllers yet. `shutdown` becomes true when they are to stop; `health` is told what is waited for, and
    /// `metrics` what is done. Called in a runtime.
    pub fn new(view: View, shutdown: watch::Receiver<bool>, health: Health, metrics: Metrics) -> Self {
        let events = Events::start(view.client.clone(), metrics.clone());
        Self { view, operator: None, config_sync: None, authorities: [None, None], shutdown, health, metrics, events }
    }

    /// With the operator; `set_id` marks its objects, `images_json` is the images file.
    #[must_use]
    pub fn with_operator(mut self, authority: Authority, set_id: String, images_json: PathBuf) -> Self {
        self.authorities[0] = Some(authority.clone());
        let (client, own_namespace) = (self.view.client.clone(), &self.view.settings.own_namespace);
        let applying = Applying::new(client, own_namespace, set_id, self.events.clone());
        self.operator = Some(Operator::new(authority, applying, images_json));
        self
    }

    /// With the config-sync controllers; `system_bundle` is the file of certificates that the system trusts.
    #[must_use]
    pub fn with_config_sync(mut self, authority: Authority, system_bundle: PathBuf) -> Self {
        self.authorities[1] = Some(authority.clone());
        let (events, metrics) = (self.events.clone(), self.metrics.clone());
        let trusted_ca = TrustedCa::new(authority.clone(), system_bundle, events.clone(), metrics);
        self.config_sync = Some((CloudConfig::new(authority, events), trusted_ca));
        self
    }

    /// Runs until told to stop; a turn that has begun to write ends first.
    pub async fn run(mut self) {
        let mut files = tokio::time::interval(FILES_PERIOD);
        files.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.read_files();
        loop {
            let wake = self.turn().await;
            loop {
                let [operator, config_sync] = &mut self.authorities;
                let has_ticked = tokio::select! {
                    () = self.view.observer.changed() => false,
                    _ = files.tick() => true,
                    () = leadership_changed(operator) => false,
                    () = leadership_changed(config_sync) => false,
                    () = tokio::time::sleep_until(wake.into()) => false,
                    _ = self.shutdown.wait_for(|stop| *stop) => return,
                };
                if !has_ticked || self.read_files() {
                    break;
                }
            }
        }
    }

    fn read_files(&mut self) -> bool {
        let images = self.operator.as_mut().is_some_and(Operator::read_images);
        let system_bundle = self.config_sync.as_mut().is_some_and(|(_, trusted_ca)| trusted_ca.read_system_bundle());
        images || system_bundle
    }

    /// A turn for each. Answers when the next one is due, if nothing happens before.
    async fn turn(&mut self) -> Instant {
        let started = Instant::now();
        let mut rounds = Vec::new();
        self.view.refresh();
        if let Some((cloud_config, trusted_ca)) = &mut self.config_sync {
            rounds.push(cloud_config.pass(&mut self.view).await);
            self.view.refresh();
            rounds.push(trusted_ca.pass(&mut self.view).await);
            self.view.refresh();
        }
        if let Some(operator) = &mut self.operator {
            rounds.push(operator.pass(&mut self.view).await);
        }
        let mut waiting: Vec<_> = rounds.iter().flat_map(|round| round.waiting.iter().cloned()).collect();
        waiting.sort();
        waiting.dedup();
        self.health.set(waiting);
        next_turn(rounds.into_iter().flat_map(|round| round.due), started)
    }
}

/// When the turn after one that began then is due, if nothing happens before.
fn next_turn(due: impl IntoIterator<Item = Instant>, started: Instant) -> Instant {
    // What was due when the turn began has had it, also where the turn could do nothing with it.
    let due = due.into_iter().filter(|due| *due > started);
    let now = Instant::now();
    due.fold(now + RESYNC_PERIOD, Instant::min).max(now + SHORTEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_due_has_had_its_turn_and_what_became_due_gets_one_soon() {
        let started = Instant::now();
        let pause = |due: &[Instant]| next_turn(due.iter().copied(), started).saturating_duration_since(started);
        assert!(pause(&[]) >= RESYNC_PERIOD);
        assert!(pause(&[started]) >= RESYNC_PERIOD, "again and again without a pause");
        let soon = pause(&[started, started + Duration::from_nanos(1)]);
        assert!(soon >= SHORTEST_PAUSE && soon < RESYNC_PERIOD, "{soon:?}");
    }
}
