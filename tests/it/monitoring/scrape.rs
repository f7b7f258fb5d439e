//! A real Prometheus scrapes the operator as the `ServiceMonitor` tells it to.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{alerts, expressions, one, programs, rules, text};
use crate::{
    lab::{IMAGE, LIMIT, Lab, POD_UID},
    support::{eventually, objects, openshift::Cluster, operator::Operator, pki, process::Process, scrape::{free_port, token}},
};

/// A Prometheus with the rules of the payload, which scrapes one operator.
struct Prometheus {
    process: Process,
    promtool: PathBuf,
    address: String,
}

impl Prometheus {
    /// Starts it in a folder with the rules, the CA of the operator's certificate and a token.
    fn start(programs: &Path, folder: &Path, operator: u16) -> Result<Self> {
        let monitor = one("_90_", "ServiceMonitor")?;
        let endpoint = &monitor["spec"]["endpoints"][0];
        let labels = json!({"namespace": monitor["metadata"]["namespace"], "pod": "operator"});
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{
                // The name that the Prometheus operator gives it.
                "job_name": one("metrics-service", "Service")?["metadata"]["name"],
                "scheme": endpoint["scheme"],
                "authorization": {"credentials_file": "token"},
                "tls_config": {"ca_file": "ca.crt", "server_name": endpoint["tlsConfig"]["serverName"]},
                "static_configs": [{"targets": [format!("127.0.0.1:{operator}")], "labels": labels}],
            }],
        });
        fs::write(folder.join("prometheus.yaml"), config.to_string())?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new(programs.join("prometheus"));
        command
            .arg(format!("--config.file={}", folder.join("prometheus.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"));
        let process = Process::spawn("prometheus", command, &folder.join("prometheus.log"))?;
        Ok(Self { process, promtool: programs.join("promtool"), address: format!("http://{address}") })
    }

    /// The answer to a query.
    fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let arguments = ["query", "instant", "--format=json", &self.address, expression];
        let output = Command::new(&self.promtool).args(arguments).output()?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{expression}: {error}{}", self.process.log_tail());
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Waits until the answer to a query is not empty.
    async fn finds(&self, expression: &str, operator: &Operator) -> Result<()> {
        let found = eventually(expression, LIMIT, async || {
            let found = self.query(expression)?;
            Ok((!found.is_empty()).then_some(()))
        })
        .await;
        found.map_err(|error| error.context(format!("the operator's log:\n{}", operator.log())))
    }
}

/// Writes a certificate for the name that the `ServiceMonitor` expects, and returns it.
fn write_certificate(folder: &Path) -> Result<String> {
    let monitor = one("_90_", "ServiceMonitor")?;
    let name = text(&monitor["spec"]["endpoints"][0]["tlsConfig"], "serverName").to_owned();
    let key = rcgen::KeyPair::generate()?;
    let certificate = rcgen::CertificateParams::new(vec![name])?.self_signed(&key)?;
    fs::create_dir(folder)?;
    fs::write(folder.join("tls.crt"), certificate.pem())?;
    fs::write(folder.join("tls.key"), key.serialize_pem())?;
    Ok(certificate.pem())
}

/// Everything that has a metric only once it has happened.
async fn live_through_it_all(lab: &Lab, operator: &Operator) -> Result<()> {
    lab.update("Deployment", &json!({"spec": {"replicas": 5}})).await?;
    lab.has_two_replicas(operator).await?;
    lab.write_images("{")?;
    lab.conditions(operator, &["Degraded=True"]).await?;
    lab.write_images(&json!({"cloudControllerManagerAWS": IMAGE}).to_string())?;
    lab.converged(operator).await?;
    Ok(())
}

#[tokio::test]
async fn a_real_prometheus_scrapes_the_operator_and_notices_its_end() -> Result<()> {
    let Some(programs) = programs().await? else { return Ok(()) };
    let cluster = Cluster { proxy_spec: json!({"trustedCA": {"name": "user-ca"}}), ..Cluster::default() };
    let lab = Lab::new(&cluster).await?;
    let metadata = json!({"name": "user-ca", "namespace": "openshift-config"});
    let data = json!({"ca-bundle.crt": pki::authority("user")?});
    objects::apply(&lab.client, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}))
        .await?;
    let folder = rules()?;
    let serving = folder.path().join("serving");
    fs::write(folder.path().join("ca.crt"), write_certificate(&serving)?)?;
    fs::write(folder.path().join("token"), token(&lab, "monitoring", true).await?)?;
    let port = free_port()?;
    let address = format!("--metrics-bind-address=127.0.0.1:{port}");
    let certificates = format!("--metrics-cert-dir={}", serving.display());
    let operator = lab.start_as(POD_UID, &[&address, &certificates])?;
    lab.converged(&operator).await?;
    live_through_it_all(&lab, &operator).await?;

    let prometheus = Prometheus::start(&programs, folder.path(), port)?;
    eventually("Prometheus", LIMIT, async || prometheus.query("1").map(Some)).await?;
    prometheus.finds(r#"up{job="cloud-controller-manager-operator"} == 1"#, &operator).await?;
    for expression in expressions::all()? {
        // An error is one of the expression: Prometheus has answered before.
        prometheus.query(&expression.text)?;
        for selector in expressions::selectors(&expression.text) {
            let found = prometheus.finds(&selector.series, &operator).await;
            found.map_err(|error| error.context(format!("{} names what the operator lacks", expression.place)))?;
        }
    }
    // Not even one that waits for its time.
    eventually("no alert", LIMIT, async || {
        let found = prometheus.query("ALERTS")?;
        ensure!(found.is_empty(), "{found:?}");
        Ok(Some(()))
    })
    .await?;

    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let all = alerts()?;
    let down = all.iter().find(|alert| text(alert, "alert").ends_with("Down")).expect("the alert");
    prometheus.finds(text(down, "expr"), &operator).await?;
    prometheus.finds(r#"ALERTS{alertname="CloudControllerManagerOperatorDown"}"#, &operator).await
}
