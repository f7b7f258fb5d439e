//! A package: one provider's folder as one unit, packed as a canonical tar and pinned by its digest (pure).
//!
//! A package in any form is held in memory as its files, within limits, and everything is computed from those bytes.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    object::reference::hex,
    provider::{
        Error,
        folder::{self, ParsedProvider, has_yaml_extension},
        renamed,
    },
    text::{
        terminal,
        yaml::cost::{Cost, cost},
    },
};

mod oci;
pub mod read;
mod tar;

pub use oci::Layout;

const README: &str = "README.md";

/// The folders of manifests, each with a trailing slash.
const FOLDERS: [&str; 3] = ["assets/", "assets/kubernetes/", "bootstrap/"];

/// The longest name of a provider: a DNS label, with space for the suffixes of object names.
const MAX_NAME: usize = 40;

/// The prefix of the names of the operator's own objects on OpenShift.
const OPERATORS: &str = "cluster";

/// The longest path of a file, with the provider's name, that a tar header can hold.
const MAX_PATH: usize = 100;

/// The most bytes that the API server accepts in a ConfigMap.
const MAX_CONFIG_MAP: usize = 1 << 20;

const MAX_FILES: usize = 256;

const MAX_FILE: u64 = 1 << 20;

/// The largest total size of the files.
const MAX_SUM: u64 = 8 << 20;

/// The largest cost of reading its YAML. The largest provider of this repository needs less than a fifth. Values are copied several
/// times: into objects, plans and tables. Comments are in none of these, so the files may have more bytes than their texts.
const MAX_COST: Cost = Cost { values: 20_000, mappings: 20_000, bytes: 2 << 20, paths: 8 << 20 };

/// The limits of a package.
const PACKAGE: FileLimits = FileLimits { what: "package", files: MAX_FILES, sum: MAX_SUM, cost: MAX_COST };

/// The form in which a package was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PackageFormat {
    /// A part of this program.
    BuiltIn,
    /// A folder.
    Folder,
    /// A canonical tar.
    Tar,
    /// A folder with the layout of an OCI image.
    Layout,
}

impl PackageFormat {
    /// Returns the form in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::BuiltIn => "a part of this program",
            Self::Folder => "a folder",
            Self::Tar => "a tar",
            Self::Layout => "the layout of an OCI image",
        }
    }
}

/// One provider's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    name: String,
    /// The content of each file by its path in the folder.
    files: BTreeMap<String, Vec<u8>>,
    /// The [`digest`] of the canonical tar.
    digest: String,
}

impl Package {
    /// Builds a package from files, given as (path in the folder, bytes).
    pub fn new(
        name: &str,
        files: impl IntoIterator<Item = (impl Into<String>, impl Into<Vec<u8>>)>,
    ) -> Result<Self, Error> {
        let mut package = Self::without_digest(name, files)?;
        package.digest = digest(&package.tar());
        Ok(package)
    }

    /// Checks the files of a package. The digest is left to the caller, because a tar that was read need not be built again.
    fn without_digest(
        name: &str,
        files: impl IntoIterator<Item = (impl Into<String>, impl Into<Vec<u8>>)>,
    ) -> Result<Self, Error> {
        check_name(name)?;
        let mut package = Self { name: name.to_owned(), files: BTreeMap::new(), digest: String::new() };
        let mut counter = FileCounter::new(PACKAGE);
        for (path, bytes) in files {
            let (path, bytes) = (path.into(), bytes.into());
            check_path(name, &path)?;
            counter.add(&path, bytes.len() as u64)?;
            check_text(&path, &bytes)?;
            if let Some(text) = std::str::from_utf8(&bytes).ok().filter(|_| path != README) {
                counter.add_cost(&path, text)?;
            }
            if let Some(twice) = package.files.insert(path.clone(), bytes) {
                return Err(Error::new(&path, None, format!("given twice, first with {} bytes", twice.len())));
            }
        }
        if !package.files.keys().any(|path| path.starts_with(FOLDERS[0])) {
            let problem = "has no file assets/*.yaml or assets/kubernetes/*.yaml: not a provider's folder";
            return Err(Error::new(name, None, problem));
        }
        Ok(package)
    }

    /// The provider's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns its files as (path in the folder, bytes), sorted by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice()))
    }

    /// Returns a parsed provider for each of its flavors.
    pub fn parsed_providers(&self) -> Vec<ParsedProvider> {
        folder::parsed_providers_of(&self.name, self.files().filter(|(path, _)| *path != README))
    }

    /// Returns a ConfigMap with the tar. The pin is not in it, because a user who changes the tar could also change the pin.
    pub fn config_map(&self, namespace: &str) -> Result<Value, Error> {
        let (name, tar) = (self.name(), self.tar());
        if tar.len() > MAX_CONFIG_MAP {
            let problem = format!(
                "its tar has {} bytes, and the API server takes {MAX_CONFIG_MAP} in a ConfigMap: mount it from an image, which \
                 `ccm-operator provider pack --oci-layout` writes",
                tar.len()
            );
            return Err(Error::new(name, None, problem));
        }
        Ok(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": format!("provider-{name}"), "namespace": namespace},
            "binaryData": {format!("{name}.tar"): BASE64.encode(tar)},
        }))
    }

    /// The [`digest`] of the canonical tar.
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

/// Returns the SHA-256 of bytes in the form of a pin: `sha256:` and hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

/// The limits for files that are read together.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileLimits {
    /// The noun for all the files in messages.
    pub(super) what: &'static str,
    /// The largest number of files.
    pub(super) files: usize,
    /// The largest sum of their bytes.
    pub(super) sum: u64,
    /// The largest cost to read their YAML.
    pub(super) cost: Cost,
}

/// The totals of the files read so far, which decide whether another file may be read.
#[derive(Debug)]
pub(super) struct FileCounter {
    limits: FileLimits,
    files: usize,
    sum: u64,
    cost: Cost,
}

impl FileCounter {
    pub(super) fn new(limits: FileLimits) -> Self {
        Self { limits, files: 0, sum: 0, cost: Cost::default() }
    }

    pub(super) fn add(&mut self, path: &str, size: u64) -> Result<(), Error> {
        let refused = |problem: String| Err(Error::new(path, None, problem));
        check_file_size(path, size)?;
        let FileLimits { what, files, sum, .. } = self.limits;
        self.files += 1;
        if self.files > files {
            return refused(format!("one file too many: a {what} may have {files}"));
        }
        self.sum += size;
        if self.sum > sum {
            return refused(format!("with it the {what} has {} bytes; it may have {sum}", self.sum));
        }
        Ok(())
    }

    pub(super) fn add_cost(&mut self, path: &str, text: &str) -> Result<(), Error> {
        let FileLimits { what, cost: most, .. } = self.limits;
        self.cost = self.cost.plus(cost(text, most));
        if self.cost.is_within(most) {
            return Ok(());
        }
        let Cost { values, mappings, bytes, paths } = most;
        let problem = format!(
            "with it the {what} has more than {values} values, {mappings} mappings, {bytes} bytes of text, or {paths} bytes of keys that \
             lead to values; an alias counts as what it stands for"
        );
        Err(Error::new(path, None, problem))
    }
}

/// Checks that a terminal shows the text of a file unchanged, so that the reviewed text is the one in use.
fn check_text(path: &str, bytes: &[u8]) -> Result<(), Error> {
    let text = std::str::from_utf8(bytes).map_err(|error| Error::new(path, None, format!("not UTF-8: {error}")))?;
    match terminal::first(text) {
        Some((place, found)) => Err(Error::new(path, Some(place), terminal::refusal(found))),
        None => Ok(()),
    }
}

fn check_file_size(path: &str, size: u64) -> Result<(), Error> {
    if size <= MAX_FILE {
        return Ok(());
    }
    Err(Error::new(path, None, format!("{size} bytes; a file of a package may have {MAX_FILE}")))
}

/// Whether a text consists of lower-case letters and digits, and of hyphens between them.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn check_name(name: &str) -> Result<(), Error> {
    if name == OPERATORS {
        return Err(Error::new(
            name,
            None,
            "names that begin so are those of the operator's own objects: give it another name",
        ));
    }
    if is_label(name) && name.len() <= MAX_NAME {
        return Ok(());
    }
    let problem = format!(
        "not the name of a provider: it has at most {MAX_NAME} lower-case letters and digits, and hyphens between them"
    );
    Err(Error::new(&name.escape_debug().to_string(), None, problem))
}

/// Checks a path in a provider's folder. Every file system preserves the allowed file names.
fn check_path(name: &str, path: &str) -> Result<(), Error> {
    let refused = |problem: String| Err(Error::new(&path.escape_debug().to_string(), None, problem));
    if let Some(problem) = renamed::of_path(path, "") {
        return refused(problem);
    }
    let file = FOLDERS.iter().rev().find_map(|folder| path.strip_prefix(folder)).unwrap_or(path);
    let is_manifest = file != path && has_yaml_extension(file) && !file.contains('/');
    if path != README && !is_manifest {
        return refused(format!(
            "unknown file: a provider's folder has {README}, assets/*.yaml, assets/kubernetes/*.yaml and bootstrap/*.yaml"
        ));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !file.bytes().all(is_plain) || file.starts_with('.') {
        return refused(
            "the name of a file may have ASCII letters, digits, -, _ and ., and does not begin with .".to_owned(),
        );
    }
    let length = name.len() + 1 + path.len();
    if length > MAX_PATH {
        return refused(format!("{length} bytes long with the provider's name; it may be {MAX_PATH}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
