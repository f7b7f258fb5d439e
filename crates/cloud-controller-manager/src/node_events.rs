//! Events about nodes: those of k8s.io/cloud-provider, and those that explain failures, which it does not have.

use std::time::Duration;

use ccm_base::{
    error::{brief, problem},
    object::NODE,
    text::output::printable,
};
use ccm_core::nodes::guard;
use ccm_drivers::{
    contract::{Error, ErrorKind},
    middleware::NOT_FIRST_ACCOUNT,
    settings::ACCOUNT_ID,
};
use ccm_kit::cluster::{
    events::{Recorder, Repetition, Report, cluster_scoped},
    request::Cause,
};
use serde_json::Value;

use crate::{
    account::{AccountId, Place},
    addresses::NodeIpError,
    initialize::Problem,
    instances::Key,
    reason,
};

/// ccm-operator reads Events of deletions that are at most five and a half minutes old. A missing node has several for as long as it
/// stays.
const REPETITION: Repetition =
    Repetition { write_period: Duration::from_secs(60), series_period: Duration::from_secs(7200) };

/// The component that initializes nodes.
pub(crate) const CLOUD_NODE: &str = "cloud-node-controller";

/// The component that taints and deletes nodes.
pub(crate) const LIFECYCLE: &str = guard::COMPONENT;

/// The names of the cloud and of its account, for messages.
#[derive(Clone, Debug)]
pub(crate) struct CloudName {
    /// The name of the driver.
    pub(crate) cloud: String,
    /// The id of the account.
    pub(crate) account: AccountId,
    /// Where this id is kept.
    pub(crate) place: Place,
}

/// Why something could not be done for a node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The cloud gave no answer that counts.
    #[error("{}", cloud_error(.0))]
    Cloud(Error),
    /// Node and instance do not fit.
    #[error(transparent)]
    Node(#[from] Problem),
    /// The API server has refused a write, or was not reached.
    #[error("{0}")]
    Write(#[from] Cause),
}

/// Describes an error of the driver on one line, which begins with its class. ccm-operator knows the classes when it reads the log.
pub(crate) fn cloud_error(error: &Error) -> String {
    problem(printable(&format!("{}: {}", error.kind.name(), error.message)))
}

/// Records Events about nodes.
#[derive(Clone, Debug)]
pub(crate) struct NodeEvents {
    recorder: Recorder,
    name: CloudName,
}

impl NodeEvents {
    pub(crate) fn new(recorder: Recorder, name: CloudName) -> Self {
        Self { recorder, name }
    }

    /// Records an Event that reports no failure.
    pub(crate) fn normal(&self, component: &'static str, node: &Value, reason: &str, message: String) {
        self.send(component, node, reason, false, message);
    }

    /// Records a warning.
    pub(crate) fn warn(&self, component: &'static str, node: &Value, reason: &str, message: String) {
        self.send(component, node, reason, true, message);
    }

    /// Explains a failure, unless it is one of the API server that ends by itself.
    pub(crate) fn explain(&self, component: &'static str, node: &Value, failure: &Failure) {
        if let Some((reason, message)) = explanation(&self.name, key(node), failure) {
            self.warn(component, node, reason, message);
        }
    }

    /// What to do about a failure, for a line of the log; an empty text if the failure says it.
    pub(crate) fn advice(&self, failure: &Failure) -> String {
        match failure {
            Failure::Cloud(error) if !is_of_another_account(error) => {
                let (_, advice) = advice(error, &self.name);
                format!("The account is {:?}. {advice}", self.name.account.text())
            }
            _ => String::new(),
        }
    }

    /// Explains that a node has the providerID of another cloud.
    pub(crate) fn foreign(&self, node: &Value, schemes: &[String]) {
        let message = format!(
            "the providerID {:?} is not of the cloud {} ({}): nothing is done for this node. Start its kubelet without \
             --provider-id, or with the right one, and delete the Node so that it is registered again",
            brief(key(node).provider_id),
            self.name.cloud,
            schemes.join(", ")
        );
        self.warn(CLOUD_NODE, node, reason::OTHER_CLOUD, message);
    }

    fn send(&self, component: &'static str, node: &Value, reason: &str, is_warning: bool, message: String) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, uid) = (text(&node["metadata"]["name"]), text(&node["metadata"]["uid"]));
        let object = cluster_scoped(&NODE, &name, Some(&uid));
        let reason = reason.to_owned();
        // An Event that is lost is repeated with the next attempt.
        self.recorder.send(Report { object, component, reason, is_warning, message, repetition: REPETITION });
    }
}

/// Returns the name of a node and its providerID.
pub(crate) fn key(node: &Value) -> Key<'_> {
    Key {
        provider_id: node["spec"]["providerID"].as_str().unwrap_or_default(),
        name: node["metadata"]["name"].as_str().unwrap_or_default(),
    }
}

/// Returns reason and message of the Event about a failure: what failed, and what to do.
fn explanation(name: &CloudName, node: Key<'_>, failure: &Failure) -> Option<(&'static str, String)> {
    let CloudName { cloud, account, .. } = name;
    Some(match failure {
        Failure::Cloud(error) => {
            let (reason, advice) = advice(error, name);
            let what = cloud_error(error);
            if reason == reason::ACCOUNT {
                return Some((reason, format!("nothing is done for this node: {what}")));
            }
            (
                reason,
                format!(
                    "cannot get the instance with the {node} from the account {:?} of the cloud {cloud}: {what}. {advice}",
                    account.text()
                ),
            )
        }
        Failure::Node(Problem::NodeIp { problem: problem @ NodeIpError::NotOfCloud { cloud: has, .. }, .. }) => {
            let has = if has.is_empty() { "has no address".to_owned() } else { format!("has {}", has.join(", ")) };
            let advice = "Start the kubelet with --node-ip set to an address of the cloud, or without the flag";
            (reason::NODE_IP, format!("{problem}. The instance {has}. {advice}"))
        }
        Failure::Node(Problem::NodeIp { problem: problem @ NodeIpError::Unreadable { .. }, .. }) => {
            let advice = "The kubelet writes the annotation: correct its flag --node-ip, or remove the annotation";
            (reason::NODE_IP, format!("{problem}. {advice}"))
        }
        Failure::Node(problem @ (Problem::NoProviderId(_) | Problem::BadProviderId { .. })) => {
            (reason::FAILED, format!("{problem}. This is a fault of the driver {cloud}"))
        }
        Failure::Write(cause) if cause.is_denied() || cause.is_invalid() => {
            let advice = "Correct the permissions of this cloud-controller-manager, or what the message names";
            (reason::UPDATE, format!("the API server refuses to change this node: {cause}. {advice}"))
        }
        Failure::Write(_) => return None,
    })
}

/// Returns the reason of the Event about an error of the driver, and what to do.
pub(crate) fn advice(error: &Error, CloudName { cloud, account: _, place }: &CloudName) -> (&'static str, String) {
    match &error.kind {
        ErrorKind::NotFound => (
            reason::INSTANCE_NOT_FOUND,
            "If it exists, this cloud-controller-manager looks in another account, region or endpoint, or the node has \
             another name than its instance"
                .to_owned(),
        ),
        ErrorKind::InvalidCredentials if error.message.contains(NOT_FIRST_ACCOUNT) => (reason::ACCOUNT, place.advice()),
        ErrorKind::InvalidCredentials if error.message.contains(ACCOUNT_ID) => (
            reason::ACCOUNT,
            "Nothing is changed or deleted meanwhile: correct the credentials, or the setting accountID if the other account is meant"
                .to_owned(),
        ),
        ErrorKind::InvalidCredentials => {
            (reason::CREDENTIALS, "Nothing is changed or deleted meanwhile: correct the credentials".to_owned())
        }
        ErrorKind::Forbidden => {
            (reason::FORBIDDEN, "Allow the credentials to list and to read instances".to_owned())
        }
        kind if kind.is_transient() => (
            reason::UNAVAILABLE,
            format!("Nothing is changed or deleted meanwhile; it is tried again. Check the endpoint of {cloud} and the network"),
        ),
        _ => (reason::FAILED, format!("It is tried again. The log has more with -v=4; see the documentation of the driver {cloud}")),
    }
}

/// Whether an error says that the account is another one: than at the first use, or than the setting `accountID` demands. Only the reasons
/// and texts of Events depend on it.
pub(crate) fn is_of_another_account(error: &Error) -> bool {
    error.kind == ErrorKind::InvalidCredentials
        && (error.message.contains(NOT_FIRST_ACCOUNT) || error.message.contains(ACCOUNT_ID))
}

impl Failure {
    /// The line of the log about a failed attempt to initialize a node, as k8s.io/cloud-provider has it.
    pub(crate) fn of_sync(&self, node: &str) -> String {
        let error = match self {
            Self::Cloud(error) => format!("failed to get instance metadata for node {node}: {}", cloud_error(error)),
            other => other.to_string(),
        };
        format!("error syncing '{node}': {error}, requeuing")
    }
}

#[cfg(test)]
mod tests {
    use ccm_core::nodes::{
        cause,
        log::{Attempt, Log},
        reason::Reason,
    };
    use serde_json::json;

    use super::*;
    use crate::initialize;

    fn name() -> CloudName {
        let account = AccountId::default();
        account.set("A");
        CloudName { cloud: "docker".into(), account, place: Place::of(("kube-system", "ccm")) }
    }

    fn cloud(kind: ErrorKind, message: &str) -> Failure {
        Failure::Cloud(Error::new(kind, message))
    }

    fn denied(code: u16) -> Failure {
        let status = json!({"code": code, "message": "nodes \"a\" is forbidden", "reason": "x"});
        Failure::Write(Cause::Api(kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()))))
    }

    fn node_ip(annotation: &str) -> Failure {
        let node = json!({
            "metadata": {"name": "a", "annotations": {"alpha.kubernetes.io/provided-node-ip": annotation}},
            "spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized"}]},
        });
        let instance = json!({
            "id": "i", "providerID": "fake:///i", "name": "a", "region": "", "zone": "", "state": "running", "image": "",
            "instanceType": "", "labels": {}, "created": "", "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}],
        });
        initialize::patch(&node, &serde_json::from_value(instance).unwrap()).unwrap_err().into()
    }

    /// Each failure with the reason of its Event, words of its message, and what ccm-operator reads from the log.
    #[test]
    fn each_failure_has_an_event_with_advice_and_a_line_that_the_operator_reads() {
        let wrong = "the Engine has the id B, and accountID demands A: correct host or accountID";
        let account =
            "not the account of the first use: the Event AccountChanged of the Lease kube-system/ccm says what to do";
        for (failure, reason, advice, read) in [
            (cloud(ErrorKind::NotFound, "no such"), "InstanceNotFound", "another account", Reason::InstanceNotFound),
            (
                cloud(ErrorKind::InvalidCredentials, "bad certificate"),
                "CredentialsRejected",
                "correct the cred",
                Reason::CredentialsRefused,
            ),
            (
                cloud(ErrorKind::InvalidCredentials, wrong),
                "AccountChanged",
                "nothing is done for this node: InvalidCredentials: the Engine",
                Reason::CredentialsRefused,
            ),
            (
                cloud(ErrorKind::InvalidCredentials, account),
                "AccountChanged",
                "of the first use: the Event AccountChanged of the Lease kube-system/ccm says what to do",
                Reason::CredentialsRefused,
            ),
            (cloud(ErrorKind::Forbidden, "no"), "CloudRequestForbidden", "Allow", Reason::CauseUnknown),
            (cloud(ErrorKind::Unavailable, "no route"), "CloudUnavailable", "tried again", Reason::CloudUnreachable),
            (cloud(ErrorKind::Timeout, "no answer"), "CloudUnavailable", "tried again", Reason::CloudUnreachable),
            (cloud(ErrorKind::RateLimited(None), "slow"), "CloudUnavailable", "tried again", Reason::Throttled),
            (cloud(ErrorKind::Internal, "garbage"), "CloudRequestFailed", "-v=4", Reason::CauseUnknown),
            (node_ip("10.0.0.1"), "ProvidedNodeIPNotFound", "The instance has 10.0.0.9", Reason::NodeIPNotFound),
            (node_ip("x"), "ProvidedNodeIPNotFound", "--node-ip", Reason::NodeIPNotFound),
            (
                Failure::Node(Problem::NoProviderId("a".into())),
                "CloudRequestFailed",
                "a fault of the driver",
                Reason::NoProviderID,
            ),
            (
                Failure::Node(Problem::BadProviderId { node: "a".into(), provider_id: "i".into() }),
                "CloudRequestFailed",
                "a fault of the driver",
                Reason::CauseUnknown,
            ),
            (denied(403), "NodeUpdateRefused", "permissions", Reason::CauseUnknown),
            (denied(422), "NodeUpdateRefused", "permissions", Reason::CauseUnknown),
        ] {
            let node = Key { provider_id: "docker:////a", name: "a" };
            let (found, message) = explanation(&name(), node, &failure).unwrap();
            assert_eq!(found, reason, "{message}");
            assert!(message.contains(advice) && message.len() < 1000, "{message}");
            let line = failure.of_sync("a") + " in 5ms, later up to every 1000 s. Check: it";
            let log = Log::of(&[format!("2026-01-02T15:04:05.123456Z  WARN {line}")]);
            let Some(Attempt::Failed(error)) = log.attempts.get("a") else { panic!("{line}") };
            assert_eq!(cause::of_attempt(error), read, "{line}");
        }
        let node = Key { provider_id: "", name: "a" };
        assert!(
            explanation(&name(), node, &denied(500)).is_none() && explanation(&name(), node, &denied(409)).is_none()
        );
    }

    #[test]
    fn what_a_cloud_answers_is_cut_and_steers_no_terminal() {
        let failure = cloud(ErrorKind::Internal, &format!("\u{1b}[2J\n{}", "x".repeat(5000)));
        let line = failure.of_sync("a");
        assert!(line.len() < 1500 && !line.contains('\n') && !line.contains('\u{1b}'), "{line}");
    }
}
