//! The ConfigMaps and Secrets that a `CloudControllerManager` names: the keys that they need, and their problems
//! (pure).
//!
//! Only a digest of their data, the names of the keys, and the findings of the configuration's checker are kept.

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    api::spec::KeyReference,
    facts::ccm::Ccm,
    object::reference::{self, Reference, SECRET},
    provider::kubernetes::{ConfigFile, Descriptor},
    text::located,
};

/// The purpose for which pods read an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The cloud's configuration.
    CloudConfig,
    /// The credentials for the cloud.
    Credentials,
    /// Trusted certificates.
    TrustBundle,
}

impl Use {
    /// The field that names the object.
    fn field(self) -> &'static str {
        match self {
            Self::CloudConfig => "spec.cloudConfig",
            Self::Credentials => "spec.credentials.secretRef",
            Self::TrustBundle => "spec.trustBundle.configMapRef",
        }
    }
}

/// An object that a `CloudControllerManager` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The purpose of reading it.
    pub usage: Use,
    /// The object.
    pub reference: Reference,
    /// The keys that it must have. `*` stands for any text.
    keys: Vec<String>,
    /// The keys that it may have.
    optional_keys: Vec<String>,
    /// The checker of the value of its only key.
    file: Option<ConfigFile>,
    /// The keys whose values become environment variables, which have no line breaks at their ends.
    variables: BTreeSet<String>,
}

/// The checkers of an object's values, by key. Several providers may read the same value.
pub type Checkers = BTreeMap<String, Vec<ConfigFile>>;

/// Returns the objects that a `CloudControllerManager` names and its provider reads.
pub fn named(descriptor: &Descriptor, ccm: &Ccm) -> Vec<Named> {
    let spec = &ccm.spec;
    let secret = |name: &str| Reference::secret(&spec.namespace, name);
    let config_map = |name: &str| Reference::config_map(&spec.namespace, name);
    let config = descriptor.cloud_config.as_ref().zip(spec.cloud_config.as_ref()).and_then(|(file, config)| {
        let (reference, key) = match (&config.config_map_ref, &config.secret_ref) {
            (Some(KeyReference { name, key }), _) => (config_map(name), key),
            (None, Some(KeyReference { name, key })) => (secret(name), key),
            (None, None) => return None,
        };
        let (keys, file) = (vec![key.clone()], Some(file.clone()));
        Some(Named {
            usage: Use::CloudConfig,
            reference,
            keys,
            optional_keys: Vec::new(),
            file,
            variables: BTreeSet::new(),
        })
    });
    let credentials = descriptor.credentials.as_ref().zip(spec.credentials.as_ref()).map(|(needed, given)| Named {
        usage: Use::Credentials,
        reference: secret(&given.secret_ref.name),
        keys: needed.keys.clone(),
        optional_keys: needed.optional_keys.clone(),
        file: None,
        variables: needed.environment.values().cloned().collect(),
    });
    let bundle = spec.trust_bundle.as_ref().map(|bundle| Named {
        usage: Use::TrustBundle,
        reference: config_map(&bundle.config_map_ref.name),
        keys: vec![bundle.config_map_ref.key.clone()],
        optional_keys: Vec::new(),
        file: None,
        variables: BTreeSet::new(),
    });
    [config, credentials, bundle].into_iter().flatten().collect()
}

/// Returns the checkers for each of these objects.
pub fn checks<'a>(named: impl Iterator<Item = &'a Named>) -> BTreeMap<Reference, Checkers> {
    let mut checks: BTreeMap<Reference, Checkers> = BTreeMap::new();
    for one in named {
        let of_object = checks.entry(one.reference.clone()).or_default();
        if let (Some(key), Some(file)) = (one.keys.first(), &one.file) {
            let files = of_object.entry(key.clone()).or_default();
            if !files.contains(file) {
                files.push(file.clone());
            }
        }
    }
    checks
}

/// The part of an object that is kept.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The digest of its data.
    pub digest: String,
    keys: BTreeMap<String, Content>,
}

/// The stored information about a value.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
enum Content {
    /// The value is empty.
    Empty,
    /// The value is not empty.
    Given {
        /// The result of each checker, by the name of its file.
        checked: BTreeMap<String, Checked>,
        /// Whether its last character ends a line.
        ends_line: bool,
    },
}

/// The human-readable result of a checker.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
enum Checked {
    /// The value is accepted. These settings will be ignored.
    Accepted(Vec<String>),
    /// The value is refused for this reason.
    Refused(String),
}

impl Source {
    /// Reads a live ConfigMap or Secret, with its metadata.
    pub fn of(object: &Value, reference: &Reference, checks: &Checkers) -> Self {
        let content = |key: &str, value: &str| {
            let decoded;
            let text = if reference.kind == &SECRET {
                decoded = String::from_utf8_lossy(&STANDARD.decode(value).unwrap_or_default()).into_owned();
                &decoded
            } else {
                value
            };
            if text.trim().is_empty() {
                return Content::Empty;
            }
            let located = |problem: crate::text::Problem| {
                located(format_args!("key {key} of {reference}"), problem.place, &problem.message)
            };
            let checked = |file: &ConfigFile| match file.check(text) {
                Ok(warnings) => Checked::Accepted(warnings.into_iter().map(located).collect()),
                Err(problem) => Checked::Refused(located(problem)),
            };
            let files = checks.get(key).into_iter().flatten();
            Content::Given {
                checked: files.map(|file| (file.file.clone(), checked(file))).collect(),
                ends_line: text.ends_with('\n'),
            }
        };
        let data = object["data"].as_object().into_iter().flatten();
        let keys = data.map(|(key, value)| (key.clone(), content(key, value.as_str().unwrap_or_default())));
        Self { digest: reference::live_digest(reference.kind, object), keys: keys.collect() }
    }

    /// Returns the keys that match a pattern, with their contents.
    fn like<'a>(&'a self, pattern: &'a str) -> impl Iterator<Item = (&'a String, &'a Content)> {
        self.keys.iter().filter(move |(key, _)| fits(pattern, key))
    }
}

/// Whether a key matches a pattern of a descriptor.
pub fn fits(pattern: &str, key: &str) -> bool {
    match pattern.split_once('*') {
        Some((start, end)) => key.len() > start.len() + end.len() && key.starts_with(start) && key.ends_with(end),
        None => key == pattern,
    }
}

/// The state of an object that a `CloudControllerManager` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// The object does not exist.
    Absent,
    /// The object cannot be read, for this reason.
    Unreadable(String),
    /// The object exists.
    Present(Source),
}

/// The problem of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputProblem {
    /// A one-word reason for programs.
    pub reason: &'static str,
    /// The human-readable problem, its place and its fix.
    pub message: String,
}

/// Returns the problem of a named object, or else warnings: settings that will be ignored, and values that programs may not accept.
pub fn check(named: &Named, found: &SourceState) -> Result<Vec<String>, InputProblem> {
    let Named { usage, reference, keys, .. } = named;
    let field = usage.field();
    let refuse = |reason, message| Err(InputProblem { reason, message });
    let source = match found {
        SourceState::Present(source) => source,
        SourceState::Absent => {
            return refuse("NotFound", format!("{field}: {reference} does not exist: create it"));
        }
        SourceState::Unreadable(why) => {
            let message = format!("{field}: {reference} cannot be read: {why}");
            return refuse("NotReadable", message);
        }
    };
    let mut warnings = Vec::new();
    for key in keys {
        let mut contents = source.like(key).peekable();
        if contents.peek().is_none() {
            let there: Vec<_> = source.keys.keys().map(String::as_str).collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            return refuse("KeyNotFound", format!("{field}: {reference} has no key {key}; it has {there}"));
        }
        for (key, content) in contents {
            match content {
                Content::Empty => {
                    return refuse("KeyEmpty", format!("{field}: the key {key} of {reference} is empty"));
                }
                Content::Given { checked, .. } => match named.file.as_ref().and_then(|file| checked.get(&file.file)) {
                    Some(Checked::Refused(problem)) => return refuse("Invalid", format!("{field}: {problem}")),
                    Some(Checked::Accepted(found)) => warnings.extend(found.iter().cloned()),
                    None => {}
                },
            }
        }
    }
    for key in keys.iter().chain(&named.optional_keys).filter(|key| named.variables.contains(*key)) {
        let ends_line = |(_, content): &(&String, &Content)| matches!(content, Content::Given { ends_line: true, .. });
        let ending = source.like(key).filter(ends_line);
        warnings.extend(ending.map(|(key, _)| format!("{field}: the key {key} of {reference} ends with a line break")));
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests;
