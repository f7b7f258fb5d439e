//! Every platform on a real control plane, with the operator as its own `ServiceAccount` and no more rights than
//! `manifests/` gives it.

use anyhow::{Context, Result};

use crate::{
    contract::{images, plans, statuses},
    lab::Lab,
    support::openshift::{Cluster, Topology},
};

#[tokio::test]
async fn the_operator_converges_on_every_platform_with_the_rights_of_the_manifests() -> Result<()> {
    let plans = plans()?;
    for (name, status) in statuses() {
        for topology in [Topology::HighlyAvailable, Topology::SingleReplica] {
            let what = format!("{name} {topology:?}");
            let lab = Lab::new(&Cluster { topology, ..Cluster::on(status.clone()) }).await?;
            lab.write_images(&images())?;
            let mark = lab.mark().await?;
            let operator = lab.start()?;
            let cluster_operator = lab.converged(&operator).await.with_context(|| what.clone())?;

            // One PodDisruptionBudget less on a single node.
            let (_, plan) = plans.iter().find(|(other, _)| *other == name).context("a plan")?;
            let count = plan.objects().len() - usize::from(topology == Topology::SingleReplica);
            let related = cluster_operator["status"]["relatedObjects"].as_array().map_or(0, Vec::len);
            assert_eq!(related, 3 + count, "{what}");
            let refused: Vec<_> =
                lab.requests(mark)?.into_iter().filter(|request| request.code >= 400 && !request.is_lease()).collect();
            assert!(refused.is_empty(), "{what}: {refused:#?}");
            let mut writes = lab.writes(mark)?;
            writes.retain(|write| !write.contains("clusteroperators"));
            let config_maps = writes.iter().filter(|write| write.contains("configmaps")).count();
            assert_eq!(config_maps, 3, "{what}: the configuration, the certificates and the inventory: {writes:#?}");
            assert_eq!(writes.len(), count + config_maps, "{what}: one write for each object: {writes:#?}");
            operator.terminate()?;
            drop(operator);
            lab.delete_all().await?;
        }
    }
    Ok(())
}
