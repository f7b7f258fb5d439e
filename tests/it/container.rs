//! What the two Containerfiles and the release workflow have to have in common. `make e2e` tests the image itself.

use std::{fs, process::Command};

use anyhow::{Context, Result, ensure};
use ccm_operator::text::yaml;
use serde_json::{Value, json};

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

/// What a user has left in the checkout, such as a token, enters no layer.
#[test]
fn the_compiler_gets_what_it_reads_and_no_more() -> Result<()> {
    let containerfile = read("Containerfile.compile")?;
    let copied: Vec<_> = containerfile.lines().filter_map(|line| line.strip_prefix("COPY ")).collect();
    let compile: Vec<_> =
        copied.iter().filter(|one| !one.starts_with("--from=")).flat_map(|one| one.split(' ')).collect();
    assert!(!compile.contains(&"."), "{compile:?}");
    for needed in ["Cargo.toml", "Cargo.lock", "build.rs", "src", "docs/nodes.md", "hack", "tests"] {
        assert!(compile.contains(&needed), "{needed}");
    }
    let build = read("build.rs")?;
    let (_, folders) = build.split_once("for folder in [").context("the embedded folders")?;
    let (folders, _) = folders.split_once(']').context("the embedded folders")?;
    for folder in folders.split(", ").map(|folder| folder.trim_matches('"')) {
        assert!(compile.contains(&folder), "{folder}");
    }
    Ok(())
}

/// The contents of the image name each image that a part of it is from.
#[test]
fn the_list_of_the_images_contents_has_what_it_is_made_of() -> Result<()> {
    let list = tempfile::NamedTempFile::new()?;
    fs::write(list.path(), r#"{"bomFormat": "CycloneDX", "components": [{"type": "library", "name": "kube"}]}"#)?;
    let output = Command::new(repository().join("hack/image-contents.sh")).arg(list.path()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let contents: Value = serde_json::from_slice(&output.stdout)?;
    let containerfile = read("Containerfile")?;
    assert_eq!(contents["components"][0]["name"], "kube");
    for (index, base) in ["BASE", "CERTIFICATES"].into_iter().enumerate() {
        let image = argument(&containerfile, base).context(base)?;
        let component = &contents["components"][index + 1];
        let version = component["version"].as_str().context("a digest")?;
        assert!(
            image.ends_with(version) && image.starts_with(component["name"].as_str().context("a name")?),
            "{image}"
        );
    }
    Ok(())
}

#[test]
fn only_what_publishes_may_publish() -> Result<()> {
    let workflow: Value = yaml::from_str(&read(".github/workflows/release.yaml")?)?;
    let jobs = workflow["jobs"].as_object().context("jobs")?;
    for (name, job) in jobs {
        let is_publish = name == "publish";
        assert_eq!(job["permissions"] != json!({"contents": "read"}), is_publish, "{name}");
        assert_eq!(job["environment"] == "release", is_publish, "{name}");
    }
    let text = jobs["publish"].to_string();
    assert!(!text.contains("release.sh sums") && !text.contains("release.sh build"), "{text}");
    assert_eq!(jobs["publish"]["needs"], json!(["ci", "sums"]));
    assert!(jobs["ci"].to_string().contains(".ci/run"));
    let script = read("hack/release.sh")?;
    assert!(!script.contains("identity-regexp"));
    assert!(script.contains("--certificate-identity \"${SIGNER:?is the address of the repository}/.github/workflows/release.yaml@refs/tags/v$version\""));
    Ok(())
}

#[test]
fn known_vulnerabilities_are_looked_for_every_day() -> Result<()> {
    let workflow: Value = yaml::from_str(&read(".github/workflows/advisories.yaml")?)?;
    assert!(workflow["on"]["schedule"][0]["cron"].is_string(), "{workflow}");
    assert!(workflow["jobs"].to_string().contains("make advisories"));
    assert!(read("Makefile")?.contains("cargo deny --locked check advisories"));
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
