//! The `ServiceMonitor` of the chart: a Prometheus finds the operator, and verifies its certificate.

use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::template::templated;
use crate::lab::repository;

/// The arguments of Helm for a cluster with the API of Prometheus' operator.
const KNOWN: [&str; 2] = ["--api-versions", "monitoring.coreos.com/v1"];

/// The objects of the chart for a Prometheus.
async fn found(values: &Value, arguments: &[&str]) -> Result<Vec<Value>> {
    let objects = templated("own", values, arguments).await?;
    let kinds = ["Service", "ServiceMonitor"].map(Value::from);
    Ok(objects.into_iter().filter(|object| kinds.contains(&object["kind"])).collect())
}

#[tokio::test]
async fn the_service_monitor_exists_only_if_it_is_enabled() -> Result<()> {
    assert!(found(&json!({"providers": ["aws"]}), &[]).await?.is_empty());
    assert!(found(&json!({"providers": ["aws"]}), &KNOWN).await?.is_empty(), "its token would go to whoever answers");
    let labels = json!({"release": "prometheus"});
    let objects =
        found(&json!({"providers": ["aws"], "serviceMonitor": {"enabled": true, "labels": labels}}), &KNOWN).await?;
    let [service, monitor] = &objects[..] else { panic!("{objects:?}") };
    assert!(objects.iter().all(|object| object["metadata"]["namespace"] == "own"), "{objects:?}");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    // The Service is the one that is looked for, its pods are the operator's, and so is their port.
    let all = templated("own", &json!({"providers": ["aws"]}), &[]).await?;
    let deployment = all.iter().find(|object| object["kind"] == "Deployment").context("a Deployment")?;
    let pods = &deployment["spec"]["template"];
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], service["metadata"]["labels"]);
    assert_eq!(service["spec"]["selector"], pods["metadata"]["labels"]);
    let port = &service["spec"]["ports"][0];
    assert_eq!(port["name"], monitor["spec"]["endpoints"][0]["port"]);
    let ports = pods["spec"]["containers"][0]["ports"].as_array().context("ports")?;
    let own = ports.iter().find(|own| own["name"] == port["targetPort"]).context("the port")?;
    assert_eq!(own["containerPort"], port["port"]);
    // Without a job of this name, an alert would say that there is no operator.
    let relabelings = &monitor["spec"]["endpoints"][0]["relabelings"];
    assert_eq!(*relabelings, json!([{"targetLabel": "job", "replacement": "cloud-controller-manager-operator"}]));
    let job = format!("up{{job={}}}", relabelings[0]["replacement"]);
    let rules = "manifests/0000_90_cloud-controller-manager-operator_03_prometheusrule.yaml";
    assert!(fs::read_to_string(repository().join(rules))?.contains(&job), "{job}");
    Ok(())
}

/// The token goes to nobody else, also before the Secret is there.
#[tokio::test]
async fn prometheus_checks_the_certificate_that_the_chart_is_given() -> Result<()> {
    let tls = async |values: Value| -> Result<Value> {
        let objects = found(&values, &KNOWN).await?;
        let monitor = objects.iter().find(|object| object["kind"] == "ServiceMonitor").context("a ServiceMonitor")?;
        let service = objects.iter().find(|object| object["kind"] == "Service").context("a Service")?;
        assert_eq!(service["metadata"]["name"], "ccm-operator-metrics");
        Ok(monitor["spec"]["endpoints"][0]["tlsConfig"].clone())
    };
    let monitor = json!({"enabled": true});
    let plain = tls(json!({"providers": ["aws"], "serviceMonitor": monitor})).await?;
    assert_eq!(plain, json!({"insecureSkipVerify": true}));
    let certificate = json!({"secretName": "metrics"});
    let checked =
        tls(json!({"providers": ["aws"], "serviceMonitor": monitor, "metricsCertificate": certificate})).await?;
    let expected = json!({
        "ca": {"secret": {"name": "metrics", "key": "ca.crt"}},
        // The Service and its namespace.
        "serverName": "ccm-operator-metrics.own.svc",
    });
    assert_eq!(checked, expected);
    Ok(())
}
