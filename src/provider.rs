//! A provider: one cloud's manifests with the descriptor that says where facts enter them (pure).
//!
//! Owns the format of `provider.yaml` and its checks. What is substituted, and how, is [`crate::plan`]'s.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{
    cloud_config::Transform,
    config_hash::{self, Reference},
    facts::{DEFAULT_NAMESPACE, Fact},
    object::{self, Object},
    yaml::{self, Spanned, did_you_mean},
};

/// `provider.yaml`: which platform the provider serves, and where facts enter its manifests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Descriptor {
    /// The provider's name, that of its folder.
    pub name: String,
    /// The platform that it serves.
    pub platform: Platform,
    /// The image of each container, init containers too, by the container's name.
    #[cfg_attr(test, schemars(with = "BTreeMap<String, ImageSource>"))]
    pub images: BTreeMap<String, Spanned<ImageSource>>,
    /// Arguments that are appended, by the container's name and the flag. For `assets/` only: bootstrap pods have
    /// their arguments in their manifest.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "BTreeMap<String, BTreeMap<String, ValueSource>>"))]
    pub arguments: BTreeMap<String, Spanned<BTreeMap<String, ValueSource>>>,
    /// Environment variables that are set, by the container's name and the variable's. For `assets/` only.
    #[serde(default)]
    #[cfg_attr(test, schemars(with = "BTreeMap<String, BTreeMap<String, ValueSource>>"))]
    pub environment: BTreeMap<String, Spanned<BTreeMap<String, ValueSource>>>,
    /// The cloud's configuration; absent means that none is synced.
    pub cloud_config: Option<CloudConfig>,
}

/// How the configuration reaches a cloud's cloud-controller-manager, as key `cloud.conf` of ConfigMap `cloud-conf`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CloudConfig {
    /// Where it is looked for, in this order.
    pub sources: Vec<ConfigSource>,
    /// Whether a cluster may do without: then the cloud-controller-manager gets an empty one.
    pub allow_empty: bool,
    /// How it is completed and checked; absent means that it is copied.
    pub transform: Option<Transform>,
    /// With this feature gate the result is written to `openshift-config-managed/kube-cloud-config` as well, and a cluster
    /// without a configuration starts from the smallest one.
    pub publish_with_feature_gate: Option<String>,
}

/// A place where a cloud's configuration may be.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum ConfigSource {
    /// ConfigMap `openshift-config-managed/kube-cloud-config`.
    Managed,
    /// The ConfigMap of namespace `openshift-config` that `Infrastructure.spec.cloudConfig` names.
    User,
}

/// Which platform a provider serves: the narrowest match wins.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Platform {
    /// `Infrastructure.status.platformStatus.type`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `Infrastructure.status.platformStatus.azure.cloudName`; absent means any.
    pub cloud_name: Option<String>,
}

/// Where a container's image comes from.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImageSource {
    /// The key of `images.json`.
    pub key: String,
    /// The tag of `image-references`.
    pub tag: String,
}

/// Where the value of an argument or of an environment variable comes from: a fact's name, or one of the forms
/// `{fact: NAME, optional: true}` and `{value: TEXT}`, both with `featureGate: NAME` where wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSource {
    /// The fact, or the text.
    pub value: FactOrText,
    /// Without a value the argument is left out, instead of an error.
    pub optional: bool,
    /// The argument is left out unless the cluster enables this feature gate.
    pub feature_gate: Option<String>,
}

/// Part of [`ValueSource`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactOrText {
    /// A fact of the cluster.
    Fact(Fact),
    /// The same on every cluster.
    Text(String),
}

/// How a [`ValueSource`] is written when it is a mapping.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ValueFields {
    /// A fact of the cluster.
    fact: Option<Fact>,
    /// A text that is the same on every cluster.
    value: Option<String>,
    /// Without a value the argument is left out, instead of an error.
    #[serde(default)]
    optional: bool,
    /// The argument is left out unless the cluster enables this feature gate.
    feature_gate: Option<String>,
}

impl<'de> Deserialize<'de> for ValueSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Source;
        impl<'de> Visitor<'de> for Source {
            type Value = ValueSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a fact's name, {fact: NAME} or {value: TEXT}")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<ValueSource, E> {
                let Some((fact, _)) = Fact::ALL.into_iter().find(|(_, known)| *known == name) else {
                    let known = Fact::ALL.map(|(_, known)| known);
                    let hint = did_you_mean(name, known);
                    return Err(E::custom(format_args!(
                        "unknown fact `{name}`, expected one of {}{hint}",
                        known.join(", ")
                    )));
                };
                Ok(ValueSource { value: FactOrText::Fact(fact), optional: false, feature_gate: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ValueSource, A::Error> {
                let fields = ValueFields::deserialize(MapAccessDeserializer::new(map))?;
                let value = match (fields.fact, fields.value) {
                    (Some(fact), None) => FactOrText::Fact(fact),
                    (None, Some(text)) => FactOrText::Text(text),
                    _ => return Err(de::Error::custom("either `fact` or `value` must be given")),
                };
                Ok(ValueSource { value, optional: fields.optional, feature_gate: fields.feature_gate })
            }
        }
        deserializer.deserialize_any(Source)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for ValueSource {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ValueSource".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Where the value of an argument or of an environment variable comes from.",
            "anyOf": [generator.subschema_for::<Fact>(), generator.subschema_for::<ValueFields>()],
        })
    }
}

/// What is wrong with a provider's folder; starts with the file, and the line where it is known.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{file}{}: {problem}", line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct Error {
    /// The file, relative to the catalog's root.
    pub file: String,
    /// The line, from 1.
    pub line: Option<u64>,
    /// What is wrong and how to mend it.
    pub problem: String,
}

/// A provider whose folder was read and checked.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// The manifests of `assets/<name>/`, as they stand.
    pub manifests: Vec<Object>,
    /// The manifests of `bootstrap/<name>/`, as they stand.
    pub bootstrap_manifests: Vec<Object>,
}

impl Descriptor {
    /// Parses `provider.yaml`; `file` names it in errors.
    pub fn parse(text: &str, file: &str) -> Result<Self, Error> {
        yaml::from_str(text).map_err(|error| Error { file: file.to_owned(), line: None, problem: error.to_string() })
    }
}

impl Provider {
    /// Puts a provider together and checks that its descriptor fits its manifests; `file` is the descriptor's path.
    pub fn new(
        descriptor: Descriptor,
        manifests: Vec<Object>,
        bootstrap_manifests: Vec<Object>,
        file: &str,
    ) -> Result<Self, Error> {
        let provider = Self { descriptor, manifests, bootstrap_manifests };
        let error = |line, problem| Err(Error { file: file.to_owned(), line, problem });
        let containers: Vec<&str> =
            container_names(&provider.manifests).chain(container_names(&provider.bootstrap_manifests)).collect();
        let of_cluster: Vec<&str> = container_names(&provider.manifests).collect();
        let Descriptor { images, arguments, environment, .. } = &provider.descriptor;
        let images_named = images.iter().map(|(name, source)| (name, source.referenced.line(), &containers));
        let arguments_named = arguments.iter().map(|(name, source)| (name, source.referenced.line(), &of_cluster));
        let variables_named = environment.iter().map(|(name, source)| (name, source.referenced.line(), &of_cluster));
        let mut named = images_named.chain(arguments_named).chain(variables_named);
        if let Some((name, line, known)) = named.find(|(name, _, known)| !known.contains(&name.as_str())) {
            let hint = did_you_mean(name, known.iter().copied());
            return error(Some(line), format!("no manifest has a container {name:?}{hint}"));
        }
        if let Some(name) = containers.iter().find(|name| !images.contains_key(**name)) {
            return error(None, format!("`images` says nothing of container {name:?}: add its key and tag"));
        }
        for (container, sources) in arguments {
            if let Some(flag) = sources.value.keys().find(|flag| provider.has_argument(container, flag)) {
                let line = sources.referenced.line();
                return error(Some(line), format!("container {container:?} has {flag} in its manifest already"));
            }
        }
        Ok(provider)
    }

    fn has_argument(&self, container: &str, flag: &str) -> bool {
        let flag = flag.trim_start_matches('-');
        self.manifests
            .iter()
            .filter_map(Object::pod_spec)
            .flat_map(object::containers)
            .filter(|candidate| object::container_name(candidate) == container)
            .flat_map(|container| ["command", "args"].map(|list| &container[list]))
            .filter_map(serde_json::Value::as_array)
            .flatten()
            .filter_map(|argument| argument.as_str()?.trim_start_matches('-').split('=').next())
            .any(|name| name == flag)
    }

    /// The ConfigMaps and Secrets that its pods refer to, when its objects are in this namespace.
    pub fn references(&self, namespace: &str) -> BTreeSet<Reference> {
        let workloads = self.manifests.iter().filter_map(|object| Some((object.namespace(), object.pod_spec()?)));
        let in_namespace = |own: &'_ str| if own == DEFAULT_NAMESPACE { namespace.to_owned() } else { own.to_owned() };
        workloads.flat_map(|(own, pod)| config_hash::references(pod, &in_namespace(own))).collect()
    }

    /// The provider's name.
    pub fn name(&self) -> &str {
        &self.descriptor.name
    }
}

fn container_names(manifests: &[Object]) -> impl Iterator<Item = &str> {
    manifests.iter().filter_map(Object::pod_spec).flat_map(object::containers).map(object::container_name)
}
