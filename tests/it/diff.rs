//! `diff` and `operator --dry-run`: both report changes and write nothing.

use std::{path::Path, process::Command, process::Output};

use anyhow::{Context, Result, ensure};
use ccm_operator::apply::{change, ownership::FIELD_MANAGER};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    config_sync,
    lab::{LIMIT, Lab, NAMESPACE, PREDECESSOR, aws_manifest, binary, config_maps},
    recreate,
    support::{eventually, objects, openshift::Cluster},
};

/// Runs a command with a kubeconfig.
pub(crate) async fn run(kubeconfig: &Path, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(binary());
    command.args(arguments).arg("--kubeconfig").arg(kubeconfig).env_remove("NO_COLOR");
    Ok(tokio::task::spawn_blocking(move || command.output()).await??)
}

async fn diff(lab: &Lab, arguments: &[&str]) -> Result<(i32, String, String)> {
    let images = lab.images_file();
    let mut all = vec!["diff", "--images-json", images.to_str().context("path")?];
    all.extend(arguments);
    let output = run(&lab.plane.kubeconfig_admin(), &all).await?;
    let code = output.status.code().context("a signal")?;
    Ok((code, String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
}

async fn json(lab: &Lab) -> Result<(i32, Vec<Value>)> {
    let (code, text, errors) = diff(lab, &["-o", "json"]).await?;
    Ok((code, serde_json::from_str(&text).with_context(|| errors)?))
}

fn action<'a>(changes: &'a [Value], kind: &str) -> &'a Value {
    changes.iter().find(|change| change["kind"] == kind).unwrap_or(&Value::Null)
}

/// The specification of an object without the addresses of a Service.
fn spec(live: Option<Value>) -> Value {
    let mut spec = live.unwrap_or_default()["spec"].take();
    if let Some(members) = spec.as_object_mut() {
        members.remove("clusterIP");
        members.remove("clusterIPs");
    }
    spec
}

#[tokio::test]
async fn a_diff_shows_the_changes_of_the_operator() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let mark = lab.mark().await?;
    let (code, changes) = json(&lab).await?;
    assert_eq!(code, 1);
    assert!(changes.iter().all(|change| change["action"] == "create"), "{changes:#?}");
    let (_, text, errors) = diff(&lab, &[]).await?;
    assert!(text.contains("--- /dev/null\n+++ Deployment openshift-cloud-controller-manager/aws-"), "{text}");
    assert!(!text.contains("managedFields") && !text.contains('\x1b'), "{text}");
    assert!(errors.contains("0 to change, 0 to remove, 0 as planned"), "{errors}");
    assert!(lab.live("Deployment").await?.is_none(), "a dry run writes nothing");

    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let (code, changes) = json(&lab).await?;
    assert_eq!(code, 0, "{changes:#?}");
    assert!(changes.iter().all(|change| change["action"] == "unchanged"), "{changes:#?}");
    operator.terminate()?;
    operator.wait(LIMIT).await?;

    // The diff names the same fields as the repair changes, for an apply and for an adoption.
    let expected = [spec(lab.live("Deployment").await?), spec(lab.live("Service").await?)];
    lab.update(
        "Deployment",
        &json!({"spec": {
            "replicas": 5, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": {"spec": {"containers": [{"name": "sidecar", "image": "x"}]}},
        }}),
    )
    .await?;
    lab.update("Service", &json!({"spec": {"ports": [{"name": "https", "port": 9999}]}})).await?;
    lab.delete("PodDisruptionBudget").await?;
    let (code, changes) = json(&lab).await?;
    assert_eq!(code, 1, "{changes:#?}");
    let deployment = action(&changes, "Deployment");
    assert_eq!(deployment["action"], "configure", "{changes:#?}");
    let fields: Vec<_> = deployment["fields"].as_array().context("fields")?.iter().filter_map(Value::as_str).collect();
    assert!(fields.contains(&"spec.replicas") && fields.contains(&"spec.strategy.type"), "{fields:?}");
    assert!(fields.contains(&"spec.template.spec.containers[name=sidecar]"), "{fields:?}");
    assert_eq!(
        action(&changes, "Service")["fields"],
        json!(["spec.ports[name=https].port", "spec.ports[name=https].targetPort"])
    );
    assert_eq!(action(&changes, "PodDisruptionBudget")["action"], "create");
    let (_, text, _) = diff(&lab, &[]).await?;
    assert!(text.contains("\n-  replicas: 5\n+  replicas: 2\n"), "{text}");
    let operator = lab.start()?;
    eventually("the repair", LIMIT, async || {
        let found = [spec(lab.live("Deployment").await?), spec(lab.live("Service").await?)];
        ensure!(found == expected, "{found:#?}");
        Ok(Some(()))
    })
    .await?;
    drop(operator);
    let refused: Vec<_> = lab.requests(mark).await?.into_iter().filter(|request| request.code == 422).collect();
    assert!(refused.is_empty(), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_secret_that_pods_mount_is_no_difference() -> Result<()> {
    let lab = Lab::new(&config_sync::openstack()).await?;
    lab.write_images(
        &json!({"cloudControllerManagerOpenStack": "registry.example/ocp/openstack-ccm:lab"}).to_string(),
    )?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"clouds.yaml": "clouds: {}"},
        "metadata": {"name": "openstack-cloud-credentials", "namespace": NAMESPACE},
    });
    objects::apply(&lab.client, secret).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let (code, changes) = json(&lab).await?;
    assert_eq!(code, 0, "{changes:#?}");
    assert_eq!(action(&changes, "Deployment")["action"], "unchanged", "{changes:#?}");
    Ok(())
}

#[tokio::test]
async fn an_object_whose_managed_fields_were_wiped_is_previewed_as_the_operator_repairs_it() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let wiped = json!([{}]);
    let container = json!([
        {"name": "cloud-controller-manager", "image": "other", "command": ["sh"]}, {"name": "sidecar", "image": "x"},
    ]);
    // An apply alone would be refused: it leaves the parameters of the other strategy.
    let deployment = json!({"metadata": {"managedFields": wiped}, "spec": {
        "replicas": 5, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "template": {"metadata": {"annotations": {"added": "x"}}, "spec": {"containers": container}},
    }});
    let service = json!({"metadata": {"managedFields": wiped}, "spec": {
        "ports": [{"name": "more", "port": 1}], "selector": {"added": "x"},
    }});
    let budget = json!({"metadata": {"managedFields": wiped, "labels": {"team": "a"}}});
    let edits = [("Deployment", deployment), ("Service", service), ("PodDisruptionBudget", budget)];
    let mut edited = Vec::new();
    for (kind, edit) in &edits {
        let good = spec(lab.live(kind).await?);
        edited.push((kind, good, lab.update(kind, edit).await?));
    }
    let (_, changes) = json(&lab).await?;

    let operator = lab.start()?;
    for (kind, good, before) in &edited {
        let waited = eventually("the repair", LIMIT, async || {
            let live = lab.live(kind).await?.unwrap_or_default();
            let managers = live["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
            let is_ours = |entry: &Value| entry["manager"] == FIELD_MANAGER && entry["operation"] == "Apply";
            ensure!(managers.iter().any(is_ours) && spec(Some(live.clone())) == *good, "{live:#}");
            Ok(Some(live))
        })
        .await;
        let after = waited.with_context(|| operator.log())?;
        let fields = change::fields(before, &after);
        let previewed = action(&changes, kind)["fields"].as_array().cloned().unwrap_or_default();
        assert_eq!(json!(previewed), json!(fields), "{kind}: {changes:#?}");
        assert_eq!(fields.is_empty(), **kind == "PodDisruptionBudget", "{kind}: {fields:?}");
    }
    let log = operator.log();
    assert!(!log.contains("degraded") && !log.contains("retrying"), "{log}");
    Ok(())
}

#[tokio::test]
async fn left_over_ignored_and_refused_objects_are_reported() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let annotated = json!({"metadata": {"annotations": {"client.lifecycle.config.k8s.io/mutation": "ignore"}}});
    lab.update("Service", &annotated).await?;
    lab.update("Service", &json!({"metadata": {"labels": {"k8s-app": "other"}}})).await?;
    // On a single node no budget is planned, so the existing one is left over.
    let cluster = Cluster { topology: crate::support::openshift::Topology::SingleReplica, ..Cluster::default() };
    crate::support::openshift::seed(&lab.client, &cluster).await?;
    let (code, changes) = json(&lab).await?;
    assert_eq!(code, 1);
    assert_eq!(action(&changes, "Service")["action"], "skip", "{changes:#?}");
    assert_eq!(action(&changes, "PodDisruptionBudget")["action"], "prune", "{changes:#?}");
    assert_eq!(action(&changes, "Deployment")["fields"], json!(["spec.replicas"]), "{changes:#?}");
    let (_, text, _) = diff(&lab, &[]).await?;
    assert!(text.contains("# would leave Service openshift-cloud-controller-manager/aws-"), "{text}");
    assert!(text.contains("+++ /dev/null\n"), "{text}");

    // A selector is immutable.
    lab.delete("Deployment").await?;
    let mut other = aws_manifest("Deployment").value().clone();
    other["spec"]["selector"]["matchLabels"]["added"] = "x".into();
    other["spec"]["template"]["metadata"]["labels"]["added"] = "x".into();
    let object = aws_manifest("Deployment");
    let api = ccm_operator::cluster::request::api(&lab.client, object.kind(), object.namespace());
    let params = kube::api::PostParams { field_manager: Some(PREDECESSOR.into()), ..Default::default() };
    api.create(&params, &serde_json::from_value(other)?).await?;
    let (code, changes) = json(&lab).await?;
    assert_eq!(code, 1, "{changes:#?}");
    let deployment = action(&changes, "Deployment");
    assert_eq!(deployment["action"], "recreate", "{changes:#?}");
    let fields = deployment["fields"].as_array().context("fields")?;
    assert!(fields.contains(&json!("spec.selector.matchLabels.added")), "{fields:?}");

    // The API server refuses a Deployment: the exit code says that the diff is incomplete.
    lab.delete("Deployment").await?;
    let refusal = recreate::refuse_deployments(&lab).await?;
    let (code, changes) = json(&lab).await?;
    assert_eq!(code, 2, "{changes:#?}");
    assert_eq!(action(&changes, "Deployment")["action"], "refuse", "{changes:#?}");
    let (code, text, errors) = diff(&lab, &[]).await?;
    assert_eq!(code, 2, "{text}{errors}");
    assert!(text.contains("no Deployments today"), "{text}");
    refusal.remove().await
}

#[tokio::test]
async fn an_error_ends_with_exit_code_two() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let (code, _, errors) = diff(&lab, &["--wrong"]).await?;
    assert_eq!(code, 2, "{errors}");
    lab.write_images("{}")?;
    let (code, _, errors) = diff(&lab, &[]).await?;
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("have no key \"cloudControllerManagerAWS\""), "{errors}");
    // Without the flag the images are the cluster's.
    let output = run(&lab.plane.kubeconfig_admin(), &["diff"]).await?;
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("image: "));
    // The changes are shown nevertheless.
    let bad = Patch::Merge(json!({"data": {"cloud.conf": "[Global\n"}}));
    config_maps(&lab.client, "openshift-config-managed")
        .patch("kube-cloud-config", &PatchParams::default(), &bad)
        .await?;
    let output = run(&lab.plane.kubeconfig_admin(), &["diff"]).await?;
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains("the cloud configuration would be left unchanged: "), "{errors}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("image: "));
    Ok(())
}

#[tokio::test]
async fn a_dry_run_logs_the_changes_of_the_operator_and_writes_nothing() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let mark = lab.mark().await?;
    let dry = lab.start_as("5a1ec0de-0000-4000-8000-00000000000d", &["--dry-run"])?;
    let logs = async |text: &str| {
        let waited = eventually(text, LIMIT, async || Ok(dry.log().contains(text).then_some(()))).await;
        waited.with_context(|| dry.log())
    };
    logs("would create Deployment openshift-cloud-controller-manager/aws-cloud-controller-manager").await?;
    logs("would create PodDisruptionBudget").await?;
    assert!(lab.live("Deployment").await?.is_none());
    lab.write_images("{}")?;
    logs("the operator would be degraded: failed to set an image").await?;
    // Two more inputs are handled without another dry run of the same plan.
    let before = lab.requests(mark).await?.len();
    lab.write_images(&json!({"cloudControllerManagerAWS": ""}).to_string())?;
    logs("is empty").await?;
    lab.write_images("[]")?;
    logs("not a JSON object").await?;
    let after = lab.requests(mark).await?;
    assert_eq!(after.len(), before, "{after:#?}");
    assert!(!after.iter().any(|request| request.is_lease() || request.is_event()), "{after:#?}");
    assert!(lab.live("Deployment").await?.is_none());
    Ok(())
}
