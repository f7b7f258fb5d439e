//! Bad input of a running operator: said once, at once, by name; nothing is written besides; mended, it goes on.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::{
    lab::{IMAGE, LIMIT, Lab, NAMESPACE, SERVICE_ACCOUNT, binary, describe, message, repository},
    support::{
        eventually, objects,
        objects::Workloads,
        openshift::{self, Cluster},
        operator::Operator,
    },
};

#[tokio::test]
async fn a_bad_images_file_is_said_once_and_waits_for_another() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    for (images, expected) in [
        (None, "No such file or directory"),
        (Some(""), "not JSON: EOF while parsing a value at line 1 column 0"),
        (Some("{\n  \"cloudControllerManagerAWS\": ]\n}"), "line 2 column 32"),
        (Some("[]"), "not a JSON object of key and image reference"),
        (Some("{}"), "have no key \"cloudControllerManagerAWS\""),
        (Some(r#"{"cloudControllerManagerAWS": ""}"#), "key \"cloudControllerManagerAWS\" is empty"),
    ] {
        match images {
            None => fs::remove_file(lab.images_file())?,
            Some(text) => lab.write_images(text)?,
        }
        let mark = lab.mark().await?;
        let operator = lab.start()?;
        let cluster_operator = lab.conditions(&operator, &["Degraded=True", "Upgradeable=False"]).await?;
        let text = message(&cluster_operator, "Degraded");
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("images.json") && !text.contains('\n'), "{text}");
        // The hot loop of upstream writes a hundred times in this second.
        let (settled, cpu) = (lab.mark().await?, operator.cpu_seconds());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(lab.requests(settled)?.iter().map(describe).collect::<Vec<_>>(), Vec::<String>::new());
        assert!(operator.cpu_seconds() - cpu < 0.1, "it waits, and does not look again and again");
        let mut writes = lab.writes(mark)?;
        writes.retain(|write| write.contains("clusteroperators"));
        assert!(writes.len() <= 3, "one of each controller's conditions: {writes:#?}");

        let mended = Instant::now();
        lab.write_images(&json!({"cloudControllerManagerAWS": IMAGE}).to_string())?;
        lab.converged(&operator).await?;
        assert!(mended.elapsed() < Duration::from_secs(2), "{:?}", mended.elapsed());
        operator.terminate()?;
        operator.wait(LIMIT).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_bad_input_does_not_stop_repair() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    lab.write_images("{}")?;
    lab.conditions(&operator, &["Degraded=True", "Available=True"]).await?;
    lab.delete("Deployment").await?;
    eventually("the Deployment", LIMIT, async || Ok(lab.live("Deployment").await?.map(drop))).await?;
    Ok(())
}

#[tokio::test]
async fn an_operator_without_its_rights_says_so_and_does_not_hammer() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let roles: Api<Role> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let reads = json!({"rules": [
        {"apiGroups": ["apps", "", "policy"], "resources": ["deployments", "services", "poddisruptionbudgets"],
         "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "create", "patch"]},
    ]});
    roles.patch(SERVICE_ACCOUNT, &PatchParams::default(), &Patch::Merge(reads)).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let operator = lab.start()?;
    let cluster_operator = lab.conditions(&operator, &["Degraded=True"]).await?;
    let text = message(&cluster_operator, "Degraded");
    assert!(text.starts_with("failed to apply Service ") && text.contains("is forbidden"), "{text}");
    assert!(!text.contains("Status {"), "{text}");
    let (settled, cpu) = (lab.mark().await?, operator.cpu_seconds());
    tokio::time::sleep(Duration::from_secs(4)).await;
    let requests = lab.requests(settled)?;
    assert!(requests.len() <= 40, "at most ten a second: {}", requests.len());
    assert!(operator.cpu_seconds() - cpu < 0.4, "{}", operator.cpu_seconds() - cpu);
    // With its rights back it goes on by itself.
    objects::install_manifests(&lab.client, &repository().join("manifests"), Workloads::Skip).await?;
    lab.converged(&operator).await?;
    Ok(())
}

#[tokio::test]
async fn a_platform_that_is_not_known_yet_is_a_terminal_error() -> Result<()> {
    let lab = Lab::new(&Cluster { platform_status: json!(null), ..Cluster::default() }).await?;
    let operator = lab.start()?;
    let cluster_operator = lab.conditions(&operator, &["Degraded=True"]).await?;
    let text = message(&cluster_operator, "Degraded");
    assert!(text.contains("Infrastructure/cluster: status.platformStatus.type is empty"), "{text}");
    openshift::seed(&lab.client, &Cluster::default()).await?;
    lab.converged(&operator).await?;
    Ok(())
}

#[tokio::test]
async fn an_api_server_that_is_away_is_waited_for_and_health_says_so() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let kubeconfig = dir.path().join("kubeconfig");
    // Port 1 of the loopback: nobody listens there.
    fs::write(&kubeconfig, kubeconfig_of("https://127.0.0.1:1"))?;
    let health = free_port()?;
    let address = format!("--health-addr=127.0.0.1:{health}");
    let operator = Operator::start(binary(), &kubeconfig, &["operator", &address], &[])?;
    let ready = eventually("the reason in /readyz", LIMIT, async || {
        let (code, text) = get(health, "/readyz").await?;
        ensure!(text.contains("onnection refused"), "{code} {text}");
        Ok(Some((code, text)))
    })
    .await?;
    assert_eq!(ready.0, 503);
    assert!(ready.1.contains("infrastructures.config.openshift.io cluster"), "{}", ready.1);
    let (code, _) = get(health, "/healthz").await?;
    assert_eq!(code, 200, "a process that waits must not be restarted");
    operator.terminate()?;
    assert!(operator.wait(Duration::from_secs(5)).await?.success());
    Ok(())
}

#[tokio::test]
async fn a_wrong_kubeconfig_is_an_error_at_once() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let kubeconfig = dir.path().join("kubeconfig");
    for (content, expected) in [
        (None, "failed to read the kubeconfig"),
        (Some("not: [yaml"), "failed to read the kubeconfig"),
        (Some("apiVersion: v1\nkind: Config\ncurrent-context: none\n"), "failed to use the kubeconfig"),
    ] {
        match content {
            None => {}
            Some(text) => fs::write(&kubeconfig, text)?,
        }
        let path = kubeconfig.to_str().unwrap();
        let operator = Operator::start(binary(), &kubeconfig, &["operator", "--kubeconfig", path], &[])?;
        let status = operator.wait(LIMIT).await?;
        let log = operator.log();
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.starts_with("ccm-operator: ") && log.contains(expected) && log.contains(path), "{log}");
        assert_eq!(log.lines().count(), 1, "{log}");
    }
    Ok(())
}

fn kubeconfig_of(server: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
        "users": [{"name": "c", "user": {"token": "none"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    })
    .to_string()
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A plain HTTP request: the status and the body.
pub(crate) async fn get(port: u16, path: &str) -> Result<(u16, String)> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let code = answer.split(' ').nth(1).unwrap_or_default().parse()?;
    Ok((code, answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned()))
}
