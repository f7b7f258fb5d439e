//! The certificates and keys of one test control plane.
//!
//! ECDSA: generated in a millisecond, unlike the RSA keys that the API server generates by default.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

use anyhow::Result;
use k8s_openapi::jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};

/// File of the certificate authority.
pub const CA_CERT: &str = "ca.crt";
/// File of the API server's certificate.
pub const SERVER_CERT: &str = "apiserver.crt";
/// File of the API server's private key.
pub const SERVER_KEY: &str = "apiserver.key";
/// File of the private key that signs service-account tokens.
pub const SERVICE_ACCOUNT_KEY: &str = "service-account.key";
/// File of the public key that checks service-account tokens.
pub const SERVICE_ACCOUNT_PUB: &str = "service-account.pub";

/// The certificate of an authority with this name, as PEM.
pub fn authority(name: &str) -> Result<String> {
    authority_until(name, 4000)
}

/// A certificate authority that expires after this number of days.
pub fn authority_until(name: &str, days: i64) -> Result<String> {
    let mut certificate = CertificateParams::default();
    expires_after(&mut certificate, days)?;
    certificate.distinguished_name.push(DnType::CommonName, name);
    certificate.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Ok(certificate.self_signed(&KeyPair::generate()?)?.pem())
}

/// Makes a certificate expire after this number of days.
pub fn expires_after(certificate: &mut CertificateParams, days: i64) -> Result<()> {
    let end = Timestamp::now().checked_add(SignedDuration::from_hours(24 * days))?.to_zoned(TimeZone::UTC).date();
    let (month, day) = (u8::try_from(end.month())?, u8::try_from(end.day())?);
    certificate.not_after = rcgen::date_time_ymd(end.year().into(), month, day);
    Ok(())
}

/// A certificate for an address that is its own authority, and its key.
pub fn self_signed(address: IpAddr) -> Result<(rcgen::Certificate, KeyPair)> {
    let key = KeyPair::generate()?;
    let mut certificate = CertificateParams::default();
    certificate.subject_alt_names.push(SanType::IpAddress(address));
    Ok((certificate.self_signed(&key)?, key))
}

/// Writes these files to `dir` and returns the authority's certificate as DER.
pub fn write(dir: &Path) -> Result<Vec<u8>> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "testplane-ca");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca_cert = ca.self_signed(&ca_key)?;
    let issuer = Issuer::new(ca, ca_key);

    let server_key = KeyPair::generate()?;
    let mut server = CertificateParams::new(vec!["localhost".into(), "kubernetes.default.svc".into()])?;
    server.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    server.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    let server_cert = server.signed_by(&server_key, &issuer)?;

    let service_account_key = KeyPair::generate()?;
    fs::write(dir.join(CA_CERT), ca_cert.pem())?;
    fs::write(dir.join(SERVER_CERT), server_cert.pem())?;
    fs::write(dir.join(SERVER_KEY), server_key.serialize_pem())?;
    fs::write(dir.join(SERVICE_ACCOUNT_KEY), service_account_key.serialize_pem())?;
    fs::write(dir.join(SERVICE_ACCOUNT_PUB), service_account_key.public_key_pem())?;
    Ok(ca_cert.der().to_vec())
}
