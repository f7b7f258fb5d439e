//! Rules about types (pure): every other rule, and the plan, rely on them to read a manifest as the API server does.

use std::collections::{BTreeMap, BTreeSet};

use super::SYSTEM;
use crate::{
    object::{Key, is_name},
    provider::{
        Error,
        folder::Manifest,
        verify::{
            fields::{misread, unknown},
            parts::Input,
        },
    },
};

/// What is not of its type, is null, or is no field.
pub(super) fn types(input: Input) -> Vec<Error> {
    let of_manifest = |manifest: &Manifest| {
        let found = misread(&manifest.object).into_iter();
        found.map(|(pointer, what)| manifest.defect(&pointer, what)).collect::<Vec<_>>()
    };
    input.parsed.manifests.iter().flat_map(of_manifest).collect()
}

/// The fields that [`types`] reports because nobody knows them, as JSON pointers, by object.
pub(super) fn unknown_fields(input: Input) -> BTreeMap<Key, BTreeSet<String>> {
    let pointers = |manifest: &Manifest| unknown(&manifest.object).into_iter().map(|(pointer, _)| pointer).collect();
    input.parsed.manifests.iter().map(|manifest| (manifest.object.key(), pointers(manifest))).collect()
}

/// A name is a part of paths in the API, of files that are written, and of other names.
pub(super) fn names(input: Input) -> Vec<Error> {
    let of_manifest = |manifest: &Manifest| {
        let object = &manifest.object;
        let named = [("/metadata/name", object.name()), ("/metadata/namespace", object.namespace())];
        // Names of RBAC may have colons; a rule of its own refuses those of the system.
        let is_of_rbac = object.kind().group == "rbac.authorization.k8s.io";
        let is_bad = |name: &str| match name {
            name if is_of_rbac => !name.split(':').all(is_name),
            name => !is_name(name) && !name.starts_with(SYSTEM),
        };
        let bad = named.into_iter().filter(|(_, name)| !name.is_empty() && is_bad(name));
        bad.map(|(pointer, name)| manifest.defect(pointer, format!("the name {name:?}"))).collect::<Vec<_>>()
    };
    input.parsed.manifests.iter().flat_map(of_manifest).collect()
}
