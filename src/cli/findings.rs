//! Reads what the report is made of (IO), with the rights of whoever asks: what they may not read is told, the rest is
//! shown.

use std::path::Path;

use crate::apply::inventory;
use crate::status::screen::Findings;
use crate::{
    apply::dry_run,
    cli::snapshot::Snapshot,
    cluster::read::Error,
    plan::Plan,
    provider::{Phase, catalog::Catalog},
};

/// Reads a cluster. An error means that the API server does not answer.
pub(super) async fn findings(
    snapshot: &Snapshot,
    catalog: &Catalog,
    images_json: Option<&Path>,
) -> Result<Findings, Error> {
    let mut findings = Findings::default();
    let cluster_operator = snapshot.status_object().await;
    findings.cluster_operator = findings.take(cluster_operator)?.flatten();
    let facts = snapshot.facts(images_json).await;
    if let Some(mut facts) = findings.take(facts)? {
        let digests = snapshot.digests(catalog, &facts).await;
        facts.digests = findings.take(digests)?;
        findings.knows_digests = facts.digests.is_some();
        findings.platform = facts.platform.clone().ok().flatten().map(|platform| platform.name);
        let plan = Plan::new(catalog, &facts, Phase::Cluster);
        let plan = plan.map(|plan| plan.labelled(&inventory::set_id(&snapshot.place().own_namespace)));
        if let Ok(plan) = &plan {
            for object in plan.objects() {
                let live = snapshot.reader().live(object).await;
                let live = findings.take(live)?;
                findings.live.push(live);
            }
            let left_over =
                dry_run::left_over(snapshot.reader(), &snapshot.place().own_namespace, plan.objects()).await;
            findings.left_over = findings.take(left_over)?.unwrap_or_default();
        }
        findings.plan = Some(plan.map_err(|error| crate::error::chain(&error)));
    }
    let pods = snapshot.list("Pod", "pods").await;
    findings.pods = findings.take(pods)?.unwrap_or_default();
    let events = snapshot.list("Event", "events").await;
    findings.events = findings.take(events)?.unwrap_or_default();
    Ok(findings)
}
