//! The command `render ccm`: the objects that the operator applies for a `CloudControllerManager`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;

use super::{Destination, KubernetesFlags, announced, say_left_out};
use crate::{
    api::spec::Management,
    cli::{flags::say, provider_flags::ProviderFlags},
    facts::{ccm::Ccm, cluster::Cluster, read, version::Minor},
    plan::{Plan, kubernetes, write},
    provider::{catalog::Catalog, external::Pinning},
};

const HELP: &str = "\
Example:
  ccm-operator render ccm --config ccm.yaml --kubernetes-version 1.35 --distribution k3s \\
      | kubectl apply --server-side -f -
      installs the cloud-controller-manager that ccm.yaml describes

A distribution in the manifest takes precedence over --distribution.";

#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct CcmArgs {
    /// A file with a CloudControllerManager manifest; - is the standard input.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,

    /// The version of Kubernetes, such as 1.35, which selects the version of the image.
    #[arg(long, value_name = "VERSION")]
    pub kubernetes_version: Minor,

    #[command(flatten)]
    pub cluster: KubernetesFlags,

    #[command(flatten)]
    pub providers: ProviderFlags,

    #[command(flatten)]
    pub destination: Destination,
}

pub(super) fn run(args: &CcmArgs) -> anyhow::Result<()> {
    let catalog = args.providers.catalog(Pinning::Optional)?;
    let KubernetesFlags { distribution, control_plane_nodes } = args.cluster;
    let cluster = Cluster { minor: args.kubernetes_version, distribution, control_plane_nodes };
    let ccm = read::ccm(&args.config, cluster)?;
    let plan = Plan::of_ccm(&catalog, &ccm)
        .map(announced)
        .with_context(|| format!("failed to render {}", args.config.display()))?;
    if let Plan::Objects { .. } = plan {
        warn(&catalog, &ccm)?;
        say_left_out([]);
    }
    args.destination.write(&write::cluster_files(plan.objects())?)
}

/// Prints the warnings that the operator would report.
fn warn(catalog: &Catalog, ccm: &Ccm) -> anyhow::Result<()> {
    if ccm.spec.management == Management::Paused {
        say("spec.management is Paused: the operator would change nothing");
    }
    let provider = match catalog.kubernetes_of(&ccm.spec.provider) {
        Ok(provider) => &provider.descriptor,
        Err(_) => return Ok(()),
    };
    for (container, image) in &provider.images {
        if let Some((_, problem)) = kubernetes::choose(container, image, ccm)?.problem {
            say(&format!("warning: {problem}"));
        }
    }
    for warning in kubernetes::ignored(provider, ccm) {
        say(&format!("warning: {warning}"));
    }
    Ok(())
}
