//! Each way to install, to go back and to uninstall, as its page says it.

use std::{collections::BTreeSet, fs};

use anyhow::{Context, Result, ensure};
use ccm_operator::{apply::inventory::set_id, object::PART_OF_LABEL};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Event, Namespace, Node, Service, ServiceAccount},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams},
};
use serde_json::{Value, json};

use super::{
    fixture::{Fixture, GO_HOLDER, GO_IMAGE, manifests},
    page::{self, Mark},
    shell::Shell,
    version_operator::{self, VersionOperator},
};
use crate::{
    lab::{
        INVENTORY, LIMIT, Lab, NAMESPACE, OWN_NAMESPACE, POD_UID, PREDECESSOR, aws_manifest, config_maps, repository,
    },
    support::{eventually, kubelet, objects, openshift::Cluster, scrape::free_port},
};

/// The kinds of other operators in the manifests.
const OTHERS: &[(&str, &str, &str)] = &[
    ("cloudcredential.openshift.io", "CredentialsRequest", "credentialsrequests"),
    ("monitoring.coreos.com", "PrometheusRule", "prometheusrules"),
    ("monitoring.coreos.com", "ServiceMonitor", "servicemonitors"),
];

/// The Deployment of both operators.
const DEPLOYMENT: &str = "cluster-cloud-controller-manager-operator";

/// The image of the pages.
const IMAGE: &str = "registry.example.com/ccm-operator:0.1.0";

/// Follows a section of a page.
pub(super) async fn follow(shell: &Shell, (page, section): (&str, &str)) -> Result<()> {
    let blocks = page::blocks(page)?;
    let blocks: Vec<_> = blocks.iter().filter(|block| block.section == section).collect();
    ensure!(blocks.iter().any(|block| block.mark != Mark::NotRun), "{page} has no commands in {section}");
    for block in blocks {
        shell.follow(block).await?;
    }
    Ok(())
}

/// A release with the Go operator: the same objects of the same names, but its containers, and a binding to another role.
fn go_release() -> Result<Vec<Value>> {
    let mut release = manifests(&repository().join("manifests"), "0000_26_")?;
    let is_in = |object: &Value, kind: &str| object["kind"] == kind && object["metadata"]["namespace"] == NAMESPACE;
    release
        .retain(|object| !(is_in(object, "Role") && object["metadata"]["name"] == "cluster-cloud-controller-manager"));
    for object in &mut release {
        if object["kind"] == "Deployment" {
            let pod = object.pointer_mut("/spec/template/spec").context("a pod")?;
            let container =
                |name: &str| json!({"name": name, "image": GO_IMAGE, "command": ["/bin/bash", "-c", "exec x"]});
            pod["containers"] =
                json!([container("cluster-cloud-controller-manager"), container("config-sync-controllers")]);
        } else if is_in(object, "RoleBinding") && object["metadata"]["name"] == DEPLOYMENT {
            object["metadata"]["name"] = json!("cluster-cloud-controller-manager");
            object["roleRef"] =
                json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"});
        }
    }
    Ok(release)
}

/// A cluster with its CVO and the Go operator, which has installed a CCM, and a shell.
async fn with_go_operator() -> Result<(Fixture, VersionOperator, Shell)> {
    let mut fixture = Fixture::new(OTHERS).await?;
    let cvo = VersionOperator::new(go_release()?);
    // Of the operators whose kinds these are.
    for namespace in ["openshift-cloud-credential-operator", "openshift-monitoring"] {
        objects::apply(
            &fixture.client,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        )
        .await?;
    }
    fixture.stand_in(cvo.clone().run(fixture.client.clone()));
    cvo.settled().await?;
    eventually("the Go operator", LIMIT, async || Ok((fixture.holder().await? == GO_HOLDER).then_some(()))).await?;
    let mut ccm = aws_manifest("Deployment").value().clone();
    ccm["metadata"]["annotations"]["operator.openshift.io/spec-hash"] = json!("0123");
    objects::create_as(&fixture.client, PREDECESSOR, ccm).await?;
    let shell = Shell::new(&fixture.plane.kubeconfig_admin()).await?;
    Ok((fixture, cvo, shell))
}

async fn deployment(fixture: &Fixture, namespace: &str, name: &str) -> Result<Option<Deployment>> {
    Ok(Api::<Deployment>::namespaced(fixture.client.clone(), namespace).get_opt(name).await?)
}

/// The image of the operator's Deployment.
async fn operator_image(fixture: &Fixture) -> Result<String> {
    let deployment = deployment(fixture, OWN_NAMESPACE, DEPLOYMENT).await?.context("the operator's Deployment")?;
    let pod = deployment.spec.and_then(|spec| spec.template.spec).context("a pod")?;
    Ok(pod.containers.into_iter().next().and_then(|container| container.image).unwrap_or_default())
}

async fn ccm(fixture: &Fixture) -> Result<Option<Deployment>> {
    deployment(fixture, NAMESPACE, aws_manifest("Deployment").name()).await
}

/// The objects of every kind of provider that carry the operator's label.
async fn labeled(fixture: &Fixture) -> Result<Vec<String>> {
    let label = ListParams::default().labels(&format!("{PART_OF_LABEL}={}", set_id(OWN_NAMESPACE)));
    let mut found = Vec::new();
    for kind in ccm_operator::object::KINDS {
        let resource = ccm_operator::cluster::request::resource(kind);
        let all: Api<DynamicObject> = Api::all_with(fixture.client.clone(), &resource);
        // Pods carry the label of their Deployment only in its template, and they come and go.
        let items = all.list(&label).await?.items;
        found.extend(items.iter().map(|object| format!("{} {}", kind.kind, object.name_any())));
    }
    Ok(found)
}

/// `spec.overrides` of the `ClusterVersion`.
async fn overrides(fixture: &Fixture) -> Result<Vec<Value>> {
    let version = json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion", "metadata": {"name": "version"},
    });
    let (api, name) = version_operator::api(&fixture.client, &version)?;
    let live = serde_json::to_value(api.get(&name).await?)?;
    Ok(live["spec"]["overrides"].as_array().cloned().unwrap_or_default())
}

#[tokio::test]
async fn the_go_operator_is_replaced_on_a_running_cluster_and_comes_back() -> Result<()> {
    let (fixture, cvo, shell) = with_go_operator().await?;
    let others =
        json!([{"group": "apps", "kind": "Deployment", "namespace": "other", "name": "other", "unmanaged": true}]);
    let patch = format!("oc patch clusterversion version --type merge -p '{{\"spec\":{{\"overrides\":{others}}}}}'");
    ensure!(shell.run(&patch).await?.0 == Some(0));
    let uid = ccm(&fixture).await?.and_then(|it| it.uid());

    follow(&shell, ("docs/replacing-the-go-operator.md", "Steps")).await?;
    follow(&shell, ("docs/operations.md", "After an installation")).await?;
    cvo.settled().await?;
    let exempt = overrides(&fixture).await?.len();
    assert_eq!(exempt, manifests(&shell.folder().join("install/manifests"), "")?.len() + 2);
    assert_eq!(operator_image(&fixture).await?, IMAGE);
    nobody_is_admin(&shell).await?;
    let live = ccm(&fixture).await?.context("the CCM")?;
    assert_eq!(live.uid(), uid, "it was not deleted");
    assert!(!live.annotations().contains_key("operator.openshift.io/spec-hash"), "it was taken over");

    follow(&shell, ("docs/replacing-the-go-operator.md", "Going back")).await?;
    cvo.settled().await?;
    assert_eq!(operator_image(&fixture).await?, GO_IMAGE);
    assert_eq!(json!(overrides(&fixture).await?), others);
    eventually("the Go operator", LIMIT, async || Ok((fixture.holder().await? == GO_HOLDER).then_some(()))).await?;
    assert!(!labeled(&fixture).await?.is_empty());

    follow(&shell, ("docs/replacing-the-go-operator.md", "What stays behind")).await?;
    assert_eq!(labeled(&fixture).await?, Vec::<String>::new());
    assert!(config_maps(&fixture.client, OWN_NAMESPACE).get_opt(INVENTORY).await?.is_none());
    let names = |release: &[Value]| release.iter().map(key).collect::<BTreeSet<_>>();
    let (ours, theirs) = (manifests(&repository().join("manifests"), "0000_26_")?, names(&go_release()?));
    for object in ours.iter().filter(|object| !theirs.contains(&key(object))) {
        let (api, name) = version_operator::api(&fixture.client, object)?;
        assert!(api.get_opt(&name).await?.is_none(), "{}", key(object));
    }
    assert_eq!(ccm(&fixture).await?.and_then(|it| it.uid()), uid, "the CCM is still there");
    Ok(())
}

/// The Go operator is, of the CCM's namespace.
async fn nobody_is_admin(shell: &Shell) -> Result<()> {
    let roles = format!("oc get rolebindings -n {NAMESPACE} -o jsonpath='{{..roleRef.name}}'");
    let (_, output) = shell.run(&roles).await?;
    ensure!(!output.split_whitespace().any(|role| role == "admin"), "{output}");
    Ok(())
}

fn key(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{} {} {}", object["kind"], metadata["namespace"], metadata["name"])
}

#[tokio::test]
async fn an_update_of_the_cluster_to_a_release_with_this_operator_and_back() -> Result<()> {
    let (fixture, cvo, shell) = with_go_operator().await?;
    // What `oc adm release new` makes of the manifests of the image.
    let (code, output) = shell
        .run(&format!("ccm-operator render payload --dest-dir release --image {IMAGE} --release-version 5.0.0"))
        .await?;
    ensure!(code == Some(0), "{output}");
    cvo.update(manifests(&shell.folder().join("release/manifests"), "")?);
    cvo.settled().await?;
    follow(&shell, ("docs/operations.md", "After an installation")).await?;
    assert_eq!(operator_image(&fixture).await?, IMAGE);
    follow(&shell, ("docs/installing-in-a-release.md", "Install it")).await?;
    nobody_is_admin(&shell).await?;

    cvo.update(go_release()?);
    cvo.settled().await?;
    assert_eq!(operator_image(&fixture).await?, GO_IMAGE);
    eventually("the Go operator", LIMIT, async || Ok((fixture.holder().await? == GO_HOLDER).then_some(()))).await?;
    Ok(())
}

#[tokio::test]
async fn the_operator_is_installed_with_kubectl_and_uninstalled() -> Result<()> {
    let fixture = Fixture::new(&[]).await?;
    let shell = Shell::new(&fixture.plane.kubeconfig_admin()).await?;
    let install = async || {
        follow(&shell, ("docs/installing-with-kubectl.md", "Steps")).await?;
        follow(&shell, ("docs/operations.md", "After an installation")).await
    };
    install().await?;
    let uid = ccm(&fixture).await?.context("the CCM")?.uid();
    let namespaces: Api<Namespace> = Api::all(fixture.client.clone());

    follow(&shell, ("docs/uninstalling.md", "The operator, but not the CCM")).await?;
    assert_eq!(ccm(&fixture).await?.and_then(|it| it.uid()), uid, "the CCM is still there");
    assert!(namespaces.get_opt(OWN_NAMESPACE).await?.is_none());
    let accounts: Api<ServiceAccount> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    assert!(accounts.get_opt("cloud-controller-manager").await?.is_some(), "with its account");
    let of_operator = repository().join("manifests/0000_26_cloud-controller-manager-operator_02_rbac_operator.yaml");
    for object in objects::read_yaml(&of_operator)? {
        let (api, name) = version_operator::api(&fixture.client, &object)?;
        assert!(api.get_opt(&name).await?.is_none(), "{}", key(&object));
    }

    // Again: the CCM is taken over.
    install().await?;
    assert_eq!(ccm(&fixture).await?.and_then(|it| it.uid()), uid);
    follow(&shell, ("docs/uninstalling.md", "The operator and the CCM")).await?;
    assert_eq!(labeled(&fixture).await?, Vec::<String>::new());
    let names = [OWN_NAMESPACE, NAMESPACE];
    let left = namespaces.list(&ListParams::default()).await?.items;
    assert!(!left.iter().any(|it| names.contains(&it.name_any().as_str())));
    for object in manifests(&shell.folder().join("install/manifests"), "")? {
        let (api, name) = version_operator::api(&fixture.client, &object)?;
        assert!(api.get_opt(&name).await?.is_none(), "{}", key(&object));
    }
    Ok(())
}

#[tokio::test]
async fn a_report_has_no_secrets() -> Result<()> {
    const SECRET: &str = "not-to-be-seen";
    let cloud_conf = format!("[Global]\nVPC = vpc-1\npassword = {SECRET}\n");
    let cluster = Cluster { kube_cloud_config: Some(json!({"cloud.conf": cloud_conf})), ..Cluster::default() };
    let lab = Lab::new(&cluster).await?;
    let group = "rbac.authorization.k8s.io";
    for object in [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openshift-monitoring"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": "prometheus-k8s", "namespace": "openshift-monitoring"}}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "prometheus-k8s"},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "prometheus-k8s"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "prometheus-k8s"},
            "subjects": [{"kind": "ServiceAccount", "name": "prometheus-k8s", "namespace": "openshift-monitoring"}]}),
    ] {
        objects::apply(&lab.client, object).await?;
    }
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    // Something to report: an Event of a repair.
    let services: Api<Service> = Api::namespaced(lab.client.clone(), NAMESPACE);
    services.delete("aws-cloud-controller-manager", &DeleteParams::default()).await?;
    let events: Api<Event> = Api::namespaced(lab.client.clone(), NAMESPACE);
    let reported = async || Ok(Some(events.list(&ListParams::default()).await?.items).filter(|all| !all.is_empty()));
    eventually("an Event", LIMIT, reported).await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    // Nobody syncs the configuration any more, and the images are missing.
    config_maps(&lab.client, NAMESPACE).delete("cloud-conf", &DeleteParams::default()).await?;
    lab.write_images("{")?;
    let port = free_port()?;
    let arguments = ["--controllers=operator", &format!("--metrics-bind-address=127.0.0.1:{port}")];
    let operator = lab.start_as(POD_UID, &arguments)?;
    lab.conditions(&operator, &["Degraded=True"]).await?;
    let shell = Shell::new(&lab.plane.kubeconfig_admin()).await?;
    shell.program(
        "curl",
        &format!("exec \"$(PATH=${{PATH#*:}} command -v curl)\" \"${{@/localhost:9258/127.0.0.1:{port}}}\""),
    )?;
    // Other tests use the same control plane later.
    kubelet::add_master(&lab.client, "reported").await?;
    let followed = follow(&shell, ("docs/support.md", "Collect")).await;
    Api::<Node>::all(lab.client.clone()).delete("reported", &DeleteParams::default()).await?;
    followed?;
    let read = |name: &str| fs::read_to_string(shell.folder().join("support").join(name));
    for file in fs::read_dir(shell.folder().join("support"))? {
        let name = file?.file_name().into_string().unwrap_or_default();
        let text = read(&name)?;
        assert!(!text.is_empty() && !text.contains(SECRET), "{name}: {text}");
    }
    assert!(read("diff.txt")?.contains("password = ***"), "{}", read("diff.txt")?);
    assert!(read("nodes.txt")?.contains("reported"), "{}", read("nodes.txt")?);
    assert!(read("metrics.txt")?.contains("ccm_operator_build_info"));
    assert!(read("status.json")?.contains("\"Degraded\""));
    Ok(())
}
