//! Writes a plan to files, whole or not at all (IO).
//!
//! Every file is first written beside its destination and synced. Then all files are renamed. An error before the first
//! rename leaves nothing behind. If no file may be replaced, neither does a later error. Other files are not touched.

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

/// The path of the cloud's configuration below the destination. The file may hold credentials.
const CLOUD_CONFIG: &str = "config/cloud.conf";

/// The reason why files were not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file with this name exists.
    #[error("{} exists: give --force to overwrite it, or another --dest-dir", .0.display())]
    Exists(PathBuf),
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

/// Returns the files of the bootstrap phase, by their path below the destination.
pub fn bootstrap_files(objects: &[Object], cloud_config: Option<String>) -> Result<Vec<(PathBuf, String)>, Error> {
    let pods = objects
        .iter()
        .map(|pod| Ok((PathBuf::from(format!("bootstrap/{}-pod.yaml", pod.name())), yaml::to_string(pod)?)));
    let config = cloud_config.map(|text| Ok((PathBuf::from(CLOUD_CONFIG), text)));
    pods.chain(config).collect()
}

/// Returns the files of the cluster phase, by their path below the destination. Their names sort in the order of applying.
pub fn cluster_files(objects: &[Object]) -> Result<Vec<(PathBuf, String)>, Error> {
    let name = |(index, object): (usize, &Object)| {
        let kind = object.kind().kind.to_lowercase();
        Ok((PathBuf::from(format!("manifests/{index:02}-{kind}-{}.yaml", object.name())), yaml::to_string(object)?))
    };
    objects.iter().enumerate().map(name).collect()
}

/// Joins manifest files into one YAML stream.
pub fn stream<'a>(files: impl IntoIterator<Item = &'a (PathBuf, String)>) -> String {
    let documents = files.into_iter().flat_map(|(_, text)| [if text.starts_with("---") { "" } else { "---\n" }, text]);
    documents.collect()
}

/// Creates folders below the destination (an empty name is the destination itself), and writes the files, whole or not at all. Returns
/// their paths.
pub fn write(
    destination: &Path,
    folders: &[&str],
    files: &[(PathBuf, String)],
    readers: impl Fn(&Path) -> Readers,
    replaces: bool,
) -> Result<Vec<PathBuf>, Error> {
    let mut created = Vec::new();
    // Collecting the components removes a trailing slash.
    let folders: Vec<PathBuf> = folders.iter().map(|name| destination.join(name).components().collect()).collect();
    let prepare = |(path, text): &(PathBuf, String)| prepare(destination.join(path), text, readers(path), replaces);
    let prepared = create_folders(&folders, &mut created)
        .and_then(|()| files.iter().map(prepare).collect::<Result<Vec<_>, Error>>());
    if prepared.is_err() {
        // Removes only empty folders.
        created.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
    }
    let mut paths = Vec::new();
    for (file, path) in prepared? {
        let persisted = if replaces { file.persist(&path) } else { file.persist_noclobber(&path) };
        if let Err(error) = persisted {
            if !replaces {
                for path in &paths {
                    drop(fs::remove_file(path));
                }
            }
            let is_there = error.error.kind() == io::ErrorKind::AlreadyExists;
            return Err(if is_there { Error::Exists(path) } else { failed(&path, error.error) });
        }
        paths.push(path);
    }
    for folder in folders {
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(|source| failed(&folder, source))?;
    }
    Ok(paths)
}

fn create_folders(folders: &[PathBuf], created: &mut Vec<PathBuf>) -> Result<(), Error> {
    for folder in folders {
        let missing: Vec<_> =
            folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
        for path in missing.iter().rev() {
            fs::create_dir(path).map_err(|source| failed(path, source))?;
            created.push(path.to_path_buf());
        }
        remove_incomplete(folder);
    }
    Ok(())
}

/// Writes a file beside its destination: a rename works only inside one file system.
fn prepare(path: PathBuf, text: &str, readers: Readers, replaces: bool) -> Result<(NamedTempFile, PathBuf), Error> {
    if !replaces && fs::symlink_metadata(&path).is_ok() {
        return Err(Error::Exists(path));
    }
    // The rename would fail.
    let is_folder = path.is_dir().then(|| io::Error::from(io::ErrorKind::IsADirectory));
    let file = is_folder.map_or_else(|| beside(path.parent().unwrap_or(&path), text, readers), Err);
    Ok((file.map_err(|source| failed(&path, source))?, path))
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::Write { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)], replaces: bool) -> Result<Vec<PathBuf>, Error> {
        let files: Vec<_> = files.iter().map(|(name, text)| (PathBuf::from(name), (*text).to_owned())).collect();
        let readers = |path: &Path| if path == Path::new("secret.yaml") { Readers::Owner } else { Readers::Group };
        super::write(folder, &[""], &files, readers, replaces)
    }

    #[test]
    fn all_files_are_written_or_none_and_what_is_there_stays() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("new/folder");
        let paths = write(&folder, &[("secret.yaml", "s"), ("ccm.yaml", "c")], false).unwrap();
        let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(paths.iter().map(mode).collect::<Vec<_>>(), [0o600, 0o640]);

        fs::remove_file(&paths[0]).unwrap();
        let others = [("secret.yaml", "other"), ("ccm.yaml", "other")];
        assert!(write(&folder, &others, false).unwrap_err().to_string().contains("ccm.yaml exists: give --force"));
        assert!(!paths[0].exists(), "the first one is not written either");
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), "c");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing incomplete is left");

        fs::set_permissions(&paths[1], fs::Permissions::from_mode(0o777)).unwrap();
        write(&folder, &others, true).unwrap();
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), "other");
        assert_eq!(paths.iter().map(mode).collect::<Vec<_>>(), [0o600, 0o640]);
    }
}
