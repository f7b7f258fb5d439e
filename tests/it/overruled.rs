//! Objects that the API server does not keep as they are applied: each is written once, and reported as it is.

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::{
    lab::{LIMIT, Lab, aws_manifest, message},
    support::{eventually, objects, openshift::Cluster},
};

const MUTATION: &str = "client.lifecycle.config.k8s.io/mutation";

/// A policy that changes new and changed Deployments of AWS.
pub(crate) async fn mutate_deployments(lab: &Lab, expression: &str) -> Result<()> {
    let group = "admissionregistration.k8s.io";
    let policy = json!({
        "apiVersion": format!("{group}/v1beta1"), "kind": "MutatingAdmissionPolicy", "metadata": {"name": "deployments"},
        "spec": {
            "reinvocationPolicy": "Never", "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"],
            }]},
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        },
    });
    objects::apply(&lab.client, policy).await?;
    let binding = json!({
        "apiVersion": format!("{group}/v1beta1"), "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "deployments"}, "spec": {"policyName": "deployments"},
    });
    objects::apply(&lab.client, binding).await?;
    becomes_effective(lab, true).await
}

/// Waits until the API server applies the policy, or does so no longer.
async fn becomes_effective(lab: &Lab, is_there: bool) -> Result<()> {
    let deployment = aws_manifest("Deployment");
    let params = PatchParams::apply("probe").force().dry_run();
    eventually("the policy", LIMIT, async || {
        let mut probe = deployment.value().clone();
        probe["metadata"]["name"] = "probe".into();
        let answer = lab.api(&deployment).patch("probe", &params, &Patch::Apply(&probe)).await?;
        let is_changed = serde_json::to_value(answer)?.to_string().contains("mutated");
        ensure!(is_changed == is_there, "changed: {is_changed}");
        Ok(Some(()))
    })
    .await
}

pub(crate) async fn remove_policy(lab: &Lab) -> Result<()> {
    for kind in ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"] {
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1beta1", "kind": kind,
            "metadata": {"name": "deployments"}});
        objects::delete(&lab.client, &object).await?;
    }
    becomes_effective(lab, false).await
}

pub(crate) const OTHER_IMAGE: &str = r#"Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
    containers: [Object.spec.template.spec.containers{name: "cloud-controller-manager", image: "registry.example/mutated"}]
}}}}"#;

const OTHER_GRACE: &str = r#"Object{metadata: Object.metadata{labels: {"mutated": "yes"}}, spec: Object.spec{template:
    Object.spec.template{spec: Object.spec.template.spec{priorityClassName: "system-node-critical"}}}}"#;

#[tokio::test]
async fn another_image_is_degraded_and_applied_once() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    mutate_deployments(&lab, OTHER_IMAGE).await?;
    let operator = lab.start()?;
    let degraded = lab.conditions(&operator, &["Degraded=True"]).await?;
    let text = message(&degraded, "Degraded");
    ensure!(text.contains("containers[name=cloud-controller-manager].image"), "{text}");
    // Events that do not concern the object cause no further write.
    let mark = lab.mark().await?;
    for replicas in 3..6 {
        lab.update("Service", &json!({"metadata": {"annotations": {"other": replicas.to_string()}}})).await?;
    }
    let writes = lab.settled_writes(&operator, mark).await?;
    ensure!(!writes.iter().any(|write| write.contains("deployments")), "{writes:?}");
    // Who leaves it to the policy is not bothered.
    let ignore = |value: Option<&str>| json!({"metadata": {"annotations": {MUTATION: value}}});
    lab.update("Deployment", &ignore(Some("ignore"))).await?;
    lab.conditions(&operator, &["Available=True", "Degraded=False"]).await?;
    lab.update("Deployment", &ignore(None)).await?;
    lab.conditions(&operator, &["Degraded=True"]).await?;
    remove_policy(&lab).await?;
    // The next change of the object is repaired, and the repair holds.
    lab.update("Deployment", &json!({"spec": {"replicas": 7}})).await?;
    lab.converged(&operator).await?;
    lab.has_two_replicas(&operator).await
}

#[tokio::test]
async fn another_value_of_less_weight_is_named_and_not_degraded() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    mutate_deployments(&lab, OTHER_GRACE).await?;
    let operator = lab.start()?;
    let available = lab.converged(&operator).await?;
    let text = message(&available, "Available");
    let text = text.to_owned();
    remove_policy(&lab).await?;
    ensure!(text.contains("spec.template.spec.priorityClassName"), "{text}\n{}", operator.log());
    Ok(())
}

#[tokio::test]
async fn a_refusal_that_quotes_the_object_shows_none_of_its_secrets() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let group = "admissionregistration.k8s.io/v1";
    let resources = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["configmaps"], "resourceNames": ["cloud-conf"]}]);
    let policy = json!({
        "apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "quoting"},
        "spec": {"matchConstraints": {"resourceRules": resources}, "validations": [{
            "expression": "false",
            "messageExpression": "'bad cloud.conf: ' + object.data['cloud.conf'].replace('\\n', ' ')",
        }]},
    });
    let binding = json!({
        "apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "quoting"},
        "spec": {"policyName": "quoting", "validationActions": ["Deny"]},
    });
    for object in [policy, binding] {
        objects::apply(&lab.client, object).await?;
    }
    let source = "[Global]\npassword = correct horse ZQbattery\ntoken = \"a b ZQtok\"\nsecret = it''s ZQsec\npassphrase = hunter2 ZQpp\n";
    let source = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"cloud.conf": source},
        "metadata": {"name": "kube-cloud-config", "namespace": "openshift-config-managed"}});
    let operator = lab.start()?;
    eventually("the refusal", LIMIT, async || {
        // The policy may be known late: each change is another try.
        let mut source = source.clone();
        source["data"]["try"] = operator.log().len().to_string().into();
        objects::apply(&lab.client, source).await?;
        let text = lab.cluster_operator().await?.to_string();
        ensure!(text.contains("bad cloud.conf"), "{text}\n{}", operator.log());
        Ok(Some(()))
    })
    .await?;
    let cluster_operator = lab.cluster_operator().await?;
    let events: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::all(lab.client.clone());
    let events = serde_json::to_string(&events.list(&kube::api::ListParams::default()).await?.items)?;
    for (place, text) in [("status", cluster_operator.to_string()), ("log", operator.log()), ("events", events)] {
        ensure!(!text.contains("ZQ"), "the {place} shows a secret: {text}");
    }
    for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
        objects::delete(&lab.client, &json!({"apiVersion": group, "kind": kind, "metadata": {"name": "quoting"}}))
            .await?;
    }
    // Another test of this control plane must not meet it.
    eventually("the end of the policy", LIMIT, async || {
        objects::apply(
            &lab.client,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"cloud.conf": ""},
            "metadata": {"name": "cloud-conf", "namespace": "default"}}),
        )
        .await?;
        Ok(Some(()))
    })
    .await
}
