//! The facts of a cluster, from any source (pure).
//!
//! [`Facts`] are the only input of the plan. They come from OpenShift's documents ([`openshift`]), or from a
//! `CloudControllerManager` and its cluster ([`ccm`]), read from a cluster or from files ([`read`]). An unknown
//! fact is an error only where it is used. Every error here is terminal: the same input gives the same error.

pub mod ccm;
pub mod cluster;
pub mod distribution;
pub mod images;
pub mod openshift;
pub mod read;
pub mod tls;
pub mod version;
pub mod vsphere;

use serde::Deserialize;

use crate::object::reference::{Digests, Reference};
use ccm::Ccm;
use images::Images;
use tls::{TlsFlags, TlsSettings};
use vsphere::VSphere;

/// OpenShift's documents.
pub use openshift::{
    DOCUMENTS, Document, Documents, EXTERNAL, PLATFORM_DOCUMENT, VERSION_PLACEHOLDER, infrastructure_region,
};

/// Declares parts of API types: absent fields have their default value, unknown fields are ignored.
macro_rules! api_types {
    ($($(#[$attribute:meta])* $visibility:vis struct $name:ident $(<$($type:ident),+>)? { $($fields:tt)* })+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, serde::Deserialize, PartialEq)]
        #[serde(default, rename_all = "camelCase")]
        $visibility struct $name $(<$($type),+>)? { $($fields)* }
    )+};
}
use api_types;

/// The namespace in the manifests, and the default of the managed namespace.
pub const DEFAULT_NAMESPACE: &str = "openshift-cloud-controller-manager";

/// The lease of the operator, the same as the Go operator's.
pub const OPERATOR_LEASE: &str = "cluster-cloud-controller-manager-leader";

/// The gates that a cloud-controller-manager of k8s.io/cloud-provider knows; it refuses to start with any other.
pub const CCM_FEATURE_GATES: [&str; 3] = [
    "CloudControllerManagerWatchBasedRoutesReconciliation",
    "CloudControllerManagerWebhook",
    "ControllerManagerReleaseLeaderElectionLockOnExit",
];

/// Declares every fact once: variant, name in descriptors, meaning, and whether only a `CloudControllerManager` has it.
macro_rules! facts {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal $(of $owner:ident)?,)+) => {
        /// A fact that a descriptor may use.
        #[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        pub enum Fact {
            $($(#[doc = $doc])+ #[serde(rename = $name)] $variant,)+
        }

        impl Fact {
            /// Every fact with its name in descriptors.
            pub const ALL: &[(Self, &str)] = &[$((Self::$variant, $name),)+];

            /// Whether only a `CloudControllerManager` has this fact: on OpenShift no document has it.
            pub fn is_of_ccm(self) -> bool {
                match self {
                    $(Self::$variant => !<[&str]>::is_empty(&[$(stringify!($owner))?]),)+
                }
            }
        }
    };
}

facts! {
    /// The cluster's name in the cloud, `Infrastructure.status.infrastructureName`.
    InfrastructureName = "infrastructureName",
    /// The namespace that is managed.
    Namespace = "namespace",
    /// The lowest TLS version to be served, in Kubernetes' spelling (`VersionTLS12`).
    TlsMinVersion = "tls.minVersion",
    /// The TLS cipher suites to be served, by IANA's names, comma-separated; without a value for TLS 1.3.
    TlsCipherSuites = "tls.cipherSuites",
    /// `true` if HTTP/2 cannot be served with the TLS cipher suites; else without a value.
    TlsDisableHttp2 = "tls.disableHttp2",
    /// The feature gates that the cluster enables and a cloud-controller-manager knows, as `Name=true`, comma-separated.
    FeatureGates = "featureGates",
    /// The cluster's name in the cloud.
    ClusterName = "clusterName" of CloudControllerManager,
    /// The controllers that are on, comma-separated.
    Controllers = "controllers" of CloudControllerManager,
    /// The same, for programs with a k8s.io/cloud-provider before 0.27, which gave the controllers other names.
    OldControllers = "oldControllers" of CloudControllerManager,
    /// `true` if the route controller is on, else `false`.
    Routes = "routes" of CloudControllerManager,
    /// The subnets of pods, comma-separated; without a value if none is given.
    PodCidrs = "podCIDRs" of CloudControllerManager,
    /// The name of the lease.
    LeaseName = "leaseName" of CloudControllerManager,
    /// The port for health and metrics.
    SecurePort = "securePort" of CloudControllerManager,
    /// The log level.
    Verbosity = "verbosity" of CloudControllerManager,
}

impl Fact {
    /// The name that descriptors use.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(fact, _)| *fact == self).map_or("", |(_, name)| name)
    }
}

/// The settings of a cluster from the command line and the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The namespace to manage.
    pub namespace: String,
    /// The version of this operator.
    pub release_version: Option<String>,
    /// TLS settings that take precedence over the cluster's.
    pub tls: TlsFlags,
}

/// The reason why a fact is unknown.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A field of a document is invalid.
    #[error("{object}: {problem}")]
    Field {
        /// The document, such as `Infrastructure/cluster`.
        object: &'static str,
        /// The field, its problem, and the expected value.
        problem: String,
    },
    /// The images are unknown.
    #[error(transparent)]
    Images(#[from] images::Error),
}

/// The platform of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    /// Its type, such as `AWS`.
    pub name: String,
    /// The variant of the cloud, such as `AzureStackCloud`; for platform `External`, the name of the platform, if nodes expect a
    /// cloud-controller-manager.
    pub variant: Option<String>,
}

/// The key of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMapKey {
    /// The ConfigMap; `None` if none is named.
    pub config_map: Option<Reference>,
    /// The key in it; empty if none is named.
    pub key: String,
}

/// The environment variables of a proxy that are set.
fn proxy_variables(http: String, https: String, no: String) -> Vec<(&'static str, String)> {
    let all = [("HTTP_PROXY", http), ("HTTPS_PROXY", https), ("NO_PROXY", no)];
    all.into_iter().filter(|(_, value)| !value.is_empty()).collect()
}

/// The facts of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// The platform; `None` if the cluster lacks the document that names it.
    pub platform: Result<Option<Platform>, Error>,
    /// The cluster's name in the cloud.
    pub infrastructure_name: Option<String>,
    /// The namespace that is managed.
    pub namespace: String,
    /// Whether the control plane is a single node.
    pub single_replica: bool,
    /// Host and port at which pods on the host's network reach the API server.
    pub api_server: Result<Option<(String, String)>, Error>,
    /// The proxy's environment variables that are set.
    pub proxy: Vec<(&'static str, String)>,
    /// Image references by key.
    pub images: Result<Images, images::Error>,
    /// Every feature gate that the cluster enables for this version.
    pub feature_gates: Vec<String>,
    /// The TLS settings of servers.
    pub tls: Result<TlsSettings, Error>,
    /// The subnets of Services: one, or two in a dual-stack cluster, the preferred first.
    pub service_networks: Vec<String>,
    /// vSphere's own facts.
    pub vsphere: Option<VSphere>,
    /// Virtual IP addresses: the API server's, then the ingress'. Known on vSphere only.
    pub vips: Vec<String>,
    /// The cloud configuration that the administrator names.
    pub cloud_config: ConfigMapKey,
    /// The ConfigMap with the certificates that the administrator trusts.
    pub user_ca: Option<Reference>,
    /// Whether cloud-controller-managers get a bundle of trusted certificates.
    pub has_trusted_ca: bool,
    /// Digests of the ConfigMaps and Secrets that pods refer to; `None` without a cluster.
    pub digests: Option<Digests>,
    /// The `CloudControllerManager`; `None` on OpenShift.
    pub ccm: Option<Ccm>,
}

impl Default for Facts {
    /// Returns the facts of an unknown cluster.
    fn default() -> Self {
        let settings = Settings { namespace: DEFAULT_NAMESPACE.to_owned(), ..Settings::default() };
        Documents::default().facts(&settings)
    }
}

impl Facts {
    /// Fails with the first error among the facts that every plan needs.
    pub fn check(&self) -> Result<(), Error> {
        self.api_server.as_ref().map_err(Clone::clone)?;
        self.images.as_ref().map_err(Clone::clone)?;
        self.tls.as_ref().map_err(Clone::clone)?;
        Ok(())
    }

    /// Host and port at which pods on the host's network reach the API server, if they are known.
    pub fn api_server(&self) -> Option<&(String, String)> {
        self.api_server.as_ref().ok()?.as_ref()
    }

    /// A fact's value; `None` if the cluster has none.
    pub fn value(&self, fact: Fact) -> Option<String> {
        let tls = self.tls.as_ref().ok();
        match fact {
            Fact::InfrastructureName => self.infrastructure_name.clone(),
            Fact::Namespace => Some(self.namespace.clone()),
            Fact::TlsMinVersion => tls.map(|tls| tls.min_version.clone()),
            Fact::TlsCipherSuites => tls.map(|tls| tls.cipher_suites.join(",")).filter(|suites| !suites.is_empty()),
            Fact::TlsDisableHttp2 => tls.filter(|tls| tls.disables_http2).map(|_| "true".to_owned()),
            Fact::FeatureGates if self.ccm.is_none() => {
                let gates = CCM_FEATURE_GATES.iter().filter(|gate| self.has_feature_gate(gate));
                let gates: Vec<_> = gates.map(|gate| format!("{gate}=true")).collect();
                (!gates.is_empty()).then(|| gates.join(","))
            }
            Fact::FeatureGates
            | Fact::ClusterName
            | Fact::Controllers
            | Fact::OldControllers
            | Fact::Routes
            | Fact::PodCidrs
            | Fact::LeaseName
            | Fact::SecurePort
            | Fact::Verbosity => self.ccm.as_ref()?.value(fact),
        }
    }

    /// The differences between the plan and the cluster's settings, for people.
    pub fn notes(&self) -> &[String] {
        self.tls.as_ref().map_or(&[], |tls| &tls.notes)
    }

    /// The variant of the cloud, such as `AzureStackCloud`; empty for the usual one.
    pub fn platform_variant(&self) -> &str {
        let platform = self.platform.as_ref().ok().and_then(Option::as_ref);
        platform.and_then(|platform| platform.variant.as_deref()).unwrap_or_default()
    }

    /// Whether the cluster enables a feature gate; unlisted gates are off.
    pub fn has_feature_gate(&self, gate: &str) -> bool {
        self.feature_gates.iter().any(|enabled| enabled == gate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gates_known_to_cloud_controller_managers_are_passed_on() {
        let gates = [&CCM_FEATURE_GATES[..], &["Other"]].concat();
        let facts = Facts { feature_gates: gates.into_iter().map(Into::into).collect(), ..Facts::default() };
        let passed = facts.value(Fact::FeatureGates).unwrap();
        assert_eq!(
            passed,
            "CloudControllerManagerWatchBasedRoutesReconciliation=true,CloudControllerManagerWebhook=true,\
             ControllerManagerReleaseLeaderElectionLockOnExit=true"
        );
    }

    #[test]
    fn the_notes_are_those_of_the_tls_settings() {
        let tls = TlsSettings { notes: vec!["a note".into()], ..TlsSettings::default() };
        assert_eq!(Facts { tls: Ok(tls), ..Facts::default() }.notes(), ["a note"]);
    }

    #[test]
    fn a_fact_that_every_plan_needs_may_be_an_error() {
        let facts = Facts::default();
        assert!(facts.check().is_ok());
        let error = || Error::Field { object: "APIServer/cluster", problem: "wrong".into() };
        assert!(Facts { api_server: Err(error()), ..facts.clone() }.check().is_err());
        assert!(Facts { tls: Err(error()), ..facts.clone() }.check().is_err());
        assert_eq!(facts.value(Fact::FeatureGates), None);
        let gate = CCM_FEATURE_GATES[0];
        let facts = Facts { feature_gates: vec![gate.to_owned()], ..facts };
        assert_eq!(facts.value(Fact::FeatureGates), Some(format!("{gate}=true")));
        assert!(facts.value(Fact::TlsCipherSuites).is_some_and(|suites| suites.contains("TLS_")));
    }
}
