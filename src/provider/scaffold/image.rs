//! The image of a new provider, in the notation of the command line (pure).

use std::{fmt, str::FromStr};

use crate::object::reference::is_digest;

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its registry and path.
    pub repository: String,
    /// Its tag.
    pub tag: String,
    /// Its digest. OpenShift's flavor needs it at once, because no table of versions is there; the other one before somebody else
    /// uses the provider.
    pub digest: Option<String>,
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.digest.as_ref().map(|digest| format!("@{digest}")).unwrap_or_default();
        write!(f, "{}:{}{digest}", self.repository, self.tag)
    }
}

impl FromStr for Image {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const PROBLEM: &str = "must be REPOSITORY:TAG, such as ghcr.io/example/cloud-controller-manager:v1.0.0, or REPOSITORY:TAG@sha256:DIGEST";
        let (text, digest) = text.split_once('@').map_or((text, None), |(text, digest)| (text, Some(digest)));
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(PROBLEM);
        }
        let is_path = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._/:".contains(c);
        let is_tag = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        match text.rsplit_once(':') {
            Some((_, "latest")) => Err("name a version: latest changes by itself"),
            Some((repository, tag))
                if repository.contains('/')
                    && repository.chars().all(is_path)
                    && !tag.is_empty()
                    && tag.chars().all(is_tag) =>
            {
                let (repository, tag, digest) = (repository.to_owned(), tag.to_owned(), digest.map(ToOwned::to_owned));
                Ok(Self { repository, tag, digest })
            }
            _ => Err(PROBLEM),
        }
    }
}
