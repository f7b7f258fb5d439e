//! All providers, and the choice among them (pure).
//!
//! A catalog is built from paths and bytes, and refuses a folder with a defect. A built-in provider is parsed when it is first used.
//! External providers are added to the built-in ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    facts::{EXTERNAL, Facts, Platform},
    provider::{
        self, DescriptorFields, Error, KubernetesProvider, OpenShiftProvider, Origin, Provider, ProviderFlavor,
        built_in::BuiltIn, external::RefusedProvider, folder, kubernetes,
    },
    text::suggest::did_you_mean,
};

/// Every provider, by name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    all: Vec<Entry>,
    refused: Vec<RefusedProvider>,
    /// The names of the built-in providers that an external one replaces.
    replaced: Vec<String>,
}

/// A provider, shared because a process keeps the built-in ones in addition to the used ones.
#[derive(Clone, Debug)]
enum Entry {
    BuiltIn(Arc<BuiltIn>),
    Parsed(Arc<Provider>),
}

impl Entry {
    fn name(&self) -> &str {
        match self {
            Self::BuiltIn(one) => one.name,
            Self::Parsed(one) => &one.name,
        }
    }

    fn origin(&self) -> Option<&Origin> {
        match self {
            Self::BuiltIn(_) => None,
            Self::Parsed(one) => one.origin(),
        }
    }

    fn platform(&self) -> Option<&provider::Platform> {
        match self {
            Self::BuiltIn(one) => one.platform.as_ref(),
            Self::Parsed(one) => one.platform(),
        }
    }

    fn has_kubernetes(&self) -> bool {
        match self {
            Self::BuiltIn(one) => one.has_kubernetes,
            Self::Parsed(one) => one.kubernetes.is_some(),
        }
    }

    fn openshift(&self) -> Option<Result<&OpenShiftProvider, &Error>> {
        match self {
            Self::BuiltIn(one) => one.openshift(),
            Self::Parsed(one) => one.openshift.as_ref().map(Ok),
        }
    }

    fn kubernetes(&self) -> Option<Result<&KubernetesProvider, &Error>> {
        match self {
            Self::BuiltIn(one) => one.kubernetes(),
            Self::Parsed(one) => one.kubernetes.as_ref().map(Ok),
        }
    }

    fn kubernetes_descriptor(&self) -> Option<Result<&kubernetes::Descriptor, &Error>> {
        match self {
            Self::BuiltIn(one) => one.kubernetes_descriptor(),
            Self::Parsed(one) => one.kubernetes.as_ref().map(|one| Ok(&one.descriptor)),
        }
    }
}

/// Other names of clouds, with the names of their providers.
const ALIASES: [(&str, &str); 10] = [
    ("akamai", "linode"),
    ("amazon", "aws"),
    ("do", "digitalocean"),
    ("gce", "gcp"),
    ("google", "gcp"),
    ("hetzner", "hcloud"),
    ("microsoft", "azure"),
    ("oracle", "oci"),
    ("vmware", "vsphere"),
    ("xcp-ng", "xenorchestra"),
];

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
            .map(|(name, parsed_providers)| Ok(Entry::Parsed(Arc::new(Provider::of(&name, &parsed_providers)?))));
        Ok(Self { all: providers.collect::<Result<_, _>>()?, ..Self::default() })
    }

    /// Builds the catalog of the built-in providers, given in the order of their names. Parses none of them.
    pub(super) fn of_built_in(built_in: Vec<BuiltIn>) -> Self {
        Self { all: built_in.into_iter().map(|one| Entry::BuiltIn(Arc::new(one))).collect(), ..Self::default() }
    }

    /// Adds an external provider. Refuses it if a built-in provider with its name or platform exists that it must not replace.
    pub fn add(&mut self, added: &Arc<Provider>) {
        if let Err(why) = self.try_add(added) {
            self.refuse(RefusedProvider { names: BTreeSet::from([added.name.clone()]), why });
        }
    }

    fn try_add(&mut self, added: &Arc<Provider>) -> Result<(), String> {
        let overlaps =
            |one: &Entry| one.platform().zip(added.platform()).is_some_and(|(one, added)| one.overlaps(added));
        for rival in self.all.iter().filter(|one| one.name() == added.name || overlaps(one)) {
            let rival_name = rival.name();
            if let Some(from) = rival.origin() {
                return Err(format!(
                    "{} has a provider {rival_name:?} for the same name or platform already",
                    from.path
                ));
            }
            if self.replaced.iter().all(|replaced| replaced != rival_name) {
                return Err(format!(
                    "the built-in provider {rival_name:?} serves the same name or platform, and --replace-built-in {rival_name} is not given"
                ));
            }
        }
        // Removes all flavors of a built-in provider, so that none is mistaken for one of the external provider.
        let replaced = &self.replaced;
        self.all.retain(|one| one.origin().is_some() || replaced.iter().all(|replaced| replaced != one.name()));
        self.all.push(Entry::Parsed(Arc::clone(added)));
        self.all.sort_by(|one, other| one.name().cmp(other.name()));
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

    /// Returns every provider for OpenShift, sorted by name. Parses all.
    pub fn providers(&self) -> impl Iterator<Item = &OpenShiftProvider> {
        self.all.iter().filter_map(|one| one.openshift()?.ok())
    }

    /// Returns every provider of the flavor kubernetes, sorted by name. Parses all.
    pub fn kubernetes(&self) -> impl Iterator<Item = &KubernetesProvider> {
        self.all.iter().filter_map(|one| one.kubernetes()?.ok())
    }

    /// Returns the descriptor of every provider of the flavor kubernetes, sorted by name. Does not parse the manifests of built-in ones.
    pub fn kubernetes_descriptors(&self) -> impl Iterator<Item = &kubernetes::Descriptor> {
        self.all.iter().filter_map(|one| one.kubernetes_descriptor()?.ok())
    }

    /// Returns the names of the providers of the flavor kubernetes, sorted.
    pub fn kubernetes_names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().filter(|one| one.has_kubernetes()).map(Entry::name)
    }

    /// Returns the provider of the flavor kubernetes with this name, or a human-readable reason why there is none.
    pub fn kubernetes_of(&self, name: &str) -> Result<&KubernetesProvider, String> {
        self.check().map_err(|refused| refused.to_string())?;
        let unknown =
            || format!("{}; one of your own is given by --provider ./{}", self.unknown(name), name.escape_debug());
        let named = self.all.iter().find(|one| one.name() == name);
        let parsed = named.and_then(Entry::kubernetes).ok_or_else(unknown)?;
        self.check_replaced(parsed.map_err(ToString::to_string)?)
    }

    /// Returns the message for a name that no provider of the flavor kubernetes has.
    pub fn unknown(&self, name: &str) -> String {
        let known: Vec<_> = self.kubernetes_names().collect();
        let is_meant = |(alias, of): &&(&str, &str)| name.eq_ignore_ascii_case(alias) && known.contains(of);
        let hint = match ALIASES.iter().find(is_meant) {
            Some((_, of)) => format!(" (did you mean `{of}`?)"),
            None => did_you_mean(name, known.iter().copied()),
        };
        format!("there is no provider {name:?}{hint}; there are {}", known.join(", "))
    }

    /// Whether an external provider of this name is in the catalog.
    pub fn is_external(&self, name: &str) -> bool {
        self.all.iter().any(|one| one.name() == name && one.origin().is_some())
    }

    /// Whether a built-in provider of this name is in the catalog.
    pub fn is_built_in(&self, name: &str) -> bool {
        self.all.iter().any(|one| one.name() == name && one.origin().is_none())
    }

    /// Returns the provider that serves a platform, or a human-readable reason why none does.
    pub fn select(&self, platform: &Platform) -> Result<&OpenShiftProvider, String> {
        let served = |one: &Entry| one.platform().is_some_and(|served| served.serves(platform));
        // A match of the cloud wins over one of the platform type alone.
        let matching = self.all.iter().filter(|one| served(one));
        let narrowest = matching.max_by_key(|one| one.platform().is_some_and(|served| served.cloud_name.is_some()));
        let parsed = narrowest.and_then(Entry::openshift).ok_or_else(|| self.why_none(platform))?;
        self.check_replaced(parsed.map_err(ToString::to_string)?)
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
            (EXTERNAL, Some(name)) if self.all.iter().any(|one| one.origin().is_some() && one.platform().is_some()) => {
                format!("no provider that is given serves platform External with the name {name:?}")
            }
            (EXTERNAL, _) => "platform External provides its own cloud-controller-manager".into(),
            ("None", _) => "platform None has no cloud and needs no cloud-controller-manager".into(),
            (other, _) => {
                let types = self.all.iter().filter_map(|one| Some(one.platform()?.type_.as_str()));
                let hint = did_you_mean(other, types);
                format!("no provider of this operator serves platform {other}{hint}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
