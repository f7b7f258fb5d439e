//! The metrics (IO).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

use crate::{
    cluster::watch::LastEventTime,
    version::{COMMIT, VERSION},
};

type Count = Gauge<u64, AtomicU64>;

type LabelSet<const N: usize> = [(&'static str, String); N];

#[derive(Clone, Debug)]
pub(crate) struct Labeled<M, const N: usize> {
    labels: [&'static str; N],
    metrics: Family<LabelSet<N>, M, fn() -> M>,
}

impl<M: Clone, const N: usize> Labeled<M, N> {
    /// Returns the metric with these label values. The values are words of this program, kinds, verbs and codes, never names of objects, so
    /// that their number is bounded.
    pub(crate) fn of(&self, values: [&str; N]) -> M {
        self.metrics.get_or_create_owned(&self.label_set(values))
    }

    pub(crate) fn remove(&self, values: [&str; N]) {
        self.metrics.remove(&self.label_set(values));
    }

    fn label_set(&self, values: [&str; N]) -> LabelSet<N> {
        std::array::from_fn(|index| (self.labels[index], values[index].to_owned()))
    }
}

/// Declares the metrics, each with its labels, its name, its unit if it has one, its help, and its constructor if it is not the default. A
/// unit becomes the suffix of the name.
macro_rules! metrics {
    ($($field:ident: $type:ty $([$($label:literal),+])? = $name:literal $($unit:ident)?, $help:literal $(, $new:expr)?;)+) => {
        /// The metrics of this process; clones share them.
        #[derive(Clone, Debug)]
        pub struct Metrics {
            registry: Arc<Registry>,
            heard: Arc<Mutex<Vec<(&'static str, LastEventTime)>>>,
            $(pub(crate) $field: metrics!(@type $type $([$($label),+])?),)+
        }

        impl Default for Metrics {
            fn default() -> Self {
                let mut registry = Registry::with_prefix("ccm_operator");
                let version = Info::new(vec![("version", VERSION), ("revision", COMMIT.unwrap_or("unknown"))]);
                let help = "The version of the program, and the commit that it was built from";
                registry.register("build", help, version);
                $(
                    let new: fn() -> $type = metrics!(@new $type $(, $new)?);
                    let $field = metrics!(@made new $([$($label),+])?);
                    let metric = metrics!(@registered $field $([$($label),+])?);
                    metrics!(@register registry metric $name, $help $(, $unit)?);
                )+
                Self { registry: Arc::new(registry), heard: Arc::default(), $($field,)+ }
            }
        }
    };
    (@type $type:ty) => { $type };
    (@type $type:ty [$($label:literal),+]) => { Labeled<$type, { [$($label),+].len() }> };
    (@new $type:ty) => { <$type>::default };
    (@new $type:ty, $new:expr) => { $new };
    (@made $new:ident) => { $new() };
    (@made $new:ident [$($label:literal),+]) => {
        Labeled { labels: [$($label),+], metrics: Family::new_with_constructor($new) }
    };
    (@registered $field:ident) => { $field.clone() };
    (@registered $field:ident [$($label:literal),+]) => { $field.metrics.clone() };
    (@register $registry:ident $metric:ident $name:literal, $help:literal) => {
        $registry.register($name, $help, $metric);
    };
    (@register $registry:ident $metric:ident $name:literal, $help:literal, $unit:ident) => {
        $registry.register_with_unit($name, $help, Unit::$unit, $metric);
    };
}

metrics! {
    passes: Counter = "reconcile", "Passes over all controllers";
    pass_duration: Histogram = "reconcile_time" Seconds, "The time that a pass takes",
        || Histogram::new([0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0]);
    errors: Counter["cause"] = "errors", "Objects that could not be written, and bad inputs, by cause";
    changes: Counter["action", "kind"] = "object_changes", "Changes of objects, by what was done and by kind";
    repairs: Counter["kind"] = "drift_repairs", "Writes that restored an object that was as planned before, by kind";
    deletions: Counter = "confirmed_node_deletions", "Nodes that a cloud-controller-manager was allowed to delete";
    requests: Counter["verb", "code"] = "api_requests", "Requests to the API server, by verb and HTTP status code";
    request_duration: Histogram["verb"] = "api_request_duration" Seconds,
        "The time from a request to the headers of its answer, by verb",
        || Histogram::new([0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]);
    leading: Gauge["controllers"] = "leading", "Whether this process holds the lease of its controllers";
    conditions: Gauge["condition", "status"] = "condition",
        "Whether a condition of the reported status has this value, as last seen";
    ccms: Count["condition", "status"] = "cloud_controller_managers",
        "CloudControllerManagers by the status of each of their conditions";
    broken: Count = "broken_versions", "CloudControllerManagers whose version must not run";
    nodes: Count = "nodes", "Nodes of the cluster";
    uninitialized: Count = "nodes_uninitialized", "Nodes that no cloud-controller-manager has initialized";
    waiting: Count["reason"] = "nodes_waiting",
        "Nodes that have waited for their initialization for more than a minute, by the id of the reason";
    waiting_since: Gauge = "nodes_waiting_since_timestamp" Seconds,
        "When the node was created that waits longest, in seconds since 1970; 0 if none waits";
    success: Gauge<f64, AtomicU64>["controller"] = "last_success_timestamp" Seconds,
        "When a controller last succeeded, in seconds since 1970";
    watches: Gauge["kind"] = "watch_last_event_timestamp" Seconds,
        "When the watches of a kind last delivered something, in seconds since 1970";
    contested: Count = "contested_objects", "Objects that are repaired less often, because others keep changing them";
    workloads: Count["state"] = "workloads", "Workloads by the state of their rollout";
    certificates: Gauge["source"] = "trusted_certificate_expiration_timestamp" Seconds,
        "When the first of the trusted certificates of a source expires, in seconds since 1970";
    serving: Gauge = "serving_certificate_expiration_timestamp" Seconds,
        "When the certificate of the metrics server expires, in seconds since 1970";
}

impl Metrics {
    /// Counts a request. The code is zero if there was no response.
    pub fn requested(&self, verb: &str, code: u16, took: Duration) {
        self.requests.of([verb, &code.to_string()]).inc();
        self.request_duration.of([verb]).observe(took.as_secs_f64());
    }

    /// Sets the watches, by kind.
    pub fn set_watches(&self, heard: Vec<(&'static str, LastEventTime)>) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = heard;
    }

    /// Returns the time of the last event of the watches of each kind, in seconds since 1970. If a kind has several watches, the one that
    /// has been silent for longest counts.
    pub fn last_heard(&self) -> BTreeMap<&'static str, i64> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let mut oldest = BTreeMap::new();
        for (kind, heard) in heard.iter() {
            let last: &mut i64 = oldest.entry(*kind).or_insert(i64::MAX);
            *last = (*last).min(heard.last());
        }
        oldest
    }

    /// Returns all metrics, in the text format of `OpenMetrics`.
    pub fn text(&self) -> String {
        self.watches.metrics.clear();
        for (kind, last) in self.last_heard() {
            self.watches.of([kind]).set(last);
        }
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
        metrics.passes.inc();
        metrics.pass_duration.observe(0.003);
        metrics.errors.of(["denied"]).inc();
        metrics.changes.of(["configured", "Service"]).inc();
        metrics.changes.of(["configured", "Service"]).inc();
        metrics.repairs.of(["Service"]).inc();
        metrics.deletions.inc();
        metrics.requested("get", 200, Duration::from_millis(7));
        metrics.leading.of(["operator"]).set(1);
        metrics.conditions.of(["Available", "True"]).set(1);
        metrics.conditions.of(["Available", "False"]).set(0);
        metrics.success.of(["operator"]).set(1.5);
        metrics.set_watches(vec![("Deployment", LastEventTime::default())]);
        metrics.contested.set(3);
        metrics.workloads.of(["done"]).set(1);
        metrics.serving.set(9);
        metrics.certificates.of(["proxy"]).set(7);
        metrics.certificates.of(["system"]).set(8);
        metrics.certificates.remove(["system"]);
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
        assert!(!text.contains("system") && text.ends_with("# EOF\n"), "{text}");
    }
}
