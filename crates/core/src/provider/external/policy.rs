//! The file of `--provider-policy`: pinned as packages are, and used exactly as checked (pure).
//!
//! The policy extends what a pinned package may do. It is pinned so that nobody can later add what the administrator
//! has not allowed.

use std::path::PathBuf;

use super::{PIN, Pinning, split_pin};
use crate::{
    object::reference::is_digest,
    provider::{package::digest, verify::Policy},
    text::located,
};

const FLAG: &str = "--provider-policy";

/// A requested policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The digest that the file must have, `sha256:HEX`, if it is given.
    pub digest: Option<String>,
}

/// A policy that was read, and by default the policy without a file.
#[derive(Clone, Debug, Default)]
pub struct LoadedPolicy {
    /// The exceptions that the file allows.
    pub policy: Policy,
    /// The text of the file, if there is one.
    pub text: Option<String>,
}

impl PolicyFile {
    /// Reads the value of the flag: a path, and the digest after `@`.
    pub fn of_flag(text: &str) -> Self {
        let (path, digest) = split_pin(text);
        Self { path: PathBuf::from(path), digest }
    }

    /// Checks the form of the digest, and that it is given if it is required.
    pub(super) fn check_pin(&self, pinning: Pinning) -> Result<(), String> {
        let path = self.path.display();
        match &self.digest {
            None if pinning == Pinning::Required => Err(format!(
                "{FLAG} {path}: no digest is given, so the text is not verified: review it, then give {FLAG} {path}{PIN}… with the \
                 digest that `ccm-operator provider digest {path}` prints"
            )),
            Some(digest) if !is_digest(digest) => {
                Err(format!("{FLAG} {path}: {digest:?} is no digest: it must be sha256: and 64 hexadecimal digits"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the digest of the file's text, then parses the text.
    pub(super) fn load(&self, text: String) -> Result<LoadedPolicy, String> {
        let (path, found) = (self.path.display(), digest(text.as_bytes()));
        if let Some(expected) = self.digest.as_ref().filter(|expected| **expected != found) {
            return Err(format!(
                "{FLAG}: expected the digest {expected}, found {found} at {path}: somebody has changed it, or the digest is of another file"
            ));
        }
        let policy = Policy::parse(&text).map_err(|error| located(path, error.place, &error.message))?;
        Ok(LoadedPolicy { policy, text: Some(text) })
    }
}
