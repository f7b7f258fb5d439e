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
            // Every file: one that does not belong there is a defect.
            collect(folder, root, &|_| true, &mut files)?;
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
    collect(folder, "manifests", &has_yaml_extension, &mut files)?;
    Ok((bundles, Some(Payload::read(files))))
}

/// Collects the wanted files below a folder, as (path with slashes from the root, bytes).
fn collect(
    root: &Path,
    below: &str,
    is_wanted: &dyn Fn(&str) -> bool,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), Error> {
    let folder = root.join(below);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Read { path, source }
    };
    for entry in fs::read_dir(&folder).map_err(failed(&folder))? {
        let entry = entry.map_err(failed(&folder))?;
        let (path, name) = (entry.path(), format!("{below}/{}", entry.file_name().to_string_lossy()));
        if path.is_dir() {
            collect(root, &name, is_wanted, files)?;
        } else if is_wanted(&name) {
            files.push((name, fs::read(&path).map_err(failed(&path))?));
        }
    }
    Ok(())
}
