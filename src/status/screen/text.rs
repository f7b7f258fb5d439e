//! The report on one screen of 80 columns (pure).

use k8s_openapi::jiff::Timestamp;

use crate::{
    status::screen::{ConditionState, OperatorState, RolloutState, StatusReport, UNAVAILABLE},
    text::output::{printable, table_within, wrap},
};

/// The usual width of a terminal.
const WIDTH: usize = 80;

const NO_TIME: &str = "-";

/// Formats the report for people, with ages relative to `now`.
pub(crate) fn screen(report: &StatusReport, now: Timestamp) -> String {
    let mut text = head(report, now);
    let age = |time: Option<&String>| time.map_or_else(|| NO_TIME.to_owned(), |time| age(time, now));

    let objects = report.objects.iter().map(|object| {
        let location = match object.namespace.as_str() {
            namespace if namespace.is_empty() || namespace == report.namespace => String::new(),
            namespace => format!("{namespace}/"),
        };
        let name = format!("{} {location}{}", object.kind, object.name);
        [object.state.replace('-', " "), age(object.created.as_ref()), name]
    });
    text += &section(WIDTH, ["STATE", "AGE", "OBJECT"], &objects.collect::<Vec<_>>());

    let rollouts = report.rollouts.iter().flat_map(|rollout| {
        let name = format!("{} {}", rollout.kind, rollout.name);
        let first = [rollout.state.to_owned(), format!("{}/{}", rollout.ready, rollout.desired), name];
        let waits = rollout.waits_for.iter().map(|why| [String::new(), String::new(), why.clone()]);
        std::iter::once(first).chain(waits)
    });
    text += &section(WIDTH, ["ROLLOUT", "READY", "WORKLOAD"], &rollouts.collect::<Vec<_>>());

    let conditions = report.conditions.iter().map(|condition| {
        let status = condition.status.clone().unwrap_or_else(|| NO_TIME.to_owned());
        [status, age(condition.since.as_ref()), condition_words(condition)]
    });
    text += &section(WIDTH, ["STATUS", "SINCE", "CONDITION"], &conditions.collect::<Vec<_>>());

    let changes = report.changes.iter();
    let changes = changes.map(|change| [age(Some(&change.at)), format!("{}: {}", change.object, change.what)]);
    text += &section(WIDTH, ["AGO", "LAST CHANGES"], &changes.collect::<Vec<_>>());

    for problem in &report.unread {
        text.extend(["\n", &wrap(&format!("not shown: {problem}"), WIDTH).join("\n"), "\n"]);
    }
    printable(&text)
}

/// Describes the health, with the number of objects that differ from the plan.
fn health(report: &StatusReport) -> String {
    let waiting = report.objects.iter().filter(|object| matches!(object.state, "missing" | "differs")).count();
    match (report.healthy, waiting) {
        (None, _) => "unknown: the ClusterOperator cannot be read".to_owned(),
        (Some(false), _) => match report.rollouts.iter().find(|rollout| rollout.state == UNAVAILABLE) {
            Some(RolloutState { kind, name, .. }) => format!("NOT HEALTHY: no pod of {kind} {name} is ready"),
            None => "NOT HEALTHY".to_owned(),
        },
        (Some(true), 0) => "healthy".to_owned(),
        (Some(true), 1) => "healthy, but one object is not as planned".to_owned(),
        (Some(true), count) => format!("healthy, but {count} objects are not as planned"),
    }
}

fn operator(state: &OperatorState, now: Timestamp) -> String {
    let OperatorState { state, holder, renewed } = state;
    match (*state, holder, renewed) {
        ("leading", Some(holder), _) => format!("runs as {holder}"),
        ("expired", Some(holder), Some(renewed)) => {
            format!("NOT RUNNING: {holder} renewed its lease {} ago", age(renewed, now))
        }
        ("absent", ..) => "NOT RUNNING: nobody holds its lease".to_owned(),
        _ => "unknown: its lease cannot be read".to_owned(),
    }
}

fn head(report: &StatusReport, now: Timestamp) -> String {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
    let provider = report.provider.clone().unwrap_or_else(|| "none".to_owned());
    let facts = [
        ("Cluster", health(report)),
        ("Operator", operator(&report.operator, now)),
        ("Platform", format!("{}, provider {provider}", known(&report.platform))),
        ("Version", known(&report.version)),
        ("Namespace", report.namespace.clone()),
    ];
    let facts = facts.map(|(name, value)| format!("{name:<11}{value}"));
    let mut text = facts.join("\n") + "\n";
    if let Some(why) = &report.why {
        text += &(wrap(why, WIDTH).join("\n") + "\n");
    }
    text
}

/// Formats an empty line and a table of this width; empty without rows.
pub(in crate::status) fn section<const N: usize>(width: usize, titles: [&str; N], rows: &[[String; N]]) -> String {
    if rows.is_empty() { String::new() } else { format!("\n{}", table_within(width, titles, rows)) }
}

/// Describes a condition by its message or, without one, by its reason.
fn condition_words(condition: &ConditionState) -> String {
    let ConditionState { type_, reason, message, .. } = condition;
    match (message.as_str(), reason.as_str()) {
        ("", "") => type_.clone(),
        ("", reason) => format!("{type_} ({reason})"),
        (message, _) => format!("{type_}: {message}"),
    }
}

/// Returns the elapsed time in its largest unit.
pub(crate) fn age(time: &str, now: Timestamp) -> String {
    let Ok(time) = time.parse::<Timestamp>() else { return NO_TIME.to_owned() };
    let seconds = now.as_second().saturating_sub(time.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_counted_in_the_largest_unit() {
        let now = "2026-01-10T00:00:00Z".parse().unwrap();
        for (time, expected) in [
            ("2026-01-09T23:59:58Z", "2s"),
            ("2026-01-09T23:58:00Z", "2m"),
            ("2026-01-09T20:00:00Z", "4h"),
            ("2026-01-02T00:00:00Z", "8d"),
            ("2026-01-10T00:00:09Z", "0s"),
            ("soon", "-"),
        ] {
            assert_eq!(age(time, now), expected, "{time}");
        }
    }
}
