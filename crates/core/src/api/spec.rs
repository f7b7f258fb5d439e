//! The spec of a `CloudControllerManager` (pure).

use std::collections::BTreeMap;

#[cfg(test)]
use super::pattern::{CLUSTER_NAME, DOTTED_NAME, KEY, NAME, REPOSITORY, TAG};
use super::{
    api_types,
    deletion::NodeDeletion,
    placement::{Distribution, Placement},
};
use crate::object::KUBE_SYSTEM;

api_types! {
    /// The desired cloud-controller-manager.
    #[serde(rename_all = "camelCase")]
    #[cfg_attr(test, schemars(extend("x-kubernetes-validations" = [
        {
            "rule": "self.controllers.route != 'Enabled' || (has(self.network) && size(self.network.podCIDRs) > 0)",
            "message": "the route controller needs network.podCIDRs",
        },
        {
            "rule": "has(self.image.version) || (!has(self.image.digest) && size(self.image.digests) == 0)",
            "message": "a digest belongs to a version: give image.version too",
        },
        {
            "rule": "!has(self.image.digest) || size(self.image.digests) == 0",
            "message": "give one digest, or digests by container, not both",
        },
        {
            "rule": "!has(self.image.repository) || !has(self.image.registryMirror)",
            "message": "give a repository or a mirror of the provider's, not both",
        },
    ])))]
    pub struct Spec {
        /// The provider: the name of a cloud that `ccm-operator provider list` shows with the flavor kubernetes, such as `aws`.
        /// It cannot be changed.
        #[cfg_attr(test, schemars(
            regex(pattern = NAME.regex), length(max = NAME.longest),
            extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "the provider cannot be changed"}])
        ))]
        pub provider: String,

        /// The namespace of the cloud-controller-manager and of the objects that it reads: `kube-system`, or one that the
        /// installation of the operator lists. It cannot be changed.
        #[serde(default = "kube_system")]
        #[cfg_attr(test, schemars(
            regex(pattern = NAME.regex), length(max = NAME.longest),
            extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "the namespace cannot be changed"}])
        ))]
        pub namespace: String,

        /// The cluster's name in the cloud (`--cluster-name`). Clouds use it to name and find their load balancers.
        #[serde(default = "kubernetes")]
        #[cfg_attr(test, schemars(regex(pattern = CLUSTER_NAME.regex), length(max = CLUSTER_NAME.longest)))]
        pub cluster_name: String,

        /// The controllers to run. The cloud-controller-manager has only the permissions that they need.
        #[serde(default)]
        pub controllers: Controllers,

        /// The cluster's network.
        pub network: Option<Network>,

        /// The cloud's configuration (`--cloud-config`); absent if the cloud needs none.
        pub cloud_config: Option<CloudConfig>,

        /// The credentials for the cloud; absent if the cloud-controller-manager gets them from the machine that it runs on.
        pub credentials: Option<Credentials>,

        /// Certificates that the cloud-controller-manager trusts instead of those of its image.
        pub trust_bundle: Option<TrustBundle>,

        /// The rules for deleting nodes, with `controllers.cloudNodeLifecycle: Enabled`.
        #[serde(default)]
        pub node_deletion: NodeDeletion,

        /// The proxy for requests to the cloud.
        pub proxy: Option<Proxy>,

        /// The image.
        #[serde(default)]
        pub image: Image,

        /// The placement of the cloud-controller-manager.
        #[serde(default)]
        pub placement: Placement,

        /// The distribution of Kubernetes. It determines the address of the API server before a pod network exists.
        #[serde(default)]
        pub distribution: Distribution,

        /// The leader election of the replicas.
        #[serde(default)]
        pub leader_election: LeaderElection,

        /// The ports on the network of the host.
        #[serde(default)]
        pub ports: Ports,

        /// Additional flags, such as `--node-status-update-frequency: 1m`. Only flags that the provider's descriptor lists.
        #[serde(default)]
        #[cfg_attr(test, schemars(extend(
            "maxProperties" = 64,
            "x-kubernetes-validations" = [{
                "rule": "self.all(flag, flag.matches('^--[a-z][-a-z0-9]*$'))",
                "message": "each key is a flag, such as --node-status-update-frequency",
            }]
        )))]
        pub arguments: BTreeMap<String, String>,

        /// Environment variables, such as `HCLOUD_LOAD_BALANCERS_LOCATION: fsn1`. Only variables that the provider's descriptor lists,
        /// of which none is secret.
        #[serde(default)]
        #[cfg_attr(test, schemars(extend(
            "maxProperties" = 64,
            "x-kubernetes-validations" = [{
                "rule": "self.all(name, name.matches('^[A-Z][A-Z0-9_]*$'))",
                "message": "each key is a variable, such as HCLOUD_LOAD_BALANCERS_LOCATION",
            }]
        )))]
        pub environment: BTreeMap<String, String>,

        /// Feature gates of the cloud-controller-manager.
        #[serde(default)]
        #[cfg_attr(test, schemars(extend("maxProperties" = 64)))]
        pub feature_gates: BTreeMap<String, bool>,

        /// The log settings.
        #[serde(default)]
        pub logging: Logging,

        /// Whether the operator acts on this object.
        #[serde(default)]
        pub management: Management,
    }

    /// The controllers of the cloud-controller-manager.
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    #[cfg_attr(test, schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.cloudNode == 'Enabled' || self.cloudNodeLifecycle != 'Disabled' || self.service == 'Enabled' || self.route == 'Enabled'",
        "message": "at least one controller must be on",
    }])))]
    pub struct Controllers {
        /// Initializes nodes: addresses, labels, and the removal of the taint that keeps pods away.
        pub cloud_node: OnByDefault,
        /// Marks nodes whose machine is shut down, and finds nodes whose machine is gone. With `Rehearsal` it has no permission to
        /// delete them: the status lists the nodes that it would delete. With `Enabled` it may delete the nodes that the operator
        /// has confirmed by the rules of `nodeDeletion`.
        pub cloud_node_lifecycle: Lifecycle,
        /// Creates load balancers for Services.
        pub service: OnByDefault,
        /// Creates the routes between the nodes' pod networks; for a network plugin that relies on the cloud for them.
        pub route: OffByDefault,
    }

    /// Whether a controller runs.
    #[derive(Copy, Default)]
    pub enum OnByDefault {
        /// It runs.
        #[default]
        Enabled,
        /// It does not run.
        Disabled,
    }

    /// Whether a controller runs.
    #[derive(Copy, Default)]
    pub enum OffByDefault {
        /// It runs.
        Enabled,
        /// It does not run.
        #[default]
        Disabled,
    }

    /// The mode of the controller for gone machines.
    #[derive(Copy, Default)]
    pub enum Lifecycle {
        /// It may do everything except delete nodes.
        #[default]
        Rehearsal,
        /// It may delete the nodes that the operator has confirmed.
        Enabled,
        /// It does not run.
        Disabled,
    }

    /// The cluster's network.
    #[serde(rename_all = "camelCase")]
    pub struct Network {
        /// The subnets of pods (`--cluster-cidr`), at most one of each IP family.
        #[serde(rename = "podCIDRs", default)]
        #[cfg_attr(test, schemars(length(max = 2), inner(length(max = 64)), extend("x-kubernetes-validations" = [
            {"rule": "self.all(subnet, isCIDR(subnet))", "message": "each must be a subnet, such as 10.244.0.0/16"},
            {
                "rule": "size(self) < 2 || !isCIDR(self[0]) || !isCIDR(self[1]) || cidr(self[0]).ip().family() != cidr(self[1]).ip().family()",
                "message": "two subnets must be of different IP families",
            },
        ])))]
        pub pod_cidrs: Vec<String>,
    }

    /// The cloud's configuration; exactly one source.
    #[serde(rename_all = "camelCase")]
    #[cfg_attr(test, schemars(extend("x-kubernetes-validations" = [{
        "rule": "[has(self.inline), has(self.configMapRef), has(self.secretRef)].filter(given, given).size() == 1",
        "message": "exactly one of inline, configMapRef and secretRef must be given",
    }])))]
    pub struct CloudConfig {
        /// The text. Do not include passwords: everyone who may read this object may read it.
        #[cfg_attr(test, schemars(length(max = 65536)))]
        pub inline: Option<String>,
        /// A key of a ConfigMap in the namespace of the cloud-controller-manager.
        pub config_map_ref: Option<KeyReference>,
        /// A key of a Secret in the namespace of the cloud-controller-manager.
        pub secret_ref: Option<KeyReference>,
    }

    /// A key of a ConfigMap or Secret in the namespace of the cloud-controller-manager.
    pub struct KeyReference {
        /// The name of the object.
        #[cfg_attr(test, schemars(length(min = 1, max = 253)))]
        pub name: String,
        /// The key in the object.
        #[cfg_attr(test, schemars(regex(pattern = KEY.regex), length(max = KEY.longest)))]
        pub key: String,
    }

    /// The credentials for the cloud.
    #[serde(rename_all = "camelCase")]
    pub struct Credentials {
        /// A Secret in the namespace of the cloud-controller-manager, with the keys that the provider's descriptor names.
        pub secret_ref: NameReference,
    }

    /// An object in the namespace of the cloud-controller-manager.
    pub struct NameReference {
        /// Its name.
        #[cfg_attr(test, schemars(length(min = 1, max = 253)))]
        pub name: String,
    }

    /// Certificates to trust.
    #[serde(rename_all = "camelCase")]
    pub struct TrustBundle {
        /// A key of a ConfigMap in the namespace of the cloud-controller-manager, with certificates in PEM.
        pub config_map_ref: KeyReference,
    }

    /// A proxy.
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    pub struct Proxy {
        /// The URL for requests over HTTP. A password in a URL can be read by everyone who can read this object or the pods.
        #[cfg_attr(test, schemars(length(max = 2048)))]
        pub http_proxy: String,
        /// The URL for requests over HTTPS.
        #[cfg_attr(test, schemars(length(max = 2048)))]
        pub https_proxy: String,
        /// The destinations that bypass the proxy, comma-separated. They must include the API server; the cloud's metadata
        /// service is added.
        #[cfg_attr(test, schemars(length(max = 8192)))]
        pub no_proxy: String,
    }

    /// The image of the cloud-controller-manager.
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    pub struct Image {
        /// The tag. Defaults to the provider's tag for the cluster's version of Kubernetes.
        #[cfg_attr(test, schemars(regex(pattern = TAG.regex), length(max = TAG.longest), extend(
            "x-kubernetes-validations" = [{"rule": "self != 'latest'", "message": "name a version: latest changes by itself"}]
        )))]
        pub version: Option<String>,
        /// The digest that the image of this version must have, such as `sha256:…`, if the provider has one image.
        #[cfg_attr(test, schemars(regex(pattern = "^sha256:[0-9a-f]{64}$"), length(max = 71)))]
        pub digest: Option<String>,
        /// The digests that the images of this version must have, by container name. A provider that pins its images by digest
        /// needs none for the versions that it knows.
        #[cfg_attr(test, schemars(extend(
            "maxProperties" = 8,
            "additionalProperties" = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$", "maxLength": 71},
        )))]
        pub digests: BTreeMap<String, String>,
        /// The repository that replaces the provider's, such as `registry.example.com/cloud/ccm`.
        #[cfg_attr(test, schemars(regex(pattern = REPOSITORY.regex), length(max = REPOSITORY.longest)))]
        pub repository: Option<String>,
        /// A registry, optionally with a path, that serves the provider's repository under its own path.
        #[cfg_attr(test, schemars(regex(pattern = REPOSITORY.regex), length(max = REPOSITORY.longest)))]
        pub registry_mirror: Option<String>,
        /// Secrets with the credentials for the registry.
        #[cfg_attr(test, schemars(length(max = 8)))]
        pub pull_secrets: Vec<NameReference>,
    }

    /// The leader election of the replicas.
    #[serde(rename_all = "camelCase", default)]
    #[derive(Default)]
    pub struct LeaderElection {
        /// The Lease. Defaults to `cloud-controller-manager` for the object named `cluster`, `cloud-controller-manager-NAME` for others.
        #[cfg_attr(test, schemars(regex(pattern = DOTTED_NAME.regex), length(max = DOTTED_NAME.longest), extend(
            "x-kubernetes-validations" = [{
                "rule": "!(self in ['kube-controller-manager', 'kube-scheduler', 'k3s-cloud-controller-manager'])",
                "message": "this lease belongs to another program",
            }]
        )))]
        pub lease_name: Option<String>,
    }

    /// The ports on the network of the host.
    #[serde(rename_all = "camelCase", default)]
    pub struct Ports {
        /// The port for health and metrics over HTTPS (`--secure-port`). Two cloud-controller-managers on the same nodes need
        /// different ports.
        #[cfg_attr(test, schemars(range(min = 1024)))]
        pub secure: u16,
    }

    /// The log settings.
    #[serde(rename_all = "camelCase", default)]
    pub struct Logging {
        /// The level, as in klog (`--v`). Above 6 the client would log the bodies of requests, including Secrets.
        #[cfg_attr(test, schemars(range(max = 6)))]
        pub verbosity: u8,
    }

    /// Whether the operator acts on an object.
    #[derive(Copy, Default)]
    pub enum Management {
        /// It installs the cloud-controller-manager and keeps it installed.
        #[default]
        Managed,
        /// It changes nothing.
        Paused,
        /// It removes the cloud-controller-manager.
        Removed,
    }
}

impl Default for Ports {
    fn default() -> Self {
        Self { secure: 10258 }
    }
}

impl Default for Logging {
    fn default() -> Self {
        Self { verbosity: 2 }
    }
}

fn kube_system() -> String {
    KUBE_SYSTEM.to_owned()
}

/// The default of `--cluster-name`.
fn kubernetes() -> String {
    "kubernetes".to_owned()
}
