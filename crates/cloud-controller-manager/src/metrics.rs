//! The metrics (IO), under the names that k8s.io/cloud-provider and the cloud-controller-managers of other clouds have, so that
//! their alerts and dashboards work. docs/drivers/cloud-controller-manager.md lists them, and those that are absent.

use std::{
    fmt, fs,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, SystemTime},
};

use prometheus_client::{
    encoding::{EncodeMetric, MetricEncoder, text},
    metrics::{
        MetricType, TypedMetric, counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info,
    },
    registry::Registry,
};
use rustix::time::{ClockId, clock_gettime};

use crate::version::{COMMIT, VERSION};

type Labels<const N: usize> = [(&'static str, String); N];

type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// The name of the only queue, as the library has it.
const QUEUE: &str = "Nodes";

/// From 1 s to 17 min, as the library has them.
const DELAYS: [f64; 6] = [1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

/// The metrics of this process. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    taint_removal_delay: Histogram,
    initial_sync_delay: Histogram,
    monitor_duration: Histogram,
    lifecycle_calls: Family<Labels<2>, Counter>,
    queue_adds: Family<Labels<1>, Counter>,
    queue_retries: Family<Labels<1>, Counter>,
    queue_depth: Family<Labels<1>, Gauge>,
    cloud_duration: Histograms<1>,
    cloud_errors: Family<Labels<1>, Errors>,
    leading: Family<Labels<1>, Gauge>,
    requests: Family<Labels<2>, Counter>,
    request_duration: Histograms<1>,
    processor_time: Counter<f64, AtomicU64>,
    memory: Gauge,
    files: Gauge,
    serving: Gauge,
}

/// A counter whose name has no suffix `_total`, as `cloudprovider_aws_api_request_errors`. Alerts know the names without it.
#[derive(Clone, Debug, Default)]
struct Errors(Counter);

impl EncodeMetric for Errors {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&i64::try_from(self.0.get()).unwrap_or(i64::MAX))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

impl TypedMetric for Errors {
    const TYPE: MetricType = MetricType::Unknown;
}

impl Metrics {
    /// The metrics of a process for this cloud, whose name is a part of some of theirs.
    pub(crate) fn new(cloud: &str) -> Self {
        let mut registry = Registry::default();
        let delays = || Histogram::new(DELAYS);
        let metrics = Self {
            registry: Arc::default(),
            taint_removal_delay: delays(),
            initial_sync_delay: delays(),
            monitor_duration: Histogram::new((0..15).map(|power| 0.001 * f64::from(1_u32 << power))),
            lifecycle_calls: Family::default(),
            queue_adds: Family::default(),
            queue_retries: Family::default(),
            queue_depth: Family::default(),
            cloud_duration: Family::new_with_constructor(|| {
                Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
            }),
            cloud_errors: Family::default(),
            leading: Family::default(),
            requests: Family::default(),
            request_duration: Family::new_with_constructor(|| {
                Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
            }),
            processor_time: Counter::default(),
            memory: Gauge::default(),
            files: Gauge::default(),
            serving: Gauge::default(),
        };
        metrics.register(&mut registry, &cloud.replace('-', "_"));
        metrics.register_process(&mut registry);
        Self { registry: Arc::new(registry), ..metrics }
    }

    fn register(&self, registry: &mut Registry, cloud: &str) {
        registry.register(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            "From the creation of a node until its uninitialized taint was removed",
            self.taint_removal_delay.clone(),
        );
        registry.register(
            "node_controller_initial_node_sync_delay_seconds",
            "From the creation of a node until it was initialized",
            self.initial_sync_delay.clone(),
        );
        registry.register(
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
            "The time of a pass of the lifecycle controller over all nodes",
            self.monitor_duration.clone(),
        );
        registry.register(
            "cloud_node_lifecycle_controller_cloud_provider_calls",
            "Questions of the lifecycle controller to the cloud, by operation and result",
            self.lifecycle_calls.clone(),
        );
        registry.register("workqueue_adds", "Nodes that were queued", self.queue_adds.clone());
        registry.register(
            "workqueue_retries",
            "Nodes that were queued again after a failure",
            self.queue_retries.clone(),
        );
        registry.register("workqueue_depth", "Nodes in the queue", self.queue_depth.clone());
        registry.register(
            format!("cloudprovider_{cloud}_api_request_duration_seconds"),
            "The time of requests to the cloud, by request",
            self.cloud_duration.clone(),
        );
        registry.register(
            format!("cloudprovider_{cloud}_api_request_errors"),
            "Requests to the cloud that failed, by request. The answer that an instance does not exist is not a failure",
            self.cloud_errors.clone(),
        );
        registry.register(
            "rest_client_requests",
            "Requests to the API server, by HTTP status code and method",
            self.requests.clone(),
        );
        registry.register(
            "rest_client_request_duration_seconds",
            "The time from a request to the API server to the headers of its answer, by method",
            self.request_duration.clone(),
        );
    }

    fn register_process(&self, registry: &mut Registry) {
        registry.register(
            "leader_election_master_status",
            "Whether this process holds the lease of this name",
            self.leading.clone(),
        );
        registry.register("process_cpu_seconds", "Processor time of this process", self.processor_time.clone());
        registry.register("process_resident_memory_bytes", "Memory of this process", self.memory.clone());
        registry.register("process_open_fds", "Open files of this process", self.files.clone());
        let start = Gauge::<f64, AtomicU64>::default();
        start.set(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64());
        registry.register("process_start_time_seconds", "The start of this process, in seconds since 1970", start);
        let version = Info::new(vec![("version", VERSION), ("revision", COMMIT.unwrap_or("unknown"))]);
        registry.register(
            "cloud_controller_manager_build",
            "The version of the program, and the commit that it was built from",
            version,
        );
        registry.register(
            "cloud_controller_manager_serving_certificate_expiration_timestamp_seconds",
            "The expiry of the certificate of this server, in seconds since 1970",
            self.serving.clone(),
        );
    }

    /// Notes that the uninitialized taint of a node was removed, this long after its creation.
    pub(crate) fn taint_removal_delay(&self, since_creation: Duration) {
        self.taint_removal_delay.observe(since_creation.as_secs_f64());
    }

    /// Notes that a node was initialized, this long after its creation.
    pub(crate) fn initial_sync_delay(&self, since_creation: Duration) {
        self.initial_sync_delay.observe(since_creation.as_secs_f64());
    }

    /// Notes a pass of the lifecycle controller over all nodes.
    pub(crate) fn monitored(&self, took: Duration) {
        self.monitor_duration.observe(took.as_secs_f64());
    }

    /// Counts a question of the lifecycle controller. The library's operations are `instance_exists`, `instance_shutdown` and
    /// `instance_metadata`, its results `success`, `error`, `instance_not_found`, `not_implemented` and `canceled`.
    pub(crate) fn lifecycle_call(&self, operation: &'static str, result: &'static str) {
        let labels = [("operation", operation.to_owned()), ("result", result.to_owned())];
        self.lifecycle_calls.get_or_create_owned(&labels).inc();
    }

    /// Counts a node that is queued.
    pub(crate) fn queue_added(&self) {
        self.queue_adds.get_or_create_owned(&queue()).inc();
    }

    /// Counts a node that is queued again after a failure.
    pub(crate) fn queue_retried(&self) {
        self.queue_retries.get_or_create_owned(&queue()).inc();
    }

    /// Sets the number of the nodes in the queue.
    pub(crate) fn set_queue_depth(&self, nodes: usize) {
        self.queue_depth.get_or_create_owned(&queue()).set(i64::try_from(nodes).unwrap_or(i64::MAX));
    }

    /// Notes a request to the cloud, such as `list_instances`. `measured.rs` calls it for each attempt of each operation of the
    /// driver; controllers do not.
    pub(crate) fn cloud_request(&self, request: &'static str, took: Duration, has_failed: bool) {
        let labels = [("request", request.to_owned())];
        self.cloud_duration.get_or_create_owned(&labels).observe(took.as_secs_f64());
        let errors = self.cloud_errors.get_or_create_owned(&labels);
        if has_failed {
            errors.0.inc();
        }
    }

    /// Notes a request to the API server, by the Kubernetes verb. The code is zero if there was no answer.
    pub(crate) fn api_request(&self, verb: &str, code: u16, took: Duration) {
        let method = match verb {
            "get" | "watch" => "GET",
            "create" => "POST",
            "update" => "PUT",
            "patch" => "PATCH",
            "delete" => "DELETE",
            other => other,
        };
        let code = if code == 0 { "<error>".to_owned() } else { code.to_string() };
        self.requests.get_or_create_owned(&[("code", code), ("method", method.to_owned())]).inc();
        self.request_duration.get_or_create_owned(&[("verb", method.to_owned())]).observe(took.as_secs_f64());
    }

    /// Notes whether this process holds a lease.
    pub(crate) fn set_leading(&self, lease: &str, is_leading: bool) {
        self.leading.get_or_create_owned(&[("name", lease.to_owned())]).set(is_leading.into());
    }

    /// The expiry of the certificate of the server, for the kit.
    pub(crate) fn serving(&self) -> Gauge {
        self.serving.clone()
    }

    /// Returns all metrics in the text format of `OpenMetrics`.
    pub(crate) fn text(&self) -> String {
        self.read_process();
        let mut text = String::new();
        // A string takes everything.
        let _ = text::encode(&mut text, &self.registry);
        text
    }

    fn read_process(&self) {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = Duration::try_from(now).unwrap_or_default().as_secs_f64();
        self.processor_time.inc_by((seconds - self.processor_time.get()).max(0.0));
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let kilobytes = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<i64>().ok());
        self.memory.set(kilobytes.unwrap_or_default() * 1024);
        let files = fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or_default();
        self.files.set(i64::try_from(files).unwrap_or(i64::MAX));
    }
}

fn queue() -> Labels<1> {
    [("name", QUEUE.to_owned())]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Metrics of which each has a value.
    fn used() -> Metrics {
        let metrics = Metrics::new("my-cloud");
        metrics.taint_removal_delay(Duration::from_secs(3));
        metrics.initial_sync_delay(Duration::from_secs(5));
        metrics.monitored(Duration::from_millis(3));
        metrics.lifecycle_call("instance_exists", "instance_not_found");
        metrics.queue_added();
        metrics.queue_retried();
        metrics.set_queue_depth(2);
        metrics.cloud_request("list_instances", Duration::from_millis(30), true);
        metrics.cloud_request("list_instances", Duration::from_millis(30), false);
        metrics.api_request("watch", 200, Duration::from_millis(7));
        metrics.api_request("update", 0, Duration::from_millis(7));
        metrics.set_leading("cloud-controller-manager", true);
        metrics.serving().set(9);
        metrics
    }

    #[test]
    fn the_names_labels_and_values_are_those_that_alerts_know() {
        let text = used().text();
        for line in [
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"4.0\"} 1\n",
            "node_controller_cloud_provider_taint_removal_delay_seconds_bucket{le=\"1.0\"} 0\n",
            "node_controller_initial_node_sync_delay_seconds_sum 5.0\n",
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_bucket{le=\"0.004\"} 1\n",
            "cloud_node_lifecycle_controller_cloud_provider_calls_total{operation=\"instance_exists\",result=\"instance_not_found\"} 1\n",
            "workqueue_adds_total{name=\"Nodes\"} 1\n",
            "workqueue_retries_total{name=\"Nodes\"} 1\n",
            "workqueue_depth{name=\"Nodes\"} 2\n",
            "cloudprovider_my_cloud_api_request_duration_seconds_count{request=\"list_instances\"} 2\n",
            "cloudprovider_my_cloud_api_request_errors{request=\"list_instances\"} 1\n",
            "leader_election_master_status{name=\"cloud-controller-manager\"} 1\n",
            "rest_client_requests_total{code=\"200\",method=\"GET\"} 1\n",
            "rest_client_requests_total{code=\"<error>\",method=\"PUT\"} 1\n",
            "rest_client_request_duration_seconds_bucket{le=\"0.025\",verb=\"GET\"} 1\n",
            "cloud_controller_manager_build_info{version=\"",
            "cloud_controller_manager_serving_certificate_expiration_timestamp_seconds 9\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn the_process_is_measured() {
        let metrics = used();
        let value = |name: &str| -> f64 {
            let text = metrics.text();
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap();
            line.parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_start_time_seconds") > 1.7e9);
        let before = value("process_cpu_seconds_total");
        let work = (0..3_000_000_u64).fold(0_u64, |sum, one| std::hint::black_box(sum.wrapping_mul(31) ^ one));
        std::hint::black_box(work);
        assert!(value("process_cpu_seconds_total") > before);
    }

    /// The names in the first table of the page after this heading.
    fn table(heading: &str) -> BTreeSet<String> {
        let page = include_str!("../../../docs/drivers/cloud-controller-manager.md");
        let (_, rest) = page.split_once(heading).unwrap();
        let rows = rest.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        let rows = rows.take_while(|line| line.starts_with('|'));
        let names = rows.flat_map(|row| row.split('|').nth(1).unwrap().split(", ").map(str::trim));
        names.map(|name| name.trim_matches('`').to_owned()).collect()
    }

    #[test]
    fn the_page_lists_what_is_served_and_nothing_that_is_absent() {
        let text = used().text();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let served: BTreeSet<_> = types
            .map(|(name, kind)| {
                let suffix = match kind {
                    "counter" => "_total",
                    "info" => "_info",
                    _ => "",
                };
                format!("{name}{suffix}").replace("_my_cloud_", "_CLOUD_")
            })
            .collect();
        assert_eq!(table("## Metrics"), served);
        let absent = table("Absent are");
        assert!(absent.len() > 10 && absent.is_disjoint(&served), "{absent:?}");
    }
}
