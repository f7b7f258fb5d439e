//! The command `diff`: the changes that the operator would make in a cluster.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::flags::{ClusterArgs, print, runtime, say};
use crate::{
    apply::{change::Action, diff, dry_run, inventory},
    error::chain,
    object::reference::{self, Reference},
    plan::Plan,
    provider::{Phase, external::Pinning},
    text::output,
};

#[derive(Args, Debug)]
pub struct DiffArgs {
    #[command(flatten)]
    pub cluster: ClusterArgs,

    /// The format of the differences.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: DiffFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// A unified diff of YAML.
    #[default]
    Diff,
    /// One JSON document with the action on each object and the changed fields.
    Json,
}

/// Prints the changes; the exit code says whether there are any.
pub(super) fn run(args: &DiffArgs, colors: bool) -> anyhow::Result<ExitCode> {
    let (changes, bad_input) = runtime()?.block_on(async {
        let reader = args.cluster.reader().await?;
        let catalog = args.cluster.providers.catalog(Pinning::Optional)?;
        let mut facts = reader.facts(args.cluster.images_json.as_deref()).await?;
        // A defect of the input leaves the live ConfigMaps unchanged.
        let (config, bad_input) = match reader.cloud_config(&catalog, &facts).await? {
            None => (Vec::new(), None),
            Some(Ok(synced)) => (synced.objects(&reader.namespace)?, None),
            Some(Err(error)) => (Vec::new(), Some(chain(&error))),
        };
        let mut digests = reader.digests(&catalog, &facts).await?;
        for object in &config {
            // Pods restart for the new content, not for the live content.
            let reference = Reference::config_map(object.namespace(), object.name());
            digests.insert(reference, reference::digest(object.value()));
        }
        facts.digests = Some(digests);
        let plan = Plan::new(&catalog, &facts, Phase::Cluster)?;
        if let Plan::Nothing { why } = &plan {
            say(&format!("nothing to apply: {why}"));
        }
        let plan = plan.labeled(&inventory::set_id(&reader.own_namespace));
        let changes = dry_run::changes(&reader.client, &reader.own_namespace, &config, plan.objects()).await?;
        anyhow::Ok((changes, bad_input))
    })?;
    match args.output {
        DiffFormat::Json => print(&output::json(&changes)?)?,
        DiffFormat::Diff => {
            print(&diff::unified(&changes, colors))?;
            say(&diff::summary(&changes));
        }
    }
    let refused = changes.iter().filter(|diff| diff.change.action == Action::Refuse).count();
    anyhow::ensure!(refused == 0, "{refused} of the objects could not be applied; the reasons are above");
    if let Some(error) = bad_input {
        anyhow::bail!("the cloud configuration would be left unchanged: {error}");
    }
    Ok(ExitCode::from(u8::from(changes.iter().any(|diff| diff.change.is_difference()))))
}
