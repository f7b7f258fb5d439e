//! Versions of Kubernetes (pure).

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, de};

/// A minor version of Kubernetes, such as `1.35`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minor(pub u32);

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.0)
    }
}

impl FromStr for Minor {
    type Err = String;

    /// Reads `1.35`, `v1.35` or `v1.35.4+k3s1`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text.strip_prefix('v').unwrap_or(text).split('.');
        let minor = (numbers.next() == Some("1")).then(|| numbers.next()).flatten();
        // Some distributions write 1.35+.
        let minor = minor.and_then(|minor| minor.trim_end_matches('+').parse().ok());
        minor.map(Self).ok_or_else(|| format!("{text:?} is not a version of Kubernetes, such as 1.35"))
    }
}

impl<'de> Deserialize<'de> for Minor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl schemars::JsonSchema for Minor {
        fn schema_name() -> std::borrow::Cow<'static, str> {
            "Minor".into()
        }

        fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
            schemars::json_schema!({"type": "string", "pattern": r"^1\.[0-9]+$"})
        }
    }

    #[test]
    fn a_minor_version_is_read_as_servers_and_people_write_it() {
        for text in ["1.35", "v1.35", "v1.35.4", "v1.35.4+k3s1", "1.35+", "v1.35.0-alpha.1"] {
            assert_eq!(text.parse(), Ok(Minor(35)), "{text}");
        }
        for text in ["", "1", "1.", "2.35", "v35.1", "latest", "1.x"] {
            assert!(text.parse::<Minor>().is_err(), "{text}");
        }
        assert_eq!(Minor(9).to_string(), "1.9");
        assert!(Minor(9) < Minor(10));
    }
}
