//! The embedded files (pure): providers (`assets/`, `bootstrap/`), install payload (`manifests/`), installation on any
//! Kubernetes (`install/`), guard of nodes (`guard/`), and the example for new providers (`scaffold/`).
//!
//! Only this module knows about embedding; all others take paths and bytes.

use include_dir::{Dir, include_dir};

use crate::{
    object::Object,
    provider::{
        self,
        built_in::BuiltIn,
        catalog::Catalog,
        folder::{self, ParsedProvider},
        package::Package,
        payload::Payload,
    },
    text::yaml,
};

static ASSETS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../assets");
static BOOTSTRAP: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../bootstrap");
static MANIFESTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../manifests");
static INSTALL: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../install");
static GUARD: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../guard");
static SCAFFOLD: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../scaffold/example");

/// Returns the names of the embedded providers.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = ASSETS.dirs().filter_map(|dir| dir.path().to_str()).collect();
    names.sort_unstable();
    names
}

/// Returns the files of a provider as (path from the repository's root, bytes); none if there is no provider with this name.
pub(super) fn files(name: &str) -> Vec<(String, &'static [u8])> {
    let mut files = Vec::new();
    for (root, dir) in [("assets", &ASSETS), ("bootstrap", &BOOTSTRAP)] {
        if let Some(own) = dir.get_dir(name) {
            collect(root, own, &mut files);
        }
    }
    files
}

fn all_files() -> impl Iterator<Item = (String, &'static [u8])> {
    names().into_iter().flat_map(files)
}

/// Returns every file of the install payload as (name, bytes), in the order of installation.
pub fn manifests() -> Vec<(String, &'static [u8])> {
    sorted(&MANIFESTS)
}

/// Returns every manifest of the installation on any Kubernetes as (name, bytes), in the order of installation.
pub fn install() -> Vec<(String, &'static [u8])> {
    let mut files = sorted(&INSTALL);
    // This file lists the manifests, and is not one of them.
    files.retain(|(name, _)| name != "kustomization.yaml");
    files
}

/// Returns the objects that let a cloud-controller-manager delete confirmed nodes. An error is a defect of this build, which the
/// tests exclude.
pub fn guard() -> Result<Vec<Object>, provider::Error> {
    let mut objects = Vec::new();
    for (name, bytes) in sorted(&GUARD) {
        let defect = |problem: String| provider::Error::new(&format!("guard/{name}"), None, problem);
        let text = std::str::from_utf8(bytes).map_err(|error| defect(error.to_string()))?;
        for value in yaml::documents(text).map_err(|error| defect(error.to_string()))? {
            objects.push(Object::new(value).map_err(|error| defect(error.to_string()))?);
        }
    }
    Ok(objects)
}

fn sorted(dir: &Dir<'static>) -> Vec<(String, &'static [u8])> {
    let mut files: Vec<_> = dir.files().map(|file| (file.path().display().to_string(), file.contents())).collect();
    files.sort();
    files
}

/// Returns the catalog of the embedded providers. An error is a defect of this build, which the tests exclude.
pub fn catalog() -> Result<Catalog, provider::Error> {
    let built_in = names().into_iter().map(|name| BuiltIn::new(name, files));
    Ok(Catalog::of_built_in(built_in.collect::<Result<_, _>>()?))
}

/// Returns the folders of the embedded providers.
pub fn parsed_providers() -> Vec<ParsedProvider> {
    folder::parsed_providers(all_files())
}

/// Returns the folder of one embedded provider; none if there is no provider with this name.
pub fn parsed_providers_of(name: &str) -> Vec<ParsedProvider> {
    folder::parsed_providers(files(name))
}

/// Returns the package of an embedded provider. An error is a defect of this build, which the tests exclude.
pub fn package(name: &str) -> Result<Package, provider::Error> {
    let below = format!("/{name}/");
    Package::new(name, files(name).into_iter().map(|(path, bytes)| (path.replacen(&below, "/", 1), bytes)))
}

/// Returns the files of the provider `example` for new providers, as (path in its own folder, text).
pub fn scaffold() -> Vec<(String, &'static str)> {
    let mut files = Vec::new();
    collect("", &SCAFFOLD, &mut files);
    let text = |(path, bytes): (String, &'static [u8])| Some((path[1..].to_owned(), std::str::from_utf8(bytes).ok()?));
    files.into_iter().filter_map(text).collect()
}

/// Returns the part of the embedded install payload that providers depend on.
pub fn payload() -> Payload {
    Payload::read(manifests())
}

fn collect(root: &str, dir: &Dir<'static>, files: &mut Vec<(String, &'static [u8])>) {
    files.extend(dir.files().map(|file| (format!("{root}/{}", file.path().display()), file.contents())));
    dir.dirs().for_each(|dir| collect(root, dir, files));
}
