//! Writes a new provider's folder, whole or not at all (IO). Existing files are not overwritten.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use crate::files::write_folder;

/// The reason why a folder was not written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder with its name exists.
    #[error("{} exists and is not an empty folder: nothing is overwritten; take another name, or move it away", .0.display())]
    Exists(PathBuf),
    /// The file cannot be written.
    #[error("failed to write {}", .0.display())]
    Write(PathBuf, #[source] io::Error),
}

/// Returns the error for a folder that cannot be written, because something exists there.
pub fn is_taken(folder: &Path) -> Option<Error> {
    let is_free = match fs::symlink_metadata(folder) {
        Ok(found) => found.is_dir() && fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none()),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    (!is_free).then(|| Error::Exists(folder.to_owned()))
}

/// Writes files by their paths in the folder.
pub fn folder(folder: &Path, files: &BTreeMap<String, String>) -> Result<(), Error> {
    write_folder(folder, files).map_err(|error| match error.kind() {
        io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            Error::Exists(folder.to_owned())
        }
        _ => Error::Write(folder.to_owned(), error),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_there_stays_and_nothing_incomplete_is_left() {
        let parent = tempfile::tempdir().unwrap();
        let files = BTreeMap::from([("README.md".to_owned(), "a".to_owned()), ("b/c.yaml".to_owned(), "d".to_owned())]);
        let new = parent.path().join("new");
        folder(&new, &files).unwrap();
        assert_eq!(fs::read_to_string(new.join("b/c.yaml")).unwrap(), "d");
        let mode = |path: &str| fs::metadata(new.join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(".") & !0o755, mode("b") & !0o755, mode("README.md") & !0o644], [0; 3]);
        fs::create_dir(parent.path().join("empty")).unwrap();
        folder(&parent.path().join("empty"), &files).unwrap();

        fs::write(new.join("README.md"), "mine").unwrap();
        fs::write(parent.path().join("file"), "mine").unwrap();
        assert!(is_taken(&parent.path().join("absent")).is_none());
        for taken in ["new", "file"] {
            assert!(is_taken(&parent.path().join(taken)).is_some());
            let error = folder(&parent.path().join(taken), &files).unwrap_err().to_string();
            assert!(error.contains(&format!("{taken} exists")), "{error}");
        }
        assert_eq!(fs::read_to_string(new.join("README.md")).unwrap(), "mine");
        assert_eq!(fs::read_to_string(parent.path().join("file")).unwrap(), "mine");
        assert!(folder(&parent.path().join("absent/new"), &files).is_err());
        let mut left: Vec<_> = fs::read_dir(parent.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["empty", "file", "new"]);
    }
}
