//! Objects that are no longer planned are deleted, and no others.

use std::{collections::BTreeSet, process::Command, time::Duration};

use anyhow::{Context, Result, ensure};
use ccm_operator::apply::inventory;
use ccm_operator::cluster::request;
use ccm_operator::{
    apply::{
        inventory::Location,
        ownership::{self, FIELD_MANAGER},
        write,
    },
    object::{KINDS, Kind, Object, PART_OF_LABEL},
    plan::Plan,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    contract::{cluster_on, clusters, images, plans, plans_for},
    lab::{
        INVENTORY, LIMIT, Lab, NAMESPACE, OWN_NAMESPACE, SERVICE_ACCOUNT, binary, config_maps, for_each, message,
        repository,
    },
    support::{
        control_plane::streams_lists,
        eventually,
        objects::{self, Workloads},
        openshift::{self, Cluster, Topology},
        operator::Operator,
    },
};

mod decoys;

use decoys::{decoys, untouched};

const DELETION: &str = "client.lifecycle.config.k8s.io/deletion";
/// The number of changes of the platform for one cluster.
const PART: usize = 24;

/// Every object in the cluster with the label of our set that we have applied.
async fn ours(lab: &Lab) -> Result<BTreeSet<String>> {
    let label = ListParams::default().labels(&format!("{PART_OF_LABEL}={}", inventory::set_id(OWN_NAMESPACE)));
    let mut found = BTreeSet::new();
    for kind in KINDS {
        let api: Api<DynamicObject> = Api::all_with(lab.client.clone(), &request::resource(kind));
        for object in api.list(&label).await? {
            let object = serde_json::to_value(&object)?;
            if ownership::is_applied_by_us(&object) {
                found.insert(write::key_of(kind, &object).to_string());
            }
        }
    }
    Ok(found)
}

fn names(objects: &[Object]) -> BTreeSet<String> {
    objects.iter().map(|object| object.key().to_string()).collect()
}

/// Waits until exactly the planned objects exist, and the inventory lists them.
pub(crate) async fn exactly(lab: &Lab, operator: &Operator, objects: &[Object], what: &str) -> Result<()> {
    let expected = names(objects);
    let locations = objects.iter().map(Location::of).collect::<BTreeSet<_>>().len();
    let waited = eventually("exactly the new set", LIMIT, async || {
        let found = ours(lab).await?;
        ensure!(found == expected, "{found:#?}\ninstead of {expected:#?}");
        let inventory = config_maps(&lab.client, OWN_NAMESPACE).get(INVENTORY).await?;
        let lines = inventory.data.context("data")?["scope"].lines().count();
        // Decoys with our label keep their place in it.
        ensure!(lines >= locations, "{lines} places of {locations}");
        Ok(Some(()))
    })
    .await;
    waited.with_context(|| format!("{what}; the operator's log:\n{}", operator.log()))
}

pub(crate) fn plan_of<'a>(plans: &'a [(&'static str, Plan)], platform: &str) -> &'a [Object] {
    plans.iter().find(|(name, _)| *name == platform).map_or(&[], |(_, plan)| plan.objects())
}

/// A path that goes once from each to each other.
fn every_pair(count: usize) -> Vec<usize> {
    let mut left: Vec<Vec<usize>> = (0..count).map(|from| (0..count).filter(|to| *to != from).collect()).collect();
    let (mut stack, mut way) = (vec![0], Vec::new());
    while let Some(&at) = stack.last() {
        match left[at].pop() {
            Some(next) => stack.push(next),
            None => way.extend(stack.pop()),
        }
    }
    way.reverse();
    way
}

#[tokio::test]
async fn from_every_platform_to_every_other_exactly_the_new_set_exists() -> Result<()> {
    let plans = plans()?;
    let platforms: Vec<_> = clusters().collect();
    let way = every_pair(platforms.len());
    assert_eq!(way.len(), platforms.len() * (platforms.len() - 1) + 1);
    let locations = plans.iter().flat_map(|(_, plan)| plan.objects()).map(Location::of).collect();
    // Parts of the path, each of which starts where the one before ends, in clusters of their own.
    let parts = (0..way.len() - 1).step_by(PART).map(|start| &way[start..way.len().min(start + PART + 1)]);
    for_each(parts, async |part| {
        let mut lab = Lab::without_workloads(&platforms[part[0]].1).await?;
        lab.write_images(&images())?;
        let decoys = decoys(&lab, &locations).await?;
        lab.finish_workloads();

        let operator = lab.start()?;
        let mut before = "nothing";
        for at in part {
            let (name, cluster) = &platforms[*at];
            if !cluster.platform_spec.is_null() {
                // The API server does not let one name of platform External follow another.
                objects::delete(&lab.client, &infrastructure()).await?;
            }
            openshift::seed(&lab.client, cluster).await?;
            exactly(&lab, &operator, plan_of(&plans, name), &format!("from {before} to {name}")).await?;
            before = name;
        }
        lab.converged(&operator).await?;
        for (kind, decoy) in &decoys {
            let key = write::key_of(kind, decoy);
            let api = request::api(&lab.client, kind, &key.namespace);
            let live = api.get_opt(&key.name).await?.with_context(|| format!("{key} is deleted"))?;
            assert_eq!(untouched(&serde_json::to_value(&live)?), untouched(decoy), "{key}");
            api.delete(&key.name, &DeleteParams::default()).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_budget_is_deleted_with_the_second_replica_and_recreated() -> Result<()> {
    let plans = plans()?;
    let cluster = |topology| Cluster { topology, ..Cluster::default() };
    let lab = Lab::new(&cluster(Topology::HighlyAvailable)).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let all = plan_of(&plans, "AWS");
    let without: Vec<_> = all.iter().filter(|object| object.kind().kind != "PodDisruptionBudget").cloned().collect();
    for (topology, expected) in
        [(Topology::SingleReplica, &without[..]), (Topology::HighlyAvailable, all), (Topology::SingleReplica, &without)]
    {
        let mark = lab.mark().await?;
        openshift::seed(&lab.client, &cluster(topology)).await?;
        exactly(&lab, &operator, expected, &format!("{topology:?}")).await?;
        lab.converged(&operator).await?;
        let lists: Vec<_> = lab.requests(mark).await?.into_iter().filter(|request| request.verb == "list").collect();
        assert!(lists.is_empty() || !streams_lists(), "{lists:#?}");
    }
    let inventory =
        config_maps(&lab.client, OWN_NAMESPACE).get(INVENTORY).await?.data.context("data")?["scope"].clone();
    assert!(!inventory.contains("PodDisruptionBudget"), "{inventory}");
    // Idle again: the watches of pruned kinds have ended, and nothing else is requested.
    let mark = lab.mark().await?;
    lab.settle(&operator, mark).await?;
    let mark = lab.mark().await?;
    assert!(lab.settle(&operator, mark).await?.iter().all(crate::support::audit::Request::is_lease));
    Ok(())
}

const OTHER: &str = "moved-cloud-controller-manager";

/// Installs what the operator needs to manage [`OTHER`].
async fn install_other(lab: &Lab) -> Result<()> {
    let payload = tempfile::tempdir()?;
    let mut render = Command::new(binary());
    render.args(["render", "payload", "--namespace", OTHER, "--dest-dir"]).arg(payload.path());
    ensure!(render.output()?.status.success(), "render");
    objects::install_manifests(&lab.client, &payload.path().join("manifests"), Workloads::Skip).await
}

#[tokio::test]
async fn objects_move_to_another_namespace_and_back_after_that_is_deleted() -> Result<()> {
    let lab = Lab::new(&cluster_on("Azure")?).await?;
    lab.write_images(&images())?;
    let operator = lab.start()?;
    exactly(&lab, &operator, plan_of(&plans()?, "Azure"), "before").await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    install_other(&lab).await?;
    let operator = lab.start_as("5a1ec0de-0000-4000-8000-000000000003", &["--namespace", OTHER])?;
    let moved = plans_for(OTHER)?;
    let moved = plan_of(&moved, "Azure");
    exactly(&lab, &operator, moved, "after").await?;
    lab.converged(&operator).await?;
    let inventory = async || {
        anyhow::Ok(config_maps(&lab.client, OWN_NAMESPACE).get(INVENTORY).await?.data.context("data")?["scope"].clone())
    };
    // It is narrowed after the last deletion.
    eventually("the old namespace to leave the inventory", LIMIT, async || {
        let inventory = inventory().await?;
        ensure!(!inventory.contains(NAMESPACE) && inventory.contains(OTHER), "{inventory}");
        Ok(Some(()))
    })
    .await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    // The namespace is deleted with everything in it, including the operator's permissions there.
    for object in moved.iter().filter(|object| object.namespace() == OTHER) {
        let api = request::api(&lab.client, object.kind(), OTHER);
        api.delete(object.name(), &DeleteParams::default()).await?;
    }
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": SERVICE_ACCOUNT, "namespace": OTHER}});
    objects::delete(&lab.client, &binding).await?;
    let namespaces: Api<Namespace> = Api::all(lab.client.clone());
    namespaces.delete(OTHER, &DeleteParams::default()).await?;
    let mut last = namespaces.get(OTHER).await?;
    last.spec = None;
    namespaces.replace_subresource("finalize", OTHER, &PostParams::default(), &last).await?;
    eventually("the deletion of the namespace", LIMIT, async || {
        ensure!(namespaces.get_opt(OTHER).await?.is_none(), "it exists");
        Ok(Some(()))
    })
    .await?;
    objects::install_manifests(&lab.client, &repository().join("manifests"), Workloads::Skip).await?;
    let operator = lab.start()?;
    exactly(&lab, &operator, plan_of(&plans()?, "Azure"), "back").await?;
    eventually("the namespace to leave the inventory", LIMIT, async || {
        ensure!(!inventory().await?.contains(OTHER), "{}", inventory().await?);
        Ok(Some(()))
    })
    .await
    .with_context(|| operator.log())?;
    lab.converged(&operator).await.map(drop)
}

fn infrastructure() -> Value {
    json!({"apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"}})
}

#[tokio::test]
async fn without_a_provider_an_infrastructure_or_valid_input_nothing_is_deleted() -> Result<()> {
    let aws = plans()?;
    let aws = plan_of(&aws, "AWS");
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    exactly(&lab, &operator, aws, "before").await?;
    let stays = async |what: &str| {
        let mark = lab.mark().await?;
        lab.settle(&operator, mark).await.with_context(|| what.to_owned())?;
        let found = ours(&lab).await?;
        ensure!(found == names(aws), "{what}: {found:#?}\n{}", operator.log());
        Ok(())
    };
    openshift::seed(&lab.client, &Cluster::on(json!({"type": "None"}))).await?;
    stays("platform None").await?;
    openshift::seed(&lab.client, &Cluster::on(json!({"type": "External", "external": {}}))).await?;
    stays("platform External").await?;
    openshift::seed(&lab.client, &Cluster::on(json!({"type": "Somewhere"}))).await.ok();
    stays("an unknown platform").await?;
    objects::delete(&lab.client, &infrastructure()).await?;
    stays("no Infrastructure").await?;
    // GCP, and no image for it.
    openshift::seed(&lab.client, &Cluster::on(json!({"type": "GCP"}))).await?;
    lab.conditions(&operator, &["Degraded=True"]).await?;
    stays("a bad input").await?;
    lab.write_images(&images())?;
    let plans = plans()?;
    exactly(&lab, &operator, plan_of(&plans, "GCP"), "a good input").await
}

#[tokio::test]
async fn the_inventory_is_repaired_and_its_objects_are_pruned_after_a_restart() -> Result<()> {
    let plans = plans()?;
    let lab = Lab::new(&Cluster::default()).await?;
    lab.write_images(&images())?;
    let operator = lab.start()?;
    exactly(&lab, &operator, plan_of(&plans, "AWS"), "before").await?;
    config_maps(&lab.client, OWN_NAMESPACE).delete(INVENTORY, &DeleteParams::default()).await?;
    exactly(&lab, &operator, plan_of(&plans, "AWS"), "deleted").await?;
    let damage = Patch::Merge(json!({"data": {"scope": "", "other": "x"}}));
    config_maps(&lab.client, OWN_NAMESPACE).patch(INVENTORY, &PatchParams::default(), &damage).await?;
    exactly(&lab, &operator, plan_of(&plans, "AWS"), "emptied").await?;
    let written = config_maps(&lab.client, OWN_NAMESPACE).get(INVENTORY).await?;
    let annotations = written.metadata.annotations.context("annotations")?;
    assert_eq!(annotations["applyset.kubernetes.io/additional-namespaces"], NAMESPACE);
    assert_eq!(
        annotations["applyset.kubernetes.io/contains-group-kinds"],
        "Deployment.apps,PodDisruptionBudget.policy,Service,ValidatingAdmissionPolicy.admissionregistration.k8s.io,\
         ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io"
    );
    assert!(annotations["applyset.kubernetes.io/tooling"].starts_with("ccm-operator/v"));
    let label = &written.metadata.labels.context("labels")?["applyset.kubernetes.io/id"];
    assert_eq!(*label, inventory::set_id(OWN_NAMESPACE));

    operator.kill()?;
    operator.wait(LIMIT).await?;
    openshift::seed(&lab.client, &Cluster::on(json!({"type": "GCP"}))).await?;
    let operator = lab.start()?;
    exactly(&lab, &operator, plan_of(&plans, "GCP"), "another platform after a restart").await?;

    eventually("the list in the status", LIMIT, async || {
        let status = lab.cluster_operator().await?["status"].clone();
        let mut related = status["relatedObjects"].as_array().into_iter().flatten();
        Ok(related.any(|object| object["resource"] == "clusterroles").then_some(()))
    })
    .await?;
    operator.kill()?;
    operator.wait(LIMIT).await?;
    config_maps(&lab.client, OWN_NAMESPACE).delete(INVENTORY, &DeleteParams::default()).await?;
    openshift::seed(&lab.client, &Cluster::default()).await?;
    let operator = lab.start()?;
    exactly(&lab, &operator, plan_of(&plans, "AWS"), "without an inventory after a restart").await?;

    let freeze = Patch::Merge(json!({"immutable": true}));
    config_maps(&lab.client, OWN_NAMESPACE).patch(INVENTORY, &PatchParams::default(), &freeze).await?;
    openshift::seed(&lab.client, &Cluster::on(json!({"type": "GCP"}))).await?;
    exactly(&lab, &operator, plan_of(&plans, "GCP"), "an immutable inventory").await
}

#[tokio::test]
async fn an_operator_killed_at_any_moment_leads_to_the_same_state() -> Result<()> {
    let plans = plans()?;
    let platforms: Vec<_> = clusters().filter(|(name, _)| ["Azure", "VSphere"].contains(name)).collect();
    let lab = Lab::new(&platforms[0].1).await?;
    lab.write_images(&images())?;
    let mut operator = lab.start()?;
    exactly(&lab, &operator, plan_of(&plans, platforms[0].0), "before").await?;
    for step in 1..=10 {
        let (name, cluster) = &platforms[step % 2];
        openshift::seed(&lab.client, cluster).await?;
        tokio::time::sleep(Duration::from_millis(20 * u64::try_from(step)?)).await;
        operator.kill()?;
        operator.wait(LIMIT).await?;
        operator = lab.start()?;
        exactly(&lab, &operator, plan_of(&plans, name), &format!("killed for the {step}th time")).await?;
    }
    lab.converged(&operator).await.map(drop)
}

#[tokio::test]
async fn an_object_annotated_to_be_kept_is_kept_and_reported() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let annotate = |value: Value| json!({"metadata": {"annotations": {DELETION: value}}});
    lab.update("PodDisruptionBudget", &annotate(json!("detach"))).await?;
    openshift::seed(&lab.client, &Cluster { topology: Topology::SingleReplica, ..Cluster::default() }).await?;
    let kept = eventually("the report", LIMIT, async || {
        let cluster_operator = lab.cluster_operator().await?;
        let text = message(&cluster_operator, "Available");
        let kept =
            format!("kept: PodDisruptionBudget {NAMESPACE}/aws-cloud-controller-manager (it is annotated to be kept)");
        ensure!(text.contains(&kept), "{text}");
        Ok(Some(cluster_operator))
    })
    .await;
    let kept = kept.with_context(|| operator.log())?;
    assert!(lab.live("PodDisruptionBudget").await?.is_some());
    let related = kept["status"]["relatedObjects"].as_array().context("related objects")?;
    assert!(related.iter().any(|object| object["resource"] == "poddisruptionbudgets"), "{related:#?}");
    let mark = lab.mark().await?;
    assert_eq!(lab.settled_writes(&operator, mark).await?, Vec::<String>::new());

    lab.update("PodDisruptionBudget", &annotate(Value::Null)).await?;
    eventually("the prune", LIMIT, async || {
        ensure!(lab.live("PodDisruptionBudget").await?.is_none(), "it exists");
        let cluster_operator = lab.cluster_operator().await?;
        ensure!(!message(&cluster_operator, "Available").contains("kept"), "{cluster_operator}");
        Ok(Some(()))
    })
    .await
    .with_context(|| operator.log())
}

#[tokio::test]
async fn a_prune_that_is_forbidden_is_reported() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    // An earlier version may have left an object whose name the permissions do not list.
    let left = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "left", "namespace": NAMESPACE, "labels": {PART_OF_LABEL: inventory::set_id(OWN_NAMESPACE)}},
        "spec": {"ports": [{"port": 80}]},
    });
    let services =
        request::api(&lab.client, KINDS.iter().find(|kind| kind.kind == "Service").context("kind")?, NAMESPACE);
    services.patch("left", &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(&left)).await?;
    // A missing permission is reported long before a transient error: within the wait limit.
    let degraded = lab.conditions(&operator, &["Degraded=True"]).await?;
    let text = message(&degraded, "Degraded");
    assert!(
        text.contains(&format!("failed to delete Service {NAMESPACE}/left")) && text.contains("forbidden"),
        "{text}"
    );
    services.delete("left", &DeleteParams::default()).await?;
    lab.converged(&operator).await.map(drop)
}
