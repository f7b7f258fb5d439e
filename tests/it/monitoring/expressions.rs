//! The expressions of the alerts and of the dashboard name only what the operator exposes, and use each metric as its type is
//! used.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{alerts, text};
use crate::lab::repository;

/// The prefix of all metrics.
const PREFIX: &str = "ccm_operator_";

/// An expression, and where it stands.
pub(super) struct Expression {
    pub(super) place: String,
    pub(super) text: String,
}

/// The expressions of the alerts and of the dashboard.
pub(super) fn all() -> Result<Vec<Expression>> {
    let mut all = Vec::new();
    for alert in alerts()? {
        all.push(Expression { place: text(&alert, "alert").into(), text: text(&alert, "expr").into() });
    }
    let dashboard = std::fs::read_to_string(repository().join("docs/grafana-dashboard.json"))?;
    let dashboard: Value = serde_json::from_str(&dashboard)?;
    for panel in dashboard["panels"].as_array().context("panels")? {
        let place = format!("the panel {}", text(panel, "title"));
        let targets = panel["targets"].as_array().with_context(|| place.clone())?;
        ensure!(!targets.is_empty(), "{place} shows nothing");
        for target in targets {
            // Grafana's window, which fits the resolution.
            let text = text(target, "expr").replace("$__rate_interval", "5m");
            all.push(Expression { place: place.clone(), text });
        }
    }
    Ok(all)
}

/// A metric in an expression.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selector {
    /// The name of the metric.
    pub(super) name: String,
    /// The name with the labels that are required to have a value: those of other matchers have any.
    pub(super) series: String,
    /// The function around it, if it has a range.
    function: Option<String>,
}

impl Selector {
    /// The misuse of a metric, if there is one: a counter makes sense only as a rate, and a gauge never does.
    pub(super) fn misuse(&self) -> Option<String> {
        let counts = ["_total", "_bucket", "_count", "_sum"].iter().any(|suffix| self.name.ends_with(suffix));
        let is_rate = matches!(self.function.as_deref(), Some("rate" | "increase"));
        (counts != is_rate).then(|| format!("{} with {:?}", self.name, self.function))
    }
}

/// The selectors of the operator's metrics in an expression.
pub(super) fn selectors(expression: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for (at, _) in expression.match_indices(PREFIX) {
        let (before, rest) = expression.split_at(at);
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (name, mut after) = rest.split_at(end);
        let mut labels = Vec::new();
        if let Some((matchers, rest)) = after.strip_prefix('{').and_then(|after| after.split_once('}')) {
            after = rest;
            labels = matchers.split(',').map(required).collect();
        }
        let opened = before.strip_suffix('(').unwrap_or_default();
        let start = opened.rfind(|c| !is_word(c)).map_or(0, |at| at + 1);
        let function = after.starts_with('[').then(|| opened[start..].to_owned());
        found.push(Selector { series: format!("{name}{{{}}}", labels.join(",")), name: name.to_owned(), function });
    }
    found
}

/// A matcher of one value as it is; of another one only that the label exists.
fn required(matcher: &str) -> String {
    let is_value = matcher.split_once("=\"").is_some_and(|(label, _)| !label.ends_with('!'));
    let label = matcher.split(['!', '=']).next().unwrap_or_default();
    if is_value { matcher.to_owned() } else { format!("{label}!=\"\"") }
}

#[test]
fn counters_are_used_as_rates_and_gauges_are_not() -> Result<()> {
    let mut names = std::collections::BTreeSet::new();
    for Expression { place, text } in all()? {
        for selector in selectors(&text) {
            assert_eq!(selector.misuse(), None, "{place}: {text}");
            names.insert(selector.name);
        }
    }
    assert!(names.len() > 10, "{names:?}");
    Ok(())
}

#[test]
fn selectors_are_found_with_their_required_labels() {
    let expression = r#"sum(rate(ccm_operator_a_total{x="1",y!="2",z=~"3|4"}[5m])) > 0 or ccm_operator_b - time()"#;
    let found = selectors(expression);
    let series: Vec<_> = found.iter().map(|selector| selector.series.as_str()).collect();
    assert_eq!(series, [r#"ccm_operator_a_total{x="1",y!="",z!=""}"#, "ccm_operator_b{}"]);
    assert!(found.iter().all(|selector| selector.misuse().is_none()));
    for wrong in
        ["max(ccm_operator_a_total)", "increase(ccm_operator_b[5m])", "sum_over_time(ccm_operator_a_total[5m])"]
    {
        assert!(selectors(wrong)[0].misuse().is_some(), "{wrong}");
    }
}
