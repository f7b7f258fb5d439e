//! All providers, and the choice among them (pure).
//!
//! A catalog is built from paths and bytes, embedded or from a folder. It refuses a folder with a defect. External providers are added to
//! the built-in ones.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    facts::{EXTERNAL, Facts, Platform},
    provider::{
        Error, Flavour, Origin, Provider,
        external::{External, Refused},
        folder::bundles,
        upstream::Upstream,
    },
    text::suggest::did_you_mean,
};

/// Every provider, by name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    // Shared: a process keeps the built-in ones beside those that it uses.
    providers: Vec<Arc<Provider>>,
    upstream: Vec<Arc<Upstream>>,
    refused: Vec<Refused>,
    /// The built-in providers whose place an external one is to take, by name.
    replaced: Vec<String>,
}

impl Catalog {
    /// Builds a catalog from the files of `assets/` and `bootstrap/`, given as (path from their common root, bytes).
    pub fn new(files: impl IntoIterator<Item = (impl Into<String>, impl Into<Vec<u8>>)>) -> Result<Self, Error> {
        let (openshift, upstream): (Vec<_>, _) =
            bundles(files).into_iter().partition(|bundle| bundle.flavour == Flavour::OpenShift);
        Ok(Self {
            providers: openshift.into_iter().map(|one| one.into_provider().map(Arc::new)).collect::<Result<_, _>>()?,
            upstream: upstream.into_iter().map(|one| one.into_upstream().map(Arc::new)).collect::<Result<_, _>>()?,
            refused: Vec::new(),
            replaced: Vec::new(),
        })
    }

    /// Adds an external provider. A built-in one of its name, or of its platform, keeps it out, unless it is to be replaced.
    pub fn add(&mut self, external: External) {
        let name = external.name.clone();
        if let Err(why) = self.try_add(external) {
            self.refuse(Refused { names: BTreeSet::from([name]), why });
        }
    }

    fn try_add(&mut self, external: External) -> Result<(), String> {
        let External { name, bundles, origin, .. } = external;
        let (mut added, mut added_upstream) = (Vec::new(), Vec::new());
        for bundle in bundles {
            match bundle.flavour {
                Flavour::OpenShift => {
                    let provider = bundle.into_provider().and_then(Provider::restricted);
                    added.push(provider.map_err(|error| error.to_string())?);
                }
                Flavour::Upstream => {
                    let provider = bundle.into_upstream().and_then(Upstream::restricted);
                    added_upstream.push(provider.map_err(|error| error.to_string())?);
                }
            }
        }
        let is_same = |other: &&Provider| {
            let platform = &other.descriptor.platform;
            other.name() == name || added.iter().any(|one| one.descriptor.platform.overlaps(platform))
        };
        let rivals = self.providers().filter(is_same).map(|one| (one.name(), &one.origin));
        let of_name = self.upstream().filter(|other| other.descriptor.name == name);
        let rivals = rivals.chain(of_name.map(|one| (one.descriptor.name.as_str(), &one.origin)));
        for (rival, from) in rivals {
            if let Some(from) = from {
                return Err(format!("{} has a provider {rival:?} for the same name or platform already", from.path));
            }
            if !self.replaced.iter().any(|one| one == rival) {
                return Err(format!(
                    "the built-in provider {rival:?} serves the same name or platform, and --replace-built-in {rival} is not given"
                ));
            }
        }
        // All of a built-in provider goes, so that none of its flavours is taken for one of the other.
        let replaced = &self.replaced;
        self.providers.retain(|other| other.origin.is_some() || !replaced.iter().any(|one| one == other.name()));
        self.upstream.retain(|other| other.origin.is_some() || !replaced.contains(&other.descriptor.name));
        let origin = Some(origin);
        self.providers.extend(added.into_iter().map(|one| Arc::new(Provider { origin: origin.clone(), ..one })));
        self.upstream
            .extend(added_upstream.into_iter().map(|one| Arc::new(Upstream { origin: origin.clone(), ..one })));
        self.providers.sort_by(|one, other| one.name().cmp(other.name()));
        self.upstream.sort_by(|one, other| one.descriptor.name.cmp(&other.descriptor.name));
        Ok(())
    }

    /// From now on none of these built-in providers is used, whether an external one takes its place or not.
    pub fn replace(&mut self, names: &[String]) {
        self.replaced = names.to_vec();
    }

    /// Whether a built-in provider is not to be used.
    fn is_replaced(&self, name: &str, origin: Option<&Origin>) -> bool {
        origin.is_none() && self.replaced.iter().any(|one| one == name)
    }

    /// Keeps all providers from being used: nobody knows which one this would have been.
    pub fn refuse(&mut self, refused: Refused) {
        self.refused.push(refused);
    }

    /// The external providers that are asked for and not used.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// Fails if an external provider is refused: for who does nothing then.
    pub fn check(&self) -> Result<(), Refused> {
        self.refused.first().map_or(Ok(()), |refused| Err(refused.clone()))
    }

    /// Every provider of the flavour upstream, by name.
    pub fn upstream(&self) -> impl Iterator<Item = &Upstream> {
        self.upstream.iter().map(AsRef::as_ref)
    }

    /// The provider of the flavour upstream of this name, or why there is none, for people.
    pub fn upstream_of(&self, name: &str) -> Result<&Upstream, String> {
        self.check().map_err(|refused| refused.to_string())?;
        if self.upstream().any(|one| one.descriptor.name == name && self.is_replaced(name, one.origin.as_ref())) {
            return Err(not_replaced(name));
        }
        self.upstream().find(|one| one.descriptor.name == name).ok_or_else(|| {
            let own = name.escape_debug();
            format!("{}; one of your own is given by --provider ./{own}", self.unknown(name))
        })
    }

    /// That there is no provider of the flavour upstream of this name, for people.
    pub fn unknown(&self, name: &str) -> String {
        let known: Vec<_> = self.upstream().map(|one| one.descriptor.name.as_str()).collect();
        let hint = did_you_mean(name, known.iter().copied());
        format!("there is no provider {name:?}{hint}; there are {}", known.join(", "))
    }

    /// Whether a provider that comes with this program is among those that are used.
    pub fn is_built_in(&self, name: &str, flavour: Flavour) -> bool {
        match flavour {
            Flavour::OpenShift => self.providers().any(|one| one.name() == name && one.origin.is_none()),
            Flavour::Upstream => self.upstream().any(|one| one.descriptor.name == name && one.origin.is_none()),
        }
    }

    /// Every provider for OpenShift, by name.
    pub fn providers(&self) -> impl Iterator<Item = &Provider> {
        self.providers.iter().map(AsRef::as_ref)
    }

    /// The provider that serves a platform, or the reason why none does, for people.
    pub fn select(&self, platform: &Platform) -> Result<&Provider, String> {
        let matching = self.providers().filter(|provider| provider.descriptor.platform.serves(platform));
        // The narrowest match wins.
        let narrowest = matching.max_by_key(|provider| provider.descriptor.platform.is_narrow());
        let narrowest = narrowest.ok_or_else(|| self.why_none(platform))?;
        let is_replaced = self.is_replaced(narrowest.name(), narrowest.origin.as_ref());
        if is_replaced { Err(not_replaced(narrowest.name())) } else { Ok(narrowest) }
    }

    /// The provider that serves a cluster, if one does; `None` also while the platform is not known, or an external provider is
    /// refused: nobody knows which platform it is for.
    pub fn provider(&self, facts: &Facts) -> Option<&Provider> {
        self.select(facts.platform.as_ref().ok()?.as_ref()?).ok().filter(|_| self.refused.is_empty())
    }

    fn why_none(&self, platform: &Platform) -> String {
        match (platform.name.as_str(), &platform.variant) {
            (EXTERNAL, Some(name)) if self.providers().any(|one| one.origin.is_some()) => {
                format!("no provider that is given serves platform External with the name {name:?}")
            }
            (EXTERNAL, _) => "platform External brings its cloud-controller-manager itself".into(),
            ("None", _) => "platform None has no cloud and needs no cloud-controller-manager".into(),
            (other, _) => {
                let hint = did_you_mean(other, self.providers().map(|one| one.descriptor.platform.type_.as_str()));
                format!("no provider of this operator serves platform {other}{hint}")
            }
        }
    }
}

fn not_replaced(name: &str) -> String {
    format!("--replace-built-in {name} is given, and no external provider takes the place of the built-in one")
}

#[cfg(test)]
mod tests;
