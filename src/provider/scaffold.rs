//! A new provider's folder, made from the provider `example` in `scaffold/` (pure).
//!
//! The example uses every feature, and is a valid provider itself. Parts that a new provider does not need are removed,
//! and the rest gets its names and values. The comments stay.

mod image;
mod readme;
pub mod write;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    facts::version::Minor,
    provider::{
        CCM, Flavor, embedded,
        versions::{Rule, Versions},
    },
    text::yaml::{self, edit},
};

pub use image::Image;

/// The name of the provider from which others are made.
const EXAMPLE: &str = "example";

/// The longest name: those of objects that begin with it must not become too long.
const LONGEST: usize = 40;

/// Names that mean something else to YAML or to this program.
const RESERVED: [&str; 13] =
    ["assets", "bootstrap", "false", "n", "next", "no", "null", "off", "on", "true", "kubernetes", "y", "yes"];

/// The versions of Kubernetes that a version for several is entered for.
const MINORS: std::ops::RangeInclusive<u32> = 32..=36;

/// What is asked about a new provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Its name.
    pub name: String,
    /// The flavors that it gets; that for OpenShift has the bootstrap VM's pod.
    pub flavors: Vec<Flavor>,
    /// The image of the cloud-controller-manager.
    pub image: Image,
    /// How the cloud numbers its versions; `None`: as the tag looks.
    pub rule: Option<Rule>,
    /// The program in the image.
    pub command: String,
    /// The file of `--cloud-config`, if it reads one.
    pub cloud_config: Option<CloudConfig>,
    /// The variables with credentials, each with its key in the Secret.
    pub credentials: BTreeMap<String, String>,
    /// The image of the node manager, if there is one.
    pub node_manager: Option<Image>,
    /// Whether it has a route controller.
    pub routes: bool,
    /// How its providerIDs begin.
    pub provider_id: String,
    /// The platform type of OpenShift clusters.
    pub platform: String,
    /// The date of today.
    pub today: String,
}

/// The file of `--cloud-config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudConfig {
    /// Its name.
    pub file: String,
    /// Whether it holds the credentials.
    pub holds_credentials: bool,
}

/// Why no folder is made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Something that is asked for does not fit.
    #[error("{0}")]
    Asked(String),
    /// A defect of this build, which the tests exclude.
    #[error("scaffold/example/{file}: {place} cannot be edited")]
    Scaffold {
        /// The file.
        file: String,
        /// The value.
        place: String,
    },
}

/// Whether a new provider may have this name; else why not, for people.
pub fn check_name(name: &str, built_in: &[&str]) -> Result<(), String> {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || name.ends_with('-') || !name.chars().all(is_inner) {
        return Err(format!(
            "{name:?} is no name for a provider: it begins with a letter and consists of lower-case letters, digits and -"
        ));
    }
    if name.len() > LONGEST {
        return Err(format!("{name:?} is no name for a provider: it has more than {LONGEST} characters"));
    }
    if RESERVED.contains(&name) || name.ends_with("-next") {
        return Err(format!("{name:?} is no name for a provider: it has another meaning; such as {name}-cloud is one"));
    }
    if built_in.contains(&name) {
        return Err(format!(
            "{name:?} is a provider of this program, which `ccm-operator provider list` shows: take another name, such as my-{name}"
        ));
    }
    Ok(())
}

/// The files of the new folder, by their paths in it.
pub fn files(options: &Options) -> Result<BTreeMap<String, String>, Error> {
    let versions = versions(&options.image, options.rule)?;
    if options.flavors.contains(&Flavor::OpenShift)
        && let Some(image) = options.images().find(|image| image.digest.is_none())
    {
        let problem = format!(
            "OpenShift's flavor needs the digest of {image}, because its manifests name what runs: give {image}@sha256:DIGEST"
        );
        return Err(Error::Asked(problem));
    }
    let mut files = BTreeMap::from([("README.md".to_owned(), readme::text(options))]);
    for (path, text) in embedded::scaffold() {
        if options.has(&path) {
            let mut file = File { text: text.replace(EXAMPLE, &options.name), path };
            file.fill(options, &versions)?;
            files.insert(file.path, file.text);
        }
    }
    Ok(files)
}

/// The name as a part of a key, such as `MyCloud`.
fn camel(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('-').filter(|word| !word.is_empty()).map(capital).collect()
}

/// The table of versions of an image: what its tag tells. `rule`: how its versions are numbered; `None`: as the tag looks.
fn versions(image: &Image, rule: Option<Rule>) -> Result<Value, Error> {
    let tag = &image.tag;
    let of = |rule| Versions { rule, tags: BTreeMap::new(), as_of: String::new(), verified: Vec::new() }.minor_of(tag);
    // Others are versions of the program itself, such as v1.2.3.
    let of = |rule| of(rule).filter(|minor| (20..100).contains(&minor.0));
    let guessed = [Rule::SameMinor, Rule::MajorIsMinor].into_iter().find(|rule| of(*rule).is_some());
    let rule = rule.or(guessed).unwrap_or(Rule::OneLine);
    let minors: Vec<_> = match (rule, of(rule)) {
        (Rule::OneLine, _) => MINORS.map(Minor).collect(),
        (_, Some(minor)) => vec![minor],
        (_, None) => {
            let problem = format!("the tag {tag} does not tell a minor version of Kubernetes: --rule must be OneLine");
            return Err(Error::Asked(problem));
        }
    };
    let entry = image.digest.as_ref().map_or_else(|| json!(tag), |digest| json!({"tag": tag, "digest": digest}));
    let tags: BTreeMap<_, _> = minors.iter().map(|minor| (minor.to_string(), entry.clone())).collect();
    Ok(json!({"rule": format!("{rule:?}"), "tags": tags}))
}

impl Options {
    fn images(&self) -> impl Iterator<Item = &Image> {
        std::iter::once(&self.image).chain(&self.node_manager)
    }

    /// The images in the descriptor for any Kubernetes that a registry may replace.
    pub fn unpinned(&self) -> impl Iterator<Item = &Image> {
        let is_open = |image: &&Image| image.digest.is_none() && self.flavors.contains(&Flavor::Kubernetes);
        self.images().filter(is_open)
    }

    /// Whether the new provider has this file of the example.
    fn has(&self, path: &str) -> bool {
        let is_kubernetes = path.starts_with("assets/kubernetes/");
        let flavor = if is_kubernetes { Flavor::Kubernetes } else { Flavor::OpenShift };
        self.flavors.contains(&flavor) && (self.node_manager.is_some() || !path.ends_with("/node-manager.yaml"))
    }
}

/// A file that is being made.
struct File {
    path: String,
    text: String,
}

const DEPLOYMENT: &str = "spec/template/spec";

impl File {
    fn fill(&mut self, options: &Options, versions: &Value) -> Result<(), Error> {
        let file = options.cloud_config.as_ref().map(|config| config.file.as_str());
        match self.path.clone().as_str() {
            "assets/kubernetes/provider.yaml" => self.kubernetes_descriptor(options, versions),
            "assets/provider.yaml" => self.descriptor(options),
            "assets/kubernetes/deployment.yaml" => {
                self.container(&format!("{DEPLOYMENT}/containers/0"), &options.image, Some(&options.command))?;
                self.cloud_config(DEPLOYMENT, "cloud-config", file)
            }
            "assets/deployment.yaml" => {
                self.container(&format!("{DEPLOYMENT}/containers/0"), &options.image, Some(&options.command))?;
                self.environment(options)?;
                if options.node_manager.is_some() {
                    self.argument("--controllers=*", "--controllers=*,-cloud-node")?;
                }
                self.cloud_config(DEPLOYMENT, "cloud-config", file)
            }
            "bootstrap/pod.yaml" => {
                self.container("spec/containers/0", &options.image, Some(&options.command))?;
                // Its file is called as the installer calls it, as in the example.
                file.map_or_else(|| self.cloud_config("spec", "configs", None), |_| Ok(()))
            }
            _ => match &options.node_manager {
                Some(image) if self.path.ends_with("/node-manager.yaml") => {
                    self.container(&format!("{DEPLOYMENT}/containers/0"), image, None)
                }
                _ => Ok(()),
            },
        }
    }

    fn kubernetes_descriptor(&mut self, options: &Options, versions: &Value) -> Result<(), Error> {
        let mut images = vec![(CCM, &options.image)];
        if let Some(image) = &options.node_manager {
            images.push(("cloud-node-manager", image));
        } else {
            self.remove("images/cloud-node-manager")?;
            self.remove("nodeManager")?;
        }
        for (container, image) in images {
            self.set(&format!("images/{container}/repository"), image.repository.as_str())?;
            let at = |field: &str| format!("images/{container}/versions/{field}");
            // A node manager has versions of its own.
            let own = if container == CCM { versions.clone() } else { self::versions(image, None)? };
            for field in ["rule", "tags"] {
                self.set(&at(field), own[field].clone())?;
            }
            self.set(&at("asOf"), options.today.as_str())?;
        }
        if !options.routes {
            self.remove("routes")?;
            self.remove(&format!("arguments/{CCM}/--cluster-cidr"))?;
        }
        match &options.cloud_config {
            Some(CloudConfig { file, holds_credentials }) => {
                self.set("cloudConfig/file", file.as_str())?;
                self.set("cloudConfig/holdsCredentials", *holds_credentials)?;
            }
            None => self.remove("cloudConfig")?,
        }
        if options.credentials.is_empty() {
            self.remove("credentials")?;
        } else {
            self.set("credentials/keys", options.credentials.values().map(String::as_str).collect::<Value>())?;
            self.set("credentials/environment", json!(options.credentials))?;
        }
        self.set("nodes/providerIDs", json!([options.provider_id]))
    }

    fn descriptor(&mut self, options: &Options) -> Result<(), Error> {
        // Only platforms of this type are told apart by their names.
        let platform = if options.platform == "External" {
            json!({"type": options.platform, "platformName": options.name})
        } else {
            json!({"type": options.platform})
        };
        self.set("platform", platform)?;
        let name = camel(&options.name);
        self.set(&format!("images/{CCM}/key"), format!("cloudControllerManager{name}"))?;
        if options.node_manager.is_some() {
            self.set("images/cloud-node-manager/key", format!("cloudNodeManager{name}"))?;
        } else {
            self.remove("images/cloud-node-manager")?;
        }
        if options.cloud_config.is_none() {
            self.remove("cloudConfig")?;
        }
        self.set("nodes/providerIDs", json!([options.provider_id]))
    }

    fn container(&mut self, at: &str, image: &Image, command: Option<&str>) -> Result<(), Error> {
        // On any Kubernetes tag and digest follow from the cluster's version.
        let is_kubernetes = self.path.starts_with("assets/kubernetes/");
        let image = if is_kubernetes { Image { digest: None, ..image.clone() } } else { image.clone() };
        self.set(&format!("{at}/image"), image.to_string())?;
        command.map_or(Ok(()), |command| self.set(&format!("{at}/command"), json!([command])))
    }

    /// Gives the configuration its file, or takes the argument and the volume away.
    fn cloud_config(&mut self, pod: &str, volume: &str, file: Option<&str>) -> Result<(), Error> {
        let value: Value = self.value();
        let at = |list: &str, is_it: &dyn Fn(&Value) -> bool| {
            let items = value.pointer(&format!("/{list}")).and_then(Value::as_array)?;
            Some(format!("{list}/{}", items.iter().position(is_it)?))
        };
        let (args, mounts) = (format!("{pod}/containers/0/args"), format!("{pod}/containers/0/volumeMounts"));
        let is_flag = |one: &Value| one.as_str().is_some_and(|text| text.starts_with("--cloud-config="));
        let is_volume = |one: &Value| one["name"] == volume;
        let places = [at(&args, &is_flag), at(&mounts, &is_volume), at(&format!("{pod}/volumes"), &is_volume)];
        let [Some(argument), Some(mount), Some(volume)] = places else { return Err(self.defect("--cloud-config")) };
        let Some(file) = file else {
            return [volume, mount, argument].iter().try_for_each(|place| self.remove(place));
        };
        let text = |place: String| value.pointer(&place).and_then(Value::as_str).unwrap_or_default();
        let folder = text(format!("/{mount}/mountPath"));
        self.argument(text(format!("/{argument}")), &format!("--cloud-config={folder}/{file}"))?;
        let items = format!("{volume}/configMap/items/0");
        if let Some(item) = value.pointer(&format!("/{items}")) {
            // On any Kubernetes the operator sets the key; on OpenShift it has written this one.
            let key = if item["key"] == "cloud.conf" { "cloud.conf" } else { file };
            self.set(&format!("{items}/key"), key)?;
            self.set(&format!("{items}/path"), file)?;
        }
        Ok(())
    }

    /// The variables with credentials, of a Secret.
    fn environment(&mut self, options: &Options) -> Result<(), Error> {
        let place = format!("{DEPLOYMENT}/containers/0/env");
        if options.credentials.is_empty() {
            return self.remove(&place);
        }
        let secret = format!("{}-cloud-credentials", options.name);
        let variable = |(variable, key): (&String, &String)| json!({"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}});
        self.set(&place, options.credentials.iter().map(variable).collect::<Value>())
    }

    /// Replaces an argument, which stands on a line of its own.
    fn argument(&mut self, from: &str, to: &str) -> Result<(), Error> {
        let [from_line, to_line] = [from, to].map(|one| format!("- {one}\n"));
        if self.text.matches(&from_line).count() != 1 {
            return Err(self.defect(from));
        }
        self.text = self.text.replace(&from_line, &to_line);
        Ok(())
    }

    /// The first document.
    fn value(&self) -> Value {
        yaml::documents(&self.text).ok().and_then(|all| all.into_iter().next()).unwrap_or_default()
    }

    /// Sets a value of the first document, and changes nothing else.
    fn set(&mut self, place: &str, value: impl Into<Value>) -> Result<(), Error> {
        let value = value.into();
        let path: Vec<_> = place.split('/').collect();
        self.text = edit::set(&self.text, &path, &value).ok_or_else(|| self.defect(place))?;
        let found = self.value().pointer(&format!("/{place}")).is_some_and(|found| *found == value);
        if found { Ok(()) } else { Err(self.defect(place)) }
    }

    fn remove(&mut self, place: &str) -> Result<(), Error> {
        let path: Vec<_> = place.split('/').collect();
        self.text = edit::remove(&self.text, &path).ok_or_else(|| self.defect(place))?;
        Ok(())
    }

    fn defect(&self, place: &str) -> Error {
        Error::Scaffold { file: self.path.clone(), place: place.to_owned() }
    }
}

#[cfg(test)]
mod tests;
