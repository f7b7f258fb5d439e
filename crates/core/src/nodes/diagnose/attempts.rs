//! The attempts for a node in the log of a cloud-controller-manager.

use std::net::IpAddr;

use super::{NodeResult, clean, diagnosed::CcmContext, events, found};
use crate::nodes::{cause, log::Attempt, node::Node, reason::Reason};

pub(super) fn check(diagnosed: &CcmContext, node: &Node, result: &mut NodeResult) {
    if diagnosed.ccm.log.is_none() {
        return;
    }
    let log = &diagnosed.log;
    if node.is_uninitialized() && !node.is_terminating {
        ask_initialization(diagnosed, node, result);
    } else if let Some(error) = log.addresses.get(&node.name) {
        let cause = format!("{} was initialized, and asks for an address that the cloud no longer knows", node.name);
        result.find(found(Reason::NodeIPNotFound, error, cause));
    }
    if node.is_ready() || node.is_terminating {
        return;
    }
    if let Some(error) = log.unknown.get(&node.name) {
        let because = match cause::of_attempt(error) {
            Reason::CauseUnknown => String::new(),
            known => format!(": {}", known.title()),
        };
        let cause = format!("the cloud does not say whether the instance of {} exists{because}", node.name);
        result.find(found(Reason::ExistenceUnknown, error, cause));
    } else if let Some(error) = log.kept.get(&node.name).filter(|_| !result.has(Reason::DeletionRefused)) {
        result.find(events::refusal(node, error));
    }
}

fn ask_initialization(diagnosed: &CcmContext, node: &Node, result: &mut NodeResult) {
    let what = format!("the log of {}", diagnosed.name);
    let name = &node.name;
    match diagnosed.log.attempts.get(name) {
        None => result.observe(what, "no attempt for this node among its last lines"),
        Some(Attempt::Started) => result.observe(what, "an attempt for this node is under way"),
        Some(Attempt::Done) => result.observe(what, "the last attempt for this node succeeded"),
        Some(Attempt::Skipped) => {
            result.observe(what, "the cloud answered with nothing for this node");
            let cause =
                format!("the cloud answered with nothing for {name}; there is no other attempt until the node changes");
            result.find(found(Reason::NoProviderID, "", cause));
        }
        Some(Attempt::Failed(error)) => {
            let reason = cause::of_attempt(error);
            result.observe(what, clean(error));
            let reason = if reason == Reason::InstanceNotFound && diagnosed.is_wrong_scope {
                Reason::WrongScope
            } else {
                reason
            };
            result.find(found(reason, error, cause_of(reason, diagnosed, node)));
        }
    }
}

/// Returns the cause without untrusted text.
fn cause_of(reason: Reason, diagnosed: &CcmContext, node: &Node) -> String {
    let (name, ccm) = (&node.name, &diagnosed.name);
    match reason {
        Reason::InstanceNotFound => format!("the cloud of {ccm} knows no instance for the name {name}"),
        Reason::WrongScope => match diagnosed.other_region() {
            Some((own, others)) => {
                format!("{ccm} looks in region {own}, and the nodes that it has initialized are in {others}")
            }
            None => format!(
                "the cloud of {ccm} knows none of its nodes: it looks in another region, project, account or datacenter"
            ),
        },
        Reason::CredentialsRefused => format!("the cloud refuses the credentials of {ccm}"),
        Reason::CloudUnreachable => format!("{ccm} does not reach the API of its cloud"),
        Reason::NodeIPNotFound if is_addresses(&node.provided_ip) => {
            format!("the kubelet of {name} asks for the address {}, which the cloud does not name", node.provided_ip)
        }
        Reason::NodeIPNotFound => format!("the cloud names no suitable address for {name}"),
        Reason::NoProviderID => format!(
            "the cloud of {ccm} answered for {name} without an id: it does not know the instance, or does not select it"
        ),
        Reason::OtherCloudProviderID => format!("{ccm} cannot read the providerID of {name}"),
        Reason::Forbidden => format!("the API server denies {ccm} a permission that it needs"),
        Reason::AdmissionDenied => format!("an admission webhook or policy denies the update of {name} by {ccm}"),
        Reason::Throttled => format!("the cloud limits the rate of the requests of {ccm}"),
        Reason::ApiServerUnreachable => format!("{ccm} does not reach the API server"),
        _ => format!("the last attempt of {ccm} for {name} failed with an error that is not known"),
    }
}

/// Whether a text consists only of addresses. The annotation is untrusted: any client may have written it.
fn is_addresses(text: &str) -> bool {
    text.split(',').all(|address| address.parse::<IpAddr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::{
        cause::SIGNS,
        evidence::{CcmEvidence, Evidence},
    };

    #[test]
    fn each_reason_that_an_error_shows_has_words_of_its_own() {
        let (ccm, evidence) = (CcmEvidence::default(), Evidence::default());
        let diagnosed = CcmContext::of(&ccm, &evidence);
        for (reason, _) in SIGNS {
            let cause = cause_of(*reason, &diagnosed, &Node::default());
            assert!(!cause.contains("not known"), "{reason}: {cause}");
        }
    }
}
