//! The command `render`: manifests as files.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::flags::{print, say, wrong_usage};
use crate::{
    config::cloud_conf,
    facts::{DEFAULT_NAMESPACE, read::Files},
    plan::{Plan, write},
    provider::{Phase, embedded, payload},
};

/// The only file of the install payload that is not applied to the cluster.
const IMAGE_REFERENCES: &str = "image-references";

/// Flags of `render`.
#[derive(Args, Debug)]
pub struct RenderArgs {
    /// The folder to write to; created if it does not exist.
    #[arg(long, value_name = "DIR", required_unless_present = "output")]
    pub dest_dir: Option<PathBuf>,

    /// An Infrastructure manifest with its status; required unless --phase install.
    #[arg(long, value_name = "FILE")]
    pub cluster_infrastructure_file: Option<PathBuf>,

    /// The ConfigMap manifest cloud-controller-manager-images; required unless --phase install.
    #[arg(long, value_name = "FILE")]
    pub images_file: Option<PathBuf>,

    /// The ConfigMap manifest of the cloud's configuration; required if the Infrastructure names one.
    #[arg(long, value_name = "FILE")]
    pub cloud_config_file: Option<PathBuf>,

    /// The manifests to write: to DIR/bootstrap and DIR/config, or those of the cluster or the installation to DIR/manifests.
    #[arg(long, value_enum, default_value_t)]
    pub phase: RenderPhase,

    /// The namespace to manage, for --phase cluster and install.
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    /// `-` prints the manifests as one YAML stream; not available for --phase bootstrap.
    #[arg(short, long, value_name = "-", value_parser = ["-"], conflicts_with = "dest_dir")]
    pub output: Option<String>,
}

/// Which manifests `render` writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RenderPhase {
    /// The static pod of the bootstrap VM, and its cloud.conf.
    #[default]
    Bootstrap,
    /// What the operator applies to the cluster.
    Cluster,
    /// What the cluster's version operator installs: the operator itself, with its RBAC.
    Install,
}

/// Writes the manifests of one phase below the destination, or to standard output.
pub(super) fn run(args: &RenderArgs) -> anyhow::Result<()> {
    let files = if args.phase == RenderPhase::Install { install(&args.namespace)? } else { planned(args)? };
    let Some(destination) = &args.dest_dir else {
        let manifests = files.iter().filter(|(path, _)| !path.ends_with(IMAGE_REFERENCES));
        return print(&write::stream(manifests));
    };
    let folders: &[_] = if args.phase == RenderPhase::Bootstrap { &["bootstrap", "config"] } else { &["manifests"] };
    for path in write::write(destination, folders, &files)? {
        say(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// The files of the phases that are planned for a cluster.
fn planned(args: &RenderArgs) -> anyhow::Result<Vec<(PathBuf, String)>> {
    if args.output.is_some() && args.phase == RenderPhase::Bootstrap {
        wrong_usage("--output needs --phase cluster or install: the bootstrap phase writes more than manifests");
    }
    let (Some(infrastructure), Some(images)) = (&args.cluster_infrastructure_file, &args.images_file) else {
        wrong_usage("--cluster-infrastructure-file and --images-file are required unless --phase install")
    };
    let files = Files {
        infrastructure: infrastructure.clone(),
        images: images.clone(),
        cloud_config: args.cloud_config_file.clone(),
    };
    let facts = files.facts(&args.namespace)?;
    let phase = if args.phase == RenderPhase::Cluster { Phase::Cluster } else { Phase::Bootstrap };
    let catalog = embedded::catalog()?;
    let plan = Plan::new(&catalog, &facts, phase)?;
    if let Plan::Nothing { why } = &plan {
        say(&format!("no manifests are written: {why}"));
    }
    Ok(match phase {
        Phase::Bootstrap => {
            let given = files.cloud_config(&facts.cloud_config)?;
            // Static pods name the file whether there is a configuration or not.
            let settings = catalog.provider(&facts).and_then(|provider| provider.descriptor.cloud_config.as_ref());
            let smallest = || Some(cloud_conf::smallest(settings.filter(|_| !plan.objects().is_empty())?, &facts));
            write::bootstrap_files(plan.objects(), given.or_else(smallest))?
        }
        Phase::Cluster => write::cluster_files(plan.objects())?,
    })
}

/// The files of the installation.
fn install(namespace: &str) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let file = |(name, bytes): (String, &[u8])| {
        let text = std::str::from_utf8(bytes).with_context(|| format!("failed to read the embedded {name}"))?;
        // The image stream is for release tooling, and has no namespace.
        let text = if name == IMAGE_REFERENCES { text.to_owned() } else { payload::for_namespace(text, namespace)? };
        Ok((PathBuf::from("manifests").join(name), text))
    };
    embedded::manifests().into_iter().map(file).collect()
}
