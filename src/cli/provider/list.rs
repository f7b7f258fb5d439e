//! The command `provider list`.

use std::{collections::BTreeMap, process::ExitCode};

use clap::Args;

use crate::{
    cli::{
        flags::{OutputFormat, print},
        provider_flags::ProviderFlags,
    },
    plan::show::{self, Summary},
    provider::{
        catalog::Catalog,
        embedded,
        external::{ExternalProvider, Pinning},
    },
    version::VERSION,
};

/// Flags of `provider list`.
#[derive(Args, Debug)]
pub struct ListArgs {
    /// The external providers, and the operator's flags for them.
    #[command(flatten)]
    pub providers: ProviderFlags,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Prints the list; the exit code says whether an external provider is refused.
pub(super) fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let externals = args.providers.externals(Pinning::Optional)?;
    let catalog = externals.catalog();
    let mut summaries = built_in(externals.built_in(), &catalog)?;
    externals.accepted().for_each(|one| summaries.extend(external(one, &catalog)));
    let refused = catalog.refused().iter().map(|refused| format!("{refused}\n"));
    let refused: String = refused.collect();
    // If one provider is refused, none is used.
    let notes =
        if refused.is_empty() { show::list_notes(&summaries) } else { format!("\n{refused}no provider is used\n") };
    print(&args.output.write(&summaries, || show::list_table(&summaries) + &notes)?)?;
    Ok(if catalog.refused().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn built_in(all: &Catalog, used: &Catalog) -> anyhow::Result<Vec<Summary>> {
    let mut digests = BTreeMap::new();
    for name in embedded::names() {
        digests.insert(name, embedded::package(name)?.digest().to_owned());
    }
    let digest = |name: &str| digests.get(name).map(String::as_str).unwrap_or_default();
    let unused = |name: &str| {
        let replaced = || "an external provider takes its place, as --replace-built-in says".to_owned();
        let refused = used.refused().first().map(ToString::to_string);
        refused.or_else(|| (!used.is_built_in(name)).then(replaced))
    };
    let openshift = all.providers().map(|one| Summary::of(one, digest(one.name()), VERSION).unused(unused(one.name())));
    let kubernetes =
        all.kubernetes().map(|one| Summary::of(one, digest(one.name()), VERSION).unused(unused(one.name())));
    Ok(openshift.chain(kubernetes).collect())
}

fn external(ExternalProvider { provider, origin, .. }: &ExternalProvider, catalog: &Catalog) -> Vec<Summary> {
    let openshift = provider.openshift.iter().map(|one| Summary::of(one, &origin.digest, "external"));
    let kubernetes = provider.kubernetes.iter().map(|one| Summary::of(one, &origin.digest, "external"));
    let refused = catalog.refused().first().map(ToString::to_string);
    openshift.chain(kubernetes).map(|one| one.at(&origin.path).unused(refused.clone())).collect()
}
