//! The command `render`: manifests as files.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum, builder::PossibleValue};
use serde_json::Value;

use super::flags::{one_reads_stdin, print, say, wrong_usage};
use crate::{
    api::{placement::Distribution, spec::Management},
    config::{CloudConfigSettings, cloud_conf, preview::Preview},
    facts::{
        DEFAULT_NAMESPACE, Facts, Settings,
        manager::Cluster,
        read::{self, Files},
        version::Minor,
    },
    files::STANDARD,
    plan::{Plan, upstream, write},
    provider::{Phase, embedded, payload::Installation},
};

/// The only file of the install payload that is not applied to the cluster.
const IMAGE_REFERENCES: &str = "image-references";

/// Flags of `render`.
#[derive(Args, Debug)]
pub struct RenderArgs {
    /// The folder to write to; created if it does not exist. With - the manifests are printed as one YAML stream, which
    /// --phase bootstrap cannot do. Required, unless --config is given: then - is the default.
    #[arg(long, value_name = "DIR", required_unless_present = "config")]
    pub dest_dir: Option<PathBuf>,

    /// The manifests to write: to DIR/bootstrap and DIR/config, or those of the cluster or the installation to DIR/manifests.
    #[arg(long, value_enum, default_value_t)]
    pub phase: RenderPhase,

    /// For any Kubernetes: a CloudControllerManager manifest. Prints what the operator would apply for it, for people who want
    /// no operator.
    #[arg(long, value_name = "FILE", conflicts_with_all = FOR_OPENSHIFT)]
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
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,

    /// The namespace to manage, for --phase cluster and install [default: openshift-cloud-controller-manager].
    #[arg(long)]
    pub namespace: Option<String>,
}

/// The flags that --config replaces.
const FOR_OPENSHIFT: [&str; 10] = [
    "phase",
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

/// Flags of `render --config`: the cluster, which is not asked.
#[derive(Args, Debug)]
#[group(skip)]
pub struct ClusterFlags {
    /// The version of Kubernetes, such as 1.35; with --config.
    #[arg(long, value_name = "VERSION", requires = "config")]
    pub kubernetes_version: Option<Minor>,

    /// The distribution of Kubernetes, unless the manifest names one; with --config.
    #[arg(long, value_enum, default_value_t = Distribution::Other, requires = "config")]
    pub distribution: Distribution,

    /// The number of nodes with the label of the control plane; with --config.
    #[arg(long, value_name = "NUMBER", default_value_t = 3, requires = "config")]
    pub control_plane_nodes: usize,
}

impl ValueEnum for Distribution {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Kubeadm, Self::K3s, Self::Rke2, Self::Talos, Self::K0s, Self::Other]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            // No cluster is asked.
            Self::Auto => return None,
            Self::Kubeadm => ("kubeadm", "kubeadm, and what is built with it"),
            Self::K3s => ("k3s", "k3s"),
            Self::Rke2 => ("rke2", "RKE2"),
            Self::Talos => ("talos", "Talos"),
            Self::K0s => ("k0s", "k0s"),
            Self::Other => ("other", "Any other"),
        };
        Some(PossibleValue::new(name).help(help))
    }
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

    /// Whether the manifests are printed.
    fn is_stream(&self) -> bool {
        self.dest_dir().as_os_str() == STANDARD
    }

    /// Where to write to; with --config the manifests are printed by default.
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
        (Some(config), _) => for_any_kubernetes(config, &args.cluster)?,
        (None, RenderPhase::Install) => install(args)?,
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
    let catalog = embedded::catalog()?;
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

/// What the operator would apply for a `CloudControllerManager`.
fn for_any_kubernetes(config: &Path, cluster: &ClusterFlags) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let Some(minor) = cluster.kubernetes_version else {
        wrong_usage("--config needs --kubernetes-version, by which the version of the image is chosen")
    };
    let cluster =
        Cluster { minor, distribution: cluster.distribution, control_plane_nodes: cluster.control_plane_nodes };
    let manager = read::manager(config, cluster)?;
    let facts = manager.clone().facts();
    let catalog = embedded::catalog()?;
    let plan = Plan::new(&catalog, &facts, Phase::Cluster)
        .with_context(|| format!("failed to render {}", config.display()))?;
    if let Plan::Nothing { why } = &plan {
        say(&format!("no manifests are written: {why}"));
        return Ok(Vec::new());
    }
    if manager.spec.management == Management::Paused {
        say("spec.management is Paused: the operator would change nothing");
    }
    if let Ok(provider) = catalog.upstream_of(&manager.spec.provider) {
        for image in provider.descriptor.images.values() {
            if let Some((_, problem)) = upstream::choose(image, &manager)?.problem {
                say(&format!("warning: {problem}"));
            }
        }
        for warning in upstream::ignored(&provider.descriptor, &manager) {
            say(&format!("warning: {warning}"));
        }
    }
    say(
        "left out, but applied by the operator: the digests of mounted ConfigMaps and Secrets, the label of the set of objects",
    );
    Ok(write::cluster_files(plan.objects())?)
}

/// The files of the installation.
fn install(args: &RenderArgs) -> anyhow::Result<Vec<(PathBuf, String)>> {
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
