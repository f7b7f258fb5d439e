//! `provider list` and `provider show`: the providers, and the objects that are applied for one of them (pure).
//!
//! The objects are the real plan for a cluster in which the value of each fact is the name of its source. No request is sent.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    rc::Rc,
};

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    facts::{self, CCM_FEATURE_GATES, Facts, images::Images, tls::TlsSettings},
    object::{self, Object, each_text, items},
    plan::{Error, substitute},
    provider::{
        Common, Descriptor, DescriptorFields, FactOrText, ImageSource, Phase, ProviderFlavor, Sources,
        folder::{ParsedProvider, arguments},
    },
    text::{output::table, suggest::did_you_mean},
};

/// The length of a digest in a table: enough to distinguish two.
const SHORT_DIGEST: usize = "sha256:".len() + 12;

/// The reason for each wave, from wave 1.
const WAVES: [&str; 4] = [
    "policies, before what they restrict",
    "identities and permissions, before the workloads that use them",
    "configuration, Services and disruption budgets, before the pods; no disruption budget on a single node",
    "workloads",
];

/// A provider on one line.
#[derive(Default, Serialize)]
pub struct Summary {
    name: String,
    /// `OpenShift`, or `kubernetes` for any Kubernetes.
    flavor: &'static str,
    /// The OpenShift platform that it serves, narrowed by `cloudName` after a slash.
    #[serde(skip_serializing_if = "String::is_empty")]
    platform: String,
    /// The version of the program, for a built-in provider.
    version: String,
    /// The digest of its package, which has both flavors.
    digest: String,
    /// The phases that it has manifests for: `cluster`, `bootstrap`.
    phases: Vec<&'static str>,
    /// The path of an external provider; empty for a built-in provider.
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    /// The reason if another provider, or none, is used instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    unused: Option<String>,
}

/// The objects that are applied for a provider, and the source of each value in them.
#[derive(Default, Serialize)]
pub struct Details {
    #[serde(flatten)]
    summary: Summary,
    phase: &'static str,
    objects: Vec<ShownObject>,
    images: Vec<ShownImage>,
    arguments: Vec<ShownValue>,
    environment: Vec<ShownValue>,
}

#[derive(Serialize)]
struct ShownObject {
    wave: u8,
    kind: &'static str,
    namespace: String,
    name: String,
    file: String,
    why: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownImage {
    object: String,
    container: String,
    key: String,
    tag: String,
    /// The image in the manifest.
    built_in: String,
}

/// An argument or a variable of a container.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ShownValue {
    /// Shared, because all values of a container have the same object and container.
    #[serde(serialize_with = "shared")]
    object: Rc<str>,
    #[serde(serialize_with = "shared")]
    container: Rc<str>,
    /// The flag, or the variable's name.
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    from: String,
}

fn shared<S: Serializer>(text: &Rc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

impl Summary {
    /// Summarizes one flavor of a built-in provider, with the digest of its package and the version of the program.
    pub fn of<D: DescriptorFields>(provider: &ProviderFlavor<D>, digest: &str, version: &str) -> Self {
        let Common { name, platform, .. } = provider.descriptor.common();
        let phases = [("cluster", &provider.manifests), ("bootstrap", &provider.bootstrap_manifests)];
        Self {
            name: name.to_owned(),
            flavor: if platform.is_some() { "openshift" } else { "kubernetes" },
            platform: platform.map(ToString::to_string).unwrap_or_default(),
            version: version.to_owned(),
            digest: digest.to_owned(),
            phases: phases.into_iter().filter(|(_, all)| !all.is_empty()).map(|(name, _)| name).collect(),
            ..Self::default()
        }
    }

    /// Sets the path from which an external provider was read.
    #[must_use]
    pub fn at(self, path: &str) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// Sets the reason why the provider is not used, if there is one.
    #[must_use]
    pub fn unused(self, unused: Option<String>) -> Self {
        Self { unused, ..self }
    }
}

/// Plans a provider in one phase.
pub fn details(parsed: &ParsedProvider, digest: &str, version: &str, phase: Phase) -> Result<Details, Error> {
    let provider = parsed.openshift()?;
    let facts = placeholders(&provider.descriptor);
    // A plan contains only known feature gates, so their placeholder is set afterwards.
    let gates = facts.value(facts::Fact::FeatureGates).unwrap_or_default();
    let mut details = Details {
        summary: Summary::of(&provider, digest, version),
        phase: if phase == Phase::Cluster { "cluster" } else { "bootstrap" },
        ..Details::default()
    };
    for (manifest, mut object) in parsed.of_phase(phase).into_iter().zip(provider.objects(phase, &facts)?) {
        each_text(object.value_mut(), &mut |text| *text = text.replace(&gates, "<FeatureGate status.featureGates>"));
        let kind = object.kind();
        details.objects.push(ShownObject {
            wave: kind.wave,
            kind: kind.kind,
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            file: manifest.file.clone(),
            why: WAVES.get(usize::from(kind.wave.saturating_sub(1))).copied().unwrap_or_default(),
        });
        let containers = |object| Object::pod_spec(object).into_iter().flat_map(object::containers);
        for (written, planned) in containers(&manifest.object).zip(containers(&object)) {
            details.add_container(&provider.descriptor, &object, written, planned);
        }
    }
    Ok(details)
}

/// Returns every fact of a cluster, each with the name of its source as the value.
fn placeholders(descriptor: &Descriptor) -> Facts {
    let text = |source: &str| format!("<{source}>");
    let tls = |flag: &str| text(&format!("{flag}, else APIServer spec.tlsSecurityProfile"));
    let sources = [&descriptor.arguments, &descriptor.environment].into_iter().flat_map(BTreeMap::values);
    let gates = sources.flat_map(BTreeMap::values).filter_map(|source| source.feature_gate.as_deref());
    let gates: BTreeSet<_> = CCM_FEATURE_GATES.into_iter().chain(gates).collect();
    let images = descriptor.images.values().map(|image| (image.key.clone(), text(&image.key)));
    Facts {
        infrastructure_name: Some(text("Infrastructure status.infrastructureName")),
        api_server: Ok(Some((text("host of Infrastructure status.apiServerInternalURI"), text("its port")))),
        proxy: vec![
            ("HTTP_PROXY", text("Proxy status.httpProxy")),
            ("HTTPS_PROXY", text("Proxy status.httpsProxy")),
            ("NO_PROXY", text("Proxy status.noProxy")),
        ],
        images: Ok(Images::new(images)),
        feature_gates: gates.into_iter().map(str::to_owned).collect(),
        tls: Ok(TlsSettings {
            min_version: tls("--tls-min-version"),
            cipher_suites: vec![tls("--tls-cipher-suites")],
            disables_http2: true,
            notes: Vec::new(),
        }),
        ..Facts::default()
    }
}

/// Returns the message for a provider that is not among the known ones.
pub fn unknown(name: &str, known: &[&str]) -> String {
    let hint = did_you_mean(name, known.iter().copied());
    format!("there is no provider {name:?}{hint}: `ccm-operator provider list` lists them")
}

impl Details {
    /// Adds a container of an object, as written in its manifest and as planned.
    fn add_container(&mut self, descriptor: &Descriptor, object: &Object, written: &Value, planned: &Value) {
        let container = object::container_name(planned);
        let (key, its_name): (Rc<str>, Rc<str>) = (object.key().to_string().into(), container.into());
        let shown = |name: &str, value: Option<&str>, from: String| ShownValue {
            object: Rc::clone(&key),
            container: Rc::clone(&its_name),
            name: name.to_owned(),
            value: value.map(str::to_owned),
            from,
        };
        self.images.extend(descriptor.images.get(container).map(|ImageSource { key, tag }| ShownImage {
            object: object.key().to_string(),
            container: container.to_owned(),
            key: key.clone(),
            tag: tag.clone(),
            built_in: written["image"].as_str().unwrap_or_default().to_owned(),
        }));
        let is_cluster = self.phase == "cluster";
        let in_manifest: BTreeSet<_> = arguments(written).collect();
        self.arguments.extend(arguments(planned).map(|argument| {
            let (flag, value) = argument.split_once('=').map_or((argument, None), |(flag, value)| (flag, Some(value)));
            let from = match in_manifest.get(argument).copied() {
                Some(text) if is_cluster && substitute::text_in("", text).is_some() => {
                    "manifest; follows --namespace".to_owned()
                }
                Some(_) => "manifest".to_owned(),
                None => origin(&descriptor.arguments, container, flag),
            };
            shown(flag, value, from)
        }));
        let in_manifest: HashSet<_> = items(&written["env"]).iter().collect();
        self.environment.extend(items(&planned["env"]).iter().map(|variable| {
            let name = variable["name"].as_str().unwrap_or_default();
            let reference = variable["valueFrom"].as_object().and_then(|from| from.iter().next());
            let from = match reference {
                Some((kind, reference)) => format!("manifest: {kind} {}", reference_name(reference)),
                None if in_manifest.contains(variable) => "manifest".to_owned(),
                None => origin(&descriptor.environment, container, name),
            };
            shown(name, variable["value"].as_str(), from)
        }));
    }
}

/// Returns the target of a `valueFrom`.
fn reference_name(reference: &Value) -> String {
    let texts = ["fieldPath", "resource", "name", "key"].into_iter().filter_map(|field| reference[field].as_str());
    texts.collect::<Vec<_>>().join(" ")
}

/// Returns the source of a planned argument or variable that is not in the manifest.
fn origin(sources: &Sources, container: &str, name: &str) -> String {
    let Some(source) = sources.get(container).and_then(|sources| sources.get(name)) else {
        return "set in every container; left out without a value".to_owned();
    };
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

/// Formats providers as a table, with shortened digests.
pub fn list_table(summaries: &[Summary]) -> String {
    let row = |summary: &Summary| {
        let Summary { name, flavor, platform, version, digest, phases, .. } = summary;
        let digest = digest.get(..SHORT_DIGEST).unwrap_or(digest);
        [name.clone(), (*flavor).to_owned(), platform.clone(), version.clone(), digest.to_owned(), phases.join(", ")]
    };
    let rows: Vec<_> = summaries.iter().map(row).collect();
    table(["NAME", "FLAVOR", "PLATFORM", "VERSION", "DIGEST", "PHASES"], &rows)
}

/// Lists the paths of external providers, and the unused providers: one line each, after an empty line.
pub fn list_notes(summaries: &[Summary]) -> String {
    let note = |Summary { name, flavor, path, unused, .. }: &Summary| match (path.as_str(), unused) {
        ("", None) => None,
        (path, None) => Some(format!("{name} ({flavor}) is that of {path}\n")),
        ("", Some(why)) => Some(format!("{name} ({flavor}) that comes with this program is not used: {why}\n")),
        (path, Some(why)) => Some(format!("{name} ({flavor}) of {path} is not used: {why}\n")),
    };
    let notes: String = summaries.iter().filter_map(note).collect();
    if notes.is_empty() { notes } else { format!("\n{notes}") }
}

/// Formats a provider's details as tables, each with a title.
pub fn details_table(details: &Details) -> String {
    let Details { summary, phase, objects, images, arguments, environment } = details;
    let Summary { name, platform, version, digest, .. } = summary;
    let object = |ShownObject { wave, kind, namespace, name, file, why }: &ShownObject| {
        let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
        [wave.to_string(), format!("{kind} {name}{place}; {file}; {why}")]
    };
    let image = |ShownImage { container, key, tag, built_in, .. }: &ShownImage| {
        [container.clone(), format!("key {key}, tag {tag}, built in {built_in}")]
    };
    format!(
        "{name} {version} serves {platform}\n{digest}\n\nObjects of phase {phase}, in their order\n{}\n\
         Images\n{}\nArguments\n{}\nEnvironment\n{}",
        table(["WAVE", "OBJECT; FILE; REASON OF THE ORDER"], &objects.iter().map(object).collect::<Vec<_>>()),
        table(["CONTAINER", "IMAGE"], &images.iter().map(image).collect::<Vec<_>>()),
        values_table("ARGUMENT", arguments),
        values_table("VARIABLE", environment),
    )
}

fn values_table(title: &str, values: &[ShownValue]) -> String {
    let row = |ShownValue { container, name, value, from, .. }: &ShownValue| {
        let value = value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
        [container.to_string(), format!("{name}{value} ({from})")]
    };
    if values.is_empty() {
        return "none\n".to_owned();
    }
    table(["CONTAINER", &format!("{title} (SOURCE)")], &values.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
