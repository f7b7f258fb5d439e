//! The controllers of a process, and the one loop that drives them (IO).
//!
//! Every change wakes the loop. Each controller then has a pass. The configuration comes first, so that the workloads that read it are
//! applied once and not twice. A pass sends no request unless something has to be written.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use futures::{StreamExt, future::OptionFuture, stream::FuturesUnordered};
use k8s_openapi::jiff::{Timestamp, Unit};
use tokio::sync::{Notify, watch};
use tracing::info;

use crate::{
    grace::TRANSIENT_ERROR_GRACE,
    process::{
        changes::Changes,
        health::Health,
        leadership::{Authority, Leadership},
    },
    status::ccm::{self, CONDITIONS, STATUSES},
};
use config_sync::ConfigSync;
use observer::{ClusterType, Id};
use operator::Operator;
use view::View;
use waiting::Waiting;

mod applier;
mod apply_plan;
mod background;
mod backoff;
mod ccms;
mod config_sync;
mod diagnoser;
mod engine;
mod events;
mod executor;
mod failures;
mod log_line;
pub mod metrics;
mod observer;
mod openshift;
mod operator;
mod progress;
mod status_writer;
mod sync;
mod target;
mod trusted_ca;
pub mod view;
mod waiting;

const RESYNC_PERIOD: Duration = Duration::from_secs(600);

/// The shortest time between two passes that only the clock triggers.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

/// The time limit of a pass that is in progress when the process has to stop. It is shorter than the timeout of a request, so that a
/// hanging request does not keep permissions alive.
pub const LAST_PASS: Duration = Duration::from_secs(10);

/// The time limit after that for withdrawing the permissions to delete nodes. The log names the remaining permissions. Together with the
/// release of the lease, this must fit into the 30 s that Kubernetes gives a pod to terminate.
pub const WITHDRAWAL: Duration = Duration::from_secs(10);

/// The result of one pass of a controller.
#[derive(Debug, Default)]
struct Pass {
    /// The conditions that the controller waits for before it does its work, for people.
    waiting: Vec<String>,
    /// The errors that the controller retries, for people.
    retrying: Vec<String>,
    /// The times of the next passes, even without a change.
    due: Vec<Instant>,
    /// The error of the watches that everything depends on, once its grace period has passed.
    watch_problem: Option<String>,
    /// The number of objects that are repaired less often.
    contested: usize,
    /// The controller's name in metrics, if all is well.
    succeeded: Option<&'static str>,
    /// The numbers of workloads by the state of their rollout, in the order of [`ROLLOUTS`].
    workloads: [usize; 3],
}

/// The controllers of a process.
pub struct Controllers {
    view: View,
    operator: Option<Operator>,
    config_sync: Option<ConfigSync>,
    images_json: Option<PathBuf>,
    /// The leadership of each group of controllers, by its name in metrics.
    leaderships: Vec<(&'static str, watch::Receiver<Leadership>)>,
    /// The number of groups that were leading in the last pass.
    leading: usize,
    rewound: Arc<Notify>,
    shutdown: watch::Receiver<bool>,
    health: Health,
    waiting: Waiting,
}

impl Controllers {
    /// Creates an empty set of controllers. `shutdown` becomes true when they have to stop. Must be called in a runtime.
    pub fn new(view: View, shutdown: watch::Receiver<bool>, health: Health) -> Self {
        Self {
            view,
            operator: None,
            config_sync: None,
            images_json: None,
            leaderships: Vec::new(),
            leading: 0,
            rewound: Arc::default(),
            shutdown,
            health,
            waiting: Waiting::default(),
        }
    }

    /// The notification that resource versions have gone back, after which all watches restart.
    pub fn rewound(&self) -> Arc<Notify> {
        Arc::clone(&self.rewound)
    }

    /// Adds the operator; `images_json` is the images file. A dry run only logs what it would do.
    #[must_use]
    pub fn with_operator(mut self, authority: Authority, images_json: PathBuf, is_dry_run: bool) -> Self {
        self.leaderships.push(("operator", authority.leadership.clone()));
        self.images_json = Some(images_json);
        self.operator = Some(Operator::new(authority, is_dry_run));
        self
    }

    /// Adds the config-sync controllers; `system_bundle` is the file with the certificates that the system trusts.
    #[must_use]
    pub fn with_config_sync(mut self, authority: Authority, system_bundle: PathBuf) -> Self {
        self.leaderships.push(("config_sync", authority.leadership.clone()));
        self.config_sync = Some(ConfigSync::new(authority, system_bundle, &self.view.target));
        self
    }

    /// Runs until `shutdown`. A pass that has begun is finished.
    pub async fn run(mut self) {
        let system_bundle = self.config_sync.as_ref().map(ConfigSync::system_bundle);
        let files = self.images_json.as_deref().into_iter().chain(system_bundle).map(Path::to_owned);
        let mut files = Changes::of(files.chain(self.view.provider_paths()).collect());
        self.read_files();
        let mut shutdown = self.shutdown.clone();
        loop {
            let wake = tokio::select! {
                wake = self.pass() => wake,
                () = end_of_last_pass(&mut shutdown) => return self.withdraw().await,
            };
            loop {
                let mut leaderships: FuturesUnordered<_> =
                    self.leaderships.iter_mut().map(|(_, leadership)| leadership.changed()).collect();
                let is_about_files = tokio::select! {
                    () = self.view.target.observer.changed() => Some(false),
                    () = files.next() => Some(true),
                    Some(_) = leaderships.next() => Some(false),
                    () = self.view.target.diagnoser.diagnoses.answered() => Some(false),
                    Some(Some(())) = OptionFuture::from(self.operator.as_mut().map(Operator::answered)) => Some(false),
                    () = self.rewound.notified() => {
                        self.view.target.observer.watches.restart();
                        Some(false)
                    }
                    () = tokio::time::sleep_until(wake.into()) => Some(false),
                    _ = self.shutdown.wait_for(|stop| *stop) => None,
                };
                drop(leaderships);
                let Some(is_about_files) = is_about_files else { return self.withdraw().await };
                if !is_about_files || self.read_files() {
                    break;
                }
            }
        }
    }

    /// Withdraws the permissions to delete nodes, which must not remain while no operator runs.
    async fn withdraw(&mut self) {
        if let Some(ccms) = self.operator.as_mut().and_then(Operator::ccms) {
            let withdrawn = tokio::time::timeout(WITHDRAWAL, ccms.withdraw(&mut self.view)).await;
            if withdrawn.is_err() {
                ccms.warn_of_permissions(&self.view);
            }
        }
    }

    /// Reads the files; returns whether one has changed.
    fn read_files(&mut self) -> bool {
        let images = self.images_json.as_ref().is_some_and(|path| self.view.read_images(path));
        let system_bundle = self.config_sync.as_mut().is_some_and(ConfigSync::read_system_bundle);
        let providers = self.view.retry_providers();
        images || system_bundle || providers
    }

    /// Updates the metrics after a pass of each controller.
    fn measure(&self, passes: &[Pass], started: Instant) {
        let metrics = &self.view.target.metrics;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        for controller in passes.iter().filter_map(|pass| pass.succeeded) {
            metrics.success.of([controller]).set(now);
        }
        for (controllers, leadership) in &self.leaderships {
            metrics.leading.of([controllers]).set(leadership.borrow().is_leading().into());
        }
        metrics.contested.set(passes.iter().map(|pass| pass.contested as u64).sum());
        for (index, state) in ROLLOUTS.into_iter().enumerate() {
            metrics.workloads.of([state]).set(passes.iter().map(|pass| pass.workloads[index] as u64).sum());
        }
        for (condition, current) in self.view.last_status.states() {
            for status in STATUSES {
                metrics.conditions.of([condition, status]).set((status == current).into());
            }
        }
        if let Some(seen) = self.view.target.observer.watches.seen(&Id::Ccms) {
            for condition in CONDITIONS {
                for status in STATUSES {
                    let number = seen.objects().filter(|live| ccm::has(live, condition, status)).count();
                    metrics.ccms.of([condition, status]).set(number as u64);
                }
            }
            metrics.broken.set(seen.objects().filter(|live| ccm::is_broken(live)).count() as u64);
        }
        self.view.target.measure();
        metrics.passes.inc();
        metrics.pass_duration.observe(started.elapsed().as_secs_f64());
    }

    /// Runs a pass of each controller. Returns the time of the next one, even without a change.
    async fn pass(&mut self) -> Instant {
        let started = Instant::now();
        let mut passes = Vec::new();
        let leading = self.leaderships.iter().filter(|(_, leadership)| leadership.borrow().is_leading()).count();
        if leading > self.leading {
            // The API server has just answered, so the grace periods of earlier errors start again.
            self.view.target.observer.watches.have_answered();
        }
        self.leading = leading;
        match self.view.observe_cluster_type() {
            ClusterType::Unknown | ClusterType::Neither => {
                let observer = &self.view.target.observer;
                let due = observer.watches.problem_lasts_at(TRANSIENT_ERROR_GRACE).into_iter().collect();
                passes.push(Pass { waiting: observer.pending_cluster_type(), due, ..Pass::default() });
            }
            ClusterType::OpenShift => {
                if let Some(config_sync) = &mut self.config_sync {
                    passes.extend(config_sync.pass(&mut self.view).await);
                }
                if let Some(operator) = &mut self.operator {
                    passes.push(engine::pass(operator.openshift(&self.view), &mut self.view).await);
                }
            }
            ClusterType::Kubernetes => {
                // On these clusters, the pods mount the ConfigMaps and Secrets themselves.
                if self.config_sync.take().is_some() && self.operator.is_none() {
                    info!("this cluster is not OpenShift: there is nothing to sync");
                    self.view.publish_topology(false);
                }
                if let Some(operator) = &mut self.operator {
                    passes.push(engine::pass(operator.kubernetes(&self.view), &mut self.view).await);
                }
            }
        }
        let all = |texts: fn(&Pass) -> &Vec<String>| -> Vec<String> {
            let texts: BTreeSet<_> = passes.iter().flat_map(|pass| texts(pass).iter().cloned()).collect();
            texts.into_iter().collect()
        };
        let waiting = all(|pass| &pass.waiting);
        let logs_waiting_at = self.waiting.set(&waiting, Instant::now());
        self.health.set(waiting, all(|pass| &pass.retrying));
        self.measure(&passes, started);
        next_pass(passes.into_iter().flat_map(|pass| pass.due).chain(logs_waiting_at), started)
    }
}

/// Waits until the process has to stop, and then for the time limit of a pass in progress.
async fn end_of_last_pass(shutdown: &mut watch::Receiver<bool>) {
    // Without a sender, there is no shutdown.
    if shutdown.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(LAST_PASS).await;
}

/// The states of a rollout in metrics.
const ROLLOUTS: [&str; 3] = ["done", "progressing", "stuck"];

/// Returns the time of the next pass, given the start of the last pass and the due times.
fn next_pass(due: impl IntoIterator<Item = Instant>, started: Instant) -> Instant {
    // Deadlines up to the start of this pass count as handled, even if the pass could not act on them.
    let due = due.into_iter().filter(|due| *due > started);
    let now = Instant::now();
    due.fold(now + RESYNC_PERIOD, Instant::min).max(now + SHORTEST_PAUSE)
}

/// Returns the current time with the precision of Kubernetes' timestamps.
fn now_in_seconds() -> Timestamp {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handled_deadlines_do_not_count_and_new_ones_get_a_pass_soon() {
        let started = Instant::now();
        let pause = |due: &[Instant]| next_pass(due.iter().copied(), started).saturating_duration_since(started);
        assert!(pause(&[]) >= RESYNC_PERIOD);
        assert!(pause(&[started]) >= RESYNC_PERIOD, "passes without a pause");
        let soon = pause(&[started, started + Duration::from_nanos(1)]);
        assert!(soon >= SHORTEST_PAUSE && soon < RESYNC_PERIOD, "{soon:?}");
    }
}
