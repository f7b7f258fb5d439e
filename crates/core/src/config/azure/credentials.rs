//! Injects credentials into Azure's configuration (pure).
//!
//! It edits the configuration in place: other members keep their order and notation. No error, note or `Debug` output
//! contains a credential.

use std::fmt;

use serde_json::Value;

use crate::text::{
    Problem,
    json::{self, Document},
};

/// The file of the application's ID. These names are keys of Secret `azure-cloud-credentials`.
pub const CLIENT_ID: &str = "azure_client_id";
/// The file of the application's secret.
pub const CLIENT_SECRET: &str = "azure_client_secret";
/// The file of the path to a workload identity's token.
pub const FEDERATED_TOKEN_FILE: &str = "azure_federated_token_file";
/// The file of the tenant's ID.
pub const TENANT_ID: &str = "azure_tenant_id";

/// The reason why the credentials cannot be injected.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// The client ID is missing.
    #[error("the credentials have no {CLIENT_ID}")]
    NoClientId,
    /// Both kinds of credentials are missing.
    #[error("the credentials have neither {CLIENT_SECRET} nor {FEDERATED_TOKEN_FILE}: one of them is needed")]
    NoSecret,
    /// Both kinds of credentials are set.
    #[error("the credentials have both {CLIENT_SECRET} and {FEDERATED_TOKEN_FILE}: only one of them may be set")]
    TwoSecrets,
    /// The tenant of a workload identity is missing.
    #[error("the credentials have {FEDERATED_TOKEN_FILE} but no {TENANT_ID}, which a workload identity needs")]
    NoTenant,
    /// The configuration is invalid.
    #[error(transparent)]
    Config(Problem),
}

/// The credentials; a blank value counts as missing.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The application's ID.
    pub client_id: Option<String>,
    /// The application's secret.
    pub client_secret: Option<String>,
    /// The path to a workload identity's token.
    pub federated_token_file: Option<String>,
    /// The tenant's ID.
    pub tenant_id: Option<String>,
}

/// A configuration with credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Injected {
    /// The configuration. Contains secrets.
    pub text: String,
    /// Notes for the log, without values.
    pub notes: Vec<&'static str>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl fmt::Debug for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Injected").field("notes", &self.notes).finish_non_exhaustive()
    }
}

/// Injects credentials into a configuration, replacing the members of the same kind of credentials. Members of the
/// other kind are kept, as the Go operator does.
pub fn inject(config: &str, credentials: &Credentials, disable_managed_identity: bool) -> Result<Injected, Error> {
    let client_id = given(credentials.client_id.as_ref()).ok_or(Error::NoClientId)?;
    let (secret, token_file) =
        (given(credentials.client_secret.as_ref()), given(credentials.federated_token_file.as_ref()));
    let login = match (secret, token_file) {
        (Some(_), Some(_)) => return Err(Error::TwoSecrets),
        (None, None) => return Err(Error::NoSecret),
        (Some(secret), None) => vec![("aadClientSecret", secret.into())],
        (None, Some(token_file)) => vec![
            ("tenantId", given(credentials.tenant_id.as_ref()).ok_or(Error::NoTenant)?.into()),
            ("aadFederatedTokenFile", token_file.into()),
            ("useFederatedWorkloadIdentityExtension", Value::Bool(true)),
        ],
    };
    let mut notes = Vec::new();
    let mut document = Document::parse(config).map_err(Error::Config)?;
    if document.had_byte_order_mark {
        notes.push("the byte order mark before the cloud configuration was dropped");
    }
    document.set("aadClientId", &client_id.into());
    if document.named("useManagedIdentityExtension").next().is_some() && disable_managed_identity {
        document.set("useManagedIdentityExtension", &false.into());
        notes.push("useManagedIdentityExtension is set to false: the credentials are used instead");
    } else if document.last("useManagedIdentityExtension").is_some_and(|member| member.value == "true") {
        notes.push("useManagedIdentityExtension is true: the credentials may not be used");
    }
    for (name, value) in login {
        document.set(name, &value);
    }
    let text = document.write();
    Ok(Injected { text: json::readable_as_yaml(&text).unwrap_or(text), notes })
}

fn given(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|text| !text.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Credentials by letters: client ID, secret, token file and tenant; a capital letter stands for a blank one.
    fn credentials(present: &str) -> Credentials {
        let value = |letter: char, value: &str| {
            if present.contains(letter.to_ascii_uppercase()) {
                Some("\t ".to_owned())
            } else {
                present.contains(letter).then(|| value.to_owned())
            }
        };
        Credentials {
            client_id: value('c', "the-id"),
            client_secret: value('s', "s3cr\"t/\u{7f}"),
            federated_token_file: value('f', "/token"),
            tenant_id: value('t', "the-tenant"),
        }
    }

    #[test]
    fn every_combination_of_credentials() {
        let secret = json!({"aadClientId": "the-id", "aadClientSecret": "s3cr\"t/\u{7f}"});
        let federated = json!({
            "aadClientId": "the-id", "tenantId": "the-tenant", "aadFederatedTokenFile": "/token", "useFederatedWorkloadIdentityExtension": true,
        });
        for (present, expected) in [
            ("", Err(Error::NoClientId)),
            ("s", Err(Error::NoClientId)),
            ("ft", Err(Error::NoClientId)),
            ("Cs", Err(Error::NoClientId)),
            ("c", Err(Error::NoSecret)),
            ("ct", Err(Error::NoSecret)),
            ("cS", Err(Error::NoSecret)),
            ("cF", Err(Error::NoSecret)),
            ("cf", Err(Error::NoTenant)),
            ("cfT", Err(Error::NoTenant)),
            ("csf", Err(Error::TwoSecrets)),
            ("csft", Err(Error::TwoSecrets)),
            ("cs", Ok(&secret)),
            ("csF", Ok(&secret)),
            // A tenant beside a secret is ignored: the configuration has its own.
            ("cst", Ok(&secret)),
            ("cft", Ok(&federated)),
            ("cSft", Ok(&federated)),
        ] {
            let injected = inject("{}", &credentials(present), false);
            let found = injected.map(|injected| serde_json::from_str::<Value>(&injected.text).unwrap());
            assert_eq!(
                found.as_ref().map_err(ToString::to_string),
                expected.as_ref().map(|value| *value).map_err(Error::to_string),
                "{present}"
            );
        }
    }

    #[test]
    fn other_members_are_kept() {
        let config = "{\n  \"big\": 12345678901234567890123,\n  \"AADClientId\": \"old\",\n  \"float\": 1.10,\n  \"tags\": \"a\\/b\"\n}\n";
        let expected = "{\n  \"big\": 12345678901234567890123,\n  \"AADClientId\": \"the-id\",\n  \"float\": 1.10,\n  \"tags\": \"a/b\",\n  \
                        \"aadClientSecret\": \"s3cr\\\"t/\\u007f\"\n}\n";
        let injected = inject(config, &credentials("cs"), true).unwrap();
        assert_eq!((injected.text.as_str(), injected.notes), (expected, vec![]));
    }

    #[test]
    fn managed_identity_is_disabled_only_if_set_and_unwanted() {
        let with = |value: &str| format!("{{\"UseManagedIdentityExtension\":{value}}}");
        for (config, disable, expected, notes) in [
            ("{}".to_owned(), true, None, 0),
            (with("true"), true, Some(false), 1),
            (with("false"), true, Some(false), 1),
            (with("null"), true, Some(false), 1),
            (with("true"), false, Some(true), 1),
            (with("false"), false, Some(false), 0),
        ] {
            let injected = inject(&config, &credentials("cs"), disable).unwrap();
            let value: Value = serde_json::from_str(&injected.text).unwrap();
            assert_eq!(
                value.get("UseManagedIdentityExtension").and_then(Value::as_bool),
                expected,
                "{config} {disable}"
            );
            assert_eq!(injected.notes.len(), notes, "{config} {disable}");
        }
    }

    #[test]
    fn other_configurations_are_refused_and_a_byte_order_mark_is_dropped() {
        for config in ["", "null", "[]", "{", "cloud: x", "{\"a\": 1} x"] {
            assert!(matches!(inject(config, &credentials("cs"), false), Err(Error::Config(_))), "{config}");
        }
        let injected = inject("\u{feff}{}", &credentials("cs"), false).unwrap();
        assert!(injected.text.starts_with('{') && injected.notes.len() == 1);
    }

    #[test]
    fn debug_output_has_no_secrets() {
        let credentials = credentials("csft");
        let injected = inject("{}", &self::credentials("cs"), false);
        assert!(!format!("{credentials:?} {injected:?}").contains("the-"));
    }

    proptest! {
        #[test]
        fn injects_any_text_and_never_panics(config in any::<String>(), secret in any::<String>()) {
            let credentials = Credentials { client_secret: Some(format!("x{secret}")), ..credentials("c") };
            let _ = inject(&config, &credentials, true);
            let injected = inject("{\"a\":1}", &credentials, false).unwrap();
            let value: Value = serde_json::from_str(&injected.text).unwrap();
            prop_assert_eq!(&value["aadClientSecret"], &format!("x{secret}"));
            prop_assert_eq!(&inject(&injected.text, &credentials, false).unwrap().text, &injected.text);
        }
    }
}
