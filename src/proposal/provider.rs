//! The choice of the provider for a cluster (pure).

use super::existing::Existing;
use crate::{
    nodes::{node::Node, observed::flags},
    object,
    provider::{
        CCM,
        catalog::Catalog,
        kubernetes::{Descriptor, KubernetesProvider},
    },
};

/// A provider, and the evidence for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Detected {
    pub(crate) provider: String,
    pub(crate) because: String,
}

/// Returns the detected providers, the most certain first: by running programs, then by the providerIDs and the names of nodes.
pub(crate) fn signs(catalog: &Catalog, nodes: &[Node], existing: &[Existing]) -> Vec<Detected> {
    let mut signs: Vec<Detected> = Vec::new();
    let mut add = |provider: &Descriptor, because: String| {
        let provider = provider.name.clone();
        if !signs.iter().any(|sign| sign.provider == provider) {
            signs.push(Detected { provider, because });
        }
    };
    for one in existing {
        if let Some(provider) = of_existing(catalog, one) {
            add(&provider.descriptor, format!("{} runs {}", one.key(), one.image));
        }
    }
    for provider in catalog.kubernetes_descriptors() {
        let owned = nodes.iter().filter(|node| provider.nodes.owns(&node.provider_id)).count();
        if owned > 0 {
            let prefix = provider.nodes.provider_ids.first().map(String::as_str).unwrap_or_default();
            add(provider, format!("{owned} of {} nodes have a providerID such as {prefix}…", nodes.len()));
        }
    }
    for provider in catalog.kubernetes_descriptors() {
        let names = &provider.nodes.names;
        let fits = |node: &Node| names.prefixes.iter().any(|prefix| node.name.starts_with(prefix.as_str()));
        // Names are no evidence for a cloud that accepts any name.
        if !names.prefixes.iter().any(String::is_empty) && !nodes.is_empty() && nodes.iter().all(fits) {
            add(provider, format!("all nodes have names such as {}", names.are));
        }
    }
    signs
}

/// Returns the provider of a cloud-controller-manager, by its image or by `--cloud-provider`.
pub(crate) fn of_existing<'a>(catalog: &'a Catalog, existing: &Existing) -> Option<&'a KubernetesProvider> {
    let by_image = catalog.kubernetes_descriptors().find(|one| one.container_of(&existing.image) == Some(CCM));
    by_image.and_then(|one| catalog.kubernetes_of(&one.name).ok()).or_else(|| {
        let asked = existing.flag("cloud-provider")?;
        catalog.kubernetes().find(|provider| argument(provider, "cloud-provider").as_deref() == Some(asked))
    })
}

/// Returns the container of the cloud-controller-manager in the manifests of a provider.
pub(super) fn container(provider: &KubernetesProvider) -> Option<&serde_json::Value> {
    let pods = provider.manifests.iter().filter_map(object::Object::pod_spec);
    pods.flat_map(object::containers).find(|one| object::container_name(one) == CCM)
}

/// Returns the value of a flag in the manifests of a provider; `true` for a flag without a value.
pub(super) fn argument(provider: &KubernetesProvider, flag: &str) -> Option<String> {
    let given = container(provider).map(flags).unwrap_or_default();
    let given = given.into_iter().rev().find(|(name, _)| name == flag);
    given.map(|(_, value)| value.unwrap_or_else(|| "true".to_owned()))
}
