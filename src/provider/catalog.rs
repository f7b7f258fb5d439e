//! All providers, and the choice among them (pure).
//!
//! A catalog is built from paths and bytes, embedded or from a folder. It refuses a folder with a defect.

use crate::{
    facts::{Facts, Platform},
    provider::{
        Error, Flavour, Provider,
        folder::{Bundle, bundles},
        upstream::Upstream,
    },
    text::suggest::did_you_mean,
};

/// Every provider, by name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    providers: Vec<Provider>,
    upstream: Vec<Upstream>,
}

impl Catalog {
    /// Builds a catalog from the files of `assets/` and `bootstrap/`, given as (path from their common root, bytes).
    pub fn new(files: impl IntoIterator<Item = (impl Into<String>, impl Into<Vec<u8>>)>) -> Result<Self, Error> {
        let (openshift, upstream): (Vec<_>, _) =
            bundles(files).into_iter().partition(|bundle| bundle.flavour == Flavour::OpenShift);
        Ok(Self {
            providers: openshift.into_iter().map(Bundle::into_provider).collect::<Result<_, _>>()?,
            upstream: upstream.into_iter().map(Bundle::into_upstream).collect::<Result<_, _>>()?,
        })
    }

    /// Every provider of the flavour upstream, by name.
    pub fn upstream(&self) -> impl Iterator<Item = &Upstream> {
        self.upstream.iter()
    }

    /// The provider of the flavour upstream of this name, or why there is none, for people.
    pub fn upstream_of(&self, name: &str) -> Result<&Upstream, String> {
        self.upstream().find(|one| one.descriptor.name == name).ok_or_else(|| {
            let known: Vec<_> = self.upstream().map(|one| one.descriptor.name.as_str()).collect();
            let hint = did_you_mean(name, known.iter().copied());
            format!("there is no provider {name:?}{hint}; there are {}", known.join(", "))
        })
    }

    /// Every provider for OpenShift, by name.
    pub fn providers(&self) -> impl Iterator<Item = &Provider> {
        self.providers.iter()
    }

    /// The provider that serves a platform, or the reason why none does, for people.
    pub fn select(&self, platform: &Platform) -> Result<&Provider, String> {
        let matching = self.providers().filter(|provider| matches(provider, platform));
        // The narrowest match wins.
        let narrowest = matching.max_by_key(|provider| provider.descriptor.platform.cloud_name.is_some());
        narrowest.ok_or_else(|| self.why_none(&platform.name))
    }

    /// The provider that serves a cluster, if one does; `None` also while the platform is not known.
    pub fn provider(&self, facts: &Facts) -> Option<&Provider> {
        self.select(facts.platform.as_ref().ok()?.as_ref()?).ok()
    }

    fn why_none(&self, platform: &str) -> String {
        match platform {
            "External" => "platform External brings its cloud-controller-manager itself".into(),
            "None" => "platform None has no cloud and needs no cloud-controller-manager".into(),
            other => {
                let hint = did_you_mean(other, self.providers().map(|one| one.descriptor.platform.type_.as_str()));
                format!("no provider of this operator serves platform {other}{hint}")
            }
        }
    }
}

fn matches(provider: &Provider, platform: &Platform) -> bool {
    let served = &provider.descriptor.platform;
    served.type_ == platform.name && (served.cloud_name.is_none() || served.cloud_name == platform.variant)
}

#[cfg(test)]
mod tests;
