//! Crashes: an operator that is killed at any request leads to the same state after a restart as one that is not.
//!
//! `make test` kills it after each write, `make crash` after each request.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use ccm_operator::apply::inventory;
use ccm_operator::cluster::request;
use ccm_operator::{
    apply::{
        inventory::Inventory,
        steps::{LiveState, Steps},
        write,
    },
    cluster::request::REQUEST_TIMEOUT,
    object::{KINDS, Object, PART_OF_LABEL},
};
use futures::{StreamExt, TryStreamExt, future::try_join_all, stream};
use kube::{
    Api,
    api::{DynamicObject, ListParams},
};
use serde_json::{Value, json};

use crate::{
    contract::{images, plans},
    lab::{CONFIG_SYNC_LEASE, INVENTORY, LEASE, LIMIT, Lab, NAMESPACE, OWN_NAMESPACE, config_maps},
    recreate,
    support::{
        audit::Request,
        eventually,
        faults::{Faults, Seen},
        objects,
        openshift::{self, Cluster},
        operator::Operator,
    },
};

/// The state of the cluster when the operator starts on Azure.
enum Found {
    /// None of its objects.
    Nothing,
    /// The objects of another platform's provider, and their inventory.
    OtherPlatform(Vec<Object>),
    /// Objects with another value in an immutable field.
    Unchangeable,
}

/// The kinds of these objects in [`Found::Unchangeable`].
const UNCHANGEABLE: [&str; 4] = ["ClusterRoleBinding", "RoleBinding", "DaemonSet", "Deployment"];

/// Also kills the operator after reads, if set (`make crash`).
const EVERY_REQUEST: &str = "CRASH_EVERY_REQUEST";

/// The ConfigMaps of the config-sync controllers.
const CONFIG_MAPS: [&str; 2] = ["cloud-conf", "ccm-trusted-ca"];

/// The objects of a platform's plan, with our label.
fn planned_on(platform: &str) -> Result<Vec<Object>> {
    let plan = plans()?.into_iter().find(|(name, _)| *name == platform).context("a platform")?.1;
    Ok(plan.labeled(&inventory::set_id(OWN_NAMESPACE)).objects().to_vec())
}

/// A cluster on Azure, and the operator's proxy to it.
struct Stage {
    lab: Lab,
    proxy: Faults,
    planned: Vec<Object>,
    found: Found,
}

impl Stage {
    async fn new(found: Found) -> Result<Self> {
        let azure = json!({"type": "Azure", "azure": {"cloudName": "AzurePublicCloud"}});
        let lab = Lab::new(&Cluster::on(azure)).await?;
        lab.write_images(&images())?;
        let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
        Ok(Self { lab, proxy, planned: planned_on("Azure")?, found })
    }

    /// Brings the cluster to the state before the operator starts.
    async fn prepare(&self, found: &Found) -> Result<()> {
        let named = |api_version: &str, kind: &str, namespace: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
        let mut there: Vec<_> = self.planned.iter().map(|object| object.value().clone()).collect();
        there.extend(CONFIG_MAPS.map(|name| named("v1", "ConfigMap", NAMESPACE, name)));
        there.push(named("v1", "ConfigMap", OWN_NAMESPACE, INVENTORY));
        let leases = [LEASE, CONFIG_SYNC_LEASE];
        there.extend(leases.map(|name| named("coordination.k8s.io/v1", "Lease", OWN_NAMESPACE, name)));
        let client = &self.lab.client;
        // HTTP/1 needs a connection for each concurrent request.
        let deleted = stream::iter(&there).map(|object| objects::delete(client, object)).buffer_unordered(4);
        deleted.try_collect::<Vec<_>>().await?;
        openshift::delete_cluster_operator(client).await?;
        match found {
            Found::Nothing => {}
            Found::OtherPlatform(objects) => {
                let budget = || Some(REQUEST_TIMEOUT);
                let inventory = Inventory::of(objects).config_map(OWN_NAMESPACE);
                write::write_inventory(client, &inventory, None, budget()).await?;
                let applied = stream::iter(objects).map(|object| {
                    let mut steps = Steps::new(object, LiveState::Absent);
                    let next = steps.first();
                    write::apply(client, steps, next, budget)
                });
                applied.buffer_unordered(4).try_collect::<Vec<_>>().await?;
            }
            Found::Unchangeable => {
                let objects = self.planned.iter().filter(|object| UNCHANGEABLE.contains(&object.kind().kind));
                let made = objects.map(|object| {
                    recreate::create(&self.lab, object, |value| {
                        if value["roleRef"].is_null() {
                            recreate::with_another_selector(value);
                        } else {
                            value["roleRef"]["name"] = "another".into();
                        }
                    })
                });
                ensure!(try_join_all(made).await?.len() == UNCHANGEABLE.len(), "one of each kind");
            }
        }
        Ok(())
    }

    fn start(&self) -> Result<Operator> {
        self.lab.start_through(self.proxy.kubeconfig())
    }

    /// The state that must be the same after every crash: the objects with our label, those of the other controllers, the
    /// inventory and the report.
    async fn state(&self) -> Result<BTreeMap<String, Value>> {
        let client = &self.lab.client;
        let label = ListParams::default().labels(&format!("{PART_OF_LABEL}={}", inventory::set_id(OWN_NAMESPACE)));
        let lists = KINDS.iter().map(async |kind| {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &request::resource(kind));
            anyhow::Ok((kind, api.list(&label).await?))
        });
        let mut state = BTreeMap::new();
        for (kind, objects) in try_join_all(lists).await? {
            for object in objects {
                let mut live = serde_json::to_value(object)?;
                for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
                    live["metadata"].as_object_mut().context("metadata")?.remove(field);
                }
                for field in ["clusterIP", "clusterIPs"] {
                    live["spec"].as_object_mut().map(|spec| spec.remove(field));
                }
                live.as_object_mut().context("an object")?.remove("status");
                state.insert(write::key_of(kind, &live).to_string(), live);
            }
        }
        for name in CONFIG_MAPS {
            let config_map = config_maps(client, NAMESPACE).get(name).await?;
            state.insert(name.to_owned(), json!(config_map.data));
        }
        let inventory = config_maps(client, OWN_NAMESPACE).get(INVENTORY).await?;
        let metadata = (inventory.metadata.labels, inventory.metadata.annotations);
        state.insert(INVENTORY.to_owned(), json!([inventory.data, metadata]));
        let cluster_operator = self.lab.cluster_operator().await?;
        let conditions = cluster_operator["status"]["conditions"].as_array().context("conditions")?;
        let said = ["type", "status", "reason", "message"];
        let said = conditions.iter().map(|one| said.map(|field| one[field].as_str().unwrap_or_default()).join(" "));
        // Conditions are in the order in which they were first reported.
        state.insert("ClusterOperator".to_owned(), json!(said.collect::<BTreeSet<_>>()));
        state.insert("related objects".to_owned(), cluster_operator["status"]["relatedObjects"].clone());
        Ok(state)
    }

    /// Runs an operator until it is done; returns its requests.
    async fn run(&self, expected: Option<&BTreeMap<String, Value>>) -> Result<Vec<Seen>> {
        self.proxy.forget();
        let operator = self.start()?;
        done(&operator).await?;
        self.lab.converged(&operator).await?;
        let seen = self.proxy.seen();
        if let Some(expected) = expected {
            let settled = eventually("the state of a clean run", LIMIT, async || {
                let state = self.state().await?;
                let names: BTreeSet<_> = state.keys().chain(expected.keys()).collect();
                let other = names.into_iter().find(|name| state.get(*name) != expected.get(*name));
                if let Some(name) = other {
                    let text =
                        |state: &BTreeMap<String, Value>| state.get(name).map_or("nothing".into(), Value::to_string);
                    anyhow::bail!("{name}: {}\ninstead of {}", text(&state), text(expected));
                }
                Ok(Some(()))
            });
            settled.await.with_context(|| operator.log())?;
        }
        end(operator).await?;
        Ok(if expected.is_some() { self.proxy.seen() } else { seen })
    }

    /// Kills an operator once its request of this number is served.
    async fn crash(&self, number: usize) -> Result<()> {
        let served = self.proxy.end_after(number);
        let operator = self.start()?;
        // Runs differ by a request or two, as a watch may deliver several events at once. A shorter run ends earlier.
        tokio::select! {
            biased;
            served = served => served?,
            done = done(&operator) => done?,
        }
        end(operator).await
    }

    /// Checks that no planned object was deleted, except those that must be recreated, at most once. A deletion of another
    /// state than the one that was seen is refused, and does not count.
    fn deletes_nothing_planned(&self, requests: &[Request]) -> Result<()> {
        let deleted: Vec<_> = requests.iter().filter(|one| one.verb == "delete" && one.code < 300).collect();
        for object in &self.planned {
            let is_recreated = matches!(self.found, Found::Unchangeable) && UNCHANGEABLE.contains(&object.kind().kind);
            let is_it = |one: &&&Request| {
                (one.resource.as_str(), one.name.as_str(), one.namespace.as_str())
                    == (object.kind().plural, object.name(), object.namespace())
            };
            let count = deleted.iter().filter(is_it).count();
            ensure!(count <= usize::from(is_recreated), "{} was deleted {count} times: {deleted:#?}", object.key());
        }
        Ok(())
    }
}

/// Waits until an operator logs that it is done: the log costs the API server no request.
async fn done(operator: &Operator) -> Result<()> {
    eventually("the end of the work", LIMIT, async || {
        Ok(operator.log().contains("everything is applied and runs").then_some(()))
    })
    .await
    .with_context(|| operator.log())
}

async fn end(operator: Operator) -> Result<()> {
    operator.kill()?;
    operator.wait(LIMIT).await.map(drop)
}

/// Whether a request changes the cluster. A crash after a read leaves the state of the last write. Events do not count.
fn changes_something(request: &Seen) -> bool {
    request.is_write() && !request.path.ends_with("/events")
}

/// Kills the operator after each of its requests, as many as in a run without a crash.
async fn survives(found: Found, writes: usize) -> Result<()> {
    let stage = Stage::new(found).await?;
    stage.prepare(&Found::Nothing).await?;
    stage.run(None).await?;
    let expected = eventually("a state", LIMIT, async || Ok(Some(stage.state().await?))).await?;
    let inventory = config_maps(&stage.lab.client, OWN_NAMESPACE).get(INVENTORY).await?;
    let inventory = Inventory::read(&serde_json::to_value(inventory)?);
    ensure!(inventory == Inventory::of(&stage.planned), "{inventory:?}");
    for object in &stage.planned {
        ensure!(expected.contains_key(&object.key().to_string()), "{} is not there", object.key());
    }
    // Beside the objects: configuration, certificates, inventory, and two parts of the report.
    ensure!(expected.len() == stage.planned.len() + CONFIG_MAPS.len() + 3, "{:?}", expected.keys());

    stage.prepare(&stage.found).await?;
    let clean = stage.run(Some(&expected)).await.context("without a crash")?;
    let written = clean.iter().filter(|one| one.is_write() && !one.is_lease() && !one.path.ends_with("/events"));
    let written = written.count();
    ensure!(written >= stage.planned.len() + writes, "{written} writes are not all that is to be done: {clean:#?}");
    let every = std::env::var_os(EVERY_REQUEST).is_some();
    let numbers = (1..=clean.len()).filter(|number| every || changes_something(&clean[number - 1]));
    for number in numbers {
        let survived = async {
            stage.prepare(&stage.found).await?;
            let mark = stage.lab.mark().await?;
            stage.crash(number).await?;
            stage.run(Some(&expected)).await?;
            stage.deletes_nothing_planned(&stage.lab.requests(mark).await?)
        };
        survived.await.with_context(|| format!("killed at request {number} of {}", clean.len()))?;
    }
    Ok(())
}

#[tokio::test]
async fn a_convergence_survives_a_crash_at_any_request() -> Result<()> {
    survives(Found::Nothing, 0).await
}

#[tokio::test]
async fn a_switch_of_the_platform_survives_a_crash_at_any_request() -> Result<()> {
    let before = planned_on("VSphere")?;
    let count = before.len();
    survives(Found::OtherPlatform(before), count).await
}

#[tokio::test]
async fn recreating_objects_survives_a_crash_at_any_request() -> Result<()> {
    // Each is applied, applied under another name, deleted and created.
    survives(Found::Unchangeable, 3 * UNCHANGEABLE.len()).await
}
