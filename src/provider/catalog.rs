//! All providers, and the choice among them (pure).
//!
//! A catalog is built from paths and bytes: whether they are embedded or stand in a folder is not its business. Every
//! manifest is parsed and checked once, here.

use std::collections::BTreeMap;

use crate::{
    facts::{Facts, Platform},
    object::Object,
    provider::{Descriptor, Error, Provider},
    text::yaml,
};

/// Every provider by its name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    providers: BTreeMap<String, Provider>,
}

/// Which provider serves a cluster.
#[derive(Debug)]
pub enum Selection<'a> {
    /// This one.
    Provider(&'a Provider),
    /// None; the text says why, for people.
    Nothing(String),
}

/// The files of one folder, path → text.
type Folder<'a> = BTreeMap<&'a str, &'a str>;

impl Catalog {
    /// Builds a catalog from the files of `assets/` and `bootstrap/`, given as (path from their common root, bytes).
    pub fn new<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Result<Self, Error> {
        let (mut assets, mut bootstrap) = (BTreeMap::<&str, Folder>::new(), BTreeMap::<&str, Folder>::new());
        for (path, bytes) in files {
            let text = std::str::from_utf8(bytes).map_err(|error| problem(path, format!("not UTF-8: {error}")))?;
            let mut parts = path.splitn(3, '/');
            let (root, provider, file) = (parts.next(), parts.next(), parts.next());
            let folders = match root {
                Some("assets") => &mut assets,
                Some("bootstrap") => &mut bootstrap,
                _ => return Err(problem(path, "not in assets/<provider>/ or bootstrap/<provider>/".into())),
            };
            match (provider, file) {
                (Some(provider), Some(file)) if !file.contains('/') && has_yaml_extension(file) => {
                    folders.entry(provider).or_default().insert(path, text);
                }
                _ => return Err(problem(path, "a provider's folder holds files named *.yaml, and no other".into())),
            }
        }
        if let Some((name, folder)) = bootstrap.iter().find(|(name, _)| !assets.contains_key(*name)) {
            let path = folder.keys().next().copied().unwrap_or_default();
            return Err(problem(path, format!("there is no assets/{name}/provider.yaml that it belongs to")));
        }
        let mut catalog = Self::default();
        for (name, folder) in assets {
            let provider = read(name, folder, bootstrap.remove(name).unwrap_or_default())?;
            let twin =
                catalog.providers.values().find(|other| other.descriptor.platform == provider.descriptor.platform);
            if let Some(twin) = twin {
                return Err(problem(
                    &format!("assets/{name}/provider.yaml"),
                    format!("provider {:?} serves the same platform", twin.name()),
                ));
            }
            catalog.providers.insert(name.to_owned(), provider);
        }
        Ok(catalog)
    }

    /// Every provider, by name.
    pub fn providers(&self) -> impl Iterator<Item = &Provider> {
        self.providers.values()
    }

    /// The provider that serves a platform.
    pub fn select(&self, platform: &Platform) -> Selection<'_> {
        let provider = self.providers().filter(|provider| matches(provider, platform)).max_by_key(|provider| {
            // The narrowest match wins.
            provider.descriptor.platform.cloud_name.is_some()
        });
        provider.map_or_else(|| Selection::Nothing(why_none(&platform.name)), Selection::Provider)
    }

    /// The provider that serves a cluster, if one does; `None` also while the platform is not known.
    pub fn provider(&self, facts: &Facts) -> Option<&Provider> {
        match self.select(facts.platform.as_ref().ok()?.as_ref()?) {
            Selection::Provider(provider) => Some(provider),
            Selection::Nothing(_) => None,
        }
    }
}

fn matches(provider: &Provider, platform: &Platform) -> bool {
    let served = &provider.descriptor.platform;
    served.type_ == platform.name && (served.cloud_name.is_none() || served.cloud_name == platform.variant)
}

fn why_none(platform: &str) -> String {
    match platform {
        "External" => "platform External brings its cloud-controller-manager itself".into(),
        "None" => "platform None has no cloud and needs no cloud-controller-manager".into(),
        other => format!("platform {other} needs no cloud-controller-manager of this operator"),
    }
}

fn read(name: &str, mut assets: Folder, bootstrap: Folder) -> Result<Provider, Error> {
    let path = format!("assets/{name}/provider.yaml");
    let descriptor = assets
        .remove(path.as_str())
        .ok_or_else(|| problem(&path, "missing: it says which platform the provider serves".into()))?;
    let descriptor = Descriptor::parse(descriptor, &path)?;
    if descriptor.name != name {
        return Err(problem(&path, format!("name: {:?} is not the folder's name", descriptor.name)));
    }
    let manifests = |folder: Folder| {
        folder
            .into_iter()
            .map(|(path, text)| objects(path, text))
            .collect::<Result<Vec<_>, _>>()
            .map(|all| all.concat())
    };
    let mut manifests_of_cluster = manifests(assets)?;
    // The sort is stable: inside a wave the order is that of the files.
    manifests_of_cluster.sort_by_key(|object| object.kind().wave);
    Provider::new(descriptor, manifests_of_cluster, manifests(bootstrap)?, &path)
}

fn objects(path: &str, text: &str) -> Result<Vec<Object>, Error> {
    let documents = yaml::documents(text).map_err(|error| problem(path, error.to_string()))?;
    documents.into_iter().map(|value| Object::new(value).map_err(|error| problem(path, error.to_string()))).collect()
}

fn problem(path: &str, problem: String) -> Error {
    Error { file: path.to_owned(), line: None, problem }
}

/// Whether a file is named as manifests are.
pub(crate) fn has_yaml_extension(file: &str) -> bool {
    std::path::Path::new(file).extension().is_some_and(|extension| extension == "yaml")
}

#[cfg(test)]
mod tests;
