//! The TLS settings of a cloud-controller-manager (pure). Flags have precedence over the cluster's profile.
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
    /// Whether HTTP/2 is disabled: Go refuses to serve it below TLS 1.3 without a suite that HTTP/2 needs.
    pub disables_http2: bool,
    /// The differences from the requested settings, for people.
    pub notes: Vec<String>,
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

/// The document of the profile in errors.
const API_SERVER: &str = "APIServer/cluster";

/// The name of a custom profile in messages.
const CUSTOM: &str = "APIServer/cluster: spec.tlsSecurityProfile.custom";

const TLS13: &str = "VersionTLS13";

/// The versions that Kubernetes' `--tls-min-version` takes.
const VERSIONS: [&str; 4] = ["VersionTLS10", "VersionTLS11", "VersionTLS12", TLS13];

/// One of these has to be offered with HTTP/2 below TLS 1.3 (RFC 9113, section 9.2.2; golang.org/x/net/http2,
/// `ConfigureServer`).
const HTTP2: [&str; 2] = ["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"];

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

/// The other suites below TLS 1.3 that Go knows and Kubernetes' `--tls-cipher-suites` takes.
const OTHERS: [(&str, &str); 4] = [
    ("ECDHE-ECDSA-RC4-SHA", "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA"),
    ("ECDHE-RSA-RC4-SHA", "TLS_ECDHE_RSA_WITH_RC4_128_SHA"),
    ("ECDHE-RSA-DES-CBC3-SHA", "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"),
    ("RC4-SHA", "TLS_RSA_WITH_RC4_128_SHA"),
];

/// The number of suites of profile Intermediate.
const INTERMEDIATE: usize = 6;

impl TlsSettings {
    /// Chooses between the flags, the cluster's profile and the default one.
    pub fn choose(profile: Option<&Profile>, flags: &TlsFlags) -> Result<Self, Error> {
        let suites = (!flags.cipher_suites.is_empty()).then(|| flags.cipher_suites.clone());
        if let Some(min_version) = &flags.min_version {
            return Ok(Self::of("--tls-min-version and --tls-cipher-suites", min_version, suites.as_deref()));
        }
        let (source, min_version, of_profile) = asked_by(profile)?;
        Ok(match suites {
            Some(suites) => {
                Self::of("--tls-cipher-suites, with the version of the profile", min_version, Some(&suites))
            }
            None => Self::of(source, min_version, of_profile.as_deref()),
        })
    }

    /// Returns the part of a request that Go can serve, and never more: Go exits at an unknown version or suite, and without a
    /// list it serves all of its suites. It chooses the suites of TLS 1.3 itself. `None` requests Go's own list.
    fn of(source: &str, min_version: &str, asked: Option<&[String]>) -> Self {
        let mut settings = Self { min_version: min_version.to_owned(), ..Self::default() };
        let mut note = |text: String| settings.notes.push(format!("{source}: {text}"));
        if !VERSIONS.contains(&min_version) {
            note(format!(
                "{min_version:?} is no TLS version, so TLS 1.3 is served; use one of {}",
                VERSIONS.join(", ")
            ));
            TLS13.clone_into(&mut settings.min_version);
        }
        let unknown: Vec<_> = asked.into_iter().flatten().filter(|name| go_suite(name).is_none()).cloned().collect();
        if !unknown.is_empty() {
            note(format!("cipher suites that Go does not have are left out: {}", unknown.join(", ")));
        }
        let Some(asked) = asked.filter(|_| settings.min_version != TLS13) else { return settings };
        let suites: Vec<_> = asked.iter().filter_map(|name| go_suite(name)).collect();
        if suites.iter().all(|suite| MODERN.contains(suite)) {
            note("no cipher suite below TLS 1.3 is left, so TLS 1.3 alone is served".to_owned());
            TLS13.clone_into(&mut settings.min_version);
            return settings;
        }
        if !suites.iter().any(|suite| HTTP2.contains(suite)) {
            note(format!("HTTP/2 is not served: it needs {} or TLS 1.3", HTTP2.join(" or ")));
            settings.disables_http2 = true;
        }
        settings.cipher_suites = suites.into_iter().map(str::to_owned).collect();
        settings
    }
}

/// Returns the settings of a profile: its field for messages, the lowest version, and the cipher suites.
fn asked_by(profile: Option<&Profile>) -> Result<(&'static str, &str, Option<Vec<String>>), Error> {
    let known = |below_tls13: &[(&str, &str)]| {
        let suites: Vec<_> = below_tls13.iter().map(|(_, iana)| *iana).collect();
        Some(MODERN.into_iter().chain(suites).map(str::to_owned).collect())
    };
    Ok(match profile.map_or("", |profile| profile.type_.as_str()) {
        "" | "Intermediate" => ("", "VersionTLS12", known(&BELOW_TLS13[..INTERMEDIATE])),
        "Old" => ("", "VersionTLS10", known(&BELOW_TLS13)),
        "Modern" => ("", TLS13, None),
        "Custom" => {
            let custom = profile.and_then(|profile| profile.custom.as_ref());
            let custom = custom.filter(|custom| !custom.min_tls_version.is_empty()).ok_or_else(no_custom_profile)?;
            (CUSTOM, &custom.min_tls_version, Some(custom.ciphers.clone()))
        }
        other => {
            let problem = format!(
                "spec.tlsSecurityProfile.type {other:?} is not known; set it to Old, Intermediate, Modern or Custom"
            );
            return Err(Error::Field { object: API_SERVER, problem });
        }
    })
}

fn no_custom_profile() -> Error {
    let problem = "spec.tlsSecurityProfile.custom.minTLSVersion is empty; a profile of type Custom needs it".to_owned();
    Error::Field { object: API_SERVER, problem }
}

/// Returns the IANA name of a suite that Go knows, from its OpenSSL or IANA name.
fn go_suite(name: &str) -> Option<&str> {
    if MODERN.contains(&name) {
        return Some(name);
    }
    BELOW_TLS13.iter().chain(&OTHERS).find(|(openssl, iana)| *openssl == name || *iana == name).map(|(_, iana)| *iana)
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
        TlsSettings { min_version: min_version.to_owned(), cipher_suites, ..TlsSettings::default() }
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
            let notes =
                ["APIServer/cluster: spec.tlsSecurityProfile.custom: cipher suites that Go does not have are left \
                          out: DHE-RSA-AES128-GCM-SHA256"];
            let expected = TlsSettings { notes: notes.map(str::to_owned).into(), ..settings(version, &suites) };
            assert_eq!(choose(&spec(custom(version)), &TlsFlags::default()), Ok(expected));
        }
        for incomplete in [json!(null), custom("")] {
            assert_eq!(choose(&spec(incomplete), &TlsFlags::default()), Err(no_custom_profile()));
        }
    }

    #[test]
    fn no_more_is_served_than_a_custom_profile_asks_for() {
        const RSA: &str = "ECDHE-RSA-AES256-GCM-SHA384";
        const RSA_BY_IANA: &str = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384";
        for (version, ciphers, served, suites, disables_http2, notes) in [
            ("VersionTLS12", &[RSA][..], "VersionTLS12", &[RSA_BY_IANA][..], true, &["HTTP/2 is not served"][..]),
            (
                "VersionTLS12",
                &[RSA, "TLS_AES_256_GCM_SHA384"],
                "VersionTLS12",
                &[RSA_BY_IANA, "TLS_AES_256_GCM_SHA384"],
                true,
                &["HTTP/2 is not served"],
            ),
            ("VersionTLS12", &["TLS_AES_256_GCM_SHA384"], "VersionTLS13", &[], false, &["no cipher suite below"]),
            ("VersionTLS12", &[], "VersionTLS13", &[], false, &["no cipher suite below"]),
            ("VersionTLS12", &["x", "y"], "VersionTLS13", &[], false, &["left out: x, y", "no cipher suite below"]),
            ("VersionTLS14", &[RSA], "VersionTLS13", &[], false, &["\"VersionTLS14\" is no TLS version"]),
            ("VersionTLS13", &[RSA], "VersionTLS13", &[], false, &[]),
        ] {
            let custom = json!({"minTLSVersion": version, "ciphers": ciphers});
            let profile = json!({"type": "Custom", "custom": custom});
            let spec = json!({"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": profile});
            let found = choose(&spec, &TlsFlags::default()).unwrap();
            assert_eq!(found.notes.len(), notes.len(), "{:?}", found.notes);
            assert!(found.notes.iter().zip(notes).all(|(found, words)| found.contains(words)), "{:?}", found.notes);
            let expected = TlsSettings { disables_http2, notes: found.notes.clone(), ..settings(served, suites) };
            assert_eq!(found, expected, "{spec}");
        }
    }

    #[test]
    fn the_suites_of_a_flag_count_where_those_of_the_profile_are_left_out() {
        let profile = json!({"type": "Custom", "custom": {"minTLSVersion": "VersionTLS12", "ciphers": ["unknown"]}});
        let spec = json!({"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": profile});
        let suites = ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"];
        let flags = TlsFlags { min_version: None, cipher_suites: suites.map(Into::into).into() };
        assert_eq!(choose(&spec, &flags), Ok(settings("VersionTLS12", &suites)));
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
            let found = choose(&json!({}), &flags).unwrap();
            let disables_http2 = !expected.cipher_suites.is_empty();
            assert_eq!(found.notes.len(), usize::from(disables_http2), "{flags:?}: {:?}", found.notes);
            assert_eq!(found, TlsSettings { disables_http2, notes: found.notes.clone(), ..expected }, "{flags:?}");
        }
    }
}
