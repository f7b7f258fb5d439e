//! The images themselves: what release tooling, a kubelet and the Go operator's Deployment expect of the operator's, and that of
//! `ccm-cloud`.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tokio::sync::OnceCell;

use crate::{
    docker::{BASE, docker, image, inspect_image, run},
    support::{
        go_operator,
        lab::{binary, repository},
    },
};

/// The output of a shell in a container of the image.
async fn shell(script: &str) -> Result<String> {
    docker(&["run", "--rm", "--network=none", "--entrypoint=/bin/bash", image().await?, "-ec", script])
}

#[tokio::test]
async fn has_the_labels_and_a_user_by_number() -> Result<()> {
    let inspected = inspect_image().await?;
    let config = &inspected["Config"];
    assert_eq!(config["User"], "65532:65532");
    let labels = &config["Labels"];
    let commit = Command::new(repository().join("hack/commit.sh")).output()?;
    assert_eq!(labels["io.openshift.release.operator"], "true");
    assert_eq!(labels["org.opencontainers.image.title"], "ccm-operator");
    assert_eq!(labels["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(labels["org.opencontainers.image.revision"], String::from_utf8(commit.stdout)?.trim_end());
    assert!(labels["org.opencontainers.image.source"].as_str().is_some_and(|source| !source.is_empty()), "{labels}");
    let size = inspected["Size"].as_u64().context("the image has no size")?;
    let layers = inspected["RootFS"]["Layers"].as_array().context("the image has no layers")?.len();
    // Past the capture of the test's output: a figure, not a check.
    writeln!(io::stderr(), "image: {} MB, base included, in {layers} layers", size / 1_000_000)?;
    assert_eq!(layers, 3, "the base, the certificates and everything else");
    Ok(())
}

#[tokio::test]
async fn has_the_go_operators_programs_as_links() -> Result<()> {
    for (program, command) in [
        (go_operator::OPERATOR.program, "operator"),
        (go_operator::CONFIG_SYNC.program, "config-sync"),
        ("azure-config-credentials-injector", "azure-inject-credentials"),
    ] {
        let script = format!("[[ -L /{program} ]]; /{program} --help; echo ---; ccm-operator {command} --help");
        let help = shell(&script).await.context(program)?;
        let (own, of_command) = help.split_once("---\n").context("two texts")?;
        ensure!(own.lines().next() == of_command.lines().next(), "{program}: {help}");
    }
    Ok(())
}

#[tokio::test]
async fn has_the_payloads_manifests() -> Result<()> {
    let mut expected = Vec::new();
    for entry in repository().join("manifests").read_dir()? {
        expected.push(entry?.file_name().to_string_lossy().into_owned());
    }
    expected.sort();
    assert!(expected.iter().any(|file| file == "image-references"), "{expected:?}");
    let found = shell("cd /manifests; for file in *; do echo $file; done").await?;
    let mut found: Vec<_> = found.lines().collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    for file in expected {
        let text = shell(&format!("printf %s \"$(</manifests/{file})\"")).await?;
        assert_eq!(text, fs::read_to_string(repository().join("manifests").join(&file))?.trim_end(), "{file}");
    }
    Ok(())
}

#[tokio::test]
async fn has_bash_and_public_certificates_where_openshift_has_them() -> Result<()> {
    let bundle = shell("printf %s \"$(</etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem)\"").await?;
    let certificates = bundle.matches("-----BEGIN CERTIFICATE-----").count();
    ensure!(certificates > 50, "{certificates} certificates");
    Ok(())
}

#[tokio::test]
async fn runs_the_program_which_names_its_commit() -> Result<()> {
    let version = docker(&["run", "--rm", "--network=none", image().await?, "version", "--client"])?;
    ensure!(version.starts_with("Client  ccm-operator "), "{version}");
    // The tests' own binary is built without.
    ensure!(env::var_os("OPERATOR").is_none() || version.contains(", commit "), "{version}");
    Ok(())
}

/// The binary of `ccm-cloud`: `CCM_CLOUD`, or the one that `make e2e` builds beside the operator's.
pub(crate) fn ccm_cloud() -> Result<PathBuf> {
    env::var_os("CCM_CLOUD").map_or_else(|| Ok(binary()?.with_file_name("ccm-cloud")), |named| Ok(named.into()))
}

/// The binary of the cloud-controller-manager of this project: `CLOUD_CONTROLLER_MANAGER`, or the one that `make e2e` builds beside the operator's.
pub(crate) fn docker_ccm() -> Result<PathBuf> {
    let beside = || Ok(binary()?.with_file_name("docker-cloud-controller-manager"));
    env::var_os("CLOUD_CONTROLLER_MANAGER").map_or_else(beside, |named| Ok(named.into()))
}

/// Builds the image of the cloud-controller-manager of this project, and returns its name.
pub(crate) async fn docker_ccm_image() -> Result<&'static str> {
    const IMAGE: &str = "localhost/docker-cloud-controller-manager-e2e:latest";
    static BUILT: OnceCell<()> = OnceCell::const_new();
    BUILT.get_or_try_init(async || build_image(&docker_ccm()?, "docker-cloud-controller-manager", IMAGE).await).await?;
    Ok(IMAGE)
}

/// Builds the image of a program other than the operator.
async fn build_image(binary: &Path, program: &str, name: &str) -> Result<()> {
    // The base of the operator's image is there once that is built.
    image().await?;
    let mut build = Command::new(repository().join("hack/image.sh"));
    build.arg(binary);
    for argument in ["BASE", "CERTIFICATES"] {
        build.args(["--build-arg", &format!("{argument}={BASE}")]);
    }
    run(build.envs([("PROGRAM", program), ("CONTAINER_TOOL", "docker"), ("IMAGE", name)])).map(drop)
}

#[tokio::test]
async fn ccm_cloud_has_an_image_of_its_own() -> Result<()> {
    const IMAGE: &str = "localhost/ccm-cloud-e2e:latest";
    build_image(&ccm_cloud()?, "ccm-cloud", IMAGE).await?;
    has_one_program(IMAGE, "ccm-cloud")?;
    let drivers = docker(&["run", "--rm", "--network=none", IMAGE, "drivers"])?;
    for driver in ["docker", "fake"] {
        ensure!(drivers.contains(driver), "{drivers}");
    }
    Ok(())
}

#[tokio::test]
async fn the_cloud_controller_manager_has_an_image_of_its_own() -> Result<()> {
    let image = docker_ccm_image().await?;
    has_one_program(image, "docker-cloud-controller-manager")?;
    let version = docker(&["run", "--rm", "--network=none", image, "--version"])?;
    ensure!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    Ok(())
}

/// Succeeds if the image is that of this program, without anything of the operator.
fn has_one_program(image: &str, program: &str) -> Result<()> {
    let inspected: Value = serde_json::from_str(&docker(&["image", "inspect", image])?)?;
    let config = &inspected[0]["Config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Labels"]["org.opencontainers.image.title"], program);
    assert_eq!(config["Labels"]["io.openshift.release.operator"], Value::Null);
    let script = "cd /; for file in * usr/bin/*; do echo $file; done";
    let files = docker(&["run", "--rm", "--network=none", "--entrypoint=/bin/bash", image, "-ec", script])?;
    ensure!(files.lines().any(|file| file == format!("usr/bin/{program}")), "{files}");
    ensure!(!files.contains("manifests") && !files.contains("operator"), "{files}");
    Ok(())
}
