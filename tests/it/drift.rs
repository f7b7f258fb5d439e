//! Drift: what somebody changes is put back, with one write where one is enough and two where fields must be taken over.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_operator::apply;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, Lab, aws_manifest},
    support::{eventually, openshift::Cluster},
};

/// What is kept of an object for comparing: all but what the server counts and notes.
fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
        metadata.remove(field);
    }
    object.as_object_mut().unwrap().remove("status");
    object
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
        ("Deployment", json!({"metadata": {"labels": {apply::PART_OF_LABEL: null}}}), 1),
        ("Deployment", json!({"spec": {"template": {"metadata": {"annotations": {"added": "x"}}}}}), 2),
        ("Deployment", json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}), 2),
        ("Service", json!({"spec": {"ports": [{"name": "https", "port": 9999}]}}), 2),
        ("Service", json!({"spec": {"selector": {"added": "x"}}}), 1),
        ("PodDisruptionBudget", json!({"spec": {"minAvailable": 2}}), 1),
        ("ValidatingAdmissionPolicy", json!({"spec": {"failurePolicy": "Ignore"}}), 1),
        // A set: what was added to it has to be taken over first.
        ("ValidatingAdmissionPolicyBinding", json!({"spec": {"validationActions": ["Warn"]}}), 2),
    ];
    for (kind, patch, writes) in cases {
        let before = essence(&lab.live(kind).await?.unwrap());
        let mark = lab.mark().await?;
        lab.update(kind, &patch).await?;
        let waited = eventually("the repair", LIMIT, async || {
            let live = essence(&lab.live(kind).await?.unwrap_or_default());
            ensure!(live == before, "{live:#}");
            Ok(Some(()))
        })
        .await;
        assert!(waited.is_ok(), "{kind} {patch}: {waited:?}\n{}", operator.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
        let name = aws_manifest(kind);
        let resource = name.kind().plural;
        let of_object: Vec<_> = lab.writes(mark)?.into_iter().filter(|write| write.contains(resource)).collect();
        assert_eq!(of_object.len(), writes, "{kind} {patch}: {of_object:?}");
    }
    assert!(!operator.log().contains("degraded"), "{}", operator.log());
    Ok(())
}

#[tokio::test]
async fn what_is_deleted_comes_back_with_one_write() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    for kind in ["Deployment", "Service", "PodDisruptionBudget", "ValidatingAdmissionPolicy"] {
        let mark = lab.mark().await?;
        lab.delete(kind).await?;
        eventually("the object", LIMIT, async || Ok(lab.live(kind).await?.map(drop))).await?;
        lab.converged(&operator).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let resource = aws_manifest(kind).kind().plural;
        let of_object: Vec<_> = lab.writes(mark)?.into_iter().filter(|write| write.contains(resource)).collect();
        assert_eq!(of_object.len(), 1, "{kind}: {of_object:?}");
    }
    Ok(())
}

#[tokio::test]
async fn what_others_add_beside_ours_stays() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    lab.update("Deployment", &json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}})).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let deployment = lab.live("Deployment").await?.unwrap();
    assert_eq!(deployment["metadata"]["labels"]["team"], "a");
    assert_eq!(deployment["metadata"]["annotations"]["note"], "b");
    assert_eq!(lab.writes(mark)?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn replicas_are_ours_also_against_the_scale_subresource() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let object = aws_manifest("Deployment");
    let api = apply::api(&lab.client, object.kind(), object.namespace());
    let scale = Patch::Merge(json!({"spec": {"replicas": 7}}));
    api.patch_scale(object.name(), &PatchParams::default(), &scale).await?;
    eventually("two replicas", LIMIT, async || {
        let live = lab.live("Deployment").await?.unwrap_or_default();
        ensure!(live["spec"]["replicas"] == 2, "{}", live["spec"]["replicas"]);
        Ok(Some(()))
    })
    .await
}
