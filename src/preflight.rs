//! The checks before the first installation of a cloud-controller-manager (pure).
//!
//! The command `preflight` and the conditions `PreflightPassed`, `ConfigurationValid`, `CredentialsFound` and
//! `VersionSupported` share one list of checks. A refusal stops the first installation, but never affects an
//! installed cloud-controller-manager. If the API server cannot show a fact, the check describes how to verify it
//! manually. [`read`] reads the cluster; the rest only validates.

pub mod check;
pub mod check_input;
mod cluster;
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
use check_input::CheckInput;

/// Returns the result of every check, in the order of the output.
pub fn rows(input: &CheckInput) -> Vec<Row> {
    let row = |check: &Check| {
        let row = validate(input, *check);
        let row = row.unwrap_or_else(|Unseen { why, command, .. }| check.not_checked(why, command));
        // Input checks cannot be skipped, because a plan needs valid inputs.
        let is_skipped = *check > Check::Version && input.ccm.skips.iter().any(|id| id == check.id());
        if is_skipped { row.skipped() } else { row }
    };
    Check::ALL.iter().map(row).collect()
}

/// Returns the result of a check, or the source that it could not read.
fn validate(input: &CheckInput, check: Check) -> ReadResult<Row> {
    let of_nodes = |validate: fn(&CheckInput, Check, &[Node]) -> Row| match input.nodes.clone()? {
        [] => Ok(check.passed("there is no node yet")),
        nodes => Ok(validate(input, check, nodes)),
    };
    match check {
        Check::Configuration => Ok(inputs::configuration(input.validation, input.by)),
        Check::Credentials => Ok(inputs::credentials(input.validation, input.by)),
        Check::Version => Ok(inputs::version(input.validation)),
        Check::AdditionalCcms => others::additional_ccms(input, check),
        Check::OtherCcm => others::other_ccm(input, check),
        Check::Ports => others::ports(input, check),
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
        Check::Network => cluster::network(input, check),
        Check::PodCidrs => cluster::pod_cidrs(input, check),
        Check::PodSecurity => cluster::pod_security(input, check),
        Check::Permissions => cluster::permissions(input, check),
        Check::DeletionPermission => cluster::deletion_permission(input, check),
        Check::AtCloud => Ok(cluster::at_cloud(input, check)),
        Check::ImagePull => Ok(cluster::image_pull(input, check)),
        Check::CredentialsAccepted => Ok(check.not_checked(
            "only the cloud knows",
            "install with cloudNodeLifecycle: Rehearsal, in which nothing can be deleted; `ccm-operator nodes` shows the result",
        )),
    }
}

#[cfg(test)]
mod tests;
