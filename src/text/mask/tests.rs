use proptest::prelude::*;

use super::*;

#[test]
fn secret_keys_are_recognized_by_name() {
    let secret = [
        "password",
        "trustee-password",
        "aadClientCertPassword",
        "registry_passwd",
        "passphrase",
        "registry_pwd",
        "aadClientSecret",
        "application-credential-secret",
        "accessKeySecret",
        "token",
        "token-body",
        "credentials",
        "Authorization",
        "user-data",
        "connectionString",
        "accessKey",
        "account-key",
        "apiKey",
        "authKey",
        "tls_client_key",
        "encryptionKey",
        "client-key-data",
        "keyMaterial",
        "masterKey",
        "ssl-private-key",
        "SCW_SECRET_KEY",
        "signing_key",
        "sshKey",
        "vcenter.example.com.password",
    ];
    for key in secret {
        assert!(is_secret_key(key), "{key}");
    }
    let harmless = [
        "token-audience",
        "secretEnabled",
        "tokenEndpoint",
        "token-expiry",
        "aadFederatedTokenFile",
        "credentialFiles",
        "application-credential-id",
        "secretIds",
        "token-key",
        "secretKind",
        "credentialsMode",
        "secretMount",
        "secret-name",
        "secretNames",
        "secret-namespace",
        "secretNamespaces",
        "tokenPath",
        "credentialProvider",
        "credentialRef",
        "secretRefs",
        "tokenExpirationSeconds",
        "credentialSource",
        "tokenTTL",
        "secretType",
        "token-url",
        "secretVersion",
        "key-file",
        "accessKeyID",
        "default-tls-container-ref",
        "username",
        "key",
        "publicKey",
        "automountServiceAccountToken",
        "Region",
        "",
    ];
    for key in harmless {
        assert!(!is_secret_key(key), "{key}");
    }
}

#[test]
fn only_the_secret_part_of_a_line_is_masked() {
    let cases = [
        ("password = hunter2", "password = ***"),
        ("  password=\"hun;ter2\" ; comment", "  password=***"),
        ("secret-name = openstack-credentials", "secret-name = openstack-credentials"),
        ("password: hunter2", "password: ***"),
        ("- token: abc", "- token: ***"),
        ("'password': hunter2", "'password': ***"),
        ("password:", "password:"),
        ("password = ", "password = "),
        ("automountServiceAccountToken: true", "automountServiceAccountToken: true"),
        ("useSecret: true", "useSecret: true"),
        (r#"  "aadClientSecret": "hun\"ter2","#, r#"  "aadClientSecret": "***","#),
        (
            r#"{"cloud":"a","aadClientSecret":"x","vmType":"standard"}"#,
            r#"{"cloud":"a","aadClientSecret":"***","vmType":"standard"}"#,
        ),
        (r#"{"tokens": ["a", "b"], "n": 1}"#, r#"{"tokens": [***], "n": 1}"#),
        (r#"{"password": 12345}"#, r#"{"password": ***}"#),
        (r#"{"credentials": {"password": "x", "user": "y"}}"#, r#"{"credentials": {"password": "***", "user": "y"}}"#),
        ("auth-url = https://me:hunter2@example.com:5000/v3", "auth-url = https://me:***@example.com:5000/v3"),
        ("auth-url = https://example.com:5000/v3?a=b@c", "auth-url = https://example.com:5000/v3?a=b@c"),
        ("proxy: http://a:b@c http://d:e@f", "proxy: http://a:***@c http://d:***@f"),
        ("[Global]", "[Global]"),
        ("# a comment", "# a comment"),
        ("", ""),
    ];
    for (text, shown) in cases {
        assert_eq!(line(text), shown, "{text}");
        assert_eq!(line(shown), shown, "masked twice");
    }
}

#[test]
fn a_secret_of_several_lines_is_masked_completely() {
    let text = "a: 1\npassword: |\n  hunter2\n\n  more\nb: 2\n\
                key = x\npassword = one \\\n  two \\\n three\nregion = r\n\
                tls: |\n  -----BEGIN RSA PRIVATE KEY-----\n  MIIabc\n  -----END RSA PRIVATE KEY-----\n  after\n";
    let shown = "a: 1\npassword: |\n  ***\n\n  ***\nb: 2\n\
                 key = x\npassword = ***\n  ***\n ***\nregion = r\n\
                 tls: |\n  -----BEGIN RSA PRIVATE KEY-----\n  ***\n  ***\n  after\n";
    assert_eq!(lines(text), shown.lines().collect::<Vec<_>>());
    let json = r#""tls": "-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----\n""#;
    assert_eq!(line(json), r#""tls": "-----BEGIN PRIVATE KEY-----***"#);
    assert_eq!(lines("-----BEGIN CERTIFICATE-----\nMIIabc\n"), ["-----BEGIN CERTIFICATE-----", "MIIabc"]);
}

proptest! {
    #[test]
    fn no_secret_is_shown(
        before in "[ \t]{0,3}",
        key in prop::sample::select(vec!["password", "aadClientSecret", "token", "trustee-password"]),
        secret in "Zz[0-9A-Za-z!@#$%^&*()_+:;,.<>/?=-]{6,20}Zz",
        form in 0..4,
    ) {
        let text = match form {
            0 => format!("{before}{key} = {secret}"),
            1 => format!("{before}{key}: {secret}"),
            2 => format!("{before}\"{key}\": \"{secret}\","),
            _ => format!("{{\"a\":1,\"{key}\":\"{secret}\",\"b\":2}}"),
        };
        let shown = line(&text).into_owned();
        prop_assert!(!shown.contains(&secret[..6]), "{}", shown);
        prop_assert!(shown.contains(key), "{}", shown);
    }

    #[test]
    fn masking_keeps_the_number_of_lines(text in any::<Vec<u8>>().prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()), punctuation in "[\"':=\\[\\]{}/@a-z\\\\ \n-]{0,60}") {
        prop_assert_eq!(lines(&text).len(), text.lines().count());
        prop_assert_eq!(lines(&punctuation).len(), punctuation.lines().count());
    }
}
