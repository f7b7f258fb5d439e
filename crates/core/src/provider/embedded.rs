//! The embedded files (pure): providers (`assets/`, `bootstrap/`), install payload (`manifests/`), installation on any
//! Kubernetes (`install/`), guard of nodes (`guard/`), and the provider from which new ones are made (`scaffold/`).
//!
//! Only this module knows about embedding; all others take paths and bytes.

use include_dir::{Dir, include_dir};

use crate::{
    object::Object,
    provider::{
        self,
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

/// The names of the embedded providers.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<_> = ASSETS.dirs().filter_map(|dir| dir.path().to_str()).collect();
    names.sort_unstable();
    names
}

/// The files of a provider as (path from the repository's root, bytes); none if there is no provider of this name.
fn files(name: &str) -> Vec<(String, &'static [u8])> {
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

/// Every file of the install payload as (name, bytes), in the order of installing.
pub fn manifests() -> Vec<(String, &'static [u8])> {
    sorted(&MANIFESTS)
}

/// Every manifest of the installation on any Kubernetes as (name, bytes), in the order of installing.
pub fn install() -> Vec<(String, &'static [u8])> {
    let mut files = sorted(&INSTALL);
    // It lists the manifests, and is none.
    files.retain(|(name, _)| name != "kustomization.yaml");
    files
}

/// The objects with which a cloud-controller-manager may delete the nodes that are confirmed. An error is a defect of this build,
/// which the tests exclude.
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

/// The catalog of the embedded providers. An error is a defect of this build, which the tests exclude.
pub fn catalog() -> Result<Catalog, provider::Error> {
    Catalog::new(all_files())
}

/// The embedded providers' folders.
pub fn parsed_providers() -> Vec<ParsedProvider> {
    folder::parsed_providers(all_files())
}

/// The folder of one of them; none if there is no provider of this name.
pub fn parsed_providers_of(name: &str) -> Vec<ParsedProvider> {
    folder::parsed_providers(files(name))
}

/// The package of an embedded provider. An error is a defect of this build, which the tests exclude.
pub fn package(name: &str) -> Result<Package, provider::Error> {
    let below = format!("/{name}/");
    Package::new(name, files(name).into_iter().map(|(path, bytes)| (path.replacen(&below, "/", 1), bytes)))
}

/// The files of the provider `example`, from which new ones are made, as (path in its own folder, text).
pub fn scaffold() -> Vec<(String, &'static str)> {
    let mut files = Vec::new();
    collect("", &SCAFFOLD, &mut files);
    let text = |(path, bytes): (String, &'static [u8])| Some((path[1..].to_owned(), std::str::from_utf8(bytes).ok()?));
    files.into_iter().filter_map(text).collect()
}

/// The part of the embedded install payload that they depend on.
pub fn payload() -> Payload {
    Payload::read(manifests())
}

fn collect(root: &str, dir: &Dir<'static>, files: &mut Vec<(String, &'static [u8])>) {
    files.extend(dir.files().map(|file| (format!("{root}/{}", file.path().display()), file.contents())));
    dir.dirs().for_each(|dir| collect(root, dir, files));
}
