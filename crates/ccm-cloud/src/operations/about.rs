//! What a driver can do, and its settings. Asks nothing of the cloud.

use ccm_drivers::{
    contract::{Mode, capabilities as advertised},
    settings::{self, Declaration, READ_ONLY, declarations, show},
};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Call;
use crate::{
    failure::DONE,
    flags::settings,
    output::{Output, table},
    terminal::print,
};

#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    /// A format that a deployment takes: the values of all settings, with comments. Without it, the settings are listed.
    #[arg(long, value_enum, conflicts_with = "output")]
    format: Option<Deployment>,

    #[command(flatten)]
    output: Output,
}

/// The format of a deployment.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Deployment {
    /// Lines for a file of environment variables; without secret values.
    Env,
    /// The manifest of a `ConfigMap` with the values that are not secret.
    Configmap,
    /// The manifest of a Secret with the values that are secret.
    Secret,
}

/// A capability and how the driver has it.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    #[serde(flatten)]
    mode: Mode,
}

pub(super) async fn capabilities(call: &Call, output: Output) -> anyhow::Result<u8> {
    let values = call.values()?;
    let driver = call.driver.open(&values).await?;
    let rows: Vec<_> = advertised(&*driver)
        .into_iter()
        .map(|(capability, mode)| {
            let read_only = mode.read_only || values.is(READ_ONLY);
            Row { name: capability.name(), mode: Mode { read_only, ..mode } }
        })
        .collect();
    driver.close().await?;
    output.print(&rows, || {
        let word = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let row = |Row { name, mode }: &Row| [(*name).to_owned(), word(mode.read_only), word(mode.emulated)];
        table(["CAPABILITY", "READ-ONLY", "EMULATED"], rows.iter().map(row))
    })?;
    Ok(DONE)
}

pub(super) fn config(call: &Call, args: &ConfigArgs) -> anyhow::Result<u8> {
    let name = call.driver.name();
    if let Some(format) = args.format {
        let format = match format {
            Deployment::Env => settings::Format::Env,
            Deployment::Configmap => settings::Format::ConfigMap,
            Deployment::Secret => settings::Format::Secret,
        };
        print(&show(name, settings(call.driver), &call.given()?, format)?)?;
        return Ok(DONE);
    }
    let all = declarations(name, settings(call.driver));
    args.output.print(&all, || {
        let row = |one: &Declaration| {
            let Declaration { name, variable, kind, default, required, secret, help, .. } = one.clone();
            let notes = [required.then_some("Required. "), secret.then_some("Secret. ")];
            let help = notes.into_iter().flatten().collect::<String>() + &help;
            [name, variable, kind.placeholder().to_lowercase(), default.unwrap_or_default(), help]
        };
        table(["NAME", "VARIABLE", "TYPE", "DEFAULT", "HELP"], all.iter().map(row))
    })?;
    Ok(DONE)
}
