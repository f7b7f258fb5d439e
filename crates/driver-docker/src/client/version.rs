//! Versions of the Engine's API, and which one to speak (pure).

use std::fmt;

use ccm_drivers::contract::{Error, Result};
use serde::Deserialize;

use crate::brief;

/// A version `1.MINOR` of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(u16);

/// The oldest version that this driver speaks: Docker 19.03.
const OLDEST: Version = Version(40);
/// The newest version that this driver speaks: Docker 28.3.
const NEWEST: Version = Version(51);

impl Version {
    /// The first version with private namespaces of control groups.
    pub(crate) const CGROUP_NAMESPACES: Self = Self(41);

    /// Parses the setting, which fixes the version.
    pub(crate) fn pinned(text: &str) -> Result<Self> {
        let field = |problem| Error::invalid("apiVersion", format!("apiVersion {:?}: {problem}", brief(text)));
        let version = Self::parse(text).ok_or_else(|| field("it is not a version such as 1.41".to_owned()))?;
        if (OLDEST..=NEWEST).contains(&version) {
            return Ok(version);
        }
        Err(field(format!("this driver speaks {OLDEST} to {NEWEST}")))
    }

    fn parse(text: &str) -> Option<Self> {
        let minor = text.strip_prefix("1.")?;
        minor.bytes().all(|at| at.is_ascii_digit()).then(|| minor.parse().ok().map(Self))?
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

/// The versions that an Engine speaks, as it answers to `GET /version`.
#[derive(Deserialize)]
pub(super) struct Spoken {
    #[serde(rename = "ApiVersion")]
    newest: String,
    #[serde(rename = "MinAPIVersion", default)]
    oldest: Option<String>,
}

impl Spoken {
    /// Chooses the newest version that both sides speak, or the pinned one if both do.
    pub(super) fn choose(&self, pinned: Option<Version>) -> Result<Version> {
        let oldest = self.oldest.as_deref().unwrap_or("1.0");
        let (Some(from), Some(to)) = (Version::parse(oldest), Version::parse(&self.newest)) else {
            return Err(Error::not_supported(format!(
                "the Engine speaks API {:?} to {:?}, and this driver {OLDEST} to {NEWEST}",
                brief(oldest),
                brief(&self.newest)
            )));
        };
        let version = pinned.unwrap_or(NEWEST.min(to));
        if version >= OLDEST && (from..=to).contains(&version) {
            return Ok(version);
        }
        let (ours, advice) = match pinned {
            Some(pinned) => (format!("apiVersion demands {pinned}"), "change or remove it"),
            None => (format!("this driver {OLDEST} to {NEWEST}"), "another version of one of both is needed"),
        };
        Err(Error::not_supported(format!("the Engine speaks API {from} to {to}, and {ours}: {advice}")))
    }
}

#[cfg(test)]
mod tests {
    use ccm_drivers::contract::ErrorKind;

    use super::*;

    fn choose(oldest: &str, newest: &str, pinned: Option<&str>) -> Result<String> {
        let spoken = Spoken { newest: newest.to_owned(), oldest: Some(oldest.to_owned()) };
        let pinned = pinned.map(|text| Version::pinned(text).unwrap());
        spoken.choose(pinned).map(|version| version.to_string())
    }

    #[test]
    fn the_newest_version_of_both_is_spoken() {
        assert_eq!(choose("1.12", "1.41", None).unwrap(), "1.41");
        assert_eq!(choose("1.40", "1.56", None).unwrap(), "1.51");
        assert_eq!(choose("1.51", "1.56", None).unwrap(), "1.51");
        assert_eq!(choose("1.12", "1.41", Some("1.40")).unwrap(), "1.40");
        let cases = [
            ("1.12", "1.39", None, "the Engine speaks API 1.12 to 1.39, and this driver 1.40 to 1.51"),
            ("1.52", "1.60", None, "the Engine speaks API 1.52 to 1.60, and this driver 1.40 to 1.51"),
            ("1.12", "1.41", Some("1.45"), "apiVersion demands 1.45"),
            ("1.44", "1.56", Some("1.41"), "apiVersion demands 1.41"),
            ("1.12", "2.0", None, "\"2.0\""),
            ("x", "1.41", None, "\"x\""),
        ];
        for (oldest, newest, pinned, expected) in cases {
            let error = choose(oldest, newest, pinned).unwrap_err();
            assert_eq!(error.kind, ErrorKind::NotSupported);
            assert!(error.message.contains(expected), "{error}");
        }
        // An Engine that does not say its oldest version.
        assert_eq!(Spoken { newest: "1.41".to_owned(), oldest: None }.choose(None).unwrap(), Version(41));
    }

    #[test]
    fn a_bad_pin_is_refused() {
        for (text, expected) in
            [("41", "such as 1.41"), ("1.+41", "such as"), ("1.39", "1.40 to 1.51"), ("1.99", "1.40 to 1.51")]
        {
            let error = Version::pinned(text).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument("apiVersion".to_owned()));
            assert!(error.message.contains(expected), "{error}");
        }
    }
}
