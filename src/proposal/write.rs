//! Writes the files of a proposal, all of them or none (IO). Existing files are overwritten only if the user asks for
//! it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::files::{Readers, beside, remove_incomplete};

/// A file to be written.
#[derive(Clone)]
pub struct File {
    /// Its name in the folder.
    pub name: &'static str,
    /// Its text.
    pub text: String,
    /// Whether it is for its owner only.
    pub is_secret: bool,
}

/// Why files were not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is one of this name.
    #[error("{} exists: give --force to overwrite it, or another --dest-dir", .0.display())]
    Exists(PathBuf),
    /// It cannot be written.
    #[error("failed to write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
}

/// Writes the files to a folder, which is created if it does not exist. Returns their paths.
pub fn files(folder: &Path, files: &[File], is_forced: bool) -> Result<Vec<PathBuf>, Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Write(path, source)
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    remove_incomplete(folder);
    let mut prepared = Vec::new();
    for file in files {
        let path = folder.join(file.name);
        if !is_forced && fs::symlink_metadata(&path).is_ok() {
            return Err(Error::Exists(path));
        }
        let readers = if file.is_secret { Readers::Owner } else { Readers::Group };
        prepared.push((beside(folder, &file.text, readers).map_err(failed(&path))?, path));
    }
    let mut paths: Vec<PathBuf> = Vec::new();
    for (file, path) in prepared {
        let persisted = if is_forced { file.persist(&path) } else { file.persist_noclobber(&path) };
        if let Err(error) = persisted {
            if !is_forced {
                for path in &paths {
                    drop(fs::remove_file(path));
                }
            }
            return Err(if error.error.kind() == io::ErrorKind::AlreadyExists {
                Error::Exists(path)
            } else {
                Error::Write(path, error.error)
            });
        }
        paths.push(path);
    }
    fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))?;
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn file(name: &'static str, text: &str) -> File {
        File { name, text: text.to_owned(), is_secret: name == "secret.yaml" }
    }

    #[test]
    fn all_files_are_written_or_none_and_what_is_there_stays() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("new/folder");
        let both = [file("secret.yaml", "s"), file("ccm.yaml", "c")];
        let paths = files(&folder, &both, false).unwrap();
        let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(paths.iter().map(mode).collect::<Vec<_>>(), [0o600, 0o640]);

        fs::remove_file(&paths[0]).unwrap();
        let again = files(&folder, &[file("secret.yaml", "other"), file("ccm.yaml", "other")], false);
        assert!(again.unwrap_err().to_string().contains("ccm.yaml exists: give --force"));
        assert!(!paths[0].exists(), "the first one is not written either");
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), "c");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing incomplete is left");

        fs::set_permissions(&paths[1], fs::Permissions::from_mode(0o777)).unwrap();
        files(&folder, &[file("secret.yaml", "other"), file("ccm.yaml", "other")], true).unwrap();
        assert_eq!(fs::read_to_string(&paths[1]).unwrap(), "other");
        assert_eq!(paths.iter().map(mode).collect::<Vec<_>>(), [0o600, 0o640]);
    }
}
