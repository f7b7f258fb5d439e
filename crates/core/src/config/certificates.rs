//! Parses, checks and merges bundles of trusted certificates (pure).
//!
//! A bundle with an invalid block is refused as a whole, because a reader that stops there would trust fewer
//! certificates than requested. Expired certificates and those that are not CAs are kept, because readers ignore them;
//! the caller may report them. Text around the blocks is dropped.

use std::{collections::HashSet, io::Cursor};

use base64::{Engine, engine::general_purpose::STANDARD};
use x509_parser::{error::PEMError, parse_x509_certificate, pem::Pem};

use crate::text::Problem;

/// The ConfigMap of the certificates that cloud-controller-managers trust.
pub const TARGET_NAME: &str = "ccm-trusted-ca";

/// The API server's limit for the total size of a ConfigMap's values (`MaxSecretSize`; names do not count).
const LIMIT: usize = 1024 * 1024;
/// The time before its expiry at which a certificate is reported, in seconds: 30 days.
const SOON: i64 = 30 * 24 * 60 * 60;
/// The number of columns of a PEM line.
const COLUMNS: usize = 64;
const BEGIN: &[u8] = b"-----BEGIN ";
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The signed encoding.
    pub der: Vec<u8>,
    /// The subject.
    pub subject: String,
    /// The end of its validity, in seconds since 1970.
    pub not_after: i64,
    /// Whether the certificate belongs to a certificate authority.
    pub is_ca: bool,
}

/// Parses the certificates of a text, in order and without duplicates.
pub fn parse(text: &[u8]) -> Result<Vec<Certificate>, Problem> {
    // A block is recognized at the beginning of a line only.
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let mut cursor = Cursor::new(text);
    let mut known = HashSet::new();
    let mut certificates = Vec::new();
    loop {
        let from = usize::try_from(cursor.position()).unwrap_or(text.len());
        let read = match Pem::read(&mut cursor) {
            Err(PEMError::MissingHeader) => break,
            read => read.map_err(|error| described(&error).to_owned()),
        };
        let certificate = read
            .and_then(|(block, _)| certificate(block))
            .map_err(|problem| Problem::at(line_of_block(text, from), format!("the PEM block {problem}")))?;
        if known.insert(certificate.der.clone()) {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() { Err(Problem::new("no certificate found")) } else { Ok(certificates) }
}

fn certificate(block: Pem) -> Result<Certificate, String> {
    if block.label != "CERTIFICATE" {
        let label: String = block.label.chars().filter(|c| !c.is_control()).take(40).collect();
        return Err(format!("is of the type {label:?}: only CERTIFICATE may be in a bundle"));
    }
    let (rest, parsed) =
        parse_x509_certificate(&block.contents).map_err(|_| "is not a valid X.509 certificate".to_owned())?;
    if !rest.is_empty() {
        return Err(format!("has {} bytes after the certificate", rest.len()));
    }
    let (subject, not_after) = (parsed.subject().to_string(), parsed.validity().not_after.timestamp());
    let is_ca = parsed.is_ca();
    Ok(Certificate { der: block.contents, subject, not_after, is_ca })
}

fn described(error: &PEMError) -> &'static str {
    match error {
        PEMError::IncompletePEM => "is cut off: its END line is missing",
        PEMError::Base64DecodeError => "is damaged, or cut off before its END line: its lines are not base64",
        PEMError::InvalidHeader | PEMError::MissingHeader => "begins with a line that is not complete",
        PEMError::IOError(_) => "is not text",
    }
}

/// The line of the first block at or after a position.
fn line_of_block(text: &[u8], from: usize) -> usize {
    let (before, after) = text.split_at(from.min(text.len()));
    let lines = |bytes: &[u8]| bytes.split(|byte| *byte == b'\n').count();
    lines(before) + after.split(|byte| *byte == b'\n').take_while(|line| !line.starts_with(BEGIN)).count()
}

/// Merges the Proxy's trusted CA, the system's certificates and those of the cloud configuration into PEM without
/// duplicates. Certificates that an administrator provides come before the system's.
pub fn merge(proxy: &[Certificate], system: &[Certificate], cloud: &[Certificate]) -> Result<String, Problem> {
    let parts = [proxy, cloud, system];
    let bytes: usize = parts.iter().flat_map(|part| part.iter()).map(|certificate| certificate.der.len()).sum();
    let mut text = String::with_capacity(bytes / 2 * 3);
    let mut known = HashSet::new();
    let [proxy, cloud, system] = parts.map(|part| {
        let before = text.len();
        for certificate in part.iter().filter(|certificate| known.insert(certificate.der.as_slice())) {
            encode(&certificate.der, &mut text);
        }
        text.len() - before
    });
    let total = text.len();
    if total > LIMIT {
        return Err(Problem::new(format!(
            "the trusted certificates are {total} bytes long together, and a ConfigMap holds at most {LIMIT}: {proxy} of \
             the Proxy's trusted CA, {cloud} of the cloud configuration's, {system} of the system's; remove certificates"
        )));
    }
    Ok(text)
}

fn encode(der: &[u8], text: &mut String) {
    text.push_str("-----BEGIN CERTIFICATE-----\n");
    // The number of bytes in one line.
    for line in der.chunks(COLUMNS / 4 * 3) {
        STANDARD.encode_string(line, text);
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
}

/// The certificates that have expired at this time, in seconds since 1970, or expire within 30 days.
pub fn expiring<'a>(
    certificates: impl IntoIterator<Item = &'a Certificate>,
    now: i64,
) -> impl Iterator<Item = &'a Certificate> {
    let until = now.saturating_add(SOON);
    certificates.into_iter().filter(move |certificate| certificate.not_after <= until)
}

#[cfg(test)]
mod tests;
