//! The TLS side of the metrics server (IO): its certificate, which may be replaced, and the cluster's TLS profile.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use prometheus_client::metrics::gauge::Gauge;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
    version::{TLS12, TLS13},
};
use tracing::{info, warn};
use x509_parser::parse_x509_certificate;

use crate::files::{self, Stamp};

/// The minimum time between two checks of the certificate's files.
const CHECK_PERIOD: Duration = Duration::from_secs(1);

/// The names of the files, as in a Secret of type kubernetes.io/tls.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The TLS settings of a server. They follow the TLS profile of the cluster for each new connection.
pub struct Serving {
    certificate: Arc<Certificate>,
    /// The cipher suites below TLS 1.3, by IANA names. Without any, only TLS 1.3 is served.
    suites: Box<dyn Fn() -> Vec<String> + Send + Sync>,
    /// The last configuration, and its cipher suites.
    made: Mutex<Option<(Vec<String>, Arc<ServerConfig>)>>,
}

impl Serving {
    /// Creates settings with the certificate in a folder, or with a self-signed one until the folder has one. A metric shows its expiry
    /// time. Below TLS 1.3, only these cipher suites are offered, by IANA names.
    pub fn new(
        folder: PathBuf,
        suites: impl Fn() -> Vec<String> + Send + Sync + 'static,
        expires: Gauge,
    ) -> anyhow::Result<Self> {
        let certificate = folder.join(CERTIFICATE);
        let mut key = folder;
        key.push(KEY);
        Self::with_files(Some([certificate, key]), suites, expires)
    }

    /// Creates settings with the certificate and the key in two files, or with a self-signed certificate until both are complete. Without
    /// files the certificate is always the self-signed one.
    pub fn with_files(
        files: Option<[PathBuf; 2]>,
        suites: impl Fn() -> Vec<String> + Send + Sync + 'static,
        expires: Gauge,
    ) -> anyhow::Result<Self> {
        let certificate = Arc::new(Certificate::new(files, expires)?);
        Ok(Self { certificate, suites: Box::new(suites), made: Mutex::default() })
    }

    /// Returns the configuration for a new connection.
    pub fn config(&self) -> Result<Arc<ServerConfig>, rustls::Error> {
        let suites = (self.suites)();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, config)) = made.as_ref().filter(|(known, _)| *known == suites) {
            return Ok(Arc::clone(config));
        }
        let (provider, versions) = offered(&suites);
        let config = ServerConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&versions)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.certificate) as Arc<dyn ResolvesServerCert>);
        let config = Arc::new(config);
        *made = Some((suites, Arc::clone(&config)));
        Ok(config)
    }
}

/// The configuration for these cipher suites below TLS 1.3. The library has no version below TLS 1.2, and no suite without forward
/// secrecy or with CBC.
fn offered(suites: &[String]) -> (CryptoProvider, Vec<&'static SupportedProtocolVersion>) {
    let mut provider = ring::default_provider();
    provider
        .cipher_suites
        .retain(|suite| suite.version() == &TLS13 || suites.contains(&format!("{:?}", suite.suite())));
    let has_tls12 = provider.cipher_suites.iter().any(|suite| suite.version() == &TLS12);
    let versions = if has_tls12 { vec![&TLS12, &TLS13] } else { vec![&TLS13] };
    (provider, versions)
}

/// A certificate in files that may be replaced while it is used.
#[derive(Debug)]
struct Certificate {
    /// The certificate and its key; `None` if there is only the self-signed one.
    files: Option<[PathBuf; 2]>,
    current: Mutex<Current>,
    expires: Gauge,
}

#[derive(Debug)]
struct Current {
    key: Arc<CertifiedKey>,
    /// The stamps of both files when they were read.
    stamps: Option<[Stamp; 2]>,
    checked_at: Option<Instant>,
}

impl Certificate {
    fn new(files: Option<[PathBuf; 2]>, expires: Gauge) -> anyhow::Result<Self> {
        let current = Current { key: Arc::new(self_signed()?), stamps: None, checked_at: None };
        expires.set(end_of(&current.key));
        Ok(Self { files, current: Mutex::new(current), expires })
    }

    /// Returns the certificate in the files, or the last valid one.
    fn current(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(files) = &self.files else { return Arc::clone(&current.key) };
        if current.checked_at.is_none_or(|checked_at| checked_at.elapsed() >= CHECK_PERIOD) {
            current.checked_at = Some(Instant::now());
            let stamps = stamps(files);
            if stamps.is_some() && stamps != current.stamps {
                let folder = files::parent(&files[0]).display();
                match read(files) {
                    Ok(key) => {
                        info!("serving metrics with the certificate in {folder}");
                        self.expires.set(end_of(&key));
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

fn read([certificate, key]: &[PathBuf; 2]) -> anyhow::Result<CertifiedKey> {
    let chain = CertificateDer::pem_slice_iter(&files::read(certificate)?).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(&files::read(key)?)?;
    Ok(CertifiedKey::from_der(chain, key, &ring::default_provider())?)
}

fn stamps([certificate, key]: &[PathBuf; 2]) -> Option<[Stamp; 2]> {
    Some([files::stamp(certificate).ok()?, files::stamp(key).ok()?])
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

/// The time at which a certificate expires, in seconds since 1970; zero if it cannot be read.
fn end_of(key: &CertifiedKey) -> i64 {
    let parsed = key.cert.first().and_then(|certificate| parse_x509_certificate(certificate).ok());
    parsed.map_or(0, |(_, certificate)| certificate.validity().not_after.timestamp())
}

/// Creates a self-signed certificate, for clients that do not check it.
fn self_signed() -> anyhow::Result<CertifiedKey> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    let secret = PrivateKeyDer::try_from(key.serialize_der()).map_err(anyhow::Error::msg)?;
    Ok(CertifiedKey::from_der(vec![certificate.der().clone()], secret, &ring::default_provider())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_is_offered_than_asked_for() {
        let suite = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
        let below = |suites: &[&str]| {
            let suites: Vec<_> = suites.iter().map(|suite| (*suite).to_owned()).collect();
            let (provider, versions) = offered(&suites);
            let suites = provider.cipher_suites.iter().filter(|suite| suite.version() == &TLS12);
            (suites.map(|suite| format!("{:?}", suite.suite())).collect::<Vec<_>>(), versions.len())
        };
        assert_eq!(below(&[suite]), (vec![suite.to_owned()], 2));
        assert_eq!(below(&["TLS_RSA_WITH_AES_128_CBC_SHA"]), (vec![], 1));
        assert_eq!(below(&[]), (vec![], 1), "for TLS 1.3 alone, and before the profile is known");
    }

    #[test]
    fn a_certificate_is_used_once_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let expires = Gauge::default();
        let files = [CERTIFICATE, KEY].map(|name| folder.path().join(name));
        let certificate = Certificate::new(Some(files), expires.clone()).unwrap();
        let now = || {
            certificate.current.lock().unwrap().checked_at = None;
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
        assert_eq!(expires.get(), 1_999_987_200);
    }
}
