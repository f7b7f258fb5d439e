//! `provider list` and `provider show`: which providers there are, and what is applied for one (pure).
//!
//! What is applied is the real plan, of a cluster whose facts are the names of their sources. No cluster is asked.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{
    facts::{self, CCM_FEATURE_GATES, Facts, images::Images, tls::TlsSettings},
    object::{self, Object},
    plan::SubstituteError,
    provider::{
        self, Descriptor, FactOrText, Phase, Platform, ValueSource,
        folder::{Bundle, Manifest},
    },
    text::{output::table, suggest::did_you_mean},
};

/// How much of a digest a table shows: enough to tell two apart.
const SHORT_DIGEST: usize = "sha256:".len() + 12;

/// Why objects are in their wave, from wave 1.
const WAVES: [&str; 4] = [
    "identities and rights, before what runs with them",
    "what pods read, where they are found and what guards them",
    "what runs",
    "after the pods that it counts; left out on a single node",
];

/// Why a provider cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its folder cannot be used.
    #[error(transparent)]
    Provider(#[from] provider::Error),
    /// A manifest cannot be completed.
    #[error(transparent)]
    Substitute(#[from] SubstituteError),
}

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
    /// The argument, or the variable's name.
    pub name: String,
    /// The variable's value, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What put it there.
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
pub fn details(bundle: &Bundle, version: &str, phase: Phase) -> Result<Details, Error> {
    let provider = bundle.clone().into_provider()?;
    let facts = placeholders(&provider.descriptor);
    let objects = match phase {
        Phase::Bootstrap => provider.bootstrap_resources(&facts)?,
        Phase::Cluster => provider.resources(&facts)?,
    };
    let gates = facts.value(facts::Fact::FeatureGates).unwrap_or_default();
    let shown: Vec<_> = bundle.of_phase(phase).into_iter().zip(&objects).collect();
    let containers: Vec<_> = shown
        .iter()
        .flat_map(|(manifest, object)| containers(manifest, object, &provider.descriptor, &gates))
        .collect();
    Ok(Details {
        summary: summary(bundle, version),
        phase: match phase {
            Phase::Bootstrap => "bootstrap",
            Phase::Cluster => "cluster",
        },
        objects: shown.iter().map(|(manifest, object)| shown_object(manifest, object)).collect(),
        images: containers.iter().filter_map(Container::image).collect(),
        arguments: containers.iter().flat_map(Container::arguments).collect(),
        environment: containers.iter().flat_map(Container::environment).collect(),
    })
}

/// A cluster that has every fact: its values are the names of their sources.
fn placeholders(descriptor: &Descriptor) -> Facts {
    let text = |source: &str| format!("<{source}>");
    let Platform { type_, cloud_name } = &descriptor.platform;
    let tls = text("--tls-…, else APIServer spec.tlsSecurityProfile");
    let sources = [&descriptor.arguments, &descriptor.environment].into_iter().flat_map(BTreeMap::values);
    let gates = sources.flat_map(BTreeMap::values).filter_map(|source| source.feature_gate.as_deref());
    let images = descriptor.images.values().map(|image| (image.key.clone(), text(&image.key)));
    Facts {
        platform: Ok(Some(facts::Platform { name: type_.clone(), variant: cloud_name.clone() })),
        infrastructure_name: Some(text("Infrastructure status.infrastructureName")),
        api_server: Ok(Some((text("host of Infrastructure status.apiServerInternalURI"), text("its port")))),
        proxy: vec![
            ("HTTP_PROXY", text("Proxy status.httpProxy")),
            ("HTTPS_PROXY", text("Proxy status.httpsProxy")),
            ("NO_PROXY", text("Proxy status.noProxy")),
        ],
        images: Ok(Images::new(images)),
        feature_gates: CCM_FEATURE_GATES.into_iter().chain(gates).map(str::to_owned).collect(),
        tls: Ok(TlsSettings { min_version: tls.clone(), cipher_suites: vec![tls] }),
        ..Facts::default()
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

fn shown_object(manifest: &Manifest, object: &Object) -> ShownObject {
    let kind = object.kind();
    ShownObject {
        wave: kind.wave,
        kind: kind.kind,
        namespace: object.namespace().to_owned(),
        name: object.name().to_owned(),
        file: manifest.file.clone(),
        why: WAVES.get(usize::from(kind.wave.saturating_sub(1))).copied().unwrap_or_default(),
    }
}

/// A container as it is written in its manifest and as it is planned.
struct Container<'a> {
    object: &'a Object,
    descriptor: &'a Descriptor,
    written: &'a Value,
    planned: &'a Value,
    /// The value of `featureGates`, which has to hold real gates.
    gates: &'a str,
}

fn containers<'a>(
    manifest: &'a Manifest,
    object: &'a Object,
    descriptor: &'a Descriptor,
    gates: &'a str,
) -> impl Iterator<Item = Container<'a>> {
    let written = manifest.object.pod_spec().into_iter().flat_map(object::containers);
    let planned = object.pod_spec().into_iter().flat_map(object::containers);
    written.zip(planned).map(move |(written, planned)| Container { object, descriptor, written, planned, gates })
}

/// The arguments of a container, its command before them.
fn arguments(container: &Value) -> impl Iterator<Item = &str> {
    let lists = ["command", "args"].into_iter().filter_map(|list| container[list].as_array());
    lists.flatten().filter_map(Value::as_str)
}

fn variables(container: &Value) -> impl Iterator<Item = &Value> {
    container["env"].as_array().into_iter().flatten()
}

impl Container<'_> {
    fn name(&self) -> &str {
        object::container_name(self.planned)
    }

    fn image(&self) -> Option<ShownImage> {
        let source = self.descriptor.images.get(self.name())?;
        Some(ShownImage {
            object: self.object.key().to_string(),
            container: self.name().to_owned(),
            key: source.key.clone(),
            tag: source.tag.clone(),
            built_in: self.written["image"].as_str().unwrap_or_default().to_owned(),
        })
    }

    fn arguments(&self) -> impl Iterator<Item = ShownValue> {
        arguments(self.planned).map(|argument| {
            let flag = argument.split('=').next().unwrap_or_default();
            let from = if arguments(self.written).any(|written| written == argument) {
                "manifest".to_owned()
            } else {
                self.origin(&self.descriptor.arguments, flag)
            };
            self.shown(argument, None, from)
        })
    }

    fn environment(&self) -> impl Iterator<Item = ShownValue> {
        variables(self.planned).map(|variable| {
            let name = variable["name"].as_str().unwrap_or_default();
            let reference = variable["valueFrom"].as_object().and_then(|from| from.iter().next());
            let from = match reference {
                Some((kind, reference)) => format!("manifest: {kind} {}", reference_name(reference)),
                None if variables(self.written).any(|written| written == variable) => "manifest".to_owned(),
                None => self.origin(&self.descriptor.environment, name),
            };
            self.shown(name, variable["value"].as_str(), from)
        })
    }

    /// What put an argument or a variable into the plan that the manifest does not have.
    fn origin(&self, sources: &BTreeMap<String, BTreeMap<String, ValueSource>>, name: &str) -> String {
        let source = sources.get(self.name()).and_then(|sources| sources.get(name));
        source.map_or_else(|| "every container; left out without a value".to_owned(), origin)
    }

    fn shown(&self, name: &str, value: Option<&str>, from: String) -> ShownValue {
        let real = |text: &str| match self.gates {
            "" => text.to_owned(),
            gates => text.replace(gates, "<FeatureGate status.featureGates>"),
        };
        ShownValue {
            object: self.object.key().to_string(),
            container: self.name().to_owned(),
            name: real(name),
            value: value.map(real),
            from,
        }
    }
}

/// What a `valueFrom` refers to.
fn reference_name(reference: &Value) -> String {
    let texts = ["fieldPath", "resource", "name", "key"].into_iter().filter_map(|field| reference[field].as_str());
    texts.collect::<Vec<_>>().join(" ")
}

fn origin(source: &ValueSource) -> String {
    let mut origin = match &source.value {
        FactOrText::Text(_) => "descriptor".to_owned(),
        FactOrText::Fact(fact) => format!("fact {}", fact.name()),
    };
    if source.optional {
        origin += "; left out without a value";
    }
    if let Some(gate) = &source.feature_gate {
        origin.extend(["; only with feature gate ", gate]);
    }
    origin
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
        table(["WAVE", "OBJECT; FILE; ORDER REASON"], &objects),
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
    table(["CONTAINER", &format!("{title}   # SOURCE")], &rows)
}

#[cfg(test)]
mod tests;
