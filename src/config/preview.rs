//! What a cluster's configuration becomes, without the cluster (pure): behind `ccm-operator cloud-config`.
//!
//! The same function as the controller's; only where the inputs are from differs.

use serde_json::Value;
use similar::TextDiff;

use crate::{
    config::{
        CloudConfig, ConfigSource,
        cloud_conf::{self, Inputs, Synced},
    },
    facts::Facts,
    object::reference::Reference,
    text::mask,
};

/// A configuration before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Where it is from, for people.
    pub from: String,
    /// The source.
    pub before: String,
    /// What it becomes.
    pub synced: Synced,
}

/// Why it cannot be known what the configuration becomes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The cluster would read another ConfigMap.
    #[error(
        "the cluster would not read ConfigMap {given}: {named}. Set spec.cloudConfig of Infrastructure cluster, or give the \
         ConfigMap that it names"
    )]
    OtherConfigMap {
        /// The one that was given, as far as its manifest says.
        given: String,
        /// What it would read.
        named: String,
    },
    /// The configuration cannot be used.
    #[error(transparent)]
    Sync(#[from] cloud_conf::Error),
}

impl Preview {
    /// Finds out. `config_map` is the source, `None` where the cluster has none.
    pub fn new(settings: &CloudConfig, facts: &Facts, config_map: Option<&Value>) -> Result<Self, Error> {
        let user = facts.cloud_config.config_map.as_ref();
        let metadata = |key: &str| config_map.and_then(|found| found["metadata"][key].as_str());
        let (namespace, name) = (metadata("namespace"), metadata("name"));
        let is_managed = settings.sources.contains(&ConfigSource::Managed)
            && (namespace, name) == (Some(cloud_conf::MANAGED_NAMESPACE), Some(cloud_conf::MANAGED_NAME));
        // A manifest need not have its namespace, nor one on the way to a cluster its name.
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
            return Err(Error::OtherConfigMap { given, named });
        }
        let (managed, user) = if is_managed { (config_map, None) } else { (None, config_map) };
        let synced = cloud_conf::sync(&Inputs { settings, facts, managed, user })?;
        let key = |key| Some(config_map?["data"][key].as_str()?.to_owned());
        let before = key(cloud_conf::KEY).or_else(|| key(&facts.cloud_config.key)).unwrap_or_default();
        Ok(Self { from: synced.from.clone().unwrap_or_else(|| "no configuration".to_owned()), before, synced })
    }

    /// What changed, and which rule changed it; values that look like secrets are masked. Empty when nothing changed.
    pub fn diff(&self) -> String {
        let shown = |text: &str| mask::lines(text).iter().flat_map(|line| [line, "\n"]).collect::<String>();
        let (before, after) = (shown(&self.before), shown(self.synced.text()));
        let mut text = TextDiff::from_lines(&before, &after)
            .unified_diff()
            .header(&self.from, &format!("ConfigMap {}, key {}", cloud_conf::TARGET_NAME, cloud_conf::KEY))
            .to_string();
        for change in &self.synced.changes {
            text.extend(["# ", &change.key, ": ", change.rule, "\n"]);
        }
        text
    }
}

#[cfg(test)]
mod tests;
