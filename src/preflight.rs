//! The checks before a cloud-controller-manager is installed for the first time (pure).
//!
//! One list of checks serves the command `preflight`, the condition `PreflightPassed`, and `ConfigurationValid`,
//! `CredentialsFound` and `VersionSupported`. A check that refuses stops a first installation, and never affects an
//! installed cloud-controller-manager. If the API server cannot show something, its check describes how to check it by
//! hand. [`read`] reads the cluster; the rest only validates.

pub mod check;
mod cluster;
pub mod evidence;
pub mod inputs;
mod nodes;
mod others;
pub mod permissions;
pub mod pods;
pub mod read;
pub mod screen;

use crate::nodes::{
    evidence::{ReadResult, Unseen},
    node::Node,
};
use check::{Check, Row};
use evidence::Evidence;

/// Every check, in the order in which they are shown.
pub fn rows(evidence: &Evidence) -> Vec<Row> {
    let row = |check: &Check| {
        let row = validate(evidence, *check);
        let row = row.unwrap_or_else(|Unseen { why, command, .. }| check.not_checked(why, command));
        // Nothing can be planned without good inputs.
        let is_skipped = *check > Check::Version && evidence.ccm.skips.iter().any(|id| id == check.id());
        if is_skipped { row.skipped() } else { row }
    };
    Check::ALL.iter().map(row).collect()
}

/// The result of a check, or what it would have to see.
fn validate(evidence: &Evidence, check: Check) -> ReadResult<Row> {
    let of_nodes = |validate: fn(&Evidence, Check, &[Node]) -> Row| match evidence.nodes.clone()? {
        [] => Ok(check.passed("there is no node yet")),
        nodes => Ok(validate(evidence, check, nodes)),
    };
    match check {
        Check::Configuration => Ok(inputs::configuration(evidence.validation, evidence.by)),
        Check::Credentials => Ok(inputs::credentials(evidence.validation, evidence.by)),
        Check::Version => Ok(inputs::version(evidence.validation)),
        Check::AdditionalCcms => others::additional_ccms(evidence, check),
        Check::OtherCcm => others::other_ccm(evidence, check),
        Check::Ports => others::ports(evidence, check),
        Check::Kubelets => of_nodes(nodes::kubelets),
        Check::ProviderIds => of_nodes(nodes::provider_ids),
        Check::Region => of_nodes(nodes::region),
        Check::NodeNames => of_nodes(nodes::node_names),
        Check::NodeIps => of_nodes(nodes::node_ips),
        Check::NotReadyNodes => of_nodes(nodes::not_ready_nodes),
        Check::Distribution => of_nodes(nodes::distribution),
        Check::ControlPlane => of_nodes(nodes::control_plane),
        Check::Taints => of_nodes(nodes::taints),
        Check::Architecture => of_nodes(nodes::architecture),
        Check::Network => cluster::network(evidence, check),
        Check::PodCidrs => cluster::pod_cidrs(evidence, check),
        Check::PodSecurity => cluster::pod_security(evidence, check),
        Check::Permissions => cluster::permissions(evidence, check),
        Check::DeletionPermission => cluster::deletion_permission(evidence, check),
        Check::AtCloud => Ok(cluster::at_cloud(evidence, check)),
        Check::ImagePull => Ok(cluster::image_pull(evidence, check)),
        Check::CredentialsAccepted => Ok(check.not_checked(
            "only the cloud knows",
            "install with cloudNodeLifecycle: Rehearsal, in which nothing can be deleted; `ccm-operator nodes` shows what comes of it",
        )),
    }
}

#[cfg(test)]
mod tests;
