//! `render` for any Kubernetes: what the operator would apply for a `CloudControllerManager`, and its own installation.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum, builder::PossibleValue};

use super::{
    flags::{say, wrong_usage},
    limits::{LimitFlags, name, or_default},
    providers::EXTERNAL_PROVIDERS,
};
use crate::{
    api::{
        placement::{ApiServer, Distribution},
        spec::Management,
    },
    facts::{cluster::Cluster, read, version::Minor},
    plan::{
        Plan,
        install::{Installation, NAME, external::External},
        rbac, upstream, write,
    },
    provider::{
        Flavour, Phase,
        catalog::Catalog,
        embedded,
        external::read::Externals,
        upstream::{Descriptor, Upstream},
        verify::Policy,
    },
    text::yaml,
};

/// Flags of `render` for any Kubernetes: the cluster, which is not asked.
#[derive(Args, Debug)]
#[group(skip)]
pub struct ClusterFlags {
    /// The version of Kubernetes, such as 1.35; with --config.
    #[arg(long, value_name = "VERSION", requires = "config")]
    pub kubernetes_version: Option<Minor>,

    /// The distribution of Kubernetes, unless the manifest names one; with --config or --flavour upstream [default: other].
    #[arg(long, value_enum)]
    pub distribution: Option<Distribution>,

    /// The number of nodes with the label of the control plane; with --config or --flavour upstream [default: 3].
    #[arg(long, value_name = "NUMBER")]
    pub control_plane_nodes: Option<usize>,
}

impl ClusterFlags {
    /// The distribution.
    pub(super) fn distribution(&self) -> Distribution {
        self.distribution.unwrap_or(Distribution::Other)
    }

    /// The number of nodes with the label of the control plane.
    pub(super) fn control_plane_nodes(&self) -> usize {
        self.control_plane_nodes.unwrap_or(3)
    }
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

impl ValueEnum for Flavour {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::OpenShift, Self::Upstream]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::OpenShift => PossibleValue::new("openshift").help("OpenShift, and what has its API"),
            Self::Upstream => PossibleValue::new("upstream").help("Any other Kubernetes"),
        })
    }
}

/// Flags of the installation on any Kubernetes.
#[derive(Args, Debug)]
#[group(skip)]
pub struct InstallFlags {
    /// The providers that may be asked for, comma-separated; required with --flavour upstream, unless --provider is given. The
    /// operator gets the rights that they need.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub providers: Vec<String>,

    /// The namespaces in which cloud-controller-managers may be, comma-separated; with --flavour upstream
    /// [default: kube-system].
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',', value_parser = namespace)]
    pub namespaces: Vec<String>,

    /// The operator's own namespace; with --flavour upstream [default: ccm-operator].
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    pub operator_namespace: Option<String>,

    /// The Secrets in those namespaces that the operator may read, comma-separated; with --flavour upstream [default: the names
    /// of the chosen providers that need one].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = name)]
    pub secrets: Vec<String>,

    /// The address of the API server for the operator, if it is not that of the distribution; with --flavour upstream.
    #[arg(long, value_name = "HOST:PORT", value_parser = api_server)]
    pub api_server: Option<ApiServer>,

    /// Let cloud-controller-managers delete nodes that the operator has confirmed, where a CloudControllerManager asks for that;
    /// with --flavour upstream. The operator gets the rights for it, that to delete nodes included.
    #[arg(long)]
    pub node_deletion: bool,

    /// Serve the operator's metrics on every address of its nodes, for a Prometheus that scrapes them; with --flavour upstream
    /// [default: only the nodes themselves reach them].
    #[arg(long)]
    pub expose_metrics: bool,

    /// The Secret in the operator's namespace with tls.crt and tls.key of its metrics server, which may be created later;
    /// with --flavour upstream [default: none, and the operator makes a certificate itself].
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub metrics_certificate_secret: Option<String>,

    /// The external providers, comma-separated, whose objects the operator is to delete, because they are not given any more; with
    /// --flavour upstream. A built-in provider of the same name takes their place.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = provider_name, help_heading = EXTERNAL_PROVIDERS)]
    pub remove_provider: Vec<String>,

    /// What `CloudControllerManager`s may ask for.
    #[command(flatten)]
    pub limits: LimitFlags,
}

impl InstallFlags {
    /// The first of the flags that is given.
    pub(super) fn first(&self) -> Option<&'static str> {
        let Self { providers, namespaces, operator_namespace, secrets, api_server, node_deletion, .. } = self;
        let flags = [
            ("--providers", !providers.is_empty()),
            ("--namespaces", !namespaces.is_empty()),
            ("--operator-namespace", operator_namespace.is_some()),
            ("--secrets", !secrets.is_empty()),
            ("--api-server", api_server.is_some()),
            ("--node-deletion", *node_deletion),
            ("--expose-metrics", self.expose_metrics),
            ("--metrics-certificate-secret", self.metrics_certificate_secret.is_some()),
            ("--remove-provider", !self.remove_provider.is_empty()),
        ];
        flags.into_iter().chain(self.limits.given()).find_map(|(flag, given)| given.then_some(flag))
    }
}

/// What the operator would apply for a `CloudControllerManager`.
pub(super) fn managed(
    config: &Path,
    cluster: &ClusterFlags,
    catalog: &Catalog,
) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let Some(minor) = cluster.kubernetes_version else {
        wrong_usage("--config needs --kubernetes-version, by which the version of the image is chosen")
    };
    let cluster =
        Cluster { minor, distribution: cluster.distribution(), control_plane_nodes: cluster.control_plane_nodes() };
    let manager = read::manager(config, cluster)?;
    let facts = manager.clone().facts();
    let plan =
        Plan::new(catalog, &facts, Phase::Cluster).with_context(|| format!("failed to render {}", config.display()))?;
    if let Plan::Nothing { why } = &plan {
        say(&format!("no manifests are written: {why}"));
        return Ok(Vec::new());
    }
    if manager.spec.management == Management::Paused {
        say("spec.management is Paused: the operator would change nothing");
    }
    if let Ok(provider) = catalog.upstream_of(&manager.spec.provider) {
        for (container, image) in &provider.descriptor.images {
            if let Some((_, problem)) = upstream::choose(container, image, &manager)?.problem {
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
pub(super) fn installation(
    flags: &InstallFlags,
    cluster: &ClusterFlags,
    image: Option<&String>,
    externals: &Externals,
) -> anyhow::Result<Vec<(PathBuf, String)>> {
    let catalog = externals.catalog();
    catalog.check()?;
    let all: Vec<_> = catalog.upstream().map(|one| one.descriptor.name.as_str()).collect();
    if flags.providers.is_empty() && flags.remove_provider.is_empty() && externals.used().next().is_none() {
        wrong_usage(&format!("--flavour upstream needs --provider PATH, or --providers: {}", all.join(", ")));
    }
    let namespaces = or_default(&flags.namespaces, || vec!["kube-system".to_owned()]);
    let find = |name: &String| {
        catalog.upstream_of(name).unwrap_or_else(|problem| wrong_usage(&format!("--providers: {problem}")))
    };
    let names = || externals.used().map(|external| &external.provider.name);
    if let Some(name) = names().find(|name| catalog.upstream().all(|one| one.descriptor.name != **name)) {
        wrong_usage(&format!("--provider: {name} is for OpenShift only: it has no assets/upstream/"));
    }
    if let Some(name) = names().find(|name| flags.remove_provider.contains(*name)) {
        wrong_usage(&format!("--remove-provider: {name} is given with --provider, so nothing of it would be deleted"));
    }
    warn_of_policy(externals);
    let mut providers: Vec<_> = flags.providers.iter().chain(names()).map(find).collect();
    providers.sort_by_key(|one| &one.descriptor.name);
    providers.dedup_by_key(|one| &one.descriptor.name);
    for one in &providers {
        check_namespaces(&namespaces, &one.descriptor);
    }
    // Their rights stand apart: a policy may allow more than those of the operator's own providers need.
    let (external, providers): (Vec<_>, Vec<_>) = providers.into_iter().partition(|one| one.origin.is_some());
    let installation = Installation {
        namespaces,
        operator_namespace: flags.operator_namespace.clone().unwrap_or_else(|| NAME.to_owned()),
        secrets: or_default(&flags.secrets, || named_secrets(&providers)),
        image: image.cloned(),
        distribution: cluster.distribution(),
        control_plane_nodes: cluster.control_plane_nodes(),
        api_server: flags.api_server.clone(),
        node_deletion: flags.node_deletion,
        expose_metrics: flags.expose_metrics,
        metrics_certificate: flags.metrics_certificate_secret.clone(),
        limits: flags.limits.limits(),
        providers,
        external: External { remove: or_default(&flags.remove_provider, Vec::new), ..carried(externals)? },
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
        let secrets = or_default(&flags.secrets, || named_secrets(&[one]));
        let (names, namespaces) = (&installation.limits.names, &installation.namespaces);
        let rights = rbac::upstream(one, names, namespaces, &secrets, &installation.operator_namespace)?;
        files.push((PathBuf::from(format!("manifests/04_provider_{}.rbac.yaml", one.descriptor.name)), rights));
    }
    files.sort();
    if image.is_none() {
        say("the operator's image is a placeholder: give --image to replace it");
    }
    Ok(files)
}

/// Says that the policy is about other providers only, as `provider verify` does: a name may be mistyped.
fn warn_of_policy(externals: &Externals) {
    let Ok(Some(Ok(policy))) = externals.policy().map(|text| text.map(Policy::parse)) else { return };
    let of_others: Option<Vec<_>> = externals.used().map(|one| policy.is_of_others(&one.provider.name)).collect();
    for problem in of_others.unwrap_or_default() {
        say(&format!("warning: --provider-policy: {problem}"));
    }
}

/// What the operator is given of the external providers.
fn carried(externals: &Externals) -> anyhow::Result<External> {
    Ok(External {
        packages: externals.used().map(|external| external.package.clone()).collect(),
        policy: externals.policy().map_err(|why| anyhow::anyhow!("{why}"))?.map(ToOwned::to_owned),
        replace: externals.replaced().to_vec(),
        remove: Vec::new(),
    })
}

/// Ends if a cloud-controller-manager may be in none of the namespaces.
pub(super) fn check_namespaces(given: &[String], Descriptor { name, namespaces, .. }: &Descriptor) {
    let is_refused = !given.iter().any(|one| namespaces.include(one));
    if let Some(words) = namespaces.words().filter(|_| is_refused) {
        wrong_usage(&format!("--namespaces: the cloud-controller-manager of provider {name}: {words}"));
    }
}

/// The Secret of a provider has its name, unless `--secrets` says otherwise.
pub(super) fn named_secrets(providers: &[&Upstream]) -> Vec<String> {
    let descriptors = providers.iter().map(|one| &one.descriptor).filter(|one| one.has_secret());
    descriptors.map(|one| one.name.clone()).collect()
}

/// The name of a namespace.
pub(super) fn namespace(text: &str) -> Result<String, &'static str> {
    if text.contains('.') || text.len() > 63 {
        return Err("a namespace has at most 63 lower-case letters, digits and hyphens");
    }
    name(text)
}

/// The name of a provider.
fn provider_name(text: &str) -> Result<String, &'static str> {
    if namespace(text).is_ok() && text.starts_with(|first: char| first.is_ascii_lowercase()) {
        Ok(text.to_owned())
    } else {
        Err("the name of a provider has lower-case letters, digits and hyphens")
    }
}

/// An address: `HOST:PORT`, `HOST`, `[IPV6]:PORT`.
pub(super) fn api_server(text: &str) -> Result<ApiServer, &'static str> {
    const PROBLEM: &str = "must be HOST:PORT, such as 10.0.0.10:6443 or [fd00::10]:6443";
    let (host, port) = text.rsplit_once(':').ok_or(PROBLEM)?;
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    let bare = if is_bracketed { &host[1..host.len() - 1] } else { host };
    let is_host = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:".contains(&byte));
    if !is_host || bare.contains(':') != is_bracketed {
        return Err(PROBLEM);
    }
    match port.parse() {
        Ok(port) if port > 0 => Ok(ApiServer { host: bare.to_owned(), port }),
        _ => Err(PROBLEM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (text, host, port) in
            [("api.lab:6443", "api.lab", 6443), ("10.0.0.1:443", "10.0.0.1", 443), ("[fd00::1]:6443", "fd00::1", 6443)]
        {
            assert_eq!(api_server(text), Ok(ApiServer { host: host.to_owned(), port }), "{text}");
        }
        for text in [
            "",
            "api.lab",
            ":6443",
            "api.lab:",
            "api.lab:0",
            "api.lab:65536",
            "fd00::1:6443",
            "[a]:1",
            "https://a:1",
            "[]:1",
        ] {
            assert!(api_server(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_those_that_kubernetes_takes() {
        for text in ["a", "kube-system", "0"] {
            assert!(namespace(text).is_ok() && name(text).is_ok(), "{text}");
        }
        assert!(namespace("a.b").is_err() && name("a.b").is_ok());
        assert!(provider_name("up-cloud2").is_ok());
        for text in ["", "a.b", "-a", "a-", "A", "2a", "*", &"a".repeat(64)] {
            assert!(provider_name(text).is_err(), "{text}");
        }
        for text in ["", "-a", "a-", "A", "a b", "*", "a/b"] {
            assert!(name(text).is_err(), "{text}");
        }
    }
}
