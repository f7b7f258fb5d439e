//! The commands about providers: `provider show` and `provider verify`. The other commands are in separate files.

use std::{process::ExitCode, sync::Arc};

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use kube::Client;

use super::flags::{AnyCluster, OutputFormat, print, runtime, say, wrong_usage};
use crate::{
    apply::dry_run,
    plan::show,
    provider::{
        Flavor, Phase, Provider, embedded,
        external::{self, ExternalProvider, Pinning, ProviderRequest, RefusedProvider, policy::PolicyFile},
        folder::ParsedProvider,
        package::read::{LoadedPackage, PackageFormat},
        verify::{self, DRY_RUN, Finding, Policy, policy::policy_for},
    },
    text::output,
    version::VERSION,
};

mod digest;
mod list;
mod new;
mod pack;
mod rbac;
pub(super) mod target;
mod test;

use target::GivenProviders;

/// The commands about providers.
#[derive(Debug, Subcommand)]
pub enum ProviderCommand {
    /// List the built-in and the external providers. Exit code 1 if an external one is refused.
    List(list::ListArgs),
    /// Show the objects of a provider for OpenShift, and where each value comes from.
    Show(ShowArgs),
    /// Write the folder of a new provider, with comments: descriptors, manifests, and the pod of the bootstrap VM.
    ///
    /// Existing files are not overwritten. Exit code: 0 written; 2 failure, or wrong usage.
    New(new::NewArgs),
    /// Start a provider's cloud-controller-manager in the cluster of the kubeconfig, beside any existing one, and remove it again.
    ///
    /// It has its own names, lease and port, and runs no controller unless --initialize is given.
    /// Exit code: 0 a pod was ready; 1 none was; 2 failure, or something could not be removed.
    Test(test::TestArgs),
    /// Check providers against the rules for manifests of cloud-controller-managers. Exit code 1 if a rule is broken.
    Verify(VerifyArgs),
    /// Print the roles and bindings that the operator needs for a provider that its installation does not know, for `kubectl
    /// apply`.
    Rbac(rbac::RbacArgs),
    /// Pack a provider's folder as one file, and print the digest that pins it.
    Pack(pack::PackArgs),
    /// Print the digest that pins a provider's folder, tar or OCI image layout, or a policy for providers.
    Digest(digest::DigestArgs),
}

/// Flags of `provider show`.
#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The provider: a name from `provider list`, or the path of a folder, tar or OCI image layout; `./NAME` is always a path.
    #[arg(value_name = "NAME|PATH")]
    pub name: String,

    /// The objects to show.
    #[arg(long, value_enum, default_value_t)]
    pub phase: ShowPhase,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Flags of `provider verify`.
#[derive(Args, Debug)]
pub struct VerifyArgs {
    /// A name from `provider list`; the folder of one provider, with assets/ and bootstrap/, its tar or its OCI image layout, which is also
    /// checked by the rules for external providers; or a folder with assets/CLOUD/, bootstrap/CLOUD/ and, optionally, the operator's
    /// manifests/. `./NAME` is always a path [default: all providers of `provider list`].
    #[arg(value_name = "NAME|PATH")]
    pub target: Option<String>,

    /// The policy that extends the rules for external providers.
    #[command(flatten)]
    pub policy: PolicyArgs,

    /// The format of the findings.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: VerifyFormat,

    /// Also send every object to the API server of a cluster, as a dry run, and report what it refuses.
    #[arg(long, value_name = "MODE")]
    pub dry_run: Option<DryRun>,

    /// The cluster of the dry run.
    #[command(flatten)]
    pub cluster: AnyCluster,
}

/// The policy for external providers.
#[derive(Args, Debug)]
pub struct PolicyArgs {
    /// A YAML file with exceptions from the rules whose names begin with external-, by provider and rule; for the folder, tar or OCI image
    /// layout of one provider. With @sha256:DIGEST appended, the file must have this digest.
    #[arg(long, value_name = "FILE")]
    pub provider_policy: Option<String>,
}

/// The error of a policy that would allow nothing.
const NO_POLICY: &str = "--provider-policy is for one provider's own folder, tar or OCI image layout";

impl PolicyArgs {
    fn file(&self) -> Option<PolicyFile> {
        self.provider_policy.as_deref().map(PolicyFile::of_flag)
    }

    /// Reads the policy. The default policy allows nothing.
    fn read(&self) -> anyhow::Result<Policy> {
        let loaded = self.file().map(|file| external::read::read_policy(&file, Pinning::Optional)).transpose();
        Ok(loaded.map_err(anyhow::Error::msg)?.unwrap_or_default().policy)
    }

    /// Warns of values that allow nothing, because they may be mistyped.
    fn warn_of_unused(&self, policy: &Policy, name: &str, parsed_providers: &[ParsedProvider]) {
        let path = self.file().map(|file| file.path).unwrap_or_default();
        policy
            .unused(parsed_providers)
            .iter()
            .for_each(|problem| say(&format!("warning: {}", problem.of(path.display()))));
        if let Some(problem) = policy.is_of_others(name) {
            say(&format!("warning: {}: {problem}", path.display()));
        }
    }

    /// Returns the provider of a package if the operator would accept it. Otherwise fails, and prints the policy that would allow it.
    fn accept(&self, target: &str, loaded: LoadedPackage) -> anyhow::Result<Provider> {
        let parsed_providers = target::parsed_providers(&loaded);
        if loaded.form == PackageFormat::BuiltIn {
            if self.provider_policy.is_some() {
                return Err(wrong_usage(NO_POLICY));
            }
            return Ok(Provider::of(loaded.package.name(), &parsed_providers)?);
        }
        let policy = self.read()?;
        self.warn_of_unused(&policy, loaded.package.name(), &parsed_providers);
        match check_unpinned(target, loaded, &policy) {
            Ok(external) => Ok(Arc::unwrap_or_clone(external.provider)),
            Err(refused) => {
                if let Some(needed) = policy_for(&parsed_providers, &policy) {
                    say(&format!(
                        "a file for --provider-policy would allow it, once you have looked at each value:\n{needed}"
                    ));
                }
                bail!("{}: the operator would refuse it", output::printable(&refused.why))
            }
        }
    }
}

/// Checks a package as the operator does, but for the digest that a pin names.
fn check_unpinned(target: &str, loaded: LoadedPackage, policy: &Policy) -> Result<ExternalProvider, RefusedProvider> {
    let request = ProviderRequest { path: Some(target.into()), ..ProviderRequest::default() };
    external::read::check_package(&request, loaded, policy)
}

/// Where a dry run takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// At the API server, which stores nothing.
    Server,
}

/// The format of findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum VerifyFormat {
    /// For people, at most 100 columns wide.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// JUnit XML, a case for each rule.
    Junit,
}

/// The objects that `provider show` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ShowPhase {
    /// The static pod of the bootstrap VM.
    Bootstrap,
    /// The objects that the operator applies to the cluster.
    #[default]
    Cluster,
}

pub(super) fn run(command: &ProviderCommand) -> anyhow::Result<ExitCode> {
    match command {
        ProviderCommand::List(args) => list::run(args),
        ProviderCommand::Show(args) => show(args).map(|()| ExitCode::SUCCESS),
        ProviderCommand::New(args) => new::run(args),
        ProviderCommand::Test(args) => test::run(args),
        ProviderCommand::Verify(args) => verify(args),
        ProviderCommand::Rbac(args) => rbac::run(args).map(|()| ExitCode::SUCCESS),
        ProviderCommand::Pack(args) => pack::run(args).map(|()| ExitCode::SUCCESS),
        ProviderCommand::Digest(args) => digest::run(args).map(|()| ExitCode::SUCCESS),
    }
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let loaded = target::load(&args.name)?;
    let (is_built_in, name) = (loaded.form == PackageFormat::BuiltIn, loaded.package.name());
    let parsed_providers = target::parsed_providers(&loaded);
    let Some(parsed) = parsed_providers.iter().find(|parsed| parsed.flavor == Flavor::OpenShift) else {
        let flag = if is_built_in { String::new() } else { format!(" --provider {}", args.name) };
        return Err(wrong_usage(&format!(
            "provider {name:?} is for any Kubernetes: `ccm-operator render ccm --config FILE{flag}` shows its objects"
        )));
    };
    let phase = if args.phase == ShowPhase::Bootstrap { Phase::Bootstrap } else { Phase::Cluster };
    let version = if is_built_in { VERSION } else { "external" };
    let details = show::details(parsed, &loaded.digest, version, phase)?;
    print(&args.output.write(&details, || show::details_table(&details))?)
}

/// Returns the objects of these providers that the API server refuses.
async fn refusals(client: &Client, parsed_providers: &[ParsedProvider]) -> Result<Vec<Finding>, dry_run::Error> {
    let mut refusals = Vec::new();
    for (parsed, manifest) in
        parsed_providers.iter().flat_map(|parsed| parsed.manifests.iter().map(move |one| (parsed, one)))
    {
        if let Some(refusal) = dry_run::refusal(client, &manifest.object).await? {
            let what = format!("{}: {}", manifest.object.key(), refusal.message);
            refusals.push(DRY_RUN.finding(&parsed.name, manifest.defect(&refusal.pointer, what)));
        }
    }
    Ok(refusals)
}

fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    if args.cluster.connection.is_given() && args.dry_run.is_none() {
        return Err(wrong_usage("flags of a connection need --dry-run=server"));
    }
    let (parsed_providers, payload, policy, form) = match args.target.as_deref().map(GivenProviders::of).transpose()? {
        Some(GivenProviders::Provider(loaded)) if loaded.form != PackageFormat::BuiltIn => {
            let (parsed_providers, policy) = (loaded.package.parsed_providers(), args.policy.read()?);
            args.policy.warn_of_unused(&policy, loaded.package.name(), &parsed_providers);
            (parsed_providers, None, Some(policy), Some(loaded.form))
        }
        _ if args.policy.provider_policy.is_some() => return Err(wrong_usage(NO_POLICY)),
        Some(GivenProviders::Provider(loaded)) => {
            (target::parsed_providers(&loaded), Some(embedded::payload()), None, None)
        }
        Some(GivenProviders::Tree(parsed_providers, payload)) => (parsed_providers, payload, None, None),
        None => (embedded::parsed_providers(), Some(embedded::payload()), None, None),
    };
    let mut report = verify::verify(&parsed_providers, payload.as_ref(), policy.as_ref());
    report.form = form;
    if args.dry_run.is_some() {
        let refusals = runtime()?.block_on(async {
            let client = args.cluster.client().await?;
            anyhow::Ok(refusals(&client, &parsed_providers).await?)
        })?;
        report.rules.push(DRY_RUN.id);
        report.findings.extend(refusals);
    }
    print(&match args.output {
        VerifyFormat::Table => report.table(),
        VerifyFormat::Json => output::json(&report)?,
        VerifyFormat::Junit => output::junit(&report.suites()),
    })?;
    Ok(if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
