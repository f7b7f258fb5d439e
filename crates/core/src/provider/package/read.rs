//! Reads packages from disk (IO): a folder, a tar or the layout of an OCI image.
//!
//! Everything is opened once and read once, and these bytes are the package: later changes on disk do not matter. Below
//! the given path no link is followed, except the kubelet's own in a mounted ConfigMap.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

pub use super::PackageFormat;
use super::{FOLDERS, FileCounter, MAX_FILES, PACKAGE, Package, check_path, oci, tar};
use crate::{
    files::folder::{Folder, Opened, Unreadable, open},
    provider,
};

/// The link in a mounted ConfigMap by which the kubelet swaps all files at once.
const DATA: &str = "..data";

/// The number of attempts to read a folder that is swapped meanwhile. The kubelet takes about a minute between two swaps.
const ATTEMPTS: usize = 3;

/// The most entries of a folder: files, subfolders, and the entries of the kubelet.
const MAX_ENTRIES: usize = MAX_FILES + 8;

/// The reason why a package cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or a folder cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The path does not lead to a package.
    #[error("{} is not a package of a provider", path.display())]
    Invalid {
        /// The path that was given.
        path: PathBuf,
        /// The defect.
        source: provider::Error,
    },
}

/// A package that was read.
#[derive(Clone, Debug)]
pub struct LoadedPackage {
    /// The package.
    pub package: Package,
    /// The digest that a pin names: that of the canonical tar, or of the manifest of an OCI image.
    pub digest: String,
    /// The form in which the package was given.
    pub form: PackageFormat,
}

impl From<provider::Error> for Error {
    /// Leaves the path empty: [`read`] sets it.
    fn from(source: provider::Error) -> Self {
        Self::Invalid { path: PathBuf::new(), source }
    }
}

/// Reads the package of a folder, a tar or the layout of an OCI image. Its name is the name of the folder, or of the tar without
/// its extension.
pub fn read(path: &Path) -> Result<LoadedPackage, Error> {
    load(path).map_err(|error| match error {
        Error::Invalid { source, .. } => Error::Invalid { path: path.to_owned(), source },
        unreadable @ Error::Unreadable(_) => unreadable,
    })
}

fn load(path: &Path) -> Result<LoadedPackage, Error> {
    let name = name_of(path)?;
    let (package, form) = match open(path)? {
        Opened::Folder(folder) if folder.open(oci::MARK)?.is_some() => {
            let mut read = BTreeSet::new();
            let (package, digest) = Package::from_oci_layout(|path, most| {
                read.insert(path.to_owned());
                read_within(&folder, path, most)
            })?;
            check_beside(&folder, &read)?;
            check_name_of(&package, &name)?;
            return Ok(LoadedPackage { package, digest, form: PackageFormat::Layout });
        }
        Opened::Folder(folder) => (read_folder(&folder, &name)?, PackageFormat::Folder),
        Opened::File(file) => {
            tar::check_size(file.size)?;
            let package = Package::from_tar(&file.read()?)?;
            check_name_of(&package, name.strip_suffix(".tar").unwrap_or(&name))?;
            (package, PackageFormat::Tar)
        }
    };
    Ok(LoadedPackage { digest: package.digest().to_owned(), package, form })
}

/// Returns the last part of a path, even of `.`.
fn name_of(path: &Path) -> Result<String, Unreadable> {
    let failed = |source| Unreadable { path: path.to_owned(), source };
    let name = match path.file_name() {
        Some(name) => Some(name.to_owned()),
        None => path.canonicalize().map_err(failed)?.file_name().map(ToOwned::to_owned),
    };
    let name = name.ok_or_else(|| failed(io::Error::other("it has no name, which is the provider's")))?;
    name.into_string().map_err(|_| failed(io::Error::other("its name is not UTF-8; rename it")))
}

/// Checks that the package has the same name as its file or folder.
fn check_name_of(package: &Package, name: &str) -> Result<(), provider::Error> {
    if package.name() == name {
        return Ok(());
    }
    let problem = format!("it holds the provider {:?}; give it the same name", package.name());
    Err(provider::Error::new(name, None, problem))
}

/// Reads a file of at most this many bytes below a folder.
fn read_within(root: &Folder, path: &str, most: u64) -> Result<Vec<u8>, Error> {
    let (below, name) = path.rsplit_once('/').unwrap_or(("", path));
    let missing = || provider::Error::new(path, None, "missing");
    let file = root.descend(below)?.ok_or_else(missing)?.file(name)?;
    if file.size > most {
        let problem = format!("{} bytes; it may have {most}", file.size);
        return Err(provider::Error::new(path, None, problem).into());
    }
    Ok(file.read()?)
}

/// Refuses a layout with files that were not read, because users would review them in place of the package.
fn check_beside(root: &Folder, read: &BTreeSet<String>) -> Result<(), Error> {
    let folders: BTreeSet<_> =
        read.iter().flat_map(|path| path.match_indices('/').map(|(at, _)| &path[..at])).collect();
    for below in [""].into_iter().chain(folders.iter().copied()) {
        let Some(folder) = root.descend(below)? else { continue };
        for name in folder.names(MAX_ENTRIES)? {
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            if !read.contains(&path) && !folders.contains(path.as_str()) {
                let problem = "not a part of the image: the layout of a package has oci-layout, index.json and the blobs of one \
                               image in blobs/sha256/, and nothing else";
                return Err(provider::Error::new(&path, None, problem).into());
            }
        }
    }
    Ok(())
}

/// Reads a folder, or the target of the link `..data` in a mounted ConfigMap.
fn read_folder(folder: &Folder, name: &str) -> Result<Package, Error> {
    for _ in 0..ATTEMPTS {
        let Some(target) = folder.link(DATA)? else { return read_files(folder, name) };
        let package = behind(folder, &target).and_then(|dated| read_files(&dated, name));
        // The kubelet removes the previous files after it has changed the link.
        if folder.link(DATA)?.as_ref() == Some(&target) {
            check_mount(folder)?;
            return package;
        }
    }
    let source = io::Error::other("it leads to other files each time that they are read; retry");
    Err(Unreadable { path: folder.path().join(DATA), source }.into())
}

/// Returns the target of the kubelet's link: a folder beside the link, with a name such as `..2026_01_31_12_00_00.123`.
fn behind(folder: &Folder, target: &str) -> Result<Folder, Error> {
    let is_beside = target.starts_with("..") && target.len() > 2 && !target.contains('/');
    let dated = if is_beside { folder.folder(target)? } else { None };
    let problem = || format!("leads to {target:?}, not to one of the kubelet's folders beside it");
    dated.ok_or_else(|| provider::Error::new(DATA, None, problem()).into())
}

/// Checks that a mounted ConfigMap has only the kubelet's own entries and its links to files.
fn check_mount(folder: &Folder) -> Result<(), Error> {
    for name in folder.names(MAX_ENTRIES)? {
        if !name.starts_with("..") && folder.link(&name)? != Some(format!("{DATA}/{name}")) {
            let problem = format!("unknown file: beside the link {DATA} there are only links into it");
            return Err(provider::Error::new(&name, None, problem).into());
        }
    }
    Ok(())
}

fn read_files(root: &Folder, name: &str) -> Result<Package, Error> {
    let (mut files, mut counter) = (Vec::new(), FileCounter::new(PACKAGE));
    for below in [""].into_iter().chain(FOLDERS) {
        let Some(folder) = root.descend(below)? else { continue };
        for entry in folder.names(MAX_ENTRIES)? {
            let path = format!("{below}{entry}");
            if FOLDERS.contains(&format!("{path}/").as_str()) {
                continue;
            }
            check_path(name, &path)?;
            let file = folder.file(&entry)?;
            counter.add(&path, file.size)?;
            files.push((path, file.read()?));
        }
    }
    Ok(Package::new(name, files)?)
}

#[cfg(test)]
mod tests;
