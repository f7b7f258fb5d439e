//! Reads providers from a folder on disk (IO).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    files,
    provider::{
        folder::{self, Bundle, has_yaml_extension},
        payload::Payload,
    },
    text::yaml::cost::{Cost, cost},
};

/// The largest file that is read: what a package may have.
const MAX_BYTES: u64 = 1 << 20;

/// The most that a tree of providers may have, which may be a stranger's too.
const MOST: Left = Left {
    files: 2_048,
    bytes: 8 << 20,
    cost: Cost { values: 60_000, mappings: 12_000, bytes: 8 << 20, paths: 32 << 20 },
};

/// What the files of a tree may still have.
#[derive(Clone, Copy)]
struct Left {
    files: usize,
    bytes: u64,
    cost: Cost,
}

impl Left {
    /// Takes a file away, or says what there is too much of.
    fn take(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.files = self.files.checked_sub(1).ok_or_else(|| format!("a tree may have {} files", MOST.files))?;
        let left = self.bytes.checked_sub(bytes.len() as u64);
        self.bytes = left.ok_or_else(|| format!("with it the files are larger than {} MiB", MOST.bytes >> 20))?;
        let cost = cost(std::str::from_utf8(bytes).unwrap_or_default(), self.cost);
        let left = self.cost.less(cost);
        self.cost = left.ok_or_else(|| {
            let Cost { values, mappings, .. } = MOST.cost;
            format!(
                "with it the files have more than {values} values, {mappings} mappings, or too much text; an alias counts as what it \
                 stands for"
            )
        })?;
        Ok(())
    }
}

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
    let (mut files, mut left) = (Vec::new(), MOST);
    for root in ["assets", "bootstrap"] {
        if folder.join(root).is_dir() {
            collect(folder, root, &mut files, &mut left)?;
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
    collect(folder, "manifests", &mut files, &mut left)?;
    files.retain(|(path, _)| has_yaml_extension(path));
    Ok((bundles, Some(Payload::read(files))))
}

/// Refuses a link to a folder, because two links to the folder above would be read for ever, and one to a file that is none of
/// this folder's.
fn check_link(root: &Path, path: &Path) -> io::Result<()> {
    let target = fs::canonicalize(path)?;
    if target.is_dir() {
        return Err(io::Error::other("a link to a folder; put the folder itself in its place"));
    }
    if !target.starts_with(fs::canonicalize(root)?) {
        return Err(io::Error::other("a link that leads out of the folder; put the file itself in its place"));
    }
    Ok(())
}

/// Collects the files below a folder, as (path with slashes from the root, bytes).
fn collect(root: &Path, below: &str, files: &mut Vec<(String, Vec<u8>)>, left: &mut Left) -> Result<(), Error> {
    let folder = root.join(below);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Read { path, source }
    };
    for entry in fs::read_dir(&folder).map_err(failed(&folder))? {
        let entry = entry.map_err(failed(&folder))?;
        let (path, name) = (entry.path(), format!("{below}/{}", entry.file_name().to_string_lossy()));
        if path.is_symlink() {
            check_link(root, &path).map_err(failed(&path))?;
        }
        let meta = fs::metadata(&path).map_err(failed(&path))?;
        if meta.is_dir() {
            collect(root, &name, files, left)?;
        } else {
            // The folder may be a stranger's.
            let bytes = files::read_within(&path, MAX_BYTES).map_err(failed(&path))?;
            left.take(&bytes).map_err(|problem| failed(&path)(io::Error::other(problem)))?;
            files.push((name, bytes));
        }
    }
    Ok(())
}
