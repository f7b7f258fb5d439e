//! The values without a flag of `render`, and the values that the chart refuses.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{cli::Cli, text::yaml};
use clap::{Arg, CommandFactory};
use serde_json::{Value, json};

use super::{
    generate::CHART,
    template::{helm, templated},
};
use crate::lab::repository;

#[tokio::test]
async fn the_pods_get_the_settings_that_only_the_chart_has() -> Result<()> {
    let deployment = async |values: &Value| -> Result<Value> {
        let objects = templated("own", values, &[]).await?;
        objects.into_iter().find(|object| object["kind"] == "Deployment").context("a Deployment")
    };
    let plain = json!({"providers": ["aws"]});
    let before = deployment(&plain).await?;
    let (labeled, pod, container) =
        ("/spec/template/metadata", "/spec/template/spec", "/spec/template/spec/containers/0");
    let toleration = json!({"key": "dedicated", "operator": "Exists"});
    let pull_secrets = json!([{"name": "registry"}]);
    let resources = json!({"limits": {"memory": "256Mi"}, "requests": {"cpu": 1, "memory": "64Mi"}});
    let nodes = json!({"node-role.kubernetes.io/control-plane": "", "dedicated": "true"});
    // The value, and the field of the Deployment that it adds or changes. An item is added to a list.
    for (name, value, parent, field, expected) in [
        ("tolerations", json!([toleration]), pod, "tolerations", toleration),
        ("image", json!({"pullSecrets": pull_secrets}), pod, "imagePullSecrets", pull_secrets),
        ("resources", resources.clone(), container, "resources", resources),
        ("priorityClassName", json!("cloud"), pod, "priorityClassName", json!("cloud")),
        ("priorityClassName", json!("1"), pod, "priorityClassName", json!("1")),
        ("nodeSelector", nodes.clone(), pod, "nodeSelector", nodes),
        (
            "podLabels",
            json!({"team": "1"}),
            labeled,
            "labels",
            json!({"app.kubernetes.io/name": "ccm-operator", "team": "1"}),
        ),
        ("podAnnotations", json!({"a.example/b": "true"}), labeled, "annotations", json!({"a.example/b": "true"})),
        ("verbosity", json!(0), container, "args", json!("--v=0")),
        ("verbosity", json!(4), container, "args", json!("--v=4")),
    ] {
        let mut values = plain.clone();
        values[name] = value;
        let mut after = before.clone();
        match &mut after.pointer_mut(parent).context(parent)?[field] {
            Value::Array(items) => items.push(expected),
            other => *other = expected,
        }
        assert_eq!(deployment(&values).await?, after, "{values}");
    }
    Ok(())
}

/// GKE allows the default class in few namespaces.
#[tokio::test]
async fn the_pods_have_no_priority_class_if_the_value_is_empty() -> Result<()> {
    let objects = templated("own", &json!({"providers": ["aws"], "priorityClassName": ""}), &[]).await?;
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").context("a Deployment")?;
    assert_eq!(deployment.pointer("/spec/template/spec/priorityClassName"), None);
    assert_eq!(deployment["spec"]["template"]["spec"]["hostNetwork"], true);
    Ok(())
}

/// The chart adds no argument for it.
#[test]
fn the_default_log_level_is_that_of_the_flag() -> Result<()> {
    let values: Value = yaml::from_str(&fs::read_to_string(repository().join(CHART).join("values.yaml"))?)?;
    let command = Cli::command();
    let flag = command.get_arguments().find(|flag| flag.get_long() == Some("v")).context("--v")?;
    assert_eq!(flag.get_default_values(), [values["verbosity"].to_string().as_str()]);
    Ok(())
}

/// The subjects in `editors` get the same role as the page describes.
#[tokio::test]
async fn editors_may_write_the_objects_and_nothing_else() -> Result<()> {
    let editors = json!([
        {"kind": "Group", "name": "platform"},
        {"kind": "ServiceAccount", "name": "flux", "namespace": "flux-system"},
    ]);
    let of = |objects: &[Value], kind: &str| {
        objects.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == "ccm-operator-edit").cloned()
    };
    let plain = templated("own", &json!({"providers": ["aws"]}), &[]).await?;
    assert!(of(&plain, "ClusterRole").is_none() && of(&plain, "ClusterRoleBinding").is_none());
    let objects = templated("own", &json!({"providers": ["aws"], "editors": editors}), &[]).await?;
    let role = of(&objects, "ClusterRole").context("a role")?;
    let page = fs::read_to_string(repository().join("docs/any-kubernetes.md"))?;
    let (_, block) =
        page.split_once("kind: ClusterRole\nmetadata:\n  name: ccm-operator-edit\n").context("the page's role")?;
    let documented: Value = yaml::from_str(block.split("```").next().unwrap_or_default())?;
    assert_eq!(documented["rules"], role["rules"]);
    let binding = of(&objects, "ClusterRoleBinding").context("a binding")?;
    assert_eq!(binding["roleRef"]["name"], "ccm-operator-edit");
    let group = "rbac.authorization.k8s.io";
    let subjects = json!([
        {"kind": "Group", "name": "platform", "apiGroup": group},
        {"kind": "ServiceAccount", "name": "flux", "namespace": "flux-system"},
    ]);
    assert_eq!(binding["subjects"], subjects);
    Ok(())
}

#[tokio::test]
async fn the_chart_is_without_fault() -> Result<()> {
    for set in ["providers={aws}", "providers={aws,hcloud,vsphere},controlPlaneNodes=1,nodeDeletion=true"] {
        let output = helm(&["lint", "--strict", CHART, "--set", set]).await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    Ok(())
}

/// Every value is on the page, and every flag of the installation has a value.
#[test]
fn the_page_has_every_value_and_every_flag() -> Result<()> {
    let page = fs::read_to_string(repository().join("docs/installing-with-helm.md"))?;
    let text = fs::read_to_string(repository().join(CHART).join("values.yaml"))?;
    let values: BTreeMap<String, Value> = yaml::from_str(&text)?;
    for (name, value) in &values {
        let mut fields: Vec<_> = value.as_object().into_iter().flatten().map(|(field, _)| Some(field)).collect();
        if fields.is_empty() {
            fields.push(None);
        }
        for field in fields {
            let named = field.map_or_else(|| format!("`{name}`"), |field| format!("`{name}.{field}`"));
            let short = field.map_or_else(|| named.clone(), |field| format!("`.{field}`"));
            assert!(page.contains(&named) || page.contains(&short), "{named}");
        }
    }
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(repository().join(CHART).join("values.schema.json"))?)?;
    let known: BTreeSet<_> = schema["properties"].as_object().context("properties")?.keys().collect();
    assert_eq!(known, values.keys().chain([&"global".to_owned()]).collect());

    let command = Cli::command();
    let render = command.find_subcommand("render").context("render")?;
    let install = render.find_subcommand("install").context("install")?;
    let is_value = |flag: &&str| !["dest-dir", "output", "operator-namespace"].contains(flag);
    let flags: Vec<_> = install.get_arguments().filter_map(Arg::get_long).filter(is_value).collect();
    assert!(flags.len() > 15, "{flags:?}");
    for flag in flags {
        assert!(page.contains(&format!("`--{flag}`")), "no value stands for --{flag}");
    }
    Ok(())
}

#[tokio::test]
async fn wrong_values_are_refused() -> Result<()> {
    for (set, problem) in [
        ("nodeDeletion=true", "providers: name at least one cloud, such as --set 'providers={hcloud}'"),
        ("providers=null", "providers: name at least one cloud"),
        ("providers={}", "providers"),
        ("providers={asw}", "providers"),
        ("providers={aws,aws}", "providers"),
        ("providers={aws},externalProviders[0].name=acme", "digest"),
        ("providers={aws},providerPolicy=a", "providerPolicy"),
        (
            "providerPolicy=a,externalProviders[0].name=acme,externalProviders[0].digest=sha256:\
             0000000000000000000000000000000000000000000000000000000000000000",
            "providerPolicyDigest",
        ),
        (
            "externalProviders[0].name=aws,externalProviders[0].digest=sha256:\
             0000000000000000000000000000000000000000000000000000000000000000",
            "replaceBuiltIn",
        ),
        ("providers={aws},replaceBuiltIn={hcloud}", "replaceBuiltIn"),
        ("providers={aws},removeProviders={a.b}", "removeProviders"),
        ("removeProviders={acme},replaceBuiltIn={hcloud}", "replaceBuiltIn"),
        (
            "removeProviders={acme},externalProviders[0].name=acme,externalProviders[0].digest=sha256:\
             0000000000000000000000000000000000000000000000000000000000000000",
            "removeProviders",
        ),
        ("providers={aws},namespaces={a.b}", "namespaces"),
        ("providers={aws},namespaces={}", "namespaces"),
        ("providers={aws},secrets={A}", "secrets"),
        ("providers={aws},names={}", "names"),
        ("providers={aws},names={*}", "names"),
        ("providers={aws},imageRepositories={A}", "imageRepositories"),
        ("providers={aws},editors[0].kind=Role,editors[0].name=a", "editors"),
        ("providers={nutanix}", "namespaces"),
        ("providers={gcp},namespaces={a}", "namespaces"),
        ("providers={aws},distribution=k4s", "distribution"),
        ("providers={aws},controlPlaneNodes=-1", "controlPlaneNodes"),
        ("providers={aws},metricsCertificate.secretName=A", "metricsCertificate"),
        ("providers={aws},apiServer.host=https://a", "apiServer"),
        ("providers={aws},apiServer.port=0", "apiServer"),
        ("providers={aws},image.digest=sha256:1", "image"),
        ("providers={aws},nodeDeletions=true", "nodeDeletions"),
        ("providers={aws},image.pullPolicy=Always", "pullPolicy"),
        ("providers={aws},resources.requests.cpu=much", "resources"),
        ("providers={aws},resources.limits.memory=-1", "resources"),
        ("providers={aws},resources.limits.pods=1", "resources"),
        ("providers={aws},resources.claims.a=b", "resources"),
        ("providers={aws},priorityClassName=A", "priorityClassName"),
        // As after an upgrade that reuses the values of an older chart.
        ("providers={aws},priorityClassName=null", "priorityClassName"),
        ("providers={aws},nodeSelector.dedicated=true", "nodeSelector"),
        ("providers={aws},nodeSelector.dedicated=a b", "nodeSelector"),
        ("providers={aws},podLabels.team=a b", "podLabels"),
        ("providers={aws},podLabels.a b=team", "podLabels"),
        (
            r"providers={aws},podLabels.app\.kubernetes\.io/name=other",
            "podLabels: app.kubernetes.io/name belongs to the selectors",
        ),
        ("providers={aws},podAnnotations.checked=1", "podAnnotations"),
        ("providers={aws},podAnnotations.a b=c", "podAnnotations"),
        ("providers={aws},verbosity=11", "verbosity"),
        ("providers={aws},verbosity=-1", "verbosity"),
        ("providers={aws},verbosity=debug", "verbosity"),
    ] {
        let output = helm(&["template", "any", CHART, "--set", set]).await?;
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && message.contains(problem), "{set}: {message}");
    }
    Ok(())
}
