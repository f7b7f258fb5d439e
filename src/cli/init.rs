//! The command `init`: writes a `CloudControllerManager` and its Secret for the cluster of the kubeconfig to files.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{
    Args,
    builder::{PathBufValueParser, TypedValueParser},
};
use kube::Client;
use serde_json::{Value, json};

use super::flags::{AnyCluster, OutputFormat, folder, one_reads_stdin, print, runtime, wrong_usage};
use crate::{
    cluster::read::get,
    facts::ccm::Controller,
    files::{Readers, STANDARD},
    object::{NAMESPACE, SECRET, SERVICE_ACCOUNT},
    plan::{Error, Plan, install::NAME, write},
    preflight::{
        check_input::Snapshot,
        read::{Overview, check, snapshot},
    },
    proposal::{
        existing::Existing,
        proposed::{Handling, ProposedCcm, SecretFile},
        provider::{Detected, of_existing, signs},
        read,
        report::{ClusterSummary, ExistingSummary, InitReport},
        steps::{CCM_FILE, EXISTING_FILE, Permissions, SECRET_FILE, StepsInput, argument},
    },
    provider::{catalog::Catalog, embedded, kubernetes::KubernetesProvider},
    text::{output::printable, yaml},
};

pub(super) mod ask;
mod fresh;
mod migrate;

const HELP: &str = "\
Examples:
  ccm-operator init
      looks at the cluster, asks on the terminal, and writes ccm.yaml and, if there are credentials, secret.yaml
  printf 'token=%s' \"$HCLOUD_TOKEN\" | ccm-operator init --provider hcloud --credentials - --dest-dir ccm
      asks nothing: the credentials come from the standard input
  ccm-operator init --from-existing
      finds the cloud-controller-manager of a chart or a manifest, keeps its settings, and prints the steps there and back

Credentials are lines KEY=VALUE, the manifest of a Secret, or a folder with a file for each key. The keys are those of
docs/any-kubernetes.md, or the variables that the cloud-controller-manager reads, such as HCLOUD_TOKEN.";

#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct InitArgs {
    #[command(flatten)]
    pub cluster: AnyCluster,

    /// The provider, such as aws [default: detected from the nodes or their pods].
    #[arg(long, value_name = "NAME")]
    pub provider: Option<String>,

    /// The cluster's name in the cloud, which identifies its load balancers [default: kubernetes].
    #[arg(long, value_name = "NAME", conflicts_with = "from_existing")]
    pub cluster_name: Option<String>,

    /// The credentials for the cloud: a file or a folder; - is the standard input.
    #[arg(long, value_name = "FILE|FOLDER")]
    pub credentials: Option<PathBuf>,

    /// The cloud's configuration, which becomes --cloud-config; - is the standard input.
    #[arg(long, value_name = "FILE")]
    pub cloud_config: Option<PathBuf>,

    /// The controllers to run, comma-separated: cloudNode, cloudNodeLifecycle, service, route [default: all but route].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = controller, conflicts_with = "from_existing")]
    pub controllers: Vec<Controller>,

    /// The subnets of pods, for the controller route, comma-separated [default: those of kube-controller-manager].
    #[arg(long = "pod-cidrs", value_name = "SUBNETS", value_delimiter = ',', conflicts_with = "from_existing")]
    pub pod_cidrs: Vec<String>,

    /// Migrate from the existing cloud-controller-manager of a chart or a manifest.
    #[arg(long)]
    pub from_existing: bool,

    /// The folder for the files; created if it does not exist.
    #[arg(long, value_name = "DIR", default_value = ".", value_parser = PathBufValueParser::new().try_map(folder))]
    pub dest_dir: PathBuf,

    /// Overwrite existing files.
    #[arg(long)]
    pub force: bool,

    /// The operator's own namespace.
    #[arg(long, value_name = "NAMESPACE", default_value = NAME)]
    pub operator_namespace: String,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

impl InitArgs {
    /// Returns the flags that also apply to a migration, without those of the connection and the folder.
    fn for_migration(&self) -> String {
        let file = |path: &Option<PathBuf>| {
            path.as_ref().filter(|path| path.as_os_str() != STANDARD).map(|path| path.display().to_string())
        };
        let namespace = Some(&self.operator_namespace).filter(|name| *name != NAME);
        let given = [
            ("--provider", self.provider.clone()),
            ("--credentials", file(&self.credentials)),
            ("--cloud-config", file(&self.cloud_config)),
            ("--operator-namespace", namespace.cloned()),
        ];
        let given = given.into_iter().filter_map(|(flag, value)| Some(format!(" {flag} {}", argument(&value?))));
        given.collect()
    }
}

fn controller(text: &str) -> Result<Controller, String> {
    Controller::ALL.into_iter().find(|one| one.field() == text).ok_or_else(|| {
        let all = Controller::ALL.map(Controller::field).join(", ");
        format!("the controllers are {all}")
    })
}

/// The input that the command reads before it asks the user.
struct Seen {
    client: Client,
    catalog: Catalog,
    overview: Overview,
    snapshot: Snapshot,
    existing: Vec<Existing>,
    has_operator: bool,
}

/// The proposed files, and the signs that led to them.
struct Proposal {
    proposed: ProposedCcm,
    sign: Detected,
    /// The workloads to migrate; the one with the lease comes first.
    migrated: Vec<Existing>,
    permissions: Permissions,
}

/// Writes the files and prints the next steps; the exit code says whether a check refuses or a setting is lost.
pub(super) fn run(args: &InitArgs) -> anyhow::Result<ExitCode> {
    one_reads_stdin([args.credentials.as_ref(), args.cloud_config.as_ref()])?;
    let report = runtime()?.block_on(async {
        let seen = Seen::of(args).await?;
        let mut proposal = if args.from_existing {
            migrate::proposal(args, &seen).await?
        } else {
            fresh::proposal(args, &seen).await?
        };
        proposal.proposed.name_secrets();
        proposal.proposed.migration_results.sort_by_key(|entry| entry.result);
        report(args, &seen, &proposal).await
    })?;
    print(&args.output.write(&report, || report.text())?)?;
    let is_lost = report.migration_results.iter().any(|entry| entry.result == Handling::NotKept);
    Ok(ExitCode::from(u8::from(!report.preflight.passed || is_lost)))
}

impl Seen {
    async fn of(args: &InitArgs) -> anyhow::Result<Self> {
        let client = args.cluster.client().await?;
        let catalog = embedded::catalog()?;
        let overview = Overview::at(&client).await?;
        let snapshot = snapshot(&client, &catalog, &[""].into(), &[].into()).await?;
        let existing = read::existing(&client, &catalog).await?;
        let operator = get(&client, &SERVICE_ACCOUNT, &args.operator_namespace, NAME).await?;
        Ok(Self { client, catalog, overview, snapshot, existing, has_operator: operator.is_some() })
    }

    /// Returns the requested provider, or the one that the signs or the user's answer show.
    fn provider(&self, args: &InitArgs, existing: &[Existing]) -> anyhow::Result<(&KubernetesProvider, Detected)> {
        let nodes = self.overview.nodes.as_deref().unwrap_or_default();
        let signs = signs(&self.catalog, nodes, existing);
        let sign = match &args.provider {
            Some(provider) => Detected { provider: provider.clone(), because: "asked for".to_owned() },
            None => ask::provider(&self.catalog, &signs)?,
        };
        let Ok(found) = self.catalog.kubernetes_of(&sign.provider) else {
            return Err(wrong_usage(&format!(
                "--provider: {}; init knows these only",
                self.catalog.unknown(&sign.provider)
            )));
        };
        Ok((found, sign))
    }

    /// Whether a `CloudControllerManager` of this name exists, or an object of it that the operator did not create.
    async fn is_taken(&self, provider: &KubernetesProvider, proposed: &ProposedCcm) -> anyhow::Result<bool> {
        let live = self.overview.ccms.as_deref().unwrap_or_default();
        if live.iter().any(|one| one["metadata"]["name"] == proposed.name.as_str()) {
            return Ok(true);
        }
        Ok(read::is_in_the_way(&self.client, provider, &proposed.ccm(self.overview.cluster)?).await?)
    }

    /// Turns off the controllers that the provider does not have.
    fn leave_out_what_it_lacks(&self, proposed: &mut ProposedCcm) -> anyhow::Result<()> {
        for _ in Controller::ALL {
            let planned = Plan::of_ccm(&self.catalog, &proposed.ccm(self.overview.cluster)?);
            let Err(Error::InvalidSpec { field, problem, .. }) = planned else { break };
            if !field.starts_with("controllers.") {
                break;
            }
            proposed.set(&field, "Disabled");
            proposed.note(Handling::Unused, field, problem);
        }
        Ok(())
    }

    /// Returns a free name for a Secret in a namespace.
    async fn secret_name(&self, namespace: &str, provider: &str) -> anyhow::Result<String> {
        for name in [provider.to_owned(), format!("{provider}-credentials")] {
            if get(&self.client, &SECRET, namespace, &name).await?.is_none() {
                return Ok(name);
            }
        }
        Ok(format!("{provider}-ccm-operator"))
    }
}

async fn report(args: &InitArgs, seen: &Seen, proposal: &Proposal) -> anyhow::Result<InitReport> {
    let Proposal { proposed, sign, migrated, permissions } = proposal;
    let (overview, cluster) = (&seen.overview, seen.overview.cluster);
    let ccm = proposed.ccm(cluster).context("failed to propose a CloudControllerManager")?;
    let secret = proposed.secret.as_ref().map(SecretFile::manifest);
    let checked = check(&seen.client, &seen.catalog, &ccm, overview, secret.as_ref(), &args.operator_namespace).await?;
    let files = files(proposed, secret.as_ref(), migrated, permissions)?;
    // Environment variables may hold credentials.
    let is_public = |path: &Path| path == Path::new(CCM_FILE) && !proposed.has_secrets();
    let readers = |path: &Path| if is_public(path) { Readers::Group } else { Readers::Owner };
    let written = write::write(&args.dest_dir, &[""], &files, readers, args.force)?;
    let has_namespace = get(&seen.client, &NAMESPACE, "", proposed.namespace()).await?.is_some();
    let (access, flags) = (args.cluster.connection.access(), args.for_migration());
    let input = StepsInput {
        proposed,
        has_namespace,
        access: &access,
        flags: &flags,
        cluster,
        folder: &args.dest_dir,
        has_operator: seen.has_operator,
        operator_namespace: &args.operator_namespace,
    };
    let steps = if args.from_existing { input.migration(migrated, permissions) } else { input.first(&seen.existing) };
    Ok(InitReport {
        cluster: ClusterSummary {
            kubernetes: cluster.minor.to_string(),
            distribution: cluster.distribution.properties().name,
            nodes: overview.nodes.as_ref().ok().map(Vec::len),
            control_plane_nodes: cluster.control_plane_nodes,
        },
        provider: sign.provider.clone(),
        because: printable(&sign.because),
        existing: seen.existing.iter().map(|one| found(&seen.catalog, one)).collect(),
        migration_results: proposed.migration_results.clone(),
        files: written.iter().map(|path| path.strip_prefix(".").unwrap_or(path).display().to_string()).collect(),
        preflight: checked,
        steps,
    })
}

fn found(catalog: &Catalog, existing: &Existing) -> ExistingSummary {
    // A node manager elects no leader, and serves nothing.
    let is_ccm = of_existing(catalog, existing).is_none_or(|provider| !existing.is_beside(provider));
    ExistingSummary {
        what: existing.key(),
        image: existing.image.clone(),
        lease: existing.lease().filter(|_| is_ccm).map(|(namespace, name)| format!("{namespace}/{name}")),
        port: (is_ccm && existing.is_on_host()).then(|| existing.port()),
        helm: existing.helm.as_ref().map(|(release, namespace)| format!("{namespace}/{release}")),
    }
}

/// Returns the files to apply, and a file from which the existing objects can be recreated.
fn files(
    proposed: &ProposedCcm,
    secret: Option<&Value>,
    migrated: &[Existing],
    permissions: &Permissions,
) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let text = |value: &Value| yaml::to_string(value).context("failed to write a manifest as YAML");
    let mut files = vec![(CCM_FILE.into(), text(&proposed.manifest())?)];
    if let Some(secret) = secret {
        files.push((SECRET_FILE.into(), text(secret)?));
    }
    let is_file = |one: &&Existing| one.helm.is_none() && one.static_on.is_empty();
    let workloads: Vec<_> = migrated.iter().filter(is_file).map(|one| &one.manifest).collect();
    if !workloads.is_empty() {
        let mut stream = String::new();
        for object in permissions.objects.iter().chain(workloads) {
            stream = stream + "---\n" + &text(object)?;
        }
        files.push((EXISTING_FILE.into(), stream));
    }
    Ok(files)
}

/// Puts the values of a flag or a file into the Secret of a proposal.
fn put(proposed: &mut ProposedCcm, name: &str, values: BTreeMap<String, Vec<u8>>) {
    let secret = proposed.secret(name);
    for (key, value) in values {
        secret.put(&key, &value);
    }
    proposed.set("credentials", json!({"secretRef": {"name": name}}));
}
