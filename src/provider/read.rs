//! Reads providers from a folder on disk (IO).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::provider::{
    folder::{self, Bundle, has_yaml_extension},
    payload::Payload,
};

/// The providers of a folder cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a folder with providers.
    #[error("{} has no folder assets/<cloud>: give the folder that holds assets/", .0.display())]
    NoProviders(PathBuf),
    /// A file or a folder in it cannot be read.
    #[error("failed to read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Reads the providers of a folder with `assets/` and `bootstrap/`, and its install payload if it has `manifests/`.
pub fn read(folder: &Path) -> Result<(Vec<Bundle>, Option<Payload>), Error> {
    let mut files = Vec::new();
    for root in ["assets", "bootstrap"] {
        if folder.join(root).is_dir() {
            collect(folder, root, &mut files)?;
        }
    }
    if !files.iter().any(|(path, _)| path.starts_with("assets/") && path.matches('/').count() > 1) {
        return Err(Error::NoProviders(folder.to_owned()));
    }
    let bundles = folder::bundles(files);
    if !folder.join("manifests").is_dir() {
        return Ok((bundles, None));
    }
    let mut files = Vec::new();
    collect(folder, "manifests", &mut files)?;
    files.retain(|(path, _)| has_yaml_extension(path));
    Ok((bundles, Some(Payload::read(files))))
}

/// Collects the files below a folder, as (path with slashes from the root, bytes).
fn collect(root: &Path, below: &str, files: &mut Vec<(String, Vec<u8>)>) -> Result<(), Error> {
    let folder = root.join(below);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Read { path, source }
    };
    for entry in fs::read_dir(&folder).map_err(failed(&folder))? {
        let entry = entry.map_err(failed(&folder))?;
        let (path, name) = (entry.path(), format!("{below}/{}", entry.file_name().to_string_lossy()));
        if path.is_dir() {
            collect(root, &name, files)?;
        } else {
            files.push((name, fs::read(&path).map_err(failed(&path))?));
        }
    }
    Ok(())
}
