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

    /// The version that an administrator asks for.
    pub fn asked(&self, tag: &str, minor: Minor) -> Choice {
        let skew = self.minor_of(tag).filter(|own| own.0 > minor.0.saturating_add(1));
        let problem = skew.map(|own| {
            (SKEW_TOO_LARGE, format!("{tag} is for Kubernetes {own}, more than one minor version above {minor}"))
        });
        Choice { tag: tag.to_owned(), because: "spec.image.version".to_owned(), problem }
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
        let problem = |rule, tag| versions(rule, &[]).asked(tag, Minor(34)).problem.map(|(word, _)| word);
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
}
