//! The example of a cloud's page: a `CloudControllerManager` and what it names, validated as the operator validates it.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ccm_operator::{
    api::{placement::Distribution, spec::OnByDefault},
    facts::{ccm::Ccm, cluster::Cluster, version::Minor},
    object::{Object, reference::Reference},
    plan::{
        Error, Plan,
        kubernetes::{
            sources::{self, Source, SourceState},
            validation::{Validation, validate},
        },
    },
    provider::{catalog::Catalog, kubernetes::Descriptor},
    text::yaml,
};
use serde_json::{Map, Value, json};

/// The version of Kubernetes in the examples.
pub(crate) const MINOR: Minor = Minor(35);

/// The cluster of the examples: three nodes of the control plane.
const CLUSTER: Cluster = Cluster { minor: MINOR, distribution: Distribution::Other, control_plane_nodes: 3 };

/// The server in the keys of the example.
const SERVER: &str = "vcenter.example.com";

/// An example.
pub(crate) struct Example {
    /// The Secrets and ConfigMaps that it names, as YAML.
    pub(crate) inputs: Vec<String>,
    /// The `CloudControllerManager` in Markdown.
    pub(crate) text: String,
    /// The example as the operator reads it.
    pub(crate) ccm: Ccm,
    objects: Vec<Value>,
}

impl Example {
    /// The example of a file, or else the smallest one.
    pub(crate) fn of(catalog: &Catalog, descriptor: &Descriptor, file: Option<&str>) -> Self {
        let is_wanted = |text: &&str| text.contains("kind: CloudControllerManager");
        let (mut inputs, text) = if let Some(file) = file {
            let (wanted, inputs): (Vec<_>, Vec<_>) = file.split("---\n").partition(is_wanted);
            (inputs.into_iter().map(str::to_owned).collect(), fenced(&wanted.concat()))
        } else {
            (Vec::new(), fenced(&smallest(catalog, descriptor)))
        };
        let name = &descriptor.name;
        let parse = |text: &String| {
            yaml::documents(text).unwrap_or_else(|error| panic!("the example of docs/clouds/{name}.md: {error}"))
        };
        let objects = blocks(&text).iter().chain(&inputs).flat_map(parse).collect::<Vec<_>>();
        let mut objects: Vec<_> = objects.into_iter().filter(|value| value["kind"].is_string()).collect();
        let wanted = objects.iter().find(|value| value["kind"] == "CloudControllerManager");
        let wanted =
            wanted.unwrap_or_else(|| panic!("the example of docs/clouds/{name}.md has no CloudControllerManager"));
        let ccm = ccm(wanted);
        for made in secrets(descriptor, &ccm) {
            if !objects.iter().any(|one| one["kind"] == "Secret" && one["metadata"] == made["metadata"]) {
                inputs.push(yaml::to_string(&made).unwrap());
                objects.push(made);
            }
        }
        Self { inputs, text, ccm, objects }
    }

    /// Validates the example, with the objects that it names, as the operator does.
    pub(crate) fn validate(&self, catalog: &Catalog) -> Validation {
        let provider = catalog.kubernetes_of(&self.ccm.spec.provider);
        let named = provider.map(|provider| sources::named(&provider.descriptor, &self.ccm)).unwrap_or_default();
        let checks = sources::checks(named.iter());
        validate(catalog, &self.ccm, |reference| {
            let is_it = |one: &&Value| {
                let metadata = &one["metadata"];
                one["kind"] == reference.kind.kind
                    && metadata["name"] == reference.name
                    && metadata["namespace"] == reference.namespace
            };
            let found = self.objects.iter().find(is_it);
            let of = |reference: &Reference| checks.get(reference).cloned().unwrap_or_default();
            found.map_or(SourceState::Absent, |one| {
                SourceState::Present(Source::of(&stored(one), reference, &of(reference)))
            })
        })
    }

    /// The planned objects of the example.
    pub(crate) fn planned(&self, catalog: &Catalog) -> Result<Vec<Object>, Error> {
        Ok(Plan::of_ccm(catalog, &self.ccm)?.objects().to_vec())
    }
}

/// An object as the API server stores it.
fn stored(object: &Value) -> Value {
    let mut stored = object.clone();
    if let Some(Value::Object(texts)) = object.get("stringData") {
        let encoded =
            texts.iter().map(|(key, value)| (key.clone(), STANDARD.encode(value.as_str().unwrap_or_default()).into()));
        let data: Map<String, Value> = encoded.collect();
        stored["data"] = data.into();
    }
    stored
}

/// A `CloudControllerManager` as it is written.
fn ccm(written: &Value) -> Ccm {
    assert_eq!(written["apiVersion"], "ccm-operator.dev/v1alpha1", "{written}");
    let spec = serde_json::from_value(written["spec"].clone()).unwrap_or_else(|error| panic!("{written}: {error}"));
    Ccm::new(written["metadata"]["name"].as_str().unwrap_or_default().to_owned(), spec, CLUSTER)
}

/// Whether the plan says that the provider of a CCM has load balancers.
pub(crate) fn has_services(catalog: &Catalog, ccm: &Ccm) -> bool {
    let mut ccm = ccm.clone();
    ccm.spec.controllers.service = OnByDefault::Enabled;
    let planned = Plan::of_ccm(catalog, &ccm);
    !matches!(planned, Err(Error::InvalidSpec { field, .. }) if field == "controllers.service")
}

/// The smallest `CloudControllerManager` of a provider. A configuration that is required is a key of a Secret.
fn smallest(catalog: &Catalog, descriptor: &Descriptor) -> String {
    let name = &descriptor.name;
    let mut lines = vec![
        "apiVersion: ccm-operator.dev/v1alpha1".to_owned(),
        "kind: CloudControllerManager".to_owned(),
        "metadata:".to_owned(),
        "  name: cluster".to_owned(),
        "spec:".to_owned(),
        format!("  provider: {name}"),
        "  clusterName: my-cluster".to_owned(),
    ];
    if descriptor.credentials.is_some() {
        lines.extend(["  credentials:".to_owned(), format!("    secretRef: {{name: {name}}}")]);
    }
    if let Some(file) = descriptor.cloud_config.as_ref().filter(|file| file.required) {
        let secret = if descriptor.credentials.is_some() { format!("{name}-config") } else { name.clone() };
        lines.extend(["  cloudConfig:".to_owned(), format!("    secretRef: {{name: {secret}, key: {}}}", file.file)]);
    }
    if !has_services(catalog, &ccm(&yaml::from_str(&lines.join("\n")).unwrap())) {
        lines.extend(["  controllers:".to_owned(), "    service: Disabled".to_owned()]);
    }
    lines.join("\n")
}

/// The Secrets that it names, each with every key that is needed.
fn secrets(descriptor: &Descriptor, ccm: &Ccm) -> Vec<Value> {
    let secret = |name: &str, data: Map<String, Value>| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "stringData": data,
            "metadata": {"name": name, "namespace": ccm.spec.namespace},
        })
    };
    let value = |key: &String| {
        let words = key.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' });
        (key.replace('*', SERVER), Value::from(words.collect::<String>().trim_matches('_')))
    };
    let credentials = ccm.spec.credentials.as_ref().map(|given| {
        let keys = descriptor.credentials.iter().flat_map(|needed| &needed.keys);
        secret(&given.secret_ref.name, keys.map(value).collect())
    });
    let configuration = ccm.spec.cloud_config.as_ref().and_then(|config| config.secret_ref.as_ref()).map(|given| {
        let text = Value::from("# The configuration, as the cloud describes it.\n");
        secret(&given.name, Map::from_iter([(given.key.clone(), text)]))
    });
    credentials.into_iter().chain(configuration).collect()
}

fn fenced(yaml: &str) -> String {
    format!("```yaml\n{}\n```", yaml.trim_end())
}

/// The blocks of YAML in a text.
fn blocks(text: &str) -> Vec<String> {
    let (mut blocks, mut open) = (Vec::new(), None::<Vec<&str>>);
    for line in text.lines() {
        match (&mut open, line.trim()) {
            (Some(_), "```") => blocks.extend(open.take().map(|lines| lines.join("\n"))),
            (Some(lines), _) => lines.push(line),
            (None, "```yaml") => open = Some(Vec::new()),
            (None, _) => {}
        }
    }
    blocks
}
