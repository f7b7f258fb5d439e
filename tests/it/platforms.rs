//! Every platform on a real control plane, with the operator as its own `ServiceAccount` and only the permissions that
//! `manifests/` gives it.

use anyhow::{Context, Result, bail, ensure};
use ccm_operator::{plan::Plan, provider::embedded};

use crate::{
    contract::{clusters, images, plans},
    lab::{Lab, for_each},
    support::openshift::{Cluster, Topology},
};

/// Converges on every platform; `without` are the kinds that the topology does without.
async fn converges_on_every_platform(topology: Topology, without: &[&str]) -> Result<()> {
    let (catalog, plans) = (embedded::catalog()?, plans()?);
    for_each(clusters(), async |(name, cluster)| {
        let lab = Lab::new(&Cluster { topology, ..cluster }).await?;
        lab.write_images(&images())?;
        let mark = lab.mark().await?;
        let operator = lab.start()?;
        let cluster_operator = lab.converged(&operator).await.context(name)?;

        let (_, plan) = plans.iter().find(|(other, _)| *other == name).context("a plan")?;
        let Plan::Objects { provider, .. } = plan else { bail!("{name}: no provider serves it") };
        let provider = catalog.providers().find(|one| one.name() == provider).context("a provider")?;
        let count = plan.objects().iter().filter(|object| !without.contains(&object.kind().kind)).count();
        let related = cluster_operator["status"]["relatedObjects"].as_array().map_or(0, Vec::len);
        ensure!(related == 3 + count, "{name}: {related} related objects");
        let requests = lab.requests(mark).await?;
        let refused: Vec<_> = requests.iter().filter(|request| request.is_refused() && !request.is_lease()).collect();
        ensure!(refused.is_empty(), "{name}: {refused:#?}");
        let mut writes = lab.writes(mark).await?;
        writes.retain(|write| !write.contains("clusteroperators"));
        let config_maps = writes.iter().filter(|write| write.contains("configmaps")).count();
        let expected = 2 + usize::from(provider.descriptor.cloud_config.is_some());
        ensure!(
            config_maps == expected,
            "{name}: the certificates, the inventory, the configuration if any: {writes:#?}"
        );
        ensure!(writes.len() == count + config_maps, "{name}: one write for each object: {writes:#?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_operator_converges_on_every_platform_with_the_permissions_of_the_manifests() -> Result<()> {
    converges_on_every_platform(Topology::HighlyAvailable, &[]).await
}

#[tokio::test]
async fn the_operator_converges_on_a_single_node_of_every_platform() -> Result<()> {
    converges_on_every_platform(Topology::SingleReplica, &["PodDisruptionBudget"]).await
}
