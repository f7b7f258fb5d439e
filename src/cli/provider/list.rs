//! The command `provider list`.

use std::{collections::BTreeMap, process::ExitCode};

use clap::Args;

use crate::{
    cli::{
        flags::{OutputFormat, print},
        providers::ProviderFlags,
    },
    plan::show::{self, Summary},
    provider::{catalog::Catalog, embedded, external::read::Externals, folder::Bundle},
    version::VERSION,
};

/// Flags of `provider list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// The providers that do not come with this program, and the flags that an operator has with them.
    #[command(flatten)]
    pub providers: ProviderFlags,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Prints the list; the exit code says whether an external provider is refused.
pub(super) fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let externals = args.providers.externals(false)?;
    let catalog = externals.catalog();
    let summaries: Vec<_> = built_in(&catalog)?.into_iter().chain(external(&externals, &catalog)).collect();
    let refused = catalog.refused().iter().map(|refused| format!("{refused}\n"));
    let refused: String = refused.collect();
    // Then none is used.
    let notes =
        if refused.is_empty() { show::list_notes(&summaries) } else { format!("\n{refused}no provider is used\n") };
    print(&args.output.write(&summaries, || show::list_table(&summaries) + &notes)?)?;
    Ok(if catalog.refused().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn built_in(catalog: &Catalog) -> anyhow::Result<Vec<Summary>> {
    let packages = embedded::packages()?;
    let digests: BTreeMap<_, _> = packages.iter().map(|package| (package.name(), package.digest())).collect();
    let summary = |bundle: &Bundle| {
        let digest = digests.get(bundle.name.as_str()).map(String::as_str).unwrap_or_default();
        let unused = if let Some(refused) = catalog.refused().first() {
            Some(refused.to_string())
        } else {
            let is_used = catalog.is_built_in(&bundle.name, bundle.flavour);
            (!is_used).then(|| "an external provider takes its place, as --replace-built-in says".to_owned())
        };
        show::summary(bundle, digest, VERSION).unused(unused)
    };
    Ok(embedded::bundles().iter().map(summary).collect())
}

fn external(externals: &Externals, catalog: &Catalog) -> Vec<Summary> {
    let summaries = externals.used().flat_map(|external| {
        let refused = catalog.refused().first().map(ToString::to_string);
        let summary = |bundle| show::summary(bundle, &external.origin.digest, "external").at(&external.origin.path);
        external.bundles.iter().map(move |bundle| summary(bundle).unused(refused.clone()))
    });
    summaries.collect()
}
