//! The rules for providers, each with the failure that it prevents (pure).
//!
//! The API server accepts many manifests that do not work for a cloud-controller-manager (CCM). A rule is a function over
//! a provider's folder; its result is a list of findings, each with a place.

mod bootstrap;
mod containers;
mod folder;
mod parts;
mod pods;
mod rules;

use serde::Serialize;

use crate::{
    provider::{folder::Bundle, payload::Payload},
    text::{
        output::{Failure, Suite, table, wrap},
        place::{Place, located},
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
    check: fn(Subject) -> Vec<Violation>,
}

/// A place that breaks a rule.
struct Violation {
    file: String,
    place: Place,
    what: String,
}

/// A broken rule of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The provider.
    pub provider: String,
    /// The rule's name.
    pub rule: &'static str,
    /// The file.
    pub file: String,
    /// The place in the file.
    #[serde(flatten)]
    pub place: Place,
    /// What is wrong there.
    pub what: String,
    /// The failure that the rule prevents.
    pub why: &'static str,
    /// How to fix it.
    #[serde(rename = "mend")]
    pub fix: &'static str,
}

/// The checked providers, the rules, and the findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The checked providers.
    pub providers: Vec<String>,
    /// The applied rules.
    pub rules: Vec<&'static str>,
    /// The findings, by provider and rule.
    pub findings: Vec<Finding>,
}

const fn rule(id: &'static str, why: &'static str, fix: &'static str, check: fn(Subject) -> Vec<Violation>) -> Rule {
    Rule { id, why, fix, check }
}

/// The rule of a live API server, which [`Report::with_refusals`] applies.
static DRY_RUN: Rule = rule(
    "cluster-dry-run",
    "the API server of the cluster would refuse the object, and the operator would be degraded",
    "change the manifest as the API server's message says",
    |_| Vec::new(),
);

/// A manifest that the API server refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The provider.
    pub provider: String,
    /// The file.
    pub file: String,
    /// The line of the field that the API server names, otherwise of the object.
    pub place: Place,
    /// The API server's message.
    pub what: String,
}

/// Checks providers. Rules about the install payload apply only if there is one.
pub fn verify(bundles: &[Bundle], payload: Option<&Payload>) -> Report {
    let mut findings = Vec::new();
    for bundle in bundles {
        for Rule { id, why, fix, check } in RULES {
            findings.extend(check(Subject { bundle, payload }).into_iter().map(|Violation { file, place, what }| {
                Finding { provider: bundle.name.clone(), rule: id, file, place, what, why, fix }
            }));
        }
    }
    Report {
        providers: bundles.iter().map(|bundle| bundle.name.clone()).collect(),
        rules: RULES.iter().map(|rule| rule.id).collect(),
        findings,
    }
}

impl Report {
    /// Adds the refusals of a live API server.
    #[must_use]
    pub fn with_refusals(mut self, refusals: Vec<Refusal>) -> Self {
        let Rule { id, why, fix, .. } = DRY_RUN;
        self.rules.push(id);
        self.findings.extend(refusals.into_iter().map(|refusal| {
            let Refusal { provider, file, place, what } = refusal;
            Finding { provider, rule: id, file, place, what, why, fix }
        }));
        self
    }

    /// A table for people: a line for each finding, then the reason and the fix of each broken rule.
    pub fn table(&self) -> String {
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
            found.map(Finding::failure).collect()
        };
        let suite = |provider: &String| Suite {
            name: provider.clone(),
            cases: self.rules.iter().map(|rule| ((*rule).to_owned(), failures(provider, rule))).collect(),
        };
        self.providers.iter().map(suite).collect()
    }
}

impl Rule {
    fn reason(&self) -> String {
        let text = format!("{}. Fix: {}.", self.why, self.fix);
        format!("{}:\n  {}\n", self.id, wrap(&text, 96).join("\n  "))
    }
}

impl Finding {
    fn failure(&self) -> Failure {
        let Self { file, place, what, why, fix, .. } = self;
        Failure { message: located(file, Some(*place), what), text: format!("{why}. Fix: {fix}.") }
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests;
