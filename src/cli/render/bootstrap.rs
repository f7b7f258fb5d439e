//! The command `render bootstrap`: the static pod of OpenShift's bootstrap VM, and its cloud.conf.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser},
};
use serde_json::Value;

use super::{OpenShiftFiles, catalog, facts, planned, write_below};
use crate::{
    cli::{
        flags::{folder, say},
        providers::ProviderFlags,
    },
    config::{CloudConfigSettings, cloud_conf, preview::Preview},
    facts::{DEFAULT_NAMESPACE, Facts, Settings, read::Files},
    plan::write,
    provider::Phase,
};

/// What the command does, for the long help.
const HELP: &str = "\
Example:
  ccm-operator render --dest-dir /etc/kubernetes/ccm --images-file images.yaml \\
      --cluster-infrastructure-file infrastructure.yaml --cloud-config-file cloud-config.yaml
      writes /etc/kubernetes/ccm/bootstrap/aws-cloud-controller-manager-pod.yaml, for the folder of
      the kubelet's static pods, and /etc/kubernetes/ccm/config/cloud.conf";

/// Flags of `render bootstrap`.
// By its group `render` knows that they are given. clap fills the group of a struct with flattened fields only on request.
#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
#[group(arg = "dest_dir")]
pub struct BootstrapArgs {
    /// The folder to write to: the pod is in DIR/bootstrap, cloud.conf in DIR/config. It is created if it does not exist.
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new().try_map(folder))]
    pub dest_dir: PathBuf,

    /// The cluster.
    #[command(flatten)]
    pub cluster: OpenShiftFiles,

    /// The ConfigMap manifest of the cloud's configuration; required if the Infrastructure names one.
    #[arg(long, value_name = "FILE")]
    pub cloud_config_file: Option<PathBuf>,

    /// The providers that do not come with this program.
    #[command(flatten)]
    pub providers: ProviderFlags,
}

/// Writes the pod and the configuration.
pub(super) fn run(args: &BootstrapArgs) -> anyhow::Result<()> {
    let files = Files { cloud_config: args.cloud_config_file.clone(), ..args.cluster.files() };
    let settings = Settings { namespace: DEFAULT_NAMESPACE.to_owned(), ..Settings::default() };
    let facts = facts(&files, &settings)?;
    let catalog = catalog(&args.providers)?;
    let plan = planned(&catalog, &facts, Phase::Bootstrap)?;
    let config_map = files.cloud_config_map()?;
    let given = files.cloud_config(&facts.cloud_config, config_map.as_ref())?;
    // Static pods name the file whether there is a configuration or not.
    let settings = catalog.provider(&facts).and_then(|provider| provider.descriptor.cloud_config.as_ref());
    if let Some(settings) = settings {
        warn(&files, settings, &facts, config_map.as_ref());
    }
    let smallest = || Some(cloud_conf::smallest(settings.filter(|_| !plan.objects().is_empty())?, &facts));
    let files = write::bootstrap_files(plan.objects(), given.or_else(smallest))?;
    write_below(&args.dest_dir, &["bootstrap", "config"], &files)
}

/// Warns of a configuration that the cluster will not read, or refuse: it is written as it is, and the installation would fail
/// only later.
fn warn(files: &Files, settings: &CloudConfigSettings, facts: &Facts, config_map: Option<&Value>) {
    let preview = Preview::new(settings, facts, config_map);
    let file = files.cloud_config.as_ref().map_or("the cluster".into(), |path| path.display().to_string());
    match preview {
        Ok(preview) => preview.synced.warnings.iter().for_each(|warning| say(&format!("warning: {warning}"))),
        Err(error) => say(&format!("warning: {file}: the operator will refuse the cloud configuration: {error}")),
    }
}
