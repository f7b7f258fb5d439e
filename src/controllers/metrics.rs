//! The metrics (IO).
//!
//! The values of labels are words of this program, kinds, verbs and codes, never names of objects, so that their number
//! is bounded.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Metric, Registry, Unit},
};

use crate::{
    cluster::watch::Heard,
    version::{COMMIT, VERSION},
};

/// Labels and their values.
type Labels<const N: usize> = [(&'static str, String); N];

/// Registers a metric. A unit becomes the end of its name.
fn registered<M: Metric + Clone, const N: usize>(
    registry: &mut Registry,
    (name, help): (&str, &str),
    unit: [Unit; N],
    metric: M,
) -> M {
    match unit.into_iter().next() {
        Some(unit) => registry.register_with_unit(name, help, unit, metric.clone()),
        None => registry.register(name, help, metric.clone()),
    }
    metric
}

/// Declares the metrics, each with its name, its unit if it has one, its help, and what it is at first if that is not its default.
macro_rules! metrics {
    ($($field:ident: $type:ty = $name:literal $($unit:ident)?, $help:literal $(, $first:expr)?;)+) => {
        /// The metrics of this process; clones share them.
        #[derive(Clone, Debug)]
        pub struct Metrics {
            registry: Arc<Registry>,
            heard: Arc<Mutex<Vec<(&'static str, Heard)>>>,
            $($field: $type,)+
        }

        impl Default for Metrics {
            fn default() -> Self {
                let mut registry = Registry::with_prefix("ccm_operator");
                let version = Info::new(vec![("version", VERSION), ("revision", COMMIT.unwrap_or("unknown"))]);
                let help = "The version of the program, and the commit that it was built from";
                registry.register("build", help, version);
                $(
                    let first = metrics!(@first $type $(, $first)?);
                    let $field: $type = registered(&mut registry, ($name, $help), [$(Unit::$unit)?], first);
                )+
                Self { registry: Arc::new(registry), heard: Arc::default(), $($field,)+ }
            }
        }
    };
    (@first $type:ty) => { <$type>::default() };
    (@first $type:ty, $first:expr) => { $first };
}

metrics! {
    passes: Counter = "reconcile", "Passes over all controllers";
    pass_duration: Histogram = "reconcile_time" Seconds, "The time that a pass takes",
        Histogram::new([0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0]);
    errors: Family<Labels<1>, Counter> = "errors", "Objects that could not be written, and bad inputs, by cause";
    changes: Family<Labels<2>, Counter> = "object_changes", "Changes of objects, by what was done and by kind";
    repairs: Family<Labels<1>, Counter> = "drift_repairs",
        "Writes that restored an object that was as planned before, by kind";
    deletions: Counter = "confirmed_node_deletions", "Nodes that a cloud-controller-manager was allowed to delete";
    requests: Family<Labels<2>, Counter> = "api_requests",
        "Requests to the API server, by verb and HTTP status code";
    request_duration: Family<Labels<1>, Histogram, fn() -> Histogram> = "api_request_duration" Seconds,
        "The time from a request to the headers of its answer, by verb",
        Family::new_with_constructor(request_durations as fn() -> Histogram);
    leading: Family<Labels<1>, Gauge> = "leading", "Whether this process holds the lease of its controllers";
    conditions: Family<Labels<2>, Gauge> = "condition",
        "Whether a condition of the reported status has this value, as last seen";
    ccms: Family<Labels<2>, Gauge> = "cloud_controller_managers",
        "CloudControllerManagers by the status of each of their conditions";
    nodes: Gauge = "nodes", "Nodes of the cluster";
    uninitialized: Gauge = "nodes_uninitialized", "Nodes that no cloud-controller-manager has initialized";
    waiting: Family<Labels<1>, Gauge> = "nodes_waiting",
        "Nodes that have waited for their initialization for more than a minute, by the id of the reason";
    waiting_since: Gauge = "nodes_waiting_since_timestamp" Seconds,
        "When the node was created that waits longest, in seconds since 1970; 0 if none waits";
    success: Family<Labels<1>, Gauge<f64, AtomicU64>> = "last_success_timestamp" Seconds,
        "When a controller last succeeded, in seconds since 1970";
    watches: Family<Labels<1>, Gauge> = "watch_last_event_timestamp" Seconds,
        "When the watches of a kind last delivered something, in seconds since 1970";
    held_back: Gauge = "contested_objects", "Objects that are repaired less often, because others keep changing them";
    workloads: Family<Labels<1>, Gauge> = "workloads", "Workloads by the state of their rollout";
    certificates: Family<Labels<1>, Gauge> = "trusted_certificate_expiration_timestamp" Seconds,
        "When the first of the trusted certificates of a source expires, in seconds since 1970";
    serving: Gauge = "serving_certificate_expiration_timestamp" Seconds,
        "When the certificate of the metrics server expires, in seconds since 1970";
}

fn request_durations() -> Histogram {
    Histogram::new([0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
}

impl Metrics {
    /// Counts a pass.
    pub fn passed(&self, took: Duration) {
        self.passes.inc();
        self.pass_duration.observe(took.as_secs_f64());
    }

    /// Counts an error.
    pub fn failed(&self, cause: &'static str) {
        self.errors.get_or_create(&[("cause", cause.to_owned())]).inc();
    }

    /// Counts a change.
    pub fn changed(&self, action: &'static str, kind: &str) {
        self.changes.get_or_create(&[("action", action.to_owned()), ("kind", kind.to_owned())]).inc();
    }

    /// Counts a repair of drift.
    pub fn repaired(&self, kind: &str) {
        self.repairs.get_or_create(&[("kind", kind.to_owned())]).inc();
    }

    /// Counts a node that a cloud-controller-manager was allowed to delete.
    pub fn confirmed_deletion(&self) {
        self.deletions.inc();
    }

    /// Counts a request; the code is zero if there was no answer.
    pub fn requested(&self, verb: &str, code: u16, took: Duration) {
        let verb = ("verb", verb.to_owned());
        self.requests.get_or_create(&[verb.clone(), ("code", code.to_string())]).inc();
        self.request_duration.get_or_create(&[verb]).observe(took.as_secs_f64());
    }

    /// Sets whether this process holds the lease of some controllers.
    pub fn leads(&self, controllers: &'static str, leads: bool) {
        self.leading.get_or_create(&[("controllers", controllers.to_owned())]).set(leads.into());
    }

    /// Sets the conditions, each with its status.
    pub fn conditions_are<'a>(&self, conditions: impl Iterator<Item = (&'a str, &'a str)>) {
        for (condition, current) in conditions {
            for status in ["True", "False", "Unknown"] {
                let labels = [("condition", condition.to_owned()), ("status", status.to_owned())];
                self.conditions.get_or_create(&labels).set((status == current).into());
            }
        }
    }

    /// Sets how many `CloudControllerManager`s have a condition in this status.
    pub fn ccms_are(&self, condition: &'static str, status: &'static str, number: usize) {
        let labels = [("condition", condition.to_owned()), ("status", status.to_owned())];
        self.ccms.get_or_create(&labels).set(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Sets how many nodes there are, how many of them are not initialized, and when the one was created that waits longest, in
    /// seconds since 1970.
    pub fn nodes_are(&self, total: usize, uninitialized: usize, waiting_since: i64) {
        self.nodes.set(i64::try_from(total).unwrap_or(i64::MAX));
        self.uninitialized.set(i64::try_from(uninitialized).unwrap_or(i64::MAX));
        self.waiting_since.set(waiting_since);
    }

    /// Sets how many nodes wait, by the id of each reason.
    pub fn nodes_wait(&self, reasons: &[(&'static str, usize)]) {
        for (reason, count) in reasons {
            let labels = [("reason", (*reason).to_owned())];
            self.waiting.get_or_create(&labels).set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }

    /// Sets when a controller last succeeded, in seconds since 1970.
    pub fn succeeded(&self, controller: &'static str, at: f64) {
        self.success.get_or_create(&[("controller", controller.to_owned())]).set(at);
    }

    /// Sets the watches, by kind.
    pub fn watches_are(&self, heard: Vec<(&'static str, Heard)>) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = heard;
    }

    /// When the watches of each kind last delivered something, in seconds since 1970. Of several of a kind the one that has
    /// been silent for longest counts.
    pub fn watches(&self) -> BTreeMap<&'static str, i64> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut oldest = BTreeMap::new();
        for (kind, heard) in heard.iter() {
            let last: &mut i64 = oldest.entry(*kind).or_insert(i64::MAX);
            *last = (*last).min(heard.last());
        }
        oldest
    }

    fn take_watches(&self) {
        self.watches.clear();
        for (kind, last) in self.watches() {
            self.watches.get_or_create(&[("kind", kind.to_owned())]).set(last);
        }
    }

    /// Sets how many objects are repaired less often.
    pub fn holds_back(&self, objects: usize) {
        self.held_back.set(i64::try_from(objects).unwrap_or(i64::MAX));
    }

    /// Sets how many workloads are in a state of their rollout.
    pub fn workloads_are(&self, state: &'static str, count: usize) {
        self.workloads.get_or_create(&[("state", state.to_owned())]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the time at which the first certificate of a source expires; `None` if it has none.
    pub fn certificates_end(&self, source: &'static str, first: Option<i64>) {
        let labels = [("source", source.to_owned())];
        match first {
            Some(first) => drop(self.certificates.get_or_create(&labels).set(first)),
            None => drop(self.certificates.remove(&labels)),
        }
    }

    /// When the certificate of the metrics server expires, in seconds since 1970.
    pub fn serving_end(&self) -> Gauge {
        self.serving.clone()
    }

    /// All metrics, in the text format of `OpenMetrics`.
    pub fn text(&self) -> String {
        self.take_watches();
        let mut all = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut all, &self.registry);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_exposed_with_its_labels() {
        let metrics = Metrics::default();
        metrics.passed(Duration::from_millis(3));
        metrics.failed("denied");
        metrics.changed("configured", "Service");
        metrics.changed("configured", "Service");
        metrics.repaired("Service");
        metrics.confirmed_deletion();
        metrics.requested("get", 200, Duration::from_millis(7));
        metrics.leads("operator", true);
        metrics.conditions_are([("Available", "True")].into_iter());
        metrics.succeeded("operator", 1.5);
        metrics.watches_are(vec![("Deployment", Heard::default())]);
        metrics.holds_back(3);
        metrics.workloads_are("done", 1);
        metrics.serving_end().set(9);
        metrics.certificates_end("proxy", Some(7));
        metrics.certificates_end("system", Some(8));
        metrics.certificates_end("system", None);
        let text = metrics.text();
        for line in [
            "ccm_operator_build_info{version=\"0.1.0\",revision=\"",
            "ccm_operator_reconcile_total 1\n",
            "ccm_operator_reconcile_time_seconds_count 1\n",
            "ccm_operator_errors_total{cause=\"denied\"} 1\n",
            "ccm_operator_object_changes_total{action=\"configured\",kind=\"Service\"} 2\n",
            "ccm_operator_drift_repairs_total{kind=\"Service\"} 1\n",
            "ccm_operator_confirmed_node_deletions_total 1\n",
            "ccm_operator_serving_certificate_expiration_timestamp_seconds 9\n",
            "ccm_operator_api_requests_total{verb=\"get\",code=\"200\"} 1\n",
            "ccm_operator_api_request_duration_seconds_bucket{le=\"0.01\",verb=\"get\"} 1\n",
            "ccm_operator_leading{controllers=\"operator\"} 1\n",
            "ccm_operator_condition{condition=\"Available\",status=\"True\"} 1\n",
            "ccm_operator_condition{condition=\"Available\",status=\"False\"} 0\n",
            "ccm_operator_last_success_timestamp_seconds{controller=\"operator\"} 1.5\n",
            "ccm_operator_watch_last_event_timestamp_seconds{kind=\"Deployment\"} 0\n",
            "ccm_operator_contested_objects 3\n",
            "ccm_operator_workloads{state=\"done\"} 1\n",
            "ccm_operator_trusted_certificate_expiration_timestamp_seconds{source=\"proxy\"} 7\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        let documented = include_str!("../../docs/operations.md");
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        for name in names {
            assert!(documented.contains(name), "docs/operations.md does not describe {name}");
        }
        assert!(!text.contains("system") && text.ends_with("# EOF\n"), "{text}");
    }
}
