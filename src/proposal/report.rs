//! The result of the command `init` (pure).

use serde::Serialize;

use super::{
    proposed::MigrationResult,
    steps::{InitSteps, Step},
};
use crate::{
    preflight::screen,
    text::output::{printable, table, wrap},
};

/// The width of text outside of tables.
const WIDTH: usize = 96;

/// The output of `init`: the findings, the proposal and the written files.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InitReport {
    pub(crate) cluster: ClusterSummary,
    pub(crate) provider: String,
    pub(crate) because: String,
    /// The cloud-controller-managers that the operator has not installed.
    pub(crate) existing: Vec<ExistingSummary>,
    pub(crate) migration_results: Vec<MigrationResult>,
    pub(crate) files: Vec<String>,
    pub(crate) preflight: screen::PreflightReport,
    pub(crate) steps: InitSteps,
}

/// The facts of the cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterSummary {
    /// The minor version of Kubernetes.
    pub(crate) kubernetes: String,
    pub(crate) distribution: &'static str,
    /// The number of nodes; `None` if listing is forbidden.
    pub(crate) nodes: Option<usize>,
    /// The number of nodes with the control-plane label.
    pub(crate) control_plane_nodes: usize,
}

/// A cloud-controller-manager that the operator has not installed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ExistingSummary {
    /// The kind, namespace and name.
    pub(crate) what: String,
    pub(crate) image: String,
    /// The lease, as `NAMESPACE/NAME`.
    pub(crate) lease: Option<String>,
    /// The port on the host network.
    pub(crate) port: Option<u16>,
    pub(crate) helm: Option<String>,
}

impl ExistingSummary {
    fn text(&self) -> String {
        let Self { what, image, lease, port, helm } = self;
        let lease = lease.as_ref().map_or_else(|| "no lease".to_owned(), |lease| format!("lease {lease}"));
        let port = port.map(|port| format!(", port {port} of the host")).unwrap_or_default();
        let helm = helm.as_ref().map(|helm| format!(", Helm release {helm}")).unwrap_or_default();
        format!("{what}: {image}, {lease}{port}{helm}")
    }
}

impl InitReport {
    pub(crate) fn text(&self) -> String {
        let ClusterSummary { kubernetes, distribution, nodes, control_plane_nodes } = &self.cluster;
        let nodes = nodes.map_or_else(
            || "nodes that you may not list".to_owned(),
            |all| format!("nodes: {all}, of the control plane: {control_plane_nodes}"),
        );
        let mut rows = vec![
            ["Cluster".to_owned(), format!("Kubernetes {kubernetes}, distribution {distribution}, {nodes}")],
            ["Provider".to_owned(), format!("{}: {}", self.provider, self.because)],
        ];
        rows.extend(self.existing.iter().map(|found| ["Runs now".to_owned(), found.text()]));
        rows.push(["Written".to_owned(), self.files.join(", ")]);
        let mut parts = vec![table(["", ""], &rows).trim_start_matches('\n').to_owned()];
        if !self.migration_results.is_empty() {
            let row =
                |entry: &MigrationResult| [entry.result.word().to_owned(), format!("{} -> {}", entry.what, entry.how)];
            parts.push(table(
                ["RESULT", "WHAT IS THERE -> FROM NOW ON"],
                &self.migration_results.iter().map(row).collect::<Vec<_>>(),
            ));
        }
        parts.push(self.preflight.text());
        let InitSteps { next, back, clean_up } = &self.steps;
        for (title, steps) in [("Next:", next), ("Back again:", back), ("When you will not go back:", clean_up)] {
            if !steps.is_empty() {
                parts.push(format!("{title}\n{}", steps.iter().enumerate().map(numbered).collect::<String>()));
            }
        }
        printable(&parts.join("\n"))
    }
}

fn numbered((index, step): (usize, &Step)) -> String {
    let title = wrap(&step.title, WIDTH).join("\n   ");
    let commands = step.commands.iter().map(|command| format!("   $ {command}\n"));
    format!("{}. {title}\n{}", index + 1, commands.collect::<String>())
}
