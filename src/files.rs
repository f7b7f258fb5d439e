//! A file that appears whole or not at all (IO).

use std::{
    fs::Permissions,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use tempfile::NamedTempFile;

/// A file with this text in a folder, complete and synced, to be renamed to its place.
pub(crate) fn beside(folder: &Path, text: &str, mode: u32) -> io::Result<NamedTempFile> {
    // A kubelet that reads static pods from the folder ignores names that begin with a dot.
    let mut file = tempfile::Builder::new().prefix(".ccm-operator-").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    // Set after the creation, so that no umask removes a permission.
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelet_ignores_an_incomplete_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = beside(folder.path(), "a", 0o640).unwrap();
        assert!(file.path().file_name().unwrap().to_str().unwrap().starts_with('.'));
        assert_eq!(file.as_file().metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }
}
