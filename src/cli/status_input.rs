//! Reads the input of the report with the caller's permissions (IO). It lists the reads that fail, and shows the rest.

use std::path::Path;

use k8s_openapi::jiff::Timestamp;

use crate::{
    apply::{dry_run, inventory},
    cli::cluster_reader::ClusterReader,
    cluster::read::{self, Error},
    error::chain,
    object::{EVENT, POD},
    plan::Plan,
    provider::{Phase, catalog::Catalog},
    status::screen::Findings,
};

/// Reads a cluster; an error means that the API server does not answer.
pub(super) async fn read(
    reader: &ClusterReader,
    catalog: &Catalog,
    images_json: Option<&Path>,
) -> Result<Findings, Error> {
    let mut findings = Findings { now: Timestamp::now(), ..Findings::default() };
    findings.cluster_operator = findings.take(reader.status_object().await)?;
    findings.lease = findings.take(reader.lease().await)?;
    let (mut facts, refused) = reader.documents(images_json).await?;
    findings.platform = facts.platform.clone().ok().flatten().map(|platform| platform.name);
    findings.unread.extend(refused.iter().map(|error| chain(error)));
    if refused.is_empty() {
        facts.digests = findings.take(reader.digests(catalog, &facts).await)?;
        findings.knows_digests = facts.digests.is_some();
        let plan = Plan::new(catalog, &facts, Phase::Cluster);
        let plan = plan.map(|plan| plan.labeled(&inventory::set_id(&reader.own_namespace)));
        if let Ok(plan) = &plan {
            for object in plan.objects() {
                let live = findings.take(read::live(&reader.client, object).await)?;
                findings.live.push(live);
            }
            let left_over = dry_run::left_over(&reader.client, &reader.own_namespace, plan.objects()).await;
            findings.left_over = findings.take(left_over)?.unwrap_or_default();
        }
        findings.plan = Some(plan.map_err(|error| chain(&error)));
    }
    findings.pods = findings.take(reader.list(&POD).await)?.unwrap_or_default();
    findings.events = findings.take(reader.list(&EVENT).await)?.unwrap_or_default();
    Ok(findings)
}

impl Findings {
    /// The result of a read, `None` if the API server refused it, which is noted. Without an answer nothing can be read.
    fn take<T>(&mut self, read: Result<T, Error>) -> Result<Option<T>, Error> {
        match read {
            Ok(read) => Ok(Some(read)),
            Err(error) if error.is_an_answer() => {
                self.unread.push(chain(&error));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
