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
    // A kubelet that reads the folder for static pods passes over names that begin with a dot.
    let mut file = tempfile::Builder::new().prefix(".ccm-operator-").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    // Set and not asked for when it is made, so that no umask takes a right.
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    Ok(file)
}
