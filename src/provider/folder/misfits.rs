//! How the descriptor of a provider does not fit its manifests (pure).
//!
//! Strangers write both, so that nothing here may take the product of their sizes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bundle, arguments};
use crate::{
    error::brief,
    object,
    provider::{Descriptor, Error, FactOrText, Flavour, Phase, ValueSource, patterns, upstream},
    text::{suggest::Hints, work},
};

/// The sources of values, by the container's name and the target's.
type Sources = BTreeMap<String, BTreeMap<String, ValueSource>>;

/// The most bytes that arguments and variables of the descriptor take in all containers together, each with [`EACH`] more. A
/// cloud-controller-manager has some twenty.
const MAX_SET: usize = 1 << 20;

/// The bytes that one takes besides its texts.
const EACH: usize = 64;

/// What a descriptor says about containers.
struct Set<'a> {
    /// Those with an image.
    images: BTreeSet<&'a str>,
    arguments: &'a Sources,
    environment: &'a Sources,
}

impl Bundle {
    /// The ways in which the descriptor does not fit the manifests. Only a folder without [`Bundle::defects`] is checked:
    /// a container may be in a file that is not readable.
    pub fn misfits(&self) -> Vec<Error> {
        let Some(set) = self.set().filter(|_| self.defects.is_empty()) else { return Vec::new() };
        let mut misfits = self.unknown_containers(&set);
        misfits.extend(self.facts_of_managers(&set));
        misfits.extend(self.repeated_arguments(&set));
        misfits.extend(self.too_much(&set));
        let own = self.upstream.iter().flat_map(|one| one.misfits().into_iter().chain(of_patterns(one)));
        misfits.extend(own.map(|(pointer, problem)| self.descriptor_error(&pointer, problem)));
        misfits
    }

    /// What the descriptors of both flavours say about containers.
    fn set(&self) -> Option<Set<'_>> {
        let openshift = self.descriptor.as_ref().map(|Descriptor { images, arguments, environment, .. }| Set {
            images: images.keys().map(String::as_str).collect(),
            arguments,
            environment,
        });
        let upstream = || {
            let upstream::Descriptor { images, arguments, environment, .. } = self.upstream.as_ref()?;
            Some(Set { images: images.keys().map(String::as_str).collect(), arguments, environment })
        };
        openshift.or_else(upstream)
    }

    /// Containers that only the descriptor has, or only the manifests.
    fn unknown_containers(&self, set: &Set) -> Vec<Error> {
        let names = |phase| self.containers(phase).map(object::container_name).collect::<BTreeSet<_>>();
        let of_cluster = names(Phase::Cluster);
        let all = &of_cluster | &names(Phase::Bootstrap);
        let in_images = set.images.iter().map(|name| ("images", *name, &all));
        let in_arguments = set.arguments.keys().map(|name| ("arguments", name.as_str(), &of_cluster));
        let in_environment = set.environment.keys().map(|name| ("environment", name.as_str(), &of_cluster));
        let (mut found, hints) = (Vec::new(), Hints::default());
        for (field, name, known) in in_images.chain(in_arguments).chain(in_environment) {
            work::add(1);
            if !known.contains(name) {
                let hint = hints.of(name, known.iter().copied());
                let problem = format!("no manifest has a container {:?}{hint}", brief(name));
                found.push(self.descriptor_error(&format!("/{field}/{name}"), problem));
            }
        }
        for name in all.difference(&set.images) {
            let what = if self.flavour == Flavour::Upstream { "repository and versions" } else { "key and tag" };
            let problem = format!("`images` has no entry for container {:?}: add its {what}", brief(name));
            found.push(self.descriptor_error("/images", problem));
        }
        found
    }

    /// Facts that no cluster of OpenShift has.
    fn facts_of_managers(&self, set: &Set) -> Vec<Error> {
        let mut found = Vec::new();
        for (field, sources) in [("arguments", set.arguments), ("environment", set.environment)] {
            for (container, target, source) in each(sources) {
                if let FactOrText::Fact(fact) = source.value
                    && fact.is_of_manager()
                    && self.flavour == Flavour::OpenShift
                {
                    let problem = format!("the fact {} is not known on OpenShift", fact.name());
                    found.push(self.descriptor_error(&format!("/{field}/{container}/{target}"), problem));
                }
            }
        }
        found
    }

    /// Arguments that the manifests have, too.
    fn repeated_arguments(&self, set: &Set) -> Vec<Error> {
        let mut written = BTreeSet::new();
        for container in self.containers(Phase::Cluster) {
            let name = object::container_name(container);
            written.extend(arguments(container).map(|argument| {
                work::add(1);
                (name, flag_of(argument))
            }));
        }
        let repeated = each(set.arguments).filter(|(container, flag, _)| {
            work::add(1);
            written.contains(&(*container, flag_of(flag)))
        });
        let problem = |(container, flag, _): (&str, &str, &ValueSource)| {
            let problem = format!("container {:?} already has {} in its manifest", brief(container), brief(flag));
            self.descriptor_error(&format!("/arguments/{container}/{flag}"), problem)
        };
        repeated.map(problem).collect()
    }

    /// Arguments and variables whose number is multiplied by that of the containers of one name.
    fn too_much(&self, set: &Set) -> Option<Error> {
        let mut containers = BTreeMap::<&str, usize>::new();
        for container in self.containers(Phase::Cluster) {
            *containers.entry(object::container_name(container)).or_default() += 1;
        }
        let mut sum = 0_usize;
        for (container, target, source) in each(set.arguments).chain(each(set.environment)) {
            let text = if let FactOrText::Text(text) = &source.value { text.len() } else { 0 };
            let count = containers.get(container).copied().unwrap_or_default();
            sum = sum.saturating_add((EACH + target.len() + text).saturating_mul(count));
        }
        let problem = || {
            format!(
                "the arguments and variables of all containers have {sum} bytes, each counted with {EACH} more; they may have {MAX_SET}"
            )
        };
        (sum > MAX_SET).then(|| self.descriptor_error("", problem()))
    }
}

/// Each source with the container and the target.
fn each(sources: &Sources) -> impl Iterator<Item = (&str, &str, &ValueSource)> {
    sources
        .iter()
        .flat_map(|(name, all)| all.iter().map(move |(target, source)| (name.as_str(), target.as_str(), source)))
}

/// The name of the flag of an argument.
fn flag_of(argument: &str) -> &str {
    let flag = argument.trim_start_matches('-');
    flag.split_once('=').map_or(flag, |(flag, _)| flag)
}

/// What in a descriptor is no repository, no tag or no name of a file: JSON pointer and text.
fn of_patterns(descriptor: &upstream::Descriptor) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (container, image) in &descriptor.images {
        let at = format!("/images/{container}");
        if !patterns::is_repository(&image.repository) {
            let problem = "no repository: it consists of lower-case letters, digits and the characters - . _ : /, and begins and ends with a \
                           letter or a digit";
            found.push((format!("{at}/repository"), problem.to_owned()));
        }
        let newest = image.versions.tags.iter().map(|(minor, tag)| (format!("{at}/versions/tags/{minor}"), &tag.name));
        let verified = image.versions.verified.iter().enumerate();
        let verified = verified.map(|(index, tag)| (format!("{at}/versions/verified/{index}"), tag));
        for (pointer, _) in newest.chain(verified).filter(|(_, tag)| !patterns::is_tag(tag)) {
            let problem = "no tag: it consists of at most 128 letters, digits and the characters - . _, and does not begin with - or .";
            found.push((pointer, problem.to_owned()));
        }
    }
    if descriptor.cloud_config.as_ref().is_some_and(|config| !patterns::is_file(&config.file)) {
        let problem =
            "no name of a file: it consists of letters, digits and the characters - . _, and does not begin with ..";
        found.push(("/cloudConfig/file".to_owned(), problem.to_owned()));
    }
    found
}
