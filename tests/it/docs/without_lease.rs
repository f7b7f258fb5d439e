//! A migration from a cloud-controller-manager that holds no lease, as `DigitalOcean` publishes it, by the commands that `init
//! --from-existing` prints. Two of them would act at once: the old one is stopped first.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{any_kubernetes::Fixture, shell::Shell};
use crate::support::eventually;

/// The Deployment.
const NAME: &str = "digitalocean-cloud-controller-manager";

/// The published DaemonSet, with only these arguments: no `--cloud-provider`, no `--controllers`.
fn published(image: &str) -> Value {
    let labels = json!({"app": NAME});
    let token = json!({"secretKeyRef": {"name": "digitalocean", "key": "access-token"}});
    let container = json!({
        "name": NAME, "image": image, "command": [format!("/bin/{NAME}"), "--leader-elect=false"],
        "env": [{"name": "DO_ACCESS_TOKEN", "valueFrom": token}],
    });
    let pod = json!({"dnsPolicy": "Default", "hostNetwork": true, "tolerations": [{"operator": "Exists"}], "containers": [container]});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME, "namespace": "kube-system"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    })
}

/// Runs a command, which has to end with this exit code, and returns its output.
async fn run(shell: &Shell, expected: i32, command: &str) -> Result<String> {
    let (code, output) = shell.run(command).await?;
    ensure!(code == Some(expected), "exit code {code:?} of {command}\n{output}");
    Ok(output)
}

async fn is_refused(shell: &Shell, image: &str) -> Result<Value> {
    fs::write(shell.folder().join("published.json"), published(image).to_string())?;
    run(shell, 0, "kubectl apply -f published.json").await?;
    run(shell, 0, &format!("kubectl --namespace kube-system rollout status deployment {NAME} --timeout=1m")).await?;
    let report = run(shell, 1, "ccm-operator init --from-existing --force -o json 2>/dev/null").await?;
    let report: Value = serde_json::from_str(&report)?;
    let checks = report["preflight"]["checks"].as_array().context("checks")?;
    let other = checks.iter().find(|one| one["check"] == "other-ccm").context("other-ccm")?;
    ensure!(other["result"] == "Refused", "{other:#}");
    let message = other["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with(&format!("pod kube-system/{NAME}-")), "{message}");
    Ok(report)
}

#[tokio::test]
async fn a_cluster_migrates_from_a_manifest_without_a_lease_in_the_printed_order() -> Result<()> {
    let (_fixture, shell) = Fixture::new().await?;
    let install = "ccm-operator render install --image x --providers digitalocean \
                   --names cluster,main --secrets digitalocean";
    run(&shell, 0, &format!("{install} | kubectl apply --server-side -f -")).await?;
    let secret = "kubectl --namespace kube-system create secret generic digitalocean --from-literal=access-token=x";
    run(&shell, 0, secret).await?;
    is_refused(&shell, "docker.io/digitalocean/digitalocean-cloud-controller-manager:v0.1.68").await?;
    let report = is_refused(&shell, "digitalocean/digitalocean-cloud-controller-manager:v0.1.68").await?;

    // Out of order the operator installs nothing beside it.
    run(&shell, 0, "kubectl apply --server-side -f ccm.yaml").await?;
    let name = "$(kubectl get ccm --output=name)";
    run(&shell, 0, &format!("kubectl wait --for=condition=PreflightPassed=False --timeout=1m {name}")).await?;
    let workloads = "kubectl --namespace kube-system get deployments --output=jsonpath='{.items[*].metadata.name}'";
    assert_eq!(run(&shell, 0, workloads).await?, NAME);
    run(&shell, 0, &format!("kubectl delete {name}")).await?;

    let steps = report["steps"]["next"].as_array().context("steps")?;
    let commands = |step: &Value| -> Vec<String> {
        step["commands"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let all: Vec<String> = steps.iter().flat_map(commands).collect();
    let at = |part: &str| all.iter().position(|one| one.contains(part)).with_context(|| format!("{part}: {all:#?}"));
    ensure!(at("delete deployment")? < at("apply --server-side -f ccm.yaml")?, "{all:#?}");
    for command in &all {
        // Here the nodes get their ids a moment later.
        eventually("success", crate::lab::LIMIT, async || {
            let is_question = command.starts_with("ccm-operator nodes");
            let (code, output) = shell.run(command).await?;
            ensure!(code == Some(0) || is_question, "exit code {code:?} of {command}\n{output}");
            Ok((code == Some(0)).then_some(()))
        })
        .await?;
    }
    let name = run(&shell, 0, workloads).await?;
    assert!(name.starts_with(NAME), "{name}");
    let containers = "kubectl --namespace kube-system get pods --output=jsonpath='{.items[*].spec.containers[*].name}'";
    let containers = run(&shell, 0, containers).await?;
    assert!(!containers.is_empty() && !containers.contains(NAME), "the old one is gone: {containers}");
    Ok(())
}
