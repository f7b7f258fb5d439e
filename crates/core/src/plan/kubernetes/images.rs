//! The images of a `CloudControllerManager`: their versions and their sources (pure).
//!
//! A provider's digest belongs to its own repository, and a mirror serves the same images. Another repository has other
//! images.

use serde_json::json;

use super::{
    check::{Unfit, asked, unfit},
    pod_mut,
};
use crate::{
    facts::ccm::Ccm,
    object::{Object, container_name},
    plan::{Error, substitute::containers_mut},
    provider::{
        kubernetes::{Descriptor, KubernetesProvider, ProviderImage},
        versions::Choice,
    },
    text::suggest::did_you_mean,
};

/// Chooses the version of a container's image for a `CloudControllerManager`.
pub fn choose(container: &str, image: &ProviderImage, ccm: &Ccm) -> Result<Choice, Error> {
    let minor = ccm.cluster.minor;
    // Another repository has its own tags, and a digest is pulled regardless of the tag. A mirror has the provider's tags.
    let is_pulled_by_tag = has_own_repository(image, ccm) && given_digest(container, ccm).is_none();
    let choice = match &ccm.spec.image.version {
        Some(tag) => Some(image.versions.asked(tag, minor, is_pulled_by_tag)),
        None => image.versions.choose(minor),
    };
    choice.ok_or_else(|| {
        let problem = format!("there is no tag near Kubernetes {minor} as of {}: give one", image.versions.as_of);
        asked(ccm, "image.version", problem)
    })
}

/// Returns the reference of a container's image for a `CloudControllerManager`, with its digest if known.
pub fn reference(container: &str, image: &ProviderImage, ccm: &Ccm) -> Result<String, Error> {
    let mut choice = choose(container, image, ccm)?;
    let of_provider = choice.digest.filter(|_| has_own_repository(image, ccm));
    choice.digest = given_digest(container, ccm).map(ToOwned::to_owned).or(of_provider);
    Ok(choice.reference(&repository(image, ccm)))
}

/// Returns the repository of an image for a `CloudControllerManager`.
pub(in crate::plan) fn repository(image: &ProviderImage, ccm: &Ccm) -> String {
    let given = &ccm.spec.image;
    match (&given.repository, &given.registry_mirror) {
        (Some(repository), _) => repository.clone(),
        (None, Some(mirror)) => mirrored(image, mirror),
        (None, None) => image.repository.clone(),
    }
}

/// Returns the repository of an image at a mirror, which keeps the path.
pub(in crate::plan) fn mirrored(image: &ProviderImage, mirror: &str) -> String {
    let path = image.repository.split_once('/').map_or(image.repository.as_str(), |(_, path)| path);
    format!("{mirror}/{path}")
}

/// Whether the image is the provider's, directly or through a mirror.
fn has_own_repository(image: &ProviderImage, ccm: &Ccm) -> bool {
    ccm.spec.image.repository.as_ref().is_none_or(|given| *given == image.repository)
}

/// Returns the digest that a `CloudControllerManager` names for a container's image. [`digest_problem`] limits `digest` to a single image.
fn given_digest<'a>(container: &str, ccm: &'a Ccm) -> Option<&'a str> {
    let image = &ccm.spec.image;
    image.digests.get(container).or(image.digest.as_ref()).map(String::as_str)
}

/// Sets the images of an object, and the Secrets for pulling them.
pub(super) fn set(descriptor: &Descriptor, object: &mut Object, ccm: &Ccm) -> Result<(), Error> {
    for container in containers_mut(object, &["initContainers", "containers"]) {
        let name = container_name(container).to_owned();
        if let Some(image) = descriptor.images.get(&name) {
            container["image"] = reference(&name, image, ccm)?.into();
        }
    }
    let secrets = &ccm.spec.image.pull_secrets;
    if let Some(pod) = pod_mut(object).filter(|_| !secrets.is_empty()) {
        let names: Vec<_> = secrets.iter().map(|secret| json!({"name": secret.name})).collect();
        pod.insert("imagePullSecrets".into(), names.into());
    }
    Ok(())
}

/// Checks that a repository and a single digest are used for one image only.
pub(super) fn digest_problem(KubernetesProvider { descriptor, .. }: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let (image, images) = (&ccm.spec.image, &descriptor.images);
    if images.len() < 2 {
        return None;
    }
    let all: Vec<_> = images.values().map(|image| image.repository.as_str()).collect();
    let several = format!("provider {} has several images, {}", descriptor.name, all.join(", "));
    if image.repository.is_some() {
        return unfit("image.repository", format!("{several}: give registryMirror"));
    }
    image.digest.as_ref()?;
    let containers: Vec<_> = images.keys().map(|container| format!("{container}: sha256:…")).collect();
    unfit("image.digest", format!("{several}: give image.digests, by container: {{{}}}", containers.join(", ")))
}

/// Checks that each digest names an existing container.
pub(super) fn containers(KubernetesProvider { descriptor, .. }: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let known = || descriptor.images.keys().map(String::as_str);
    let unknown = ccm.spec.image.digests.keys().find(|name| !descriptor.images.contains_key(*name))?;
    let (hint, all) = (did_you_mean(unknown, known()), known().collect::<Vec<_>>().join(", "));
    let problem = format!("provider {} has no container {unknown:?}{hint}; it has {all}", descriptor.name);
    unfit("image.digests", problem)
}

/// Images that a provider names by digest are reviewed. Any other image of the same repository needs a digest from the user. So does
/// one of an external provider, even without other digests: a policy allows tags, each only by its exact text.
pub(super) fn pinned(provider: &KubernetesProvider, ccm: &Ccm) -> Option<Unfit> {
    let tag = ccm.spec.image.version.as_ref()?;
    let descriptor = &provider.descriptor;
    let is_open = |(container, image): &(&String, &ProviderImage)| {
        let is_pinned = provider.origin.is_some() || image.versions.has_digests();
        let is_reviewed = image.versions.knows(tag) || given_digest(container, ccm).is_some();
        is_pinned && has_own_repository(image, ccm) && !is_reviewed
    };
    let (container, image) = descriptor.images.iter().find(is_open)?;
    let has_digests = image.versions.has_digests();
    let why =
        if has_digests { "names its images by digest, and has none for" } else { "is external, and has no digest for" };
    let problem =
        format!("provider {} {why} {}:{tag}: give it in image.digests.{container}", descriptor.name, image.repository);
    unfit("image.version", problem)
}
