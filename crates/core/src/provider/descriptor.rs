//! The format of `provider.yaml` (pure).

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{
    facts::{self, EXTERNAL, Fact},
    text::suggest::did_you_mean,
};

/// The sources of values, by the container's name and the target's.
pub type Sources = BTreeMap<String, BTreeMap<String, ValueSource>>;

/// The part that the descriptors of both flavors share.
#[derive(Clone, Debug)]
pub struct Common<'a> {
    /// The provider's name.
    pub name: &'a str,
    /// The platform of OpenShift that it serves; `None` for any Kubernetes.
    pub platform: Option<&'a Platform>,
    /// The names of the containers with an image.
    pub images: BTreeSet<&'a str>,
    /// The arguments that are appended.
    pub arguments: &'a Sources,
    /// The environment variables that are set.
    pub environment: &'a Sources,
    /// The prefixes of the labels and annotations that its own code writes on nodes.
    pub node_prefixes: &'a [String],
    /// The prefixes of those on Services.
    pub service_prefixes: &'a [String],
}

/// The descriptor of a flavor.
pub trait DescriptorFields {
    /// The fields of every flavor.
    fn common(&self) -> Common<'_>;
}

/// `provider.yaml`: the platform that the provider serves, and the facts in its manifests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Descriptor {
    /// The provider's name, which is also the folder's.
    pub name: String,
    /// The platform that it serves.
    pub platform: Platform,
    /// The image of each container, init containers too, by the container's name.
    pub images: BTreeMap<String, ImageSource>,
    /// Arguments that are appended, by the container's name and the flag. For `assets/` only: bootstrap pods have
    /// their arguments in their manifest.
    #[serde(default)]
    pub arguments: Sources,
    /// Environment variables that are set, by the container's name and the variable's. For `assets/` only.
    #[serde(default)]
    pub environment: Sources,
    /// The cloud's configuration; absent means that none is synced.
    pub cloud_config: Option<crate::config::CloudConfigSettings>,
    /// The fields of nodes that the cloud-controller-manager writes; absent if unknown.
    pub nodes: Option<NodeFields>,
    /// The fields of Services that the cloud-controller-manager writes.
    #[serde(default)]
    pub services: Services,
}

impl DescriptorFields for Descriptor {
    fn common(&self) -> Common<'_> {
        Common {
            name: &self.name,
            platform: Some(&self.platform),
            images: self.images.keys().map(String::as_str).collect(),
            arguments: &self.arguments,
            environment: &self.environment,
            node_prefixes: self.nodes.as_ref().map_or(&[], |nodes| &nodes.metadata_prefixes),
            service_prefixes: &self.services.metadata_prefixes,
        }
    }
}

/// The fields that a cloud-controller-manager writes on the nodes of its cloud.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeFields {
    /// The prefixes of the providerIDs, the current one first, such as `aws:///`.
    #[serde(rename = "providerIDs")]
    pub provider_ids: Vec<String>,
    /// Whether nodes get labels with their region and zone.
    pub zones: bool,
    /// The prefixes of the labels and annotations that its own code writes on nodes, such as `example.com/`. An external provider can
    /// change no others, except the labels that every cloud sets.
    #[serde(default, rename = "metadataPrefixes")]
    pub metadata_prefixes: Vec<String>,
}

/// The fields of Services that a cloud-controller-manager writes, in addition to the common ones.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Services {
    /// The prefixes of the labels and annotations that its own code writes on Services, such as `example.com/`. An external provider
    /// can change no others, except those that begin with `service.beta.kubernetes.io/`.
    #[serde(default, rename = "metadataPrefixes")]
    pub metadata_prefixes: Vec<String>,
}

/// The platform that a provider serves; the narrowest match wins.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Platform {
    /// `Infrastructure.status.platformStatus.type`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `Infrastructure.status.platformStatus.azure.cloudName`; absent means any.
    pub cloud_name: Option<String>,
    /// `Infrastructure.spec.platformSpec.external.platformName`: required for type `External`, and only allowed there. The provider
    /// serves clusters whose `status.platformStatus.external.cloudControllerManager.state` is `External`.
    pub platform_name: Option<String>,
}

impl Platform {
    pub(super) fn serves(&self, platform: &facts::Platform) -> bool {
        let narrowed = if self.type_ == EXTERNAL { &self.platform_name } else { &self.cloud_name };
        let is_any = narrowed.is_none() && self.type_ != EXTERNAL;
        self.type_ == platform.name && (is_any || (narrowed.is_some() && *narrowed == platform.variant))
    }

    /// Whether both may serve the same cluster.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let (one, two) = if self.type_ == EXTERNAL {
            (&self.platform_name, &other.platform_name)
        } else {
            (&self.cloud_name, &other.cloud_name)
        };
        self.type_ == other.type_ && (one.is_none() || two.is_none() || one == two)
    }

    pub(super) fn problem(&self) -> Option<&'static str> {
        match (self.type_ == EXTERNAL, self.platform_name.is_some()) {
            (true, _) if self.cloud_name.is_some() => Some("platform External has platformName, and no cloudName"),
            (true, false) => {
                Some("platform External needs platformName: that of spec.platformSpec.external of Infrastructure")
            }
            (false, true) => Some("platformName is for type External only"),
            _ => None,
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.type_)?;
        let narrowed = self.platform_name.as_ref().or(self.cloud_name.as_ref());
        narrowed.map_or(Ok(()), |name| write!(f, "/{name}"))
    }
}

/// The source of a container's image.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImageSource {
    /// The key of `images.json`.
    pub key: String,
    /// The tag of `image-references`.
    pub tag: String,
}

/// The source of the value of an argument or an environment variable: a fact's name, `{fact: NAME, optional: true}` or
/// `{value: TEXT}`, the last two optionally with `featureGate: NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueSource {
    /// The fact, or the text.
    pub value: FactOrText,
    /// Without a value the argument is left out, instead of an error.
    pub optional: bool,
    /// The argument is left out unless the cluster enables this feature gate.
    pub feature_gate: Option<String>,
}

/// The value of a [`ValueSource`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FactOrText {
    /// A fact of the cluster.
    Fact(Fact),
    /// A text that is the same on every cluster.
    Text(String),
}

/// The mapping form of the source of a value.
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
                if let Some((fact, _)) = Fact::ALL.iter().find(|(_, known)| *known == name) {
                    return Ok(ValueSource { value: FactOrText::Fact(*fact), optional: false, feature_gate: None });
                }
                let known: Vec<_> = Fact::ALL.iter().map(|(_, known)| *known).collect();
                let (hint, known) = (did_you_mean(name, known.iter().copied()), known.join(", "));
                Err(E::custom(format_args!("unknown fact `{name}`, expected one of {known}{hint}")))
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
mod tests;
