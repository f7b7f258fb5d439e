//! The kustomize base in `install/` and its components in `kustomize/`: written from the objects of `install/`, and compared with
//! what `render` prints.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    api::placement::Distribution,
    plan::{
        install::{Installation, NAME},
        limits::Limits,
    },
    provider::{catalog::Catalog, embedded, kubernetes::KubernetesProvider},
    text::yaml,
};
use serde_json::{Value, json};

use super::{
    generate::{GENERATED, base, name},
    template::{are_the_same, by_name, rendered},
};
use crate::{lab::repository, support::artifacts};

/// The value of the Deployment that each distribution changes.
const VARIABLES: &str = "/spec/template/spec/containers/0/env";

/// The installation as it stands in `install/`.
fn plain<'a>() -> Installation<'a> {
    let (namespaces, operator_namespace) = (vec!["kube-system".into()], NAME.into());
    Installation { namespaces, operator_namespace, image: None, limits: Limits::default(), ..base() }
}

/// The objects of an installation.
fn objects(installation: &Installation<'_>) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for (_, bytes) in embedded::install() {
        all.extend(yaml::documents(&installation.of(std::str::from_utf8(bytes)?)?)?);
    }
    Ok(all)
}

/// The operations of a JSON patch that make one value of another: they add and replace.
fn operations(path: &str, from: &Value, to: &Value, into: &mut Vec<Value>) -> Result<()> {
    match (from, to) {
        _ if from == to => {}
        (Value::Object(before), Value::Object(after)) => {
            ensure!(before.keys().all(|key| after.contains_key(key)), "{path} loses a field");
            for (key, to) in after {
                let path = format!("{path}/{key}");
                match before.get(key) {
                    Some(from) => operations(&path, from, to, into)?,
                    None => into.push(json!({"op": "add", "path": path, "value": to})),
                }
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            ensure!(before.len() <= after.len(), "{path} loses an item");
            for (index, (from, to)) in before.iter().zip(after).enumerate() {
                operations(&format!("{path}/{index}"), from, to, into)?;
            }
            let further = after[before.len()..].iter();
            into.extend(further.map(|value| json!({"op": "add", "path": format!("{path}/-"), "value": value})));
        }
        _ => into.push(json!({"op": "replace", "path": path, "value": to})),
    }
    Ok(())
}

/// The component that makes an installation of the base. That of a distribution tests that no other distribution has changed the base.
fn component(installation: &Installation<'_>) -> Result<String> {
    let is_of_distribution = installation.distribution != plain().distribution;
    let of = |object: &Value| (object["kind"].clone(), object["metadata"].clone());
    let wanted = objects(installation)?;
    let reason = if is_of_distribution {
        "# The test refuses a second distribution, which would give the operator two addresses of the API server.\n"
    } else {
        ""
    };
    let mut text =
        format!("# {GENERATED}\n{reason}apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\npatches:\n");
    for object in objects(&plain())? {
        let (kind, metadata) = of(&object);
        let patch = match wanted.iter().find(|other| of(other) == of(&object)) {
            None => json!({"apiVersion": object["apiVersion"], "kind": kind, "metadata": metadata, "$patch": "delete"}),
            Some(other) => {
                let mut all = Vec::new();
                operations("", &object, other, &mut all).with_context(|| format!("{kind} {metadata}"))?;
                if is_of_distribution && kind == "Deployment" {
                    let value = object.pointer(VARIABLES).context(VARIABLES)?;
                    ensure!(
                        other.pointer(VARIABLES) != Some(value),
                        "{:?} keeps {VARIABLES}",
                        installation.distribution
                    );
                    all.insert(0, json!({"op": "test", "path": VARIABLES, "value": value}));
                }
                json!(all)
            }
        };
        if patch != json!([]) {
            let target = match &metadata["namespace"] {
                Value::String(namespace) => format!(", namespace: {namespace}"),
                _ => String::new(),
            };
            let (kind, name) = (kind.as_str().unwrap_or_default(), metadata["name"].as_str().unwrap_or_default());
            writeln!(text, "- target: {{kind: {kind}, name: {name}{target}}}\n  patch: |-")?;
            yaml::to_string(&patch)?.lines().try_for_each(|line| writeln!(text, "    {line}"))?;
        }
    }
    Ok(text)
}

/// The base has this namespace and no other.
fn in_kube_system(catalog: &Catalog) -> impl Iterator<Item = &KubernetesProvider> {
    catalog.kubernetes().filter(|one| one.descriptor.namespaces.include("kube-system"))
}

/// Every generated file, by its path.
fn generated() -> Result<BTreeMap<String, String>> {
    let catalog = embedded::catalog()?;
    let files: Vec<_> = embedded::install().into_iter().map(|(name, _)| format!("- {name}\n")).collect();
    let list = format!(
        "# Generated by `make generate`. The base for kustomize: see docs/installing-with-helm.md.\n\
         apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{}",
        files.concat()
    );
    let mut all = BTreeMap::from([("install/kustomization.yaml".to_owned(), list)]);
    let mut add = |name: &str, installation: Installation<'_>| {
        anyhow::Ok(all.insert(format!("kustomize/{name}/kustomization.yaml"), component(&installation)?))
    };
    for provider in in_kube_system(&catalog) {
        let name = &provider.descriptor.name;
        let secrets = Vec::from_iter(provider.descriptor.has_secret().then(|| name.clone()));
        add(name, Installation { providers: vec![provider], secrets, ..plain() })?;
    }
    add("node-deletion", Installation { node_deletion: true, ..plain() })?;
    add("expose-metrics", Installation { expose_metrics: true, ..plain() })?;
    let metrics_certificate = Some("ccm-operator-metrics".into());
    add("metrics-certificate", Installation { metrics_certificate, ..plain() })?;
    add("single-node", Installation { control_plane_nodes: 1, ..plain() })?;
    for distribution in distributions()? {
        add(&name(distribution), Installation { distribution, ..plain() })?;
    }
    Ok(all)
}

/// The distributions for which the installation differs from the usual one.
fn distributions() -> Result<Vec<Distribution>> {
    let mut found = Vec::new();
    for distribution in Distribution::ALL {
        if objects(&Installation { distribution, ..plain() })? != objects(&plain())? {
            found.push(distribution);
        }
    }
    Ok(found)
}

#[test]
fn the_components_are_generated_from_install() -> Result<()> {
    let generated = generated()?;
    let is_update = std::env::var_os("UPDATE_GENERATED").is_some();
    for (path, text) in &generated {
        let path = repository().join(path);
        if is_update {
            fs::create_dir_all(path.parent().context("a folder")?)?;
            fs::write(&path, text)?;
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == *text, "{} is out of date: run `make generate`", path.display());
    }
    for entry in fs::read_dir(repository().join("kustomize"))? {
        let folder = format!("kustomize/{}", entry?.file_name().to_string_lossy());
        assert!(generated.contains_key(&format!("{folder}/kustomization.yaml")), "nothing makes {folder}: delete it");
    }
    Ok(())
}

/// Runs kustomize for the base with components.
fn build(kubectl: &Path, components: &[&str]) -> Result<Output> {
    let folder = tempfile::tempdir()?;
    for part in ["install", "kustomize"] {
        symlink(repository().join(part), folder.path().join(part))?;
    }
    let components: Vec<_> = components.iter().map(|name| format!("kustomize/{name}")).collect();
    let overlay = json!({"resources": ["install"], "components": components});
    fs::write(folder.path().join("kustomization.yaml"), overlay.to_string())?;
    Ok(Command::new(kubectl).arg("kustomize").arg(folder.path()).env_clear().output()?)
}

#[tokio::test]
async fn a_second_distribution_fails_to_build() -> Result<()> {
    let kubectl = artifacts::binaries().await?.join("kubectl");
    let names: Vec<_> = distributions()?.into_iter().map(name).collect();
    for first in &names {
        for second in &names {
            let output = build(&kubectl, &["hcloud", first, "single-node", second])?;
            let message = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{first} and {second} build");
            for part in [format!("kustomize/{second}").as_str(), VARIABLES] {
                assert!(message.contains(part), "{first} and {second}: {message}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn kustomize_renders_components_like_flags_of_render() -> Result<()> {
    let kubectl = artifacts::binaries().await?.join("kubectl");
    let catalog = embedded::catalog()?;
    let all: Vec<_> = in_kube_system(&catalog).map(|one| one.descriptor.name.clone()).collect();
    let mut cases: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    let mut case = |providers: &[String], other: &[&str], flags: &[&str]| {
        let components = providers.iter().cloned().chain(other.iter().map(|&name| name.to_owned()));
        let flags = flags.iter().map(|&flag| flag.to_owned());
        let chosen = ["--providers".to_owned(), providers.join(",")];
        cases.push((components.collect(), chosen.into_iter().chain(flags).collect()));
    };
    for provider in &all {
        case(std::slice::from_ref(provider), &[], &[]);
    }
    case(&all, &["node-deletion", "single-node"], &["--node-deletion", "--control-plane-nodes", "1"]);
    case(&all[..1], &["expose-metrics"], &["--expose-metrics"]);
    case(
        &all[..1],
        &["expose-metrics", "metrics-certificate"],
        &["--expose-metrics", "--metrics-certificate-secret", "ccm-operator-metrics"],
    );
    for distribution in distributions()? {
        let name = name(distribution);
        case(&all[..1], &[&name], &["--distribution", &name]);
        case(&all, &["single-node", &name], &["--distribution", &name, "--control-plane-nodes", "1"]);
    }
    for (components, flags) in cases {
        let components: Vec<_> = components.iter().map(String::as_str).collect();
        let output = build(&kubectl, &components)?;
        ensure!(output.status.success(), "{components:?}: {}", String::from_utf8_lossy(&output.stderr));
        let found = by_name(yaml::documents(&String::from_utf8(output.stdout)?)?);
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        are_the_same(&by_name(rendered(&flags)?), &found).with_context(|| format!("{components:?}"))?;
    }
    Ok(())
}
