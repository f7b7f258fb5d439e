//! The admission policies of the providers, on the real API server.

use anyhow::{Context, Result, bail, ensure};
use ccm_operator::cluster::request;
use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Node, Service, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    contract::plans,
    lab::{LIMIT, Lab, NAMESPACE},
    support::{eventually, openshift::Cluster},
};

/// A cluster with only the policies of one platform.
async fn lab_with_policies_of(platform: &str) -> Result<Lab> {
    let lab = Lab::without_workloads(&Cluster::default()).await?;
    apply_policies_of(platform, &lab).await?;
    Ok(lab)
}

async fn apply_policies_of(platform: &str, lab: &Lab) -> Result<()> {
    let plans = plans()?;
    let (_, plan) = plans.iter().find(|(name, _)| *name == platform).context("a platform")?;
    let policies = plan.objects().iter().filter(|object| object.kind().kind.starts_with("ValidatingAdmissionPolicy"));
    for policy in policies {
        let api = request::api(&lab.client, policy.kind(), policy.namespace());
        api.patch(policy.name(), &PatchParams::apply("test").force(), &Patch::Apply(policy.value())).await?;
    }
    Ok(())
}

/// An annotation of Services, with values that a policy accepts and rejects.
struct Annotation {
    platform: &'static str,
    name: &'static str,
    good: &'static [&'static str],
    bad: &'static [&'static str],
    /// The message of the rejection.
    message: &'static str,
}

async fn only_good_values_are_taken(annotation: &Annotation) -> Result<()> {
    let lab = Lab::without_workloads(&Cluster::default()).await?;
    let namespace = lab.plane.namespace("policy").await?;
    let services: Api<Service> = Api::namespaced(lab.client.clone(), &namespace);
    let annotated = |value: &Value| json!({annotation.name: value});
    let create = async |name: &str, annotations: Value| {
        let service =
            json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"ports": [{"port": 80}]}});
        services.create(&PostParams::default(), &serde_json::from_value(service)?).await.map_err(anyhow::Error::from)
    };
    let change = async |name: &str, annotations: Value| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        services.patch(name, &PatchParams::default(), &patch).await.map_err(anyhow::Error::from)
    };
    let refused = |result: Result<Service>, what: &str| match result {
        Err(error) if error.to_string().contains(annotation.message) => Ok(()),
        other => bail!("{what}: {other:?}"),
    };

    // A Service from before the policy stays usable. Admission learns of a deleted policy of an earlier test, and of this
    // policy, a moment later.
    let bad = json!(annotation.bad[0]);
    eventually("a Service before the policy", LIMIT, async || create("old", annotated(&bad)).await.map(Some)).await?;
    apply_policies_of(annotation.platform, &lab).await?;
    let mut tries = 0;
    eventually("the refusal of a Service", LIMIT, async || {
        tries += 1;
        refused(create(&format!("new-{tries}"), annotated(&bad)).await, "created").map(Some)
    })
    .await?;
    change("old", json!({"other": "x"})).await.context("a value that was there before")?;
    create("plain", json!({})).await.context("a Service without annotations")?;
    change("plain", json!({"other": "x"})).await.context("another annotation")?;
    for value in annotation.bad {
        refused(change("plain", annotated(&json!(value))).await, value)?;
    }
    for value in annotation.good {
        change("plain", annotated(&json!(value))).await.with_context(|| format!("{value:?}"))?;
    }
    refused(change("plain", annotated(&bad)).await, "changed")?;
    change("plain", annotated(&Value::Null)).await.context("removed")?;
    create("good", annotated(&json!(annotation.good[0]))).await.context("created with a good value")?;
    for service in &services.list(&kube::api::ListParams::default()).await? {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        services.delete(name, &DeleteParams::default()).await?;
    }
    lab.delete_all().await
}

#[tokio::test]
async fn a_network_tier_of_gcp_is_one_of_two() -> Result<()> {
    only_good_values_are_taken(&Annotation {
        platform: "GCP",
        name: "cloud.google.com/network-tier",
        good: &["Premium", "Standard"],
        bad: &["premium", "", "Premium "],
        message: "must be Premium or Standard",
    })
    .await
}

#[tokio::test]
async fn an_idle_timeout_of_azure_is_four_to_a_hundred_minutes() -> Result<()> {
    only_good_values_are_taken(&Annotation {
        platform: "Azure",
        name: "service.beta.kubernetes.io/azure-load-balancer-tcp-idle-timeout",
        good: &["4", "9", "10", "99", "100", "007"],
        bad: &["3", "0", "101", "", "4m", "-5", "4.5", " 5", "99999999999999999999"],
        message: "must be a whole number of minutes from 4 to 100",
    })
    .await
}

#[tokio::test]
async fn a_node_manager_of_azure_updates_its_own_node_and_no_other() -> Result<()> {
    let lab = lab_with_policies_of("Azure").await?;
    let nodes: Api<Node> = Api::all(lab.client.clone());
    for name in ["own", "other"] {
        nodes.create(&PostParams::default(), &serde_json::from_value(json!({"metadata": {"name": name}}))?).await?;
    }
    let own = nodes.get("own").await?;
    let bound = BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Node".into()),
        name: Some("own".into()),
        uid: own.metadata.uid,
    };
    let with_node = node_manager(&lab, Some(bound)).await?;
    let without_node = node_manager(&lab, None).await?;
    let update = async |nodes: &Api<Node>, name: &str, value: &str| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"test": value}}}));
        nodes.patch(name, &PatchParams::default(), &patch).await
    };
    let mut tries = 0;
    eventually("the refusal of another node", LIMIT, async || {
        tries += 1;
        let result = update(&with_node, "other", &format!("try-{tries}")).await;
        let message = "the cloud node manager of node own may not update node other";
        ensure!(matches!(&result, Err(error) if error.to_string().contains(message)), "{result:?}");
        Ok(Some(()))
    })
    .await?;
    update(&with_node, "own", "own").await?;
    let result = update(&without_node, "own", "unbound").await;
    let message = "does not say on which node it runs";
    assert!(matches!(&result, Err(error) if error.to_string().contains(message)), "{result:?}");
    update(&nodes, "other", "admin").await.context("somebody else")?;
    for name in ["own", "other"] {
        nodes.delete(name, &DeleteParams::default()).await?;
    }
    lab.delete_all().await
}

/// The Node API with the credentials of a node manager whose token is bound to an object.
async fn node_manager(lab: &Lab, bound_object_ref: Option<BoundObjectReference>) -> Result<Api<Node>> {
    let accounts: Api<ServiceAccount> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let request = TokenRequest {
        spec: TokenRequestSpec { bound_object_ref, ..TokenRequestSpec::default() },
        ..TokenRequest::default()
    };
    let answer = accounts.create_token_request("cloud-node-manager", &PostParams::default(), &request).await?;
    let mut config = lab.plane.config()?;
    config.auth_info.token = Some(answer.status.context("a token")?.token.into());
    Ok(Api::all(Client::try_from(config)?))
}
