//! The example drivers: the checks of conformance on a real libvirt with QEMU and on moto, in `docs/drivers/conformance.md` as those of
//! Docker, and the page for readers of cloud-api-adaptor's guide.

use std::{
    env,
    ffi::OsStr,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use sha2::{Digest, Sha256};

use super::{
    driver_in_a_pod::page::{Shell, Step, steps},
    engine::{not_run, published, report_of},
};
use crate::{
    docker::{owns_the_engine, run},
    image::ccm_cloud,
    support::{lab::repository, process},
};

mod aws;

/// Runs a program beside a real libvirt.
const LIBVIRT: &str = "hack/libvirt/run.sh";
const PAGE: &str = "docs/drivers/seed-000.md";

/// The flags by which `ccm-cloud` takes the driver of a file.
fn pinned(file: &Path) -> Result<Vec<String>> {
    let digest = Sha256::digest(fs::read(file)?).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let folder = file.parent().context("no folder")?.display().to_string();
    Ok(vec!["--driver-folder".to_owned(), folder, "--driver".to_owned(), format!("{}@sha256:{digest}", file.display())])
}

fn libvirt_driver() -> PathBuf {
    repository().join("examples/drivers/libvirt/libvirt.py")
}

/// A command beside a libvirt of its own.
fn beside_libvirt(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(repository().join(LIBVIRT));
    command.arg(program).env("LIBVIRT_URI", "qemu:///system");
    command
}

#[tokio::test]
#[ignore = "makes machines with QEMU for ten minutes: make e2e-all"]
async fn the_driver_for_libvirt_passes_every_check_on_a_real_one() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let version = run(beside_libvirt("virsh").args(["--connect", "qemu:///system", "version"]))?;
    let of = |what: &str| version.lines().find_map(|line| line.strip_prefix(what)).context(version.clone());
    let title = format!("{}, with {}", of("Using library: ")?, of("Running hypervisor: ")?);
    let mut verify = beside_libvirt(ccm_cloud()?);
    verify.args(pinned(&libvirt_driver())?).args(["libvirt", "verify", "--other-image", "other-base.qcow2"]);
    verify.args(["--option", "memory=128", "-o", "json"]);
    let report = report_of(verify).await?;
    // A socket has no credentials.
    ensure!(not_run(&report) == ["I7"], "{report:#}");
    published(&title, &report)
}

#[tokio::test]
#[ignore = "makes a machine with QEMU: make e2e-all"]
async fn a_machine_has_its_user_data_gets_an_address_and_is_deleted_whatever_the_settings_are() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let mut script = beside_libvirt(repository().join("tests/e2e/drivers/external/instance.sh"));
    script.arg(ccm_cloud()?).args(pinned(&libvirt_driver())?);
    tokio::task::spawn_blocking(move || run(&mut script)).await?.map(drop)
}

#[tokio::test]
#[ignore = "makes machines with QEMU for some minutes: make e2e-all"]
async fn the_driver_for_libvirt_may_be_ended_before_each_of_its_steps() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    // The Python of the driver's first line.
    let mut script = beside_libvirt("/usr/bin/python3");
    script.args(["-I", "-B"]).arg(repository().join("tests/e2e/drivers/external/steps.py")).arg(libvirt_driver());
    tokio::task::spawn_blocking(move || run(&mut script)).await?.map(drop)
}

#[tokio::test]
#[ignore = "makes machines with QEMU: make e2e-all"]
async fn the_page_for_readers_of_the_guide_is_followed() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let (folder, programs) = (process::temp_dir()?, process::temp_dir()?);
    symlink(repository().join("examples"), folder.path().join("examples"))?;
    symlink(ccm_cloud()?, programs.path().join("ccm-cloud"))?;
    // The shell of the reader is beside a libvirt.
    let bash = programs.path().join("bash");
    fs::write(&bash, format!("#!/bin/sh\nexec {} /bin/bash \"$@\"\n", repository().join(LIBVIRT).display()))?;
    fs::set_permissions(&bash, Permissions::from_mode(0o755))?;
    let home = env::var_os("HOME").context("HOME")?;
    let cache = env::var_os("XDG_CACHE_HOME").unwrap_or_else(|| Path::new(&home).join(".cache").into());
    let followed = tokio::task::spawn_blocking(move || {
        let mut shell = Shell::start(folder.path(), programs.path(), &[("XDG_CACHE_HOME", &cache)]);
        let mut followed = 0;
        for (line, step) in steps(&repository().join(PAGE)) {
            match step {
                Step::Save { file, text } => fs::write(folder.path().join(file), text)?,
                Step::Run(commands) => {
                    followed += commands.all.len();
                    let problem = |problem| anyhow!("{PAGE}:{line}: {problem}");
                    shell.follow(&commands, str::to_owned).map_err(problem)?;
                }
                Step::Edit { .. } => bail!("{PAGE}:{line}: nothing is edited"),
            }
        }
        Ok(followed)
    });
    ensure!(followed.await?? > 20);
    Ok(())
}

/// The smallest driver is what `new-driver` writes. `UPDATE_GENERATED=1` writes it.
#[test]
fn the_minimal_driver_is_the_template() -> Result<()> {
    let (dir, example) = (process::temp_dir()?, repository().join("examples/drivers/minimal"));
    let folder = dir.path().join("minimal");
    let mut new = Command::new(ccm_cloud()?);
    run(new.args(["new-driver", "minimal", "--language", "sh", "--folder"]).arg(&folder))?;
    for file in ["minimal.sh", "README.md"] {
        let (written, published) = (folder.join(file), example.join(file));
        if env::var_os("UPDATE_GENERATED").is_some() {
            fs::copy(&written, &published)?;
        }
        let is_same = fs::read(&written)? == fs::read(&published).unwrap_or_default();
        ensure!(
            is_same,
            "{} differs from what new-driver writes: run this with UPDATE_GENERATED=1",
            published.display()
        );
    }
    Ok(())
}
