//! Reads the configuration and the credentials from files, and writes the merged configuration (IO).
//!
//! The file is written atomically, and only its owner and its group may read it.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

use tracing::info;

use crate::{
    config::azure::credentials::{CLIENT_ID, CLIENT_SECRET, Credentials, FEDERATED_TOKEN_FILE, TENANT_ID},
    files,
};

/// A file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} {}", path.display())]
pub struct Error {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Reads a configuration.
pub fn config(path: &Path) -> Result<String, Error> {
    files::read_text(path).map_err(|source| Error { action: "read", path: path.to_owned(), source })
}

/// Reads the credentials from a mounted Secret. A file may be missing.
pub fn credentials(folder: &Path) -> Result<Credentials, Error> {
    let read = |name: &str| {
        let path = folder.join(name);
        match files::read_text(&path) {
            Ok(text) => Ok(Some(without_line_break(text, name))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error { action: "read", path, source }),
        }
    };
    Ok(Credentials {
        client_id: read(CLIENT_ID)?,
        client_secret: read(CLIENT_SECRET)?,
        federated_token_file: read(FEDERATED_TOKEN_FILE)?,
        tenant_id: read(TENANT_ID)?,
    })
}

/// Editors add a line break at the end of a file; no credential ends in one.
fn without_line_break(mut text: String, name: &str) -> String {
    let length = text.trim_end_matches(['\r', '\n']).len();
    if length < text.len() {
        info!("a line break at the end of {name} is left out");
        text.truncate(length);
    }
    text
}

/// Writes the configuration. Its group is the one that the folder gives to new files, such as the fsGroup of a pod's
/// volume.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        files::remove_incomplete(folder);
        files::beside(folder, text, files::Readers::Group)?.persist(path).map_err(|error| error.error)?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|source| Error { action: "write", path: path.to_owned(), source })
}
