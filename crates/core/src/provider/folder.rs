//! A provider's folder: its descriptor, its manifests with their lines, and every defect (pure).
//!
//! This is the only reader of such a folder. It reads as much as it can, so that one run reports every defect.
//! [`super::catalog`] is the strict view, in which the first defect is the error.

mod limits;
mod misfits;

use std::{collections::BTreeMap, path::Path};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    error::brief,
    object::{self, Object, permissions},
    provider::{
        AnyDescriptor, Descriptor, DescriptorFields, Error, Flavor, KubernetesProvider, OpenShiftProvider, Phase,
        Platform, ProviderFlavor, kubernetes, renamed,
    },
    text::{
        Place, terminal,
        yaml::{self, Lines, outline::child},
    },
};

/// The largest number of objects of a flavor, and of containers in its pods. A cloud-controller-manager has about ten and two.
const MAX_OBJECTS: usize = 256;

/// The folder of the flavor kubernetes in a provider's folder.
const KUBERNETES: &str = "kubernetes";

/// One provider's files of one flavor.
#[derive(Clone, Debug, Default)]
pub struct ParsedProvider {
    /// The name of its folder.
    pub name: String,
    /// The flavor.
    pub flavor: Flavor,
    /// The part after `assets/` and `bootstrap/` in the paths of its files: `aws/` in a tree of providers, empty in a provider's own
    /// folder.
    below: String,
    /// Its files, by path from the common root of `assets/` and `bootstrap/`.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Every readable manifest, in the order of the files.
    pub manifests: Vec<Manifest>,
    /// Its descriptor, if it is readable.
    pub descriptor: Option<AnyDescriptor>,
    /// The reasons why the operator would refuse the folder. See also [`ParsedProvider::misfits`].
    pub defects: Vec<Error>,
    /// The lines of the descriptor.
    lines: Lines,
    /// The number of its containers.
    count: usize,
}

/// A manifest and its place.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Its file.
    pub file: String,
    /// The phase that it belongs to.
    pub phase: Phase,
    /// Its object.
    pub object: Object,
    /// The line of each value.
    pub lines: Lines,
}

/// Reads files of `assets/` and `bootstrap/`, given as (path from their common root, bytes), into one parsed provider for each provider
/// and flavor, OpenShift first.
pub fn parsed_providers(
    files: impl IntoIterator<Item = (impl Into<String>, impl Into<Vec<u8>>)>,
) -> Vec<ParsedProvider> {
    let mut folders = BTreeMap::<String, BTreeMap<String, Vec<u8>>>::new();
    for (path, bytes) in files {
        let path = path.into();
        let name = path.split('/').nth(1).unwrap_or_default().to_owned();
        folders.entry(name).or_default().insert(path, bytes.into());
    }
    let flavors = folders.into_iter().flat_map(|(name, files)| flavors(&name, &format!("{name}/"), files));
    let mut parsed_providers: Vec<_> = flavors.collect();
    parsed_providers.sort_by_key(|parsed| parsed.flavor);
    let mut served = BTreeMap::<_, String>::new();
    for parsed in &mut parsed_providers {
        if let Some(Platform { type_, cloud_name, platform_name }) = parsed.platform() {
            let platform = (type_.clone(), cloud_name.clone(), platform_name.clone());
            let twin = served.get(&platform).map(|twin| format!("provider {twin:?} serves the same platform"));
            let defect = twin.map(|problem| parsed.descriptor_error("/platform", problem));
            parsed.defects.extend(defect);
            served.entry(platform).or_insert_with(|| parsed.name.clone());
        }
    }
    parsed_providers
}

/// Reads the files of one provider's own folder, which contains `assets/` and `bootstrap/`, into a parsed provider for each flavor,
/// OpenShift first.
pub fn parsed_providers_of(
    name: &str,
    files: impl IntoIterator<Item = (impl Into<String>, impl Into<Vec<u8>>)>,
) -> Vec<ParsedProvider> {
    flavors(name, "", files.into_iter().map(|(path, bytes)| (path.into(), bytes.into())).collect())
}

/// The function that parses the documents of a file, each with its lines.
type ReadDocuments = fn(&str) -> Result<Vec<(Value, Lines)>, yaml::Error>;

/// Reads the files of one flavor of a built-in provider, given the files of all its flavors; `None` if there are none. The tests exclude
/// its defects, so nobody needs their lines.
pub(super) fn parsed_provider(
    name: &str,
    flavor: Flavor,
    files: impl IntoIterator<Item = (String, impl Into<Vec<u8>>)>,
) -> Option<ParsedProvider> {
    let below = format!("{name}/");
    let is_of_flavor = |(path, _): &(String, _)| flavor_of(&below, path) == flavor;
    let files: BTreeMap<_, _> =
        files.into_iter().filter(is_of_flavor).map(|(path, bytes)| (path, bytes.into())).collect();
    let without_lines: ReadDocuments =
        |text| Ok(yaml::documents(text)?.into_iter().map(|document| (document, Lines::default())).collect());
    (!files.is_empty()).then(|| ParsedProvider::read(name.to_owned(), flavor, below, files, without_lines))
}

/// Parses the descriptor that is the file at `path`, without the checks of a parsed provider.
pub(super) fn descriptor<D: DeserializeOwned>(path: &str, bytes: &[u8]) -> Result<D, Error> {
    let text = std::str::from_utf8(bytes).map_err(|error| Error::new(path, None, format!("not UTF-8: {error}")))?;
    yaml::from_str(text).map_err(|error| Error::new(path, error.place, error.message))
}

/// Returns the path of a descriptor. The files of the provider are in `below` of `assets/`.
pub(super) fn descriptor_path(flavor: Flavor, below: &str) -> String {
    match flavor {
        Flavor::OpenShift => format!("assets/{below}provider.yaml"),
        Flavor::Kubernetes => format!("assets/{below}{KUBERNETES}/provider.yaml"),
    }
}

/// Parses the files of one provider into a parsed provider for each flavor.
fn flavors(name: &str, below: &str, files: BTreeMap<String, Vec<u8>>) -> Vec<ParsedProvider> {
    let mut flavors = BTreeMap::<_, BTreeMap<_, _>>::new();
    for (path, bytes) in files {
        flavors.entry(flavor_of(below, &path)).or_default().insert(path, bytes);
    }
    let read = |(flavor, files)| {
        ParsedProvider::read(name.to_owned(), flavor, below.to_owned(), files, yaml::documents_with_lines)
    };
    flavors.into_iter().map(read).collect()
}

fn flavor_of(below: &str, path: &str) -> Flavor {
    let rest = path.strip_prefix("assets/").and_then(|rest| rest.strip_prefix(below)?.strip_prefix(KUBERNETES));
    if rest.is_some_and(|rest| rest.starts_with('/')) { Flavor::Kubernetes } else { Flavor::OpenShift }
}

impl Manifest {
    /// Returns the kind and the name.
    pub(super) fn title(&self) -> String {
        format!("{} {}", self.object.kind().kind, self.object.name())
    }

    /// Returns a problem of the value at a JSON pointer, with the value's line.
    pub fn defect(&self, pointer: &str, problem: impl Into<String>) -> Error {
        Error::new(&self.file, Some(Place::line(self.lines.of(pointer))), problem)
    }
}

impl ParsedProvider {
    fn read(
        name: String,
        flavor: Flavor,
        below: String,
        files: BTreeMap<String, Vec<u8>>,
        documents: ReadDocuments,
    ) -> Self {
        let mut parsed = Self { name, flavor, below, ..Self::default() };
        let renamed = files.keys().find_map(|path| Some((path, renamed::of_path(path, &parsed.below)?)));
        if let Some((path, problem)) = renamed {
            parsed.defects.push(Error::new(path, None, problem));
            parsed.files = files;
            return parsed;
        }
        for (path, bytes) in &files {
            if let Err(defect) = parsed.add(path, bytes, documents) {
                parsed.defects.push(defect);
            }
        }
        let path = parsed.descriptor_path();
        if !files.contains_key(&path) {
            let what = if flavor == Flavor::Kubernetes {
                "images of the provider"
            } else {
                "platform that the provider serves"
            };
            parsed.defects.push(Error::new(&path, None, format!("missing: it names the {what}")));
        }
        parsed.files = files;
        parsed
    }

    fn add(&mut self, path: &str, bytes: &[u8], documents: ReadDocuments) -> Result<(), Error> {
        let problem = |problem: String| Error::new(path, None, problem);
        let own = path.split_once('/').and_then(|(top, rest)| Some((top, rest.strip_prefix(&self.below)?)));
        let parts = own.map(|(top, rest)| (top, rest.split('/').collect::<Vec<_>>()));
        let phase = match parts.as_ref().map(|(top, rest)| (*top, &rest[..])) {
            Some(("assets", [file] | [KUBERNETES, file])) if has_yaml_extension(file) => Phase::Cluster,
            Some(("bootstrap", [file])) if has_yaml_extension(file) => Phase::Bootstrap,
            Some(("assets" | "bootstrap", _)) => {
                return Err(problem("a provider's folder may contain only files named *.yaml".to_owned()));
            }
            _ => return Err(problem("not in assets/<provider>/ or bootstrap/<provider>/".to_owned())),
        };
        let text = std::str::from_utf8(bytes).map_err(|error| problem(format!("not UTF-8: {error}")))?;
        if let Some((place, found)) = terminal::first(text) {
            return Err(Error::new(path, Some(place), terminal::refusal(found)));
        }
        let documents = documents(text).map_err(|error| Error::new(path, error.place, error.message))?;
        for (value, lines) in &documents {
            if let Some((pointer, found)) = control_character(value) {
                let place = Place::line(lines.of(&pointer));
                self.defects.push(Error::new(path, Some(place), terminal::refusal(found)));
            }
        }
        if path == self.descriptor_path() {
            return self.add_descriptor(path, bytes, documents);
        }
        for (value, lines) in documents {
            match Object::new(value) {
                Ok(object) => self.add_manifest(Manifest { file: path.to_owned(), phase, object, lines })?,
                Err(error) => {
                    let place = Place::line(lines.of(error.pointer));
                    self.defects.push(Error::new(path, Some(place), error.to_string()));
                }
            }
        }
        Ok(())
    }

    /// Stores the descriptor, unless it exceeds a limit.
    fn add_descriptor(&mut self, path: &str, bytes: &[u8], documents: Vec<(Value, Lines)>) -> Result<(), Error> {
        for (document, lines) in &documents {
            if let Some((pointer, problem)) = limits::of_descriptor(document) {
                return Err(Error::new(path, Some(Place::line(lines.of(&pointer))), problem));
            }
            if let Some((pointer, problem)) = renamed::of_descriptor(document) {
                return Err(Error::new(path, Some(Place::line(lines.of(pointer))), problem));
            }
        }
        let descriptor = match self.flavor {
            Flavor::OpenShift => AnyDescriptor::OpenShift(descriptor(path, bytes)?),
            Flavor::Kubernetes => AnyDescriptor::Kubernetes(descriptor(path, bytes)?),
        };
        let name = self.descriptor.insert(descriptor).common().name.to_owned();
        self.lines = documents.into_iter().next().map(|(_, lines)| lines).unwrap_or_default();
        if name != self.name {
            let problem = format!("name: {:?} is not the folder's name", brief(&name));
            self.defects.push(self.descriptor_error("/name", problem));
        }
        if let Some(problem) = self.platform().and_then(Platform::problem) {
            self.defects.push(self.descriptor_error("/platform", problem));
        }
        Ok(())
    }

    /// Stores a manifest, unless it is one too many or exceeds a limit.
    fn add_manifest(&mut self, manifest: Manifest) -> Result<(), Error> {
        let object = &manifest.object;
        self.count += object.pod_spec().map_or(0, |pod| object::containers(pod).count());
        if self.manifests.len() == MAX_OBJECTS || self.count > MAX_OBJECTS {
            let problem = format!(
                "an object too many, or its containers are: a provider may have {MAX_OBJECTS} objects and as many containers; what comes \
                 behind it is not read"
            );
            return Err(manifest.defect("", problem));
        }
        if let Some((pointer, problem)) = limits::of_object(object) {
            self.defects.push(manifest.defect(&pointer, problem));
            return Ok(());
        }
        if let Err(error) = permissions::rules(object.value()) {
            self.defects.push(manifest.defect(&error.pointer, error.to_string()));
        }
        self.manifests.push(manifest);
        Ok(())
    }

    /// Returns the name among all parsed providers, such as `aws` or `aws/kubernetes`.
    pub fn title(&self) -> String {
        match self.flavor {
            Flavor::OpenShift => self.name.clone(),
            Flavor::Kubernetes => format!("{}/{KUBERNETES}", self.name),
        }
    }

    /// Returns the descriptor, if it is readable and of the flavor openshift.
    pub fn of_openshift(&self) -> Option<&Descriptor> {
        if let Some(AnyDescriptor::OpenShift(descriptor)) = &self.descriptor { Some(descriptor) } else { None }
    }

    /// Returns the descriptor, if it is readable and of the flavor kubernetes.
    pub fn of_kubernetes(&self) -> Option<&kubernetes::Descriptor> {
        if let Some(AnyDescriptor::Kubernetes(descriptor)) = &self.descriptor { Some(descriptor) } else { None }
    }

    /// Returns the platform that it serves, if the descriptor is readable.
    pub fn platform(&self) -> Option<&Platform> {
        self.of_openshift().map(|descriptor| &descriptor.platform)
    }

    fn descriptor_path(&self) -> String {
        descriptor_path(self.flavor, &self.below)
    }

    pub(super) fn descriptor_error(&self, pointer: &str, problem: impl Into<String>) -> Error {
        Error::new(&self.descriptor_path(), Some(Place::line(self.lines.of(pointer))), problem)
    }

    /// Returns the manifests of one phase, in the order of applying.
    pub fn of_phase(&self, phase: Phase) -> Vec<&Manifest> {
        let mut manifests: Vec<_> = self.manifests.iter().filter(|manifest| manifest.phase == phase).collect();
        // The sort is stable, so a wave keeps the order of the files.
        manifests.sort_by_key(|manifest| manifest.object.kind().wave);
        manifests
    }

    fn pods(&self, phase: Phase) -> impl Iterator<Item = &Value> {
        let manifests = self.manifests.iter().filter(move |manifest| manifest.phase == phase);
        manifests.filter_map(|manifest| manifest.object.pod_spec())
    }

    fn containers(&self, phase: Phase) -> impl Iterator<Item = &Value> {
        self.pods(phase).flat_map(object::containers)
    }

    /// Fails with the first reason why the operator would refuse it.
    pub fn first_defect(&self) -> Result<(), Error> {
        self.defects.iter().cloned().chain(self.misfits()).next().map_or(Ok(()), Err)
    }

    /// Returns the flavor openshift, or the first defect.
    pub fn openshift(&self) -> Result<OpenShiftProvider, Error> {
        self.contents(self.of_openshift())
    }

    /// Returns the flavor kubernetes, or the first defect.
    pub fn kubernetes(&self) -> Result<KubernetesProvider, Error> {
        self.contents(self.of_kubernetes())
    }

    fn contents<D: Clone>(&self, descriptor: Option<&D>) -> Result<ProviderFlavor<D>, Error> {
        self.first_defect()?;
        let objects = |phase| self.of_phase(phase).into_iter().map(|manifest| manifest.object.clone()).collect();
        Ok(ProviderFlavor {
            // A missing descriptor is one of the defects.
            descriptor: descriptor.cloned().ok_or_else(|| Error::new(&self.descriptor_path(), None, "missing"))?,
            manifests: objects(Phase::Cluster),
            bootstrap_manifests: objects(Phase::Bootstrap),
            origin: None,
        })
    }
}

/// Returns the command and the arguments of a container.
pub fn arguments(container: &Value) -> impl Iterator<Item = &str> {
    let lists = ["command", "args"].into_iter().filter_map(|list| container[list].as_array());
    lists.flatten().filter_map(Value::as_str)
}

/// Returns the JSON pointer of the first text of a document that would control a terminal, and the character, which YAML can escape.
fn control_character(document: &Value) -> Option<(String, char)> {
    let of_text = |text: &str| text.chars().find(|c| terminal::controls_terminal(*c));
    limits::first(document, |pointer, value| match value {
        Value::String(text) => Some((pointer.to_owned(), of_text(text)?)),
        Value::Object(members) => members.keys().find_map(|key| of_text(key).map(|what| (child(pointer, key), what))),
        _ => None,
    })
}

/// Whether a provider's file may have this name.
pub fn has_yaml_extension(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "yaml")
}

#[cfg(test)]
mod tests;
