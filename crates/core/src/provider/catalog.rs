//! All providers, and the choice among them (pure).
//!
//! A catalog is built from paths and bytes, embedded or from a folder. It refuses a folder with a defect. External
//! providers are added to the built-in ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    facts::{EXTERNAL, Facts, Platform},
    provider::{
        DescriptorFields, Error, KubernetesProvider, OpenShiftProvider, Provider, ProviderFlavor,
        external::RefusedProvider, folder,
    },
    text::suggest::did_you_mean,
};

/// Every provider, by name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    // Shared, because a process keeps the built-in providers in addition to the used ones.
    all: Vec<Arc<Provider>>,
    refused: Vec<RefusedProvider>,
    /// The names of the built-in providers that an external one replaces.
    replaced: Vec<String>,
}

impl Catalog {
    /// Builds a catalog from the files of `assets/` and `bootstrap/`, given as (path from their common root, bytes).
    pub fn new(files: impl IntoIterator<Item = (impl Into<String>, impl Into<Vec<u8>>)>) -> Result<Self, Error> {
        let mut parsed_providers = BTreeMap::<_, Vec<_>>::new();
        for parsed in folder::parsed_providers(files) {
            parsed_providers.entry(parsed.name.clone()).or_default().push(parsed);
        }
        // Each parsed provider is dropped as soon as its objects are copied.
        let providers = parsed_providers
            .into_iter()
            .map(|(name, parsed_providers)| Provider::of(&name, &parsed_providers).map(Arc::new));
        Ok(Self { all: providers.collect::<Result<_, _>>()?, ..Self::default() })
    }

    /// Adds an external provider. Refuses it if a built-in provider with its name or platform exists that it must not replace.
    pub fn add(&mut self, added: &Arc<Provider>) {
        if let Err(why) = self.try_add(added) {
            self.refuse(RefusedProvider { names: BTreeSet::from([added.name.clone()]), why });
        }
    }

    fn try_add(&mut self, added: &Arc<Provider>) -> Result<(), String> {
        for rival in self.all.iter().filter(|other| other.name == added.name || other.overlaps(added)) {
            let rival_name = &rival.name;
            if let Some(from) = rival.origin() {
                return Err(format!(
                    "{} has a provider {rival_name:?} for the same name or platform already",
                    from.path
                ));
            }
            if !self.replaced.contains(rival_name) {
                return Err(format!(
                    "the built-in provider {rival_name:?} serves the same name or platform, and --replace-built-in {rival_name} is not given"
                ));
            }
        }
        // Removes all flavors of a built-in provider, so that none is mistaken for one of the external provider.
        let replaced = &self.replaced;
        self.all.retain(|other| other.origin().is_some() || !replaced.contains(&other.name));
        self.all.push(Arc::clone(added));
        self.all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(())
    }

    /// Excludes these built-in providers from use, whether or not an external provider replaces them.
    pub fn exclude_built_in(&mut self, names: &[String]) {
        self.replaced = names.to_vec();
    }

    /// Prevents the use of all providers, because the name of the refused one is unknown.
    pub fn refuse(&mut self, refused: RefusedProvider) {
        self.refused.push(refused);
    }

    /// Returns the requested external providers that are not used.
    pub fn refused(&self) -> &[RefusedProvider] {
        &self.refused
    }

    /// Fails if an external provider is refused, because then nothing is applied.
    pub fn check(&self) -> Result<(), RefusedProvider> {
        self.refused.first().map_or(Ok(()), |refused| Err(refused.clone()))
    }

    /// Returns every provider for OpenShift, sorted by name.
    pub fn providers(&self) -> impl Iterator<Item = &OpenShiftProvider> {
        self.all.iter().filter_map(|one| one.openshift.as_ref())
    }

    /// Returns every provider of the flavor kubernetes, sorted by name.
    pub fn kubernetes(&self) -> impl Iterator<Item = &KubernetesProvider> {
        self.all.iter().filter_map(|one| one.kubernetes.as_ref())
    }

    /// Returns the provider of the flavor kubernetes with this name, or a human-readable reason why there is none.
    pub fn kubernetes_of(&self, name: &str) -> Result<&KubernetesProvider, String> {
        self.check().map_err(|refused| refused.to_string())?;
        let unknown =
            || format!("{}; one of your own is given by --provider ./{}", self.unknown(name), name.escape_debug());
        let named = self.all.iter().find(|one| one.name == name);
        self.check_replaced(named.and_then(|one| one.kubernetes.as_ref()).ok_or_else(unknown)?)
    }

    /// Returns the message for a name that no provider of the flavor kubernetes has.
    pub fn unknown(&self, name: &str) -> String {
        let known: Vec<_> = self.kubernetes().map(ProviderFlavor::name).collect();
        let hint = did_you_mean(name, known.iter().copied());
        format!("there is no provider {name:?}{hint}; there are {}", known.join(", "))
    }

    /// Whether a built-in provider of this name is in the catalog.
    pub fn is_built_in(&self, name: &str) -> bool {
        self.all.iter().any(|one| one.name == name && one.origin().is_none())
    }

    /// Returns the provider that serves a platform, or a human-readable reason why none does.
    pub fn select(&self, platform: &Platform) -> Result<&OpenShiftProvider, String> {
        let matching = self.providers().filter(|provider| provider.descriptor.platform.serves(platform));
        // A match of the cloud wins over one of the platform type alone.
        let narrowest = matching.max_by_key(|provider| provider.descriptor.platform.cloud_name.is_some());
        self.check_replaced(narrowest.ok_or_else(|| self.why_none(platform))?)
    }

    /// Refuses a built-in provider that must not be used.
    fn check_replaced<'a, D: DescriptorFields>(
        &self,
        provider: &'a ProviderFlavor<D>,
    ) -> Result<&'a ProviderFlavor<D>, String> {
        let name = provider.name();
        if provider.origin.is_some() || self.replaced.iter().all(|replaced| replaced != name) {
            return Ok(provider);
        }
        Err(format!("--replace-built-in {name} is given, and no external provider takes the place of the built-in one"))
    }

    /// Returns the provider that serves a cluster. Returns `None` if there is none, while the platform is unknown, or if an external
    /// provider is refused, because its platform is unknown.
    pub fn provider(&self, facts: &Facts) -> Option<&OpenShiftProvider> {
        self.select(facts.platform.as_ref().ok()?.as_ref()?).ok().filter(|_| self.refused.is_empty())
    }

    fn why_none(&self, platform: &Platform) -> String {
        match (platform.name.as_str(), &platform.variant) {
            (EXTERNAL, Some(name)) if self.providers().any(|one| one.origin.is_some()) => {
                format!("no provider that is given serves platform External with the name {name:?}")
            }
            (EXTERNAL, _) => "platform External provides its own cloud-controller-manager".into(),
            ("None", _) => "platform None has no cloud and needs no cloud-controller-manager".into(),
            (other, _) => {
                let hint = did_you_mean(other, self.providers().map(|one| one.descriptor.platform.type_.as_str()));
                format!("no provider of this operator serves platform {other}{hint}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
