//! Measures the cost of unrelated objects: ten thousand of each kind that the operator watches.

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};

use crate::{
    measure::{self, Access, Convergence},
    progress,
    support::lab::{Lab, NAMESPACE},
};

/// How many of each kind.
const COUNT: usize = 10_000;
/// How many are created at once.
const CONCURRENCY: usize = 16;

/// A start without them and one with them.
pub struct Unrelated {
    pub without: Convergence,
    pub with: Convergence,
}

/// Starts the operator without and with unrelated objects.
pub async fn measure(access: &Access<'_>, lab: &Lab) -> Result<Unrelated> {
    progress("without unrelated objects");
    let without = measure::cold(access).await?;
    for (api_version, kind, namespace, body) in kinds() {
        progress(&format!(
            "creating {COUNT} {kind}s in {}",
            if namespace.is_empty() { "the cluster" } else { namespace }
        ));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = if namespace.is_empty() {
            Api::all_with(lab.client.clone(), &resource)
        } else {
            Api::namespaced_with(lab.client.clone(), namespace, &resource)
        };
        let create = |number: usize| {
            let (api, mut object) = (api.clone(), body.clone());
            object["apiVersion"] = api_version.into();
            object["kind"] = kind.into();
            object["metadata"] = json!({"name": format!("unrelated-{number}"), "labels": {"app": "unrelated"}});
            async move {
                api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
                anyhow::Ok(())
            }
        };
        stream::iter(0..COUNT).map(create).buffer_unordered(CONCURRENCY).try_collect::<Vec<_>>().await?;
    }
    progress("with unrelated objects");
    let with = measure::cold(access).await?;
    Ok(Unrelated { without, with })
}

const ADMISSION: &str = "admissionregistration.k8s.io/v1";

/// The kinds that the operator watches on AWS, by a label in a namespace or in the cluster, or by a name.
fn kinds() -> [(&'static str, &'static str, &'static str, Value); 7] {
    let labels = json!({"app": "unrelated"});
    let pod = json!({"containers": [{"name": "c", "image": "registry.example/unrelated"}]});
    let workload = json!({"replicas": 0, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod}});
    let policy = json!({
        "matchConstraints": {"resourceRules": [
            {"apiGroups": ["unrelated.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["none"]},
        ]},
        "validations": [{"expression": "true"}],
    });
    let binding = json!({"policyName": "there-is-none", "validationActions": ["Audit"]});
    [
        ("v1", "ConfigMap", "openshift-config", json!({"data": {"cloud.conf": "[Global]\n"}})),
        ("v1", "ConfigMap", NAMESPACE, json!({"data": {"cloud.conf": "[Global]\n"}})),
        ("v1", "Service", NAMESPACE, json!({"spec": {"clusterIP": "None", "ports": [{"port": 1}]}})),
        ("apps/v1", "Deployment", NAMESPACE, json!({"spec": workload})),
        (
            "policy/v1",
            "PodDisruptionBudget",
            NAMESPACE,
            json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}),
        ),
        (ADMISSION, "ValidatingAdmissionPolicy", "", json!({"spec": policy})),
        (ADMISSION, "ValidatingAdmissionPolicyBinding", "", json!({"spec": binding})),
    ]
}
