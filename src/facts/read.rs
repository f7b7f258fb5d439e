//! Reads the documents of a cluster from manifest files, for `render` (IO).
//!
//! Whatever is wrong with a file is an error that names it; nothing is guessed. Unknown fields are no error, so that
//! manifests of a newer installer are read.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    facts::{
        ConfigMapKey, Documents, Facts, Settings,
        images::{self, Images},
    },
    text::yaml,
};

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("failed to read the {what} file {}", path.display())]
    Read {
        /// What the file should hold.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is not YAML.
    #[error("failed to parse the {what} file {}", source.of(path.display()))]
    Yaml {
        /// What the file should hold.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: yaml::Error,
    },
    /// It holds something else.
    #[error("the {what} file {}: {problem}", path.display())]
    Content {
        /// What the file should hold.
        what: &'static str,
        /// Its path.
        path: PathBuf,
        /// What is wrong with it and what to do.
        problem: String,
    },
    /// The images in it are not usable.
    #[error(transparent)]
    Images(#[from] images::Error),
    /// The Infrastructure names a cloud configuration that was not given.
    #[error(
        "Infrastructure cluster names the cloud configuration {name:?} (spec.cloudConfig.name): give its manifest with --cloud-config-file"
    )]
    NoCloudConfigFile {
        /// The ConfigMap's name.
        name: String,
    },
}

/// The files of one cluster.
#[derive(Clone, Debug)]
pub struct Files {
    /// An Infrastructure manifest.
    pub infrastructure: PathBuf,
    /// The ConfigMap manifest `cloud-controller-manager-images`.
    pub images: PathBuf,
    /// The ConfigMap manifest of the cloud's configuration.
    pub cloud_config: Option<PathBuf>,
}

impl Files {
    /// Reads what the plan needs.
    pub fn facts(&self, namespace: &str) -> Result<Facts, Error> {
        let infrastructure = config("infrastructure", &self.infrastructure, "Infrastructure")?;
        let images = self.images()?;
        let settings = Settings { namespace: namespace.to_owned(), ..Settings::default() };
        let documents = Documents { infrastructure: Some(infrastructure), ..Documents::default() };
        Ok(Facts { images: Ok(images), ..documents.facts(&settings) })
    }

    /// The cloud's configuration as it stands; `None` when the Infrastructure names none.
    pub fn cloud_config(&self, named: &ConfigMapKey) -> Result<Option<String>, Error> {
        const WHAT: &str = "cloud config";
        let Some(config_map) = &named.config_map else { return Ok(None) };
        let path =
            self.cloud_config.as_deref().ok_or_else(|| Error::NoCloudConfigFile { name: config_map.name.clone() })?;
        let found = read(WHAT, path, "ConfigMap")?;
        let keys = ["cloud.conf", &named.key].into_iter().filter(|key| !key.is_empty());
        keys.clone()
            .find_map(|key| found["data"][key].as_str())
            .map(|text| Some(text.to_owned()))
            .ok_or_else(|| content(WHAT, path, format!("data has none of the keys {:?}", keys.collect::<Vec<_>>())))
    }

    fn images(&self) -> Result<Images, Error> {
        const WHAT: &str = "images";
        let config_map = read(WHAT, &self.images, "ConfigMap")?;
        let json = config_map["data"]["images.json"]
            .as_str()
            .ok_or_else(|| content(WHAT, &self.images, "data has no key \"images.json\"".into()))?;
        Ok(Images::parse(json, &format!("{} (key images.json)", self.images.display()))?)
    }
}

/// The files that say what a cloud's configuration becomes.
#[derive(Clone, Debug)]
pub struct CloudConfigFiles {
    /// An Infrastructure manifest.
    pub infrastructure: PathBuf,
    /// The ConfigMap manifest of the configuration; absent means that the cluster has none.
    pub cloud_config: Option<PathBuf>,
    /// A Network manifest.
    pub network: Option<PathBuf>,
}

impl CloudConfigFiles {
    /// The facts in Infrastructure and Network, and the ConfigMap.
    pub fn read(&self) -> Result<(Facts, Option<Value>), Error> {
        let infrastructure = config("infrastructure", &self.infrastructure, "Infrastructure")?;
        let network = self.network.as_ref().map(|path| config("network", path, "Network")).transpose()?;
        let config_map = self.cloud_config.as_ref().map(|path| read("cloud config", path, "ConfigMap")).transpose()?;
        let documents = Documents { infrastructure: Some(infrastructure), network, ..Documents::default() };
        Ok((documents.facts(&Settings::default()), config_map))
    }
}

/// Reads a file that holds one object of config.openshift.io/v1 of the given kind.
fn config<T: DeserializeOwned>(what: &'static str, path: &Path, kind: &str) -> Result<T, Error> {
    serde_json::from_value(read(what, path, kind)?)
        .map_err(|error| content(what, path, format!("not of kind {kind} of config.openshift.io/v1: {error}")))
}

/// Reads a file that holds one manifest of the given kind.
fn read(what: &'static str, path: &Path, kind: &str) -> Result<Value, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read { what, path: path.into(), source })?;
    let documents = yaml::documents(&text).map_err(|source| Error::Yaml { what, path: path.into(), source })?;
    let mut documents = documents.into_iter();
    let problem = match (documents.next(), documents.next()) {
        (None, _) => format!("it is empty: it must hold a manifest of kind {kind}"),
        (Some(_), Some(_)) => format!("it holds more than one document: it must hold one manifest of kind {kind}"),
        (Some(document), None) => match document["kind"].as_str() {
            Some(found) if found == kind => return Ok(document),
            Some(found) => format!("it holds a manifest of kind {found}: it must hold one of kind {kind}"),
            None => format!("it holds no Kubernetes manifest: it must hold one of kind {kind}"),
        },
    };
    Err(content(what, path, problem))
}

fn content(what: &'static str, path: &Path, problem: String) -> Error {
    Error::Content { what, path: path.into(), problem }
}
