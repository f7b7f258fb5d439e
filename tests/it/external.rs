//! External providers: pinned, installed, upgraded and removed, on a real control plane.

mod restricted;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};
use ccm_operator::{
    cluster::request,
    object::KINDS,
    provider::{embedded, package},
    text::yaml,
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    lab::{self, LIMIT, Lab, POD_UID, binary, describe, message},
    support::{
        audit::Request,
        control_plane::{ControlPlane, Options},
        eventually,
        kubernetes::Kubernetes,
        objects,
        openshift::Cluster,
        operator::Operator,
    },
    trust::with_digests,
};

const NAMESPACES: &str = "--namespaces=kube-system";

/// A provider's folder of this name: Exoscale's.
fn folder(root: &TempDir, name: &str) -> Result<PathBuf> {
    let path = root.path().join(name);
    fs::create_dir_all(path.join("assets/kubernetes"))?;
    for parsed in embedded::parsed_providers().iter().filter(|one| one.name == "exoscale") {
        for (file, bytes) in &parsed.files {
            let file = file.rsplit('/').next().unwrap_or_default();
            let text =
                std::str::from_utf8(bytes)?.replace("exoscale-cloud-controller-manager", &format!("{name}-cloud-ccm"));
            let text = text.replace("name: exoscale\n", &format!("name: {name}\n"));
            fs::write(path.join("assets/kubernetes").join(file), with_digests(&text))?;
        }
    }
    Ok(path)
}

/// Replaces a text in a file of a folder.
fn edit(folder: &Path, file: &str, from: &str, to: &str) -> Result<()> {
    let file = folder.join(file);
    let text = fs::read_to_string(&file)?;
    ensure!(text.contains(from), "{}: no {from:?}", file.display());
    Ok(fs::write(&file, text.replacen(from, to, 1))?)
}

fn pinned(folder: &Path) -> Result<String> {
    let digest = package::read::read(folder)?.digest;
    Ok(format!("--provider={}@{digest}", folder.display()))
}

/// A cluster whose installation knows a provider's folder, with the Secret that it needs.
async fn cluster(folder: &Path, name: &str) -> Result<Kubernetes> {
    let cluster = Kubernetes::new("hcloud").await?;
    let path = folder.display().to_string();
    let replaced: &[&str] = if name == "hcloud" { &["--replace-built-in=hcloud"] } else { &[] };
    cluster.install_with(&[&["--provider", &path, "--providers", name], replaced].concat()).await?;
    cluster.put_secret(name, json!({"api-key": "k", "api-secret": "s", "token": "t"})).await?;
    Ok(cluster)
}

fn spec(name: &str) -> Value {
    json!({"provider": name, "credentials": {"secretRef": {"name": name}}})
}

async fn stop(operator: Operator) -> Result<()> {
    operator.terminate()?;
    operator.wait(LIMIT).await.map(drop)
}

/// The writes except of the status and of Events.
fn writes(requests: &[Request]) -> Vec<String> {
    let counts = |request: &&Request| {
        request.counts_as_write() && !request.is_lease() && !request.is_event() && request.subresource != "status"
    };
    requests.iter().filter(counts).map(describe).collect()
}

#[tokio::test]
async fn an_external_provider_is_installed_upgraded_and_removed_and_fails_closed() -> Result<()> {
    let root = TempDir::new()?;
    let folder = folder(&root, "demo")?;
    let cluster = cluster(&folder, "demo").await?;
    let good = pinned(&folder)?;
    let digest = good.rsplit('@').next().unwrap_or_default().to_owned();

    let mark = cluster.mark().await?;
    let operator = cluster.start_with(&[NAMESPACES, &good])?;
    cluster.create("cluster", spec("demo")).await?;
    let live = cluster.ready(&operator, "cluster").await?;
    assert_eq!(live["status"]["provider"]["digest"], digest.as_str());
    let installed = cluster.objects(Some("cluster")).await?;
    assert!(installed.contains(&"Deployment demo-cloud-ccm".to_owned()), "{installed:?}");
    let refused: Vec<_> = cluster.requests(mark).await?.into_iter().filter(|one| one.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");

    // Swapped after the check: what was checked is applied.
    edit(&folder, "assets/kubernetes/deployment.yaml", "cpu: 100m", "cpu: 101m")?;
    let deployments: Api<Deployment> = Api::namespaced(cluster.client.clone(), "kube-system");
    deployments.delete("demo-cloud-ccm", &DeleteParams::default()).await?;
    let again = eventually("the Deployment", LIMIT, async || Ok(deployments.get_opt("demo-cloud-ccm").await?));
    let again = serde_json::to_value(again.await?)?;
    assert_eq!(again["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"], "100m");
    cluster.ready(&operator, "cluster").await?;
    stop(operator).await?;

    // What was checked is another one now: nothing is applied, and what runs stays.
    let mark = cluster.mark().await?;
    let operator = cluster.start_with(&[NAMESPACES, &good])?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=False", "Stalled=True"]).await?;
    let found = pinned(&folder)?;
    let found = found.rsplit('@').next().unwrap_or_default();
    let ready = message(&live, "Ready");
    assert!(ready.contains(&format!("expected the digest {digest}, found {found}")), "{ready}");
    assert_eq!(live["status"]["provider"]["digest"], digest.as_str(), "the objects are still of that one");
    assert_eq!(writes(&cluster.requests(mark).await?), Vec::<String>::new());
    assert_eq!(cluster.objects(Some("cluster")).await?, installed);

    // It is repaired by itself once the files are the right ones again.
    edit(&folder, "assets/kubernetes/deployment.yaml", "cpu: 101m", "cpu: 100m")?;
    cluster.ready(&operator, "cluster").await?;
    stop(operator).await?;

    // Another digest is another version: its changes are in the log.
    edit(&folder, "assets/kubernetes/deployment.yaml", "cpu: 100m", "cpu: 101m")?;
    let operator = cluster.start_with(&[NAMESPACES, &pinned(&folder)?])?;
    eventually("the new version", LIMIT, async || {
        let live = serde_json::to_value(cluster.ccms().get("cluster").await?)?;
        ensure!(live["status"]["provider"]["digest"] == found, "{:#}", live["status"]);
        Ok(Some(()))
    })
    .await?;
    cluster.ready(&operator, "cluster").await?;
    let log = operator.log();
    let change =
        log.lines().find(|line| line.contains("Deployment kube-system/demo-cloud-ccm") && line.contains("cpu"));
    assert!(change.is_some(), "{log}");
    stop(operator).await?;

    // It disappears: nothing is deleted until that is asked for.
    let mark = cluster.mark().await?;
    let operator = cluster.start_with(&[NAMESPACES])?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=False", "Stalled=True"]).await?;
    let ready = message(&live, "Ready");
    assert!(ready.contains("which is not given: give it again"), "{ready}");
    assert_eq!(writes(&cluster.requests(mark).await?), Vec::<String>::new());
    assert_eq!(cluster.objects(Some("cluster")).await?, installed);
    cluster.patch("cluster", json!({"spec": {"management": "Removed"}})).await?;
    cluster.objects_are(&operator, None, <[String]>::is_empty).await?;
    eventually("the status", LIMIT, async || {
        let live = serde_json::to_value(cluster.ccms().get("cluster").await?)?;
        ensure!(live["status"]["provider"].get("digest").is_none(), "{:#}", live["status"]);
        Ok(Some(()))
    })
    .await
}

/// A message of any length would be more than the API server takes, and then nobody would know why nothing is applied.
#[tokio::test]
async fn a_refusal_reaches_the_status_whatever_the_package_says() -> Result<()> {
    let root = TempDir::new()?;
    let folder = folder(&root, "demo")?;
    let cluster = cluster(&folder, "demo").await?;
    // More would be refused for its size.
    for n in 0..2 {
        let text = format!(
            "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: demo-cloud-{n}\n  namespace: kube-system\n  labels:\n    x: {}\n",
            "a".repeat(900_000)
        );
        fs::write(folder.join(format!("assets/kubernetes/x{n}.yaml")), text)?;
    }
    let mark = cluster.mark().await?;
    let operator = cluster.start_with(&[NAMESPACES, &pinned(&folder)?])?;
    cluster.create("cluster", spec("demo")).await?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=False", "Stalled=True"]).await?;
    let ready = message(&live, "Ready");
    assert!(ready.contains("x0.yaml:7: the label x=aaa") && ready.contains("(external-label); assets/"), "{ready}");
    assert!(ready.len() < 8 << 10 && !ready.contains(&"a".repeat(201)), "{} bytes", ready.len());
    // It says itself that nothing is applied.
    assert_eq!(writes(&cluster.requests(mark).await?), ["patch configmaps ccm-operator-inventory"]);
    let log = operator.log();
    assert!(log.len() < 256 << 10, "{} bytes of log", log.len());
    stop(operator).await
}

#[tokio::test]
async fn a_built_in_provider_takes_the_place_of_an_external_one_only_on_demand() -> Result<()> {
    let root = TempDir::new()?;
    let folder = folder(&root, "hcloud")?;
    let cluster = cluster(&folder, "hcloud").await?;
    let good = pinned(&folder)?;
    let operator = cluster.start_with(&[NAMESPACES, &good])?;
    cluster.create("cluster", spec("hcloud")).await?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=False", "Stalled=True"]).await?;
    let ready = message(&live, "Ready");
    assert!(ready.contains("--replace-built-in hcloud is not given"), "{ready}");
    assert_eq!(cluster.objects(None).await?, Vec::<String>::new(), "not even the built-in one is applied");
    stop(operator).await?;

    let operator = cluster.start_with(&[NAMESPACES, &good, "--replace-built-in=hcloud"])?;
    cluster.ready(&operator, "cluster").await?;
    let installed = cluster.objects(None).await?;
    assert!(installed.contains(&"Deployment hcloud-cloud-ccm".to_owned()), "{installed:?}");
    stop(operator).await?;

    let mark = cluster.mark().await?;
    let operator = cluster.start_with(&[NAMESPACES])?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=False", "Stalled=True"]).await?;
    let ready = message(&live, "Ready");
    assert!(ready.contains("its objects are of the external provider \"hcloud\""), "{ready}");
    assert_eq!(writes(&cluster.requests(mark).await?), Vec::<String>::new());
    stop(operator).await?;

    cluster.install("hcloud").await?;
    let operator = cluster.start_with(&[NAMESPACES, "--remove-provider=hcloud"])?;
    let live = cluster.ready(&operator, "cluster").await?;
    assert_eq!(live["status"]["provider"].get("digest"), None);
    let objects = cluster.objects_are(&operator, None, |objects| {
        objects.contains(&"Deployment hcloud-cloud-controller-manager".to_owned())
    });
    let objects = objects.await?;
    assert!(!objects.contains(&"Deployment hcloud-cloud-ccm".to_owned()), "{objects:?}");
    stop(operator).await?;
    let operator = cluster.start()?;
    cluster.ready(&operator, "cluster").await?;
    Ok(())
}

#[tokio::test]
async fn an_object_of_somebody_else_is_not_taken_over() -> Result<()> {
    let root = TempDir::new()?;
    let folder = folder(&root, "demo")?;
    let cluster = cluster(&folder, "demo").await?;
    let foreign = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "demo-cloud-ccm", "namespace": "kube-system"},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "x", "image": "x"}]}},
        },
    });
    let before = objects::apply(&cluster.client, foreign).await?;
    let operator = cluster.start_with(&[NAMESPACES, &pinned(&folder)?])?;
    cluster.create("cluster", spec("demo")).await?;
    cluster.conditions(&operator, "cluster", &["Ready=False"]).await?;
    let kind = KINDS.iter().find(|known| known.kind == "Deployment").unwrap();
    let deployments: Api<DynamicObject> = request::api(&cluster.client, kind, "kube-system");
    eventually("the refusal", LIMIT, async || {
        let log = operator.log();
        ensure!(log.contains("demo-cloud-ccm"), "{log}");
        Ok(Some(()))
    })
    .await?;
    let after = deployments.get("demo-cloud-ccm").await?;
    assert_eq!(before.data["spec"], after.data["spec"]);
    assert_eq!(deployments.list(&ListParams::default()).await?.items.len(), 1);
    Ok(())
}

/// A cluster of OpenShift on a platform that no release knows, and the folder of its provider, with the permissions that are printed for it.
async fn openshift(root: &TempDir) -> Result<(Lab, PathBuf)> {
    let cluster = Cluster {
        platform_status: json!({"type": "External", "external": {"cloudControllerManager": {"state": "External"}}}),
        platform_spec: json!({"type": "External", "external": {"platformName": "demo"}}),
        ..Cluster::default()
    };
    // Of its own: the permissions that are granted here would be there for other tests, too.
    let plane = ControlPlane::start(Options::default()).await?.into();
    let mut lab = Lab::on(plane, &cluster, &lab::repository().join("manifests")).await?;
    lab.finish_workloads();
    let image = format!("quay.io/demo/ccm:1@sha256:{}", "0a".repeat(32));
    let new = ["provider", "new", "demo", "--flavor", "openshift", "--image", &image];
    let written = Command::new(binary()).args(new).current_dir(root.path()).output()?;
    ensure!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let folder = root.path().join("demo");
    let permissions = Command::new(binary()).args(["provider", "rbac"]).arg(&folder).output()?;
    ensure!(permissions.status.success(), "{}", String::from_utf8_lossy(&permissions.stderr));
    for object in yaml::documents(&String::from_utf8(permissions.stdout)?)? {
        objects::apply(&lab.client, object).await?;
    }
    Ok((lab, folder))
}

/// The names of the Deployments in the managed namespace, each with its image.
async fn deployments(lab: &Lab) -> Result<Vec<String>> {
    let api: Api<Deployment> = Api::namespaced(lab.client.clone(), lab::NAMESPACE);
    let image = |one: &Deployment| {
        let pod = one.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        pod.and_then(|pod| pod.containers[0].image.clone()).unwrap_or_default()
    };
    let name = |one: Deployment| format!("{} {}", one.name_any(), image(&one));
    Ok(api.list(&ListParams::default()).await?.into_iter().map(name).collect())
}

#[tokio::test]
async fn an_external_platform_of_openshift_is_served_by_the_provider_of_its_name() -> Result<()> {
    let root = TempDir::new()?;
    let (lab, folder) = openshift(&root).await?;
    let good = pinned(&folder)?;
    let start = |arguments: &[&str]| lab.start_as(POD_UID, arguments);

    // Without it the platform provides its own cloud-controller-manager.
    let operator = start(&[])?;
    lab.converged(&operator).await?;
    assert_eq!(deployments(&lab).await?, Vec::<String>::new());
    stop(operator).await?;

    let operator = start(&[&good])?;
    let installed = eventually("the Deployment", LIMIT, async || {
        let found = deployments(&lab).await?;
        ensure!(found.len() == 1, "{found:?}\n{}", operator.log());
        Ok(Some(found))
    });
    let installed = installed.await?;
    assert!(installed[0].starts_with("demo-cloud-controller-manager quay.io/demo/ccm:1@sha256:0a0a"), "{installed:?}");
    let expected = format!("the provider is external, {}", good.rsplit('@').next().unwrap_or_default());
    eventually("the status", LIMIT, async || {
        let live = lab.converged(&operator).await?;
        ensure!(lab::message(&live, "Available").contains(&expected), "{live:#}");
        Ok(Some(()))
    })
    .await?;
    stop(operator).await?;

    // Another digest, and none at all: the objects stay.
    let bad = format!("--provider={}@sha256:{}", folder.display(), "0".repeat(64));
    for (arguments, reason) in [(vec![bad.as_str()], "expected the digest"), (vec![], "which is not given")] {
        let mark = lab.mark().await?;
        let operator = start(&arguments)?;
        eventually("the refusal", LIMIT, async || {
            let live = lab.conditions(&operator, &["Degraded=True"]).await?;
            let message = lab::message(&live, "Degraded");
            ensure!(message.contains(reason), "{message}");
            Ok(Some(()))
        })
        .await?;
        assert_eq!(deployments(&lab).await?, installed);
        let deleted: Vec<_> = lab.requests(mark).await?.into_iter().filter(|one| one.verb == "delete").collect();
        assert!(deleted.is_empty(), "{deleted:?}");
        stop(operator).await?;
    }

    let operator = start(&["--remove-provider=demo"])?;
    eventually("the removal", LIMIT, async || {
        let found = deployments(&lab).await?;
        ensure!(found.is_empty(), "{found:?}\n{}", operator.log());
        Ok(Some(()))
    })
    .await?;
    lab.converged(&operator).await?;
    stop(operator).await?;
    let operator = start(&[])?;
    lab.converged(&operator).await?;
    Ok(())
}

#[tokio::test]
async fn a_command_fails_where_the_operator_would_refuse() -> Result<()> {
    let root = TempDir::new()?;
    let folder = folder(&root, "demo")?;
    let (good, ccm) = (pinned(&folder)?, root.path().join("ccm.yaml"));
    let object = json!({
        "apiVersion": "ccm-operator.dev/v1alpha1", "kind": "CloudControllerManager", "metadata": {"name": "cluster"},
        "spec": spec("demo"),
    });
    fs::write(&ccm, object.to_string())?;
    let render = |provider: &str, env: &[(&str, &str)]| -> Result<(Option<i32>, String)> {
        let mut command = Command::new(binary());
        command.args(["render", "ccm", "--kubernetes-version=1.34", "--config"]).arg(&ccm);
        command.args(Some(provider).filter(|flag| !flag.is_empty())).envs(env.iter().copied());
        let output = command.output()?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8(text)?))
    };
    let (code, text) = render(&good, &[])?;
    assert!(code == Some(0) && text.contains("name: demo-cloud-ccm"), "{text}");
    // While a folder is written, it needs no pin.
    let (code, _) = render(&format!("--provider={}", folder.display()), &[])?;
    assert_eq!(code, Some(0));
    let (path, digest) = good.trim_start_matches("--provider=").split_once("@sha256:").unwrap();
    let env = [
        ("CLOUD_PROVIDER", "demo"),
        ("ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN", "true"),
        ("CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH", path),
        ("CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH", digest),
    ];
    assert_eq!(render("", &env)?.0, Some(0));
    let mut bad = env;
    bad[3].1 = "00";
    let (code, text) = render("", &bad)?;
    assert!(code == Some(2) && text.contains("is no digest"), "{code:?} {text}");
    Ok(())
}
