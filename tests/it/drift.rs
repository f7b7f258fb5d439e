//! Drift: changes by others are repaired, with one write, or two where fields must be taken over.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ccm_operator::{apply::ownership::FIELD_MANAGER, cluster::request, object::PART_OF_LABEL};
use k8s_openapi::api::core::v1::Event;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    contract::{cluster_on, images, plans},
    lab::{LIMIT, Lab, NAMESPACE, aws_manifest, describe, message},
    recreate::create,
    support::{audit::Mark, eventually, objects, openshift::Cluster, operator::Operator},
};

/// An object without the fields that the server sets.
fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
        metadata.remove(field);
    }
    object.as_object_mut().unwrap().remove("status");
    object
}

/// Whether the operator is a manager of fields of the object: somebody who has removed all managers has changed nothing else.
fn applied_by_operator(object: &Value) -> bool {
    let managers = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    managers.is_some_and(|managers| {
        managers.iter().any(|entry| entry["operation"] == "Apply" && entry["manager"] == FIELD_MANAGER)
    })
}

#[tokio::test]
async fn drift_of_every_kind_is_repaired() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let cases = [
        ("Deployment", json!({"spec": {"replicas": 5}}), 1),
        ("Deployment", json!({"spec": {"template": {"spec": {"hostNetwork": false}}}}), 1),
        ("Deployment", json!({"metadata": {"labels": {"k8s-app": "other"}}}), 1),
        ("Deployment", json!({"metadata": {"labels": {PART_OF_LABEL: null}}}), 1),
        ("Deployment", json!({"spec": {"template": {"metadata": {"annotations": {"added": "x"}}}}}), 2),
        ("Deployment", json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}), 2),
        ("Deployment", json!({"metadata": {"managedFields": [{}]}}), 2),
        (
            "Deployment",
            json!({
                "metadata": {"managedFields": [{}]},
                "spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
            }),
            2,
        ),
        ("Service", json!({"metadata": {"managedFields": [{}]}, "spec": {"selector": {"added": "x"}}}), 2),
        (
            "PodDisruptionBudget",
            json!({"metadata": {"labels": null}, "spec": {"maxUnavailable": 1, "minAvailable": null}}),
            2,
        ),
        ("Service", json!({"spec": {"ports": [{"name": "https", "port": 9999}]}}), 2),
        ("Service", json!({"spec": {"selector": {"added": "x"}}}), 1),
        ("PodDisruptionBudget", json!({"spec": {"minAvailable": 2}}), 1),
        ("ValidatingAdmissionPolicy", json!({"spec": {"failurePolicy": "Ignore"}}), 1),
        // A set: an added item must be taken over before it can be removed.
        ("ValidatingAdmissionPolicyBinding", json!({"spec": {"validationActions": ["Warn"]}}), 2),
    ];
    for (kind, patch, writes) in cases {
        let before = essence(&lab.live(kind).await?.unwrap());
        let mark = lab.mark().await?;
        lab.update(kind, &patch).await?;
        let waited = eventually("the repair", LIMIT, async || {
            let live = lab.live(kind).await?.unwrap_or_default();
            ensure!(essence(&live) == before && applied_by_operator(&live), "{live:#}");
            Ok(Some(()))
        })
        .await;
        assert!(waited.is_ok(), "{kind} {patch}: {waited:?}\n{}", operator.log());
        let of_object = writes_of(&lab, &operator, mark, kind).await?;
        assert_eq!(of_object.len(), writes, "{kind} {patch}: {of_object:?}");
    }
    assert!(!operator.log().contains("degraded"), "{}", operator.log());
    Ok(())
}

/// The writes to the object of a kind since the mark, once the operator has settled.
async fn writes_of(lab: &Lab, operator: &Operator, mark: Mark, kind: &str) -> Result<Vec<String>> {
    let resource = format!(" {} ", aws_manifest(kind).kind().plural);
    let writes = lab.settled_writes(operator, mark).await?;
    Ok(writes.into_iter().filter(|write| write.contains(&resource)).collect())
}

/// A change of a pod's specification.
type Edit = fn(&mut Value);

/// Changes the Deployment's pods by an update, as `kubectl edit` does, and returns how many writes the repair took.
async fn edit_pods(lab: &Lab, operator: &Operator, edit: impl Fn(&mut Value)) -> Result<usize> {
    let object = aws_manifest("Deployment");
    let api = request::api(&lab.client, object.kind(), object.namespace());
    let before = essence(&lab.live("Deployment").await?.unwrap());
    let mark = lab.mark().await?;
    // The stand-in for the workloads' controllers writes at the same time.
    eventually("the edit", LIMIT, async || {
        let mut live = serde_json::to_value(api.get(object.name()).await?)?;
        edit(live.pointer_mut("/spec/template/spec").unwrap());
        let params = PostParams { field_manager: Some("kubectl-edit".into()), ..PostParams::default() };
        Ok(Some(api.replace(object.name(), &params, &serde_json::from_value(live)?).await?))
    })
    .await?;
    let waited = eventually("the repair", LIMIT, async || {
        let live = essence(&lab.live("Deployment").await?.unwrap_or_default());
        ensure!(live == before, "{live:#}");
        Ok(Some(()))
    })
    .await;
    waited.with_context(|| format!("the operator said:\n{}", operator.log()))?;
    Ok(writes_of(lab, operator, mark, "Deployment").await?.len())
}

#[tokio::test]
async fn every_edit_of_the_pods_is_repaired_in_at_most_two_writes() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let edits: [(&str, Edit); 8] = [
        ("image", |spec| spec["containers"][0]["image"] = "other".into()),
        ("container port", |spec| spec["containers"][0]["ports"][0]["containerPort"] = 10999.into()),
        ("volume source", |spec| {
            let name = spec["volumes"][0]["name"].clone();
            spec["volumes"][0] = json!({"name": name, "emptyDir": {}});
        }),
        ("value to valueFrom", |spec| {
            let env = spec["containers"][0]["env"].as_array_mut().unwrap();
            let variable = env.iter_mut().find(|variable| variable["value"].is_string()).unwrap();
            let field = json!({"fieldRef": {"fieldPath": "metadata.name"}});
            *variable = json!({"name": variable["name"], "valueFrom": field});
        }),
        ("sidecar", |spec| {
            let containers = spec["containers"].as_array_mut().unwrap();
            containers.push(json!({"name": "sidecar", "image": "sidecar"}));
        }),
        ("init container and volume", |spec| {
            spec["volumes"].as_array_mut().unwrap().push(json!({"name": "more", "emptyDir": {}}));
            spec["initContainers"] = json!([{"name": "first", "image": "first"}]);
        }),
        ("argument", |spec| spec["containers"][0]["args"].as_array_mut().unwrap().push("--v=9".into())),
        ("default", |spec| spec["terminationGracePeriodSeconds"] = 77.into()),
    ];
    for (what, edit) in edits {
        let writes = edit_pods(&lab, &operator, edit).await.context(what)?;
        assert!((1..=2).contains(&writes), "{what}: {writes} writes");
    }
    let log = operator.log();
    assert!(!log.contains("degraded") && !log.contains("retrying"), "{log}");
    let told = format!("configured Deployment {NAMESPACE}/aws-cloud-controller-manager: spec.template.spec.containers");
    assert!(log.contains(&format!("{told}[name=cloud-controller-manager].image")), "{log}");
    assert!(log.contains(&format!("{told}[name=sidecar]")), "{log}");
    Ok(())
}

#[tokio::test]
async fn rules_and_subjects_are_repaired() -> Result<()> {
    let plans = plans()?;
    let (_, plan) = plans.iter().find(|(name, _)| *name == "Nutanix").context("Nutanix")?;
    let lab = Lab::new(&cluster_on("Nutanix")?).await?;
    lab.write_images(&images())?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let somebody = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}]);
    for (kind, patch) in [
        ("ClusterRole", json!({"rules": []})),
        ("Role", json!({"rules": null})),
        ("ClusterRoleBinding", json!({"subjects": somebody})),
        ("RoleBinding", json!({"subjects": []})),
        ("ClusterRole", json!({"metadata": {"managedFields": [{}]}, "rules": []})),
    ] {
        let object = plan.objects().iter().find(|object| object.kind().kind == kind).context(kind)?;
        let api = request::api(&lab.client, object.kind(), object.namespace());
        let before = essence(&serde_json::to_value(api.get(object.name()).await?)?);
        let mark = lab.mark().await?;
        let params = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
        api.patch(object.name(), &params, &Patch::Merge(&patch)).await?;
        let waited = eventually("the repair", LIMIT, async || {
            let live = essence(&serde_json::to_value(api.get(object.name()).await?)?);
            ensure!(live == before, "{live:#}");
            Ok(Some(()))
        })
        .await;
        waited.with_context(|| format!("{kind} {patch}: the operator said:\n{}", operator.log()))?;
        let writes = lab.settled_writes(&operator, mark).await?;
        assert!((1..=2).contains(&writes.len()), "{kind} {patch}: {writes:?}");
    }
    assert!(!operator.log().contains("degraded"), "{}", operator.log());
    Ok(())
}

#[tokio::test]
async fn an_object_that_is_edited_every_second_is_repaired_each_time_with_one_event() -> Result<()> {
    const EDITS: usize = 12;
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let uid = lab.live("Deployment").await?.unwrap()["metadata"]["uid"].clone();
    let mark = lab.mark().await?;
    let mut pace = tokio::time::interval(Duration::from_secs(1));
    for edit in 0..EDITS {
        pace.tick().await;
        lab.update("Deployment", &json!({"spec": {"replicas": 3 + edit}})).await?;
        lab.has_two_replicas(&operator).await?;
    }
    let events: Api<Event> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let told = eventually("the count", LIMIT, async || {
        let all = events.list(&ListParams::default()).await?.items;
        let of_object = |event: &Event| event.involved_object.uid.as_deref() == uid.as_str();
        let all: Vec<_> = all.into_iter().filter(of_object).collect();
        let reasons: Vec<_> =
            all.iter().map(|event| (event.reason.as_deref().unwrap_or_default(), event.count)).collect();
        let count = i32::try_from(EDITS)?;
        ensure!(reasons.contains(&("Configured", Some(count))), "{reasons:?}");
        assert_eq!(all.len(), 1, "for its repairs, none for its creation: {reasons:?}");
        Ok(all.into_iter().find(|event| event.reason.as_deref() == Some("Configured")))
    })
    .await
    .with_context(|| operator.log())?;
    assert_eq!(told.message.as_deref(), Some("spec.replicas"));
    assert_eq!(told.type_.as_deref(), Some("Normal"));
    let requests = lab.settle(&operator, mark).await?;
    let written = requests.iter().filter(|request| request.is_event()).count();
    assert!(written <= 4, "{written} requests for Events");
    // On a busy machine a rollout may take long enough to be reported: reports are not counted.
    let mut writes: Vec<_> = requests.iter().filter(|request| request.counts_as_write()).map(describe).collect();
    writes.retain(|write| !write.contains("clusteroperators/status"));
    assert_eq!(writes, vec!["patch deployments aws-cloud-controller-manager"; EDITS]);
    Ok(())
}

#[tokio::test]
async fn an_object_annotated_to_be_ignored_is_left_alone_and_reported() -> Result<()> {
    const MUTATION: &str = "client.lifecycle.config.k8s.io/mutation";
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    let change = json!({"metadata": {"annotations": {MUTATION: "ignore"}}, "spec": {"replicas": 5}});
    lab.update("Deployment", &change).await?;
    let text = format!("; left alone, as annotated: Deployment {NAMESPACE}/aws-cloud-controller-manager");
    eventually("the report", LIMIT, async || {
        let cluster_operator = lab.cluster_operator().await?;
        ensure!(message(&cluster_operator, "Available").ends_with(&text), "{cluster_operator}");
        Ok(Some(()))
    })
    .await
    .with_context(|| operator.log())?;
    let writes = lab.settled_writes(&operator, mark).await?;
    assert_eq!(lab.live("Deployment").await?.unwrap()["spec"]["replicas"], 5);
    assert!(writes.iter().all(|write| write.contains("clusteroperators/status")), "{writes:?}");
    assert_eq!(operator.log().matches("skipped Deployment").count(), 1, "{}", operator.log());

    lab.update("Deployment", &json!({"metadata": {"annotations": {MUTATION: null}}})).await?;
    eventually("the repair", LIMIT, async || {
        let live = lab.live("Deployment").await?.unwrap_or_default();
        ensure!(live["spec"]["replicas"] == 2, "{}", live["spec"]["replicas"]);
        let cluster_operator = lab.cluster_operator().await?;
        ensure!(!message(&cluster_operator, "Available").contains("left alone"), "{cluster_operator}");
        Ok(Some(()))
    })
    .await
    .with_context(|| operator.log())
}

#[tokio::test]
async fn objects_of_others_without_our_label_are_left_to_them() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    // Of the Go operator, and excluded by an administrator.
    create(&lab, &aws_manifest("Deployment"), |deployment| {
        deployment["metadata"]["annotations"] = json!({"client.lifecycle.config.k8s.io/mutation": "ignore"});
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        container.as_object_mut().unwrap().remove("livenessProbe").unwrap();
    })
    .await?;
    let excluded = lab.live("Deployment").await?.unwrap();
    // Of another tool's set.
    let mut service = aws_manifest("Service").value().clone();
    service["metadata"]["labels"][PART_OF_LABEL] = "applyset-of-another-tool-v1".into();
    objects::apply(&lab.client, service).await?;
    let operator = lab.start()?;
    let text = format!("left alone, as annotated: Deployment {NAMESPACE}/aws-cloud-controller-manager");
    eventually("the refusal", LIMIT, async || {
        ensure!(operator.log().contains("it belongs to the set applyset-of-another-tool-v1"), "{}", operator.log());
        Ok(Some(()))
    })
    .await?;
    let set_of = |live: Option<Value>| live.unwrap_or_default()["metadata"]["labels"][PART_OF_LABEL].clone();
    assert_eq!(set_of(lab.live("Service").await?), "applyset-of-another-tool-v1");
    lab.update("Service", &json!({"metadata": {"labels": {PART_OF_LABEL: null}}})).await?;
    eventually("the report", LIMIT, async || {
        let cluster_operator = lab.cluster_operator().await?;
        ensure!(message(&cluster_operator, "Available").contains(&text), "{cluster_operator}\n{}", operator.log());
        Ok(Some(()))
    })
    .await?;
    assert_ne!(set_of(lab.live("Service").await?), Value::Null, "handed over");
    let left = lab.live("Deployment").await?.unwrap();
    assert_eq!((&left["spec"], &left["metadata"]["labels"]), (&excluded["spec"], &excluded["metadata"]["labels"]));
    assert_eq!(operator.log().matches("skipped Deployment").count(), 1, "{}", operator.log());

    // Without a watch it is looked at now and then.
    lab.delete("Deployment").await?;
    lab.exists("Deployment", &operator).await?;
    eventually("the report", LIMIT, async || {
        let cluster_operator = lab.cluster_operator().await?;
        ensure!(!message(&cluster_operator, "Available").contains("left alone"), "{cluster_operator}");
        Ok(Some(()))
    })
    .await
}

#[tokio::test]
async fn a_deleted_object_is_recreated_with_one_write() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    for kind in ["Deployment", "Service", "PodDisruptionBudget", "ValidatingAdmissionPolicy"] {
        let mark = lab.mark().await?;
        lab.delete(kind).await?;
        lab.exists(kind, &operator).await?;
        lab.converged(&operator).await?;
        let of_object = writes_of(&lab, &operator, mark, kind).await?;
        assert_eq!(of_object.len(), 1, "{kind}: {of_object:?}");
    }
    Ok(())
}

#[tokio::test]
async fn labels_and_annotations_of_others_stay() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    lab.update("Deployment", &json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}})).await?;
    assert_eq!(lab.settled_writes(&operator, mark).await?, Vec::<String>::new());
    let deployment = lab.live("Deployment").await?.unwrap();
    assert_eq!(deployment["metadata"]["labels"]["team"], "a");
    assert_eq!(deployment["metadata"]["annotations"]["note"], "b");
    Ok(())
}

#[tokio::test]
async fn a_change_through_the_scale_subresource_is_repaired() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let object = aws_manifest("Deployment");
    let api = request::api(&lab.client, object.kind(), object.namespace());
    let scale = Patch::Merge(json!({"spec": {"replicas": 7}}));
    api.patch_scale(object.name(), &PatchParams::default(), &scale).await?;
    lab.has_two_replicas(&operator).await
}
