//! The command `provider rbac`: the permissions that an administrator grants to the operator for a provider.

use anyhow::Context;
use clap::Args;

use super::{PolicyArgs, target::GivenProviders};
use crate::{
    cli::{
        flags::{OPERATOR_NAMESPACE, choice, namespace, print, wrong_usage},
        limits::{ccm_name, name, or_default},
        render::install::{check_namespaces, named_secrets},
    },
    facts::DEFAULT_NAMESPACE,
    plan::{install, limits::Limits, rbac},
    provider::{Flavor, KubernetesProvider, Provider},
};

/// Flags of `provider rbac`.
#[derive(Args, Debug)]
pub struct RbacArgs {
    /// A name from `provider list`, or the folder, tar or OCI image layout of one provider; `./NAME` is always a path.
    #[arg(value_name = "NAME|PATH")]
    pub target: String,

    /// The kind of cluster [default: the provider's flavor; required if it has both].
    #[arg(long, value_parser = choice(FLAVORS))]
    pub flavor: Option<Flavor>,

    /// The managed namespace; with --flavor openshift [default: openshift-cloud-controller-manager].
    #[arg(long, value_parser = namespace)]
    pub namespace: Option<String>,

    /// The namespaces in which the cloud-controller-manager may run, comma-separated; with --flavor kubernetes [default: kube-system, or
    /// the provider's name if kube-system is not allowed].
    #[arg(long, value_name = "NAMESPACES", value_delimiter = ',', value_parser = namespace)]
    pub namespaces: Vec<String>,

    /// The names that `CloudControllerManager`s may have, comma-separated, as in the installation; with --flavor kubernetes [default:
    /// cluster].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = ccm_name)]
    pub names: Vec<String>,

    /// The Secrets in those namespaces that the operator may read, comma-separated; with --flavor kubernetes [default: the
    /// provider's name if it needs one].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = name)]
    pub secrets: Vec<String>,

    /// The operator's own namespace [default: ccm-operator, on OpenShift openshift-cloud-controller-manager-operator].
    #[arg(long, value_name = "NAMESPACE", value_parser = namespace)]
    pub operator_namespace: Option<String>,

    /// The policy that extends the rules for external providers.
    #[command(flatten)]
    pub policy: PolicyArgs,
}

const FLAVORS: [(Flavor, &str, &str); 2] = [
    (Flavor::OpenShift, "openshift", "OpenShift, and what has its API"),
    (Flavor::Kubernetes, "kubernetes", "Any other Kubernetes"),
];

pub(super) fn run(args: &RbacArgs) -> anyhow::Result<()> {
    let Provider { openshift, kubernetes, .. } = provider(args)?;
    if openshift.is_some() && kubernetes.is_some() && args.flavor.is_none() {
        return Err(wrong_usage(&format!("{} is for OpenShift and for any Kubernetes: give --flavor", args.target)));
    }
    let is_asked = |flavor| args.flavor.is_none_or(|asked| asked == flavor);
    let operator_namespace = args.operator_namespace.as_deref();
    print(&if let Some(provider) = openshift.filter(|_| is_asked(Flavor::OpenShift)) {
        let flags = [
            ("--namespaces", args.namespaces.is_empty()),
            ("--names", args.names.is_empty()),
            ("--secrets", args.secrets.is_empty()),
        ];
        if let Some((flag, _)) = flags.iter().find(|(_, is_absent)| !is_absent) {
            return Err(wrong_usage(&format!("{flag} has no use with --flavor openshift")));
        }
        let namespace = args.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        rbac::openshift(&provider, namespace, operator_namespace.unwrap_or(OPERATOR_NAMESPACE))?
    } else {
        let provider = kubernetes.filter(|_| is_asked(Flavor::Kubernetes));
        let provider = provider.with_context(|| format!("{} has nothing for this --flavor", args.target))?;
        if args.namespace.is_some() {
            return Err(wrong_usage("--namespace has no use with --flavor kubernetes: give --namespaces"));
        }
        for_kubernetes(args, &provider, operator_namespace.unwrap_or(install::NAME))?
    })
}

fn for_kubernetes(args: &RbacArgs, provider: &KubernetesProvider, operator_namespace: &str) -> anyhow::Result<String> {
    let namespaces = or_default(&args.namespaces, || vec![provider.descriptor.home().to_owned()]);
    check_namespaces(&namespaces, &provider.descriptor)?;
    let secrets = or_default(&args.secrets, || named_secrets(&[provider]));
    let names = or_default(&args.names, || Limits::default().names);
    Ok(rbac::kubernetes(provider, &names, &namespaces, &secrets, operator_namespace)?)
}

/// Returns the requested provider. Fails if the operator would refuse it, because nobody should apply its permissions then.
fn provider(args: &RbacArgs) -> anyhow::Result<Provider> {
    match GivenProviders::of(&args.target)? {
        GivenProviders::Provider(loaded) => args.policy.accept(&args.target, loaded),
        GivenProviders::Tree(..) => {
            Err(wrong_usage("give one provider's own folder, or the name of one that comes with this program"))
        }
    }
}
