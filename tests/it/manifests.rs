//! Every manifest against the real API server: accepted strictly, unchanged by a second apply, and doing what it says.

use anyhow::{Result, ensure};
use ccm_operator::{apply, embedded, object::Object};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, Lab, repository},
    support::{
        control_plane, eventually, objects,
        objects::Workloads,
        openshift::{self, Cluster},
    },
};

async fn strict_dry_run(client: &Client, object: &Object) -> Result<Value> {
    let params = PatchParams::apply("test").force().validation_strict().dry_run();
    let api = apply::api(client, object.kind(), object.namespace());
    Ok(serde_json::to_value(api.patch(object.name(), &params, &Patch::Apply(object.value())).await?)?)
}

#[tokio::test]
async fn every_embedded_manifest_is_accepted_as_it_stands() -> Result<()> {
    let plane = control_plane::shared().await?;
    let _exclusive = control_plane::exclusive().await;
    let client = plane.client()?;
    openshift::install_crds(&client).await?;
    objects::install_manifests(&client, &repository().join("manifests"), Workloads::Skip).await?;
    let catalog = embedded::catalog()?;
    let mut count = 0;
    for provider in catalog.providers() {
        for object in provider.manifests.iter().chain(&provider.bootstrap_manifests) {
            let accepted = strict_dry_run(&client, object).await;
            ensure!(accepted.is_ok(), "{}: {accepted:?}", object.key());
            count += 1;
        }
    }
    assert!(count >= 6, "{count}");
    Ok(())
}

#[tokio::test]
async fn a_second_apply_changes_nothing() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let catalog = embedded::catalog()?;
    for object in catalog.providers().flat_map(|provider| &provider.manifests) {
        let api = apply::api(&lab.client, object.kind(), object.namespace());
        let before = api.get(object.name()).await?;
        // What the operator applied is the manifest with facts in it: apply the live fields that it owns once more.
        let again = api
            .patch(
                object.name(),
                &PatchParams::apply("ccm-operator").force().validation_strict(),
                &Patch::Apply(applied(&before)?),
            )
            .await?;
        assert_eq!(before.metadata.resource_version, again.metadata.resource_version, "{}", object.key());
    }
    Ok(())
}

/// The part of a live object that the operator owns, which is what it has applied.
fn applied(live: &kube::api::DynamicObject) -> Result<Value> {
    let value = serde_json::to_value(live)?;
    let entries = value["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let ours = entries.iter().find(|entry| entry["manager"] == "ccm-operator" && entry["operation"] == "Apply");
    let fields = ours.map(|entry| entry["fieldsV1"].clone()).unwrap_or_default();
    let mut part = owned(&value, &fields);
    part["apiVersion"] = value["apiVersion"].clone();
    part["kind"] = value["kind"].clone();
    part["metadata"]["name"] = value["metadata"]["name"].clone();
    Ok(part)
}

fn owned(value: &Value, fields: &Value) -> Value {
    let Some(fields) = fields.as_object().filter(|fields| !fields.is_empty()) else { return value.clone() };
    match value {
        Value::Object(members) => members
            .iter()
            .filter_map(|(name, member)| Some((name.clone(), owned(member, fields.get(&format!("f:{name}"))?))))
            .collect(),
        Value::Array(items) => {
            if fields.keys().any(|path| path.starts_with("v:")) {
                return value.clone();
            }
            let keys = fields.iter().filter_map(|(path, fields)| {
                let keys: Value = serde_json::from_str(path.strip_prefix("k:")?).ok()?;
                let is = |item: &&Value| keys.as_object().unwrap().iter().all(|(name, key)| item[name] == *key);
                let item = items.iter().find(is)?;
                let mut part = owned(item, fields);
                for (name, key) in keys.as_object()? {
                    part[name] = key.clone();
                }
                Some((items.iter().position(|other| other == item), part))
            });
            let mut parts: Vec<_> = keys.collect();
            parts.sort_by_key(|(position, _)| *position);
            parts.into_iter().map(|(_, part)| part).collect()
        }
        scalar => scalar.clone(),
    }
}

#[tokio::test]
async fn the_type_of_an_aws_load_balancer_cannot_be_changed() -> Result<()> {
    const TYPE: &str = "service.beta.kubernetes.io/aws-load-balancer-type";
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let namespace = lab.plane.namespace("policy").await?;
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &namespace);
    for (name, annotations) in [("with", json!({TYPE: "nlb"})), ("without", json!({}))] {
        let service = json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
    }
    let patch = async |name: &str, value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": value}}));
        services.patch(name, &PatchParams::default(), &patch).await
    };
    // The policy reaches admission a moment after it is applied.
    eventually("the refusal of a change", LIMIT, async || match patch("with", json!({TYPE: "external"})).await {
        Err(kube::Error::Api(status)) if status.is_invalid() => {
            ensure!(status.message.contains("the type of a load balancer is fixed"), "{}", status.message);
            Ok(Some(()))
        }
        other => anyhow::bail!("{other:?}"),
    })
    .await?;
    assert!(patch("with", json!({TYPE: null})).await.is_err(), "removed");
    assert!(patch("without", json!({TYPE: "nlb"})).await.is_err(), "added");
    assert!(patch("with", json!({"other": "x"})).await.is_ok(), "another annotation");
    assert!(patch("without", json!({"other": "x"})).await.is_ok(), "another annotation where there was none");
    for name in ["with", "without"] {
        services.delete(name, &DeleteParams::default()).await?;
    }
    Ok(())
}
