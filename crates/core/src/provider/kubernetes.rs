//! The flavor kubernetes of a provider: whole manifests for public images, for any Kubernetes (pure).
//!
//! `assets/<cloud>/kubernetes/` holds the manifests and their descriptor. They share nothing with the flavor openshift, and
//! have other names, accounts and images.

mod environment;
mod migration;
mod namespaces;
mod nodes;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    api::spec::OnByDefault,
    config::{Problem, Transform, fields},
    error::brief,
    facts::{
        Fact,
        ccm::{Ccm, Controller},
    },
    object::{KUBE_SYSTEM, Object, container_name, containers},
    provider::{
        CCM, Common, DescriptorFields, FactOrText, ProviderFlavor,
        descriptor::{Services, Sources},
        patterns::is_of,
        versions::Versions,
    },
    text::{
        suggest::{Hints, did_you_mean},
        work,
        yaml::outline::child,
    },
};

pub use crate::object::INSTANCE_LABEL;
pub use migration::Migration;
pub use namespaces::Namespaces;
pub use nodes::{Answer, Names, NodeRules};

/// The architectures that nodes may have, as the label `kubernetes.io/arch` names them.
const ARCHITECTURES: [&str; 6] = ["amd64", "arm", "arm64", "ppc64le", "riscv64", "s390x"];

/// The namespace in the manifests, which a plan replaces.
pub const NAMESPACE: &str = KUBE_SYSTEM;

/// The label with the name of the program that an object belongs to.
const NAME_LABEL: &str = "app.kubernetes.io/name";

/// The volume that gets the source of `spec.cloudConfig`.
pub const CLOUD_CONFIG_VOLUME: &str = "cloud-config";

/// The volume that gets the Secret of `spec.credentials`.
pub const CREDENTIALS_VOLUME: &str = "credentials";

/// The label of the nodes of the control plane.
pub const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";

/// `assets/<cloud>/kubernetes/provider.yaml`: the images, the facts in the manifests, and the needs of the cloud.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Descriptor {
    /// The provider's name, also of its folder in `assets/`.
    pub name: String,
    /// The image of each container, by the container's name.
    pub images: BTreeMap<String, ProviderImage>,
    /// Arguments that are appended, by the container's name and the flag.
    #[serde(default)]
    pub arguments: Sources,
    /// Environment variables that are set, by the container's name and the variable's.
    #[serde(default)]
    pub environment: Sources,
    /// The cloud's configuration; absent means that the cloud-controller-manager reads none.
    pub cloud_config: Option<ConfigFile>,
    /// The Secret with the credentials; absent means that the cloud-controller-manager gets them from its machine.
    pub credentials: Option<Credentials>,
    /// The namespaces that it may run in.
    #[serde(default)]
    pub namespaces: Namespaces,
    /// The DaemonSet whose pods each initialize their own node, in place of the controller `cloudNode`. It and its related objects
    /// have this name in the label `app.kubernetes.io/name`.
    pub node_manager: Option<String>,
    /// Whether the cloud-controller-manager has a controller for load balancers of Services.
    #[serde(default = "yes")]
    pub load_balancers: bool,
    /// Its route controller; absent means that the cloud has no routes.
    pub routes: Option<Routes>,
    /// Its controller that assigns pod subnets to nodes, which the operator never runs; absent means that it has none.
    #[serde(rename = "nodeIPAM")]
    pub node_ipam: Option<NodeIpam>,
    /// The rules for its nodes.
    pub nodes: NodeRules,
    /// The fields of Services that the cloud-controller-manager writes.
    #[serde(default)]
    pub services: Services,
    /// The additional flags that an administrator may set.
    #[serde(default)]
    pub allowed_arguments: Vec<String>,
    /// The environment variables of the cloud-controller-manager that an administrator may set. What is secret belongs in `credentials`.
    #[serde(default)]
    pub allowed_environment: Vec<String>,
    /// Flags of every cloud-controller-manager that this one does not have.
    #[serde(default)]
    pub absent_flags: Vec<String>,
    /// The permissions of the cloud's own code, in addition to those that its controllers need on every cloud.
    #[serde(default)]
    pub permissions: Vec<NeededPermission>,
    /// The settings that a migration from the cloud's own chart or manifests cannot keep.
    #[serde(default)]
    pub migration: Migration,
}

/// The flavor kubernetes of a provider.
pub type KubernetesProvider = ProviderFlavor<Descriptor>;

/// An image.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProviderImage {
    /// Its registry and path, without a tag.
    #[cfg_attr(test, schemars(regex(pattern = "^[a-z0-9][-._:/a-z0-9]*[a-z0-9]$"), length(max = 255)))]
    pub repository: String,
    /// Its tags.
    pub versions: Versions,
    /// The architectures that it is built for, as in the label `kubernetes.io/arch`.
    pub architectures: Vec<String>,
}

/// The file of `--cloud-config`: the volume `cloud-config` of the pod.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConfigFile {
    /// Whether the cloud-controller-manager does not start without it.
    pub required: bool,
    /// Whether the configuration holds the credentials, so that it is a key of a Secret.
    #[serde(default)]
    pub holds_credentials: bool,
    /// The name of the file in the volume.
    #[cfg_attr(test, schemars(regex(pattern = "^[-._a-zA-Z0-9]+$"), length(max = 253)))]
    pub file: String,
    /// The function that checks it; absent means that it is not checked.
    pub format: Option<Transform>,
    /// The fields that it must have, if it is YAML or JSON: each as a JSON pointer, such as `/global/projectId`.
    #[serde(default)]
    pub needs: Vec<String>,
}

/// What turns on a controller that assigns pod subnets to nodes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum NodeIpam {
    /// `--allocate-node-cidrs`, and `node-ipam-controller` in `--controllers`.
    Controllers,
    /// `--allocate-node-cidrs` alone.
    Flag,
}

/// A route controller.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Routes {
    /// The largest number of pod subnets that it supports. With more it does nothing, or worse, half of its work.
    #[serde(rename = "maxPodCIDRs")]
    pub max_pod_cidrs: usize,
    /// The flags that identify the cloud's network. It needs one of them.
    #[serde(default, rename = "needsOneOf")]
    pub needs_one_of: Vec<String>,
}

fn yes() -> bool {
    true
}

impl DescriptorFields for Descriptor {
    fn common(&self) -> Common<'_> {
        Common {
            name: &self.name,
            platform: None,
            images: self.images.keys().map(String::as_str).collect(),
            arguments: &self.arguments,
            environment: &self.environment,
            node_prefixes: &self.nodes.metadata_prefixes,
            service_prefixes: &self.services.metadata_prefixes,
        }
    }
}

impl Descriptor {
    /// Returns the proposed namespace: `kube-system` if allowed, or else one with the provider's name.
    pub fn home(&self) -> &str {
        if self.namespaces.include(NAMESPACE) { NAMESPACE } else { &self.name }
    }

    /// Whether a Secret may hold its credentials.
    pub fn has_secret(&self) -> bool {
        self.credentials.is_some() || self.cloud_config.as_ref().is_some_and(|config| config.holds_credentials)
    }

    /// Returns the contradictions between fields: JSON pointer and text.
    pub(super) fn misfits(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (index, prefix) in self.nodes.provider_ids.iter().enumerate().filter(|(_, prefix)| prefix.len() < 4) {
            let problem = format!(
                "the prefix {prefix:?} would be one of nodes of other clouds: write all that they have in common"
            );
            found.push((format!("/nodes/providerIDs/{index}"), problem));
        }
        for (name, image) in &self.images {
            if image.versions.tags.is_empty() {
                let problem =
                    "no tag is given, so that there would be no image: write the newest for each version of Kubernetes";
                found.push((format!("/images/{name}/versions/tags"), problem.to_owned()));
            }
            if let Some((minor, problem)) = image.versions.bad_digest() {
                found.push((format!("/images/{name}/versions/tags/{minor}"), problem));
            }
            if let Some((field, problem)) = image.versions.bad_broken() {
                found.push((format!("/images/{name}/versions/{field}"), problem));
            }
            let pointer = format!("/images/{name}/architectures");
            if image.architectures.is_empty() {
                found.push((pointer, format!("none is given; there are {}", ARCHITECTURES.join(", "))));
            } else if let Some(other) = image.architectures.iter().find(|one| !ARCHITECTURES.contains(&one.as_str())) {
                let (hint, known) = (did_you_mean(other, ARCHITECTURES), ARCHITECTURES.join(", "));
                found.push((pointer, format!("unknown architecture {:?}{hint}; there are {known}", brief(other))));
            }
        }
        if let Some(Credentials { keys, optional_keys, environment, .. }) = &self.credentials {
            let known: BTreeSet<_> = keys.iter().chain(optional_keys).map(String::as_str).collect();
            let hints = Hints::default();
            let variables = environment.iter().inspect(|_| work::add(1));
            for (variable, key) in variables.filter(|(_, key)| !known.contains(key.as_str())) {
                let hint = hints.of(key, known.iter().copied());
                let problem = format!("the key {:?} is neither in keys nor in optionalKeys{hint}", brief(key));
                found.push((child("/credentials/environment", variable), problem));
            }
        }
        found.extend(environment::misfits(self));
        found
    }

    /// Returns the container of a known image. If several match, prefers the cloud-controller-manager's.
    pub fn container_of(&self, image: &str) -> Option<&str> {
        let fits = |(_, known): &(&String, &ProviderImage)| is_of(image, &known.repository);
        let names = self.images.iter().filter(fits).map(|(name, _)| name.as_str());
        names.max_by_key(|name| *name == CCM)
    }

    /// Whether the program knows the controllers by the names before k8s.io/cloud-provider 0.27.
    pub fn has_old_controllers(&self) -> bool {
        let source = self.arguments.get(CCM).and_then(|flags| flags.get("--controllers"));
        source.is_some_and(|source| source.value == FactOrText::Fact(Fact::OldControllers))
    }

    /// Returns the controllers of the cloud-controller-manager itself.
    pub fn controllers(&self) -> Vec<Controller> {
        let has = |controller: &Controller| match controller {
            Controller::Service => self.load_balancers,
            Controller::Route => self.routes.is_some(),
            Controller::CloudNode => self.node_manager.is_none(),
            Controller::CloudNodeLifecycle => true,
        };
        Controller::ALL.into_iter().filter(has).collect()
    }

    /// Returns the `CloudControllerManager` without the controllers that the node manager runs.
    pub fn own<'a>(&self, ccm: &'a Ccm) -> Cow<'a, Ccm> {
        if self.node_manager.is_none() {
            return Cow::Borrowed(ccm);
        }
        let mut own = ccm.clone();
        own.spec.controllers.cloud_node = OnByDefault::Disabled;
        Cow::Owned(own)
    }

    /// Whether an object belongs to the node manager and not to the cloud-controller-manager.
    pub fn is_of_node_manager(&self, object: &Object) -> bool {
        let name = object.value()["metadata"]["labels"][NAME_LABEL].as_str();
        let is_other = !object.pod_spec().is_some_and(is_ccm);
        self.node_manager.is_some() && name == self.node_manager.as_deref() && is_other
    }
}

impl<D> ProviderFlavor<D> {
    /// Returns the workload of the cloud-controller-manager, and its pod specification.
    pub fn workload(&self) -> Option<(&Object, &Value)> {
        workload(&self.manifests)
    }
}

impl KubernetesProvider {
    /// Returns the name of its account in the manifests.
    pub fn account(&self) -> Option<&str> {
        self.workload()?.1["serviceAccountName"].as_str()
    }

    /// Returns the workload of the node manager.
    pub fn node_manager(&self) -> Option<&Object> {
        let own = |one: &&Object| one.pod_spec().is_some() && self.descriptor.is_of_node_manager(one);
        self.manifests.iter().find(own)
    }
}

/// Returns the workload of the cloud-controller-manager, and its pod specification. It is the first manifest, in the order of applying,
/// that has its container.
pub(super) fn workload<'a>(manifests: impl IntoIterator<Item = &'a Object>) -> Option<(&'a Object, &'a Value)> {
    manifests.into_iter().find_map(|one| Some((one, one.pod_spec().filter(|pod| is_ccm(pod))?)))
}

/// Whether a pod specification has the container of the cloud-controller-manager.
pub fn is_ccm(pod: &Value) -> bool {
    containers(pod).any(|one| container_name(one) == CCM)
}

impl ConfigFile {
    /// Checks a configuration. Fails if the cloud-controller-manager would refuse it; warns about settings that it would ignore.
    pub fn check(&self, text: &str) -> Result<Vec<Problem>, Problem> {
        let is_json = Path::new(&self.file).extension().is_some_and(|extension| extension == "json");
        fields::check(text, is_json, &self.needs)?;
        self.format.map_or(Ok(Vec::new()), |format| format.check(text))
    }
}

/// The Secret with the credentials.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Credentials {
    /// The keys that it must have. `*` stands for the name of a server.
    pub keys: Vec<String>,
    /// The keys that it may have.
    #[serde(default)]
    pub optional_keys: Vec<String>,
    /// The environment variables with the value of a key. A pod with a volume `credentials` has the keys of the Secret as files, too.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Whether the cloud-controller-manager can use the identity of its machine instead.
    #[serde(default)]
    pub optional: bool,
    /// The condition on the cloud's configuration for using these credentials; absent means none.
    pub only_with: Option<String>,
}

/// A permission, with its reason.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NeededPermission {
    /// How the cloud's code uses the permission.
    pub reason: String,
    /// The API group; the core group is empty.
    #[serde(default)]
    pub api_group: String,
    /// The resource, such as `services`.
    pub resource: String,
    /// The verbs.
    pub verbs: Vec<String>,
    /// The controllers that need it; absent means that it is needed with any controllers.
    #[serde(default)]
    pub controllers: Vec<Controller>,
}
