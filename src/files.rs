//! A file that appears whole or not at all (IO).

use std::{
    fs::{self, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use tempfile::NamedTempFile;

/// The first part of the name of an incomplete file. A kubelet that reads static pods from the folder ignores names that
/// begin with a dot.
const PREFIX: &str = ".ccm-operator-";

/// Who may read a file besides its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Everybody, whatever the umask.
    All,
    /// The group, if the umask lets it: the file may hold credentials.
    Group,
}

/// A file with this text in a folder, complete and synced, to be renamed to its place.
pub(crate) fn beside(folder: &Path, text: &str, readers: Readers) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX);
    if readers == Readers::Group {
        builder.permissions(Permissions::from_mode(0o640));
    }
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    if readers == Readers::All {
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
    }
    file.as_file().sync_all()?;
    Ok(file)
}

/// Removes incomplete files from a folder: those of a process that was killed while it wrote.
pub(crate) fn remove_incomplete(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_ignores_an_incomplete_file_and_the_next_start_removes_it() {
        let folder = tempfile::tempdir().unwrap();
        let (_, path) = beside(folder.path(), "a", Readers::All).unwrap().keep().unwrap();
        assert!(path.file_name().unwrap().to_str().unwrap().starts_with('.'));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        fs::write(folder.path().join("other"), "").unwrap();
        remove_incomplete(folder.path()).unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["other"]);
    }
}
