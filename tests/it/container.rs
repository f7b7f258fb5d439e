//! What the two Containerfiles and the release workflow have to have in common. `make e2e` tests the image itself.

use std::fs;

use anyhow::{Context, Result};

use crate::lab::repository;

fn read(name: &str) -> Result<String> {
    fs::read_to_string(repository().join(name)).with_context(|| name.to_owned())
}

/// The value of an `ARG` in the text of a Containerfile.
fn argument<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix("ARG ")?.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn both_containerfiles_make_the_same_image() -> Result<()> {
    let (prebuilt, compiled) = (read("Containerfile")?, read("Containerfile.compile")?);
    for base in ["BASE", "CERTIFICATES"] {
        assert!(argument(&prebuilt, base).is_some_and(|image| image.contains("@sha256:")), "{base}");
        assert_eq!(argument(&prebuilt, base), argument(&compiled, base), "{base}");
    }
    let image =
        |text: &str| text.split_once("FROM ${BASE}").map(|(_, image)| image.replace("--from=compile /image/", "."));
    assert_eq!(image(&prebuilt).context("no FROM ${BASE}")?, image(&compiled).context("no FROM ${BASE}")?);
    Ok(())
}

#[test]
fn releases_are_compiled_by_the_compiler_of_the_containerfile() -> Result<()> {
    let containerfile = read("Containerfile.compile")?;
    let compiler = argument(&containerfile, "RUST").context("no compiler")?;
    let workflow = read(".github/workflows/release.yaml")?;
    let container = workflow.lines().find_map(|line| line.trim().strip_prefix("container: "));
    assert_eq!(container, Some(compiler));
    Ok(())
}
