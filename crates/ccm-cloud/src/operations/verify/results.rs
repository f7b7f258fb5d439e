//! The results of `verify` in each format (pure).

use ccm_drivers::conformance::{Outcome, Report};
use clap::ValueEnum;

use crate::{
    output::{Format, table},
    text::output::{Failure, Suite, junit},
};

/// The format of the results.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum ReportFormat {
    /// For people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// JUnit's XML.
    Junit,
}

/// Whether no check has failed, at least one has passed, and nothing is left.
pub(super) fn is_good(Report { results, left, .. }: &Report) -> bool {
    let has = |is: fn(&Outcome) -> bool| results.iter().any(|(_, outcome)| is(outcome));
    left.is_empty()
        && has(|outcome| *outcome == Outcome::Passed)
        && !has(|outcome| matches!(outcome, Outcome::Failed(_)))
}

impl ReportFormat {
    pub(super) fn write(self, report: &Report) -> anyhow::Result<String> {
        match self {
            Self::Table => Ok(for_people(report)),
            Self::Json => Format::Json.write(report, String::new),
            Self::Yaml => Format::Yaml.write(report, String::new),
            Self::Junit => Ok(for_junit(report)),
        }
    }
}

fn for_people(Report { results, left, .. }: &Report) -> String {
    let rows = results.iter().map(|(check, outcome)| {
        let reasons = match outcome {
            Outcome::Passed => String::new(),
            Outcome::Failed(problems) => format!("{}; protects from: {}", problems.join("; "), check.protects),
            Outcome::NotRun(reason) => reason.clone(),
        };
        [check.id.to_owned(), check.name.to_owned(), outcome.word().to_owned(), reasons]
    });
    let mut text = table(["ID", "CHECK", "RESULT", "REASON"], rows);
    let count = |word| results.iter().filter(|(_, outcome)| outcome.word() == word).count();
    let counts = ["passed", "failed", "not run"].map(|word| format!("{} {word}", count(word)));
    text.extend(["\n", &counts.join(", "), "\n"]);
    if !left.is_empty() {
        text += &table(["NOT DELETED"], left.iter().map(|id| [id.clone()]));
    }
    text
}

fn for_junit(Report { driver, results, left, .. }: &Report) -> String {
    let failures = |problems: &[String], text: &str| -> Vec<_> {
        problems.iter().map(|message| Failure { message: message.clone(), text: text.to_owned() }).collect()
    };
    let mut cases: Vec<_> = results
        .iter()
        .map(|(check, outcome)| {
            let name = format!("{} {}", check.id, check.name);
            match outcome {
                Outcome::Passed => (name, Vec::new()),
                Outcome::Failed(problems) => (name, failures(problems, check.protects)),
                // Readers show the names of cases that have no failure.
                Outcome::NotRun(reason) => (format!("{name} (not run: {reason})"), Vec::new()),
            }
        })
        .collect();
    if !left.is_empty() {
        cases.push(("every instance of the run is deleted".to_owned(), failures(left, "it could not be deleted")));
    }
    junit(&[Suite { name: format!("ccm-cloud {driver} verify"), cases }])
}

#[cfg(test)]
mod tests {
    use ccm_drivers::conformance::CHECKS;

    use super::*;

    fn report(outcomes: Vec<Outcome>, left: &[&str]) -> Report {
        let left = left.iter().map(|id| (*id).to_owned()).collect();
        Report { driver: "d".to_owned(), run: "r".to_owned(), results: CHECKS.iter().zip(outcomes).collect(), left }
    }

    fn failed() -> Outcome {
        Outcome::Failed(vec!["got two".to_owned(), "and <three>".to_owned()])
    }

    fn not_run() -> Outcome {
        Outcome::NotRun("no second image".to_owned())
    }

    #[test]
    fn a_failed_check_an_instance_that_is_left_and_a_run_without_a_check_are_not_good() {
        for (outcomes, left, expected) in [
            (vec![Outcome::Passed, not_run()], &[][..], true),
            (vec![Outcome::Passed, failed()], &[], false),
            (vec![Outcome::Passed], &["1"], false),
            (vec![not_run()], &[], false),
            (vec![], &[], false),
        ] {
            assert_eq!(is_good(&report(outcomes.clone(), left)), expected, "{outcomes:?} {left:?}");
        }
    }

    #[test]
    fn each_format_shows_what_failed_what_was_not_run_and_what_is_left() {
        let report = report(vec![Outcome::Passed, failed(), not_run()], &["left-1"]);
        for format in [ReportFormat::Table, ReportFormat::Json, ReportFormat::Yaml, ReportFormat::Junit] {
            let text = format.write(&report).unwrap();
            let not_run = if matches!(format, ReportFormat::Json | ReportFormat::Yaml) { "notRun" } else { "not run" };
            for part in ["got two", not_run, "no second image", "left-1", CHECKS[0].name] {
                assert!(text.contains(part), "{format:?} lacks {part}: {text}");
            }
        }
        assert!(for_junit(&report).contains("failures=\"3\""));
        assert!(for_people(&report).contains("\n1 passed, 1 failed, 1 not run\n"));
    }
}
