//! The version of a cloud-controller-manager for a version of Kubernetes (pure).

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

use crate::{error::brief, facts::version::Minor, object::reference::is_digest, text::work};

/// The tags of an image by the minor version of Kubernetes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Versions {
    /// How the cloud numbers its versions.
    pub rule: VersionRule,
    /// The newest tag for each minor version of Kubernetes, such as `"1.35": v1.35.2` or
    /// `"1.35": {tag: v1.35.2, digest: "sha256:…"}`.
    pub tags: BTreeMap<Minor, Tag>,
    /// The date of this table, such as `2026-08-31`.
    pub as_of: String,
    /// The tags whose image has been pulled and run.
    #[serde(default)]
    pub verified: Vec<String>,
    /// The versions that must not run.
    pub broken: Option<Broken>,
}

/// Versions that must not run anywhere.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Broken {
    /// The first version that may run, such as `v1.30.1`.
    pub below: String,
    /// The reason, and since when, such as `the cloud's API dropped a field on 2026-07-01`.
    pub because: String,
}

impl Broken {
    /// Whether a tag is below the first version that may run. Others than whole versions, such as `v1` or `v1.30.0-own`, are not known to
    /// be.
    fn includes(&self, tag: &str) -> bool {
        let both = numbers(tag).zip(numbers(&self.below));
        both.is_some_and(|(tag, below)| tag.len() == below.len() && tag < below)
    }
}

/// Returns the numbers of a version such as `v1.30.1`; `None` for any other text.
pub fn numbers(tag: &str) -> Option<Vec<u64>> {
    tag.strip_prefix('v').unwrap_or(tag).split('.').map(|part| part.parse().ok()).collect()
}

/// A tag of an image: its text, or `{tag: TEXT, digest: "sha256:…"}`, which also sets the digest that the registry must serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tag {
    /// The text.
    pub name: String,
    /// The digest of the image's manifest or of its index, as a registry names it.
    pub digest: Option<String>,
}

/// The mapping form of a [`Tag`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TagFields {
    /// The tag.
    tag: String,
    /// The digest of the image that it names, such as `sha256:…`.
    #[cfg_attr(test, schemars(regex(pattern = "^sha256:[0-9a-f]{64}$")))]
    digest: String,
}

impl<'de> Deserialize<'de> for Tag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Tag;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a tag, or {tag: TAG, digest: DIGEST}")
            }

            fn visit_str<E>(self, name: &str) -> Result<Tag, E> {
                Ok(Tag { name: name.to_owned(), digest: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Tag, A::Error> {
                let TagFields { tag, digest } = TagFields::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Tag { name: tag, digest: Some(digest) })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// How a cloud numbers the versions of its cloud-controller-manager.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum VersionRule {
    /// A line of versions for each minor version of Kubernetes, with the same minor: `v1.35.2` or `0.35.2` for 1.35.
    SameMinor,
    /// A line for each minor version of Kubernetes, whose major is this minor: `v35.1.3` for 1.35.
    MajorIsMinor,
    /// One line for all versions of Kubernetes that are supported at the time.
    OneLine,
}

/// A chosen version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The tag.
    pub tag: String,
    /// The digest that the table has for it.
    pub digest: Option<String>,
    /// The human-readable reason for it.
    pub reason: String,
    /// The reason why it is not known to work with this version of Kubernetes: a word for programs, and a sentence.
    pub problem: Option<(&'static str, String)>,
}

/// The reason for a version without its own tag.
pub const NO_TAG_FOR_MINOR: &str = "NoTagForMinor";
/// The reason for a version that is too far from the cluster's.
pub const SKEW_TOO_LARGE: &str = "SkewTooLarge";
/// The reason for a version that must not run.
pub const VERSION_BROKEN: &str = "VersionBroken";
/// The reason for a version that is not in the table. A typo in it leaves the pods without an image.
pub const UNKNOWN_VERSION: &str = "UnknownVersion";

impl Choice {
    /// Returns the image in a repository, with its digest if known.
    pub fn reference(&self, repository: &str) -> String {
        let digest = self.digest.as_ref().map(|digest| format!("@{digest}")).unwrap_or_default();
        format!("{repository}:{}{digest}", self.tag)
    }
}

impl Versions {
    /// Chooses the version for a cluster: that of its minor version, or else the newest below it, or else the one directly above it.
    pub fn choose(&self, minor: Minor) -> Option<Choice> {
        let own_or_below = self.tags.range(..=minor).next_back();
        let (nearest, tag) = own_or_below.or_else(|| self.tags.get_key_value(&Minor(minor.0.saturating_add(1))))?;
        let (reason, problem) = if *nearest == minor {
            (format!("the tag for Kubernetes {minor} as of {}", self.as_of), None)
        } else {
            let problem =
                format!("there is no tag for Kubernetes {minor} as of {}: {} is for {nearest}", self.as_of, tag.name);
            (format!("the nearest tag, for Kubernetes {nearest}"), Some((NO_TAG_FOR_MINOR, problem)))
        };
        Some(Choice { tag: tag.name.clone(), digest: tag.digest.clone(), reason, problem })
    }

    /// Returns the version that an administrator requests. It must be in the table only if the image is pulled from the
    /// provider's repository by its tag.
    pub fn asked(&self, tag: &str, minor: Minor, is_pulled_by_tag: bool) -> Choice {
        let unknown = if is_pulled_by_tag { self.unknown(tag, minor) } else { None };
        let skew = self.minor_of(tag).filter(|own| own.0 > minor.0.saturating_add(1));
        let skew = skew.map(|own| format!("{tag} is for Kubernetes {own}, more than one minor version above {minor}"));
        let broken = self.broken.as_ref().filter(|broken| is_pulled_by_tag && broken.includes(tag));
        let problem = match (broken, unknown, skew) {
            (Some(Broken { below, because }), ..) => Some((
                VERSION_BROKEN,
                format!("{tag} must not run: {because}; the first version without this is {below}"),
            )),
            // The unknown tag comes first: without an image there is no pod.
            (_, Some(unknown), Some(skew)) => Some((UNKNOWN_VERSION, format!("{unknown}; {skew}"))),
            (_, Some(unknown), None) => Some((UNKNOWN_VERSION, unknown)),
            (_, None, skew) => skew.map(|skew| (SKEW_TOO_LARGE, skew)),
        };
        let digest = self.digest_of(tag).map(ToOwned::to_owned);
        Choice { tag: tag.to_owned(), digest, reason: "spec.image.version".to_owned(), problem }
    }

    /// Returns the digest that the table has for a tag.
    pub fn digest_of(&self, tag: &str) -> Option<&str> {
        let mut known = self.tags.values().inspect(|_| work::add(1));
        known.find(|known| known.name == tag).and_then(|known| known.digest.as_deref())
    }

    /// Returns the digest of each tag in the table, from the first entry with the tag, as [`Versions::digest_of`] does. This is one pass
    /// over the table, because an untrusted author decides the number of tags.
    pub(super) fn digests(&self) -> BTreeMap<&str, Option<&str>> {
        let mut digests = BTreeMap::new();
        for tag in self.tags.values() {
            work::add(1);
            digests.entry(tag.name.as_str()).or_insert(tag.digest.as_deref());
        }
        digests
    }

    /// Returns each tag of the table, with its place in it.
    pub(super) fn places(&self) -> impl Iterator<Item = (String, &str)> {
        let newest = self.tags.iter().map(|(minor, tag)| (format!("tags/{minor}"), tag.name.as_str()));
        newest.chain(self.verified.iter().enumerate().map(|(index, tag)| (format!("verified/{index}"), tag.as_str())))
    }

    /// Whether the table names an image by its digest.
    pub fn has_digests(&self) -> bool {
        self.tags.values().any(|known| known.digest.is_some())
    }

    /// Whether the table has a tag.
    pub fn knows(&self, tag: &str) -> bool {
        self.tags.values().any(|known| known.name == tag) || self.verified.iter().any(|known| known == tag)
    }

    /// Returns the first entry of a minor version whose digest is invalid, or differs from that of another entry with the same tag:
    /// the minor version, and the problem.
    pub(super) fn bad_digest(&self) -> Option<(Minor, String)> {
        let digests = self.digests();
        self.tags.iter().find_map(|(minor, tag)| {
            let problem = match tag.digest.as_deref() {
                Some(digest) if !is_digest(digest) => {
                    format!("{:?} is no digest: it must be sha256: and 64 hexadecimal digits", brief(digest))
                }
                digest if digests.get(tag.name.as_str()) != Some(&digest) => {
                    format!("the tag {} has another digest above: one tag is one image", brief(&tag.name))
                }
                _ => return None,
            };
            Some((*minor, problem))
        })
    }

    /// Returns a contradiction of `broken`: its field, and the problem.
    pub(super) fn bad_broken(&self) -> Option<(&'static str, String)> {
        let broken = self.broken.as_ref()?;
        if numbers(&broken.below).is_none() {
            return Some(("broken/below", format!("{:?} is no version such as v1.30.1", brief(&broken.below))));
        }
        let tag = self.tags.values().find(|tag| broken.includes(&tag.name))?;
        Some(("tags", format!("the tag {} is below {}, and must not run", brief(&tag.name), brief(&broken.below))))
    }

    /// Returns the message about a tag that is not in the table. The table has only the newest tag of each minor version, so the tag may
    /// exist.
    fn unknown(&self, tag: &str, minor: Minor) -> Option<String> {
        if self.knows(tag) {
            return None;
        }
        let of_own_minor = self.minor_of(tag).and_then(|own| self.tags.get(&own));
        let nearest = of_own_minor.map(|own| own.name.clone()).or_else(|| Some(self.choose(minor)?.tag));
        let nearest = nearest.or_else(|| self.tags.values().next().map(|first| first.name.clone()))?;
        let meant = match (tag.strip_prefix('v'), nearest.starts_with('v')) {
            (None, true) if tag.starts_with(|first: char| first.is_ascii_digit()) => Some(format!("v{tag}")),
            (Some(without), false) => Some(without.to_owned()),
            _ => None,
        };
        let hint = match meant {
            Some(meant) if self.knows(&meant) => format!("did you mean {meant}?"),
            Some(meant) => format!("did you mean {meant}? The nearest one that it knows is {nearest}"),
            None => format!("the nearest one is {nearest}"),
        };
        Some(format!(
            "{tag} is not among the tags that this version of the operator knows, as of {}: {hint}",
            self.as_of
        ))
    }

    /// Returns the minor version of Kubernetes that a tag is for, if the tag contains it.
    pub(super) fn minor_of(&self, tag: &str) -> Option<Minor> {
        let numbers = tag.strip_prefix('v').unwrap_or(tag);
        match self.rule {
            VersionRule::SameMinor => {
                format!("1.{}", numbers.strip_prefix("0.").or(numbers.strip_prefix("1."))?).parse().ok()
            }
            VersionRule::MajorIsMinor => numbers.split('.').next()?.parse().ok().map(Minor),
            VersionRule::OneLine => None,
        }
    }
}

#[cfg(test)]
impl schemars::JsonSchema for Tag {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Tag".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A tag, or with the digest of the image that it names.",
            "anyOf": [{"type": "string"}, generator.subschema_for::<TagFields>()],
        })
    }
}

#[cfg(test)]
mod tests;
