//! The version of a cloud-controller-manager for a version of Kubernetes (pure).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::facts::version::Minor;

/// The tags of an image by the minor version of Kubernetes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Versions {
    /// How the cloud numbers its versions.
    pub rule: Rule,
    /// The newest tag for each minor version of Kubernetes, such as `"1.35": v1.35.2`.
    pub tags: BTreeMap<Minor, String>,
    /// The date of this table, such as `2026-08-31`.
    pub as_of: String,
    /// The tags whose image somebody has pulled and run.
    #[serde(default)]
    pub verified: Vec<String>,
}

/// How a cloud numbers the versions of its cloud-controller-manager.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Rule {
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
    /// Why this one, for people.
    pub because: String,
    /// Why it is not known to work with this version of Kubernetes: a word for programs, and a sentence.
    pub problem: Option<(&'static str, String)>,
}

/// The reason of a version without a tag of its own.
pub const NO_TAG_FOR_MINOR: &str = "NoTagForMinor";
/// The reason of a version that is too far from the cluster's.
pub const SKEW_TOO_LARGE: &str = "SkewTooLarge";
/// The reason of a version that is not in the table: a typo in it leaves the pods without an image.
pub const UNKNOWN_VERSION: &str = "UnknownVersion";

impl Versions {
    /// The version for a cluster: that of its minor version, or else the newest below; never one above by more than one.
    pub fn choose(&self, minor: Minor) -> Option<Choice> {
        let exact = self.tags.get(&minor);
        if let Some(tag) = exact {
            let because = format!("the tag for Kubernetes {minor} as of {}", self.as_of);
            return Some(Choice { tag: tag.clone(), because, problem: None });
        }
        let below = self.tags.range(..minor).next_back();
        let (nearest, tag) = below.or_else(|| self.tags.get_key_value(&Minor(minor.0.saturating_add(1))))?;
        let problem = format!("there is no tag for Kubernetes {minor} as of {}: {tag} is for {nearest}", self.as_of);
        Some(Choice {
            tag: tag.clone(),
            because: format!("the nearest tag, for Kubernetes {nearest}"),
            problem: Some((NO_TAG_FOR_MINOR, problem)),
        })
    }

    /// The version that an administrator asks for. Whether the table knows it counts only for an image that is pulled from the
    /// provider's repository by its tag.
    pub fn asked(&self, tag: &str, minor: Minor, is_pulled_by_tag: bool) -> Choice {
        let unknown = if is_pulled_by_tag { self.unknown(tag, minor) } else { None };
        let skew = self.minor_of(tag).filter(|own| own.0 > minor.0.saturating_add(1));
        let skew = skew.map(|own| format!("{tag} is for Kubernetes {own}, more than one minor version above {minor}"));
        let problem = match (unknown, skew) {
            // Without an image there is no pod at all.
            (Some(unknown), Some(skew)) => Some((UNKNOWN_VERSION, format!("{unknown}; {skew}"))),
            (Some(unknown), None) => Some((UNKNOWN_VERSION, unknown)),
            (None, skew) => skew.map(|skew| (SKEW_TOO_LARGE, skew)),
        };
        Choice { tag: tag.to_owned(), because: "spec.image.version".to_owned(), problem }
    }

    /// What is said of a tag that the table does not have. It has only the newest of each line, so such a tag may well exist.
    fn unknown(&self, tag: &str, minor: Minor) -> Option<String> {
        let is_known = |tag: &str| self.tags.values().chain(&self.verified).any(|known| known == tag);
        if is_known(tag) {
            return None;
        }
        let of_own_minor = self.minor_of(tag).and_then(|own| self.tags.get(&own).cloned());
        let nearest = of_own_minor.or_else(|| Some(self.choose(minor)?.tag));
        let nearest = nearest.or_else(|| self.tags.values().next().cloned())?;
        let meant = match (tag.strip_prefix('v'), nearest.starts_with('v')) {
            (None, true) if tag.starts_with(|first: char| first.is_ascii_digit()) => Some(format!("v{tag}")),
            (Some(without), false) => Some(without.to_owned()),
            _ => None,
        };
        let hint = match meant {
            Some(meant) if is_known(&meant) => format!("did you mean {meant}?"),
            Some(meant) => format!("did you mean {meant}? The nearest one that it knows is {nearest}"),
            None => format!("the nearest one is {nearest}"),
        };
        Some(format!(
            "{tag} is not among the tags that this version of the operator knows, as of {}: {hint}",
            self.as_of
        ))
    }

    /// The minor version of Kubernetes that a tag is for, where the tag says so.
    pub(super) fn minor_of(&self, tag: &str) -> Option<Minor> {
        let numbers = tag.strip_prefix('v').unwrap_or(tag);
        match self.rule {
            Rule::SameMinor => format!("1.{}", numbers.strip_prefix("0.").or(numbers.strip_prefix("1."))?).parse().ok(),
            Rule::MajorIsMinor => numbers.split('.').next()?.parse().ok().map(Minor),
            Rule::OneLine => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(rule: Rule, tags: &[(u32, &str)]) -> Versions {
        let tags = tags.iter().map(|(minor, tag)| (Minor(*minor), (*tag).to_owned())).collect();
        Versions { rule, tags, as_of: "2026-08-31".into(), verified: Vec::new() }
    }

    #[test]
    fn the_tag_is_that_of_the_minor_version_or_the_newest_below() {
        let versions = versions(Rule::SameMinor, &[(33, "v1.33.4"), (34, "v1.34.3"), (36, "v1.36.1")]);
        let tag =
            |minor| versions.choose(Minor(minor)).map(|choice| (choice.tag, choice.problem.map(|(word, _)| word)));
        assert_eq!(tag(34), Some(("v1.34.3".into(), None)));
        assert_eq!(tag(35), Some(("v1.34.3".into(), Some(NO_TAG_FOR_MINOR))));
        assert_eq!(tag(40), Some(("v1.36.1".into(), Some(NO_TAG_FOR_MINOR))));
        assert_eq!(tag(32), Some(("v1.33.4".into(), Some(NO_TAG_FOR_MINOR))), "one above, as nothing is below");
        assert_eq!(tag(31), None);
        let choice = versions.choose(Minor(35)).unwrap();
        assert_eq!(choice.because, "the nearest tag, for Kubernetes 1.34");
        assert_eq!(
            choice.problem.unwrap().1,
            "there is no tag for Kubernetes 1.35 as of 2026-08-31: v1.34.3 is for 1.34"
        );
    }

    #[test]
    fn a_version_that_is_asked_for_may_be_one_minor_above() {
        let problem = |rule, tag| versions(rule, &[]).asked(tag, Minor(34), false).problem.map(|(word, _)| word);
        assert_eq!(problem(Rule::SameMinor, "v1.35.2"), None);
        assert_eq!(problem(Rule::SameMinor, "v1.30.0"), None);
        assert_eq!(problem(Rule::SameMinor, "v1.36.1"), Some(SKEW_TOO_LARGE));
        assert_eq!(problem(Rule::SameMinor, "0.35.4"), None);
        assert_eq!(problem(Rule::SameMinor, "v0.36.2"), Some(SKEW_TOO_LARGE));
        assert_eq!(problem(Rule::SameMinor, "custom"), None);
        assert_eq!(problem(Rule::MajorIsMinor, "v35.1.3"), None);
        assert_eq!(problem(Rule::MajorIsMinor, "v36.3.8"), Some(SKEW_TOO_LARGE));
        assert_eq!(problem(Rule::OneLine, "v9.9.9"), None);
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
        let same = versions(Rule::SameMinor, &[(34, "v1.34.3"), (35, "v1.35.2"), (37, "v1.37.0")]);
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
        let line = versions(Rule::OneLine, &[(34, "1.2.0"), (35, "1.3.0")]);
        assert_eq!(said(&line, "v1.2.0"), "did you mean 1.2.0?");
        assert_eq!(said(&line, "v1.2.9"), "did you mean 1.2.9? The nearest one that it knows is 1.3.0");
        let verified = Versions { verified: vec!["1.2.9".into()], ..line };
        assert_eq!(said(&verified, "1.2.9"), "None");
        assert_eq!(verified.asked("1.1.0", Minor(35), false).problem, None);
        let early = verified.asked("1.1.0", Minor(30), true).problem.map(|(word, _)| word);
        assert_eq!(early, Some(UNKNOWN_VERSION), "a cluster that is older than the table");
    }
}
