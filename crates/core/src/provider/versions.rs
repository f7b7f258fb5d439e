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
        let problem = match (unknown, skew) {
            // The unknown tag comes first: without an image there is no pod.
            (Some(unknown), Some(skew)) => Some((UNKNOWN_VERSION, format!("{unknown}; {skew}"))),
            (Some(unknown), None) => Some((UNKNOWN_VERSION, unknown)),
            (None, skew) => skew.map(|skew| (SKEW_TOO_LARGE, skew)),
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
mod tests {
    use super::*;

    fn versions(rule: VersionRule, tags: &[(u32, &str)]) -> Versions {
        let tags =
            tags.iter().map(|(minor, tag)| (Minor(*minor), Tag { name: (*tag).to_owned(), digest: None })).collect();
        Versions { rule, tags, as_of: "2026-08-31".into(), verified: Vec::new() }
    }

    #[test]
    fn the_tag_is_that_of_the_minor_version_or_the_newest_below() {
        let versions = versions(VersionRule::SameMinor, &[(33, "v1.33.4"), (34, "v1.34.3"), (36, "v1.36.1")]);
        let tag =
            |minor| versions.choose(Minor(minor)).map(|choice| (choice.tag, choice.problem.map(|(word, _)| word)));
        assert_eq!(tag(34), Some(("v1.34.3".into(), None)));
        assert_eq!(tag(35), Some(("v1.34.3".into(), Some(NO_TAG_FOR_MINOR))));
        assert_eq!(tag(40), Some(("v1.36.1".into(), Some(NO_TAG_FOR_MINOR))));
        assert_eq!(tag(32), Some(("v1.33.4".into(), Some(NO_TAG_FOR_MINOR))), "one above, as nothing is below");
        assert_eq!(tag(31), None);
        let choice = versions.choose(Minor(35)).unwrap();
        assert_eq!(choice.reason, "the nearest tag, for Kubernetes 1.34");
        assert_eq!(
            choice.problem.unwrap().1,
            "there is no tag for Kubernetes 1.35 as of 2026-08-31: v1.34.3 is for 1.34"
        );
    }

    #[test]
    fn a_version_that_is_asked_for_may_be_one_minor_above() {
        let problem = |rule, tag| versions(rule, &[]).asked(tag, Minor(34), false).problem.map(|(word, _)| word);
        assert_eq!(problem(VersionRule::SameMinor, "v1.35.2"), None);
        assert_eq!(problem(VersionRule::SameMinor, "v1.30.0"), None);
        assert_eq!(problem(VersionRule::SameMinor, "v1.36.1"), Some(SKEW_TOO_LARGE));
        assert_eq!(problem(VersionRule::SameMinor, "0.35.4"), None);
        assert_eq!(problem(VersionRule::SameMinor, "v0.36.2"), Some(SKEW_TOO_LARGE));
        assert_eq!(problem(VersionRule::SameMinor, "custom"), None);
        assert_eq!(problem(VersionRule::MajorIsMinor, "v35.1.3"), None);
        assert_eq!(problem(VersionRule::MajorIsMinor, "v36.3.8"), Some(SKEW_TOO_LARGE));
        assert_eq!(problem(VersionRule::OneLine, "v9.9.9"), None);
    }

    #[test]
    fn a_version_that_the_table_does_not_have_may_be_a_typo() {
        let said = |versions: &Versions, tag: &str| match versions.asked(tag, Minor(35), true).problem {
            Some((UNKNOWN_VERSION, text)) => {
                let begin =
                    format!("{tag} is not among the tags that this version of the operator knows, as of 2026-08-31: ");
                text.strip_prefix(&begin).unwrap_or_else(|| panic!("{text}")).to_owned()
            }
            other => format!("{other:?}"),
        };
        let same = versions(VersionRule::SameMinor, &[(34, "v1.34.3"), (35, "v1.35.2"), (37, "v1.37.0")]);
        for (tag, expected) in [
            ("v1.35.2", "None"),
            ("v1.34.3", "None"),
            ("1.35.2", "did you mean v1.35.2?"),
            ("1.35.0", "did you mean v1.35.0? The nearest one that it knows is v1.35.2"),
            ("v1.35.9", "the nearest one is v1.35.2"),
            ("v1.34.9", "the nearest one is v1.34.3"),
            ("v1.33.0", "the nearest one is v1.35.2"),
            ("stable", "the nearest one is v1.35.2"),
            (
                "v1.53.2",
                "the nearest one is v1.35.2; v1.53.2 is for Kubernetes 1.53, more than one minor version above 1.35",
            ),
        ] {
            assert_eq!(said(&same, tag), expected, "{tag}");
        }
        let known = same.asked("v1.37.0", Minor(35), true).problem.map(|(word, _)| word);
        assert_eq!(known, Some(SKEW_TOO_LARGE));
        let line = versions(VersionRule::OneLine, &[(34, "1.2.0"), (35, "1.3.0")]);
        assert_eq!(said(&line, "v1.2.0"), "did you mean 1.2.0?");
        assert_eq!(said(&line, "v1.2.9"), "did you mean 1.2.9? The nearest one that it knows is 1.3.0");
        let verified = Versions { verified: vec!["1.2.9".into()], ..line };
        assert_eq!(said(&verified, "1.2.9"), "None");
        assert_eq!(verified.asked("1.1.0", Minor(35), false).problem, None);
        let early = verified.asked("1.1.0", Minor(30), true).problem.map(|(word, _)| word);
        assert_eq!(early, Some(UNKNOWN_VERSION), "a cluster that is older than the table");
    }
    /// Two digests.
    const DIGESTS: [&str; 2] = [
        "sha256:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a",
        "sha256:0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b",
    ];

    fn read(tags: &str) -> Result<Versions, String> {
        let text = format!("rule: OneLine\ntags:\n{tags}asOf: 2026-08-31\n");
        crate::text::yaml::from_str(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_tag_may_have_a_digest() {
        let [digest, _] = DIGESTS;
        let versions = read(&format!("  \"1.34\": v1\n  \"1.35\": {{tag: v2, digest: \"{digest}\"}}\n")).unwrap();
        let chosen = |minor| versions.choose(Minor(minor)).map(|choice| (choice.tag, choice.digest));
        assert_eq!(chosen(34), Some(("v1".into(), None)));
        assert_eq!(chosen(35), Some(("v2".into(), Some(digest.into()))));
        assert_eq!(chosen(36), Some(("v2".into(), Some(digest.into()))), "the nearest one");
        let asked = |tag| versions.asked(tag, Minor(34), true).digest;
        assert_eq!([asked("v2"), asked("v1"), asked("v3")], [Some(digest.to_owned()), None, None]);
        assert_eq!(versions.bad_digest(), None);
        for (tag, expected) in [
            ("{tag: v2}", "missing field `digest`"),
            ("{digest: a}", "missing field `tag`"),
            ("{tag: v2, digest: a, note: b}", "unknown field `note`"),
            ("[v2]", "a tag, or {tag: TAG, digest: DIGEST}"),
            ("{tag: null, digest: a}", ""),
        ] {
            let error = read(&format!("  \"1.35\": {tag}\n")).unwrap_err();
            assert!(error.contains(expected), "{tag}: {error}");
        }
    }

    #[test]
    fn a_tag_has_one_digest_and_a_whole_one() {
        let [one, two] = DIGESTS.map(|digest| format!("{{tag: v1, digest: \"{digest}\"}}"));
        let short = "{tag: v1, digest: \"sha256:0a\"}".to_owned();
        let upper = one.replace("0a0a", "0A0A");
        for (first, second, expected) in [
            (&one, &one, None),
            (&one, &two, Some((35, "another digest above"))),
            (&one, &"v1".to_owned(), Some((35, "another digest above"))),
            (&"v1".to_owned(), &one, Some((35, "another digest above"))),
            (&short, &one, Some((34, "is no digest"))),
            (&upper, &one, Some((34, "is no digest"))),
        ] {
            let versions = read(&format!("  \"1.34\": {first}\n  \"1.35\": {second}\n")).unwrap();
            let found = versions.bad_digest();
            assert_eq!(found.as_ref().map(|(minor, _)| minor.0), expected.map(|(minor, _)| minor), "{first} {second}");
            assert!(expected.is_none_or(|(_, words)| found.unwrap().1.contains(words)), "{first} {second}");
        }
    }

    #[test]
    fn the_work_for_a_table_grows_with_its_length() {
        let steps = |tags: usize| {
            let tag = |n: usize| {
                (Minor(u32::try_from(n).unwrap()), Tag { name: format!("v{n}"), digest: Some(DIGESTS[0].into()) })
            };
            let table = Versions { tags: (0..tags).map(tag).collect(), ..versions(VersionRule::OneLine, &[]) };
            work::of(|| assert_eq!(table.bad_digest(), None))
        };
        assert_eq!((steps(100), steps(1_000)), (100, 1_000));
        let table = versions(VersionRule::OneLine, &[(34, "v1"), (35, "v2")]);
        let digests = table.digests();
        assert!(["v1", "v2", "v3"].iter().all(|tag| digests.get(tag).copied().flatten() == table.digest_of(tag)));
    }
}
