//! What `provider list` and `provider show` answer: which providers there are, and what is applied for one and why (pure).
//!
//! It reads the descriptor and the manifests and asks no cluster: where a value differs from cluster to cluster it says
//! which fact it comes from.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{
    facts::{DEFAULT_NAMESPACE, Fact},
    object,
    provider::{
        Descriptor, FactOrText, Phase, Platform, ValueSource,
        folder::{Bundle, Manifest},
    },
    text::{output::table, suggest::did_you_mean},
};

/// How much of a digest a table shows: enough to tell two apart.
const SHORT_DIGEST: usize = "sha256:".len() + 12;

/// A provider, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// The platform that it serves; narrowed by `cloudName`, after a slash.
    pub platform: String,
    /// The version that it came with.
    pub version: String,
    /// The digest of its files; see [`Bundle::digest`].
    pub digest: String,
    /// What there is of it: `manifests` for the cluster, `bootstrap` for the bootstrap VM.
    pub facets: Vec<&'static str>,
}

/// What is applied for a provider, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Details {
    /// The provider, in one line.
    #[serde(flatten)]
    pub summary: Summary,
    /// Where the objects are for: `cluster` or `bootstrap`.
    pub phase: &'static str,
    /// The objects, in the order in which they are applied.
    pub objects: Vec<ShownObject>,
    /// The image of each container.
    pub images: Vec<ShownImage>,
    /// The arguments of each container, in their order.
    pub arguments: Vec<ShownValue>,
    /// The environment of each container.
    pub environment: Vec<ShownValue>,
}

/// An object that is applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownObject {
    /// Objects of a lower wave are applied before those of a higher one.
    pub wave: u8,
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace, empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The file that it stands in.
    pub file: String,
    /// Why it is in this wave.
    pub why: &'static str,
}

/// The image of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownImage {
    /// The object that the container is in.
    pub object: String,
    /// The container.
    pub container: String,
    /// The key of `images.json` that it is replaced by.
    pub key: String,
    /// The tag of `image-references`.
    pub tag: String,
    /// The image that the manifest names.
    pub built_in: String,
}

/// An argument or a variable of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownValue {
    /// The object that the container is in.
    pub object: String,
    /// The container.
    pub container: String,
    /// The argument as it stands, the flag, or the variable's name.
    pub name: String,
    /// The value, where it is the same on every cluster and is not in the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Where it comes from.
    pub from: String,
}

/// A provider in one line; `version` is that of the program or bundle which it came with.
pub fn summary(bundle: &Bundle, version: &str) -> Summary {
    let has = |phase| bundle.manifests.iter().any(|manifest| manifest.phase == phase);
    let facets = [("manifests", Phase::Cluster), ("bootstrap", Phase::Bootstrap)];
    Summary {
        name: bundle.name.clone(),
        platform: bundle.descriptor.as_ref().map(|descriptor| platform(&descriptor.platform)).unwrap_or_default(),
        version: version.to_owned(),
        digest: bundle.digest(),
        facets: facets.into_iter().filter(|(_, phase)| has(*phase)).map(|(name, _)| name).collect(),
    }
}

/// What is applied for a provider in one phase.
pub fn details(bundle: &Bundle, version: &str, phase: Phase) -> Details {
    let manifests = bundle.of_phase(phase);
    let containers = || manifests.iter().flat_map(|manifest| containers(manifest));
    let descriptor = bundle.descriptor.as_ref();
    Details {
        summary: summary(bundle, version),
        phase: match phase {
            Phase::Bootstrap => "bootstrap",
            Phase::Cluster => "cluster",
        },
        objects: manifests.iter().map(|manifest| object(manifest)).collect(),
        images: containers().filter_map(|container| container.image(descriptor?)).collect(),
        arguments: containers().flat_map(|container| container.arguments(descriptor)).collect(),
        environment: containers().flat_map(|container| container.environment(descriptor)).collect(),
    }
}

/// What is said of a name that no provider has.
pub fn unknown(name: &str, bundles: &[Bundle]) -> String {
    let known: Vec<_> = bundles.iter().map(|bundle| bundle.name.as_str()).collect();
    let hint = did_you_mean(name, known.iter().copied());
    format!("there is no provider {name:?}{hint}: `ccm-operator provider list` lists them")
}

fn platform(platform: &Platform) -> String {
    let Platform { type_, cloud_name } = platform;
    cloud_name.as_ref().map_or_else(|| type_.clone(), |cloud_name| format!("{type_}/{cloud_name}"))
}

fn object(manifest: &Manifest) -> ShownObject {
    let (kind, key) = (manifest.object.kind(), manifest.object.key());
    ShownObject {
        wave: kind.wave,
        kind: kind.kind,
        namespace: key.namespace,
        name: key.name,
        file: manifest.file.clone(),
        why: why(kind.kind),
    }
}

/// Why an object of this kind is in its wave.
fn why(kind: &str) -> &'static str {
    match kind {
        "ServiceAccount" | "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" => {
            "identities and rights, before what runs with them"
        }
        "Service" => "where the pods are found, before they are there",
        "ValidatingAdmissionPolicy" | "ValidatingAdmissionPolicyBinding" => "policies, before what they guard",
        "PodDisruptionBudget" => "after the pods that it counts; left out on a single node",
        _ => "what runs",
    }
}

/// A container and where it is.
struct Container<'a> {
    manifest: &'a Manifest,
    value: &'a Value,
    is_init: bool,
}

fn containers(manifest: &Manifest) -> impl Iterator<Item = Container<'_>> {
    let spec = manifest.object.pod_spec();
    let inits = spec.and_then(|spec| spec["initContainers"].as_array()).map_or(0, Vec::len);
    let values = spec.into_iter().flat_map(object::containers);
    values.enumerate().map(move |(index, value)| Container { manifest, value, is_init: index < inits })
}

impl Container<'_> {
    fn name(&self) -> &str {
        object::container_name(self.value)
    }

    fn image(&self, descriptor: &Descriptor) -> Option<ShownImage> {
        let source = descriptor.images.get(self.name())?;
        Some(ShownImage {
            object: self.manifest.object.key().to_string(),
            container: self.name().to_owned(),
            key: source.key.clone(),
            tag: source.tag.clone(),
            built_in: self.value["image"].as_str().unwrap_or_default().to_owned(),
        })
    }

    fn shown(&self, name: &str, value: Option<String>, from: String) -> ShownValue {
        let object = self.manifest.object.key().to_string();
        ShownValue { object, container: self.name().to_owned(), name: name.to_owned(), value, from }
    }

    /// Those of the manifest, then those that are appended.
    fn arguments(&self, descriptor: Option<&Descriptor>) -> Vec<ShownValue> {
        let written = ["command", "args"].into_iter().filter_map(|list| self.value[list].as_array()).flatten();
        let written =
            written.filter_map(Value::as_str).map(|argument| self.shown(argument, None, self.origin(argument)));
        let appended = self.of_descriptor(descriptor, |descriptor| &descriptor.arguments);
        written.chain(appended).collect()
    }

    /// Those of the manifest, then those of the descriptor, then those that every container gets.
    fn environment(&self, descriptor: Option<&Descriptor>) -> Vec<ShownValue> {
        let written = self.value["env"].as_array().into_iter().flatten().map(|variable| {
            let name = variable["name"].as_str().unwrap_or_default();
            let value = variable["value"].as_str().map(str::to_owned);
            let from = match variable["valueFrom"].as_object().and_then(|from| from.iter().next()) {
                Some((kind, reference)) => format!("manifest: {kind} {}", reference_name(reference)),
                None => "manifest".to_owned(),
            };
            self.shown(name, value, from)
        });
        let set = self.of_descriptor(descriptor, |descriptor| &descriptor.environment);
        written.chain(set).chain(self.of_every_container()).collect()
    }

    fn of_descriptor<'a>(
        &self,
        descriptor: Option<&'a Descriptor>,
        field: impl Fn(&'a Descriptor) -> &'a Sources,
    ) -> Vec<ShownValue> {
        // Bootstrap pods have all their arguments and environment in their manifest.
        let sources = descriptor.filter(|_| self.manifest.phase == Phase::Cluster).map(field);
        let sources = sources.and_then(|sources| sources.get(self.name()));
        let sources = sources.into_iter().flatten();
        sources.map(|(name, source)| self.shown(name, text(source), origin(source))).collect()
    }

    fn of_every_container(&self) -> Vec<ShownValue> {
        if self.is_init || self.manifest.phase == Phase::Bootstrap {
            return Vec::new();
        }
        let infrastructure = "Infrastructure status.apiServerInternalURI";
        let variables = [
            ("KUBERNETES_SERVICE_HOST", infrastructure),
            ("KUBERNETES_SERVICE_PORT", infrastructure),
            ("HTTP_PROXY", "Proxy status.httpProxy; left out where it has none"),
            ("HTTPS_PROXY", "Proxy status.httpsProxy; left out where it has none"),
            ("NO_PROXY", "Proxy status.noProxy; left out where it has none"),
        ];
        variables.map(|(name, from)| self.shown(name, None, from.to_owned())).into()
    }

    /// Where an argument of a manifest comes from: one that names the managed namespace follows it.
    fn origin(&self, argument: &str) -> String {
        let follows = self.manifest.phase == Phase::Cluster && argument.ends_with(&format!("={DEFAULT_NAMESPACE}"));
        if follows { "manifest; follows --namespace".to_owned() } else { "manifest".to_owned() }
    }
}

/// Arguments or variables by container, as the descriptor has them.
type Sources = BTreeMap<String, BTreeMap<String, ValueSource>>;

/// What a `valueFrom` refers to.
fn reference_name(reference: &Value) -> String {
    let texts = ["fieldPath", "resource", "name", "key"].into_iter().filter_map(|field| reference[field].as_str());
    texts.collect::<Vec<_>>().join(" ")
}

fn text(source: &ValueSource) -> Option<String> {
    match &source.value {
        FactOrText::Text(text) => Some(text.clone()),
        FactOrText::Fact(_) => None,
    }
}

fn origin(source: &ValueSource) -> String {
    let mut origin = match &source.value {
        FactOrText::Text(_) => "descriptor".to_owned(),
        FactOrText::Fact(fact) => format!("fact {}: {}", fact.name(), origin_of_fact(*fact)),
    };
    if source.optional {
        origin += "; left out without a value";
    }
    if let Some(gate) = &source.feature_gate {
        origin.extend(["; only with feature gate ", gate]);
    }
    origin
}

/// Where in a cluster a fact is found.
fn origin_of_fact(fact: Fact) -> &'static str {
    match fact {
        Fact::InfrastructureName => "Infrastructure status.infrastructureName",
        Fact::Namespace => "--namespace",
        Fact::TlsMinVersion => "--tls-min-version, else APIServer spec.tlsSecurityProfile",
        Fact::TlsCipherSuites => "--tls-cipher-suites, else APIServer spec.tlsSecurityProfile",
        Fact::FeatureGates => "FeatureGate status.featureGates of this version",
    }
}

/// Providers as a table. The digest is shortened in it.
pub fn list_table(summaries: &[Summary]) -> String {
    let row = |summary: &Summary| {
        let Summary { name, platform, version, digest, facets } = summary;
        let digest = digest.get(..SHORT_DIGEST).unwrap_or(digest);
        [name.clone(), platform.clone(), version.clone(), digest.to_owned(), facets.join(", ")]
    };
    let rows: Vec<_> = summaries.iter().map(row).collect();
    table(["NAME", "PLATFORM", "VERSION", "DIGEST", "FACETS"], &rows)
}

/// A provider's details as tables, a title before each.
pub fn details_table(details: &Details) -> String {
    let Details { summary, phase, objects, images, arguments, environment } = details;
    let Summary { name, platform, version, digest, .. } = summary;
    let objects: Vec<_> = objects
        .iter()
        .map(|ShownObject { wave, kind, namespace, name, file, why }| {
            let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
            [wave.to_string(), format!("{kind} {name}{place}; {file}; {why}")]
        })
        .collect();
    let images: Vec<_> = images
        .iter()
        .map(|ShownImage { container, key, tag, built_in, .. }| {
            [container.clone(), format!("key {key}, tag {tag}, built in {built_in}")]
        })
        .collect();
    format!(
        "{name} {version} serves {platform}\n{digest}\n\nObjects of phase {phase}, in their order\n{}\n\
         Images\n{}\nArguments\n{}\nEnvironment\n{}",
        table(["WAVE", "OBJECT; FILE; WHY THEN"], &objects),
        table(["CONTAINER", "IMAGE"], &images),
        values_table("ARGUMENT", arguments),
        values_table("VARIABLE", environment),
    )
}

fn values_table(title: &str, values: &[ShownValue]) -> String {
    let row = |value: &ShownValue| {
        let name = match &value.value {
            Some(text) => format!("{}={text}", value.name),
            None => value.name.clone(),
        };
        [value.container.clone(), format!("{name}   # {}", value.from)]
    };
    let rows: Vec<_> = values.iter().map(row).collect();
    table(["CONTAINER", &format!("{title}   # WHERE IT COMES FROM")], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::embedded;

    fn embedded(name: &str) -> Bundle {
        embedded::bundles().into_iter().find(|bundle| bundle.name == name).unwrap()
    }

    fn from<'a>(values: &'a [ShownValue], container: &str, name: &str) -> Vec<&'a str> {
        let named = values.iter().filter(|value| value.container == container && value.name == name);
        named.map(|value| value.from.as_str()).collect()
    }

    #[test]
    fn a_summary_says_what_a_provider_serves_and_has() {
        let summary = summary(&embedded("azurestack"), "1");
        assert_eq!(summary.platform, "Azure/AzureStackCloud");
        assert_eq!(summary.facets, ["manifests", "bootstrap"]);
        assert_eq!(summary.digest.len(), "sha256:".len() + 64);
    }

    #[test]
    fn details_say_where_every_value_comes_from() {
        let details = details(&embedded("vsphere"), "1", Phase::Cluster);
        let ccm = "cloud-controller-manager";
        let namespace = format!("--leader-elect-resource-namespace={DEFAULT_NAMESPACE}");
        for (values, name, expected) in [
            (&details.arguments, "--cloud-provider=vsphere", "manifest"),
            (&details.arguments, &namespace, "manifest; follows --namespace"),
            (&details.arguments, "--cluster-name", "fact infrastructureName: Infrastructure status.infrastructureName"),
            (&details.arguments, "--node-labels", "descriptor; only with feature gate VSphereMixedNodeEnv"),
            (&details.environment, "VSPHERE_SECRET_NAMESPACE", "fact namespace: --namespace"),
            (&details.environment, "KUBERNETES_SERVICE_HOST", "Infrastructure status.apiServerInternalURI"),
        ] {
            assert_eq!(from(values, ccm, name), [expected], "{name}");
        }
        let waves: Vec<_> = details.objects.iter().map(|object| object.wave).collect();
        assert!(waves.is_sorted() && waves.first() == Some(&1) && waves.last() == Some(&4), "{waves:?}");
        assert_eq!(details.images[0].built_in, "quay.io/openshift/origin-vsphere-cloud-controller-manager");
    }

    #[test]
    fn facts_do_not_enter_init_containers_and_bootstrap_pods() {
        let azure = embedded("azure");
        let of_cluster = details(&azure, "1", Phase::Cluster);
        assert!(from(&of_cluster.environment, "azure-inject-credentials", "HTTP_PROXY").is_empty());
        assert_eq!(
            from(&of_cluster.environment, "cloud-node-manager", "NODE_NAME"),
            ["manifest: fieldRef spec.nodeName"]
        );
        let of_bootstrap = details(&azure, "1", Phase::Bootstrap);
        assert!(of_bootstrap.arguments.iter().all(|argument| argument.from == "manifest"));
        assert_eq!(of_bootstrap.environment, []);
    }

    #[test]
    fn tables_fit_a_hundred_columns() {
        for bundle in embedded::bundles() {
            for phase in [Phase::Cluster, Phase::Bootstrap] {
                let text = details_table(&details(&bundle, "1.2.3", phase));
                assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
            }
        }
    }
}
