//! A file with the address of the API server (IO), as OpenShift writes it on every node.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use axum::http::{Request, Uri};

use crate::files::{self, Stamp};

/// A file with the address of the API server. It is read again when it changes, because the address of a node may change
/// after an installation.
#[derive(Clone, Debug)]
pub(super) struct EnvFile {
    path: PathBuf,
    /// The file's stamp, and the address at that time.
    read: Arc<Mutex<(Option<Stamp>, Uri)>>,
}

impl EnvFile {
    /// Reads the file for the first time.
    pub(super) fn read(path: PathBuf) -> anyhow::Result<Self> {
        let (stamp, shown) = (files::stamp(&path).ok(), path.display());
        let text = files::read_text(&path)
            .with_context(|| format!("failed to read the address of the API server from {shown}"))?;
        let uri = uri_of_env_file(&text)
            .with_context(|| format!("{shown} sets no usable KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT"))?;
        Ok(Self { read: Arc::new(Mutex::new((stamp, uri))), path })
    }

    /// Returns the current address; the last valid one while the file has none.
    fn address(&self) -> Uri {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = files::stamp(&self.path).ok();
        if stamp.is_some() && stamp != read.0 {
            let found = files::read_text(&self.path).ok().and_then(|text| uri_of_env_file(&text));
            *read = (stamp, found.unwrap_or_else(|| read.1.clone()));
        }
        read.1.clone()
    }

    /// Directs a request to that address.
    pub(super) fn direct<B>(&self, request: Request<B>) -> Request<B> {
        let (mut parts, body) = request.into_parts();
        let mut uri = self.address().into_parts();
        uri.path_and_query = parts.uri.path_and_query().cloned();
        // Both parts come from an address, so this cannot fail.
        parts.uri = Uri::from_parts(uri).unwrap_or(parts.uri);
        Request::from_parts(parts, body)
    }
}

/// Returns the URL of the API server in a file of `KUBERNETES_SERVICE_HOST='…'` and `KUBERNETES_SERVICE_PORT='…'`, as
/// OpenShift writes it on every node; `None` if the file has no URL.
fn uri_of_env_file(text: &str) -> Option<Uri> {
    let value = |name: &str| {
        let value = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='))?.trim();
        // A file that is being written may end anywhere.
        let bare = match value.strip_prefix(['\'', '"']) {
            Some(quoted) => quoted.strip_suffix(['\'', '"'])?,
            None => value,
        };
        (!bare.is_empty()).then_some(bare)
    };
    let host = value("KUBERNETES_SERVICE_HOST")?;
    let port: u16 = value("KUBERNETES_SERVICE_PORT")?.parse().ok()?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    format!("https://{host}:{port}").parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_env_file_of_a_node_has_the_address_of_the_api_server() {
        let file = |host: &str, port: &str| format!("KUBERNETES_SERVICE_HOST={host}\nKUBERNETES_SERVICE_PORT={port}\n");
        for (text, expected) in [
            (file("'api-int.example.com'", "'6443'"), Some("https://api-int.example.com:6443")),
            (file("api-int.example.com", ""), None),
            ("KUBERNETES_SERVICE_HOST='api-in".into(), None),
            (file("'api-int.example.com'", "'64"), None),
            (file("\"fd00::1\"", "6443"), Some("https://[fd00::1]:6443")),
            (file("'api-int.example.com'", "'port'"), None),
            (file("''", "'6443'"), None),
            (String::new(), None),
        ] {
            assert_eq!(uri_of_env_file(&text), expected.map(|uri| uri.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_changed_env_file_changes_the_address() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("env");
        let write = |host: &str| {
            fs::write(&path, format!("KUBERNETES_SERVICE_HOST={host}\nKUBERNETES_SERVICE_PORT=443\n")).unwrap();
        };
        assert!(EnvFile::read(path.clone()).is_err());
        write("one.example.com");
        let file = EnvFile::read(path.clone()).unwrap();
        let directed = || {
            let request = Request::get("https://first/api/v1/x?y=z").body(()).unwrap();
            file.direct(request).uri().to_string()
        };
        assert_eq!(directed(), "https://one.example.com:443/api/v1/x?y=z");
        write("another.example.com");
        assert_eq!(directed(), "https://another.example.com:443/api/v1/x?y=z");
        for broken in ["", "''"] {
            write(broken);
            assert_eq!(directed(), "https://another.example.com:443/api/v1/x?y=z", "the last good one");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(directed(), "https://another.example.com:443/api/v1/x?y=z");
    }
}
