//! The cluster that instances belong to.

use std::path::PathBuf;

use ccm_kit::cluster::{client, request::REQUEST_TIMEOUT};
use clap::Args;
use kube::Client;

use crate::text::kubectl::Access;

/// The connection to the API server of a cluster.
#[derive(Args, Debug)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig of the cluster [default: KUBECONFIG or ~/.kube/config; in a Pod its own credentials].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use [default: its current one].
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl ClusterArgs {
    /// Whether a flag names a cluster. An empty context names none, as for kubectl.
    pub(super) fn is_given(&self) -> bool {
        let Self { kubeconfig, context } = self;
        kubeconfig.is_some() || context.as_ref().is_some_and(|name| !name.is_empty())
    }

    /// Creates a client, without a request.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let Self { kubeconfig, context } = self;
        let context = context.clone().filter(|name| !name.is_empty());
        let access = Access { kubeconfig: kubeconfig.clone(), context, ..Access::default() };
        client::connect(&access, REQUEST_TIMEOUT, None, None).await
    }
}
