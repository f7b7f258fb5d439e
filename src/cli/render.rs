//! The command `render`: manifests as files.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum, builder::NonEmptyStringValueParser};
use serde_json::Value;

use super::{
    flags::{one_reads_stdin, print, say, wrong_usage},
    providers::ProviderFlags,
    upstream::{self, ClusterFlags, InstallFlags},
};
use crate::{
    config::{CloudConfigSettings, cloud_conf, preview::Preview},
    facts::{
        DEFAULT_NAMESPACE, Facts, Settings,
        read::{self, Files},
    },
    files::STANDARD,
    plan::{Plan, write},
    provider::{Flavour, Phase, embedded, payload::Installation},
};

/// The only file of the install payload that is not applied to the cluster.
const IMAGE_REFERENCES: &str = "image-references";

/// Flags of `render`.
#[derive(Args, Debug)]
pub struct RenderArgs {
    /// The folder to write to; created if it does not exist. With - the manifests are printed as one YAML stream, which
    /// --phase bootstrap cannot do. Required, unless --config, --flavour or --output is given: then - is the default.
    #[arg(long, value_name = "DIR", required_unless_present_any = ["config", "flavour", "output"])]
    pub dest_dir: Option<PathBuf>,

    /// Print the manifests, as --dest-dir - does.
    #[arg(short, long, value_enum, value_name = "FORMAT", conflicts_with = "dest_dir")]
    pub output: Option<StreamFormat>,

    /// The providers that do not come with this program.
    #[command(flatten)]
    pub providers: ProviderFlags,

    /// The manifests to write: to DIR/bootstrap and DIR/config, or those of the cluster or the installation to DIR/manifests.
    #[arg(long, value_enum, default_value_t)]
    pub phase: RenderPhase,

    /// The kind of cluster, for --phase install [default: openshift].
    #[arg(long, value_enum)]
    pub flavour: Option<Flavour>,

    /// The installation on any Kubernetes.
    #[command(flatten)]
    pub install: InstallFlags,

    /// For any Kubernetes: a CloudControllerManager manifest. Prints what the operator would apply for it, for people who want
    /// no operator.
    #[arg(long, value_name = "FILE", conflicts_with_all = NOT_WITH_CONFIG)]
    pub config: Option<PathBuf>,

    /// What is known of the cluster.
    #[command(flatten)]
    pub cluster: ClusterFlags,

    /// An Infrastructure manifest with its status; required unless --phase install. One of the files may be -, the standard
    /// input.
    #[arg(long, value_name = "FILE")]
    pub cluster_infrastructure_file: Option<PathBuf>,

    /// The ConfigMap manifest cloud-controller-manager-images; required unless --phase install.
    #[arg(long, value_name = "FILE")]
    pub images_file: Option<PathBuf>,

    /// The ConfigMap manifest of the cloud's configuration, for --phase bootstrap; required if the Infrastructure names one.
    #[arg(long, value_name = "FILE")]
    pub cloud_config_file: Option<PathBuf>,

    /// The Proxy manifest, for --phase cluster.
    #[arg(long, value_name = "FILE")]
    pub proxy_file: Option<PathBuf>,

    /// The FeatureGate manifest, for --phase cluster; needs --release-version.
    #[arg(long, value_name = "FILE", requires = "release_version")]
    pub feature_gate_file: Option<PathBuf>,

    /// The APIServer manifest with the TLS profile, for --phase cluster.
    #[arg(long, value_name = "FILE")]
    pub api_server_file: Option<PathBuf>,

    /// The version of the release, for --phase cluster and install.
    #[arg(long, value_name = "VERSION")]
    pub release_version: Option<String>,

    /// The operator's image, for --phase install.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    pub image: Option<String>,

    /// The namespace to manage, for --phase cluster and install [default: openshift-cloud-controller-manager].
    #[arg(long)]
    pub namespace: Option<String>,
}

/// The flags that --config has no use for.
const NOT_WITH_CONFIG: [&str; 17] = [
    "phase",
    "flavour",
    "providers",
    "namespaces",
    "operator_namespace",
    "secrets",
    "api_server",
    "remove_provider",
    "cluster_infrastructure_file",
    "images_file",
    "cloud_config_file",
    "proxy_file",
    "feature_gate_file",
    "api_server_file",
    "release_version",
    "image",
    "namespace",
];

/// The format of manifests that are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamFormat {
    /// One YAML stream.
    Yaml,
}

/// Which manifests `render` writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RenderPhase {
    /// The static pod of the bootstrap VM, and its cloud.conf.
    #[default]
    Bootstrap,
    /// What the operator applies to the cluster.
    Cluster,
    /// The operator itself, with its RBAC: what the cluster's version operator installs, or what is installed elsewhere.
    Install,
}

impl RenderPhase {
    /// The name on the command line.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl RenderArgs {
    /// Ends if a flag is given that the phase has no use for.
    fn check(&self) {
        use RenderPhase::{Bootstrap, Cluster, Install};
        let flags: [(&str, bool, &[RenderPhase]); 8] = [
            ("--cluster-infrastructure-file", self.cluster_infrastructure_file.is_some(), &[Bootstrap, Cluster]),
            ("--cloud-config-file", self.cloud_config_file.is_some(), &[Bootstrap]),
            ("--proxy-file", self.proxy_file.is_some(), &[Cluster]),
            ("--feature-gate-file", self.feature_gate_file.is_some(), &[Cluster]),
            ("--api-server-file", self.api_server_file.is_some(), &[Cluster]),
            ("--release-version", self.release_version.is_some(), &[Cluster, Install]),
            ("--image", self.image.is_some(), &[Install]),
            ("--namespace", self.namespace.is_some(), &[Cluster, Install]),
        ];
        if let Some((flag, ..)) = flags.iter().find(|(_, given, phases)| *given && !phases.contains(&self.phase)) {
            wrong_usage(&format!("{flag} has no use with --phase {}", self.phase.name()));
        }
        if self.config.is_some() {
            return one_reads_stdin(&[self.config.as_ref()]);
        }
        self.check_flavour();
        if self.phase == Bootstrap && self.is_stream() {
            wrong_usage(
                "--dest-dir - needs --phase cluster or install: the bootstrap phase writes more than manifests",
            );
        }
        let files = [
            &self.cluster_infrastructure_file,
            &self.images_file,
            &self.cloud_config_file,
            &self.proxy_file,
            &self.feature_gate_file,
            &self.api_server_file,
        ];
        one_reads_stdin(&files.map(Option::as_ref));
    }

    /// Ends if a flag is given that the flavour has no use for.
    fn check_flavour(&self) {
        let flavour = self.flavour.unwrap_or_default();
        if self.phase != RenderPhase::Install && self.flavour.is_some() {
            wrong_usage(&format!("--flavour has no use with --phase {}", self.phase.name()));
        }
        let useless = match flavour {
            Flavour::OpenShift => self.install.first().or(match &self.cluster {
                ClusterFlags { distribution: Some(_), .. } => Some("--distribution"),
                ClusterFlags { control_plane_nodes: Some(_), .. } => Some("--control-plane-nodes"),
                _ => None,
            }),
            Flavour::Upstream => [
                ("--images-file", self.images_file.is_some()),
                ("--release-version", self.release_version.is_some()),
                ("--namespace", self.namespace.is_some()),
            ]
            .into_iter()
            .find_map(|(flag, given)| given.then_some(flag)),
        };
        if let Some(flag) = useless {
            let flavour = if flavour == Flavour::Upstream { "upstream" } else { "openshift" };
            wrong_usage(&format!("{flag} has no use with --flavour {flavour}"));
        }
    }

    /// Whether the manifests are printed.
    fn is_stream(&self) -> bool {
        self.dest_dir().as_os_str() == STANDARD
    }

    /// Where to write to; what is for any Kubernetes is printed by default.
    fn dest_dir(&self) -> &Path {
        self.dest_dir.as_deref().unwrap_or(Path::new(STANDARD))
    }

    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }
}

/// Writes the manifests of one phase below the destination, or to standard output.
pub(super) fn run(args: &RenderArgs) -> anyhow::Result<()> {
    args.check();
    let files = match (&args.config, args.phase) {
        (Some(config), _) => upstream::managed(config, &args.cluster, &args.providers.catalog()?)?,
        (None, RenderPhase::Install) if args.flavour == Some(Flavour::Upstream) => upstream::installation(
            &args.install,
            &args.cluster,
            args.image.as_ref(),
            &args.providers.externals(false)?,
        )?,
        (None, RenderPhase::Install) if !args.providers.provider.is_empty() => wrong_usage(
            "--provider: a release for OpenShift carries no external provider; `ccm-operator provider pack --configmap` and `provider rbac` \
             write what has to be added to it",
        ),
        (None, RenderPhase::Install) => payload(args)?,
        (None, _) => planned(args)?,
    };
    if args.is_stream() {
        let manifests = files.iter().filter(|(path, _)| !path.ends_with(IMAGE_REFERENCES));
        return print(&write::stream(manifests));
    }
    let is_bootstrap = args.phase == RenderPhase::Bootstrap && args.config.is_none();
    let folders: &[_] = if is_bootstrap { &["bootstrap", "config"] } else { &["manifests"] };
    for path in write::write(args.dest_dir(), folders, &files)? {
        say(&format!("wrote {}", path.display()));
    }
    Ok(())
}

/// The files of the phases that are planned for a cluster.
fn planned(args: &RenderArgs) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let (Some(infrastructure), Some(images)) = (&args.cluster_infrastructure_file, &args.images_file) else {
        wrong_usage("--cluster-infrastructure-file and --images-file are required unless --phase install")
    };
    let files = Files {
        infrastructure: infrastructure.clone(),
        images: images.clone(),
        cloud_config: args.cloud_config_file.clone(),
        proxy: args.proxy_file.clone(),
        feature_gate: args.feature_gate_file.clone(),
        api_server: args.api_server_file.clone(),
    };
    let settings = Settings {
        namespace: args.namespace().to_owned(),
        release_version: args.release_version.clone(),
        ..Settings::default()
    };
    let facts = files.facts(&settings)?;
    let phase = if args.phase == RenderPhase::Cluster { Phase::Cluster } else { Phase::Bootstrap };
    // What is written runs with the credentials of the bootstrap VM, or is applied.
    let catalog = args.providers.externals(true)?.catalog();
    catalog.check()?;
    let plan = Plan::new(&catalog, &facts, phase)?;
    if let Plan::Nothing { why } = &plan {
        say(&format!("no manifests are written: {why}"));
    }
    Ok(match phase {
        Phase::Bootstrap => {
            let config_map = files.cloud_config_map()?;
            let given = files.cloud_config(&facts.cloud_config, config_map.as_ref())?;
            // Static pods name the file whether there is a configuration or not.
            let settings = catalog.provider(&facts).and_then(|provider| provider.descriptor.cloud_config.as_ref());
            if let Some(settings) = settings {
                warn(&files, settings, &facts, config_map.as_ref());
            }
            let smallest = || Some(cloud_conf::smallest(settings.filter(|_| !plan.objects().is_empty())?, &facts));
            write::bootstrap_files(plan.objects(), given.or_else(smallest))?
        }
        Phase::Cluster => {
            say(&left_out(args));
            write::cluster_files(plan.objects())?
        }
    })
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

/// What the operator adds to the objects of the cluster, and this command does not know.
fn left_out(args: &RenderArgs) -> String {
    let missing = [
        (&args.proxy_file, "the proxy (--proxy-file)"),
        (&args.feature_gate_file, "the feature gates (--feature-gate-file)"),
        (&args.api_server_file, "the TLS profile (--api-server-file)"),
    ];
    let missing = missing.into_iter().filter(|(file, _)| file.is_none()).map(|(_, what)| what);
    let always = ["the digests of mounted ConfigMaps and Secrets", "the label of the set of objects"];
    format!("left out, but applied by the operator: {}", missing.chain(always).collect::<Vec<_>>().join(", "))
}

/// The files of the install payload.
fn payload(args: &RenderArgs) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let images = args.images_file.as_ref().map(|path| read::images(path)).transpose()?.map(|(json, _)| json);
    let installation = Installation {
        namespace: args.namespace().to_owned(),
        image: args.image.clone(),
        version: args.release_version.clone(),
        images,
    };
    let file = |(name, bytes): (String, &[u8])| {
        let text = std::str::from_utf8(bytes).with_context(|| format!("failed to read the embedded {name}"))?;
        // The image stream is for release tooling, which replaces what it names itself.
        let text = if name == IMAGE_REFERENCES { text.to_owned() } else { installation.of(text)? };
        Ok((PathBuf::from("manifests").join(name), text))
    };
    let files: Vec<_> = embedded::manifests().into_iter().map(file).collect::<anyhow::Result<_>>()?;
    let missing = installation.placeholders();
    if !missing.is_empty() {
        say(&format!("placeholders of a release are left: give {} to replace them", missing.join(", ")));
    }
    Ok(files)
}
