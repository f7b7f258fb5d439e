//! Writes a plan to files, whole or not at all (IO).
//!
//! Every file is written beside its place first, and synced; then all are renamed. An error before the first rename
//! leaves nothing behind. Files that are not written here are not touched. It never decides what is written.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::files::beside;
use crate::{object::Object, text::yaml};

/// Why files were not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder cannot be made, or nothing can be written in it.
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
    let config = cloud_config.map(|text| Ok((PathBuf::from("config/cloud.conf"), text)));
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

/// The objects as one YAML stream.
pub fn stream(objects: &[Object]) -> Result<String, Error> {
    let documents = objects.iter().map(|object| Ok(format!("---\n{}", yaml::to_string(object)?)));
    documents.collect()
}

/// Makes the folders below the destination and writes the files, whole or not at all. Answers their paths.
pub fn write(destination: &Path, folders: &[&str], files: &[(PathBuf, String)]) -> Result<Vec<PathBuf>, Error> {
    let mut made = Vec::new();
    let written = make_folders(destination, folders, &mut made).and_then(|()| prepare(destination, files));
    let prepared = match written {
        Ok(prepared) => prepared,
        Err(error) => {
            // Only those that are empty go, and only those that were made here.
            made.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
            return Err(error);
        }
    };
    let mut paths = Vec::new();
    for (file, path) in prepared {
        file.persist(&path).map_err(|error| failed(&path, error.error))?;
        paths.push(path);
    }
    for folder in folders {
        let folder = destination.join(folder);
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(|source| failed(&folder, source))?;
    }
    Ok(paths)
}

fn make_folders(destination: &Path, folders: &[&str], made: &mut Vec<PathBuf>) -> Result<(), Error> {
    for folder in folders {
        let folder = destination.join(folder);
        let missing: Vec<_> =
            folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
        for path in missing.iter().rev() {
            fs::create_dir(path).map_err(|source| failed(path, source))?;
            made.push(path.to_path_buf());
        }
    }
    Ok(())
}

/// The files, complete and synced, beside the places that they go to: a rename works only inside one file system.
fn prepare(destination: &Path, files: &[(PathBuf, String)]) -> Result<Vec<(NamedTempFile, PathBuf)>, Error> {
    let prepare = |(path, text): &(PathBuf, String)| {
        let path = destination.join(path);
        let folder = path.parent().unwrap_or(destination);
        let write = || {
            let file = beside(folder, text, 0o644)?;
            // Nothing can be renamed over a folder: better said before the first rename.
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
