//! Taking over a cluster that the Go operator has run: its objects become the same as those of a fresh installation.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_operator::apply;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, Lab, PREDECESSOR, aws_manifest, aws_manifests},
    support::{eventually, openshift::Cluster},
};

/// What must be equal: everything but what the server counts and notes.
fn essence(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!({"spec": object["spec"], "labels": metadata["labels"], "annotations": own(&metadata["annotations"])})
}

/// Annotations but those that the control plane writes.
fn own(annotations: &Value) -> Value {
    let all = annotations.as_object().cloned().unwrap_or_default();
    all.into_iter().filter(|(name, _)| !name.starts_with("deployment.kubernetes.io/")).collect()
}

#[tokio::test]
async fn objects_of_the_go_operator_become_those_of_a_fresh_installation() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let mut fresh = Vec::new();
    for object in aws_manifests() {
        let kind = object.kind().kind;
        let mut live = essence(&lab.live(kind).await?.unwrap());
        live["spec"].as_object_mut().unwrap().remove("clusterIP");
        live["spec"].as_object_mut().unwrap().remove("clusterIPs");
        fresh.push((kind, live));
    }
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    for (kind, _) in &fresh {
        lab.delete(kind).await?;
    }

    for (kind, _) in &fresh {
        create_as_predecessor(&lab, kind).await?;
    }
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    for (kind, expected) in &fresh {
        let taken = eventually("the take-over", LIMIT, async || {
            let mut live = essence(&lab.live(kind).await?.unwrap_or_default());
            live["spec"].as_object_mut().map(|spec| (spec.remove("clusterIP"), spec.remove("clusterIPs")));
            ensure!(live == *expected, "{kind} is {live:#} and should be {expected:#}");
            Ok(Some(()))
        })
        .await;
        assert!(taken.is_ok(), "{taken:?}\n{}", operator.log());
    }
    // And stays so: nothing of the predecessor's comes back at the next look.
    let mark = lab.mark().await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(lab.writes(mark)?, Vec::<String>::new());
    Ok(())
}

/// Creates an object as the Go operator would have: by a plain create and a plain update, with what it adds.
async fn create_as_predecessor(lab: &Lab, kind: &str) -> Result<()> {
    let object = aws_manifest(kind);
    let mut value = object.value().clone();
    value["metadata"]["annotations"]["operator.openshift.io/spec-hash"] = "0123".into();
    value["metadata"]["annotations"]["operator.openshift.io/generation"] = "1".into();
    match kind {
        "Deployment" => {
            let spec = value.pointer_mut("/spec/template/spec").unwrap();
            spec["volumes"].as_array_mut().unwrap().push(json!({
                "name": "host-etc-kube", "hostPath": {"path": "/etc/kubernetes", "type": "Directory"},
            }));
            let container = &mut spec["containers"][0];
            container["command"] = json!(["/bin/bash", "-c", "exec /bin/aws-cloud-controller-manager --secure-port=0"]);
            container.as_object_mut().unwrap().remove("args");
            container["volumeMounts"]
                .as_array_mut()
                .unwrap()
                .push(json!({"name": "host-etc-kube", "mountPath": "/etc/kubernetes", "readOnly": true}));
            container.as_object_mut().unwrap().remove("securityContext");
        }
        "Service" => value["spec"]["ports"] = json!([{"name": "old", "port": 10260, "targetPort": 10260}]),
        _ => {}
    }
    let api = apply::api(&lab.client, object.kind(), object.namespace());
    let params = PostParams { field_manager: Some(PREDECESSOR.into()), ..PostParams::default() };
    api.create(&params, &serde_json::from_value(value)?).await?;
    // The stand-in for the workloads' controllers writes at the same time.
    eventually("the update", LIMIT, async || {
        let mut updated: DynamicObject = api.get(object.name()).await?;
        updated.metadata.annotations.get_or_insert_default().insert("updated".into(), "by-the-go-operator".into());
        Ok(Some(api.replace(object.name(), &params, &updated).await?))
    })
    .await?;
    Ok(())
}
