//! The controllers of a process, and the one loop that drives them (IO).
//!
//! Every change wakes the loop. Each controller then has a pass: the configuration first, so that what runs with it is applied
//! once and not twice. A pass costs no request unless something is to be written.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::sync::watch;

use crate::{
    controllers::{events::Events, sync::Sync},
    process::{http::Health, lease::Authority, metrics::Metrics},
    status::cluster_operator::{CLOUD_CONFIG, TRUSTED_CA},
};
use apply_plan::ApplyPlan;
use cloud_conf::CloudConfig;
use dry_run::DryRun;
use operator::{Hands, Operator};
use trusted_ca::TrustedCa;
use view::View;

mod applier;
mod apply_plan;
mod backoff;
mod cloud_conf;
mod dry_run;
pub mod events;
mod observer;
mod operator;
mod sync;
mod trusted_ca;
pub mod view;

/// How often files are read again: not every file system reports that a kubelet swaps them.
const FILES_PERIOD: Duration = Duration::from_millis(500);

/// The longest time between two passes. A pass without changes costs no request.
const RESYNC_PERIOD: Duration = Duration::from_secs(600);

/// The shortest time between two passes that only the clock triggers.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// Waits until the leadership changes; never, without a lease.
async fn leadership_changed(authority: &mut Option<Authority>) {
    match authority {
        Some(authority) => drop(authority.leadership.changed().await),
        None => std::future::pending().await,
    }
}

/// The result of a controller's pass.
#[derive(Debug, Default)]
struct Pass {
    /// What it waits for, for people.
    waiting: Vec<String>,
    /// When its next pass is due, if nothing happens before.
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
    /// No controllers yet. `shutdown` becomes true when they have to stop; `health` shows what they wait for, `metrics` counts
    /// changes. Called in a runtime.
    pub fn new(view: View, shutdown: watch::Receiver<bool>, health: Health, metrics: Metrics) -> Self {
        let events = Events::start(view.client.clone(), metrics.clone());
        Self { view, operator: None, config_sync: None, authorities: [None, None], shutdown, health, metrics, events }
    }

    /// With the operator; `set_id` marks its objects, `images_json` is the images file. As a dry run it only logs what it would
    /// do.
    #[must_use]
    pub fn with_operator(
        mut self,
        authority: Authority,
        set_id: String,
        images_json: PathBuf,
        is_dry_run: bool,
    ) -> Self {
        self.authorities[0] = Some(authority.clone());
        let client = self.view.client.clone();
        let hands = if is_dry_run {
            Hands::DryRun(DryRun::new(client, set_id.clone()))
        } else {
            let own_namespace = &self.view.settings.own_namespace;
            Hands::Write(ApplyPlan::new(client, own_namespace, set_id.clone(), self.events.clone()))
        };
        self.operator = Some(Operator::new(authority, set_id, hands, images_json));
        self
    }

    /// With the config-sync controllers; `system_bundle` is the file of certificates that the system trusts.
    #[must_use]
    pub fn with_config_sync(mut self, authority: &Authority, system_bundle: PathBuf) -> Self {
        self.authorities[1] = Some(authority.clone());
        let (client, events) = (self.view.client.clone(), self.events.clone());
        let sync = |controller| Sync::new(controller, authority.clone(), client.clone(), events.clone());
        let cloud_config = CloudConfig::new(sync(&CLOUD_CONFIG));
        let trusted_ca = TrustedCa::new(sync(&TRUSTED_CA), system_bundle, events.clone(), self.metrics.clone());
        self.config_sync = Some((cloud_config, trusted_ca));
        self
    }

    /// Runs until `shutdown`; a pass that has begun to write ends first.
    pub async fn run(mut self) {
        let mut files = tokio::time::interval(FILES_PERIOD);
        files.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.read_files();
        loop {
            let wake = self.pass().await;
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
        let images = self.operator.as_ref().is_some_and(|operator| operator.read_images(&mut self.view));
        let system_bundle = self.config_sync.as_mut().is_some_and(|(_, trusted_ca)| trusted_ca.read_system_bundle());
        images || system_bundle
    }

    /// A pass of each controller. Returns when the next one is due, if nothing happens before.
    async fn pass(&mut self) -> Instant {
        let started = Instant::now();
        let mut passes = Vec::new();
        self.view.refresh();
        if let Some((cloud_config, trusted_ca)) = &mut self.config_sync {
            passes.push(cloud_config.pass(&mut self.view).await);
            self.view.refresh();
            passes.push(trusted_ca.pass(&mut self.view).await);
            self.view.refresh();
        }
        if let Some(operator) = &mut self.operator {
            passes.push(operator.pass(&mut self.view).await);
        }
        let mut waiting: Vec<_> = passes.iter().flat_map(|pass| pass.waiting.iter().cloned()).collect();
        waiting.sort();
        waiting.dedup();
        self.health.set(waiting);
        next_pass(passes.into_iter().flat_map(|pass| pass.due), started)
    }
}

/// When the pass after one that began then is due, if nothing happens before.
fn next_pass(due: impl IntoIterator<Item = Instant>, started: Instant) -> Instant {
    // Deadlines up to the start of this pass count as handled, even if the pass could not act on them.
    let due = due.into_iter().filter(|due| *due > started);
    let now = Instant::now();
    due.fold(now + RESYNC_PERIOD, Instant::min).max(now + SHORTEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handled_deadlines_do_not_count_and_new_ones_get_a_pass_soon() {
        let started = Instant::now();
        let pause = |due: &[Instant]| next_pass(due.iter().copied(), started).saturating_duration_since(started);
        assert!(pause(&[]) >= RESYNC_PERIOD);
        assert!(pause(&[started]) >= RESYNC_PERIOD, "again and again without a pause");
        let soon = pause(&[started, started + Duration::from_nanos(1)]);
        assert!(soon >= SHORTEST_PAUSE && soon < RESYNC_PERIOD, "{soon:?}");
    }
}
