//! What is counted and measured, in the text format of `OpenMetrics` (no IO).
//!
//! Labels are words of this program and kinds, never names of objects: their number is bounded.

use std::sync::Arc;

use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};

/// The media type of [`Metrics::text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of this process; clones are the same ones.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    changes: Family<ChangeLabels, Counter>,
    certificates: Family<SourceLabels, Gauge>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct ChangeLabels {
    action: &'static str,
    kind: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct SourceLabels {
    source: &'static str,
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
            "When the first of the trusted certificates of a source ends, in seconds since 1970",
            Unit::Seconds,
            Family::clone(&certificates),
        );
        Self { registry: Arc::new(registry), changes, certificates }
    }
}

impl Metrics {
    /// Counts a change.
    pub fn changed(&self, action: &'static str, kind: &str) {
        self.changes.get_or_create(&ChangeLabels { action, kind: kind.to_owned() }).inc();
    }

    /// Notes when the first certificate of a source ends; `None` when it has none.
    pub fn certificates_end(&self, source: &'static str, first: Option<i64>) {
        let labels = SourceLabels { source };
        match first {
            Some(first) => drop(self.certificates.get_or_create(&labels).set(first)),
            None => drop(self.certificates.remove(&labels)),
        }
    }

    /// All of them.
    pub fn text(&self) -> String {
        let mut all = String::new();
        // A String takes everything.
        let _ = text::encode(&mut all, &self.registry);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_counted_and_certificates_noted() {
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
