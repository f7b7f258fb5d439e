//! The TLS side of the metrics server (IO): its certificate, which may be replaced, and the cluster's TLS profile.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use tokio::sync::watch;
use tracing::{info, warn};
use x509_parser::parse_x509_certificate;

use crate::{
    facts::tls::TlsSettings,
    files::{self, Stamp},
    process::metrics::Metrics,
};

/// How long the files of the certificate are not looked at again.
const LOOK_PERIOD: Duration = Duration::from_secs(1);

/// The names of the files, as in a Secret of type kubernetes.io/tls.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The TLS settings of a server: those of the cluster's profile at the time of a connection.
#[derive(Debug)]
pub struct Serving {
    certificate: Arc<Certificate>,
    settings: watch::Receiver<TlsSettings>,
    /// The last configuration, and what it was made of.
    made: Mutex<Option<(TlsSettings, Arc<ServerConfig>)>>,
}

impl Serving {
    /// Serves with the certificate in a folder, or with one of its own until there is one.
    pub fn new(folder: PathBuf, settings: watch::Receiver<TlsSettings>, metrics: Metrics) -> anyhow::Result<Self> {
        let certificate = Arc::new(Certificate::new(folder, metrics)?);
        Ok(Self { certificate, settings, made: Mutex::default() })
    }

    /// The configuration for a connection that begins now.
    pub fn config(&self) -> Result<Arc<ServerConfig>, rustls::Error> {
        let settings = self.settings.borrow().clone();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, config)) = made.as_ref().filter(|(known, _)| *known == settings) {
            return Ok(Arc::clone(config));
        }
        let (provider, versions) = offered(&settings);
        let config = ServerConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&versions)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.certificate) as Arc<dyn ResolvesServerCert>);
        let config = Arc::new(config);
        *made = Some((settings, Arc::clone(&config)));
        Ok(config)
    }
}

/// What is offered: never more than the settings allow. The library has no version below TLS 1.2, and no suite without
/// forward secrecy or with CBC.
fn offered(settings: &TlsSettings) -> (CryptoProvider, Vec<&'static SupportedProtocolVersion>) {
    let mut provider = ring::default_provider();
    let is_modern = settings.min_version == "VersionTLS13";
    provider.cipher_suites.retain(|suite| {
        let is_tls13 = suite.version() == &TLS13;
        let name = format!("{:?}", suite.suite());
        is_tls13 || (!is_modern && settings.cipher_suites.contains(&name))
    });
    let has_tls12 = provider.cipher_suites.iter().any(|suite| suite.version() == &TLS12);
    let versions = if has_tls12 { vec![&TLS12, &TLS13] } else { vec![&TLS13] };
    (provider, versions)
}

/// A certificate in files that may be replaced while it is used.
#[derive(Debug)]
struct Certificate {
    folder: PathBuf,
    current: Mutex<Current>,
    metrics: Metrics,
}

#[derive(Debug)]
struct Current {
    key: Arc<CertifiedKey>,
    /// The stamps of both files when they were read.
    stamps: Option<[Stamp; 2]>,
    looked_at: Option<Instant>,
}

impl Certificate {
    fn new(folder: PathBuf, metrics: Metrics) -> anyhow::Result<Self> {
        let current = Current { key: Arc::new(self_signed()?), stamps: None, looked_at: None };
        metrics.serving_ends(end_of(&current.key));
        Ok(Self { folder, current: Mutex::new(current), metrics })
    }

    fn read(&self) -> anyhow::Result<CertifiedKey> {
        let chain = CertificateDer::pem_slice_iter(&files::read(&self.folder.join(CERTIFICATE))?)
            .collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&files::read(&self.folder.join(KEY))?)?;
        Ok(CertifiedKey::from_der(chain, key, &ring::default_provider())?)
    }

    fn stamps(&self) -> Option<[Stamp; 2]> {
        let stamp = |name: &str| files::stamp(&self.folder.join(name)).ok();
        Some([stamp(CERTIFICATE)?, stamp(KEY)?])
    }

    /// The certificate in the files, or the last good one.
    fn current(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked_at.is_none_or(|looked_at| looked_at.elapsed() >= LOOK_PERIOD) {
            current.looked_at = Some(Instant::now());
            let stamps = self.stamps();
            if stamps.is_some() && stamps != current.stamps {
                let folder = self.folder.display();
                match self.read() {
                    Ok(key) => {
                        info!("serving metrics with the certificate in {folder}");
                        self.metrics.serving_ends(end_of(&key));
                        current.key = Arc::new(key);
                    }
                    Err(error) => warn!("failed to use the certificate in {folder}, keeping the last one: {error:#}"),
                }
                current.stamps = stamps;
            }
        }
        Arc::clone(&current.key)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

/// When a certificate expires, in seconds since 1970; zero if it cannot be read.
fn end_of(key: &CertifiedKey) -> i64 {
    let parsed = key.cert.first().and_then(|certificate| parse_x509_certificate(certificate).ok());
    parsed.map_or(0, |(_, certificate)| certificate.validity().not_after.timestamp())
}

/// A certificate that nobody trusts, for clients that do not check it until there is one.
fn self_signed() -> anyhow::Result<CertifiedKey> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    let secret = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    Ok(CertifiedKey::from_der(vec![certificate.der().clone()], secret, &ring::default_provider())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(min_version: &str, suites: &[&str]) -> TlsSettings {
        let cipher_suites = suites.iter().map(|suite| (*suite).to_owned()).collect();
        TlsSettings { min_version: min_version.to_owned(), cipher_suites, ..TlsSettings::default() }
    }

    #[test]
    fn never_more_is_offered_than_asked_for() {
        let suite = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
        let below = |settings: &TlsSettings| {
            let (provider, versions) = offered(settings);
            let suites = provider.cipher_suites.iter().filter(|suite| suite.version() == &TLS12);
            (suites.map(|suite| format!("{:?}", suite.suite())).collect::<Vec<_>>(), versions.len())
        };
        assert_eq!(below(&settings("VersionTLS12", &[suite])), (vec![suite.to_owned()], 2));
        assert_eq!(below(&settings("VersionTLS12", &["TLS_RSA_WITH_AES_128_CBC_SHA"])), (vec![], 1));
        assert_eq!(below(&settings("VersionTLS13", &[suite])), (vec![], 1));
        assert_eq!(below(&TlsSettings::default()), (vec![], 1), "before the profile is known");
    }

    #[test]
    fn a_certificate_is_used_once_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let metrics = Metrics::default();
        let certificate = Certificate::new(folder.path().to_owned(), metrics.clone()).unwrap();
        let now = || {
            certificate.current.lock().unwrap().looked_at = None;
            certificate.current().cert[0].clone()
        };
        let own = now();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["metrics".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2033, 5, 18);
        let issued = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join(CERTIFICATE), issued.pem()).unwrap();
        assert_eq!(now(), own);
        std::fs::write(folder.path().join(KEY), "no key").unwrap();
        assert_eq!(now(), own);
        std::fs::write(folder.path().join(KEY), key.serialize_pem()).unwrap();
        assert_eq!(now(), *issued.der());
        let end = "ccm_operator_serving_certificate_expiration_timestamp_seconds 1999987200\n";
        assert!(metrics.text().contains(end), "{}", metrics.text());
    }
}
