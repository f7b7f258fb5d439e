//! Computes a cluster's configuration without the cluster, for `ccm-operator cloud-config` (pure).
//!
//! It shares [`cloud_conf::compute`] with the controller; only the source of the inputs differs.

use serde_json::Value;

use crate::{
    config::{
        CloudConfigSettings, ConfigSource,
        cloud_conf::{self, Error, Inputs, Synced},
    },
    facts::Facts,
    object::reference::Reference,
    text::{diff, mask},
};

/// The lines of context of a diff.
const CONTEXT_LINES: usize = 3;

/// A configuration before and after its completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The source's name, for people.
    pub from: String,
    /// The source.
    pub before: String,
    /// The result.
    pub synced: Synced,
}

impl Preview {
    /// Computes the configuration. `config_map` is the source, `None` for a cluster without one.
    pub fn new(settings: &CloudConfigSettings, facts: &Facts, config_map: Option<&Value>) -> Result<Self, Error> {
        let user = facts.cloud_config.config_map.as_ref();
        let metadata = |key: &str| config_map.and_then(|found| found["metadata"][key].as_str());
        let (namespace, name) = (metadata("namespace"), metadata("name"));
        let is_managed = settings.sources.contains(&ConfigSource::Managed)
            && (namespace, name) == (Some(cloud_conf::MANAGED_NAMESPACE), Some(cloud_conf::MANAGED_NAME));
        // A manifest may lack its namespace, and before it is applied also its name.
        let is_named = user.is_some_and(|Reference { namespace: of_user, name: named, .. }| {
            namespace.is_none_or(|namespace| namespace == of_user) && name.is_none_or(|name| name == named)
        });
        if config_map.is_some() && !is_managed && !is_named {
            let given = [namespace, name].into_iter().flatten().collect::<Vec<_>>().join("/");
            let named = match user {
                None => "Infrastructure cluster names none".to_owned(),
                Some(Reference { namespace, name, .. }) => {
                    format!("Infrastructure cluster names {name:?}, of namespace {namespace}")
                }
            };
            return Err(Error(format!(
                "the cluster would not read ConfigMap {given}: {named}. Set spec.cloudConfig of Infrastructure cluster, or \
                 give the ConfigMap that it names"
            )));
        }
        let (managed, user) = if is_managed { (config_map, None) } else { (None, config_map) };
        let synced = cloud_conf::compute(&Inputs { settings, facts, managed, user })?;
        let key = |key| Some(config_map?["data"][key].as_str()?.to_owned());
        let before = key(cloud_conf::KEY).or_else(|| key(&facts.cloud_config.key)).unwrap_or_default();
        Ok(Self { from: synced.from.clone().unwrap_or_else(|| "no configuration".to_owned()), before, synced })
    }

    /// Returns the changes and their rules, with secret-like values masked. Empty if nothing changed.
    pub fn diff(&self) -> String {
        let (before, after) = (mask::text(&self.before), mask::text(self.synced.text()));
        let to = format!("ConfigMap {}, key {}", cloud_conf::TARGET_NAME, cloud_conf::KEY);
        let mut text = diff::unified((&self.from, &before), (&to, &after), CONTEXT_LINES);
        for change in &self.synced.changes {
            text.extend(["# ", &mask::message(&change.key), ": ", change.rule, "\n"]);
        }
        text
    }
}

#[cfg(test)]
mod tests;
