//! The command `render install`: the manifests that install the operator on any Kubernetes.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, builder::NonEmptyStringValueParser};

use super::{Destination, KubernetesFlags};
use crate::{
    api::placement::ApiServer,
    cli::{
        flags::{api_server, namespace, say, wrong_usage},
        limits::{LimitFlags, name, or_default},
        provider_flags::{EXTERNAL_PROVIDERS, ProviderFlags},
    },
    object::KUBE_SYSTEM,
    plan::{
        install::{Installation, NAME, external::CarriedProviders},
        rbac,
    },
    provider::{
        catalog::Catalog,
        embedded,
        external::{Pinning, read::ExternalProviders},
        kubernetes::{Descriptor, KubernetesProvider},
        verify::Policy,
    },
    text::yaml,
};

const HELP: &str = "\
Example:
  ccm-operator render install --providers hcloud --distribution k3s \\
      --image registry.example.com/ccm-operator:0.1.0 | kubectl apply --server-side -f -
      installs the operator, with the permissions that it needs for Hetzner Cloud";

#[derive(Args, Debug)]
#[command(after_long_help = HELP)]
pub struct InstallArgs {
    /// The providers that may be requested, comma-separated; required unless --provider is given. The operator gets the permissions that
    /// they need.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub providers: Vec<String>,

    /// The operator's image.
    #[arg(long, value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    pub image: Option<String>,

    #[command(flatten)]
    pub cluster: KubernetesFlags,

    /// The address of the API server for the operator, if it differs from that of the distribution.
    #[arg(long, value_name = "HOST:PORT", value_parser = api_server)]
    pub api_server: Option<ApiServer>,

    /// The namespaces in which cloud-controller-managers may run, comma-separated.
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',', value_parser = namespace, default_value = KUBE_SYSTEM)]
    pub namespaces: Vec<String>,

    /// The operator's own namespace.
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace, default_value = NAME)]
    pub operator_namespace: String,

    /// The Secrets in those namespaces that the operator may read, comma-separated [default: the names of the chosen providers that
    /// need one].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = name)]
    pub secrets: Vec<String>,

    /// Let cloud-controller-managers delete nodes that the operator has confirmed, if a CloudControllerManager requests it. The operator
    /// gets the permissions for it, including the permission to delete nodes.
    #[arg(long)]
    pub node_deletion: bool,

    /// Serve the operator's metrics on all addresses of its nodes, for Prometheus [default: only the nodes themselves can reach them].
    #[arg(long)]
    pub expose_metrics: bool,

    /// The Secret in the operator's namespace with tls.crt and tls.key of its metrics server, which may be created later [default: none;
    /// the operator creates its own certificate].
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub metrics_certificate_secret: Option<String>,

    #[command(flatten)]
    pub limits: LimitFlags,

    #[command(flatten)]
    pub external: ProviderFlags,

    /// The external providers, comma-separated, that are no longer given and whose objects the operator is to delete. A built-in provider
    /// of the same name replaces them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = provider_name, help_heading = EXTERNAL_PROVIDERS)]
    pub remove_provider: Vec<String>,

    #[command(flatten)]
    pub destination: Destination,
}

pub(super) fn run(args: &InstallArgs) -> anyhow::Result<()> {
    let externals = args.external.externals(Pinning::Optional)?;
    let files = files(args, &externals)?;
    if args.image.is_none() {
        say("warning: the operator's image is a placeholder: give --image to replace it");
    }
    args.destination.write(&files)
}

/// Returns the files of the installation.
fn files(args: &InstallArgs, externals: &ExternalProviders) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let catalog = externals.catalog();
    catalog.check()?;
    let providers = chosen(args, externals, &catalog)?;
    warn_of_policy(externals);
    // External providers have separate permissions, because a policy may allow more than built-in providers need.
    let (external, providers): (Vec<_>, Vec<_>) = providers.into_iter().partition(|one| one.origin.is_some());
    let installation = Installation {
        namespaces: or_default(&args.namespaces, Vec::new),
        operator_namespace: args.operator_namespace.clone(),
        secrets: or_default(&args.secrets, || named_secrets(&providers)),
        image: args.image.clone(),
        distribution: args.cluster.distribution,
        control_plane_nodes: args.cluster.control_plane_nodes,
        api_server: args.api_server.clone(),
        node_deletion: args.node_deletion,
        expose_metrics: args.expose_metrics,
        metrics_certificate: args.metrics_certificate_secret.clone(),
        limits: args.limits.limits(),
        providers,
        external: CarriedProviders { remove: or_default(&args.remove_provider, Vec::new), ..carried(externals)? },
    };
    let mut files = Vec::new();
    for (name, bytes) in embedded::install() {
        let text = std::str::from_utf8(bytes).with_context(|| format!("failed to read the embedded {name}"))?;
        let text = installation.of(text).with_context(|| format!("failed to fill in the embedded {name}"))?;
        if !text.is_empty() {
            files.push((PathBuf::from("manifests").join(name), text));
        }
    }
    for (name, config_map) in installation.external.config_maps(&installation.operator_namespace)? {
        files.push((PathBuf::from("manifests").join(name), yaml::to_string(&config_map)?));
    }
    for one in external {
        let secrets = or_default(&args.secrets, || named_secrets(&[one]));
        let (names, namespaces) = (&installation.limits.names, &installation.namespaces);
        let permissions = rbac::kubernetes(one, names, namespaces, &secrets, &installation.operator_namespace)?;
        files.push((PathBuf::from(format!("manifests/04_provider_{}.rbac.yaml", one.descriptor.name)), permissions));
    }
    files.sort();
    Ok(files)
}

/// Returns the providers that may be requested, by name.
fn chosen<'a>(
    args: &InstallArgs,
    externals: &ExternalProviders,
    catalog: &'a Catalog,
) -> anyhow::Result<Vec<&'a KubernetesProvider>> {
    let names = || externals.accepted().map(|external| &external.provider.name);
    if args.providers.is_empty() && args.remove_provider.is_empty() && names().next().is_none() {
        let all: Vec<_> = catalog.kubernetes_names().collect();
        return Err(wrong_usage(&format!("give --provider PATH, or --providers: {}", all.join(", "))));
    }
    if let Some(name) = names().find(|name| catalog.kubernetes_names().all(|one| one != **name)) {
        return Err(wrong_usage(&format!("--provider: {name} is for OpenShift only: it has no assets/kubernetes/")));
    }
    if let Some(name) = names().find(|name| args.remove_provider.contains(*name)) {
        return Err(wrong_usage(&format!(
            "--remove-provider: {name} is given with --provider, so nothing of it would be deleted"
        )));
    }
    let find =
        |name: &String| catalog.kubernetes_of(name).map_err(|problem| wrong_usage(&format!("--providers: {problem}")));
    let mut providers: Vec<_> = args.providers.iter().chain(names()).map(find).collect::<anyhow::Result<_>>()?;
    providers.sort_by_key(|one| &one.descriptor.name);
    providers.dedup_by_key(|one| &one.descriptor.name);
    for one in &providers {
        check_namespaces(&args.namespaces, &one.descriptor)?;
    }
    Ok(providers)
}

/// Warns if the policy names only other providers, as `provider verify` does, because a name may be mistyped.
fn warn_of_policy(externals: &ExternalProviders) {
    let Ok(Some(Ok(policy))) = externals.policy().map(|text| text.map(Policy::parse)) else { return };
    let of_others: Option<Vec<_>> = externals.accepted().map(|one| policy.is_of_others(&one.provider.name)).collect();
    for problem in of_others.unwrap_or_default() {
        say(&format!("warning: --provider-policy: {problem}"));
    }
}

/// Returns the packages of external providers that the installation carries.
fn carried(externals: &ExternalProviders) -> anyhow::Result<CarriedProviders> {
    Ok(CarriedProviders {
        packages: externals.accepted().map(|external| external.package.clone()).collect(),
        policy: externals.policy().map_err(|why| anyhow::anyhow!("{why}"))?.map(ToOwned::to_owned),
        replace: externals.replaced().to_vec(),
        remove: Vec::new(),
    })
}

/// Refuses namespaces if the cloud-controller-manager may run in none of them.
pub(in crate::cli) fn check_namespaces(
    given: &[String],
    Descriptor { name, namespaces, .. }: &Descriptor,
) -> anyhow::Result<()> {
    let is_refused = !given.iter().any(|one| namespaces.include(one));
    if let Some(words) = namespaces.words().filter(|_| is_refused) {
        return Err(wrong_usage(&format!("--namespaces: the cloud-controller-manager of provider {name}: {words}")));
    }
    Ok(())
}

/// Returns the Secrets of providers, which have the providers' names unless `--secrets` is given.
pub(in crate::cli) fn named_secrets(providers: &[&KubernetesProvider]) -> Vec<String> {
    let descriptors = providers.iter().map(|one| &one.descriptor).filter(|one| one.has_secret());
    descriptors.map(|one| one.name.clone()).collect()
}

/// Parses the name of a provider.
fn provider_name(text: &str) -> Result<String, &'static str> {
    if namespace(text).is_ok() && text.starts_with(|first: char| first.is_ascii_lowercase()) {
        Ok(text.to_owned())
    } else {
        Err("the name of a provider has lower-case letters, digits and hyphens")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_provider_is_a_namespace_that_begins_with_a_letter() {
        assert!(provider_name("up-cloud2").is_ok());
        for text in ["", "a.b", "-a", "a-", "A", "2a", "*", &"a".repeat(64)] {
            assert!(provider_name(text).is_err(), "{text}");
        }
    }
}
