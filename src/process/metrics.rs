//! The metrics, in the text format of `OpenMetrics` (pure).
//!
//! The values of labels are words of this program and kinds, never names of objects: their number is bounded.

use std::sync::Arc;

use prometheus_client::{
    encoding::text,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

/// The media type of [`Metrics::text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of this process; clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    changes: Family<[(&'static str, String); 2], Counter>,
    certificates: Family<[(&'static str, &'static str); 1], Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let (changes, certificates) = (Family::default(), Family::default());
        let mut registry = Registry::with_prefix("ccm_operator");
        registry.register(
            "object_changes",
            "Changes of objects, by what was done and by kind",
            Family::clone(&changes),
        );
        registry.register_with_unit(
            "trusted_certificate_expiration_timestamp",
            "When the first of the trusted certificates of a source expires, in seconds since 1970",
            Unit::Seconds,
            Family::clone(&certificates),
        );
        Self { registry: Arc::new(registry), changes, certificates }
    }
}

impl Metrics {
    /// Counts a change.
    pub fn changed(&self, action: &'static str, kind: &str) {
        self.changes.get_or_create(&[("action", action.to_owned()), ("kind", kind.to_owned())]).inc();
    }

    /// Sets the time at which the first certificate of a source expires; `None` if it has none.
    pub fn certificates_end(&self, source: &'static str, first: Option<i64>) {
        let labels = [("source", source)];
        match first {
            Some(first) => drop(self.certificates.get_or_create(&labels).set(first)),
            None => drop(self.certificates.remove(&labels)),
        }
    }

    /// All metrics.
    pub fn text(&self) -> String {
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
    fn changes_and_expiries_are_exposed() {
        let metrics = Metrics::default();
        metrics.changed("configured", "Service");
        metrics.changed("configured", "Service");
        metrics.certificates_end("proxy", Some(7));
        metrics.certificates_end("system", Some(8));
        metrics.certificates_end("system", None);
        let text = metrics.text();
        assert!(text.contains("ccm_operator_object_changes_total{action=\"configured\",kind=\"Service\"} 2"), "{text}");
        let gauge = "ccm_operator_trusted_certificate_expiration_timestamp_seconds{source=\"proxy\"} 7";
        assert!(text.contains(gauge) && !text.contains("system") && text.ends_with("# EOF\n"), "{text}");
    }
}
