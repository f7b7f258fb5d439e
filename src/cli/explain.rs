//! The command `explain`: prints the page of a reason why a node waits.

use clap::Args;

use super::flags::{print, wrong_usage};
use crate::{
    nodes::{pages, reason::Reason},
    text::{output, suggest::did_you_mean},
};

#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The reason why a node waits, by its id or its name, such as `N07` or `CredentialsRefused` [default: a table of all].
    pub reason: Option<String>,
}

pub(super) fn run(args: &ExplainArgs) -> anyhow::Result<()> {
    let Some(name) = &args.reason else {
        let row = |reason: &Reason| [reason.id().to_owned(), reason.name().to_owned(), reason.title().to_owned()];
        let mut reasons = Reason::ALL.to_vec();
        reasons.sort_unstable();
        let rows: Vec<_> = reasons.iter().map(row).collect();
        return print(&output::table(["ID", "REASON", "MEANING"], &rows));
    };
    match named(name) {
        Some(reason) => print(&format!("{}\n", pages::page(reason).unwrap_or_else(|| reason.title()))),
        None => Err(wrong_usage(&unknown(name))),
    }
}

/// Returns the reason with an ID or a name, in upper or lower case.
fn named(name: &str) -> Option<Reason> {
    let is_it = |reason: &&Reason| reason.id().eq_ignore_ascii_case(name) || reason.name().eq_ignore_ascii_case(name);
    Reason::ALL.iter().find(is_it).copied()
}

fn unknown(name: &str) -> String {
    let names = Reason::ALL.iter().flat_map(|reason| [reason.id(), reason.name()]);
    format!(
        "there is no reason {name:?} why a node waits{}; `ccm-operator explain` lists all; the reasons in the conditions of a \
         CloudControllerManager are in docs/any-kubernetes.md, \"If it does not become ready\"",
        // Every ID is similar to every other one.
        did_you_mean(name, names.filter(|known| known.len() > 3))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_found_by_its_id_and_its_name() {
        for name in ["N07", "n07", "CredentialsRefused", "credentialsrefused"] {
            assert_eq!(named(name), Some(Reason::CredentialsRefused), "{name}");
        }
        for name in ["", "N7", "N99", "Credentials", "N07 "] {
            assert_eq!(named(name), None, "{name}");
        }
        assert!(unknown("CredentialsRefussed").contains("did you mean `CredentialsRefused`?"));
        assert!(!unknown("N99").contains("did you mean"), "{}", unknown("N99"));
        let heading = "If it does not become ready";
        assert!(unknown("RolloutStuck").contains(heading));
        let page = include_str!("../../docs/any-kubernetes.md");
        assert!(page.contains(&format!("\n## {heading}\n")) && page.contains("| `RolloutStuck` |"));
    }
}
