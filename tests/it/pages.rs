//! The pages about clouds in `docs/clouds/`, made from the providers, the plan, and what stands in `docs/clouds/notes/`,
//! `docs/clouds/examples/` and `docs/clouds/published.yaml`; and the pictures of `docs/pictures/`.
//!
//! `make generate` writes them. A provider with a flavor kubernetes has a page by itself.

mod cloud;
mod comparison;
mod example;
mod index;
mod life;
pub(crate) mod markdown;
mod needs;
mod notes;
mod picture;
mod pitfalls;
mod tables;
pub(crate) mod terminal;

use std::{collections::BTreeMap, fs, path::Path};

use ccm_operator::{
    nodes::reason::Reason,
    provider::{catalog::Catalog, embedded},
    text::yaml,
};
use cloud::Cloud;
use comparison::Published;
use notes::Notes;

use crate::lab::repository;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/clouds");

/// The pictures, and what they are made from.
const PICTURES: &str = "docs/pictures";

/// The name of the container that is the cloud-controller-manager, in the manifests of every provider.
pub(crate) const CCM: &str = "cloud-controller-manager";

fn clouds(catalog: &Catalog) -> Vec<Cloud<'_>> {
    let mut all = Vec::new();
    for provider in catalog.kubernetes() {
        let name = &provider.descriptor.name;
        // A cloud without notes has the page that follows from its descriptor.
        let notes = fs::read_to_string(format!("{FOLDER}/notes/{name}.md")).unwrap_or_default();
        let example = fs::read_to_string(format!("{FOLDER}/examples/{name}.yaml")).ok();
        all.push(Cloud::new(catalog, provider, title(name), Notes::of(&notes), example.as_deref()));
    }
    all.sort_by(|one, other| one.name().cmp(other.name()));
    all
}

/// The name of a cloud for people: the beginning of the first comment in its descriptor.
fn title(name: &str) -> String {
    let path = format!("{}/assets/{name}/kubernetes/provider.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let comment = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or(name);
    comment.split([',', ':']).next().unwrap_or(name).to_owned()
}

fn published() -> Vec<Published> {
    yaml::from_str(&fs::read_to_string(format!("{FOLDER}/published.yaml")).unwrap()).unwrap()
}

/// Every page, by its name.
fn pages(catalog: &Catalog) -> BTreeMap<String, String> {
    let clouds = clouds(catalog);
    let mut pages: BTreeMap<_, _> = clouds.iter().map(|one| (format!("{}.md", one.name()), one.page())).collect();
    pages.insert("README.md".to_owned(), index::page(&clouds));
    pages.insert("comparison.md".to_owned(), comparison::page(&published(), &clouds));
    pages
}

/// Writes a generated file if that is asked for; fails if the file is another one.
pub(crate) fn is_current(path: &str, text: &str) {
    let file = repository().join(path);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&file, text).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(found == text, "{path} is out of date: run `make generate`");
}

#[test]
fn the_picture_of_the_life_of_a_node_is_current() {
    let source = fs::read_to_string(repository().join(PICTURES).join("life-of-a-node.yaml")).unwrap();
    is_current(&format!("{PICTURES}/life-of-a-node.svg"), &life::picture(&source));
}

#[test]
fn the_pages_of_clouds_are_current() {
    let pages = pages(&embedded::catalog().unwrap());
    for (name, text) in &pages {
        is_current(&format!("docs/clouds/{name}"), text);
    }
    for entry in fs::read_dir(FOLDER).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_page = Path::new(&name).extension().is_some_and(|extension| extension == "md");
        assert!(!is_page || pages.contains_key(&name), "docs/clouds/{name} is of no provider: remove it");
    }
}

#[test]
fn the_readme_has_the_figures_of_the_comparison() {
    let readme = fs::read_to_string(repository().join("README.md")).unwrap();
    let mut figures = comparison::figures(&published(), &clouds(&embedded::catalog().unwrap()));
    figures.push(format!("[one of {} reasons](docs/nodes.md)", Reason::ALL.len()));
    for figure in figures {
        assert!(readme.contains(&figure), "README.md does not say {figure:?}");
    }
}

#[test]
fn notes_are_of_providers_and_have_known_sections() {
    let catalog = embedded::catalog().unwrap();
    for entry in fs::read_dir(format!("{FOLDER}/notes")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(catalog.kubernetes_of(&name).is_ok(), "{} is of no provider", path.display());
        let unknown = Notes::of(&fs::read_to_string(&path).unwrap()).unknown;
        assert!(
            unknown.is_empty(),
            "{}: unknown sections {unknown:?}; known are {:?}",
            path.display(),
            notes::SECTIONS
        );
    }
}

#[test]
fn each_example_is_accepted_without_a_warning() {
    let catalog = embedded::catalog().unwrap();
    for cloud in clouds(&catalog) {
        let validation = cloud.example.validate(&catalog);
        assert_eq!(validation.problem(), None, "docs/clouds/{}.md", cloud.name());
        assert_eq!(validation.configuration, Some(Ok(Vec::new())), "docs/clouds/{}.md", cloud.name());
        assert!(validation.objects.is_some_and(|objects| objects.len() > 5), "docs/clouds/{}.md", cloud.name());
    }
}

#[test]
fn our_manifests_have_no_pitfall() {
    let catalog = embedded::catalog().unwrap();
    for cloud in clouds(&catalog) {
        assert_eq!(pitfalls::of(&cloud.planned), Vec::<&str>::new(), "{}", cloud.name());
        assert!((5..30).contains(&pitfalls::permissions(&cloud.planned).len()), "{}", cloud.name());
    }
}
