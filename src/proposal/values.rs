//! The values of the variables of an existing cloud-controller-manager, and of the flags that refer to them (pure).

use std::collections::{BTreeMap, BTreeSet};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::existing::{Existing, VariableSource};
use crate::{
    nodes::observed::runs_script,
    object::reference::{Reference, SECRET},
};

/// The live ConfigMaps and Secrets.
type Found = BTreeMap<Reference, Value>;

/// The value of a variable.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VariableValue {
    /// The variable is not set.
    Absent,
    Known(String),
    /// The API does not show it.
    Unknown,
}

/// Returns a decoded value of a ConfigMap or a Secret.
pub(super) fn plain(object: &Value, key: &str) -> Option<Vec<u8>> {
    let value = object["data"][key].as_str()?;
    if object["kind"] == SECRET.kind { STANDARD.decode(value).ok() } else { Some(value.as_bytes().to_vec()) }
}

/// Returns a value of a ConfigMap or a Secret as text.
fn text(found: &Found, reference: &Reference, key: &str) -> Option<String> {
    String::from_utf8(plain(found.get(reference)?, key)?).ok()
}

impl Existing {
    /// Returns the value of a variable, wherever it comes from.
    pub(super) fn value(&self, name: &str, found: &Found) -> VariableValue {
        let known = |value: Option<String>| value.map_or(VariableValue::Unknown, VariableValue::Known);
        match self.variables(found).get(name) {
            None => VariableValue::Absent,
            Some(VariableSource::Literal(value)) => known(self.expanded(value)),
            Some(VariableSource::Key(reference, key, is_optional)) => match text(found, reference, key) {
                None if *is_optional => VariableValue::Absent,
                value => known(value),
            },
            Some(VariableSource::Field) => VariableValue::Unknown,
        }
    }

    /// Expands the variables from ConfigMaps in the flags. Values of Secrets stay in the Secrets.
    pub(super) fn with_config_maps(&self, found: &Found) -> Self {
        let mut expanded = self.clone();
        for (name, source) in self.variables(found) {
            let VariableSource::Key(reference, key, _) = source else { continue };
            let Some(value) = text(found, &reference, &key).filter(|_| reference.kind != &SECRET) else { continue };
            for flag in expanded.flags.iter_mut().filter_map(|(_, flag)| flag.as_mut()) {
                *flag = flag.replace(&format!("$({name})"), &value);
            }
        }
        expanded
    }

    /// Returns the flags whose values still refer to variables.
    pub(super) fn open_flags(&self) -> BTreeSet<String> {
        let in_shell = runs_script(&self.container);
        let is_open = |value: &str| value.contains("$(") || (in_shell && value.contains('$'));
        let names = self.flags.iter().map(|(name, _)| name);
        names.filter(|name| self.flag(name).is_some_and(is_open)).cloned().collect()
    }
}
