//! A real Prometheus scrapes the operator as the `ServiceMonitor` describes.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{alerts, expressions, one, programs, rules, text};
use crate::{
    lab::{IMAGE, LIMIT, Lab, POD_UID},
    support::{
        eventually, objects,
        openshift::Cluster,
        operator::Operator,
        pki,
        process::Process,
        scrape::{free_port, serving_from, token},
    },
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
    async fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let mut command = Command::new(&self.promtool);
        command.args(["query", "instant", "--format=json", &self.address, expression]);
        // Not in this thread, because the test continues in the meantime.
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{expression}: {error}{}", self.process.log_tail());
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Waits until exactly these alerts are pending or fire, by the ends of their names.
    async fn has_alerts(&self, expected: &[&str], operator: &Operator) -> Result<()> {
        let expected: BTreeSet<_> =
            expected.iter().map(|name| format!("CloudControllerManagerOperator{name}")).collect();
        let waited = eventually("the alerts", LIMIT, async || {
            let series = self.query("ALERTS").await?;
            let found: BTreeSet<_> = series.iter().map(|one| text(&one["metric"], "alertname").to_owned()).collect();
            ensure!(found == expected, "{found:?} instead of {expected:?}");
            Ok(Some(()))
        });
        waited.await.map_err(|error| error.context(format!("the operator's log:\n{}", operator.log())))
    }

    /// Waits until the answer to a query is not empty.
    async fn finds(&self, expression: &str, operator: &Operator) -> Result<()> {
        let found = eventually(expression, LIMIT, async || {
            let found = self.query(expression).await?;
            Ok((!found.is_empty()).then_some(()))
        })
        .await;
        found.map_err(|error| error.context(format!("the operator's log:\n{}", operator.log())))
    }
}

/// Where an operator serves its metrics, and what a Prometheus needs to read them.
struct Endpoint {
    folder: TempDir,
    port: u16,
    arguments: [String; 2],
}

impl Endpoint {
    /// With a lasting certificate, and the token of somebody who may get the metrics and nothing else.
    async fn new(lab: &Lab) -> Result<Self> {
        let folder = rules()?;
        let (port, arguments) = serving_from(&folder.path().join("serving"))?;
        fs::write(folder.path().join("token"), token(lab, "monitoring", true).await?)?;
        let endpoint = Self { folder, port, arguments };
        endpoint.write_certificate(400)?;
        Ok(endpoint)
    }

    /// Writes a certificate for the name that the `ServiceMonitor` expects, which expires after these days.
    fn write_certificate(&self, days: i64) -> Result<()> {
        let monitor = one("_90_", "ServiceMonitor")?;
        let name = text(&monitor["spec"]["endpoints"][0]["tlsConfig"], "serverName").to_owned();
        let key = rcgen::KeyPair::generate()?;
        let mut certificate = rcgen::CertificateParams::new(vec![name])?;
        pki::expires_after(&mut certificate, days)?;
        let certificate = certificate.self_signed(&key)?.pem();
        for (file, text) in
            [("ca.crt", &certificate), ("serving/tls.key", &key.serialize_pem()), ("serving/tls.crt", &certificate)]
        {
            fs::write(self.folder.path().join(file), text)?;
        }
        Ok(())
    }

    /// Starts the operator that is scraped.
    fn start_operator(&self, lab: &Lab) -> Result<Operator> {
        lab.start_as(POD_UID, &self.arguments.each_ref().map(String::as_str))
    }

    /// Starts a Prometheus, and waits until it has scraped the operator.
    async fn start_prometheus(&self, programs: &Path, operator: &Operator) -> Result<Prometheus> {
        let prometheus = Prometheus::start(programs, self.folder.path(), self.port)?;
        eventually("Prometheus", LIMIT, async || prometheus.query("1").await.map(Some)).await?;
        prometheus.finds(r#"up{job="cloud-controller-manager-operator"} == 1"#, operator).await?;
        Ok(prometheus)
    }
}

/// Sets the certificates that the Proxy of the cluster names, to one that expires after these days.
async fn set_user_ca(lab: &Lab, days: i64) -> Result<()> {
    let metadata = json!({"name": "user-ca", "namespace": "openshift-config"});
    let data = json!({"ca-bundle.crt": pki::authority_until("user", days)?});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    objects::apply(&lab.client, object).await.map(drop)
}

/// A cluster whose Proxy names certificates.
fn with_user_ca() -> Cluster {
    Cluster { proxy_spec: json!({"trustedCA": {"name": "user-ca"}}), ..Cluster::default() }
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
    let lab = Lab::new(&with_user_ca()).await?;
    set_user_ca(&lab, 4000).await?;
    let endpoint = Endpoint::new(&lab).await?;
    let operator = endpoint.start_operator(&lab)?;
    lab.converged(&operator).await?;
    live_through_it_all(&lab, &operator).await?;

    let prometheus = endpoint.start_prometheus(&programs, &operator).await?;
    for expression in expressions::all()? {
        // An error is one of the expression: Prometheus has answered before.
        prometheus.query(&expression.text).await?;
        for selector in expressions::selectors(&expression.text) {
            let found = prometheus.finds(&selector.series, &operator).await;
            found
                .with_context(|| format!("{} needs {}, which the operator lacks", expression.place, selector.series))?;
        }
    }
    prometheus.has_alerts(&[], &operator).await?;

    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let all = alerts()?;
    let down = all.iter().find(|alert| text(alert, "alert").ends_with("Down")).expect("the alert");
    prometheus.finds(text(down, "expr"), &operator).await?;
    prometheus.has_alerts(&["Down"], &operator).await
}

/// The problems that need no waiting. That they must last before an alert fires is a matter of tests/monitoring/.
#[tokio::test]
async fn the_problems_of_a_real_operator_are_those_of_their_alerts() -> Result<()> {
    let Some(programs) = programs().await? else { return Ok(()) };
    let mut lab = Lab::without_workloads(&with_user_ca()).await?;
    set_user_ca(&lab, 4000).await?;
    let endpoint = Endpoint::new(&lab).await?;
    let other = lab.start_as("another-pod", &[])?;
    lab.exists("Deployment", &other).await?;
    let operator = endpoint.start_operator(&lab)?;
    let prometheus = endpoint.start_prometheus(&programs, &operator).await?;
    prometheus.has_alerts(&["NotLeading"], &operator).await?;

    other.terminate()?;
    other.wait(LIMIT).await?;
    // The rollout does not end.
    prometheus.has_alerts(&["NotSucceeding"], &operator).await?;

    let live = lab.live("Deployment").await?.context("the Deployment")?;
    let stuck = json!({
        "apiVersion": live["apiVersion"], "kind": live["kind"],
        "metadata": {"name": live["metadata"]["name"], "namespace": live["metadata"]["namespace"]},
        "status": {
            "observedGeneration": live["metadata"]["generation"],
            "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}],
        },
    });
    objects::apply_status(&lab.client, stuck).await?;
    prometheus.has_alerts(&["RolloutStuck"], &operator).await?;

    lab.finish_workloads();
    prometheus.has_alerts(&[], &operator).await?;

    set_user_ca(&lab, 10).await?;
    prometheus.has_alerts(&["TrustedCertificateExpiring"], &operator).await?;
    endpoint.write_certificate(3)?;
    let both = ["ServingCertificateExpiring", "TrustedCertificateExpiring"];
    prometheus.has_alerts(&both, &operator).await?;

    // Without a pause: the operator finds a change after each of its repairs, however busy the machine is.
    let fight = async {
        for replicas in 3.. {
            lab.update("Deployment", &json!({"spec": {"replicas": replicas}})).await?;
        }
        Ok(())
    };
    let all = [&both[..], &["ObjectContested"]].concat();
    tokio::select! {
        ended = fight => ended,
        noticed = prometheus.has_alerts(&all, &operator) => noticed,
    }
}
