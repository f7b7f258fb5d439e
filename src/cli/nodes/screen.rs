//! Prints nodes for people (pure).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use super::NodesReport;
use crate::{
    nodes::{
        diagnosis::{Diagnosis, Finding, Observation, State},
        evidence::Unseen,
        reason::Reason,
    },
    status::screen::text::age,
    text::output::{printable, table, wrap},
};

/// The width of a page.
const WIDTH: usize = 100;

/// The placeholder for an unknown or absent value.
const NONE: &str = "-";

/// Renders a table of all nodes, followed by the fixes.
pub(super) fn all(report: &NodesReport, now: Timestamp) -> String {
    let rows: Vec<_> = report.nodes.iter().map(|node| row(node, now)).collect();
    let mut text = if rows.is_empty() {
        "there are no nodes\n".to_owned()
    } else {
        table(["NAME", "CLOUD", "INITIALIZED", "REASON", "PROVIDER-ID"], &rows)
    };
    text += &what_to_do(report);
    text += &not_shown(&report.unseen);
    printable(&text)
}

fn row(node: &Diagnosis, now: Timestamp) -> [String; 5] {
    let mut all: Vec<_> = node.findings.iter().map(|finding| finding.reason).collect();
    all.dedup();
    let others = all.iter().skip(1).map(|one| one.id().to_owned());
    let reasons = or_none(&all.first().map(Reason::to_string).into_iter().chain(others).collect::<Vec<_>>().join(", "));
    [node.node.clone(), or_none(&node.provider), state(node, now), reasons, or_none(&shortened(&node.provider_id))]
}

/// Lists the reasons in the order of fixing, each with the number of its nodes, and once for each fix, which can differ between nodes.
fn what_to_do(report: &NodesReport) -> String {
    let mut reasons: BTreeMap<(usize, Reason, &str), usize> = BTreeMap::new();
    for node in &report.nodes {
        let of_node = node.findings.iter().map(|Finding { reason, fix, .. }| (reason.rank(), *reason, fix.as_str()));
        of_node.collect::<BTreeSet<_>>().into_iter().for_each(|one| *reasons.entry(one).or_default() += 1);
    }
    if reasons.is_empty() {
        return String::new();
    }
    let row = |((_, reason, fix), count): (&(usize, Reason, &str), &usize)| {
        [reason.to_string(), count.to_string(), format!("{fix} (`ccm-operator explain {}`)", reason.id())]
    };
    let rows: Vec<_> = reasons.iter().map(row).collect();
    format!("\n{}", table(["REASON", "NODES", "WHAT TO DO"], &rows))
}

/// Renders all details of a node.
pub(super) fn one(report: &NodesReport, now: Timestamp) -> String {
    let mut text = report.nodes.iter().map(|node| page(node, now)).collect::<Vec<_>>().join("\n");
    text += &not_shown(&report.unseen);
    printable(&text)
}

fn page(node: &Diagnosis, now: Timestamp) -> String {
    let facts = [
        ("Node", node.node.clone()),
        ("Cloud", or_none(&node.provider)),
        ("ProviderID", or_none(&node.provider_id)),
        ("Initialized", state(node, now)),
    ];
    let mut text = facts.map(|(name, value)| format!("{name:<13}{value}\n")).concat();
    if node.findings.is_empty() {
        text += "\nNothing is wrong.\n";
    }
    text.extend(node.findings.iter().map(details));
    if !node.observations.is_empty() {
        text += "\nLooked at:\n";
    }
    // Sources that could not be read are listed at the end.
    for Observation { what, showed, .. } in node.observations.iter().filter(|one| one.was_seen) {
        let lines = wrap(showed, WIDTH - 4).into_iter().map(|line| format!("    {line}\n"));
        text.extend([format!("  {what}\n")].into_iter().chain(lines));
    }
    text
}

fn details(finding: &Finding) -> String {
    let Finding { reason, cause, evidence, fix } = finding;
    let more = format!("ccm-operator explain {}", reason.id());
    let mut text = format!("\n{reason}: {}\n", reason.title());
    for (name, value) in [("Cause", cause), ("Evidence", evidence), ("What to do", fix), ("More", &more)] {
        let lines = wrap(value, WIDTH - 15).into_iter().filter(|line| !line.is_empty()).enumerate();
        text.extend(lines.map(|(index, line)| format!("  {:<13}{line}\n", if index == 0 { name } else { "" })));
    }
    text
}

/// Lists the sources that could not be read, each with a command that reads it.
fn not_shown(unseen: &[Unseen]) -> String {
    let lines = unseen.iter().map(|Unseen { what, why, command }| {
        format!(
            "\n{}\n  {command}\n",
            wrap(&format!("could not be read: {what}: {why}; to read it:"), WIDTH).join("\n")
        )
    });
    lines.collect()
}

fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { text.to_owned() }
}

/// Describes the state of a node, and how long it has lasted.
fn state(node: &Diagnosis, now: Timestamp) -> String {
    let since = node.since.as_ref().map(|since| format!(", {}", age(since, now))).unwrap_or_default();
    match node.state {
        State::Initialized => "yes".to_owned(),
        State::Uninitialized => format!("no{since}"),
        State::NotManaged => "not managed".to_owned(),
        State::NoCloud => "no cloud".to_owned(),
        State::Deleted => format!("deleted{since}"),
    }
}

/// Shortens a providerID in the middle, because the paths of some clouds are longer than a line.
fn shortened(id: &str) -> String {
    let Some((scheme, path)) = id.split_once("://") else { return id.to_owned() };
    match path.rsplit_once('/') {
        Some((middle, last)) if middle.len() > 3 => format!("{scheme}://…/{last}"),
        _ => id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    fn node(name: &str, state: State, reasons: &[Reason]) -> Diagnosis {
        let finding = |reason: &Reason| Finding {
            reason: *reason,
            evidence: format!("what shows {}", reason.id()),
            cause: "its cause".into(),
            fix: format!("fix {} {}", reason.id(), "word ".repeat(20)),
        };
        Diagnosis {
            node: name.into(),
            uid: "u".into(),
            state,
            provider: "aws".into(),
            provider_id: "aws:///eu-west-1a/i-0123456789abcdef0".into(),
            since: Some("2026-01-01T00:48:00Z".into()),
            findings: reasons.iter().map(finding).collect(),
            observations: vec![Observation { what: "the Node".into(), showed: "much ".repeat(40), was_seen: true }],
        }
    }

    #[test]
    fn a_table_of_nodes_fits_a_terminal_and_says_each_remedy_once() {
        use Reason::{CredentialsRefused, NoZone};
        let name = "ip-10-0-0-1.eu-west-1.compute.internal";
        let report = NodesReport {
            nodes: vec![
                node(name, State::Initialized, &[]),
                node("b", State::Uninitialized, &[CredentialsRefused, CredentialsRefused, NoZone]),
                node("c", State::Uninitialized, &[CredentialsRefused]),
                node("d\x1b[2J", State::Deleted, &[]),
            ],
            unseen: vec![Unseen { what: "pods".into(), why: "forbidden".into(), command: "kubectl get pods".into() }],
        };
        let text = all(&report, now());
        assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
        assert!(line(name).contains("  aws    yes  ") && line(name).ends_with("aws://…/i-0123456789abcdef0"), "{text}");
        assert!(line("b ").contains("no, 12m") && line("b ").contains("N07 CredentialsRefused, N26"), "{text}");
        assert!(line("N07").contains("  2      fix N07") && line("N26").contains("  1      fix N26"), "{text}");
        assert!(text.contains("(`ccm-operator explain N07`)") && text.ends_with("\n  kubectl get pods\n"), "{text}");
        assert!(!text.contains('\x1b') && line("d").contains("deleted, 12m"), "{text}");
        assert!(report.needs_somebody());
        let gone = NodesReport { nodes: vec![node("a", State::Deleted, &[Reason::NodeDeleted])], unseen: Vec::new() };
        assert!(!gone.needs_somebody());
    }

    #[test]
    fn other_advice_for_the_same_reason_has_a_row_of_its_own() {
        let mut nodes =
            ["a", "b", "c"].map(|name| node(name, State::Initialized, &[Reason::OtherCloudProviderID])).to_vec();
        nodes[0].findings[0].fix = "leave it".into();
        let text = all(&NodesReport { nodes, unseen: Vec::new() }, now());
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("N12 OtherCloudProviderID")).collect();
        assert!(
            rows.len() == 2 && rows[0].contains("  2      fix N12") && rows[1].contains("  1      leave it"),
            "{text}"
        );
    }

    #[test]
    fn the_page_of_a_node_shows_everything_that_was_looked_at() {
        let report =
            NodesReport { nodes: vec![node("b", State::Uninitialized, &[Reason::NoZone])], unseen: Vec::new() };
        let text = one(&report, now());
        for part in [
            "Node         b\n",
            "Initialized  no, 12m\n",
            "N26 NoZone: the node has no zone or region\n  Cause        its cause\n  Evidence     what shows N26\n",
            "  More         ccm-operator explain N26\n",
            "\nLooked at:\n  the Node\n    much much",
        ] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }

    #[test]
    fn long_provider_ids_lose_their_middle() {
        for (id, expected) in [
            ("aws:///eu-west-1a/i-0123", "aws://…/i-0123"),
            ("vsphere://4201c3d5-0000", "vsphere://4201c3d5-0000"),
            ("hcloud://1", "hcloud://1"),
            ("odd", "odd"),
            ("", ""),
        ] {
            assert_eq!(shortened(id), expected);
        }
    }
}
