//! Two API servers in one process: each cluster converges, and one that does not answer keeps nothing from the other.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use ccm_operator::{
    cluster::{client, request},
    controllers::{
        Controllers,
        metrics::Metrics,
        view::{View, ViewSettings},
    },
    facts::Settings,
    object::KINDS,
    plan::limits::Limits,
    process::{
        health::Health,
        leadership::{Authority, Deadline, Leadership, Now},
    },
    provider::{embedded, external::read::ExternalProviders},
    text::kubectl::Access,
};
use kube::api::DeleteParams;
use tokio::sync::watch;

use crate::{
    lab::{LIMIT, Lab, NAMESPACE, OWN_NAMESPACE, VERSION, conditions},
    support::{
        eventually,
        faults::{Fault, Faults, Rule},
        openshift::Cluster,
    },
};

/// The object that the test deletes and the operator has to restore.
const SERVICE: &str = "aws-cloud-controller-manager";

/// The signals to the controllers of a cluster.
struct Told {
    leadership: watch::Sender<Leadership>,
    shutdown: watch::Sender<bool>,
}

impl Told {
    fn new() -> Self {
        let until = Deadline::after(Now::read(), Duration::from_secs(3600));
        Self { leadership: watch::channel(Leadership::Leading(until)).0, shutdown: watch::channel(false).0 }
    }

    fn authority(&self) -> Authority {
        Authority { leadership: self.leadership.subscribe(), shutdown: self.shutdown.subscribe() }
    }

    /// The controllers of `ccm-operator operator` for one cluster, without an election.
    async fn controllers(&self, lab: &Lab, kubeconfig: &Path, metrics: Metrics) -> Result<Controllers> {
        let access = Access { kubeconfig: Some(kubeconfig.to_owned()), ..Access::default() };
        let client = client::connect(&access, request::REQUEST_TIMEOUT, None, None).await?;
        let settings = ViewSettings {
            cluster: Settings {
                namespace: NAMESPACE.to_owned(),
                release_version: Some(VERSION.to_owned()),
                ..Settings::default()
            },
            own_namespace: OWN_NAMESPACE.to_owned(),
            with_operator: true,
            with_config_sync: true,
            namespaces: Vec::new(),
            node_deletion: false,
            limits: Limits::default(),
            remove_providers: Vec::new(),
        };
        let externals = ExternalProviders::none(embedded::catalog()?);
        let view = View::new((client, metrics), externals, settings, watch::channel(None).0);
        Ok(Controllers::new(view, self.shutdown.subscribe(), Health::starting())
            .with_config_sync(self.authority(), lab.system_bundle())
            .with_operator(self.authority(), lab.images_file(), false))
    }
}

/// Waits until the ClusterOperator says that all is well.
async fn converged(lab: &Lab) -> Result<()> {
    eventually("the conditions", LIMIT, async || {
        let found = conditions(&lab.cluster_operator().await?);
        let is_well = ["Available=True", "Progressing=False", "Degraded=False"];
        ensure!(is_well.iter().all(|one| found.iter().any(|other| other == one)), "{found:?}");
        Ok(Some(()))
    })
    .await
}

fn services(lab: &Lab) -> Result<kube::Api<kube::api::DynamicObject>> {
    let kind = KINDS.iter().find(|kind| kind.kind == "Service").context("no such kind")?;
    Ok(request::api(&lab.client, kind, NAMESPACE))
}

async fn delete(lab: &Lab) -> Result<()> {
    services(lab)?.delete(SERVICE, &DeleteParams::default()).await?;
    Ok(())
}

async fn exists(lab: &Lab) -> Result<bool> {
    let found = services(lab)?.get_opt(SERVICE).await?;
    Ok(found.is_some_and(|service| service.metadata.deletion_timestamp.is_none()))
}

async fn comes_back(lab: &Lab) -> Result<()> {
    eventually("the Service", LIMIT, async || Ok(exists(lab).await?.then_some(()))).await
}

#[tokio::test]
async fn two_clusters_converge_in_one_process_and_one_that_hangs_does_not_block_the_other() -> Result<()> {
    let (first, second) = (Lab::new(&Cluster::default()).await?, Lab::new(&Cluster::default()).await?);
    let proxy = Faults::start(first.kubeconfig(), first.dir.path()).await?;
    let told = [Told::new(), Told::new()];
    let metrics = [Metrics::default(), Metrics::default()];
    let of_first = told[0].controllers(&first, proxy.kubeconfig(), metrics[0].clone()).await?;
    let of_second = told[1].controllers(&second, second.kubeconfig(), metrics[1].clone()).await?;
    let both = futures::future::join(of_first.run(), of_second.run());
    let work = async {
        converged(&first).await?;
        converged(&second).await?;
        // Every further request of the first one gets no answer.
        proxy.inject(vec![Rule { fault: Fault::Held, applies: |_| true, times: usize::MAX }]);
        delete(&first).await?;
        delete(&second).await?;
        comes_back(&second).await?;
        ensure!(!exists(&first).await?, "nothing of the first one was held");
        // Counted when the answer has arrived, which is after the Service exists.
        eventually("the repair is counted where it was made", LIMIT, async || {
            let repairs = metrics.each_ref().map(|one| one.text().contains("drift_repairs_total{kind=\"Service\"} 1"));
            ensure!(repairs == [false, true], "{repairs:?}");
            Ok(Some(()))
        })
        .await?;
        proxy.inject(Vec::new());
        proxy.release();
        comes_back(&first).await?;
        converged(&first).await
    };
    tokio::select! {
        result = work => result,
        _ = both => bail!("the controllers have ended by themselves"),
    }
}
