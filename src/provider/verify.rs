//! The rules for providers, each with the failure that it prevents (pure).
//!
//! The API server accepts many manifests that do not work for a cloud-controller-manager (CCM). A rule is a function over
//! a provider's folder; its result is a list of findings, each with a place.

mod containers;
mod folder;
mod parts;
mod pods;
mod rules;
mod upstream;

use serde::Serialize;

use crate::{
    provider::{Error, folder::Bundle, payload::Payload},
    text::{
        Place, located,
        output::{Failure, Suite, printable, table, wrap},
    },
};

use parts::Subject;
pub use rules::RULES;

/// A rule.
pub struct Rule {
    /// Its name.
    pub id: &'static str,
    /// The failure that it prevents.
    pub why: &'static str,
    /// How to fix a finding.
    pub fix: &'static str,
    check: fn(Subject) -> Vec<Error>,
}

/// A broken rule of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    provider: String,
    rule: &'static str,
    file: String,
    #[serde(flatten)]
    place: Place,
    what: String,
    why: &'static str,
    fix: &'static str,
}

/// The checked providers, the rules, and the findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    providers: Vec<String>,
    rules: Vec<&'static str>,
    /// The findings, by provider and rule.
    pub findings: Vec<Finding>,
}

const fn rule(id: &'static str, why: &'static str, fix: &'static str, check: fn(Subject) -> Vec<Error>) -> Rule {
    Rule { id, why, fix, check }
}

/// The rule of a live API server; see [`Report::with_refusals`].
pub static DRY_RUN: Rule = rule(
    "cluster-dry-run",
    "the API server of the cluster would refuse the object, and the operator would be degraded",
    "change the manifest as the API server's message says",
    |_| Vec::new(),
);

/// Checks providers. Rules about the install payload apply only if there is one.
pub fn verify(bundles: &[Bundle], payload: Option<&Payload>) -> Report {
    let check = |rule: &'static Rule, bundle: &Bundle| -> Vec<Finding> {
        let defects = (rule.check)(Subject { bundle, payload }).into_iter();
        defects.map(|defect| rule.finding(&bundle.title(), defect)).collect()
    };
    Report {
        providers: bundles.iter().map(Bundle::title).collect(),
        rules: RULES.iter().map(|rule| rule.id).collect(),
        findings: bundles.iter().flat_map(|bundle| RULES.iter().flat_map(move |rule| check(rule, bundle))).collect(),
    }
}

impl Report {
    /// Adds the findings of a live API server.
    #[must_use]
    pub fn with_refusals(mut self, refusals: Vec<Finding>) -> Self {
        self.rules.push(DRY_RUN.id);
        self.findings.extend(refusals);
        self
    }

    /// A table for people: a line for each finding, then the reason and the fix of each broken rule.
    pub fn table(&self) -> String {
        printable(&self.lines())
    }

    fn lines(&self) -> String {
        let (providers, rules) = (self.providers.len(), self.rules.len());
        let checked = format!("{} checked by {rules} rules", count(providers, "provider"));
        if self.findings.is_empty() {
            return format!("{checked}: nothing found\n");
        }
        let row = |finding: &Finding| {
            let Finding { rule, file, place, what, .. } = finding;
            [(*rule).to_owned(), format!("{file}:{place}"), what.clone()]
        };
        let rows: Vec<_> = self.findings.iter().map(row).collect();
        let broken =
            RULES.iter().chain([&DRY_RUN]).filter(|rule| self.findings.iter().any(|finding| finding.rule == rule.id));
        let reasons: Vec<_> = broken.map(Rule::reason).collect();
        let found = count(self.findings.len(), "finding");
        format!("{}\n{}\n{checked}: {found}\n", table(["RULE", "WHERE", "WHAT"], &rows), reasons.concat())
    }

    /// JUnit's form: a suite for each provider, a case for each rule.
    pub fn suites(&self) -> Vec<Suite> {
        let failures = |provider: &str, rule: &str| -> Vec<Failure> {
            let found = self.findings.iter().filter(|finding| finding.provider == provider && finding.rule == rule);
            let failure = |Finding { file, place, what, why, fix, .. }: &Finding| Failure {
                message: located(file, Some(*place), what),
                text: format!("{why}. Fix: {fix}."),
            };
            found.map(failure).collect()
        };
        let suite = |provider: &String| Suite {
            name: provider.clone(),
            cases: self.rules.iter().map(|rule| ((*rule).to_owned(), failures(provider, rule))).collect(),
        };
        self.providers.iter().map(suite).collect()
    }
}

impl Rule {
    /// A defect of a provider as a finding of this rule.
    pub fn finding(&self, provider: &str, defect: Error) -> Finding {
        let (Self { id: rule, why, fix, .. }, Error { file, place, problem: what }) = (self, defect);
        let place = place.unwrap_or(Place::line(1));
        Finding { provider: provider.to_owned(), rule, file, place, what, why, fix }
    }

    fn reason(&self) -> String {
        let text = format!("{}. Fix: {}.", self.why, self.fix);
        format!("{}:\n  {}\n", self.id, wrap(&text, 96).join("\n  "))
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests;
