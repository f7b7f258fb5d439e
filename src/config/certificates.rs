//! Bundles of trusted certificates: read, checked, merged (pure).
//!
//! A bundle is refused whole when one of its blocks is no certificate: a reader that stops there would trust less than was
//! asked for. Expired certificates and those of no authority are kept, as readers ignore them; who calls may report them.
//! Text around the blocks is dropped.

use std::{collections::HashSet, io::Cursor};

use base64::{Engine, engine::general_purpose::STANDARD};
use x509_parser::{error::PEMError, parse_x509_certificate, pem::Pem};

/// The ConfigMap with the certificates that cloud-controller-managers trust.
pub const TARGET_NAME: &str = "ccm-trusted-ca";

/// The API server refuses a ConfigMap whose values are longer together (`MaxSecretSize`; names do not count).
const LIMIT: usize = 1024 * 1024;
/// How long before its end a certificate is worth a word, in seconds: 30 days.
const SOON: i64 = 30 * 24 * 60 * 60;
/// The length of a line of PEM.
const COLUMNS: usize = 64;
const BEGIN: &[u8] = b"-----BEGIN ";
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Why a bundle cannot be used.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// There is nothing to trust.
    #[error("it holds no certificate")]
    Empty,
    /// A block is no certificate.
    #[error("block {number} (line {line}) {problem}")]
    Block {
        /// Which one, from 1.
        number: usize,
        /// Where it begins, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// No ConfigMap can hold it.
    #[error(
        "the trusted certificates are {total} bytes long together, and a ConfigMap holds at most {LIMIT}: {proxy} of the \
         Proxy's trusted CA, {cloud} of the cloud configuration's, {system} of the system's; remove certificates"
    )]
    TooLong {
        /// Of all parts, each certificate once.
        total: usize,
        /// Of the Proxy's trusted CA.
        proxy: usize,
        /// What the cloud configuration brings more.
        cloud: usize,
        /// What the system brings more.
        system: usize,
    },
}

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// As it was signed.
    pub der: Vec<u8>,
    /// Whose it is.
    pub subject: String,
    /// When it begins to count, in seconds since 1970.
    pub not_before: i64,
    /// When it ends, in seconds since 1970.
    pub not_after: i64,
    /// Whether it says that it may sign others.
    pub is_ca: bool,
}

/// Certificates of several sources, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle<'a> {
    /// The certificates as PEM, in lines of 64 columns.
    pub text: String,
    /// The certificates, in the order of the text.
    pub certificates: Vec<&'a Certificate>,
}

/// Reads every certificate of a text, each once, in its order.
pub fn parse(text: &[u8]) -> Result<Vec<Certificate>, Error> {
    // A block counts at the beginning of a line only.
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut cursor = Cursor::new(text);
    let mut known = HashSet::new();
    let mut certificates = Vec::new();
    for number in 1.. {
        let from = usize::try_from(cursor.position()).unwrap_or(text.len());
        let wrong = |problem: String| Error::Block { number, line: line_of_block(text, from), problem };
        let (block, _) = match Pem::read(&mut cursor) {
            Ok(read) => read,
            Err(PEMError::MissingHeader) => break,
            Err(error) => return Err(wrong(described(&error).to_owned())),
        };
        let certificate = certificate(block).map_err(wrong)?;
        if known.insert(certificate.der.clone()) {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() { Err(Error::Empty) } else { Ok(certificates) }
}

fn certificate(block: Pem) -> Result<Certificate, String> {
    if block.label != "CERTIFICATE" {
        let label: String = block.label.chars().filter(|c| !c.is_control()).take(40).collect();
        return Err(format!("is of the type {label:?}: only CERTIFICATE may be in a bundle"));
    }
    let (rest, parsed) = parse_x509_certificate(&block.contents)
        .map_err(|_| "is no X.509 certificate: it is damaged, or something else".to_owned())?;
    if !rest.is_empty() {
        return Err(format!("has {} bytes after the certificate", rest.len()));
    }
    let (subject, not_before) = (parsed.subject().to_string(), parsed.validity().not_before.timestamp());
    let (not_after, is_ca) = (parsed.validity().not_after.timestamp(), parsed.is_ca());
    Ok(Certificate { der: block.contents, subject, not_before, not_after, is_ca })
}

fn described(error: &PEMError) -> &'static str {
    match error {
        PEMError::IncompletePEM => "is cut off: its END line is missing",
        PEMError::Base64DecodeError => "is damaged, or cut off before its END line: its lines are not base64",
        PEMError::InvalidHeader | PEMError::MissingHeader => "begins with a line that is not complete",
        PEMError::IOError(_) => "is not text",
    }
}

/// The line of the first block at or after a place.
fn line_of_block(text: &[u8], from: usize) -> usize {
    let (before, after) = text.split_at(from.min(text.len()));
    let lines = |bytes: &[u8]| bytes.split(|byte| *byte == b'\n').count();
    lines(before) + after.split(|byte| *byte == b'\n').take_while(|line| !line.starts_with(BEGIN)).count()
}

/// Merges the Proxy's trusted CA, the system's certificates, and those that come with the cloud's configuration. What an
/// administrator gave stands before the system's.
pub fn merge<'a>(
    proxy: Option<&'a [Certificate]>,
    system: &'a [Certificate],
    cloud: Option<&'a [Certificate]>,
) -> Result<Bundle<'a>, Error> {
    let parts = [proxy.unwrap_or_default(), cloud.unwrap_or_default(), system];
    let bytes: usize = parts.iter().flat_map(|part| part.iter()).map(|certificate| certificate.der.len()).sum();
    let mut bundle = Bundle { text: String::with_capacity(bytes / 2 * 3), certificates: Vec::new() };
    let mut known = HashSet::new();
    let [proxy, cloud, system] = parts.map(|part| {
        let before = bundle.text.len();
        for certificate in part.iter().filter(|certificate| known.insert(certificate.der.as_slice())) {
            encode(&certificate.der, &mut bundle.text);
            bundle.certificates.push(certificate);
        }
        bundle.text.len() - before
    });
    let total = bundle.text.len();
    if total > LIMIT {
        return Err(Error::TooLong { total, proxy, cloud, system });
    }
    Ok(bundle)
}

fn encode(der: &[u8], text: &mut String) {
    text.push_str("-----BEGIN CERTIFICATE-----\n");
    // So many bytes are one line.
    for line in der.chunks(COLUMNS / 4 * 3) {
        STANDARD.encode_string(line, text);
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
}

/// The certificates that have ended at this time, in seconds since 1970, or will have in 30 days.
pub fn expiring<'a>(
    certificates: impl IntoIterator<Item = &'a Certificate>,
    now: i64,
) -> impl Iterator<Item = &'a Certificate> {
    let until = now.saturating_add(SOON);
    certificates.into_iter().filter(move |certificate| certificate.not_after <= until)
}

#[cfg(test)]
mod tests;
