//! The commands of the pages about drivers, each block as its mark says, on the engine of the tests.

use std::{env, os::unix::fs::symlink, path::Path, process::Command};

use anyhow::{Result, ensure};

use super::engine;
use crate::{
    docker::owns_the_engine,
    image::ccm_cloud,
    support::{
        eventually,
        lab::{LIMIT, repository},
        process,
    },
};

#[allow(dead_code, reason = "written for the tests of all pages, which use all of it")]
#[path = "../../it/docs/page.rs"]
mod page;

use page::Mark;

/// In the order in which a newcomer needs them: the image of the first one is used by the others.
const PAGES: [&str; 5] = [
    "docs/drivers/images.md",
    "docs/drivers/README.md",
    "docs/drivers/docker.md",
    "docs/drivers/settings.md",
    "docs/drivers/conformance.md",
];

#[tokio::test]
async fn the_pages_about_drivers_are_followed() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    let (engine, programs) = (engine()?, process::temp_dir()?);
    symlink(ccm_cloud()?, programs.path().join("ccm-cloud"))?;
    let mut followed = 0;
    for page in PAGES {
        let folder = process::temp_dir()?;
        symlink(repository().join("hack"), folder.path().join("hack"))?;
        for block in page::blocks(page)?.iter().filter(|block| block.mark != Mark::NotRun) {
            for command in &block.commands {
                let expected = if let Mark::ExitCode(code) = block.mark { code } else { 0 };
                let run = async || {
                    let (code, output) = run(&engine, programs.path(), folder.path(), command).await?;
                    ensure!(code == Some(expected), "{}: exit code {code:?} of {command}\n{output}", block.place);
                    Ok(Some(()))
                };
                if block.mark == Mark::Repeated {
                    eventually("success", LIMIT, run).await?;
                } else {
                    run().await?;
                }
                followed += 1;
            }
        }
    }
    ensure!(followed > 30, "{followed} commands");
    Ok(())
}

/// The exit code of a command in the shell of a reader, whose variables last, and what it prints.
async fn run(engine: &str, programs: &Path, folder: &Path, command: &str) -> Result<(Option<i32>, String)> {
    let variables = folder.join(".variables");
    let script = format!(
        "set -o pipefail; [ ! -e {0} ] || . {0}\nset -o allexport\n{command}\ncode=$?; export -p >{0}; exit $code",
        variables.display()
    );
    let paths = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths([programs.to_owned()].into_iter().chain(env::split_paths(&paths)))?;
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(folder).env("PATH", path).env("DOCKER_HOST", engine);
    let output = tokio::task::spawn_blocking(move || bash.output()).await??;
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    Ok((output.status.code(), text))
}
