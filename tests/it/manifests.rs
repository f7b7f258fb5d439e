//! Every manifest on the real API server: accepted strictly, unchanged by a second apply, and effective.

use anyhow::{Context, Result, ensure};
use ccm_operator::cluster::request;
use ccm_operator::{
    apply::ownership::{FIELD_MANAGER, RequiredWrites, required_writes},
    object::Object,
    provider::embedded,
};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    contract::plans,
    lab::{LIMIT, Lab, repository},
    support::{
        eventually, objects,
        objects::Workloads,
        openshift::{self, Cluster},
        pool,
    },
};

async fn strict_dry_run(client: &Client, object: &Object) -> Result<Value> {
    let params = PatchParams::apply("test").force().validation_strict().dry_run();
    let api = request::api(client, object.kind(), object.namespace());
    Ok(serde_json::to_value(api.patch(object.name(), &params, &Patch::Apply(object.value())).await?)?)
}

#[tokio::test]
async fn every_embedded_manifest_is_accepted() -> Result<()> {
    let plane = pool::lease().await?;
    let client = plane.client()?;
    openshift::install_crds(&client).await?;
    objects::install_manifests(&client, &repository().join("manifests"), Workloads::Skip).await?;
    let catalog = embedded::catalog()?;
    for provider in catalog.providers() {
        assert!(!provider.manifests.is_empty(), "{}", provider.name());
        for object in provider.manifests.iter().chain(&provider.bootstrap_manifests) {
            let accepted = strict_dry_run(&client, object).await;
            ensure!(accepted.is_ok(), "{}: {accepted:?}", object.key());
        }
    }
    Ok(())
}

#[tokio::test]
async fn planned_objects_are_accepted_strictly_and_a_second_apply_changes_nothing() -> Result<()> {
    // Nothing else writes, not even a status.
    let lab = Lab::without_workloads(&Cluster::default()).await?;
    for (platform, plan) in plans()? {
        assert!(!plan.objects().is_empty(), "{platform}");
        for object in plan.objects() {
            let api = request::api(&lab.client, object.kind(), object.namespace());
            let params = PatchParams::apply(FIELD_MANAGER).force().validation_strict();
            let first = api.patch(object.name(), &params, &Patch::Apply(object.value())).await;
            let first = first.with_context(|| format!("{platform}: {}", object.key()))?;
            let second = api.patch(object.name(), &params, &Patch::Apply(object.value())).await?;
            assert_eq!(first.metadata.resource_version, second.metadata.resource_version, "{}", object.key());
            let live = serde_json::to_value(&second)?;
            let again = required_writes(object.value(), &live);
            assert_eq!(again, RequiredWrites::Nothing, "{platform}: the operator would apply {} again", object.key());
        }
        lab.delete_all().await?;
    }
    Ok(())
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
    // Admission enforces the policy a moment after it is applied. Until then a change succeeds, so each is a new one.
    let mut tries = 0;
    eventually("the refusal of a change", LIMIT, async || {
        tries += 1;
        match patch("with", json!({TYPE: format!("type-{tries}")})).await {
            Err(kube::Error::Api(status)) if status.is_invalid() => {
                ensure!(status.message.contains("the type of a load balancer is fixed"), "{}", status.message);
                Ok(Some(()))
            }
            other => anyhow::bail!("{other:?}"),
        }
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
