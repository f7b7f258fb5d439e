//! Taking over a cluster from the Go operator: its objects become the same as those of a fresh installation.

use anyhow::{Context, Result, ensure};
use ccm_operator::cluster::request;
use ccm_operator::object::Object;
use kube::api::{DynamicObject, PostParams};
use serde_json::{Value, json};

use crate::{
    contract::{clusters, images, plans},
    lab::{LIMIT, Lab, PREDECESSOR, for_each},
    support::eventually,
};

/// The part of an object that must be equal: everything except the fields that the server or a controller sets.
fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    object.as_object_mut().map(|members| members.remove("status"));
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    // Addresses of a Service, and annotations of the workload controllers.
    if object["kind"] == "Service" {
        object["spec"].as_object_mut().map(|spec| (spec.remove("clusterIP"), spec.remove("clusterIPs")));
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        let is_noted =
            |name: &str| name.starts_with("deployment.kubernetes.io/") || name.starts_with("deprecated.daemonset.");
        annotations.retain(|name, _| !is_noted(name));
        if annotations.is_empty() {
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
        }
    }
    object
}

async fn live(lab: &Lab, object: &Object) -> Result<Value> {
    let api = request::api(&lab.client, object.kind(), object.namespace());
    Ok(serde_json::to_value(api.get(object.name()).await?)?)
}

#[tokio::test]
async fn objects_of_the_go_operator_become_those_of_a_fresh_installation() -> Result<()> {
    let plans = plans()?;
    for_each(clusters(), async |(name, cluster)| {
        let (_, plan) = plans.iter().find(|(other, _)| *other == name).context("a plan")?;
        let lab = Lab::new(&cluster).await?;
        lab.write_images(&images())?;
        let operator = lab.start()?;
        lab.converged(&operator).await.context(name)?;
        let mut fresh = Vec::new();
        for object in plan.objects() {
            fresh.push((object, essence(&live(&lab, object).await?)));
        }
        operator.terminate()?;
        operator.wait(LIMIT).await?;
        lab.delete_all().await?;

        let mut uids = Vec::new();
        for object in plan.objects() {
            uids.push(create_as_predecessor(&lab, object).await.with_context(|| format!("{name}: {}", object.key()))?);
        }
        let operator = lab.start()?;
        lab.converged(&operator).await.context(name)?;
        for ((object, expected), uid) in fresh.iter().zip(&uids) {
            let taken = eventually("the take-over", LIMIT, async || {
                let live = live(&lab, object).await?;
                ensure!(live["metadata"]["uid"] == **uid, "deleted");
                let live = essence(&live);
                ensure!(live == *expected, "{} is {live:#} and should be {expected:#}", object.key());
                Ok(Some(()))
            })
            .await;
            assert!(taken.is_ok(), "{name}: {taken:?}\n{}", operator.log());
        }
        // It stays so: the operator has nothing left to write.
        let mark = lab.mark().await?;
        ensure!(lab.settled_writes(&operator, mark).await? == Vec::<String>::new(), "{name}: {}", operator.log());
        ensure!(!operator.log().contains("degraded"), "{name}: {}", operator.log());
        Ok(())
    })
    .await
}

/// Creates an object as the Go operator does, by a create and an update, with its additions. Returns the UID.
async fn create_as_predecessor(lab: &Lab, object: &Object) -> Result<String> {
    let mut value = object.value().clone();
    value["metadata"]["annotations"]["operator.openshift.io/spec-hash"] = "0123".into();
    value["metadata"]["annotations"]["operator.openshift.io/generation"] = "1".into();
    let somebody = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "old"});
    let rule = json!({"apiGroups": [""], "resources": ["events"], "verbs": ["create"]});
    match object.kind().kind {
        "Deployment" | "DaemonSet" => {
            let spec = value.pointer_mut("/spec/template/spec").context("pods")?;
            if !spec["volumes"].is_array() {
                spec["volumes"] = json!([]);
            }
            spec["volumes"].as_array_mut().context("volumes")?.push(json!({
                "name": "old-kube", "hostPath": {"path": "/etc/kubernetes", "type": "Directory"},
            }));
            let container = &mut spec["containers"][0];
            container["command"] = json!(["/bin/bash", "-c", "exec /bin/cloud-controller-manager --secure-port=0"]);
            container.as_object_mut().context("container")?.remove("args");
            container.as_object_mut().context("container")?.remove("securityContext");
            if !container["volumeMounts"].is_array() {
                container["volumeMounts"] = json!([]);
            }
            let mount = json!({"name": "old-kube", "mountPath": "/etc/old", "readOnly": true});
            container["volumeMounts"].as_array_mut().context("mounts")?.push(mount);
        }
        "Service" => value["spec"]["ports"] = json!([{"name": "old", "port": 10260, "targetPort": 10260}]),
        "PodDisruptionBudget" => value["spec"] = json!({"maxUnavailable": 2, "selector": value["spec"]["selector"]}),
        "Role" | "ClusterRole" => value["rules"].as_array_mut().context("rules")?.push(rule),
        "RoleBinding" | "ClusterRoleBinding" => value["subjects"].as_array_mut().context("subjects")?.push(somebody),
        "ValidatingAdmissionPolicy" => {
            let validations = value["spec"]["validations"].as_array_mut().context("validations")?;
            validations.push(json!({"expression": "true"}));
        }
        "ValidatingAdmissionPolicyBinding" => value["spec"]["validationActions"] = json!(["Warn", "Audit"]),
        _ => {}
    }
    let api = request::api(&lab.client, object.kind(), object.namespace());
    let params = PostParams { field_manager: Some(PREDECESSOR.into()), ..PostParams::default() };
    api.create(&params, &serde_json::from_value(value)?).await?;
    // The stand-in for the workload controllers writes at the same time.
    let updated = eventually("the update", LIMIT, async || {
        let mut updated: DynamicObject = api.get(object.name()).await?;
        updated.metadata.annotations.get_or_insert_default().insert("updated".into(), "by-the-go-operator".into());
        Ok(Some(api.replace(object.name(), &params, &updated).await?))
    })
    .await?;
    updated.metadata.uid.context("a uid")
}
