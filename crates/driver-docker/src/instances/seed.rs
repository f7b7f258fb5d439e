//! The user data of a container: files that cloud-init's data source `NoCloud` reads at the first start.

use ccm_drivers::contract::{Error, ErrorKind, Result};
use hyper::Method;
use serde_json::json;

use crate::{
    client::{Body, Engine, Reason, query},
    tar::Tar,
};

/// The folder of the data source.
pub(super) const FOLDER: &str = "/var/lib/cloud/seed/nocloud";

/// Whether [`FOLDER`] is a folder, or below it.
pub(super) fn is_below(folder: &str) -> bool {
    is_in(FOLDER, folder)
}

/// Whether a path is [`FOLDER`], or above or below it.
pub(super) fn overlaps(path: &str) -> bool {
    is_below(path) || is_in(path, FOLDER)
}

fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Puts the files into a container that was never started. The Engine extracts a tar only into a folder that exists, and would
/// change the permissions of folders that the tar has, so each deepest folder is tried until one exists.
pub(super) async fn put(engine: &Engine, id: &str, name: &str, user_data: &[u8]) -> Result<()> {
    let parts: Vec<&str> = FOLDER.split('/').skip(1).collect();
    for depth in (0..=parts.len()).rev() {
        let (base, missing) = parts.split_at(depth);
        let path = query(&format!("/containers/{id}/archive"), &[("path", &format!("/{}", base.join("/")))]);
        let body = Body::Tar(tar(missing, id, name, user_data).into());
        let answer = engine.send(Method::PUT, &path, body).await?;
        if answer.status != 404 || answer.reason() == Some(Reason::NoContainer) {
            return answer.ok().map(drop);
        }
    }
    Err(Error::new(ErrorKind::Internal, format!("the container {id} has no root folder to put user data into")))
}

fn tar(missing: &[&str], id: &str, name: &str, user_data: &[u8]) -> Vec<u8> {
    let mut tar = Tar::default();
    for end in 1..=missing.len() {
        tar.folder(&missing[..end].join("/"));
    }
    let file = |name: &str| missing.iter().copied().chain([name]).collect::<Vec<_>>().join("/");
    tar.file(&file("user-data"), user_data);
    // JSON is YAML, and quotes an id that is a number.
    let meta_data = json!({"instance-id": id, "local-hostname": name});
    tar.file(&file("meta-data"), format!("{meta_data}\n").as_bytes());
    tar.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_no_prefix_of_a_name() {
        for folder in ["/var", "/var/lib/cloud", FOLDER] {
            assert!(is_below(folder), "{folder}");
        }
        for folder in ["/va", "/var/lib/cloud/seed/nocloud/user-data", "/run"] {
            assert!(!is_below(folder), "{folder}");
        }
        assert!(overlaps("/var/lib") && overlaps(FOLDER) && overlaps("/var/lib/cloud/seed/nocloud/user-data"));
        assert!(!overlaps("/va") && !overlaps("/var/lib/cloud/seed/nocloud-net") && !overlaps("/var/log"));
    }
}
