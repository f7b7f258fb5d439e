//! Writes a plan to files, whole or not at all (IO).
//!
//! Every file is first written beside its destination and synced. Then all are renamed. An error before the first
//! rename leaves nothing behind. Other files are not touched.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::{
    files::{Readers, beside, remove_incomplete},
    object::Object,
    text::yaml,
};

/// The configuration of the cloud, below the destination. It may hold credentials.
const CLOUD_CONFIG: &str = "config/cloud.conf";

/// Why files were not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A folder cannot be created, or a file cannot be written.
    #[error("failed to write {}", path.display())]
    Write {
        /// The folder or file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// An object cannot be written as YAML.
    #[error("failed to write a manifest as YAML")]
    Yaml(#[from] yaml::Error),
}

/// The files of the bootstrap phase, by their path below the destination.
pub fn bootstrap_files(objects: &[Object], cloud_config: Option<String>) -> Result<Vec<(PathBuf, String)>, Error> {
    let pods = objects
        .iter()
        .map(|pod| Ok((PathBuf::from(format!("bootstrap/{}-pod.yaml", pod.name())), yaml::to_string(pod)?)));
    let config = cloud_config.map(|text| Ok((PathBuf::from(CLOUD_CONFIG), text)));
    pods.chain(config).collect()
}

/// The files of the cluster phase, by their path below the destination; their names sort in the order of applying.
pub fn cluster_files(objects: &[Object]) -> Result<Vec<(PathBuf, String)>, Error> {
    let name = |(index, object): (usize, &Object)| {
        let kind = object.kind().kind.to_lowercase();
        Ok((PathBuf::from(format!("manifests/{index:02}-{kind}-{}.yaml", object.name())), yaml::to_string(object)?))
    };
    objects.iter().enumerate().map(name).collect()
}

/// Manifest files as one YAML stream.
pub fn stream<'a>(files: impl IntoIterator<Item = &'a (PathBuf, String)>) -> String {
    let documents = files.into_iter().flat_map(|(_, text)| [if text.starts_with("---") { "" } else { "---\n" }, text]);
    documents.collect()
}

/// Creates the folders below the destination and writes the files, whole or not at all. Returns their paths.
pub fn write(destination: &Path, folders: &[&str], files: &[(PathBuf, String)]) -> Result<Vec<PathBuf>, Error> {
    let mut created = Vec::new();
    let prepared = create_folders(destination, folders, &mut created).and_then(|()| prepare(destination, files));
    if prepared.is_err() {
        // Removes only empty folders.
        created.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
    }
    let mut paths = Vec::new();
    for (file, path) in prepared? {
        file.persist(&path).map_err(|error| failed(&path, error.error))?;
        paths.push(path);
    }
    for folder in folders {
        let folder = destination.join(folder);
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(|source| failed(&folder, source))?;
    }
    Ok(paths)
}

fn create_folders(destination: &Path, folders: &[&str], created: &mut Vec<PathBuf>) -> Result<(), Error> {
    for folder in folders {
        let folder = destination.join(folder);
        let missing: Vec<_> =
            folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
        for path in missing.iter().rev() {
            fs::create_dir(path).map_err(|source| failed(path, source))?;
            created.push(path.to_path_buf());
        }
        remove_incomplete(&folder);
    }
    Ok(())
}

/// Writes the files beside their destinations: a rename works only inside one file system.
fn prepare(destination: &Path, files: &[(PathBuf, String)]) -> Result<Vec<(NamedTempFile, PathBuf)>, Error> {
    let prepare = |(path, text): &(PathBuf, String)| {
        let path = destination.join(path);
        let folder = path.parent().unwrap_or(destination);
        let write = || {
            // A proxy's address may hold a password.
            let file = beside(folder, text, Readers::Group)?;
            // The rename would fail.
            if path.is_dir() { Err(io::Error::from(io::ErrorKind::IsADirectory)) } else { Ok(file) }
        };
        let file = write().map_err(|source| failed(&path, source))?;
        Ok((file, path))
    };
    files.iter().map(prepare).collect()
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Write { path: path.to_owned(), source }
}
