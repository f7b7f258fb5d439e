//! Objects with another value in an immutable field are recreated, and deleted only if the API server accepts the new one.

use anyhow::{Context, Result, ensure};
use ccm_operator::apply::inventory;
use ccm_operator::cluster::request;
use ccm_operator::{
    object::{Object, PART_OF_LABEL},
    plan::Plan,
};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    contract::{cluster_on, images, plans},
    lab::{LIMIT, Lab, PREDECESSOR, aws_manifest, describe, message},
    support::{eventually, openshift::Cluster, operator::Operator},
};

/// Creates a changed object of a plan as the Go operator.
pub(crate) async fn create(lab: &Lab, object: &Object, change: impl Fn(&mut Value)) -> Result<String> {
    let mut value = object.value().clone();
    change(&mut value);
    let api = request::api(&lab.client, object.kind(), object.namespace());
    let params = PostParams { field_manager: Some(PREDECESSOR.into()), ..PostParams::default() };
    let live = api.create(&params, &serde_json::from_value(value)?).await?;
    live.metadata.uid.context("a uid")
}

pub(crate) fn with_another_selector(value: &mut Value) {
    value["spec"]["selector"]["matchLabels"] = json!({"other": "selector"});
    value["spec"]["template"]["metadata"]["labels"] = json!({"other": "selector"});
}

/// Waits until an object has another UID.
async fn recreated(lab: &Lab, operator: &Operator, object: &Object, uid: &str) -> Result<Value> {
    let api = request::api(&lab.client, object.kind(), object.namespace());
    let waited = eventually("the recreated object", LIMIT, async || {
        let live = api.get(object.name()).await?;
        ensure!(live.metadata.uid.as_deref() != Some(uid), "not recreated");
        Ok(Some(serde_json::to_value(live)?))
    })
    .await;
    waited.with_context(|| format!("the operator's log:\n{}", operator.log()))
}

#[tokio::test]
async fn a_workload_with_another_selector_is_recreated() -> Result<()> {
    let plans = plans()?;
    let (_, azure) = plans.iter().find(|(name, _)| *name == "Azure").context("Azure")?;
    let lab = Lab::new(&cluster_on("Azure")?).await?;
    lab.write_images(&images())?;
    let workloads: Vec<_> =
        azure.objects().iter().filter(|object| ["Deployment", "DaemonSet"].contains(&object.kind().kind)).collect();
    assert_eq!(workloads.len(), 2);
    let mut uids = Vec::new();
    for object in &workloads {
        uids.push(create(&lab, object, with_another_selector).await?);
    }
    let mark = lab.mark().await?;
    let operator = lab.start()?;
    for (object, uid) in workloads.iter().zip(&uids) {
        let live = recreated(&lab, &operator, object, uid).await?;
        assert_eq!(live["spec"]["selector"], object.value()["spec"]["selector"]);
    }
    lab.converged(&operator).await?;
    for object in &workloads {
        assert!(operator.log().contains(&format!("recreated {}", object.key())), "{}", operator.log());
    }
    let deleted: Vec<_> = lab.writes(mark).await?.into_iter().filter(|write| write.starts_with("delete")).collect();
    assert_eq!(deleted.len(), 2, "{deleted:?}");
    Ok(())
}

/// An admission policy that refuses new Deployments.
pub(crate) struct Refusal {
    policies: Api<ValidatingAdmissionPolicy>,
    bindings: Api<ValidatingAdmissionPolicyBinding>,
}

impl Refusal {
    const NAME: &str = "no-deployments";

    pub(crate) async fn remove(self) -> Result<()> {
        self.policies.delete(Self::NAME, &DeleteParams::default()).await?;
        self.bindings.delete(Self::NAME, &DeleteParams::default()).await?;
        Ok(())
    }
}

/// Lets the API server refuse new Deployments.
pub(crate) async fn refuse_deployments(lab: &Lab) -> Result<Refusal> {
    let refusal = Refusal { policies: Api::all(lab.client.clone()), bindings: Api::all(lab.client.clone()) };
    let policy = json!({"metadata": {"name": Refusal::NAME}, "spec": {
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"],
        }]},
        "validations": [{"expression": "false", "message": "no Deployments today"}],
    }});
    refusal.policies.create(&PostParams::default(), &serde_json::from_value(policy)?).await?;
    let binding = json!({"metadata": {"name": Refusal::NAME}, "spec": {
        "policyName": Refusal::NAME, "validationActions": ["Deny"],
    }});
    refusal.bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    let object = aws_manifest("Deployment");
    eventually("the policy", LIMIT, async || {
        let mut other = object.value().clone();
        other["metadata"]["name"] = "other".into();
        let params = PostParams { dry_run: true, ..PostParams::default() };
        ensure!(lab.api(&object).create(&params, &serde_json::from_value(other)?).await.is_err(), "it is accepted");
        Ok(Some(()))
    })
    .await?;
    Ok(refusal)
}

#[tokio::test]
async fn an_object_is_not_deleted_if_the_new_one_is_refused() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let object = aws_manifest("Deployment");
    let uid = create(&lab, &object, with_another_selector).await?;
    let refusal = refuse_deployments(&lab).await?;
    let api = lab.api(&object);
    let operator = lab.start()?;
    let degraded = lab.conditions(&operator, &["Degraded=True"]).await?;
    assert!(message(&degraded, "Degraded").contains("no Deployments today"), "{degraded:#}");
    assert_eq!(api.get(object.name()).await?.metadata.uid, Some(uid.clone()));
    refusal.remove().await?;
    recreated(&lab, &operator, &object, &uid).await?;
    lab.converged(&operator).await.map(drop)
}

#[tokio::test]
async fn a_binding_to_another_role_is_recreated_while_a_stand_in_grants_the_same() -> Result<()> {
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        let plans = plans()?;
        let (_, plan) = plans.iter().find(|(name, _)| *name == "Nutanix").context("Nutanix")?;
        let object = binding(plan, kind)?;
        let lab = Lab::new(&cluster_on("Nutanix")?).await?;
        lab.write_images(&images())?;
        let uid = create(&lab, object, |value| value["roleRef"]["name"] = "another".into()).await?;
        // A killed process has left a stand-in for yet another role.
        let stand_in = format!("{}-next", object.name());
        let left_over = |value: &mut Value| {
            value["metadata"]["name"] = stand_in.as_str().into();
            value["metadata"]["labels"] = json!({PART_OF_LABEL: inventory::set_id(crate::lab::OWN_NAMESPACE)});
            value["roleRef"]["name"] = "yet-another".into();
        };
        create(&lab, object, left_over).await?;
        let mark = lab.mark().await?;
        let operator = lab.start()?;
        let live = recreated(&lab, &operator, object, &uid).await?;
        assert_eq!(live["roleRef"]["name"], object.value()["roleRef"]["name"]);
        lab.converged(&operator).await?;
        let api = request::api(&lab.client, object.kind(), object.namespace());
        eventually("the stand-in to go", LIMIT, async || {
            ensure!(api.get_opt(&stand_in).await?.is_none(), "it is there");
            Ok(Some(()))
        })
        .await?;
        let mut writes = lab.settle(&operator, mark).await?;
        writes.retain(|request| {
            request.is_write()
                && request.code < 400
                && request.resource == object.kind().plural
                && request.name.starts_with(object.name())
        });
        writes.sort_by_key(|request| request.at);
        let writes: Vec<_> = writes.iter().map(|request| describe(request).replace(object.name(), "X")).collect();
        let plural = object.kind().plural;
        let expected = ["delete X-next", "patch X-next", "delete X", "patch X", "delete X-next"]
            .map(|line| line.replace(' ', &format!(" {plural} ")));
        assert_eq!(writes, expected);
    }
    Ok(())
}

fn binding<'a>(plan: &'a Plan, kind: &str) -> Result<&'a Object> {
    plan.objects().iter().find(|object| object.kind().kind == kind).context("a binding")
}
