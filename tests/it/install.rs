//! The operator's installation on any Kubernetes: an API server takes it, and its permissions suffice for the chosen providers and for
//! no others.

use std::{
    fs,
    process::{Command, Output},
};

use anyhow::{Context, Result, bail, ensure};
use ccm_operator::{
    cli::{Cli, Command as Subcommand},
    cluster::request,
    object::Object,
    plan::install::NAME,
    provider::{embedded, kubernetes::Descriptor},
    text::yaml,
};
use clap::Parser;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, binary, repository},
    support::{
        control_plane::{ControlPlane, Options},
        eventually,
        kubernetes::{asking_for, configuration},
        objects, pool,
    },
};

fn render(arguments: &[&str]) -> Output {
    Command::new(binary()).args(["render", "install"]).args(arguments).output().expect("the binary")
}

/// The output of `render install`, without the CustomResourceDefinition, which has its own file.
fn printed(arguments: &[&str]) -> Result<String> {
    let output = render(arguments);
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    let (definition, rest) = text.split_once("\n---\n").context("several documents")?;
    ensure!(definition.contains("kind: CustomResourceDefinition"), "{definition}");
    Ok(rest.to_owned())
}

/// Installs the operator as an administrator does, for these providers in these namespaces.
async fn install(client: &Client, providers: &str, namespaces: &str) -> Result<Vec<Value>> {
    let text = String::from_utf8(
        render(&["--providers", providers, "--namespaces", namespaces, "--names", "cluster,second,third"]).stdout,
    )?;
    let objects = yaml::documents(&text)?;
    for object in &objects {
        objects::apply(client, object.clone()).await?;
    }
    Ok(objects)
}

/// Deletes what was installed, except what takes a controller to be deleted.
async fn uninstall(client: &Client, objects: &[Value]) -> Result<()> {
    for object in objects.iter().rev() {
        if !["Namespace", "CustomResourceDefinition"].iter().any(|kind| object["kind"] == *kind) {
            objects::delete(client, object).await?;
        }
    }
    Ok(())
}

/// A client with the permissions of the operator's ServiceAccount.
fn operator(plane: &ControlPlane) -> Result<Client> {
    let mut config = plane.config()?;
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{NAME}:{NAME}"));
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{NAME}")];
    config.auth_info.impersonate_groups = Some([&groups[..], &["system:authenticated".to_owned()]].concat());
    Ok(Client::try_from(config)?)
}

/// Everything of a provider, with all controllers.
fn rendered(descriptor: &Descriptor, name: &str, namespace: &str) -> Result<Vec<Object>> {
    let mut spec = asking_for(descriptor);
    spec["namespace"] = json!(namespace);
    if let Some(config) = descriptor.cloud_config.as_ref().filter(|config| !config.holds_credentials) {
        spec["cloudConfig"] = json!({"inline": configuration(config, "a")});
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("ccm.yaml");
    let ccm = json!({
        "apiVersion": "ccm-operator.dev/v1alpha1", "kind": "CloudControllerManager",
        "metadata": {"name": name}, "spec": spec,
    });
    fs::write(&file, ccm.to_string())?;
    let arguments = ["render", "ccm", "--kubernetes-version", "1.35", "-o", "yaml", "--config"];
    let output = Command::new(binary()).args(arguments).arg(file).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    yaml::documents(&String::from_utf8(output.stdout)?)?.into_iter().map(|value| Ok(Object::new(value)?)).collect()
}

/// Applies an object: roles for good, because bindings refer to them, and others by a dry run.
async fn apply(client: &Client, object: &Object) -> kube::Result<()> {
    let mut params = PatchParams::apply("test").force().validation_strict();
    params.dry_run = !object.kind().kind.ends_with("Role");
    let api = request::api(client, object.kind(), object.namespace());
    api.patch(object.name(), &params, &Patch::Apply(object.value())).await.map(drop)
}

/// Applies every object, and deletes the roles again.
async fn apply_and_delete(client: &Client, objects: &[Object]) -> Result<()> {
    for object in objects {
        eventually("the API server knows the role", LIMIT, async || match apply(client, object).await {
            // The role of a binding, a moment after it was written.
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            // This one will not change.
            Err(error) if is_forbidden(&error) => Ok(Some(Err(error))),
            result => result.map(|()| Some(Ok(()))).with_context(|| object.key().to_string()),
        })
        .await?
        .with_context(|| object.key().to_string())?;
    }
    for role in objects.iter().filter(|object| object.kind().kind.ends_with("Role")) {
        let api = request::api(client, role.kind(), role.namespace());
        api.delete(role.name(), &DeleteParams::default()).await.with_context(|| role.key().to_string())?;
    }
    Ok(())
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden())
}

/// Waits until the API server knows the operator's permissions, or knows that they are gone: one of each role.
async fn permissions_are(known: bool, operator: &Client, namespace: &str) -> Result<()> {
    let ask = async |attributes: Value| -> Result<bool> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
            "spec": {"resourceAttributes": attributes},
        });
        let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&review)?)?;
        let answer: Value = operator.request(request).await?;
        Ok(answer["status"]["allowed"] == true)
    };
    eventually("the operator's RBAC", LIMIT, async || {
        let answers = [
            ask(json!({"group": "ccm-operator.dev", "resource": "cloudcontrollermanagers", "verb": "list"})).await?,
            ask(json!({"resource": "serviceaccounts", "verb": "create", "namespace": namespace})).await?,
            ask(json!({"resource": "configmaps", "name": "extension-apiserver-authentication", "verb": "get", "namespace": "kube-system"}))
                .await?,
        ];
        Ok((answers == [known; 3]).then_some(()))
    })
    .await
}

#[test]
fn the_installation_is_printed() -> Result<()> {
    let image = ["--image", "registry.example.com/ccm-operator:0.1.0"];
    insta::assert_snapshot!(
        "install_kubernetes",
        printed(&[&["--providers", "aws,hcloud,vsphere"], &image[..]].concat())?
    );
    let folder = tempfile::tempdir()?;
    let destination = folder.path().to_str().context("a path")?;
    let output = render(&["--providers", "aws", "--dest-dir", destination]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stderr)?.contains("the operator's image is a placeholder: give --image"));
    assert_eq!(fs::read_dir(folder.path().join("manifests"))?.count(), embedded::install().len());
    Ok(())
}

#[test]
fn an_impossible_installation_is_wrong_usage() -> Result<()> {
    for (arguments, expected) in [
        (&[][..], "give --provider PATH, or --providers: aws, "),
        (&["--providers", "asw"], "did you mean `aws`?"),
        (&["--providers", "upcloud"], "there is no provider \"upcloud\"; there are aws, "),
        (&["--providers", "upcloud"], "; one of your own is given by --provider ./upcloud"),
        (&["--replace-built-in", "upcloud"], "; one of your own is given by --provider ./upcloud"),
        (&["--remove-provider", "a.b"], "the name of a provider has"),
        (
            &["--providers", "nutanix"],
            "--namespaces: the cloud-controller-manager of provider nutanix: it reads every Secret of its namespace",
        ),
    ] {
        let output = render(arguments);
        let error = String::from_utf8(output.stderr)?;
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{error} does not contain {expected}");
    }
    Ok(())
}

#[test]
fn the_deployment_has_a_valid_command_line() -> Result<()> {
    let objects = yaml::documents(&printed(&["--providers", "aws"])?)?;
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").context("a Deployment")?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let words = ["command", "args"].into_iter().filter_map(|field| container[field].as_array()).flatten();
    let cli = Cli::try_parse_from(words.filter_map(Value::as_str))?;
    assert!(matches!(cli.command, Subcommand::Operator(_)));
    Ok(())
}

#[test]
fn the_documented_role_for_a_secret_grants_the_same_as_the_installation() -> Result<()> {
    let page = fs::read_to_string(repository().join("docs/any-kubernetes.md"))?;
    let blocks = page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let block = blocks.into_iter().find(|block| block.contains("kind: Role")).context("a Role")?;
    let documented = yaml::documents(block)?;
    let installed = yaml::documents(&printed(&["--providers", "hcloud", "--secrets", "prod"])?)?;
    let find = |kind: &str| {
        let found =
            installed.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == "ccm-operator-managed");
        found.with_context(|| format!("a {kind}"))
    };
    let rules = find("Role")?["rules"].as_array().context("rules")?;
    let for_secrets: Vec<_> = rules.iter().filter(|rule| rule["resources"] == json!(["secrets"])).cloned().collect();
    assert_eq!(documented[0]["rules"], json!(for_secrets));
    assert_eq!(documented[1]["subjects"], find("RoleBinding")?["subjects"]);
    assert_eq!(documented[1]["roleRef"]["name"], documented[0]["metadata"]["name"]);
    Ok(())
}

#[tokio::test]
async fn an_api_server_accepts_the_installation_and_a_second_apply_changes_nothing() -> Result<()> {
    let plane = pool::lease().await?;
    let client = plane.client()?;
    let text = String::from_utf8(render(&["--providers", "aws,hcloud,vsphere"]).stdout)?;
    let objects = yaml::documents(&text)?;
    let mut versions = Vec::new();
    for _ in 0..2 {
        let mut now = Vec::new();
        for object in &objects {
            now.push(objects::apply(&client, object.clone()).await?.metadata.resource_version);
        }
        versions.push(now);
    }
    uninstall(&client, &objects).await?;
    // The API server reports in the status of a definition that it serves it.
    let is_stable = |index: &usize| objects[*index]["kind"] != "CustomResourceDefinition";
    for index in (0..objects.len()).filter(is_stable) {
        assert_eq!(versions[0][index], versions[1][index], "{}", objects[index]["metadata"]);
    }
    Ok(())
}

#[tokio::test]
async fn the_operator_may_apply_and_delete_the_objects_of_a_chosen_provider() -> Result<()> {
    let plane = pool::lease().await?;
    let client = plane.client()?;
    let other = plane.namespace("managed").await?;
    let operator = operator(&plane)?;
    let mut count = 0;
    for provider in embedded::catalog()?.kubernetes() {
        let descriptor = &provider.descriptor;
        for (namespace, names) in [("kube-system", &["cluster", "second"][..]), (&other, &["third"])] {
            if !descriptor.namespaces.include(namespace) {
                continue;
            }
            // Alone, so that it gets no permission that only another one needs.
            let installed = install(&client, &descriptor.name, namespace).await?;
            permissions_are(true, &operator, namespace).await?;
            for name in names {
                let objects = rendered(descriptor, name, namespace)?;
                apply_and_delete(&operator, &objects).await.with_context(|| descriptor.name.clone())?;
                count += objects.len();
            }
            uninstall(&client, &installed).await?;
            permissions_are(false, &operator, namespace).await?;
        }
    }
    assert!(count > 50, "{count}");
    Ok(())
}

#[tokio::test]
async fn the_operator_may_not_apply_objects_of_other_providers() -> Result<()> {
    let plane = pool::lease().await?;
    let client = plane.client()?;
    let installed = install(&client, "aws", "kube-system").await?;
    let operator = operator(&plane)?;
    permissions_are(true, &operator, "kube-system").await?;
    let catalog = embedded::catalog()?;
    let descriptor = |name: &str| catalog.kubernetes_of(name).map(|one| &one.descriptor).map_err(anyhow::Error::msg);
    let refused = async |object: &Object| match apply(&operator, object).await {
        Err(error) if is_forbidden(&error) => Ok(()),
        result => bail!("{}: {result:?}", object.key()),
    };
    let hcloud = rendered(descriptor("hcloud")?, "cluster", "kube-system")?;
    for kind in ["Deployment", "PodDisruptionBudget"] {
        refused(hcloud.iter().find(|object| object.kind().kind == kind).context(kind)?).await?;
    }
    // What has no namespace is by the names of the installation.
    for object in rendered(descriptor("aws")?, "fourth", "kube-system")?.iter().filter(|one| !one.kind().namespaced) {
        refused(object).await?;
    }
    let fourth = rendered(descriptor("aws")?, "fourth", "kube-system")?;
    refused(fourth.iter().find(|object| object.kind().kind == "Role").context("the Role for its lease")?).await?;
    let aws = rendered(descriptor("aws")?, "cluster", "kube-system")?;
    let find = |kind: &str| aws.iter().find(|object| object.kind().kind == kind).map(|object| object.value().clone());
    let mut role = find("ClusterRole").context("a ClusterRole")?;
    role["rules"][0]["verbs"] = json!(["delete"]);
    refused(&Object::new(role)?).await?;
    for (group, resource) in [("", "secrets"), ("", "nodes"), ("rbac.authorization.k8s.io", "clusterroles")] {
        let mut role = find("Role").context("a Role")?;
        role["rules"] =
            json!([{"apiGroups": [group], "resources": [resource], "verbs": ["escalate", "update", "delete"]}]);
        refused(&Object::new(role)?).await?;
    }
    let mut binding = find("ClusterRoleBinding").context("a ClusterRoleBinding")?;
    binding["roleRef"]["name"] = "cluster-admin".into();
    refused(&Object::new(binding)?).await?;
    let mut elsewhere = find("DaemonSet").context("a DaemonSet")?;
    elsewhere["metadata"]["namespace"] = "default".into();
    refused(&Object::new(elsewhere)?).await?;
    uninstall(&client, &installed).await
}

/// A node as kubelets register it, with the taints of a cluster in which nothing works yet.
async fn register(client: &Client, name: &str, labels: Value) -> Result<()> {
    let taint = |key: &str, effect: &str| json!({"key": key, "effect": effect});
    let node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [
            {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
            taint("node.cluster.x-k8s.io/uninitialized", "NoSchedule"),
            taint("node.kubernetes.io/not-ready", "NoSchedule"),
            taint("node.kubernetes.io/not-ready", "NoExecute"),
            taint("node.kubernetes.io/network-unavailable", "NoSchedule"),
            taint("node-role.kubernetes.io/control-plane", "NoSchedule"),
            taint("node-role.kubernetes.io/etcd", "NoExecute"),
            taint("CriticalAddonsOnly", "NoExecute"),
        ]},
    });
    objects::apply(client, node.clone()).await?;
    let room = json!({"cpu": "2", "memory": "2Gi", "pods": "20"});
    let mut status = node;
    status.as_object_mut().context("an object")?.remove("spec");
    status["status"] = json!({"capacity": room, "allocatable": room});
    objects::apply_status(client, status).await.map(drop)
}

#[tokio::test]
async fn both_replicas_are_scheduled_where_nothing_works_yet() -> Result<()> {
    let plane = ControlPlane::start(Options { controllers: true, ..Options::default() }).await?;
    let client = plane.client()?;
    register(&client, "agent", json!({})).await?;
    // The label's value is that of k3s.
    for server in ["server-1", "server-2"] {
        register(&client, server, json!({"node-role.kubernetes.io/control-plane": "true"})).await?;
    }
    let text = String::from_utf8(render(&["--providers", "aws", "--distribution", "k3s"]).stdout)?;
    for object in yaml::documents(&text)? {
        objects::apply(&client, object).await?;
    }
    let pods: Api<Pod> = Api::namespaced(client, NAME);
    let nodes = eventually("both pods have a node", LIMIT, async || {
        let pods = pods.list(&ListParams::default()).await?.items;
        let mut nodes: Vec<_> = pods.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
        nodes.sort();
        Ok((nodes.len() == 2).then_some(nodes))
    });
    assert_eq!(nodes.await?, ["server-1", "server-2"]);
    Ok(())
}
