//! What the manifests of a provider may contain that does not come with this program (pure).
//!
//! The rules of [`super::verify`] ask whether a provider works; these ask what it could do to a cluster, whoever wrote it. What a
//! cloud-controller-manager usually needs is listed, everything else is refused. An administrator allows more by the exact value,
//! in a [`Policy`]; what no cloud-controller-manager needs, or would make every other rule void, cannot be allowed.

mod containers;
mod metadata;
mod objects;
mod pods;
mod policy;
mod rights;
mod rules;
mod secrets;

use std::collections::BTreeSet;

use crate::provider::{
    Error,
    folder::Bundle,
    verify::{Finding, Rule, parts::Subject},
};

pub use policy::Policy;
pub use rules::RULES;

/// The rules of [`super::verify`] that find nothing but what rules here find too, where a policy can allow it.
pub const RESTATED: [&str; 5] = ["capabilities", "host-path", "namespace", "privilege-escalation", "seccomp"];

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

/// The findings that the policy does not allow.
pub fn check(bundles: &[Bundle], policy: &Policy) -> Vec<Finding> {
    let of_rule = |bundle: &Bundle, rule: &ForeignRule| -> Vec<Finding> {
        let is_refused =
            |value: &Option<String>| value.as_ref().is_none_or(|value| !policy.allows(&bundle.name, rule.id, value));
        let refused = rule.defects(bundle).into_iter().filter(|(_, value)| is_refused(value));
        let finding = |(defect, value)| rule.finding(&bundle.title(), defect).allowed_by(value);
        refused.map(finding).collect()
    };
    bundles.iter().flat_map(|bundle| RULES.iter().flat_map(move |rule| of_rule(bundle, rule))).collect()
}

/// What the policy allows these providers, as `rule: value`.
pub fn widened(bundles: &[Bundle], policy: &Policy) -> Vec<String> {
    let allowed: BTreeSet<_> =
        values(bundles).into_iter().filter(|(name, rule, value)| policy.allows(name, rule, value)).collect();
    let words: BTreeSet<_> = allowed.iter().map(|(_, rule, value)| format!("{rule}: {value}")).collect();
    words.into_iter().collect()
}

/// Everything that a policy would have to allow, as (provider, rule, value).
fn values(bundles: &[Bundle]) -> BTreeSet<(&str, &'static str, String)> {
    let of_rule = |bundle: &'_ Bundle, rule: &ForeignRule| -> Vec<(&'static str, String)> {
        rule.defects(bundle).into_iter().filter_map(|(_, value)| Some((rule.id, value?))).collect()
    };
    let of_bundle = |bundle| {
        let values = RULES.iter().flat_map(move |rule| of_rule(bundle, rule));
        values.map(|(rule, value)| (bundle.name.as_str(), rule, value))
    };
    bundles.iter().flat_map(of_bundle).collect()
}

#[cfg(test)]
mod tests;
