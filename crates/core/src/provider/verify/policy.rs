//! Exceptions from the rules that an administrator allows for providers (pure).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    provider::{
        folder::ParsedProvider,
        renamed,
        verify::{Rule, rules, trust},
    },
    text::{
        suggest::did_you_mean,
        yaml::{self, Lines, outline::child},
    },
};

/// The exceptions from the rules for each provider, by exact values. By default there are none.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// By provider and rule.
    providers: BTreeMap<String, BTreeMap<String, Vec<Allowed>>>,
}

/// A value, and its line in the file.
#[derive(Clone, Debug)]
struct Allowed {
    value: String,
    line: usize,
}

impl Policy {
    /// Reads the file of `--provider-policy`: a mapping of providers to rules, and of rules to lists of values.
    pub fn parse(text: &str) -> Result<Self, yaml::Error> {
        let mut documents = yaml::documents_with_lines(text)?.into_iter();
        let Some((document, lines)) = documents.next() else { return Ok(Self::default()) };
        if let Some((_, lines)) = documents.next() {
            return Err(yaml::Error::at(lines.of(""), "a second document; a policy is one"));
        }
        let mut providers = BTreeMap::new();
        for (provider, rules) in members(&document, "", &lines, "rules by provider")? {
            let pointer = child("", provider);
            let mut allowed = BTreeMap::new();
            for (rule, values) in members(rules, &pointer, &lines, "lists of values by rule")? {
                let pointer = child(&pointer, rule);
                check_rule(rule).map_err(|problem| yaml::Error::at(lines.of(&pointer), problem))?;
                allowed.insert(rule.clone(), list(values, &pointer, &lines)?);
            }
            providers.insert(provider.clone(), allowed);
        }
        Ok(Self { providers })
    }

    pub(super) fn allows(&self, provider: &str, rule: &str, value: &str) -> bool {
        let values = self.providers.get(provider).and_then(|rules| rules.get(rule));
        values.is_some_and(|values| values.iter().any(|allowed| allowed.value == value))
    }

    /// Returns a warning if the policy names only other providers, because the name may be misspelled.
    pub fn is_of_others(&self, given: &str) -> Option<String> {
        let names: Vec<_> = self.providers.keys().map(String::as_str).collect();
        let is_of_others = !names.is_empty() && !self.providers.contains_key(given);
        is_of_others.then(|| format!("it allows nothing for {given}, only for {}", names.join(", ")))
    }

    /// Returns the values for these providers that allow nothing, because the provider does not use them.
    pub fn unused(&self, parsed_providers: &[ParsedProvider]) -> Vec<yaml::Error> {
        let needed = values(parsed_providers);
        let is_among = |name: &String| parsed_providers.iter().any(|parsed| parsed.name == *name);
        let mut unused = Vec::new();
        for (provider, rules) in self.providers.iter().filter(|(name, _)| is_among(name)) {
            for (rule, allowed) in rules {
                for Allowed { value, line } in allowed {
                    if !needed.contains(&(provider.as_str(), rule.as_str(), value.clone())) {
                        let problem =
                            format!("{provider}: {rule}: unused: nothing of the provider has {value:?}; remove it");
                        unused.push(yaml::Error::at(*line, problem));
                    }
                }
            }
        }
        unused
    }
}

/// Returns a policy file with the exceptions that these providers lack in this policy, or `None` if no policy can allow them.
pub fn policy_for(parsed_providers: &[ParsedProvider], policy: &Policy) -> Option<String> {
    let mut needed = BTreeMap::<&str, BTreeMap<&str, BTreeSet<String>>>::new();
    for (parsed, rule, value) in values_of(parsed_providers) {
        let value = value?;
        if !policy.allows(&parsed.name, rule.id, &value) {
            needed.entry(&parsed.name).or_default().entry(rule.id).or_default().insert(value);
        }
    }
    if needed.is_empty() { None } else { yaml::to_string(&needed).ok() }
}

/// Returns all exceptions that a policy would have to allow, as (provider, rule, value).
pub(super) fn values(parsed_providers: &[ParsedProvider]) -> BTreeSet<(&str, &'static str, String)> {
    values_of(parsed_providers)
        .filter_map(|(parsed, rule, value)| Some((parsed.name.as_str(), rule.id, value?)))
        .collect()
}

/// Returns the value that allows each defect in a policy, if there is one.
fn values_of(
    parsed_providers: &[ParsedProvider],
) -> impl Iterator<Item = (&ParsedProvider, &'static Rule, Option<String>)> {
    let of_rule = |parsed, rule: &'static Rule| {
        rule.defects(parsed, None).into_iter().map(move |(_, value)| (parsed, rule, value))
    };
    parsed_providers.iter().flat_map(move |parsed| trust::RULES.iter().flat_map(move |rule| of_rule(parsed, rule)))
}

fn members<'a>(
    value: &'a Value,
    pointer: &str,
    lines: &Lines,
    what: &str,
) -> Result<&'a serde_json::Map<String, Value>, yaml::Error> {
    value.as_object().ok_or_else(|| yaml::Error::at(lines.of(pointer), format!("expected {what}")))
}

fn check_rule(name: &str) -> Result<(), String> {
    let allowable = || rules().filter(|rule| rule.can_be_allowed()).map(|rule| rule.id);
    let known = allowable().collect::<Vec<_>>().join(", ");
    match trust::RULES.iter().find(|rule| rule.id == name) {
        Some(rule) if rule.can_be_allowed() => Ok(()),
        Some(rule) => Err(format!("{name} cannot be allowed by a policy, because {}; these can: {known}", rule.why())),
        None => Err(renamed::of_rule(name).unwrap_or_else(|| {
            format!("unknown rule `{name}`{}; expected one of {known}", did_you_mean(name, allowable()))
        })),
    }
}

fn list(values: &Value, pointer: &str, lines: &Lines) -> Result<Vec<Allowed>, yaml::Error> {
    let problem = |pointer: &str, what: &str| yaml::Error::at(lines.of(pointer), what);
    let Some(items) = values.as_array() else { return Err(problem(pointer, "expected a list of values")) };
    let value = |(index, item): (usize, &Value)| {
        let pointer = format!("{pointer}/{index}");
        // The only numbers that rules report are ports.
        let text = item.as_str().map(str::to_owned).or_else(|| item.as_u64().map(|number| number.to_string()));
        match text {
            None => Err(problem(&pointer, "expected a text")),
            Some(text) if text.is_empty() => Err(problem(&pointer, "the value is empty")),
            Some(text) if text.contains('*') => {
                Err(problem(&pointer, "a wildcard; values are exact, as `provider verify` reports them"))
            }
            Some(value) => Ok(Allowed { value, line: lines.of(&pointer) }),
        }
    };
    items.iter().enumerate().map(value).collect()
}
