//! Crashes: killed at any request, the operator ends up where it would have ended without.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use ccm_operator::{apply, object::Object, plan::Plan};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use serde_json::{Value, json};

use crate::{
    contract::{images, plans},
    lab::{CONFIG_SYNC_LEASE, LEASE, LIMIT, Lab, NAMESPACE, OWN_NAMESPACE, describe},
    support::{
        eventually,
        faults::Faults,
        objects,
        openshift::{self, Cluster},
    },
};

/// How the operator comes to have something to do.
struct Scenario {
    /// Its name in messages.
    name: &'static str,
    /// Makes the cluster what it is before the operator starts.
    prepare: for<'a> fn(&'a Lab, &'a [Object]) -> Preparation<'a>,
}

type Preparation<'a> = std::pin::Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

const CONVERGENCE: Scenario = Scenario { name: "convergence", prepare: |lab, planned| Box::pin(empty(lab, planned)) };

/// What the config-sync controllers make.
const CONFIG_MAPS: [&str; 2] = ["cloud-conf", "ccm-trusted-ca"];

/// Nothing of the operator's is there.
async fn empty(lab: &Lab, planned: &[Object]) -> Result<()> {
    let mut made: Vec<_> = planned.iter().map(|object| object.value().clone()).collect();
    made.extend(CONFIG_MAPS.map(config_map));
    made.extend([LEASE, CONFIG_SYNC_LEASE].map(lease));
    let deleted = made.iter().map(|object| objects::delete(&lab.client, object));
    futures::future::try_join_all(deleted).await?;
    openshift::delete_cluster_operator(&lab.client).await
}

/// What is planned on Azure.
fn azure() -> Result<Plan> {
    let plan = plans()?.into_iter().find(|(name, _)| *name == "Azure");
    Ok(plan.context("Azure")?.1)
}

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}})
}

fn lease(name: &str) -> Value {
    let metadata = json!({"name": name, "namespace": OWN_NAMESPACE});
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata})
}

/// What must be the same after every crash: the objects and what is said of them.
async fn state(lab: &Lab, planned: &[Object]) -> Result<Vec<(String, Value)>> {
    let mut state = Vec::new();
    for object in planned {
        let live = apply::api(&lab.client, object.kind(), object.namespace()).get_opt(object.name()).await?;
        let mut live = serde_json::to_value(live.with_context(|| format!("{} is not there", object.key()))?)?;
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
            live["metadata"].as_object_mut().context("metadata")?.remove(field);
        }
        for field in ["clusterIP", "clusterIPs"] {
            live["spec"].as_object_mut().map(|spec| spec.remove(field));
        }
        live.as_object_mut().context("an object")?.remove("status");
        state.push((object.key().to_string(), live));
    }
    for name in CONFIG_MAPS {
        let config_maps: Api<ConfigMap> = Api::namespaced(lab.client.clone(), NAMESPACE);
        state.push((name.to_owned(), serde_json::to_value(config_maps.get(name).await?.data)?));
    }
    let cluster_operator = lab.cluster_operator().await?;
    let conditions = cluster_operator["status"]["conditions"].as_array().context("conditions")?;
    let said = ["type", "status", "reason", "message"];
    let said = conditions.iter().map(|one| said.map(|field| one[field].as_str().unwrap_or_default()).join(" "));
    // They stand in the order in which they were first said.
    state.push(("ClusterOperator".into(), json!(said.collect::<BTreeSet<_>>())));
    state.push(("related objects".into(), cluster_operator["status"]["relatedObjects"].clone()));
    Ok(state)
}

/// Kills the operator after each of its requests, as many as a run without a crash has.
async fn survives(scenario: &Scenario) -> Result<()> {
    // Once: reading every provider takes longer than a whole run.
    let plan = azure()?;
    let planned = plan.objects();
    let azure = json!({"type": "Azure", "azure": {"cloudName": "AzurePublicCloud"}});
    let lab = Lab::new(&Cluster::on(azure)).await?;
    lab.write_images(&images())?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    (scenario.prepare)(&lab, planned).await?;
    let operator = lab.start_through(proxy.kubeconfig())?;
    lab.converged(&operator).await?;
    let requests = proxy.seen().len();
    ensure!(requests > 20, "{requests} requests are no convergence");
    let expected = state(&lab, planned).await?;
    operator.kill()?;
    operator.wait(LIMIT).await?;

    let mark = lab.mark().await?;
    for number in 1..=requests {
        let crash = || format!("{}: killed at request {number} of {requests}", scenario.name);
        (scenario.prepare)(&lab, planned).await?;
        let served = proxy.end_after(number);
        let operator = lab.start_through(proxy.kubeconfig())?;
        // Runs differ by a request or two, as a watch may tell of several writes at once: all is done then before.
        tokio::select! {
            biased;
            served = served => served?,
            converged = lab.converged(&operator) => drop(converged.with_context(crash)?),
        }
        operator.kill()?;
        operator.wait(LIMIT).await?;
        proxy.forget();
        let operator = lab.start_through(proxy.kubeconfig())?;
        lab.converged(&operator).await.with_context(crash)?;
        eventually("the state of a clean run", LIMIT, async || {
            let state = state(&lab, planned).await?;
            let other: Vec<_> = state.iter().zip(&expected).filter(|(found, expected)| found != expected).collect();
            ensure!(other.is_empty(), "{other:#?}");
            Ok(Some(()))
        })
        .await
        .with_context(|| format!("{}\n{}", crash(), operator.log()))?;
        operator.kill()?;
        operator.wait(LIMIT).await?;
    }
    let deleted: Vec<_> = lab.requests(mark)?.into_iter().filter(|one| one.verb.starts_with("delete")).collect();
    ensure!(deleted.is_empty(), "{:?}", deleted.iter().map(describe).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn a_convergence_survives_a_crash_at_any_request() -> Result<()> {
    survives(&CONVERGENCE).await
}
