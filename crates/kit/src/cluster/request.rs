//! Requests to the API server, and the meaning of its responses (IO).

use std::{net::SocketAddr, time::Duration};

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

/// The default time limit of a request.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// The time budget of a request that only its client limits.
pub const NO_DEADLINE: Option<Duration> = Some(Duration::MAX);

/// Returns the resource of a kind, without asking the API server.
pub fn resource(kind: &Kind) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(kind.group, kind.version, kind.kind), kind.plural)
}

/// Creates a client for the objects of a kind.
pub fn api(client: &Client, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
    if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &resource(kind))
    } else {
        Api::all_with(client.clone(), &resource(kind))
    }
}

/// Describes the object with this name, or all objects if it is empty, in the words of RBAC and kubectl, such as `deployments.apps x in
/// namespace y`. The namespace of a cluster-scoped kind is empty.
pub fn describe_objects(kind: &Kind, namespace: &str, name: &str) -> String {
    let with = |prefix: &str, text: &str| if text.is_empty() { String::new() } else { format!("{prefix}{text}") };
    format!("{}{}{}{}", kind.plural, with(".", kind.group), with(" ", name), with(" in namespace ", namespace))
}

/// The error of a request that took longer than the client's limit.
#[derive(Debug, thiserror::Error)]
#[error("no answer from the API server in time")]
pub(super) struct TimedOut;

/// Sends one request if it has a time budget. The request fails after the budget or the client's limit.
pub async fn send<T>(budget: Option<Duration>, request: impl Future<Output = kube::Result<T>>) -> Result<T, Cause> {
    let budget = budget.ok_or(Cause::NotLeading)?;
    match tokio::time::timeout(budget, request).await {
        Ok(Err(error)) if causes(&error).any(<dyn std::error::Error>::is::<TimedOut>) => Err(Cause::Timeout),
        Ok(answer) => answer.map_err(Cause::Api),
        Err(_) => Err(Cause::Timeout),
    }
}

/// Returns an error and its causes.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// Converts an object in a response of the API server to data.
pub fn to_value(object: &DynamicObject) -> Value {
    // It was parsed from JSON, so this cannot fail.
    serde_json::to_value(object).unwrap_or_default()
}

/// Describes an error of the client with its causes. An error response of the API server becomes its message with masked secrets,
/// because the message may repeat values of the object.
pub fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => without_addresses(&mask::message(&status.message)),
        other => program(other).map_or_else(|| chain(other), ToOwned::to_owned),
    }
}

/// Describes the failure of a kubeconfig's credentials program. The library's message would contain the output of the program.
fn program(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    causes(error).find_map(|cause| match cause.downcast_ref::<AuthError>()? {
        AuthError::AuthExecRun { .. } => {
            Some("the credentials' program of the kubeconfig (exec) has failed; run it by hand")
        }
        AuthError::AuthExecParse(_) => {
            Some("the credentials' program of the kubeconfig (exec) printed no ExecCredential")
        }
        _ => None,
    })
}

/// Returns a message on one line. `<address>` replaces addresses with a port, as in `dial tcp 10.0.0.1:443`, which differ at each retry
/// if a webhook does not answer.
fn without_addresses(message: &str) -> String {
    let is_address = |word: &str| word.split("->").all(|address| address.parse::<SocketAddr>().is_ok());
    let words = message.split_whitespace().map(|word| {
        let bare = word.trim_end_matches([':', ',', ';', '.']);
        if is_address(bare) { format!("<address>{}", &word[bare.len()..]) } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// The cause of a failed request.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The API server has refused the request, or the connection has failed.
    #[error("{}", describe(.0))]
    Api(kube::Error),
    /// The API server did not answer in time.
    #[error("no answer from the API server in time")]
    Timeout,
    /// A watch has not delivered all existing objects.
    #[error("the API server has not sent all objects: {0}")]
    Incomplete(&'static str),
    /// The object belongs to an `ApplySet` of another tool (KEP-3659). Holds its name.
    #[error("it belongs to the set {0} of another tool; remove its label {PART_OF_LABEL} to hand it over")]
    OtherApplySet(String),
    /// Another manager has created the object, and this process does not take it over.
    #[error("it exists, made by {manager}, and is not taken over: delete it, or {otherwise}")]
    NotOwned {
        /// The manager of the object's fields.
        manager: String,
        /// The alternative to deleting the object.
        otherwise: &'static str,
    },
    /// Finalizers block the deletion.
    #[error("deletion is blocked by finalizers: {0}")]
    BlockedByFinalizers(String),
    /// The process has lost its lease, or is being stopped.
    #[error("this process may not write: it is no longer the leader or is being stopped")]
    NotLeading,
}

impl Cause {
    /// The error response of the API server, if there is one.
    fn status(&self) -> Option<&Status> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }

    /// The HTTP status code of the response; zero without one.
    pub fn code(&self) -> u16 {
        self.status().map_or(0, |status| status.code)
    }

    /// The label of the cause in metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Timeout | Self::Incomplete(_) => "timeout",
            Self::OtherApplySet(_) | Self::NotOwned { .. } | Self::BlockedByFinalizers(_) => "held",
            Self::NotLeading => "not_leading",
            Self::Api(_) if self.is_denied() => "denied",
            Self::Api(_) if self.is_conflict() => "conflict",
            Self::Api(_) if self.is_invalid() => "invalid",
            Self::Api(_) if self.is_servers() => "unavailable",
            Self::Api(_) => "refused",
        }
    }

    /// Whether another client wrote the object first.
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// Whether a permission is missing.
    pub fn is_denied(&self) -> bool {
        self.code() == 403
    }

    /// Whether the same request can never succeed, unless the object or the permissions of the process change.
    pub fn is_terminal(&self) -> bool {
        match self.code() {
            0 if matches!(self, Self::OtherApplySet(_) | Self::NotOwned { .. }) => true,
            401 | 404 | 408 | 409 | 429 => false,
            400..500 => true,
            _ => self.is_invalid(),
        }
    }

    /// The pause that the API server asks for in a refusal; zero if there is none.
    pub fn retry_after(&self) -> Duration {
        let details = self.status().and_then(|status| status.details.as_ref());
        Duration::from_secs(details.map_or(0, |details| details.retry_after_seconds).into())
    }

    /// The grace period before the error is reported; `transient` for a transient error.
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

    /// Whether the API server has answered, and would give the same response again.
    pub fn is_answer(&self) -> bool {
        self.status().is_some() || self.is_of_object()
    }

    /// Whether the cause is the state of the object, and not a response.
    fn is_of_object(&self) -> bool {
        matches!(self, Self::BlockedByFinalizers(_) | Self::OtherApplySet(_) | Self::NotOwned { .. })
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
        // The response of the API server to an object that does not fit its schema.
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
