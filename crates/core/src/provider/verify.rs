//! The rules for providers (pure). The page docs/rules.md has the failure that each prevents, so that a report prints the text of
//! the documentation.
//!
//! The API server accepts many manifests that do not work for a cloud-controller-manager (CCM), and also harmful ones.
//! A rule is a function over a provider's folder. Its result is a list of findings, each with a place.

mod containers;
mod fields;
mod folder;
mod kubernetes;
mod parts;
mod pods;
pub mod policy;
mod rules;
pub mod trust;

use std::{collections::BTreeMap, fmt, sync::LazyLock};

use serde::Serialize;

use crate::{
    provider::{Error, Flavor, folder::ParsedProvider, package::Form, payload::Payload},
    text::{
        Place, located,
        output::{Failure, Suite, printable, table, wrap},
    },
};

use parts::{Input, Walk};
pub use policy::Policy;

/// A rule, with the function that checks it.
pub struct Rule {
    /// Its name.
    pub id: &'static str,
    check: Check,
}

/// The providers that a rule is asked of, and its function.
#[derive(Clone, Copy)]
enum Check {
    /// Whether a provider works.
    Works(Walk),
    /// The same of one for any Kubernetes.
    Kubernetes(Walk),
    /// The same of one of ours. Of others a rule below asks for more.
    Own(Walk),
    /// Whether a provider of others can be trusted; no policy can allow a defect.
    Never(Walk),
    /// The same; a policy can allow a defect, by its value.
    Unless(Walk),
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
    pub form: Option<Form>,
    providers: Vec<String>,
    /// The rules by their names.
    pub rules: Vec<&'static str>,
    /// The findings, by provider and rule.
    pub findings: Vec<Finding>,
}

const fn rule(id: &'static str, check: Check) -> Rule {
    Rule { id, check }
}

/// The failure that each rule prevents, and how to fix a finding, by the name of the rule.
static TEXTS: LazyLock<BTreeMap<&str, (&str, &str)>> = LazyLock::new(|| {
    let row = |line: &'static str| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ");
    let rows = include_str!("../../../../docs/rules.md").lines().filter_map(row);
    rows.filter_map(|(id, texts)| Some((id, texts.split_once(" | ")?))).collect()
});

/// The rule of a live API server, whose findings are those of a dry run.
pub static DRY_RUN: Rule = rule("cluster-dry-run", Check::Works(Walk::Provider(|_, _| {})));

/// Every rule: first those that ask whether a provider works.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    rules::RULES.iter().chain(trust::RULES)
}

/// Checks providers. Those of others have a policy, which says what they may have beyond the rules for them. Rules about the install
/// payload apply only if there is one.
pub fn verify(parsed_providers: &[ParsedProvider], payload: Option<&Payload>, policy: Option<&Policy>) -> Report {
    let findings = |table| findings(parsed_providers, table, payload, policy);
    Report {
        form: None,
        providers: parsed_providers.iter().map(ParsedProvider::title).collect(),
        rules: rules().filter(|rule| rule.is_asked(policy)).map(|rule| rule.id).collect(),
        findings: [rules::RULES, trust::RULES].into_iter().flat_map(findings).collect(),
    }
}

/// What makes providers of others not to be trusted, and the policy does not allow.
pub fn check(parsed_providers: &[ParsedProvider], policy: &Policy) -> Vec<Finding> {
    findings(parsed_providers, trust::RULES, None, Some(policy))
}

fn findings(
    parsed_providers: &[ParsedProvider],
    table: &'static [Rule],
    payload: Option<&Payload>,
    policy: Option<&Policy>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for parsed in parsed_providers {
        for rule in table.iter().filter(|rule| rule.is_asked(policy)) {
            for (defect, value) in rule.defects(parsed, payload) {
                let is_allowed = |value| policy.is_some_and(|policy| policy.allows(&parsed.name, rule.id, value));
                if !value.as_deref().is_some_and(is_allowed) {
                    findings.push(Finding { value, ..rule.finding(&parsed.title(), defect) });
                }
            }
        }
    }
    findings
}

impl Report {
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
        let case = |provider: &String, rule: &'static str| {
            let own = self.findings.iter().filter(|one| one.rule == rule && one.provider == *provider);
            let failure =
                |one: &Finding| Failure { message: located(&one.file, Some(one.place), &one.what), text: one.advice() };
            (rule.to_owned(), own.map(failure).collect())
        };
        let suite = |provider: &String| Suite {
            name: provider.clone(),
            cases: self.rules.iter().map(|rule| case(provider, rule)).collect(),
        };
        self.providers.iter().map(suite).collect()
    }
}

impl Rule {
    fn texts(&self) -> (&'static str, &'static str) {
        TEXTS.get(self.id).copied().unwrap_or_default()
    }

    /// The failure that it prevents.
    pub fn why(&self) -> &'static str {
        self.texts().0
    }

    /// Whether a policy can allow a finding.
    pub fn can_be_allowed(&self) -> bool {
        matches!(self.check, Check::Unless(_))
    }

    /// Whether it is asked of providers of others, with a policy, or else of ours.
    fn is_asked(&self, policy: Option<&Policy>) -> bool {
        match self.check {
            Check::Works(_) | Check::Kubernetes(_) => true,
            Check::Own(_) => policy.is_none(),
            Check::Never(_) | Check::Unless(_) => policy.is_some(),
        }
    }

    /// The defects of a provider, each with the value by which a policy allows it.
    fn defects(&self, parsed: &ParsedProvider, payload: Option<&Payload>) -> Vec<(Error, Option<String>)> {
        match self.check {
            Check::Kubernetes(_) if parsed.flavor != Flavor::Kubernetes => Vec::new(),
            Check::Works(walk)
            | Check::Kubernetes(walk)
            | Check::Own(walk)
            | Check::Never(walk)
            | Check::Unless(walk) => walk.defects(Input { parsed, payload }),
        }
    }

    /// A defect of a provider as a finding of this rule.
    pub fn finding(&self, provider: &str, defect: Error) -> Finding {
        let (Self { id: rule, .. }, Error { file, place, problem: what }) = (self, defect);
        let ((why, fix), place) = (self.texts(), place.unwrap_or(Place::line(1)));
        Finding { provider: provider.to_owned(), rule, file, place, what, value: None, why, fix }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", located(&self.file, Some(self.place), &self.what), self.rule)
    }
}

impl Finding {
    fn advice(&self) -> String {
        format!("{}. Fix: {}.", self.why, self.fix)
    }

    fn reason(&self) -> String {
        format!("{}:\n  {}\n", self.rule, wrap(&self.advice(), 96).join("\n  "))
    }
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests;
