//! The status of a `CloudControllerManager` while little is known: it is true in each state.

use anyhow::{Context, Result, ensure};
use ccm_operator::{cluster::request, object::KINDS};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{DynamicObject, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, message},
    support::{
        eventually,
        kubernetes::{Kubernetes, installation},
        objects,
        operator::Operator,
    },
};

fn aws() -> Value {
    json!({"provider": "aws"})
}

fn condition<'a>(live: &'a Value, type_: &str) -> &'a Value {
    let conditions = live["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|one| one["type"] == type_).unwrap_or(&Value::Null)
}

/// Waits until a condition has a reason.
async fn reason_is(cluster: &Kubernetes, operator: &Operator, name: &str, type_: &str, reason: &str) -> Result<Value> {
    let waited = eventually(reason, LIMIT, async || {
        let live = serde_json::to_value(cluster.ccms().get(name).await?)?;
        ensure!(live["status"]["observedGeneration"] == live["metadata"]["generation"], "{live:#}");
        ensure!(condition(&live, type_)["reason"] == reason, "{:#}", live["status"]);
        Ok(Some(live))
    });
    waited.await.with_context(|| operator.log())
}

/// Type, reason and message of the Events on a `CloudControllerManager`.
async fn events(cluster: &Kubernetes, name: &str) -> Result<Vec<String>> {
    let api: Api<Event> = Api::namespaced(cluster.client.clone(), "default");
    let of_object = format!("involvedObject.kind=CloudControllerManager,involvedObject.name={name}");
    let found = api.list(&ListParams::default().fields(&of_object)).await?.items;
    let text = |one: &Event| {
        let [type_, reason, message] =
            [&one.type_, &one.reason, &one.message].map(|field| field.as_deref().unwrap_or_default());
        format!("{type_} {reason}: {message}")
    };
    Ok(found.iter().map(text).collect())
}

#[tokio::test]
async fn the_status_says_why_no_nodes_are_initialized_and_the_generation_of_each_condition() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let operator = cluster.start()?;
    cluster.create("cluster", aws()).await?;
    cluster.conditions(&operator, "cluster", &["Ready=True", "NodesInitialized=True"]).await?;
    cluster.create("unknown", json!({"provider": "awz"})).await?;
    let live = reason_is(&cluster, &operator, "unknown", "NodesInitialized", "BadInput").await?;
    assert!(message(&live, "NodesInitialized").contains("ConfigurationValid"), "{live:#}");
    assert_eq!(condition(&live, "NodesInitialized")["status"], "Unknown");
    let told = eventually("the Event", LIMIT, async || {
        let events = events(&cluster, "unknown").await?;
        ensure!(!events.is_empty(), "no Event");
        Ok(Some(events))
    });
    let told = told.await.with_context(|| operator.log())?;
    assert!(told[0].starts_with("Warning BadInput: spec.provider: there is no provider \"awz\""), "{told:?}");
    cluster.delete("unknown").await?;

    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let operator = cluster.start()?;
    cluster.patch("cluster", json!({"spec": {"controllers": {"cloudNode": "Disabled"}}})).await?;
    let live = reason_is(&cluster, &operator, "cluster", "NodesInitialized", "ControllerOff").await?;
    assert_eq!(message(&live, "NodesInitialized"), "spec.controllers.cloudNode is Disabled");
    // A wait for any of them ends.
    let live = cluster.conditions(&operator, "cluster", &["Ready=True", "PreflightPassed=True"]).await?;
    for one in live["status"]["conditions"].as_array().context("conditions")? {
        assert_eq!(one["observedGeneration"], live["metadata"]["generation"], "{one:#}");
    }

    cluster.patch("cluster", json!({"spec": {"controllers": {"cloudNode": "Enabled"}}})).await?;
    cluster.conditions(&operator, "cluster", &["Ready=True", "NodesInitialized=True"]).await?;
    cluster.patch("cluster", json!({"spec": {"management": "Removed"}})).await?;
    let live = reason_is(&cluster, &operator, "cluster", "NodesInitialized", "Removed").await?;
    assert_eq!(condition(&live, "NodesInitialized")["status"], "Unknown");
    assert_eq!(events(&cluster, "cluster").await?, Vec::<String>::new(), "it had no problem");
    Ok(())
}

#[tokio::test]
async fn an_operator_that_sees_nothing_keeps_the_unknown_parts_of_the_status() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let operator = cluster.start()?;
    cluster.create("cluster", aws()).await?;
    let before = cluster.conditions(&operator, "cluster", &["Ready=True", "NodeDeletionSafe=True"]).await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    let roles: Api<DynamicObject> =
        request::api(&cluster.client, KINDS.iter().find(|kind| kind.kind == "ClusterRole").context("kind")?, "");
    let role = roles.get("ccm-operator").await?;
    let granted = role.data["rules"].as_array().context("rules")?;
    let others: Vec<_> = granted.iter().filter(|rule| rule["resources"] != json!(["nodes"])).collect();
    assert!(others.len() < granted.len(), "{granted:#?}");
    roles.patch("ccm-operator", &PatchParams::default(), &Patch::Merge(json!({"rules": others}))).await?;
    // With a lease it would wait for the topology first.
    let operator = cluster.start_with(&["--namespaces=kube-system", "--leader-elect=false"])?;
    let live = reason_is(&cluster, &operator, "cluster", "Ready", "ApplyFailed").await?;
    assert!(message(&live, "Ready").contains("failed to watch nodes"), "{live:#}");
    for field in ["provider", "cluster", "workload", "nodes"] {
        assert_eq!(live["status"][field], before["status"][field], "{field}");
    }
    for kept in ["ConfigurationValid", "CredentialsFound", "VersionSupported", "PreflightPassed", "NodesInitialized"] {
        assert_eq!(condition(&live, kept), condition(&before, kept));
    }
    // What the guard has taken back is not called safe any more, nor allowed.
    assert_eq!(condition(&live, "NodeDeletionSafe")["reason"], "ClusterUnseen", "{live:#}");

    roles.patch("ccm-operator", &PatchParams::default(), &Patch::Merge(json!({"rules": granted}))).await?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=True", "NodeDeletionSafe=True"]).await?;
    assert_eq!(live["status"]["provider"], before["status"]["provider"]);
    Ok(())
}

/// `helm upgrade` never changes a definition, so the definition may be older than the operator.
#[tokio::test]
async fn under_a_definition_that_is_older_than_the_operator_the_rest_of_the_status_is_written() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let current = installation(&["--providers", "aws"])?;
    let current = current.into_iter().find(|object| object["kind"] == "CustomResourceDefinition").context("it")?;
    let mut older = current.clone();
    let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties";
    let fields = older.pointer_mut(status).and_then(Value::as_object_mut).context("the status")?;
    fields.remove("nodeDeletion");
    fields["nodes"]["properties"].as_object_mut().context("the nodes")?.remove("waiting");
    fields["provider"]["properties"].as_object_mut().context("the provider")?.remove("reason");
    objects::apply(&cluster.client, older).await?;
    eventually("the older definition to be served", LIMIT, async || {
        let object = json!({"apiVersion": "ccm-operator.dev/v1alpha1", "kind": "CloudControllerManager",
            "metadata": {"name": "probe"}, "spec": {"provider": "aws", "management": "Paused"}});
        objects::apply(&cluster.client, object).await?;
        let answer = objects::apply_status(
            &cluster.client,
            json!({"apiVersion": "ccm-operator.dev/v1alpha1", "kind": "CloudControllerManager",
                "metadata": {"name": "probe"}, "status": {"nodes": {"waiting": []}}}),
        )
        .await;
        ensure!(answer.is_err(), "the field is still known");
        Ok(Some(()))
    })
    .await?;
    cluster.delete("probe").await?;

    let operator = cluster.start()?;
    cluster.create("cluster", aws()).await?;
    let live = cluster.ready(&operator, "cluster").await?;
    let text = message(&live, "Ready");
    assert!(text.starts_with("1 of 1 pods are ready; "), "{text}");
    for word in [
        "status.nodeDeletion",
        "status.provider.reason",
        "status.nodes.waiting",
        "CustomResourceDefinition",
        "helm show crds",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert_eq!(live["status"]["nodeDeletion"], Value::Null);
    assert!(live["status"]["provider"]["version"].is_string(), "{live:#}");
    // A change is written, too, and logged once, however often the whole status is tried.
    cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": 3}}})).await?;
    cluster.ready(&operator, "cluster").await?;
    let mark = cluster.mark().await?;
    eventually("another try", LIMIT, async || {
        let requests = cluster.requests(mark).await?;
        Ok(requests.iter().any(|one| one.code == 500 && one.subresource == "status").then_some(()))
    })
    .await?;
    let again = cluster.ready(&operator, "cluster").await?;
    assert_eq!(again["status"]["conditions"][0]["message"], live["status"]["conditions"][0]["message"]);
    let log = operator.log();
    assert_eq!(log.matches("is older than the operator").count(), 1, "{log}");
    assert!(!log.contains("failed to write the status"), "{log}");

    // With the definition of this version everything is there, without a restart.
    objects::apply(&cluster.client, current).await?;
    let waited = eventually("the whole status", 2 * LIMIT, async || {
        let live = cluster.ready(&operator, "cluster").await?;
        ensure!(live["status"]["nodeDeletion"]["phase"] == "Rehearsal", "{:#}", live["status"]);
        ensure!(message(&live, "Ready") == "1 of 1 pods are ready", "{:#}", live["status"]);
        Ok(Some(()))
    });
    waited.await.with_context(|| operator.log())?;
    // From then on each change costs one request again.
    let mark = cluster.mark().await?;
    cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": 4}}})).await?;
    cluster.ready(&operator, "cluster").await?;
    let requests = cluster.requests(mark).await?;
    let refused: Vec<_> =
        requests.iter().filter(|one| one.resource == "cloudcontrollermanagers" && one.code != 200).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    assert!(requests.iter().all(|one| !one.dry_run), "{requests:#?}");
    Ok(())
}

#[tokio::test]
async fn another_writer_of_the_status_is_named_and_only_where_there_is_one() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let operator = cluster.start()?;
    cluster.create("cluster", aws()).await?;
    cluster.ready(&operator, "cluster").await?;
    let mut number = 0;
    eventually("the limit", LIMIT, async || {
        number += 1;
        cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": number % 4}}})).await?;
        // It logs what it retries.
        operator.ask()?;
        let log = operator.log();
        ensure!(log.contains("the status of CloudControllerManager cluster changes often"), "{log}");
        Ok(Some(()))
    })
    .await?;
    assert!(!operator.log().contains("another writer"), "{}", operator.log());

    let waited = eventually("the other writer to be named", LIMIT, async || {
        let status = Patch::Merge(json!({"status": {"workload": {"ready": 77}}}));
        cluster.ccms().patch_status("cluster", &PatchParams::default(), &status).await?;
        operator.ask()?;
        let log = operator.log();
        ensure!(log.contains("another writer keeps changing the status of CloudControllerManager cluster"), "{log}");
        Ok(Some(()))
    });
    waited.await
}

#[tokio::test]
async fn a_start_where_the_control_plane_is_elsewhere_keeps_the_version_until_many_answers_differ() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let nodes: Api<DynamicObject> = request::api(&cluster.client, &ccm_operator::object::NODE, "");
    let label = json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": null}}});
    nodes.patch("control-plane", &PatchParams::default(), &Patch::Merge(label)).await?;
    let operator = cluster.start()?;
    let pool = json!({"nodeSelector": {"example.com/pool": "system"}});
    cluster.create("cluster", json!({"provider": "aws", "placement": pool})).await?;
    let live = cluster.ready(&operator, "cluster").await?;
    let server = cluster.client.apiserver_version().await?;
    assert_eq!(
        live["status"]["cluster"]["kubernetes"],
        format!("{}.{}", server.major, server.minor),
        "it counts at once"
    );
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    // Another API server has answered the process before.
    let status = Patch::Merge(json!({"status": {"cluster": {"kubernetes": "1.34"}}}));
    cluster.ccms().patch_status("cluster", &PatchParams::default(), &status).await?;
    let operator = cluster.start()?;
    cluster.patch("cluster", json!({"spec": {"logging": {"verbosity": 3}}})).await?;
    let live = cluster.ready(&operator, "cluster").await?;
    assert_eq!(live["status"]["cluster"]["kubernetes"], "1.34");
    assert!(live["status"]["provider"]["version"].as_str().is_some_and(|tag| tag.starts_with("v1.34.")), "{live:#}");
    Ok(())
}
