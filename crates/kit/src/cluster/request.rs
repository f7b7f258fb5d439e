//! Requests to the API server, and the meaning of its responses (IO).

use std::{net::SocketAddr, sync::OnceLock, time::Duration};

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    client::AuthError,
    core::Status,
};
use serde_json::Value;

use crate::{
    error::chain,
    grace::PERMISSION_GRACE,
    object::{Kind, PART_OF_LABEL},
    text::mask,
};

/// The time after which a request counts as failed, unless [`set_timeout`] has set another.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// The budget of a request that nothing but its own timeout ends.
pub const NO_DEADLINE: Option<Duration> = Some(Duration::MAX);

static TIMEOUT: OnceLock<Duration> = OnceLock::new();

/// Sets the time after which a request of this process counts as failed; once, before the first request.
pub fn set_timeout(to: Duration) {
    // A second limit would be that of the same command line.
    let _ = TIMEOUT.set(to);
}

/// The time after which a request of this process counts as failed.
pub fn timeout() -> Duration {
    *TIMEOUT.get().unwrap_or(&REQUEST_TIMEOUT)
}

/// The resource of a kind, known without asking the API server.
pub fn resource(kind: &Kind) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(kind.group, kind.version, kind.kind), kind.plural)
}

/// A client for the objects of a kind.
pub fn api(client: &Client, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
    if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &resource(kind))
    } else {
        Api::all_with(client.clone(), &resource(kind))
    }
}

/// The object of this name, or all objects if it is empty, as RBAC and kubectl put them, such as `deployments.apps x in
/// namespace y`. Without a namespace its name is empty.
pub fn describe_objects(kind: &Kind, namespace: &str, name: &str) -> String {
    let with = |prefix: &str, text: &str| if text.is_empty() { String::new() } else { format!("{prefix}{text}") };
    format!("{}{}{}{}", kind.plural, with(".", kind.group), with(" ", name), with(" in namespace ", namespace))
}

/// Sends one request, if there is a budget of time for it, and gives up when that is spent.
pub async fn send<T>(budget: Option<Duration>, request: impl Future<Output = kube::Result<T>>) -> Result<T, Cause> {
    let budget = budget.ok_or(Cause::NotLeading)?.min(timeout());
    match tokio::time::timeout(budget, request).await {
        Ok(answer) => answer.map_err(Cause::Api),
        Err(_) => Err(Cause::Timeout),
    }
}

/// An answer of the API server as data.
pub fn to_value(object: &DynamicObject) -> Value {
    // It was parsed from JSON, so this cannot fail.
    serde_json::to_value(object).unwrap_or_default()
}

/// An error of the client with its causes; for an answer of the API server its message, without secrets, because it may
/// repeat values of the object.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => without_addresses(&mask::message(&status.message)),
        other => program(other).map_or_else(|| chain(other), ToOwned::to_owned),
    }
}

/// The failure of the program that a kubeconfig runs for credentials. The library's words hold what it has printed.
fn program(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.find_map(|cause| match cause.downcast_ref::<AuthError>()? {
        AuthError::AuthExecRun { .. } => {
            Some("the credentials' program of the kubeconfig (exec) has failed; run it by hand")
        }
        AuthError::AuthExecParse(_) => {
            Some("the credentials' program of the kubeconfig (exec) printed no ExecCredential")
        }
        _ => None,
    })
}

/// A message in one line. `<address>` replaces addresses with a port, which differ from try to try when a webhook does not
/// answer, as in `dial tcp 10.0.0.1:443`.
fn without_addresses(message: &str) -> String {
    let is_address = |word: &str| word.split("->").all(|address| address.parse::<SocketAddr>().is_ok());
    let words = message.split_whitespace().map(|word| {
        let bare = word.trim_end_matches([':', ',', ';', '.']);
        if is_address(bare) { format!("<address>{}", &word[bare.len()..]) } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The API server's answer, or none at all.
    #[error("{}", describe(.0))]
    Api(kube::Error),
    /// The API server did not answer in time.
    #[error("no answer from the API server in time")]
    Timeout,
    /// A watch has not delivered all existing objects.
    #[error("the API server has not sent all objects: {0}")]
    Incomplete(&'static str),
    /// The object belongs to this set of another tool (KEP-3659).
    #[error("it belongs to the set {0} of another tool; remove its label {PART_OF_LABEL} to hand it over")]
    OfAnotherSet(String),
    /// The object was made by somebody else, and objects of others are not taken over.
    #[error("it exists, made by {manager}, and is not taken over: delete it, or {otherwise}")]
    OfOthers {
        /// The manager of its fields.
        manager: String,
        /// What else helps.
        otherwise: &'static str,
    },
    /// Finalizers block the deletion.
    #[error("deletion is blocked by finalizers: {0}")]
    Held(String),
    /// The operator lost its lease, or is being stopped.
    #[error("the operator may not write: it is no longer the leader or is being stopped")]
    NotLeading,
}

impl Cause {
    /// The API server's answer, if it has answered.
    fn status(&self) -> Option<&Status> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }

    /// The HTTP status code of the answer; zero without an answer.
    pub fn code(&self) -> u16 {
        self.status().map_or(0, |status| status.code)
    }

    /// A word for it, for metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Timeout | Self::Incomplete(_) => "timeout",
            Self::OfAnotherSet(_) | Self::OfOthers { .. } | Self::Held(_) => "held",
            Self::NotLeading => "not_leading",
            Self::Api(_) if self.is_denied() => "denied",
            Self::Api(_) if self.is_conflict() => "conflict",
            Self::Api(_) if self.is_invalid() => "invalid",
            Self::Api(_) if self.is_servers() => "unavailable",
            Self::Api(_) => "refused",
        }
    }

    /// Whether somebody else was faster.
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// Whether a permission is missing.
    pub fn is_denied(&self) -> bool {
        self.code() == 403
    }

    /// Whether the same request can never succeed: the object has to change first, or the operator's permissions.
    pub fn is_terminal(&self) -> bool {
        match self.code() {
            0 if matches!(self, Self::OfAnotherSet(_) | Self::OfOthers { .. }) => true,
            401 | 404 | 408 | 409 | 429 => false,
            400..500 => true,
            _ => self.is_invalid(),
        }
    }

    /// The pause that the API server asks for in a refusal; else zero.
    pub fn retry_after(&self) -> Duration {
        let details = self.status().and_then(|status| status.details.as_ref());
        Duration::from_secs(details.map_or(0, |details| details.retry_after_seconds).into())
    }

    /// How long the error must last before it is reported; `transient` if it may pass by itself.
    pub fn grace(&self, transient: Duration) -> Duration {
        match self.code() {
            403 => PERMISSION_GRACE,
            _ if self.is_terminal() => Duration::ZERO,
            _ => transient,
        }
    }

    /// Whether an object of this kind was refused because it changes an immutable field.
    pub fn is_immutable(&self, kind: &Kind) -> bool {
        let Some(Status { code: 422, details: Some(details), .. }) = self.status() else { return false };
        details.causes.iter().any(|cause| {
            let field = cause.field.as_str();
            kind.immutable.contains(&field)
                || (cause.reason == "FieldValueForbidden" && kind.forbidden.contains(&field))
        })
    }

    /// Whether the API server has answered, so that it would give the same answer again.
    pub fn is_answer(&self) -> bool {
        self.status().is_some() || self.is_of_object()
    }

    /// Whether the state of the object is the cause, and no answer.
    fn is_of_object(&self) -> bool {
        matches!(self, Self::Held(_) | Self::OfAnotherSet(_) | Self::OfOthers { .. })
    }

    /// Whether the API server as a whole fails, so that other requests would fail, too.
    pub fn is_servers(&self) -> bool {
        match self.code() {
            0 => !self.is_of_object(),
            code => matches!(code, 429 | 502..=504),
        }
    }

    /// Whether the object does not exist.
    pub fn is_absent(&self) -> bool {
        self.code() == 404
    }

    /// Whether the object was refused for its content.
    pub fn is_invalid(&self) -> bool {
        let Some(status) = self.status() else { return false };
        // The API server's answer to an object that does not fit its schema.
        let is_misfit = status.reason.is_empty() && status.message.contains("failed to create typed patch object");
        status.code == 422 || (status.code == 500 && is_misfit)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn causes_are_terminal_by_their_status() {
        let status = |code, reason: &str, message: &str| {
            let status = kube::core::Status {
                code,
                reason: reason.into(),
                message: message.into(),
                ..kube::core::Status::default()
            };
            Cause::Api(kube::Error::Api(Box::new(status))).is_terminal()
        };
        assert!(status(422, "Invalid", ""));
        assert!(status(403, "Forbidden", ""));
        assert!(status(500, "", "failed to create typed patch object (ns/x; apps/v1, Kind=Deployment): …"));
        assert!(!status(500, "InternalError", "etcd is slow"));
        for code in [404, 409, 429, 503] {
            assert!(!status(code, "", ""), "{code}");
        }
        assert!(!Cause::Timeout.is_terminal());
    }

    #[test]
    fn what_cannot_be_changed_depends_on_the_kind() {
        let is_immutable = |kind: &str, field: &str, reason: &str| {
            let cause = json!({"reason": reason, "field": field});
            let status = json!({"code": 422, "reason": "Invalid", "details": {"causes": [cause]}});
            let status = serde_json::from_value(status).unwrap();
            Cause::Api(kube::Error::Api(Box::new(status))).is_immutable(Kind::named(kind).unwrap())
        };
        for (kind, field) in [("DaemonSet", "spec.selector"), ("RoleBinding", "roleRef")] {
            assert!(is_immutable(kind, field, "FieldValueInvalid"), "{kind}");
            assert!(!is_immutable("Service", field, "FieldValueInvalid"), "{kind}");
        }
        for (kind, field) in [("Pod", "spec"), ("ConfigMap", "data")] {
            assert!(is_immutable(kind, field, "FieldValueForbidden"), "{kind}");
            assert!(!is_immutable(kind, field, "FieldValueInvalid"), "{kind}");
            assert!(!is_immutable("Service", field, "FieldValueForbidden"), "{kind}");
        }
    }

    #[test]
    fn missing_permissions_are_reported_only_when_they_last() {
        let grace = |code| {
            let status = kube::core::Status { code, ..kube::core::Status::default() };
            Cause::Api(kube::Error::Api(Box::new(status))).grace(Duration::from_secs(150)).as_secs()
        };
        assert_eq!([403, 422, 503].map(grace), [5, 0, 150]);
    }
}
