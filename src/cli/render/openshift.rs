//! The commands `render bootstrap` and `render cluster`: the static pod of OpenShift's bootstrap VM with its cloud.conf, and the
//! objects that the operator applies to an OpenShift cluster.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser},
};
use serde_json::Value;

use super::{Destination, announced, say_left_out, write_below};
use crate::{
    cli::{
        flags::{folder, one_reads_stdin, say},
        provider_flags::ProviderFlags,
    },
    config::{CloudConfigSettings, cloud_conf, preview::Preview},
    facts::{DEFAULT_NAMESPACE, Facts, Settings, read::Files},
    plan::{Plan, write},
    provider::{Phase, external::Pinning},
};

/// The files that describe an OpenShift cluster.
#[derive(Args, Debug)]
pub struct OpenShiftFiles {
    /// An Infrastructure manifest with its status. One of the files may be -, the standard input.
    #[arg(long, value_name = "FILE")]
    pub cluster_infrastructure_file: PathBuf,

    /// The ConfigMap manifest cloud-controller-manager-images.
    #[arg(long, value_name = "FILE")]
    pub images_file: PathBuf,
}

impl OpenShiftFiles {
    /// Returns these files, and no others.
    fn files(&self) -> Files {
        Files {
            infrastructure: self.cluster_infrastructure_file.clone(),
            images: Some(self.images_file.clone()),
            ..Files::default()
        }
    }
}

const BOOTSTRAP_HELP: &str = "\
Example:
  ccm-operator render --dest-dir /etc/kubernetes/ccm --images-file images.yaml \\
      --cluster-infrastructure-file infrastructure.yaml --cloud-config-file cloud-config.yaml
      writes /etc/kubernetes/ccm/bootstrap/aws-cloud-controller-manager-pod.yaml, for the folder of
      the kubelet's static pods, and /etc/kubernetes/ccm/config/cloud.conf";

/// Flags of `render bootstrap`.
// The group shows `render` whether these flags are given. clap fills the group of a struct with flattened fields only on request.
#[derive(Args, Debug)]
#[command(after_long_help = BOOTSTRAP_HELP)]
#[group(arg = "dest_dir")]
pub struct BootstrapArgs {
    /// The folder to write to: the pod is in DIR/bootstrap, cloud.conf in DIR/config. It is created if it does not exist.
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new().try_map(folder))]
    pub dest_dir: PathBuf,

    #[command(flatten)]
    pub cluster: OpenShiftFiles,

    /// The ConfigMap manifest of the cloud's configuration; required if the Infrastructure names one.
    #[arg(long, value_name = "FILE")]
    pub cloud_config_file: Option<PathBuf>,

    #[command(flatten)]
    pub providers: ProviderFlags,
}

pub(super) fn bootstrap(args: &BootstrapArgs) -> anyhow::Result<()> {
    let files = Files { cloud_config: args.cloud_config_file.clone(), ..args.cluster.files() };
    let settings = Settings { namespace: DEFAULT_NAMESPACE.to_owned(), ..Settings::default() };
    let facts = facts(&files, &settings)?;
    let catalog = args.providers.catalog(Pinning::Required)?;
    let plan = Plan::new(&catalog, &facts, Phase::Bootstrap).map(announced)?;
    let config_map = files.cloud_config_map()?;
    let given = files.cloud_config(&facts.cloud_config, config_map.as_ref())?;
    // Static pods refer to the file even without a configuration.
    let settings = catalog.provider(&facts).and_then(|provider| provider.descriptor.cloud_config.as_ref());
    if let Some(settings) = settings {
        warn(&files, settings, &facts, config_map.as_ref());
    }
    let smallest = || Some(cloud_conf::smallest(settings.filter(|_| !plan.objects().is_empty())?, &facts));
    let files = write::bootstrap_files(plan.objects(), given.or_else(smallest))?;
    write_below(&args.dest_dir, &["bootstrap", "config"], &files)
}

/// Warns of a configuration that the cluster will ignore or refuse, because it is written unchanged and the installation would fail only
/// later.
fn warn(files: &Files, settings: &CloudConfigSettings, facts: &Facts, config_map: Option<&Value>) {
    let preview = Preview::new(settings, facts, config_map);
    let file = files.cloud_config.as_ref().map_or("the cluster".into(), |path| path.display().to_string());
    match preview {
        Ok(preview) => preview.synced.warnings.iter().for_each(|warning| say(&format!("warning: {warning}"))),
        Err(error) => say(&format!("warning: {file}: the operator will refuse the cloud configuration: {error}")),
    }
}

const CLUSTER_HELP: &str = "\
Example:
  ccm-operator render cluster --cluster-infrastructure-file infrastructure.yaml \\
      --images-file images.yaml --proxy-file proxy.yaml
      prints the objects for a cluster behind a proxy";

#[derive(Args, Debug)]
#[command(after_long_help = CLUSTER_HELP)]
pub struct RenderClusterArgs {
    #[command(flatten)]
    pub cluster: OpenShiftFiles,

    /// The Proxy manifest.
    #[arg(long, value_name = "FILE")]
    pub proxy_file: Option<PathBuf>,

    /// The FeatureGate manifest; needs --release-version.
    #[arg(long, value_name = "FILE", requires = "release_version")]
    pub feature_gate_file: Option<PathBuf>,

    /// The APIServer manifest with the TLS profile.
    #[arg(long, value_name = "FILE")]
    pub api_server_file: Option<PathBuf>,

    /// The version of the release.
    #[arg(long, value_name = "VERSION")]
    pub release_version: Option<String>,

    /// The namespace to manage.
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    pub namespace: String,

    #[command(flatten)]
    pub providers: ProviderFlags,

    #[command(flatten)]
    pub destination: Destination,
}

pub(super) fn cluster(args: &RenderClusterArgs) -> anyhow::Result<()> {
    let files = Files {
        proxy: args.proxy_file.clone(),
        feature_gate: args.feature_gate_file.clone(),
        api_server: args.api_server_file.clone(),
        ..args.cluster.files()
    };
    let settings = Settings {
        namespace: args.namespace.clone(),
        release_version: args.release_version.clone(),
        ..Settings::default()
    };
    let facts = facts(&files, &settings)?;
    let plan = Plan::new(&args.providers.catalog(Pinning::Required)?, &facts, Phase::Cluster).map(announced)?;
    let sources = [
        (&files.proxy, "the proxy (--proxy-file)"),
        (&files.feature_gate, "the feature gates (--feature-gate-file)"),
        (&files.api_server, "the TLS profile (--api-server-file)"),
    ];
    say_left_out(sources.into_iter().filter(|(file, _)| file.is_none()).map(|(_, what)| what));
    args.destination.write(&write::cluster_files(plan.objects())?)
}

/// Reads the facts of an OpenShift cluster.
fn facts(files: &Files, settings: &Settings) -> anyhow::Result<Facts> {
    one_reads_stdin(files.paths().map(Some))?;
    Ok(files.facts(settings)?)
}
