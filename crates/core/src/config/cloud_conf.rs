//! Finds the source of a cloud's configuration and computes ConfigMap `cloud-conf` (pure).
//!
//! The controller and `ccm-operator cloud-config` share this code; the caller reads the ConfigMaps.

use serde_json::{Map, Value, json};

use crate::{
    config::{Change, CloudConfigSettings, ConfigSource, Transform, vsphere},
    facts::Facts,
    object::{self, Object, reference::Reference},
};

/// The namespace of configuration that OpenShift's operators exchange.
pub const MANAGED_NAMESPACE: &str = "openshift-config-managed";

/// The ConfigMap of the cloud's configuration in that namespace.
pub const MANAGED_NAME: &str = "kube-cloud-config";

/// The ConfigMap that cloud-controller-managers mount.
pub const TARGET_NAME: &str = "cloud-conf";

/// The key of the configuration in that ConfigMap.
pub const KEY: &str = "cloud.conf";

/// The input of [`compute`].
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// The provider's settings.
    pub settings: &'a CloudConfigSettings,
    /// The facts of the cluster.
    pub facts: &'a Facts,
    /// The ConfigMap [`managed`].
    pub managed: Option<&'a Value>,
    /// The ConfigMap [`user`].
    pub user: Option<&'a Value>,
}

/// The content of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synced {
    /// Its `data`.
    pub data: Map<String, Value>,
    /// Its `binaryData`.
    pub binary_data: Map<String, Value>,
    /// The source of the configuration, for people; `None` without a source.
    pub from: Option<String>,
    /// The changes to the source.
    pub changes: Vec<Change>,
    /// The warnings, each with its place in the source.
    pub warnings: Vec<String>,
    /// Whether the configuration is written to [`managed`], too.
    pub is_published: bool,
}

/// The reason why there is no configuration. Always terminal: only a different input can fix it.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}")]
pub struct Error(pub(super) String);

/// The ConfigMap that OpenShift's operators write, if the provider uses it.
pub fn managed(settings: &CloudConfigSettings) -> Option<Reference> {
    let wanted = settings.sources.contains(&ConfigSource::Managed) || settings.publish_with_feature_gate.is_some();
    wanted.then(|| Reference::config_map(MANAGED_NAMESPACE, MANAGED_NAME))
}

/// The ConfigMap that the administrator names, if any.
pub fn user<'a>(settings: &CloudConfigSettings, facts: &'a Facts) -> Option<&'a Reference> {
    facts.cloud_config.config_map.as_ref().filter(|_| settings.sources.contains(&ConfigSource::User))
}

/// Chooses the source, completes and checks the configuration.
pub fn compute(inputs: &Inputs) -> Result<Synced, Error> {
    let Inputs { settings, facts, .. } = *inputs;
    let named = &facts.cloud_config;
    let gate = settings.publish_with_feature_gate.as_deref();
    let is_published = gate.is_some_and(|gate| facts.has_feature_gate(gate));
    let found = settings.sources.iter().find_map(|source| match source {
        ConfigSource::Managed => Some((managed(settings)?, inputs.managed?)),
        ConfigSource::User => Some((user(settings, facts)?.clone(), inputs.user?)),
    });
    let (mut data, binary_data, place) = match found {
        Some((config_map, value)) => {
            let (data, key) = data_of(&config_map, value, &named.key)?;
            if !settings.allow_empty && text(&data).trim().is_empty() {
                let problem = "is missing or empty, but this cloud needs a configuration";
                return Err(Error(format!("{config_map}: key {key} {problem}")));
            }
            let place = format!("{config_map}, key {key}");
            (data, value["binaryData"].as_object().cloned().unwrap_or_default(), Some(place))
        }
        None if is_published && named.config_map.is_some() => (only(vsphere::MINIMAL), Map::new(), None),
        // A key of another name implies an existing ConfigMap, so an empty configuration would hide a defect; the Go operator
        // does the same.
        None if settings.allow_empty && matches!(named.key.as_str(), "" | KEY) => {
            (only(&settings.empty), Map::new(), None)
        }
        None => return Err(Error(missing(settings, facts))),
    };
    let (mut changes, mut warnings) = (Vec::new(), Vec::new());
    if let Some(transform) = settings.transform {
        let source = place.as_deref().unwrap_or("the empty configuration");
        let output = transform.apply(text(&data), facts).map_err(|problem| Error(problem.of(source)))?;
        warnings = output.warnings.iter().map(|warning| warning.of(source)).collect();
        changes = output.changes;
        data.insert(KEY.to_owned(), output.text.into());
    }
    Ok(Synced { data, binary_data, from: place, changes, warnings, is_published })
}

/// Returns the configuration for the bootstrap VM of a cluster without one: the smallest one that the
/// cloud-controller-manager accepts. It is not completed as in the cluster, because the VM lacks files of the cluster.
pub fn smallest(settings: &CloudConfigSettings, facts: &Facts) -> String {
    match settings.transform {
        Some(transform @ Transform::VSphere) => {
            transform.apply(vsphere::MINIMAL, facts).map_or_else(|_| vsphere::MINIMAL.to_owned(), |output| output.text)
        }
        _ => settings.empty.clone(),
    }
}

impl Synced {
    /// The ConfigMaps to write, for a target in this namespace.
    pub fn objects(&self, namespace: &str) -> Result<Vec<Object>, object::Error> {
        let published = self.is_published.then_some((MANAGED_NAMESPACE, MANAGED_NAME));
        // The copy comes last: if it is refused, the cluster's own ConfigMap is already written.
        let places = std::iter::once((namespace, TARGET_NAME)).chain(published);
        let config_map = |(namespace, name)| {
            let mut value = json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": namespace},
                "data": self.data,
            });
            if !self.binary_data.is_empty() {
                value["binaryData"] = Value::Object(self.binary_data.clone());
            }
            Object::new(value)
        };
        places.map(config_map).collect()
    }

    /// The configuration.
    pub fn text(&self) -> &str {
        text(&self.data)
    }
}

/// Returns the data of a source with the configuration moved to [`KEY`], and its original key.
fn data_of(config_map: &Reference, value: &Value, named_key: &str) -> Result<(Map<String, Value>, String), Error> {
    let mut data = value["data"].as_object().cloned().unwrap_or_default();
    // Only the keys that may be read matter.
    let read: &[_] = if data.contains_key(KEY) { &[KEY] } else { &[KEY, named_key] };
    if let Some(key) = read.iter().find(|key| value["binaryData"].get(key).is_some()) {
        return Err(Error(format!("{config_map}: key {key} is in binaryData; put it into data, as text")));
    }
    if data.contains_key(KEY) || named_key.is_empty() || named_key == KEY {
        data.entry(KEY).or_insert_with(|| "".into());
        return Ok((data, KEY.to_owned()));
    }
    let Some(text) = data.remove(named_key) else {
        let keys = data.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let others = if keys.is_empty() { "; it holds nothing".to_owned() } else { format!("; it has {keys}") };
        return Err(Error(format!(
            "{config_map} has no key {named_key:?}, which spec.cloudConfig.key of Infrastructure cluster names{others}"
        )));
    };
    data.insert(KEY.to_owned(), text);
    Ok((data, named_key.to_owned()))
}

fn only(text: &str) -> Map<String, Value> {
    Map::from_iter([(KEY.to_owned(), text.into())])
}

fn text(data: &Map<String, Value>) -> &str {
    data.get(KEY).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the problem and its fix if no source exists.
fn missing(settings: &CloudConfigSettings, facts: &Facts) -> String {
    let key = Some(facts.cloud_config.key.as_str()).filter(|key| !key.is_empty()).unwrap_or(KEY);
    let managed = managed(settings).filter(|_| settings.sources.contains(&ConfigSource::Managed));
    let managed = managed.map(|managed| format!("{managed} does not exist, and ")).unwrap_or_default();
    match user(settings, facts) {
        Some(user) => format!("{managed}{user} does not exist; create it with key {key}"),
        None => format!(
            "{managed}Infrastructure/cluster: spec.cloudConfig.name is empty; set it to a ConfigMap of namespace openshift-config"
        ),
    }
}

#[cfg(test)]
mod tests;
