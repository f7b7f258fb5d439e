//! Mutual TLS with an Engine, from the folder that Docker's own client takes its certificates of.

use std::{fs, path::Path, sync::Arc};

use ccm_drivers::{
    contract::{Error, Result},
    settings::Values,
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName,
        pem::{Error as PemError, PemObject},
    },
};

const AUTHORITY: &str = "ca.pem";
const CERTIFICATE: &str = "cert.pem";
const KEY: &str = "key.pem";

/// The side of the client in TLS connections.
#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) config: Arc<ClientConfig>,
    /// The name in the Engine's certificate; `None` for the host of the endpoint.
    pub(crate) server_name: Option<ServerName<'static>>,
}

/// Whether `tcp://` endpoints have TLS. A server without a verified certificate is never accepted, so values that mean one are
/// refused.
pub(crate) fn is_wanted(values: &Values) -> Result<bool> {
    let has_folder = folder(values).is_some();
    match values.text("tlsVerify").filter(|text| !text.is_empty()) {
        None => Ok(has_folder),
        Some(_) if values.is("tlsVerify") && has_folder => Ok(true),
        Some(_) if values.is("tlsVerify") => Err(Error::invalid(
            "certPath",
            "certPath is empty, and tlsVerify is true: give the folder with ca.pem, cert.pem and key.pem",
        )),
        Some(_) if has_folder => Err(Error::invalid(
            "tlsVerify",
            "tlsVerify is false, and certPath is given: TLS without verification is not supported; remove one of both",
        )),
        Some(_) => Ok(false),
    }
}

fn folder(values: &Values) -> Option<&str> {
    values.text("certPath").filter(|path| !path.is_empty())
}

impl Tls {
    /// Reads the certificates of the settings; `None` if they want no TLS.
    pub(crate) fn load(values: &Values) -> Result<Option<Self>> {
        let is_wanted = is_wanted(values)?;
        let Some(folder) = folder(values).filter(|_| is_wanted).map(Path::new) else { return Ok(None) };
        let name = values.text("tlsServerName").filter(|name| !name.is_empty());
        let server_name = name.map(|name| {
            ServerName::try_from(name.to_owned()).map_err(|_| {
                Error::invalid("tlsServerName", format!("tlsServerName {name:?} is neither a DNS name nor an address"))
            })
        });
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&folder.join(AUTHORITY))? {
            roots.add(certificate).map_err(|error| unusable(&folder.join(AUTHORITY), &error.to_string()))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(folder, &error.to_string()))?
            .with_root_certificates(roots);
        let (certificate, key) = (folder.join(CERTIFICATE), folder.join(KEY));
        let config = if certificate.exists() || key.exists() {
            let secret = PrivateKeyDer::from_pem_slice(&read(&key)?).map_err(|error| unusable(&key, &pem(&error)))?;
            builder
                .with_client_auth_cert(certificates(&certificate)?, secret)
                .map_err(|error| unusable(&key, &format!("it does not fit {CERTIFICATE}: {error}")))?
        } else {
            builder.with_no_client_auth()
        };
        Ok(Some(Self { config: Arc::new(config), server_name: server_name.transpose()? }))
    }
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = read(file)?;
    let all = CertificateDer::pem_slice_iter(&bytes).collect::<std::result::Result<Vec<_>, _>>();
    let all = all.map_err(|error| unusable(file, &pem(&error)))?;
    if all.is_empty() { Err(unusable(file, "it has no certificate")) } else { Ok(all) }
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).map_err(|error| unusable(file, &error.to_string()))
}

/// The words for a problem of a file. The library's own have bytes of it, which may be of a key.
fn pem(error: &PemError) -> String {
    match error {
        PemError::NoItemsFound => "it has no block of the expected type".to_owned(),
        _ => "it is not PEM".to_owned(),
    }
}

fn unusable(file: &Path, problem: &str) -> Error {
    Error::invalid("certPath", format!("certPath: {} cannot be used: {problem}", file.display()))
}

#[cfg(test)]
mod tests;
