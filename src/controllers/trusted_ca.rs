//! Keeps the certificates that cloud-controller-managers trust in ConfigMap `ccm-trusted-ca` (IO).
//!
//! [`crate::config::certificates`] computes the content, [`super::sync`] writes it. An administrator's unusable
//! certificates are left out and reported; the other certificates stay trusted.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tracing::warn;

use crate::{
    config::certificates::{self, Certificate},
    controllers::{
        sync::{DesiredConfigMaps, Source, Unknown},
        view::View,
    },
    error::chain,
    files,
    object::{Object, reference::Reference},
};

/// The key of the certificates, in this ConfigMap and in the Proxy's trusted CA.
const KEY: &str = "ca-bundle.crt";

/// The key of certificates in the cloud's configuration.
const CLOUD_CONFIG_KEY: &str = "ca-bundle.pem";

/// The names of the sources of certificates in the metric.
const SOURCES: [&str; 3] = ["system", "proxy", "cloud-config"];

/// The modification time and size of a file when it was read.
type Stamp = Result<files::Stamp, String>;

pub(super) struct TrustedCa {
    pub(super) system_bundle: PathBuf,
    stamp: Option<Stamp>,
    /// The system's certificates, or the reason why they cannot be read.
    system: Result<Vec<Certificate>, String>,
    /// The administrators' certificates.
    given: Vec<Certificate>,
    /// The reasons why certificates of administrators are left out.
    unusable: Vec<String>,
    warned: BTreeMap<&'static str, String>,
}

impl TrustedCa {
    pub(super) fn new(system_bundle: PathBuf) -> Self {
        Self {
            system_bundle,
            stamp: None,
            system: Ok(Vec::new()),
            given: Vec::new(),
            unusable: Vec::new(),
            warned: BTreeMap::new(),
        }
    }

    /// Reads the system's certificates if the file has changed. Returns whether it has.
    pub(super) fn read_system_bundle(&mut self) -> bool {
        let stamp: Stamp = files::stamp(&self.system_bundle).map_err(|error| error.to_string());
        if self.stamp.as_ref() == Some(&stamp) {
            return false;
        }
        let path = self.system_bundle.display();
        let text = files::read(&self.system_bundle).map_err(|error| format!("{path}: {error}"));
        let system = text.and_then(|text| certificates::parse(&text).map_err(|problem| problem.of(path)));
        self.system =
            system.map_err(|error| format!("failed to read the certificates that the system trusts, {error}"));
        self.stamp = Some(stamp);
        true
    }

    /// Returns descriptions of the administrators' certificates that have expired, or will expire soon.
    fn expiring(&self) -> Vec<String> {
        let now = Timestamp::now().as_second();
        let describe = |certificate: &Certificate| {
            let ends = Timestamp::from_second(certificate.not_after).map_or_else(|_| "?".into(), |at| at.to_string());
            let verb = if certificate.not_after <= now { "ended" } else { "ends" };
            format!("the trusted certificate of {} {verb} at {ends}", certificate.subject)
        };
        certificates::expiring(&self.given, now).map(describe).collect()
    }

    /// Warns in the log and with an Event, unless the text is the same as the last one.
    fn warn_once(&mut self, view: &View, reason: &'static str, text: String) {
        if self.warned.insert(reason, text.clone()).unwrap_or_default() != text && !text.is_empty() {
            warn!("{text}");
            view.target.events.warn(reason, text);
        }
    }
}

impl Source for TrustedCa {
    fn desire(&mut self, view: &View) -> DesiredConfigMaps {
        let facts = view.facts()?;
        if !facts.has_trusted_ca {
            // Certificates that are no longer read are no longer reported.
            (self.given, self.unusable) = (Vec::new(), Vec::new());
            record_ends(view, [None; 3]);
            return Ok(Vec::new());
        }
        let system = self.system.as_ref().map_err(|error| Unknown::Unreadable(error.clone()))?;
        let mut unusable = Vec::new();
        let mut usable = |certificates: Result<Vec<Certificate>, String>| {
            certificates.map_err(|why| unusable.push(format!("left out of the trusted certificates: {why}"))).ok()
        };
        let user = facts.user_ca.as_ref().and_then(|user| usable(user_certificates(view, user)));
        let cloud = cloud_certificates(view).and_then(usable);
        let (proxy, added) = (user.as_deref().unwrap_or_default(), cloud.as_deref().unwrap_or_default());
        let bundle = certificates::merge(proxy, system, added).map_err(|error| chain(&error))?;
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
        record_ends(view, [Some(system), user.as_deref(), cloud.as_deref()]);
        self.given = user.into_iter().chain(cloud).flatten().collect();
        self.unusable = unusable;
        Ok(vec![object.map_err(|error| chain(&error))?])
    }

    /// Runs without a change of the inputs, too, because certificates expire.
    fn warn(&mut self, view: &View) {
        self.warn_once(view, "TrustedCertificatesLeftOut", self.unusable.join("; "));
        self.warn_once(view, "TrustedCertificatesExpiring", self.expiring().join("; "));
    }
}

/// Sets the metric of each source to the end of its first certificate.
fn record_ends(view: &View, sources: [Option<&[Certificate]>; 3]) {
    let ends = &view.target.metrics.certificates;
    for (source, certificates) in SOURCES.into_iter().zip(sources) {
        match certificates.into_iter().flatten().map(|certificate| certificate.not_after).min() {
            Some(first) => drop(ends.of([source]).set(first)),
            None => ends.remove([source]),
        }
    }
}

/// Reads the certificates of the Proxy's trusted CA.
fn user_certificates(view: &View, user: &Reference) -> Result<Vec<Certificate>, String> {
    let found =
        view.target.observer.named(user).ok_or_else(|| format!("{user}, which Proxy cluster names, does not exist"))?;
    let text = found["data"][KEY].as_str().ok_or_else(|| format!("{user} has no key {KEY}"))?;
    certificates::parse(text.as_bytes()).map_err(|problem| problem.of(format_args!("{user}, key {KEY}")))
}

fn cloud_certificates(view: &View) -> Option<Result<Vec<Certificate>, String>> {
    let target = view.cloud_config();
    let text =
        view.target.observer.named(&target).and_then(|found: &Value| found["data"][CLOUD_CONFIG_KEY].as_str())?;
    let source = format!("{target}, key {CLOUD_CONFIG_KEY}");
    Some(certificates::parse(text.as_bytes()).map_err(|problem| problem.of(source)))
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use kube::Client;

    use super::*;
    use crate::{controllers::view, facts::Documents};

    #[tokio::test]
    async fn without_a_proxy_its_certificates_are_not_reported() {
        let client = Client::new(Router::new(), "own");
        let proxy = serde_json::from_value(json!({"spec": {"trustedCA": {"name": "user-ca"}}})).unwrap();
        let mut view = view::tests::view(client, Documents { proxy, ..Documents::default() }, None);
        let metrics = view.target.metrics.clone();
        let mut controller = TrustedCa::new(PathBuf::new());
        let certificate = Certificate { der: vec![1], subject: "CN=x".into(), not_after: 7, is_ca: true };
        controller.system = Ok(vec![certificate.clone()]);

        assert_eq!(controller.desire(&view).unwrap().len(), 1);
        assert!(controller.unusable.len() == 1 && metrics.text().contains("source=\"system\""));
        controller.given = vec![certificate];
        assert_eq!(controller.expiring().len(), 1);

        view.set_documents(Documents::default());
        assert_eq!(controller.desire(&view), Ok(Vec::new()));
        assert!(controller.unusable.is_empty() && controller.expiring().is_empty());
        assert!(!metrics.text().contains("source="), "{}", metrics.text());
    }
}
