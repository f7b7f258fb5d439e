//! Keeps ConfigMap `ccm-trusted-ca` as the certificates that cloud-controller-managers trust (IO).
//!
//! Thin: [`crate::config::certificates`] computes the content, [`super::sync`] writes it. Unusable certificates of an
//! administrator are left out and reported; the rest stays trusted.

use std::{
    collections::BTreeMap,
    fs, io,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tracing::warn;

use crate::{
    config::certificates::{self, Certificate},
    controllers::{
        Pass,
        events::Events,
        sync::{Desired, Sync},
        view::View,
    },
    error::chain,
    object::{Object, reference::Reference},
    process::metrics::Metrics,
};

/// Its key, and that of the Proxy's trusted CA.
const KEY: &str = "ca-bundle.crt";

/// The key of certificates that come with the cloud's configuration.
const CLOUD_CONFIG_KEY: &str = "ca-bundle.pem";

/// The sources of certificates, as the metric names them.
const SOURCES: [&str; 3] = ["system", "proxy", "cloud-config"];

/// The modification time and size of a file when it was read.
type Stamp = Result<(SystemTime, u64), String>;

/// The controller of the trusted certificates.
pub(super) struct TrustedCa {
    sync: Sync,
    system_bundle: PathBuf,
    stamp: Option<Stamp>,
    /// The system's certificates, or why there are none.
    system: Result<Vec<Certificate>, String>,
    /// The certificates from administrators.
    given: Vec<Certificate>,
    /// Why certificates from administrators are left out.
    unusable: Vec<String>,
    /// The last warning of each reason.
    warned: BTreeMap<&'static str, String>,
    events: Events,
    metrics: Metrics,
}

impl TrustedCa {
    /// `system_bundle` is the file of certificates that the system trusts.
    pub(super) fn new(sync: Sync, system_bundle: PathBuf, events: Events, metrics: Metrics) -> Self {
        Self {
            sync,
            events,
            system_bundle,
            stamp: None,
            system: Ok(Vec::new()),
            given: Vec::new(),
            unusable: Vec::new(),
            warned: BTreeMap::new(),
            metrics,
        }
    }

    /// Reads the file again if it has changed; returns whether it has.
    pub(super) fn read_system_bundle(&mut self) -> bool {
        let stamp: Stamp = self.stamp().map_err(|error| error.to_string());
        if self.stamp.as_ref() == Some(&stamp) {
            return false;
        }
        let path = self.system_bundle.display();
        let text = fs::read(&self.system_bundle).map_err(|error| format!("{path}: {error}"));
        let system = text.and_then(|text| certificates::parse(&text).map_err(|problem| problem.of(path)));
        self.system =
            system.map_err(|error| format!("failed to read the certificates that the system trusts, {error}"));
        (self.stamp, self.sync.revision) = (Some(stamp), None);
        true
    }

    fn stamp(&self) -> io::Result<(SystemTime, u64)> {
        let metadata = fs::metadata(&self.system_bundle)?;
        Ok((metadata.modified()?, metadata.len()))
    }

    pub(super) async fn pass(&mut self, view: &mut View) -> Pass {
        let needs = view.trusted_ca_references();
        if self.sync.is_outdated(view, &needs) {
            let desired = self.desire(view);
            self.sync.desire(desired, view);
        }
        // In every pass: certificates expire without a change.
        if self.sync.leads() {
            self.warn("TrustedCertificatesLeftOut", self.unusable.join("; "));
            self.warn("TrustedCertificatesExpiring", self.expiring().join("; "));
        }
        self.sync.pass(view, &needs).await
    }

    fn desire(&mut self, view: &View) -> Desired {
        let failed = |error| Desired::Failed { error, is_terminal: true };
        let facts = match view.facts() {
            Ok(facts) => facts,
            Err(error) => return failed(error),
        };
        if !facts.has_trusted_ca {
            // Certificates that are no longer read are no longer reported.
            (self.given, self.unusable) = (Vec::new(), Vec::new());
            for source in SOURCES {
                self.metrics.certificates_end(source, None);
            }
            return Desired::Objects(Vec::new());
        }
        let system = match &self.system {
            Ok(system) => system,
            Err(error) => return Desired::Failed { error: error.clone(), is_terminal: false },
        };
        let mut unusable = Vec::new();
        let mut usable = |certificates: Result<Vec<Certificate>, String>| {
            certificates.map_err(|why| unusable.push(format!("left out of the trusted certificates: {why}"))).ok()
        };
        let user = facts.user_ca.as_ref().and_then(|user| usable(user_certificates(view, user)));
        let cloud = cloud_certificates(view).and_then(usable);
        let (proxy, added) = (user.as_deref().unwrap_or_default(), cloud.as_deref().unwrap_or_default());
        let bundle = match certificates::merge(proxy, system, added) {
            Ok(bundle) => bundle,
            Err(error) => return failed(chain(&error)),
        };
        let object = Object::new(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": certificates::TARGET_NAME,
                "namespace": facts.namespace,
                "annotations": {"openshift.io/owning-component": "Cloud Compute / Cloud Controller Manager"},
            },
            "data": {KEY: bundle},
        }));
        let first = |certificates: &[Certificate]| certificates.iter().map(|certificate| certificate.not_after).min();
        let ends = [first(system), user.as_deref().and_then(first), cloud.as_deref().and_then(first)];
        for (source, end) in SOURCES.into_iter().zip(ends) {
            self.metrics.certificates_end(source, end);
        }
        self.given = user.into_iter().chain(cloud).flatten().collect();
        self.unusable = unusable;
        match object {
            Ok(object) => Desired::Objects(vec![object]),
            Err(error) => failed(chain(&error)),
        }
    }

    /// Descriptions of the certificates from administrators that have expired, or will soon.
    fn expiring(&self) -> Vec<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let now = i64::try_from(now).unwrap_or(i64::MAX);
        let describe = |certificate: &Certificate| {
            let ends = Timestamp::from_second(certificate.not_after).map_or_else(|_| "?".into(), |at| at.to_string());
            let verb = if certificate.not_after <= now { "ended" } else { "ends" };
            format!("the trusted certificate of {} {verb} at {ends}", certificate.subject)
        };
        certificates::expiring(&self.given, now).map(describe).collect()
    }

    /// Warns in the log and as an Event, unless that was the last warning.
    fn warn(&mut self, reason: &'static str, text: String) {
        if self.warned.insert(reason, text.clone()).unwrap_or_default() != text && !text.is_empty() {
            warn!("{text}");
            self.events.warn(reason, text);
        }
    }
}

/// The certificates of the Proxy's trusted CA.
fn user_certificates(view: &View, user: &Reference) -> Result<Vec<Certificate>, String> {
    let found =
        view.observer.named(user).ok_or_else(|| format!("{user}, which Proxy cluster names, does not exist"))?;
    let text = found["data"][KEY].as_str().ok_or_else(|| format!("{user} has no key {KEY}"))?;
    certificates::parse(text.as_bytes()).map_err(|problem| problem.of(format_args!("{user}, key {KEY}")))
}

/// The certificates in the cloud's configuration, if any.
fn cloud_certificates(view: &View) -> Option<Result<Vec<Certificate>, String>> {
    let target = view.cloud_config();
    let text = view.observer.named(&target).and_then(|found: &Value| found["data"][CLOUD_CONFIG_KEY].as_str())?;
    let source = format!("{target}, key {CLOUD_CONFIG_KEY}");
    Some(certificates::parse(text.as_bytes()).map_err(|problem| problem.of(source)))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use kube::Client;

    use super::*;
    use crate::{
        controllers::{sync::tests, view},
        facts::Documents,
        status::cluster_operator,
    };

    #[tokio::test]
    async fn without_a_proxy_its_certificates_are_not_reported() {
        let client = Client::new(Router::new(), "own");
        let proxy = serde_json::from_value(json!({"spec": {"trustedCA": {"name": "user-ca"}}})).unwrap();
        let mut view = view::tests::view(client.clone(), Documents { proxy, ..Documents::default() }, None);
        let metrics = Metrics::default();
        let events = Events::start(client.clone(), metrics.clone());
        let sync = tests::sync(&cluster_operator::TRUSTED_CA, client);
        let mut controller = TrustedCa::new(sync, PathBuf::new(), events, metrics.clone());
        let certificate =
            Certificate { der: vec![1], subject: "CN=x".into(), not_before: 0, not_after: 7, is_ca: true };
        controller.system = Ok(vec![certificate.clone()]);

        assert!(matches!(controller.desire(&view), Desired::Objects(objects) if objects.len() == 1));
        assert!(controller.unusable.len() == 1 && metrics.text().contains("source=\"system\""));
        controller.given = vec![certificate];
        assert_eq!(controller.expiring().len(), 1);

        view.see(Documents::default());
        assert!(matches!(controller.desire(&view), Desired::Objects(objects) if objects.is_empty()));
        assert!(controller.unusable.is_empty() && controller.expiring().is_empty());
        assert!(!metrics.text().contains("source="), "{}", metrics.text());
    }
}
