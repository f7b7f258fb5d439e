//! The command `explain`: prints what the documentation says about a reason or a check.

use clap::Args;

use super::flags::{print, wrong_usage};
use crate::{
    nodes::{pages, reason::Reason},
    preflight::check::Check,
    text::{
        markdown::{self, Table},
        output,
        suggest::did_you_mean,
    },
};

/// The page of the reasons that are not about nodes that wait.
const REASONS: &str = include_str!("../../docs/reasons.md");

/// The page of the checks.
const CHECKS: &str = include_str!("../../docs/preflight.md");

/// The width of the output, as that of tables.
const WIDTH: usize = 100;

#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// A reason of a condition, of an Event or of a node that waits, or a check, such as `NoPodReady`, `N07` or `other-ccm` [default: a
    /// table of all].
    pub reason: Option<String>,
}

/// What the documentation says about a name.
struct Entry {
    name: String,
    /// The condition, or whatever else has the reason.
    of: String,
    /// The other cells of its row, with their titles.
    texts: Vec<(String, String)>,
}

pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let Some(name) = &args.reason else { return print(&all()) };
    match explained(name) {
        Some(text) => print(&text),
        None => Err(wrong_usage(&unknown(name))),
    }
}

/// Returns the text about a name, in upper or lower case, with or without hyphens; `None` if nothing has it.
fn explained(name: &str) -> Option<String> {
    let name = folded(name);
    let is_it = |reason: &&Reason| folded(reason.id()) == name || folded(reason.name()) == name;
    let page = |reason: &Reason| markdown::plain(pages::page(*reason).unwrap_or_else(|| reason.title()), WIDTH);
    let pages = Reason::ALL.iter().filter(is_it).map(page);
    // The name of a condition stands for all its reasons.
    let is_about = |entry: &Entry| folded(&entry.name) == name || folded(&entry.of) == format!("condition {name}");
    let entries = entries().into_iter().filter(is_about);
    let texts: Vec<_> = pages.chain(entries.map(|entry| entry.to_string())).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Returns every reason and check that is not about nodes that wait.
fn entries() -> Vec<Entry> {
    let of_reasons = markdown::tables(REASONS);
    let mut of_checks = markdown::tables(CHECKS);
    of_checks.retain(|table| table.titles.first().is_some_and(|title| title == "check"));
    let read = |table: Table| {
        let (titles, heading) = (table.titles, table.heading);
        table.rows.into_iter().map(move |row| {
            let name = row.first().map(|name| name.trim_matches('`').to_owned()).unwrap_or_default();
            let texts = titles.iter().cloned().zip(row).skip(1).collect();
            Entry { name, of: heading.clone(), texts }
        })
    };
    of_reasons.into_iter().chain(of_checks).flat_map(read).collect()
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}: {}\n", self.name, self.of)?;
        let rows: Vec<_> = self.texts.iter().map(|(title, text)| [capitalized(title) + ":", text.clone()]).collect();
        f.write_str(output::table(["", ""], &rows).trim_start())
    }
}

fn all() -> String {
    let mut reasons = Reason::ALL.to_vec();
    reasons.sort_unstable();
    let row = |reason: &Reason| [reason.id().to_owned(), reason.name().to_owned(), reason.title().to_owned()];
    let nodes = output::table(["ID", "WHY A NODE WAITS", "MEANING"], &reasons.iter().map(row).collect::<Vec<_>>());
    let row = |entry: Entry| {
        let meaning = entry.texts.into_iter().next().map(|(_, text)| text).unwrap_or_default();
        let meaning = match Check::ALL.iter().find(|check| check.id() == entry.name) {
            Some(check) => check.title().to_owned(),
            None => meaning,
        };
        [entry.name, entry.of, meaning]
    };
    let others = output::table(["REASON", "OF", "MEANING"], &entries().into_iter().map(row).collect::<Vec<_>>());
    format!("{nodes}\n{others}")
}

/// Returns a name as it is compared: a check is the reason of a condition without its hyphens.
fn folded(name: &str) -> String {
    name.replace('-', "").to_lowercase()
}

fn capitalized(title: &str) -> String {
    let mut characters = title.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

fn unknown(name: &str) -> String {
    let entries = entries();
    let of_nodes = Reason::ALL.iter().flat_map(|reason| [reason.id(), reason.name()]);
    let names = of_nodes.chain(entries.iter().map(|entry| entry.name.as_str()));
    format!(
        "there is no reason or check {name:?}{}; `ccm-operator explain` lists all",
        // Every ID is similar to every other one.
        did_you_mean(name, names.filter(|known| known.len() > 3))
    )
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;
    use crate::apply::change::Action;

    #[test]
    fn a_reason_is_found_by_its_id_and_its_name() {
        for name in ["N07", "n07", "CredentialsRefused", "credentialsrefused"] {
            assert!(explained(name).is_some_and(|text| text.starts_with("N07 CredentialsRefused: ")), "{name}");
        }
        for name in ["", "N7", "N99", "Credential", "N07 "] {
            assert_eq!(explained(name), None, "{name}");
        }
        assert!(unknown("CredentialsRefussed").contains("did you mean `CredentialsRefused`?"));
        assert!(unknown("NoPodRedy").contains("did you mean `NoPodReady`?"));
        assert!(!unknown("N99").contains("did you mean"), "{}", unknown("N99"));
    }

    #[test]
    fn each_meaning_of_a_word_is_printed() {
        let text = explained("BadInput").unwrap();
        assert_eq!(text.matches("BadInput: Condition ").count(), 3, "{text}");
        let leader = explained("NoLeader").unwrap();
        assert!(leader.starts_with("N02 ") && leader.contains("NoLeader: Nodes that are not deleted"), "{leader}");
        assert_eq!(explained("OtherCcm"), explained("other-ccm"));
        let condition = explained("CredentialsFound").unwrap();
        assert!(
            condition.contains("KeyEmpty: Condition CredentialsFound") && !condition.contains("NoPods"),
            "{condition}"
        );
        let expected = "NoPods: Condition Ready\n\nMeaning:     no node fits the pods\nWhat to do:  label the nodes of the \
                        control plane, or change `placement`\n";
        assert_eq!(explained("NoPods").unwrap(), expected);
    }

    #[test]
    fn everything_fits_a_terminal_and_has_no_marks() {
        let pages = Reason::ALL.iter().filter_map(|reason| explained(reason.id()));
        for text in pages.chain(entries().iter().map(ToString::to_string)).chain([all()]) {
            for line in text.lines().filter(|line| !line.starts_with("    ")) {
                assert!(line.chars().count() <= WIDTH, "{line}");
                assert!(!line.contains("](") && !line.contains("**") && !line.starts_with('|'), "{line}");
            }
        }
    }

    /// The files whose texts of one word are reasons, and the words in them that are none.
    const FILES: [&str; 16] = [
        "src/status/ccm.rs",
        "src/status/ccm/starting.rs",
        "src/status/cluster_operator.rs",
        "src/preflight/check.rs",
        "src/preflight/inputs.rs",
        "src/controllers/trusted_ca.rs",
        "src/controllers/ccms/change.rs",
        "src/controllers/ccms/guard/report.rs",
        "src/controllers/ccms/member.rs",
        "src/controllers/ccms/stage.rs",
        "src/controllers/ccms/write.rs",
        "crates/core/src/nodes/guard/why.rs",
        "crates/core/src/plan/limits.rs",
        "crates/core/src/plan/kubernetes/sources.rs",
        "crates/core/src/plan/kubernetes/validation.rs",
        "crates/core/src/provider/versions.rs",
    ];
    const OTHER_WORDS: [&str; 28] = [
        // Conditions and their statuses.
        "Available",
        "CloudConfigControllerAvailable",
        "CloudConfigControllerDegraded",
        "ConfigurationValid",
        "CredentialsFound",
        "Degraded",
        "False",
        "NodeDeletionSafe",
        "NodesInitialized",
        "PreflightPassed",
        "Progressing",
        "Reconciling",
        "Stalled",
        "Tag",
        "True",
        "TrustedCABundleControllerControllerAvailable",
        "TrustedCABundleControllerControllerDegraded",
        "Upgradeable",
        "VersionSupported",
        // Results, kinds and values of fields.
        "REFUSED",
        "CloudControllerOwner",
        "ClusterOperator",
        "ConfigMap",
        "DaemonSet",
        "Recreate",
        "Secret",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];

    #[test]
    fn every_reason_of_a_status_a_check_and_an_event_is_explained() {
        let mut reasons: BTreeSet<String> =
            Check::ALL.iter().flat_map(|check| [check.id(), check.name()]).map(Into::into).collect();
        reasons.extend(Reason::ALL.iter().flat_map(|reason| [reason.id(), reason.name()]).map(Into::into));
        let recorded = [
            Action::Create,
            Action::Configure,
            Action::Recreate,
            Action::Prune,
            Action::Skip,
            Action::Keep,
            Action::Refuse,
        ];
        reasons.extend(recorded.map(|action| capitalized(action.done())));
        for file in FILES {
            let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
            // From each quotation mark on: a mark inside of a text does not hide the rest.
            let words = code.match_indices('"').filter_map(|(at, _)| Some(code[at + 1..].split_once('"')?.0));
            let is_word = |text: &&str| {
                text.starts_with(|first: char| first.is_ascii_uppercase()) && text.chars().all(char::is_alphanumeric)
            };
            reasons.extend(words.filter(is_word).filter(|word| !OTHER_WORDS.contains(word)).map(ToOwned::to_owned));
        }
        let unexplained: Vec<_> = reasons.iter().filter(|reason| explained(reason).is_none()).collect();
        assert_eq!(unexplained, [] as [&String; 0], "docs/reasons.md lacks them");
        assert!(reasons.len() > 120 && reasons.contains("NoPodReady"), "{reasons:?}");
        let names: BTreeSet<_> = reasons.iter().map(|reason| folded(reason)).collect();
        let unused: Vec<_> = entries()
            .into_iter()
            .filter(|entry| !names.contains(&folded(&entry.name)))
            .map(|entry| entry.name)
            .collect();
        assert_eq!(unused, [] as [String; 0], "docs/reasons.md explains what nothing says");
    }
}
