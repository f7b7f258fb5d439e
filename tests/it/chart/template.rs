//! `helm template` prints the same objects as `render install` with the flags of the same meaning.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    api::placement::Distribution,
    provider::{embedded, kubernetes::Descriptor},
    text::yaml,
};
use serde_json::{Value, json};

use super::generate::{CHART, name};
use crate::{
    lab::{binary, repository},
    scaffold,
    support::artifacts,
};

/// Runs Helm in the repository.
pub(super) async fn helm(arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new(artifacts::helm().await?);
    // Its own folders: the user's settings of Helm are none of the test's.
    let home = tempfile::tempdir()?;
    command.args(arguments).current_dir(repository()).env_clear().env("HOME", home.path()).stdin(Stdio::null());
    Ok(command.output()?)
}

/// The objects that the chart makes of values, in a namespace.
pub(super) async fn templated(namespace: &str, values: &Value, arguments: &[&str]) -> Result<Vec<Value>> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), values.to_string())?;
    let path = file.path().display().to_string();
    let template = ["template", "any", CHART, "--include-crds", "--namespace", namespace, "--values", &path];
    let output = helm(&[&template[..], arguments].concat()).await?;
    ensure!(output.status.success(), "{values}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(yaml::documents(&String::from_utf8(output.stdout)?)?)
}

/// The objects that are printed for flags.
pub(super) fn rendered(flags: &[&str]) -> Result<Vec<Value>> {
    let output = Command::new(binary()).args(["render", "install"]).args(flags).output()?;
    ensure!(output.status.success(), "{flags:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(yaml::documents(&String::from_utf8(output.stdout)?)?)
}

/// Objects by what they are. Of a role each single permission counts, not how the rules are grouped.
pub(super) fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for mut object in objects {
        let metadata = &object["metadata"];
        let key = format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"]);
        if let Some(rules) = object.get_mut("rules") {
            *rules = json!(permissions(rules));
        }
        without_fractions(&mut object);
        assert_eq!(all.insert(key.clone(), object), None, "{key} is there twice");
    }
    all
}

/// 1.0 is 1: kustomize writes it so.
fn without_fractions(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(without_fractions),
        Value::Array(items) => items.iter_mut().for_each(without_fractions),
        Value::Number(number) => {
            if let Some(whole) =
                number.as_f64().map(|number| format!("{number}")).and_then(|text| text.parse::<i64>().ok())
            {
                *value = whole.into();
            }
        }
        _ => {}
    }
}

/// Fails with the lines that differ.
pub(super) fn are_the_same(expected: &BTreeMap<String, Value>, found: &BTreeMap<String, Value>) -> Result<()> {
    let [expected, found] = [expected, found].map(|all| serde_json::to_string_pretty(all).map(|text| text + "\n"));
    let (expected, found) = (expected?, found?);
    let diff = similar::TextDiff::from_lines(&expected, &found);
    ensure!(expected == found, "{}", diff.unified_diff().header("render", "found"));
    Ok(())
}

fn permissions(rules: &Value) -> BTreeSet<String> {
    let list = |rule: &Value, field: &str| rule[field].as_array().cloned().unwrap_or_else(|| vec![Value::Null]);
    let mut all = BTreeSet::new();
    for rule in rules.as_array().into_iter().flatten() {
        assert_ne!(rule["resourceNames"], json!([]), "an empty list of names is no limit: {rule}");
        for group in list(rule, "apiGroups") {
            for resource in list(rule, "resources") {
                for name in list(rule, "resourceNames") {
                    all.extend(list(rule, "verbs").iter().map(|verb| format!("{verb} {group}/{resource} {name}")));
                }
            }
        }
    }
    all
}

fn names(values: &[&str]) -> String {
    values.join(",")
}

#[tokio::test]
#[allow(clippy::too_many_lines, reason = "a table")]
async fn the_chart_renders_values_like_flags_of_render() -> Result<()> {
    let catalog = embedded::catalog()?;
    let all: Vec<_> = catalog.kubernetes().map(|one| one.descriptor.name.as_str()).collect();
    let digest = format!("sha256:{}", "0".repeat(64));
    let pinned = format!("mirror:5000/x/a/operator:v9@{digest}");
    let mut cases: Vec<(&str, Vec<String>, Value)> = Vec::new();
    let mut case = |namespace, flags: &[&str], values: Value| {
        cases.push((namespace, flags.iter().map(|&flag| flag.to_owned()).collect(), values));
    };
    for Descriptor { name, namespaces, .. } in catalog.kubernetes().map(|one| &one.descriptor) {
        let (mut flags, mut values) = (vec!["--providers", name], json!({"providers": [name]}));
        if !namespaces.include("kube-system") {
            flags.extend(["--namespaces", name]);
            values["namespaces"] = json!([name]);
        }
        case("ccm-operator", &flags, values);
    }
    case(
        "own",
        &["--providers", &names(&all), "--operator-namespace", "own", "--namespaces", "kube-system,clouds"],
        json!({"providers": all, "namespaces": ["kube-system", "clouds"]}),
    );
    for distribution in Distribution::ALL.into_iter().map(name) {
        for nodes in ["0", "1", "3"] {
            case(
                "ccm-operator",
                &["--providers", "aws", "--distribution", &distribution, "--control-plane-nodes", nodes],
                json!({"providers": ["aws"], "distribution": distribution, "controlPlaneNodes": nodes.parse::<u8>()?}),
            );
        }
    }
    for (flag, host) in [("api.lab:6443", "api.lab"), ("127.0.0.1:6443", "127.0.0.1"), ("[fd00::1]:6443", "fd00::1")] {
        case(
            "ccm-operator",
            &["--providers", "hcloud", "--distribution", "k3s", "--api-server", flag],
            json!({"providers": ["hcloud"], "distribution": "k3s", "apiServer": {"host": host}}),
        );
    }
    case(
        "ccm-operator",
        &["--providers", "hcloud", "--api-server", "a:443"],
        json!({"providers": ["hcloud"], "apiServer": {"host": "a", "port": 443}}),
    );
    case(
        "cloud",
        &["--providers", "aws,vsphere", "--namespaces", "cloud,1,kube-system", "--operator-namespace", "cloud"],
        json!({"providers": ["vsphere", "aws"], "namespaces": ["cloud", "1", "kube-system"]}),
    );
    case(
        "ccm-operator",
        &["--providers", "aws,hcloud", "--secrets", "prod,true,1", "--node-deletion"],
        json!({"providers": ["aws", "hcloud"], "secrets": ["prod", "true", "1"], "nodeDeletion": true}),
    );
    case(
        "ccm-operator",
        &["--providers", "aws,azure", "--names", "cluster,second,a.b", "--expose-metrics", "--node-deletion"],
        json!({"providers": ["aws", "azure"], "names": ["cluster", "second", "a.b"], "exposeMetrics": true, "nodeDeletion": true}),
    );
    case(
        "ccm-operator",
        &["--providers", "aws", "--names", "second", "--expose-metrics"],
        json!({"providers": ["aws"], "names": ["second"], "serviceMonitor": {"enabled": true}}),
    );
    // What is left of a provider is deleted with the permissions that its installation has left.
    case(
        "ccm-operator",
        &["--providers", "aws", "--remove-provider", "acme,other"],
        json!({"providers": ["aws"], "removeProviders": ["acme", "other"]}),
    );
    case("ccm-operator", &["--remove-provider", "acme"], json!({"removeProviders": ["acme"]}));
    case(
        "ccm-operator",
        &["--providers", "aws", "--node-deletion", "--metrics-certificate-secret", "metrics"],
        json!({"providers": ["aws"], "nodeDeletion": true, "metricsCertificate": {"secretName": "metrics"}}),
    );
    case(
        "ccm-operator",
        &[
            "--providers",
            "aws",
            "--image-repositories",
            "a/b,c/",
            "--registry-mirrors",
            "m:5000/x,n",
            "--image-pull-secrets",
            "p,q",
            "--leases",
            "own,other",
        ],
        json!({
            "providers": ["aws"], "imageRepositories": ["a/b", "c/"], "registryMirrors": ["m:5000/x", "n"],
            "imagePullSecrets": ["p", "q"], "leases": ["own", "other"],
        }),
    );
    for (image, values) in [
        ("registry/operator:1", json!({"repository": "registry/operator", "tag": "1"})),
        (
            pinned.as_str(),
            json!({"repository": "r/a/operator", "tag": "v9", "digest": digest, "registryMirror": "mirror:5000/x"}),
        ),
    ] {
        let mut flags = vec!["--providers", "aws", "--image", image];
        // The administrator's mirror serves the images of the cloud-controller-managers, too.
        if let Some(mirror) = values["registryMirror"].as_str() {
            flags.extend(["--registry-mirrors", mirror]);
        }
        case("ccm-operator", &flags, json!({"providers": ["aws"], "image": values}));
    }
    for (namespace, flags, values) in cases {
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        let mut expected = by_name(rendered(&flags)?);
        // Helm keeps its own record of the release in the namespace, so it has to be there before.
        expected.retain(|_, object| object["kind"] != "Namespace");
        let found = by_name(templated(namespace, &values, &[]).await?);
        are_the_same(&expected, &found).with_context(|| format!("{flags:?}"))?;
    }
    Ok(())
}

/// Their `ConfigMap` and their permissions are not the chart's.
#[tokio::test]
async fn external_providers_are_mounted_as_render_mounts_them() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let image = format!("--image=registry.example/acme/ccm:v1.2.3@sha256:{}", "0a".repeat(32));
    let written = scaffold::new(folder.path(), &["acme", &image]);
    ensure!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let (path, policy) = (folder.path().join("acme"), folder.path().join("policy.yaml"));
    fs::write(&policy, "acme: {external-host-port: [1]}\n")?;
    let (path, policy) = (path.display().to_string(), policy.display().to_string());
    let digest = |of: &str| -> Result<String> {
        let output = Command::new(binary()).args(["provider", "digest", of]).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let (digest, digest_of_policy) = (digest(&path)?, digest(&policy)?);
    let external = json!([{"name": "acme", "digest": digest}]);
    let policies = ["--provider-policy", &policy, "--replace-built-in", "hcloud"];
    for (flags, values) in [
        (&[][..], json!({"externalProviders": external})),
        (&["--providers", "aws"], json!({"externalProviders": external, "providers": ["aws"]})),
        (
            &["--metrics-certificate-secret", "metrics"],
            json!({"externalProviders": external, "metricsCertificate": {"secretName": "metrics"}}),
        ),
        (
            &["--remove-provider", "other,own"],
            json!({"externalProviders": external, "removeProviders": ["other", "own"]}),
        ),
        (
            &policies,
            json!({
                "externalProviders": external, "replaceBuiltIn": ["hcloud"],
                "providerPolicy": "provider-policy", "providerPolicyDigest": digest_of_policy,
            }),
        ),
    ] {
        let deployment = |objects: Vec<Value>| objects.into_iter().find(|object| object["kind"] == "Deployment");
        let expected = deployment(rendered(&[&["--provider", &path], flags].concat())?);
        let found = templated("ccm-operator", &values, &[]).await?;
        assert!(found.iter().all(|object| object.get("rules") != Some(&Value::Null)), "{values}");
        assert_eq!(deployment(found), expected, "{values}");
    }
    Ok(())
}
