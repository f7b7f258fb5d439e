//! A new provider's folder, created from the provider `example` in `scaffold/` (pure).
//!
//! The example uses every feature, and is a valid provider itself. Comments mark the parts that a new provider may not need, and
//! the values that are set. All other comments stay.

pub mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    facts::version::Minor,
    object::reference::is_digest,
    provider::{
        Flavor, embedded,
        folder::parsed_providers_of,
        verify::{Policy, verify},
        versions::{VersionRule, Versions},
    },
    text::yaml,
};

/// The name of the provider from which new ones are created.
const EXAMPLE: &str = "example";

const README: &str = include_str!("../../../../scaffold/README.md");

/// The longest name. Object names begin with it and must not become too long.
const LONGEST: usize = 40;

/// Names that mean something else to YAML or to this program.
const RESERVED: [&str; 13] =
    ["assets", "bootstrap", "false", "n", "next", "no", "null", "off", "on", "true", "kubernetes", "y", "yes"];

/// The versions of Kubernetes that are entered for a version that supports several.
const MINORS: std::ops::RangeInclusive<u32> = 32..=36;

/// The options for a new provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Its name.
    pub name: String,
    /// Its flavors. The flavor openshift has the bootstrap VM's pod.
    pub flavors: Vec<Flavor>,
    /// The image of the cloud-controller-manager.
    pub image: ImageReference,
    /// How the cloud numbers its versions; `None` derives it from the tag.
    pub rule: Option<VersionRule>,
    /// The program in the image; absent if the image names it.
    pub command: Option<String>,
    /// Its flags that nothing else sets.
    pub arguments: Vec<String>,
    /// Its variables without credentials.
    pub environment: BTreeMap<String, String>,
    /// The name under which the cloud's code registers itself (`--cloud-provider`).
    pub cloud_provider: String,
    /// Whether the program is built with a k8s.io/cloud-provider before 0.27.
    pub has_old_library: bool,
    /// The file of `--cloud-config`, if it reads one.
    pub cloud_config: Option<CloudConfig>,
    /// The variables with credentials, each with its key in the Secret.
    pub credentials: BTreeMap<String, String>,
    /// The image of the node manager, if there is one.
    pub node_manager: Option<ImageReference>,
    /// Whether the cloud-controller-manager has a route controller.
    pub routes: bool,
    /// The prefix of its providerIDs.
    pub provider_id: String,
    /// The platform type of OpenShift clusters.
    pub platform: String,
    /// Today's date.
    pub today: String,
}

/// The file of `--cloud-config`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CloudConfig {
    /// Its name.
    pub file: String,
    /// Whether the file holds the credentials.
    pub holds_credentials: bool,
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReference {
    /// Its registry and path.
    pub repository: String,
    /// Its tag.
    pub tag: String,
    /// Its digest. The flavor openshift needs it immediately, because it has no table of versions. The other flavor needs it before
    /// another user uses the provider.
    pub digest: Option<String>,
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digest = self.digest.as_ref().map(|digest| format!("@{digest}")).unwrap_or_default();
        write!(f, "{}:{}{digest}", self.repository, self.tag)
    }
}

impl FromStr for ImageReference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const PROBLEM: &str = "must be REPOSITORY:TAG, such as ghcr.io/example/cloud-controller-manager:v1.0.0, or REPOSITORY:TAG@sha256:DIGEST";
        let (text, digest) = text.split_once('@').map_or((text, None), |(text, digest)| (text, Some(digest)));
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(PROBLEM.to_owned());
        }
        let is_path = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._/:".contains(c);
        let is_tag = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        match text.rsplit_once(':') {
            Some((_, "latest")) => Err("name a version: latest changes by itself".to_owned()),
            Some((repository, tag))
                if repository.contains('/')
                    && repository.chars().all(is_path)
                    && !tag.is_empty()
                    && tag.chars().all(is_tag) =>
            {
                let (repository, tag, digest) = (repository.to_owned(), tag.to_owned(), digest.map(ToOwned::to_owned));
                Ok(Self { repository, tag, digest })
            }
            _ => Err(PROBLEM.to_owned()),
        }
    }
}

/// Checks the name of a new provider. Fails with a human-readable reason.
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

/// Returns the files of the new folder, by their paths in it, or a human-readable problem of the options.
pub fn files(options: &Options) -> Result<BTreeMap<String, String>, String> {
    let facts = facts(options)?;
    if options.flavors.contains(&Flavor::OpenShift)
        && let Some(image) = options.images().find(|image| image.digest.is_none())
    {
        return Err(format!(
            "OpenShift's flavor needs the digest of {image}, because its manifests name what runs: give {image}@sha256:DIGEST"
        ));
    }
    if options.flavors.contains(&Flavor::OpenShift) && options.command.is_none() {
        return Err("OpenShift's flavor names the program in the image: give --command".to_owned());
    }
    let texts = texts(options);
    let fill =
        |text: &str| filled(&texts.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to)), &facts);
    let own = embedded::scaffold().into_iter().filter(|(path, _)| options.has(path));
    Ok(own.chain([("README.md".to_owned(), README)]).map(|(path, text)| (path, fill(text))).collect())
}

/// Checks the files of a new folder. Fails with the first finding of the rules, except that images need digests.
pub fn check(name: &str, files: &BTreeMap<String, String>) -> Result<(), String> {
    let yaml = files.iter().filter(|(path, _)| path.as_str() != "README.md");
    let parsed = parsed_providers_of(name, yaml.map(|(path, text)| (path.as_str(), text.as_bytes())));
    let found = verify(&parsed, None, Some(&Policy::default())).findings;
    match found.iter().find(|finding| !finding.is_about_digests()) {
        Some(finding) => Err(format!("the folder would not be valid: {finding}")),
        None => Ok(()),
    }
}

/// Returns the name as a part of a key, such as `MyCloud`.
fn camel(name: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('-').filter(|word| !word.is_empty()).map(capital).collect()
}

/// Returns the texts of the example that are replaced everywhere, with their replacements.
fn texts(options: &Options) -> Vec<(&'static str, String)> {
    let name = camel(&options.name);
    let mut texts = vec![
        // Before the name, which is a part of it, and which the value must not contain yet.
        ("--cloud-provider=example", "--cloud-provider=CLOUD_PROVIDER".to_owned()),
        (EXAMPLE, options.name.clone()),
        ("cloudControllerManagerExample", format!("\"cloudControllerManager{name}\"")),
        ("cloudNodeManagerExample", format!("\"cloudNodeManager{name}\"")),
        ("CCM_IMAGE", options.image.to_string()),
        ("CLOUD_PROVIDER", options.cloud_provider.clone()),
    ];
    if let Some(image) = &options.node_manager {
        texts.push(("NODE_MANAGER_IMAGE", image.to_string()));
        texts.push(("--controllers=*\n", "--controllers=*,-cloud-node\n".to_owned()));
    }
    if options.has_old_library {
        texts.push(("--controllers: controllers", "--controllers: oldControllers".to_owned()));
    }
    match &options.cloud_config {
        Some(CloudConfig { file, .. }) => {
            texts.push((": cloud-config.yaml", format!(": \"{file}\"")));
            texts.push(("/cloud-config.yaml", format!("/{file}")));
        }
        None => texts.push((" --cloud-config FILE", String::new())),
    }
    if options.credentials.is_empty() {
        texts.push((" --credentials FILE", String::new()));
    }
    texts
}

/// Returns the facts that the marks of the example name.
fn facts(options: &Options) -> Result<Value, String> {
    let image = of_image(&options.image, options.rule)?;
    // A node manager has versions of its own.
    let node_manager = options.node_manager.as_ref().map(|image| of_image(image, None)).transpose()?;
    let secret = format!("{}-cloud-credentials", options.name);
    let set = |(variable, value): (&String, &String)| json!({"name": variable, "value": value});
    let variable = |(variable, key): (&String, &String)| json!({"name": variable, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}});
    let credentials = json!({
        "keys": options.credentials.values().collect::<BTreeSet<_>>(),
        "environment": options.credentials,
        "env": options.credentials.iter().map(variable).collect::<Vec<_>>(),
    });
    // Only platforms of this type are distinguished by their names.
    let platform = if options.platform == "External" {
        json!({"type": options.platform, "platformName": options.name})
    } else {
        json!({"type": options.platform})
    };
    let is_kubernetes = options.flavors.contains(&Flavor::Kubernetes);
    Ok(json!({
        "kubernetes": is_kubernetes,
        "openshift": options.flavors.contains(&Flavor::OpenShift),
        "onlyOpenshift": !is_kubernetes,
        "image": image,
        "nodeManager": node_manager,
        "isUnpinned": options.unpinned().next().is_some(),
        "command": options.command.as_ref().map(|command| [command]),
        "arguments": options.arguments,
        "env": Some(options.environment.iter().map(set).collect::<Vec<_>>()).filter(|env| !env.is_empty()),
        "hasOldLibrary": options.has_old_library,
        "hasWebhookFlag": !options.has_old_library,
        "routes": options.routes,
        "cloudConfig": options.cloud_config,
        "credentials": Some(credentials).filter(|_| !options.credentials.is_empty()),
        "providerIDs": [options.provider_id],
        "platform": platform,
        "today": options.today,
    }))
}

/// Returns the facts of an image, with a table of versions for its tag. `rule` is the numbering of its versions; `None` derives it
/// from the tag.
fn of_image(image: &ImageReference, rule: Option<VersionRule>) -> Result<Value, String> {
    let ImageReference { repository, tag, digest } = image;
    let of = |rule| {
        Versions { rule, tags: BTreeMap::new(), as_of: String::new(), verified: Vec::new(), broken: None }.minor_of(tag)
    };
    // Other numbers are versions of the program itself, such as v1.2.3.
    let of = |rule| of(rule).filter(|minor| (20..100).contains(&minor.0));
    let guessed = [VersionRule::SameMinor, VersionRule::MajorIsMinor].into_iter().find(|rule| of(*rule).is_some());
    let rule = rule.or(guessed).unwrap_or(VersionRule::OneLine);
    let minors: Vec<_> = match (rule, of(rule)) {
        (VersionRule::OneLine, _) => MINORS.map(Minor).collect(),
        (_, Some(minor)) => vec![minor],
        (_, None) => {
            return Err(format!("the tag {tag} does not tell a minor version of Kubernetes: --rule must be OneLine"));
        }
    };
    let entry = digest.as_ref().map_or_else(|| json!(tag), |digest| json!({"tag": tag, "digest": digest}));
    Ok(json!({
        "repository": repository,
        "rule": format!("{rule:?}"),
        "tags": minors.iter().map(|minor| (minor.to_string(), entry.clone())).collect::<BTreeMap<_, _>>(),
        // On any Kubernetes, the cluster's version determines tag and digest.
        "tagged": format!("{repository}:{tag}"),
        "pinned": image.to_string(),
        "isUnpinned": digest.is_none(),
    }))
}

/// Fills a file of the example with facts, named by JSON pointers. The lines between `#if FACT` and `#end` stay if the fact is neither
/// absent nor false. The items of the list `FACT` replace those between `#each FACT` and `#end`. In `KEY: VALUE #= FACT`, the fact
/// replaces the value and the following lines with deeper indentation.
fn filled(text: &str, facts: &Value) -> String {
    let (mut filled, mut conditions, mut set) = (String::new(), Vec::new(), None::<usize>);
    let fact = |name: &str| facts.pointer(name).unwrap_or(&Value::Null);
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = &line[..line.len() - trimmed.len()];
        if let Some(name) = trimmed.strip_prefix("#if ") {
            conditions.push(!matches!(fact(name), Value::Null | Value::Bool(false)));
            continue;
        }
        if let Some(name) = trimmed.strip_prefix("#each ") {
            let rendered = yaml::to_string(fact(name)).unwrap_or_default();
            let has_items = fact(name).as_array().is_some_and(|items| !items.is_empty());
            if has_items && !conditions.contains(&false) {
                filled.extend(rendered.lines().flat_map(|line| [indent, line, "\n"]));
            }
            conditions.push(false);
            continue;
        }
        if trimmed == "#end" {
            conditions.pop();
            continue;
        }
        set = set.filter(|depth| indent.len() > *depth);
        if set.is_some() || conditions.contains(&false) {
            continue;
        }
        let Some((member, name)) = trimmed.split_once(" #= ") else {
            filled.extend([line, "\n"]);
            continue;
        };
        let (key, _) = member.split_once(':').unwrap_or_default();
        let rendered = yaml::to_string(&json!({ key: fact(name) })).unwrap_or_default();
        filled.extend(rendered.lines().flat_map(|line| [indent, line, "\n"]));
        set = Some(indent.len());
    }
    filled
}

impl Options {
    fn images(&self) -> impl Iterator<Item = &ImageReference> {
        std::iter::once(&self.image).chain(&self.node_manager)
    }

    /// Returns the images in the descriptor of the flavor kubernetes that a registry may replace.
    pub fn unpinned(&self) -> impl Iterator<Item = &ImageReference> {
        let is_open = |image: &&ImageReference| image.digest.is_none() && self.flavors.contains(&Flavor::Kubernetes);
        self.images().filter(is_open)
    }

    /// Whether the new provider has this file of the example.
    fn has(&self, path: &str) -> bool {
        let is_kubernetes = path.starts_with("assets/kubernetes/");
        let flavor = if is_kubernetes { Flavor::Kubernetes } else { Flavor::OpenShift };
        self.flavors.contains(&flavor) && (self.node_manager.is_some() || !path.ends_with("/node-manager.yaml"))
    }
}

#[cfg(test)]
mod tests;
