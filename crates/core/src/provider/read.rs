//! Reads the providers of a repository's tree (IO). As in packages, no link below the given path is followed.

use std::path::{Path, PathBuf};

use crate::{
    files::folder::{Folder, Opened, Unreadable, open},
    provider::{
        self,
        folder::{self, ParsedProvider, has_yaml_extension},
        package::{FileCounter, FileLimits},
        payload::Payload,
    },
    text::yaml::cost::Cost,
};

/// The limits of a repository's tree, which may be untrusted too.
const TREE: FileLimits = FileLimits {
    what: "tree",
    files: 2_048,
    sum: 8 << 20,
    cost: Cost { values: 60_000, mappings: 12_000, bytes: 8 << 20, paths: 32 << 20 },
};

/// The reason why the providers of a folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a folder with providers.
    #[error("{} has no folder assets/<cloud>: give the folder that holds assets/", .0.display())]
    NoProviders(PathBuf),
    /// A file or a folder in it cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The folder exceeds a limit.
    #[error(transparent)]
    TooMuch(#[from] provider::Error),
}

/// Reads the providers of a folder with `assets/` and `bootstrap/`, and its install payload if it has `manifests/`.
pub fn read(path: &Path) -> Result<(Vec<ParsedProvider>, Option<Payload>), Error> {
    let no_providers = || Error::NoProviders(path.to_owned());
    let Opened::Folder(root) = open(path)? else { return Err(no_providers()) };
    let mut counter = FileCounter::new(TREE);
    let mut files = Vec::new();
    for below in ["assets", "bootstrap"] {
        collect(root.folder(below)?, below, |_| true, (&mut files, &mut counter))?;
    }
    if !files.iter().any(|(path, _)| path.starts_with("assets/") && path.matches('/').count() > 1) {
        return Err(no_providers());
    }
    let parsed_providers = folder::parsed_providers(files);
    let manifests = root.folder("manifests")?;
    if manifests.is_none() {
        return Ok((parsed_providers, None));
    }
    let mut files = Vec::new();
    // Other files, such as the link image-references, are not for clusters.
    collect(manifests, "manifests", has_yaml_extension, (&mut files, &mut counter))?;
    Ok((parsed_providers, Some(Payload::read(files))))
}

/// Collects the files of a folder with wanted names, as (path with slashes from the root, bytes).
fn collect(
    folder: Option<Folder>,
    below: &str,
    is_wanted: fn(&str) -> bool,
    (files, counter): (&mut Vec<(String, Vec<u8>)>, &mut FileCounter),
) -> Result<(), Error> {
    let Some(folder) = folder else { return Ok(()) };
    for name in folder.names(TREE.files)?.into_iter().filter(|name| is_wanted(name)) {
        let path = format!("{below}/{name}");
        match folder.open(&name)? {
            Some(Opened::File(file)) => {
                counter.add(&path, file.size)?;
                let bytes = file.read()?;
                counter.add_cost(&path, std::str::from_utf8(&bytes).unwrap_or_default())?;
                files.push((path, bytes));
            }
            Some(Opened::Folder(inner)) => collect(Some(inner), &path, is_wanted, (files, counter))?,
            None => {}
        }
    }
    Ok(())
}
