//! The file of `--provider-policy`: pinned as packages are, and used exactly as checked (pure).
//!
//! The policy extends what a pinned package may do. It is pinned so that nobody can later add what the administrator
//! has not allowed.

use std::path::PathBuf;

use super::{PIN, split};
use crate::{
    object::reference::is_digest,
    provider::{package::digest, verify::Policy},
    text::located,
};

const FLAG: &str = "--provider-policy";

/// A file that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    /// Its path.
    pub path: PathBuf,
    /// The digest that it must have, `sha256:HEX`; `None` if that is not said.
    pub digest: Option<String>,
}

/// A policy that was read.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// What it allows.
    pub policy: Policy,
    /// The text of the file, if there is one.
    pub text: Option<String>,
}

impl PolicyFile {
    /// What the flag asks for: a path, and the digest after `@`.
    pub fn of_flag(text: &str) -> Self {
        let (path, digest) = split(text);
        Self { path: PathBuf::from(path), digest }
    }

    /// Checks the digest that is given. `is_pinned`: one must be.
    pub(super) fn check_pin(&self, is_pinned: bool) -> Result<(), String> {
        let path = self.path.display();
        match &self.digest {
            None if is_pinned => Err(format!(
                "{FLAG} {path}: no digest is given, so its text could be anybody's: look at it, then give {FLAG} {path}{PIN}… with the \
                 digest that `ccm-operator provider digest {path}` prints"
            )),
            Some(digest) if !is_digest(digest) => {
                Err(format!("{FLAG} {path}: {digest:?} is no digest: it must be sha256: and 64 hexadecimal digits"))
            }
            _ => Ok(()),
        }
    }

    /// The policy of the file's text, if that has the digest.
    pub(super) fn load(&self, text: String) -> Result<Loaded, String> {
        let (path, found) = (self.path.display(), digest(text.as_bytes()));
        if let Some(expected) = self.digest.as_ref().filter(|expected| **expected != found) {
            return Err(format!(
                "{FLAG}: expected the digest {expected}, found {found} at {path}: somebody has changed it, or the digest is of another file"
            ));
        }
        let policy = Policy::parse(&text).map_err(|error| located(path, error.place, &error.message))?;
        Ok(Loaded { policy, text: Some(text) })
    }
}
