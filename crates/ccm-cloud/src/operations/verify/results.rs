//! The results of `verify` in each format (pure).

use ccm_drivers::conformance::{Outcome, Report, instance_names};
use clap::ValueEnum;

use crate::{
    output::{Format, on_one_line, table},
    text::output::{Failure, Outcome as Ended, Suite, junit},
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

/// Whether no check has failed, at least one has passed, and nothing is left, nor may be.
pub(super) fn is_good(Report { results, left, list_error, .. }: &Report) -> bool {
    let has = |is: fn(&Outcome) -> bool| results.iter().any(|(_, outcome)| is(outcome));
    left.is_empty()
        && list_error.is_none()
        && has(|outcome| *outcome == Outcome::Passed)
        && !has(|outcome| matches!(outcome, Outcome::Failed(_)))
}

impl ReportFormat {
    /// The format of what is no result of a check; `None` for JUnit, which has only results.
    pub(super) fn of_values(self) -> Option<Format> {
        match self {
            Self::Table => Some(Format::Table),
            Self::Json => Some(Format::Json),
            Self::Yaml => Some(Format::Yaml),
            Self::Junit => None,
        }
    }

    pub(super) fn write(self, report: &Report) -> anyhow::Result<String> {
        match self.of_values() {
            Some(format) => format.write(report, || for_people(report)),
            None => Ok(for_junit(report)),
        }
    }
}

/// What to do about instances that are left.
pub(super) const HOW_TO_DELETE: &str =
    "delete them with verify --clean-up or, if that deletes them neither, with the cloud's own tool";

/// Why it is not known what is left, and what to do.
fn not_known(Report { run, list_error, .. }: &Report) -> Option<String> {
    let reason = list_error.as_ref()?;
    let name = instance_names(run)[0].trim_end_matches('1').to_owned();
    Some(format!(
        "the list of instances could not be read ({}): look for names that begin with {name} with the cloud's own tool, or run \
         verify --clean-up when the list can be read",
        on_one_line(reason)
    ))
}

fn for_people(report: &Report) -> String {
    let Report { results, left, .. } = report;
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
        text.extend([HOW_TO_DELETE, "\n"]);
    }
    if let Some(reason) = not_known(report) {
        text.extend(["NOT KNOWN: ", &reason, "\n"]);
    }
    text
}

fn for_junit(report: &Report) -> String {
    let Report { driver, results, left, .. } = report;
    // One failure with every problem: several failures would be several cases of one name.
    let failed = |problems: &[String], note: String| {
        let message = problems.first().cloned().unwrap_or_default();
        Ended::Run(vec![Failure { message, text: problems.join("\n") + "\n" + &note }])
    };
    let mut cases: Vec<_> = results
        .iter()
        .map(|(check, outcome)| {
            let ended = match outcome {
                Outcome::Passed => Ended::Run(Vec::new()),
                Outcome::Failed(problems) => failed(problems, format!("protects from: {}", check.protects)),
                Outcome::NotRun(reason) => Ended::Skipped(reason.clone()),
            };
            (format!("{} {}", check.id, check.name), ended)
        })
        .collect();
    let left = left.iter().map(|id| format!("NOT DELETED: {id}; {HOW_TO_DELETE}"));
    let left: Vec<_> = left.chain(not_known(report).map(|reason| format!("NOT KNOWN: {reason}"))).collect();
    if !left.is_empty() {
        cases.push(("every instance of the run is deleted".to_owned(), failed(&left, String::new())));
    }
    junit(&[Suite { name: format!("ccm-cloud {driver} verify"), cases }])
}

#[cfg(test)]
mod tests {
    use ccm_drivers::conformance::CHECKS;

    use super::*;

    fn report(outcomes: Vec<Outcome>, left: &[&str]) -> Report {
        let left = left.iter().map(|id| (*id).to_owned()).collect();
        let results = CHECKS.iter().zip(outcomes).collect();
        Report { driver: "d".to_owned(), run: "r".to_owned(), results, left, list_error: None }
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
            let report = report(outcomes.clone(), left);
            assert_eq!(is_good(&report), expected, "{outcomes:?} {left:?}");
            assert!(!is_good(&Report { list_error: Some("why".to_owned()), ..report }));
        }
    }

    #[test]
    fn each_format_shows_what_failed_what_was_not_run_and_what_is_left() {
        let report = report(vec![Outcome::Passed, failed(), not_run()], &["left-1"]);
        let report = Report { list_error: Some("an answer\nof odd form".to_owned()), ..report };
        for format in [ReportFormat::Table, ReportFormat::Json, ReportFormat::Yaml, ReportFormat::Junit] {
            let text = format.write(&report).unwrap();
            let not_run = match format {
                ReportFormat::Table => "not run",
                ReportFormat::Json | ReportFormat::Yaml => "notRun",
                ReportFormat::Junit => "skipped",
            };
            for part in ["got two", not_run, "no second image", "left-1", CHECKS[0].name] {
                assert!(text.contains(part), "{format:?} lacks {part}: {text}");
            }
        }
        let text = for_people(&report);
        let end = "\n1 passed, 1 failed, 1 not run\nNOT DELETED\nleft-1\ndelete them with verify --clean-up or";
        assert!(text.contains(end), "{text}");
        for text in [text, for_junit(&report)] {
            assert!(
                text.contains("NOT KNOWN: the list of instances could not be read (an answer of odd form): "),
                "{text}"
            );
            assert!(text.contains(" ccm-verify-r- ") && text.contains("verify --clean-up when"), "{text}");
        }
        assert!(ReportFormat::Json.write(&report).unwrap().contains("\"listError\": \"an answer"));
    }

    #[test]
    fn junit_has_one_case_for_each_check_whose_name_does_not_change() {
        let names = |outcomes: Vec<Outcome>| {
            let xml = for_junit(&report(outcomes, &[]));
            xml.lines()
                .filter_map(|line| line.trim().strip_prefix("<testcase ")?.split_once("name=\"I"))
                .map(|(_, name)| name.split('"').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let expected: Vec<_> = CHECKS[..3].iter().map(|check| format!("{} {}", &check.id[1..], check.name)).collect();
        assert_eq!(names(vec![Outcome::Passed, failed(), not_run()]), expected);
        assert_eq!(names(vec![not_run(), Outcome::Passed, failed()]), expected);
        let xml = for_junit(&report(vec![Outcome::Passed, failed(), not_run()], &["left-1"]));
        for part in [
            "tests=\"4\" failures=\"2\" skipped=\"1\"",
            "message=\"got two\">got two&#10;and &lt;three&gt;&#10;protects",
        ] {
            assert!(xml.contains(part), "{part}: {xml}");
        }
    }
}
