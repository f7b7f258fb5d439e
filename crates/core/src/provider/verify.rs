//! The rules for providers (pure). The page docs/rules.md has the failure that each rule prevents, and a report prints this
//! text.
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

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::LazyLock,
};

use serde::Serialize;

use crate::{
    provider::{Error, Flavor, folder::ParsedProvider, package::PackageFormat, payload::Payload},
    text::{
        Place, located,
        output::{Failure, Suite, printable, table, wrap},
    },
};

use parts::{RuleInput, Scope};
pub use policy::Policy;

/// A rule for providers.
pub struct Rule {
    /// The name of the rule.
    pub id: &'static str,
    applies_to: AppliesTo,
    scope: Scope,
}

/// The providers that a rule checks, and whether a policy can allow a defect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AppliesTo {
    /// Every provider: the rule checks whether it works.
    Every,
    /// Every provider of the flavor kubernetes: the rule checks whether it works.
    EveryKubernetes,
    /// Built-in providers only, because external ones have a stricter rule about the same fields.
    BuiltIn,
    /// External providers only. No policy can allow a defect.
    External,
    /// External providers only. A policy can allow a defect by its value.
    ExternalUnlessAllowed,
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
    /// The value that a policy has to list under this rule to allow the finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    why: &'static str,
    fix: &'static str,
}

/// The checked providers, the rules, and the findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// The form of the package, if one was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub form: Option<PackageFormat>,
    providers: Vec<String>,
    /// The names of the rules.
    pub rules: Vec<&'static str>,
    /// The findings, by provider and rule.
    pub findings: Vec<Finding>,
}

/// The defects of external providers.
#[derive(Default)]
pub struct ExternalDefects {
    /// The defects that the policy does not allow.
    pub findings: Vec<Finding>,
    /// The defects that the policy allows, as `RULE: VALUE`.
    pub exceptions: Vec<String>,
}

const fn rule(id: &'static str, applies_to: AppliesTo, scope: Scope) -> Rule {
    Rule { id, applies_to, scope }
}

/// The failure that each rule prevents, and how to fix a finding, by the name of the rule.
static TEXTS: LazyLock<BTreeMap<&str, (&str, &str)>> = LazyLock::new(|| {
    let row = |line: &'static str| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ");
    let rows = include_str!("../../../../docs/rules.md").lines().filter_map(row);
    rows.filter_map(|(id, texts)| Some((id, texts.split_once(" | ")?))).collect()
});

/// The rule that a dry run at a live API server checks.
pub static DRY_RUN: Rule = rule("cluster-dry-run", AppliesTo::Every, Scope::Provider(|_, _| {}));

/// Returns every rule, first those that check whether a provider works.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    rules::RULES.iter().chain(trust::RULES)
}

/// Checks providers against all rules that apply to them. External providers have a policy, which may be empty; built-in ones have none.
/// Rules about the install payload apply only if there is one.
pub fn verify(parsed_providers: &[ParsedProvider], payload: Option<&Payload>, policy: Option<&Policy>) -> VerifyReport {
    let findings = |table| defects(parsed_providers, table, payload, policy).findings;
    VerifyReport {
        form: None,
        providers: parsed_providers.iter().map(ParsedProvider::title).collect(),
        rules: rules().filter(|rule| rule.applies_under(policy)).map(|rule| rule.id).collect(),
        findings: [rules::RULES, trust::RULES].into_iter().flat_map(findings).collect(),
    }
}

/// Checks external providers, before their use, against the rules about their possible effects on a cluster.
pub fn check_external(parsed_providers: &[ParsedProvider], policy: &Policy) -> ExternalDefects {
    defects(parsed_providers, trust::RULES, None, Some(policy))
}

fn defects(
    parsed_providers: &[ParsedProvider],
    table: &'static [Rule],
    payload: Option<&Payload>,
    policy: Option<&Policy>,
) -> ExternalDefects {
    let mut findings = Vec::new();
    // Both flavors may need the same exception.
    let mut exceptions = BTreeSet::new();
    for parsed in parsed_providers {
        for rule in table.iter().filter(|rule| rule.applies_under(policy)) {
            for (defect, value) in rule.defects(parsed, payload) {
                match value {
                    Some(value) if policy.is_some_and(|policy| policy.allows(&parsed.name, rule.id, &value)) => {
                        exceptions.insert(format!("{}: {value}", rule.id));
                    }
                    value => findings.push(Finding { value, ..rule.finding(&parsed.title(), defect) }),
                }
            }
        }
    }
    ExternalDefects { findings, exceptions: exceptions.into_iter().collect() }
}

impl VerifyReport {
    /// Formats the report as a table: a line for each finding, then the reason and the fix of each broken rule.
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

    /// Returns the report for JUnit: a suite for each provider, a case for each rule.
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

    /// Returns the failure that the rule prevents.
    pub fn why(&self) -> &'static str {
        self.texts().0
    }

    /// Whether a policy can allow a finding.
    pub fn can_be_allowed(&self) -> bool {
        self.applies_to == AppliesTo::ExternalUnlessAllowed
    }

    /// Whether the rule checks external providers if there is a policy, or built-in ones if there is none.
    fn applies_under(&self, policy: Option<&Policy>) -> bool {
        match self.applies_to {
            AppliesTo::Every | AppliesTo::EveryKubernetes => true,
            AppliesTo::BuiltIn => policy.is_none(),
            AppliesTo::External | AppliesTo::ExternalUnlessAllowed => policy.is_some(),
        }
    }

    /// Returns the defects of a provider, each with the value that allows it in a policy.
    fn defects(&self, parsed: &ParsedProvider, payload: Option<&Payload>) -> Vec<(Error, Option<String>)> {
        if self.applies_to == AppliesTo::EveryKubernetes && parsed.flavor != Flavor::Kubernetes {
            return Vec::new();
        }
        self.scope.defects(RuleInput { parsed, payload })
    }

    /// Returns the finding of this rule for a defect of a provider.
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
    /// Whether it is about an image without a digest, which a provider may have while it is developed.
    pub fn is_about_digests(&self) -> bool {
        self.rule == "external-image-digest"
    }

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
