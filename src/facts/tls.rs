//! The TLS settings that a cloud-controller-manager has to serve (pure). Flags win over the cluster's profile.
//!
//! Profiles and their suites: openshift/api `config/v1/types_tlssecurityprofile.go`. The suites that Go knows, by
//! IANA's names: Go's crypto/tls `CipherSuites` and `InsecureCipherSuites`.

use crate::facts::{Error, api_types};

/// TLS settings given on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFlags {
    /// `--tls-min-version`.
    pub min_version: Option<String>,
    /// `--tls-cipher-suites`, by IANA's names.
    pub cipher_suites: Vec<String>,
}

/// The TLS settings of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// The lowest version, such as `VersionTLS12`.
    pub min_version: String,
    /// The cipher suites by IANA's names; empty for TLS 1.3, where they cannot be chosen.
    pub cipher_suites: Vec<String>,
}

api_types! {
    /// A TLS security profile, in the form of OpenShift's `APIServer`.
    pub struct Profile {
        /// `Old`, `Intermediate`, `Modern` or `Custom`; empty means the default one.
        #[serde(rename = "type")]
        pub type_: String,
        /// The settings of a `Custom` profile.
        pub custom: Option<CustomProfile>,
    }

    /// The settings of a `Custom` [`Profile`].
    pub struct CustomProfile {
        /// Cipher suites by `OpenSSL`'s names, TLS 1.3 suites by their own.
        pub ciphers: Vec<String>,
        /// The lowest version, such as `VersionTLS12`.
        #[serde(rename = "minTLSVersion")]
        pub min_tls_version: String,
    }
}

/// How errors name the document of the profile.
const API_SERVER: &str = "APIServer/cluster";

const TLS13: &str = "VersionTLS13";

const MODERN: [&str; 3] = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];

/// The suites below TLS 1.3 of profile Old that Go knows, by OpenSSL's and by IANA's names. Those of profile
/// Intermediate come first.
const BELOW_TLS13: [(&str, &str); 18] = [
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

/// The number of suites of profile Intermediate.
const INTERMEDIATE: usize = 6;

impl TlsSettings {
    /// Chooses between the flags, the cluster's profile and the default one.
    pub fn choose(profile: Option<&Profile>, flags: &TlsFlags) -> Result<Self, Error> {
        if let Some(min_version) = &flags.min_version {
            return Ok(Self::of(min_version, flags.cipher_suites.clone()));
        }
        let Self { min_version, cipher_suites } = Self::of_profile(profile)?;
        let suites = if flags.cipher_suites.is_empty() { cipher_suites } else { flags.cipher_suites.clone() };
        Ok(Self::of(&min_version, suites))
    }

    fn of_profile(profile: Option<&Profile>) -> Result<Self, Error> {
        let suites = |below_tls13: &[(&str, &str)]| {
            let below_tls13 = below_tls13.iter().map(|(_, iana)| *iana);
            MODERN.into_iter().chain(below_tls13).map(str::to_owned).collect()
        };
        Ok(match profile.map_or("", |profile| profile.type_.as_str()) {
            "" | "Intermediate" => Self::of("VersionTLS12", suites(&BELOW_TLS13[..INTERMEDIATE])),
            "Old" => Self::of("VersionTLS10", suites(&BELOW_TLS13)),
            "Modern" => Self::of(TLS13, Vec::new()),
            "Custom" => {
                let custom = profile.and_then(|profile| profile.custom.as_ref());
                let custom =
                    custom.filter(|custom| !custom.min_tls_version.is_empty()).ok_or_else(no_custom_profile)?;
                let suites = custom.ciphers.iter().filter_map(|name| go_suite(name)).map(str::to_owned).collect();
                Self::of(&custom.min_tls_version, suites)
            }
            other => {
                let problem = format!(
                    "spec.tlsSecurityProfile.type {other:?} is not known; set it to Old, Intermediate, Modern or Custom"
                );
                return Err(Error::Field { object: API_SERVER, problem });
            }
        })
    }

    /// Go chooses the suites of TLS 1.3 itself and refuses a list of them alone.
    fn of(min_version: &str, cipher_suites: Vec<String>) -> Self {
        let cipher_suites = if min_version == TLS13 { Vec::new() } else { cipher_suites };
        Self { min_version: min_version.to_owned(), cipher_suites }
    }
}

fn no_custom_profile() -> Error {
    let problem = "spec.tlsSecurityProfile.custom.minTLSVersion is empty; a profile of type Custom needs it".to_owned();
    Error::Field { object: API_SERVER, problem }
}

/// IANA's name of a suite that Go knows, from OpenSSL's or from its own.
fn go_suite(name: &str) -> Option<&str> {
    if MODERN.contains(&name) {
        return Some(name);
    }
    BELOW_TLS13.iter().find(|(openssl, iana)| *openssl == name || *iana == name).map(|(_, iana)| *iana)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Documents, Settings};
    use serde_json::{Value, json};

    fn choose(spec: &Value, flags: &TlsFlags) -> Result<TlsSettings, Error> {
        let api_server = serde_json::from_value(json!({ "spec": spec })).unwrap();
        let settings = Settings { tls: flags.clone(), ..Settings::default() };
        Documents { api_server, ..Documents::default() }.facts(&settings).tls
    }

    fn settings(min_version: &str, cipher_suites: &[&str]) -> TlsSettings {
        let cipher_suites = cipher_suites.iter().map(|&suite| suite.to_owned()).collect();
        TlsSettings { min_version: min_version.to_owned(), cipher_suites }
    }

    fn intermediate() -> TlsSettings {
        let below_13 = [
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        ];
        settings("VersionTLS12", &[&MODERN[..], &below_13].concat())
    }

    fn old() -> TlsSettings {
        // Go does not have three of the profile's suites.
        let weak = [
            "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
            "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
            "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
            "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
            "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
            "TLS_RSA_WITH_AES_128_GCM_SHA256",
            "TLS_RSA_WITH_AES_256_GCM_SHA384",
            "TLS_RSA_WITH_AES_128_CBC_SHA256",
            "TLS_RSA_WITH_AES_128_CBC_SHA",
            "TLS_RSA_WITH_AES_256_CBC_SHA",
            "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        ];
        let mut all = intermediate();
        all.min_version = "VersionTLS10".to_owned();
        all.cipher_suites.extend(weak.map(str::to_owned));
        all
    }

    #[test]
    fn the_profile_counts_only_where_components_must_adhere_to_it() {
        let modern = json!({"type": "Modern"});
        let strict =
            |profile: &str| json!({"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": {"type": profile}});
        for (spec, expected) in [
            (json!({}), intermediate()),
            (json!({"tlsSecurityProfile": modern}), intermediate()),
            (json!({"tlsAdherence": "LegacyAdheringComponentsOnly", "tlsSecurityProfile": modern}), intermediate()),
            (strict("Modern"), settings("VersionTLS13", &[])),
            (json!({"tlsAdherence": "AValueOfTomorrow", "tlsSecurityProfile": modern}), settings("VersionTLS13", &[])),
            (json!({"tlsAdherence": "StrictAllComponents"}), intermediate()),
            (strict("Intermediate"), intermediate()),
            (strict("Old"), old()),
        ] {
            assert_eq!(choose(&spec, &TlsFlags::default()), Ok(expected), "{spec}");
        }
        let error = choose(&strict("Modren"), &TlsFlags::default()).unwrap_err().to_string();
        assert!(
            error.starts_with("APIServer/cluster: spec.tlsSecurityProfile.type \"Modren\" is not known"),
            "{error}"
        );
    }

    #[test]
    fn a_custom_profile_is_translated() {
        let custom = |min_version: &str| {
            let ciphers =
                ["ECDHE-RSA-AES128-GCM-SHA256", "DHE-RSA-AES128-GCM-SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"];
            json!({"minTLSVersion": min_version, "ciphers": ciphers})
        };
        let spec = |custom: Value| json!({"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": {"type": "Custom", "custom": custom}});
        for version in ["VersionTLS11", "VersionTLS12"] {
            let suites = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_GCM_SHA256"];
            assert_eq!(choose(&spec(custom(version)), &TlsFlags::default()), Ok(settings(version, &suites)));
        }
        for incomplete in [json!(null), custom("")] {
            assert_eq!(choose(&spec(incomplete), &TlsFlags::default()), Err(no_custom_profile()));
        }
    }

    #[test]
    fn flags_win() {
        let flags = |min_version: Option<&str>, suites: &[&str]| TlsFlags {
            min_version: min_version.map(Into::into),
            cipher_suites: suites.iter().map(|&suite| suite.to_owned()).collect(),
        };
        let suites = ["TLS_RSA_WITH_AES_128_CBC_SHA"];
        for (flags, expected) in [
            (flags(Some("VersionTLS13"), &suites), settings("VersionTLS13", &[])),
            (flags(Some("VersionTLS12"), &[]), settings("VersionTLS12", &[])),
            (flags(Some("VersionTLS12"), &suites), settings("VersionTLS12", &suites)),
            (flags(None, &suites), settings("VersionTLS12", &suites)),
        ] {
            assert_eq!(choose(&json!({}), &flags), Ok(expected), "{flags:?}");
        }
    }
}
