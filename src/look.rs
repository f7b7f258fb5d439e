//! The commands that look at a cluster and write nothing to it: `diff` and `status`.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use ccm_operator::{
    apply,
    catalog::Catalog,
    chain,
    cli::{ClusterArgs, DiffArgs, DiffFormat, OutputFormat, StatusArgs},
    client,
    config_hash::{self, Reference},
    diff, embedded,
    facts::Sources,
    object::Object,
    output,
    plan::{Phase, Plan},
    reader::{Place, Reader},
    report::{self, Report},
};
use k8s_openapi::jiff::Timestamp;

use crate::{print, run, say};

/// How often `status --watch` looks.
const WATCH_PERIOD: Duration = Duration::from_secs(2);

/// Empties a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// A reader of the cluster that a command looks at.
async fn reader(args: &ClusterArgs) -> anyhow::Result<Reader> {
    let client = client::connect(args.kubeconfig.as_deref(), None).await?;
    Ok(Reader::new(client, Place { namespace: args.namespace.clone(), own_namespace: run::own_namespace() }))
}

/// Whether nothing would change.
pub(crate) fn diff(args: &DiffArgs) -> anyhow::Result<bool> {
    let changes = run::runtime()?.block_on(async {
        let reader = reader(&args.cluster).await?;
        let catalog = embedded::catalog()?;
        let mut sources = reader.sources(args.cluster.images_json.as_deref()).await?;
        let config = cloud_config(&reader, &catalog, &sources).await?;
        let mut digests = reader.digests(&catalog, &sources).await?;
        for object in &config {
            // The pods are restarted by what it becomes, not by what it is.
            let reference = Reference::config_map(object.namespace(), object.name());
            digests.insert(reference, config_hash::digest(object.value()));
        }
        sources.digests = Some(digests);
        let plan = Plan::new(&catalog, &sources, Phase::Cluster)?;
        if let Plan::Nothing { why } = &plan {
            say(&format!("nothing is to be applied: {why}"));
        }
        let plan = plan.labelled(&apply::set_id(&reader.place().own_namespace));
        anyhow::Ok(diff::cluster::changes(&reader, &config, plan.objects()).await?)
    })?;
    match args.output {
        DiffFormat::Json => print(&output::json(&changes)?)?,
        DiffFormat::Diff => {
            let colors = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
            print(&diff::unified(&changes, colors))?;
            say(&diff::summary(&changes));
        }
    }
    let refused = changes.iter().filter(|change| change.action == diff::Action::Refuse).count();
    anyhow::ensure!(refused == 0, "the API server refuses {refused} of the objects");
    Ok(!changes.iter().any(diff::Change::is_difference))
}

/// The ConfigMaps of the cloud's configuration, as they are to be. What cannot be used is said: the last good ones stay.
async fn cloud_config(reader: &Reader, catalog: &Catalog, sources: &Sources) -> anyhow::Result<Vec<Object>> {
    match reader.cloud_config(catalog, sources).await? {
        None => Ok(Vec::new()),
        Some(Ok(synced)) => Ok(synced.objects(&reader.place().namespace)?),
        Some(Err(error)) => {
            say(&format!("the cloud configuration stays as it is: {}", chain(&error)));
            Ok(Vec::new())
        }
    }
}

/// Whether the cluster's cloud-controller-manager is well.
pub(crate) fn status(args: &StatusArgs) -> anyhow::Result<bool> {
    let catalog = embedded::catalog()?;
    run::runtime()?.block_on(async {
        let reader = reader(&args.cluster).await?;
        let clears = args.watch && args.output == OutputFormat::Table && io::stdout().is_terminal();
        let mut shown = None;
        loop {
            let findings = report::read::findings(&reader, &catalog, args.cluster.images_json.as_deref()).await;
            let report = match findings {
                Ok(findings) => Report::new(&findings, &args.cluster.namespace),
                // Who watches waits for the API server to come back.
                Err(error) if args.watch && shown.is_some() => {
                    say(&chain(&error));
                    tokio::time::sleep(WATCH_PERIOD).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            // Ages grow on a terminal; elsewhere only what has changed is news.
            if clears || shown.as_ref() != Some(&report) {
                let text = match args.output {
                    OutputFormat::Table => report::text::screen(&report, Timestamp::now()),
                    OutputFormat::Json => output::json(&report)?,
                    OutputFormat::Yaml => output::yaml(&report)?,
                };
                print(&if clears { format!("{CLEAR}{text}") } else { text })?;
            }
            if !args.watch {
                return Ok(report.healthy);
            }
            shown = Some(report);
            tokio::time::sleep(WATCH_PERIOD).await;
        }
    })
}
