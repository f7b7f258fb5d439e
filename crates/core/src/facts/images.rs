//! The images that providers use: `images.json`, key → image reference (pure).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::text::Problem;

/// The reason why the images, or one of them, are unknown.
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
    /// The images are malformed, or one is missing.
    #[error("images in {0}")]
    Unusable(String),
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
        let malformed = |why: String| Error::Unusable(format!("{from}: {why}"));
        let value: Value =
            serde_json::from_str(json).map_err(|error| Error::Unusable(Problem::from(&error).of(from)))?;
        let Value::Object(members) = value else {
            return Err(malformed("not a JSON object of key and image reference".into()));
        };
        let image = |(key, value)| match value {
            Value::String(image) => Ok((key, image)),
            _ => Err(malformed(format!("the value of key {key:?} is not a string"))),
        };
        let by_key = members.into_iter().map(image).collect::<Result<_, _>>()?;
        Ok(Self { by_key, from: from.to_owned() })
    }

    /// Creates images that do not come from a file.
    pub fn new(by_key: impl IntoIterator<Item = (String, String)>) -> Self {
        Self { by_key: by_key.into_iter().collect(), from: String::new() }
    }

    /// Whether a key has an image.
    pub fn has(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    /// The image of a key, which `container` needs.
    pub fn get(&self, key: &str, container: &str) -> Result<&str, Error> {
        let from = &self.from;
        Err(Error::Unusable(match self.by_key.get(key).map(|image| image.trim()) {
            // No similar key is suggested: it would belong to another cloud.
            None => format!("{from} have no key {key:?}: add it with the image of container {container}"),
            Some("") => format!("{from}: key {key:?} is empty: give the image of container {container}"),
            Some(image) => return Ok(image),
        }))
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
        assert_eq!(error("{\n \"aws\": ]"), "images in images.json:2:9: invalid JSON: expected value");
        assert_eq!(error("[]"), "images in images.json: not a JSON object of key and image reference");
        assert_eq!(error(r#"{"aws": 1}"#), "images in images.json: the value of key \"aws\" is not a string");
        assert_eq!(
            error(r#"{"AWS": ""}"#),
            "images in images.json have no key \"aws\": add it with the image of container ccm"
        );
        assert_eq!(
            error(r#"{"aws": " "}"#),
            "images in images.json: key \"aws\" is empty: give the image of container ccm"
        );
    }
}
