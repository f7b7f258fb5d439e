//! Any Kubernetes: the API of `CloudControllerManager` on a real API server, and the objects that `render ccm` prints.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context, Result};
use ccm_operator::{
    api::spec::Spec,
    apply::dry_run,
    provider::{Flavor, embedded},
    text::yaml,
};
use kube::{
    Client,
    api::{DynamicObject, ListParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{
    lab::{binary, repository},
    support::{eventually, objects, pool},
};

/// For each rule of the API: a specification that it accepts, and one that it refuses with this message.
#[allow(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<(&'static str, Value, Value)> {
    let with = |field: &str, value: Value| json!({"provider": "aws", field: value});
    let config_map = json!({"name": "a", "key": "b"});
    vec![
        ("should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'", json!({"provider": "aws"}), json!({"provider": "../aws"})),
        (
            "the route controller needs network.podCIDRs",
            json!({"provider": "aws", "controllers": {"route": "Enabled"}, "network": {"podCIDRs": ["10.244.0.0/16"]}}),
            with("controllers", json!({"route": "Enabled"})),
        ),
        (
            "at least one controller must be on",
            with("controllers", json!({"cloudNode": "Disabled", "service": "Disabled"})),
            with(
                "controllers",
                json!({"cloudNode": "Disabled", "service": "Disabled", "cloudNodeLifecycle": "Disabled"}),
            ),
        ),
        (
            "supported values: \"Rehearsal\", \"Enabled\", \"Disabled\"",
            with("controllers", json!({"cloudNodeLifecycle": "Enabled"})),
            with("controllers", json!({"cloudNodeLifecycle": "Always"})),
        ),
        (
            "spec.nodeDeletion.minNotReadySeconds in body should be greater than or equal to 60",
            with("nodeDeletion", json!({"minNotReadySeconds": 60})),
            with("nodeDeletion", json!({"minNotReadySeconds": 59})),
        ),
        (
            "spec.nodeDeletion.maxPerHour in body should be greater than or equal to 1",
            with("nodeDeletion", json!({"maxPerHour": 1})),
            with("nodeDeletion", json!({"maxPerHour": 0})),
        ),
        (
            "spec.nodeDeletion.maxPercent in body should be less than or equal to 100",
            with("nodeDeletion", json!({"maxPercent": 100})),
            with("nodeDeletion", json!({"maxPercent": 101})),
        ),
        (
            "each is NAME/UID/TIME",
            with(
                "nodeDeletion",
                json!({"allow": ["node-1/2c5e0a3c-0b1f-4d59-9d52-2f3bb1a3f0b7/2026-01-01T00:00:00Z"]}),
            ),
            with("nodeDeletion", json!({"allow": ["node-1/2c5e0a3c-0b1f-4d59-9d52-2f3bb1a3f0b7"]})),
        ),
        (
            "should match '^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'",
            with("nodeDeletion", json!({"selector": {"matchLabels": {"example.com/pool": "a.B_1", "empty": ""}}})),
            with("nodeDeletion", json!({"selector": {"matchLabels": {"pool": "a'] + ["}}})),
        ),
        (
            "each must be the name of a label",
            with("nodeDeletion", json!({"selector": {"matchLabels": {"a": "b"}}})),
            with("nodeDeletion", json!({"selector": {"matchLabels": {"a' b": "b"}}})),
        ),
        (
            "each must be a subnet",
            with("network", json!({"podCIDRs": ["fd00::/48"]})),
            with("network", json!({"podCIDRs": ["10.244.0.0"]})),
        ),
        (
            "two subnets must be of different IP families",
            with("network", json!({"podCIDRs": ["10.244.0.0/16", "fd00::/48"]})),
            with("network", json!({"podCIDRs": ["10.244.0.0/16", "10.245.0.0/16"]})),
        ),
        (
            "exactly one of inline, configMapRef and secretRef must be given",
            with("cloudConfig", json!({"secretRef": config_map})),
            with("cloudConfig", json!({"inline": "", "configMapRef": config_map})),
        ),
        (
            "a digest belongs to a version",
            with("image", json!({"version": "v1.35.2", "digest": format!("sha256:{}", "0".repeat(64))})),
            with("image", json!({"digest": format!("sha256:{}", "0".repeat(64))})),
        ),
        (
            "a digest belongs to a version",
            with("image", json!({"version": "v1.35.2", "digests": {"a": format!("sha256:{}", "0".repeat(64))}})),
            with("image", json!({"digests": {"a": format!("sha256:{}", "0".repeat(64))}})),
        ),
        (
            "one digest, or digests by container",
            with("image", json!({"version": "v1.35.2", "digests": {}, "digest": format!("sha256:{}", "0".repeat(64))})),
            with(
                "image",
                json!({
                    "version": "v1.35.2", "digest": format!("sha256:{}", "0".repeat(64)),
                    "digests": {"a": format!("sha256:{}", "0".repeat(64))},
                }),
            ),
        ),
        (
            "should match '^sha256:[0-9a-f]{64}$'",
            with("image", json!({"version": "v1.35.2", "digests": {"a": format!("sha256:{}", "0".repeat(64))}})),
            with("image", json!({"version": "v1.35.2", "digests": {"a": "sha256:0"}})),
        ),
        (
            "a repository or a mirror",
            with("image", json!({"registryMirror": "mirror:5000/a"})),
            with("image", json!({"registryMirror": "mirror:5000/a", "repository": "own/ccm"})),
        ),
        (
            "latest changes by itself",
            with("image", json!({"version": "v1.35.2"})),
            with("image", json!({"version": "latest"})),
        ),
        (
            "this lease belongs to another program",
            with("leaderElection", json!({"leaseName": "own"})),
            with("leaderElection", json!({"leaseName": "kube-controller-manager"})),
        ),
        (
            "each key is a flag",
            with("arguments", json!({"--node-monitor-period": "10s"})),
            with("arguments", json!({"node-monitor-period": "10s"})),
        ),
        (
            "each key is a variable",
            with("environment", json!({"AWS_REGION": "eu-central-1"})),
            with("environment", json!({"aws-region": "eu-central-1"})),
        ),
        (
            "greater than or equal to 1024",
            with("ports", json!({"secure": 10300})),
            with("ports", json!({"secure": 443})),
        ),
        ("less than or equal to 6", with("logging", json!({"verbosity": 6})), with("logging", json!({"verbosity": 7}))),
    ]
}

fn resource() -> ApiResource {
    let kind = GroupVersionKind::gvk("ccm-operator.dev", "v1alpha1", "CloudControllerManager");
    ApiResource::from_gvk(&kind)
}

fn ccms(client: &Client) -> kube::Api<DynamicObject> {
    kube::Api::all_with(client.clone(), &resource())
}

fn ccm(name: &str, spec: &Value) -> DynamicObject {
    DynamicObject::new(name, &resource()).data(json!({"spec": spec}))
}

async fn install_crd(client: &Client) -> Result<()> {
    for object in objects::read_yaml(&repository().join("install/00_cloudcontrollermanager.crd.yaml"))? {
        objects::apply(client, object).await?;
    }
    let list = async || Ok(Some(ccms(client).list(&ListParams::default()).await?));
    eventually("CloudControllerManagers are served", Duration::from_secs(20), list).await.map(drop)
}

#[tokio::test]
async fn the_api_accepts_and_refuses_by_each_of_its_rules() -> Result<()> {
    let plane = pool::lease().await?;
    let client = plane.client()?;
    install_crd(&client).await?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for (message, accepted, refused) in cases() {
        ccms(&client).create(&dry_run, &ccm("cluster", &accepted)).await.with_context(|| accepted.to_string())?;
        let error = ccms(&client).create(&dry_run, &ccm("cluster", &refused)).await.unwrap_err().to_string();
        assert!(error.contains(message), "{refused}: {error}");
    }
    for (message, accepted, refused) in cases() {
        let in_a_file = |spec: Value| serde_json::from_value::<Spec>(spec).is_ok_and(|spec| spec.check().is_ok());
        assert!(in_a_file(accepted), "{message}");
        // What is no flag is refused by the provider, which lists those that it allows.
        assert!(!in_a_file(refused) || message.starts_with("each key is a "), "{message}");
    }
    let long = ccm(&"a".repeat(41), &json!({"provider": "aws"}));
    let error = ccms(&client).create(&dry_run, &long).await.unwrap_err().to_string();
    assert!(error.contains("a name has at most 40 characters"), "{error}");
    Ok(())
}

/// Calls a function with each field of a schema: its path, and what the schema says about it.
fn each_field(schema: &Value, path: &mut Vec<String>, see: &mut impl FnMut(&[String], &Value)) {
    see(path, schema);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        path.push(name.clone());
        each_field(field, path, see);
        path.pop();
    }
}

#[test]
fn the_definition_has_no_rule_without_a_case_and_no_limit_that_the_program_does_not_have() -> Result<()> {
    let definition =
        objects::read_yaml(&repository().join("install/00_cloudcontrollermanager.crd.yaml"))?.swap_remove(0);
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let (cases, mut limits) = (cases(), 0);
    each_field(schema, &mut Vec::new(), &mut |path, field| {
        for rule in field["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let message = rule["message"].as_str().unwrap_or_default();
            let has_case = cases.iter().any(|(said, ..)| message.contains(said));
            // A file does not say what was there before.
            assert!(has_case || message.ends_with("cannot be changed"), "{path:?}: {message}");
        }
        let accepts = |value: f64| {
            let mut spec = json!({"provider": "aws", "placement": {"apiServer": {"host": "a"}}});
            *path.iter().fold(&mut spec, |place, name| &mut place[name]) =
                format!("{value:.0}").parse::<i64>().unwrap().into();
            serde_json::from_value::<Spec>(spec).is_ok_and(|spec| spec.check().is_ok())
        };
        for (limit, beyond) in [("minimum", -1.0), ("maximum", 1.0)] {
            if let Some(limit) = field[limit].as_f64() {
                assert!(accepts(limit) && !accepts(limit + beyond), "{path:?}: {field}");
                limits += 1;
            }
        }
    });
    assert!(limits > 10, "{limits}");
    Ok(())
}

#[tokio::test]
async fn defaults_are_stored_and_the_identity_of_a_ccm_cannot_be_changed() -> Result<()> {
    let plane = pool::lease().await?;
    let client = plane.client()?;
    install_crd(&client).await?;
    let ccms = ccms(&client);
    let created = ccms.create(&PostParams::default(), &ccm("defaults", &json!({"provider": "aws"}))).await?;
    let stored = &created.data["spec"];
    assert_eq!(stored["namespace"], "kube-system");
    assert_eq!(stored["controllers"]["cloudNodeLifecycle"], "Rehearsal");
    assert_eq!(stored["ports"]["secure"], 10258);
    assert_eq!(stored["management"], "Managed");
    let read: Spec = serde_json::from_value(stored.clone())?;
    assert_eq!(read, serde_json::from_value(json!({"provider": "aws"}))?, "the server's defaults are the program's");
    for (field, value) in [("provider", "hcloud"), ("namespace", "default")] {
        let mut changed = created.clone();
        changed.data["spec"][field] = value.into();
        let error = ccms.replace("defaults", &PostParams::default(), &changed).await.unwrap_err().to_string();
        assert!(error.contains(&format!("the {field} cannot be changed")), "{error}");
    }
    objects::delete(&client, &serde_json::to_value(&created)?).await
}

#[tokio::test]
async fn an_api_server_accepts_every_manifest_as_it_stands() -> Result<()> {
    let plane = pool::lease().await?;
    let bundles: Vec<_> =
        embedded::parsed_providers().into_iter().filter(|bundle| bundle.flavor == Flavor::Kubernetes).collect();
    assert!(bundles.len() >= 3);
    let client = plane.client()?;
    for manifest in bundles.iter().flat_map(|bundle| &bundle.manifests) {
        assert_eq!(dry_run::refusal(&client, &manifest.object).await?, None, "{}", manifest.object.key());
    }
    Ok(())
}

fn run(arguments: &[&str]) -> Output {
    Command::new(binary()).args(arguments).output().expect("the binary")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

/// Renders a `CloudControllerManager`.
fn render(folder: &Path, manifest: &str, more: &[&str]) -> Output {
    let file = folder.join("ccm.yaml");
    fs::write(&file, manifest).expect("a file");
    run(&[&["render", "ccm", "--config", file.to_str().expect("a path")], more].concat())
}

const AWS: &str = "\
apiVersion: ccm-operator.dev/v1alpha1
kind: CloudControllerManager
metadata: {name: cluster}
spec:
  provider: aws
  clusterName: prod
";

#[test]
fn the_objects_to_apply_are_printed_or_written() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = render(folder.path(), AWS, &["--kubernetes-version", "v1.35.4", "--distribution", "k3s"]);
    let error = text(output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    assert!(error.contains("left out, but applied by the operator: the digests"), "{error}");
    let stream = text(output.stdout);
    let objects = yaml::documents(&stream)?;
    let workload = objects.iter().find(|object| object["kind"] == "DaemonSet").context("a DaemonSet")?;
    let container = &workload["spec"]["template"]["spec"]["containers"][0];
    assert!(container["image"].as_str().is_some_and(|image| image.ends_with(":v1.35.2")), "{container}");
    assert!(
        container["env"].to_string().contains("127.0.0.1"),
        "k3s serves its API server on each server: {container}"
    );
    assert!(container["args"].to_string().contains("--cluster-name=prod"), "{container}");

    let destination = folder.path().join("out");
    let arguments = ["--kubernetes-version", "1.35", "--dest-dir", destination.to_str().context("a path")?];
    assert_eq!(render(folder.path(), AWS, &arguments).status.code(), Some(0));
    assert_eq!(fs::read_dir(destination.join("manifests"))?.count(), objects.len());
    Ok(())
}

#[test]
fn other_manifests_may_stand_beside_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let version = ["--kubernetes-version", "1.35"];
    let secret = "# The token.\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {token: \"---\"}\n--- # The object.\n";
    let output = render(folder.path(), &format!("{secret}{AWS}---\n"), &version);
    assert_eq!(output.status.code(), Some(0), "{}", text(output.stderr));
    assert_eq!(text(output.stdout), text(render(folder.path(), AWS, &version).stdout));
    for (manifest, problem) in [
        (format!("{secret}{AWS}  color: red\n"), "ccm.yaml:14:"),
        (format!("{AWS}---\n{AWS}"), "more than one document"),
    ] {
        let output = render(folder.path(), &manifest, &version);
        let error = text(output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(problem), "{error}");
    }
    Ok(())
}

/// The blocks of YAML of a page.
fn yaml_blocks(page: &str) -> impl Iterator<Item = &str> {
    // One in a list is indented, and so is its end.
    page.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next())
}

/// The page of each provider for any Kubernetes, by its name.
fn cloud_pages() -> Result<Vec<(String, String)>> {
    let catalog = embedded::catalog()?;
    let page = |name: String| Ok((fs::read_to_string(repository().join(format!("docs/clouds/{name}.md")))?, name));
    let pages = catalog.kubernetes().map(|one| page(one.descriptor.name.clone()));
    pages.map(|page| page.map(|(text, name)| (name, text))).collect()
}

#[test]
fn the_example_of_each_cloud_is_rendered() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let pages = cloud_pages()?;
    assert!(pages.len() > 2, "{}", pages.len());
    for (name, page) in pages {
        let documents = yaml_blocks(&page).flat_map(|block| block.split("\n---\n"));
        let manifest = documents.filter(|text| text.contains("kind: CloudControllerManager")).collect::<Vec<_>>();
        assert_eq!(manifest.len(), 1, "docs/clouds/{name}.md");
        let output = render(folder.path(), &manifest.concat(), &["--kubernetes-version", "1.35"]);
        let error = text(output.stderr);
        assert_eq!(output.status.code(), Some(0), "docs/clouds/{name}.md: {error}");
        assert!(!error.contains("warning: spec."), "docs/clouds/{name}.md: {error}");
        assert!(text(output.stdout).contains("kind: ClusterRole"), "docs/clouds/{name}.md");
    }
    Ok(())
}

#[tokio::test]
async fn the_api_server_accepts_the_example_of_each_cloud() -> Result<()> {
    let plane = pool::lease().await?;
    let client = plane.client()?;
    install_crd(&client).await?;
    for (name, page) in cloud_pages()? {
        let mut applied = Vec::new();
        for block in yaml_blocks(&page) {
            // Of a part of an object no more than its syntax can be checked.
            for object in yaml::documents(block)?.into_iter().filter(|object| object["kind"].is_string()) {
                objects::apply(&client, object.clone()).await.with_context(|| format!("docs/clouds/{name}.md"))?;
                applied.push(object);
            }
        }
        for object in applied.iter().rev() {
            objects::delete(&client, object).await?;
        }
    }
    Ok(())
}

#[test]
fn errors_of_a_manifest_name_the_place_or_the_field() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let refused = |manifest: &str, expected: &str| {
        let output = render(folder.path(), manifest, &["--kubernetes-version", "1.35"]);
        let error = text(output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
        assert!(error.contains(expected), "{error} does not contain {expected}");
    };
    refused(&AWS.replace("clusterName", "clustername"), "ccm.yaml:6:3: unknown field `clustername`");
    refused(
        &AWS.replace("kind: CloudControllerManager", "kind: ConfigMap"),
        "must hold one manifest of kind CloudControllerManager",
    );
    refused(&AWS.replace("v1alpha1", "v9"), "apiVersion is \"ccm-operator.dev/v9\"");
    refused(&AWS.replace("name: cluster", "name: Prod"), "metadata.name: a name consists of lower-case letters");
    refused(
        &AWS.replace("clusterName: prod", "ports: {secure: 80}"),
        "ccm.yaml: CloudControllerManager/cluster: spec.ports.secure: ",
    );
    refused(&AWS.replace("aws", "asw"), "spec.provider: there is no provider \"asw\" (did you mean `aws`?)");
    refused(&AWS.replace("aws", "hcloud"), "spec.credentials: provider hcloud needs a Secret with the keys token");
    let output = render(folder.path(), AWS, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(output.stderr).contains("--kubernetes-version <VERSION>"));
    let output = render(folder.path(), AWS, &["--kubernetes-version", "1.99"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(output.stderr).contains("warning: there is no tag for Kubernetes 1.99"));
    let output = render(folder.path(), AWS, &["--kubernetes-version", "newest"]);
    assert!(text(output.stderr).contains("is not a version of Kubernetes, such as 1.35"));
    Ok(())
}

#[test]
fn the_images_for_mirrors_are_listed() -> Result<()> {
    let output = run(&["images", "--kubernetes", "1.34,1.99", "-o", "json"]);
    let images: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let of_all: usize = embedded::catalog()?.kubernetes().map(|one| one.descriptor.images.len()).sum();
    assert_eq!(images.len(), 2 * of_all);
    let of = |provider: &str, kubernetes: &str| {
        let found = images.iter().find(|one| one["provider"] == provider && one["kubernetes"] == kubernetes);
        found.cloned().expect("an image")
    };
    let aws = of("aws", "1.34");
    assert_eq!(aws["image"], "registry.k8s.io/provider-aws/cloud-controller-manager:v1.34.3");
    assert_eq!((&aws["verified"], &aws["note"]), (&json!(false), &Value::Null));
    assert!(
        of("aws", "1.99")["note"].as_str().is_some_and(|note| note.starts_with("there is no tag for Kubernetes 1.99"))
    );
    let table = text(run(&["images", "--kubernetes", "1.34", "--provider", "hcloud"]).stdout);
    assert_eq!(table.lines().count(), 2, "{table}");
    let unknown = run(&["images", "--kubernetes", "1.34", "--provider", "hclod"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(unknown.stderr).contains("did you mean `hcloud`"));
    Ok(())
}
