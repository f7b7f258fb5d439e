//! The answers of an Engine, and the class of each that is no success (pure).

use std::time::Duration;

use ccm_base::error::problem;
use ccm_drivers::contract::{Error, ErrorKind, Result};
use hyper::{body::Bytes, header, http::response::Parts};
use serde::{Deserialize, de::DeserializeOwned};

use super::is_id;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Region, method and path, for messages.
    what: String,
    pub(crate) status: u16,
    body: Bytes,
    /// How long the Engine asks to wait.
    retry_after: Option<Duration>,
}

/// What an answer 404 or 409 says does not exist, or why it cannot be done now, by its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    NoContainer,
    NoImage,
    NoNetwork,
    /// Another container has the name.
    NameTaken,
    /// The container is being removed.
    BeingRemoved,
}

impl Answer {
    pub(super) fn of(head: &Parts) -> Self {
        let after = head.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let (what, body) = (String::new(), Bytes::new());
        Self { what, status: head.status.as_u16(), body, retry_after: after.map(Duration::from_secs) }
    }

    /// Adds the body, and region, method and path for messages.
    pub(super) fn whole(self, what: String, body: Bytes) -> Self {
        Self { what, body, ..self }
    }

    /// Whether it was done, or was so already.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status) || self.status == 304
    }

    /// Turns everything but a success into an error.
    pub(crate) fn ok(self) -> Result<Self> {
        if self.is_success() { Ok(self) } else { Err(self.error()) }
    }

    /// Parses the body.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Error::new(ErrorKind::Internal, format!("{}: the answer is not what an Engine answers: {error}", self.what))
        })
    }

    /// The words of an Engine. What stands in between, such as a proxy, does not answer like this.
    fn of_engine(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Message {
            message: String,
        }
        serde_json::from_slice(&self.body).ok().map(|Message { message }| message)
    }

    /// Why it was refused. The reason is often at the end.
    fn message(&self) -> String {
        let text = self.of_engine().unwrap_or_else(|| String::from_utf8_lossy(&self.body).trim().to_owned());
        if text.is_empty() { "no reason given".to_owned() } else { problem(text) }
    }

    /// The container that the request is about.
    fn container(&self) -> Option<&str> {
        let (_, rest) = self.what.split_once(" /containers/")?;
        rest.split('/').next().filter(|id| is_id(id))
    }

    /// What does not exist or is in the way, in the words of an Engine. A container does not exist only if the request is about
    /// it.
    pub(crate) fn reason(&self) -> Option<Reason> {
        let text = self.of_engine()?.to_ascii_lowercase();
        let has = |words: &str| text.contains(words);
        match self.status {
            404 if has("no such container") && self.container().is_some_and(has) => Some(Reason::NoContainer),
            404 if has("no such image") || has("image not known") => Some(Reason::NoImage),
            404 if has("network") && has("not found") => Some(Reason::NoNetwork),
            409 if has("already in use") => Some(Reason::NameTaken),
            409 if has("removal of container") && has("is already in progress") || has("is marked for removal") => {
                Some(Reason::BeingRemoved)
            }
            _ => None,
        }
    }

    /// The error that it is.
    pub(crate) fn error(&self) -> Error {
        let text = self.message();
        let field = |name: &str| ErrorKind::InvalidArgument(name.to_owned());
        let (kind, advice) = match self.status {
            400 if text.contains("client version") => (ErrorKind::NotSupported, ""),
            400 if text.contains("to an HTTPS server") => {
                (ErrorKind::InvalidCredentials, "; give certPath, the folder of the certificates")
            }
            400 if text.contains("invalid reference format") => (field("image"), ""),
            400 if text.contains("exec: ") => (field("command"), ""),
            400 if text.contains("mount") => (field("mounts"), ""),
            400 if self.what.ends_with(" /containers/create") || self.container().is_some() => (field("options"), ""),
            401 => (ErrorKind::InvalidCredentials, ""),
            403 => (ErrorKind::Forbidden, ""),
            404 | 409 => match self.reason() {
                Some(Reason::NoContainer) => (ErrorKind::NotFound, ""),
                Some(Reason::NoImage) => (field("image"), ""),
                Some(Reason::NoNetwork) => (field("network"), ""),
                Some(Reason::NameTaken) => (ErrorKind::AlreadyExists, ""),
                Some(Reason::BeingRemoved) => (ErrorKind::Unavailable, ""),
                // Such as a command in a container that is paused.
                None if self.status == 409 && self.container().is_some() => (field("id"), ""),
                None => (ErrorKind::Internal, ""),
            },
            408 | 504 => (ErrorKind::Timeout, ""),
            429 => (ErrorKind::RateLimited(self.retry_after), ""),
            500 if text.contains("port is already allocated") || text.contains("address already in use") => {
                (field("ports"), "")
            }
            502 | 503 => (ErrorKind::Unavailable, ""),
            _ => (ErrorKind::Internal, ""),
        };
        Error::new(kind, format!("{}: {} (status {}){advice}", self.what, text, self.status))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    pub(crate) fn answer(status: u16, body: &str) -> Answer {
        let retry_after = Some(Duration::from_secs(7));
        let (id, body) = ("a".repeat(64), body.replace("ID", &"a".repeat(64)));
        Answer { what: format!("region r: GET /containers/{id}/json"), status, body: body.into(), retry_after }
    }

    /// Answers of Docker 20.10.24, and a few of what may stand in between.
    const ERRORS: [(u16, &str, &str); 30] = [
        (400, r#"{"message":"client version 1.99 is too new. Maximum supported API version is 1.41"}"#, "NotSupported"),
        (400, "client version 1.1 is too old. Minimum supported API version is 1.12, please upgrade", "NotSupported"),
        (400, "Client sent an HTTP request to an HTTPS server.\n", "InvalidCredentials"),
        (
            400,
            r#"{"message":"invalid mount config for type \"bind\": bind source path does not exist: /nope"}"#,
            "InvalidArgument mounts",
        ),
        (
            400,
            r#"{"message":"failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"nope\": executable file not found in $PATH: unknown"}"#,
            "InvalidArgument command",
        ),
        (
            400,
            r#"{"message":"failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: \"/nope\": stat /nope: no such file or directory: unknown"}"#,
            "InvalidArgument command",
        ),
        (400, r#"{"message":"invalid CgroupNS mode"}"#, "InvalidArgument options"),
        (401, "", "InvalidCredentials"),
        (403, r#"{"message":"authorization denied by plugin x"}"#, "Forbidden"),
        (400, r#"{"message":"invalid reference format: repository name must be lowercase"}"#, "InvalidArgument image"),
        (404, r#"{"message":"No such container: ID"}"#, "NotFound"),
        (404, r#"{"message":"No such container: abc"}"#, "Internal"),
        (404, "<html>No such container: ID</html>", "Internal"),
        (404, r#"{"message":"No such image: localhost/no:latest"}"#, "InvalidArgument image"),
        (404, r#"{"message":"network nope not found"}"#, "InvalidArgument network"),
        (404, r#"{"message":"page not found"}"#, "Internal"),
        (404, "<html>nothing here</html>", "Internal"),
        (404, "", "Internal"),
        (
            409,
            r#"{"message":"Conflict. The container name \"/rec-1\" is already in use by container \"383a\". You have to remove (or rename) that container to be able to reuse that name."}"#,
            "AlreadyExists",
        ),
        (409, r#"{"message":"removal of container a is already in progress"}"#, "Unavailable"),
        (409, r#"{"message":"container is marked for removal and cannot be started"}"#, "Unavailable"),
        (409, r#"{"message":"Container f2a6 is not running"}"#, "InvalidArgument id"),
        (409, r#"{"message":"Container removal-1 is not running"}"#, "InvalidArgument id"),
        (409, r#"{"message":"cannot start a paused container, try unpause instead"}"#, "InvalidArgument id"),
        (
            500,
            r#"{"message":"driver failed programming external connectivity on endpoint rec-11 (890d): Bind for 127.0.0.1:8099 failed: port is already allocated"}"#,
            "InvalidArgument ports",
        ),
        (500, r#"{"message":"no space left on device"}"#, "Internal"),
        (503, "", "Unavailable"),
        (504, "", "Timeout"),
        (429, "", "RateLimited"),
        (302, "", "Internal"),
    ];

    #[test]
    fn errors_have_classes() {
        for (status, body, expected) in ERRORS {
            let error = answer(status, body).ok().unwrap_err();
            let field =
                if let ErrorKind::InvalidArgument(field) = &error.kind { format!(" {field}") } else { String::new() };
            assert_eq!(format!("{}{field}", error.kind.name()), expected, "{status} {body}");
        }
        for (status, text) in [(404, "No such container: ID"), (400, "x"), (409, "x")] {
            for path in ["/version", "/containers/json"] {
                let body = json!({"message": text.replace("ID", &"a".repeat(64))}).to_string();
                let other = Answer { what: format!("region r: GET {path}"), ..answer(status, &body) };
                assert_eq!(other.error().kind, ErrorKind::Internal, "{path} {status}");
            }
        }
        let limited = answer(429, "").error();
        assert_eq!(limited.kind, ErrorKind::RateLimited(Some(Duration::from_secs(7))));
        assert!(answer(304, "").ok().is_ok());
        assert_eq!(answer(200, "<html>").json::<Vec<String>>().unwrap_err().kind, ErrorKind::Internal);
    }

    #[test]
    fn a_long_text_is_cut() {
        let error = answer(500, &"é\n".repeat(1 << 20)).error();
        assert!(error.message.chars().count() < 1200 && !error.message.contains('\n'));
    }
}
