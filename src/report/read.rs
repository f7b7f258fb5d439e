//! Reads what the report is made of (IO), with the rights of whoever asks: what they may not read is told, the rest is
//! shown.

use std::path::Path;

use super::Findings;
use crate::{
    apply,
    catalog::Catalog,
    plan::{Phase, Plan},
    reader::{Error, Reader},
};

/// Reads a cluster. An error means that the API server does not answer.
pub async fn findings(reader: &Reader, catalog: &Catalog, images_json: Option<&Path>) -> Result<Findings, Error> {
    let mut findings = Findings::default();
    let cluster_operator = reader.cluster_operator().await;
    findings.cluster_operator = findings.take(cluster_operator)?.flatten();
    let sources = reader.sources(images_json).await;
    if let Some(mut sources) = findings.take(sources)? {
        let digests = reader.digests(catalog, &sources).await;
        sources.digests = findings.take(digests)?;
        findings.knows_digests = sources.digests.is_some();
        findings.platform = sources.platform().ok().flatten().map(|platform| platform.type_.clone());
        let plan = Plan::new(catalog, &sources, Phase::Cluster);
        let plan = plan.map(|plan| plan.labelled(&apply::set_id(&reader.place().own_namespace)));
        if let Ok(plan) = &plan {
            for object in plan.objects() {
                let live = reader.live(object).await;
                let live = findings.take(live)?;
                findings.live.push(live);
            }
            let left_over = reader.left_over(plan.objects()).await;
            findings.left_over = findings.take(left_over)?.unwrap_or_default();
        }
        findings.plan = Some(plan.map_err(|error| crate::chain(&error)));
    }
    let pods = reader.list("Pod", "pods").await;
    findings.pods = findings.take(pods)?.unwrap_or_default();
    let events = reader.list("Event", "events").await;
    findings.events = findings.take(events)?.unwrap_or_default();
    Ok(findings)
}
