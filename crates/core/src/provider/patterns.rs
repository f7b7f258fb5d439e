//! Patterns for the texts of a descriptor that become parts of an image, a path or a printed command (pure).
//!
//! The fields of `CloudControllerManager` that override them have the same patterns, in [`crate::api::spec`].

/// The largest length of a repository, a tag and a file name, in bytes, as in the definition of `CloudControllerManager`.
const LONGEST: [usize; 3] = [255, 128, 253];

/// Whether a text is an image repository without a tag.
pub(super) fn is_repository(text: &str) -> bool {
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends = [text.bytes().next(), text.bytes().next_back()];
    let is_inner = |byte: u8| is_end(byte) || b"-._:/".contains(&byte);
    (2..=LONGEST[0]).contains(&text.len()) && ends.into_iter().flatten().all(is_end) && text.bytes().all(is_inner)
}

pub(super) fn is_tag(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=LONGEST[1]).contains(&text.len()) && !text.starts_with(['-', '.']) && text.bytes().all(is_inner)
}

/// Whether a text is a file name: a key of a ConfigMap or a Secret, and the last part of a path. The API server has the same rule for
/// both kinds (k8s.io/apimachinery, `IsConfigMapKey`).
pub fn is_file(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=LONGEST[2]).contains(&text.len()) && text != "." && !text.starts_with("..") && text.bytes().all(is_inner)
}

/// Whether a text is the name of an environment variable.
pub fn is_variable(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Splits an image into its repository and its tag, without its digest. A colon before the last slash belongs to a port.
pub fn repository_and_tag(image: &str) -> (&str, Option<&str>) {
    let image = image.split('@').next().unwrap_or_default();
    let end = image.rfind('/').unwrap_or_default();
    match image[end..].find(':') {
        Some(at) => (&image[..end + at], Some(&image[end + at + 1..])),
        None => (image, None),
    }
}

/// Whether an image is from a repository, even in another registry or under another path with the same end.
pub(super) fn is_of(image: &str, repository: &str) -> bool {
    let (path, _) = repository_and_tag(image);
    let name = repository.rsplit('/').next().unwrap_or_default();
    // Names that more than one cloud uses.
    let count = if ["cloud-controller-manager", "controller"].contains(&name) { 2 } else { 1 };
    path.rsplit('/').take(count).eq(repository.rsplit('/').take(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_or_a_path_would_take_for_something_else_is_refused() {
        for good in ["docker.io/a/b", "lab:5000/a_b/c.d-e", "ab"] {
            assert!(is_repository(good), "{good}");
        }
        for bad in ["", "a", "/a", "a/", "A/b", "a b", "a/b;curl x|sh;#", "a$(x)", "a\n/b", &"a".repeat(256)] {
            assert!(!is_repository(bad), "{bad}");
        }
        for good in ["v1.0.0", "0.35.2", "_a", "A-b.c_d"] {
            assert!(is_tag(good), "{good}");
        }
        for bad in ["", ".a", "-a", "a;b", "a b", "a/b", "a@sha256", &"a".repeat(129)] {
            assert!(!is_tag(bad), "{bad}");
        }
        for good in ["cloud.conf", "on", ".a", "nutanix_config.json"] {
            assert!(is_file(good), "{good}");
        }
        for bad in ["", ".", "..", "..data", "../../../etc/passwd", "/etc/passwd", "a b", "a/b"] {
            assert!(!is_file(bad), "{bad}");
        }
    }
}
