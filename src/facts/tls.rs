//! Which TLS a cloud-controller-manager has to serve (pure).
//!
//! Flags win over the cluster's profile, and the cluster's profile counts only where `tlsAdherence` says so. Profiles
//! and their suites: openshift/api `config/v1/types_tlssecurityprofile.go`. The suites that Go knows, by IANA's names:
//! Go's crypto/tls `CipherSuites` and `InsecureCipherSuites`.

use crate::facts::openshift::ApiServer;

/// TLS settings given on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFlags {
    /// `--tls-min-version`.
    pub min_version: Option<String>,
    /// `--tls-cipher-suites`, by IANA's names.
    pub cipher_suites: Vec<String>,
}

/// What the served TLS must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSettings {
    /// The lowest version, such as `VersionTLS12`.
    pub min_version: String,
    /// The cipher suites by IANA's names; empty where they cannot be chosen (TLS 1.3) or nothing was said of them.
    pub cipher_suites: Vec<String>,
}

/// Why TLS settings cannot be known.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The profile is `Custom` and says nothing.
    #[error(
        "APIServer cluster: spec.tlsSecurityProfile is of type Custom and has no `custom` block with minTLSVersion"
    )]
    NoCustomProfile,
    /// A profile that is not known.
    #[error("APIServer cluster: spec.tlsSecurityProfile.type {0:?} is none of Old, Intermediate, Modern, Custom")]
    UnknownProfile(String),
}

const TLS13: &str = "VersionTLS13";

const MODERN: [&str; 3] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

const INTERMEDIATE: [&str; 6] = [
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
];

const OLD: [&str; 15] = [
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-RSA-AES128-SHA256",
    "ECDHE-ECDSA-AES128-SHA",
    "ECDHE-RSA-AES128-SHA",
    "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE-RSA-AES256-SHA384",
    "ECDHE-ECDSA-AES256-SHA",
    "ECDHE-RSA-AES256-SHA",
    "AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-SHA256",
    "AES256-SHA256",
    "AES128-SHA",
    "AES256-SHA",
    "DES-CBC3-SHA",
];

/// OpenSSL's names of the suites below TLS 1.3 that Go knows.
const IANA_NAMES: [(&str, &str); 18] = [
    ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-RSA-AES128-GCM-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-RSA-AES256-GCM-SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-RSA-CHACHA20-POLY1305", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("ECDHE-ECDSA-AES128-SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    ("ECDHE-RSA-AES128-SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    ("ECDHE-ECDSA-AES128-SHA", "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-RSA-AES128-SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    ("ECDHE-ECDSA-AES256-SHA", "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    ("ECDHE-RSA-AES256-SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    ("AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    ("AES256-GCM-SHA384", "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    ("AES128-SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    ("AES128-SHA", "TLS_RSA_WITH_AES_128_CBC_SHA"),
    ("AES256-SHA", "TLS_RSA_WITH_AES_256_CBC_SHA"),
    ("DES-CBC3-SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
];

impl TlsSettings {
    /// Chooses between the flags, the cluster's profile and the default one.
    pub fn choose(api_server: Option<&ApiServer>, flags: &TlsFlags) -> Result<Self, Error> {
        if let Some(min_version) = &flags.min_version {
            return Ok(Self::of(min_version, flags.cipher_suites.clone()));
        }
        let Self { min_version, cipher_suites } = Self::of_cluster(api_server)?;
        let suites = if flags.cipher_suites.is_empty() { cipher_suites } else { flags.cipher_suites.clone() };
        Ok(Self::of(&min_version, suites))
    }

    fn of_cluster(api_server: Option<&ApiServer>) -> Result<Self, Error> {
        let spec = api_server.map(|api_server| &api_server.spec);
        let adheres = spec.is_some_and(|spec| !matches!(&*spec.tls_adherence, "" | "LegacyAdheringComponentsOnly"));
        let profile = spec.filter(|_| adheres).and_then(|spec| spec.tls_security_profile.as_ref());
        let suites = |lists: &[&[&str]]| lists.concat().into_iter().filter_map(go_suite).map(Into::into).collect();
        Ok(match profile.map_or("", |profile| profile.type_.as_str()) {
            "" | "Intermediate" => Self::of("VersionTLS12", suites(&[&MODERN, &INTERMEDIATE])),
            "Old" => Self::of("VersionTLS10", suites(&[&MODERN, &INTERMEDIATE, &OLD])),
            "Modern" => Self::of(TLS13, Vec::new()),
            "Custom" => {
                let custom = profile.and_then(|profile| profile.custom.as_ref());
                let custom =
                    custom.filter(|custom| !custom.min_tls_version.is_empty()).ok_or(Error::NoCustomProfile)?;
                let ciphers: Vec<_> = custom.ciphers.iter().map(String::as_str).collect();
                Self::of(&custom.min_tls_version, suites(&[&ciphers]))
            }
            other => return Err(Error::UnknownProfile(other.to_owned())),
        })
    }

    /// Go chooses the suites of TLS 1.3 itself and refuses a list of them alone.
    fn of(min_version: &str, cipher_suites: Vec<String>) -> Self {
        let cipher_suites = if min_version == TLS13 { Vec::new() } else { cipher_suites };
        Self { min_version: min_version.to_owned(), cipher_suites }
    }
}

/// IANA's name of a suite that Go knows, from OpenSSL's or from its own.
fn go_suite(name: &str) -> Option<&str> {
    if MODERN.contains(&name) {
        return Some(name);
    }
    IANA_NAMES.iter().find(|(openssl, iana)| *openssl == name || *iana == name).map(|(_, iana)| *iana)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn choose(spec: &serde_json::Value, flags: &TlsFlags) -> Result<(String, usize), Error> {
        let api_server: ApiServer = serde_json::from_value(json!({ "spec": spec })).unwrap();
        TlsSettings::choose(Some(&api_server), flags).map(|tls| (tls.min_version, tls.cipher_suites.len()))
    }

    #[test]
    fn the_profile_counts_only_where_it_has_to_be_kept() {
        let none = TlsFlags::default();
        let modern = json!({"type": "Modern"});
        for (spec, expected) in [
            (json!({}), ("VersionTLS12", 9)),
            (json!({"tlsSecurityProfile": modern}), ("VersionTLS12", 9)),
            (
                json!({"tlsAdherence": "LegacyAdheringComponentsOnly", "tlsSecurityProfile": modern}),
                ("VersionTLS12", 9),
            ),
            (json!({"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": modern}), ("VersionTLS13", 0)),
            (json!({"tlsAdherence": "AValueOfTomorrow", "tlsSecurityProfile": modern}), ("VersionTLS13", 0)),
            (json!({"tlsAdherence": "StrictAllComponents"}), ("VersionTLS12", 9)),
            // Three of the profile's suites are none that Go has.
            (
                json!({"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": {"type": "Old"}}),
                ("VersionTLS10", 21),
            ),
        ] {
            assert_eq!(choose(&spec, &none), Ok((expected.0.into(), expected.1)), "{spec}");
        }
    }

    #[test]
    fn a_custom_profile_is_translated() {
        let custom = json!({"minTLSVersion": "VersionTLS12", "ciphers": ["ECDHE-RSA-AES128-GCM-SHA256", "DHE-RSA-AES128-GCM-SHA256"]});
        let spec = |custom| json!({"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": {"type": "Custom", "custom": custom}});
        assert_eq!(choose(&spec(custom), &TlsFlags::default()), Ok(("VersionTLS12".into(), 1)));
        assert_eq!(choose(&spec(json!(null)), &TlsFlags::default()), Err(Error::NoCustomProfile));
    }

    #[test]
    fn flags_win() {
        let flags = TlsFlags { min_version: Some("VersionTLS13".into()), cipher_suites: Vec::new() };
        assert_eq!(choose(&json!({}), &flags), Ok(("VersionTLS13".into(), 0)));
        let flags = TlsFlags { min_version: Some("VersionTLS12".into()), cipher_suites: Vec::new() };
        assert_eq!(choose(&json!({}), &flags), Ok(("VersionTLS12".into(), 0)));
        let flags = TlsFlags { min_version: None, cipher_suites: vec!["TLS_RSA_WITH_AES_128_CBC_SHA".into()] };
        assert_eq!(choose(&json!({}), &flags), Ok(("VersionTLS12".into(), 1)));
    }
}
