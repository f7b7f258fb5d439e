//! What the manifests of a provider may contain that does not come with this program (pure).
//!
//! The rules of [`super::verify`] ask whether a provider works; these ask what it could do to a cluster, whoever wrote it. What a
//! cloud-controller-manager usually needs is listed, everything else is refused. An administrator allows more by the exact value,
//! in a [`Policy`]; what no cloud-controller-manager needs, or would make every other rule void, cannot be allowed.

mod accounts;
mod containers;
mod metadata;
mod never;
mod objects;
mod pods;
mod policy;
mod prefixes;
mod rights;
mod rules;
mod secrets;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    provider::{
        Error,
        folder::Bundle,
        verify::{Finding, Report, Rule, parts::Subject, verify},
    },
    text::yaml,
};

pub use policy::Policy;
pub use rules::RULES;

/// The rules of [`super::verify`] that find nothing but what rules here find too: there a policy can allow it, or it is no mere advice.
const RESTATED: [&str; 6] =
    ["capabilities", "host-path", "known-field", "namespace", "privilege-escalation", "seccomp"];

/// How names begin that are Kubernetes' own.
const SYSTEM: &str = "system:";

/// A rule for providers that do not come with this program.
pub type ForeignRule = Rule<Check>;

/// Defects, each with the value by which a policy allows it.
type Values = Vec<(Error, String)>;

/// How a rule is checked.
#[derive(Clone, Copy)]
pub enum Check {
    /// A policy cannot allow a defect.
    Never(fn(Subject) -> Vec<Error>),
    /// A policy can allow a defect, by its value.
    Unless(fn(Subject) -> Values),
}

impl ForeignRule {
    /// Whether a policy can allow a finding.
    pub fn can_be_widened(&self) -> bool {
        matches!(self.check, Check::Unless(_))
    }

    /// The defects of a provider, with the value by which a policy allows each.
    fn defects(&self, bundle: &Bundle) -> Vec<(Error, Option<String>)> {
        let subject = Subject { bundle, payload: None };
        match self.check {
            Check::Never(check) => check(subject).into_iter().map(|defect| (defect, None)).collect(),
            Check::Unless(check) => check(subject).into_iter().map(|(defect, value)| (defect, Some(value))).collect(),
        }
    }
}

/// What all rules find in a package, those for every provider and those here, each defect once.
pub fn report(bundles: &[Bundle], policy: &Policy) -> Report {
    let report = verify(bundles, None).without(&RESTATED);
    report.with(RULES.iter().map(|rule| rule.id), check(bundles, policy))
}

/// The findings that the policy does not allow.
pub fn check(bundles: &[Bundle], policy: &Policy) -> Vec<Finding> {
    let is_allowed = |bundle: &Bundle, rule: &ForeignRule, value: &Option<String>| {
        value.as_ref().is_some_and(|value| policy.allows(&bundle.name, rule.id, value))
    };
    let refused = defects(bundles).filter(|(bundle, rule, _, value)| !is_allowed(bundle, rule, value));
    refused.map(|(bundle, rule, defect, value)| rule.finding(&bundle.title(), defect).allowed_by(value)).collect()
}

/// The defects by provider and rule, each with the value by which a policy allows it.
fn defects(bundles: &[Bundle]) -> impl Iterator<Item = (&Bundle, &'static ForeignRule, Error, Option<String>)> {
    let of_rule = |bundle, rule: &'static ForeignRule| {
        rule.defects(bundle).into_iter().map(move |(defect, value)| (bundle, rule, defect, value))
    };
    bundles.iter().flat_map(move |bundle| RULES.iter().flat_map(move |rule| of_rule(bundle, rule)))
}

/// What the policy allows these providers, as `rule: value`.
pub fn widened(bundles: &[Bundle], policy: &Policy) -> Vec<String> {
    let allowed: BTreeSet<_> =
        values(bundles).into_iter().filter(|(name, rule, value)| policy.allows(name, rule, value)).collect();
    let words: BTreeSet<_> = allowed.iter().map(|(_, rule, value)| format!("{rule}: {value}")).collect();
    words.into_iter().collect()
}

/// The file of a policy that allows these providers what this one does not; `None` if no policy can.
pub fn policy_for(bundles: &[Bundle], policy: &Policy) -> Option<String> {
    let mut needed = BTreeMap::<&str, BTreeMap<&str, BTreeSet<String>>>::new();
    for (bundle, rule, _, value) in defects(bundles) {
        let value = value.filter(|_| rule.can_be_widened())?;
        if !policy.allows(&bundle.name, rule.id, &value) {
            needed.entry(&bundle.name).or_default().entry(rule.id).or_default().insert(value);
        }
    }
    if needed.is_empty() { None } else { yaml::to_string(&needed).ok() }
}

/// Everything that a policy would have to allow, as (provider, rule, value).
fn values(bundles: &[Bundle]) -> BTreeSet<(&str, &'static str, String)> {
    defects(bundles).filter_map(|(bundle, rule, _, value)| Some((bundle.name.as_str(), rule.id, value?))).collect()
}

#[cfg(test)]
pub(crate) mod tests;
