//! Reads the documents of a cluster from manifest files, for `render` and `cloud-config` (IO).
//!
//! Every error names its file, and nothing is guessed. Unknown fields are ignored, so that manifests of a newer
//! installer can be read.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    api::{CLOUD_CONTROLLER_MANAGER, check, spec::Spec},
    facts::{
        ConfigMapKey, Documents, Facts, Settings,
        ccm::{Ccm, SKIP_PREFLIGHT},
        cluster::Cluster,
        images::{self, Images},
    },
    files::{self, STANDARD},
    text::yaml,
};

/// The reason why a file cannot be used. Each names the content and the path of the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("failed to read {0}")]
    Read(String, #[source] io::Error),
    /// The file is not YAML.
    #[error("failed to parse {}", .1.of(.0))]
    Yaml(String, #[source] yaml::Error),
    /// The file contains something else.
    #[error("{0}: {1}")]
    Content(String, String),
    /// The images in it are not usable.
    #[error(transparent)]
    Images(#[from] images::Error),
    /// The Infrastructure names a cloud configuration that was not given.
    #[error(
        "Infrastructure cluster names the cloud configuration {0:?} (spec.cloudConfig.name): give its manifest with --cloud-config-file"
    )]
    NoCloudConfigFile(String),
}

/// The files of one cluster.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// An Infrastructure manifest.
    pub infrastructure: PathBuf,
    /// The ConfigMap manifest `cloud-controller-manager-images`.
    pub images: Option<PathBuf>,
    /// The ConfigMap manifest of the cloud's configuration; absent means that the cluster has none.
    pub cloud_config: Option<PathBuf>,
    /// A Proxy manifest.
    pub proxy: Option<PathBuf>,
    /// A FeatureGate manifest.
    pub feature_gate: Option<PathBuf>,
    /// An APIServer manifest, with the TLS profile.
    pub api_server: Option<PathBuf>,
    /// A Network manifest.
    pub network: Option<PathBuf>,
}

impl Files {
    /// The given files.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let Self { infrastructure, images, cloud_config, proxy, feature_gate, api_server, network } = self;
        let optional = [images, cloud_config, proxy, feature_gate, api_server, network];
        std::iter::once(infrastructure).chain(optional.into_iter().flatten())
    }

    /// Reads the facts in the files.
    pub fn facts(&self, settings: &Settings) -> Result<Facts, Error> {
        let documents = Documents {
            infrastructure: Some(config("infrastructure", &self.infrastructure, "Infrastructure")?),
            proxy: optional("proxy", self.proxy.as_ref(), "Proxy")?,
            feature_gate: optional("feature gate", self.feature_gate.as_ref(), "FeatureGate")?,
            api_server: optional("API server", self.api_server.as_ref(), "APIServer")?,
            network: optional("network", self.network.as_ref(), "Network")?,
            ..Documents::default()
        };
        let images = self.images.as_deref().map(images).transpose()?;
        let images = images.map(|(_, images)| images).unwrap_or_default();
        Ok(Facts { images: Ok(images), ..documents.facts(settings) })
    }

    /// The ConfigMap of the cloud's configuration, if one is given.
    pub fn cloud_config_map(&self) -> Result<Option<Value>, Error> {
        self.cloud_config.as_ref().map(|path| read("cloud config", path, "ConfigMap")).transpose()
    }

    /// The cloud's configuration in this ConfigMap, unchanged; `None` if the Infrastructure names none.
    pub fn cloud_config(&self, named: &ConfigMapKey, found: Option<&Value>) -> Result<Option<String>, Error> {
        let Some(config_map) = &named.config_map else { return Ok(None) };
        let no_file = || Error::NoCloudConfigFile(config_map.name.clone());
        let (path, found) = (self.cloud_config.as_ref().ok_or_else(no_file)?, found.ok_or_else(no_file)?);
        let keys = ["cloud.conf", &named.key].into_iter().filter(|key| !key.is_empty());
        keys.clone().find_map(|key| found["data"][key].as_str()).map(|text| Some(text.to_owned())).ok_or_else(|| {
            Error::Content(
                file("cloud config", path),
                format!("data has none of the keys {:?}", keys.collect::<Vec<_>>()),
            )
        })
    }
}

/// The images in the ConfigMap manifest `cloud-controller-manager-images`, as written and parsed.
pub fn images(path: &Path) -> Result<(String, Images), Error> {
    const WHAT: &str = "images";
    let config_map = read(WHAT, path, "ConfigMap")?;
    let json = config_map["data"]["images.json"]
        .as_str()
        .ok_or_else(|| Error::Content(file(WHAT, path), "data has no key \"images.json\"".into()))?;
    let images = Images::parse(json, &format!("{} (key images.json)", path.display()))?;
    Ok((json.to_owned(), images))
}

/// Reads a `CloudControllerManager` manifest. The facts of the cluster have another source.
pub fn ccm(path: &Path, cluster: Cluster) -> Result<Ccm, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Manifest {
        api_version: String,
        metadata: Metadata,
        spec: Spec,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        #[serde(default)]
        annotations: BTreeMap<String, String>,
    }
    const WHAT: &str = "CloudControllerManager";
    let text = read_one(WHAT, path, CLOUD_CONTROLLER_MANAGER.kind)?.1;
    // Read again from the text, so that an error names the line.
    let Manifest { api_version, metadata, spec } =
        yaml::from_str(&text).map_err(|error| Error::Yaml(file(WHAT, path), error))?;
    let content = |problem: String| Error::Content(file(WHAT, path), problem);
    let known = CLOUD_CONTROLLER_MANAGER.api_version();
    if api_version != known {
        return Err(content(format!("apiVersion is {api_version:?}; this version of the program knows {known}")));
    }
    check::name(&metadata.name).map_err(|(field, problem)| content(format!("{field}: {problem}")))?;
    let skips = metadata.annotations.get(SKIP_PREFLIGHT).map(String::as_str);
    Ok(Ccm::new(metadata.name, spec, cluster).annotated(skips))
}

/// Reads a file that holds one object of config.openshift.io/v1 of the given kind.
fn config<T: DeserializeOwned>(what: &str, path: &Path, kind: &str) -> Result<T, Error> {
    serde_json::from_value(read(what, path, kind)?).map_err(|error| {
        let problem = error.to_string().replace("struct ", "the fields of ");
        Error::Content(file(what, path), format!("not of kind {kind} of config.openshift.io/v1: {problem}"))
    })
}

/// Reads the object of an optional file.
fn optional<T: DeserializeOwned>(what: &str, path: Option<&PathBuf>, kind: &str) -> Result<Option<T>, Error> {
    path.map(|path| config(what, path, kind)).transpose()
}

/// Reads a file that holds one manifest of the given kind.
fn read(what: &str, path: &Path, kind: &str) -> Result<Value, Error> {
    read_one(what, path, kind).map(|(manifest, _)| manifest)
}

/// Also returns the text of the manifest. The file may contain documents of other kinds, such as the Secret that it names.
fn read_one(what: &str, path: &Path, kind: &str) -> Result<(Value, String), Error> {
    let file = file(what, path);
    let text = files::read_given(path).map_err(|error| Error::Read(file.clone(), error))?;
    let documents = yaml::documents(&text).map_err(|error| Error::Yaml(file.clone(), error))?;
    let is_wanted = |document: &&Value| document["kind"] == kind;
    if documents.len() > 1 && documents.iter().filter(is_wanted).count() == 1 {
        let text = alone(&text, kind);
        let document = yaml::from_str(&text).map_err(|error| Error::Yaml(file, error))?;
        return Ok((document, text));
    }
    let mut documents = documents.into_iter();
    let problem = match (documents.next(), documents.next()) {
        (None, _) => "empty".to_owned(),
        (Some(_), Some(_)) => "more than one document".to_owned(),
        (Some(document), None) => match document["kind"].as_str() {
            Some(found) if found == kind => return Ok((document, text)),
            Some(found) => format!("a manifest of kind {found}"),
            None => "not a Kubernetes manifest".to_owned(),
        },
    };
    Err(Error::Content(file, format!("{problem}; it must hold one manifest of kind {kind}")))
}

/// Returns the document of this kind in a stream, at its original lines.
fn alone(stream: &str, kind: &str) -> String {
    let mut documents = vec![String::new()];
    for (number, line) in stream.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            documents.push("\n".repeat(number));
        }
        if let Some(document) = documents.last_mut() {
            document.push_str(line);
        }
    }
    let is_wanted = |text: &String| yaml::from_str::<Value>(text).is_ok_and(|value| value["kind"] == kind);
    documents.into_iter().find(is_wanted).unwrap_or_default()
}

fn file(what: &str, path: &Path) -> String {
    if path.as_os_str() == STANDARD {
        format!("the {what} file (standard input)")
    } else {
        format!("the {what} file {}", path.display())
    }
}
