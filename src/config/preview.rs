//! What a cluster's configuration becomes, without the cluster (pure): behind `ccm-operator cloud-config`.
//!
//! The same function as the controller's; only where the inputs are from differs.

use serde_json::Value;
use similar::TextDiff;

use crate::config::{
    Context,
    cloud_conf::{self, Inputs, Synced},
};
use crate::{
    config::ConfigSource,
    facts::{self, Sources},
    provider::catalog::{Catalog, Selection},
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
    /// The cluster's platform is not known.
    #[error(transparent)]
    Facts(#[from] facts::Error),
    /// Nothing is synced for the cluster.
    #[error("no cloud configuration is synced for this cluster: {0}")]
    Nothing(String),
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
    pub fn new(
        catalog: &Catalog,
        sources: &Sources,
        config_map: Option<&Value>,
        feature_gates: Vec<String>,
    ) -> Result<Self, Error> {
        let provider = match catalog.select(sources)? {
            Selection::Provider(provider) => provider,
            Selection::Nothing(why) => return Err(Error::Nothing(why)),
        };
        let why = || format!("its provider {} needs none", provider.name());
        let settings = provider.descriptor.cloud_config.as_ref().ok_or_else(|| Error::Nothing(why()))?;
        let named = sources.infrastructure.as_ref().map(|found| found.spec.cloud_config.clone()).unwrap_or_default();
        let metadata = |key: &str| config_map.and_then(|found| found["metadata"][key].as_str());
        let (namespace, name) = (metadata("namespace"), metadata("name"));
        let is_managed = settings.sources.contains(&ConfigSource::Managed)
            && (namespace, name) == (Some(cloud_conf::MANAGED_NAMESPACE), Some(cloud_conf::MANAGED_NAME));
        // A manifest need not say its namespace, nor one on the way to a cluster its name.
        let is_named = !named.name.is_empty()
            && namespace.is_none_or(|namespace| namespace == cloud_conf::USER_NAMESPACE)
            && name.is_none_or(|name| name == named.name);
        if config_map.is_some() && !is_managed && !is_named {
            let given = [namespace, name].into_iter().flatten().collect::<Vec<_>>().join("/");
            let named = match named.name.as_str() {
                "" => "Infrastructure cluster names none".to_owned(),
                name => format!("Infrastructure cluster names {name:?}, of namespace {}", cloud_conf::USER_NAMESPACE),
            };
            return Err(Error::OtherConfigMap { given, named });
        }
        let context = Context { feature_gates, ..Context::gather(sources) };
        let (managed, user) = if is_managed { (config_map, None) } else { (None, config_map) };
        let synced = cloud_conf::sync(&Inputs { settings, named: &named, managed, user, context: &context })?;
        let key = |key| Some(config_map?["data"][key].as_str()?.to_owned());
        let before = key(cloud_conf::KEY).or_else(|| key(&named.key)).unwrap_or_default();
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
