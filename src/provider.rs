//! A provider: one cloud's manifests with the descriptor that says where facts enter them (pure).

pub mod catalog;
mod descriptor;
pub mod embedded;
pub mod folder;
pub mod payload;
pub mod read;
pub mod verify;

use std::collections::BTreeSet;

use crate::{
    facts::DEFAULT_NAMESPACE,
    object::{
        self, Object,
        reference::{self, Reference},
    },
    text::suggest::did_you_mean,
};

pub use descriptor::{Descriptor, FactOrText, ImageSource, Platform, ValueSource};

/// Where the plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The bootstrap VM: static pods.
    Bootstrap,
    /// The running cluster.
    Cluster,
}

/// What is wrong with a provider's folder; starts with the file, and the line where it is known.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{file}{}: {problem}", line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct Error {
    /// The file, relative to the catalog's root.
    pub file: String,
    /// The line, from 1.
    pub line: Option<u64>,
    /// What is wrong and how to mend it.
    pub problem: String,
}

/// A provider whose folder was read and checked.
#[derive(Clone, Debug)]
pub struct Provider {
    /// Its descriptor.
    pub descriptor: Descriptor,
    /// The manifests of `assets/<name>/`, as they stand.
    pub manifests: Vec<Object>,
    /// The manifests of `bootstrap/<name>/`, as they stand.
    pub bootstrap_manifests: Vec<Object>,
}

impl Provider {
    /// Puts a provider together and checks that its descriptor fits its manifests; `file` is the descriptor's path.
    pub fn new(
        descriptor: Descriptor,
        manifests: Vec<Object>,
        bootstrap_manifests: Vec<Object>,
        file: &str,
    ) -> Result<Self, Error> {
        let provider = Self { descriptor, manifests, bootstrap_manifests };
        let error = |line, problem| Err(Error { file: file.to_owned(), line, problem });
        let containers: Vec<&str> =
            container_names(&provider.manifests).chain(container_names(&provider.bootstrap_manifests)).collect();
        let of_cluster: Vec<&str> = container_names(&provider.manifests).collect();
        let Descriptor { images, arguments, environment, .. } = &provider.descriptor;
        let images_named = images.iter().map(|(name, source)| (name, source.referenced.line(), &containers));
        let arguments_named = arguments.iter().map(|(name, source)| (name, source.referenced.line(), &of_cluster));
        let variables_named = environment.iter().map(|(name, source)| (name, source.referenced.line(), &of_cluster));
        let mut named = images_named.chain(arguments_named).chain(variables_named);
        if let Some((name, line, known)) = named.find(|(name, _, known)| !known.contains(&name.as_str())) {
            let hint = did_you_mean(name, known.iter().copied());
            return error(Some(line), format!("no manifest has a container {name:?}{hint}"));
        }
        if let Some(name) = containers.iter().find(|name| !images.contains_key(**name)) {
            return error(None, format!("`images` says nothing of container {name:?}: add its key and tag"));
        }
        for (container, sources) in arguments {
            if let Some(flag) = sources.value.keys().find(|flag| provider.has_argument(container, flag)) {
                let line = sources.referenced.line();
                return error(Some(line), format!("container {container:?} has {flag} in its manifest already"));
            }
        }
        Ok(provider)
    }

    fn has_argument(&self, container: &str, flag: &str) -> bool {
        let flag = flag.trim_start_matches('-');
        self.manifests
            .iter()
            .filter_map(Object::pod_spec)
            .flat_map(object::containers)
            .filter(|candidate| object::container_name(candidate) == container)
            .flat_map(|container| ["command", "args"].map(|list| &container[list]))
            .filter_map(serde_json::Value::as_array)
            .flatten()
            .filter_map(|argument| argument.as_str()?.trim_start_matches('-').split('=').next())
            .any(|name| name == flag)
    }

    /// The ConfigMaps and Secrets that its pods refer to, when its objects are in this namespace.
    pub fn references(&self, namespace: &str) -> BTreeSet<Reference> {
        let workloads = self.manifests.iter().filter_map(|object| Some((object.namespace(), object.pod_spec()?)));
        let in_namespace = |own: &'_ str| if own == DEFAULT_NAMESPACE { namespace.to_owned() } else { own.to_owned() };
        workloads.flat_map(|(own, pod)| reference::references(pod, &in_namespace(own))).collect()
    }

    /// The provider's name.
    pub fn name(&self) -> &str {
        &self.descriptor.name
    }
}

fn container_names(manifests: &[Object]) -> impl Iterator<Item = &str> {
    manifests.iter().filter_map(Object::pod_spec).flat_map(object::containers).map(object::container_name)
}
