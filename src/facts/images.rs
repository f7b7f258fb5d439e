//! The images that providers use: `images.json`, key → image reference (pure).

use std::collections::BTreeMap;

use serde_json::Value;

/// Why the images cannot be known, or one of them.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The file or object cannot be read.
    #[error("failed to read images from {from}: {why}")]
    Unreadable {
        /// The file.
        from: String,
        /// The cause.
        why: String,
    },
    /// It is not the JSON object that it should be.
    #[error("images in {from}: {why}")]
    Malformed {
        /// The file, and the key in it where there is one.
        from: String,
        /// What is wrong and where.
        why: String,
    },
    /// The key that a provider needs is absent.
    #[error("images in {from} have no key {key:?}{hint}: add it with the image of container {container}")]
    NoKey {
        /// The file.
        from: String,
        /// The key.
        key: String,
        /// The nearest key, if one is near.
        hint: String,
        /// The container that needs it.
        container: String,
    },
    /// The key that a provider needs has no value.
    #[error("images in {from}: key {key:?} is empty: give the image of container {container}")]
    Empty {
        /// The file.
        from: String,
        /// The key.
        key: String,
        /// The container that needs it.
        container: String,
    },
}

/// Image references by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images {
    by_key: BTreeMap<String, String>,
    from: String,
}

impl Images {
    /// Parses `images.json`; `from` names the file in errors.
    pub fn parse(json: &str, from: &str) -> Result<Self, Error> {
        let malformed = |why: String| Error::Malformed { from: from.to_owned(), why };
        let value: Value = serde_json::from_str(json).map_err(|error| malformed(format!("not JSON: {error}")))?;
        let Value::Object(members) = value else {
            return Err(malformed("not a JSON object of key and image reference".into()));
        };
        let by_key = members
            .into_iter()
            .map(|(key, value)| match value {
                Value::String(image) => Ok((key, image)),
                _ => Err(malformed(format!("the value of key {key:?} is not a string"))),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { by_key, from: from.to_owned() })
    }

    /// Images that come from no file.
    pub fn new(by_key: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { by_key: by_key.into_iter().collect(), from: String::new() }
    }

    /// The image of a key, which `container` needs.
    pub fn get(&self, key: &str, container: &str) -> Result<&str, Error> {
        let (from, owned_key, container) = (self.from.clone(), key.to_owned(), container.to_owned());
        match self.by_key.get(key).map(|image| image.trim()) {
            None => {
                let hint = crate::text::suggest::did_you_mean(key, self.by_key.keys().map(String::as_str));
                Err(Error::NoKey { from, key: owned_key, hint, container })
            }
            Some("") => Err(Error::Empty { from, key: owned_key, container }),
            Some(image) => Ok(image),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(json: &str) -> String {
        Images::parse(json, "images.json")
            .and_then(|images| images.get("aws", "ccm").map(drop))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn errors_say_what_and_where() {
        assert_eq!(error("{\n \"aws\": ]"), "images in images.json: not JSON: expected value at line 2 column 9");
        assert_eq!(error("[]"), "images in images.json: not a JSON object of key and image reference");
        assert_eq!(error(r#"{"aws": 1}"#), "images in images.json: the value of key \"aws\" is not a string");
        assert_eq!(error("{}"), "images in images.json have no key \"aws\": add it with the image of container ccm");
        assert_eq!(
            error(r#"{"AWS": "x"}"#),
            "images in images.json have no key \"aws\" (did you mean `AWS`?): add it with the image of container ccm"
        );
        assert_eq!(
            error(r#"{"aws": " "}"#),
            "images in images.json: key \"aws\" is empty: give the image of container ccm"
        );
    }
}
