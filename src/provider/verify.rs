//! The rules for providers, each with the failure that it prevents (pure).
//!
//! The API server accepts many manifests that do not work for a cloud-controller-manager (CCM). A rule is a function over
//! a provider's folder; its result is a list of findings, each with a place.

mod containers;
pub(super) mod fields;
pub(super) mod folder;
pub(super) mod parts;
pub(super) mod pods;
mod rules;
mod upstream;

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::{
    provider::{Error, folder::Bundle, package::Form, payload::Payload},
    text::{
        Place, located,
        output::{Failure, Suite, printable, table, wrap},
    },
};

use parts::Subject;
pub use rules::RULES;

/// A rule, with the function that checks it.
pub struct Rule<C> {
    /// Its name.
    pub id: &'static str,
    /// The failure that it prevents.
    pub why: &'static str,
    /// How to fix a finding.
    pub fix: &'static str,
    pub(super) check: C,
}

/// The defects of a provider.
pub type Check = fn(Subject) -> Vec<Error>;

/// A broken rule of a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    provider: String,
    rule: &'static str,
    file: String,
    #[serde(flatten)]
    place: Place,
    what: String,
    /// What a policy has to list for the provider under this rule to allow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    why: &'static str,
    fix: &'static str,
}

/// The checked providers, the rules, and the findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What a package was read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    form: Option<Form>,
    providers: Vec<String>,
    rules: Vec<&'static str>,
    /// The findings, by provider and rule.
    pub findings: Vec<Finding>,
}

pub(super) const fn rule<C: Copy>(id: &'static str, why: &'static str, fix: &'static str, check: C) -> Rule<C> {
    Rule { id, why, fix, check }
}

/// The rule of a live API server; see [`Report::with`].
pub static DRY_RUN: Rule<()> = rule(
    "cluster-dry-run",
    "the API server of the cluster would refuse the object, and the operator would be degraded",
    "change the manifest as the API server's message says",
    (),
);

/// Checks providers. Rules about the install payload apply only if there is one.
pub fn verify(bundles: &[Bundle], payload: Option<&Payload>) -> Report {
    let check = |rule: &'static Rule<Check>, bundle: &Bundle| -> Vec<Finding> {
        let defects = (rule.check)(Subject { bundle, payload }).into_iter();
        defects.map(|defect| rule.finding(&bundle.title(), defect)).collect()
    };
    Report {
        form: None,
        providers: bundles.iter().map(Bundle::title).collect(),
        rules: RULES.iter().map(|rule| rule.id).collect(),
        findings: bundles.iter().flat_map(|bundle| RULES.iter().flat_map(move |rule| check(rule, bundle))).collect(),
    }
}

impl Report {
    /// The same of a package that was read from this.
    #[must_use]
    pub fn of_form(self, form: Form) -> Self {
        Self { form: Some(form), ..self }
    }

    /// Adds the findings of further rules.
    #[must_use]
    pub fn with(mut self, rules: impl IntoIterator<Item = &'static str>, findings: Vec<Finding>) -> Self {
        self.rules.extend(rules);
        self.findings.extend(findings);
        self
    }

    /// Leaves rules out.
    #[must_use]
    pub(super) fn without(mut self, rules: &[&str]) -> Self {
        self.rules.retain(|rule| !rules.contains(rule));
        self.findings.retain(|finding| !rules.contains(&finding.rule));
        self
    }

    /// A table for people: a line for each finding, then the reason and the fix of each broken rule.
    pub fn table(&self) -> String {
        printable(&self.lines())
    }

    fn lines(&self) -> String {
        let (providers, rules) = (self.providers.len(), self.rules.len());
        let form = self.form.map(|form| format!("read as {}: ", form.words())).unwrap_or_default();
        let checked = format!("{form}{} checked by {rules} rules", count(providers, "provider"));
        if self.findings.is_empty() {
            return format!("{checked}: nothing found\n");
        }
        let row = |finding: &Finding| {
            let Finding { rule, file, place, what, .. } = finding;
            [(*rule).to_owned(), format!("{file}:{place}"), what.clone()]
        };
        let rows: Vec<_> = self.findings.iter().map(row).collect();
        let of_rule = |id: &&str| self.findings.iter().find(|finding| finding.rule == *id);
        let reasons: Vec<_> = self.rules.iter().filter_map(of_rule).map(Finding::reason).collect();
        let found = count(self.findings.len(), "finding");
        format!("{}\n{}\n{checked}: {found}\n", table(["RULE", "WHERE", "WHAT"], &rows), reasons.concat())
    }

    /// JUnit's form: a suite for each provider, a case for each rule.
    pub fn suites(&self) -> Vec<Suite> {
        let mut by_rule = BTreeMap::<(&str, &str), Vec<Failure>>::new();
        for Finding { provider, rule, file, place, what, why, fix, .. } in &self.findings {
            let failure = Failure { message: located(file, Some(*place), what), text: format!("{why}. Fix: {fix}.") };
            by_rule.entry((provider, rule)).or_default().push(failure);
        }
        let mut suites = Vec::new();
        for provider in &self.providers {
            let failures = |rule: &&'static str| {
                ((*rule).to_owned(), by_rule.remove(&(provider.as_str(), *rule)).unwrap_or_default())
            };
            suites.push(Suite { name: provider.clone(), cases: self.rules.iter().map(failures).collect() });
        }
        suites
    }
}

impl<C> Rule<C> {
    /// A defect of a provider as a finding of this rule.
    pub fn finding(&self, provider: &str, defect: Error) -> Finding {
        let (Self { id: rule, why, fix, .. }, Error { file, place, problem: what }) = (self, defect);
        let place = place.unwrap_or(Place::line(1));
        Finding { provider: provider.to_owned(), rule, file, place, what, value: None, why, fix }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", located(&self.file, Some(self.place), &self.what), self.rule)
    }
}

impl Finding {
    /// The same, with what a policy has to list to allow it.
    pub(super) fn allowed_by(self, value: Option<String>) -> Self {
        Self { value, ..self }
    }

    fn reason(&self) -> String {
        let text = format!("{}. Fix: {}.", self.why, self.fix);
        format!("{}:\n  {}\n", self.rule, wrap(&text, 96).join("\n  "))
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests;
