//! Bad input of a running operator: reported once, by name, with no other write; the operator continues once it is fixed.

use std::fs;

use anyhow::{Result, ensure};
use k8s_openapi::api::{authorization::v1::SubjectAccessReview, rbac::v1::Role};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::{
    faults::{MOST_A_SECOND, most_in_a_second},
    lab::{IMAGE, LIMIT, Lab, NAMESPACE, OWN_NAMESPACE, SERVICE_ACCOUNT, binary, describe, message, repository},
    support::{
        eventually,
        faults::{Fault, Faults, Rule, Seen},
        objects,
        objects::Workloads,
        openshift::{self, Cluster},
        operator::Operator,
    },
};

#[tokio::test]
async fn a_bad_images_file_is_reported_once_until_it_is_replaced() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    for (images, expected) in [
        (None, "No such file or directory"),
        (Some(""), "images.json:1: invalid JSON: EOF while parsing a value"),
        (Some("{\n  \"cloudControllerManagerAWS\": ]\n}"), "images.json:2:32: invalid JSON"),
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
        // Reported once by each controller; the Go operator writes in a hot loop.
        lab.conditions(
            &operator,
            &["CloudConfigControllerAvailable=True", "TrustedCABundleControllerControllerAvailable=True"],
        )
        .await?;
        let mut writes = lab.settled_writes(&operator, mark).await?;
        writes.retain(|write| write.contains("clusteroperators"));
        assert!(writes.len() <= 3, "{writes:#?}");
        let settled = lab.mark().await?;
        let requests = lab.settle(&operator, settled).await?;
        // A watch that the API server ends starts again, whatever the images are.
        let retries = requests.iter().filter(|request| !request.is_lease() && request.verb != "watch");
        let retries: Vec<_> = retries.map(describe).collect();
        assert_eq!(retries, Vec::<String>::new(), "retried without a new images file");

        lab.write_images(&json!({"cloudControllerManagerAWS": IMAGE}).to_string())?;
        lab.converged(&operator).await?;
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
    lab.exists("Deployment", &operator).await
}

#[tokio::test]
async fn missing_permissions_are_reported_and_retried_with_pauses() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let roles: Api<Role> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let reads = json!({"rules": [
        {"apiGroups": ["apps", "", "policy"], "resources": ["deployments", "services", "poddisruptionbudgets"],
         "verbs": ["list", "watch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch", "create", "patch"]},
    ]});
    roles.patch(SERVICE_ACCOUNT, &PatchParams::default(), &Patch::Merge(reads)).await?;
    may_not_create_services(&lab).await?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    let operator = lab.start_through(proxy.kubeconfig())?;
    let cluster_operator = lab.conditions(&operator, &["Degraded=True"]).await?;
    let text = message(&cluster_operator, "Degraded");
    // Each is retried by itself, so that any may be the first whose error has lasted.
    assert!(text.starts_with("failed to ") && text.contains("is forbidden"), "{text}");
    assert!(!text.contains("Status {"), "{text}");
    proxy.forget();
    // Two of them: each pause is twice the one before, and the last one must end within the limit below.
    let retries = eventually("retries", LIMIT, async || {
        let seen = proxy.seen();
        Ok((seen.iter().filter(|one| one.path.ends_with("/services/aws-cloud-controller-manager")).count() >= 2)
            .then_some(seen))
    });
    let most = most_in_a_second(&retries.await?);
    assert!(most <= MOST_A_SECOND, "{most} requests in a second");
    // It recovers once it has its permissions back.
    objects::install_manifests(&lab.client, &repository().join("manifests"), Workloads::Skip).await?;
    lab.converged(&operator).await?;
    Ok(())
}

#[tokio::test]
async fn a_missing_permission_to_one_document_is_reported_at_the_start() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    let proxies = |seen: &Seen| seen.path.contains("/proxies");
    proxy.inject(vec![Rule { fault: Fault::Answer(403, None), applies: proxies, times: usize::MAX }]);
    let operator = lab.start_through(proxy.kubeconfig())?;
    let cluster_operator = lab.conditions(&operator, &["Degraded=True"]).await?;
    let text = message(&cluster_operator, "Degraded");
    assert!(text.contains("proxies.config.openshift.io"), "{text}");
    proxy.forget();
    lab.converged(&operator).await?;
    Ok(())
}

#[tokio::test]
async fn a_refused_object_does_not_hold_up_the_repair_of_others() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let roles: Api<Role> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let mut role = serde_json::to_value(roles.get(SERVICE_ACCOUNT).await?)?;
    for rule in role["rules"].as_array_mut().into_iter().flatten() {
        if rule["resources"].to_string().contains("services") {
            rule["verbs"] = json!(["get", "list", "watch"]);
        }
    }
    let patch = Patch::Merge(json!({"rules": role["rules"]}));
    roles.patch(SERVICE_ACCOUNT, &PatchParams::default(), &patch).await?;
    may_not_create_services(&lab).await?;
    lab.delete("Service").await?;
    let degraded = lab.conditions(&operator, &["Degraded=True"]).await?;
    assert!(message(&degraded, "Degraded").starts_with("failed to apply Service "), "{degraded:#}");
    // Services come before Deployments.
    lab.delete("Deployment").await?;
    lab.exists("Deployment", &operator).await?;
    assert!(lab.live("Service").await?.is_none());
    lab.conditions(&operator, &["Degraded=True"]).await?;
    objects::install_manifests(&lab.client, &repository().join("manifests"), Workloads::Skip).await?;
    lab.converged(&operator).await.map(drop)
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
async fn an_unreachable_api_server_is_waited_for_and_health_reports_it() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let kubeconfig = dir.path().join("kubeconfig");
    // Nobody listens on port 1.
    fs::write(&kubeconfig, kubeconfig_of("https://127.0.0.1:1"))?;
    let health = crate::support::scrape::free_port()?;
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
    assert!(operator.wait(LIMIT).await?.success());
    Ok(())
}

#[tokio::test]
async fn a_wrong_kubeconfig_is_an_error() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let kubeconfig = dir.path().join("kubeconfig");
    for (content, expected) in [
        (None, "failed to read the kubeconfig"),
        (Some("not: [yaml"), "failed to read the kubeconfig"),
        (Some("apiVersion: v1\nkind: Config\ncurrent-context: none\n"), "has no context \"none\""),
    ] {
        match content {
            None => {}
            Some(text) => fs::write(&kubeconfig, text)?,
        }
        let path = kubeconfig.to_str().unwrap();
        let operator = Operator::start(binary(), &kubeconfig, &["operator", "--kubeconfig", path], &[])?;
        let status = operator.wait(LIMIT).await?;
        let log = operator.log();
        assert_eq!(status.code(), Some(2), "{log}");
        assert!(log.starts_with("ccm-operator: ") && log.contains(expected) && log.contains(path), "{log}");
        assert_eq!(log.lines().count(), 1, "{log}");
    }
    Ok(())
}

/// Waits until the authorizer knows that the operator has lost its permissions.
async fn may_not_create_services(lab: &Lab) -> Result<()> {
    let reviews: Api<SubjectAccessReview> = Api::all(lab.client.clone());
    let review = serde_json::from_value(json!({"metadata": {}, "spec": {
        "user": format!("system:serviceaccount:{OWN_NAMESPACE}:{SERVICE_ACCOUNT}"),
        "resourceAttributes": {"namespace": NAMESPACE, "resource": "services", "verb": "create"},
    }}))?;
    eventually("the loss of permissions", LIMIT, async || {
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| !status.allowed).then_some(()))
    })
    .await
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
