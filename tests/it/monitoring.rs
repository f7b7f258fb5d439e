//! The monitoring in the payload: alerts that fire for their cause and for nothing else, each with its
//! page, and the objects by which OpenShift's Prometheus finds the operator.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::{Api, api::PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    lab::{LIMIT, Lab, OWN_NAMESPACE, can, repository},
    support::{artifacts, eventually, objects, openshift::Cluster},
};

mod expressions;
mod scrape;

/// The objects of this kind in the files of `manifests/` with this text in their names.
fn payload(name: &str, kind: &str) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for file in fs::read_dir(repository().join("manifests"))? {
        let path = file?.path();
        if path.to_string_lossy().contains(name) {
            found.extend(objects::read_yaml(&path)?.into_iter().filter(|object| object["kind"] == kind));
        }
    }
    Ok(found)
}

/// The only one of them.
fn one(name: &str, kind: &str) -> Result<Value> {
    let found = payload(name, kind)?;
    ensure!(found.len() == 1, "{} of kind {kind} in {name}", found.len());
    found.into_iter().next().context("one")
}

/// The alerts.
fn alerts() -> Result<Vec<Value>> {
    let rule = one("_90_", "PrometheusRule")?;
    let groups = rule["spec"]["groups"].as_array().context("groups")?;
    Ok(groups.iter().flat_map(|group| group["rules"].as_array().cloned().unwrap_or_default()).collect())
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// Debian's `promtool` and `prometheus`; `None` if they cannot be had.
async fn programs() -> Result<Option<PathBuf>> {
    let folder = artifacts::prometheus().await;
    if can("get Debian's package prometheus", folder.is_ok()) { folder.map(Some) } else { Ok(None) }
}

/// A folder with the rules of the payload as `rules.yaml`.
fn rules() -> Result<TempDir> {
    let folder = TempDir::new()?;
    // JSON is YAML.
    fs::write(folder.path().join("rules.yaml"), one("_90_", "PrometheusRule")?["spec"].to_string())?;
    Ok(folder)
}

#[tokio::test]
async fn each_alert_fires_for_its_cause_and_for_nothing_else() -> Result<()> {
    let Some(programs) = programs().await? else { return Ok(()) };
    let folder = rules()?;
    let cases = fs::read_to_string(repository().join("tests/monitoring/alerts.yaml"))?;
    for alert in alerts()? {
        let name = text(&alert, "alert");
        let fires = format!("alertname=\"{name}\",alertstate=\"firing\"");
        assert!(cases.contains(&fires), "tests/monitoring/alerts.yaml has no case in which {name} fires");
    }
    fs::write(folder.path().join("alerts.yaml"), cases)?;
    for (command, file) in [("check", "rules.yaml"), ("test", "alerts.yaml")] {
        let path = folder.path().join(file);
        let output = Command::new(programs.join("promtool")).args([command, "rules"]).arg(path).output()?;
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "promtool {command} rules: {said}");
    }
    Ok(())
}

#[test]
fn each_alert_has_a_page_and_the_labels_that_openshift_requires() -> Result<()> {
    let operations = fs::read_to_string(repository().join("docs/operations.md"))?;
    let mut pages = BTreeSet::new();
    for alert in alerts()? {
        let name = text(&alert, "alert");
        assert!(name.starts_with("CloudControllerManagerOperator"), "{name} names no component");
        assert_eq!(text(&alert["labels"], "severity"), "warning", "{name}");
        let has_namespace =
            !text(&alert["labels"], "namespace").is_empty() || text(&alert, "expr").contains("by (namespace");
        assert!(has_namespace && !text(&alert, "for").is_empty(), "{name}");
        let annotations = &alert["annotations"];
        let summary = text(annotations, "summary");
        assert!(!summary.is_empty() && summary.len() < 120 && !summary.contains('\n'), "{name}: {summary}");
        assert!(text(annotations, "description").contains("Look first at"), "{name}");
        let page = format!("runbooks/{name}.md");
        assert_eq!(text(annotations, "runbook"), format!("docs/{page}"));
        assert!(operations.contains(&format!("[{name}]({page})")), "docs/operations.md does not list {name}");
        let written = fs::read_to_string(repository().join("docs").join(&page)).context(page.clone())?;
        let headings: Vec<_> = written.lines().filter(|line| line.starts_with('#')).collect();
        let title = format!("# {name}");
        assert_eq!(headings, [title.as_str(), "## Meaning", "## Impact", "## Diagnosis", "## Mitigation"]);
        pages.insert(format!("{name}.md"));
    }
    let files = fs::read_dir(repository().join("docs/runbooks"))?;
    let files: BTreeSet<_> = files.map(|file| Ok(file?.file_name().into_string().unwrap())).collect::<Result<_>>()?;
    assert_eq!(files, pages, "a page without an alert");
    Ok(())
}

#[test]
fn the_service_monitor_selects_the_metrics_service() -> Result<()> {
    let (monitor, service) = (one("_90_", "ServiceMonitor")?, one("metrics-service", "Service")?);
    let selected = monitor["spec"]["selector"]["matchLabels"].as_object().context("labels")?;
    assert!(!selected.is_empty());
    for (label, value) in selected {
        assert_eq!(service["metadata"]["labels"][label], *value);
    }
    let [endpoint] = &monitor["spec"]["endpoints"].as_array().context("endpoints")?[..] else { panic!("{monitor}") };
    assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"]);
    // A path of its own would be another permission.
    assert_eq!((&endpoint["scheme"], &endpoint["path"]), (&json!("https"), &Value::Null));
    let (name, namespace) = (text(&service["metadata"], "name"), text(&service["metadata"], "namespace"));
    assert_eq!(endpoint["tlsConfig"]["serverName"], format!("{name}.{namespace}.svc"));
    for object in [&monitor, &one("_90_", "PrometheusRule")?] {
        assert_eq!(object["metadata"]["namespace"], namespace);
    }
    let namespaces = payload("_00_namespace", "Namespace")?;
    let own = namespaces.iter().find(|object| object["metadata"]["name"] == namespace).context("the namespace")?;
    assert_eq!(own["metadata"]["labels"]["openshift.io/cluster-monitoring"], "true");
    // The alert for a missing operator uses only the job's name, which is the name of the Service.
    let expression = format!("job=\"{name}\"");
    assert!(alerts()?.iter().any(|alert| text(alert, "expr").contains(&expression)), "{expression}");
    Ok(())
}

#[tokio::test]
async fn openshifts_prometheus_may_find_the_operator_and_no_more() -> Result<()> {
    let lab = Lab::without_workloads(&Cluster::default()).await?;
    let reviews: Api<SubjectAccessReview> = Api::all(lab.client.clone());
    let may = async |namespace: &str, (group, resource): (&str, &str), verb: &str| {
        let review = serde_json::from_value(json!({"metadata": {}, "spec": {
            "user": "system:serviceaccount:openshift-monitoring:prometheus-k8s",
            "resourceAttributes": {"namespace": namespace, "group": group, "resource": resource, "verb": verb},
        }}))?;
        let answer = reviews.create(&PostParams::default(), &review).await?;
        anyhow::Ok(answer.status.is_some_and(|status| status.allowed))
    };
    for resource in [("", "services"), ("", "endpoints"), ("", "pods"), ("discovery.k8s.io", "endpointslices")] {
        for verb in ["get", "list", "watch"] {
            eventually("the permission", LIMIT, async || Ok(may(OWN_NAMESPACE, resource, verb).await?.then_some(())))
                .await?;
        }
        ensure!(!may(OWN_NAMESPACE, resource, "delete").await? && !may("default", resource, "list").await?);
    }
    ensure!(!may(OWN_NAMESPACE, ("", "secrets"), "get").await?);
    Ok(())
}
