//! The file of a driver and the digest that it has to have (pure).

use std::{fmt, path::PathBuf, str::FromStr};

use crate::problem::Problem;

/// What stands between the path and the digest.
const SEPARATOR: &str = "@sha256:";

/// The number of hexadecimal digits of a SHA-256 digest.
const DIGITS: usize = 64;

/// The file of a driver and the digest that it has to have, as `--driver` takes them: `PATH@sha256:DIGEST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// The path of the file.
    pub path: PathBuf,
    /// The SHA-256 digest of the file: 64 lowercase hexadecimal digits, as `sha256sum` prints it.
    pub digest: String,
}

impl Pin {
    /// A path and what `sha256sum` prints for it. Fails if the digest has another form.
    pub fn new(path: impl Into<PathBuf>, digest: &str) -> Result<Self, Problem> {
        let is_digit = |one: u8| one.is_ascii_digit() || (b'a'..=b'f').contains(&one);
        if digest.len() != DIGITS || !digest.bytes().all(is_digit) {
            return Err(Problem::Digest { text: digest.to_owned() });
        }
        Ok(Self { path: path.into(), digest: digest.to_owned() })
    }
}

impl FromStr for Pin {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        match text.rsplit_once(SEPARATOR) {
            Some((path, digest)) if !path.is_empty() => Self::new(path, digest),
            _ => Err(Problem::Pin { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{SEPARATOR}{}", self.path.display(), self.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_a_path_and_a_whole_digest() {
        let digest = "60e5cdbcb910c6331c796ce66dfa32e50bf083689ffdf18ee136d91a9da5ddab";
        let text = format!("/cloud-providers/a@sha256:b@sha256:{digest}");
        let pin: Pin = text.parse().unwrap();
        assert_eq!(pin.path, PathBuf::from("/cloud-providers/a@sha256:b"));
        assert_eq!(pin.to_string(), text);
        assert_eq!(Pin::new("x", digest).unwrap().digest, digest);
        let (upper, short, long) = (digest.to_uppercase(), &digest[1..], format!("{digest}0"));
        for digest in [&upper, short, &long, "", &digest.replace('6', "g"), &format!(" {short}")] {
            let problem = format!("/x@sha256:{digest}").parse::<Pin>().unwrap_err();
            assert!(matches!(problem, Problem::Digest { .. }), "{problem}");
        }
        let prefixed = Pin::new("/x", &format!("sha256:{digest}")).unwrap_err().to_string();
        assert!(prefixed.contains("in lowercase, without sha256: in front: take"), "{prefixed}");
        for text in ["", "/x", &format!("/x@{digest}"), &format!("/x@sha512:{digest}"), &format!("@sha256:{digest}")] {
            let problem = text.parse::<Pin>().unwrap_err();
            assert!(matches!(problem, Problem::Pin { .. }), "{problem}");
        }
    }
}
