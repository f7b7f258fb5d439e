mod hostile;
mod samples;

use proptest::prelude::*;
use samples::{INI, JSON, YAML, key, planted};

use super::*;
use crate::text::{ini::Document, yaml::outline::documents};

#[test]
fn names_of_secrets_are_known_by_their_last_word() {
    for key in [
        "VAULT_SECRET_ID",
        "DB_PASS",
        "smtpPass",
        "PGPASS",
        "AWS_CREDS",
        "BASIC_AUTH",
        "API_KEYS",
        "aes-key",
        "GITHUB_PAT",
        "client-creds",
        "sessionCookie",
        "X-Auth",
        "HMAC_KEY",
        "storageKey",
    ] {
        assert!(is_secret_key(key), "{key}");
    }
    for key in ["bypass", "compass", "author", "authority", "path", "key", "keys", "compat", "passive", "pattern"] {
        assert!(!is_secret_key(key), "{key}");
    }
}

#[test]
fn tokens_in_urls_and_assigned_secrets_are_masked() {
    for (shown, expected) in [
        (text("url: https://ghp_0123456789abcdef@example.com/x"), "url: https://***@example.com/x"),
        (text("url: https://ghp_0123456789abcdef:x-oauth-basic@example.com"), "url: https://***@example.com"),
        (text("url: https://git@example.com"), "url: https://git@example.com"),
        (message("bad cloud.conf: token = \"a b c\" zone = x"), "bad cloud.conf: token = *** zone = x"),
        (message("failed to refresh token: no such host"), "failed to refresh token: no such host"),
        (
            text("-----BEGIN PGP PRIVATE KEY BLOCK-----\nabc\n-----END PGP PRIVATE KEY BLOCK-----"),
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n***\n***",
        ),
    ] {
        assert_eq!(shown, expected);
    }
}

#[test]
fn secrets_without_a_separator_are_masked() {
    for (given, expected) in [
        ("invalid token eyJhbGciOiJSUzI1NiJ9.eyJhIjoxfQ.c2ln", "invalid token ***"),
        ("the answer was eyJhbGciOiJSUzI1NiJ9.eyJhIjoxfQ.c2ln.", "the answer was ***."),
        ("login failed for me with password hunter2", "login failed for me with password ***"),
        ("api key dop_v1_0123456789abcdef is revoked", "api key *** is revoked"),
        ("api key a0b1c2d3e4f5a6b7 is revoked", "api key *** is revoked"),
        ("got ghp_0123456789abcdefghij, no", "got ***, no"),
        ("the key AKIAIOSFODNN7EXAMPLE is unknown", "the key *** is unknown"),
        ("sent Authorization: Basic dXNlcjpwYXNz to it", "sent Authorization: Basic *** to it"),
        ("GET https://user:pa/ss@host/path failed", "GET https://user:***@host/path failed"),
        // Quoted as in Go, also in a JSON string.
        ("login with password \"hunter2\" failed", "login with password \"***\" failed"),
        ("login with password \\\"hun ter2\\\" failed", "login with password \\\"***\\\" failed"),
        ("password \"hun\\\"ter2\" is wrong", "password \"***\" is wrong"),
        ("token \"abcdefg1\" is unknown", "token \"***\" is unknown"),
        ("login with password \"hunter2", "login with password \"***"),
        // Without letters, and without digits.
        ("wrong password 12345678, try again", "wrong password ***, try again"),
        ("wrong password correct-horse-battery", "wrong password ***"),
        // Base64, and tokens with dots.
        ("secret key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY is wrong", "secret key *** is wrong"),
        ("invalid token ab12+/cd==", "invalid token ***"),
        ("token hvs.CAESIGFuZXhhbXBsZQ is revoked", "token *** is revoked"),
        ("token MTk4NjIyNDgzNDcxOTI1.Cl2FMQ.ZnCjm1XVW7vRze4b7C is revoked", "token *** is revoked"),
        // No secrets.
        ("password policy", "password policy"),
        ("token expired", "token expired"),
        ("key /etc/kubernetes/pki/sa.key", "key /etc/kubernetes/pki/sa.key"),
        ("key /etc/K8s/Pki/apiserver-1", "key /etc/K8s/Pki/apiserver-1"),
        ("password /run/secrets/password-1 is empty", "password /run/secrets/password-1 is empty"),
        ("open /etc/passwd 644", "open /etc/passwd 644"),
        ("secret kube-system/aws-credentials", "secret kube-system/aws-credentials"),
        ("secret \"cloud-credentials\" not found", "secret \"cloud-credentials\" not found"),
        ("secret \"cloud-credentials-1a2b\" not found", "secret \"cloud-credentials-1a2b\" not found"),
        ("no key Node-1.Lab.Example.Internal", "no key Node-1.Lab.Example.Internal"),
        ("failed to refresh token: no such host", "failed to refresh token: no such host"),
        ("a basic type", "a basic type"),
        ("Basic information", "Basic information"),
        ("the key cloud.conf of it is empty", "the key cloud.conf of it is empty"),
        ("no token node-1 is known", "no token node-1 is known"),
        ("pulled oci://mirror:5000/a/ccm@sha256:00", "pulled oci://mirror:5000/a/ccm@sha256:00"),
        ("get https://example.com/a@b", "get https://example.com/a@b"),
        ("get https://[fd00::1]/a@b", "get https://[fd00::1]/a@b"),
    ] {
        assert_eq!(message(given), expected);
        assert_eq!(text(&format!("# {given}")), text(&format!("# {expected}")), "{given}");
    }
}

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
        "auth",
        "secret_id",
        "sasUrl",
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
        "authorizationPaths",
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
        (r#"  "aadClientSecret": "hun\"ter2","#, r#"  "aadClientSecret": ***"#),
        (
            r#"{"cloud":"a","aadClientSecret":"x","vmType":"standard"}"#,
            r#"{"cloud":"a","aadClientSecret":"***","vmType":"standard"}"#,
        ),
        (r#"{"tokens": ["a", "b"], "n": 1}"#, r#"{"tokens": ***, "n": 1}"#),
        (r#"{"password": 12345}"#, r#"{"password": ***}"#),
        (r#"{"a": {"password": "x", "user": "y"}}"#, r#"{"a": {"password": "***", "user": "y"}}"#),
        (r#"{"aadClient\u0053ecret": "x"}"#, r#"{"aadClient\u0053ecret": "***"}"#),
        ("{user: me, password: hunter2, b: c}", "{user: me, password: ***, b: c}"),
        ("auth-url = https://me:hunter2@example.com:5000/v3", "auth-url = https://me:***@example.com:5000/v3"),
        ("auth-url = https://example.com:5000/v3?a=b@c", "auth-url = https://example.com:5000/v3?a=b@c"),
        ("url: https://a/b?token=x&c=d&X-Amz-Signature=y e", "url: https://a/b?token=***&c=d&X-Amz-Signature=*** e"),
        ("url: https://a/?t%6Fken=x", "url: https://a/?t%6Fken=***"),
        ("proxy: http://a:b@c http://d:e@f", "proxy: http://a:***@c http://d:***@f"),
        ("value: Server=x;Password=y", "value: Server=x;Password=***"),
        ("Authorization: Bearer abc", "Authorization: ***"),
        ("ccm --client-secret hunter2", "ccm --client-secret ***"),
        ("--use-service-account-credentials=true --v=2", "--use-service-account-credentials=true --v=2"),
        ("--token=abc --v=2", "--token=*** --v=2"),
        ("  --use-service-account-credentials=true \\", "  --use-service-account-credentials=true \\"),
        ("[Global]", "[Global]"),
        ("# a comment", "# a comment"),
        ("", ""),
    ];
    for (before, shown) in cases {
        assert_eq!(text(before), shown, "{before}");
    }
}

#[test]
fn the_reason_in_a_message_stays_readable() {
    let unchanged = [
        r#"admission webhook "token-policy.example.com" denied the request: replicas must be 2"#,
        r#"failed calling webhook "credentials.example.com": connect: connection refused"#,
        r#"in the namespace "openshift-secret-store": RBAC: clusterrole "y" not found"#,
        "F1122 unable to read token file /var/run/x: permission denied",
        "could not get credentials: open /etc/x: no such file",
        "invalid bearer token, token lookup failed",
        r#"MountVolume.SetUp failed for volume "cloud-credentials" : secret "aws-credentials" not found"#,
    ];
    for text in unchanged {
        assert_eq!(message(text), text);
    }
    for (before, shown) in [
        ("login failed: password: hunter2", "login failed: password: ***"),
        ("login failed: password: hunter of admin", "login failed: password: *** of admin"),
        ("E1122 1 main.go] x: password = hunter2", "E1122 1 main.go] x: password = ***"),
        ("failed to refresh token: AADSTS7000215: invalid", "failed to refresh token: *** invalid"),
        ("sent Bearer abcdefghijklmnop, got 401", "sent Bearer ***, got 401"),
        (r#"{"level":"error","token":"abc","msg":"x"}"#, r#"{"level":"error","token":"***","msg":"x"}"#),
        ("two\nlines: token=abc", "two lines: token=***"),
    ] {
        assert_eq!(message(before), shown);
    }
}

#[test]
fn a_private_key_is_masked_in_every_format() {
    let yaml = "tls: |\n  -----BEGIN RSA PRIVATE KEY-----\n  MIIabc\n  -----END RSA PRIVATE KEY-----\n  after\n";
    let shown = "tls: |\n  -----BEGIN RSA PRIVATE KEY-----\n  ***\n  ***\n  after\n";
    assert_eq!(text(yaml), shown);
    let json = r#"{"tls": "-----BEGIN PRIVATE KEY-----\nMIIabc\n-----END PRIVATE KEY-----\n", "a": 1}"#;
    assert_eq!(text(json), r#"{"tls": "-----BEGIN PRIVATE KEY-----***", "a": 1}"#);
    assert_eq!(text("-----BEGIN CERTIFICATE-----\nMIIabc\n"), "-----BEGIN CERTIFICATE-----\nMIIabc\n");
}

#[test]
fn a_secret_on_the_next_line_may_look_like_a_name_of_one() {
    for secret in ["Zq1Pwd", "ZqToken", "Zq-secret="] {
        assert_eq!(text(&format!("[Global]\npassword =\n{secret}\na = b\n")), "[Global]\npassword =\n***\na = b\n");
    }
}

fn assert_hidden(planted: &str) -> Result<(), TestCaseError> {
    let shown = text(planted);
    prop_assert!(!shown.contains("Zq"), "{:?} is shown as {:?}", planted, shown);
    prop_assert_eq!(shown.lines().count(), planted.lines().count(), "{}", shown);
    Ok(())
}

/// Adds other lines around a text, changes its line breaks, or moves it deeper.
fn around(text: &str, form: usize, open: &str, before: &str, after: &str, close: &str) -> String {
    let text =
        if form & 1 == 0 { format!("{open}{text}{close}") } else { format!("{open}{before}{text}{after}{close}") };
    let text = if form & 2 == 0 { text } else { text.replace('\n', "\r\n") };
    if form & 4 == 0 { text } else { format!("\u{feff}{text}") }
}

proptest! {
    #[test]
    fn no_secret_in_yaml_is_shown(
        layout in prop::sample::select(YAML), key in key(), secret in "[0-9A-Za-z]{0,12}", form in 0..8_usize, deep in any::<bool>()
    ) {
        let mut text = planted(layout, &key, &secret);
        if deep && !layout.contains("---") && !layout.contains("...") {
            text = format!("top:\n   {}\n", text.replace('\n', "\n   "));
        }
        let text = around(&text, form, "", "first: 1\n", "\nlast: {a: b}\n", "\n");
        prop_assert!(layout.starts_with('#') || !documents(&text).roots.is_empty(), "a layout that is no YAML: {}", text);
        assert_hidden(&text)?;
    }

    #[test]
    fn no_secret_in_ini_is_shown(
        layout in prop::sample::select(INI), key in key(), secret in "[0-9A-Za-z]{0,12}", form in 0..8_usize
    ) {
        let text = planted(layout, &key.replace(['_', '.'], "-"), &secret);
        let text = around(&text, form, "; a comment\n[Global]\n", "a = b\n", "\nc = d\n", "\n");
        prop_assert!(Document::parse(&text).is_ok(), "a layout that is no INI: {}", text);
        assert_hidden(&text)?;
    }

    #[test]
    fn no_secret_in_json_is_shown(
        layout in prop::sample::select(JSON), key in key(), secret in "[0-9A-Za-z]{0,12}", form in 0..8_usize, escape in any::<bool>()
    ) {
        let written = if escape { key.replacen('o', r"\u006f", 1) } else { key };
        let text = around(&planted(layout, &written, &secret), form, "{", "\"x\": 1,\n", ",\n\"z\": []", "}\n");
        let json = text.trim_start_matches('\u{feff}');
        prop_assert!(serde_json::from_str::<serde_json::Value>(json).is_ok() || layout.contains("ud83d\""), "no JSON: {}", text);
        assert_hidden(&text)?;
    }

    /// This includes texts that no parser accepts.
    #[test]
    fn no_secret_on_the_line_of_its_key_is_shown(
        before in "[ \t#;/*-]{0,3}",
        key in key(),
        separator in prop::sample::select(vec!["=", ": ", " = ", ":", " := ", "\": \"", "' : "]),
        secret in "[0-9A-Za-z!@#$%^*()_+:;,.<>/?=-]{0,20}",
        around in "[\"'\\[\\]{}a-z \n]{0,10}",
    ) {
        let text = format!("{around}\n{before}{key}{separator}Zq{secret}\n{around}");
        assert_hidden(&text)?;
    }

    #[test]
    fn masking_keeps_the_number_of_lines(bytes in any::<Vec<u8>>(), punctuation in "[\"':=\\[\\]{}/@a-z\\\\ \n-]{0,60}") {
        let any = String::from_utf8_lossy(&bytes).into_owned();
        prop_assert_eq!(text(&any).lines().count(), any.lines().count());
        prop_assert_eq!(text(&punctuation).lines().count(), punctuation.lines().count());
    }
}

#[test]
fn other_values_stay_readable() {
    let yaml = "# of the installer\nglobal: {user: me, password: x, port: 443}\nnodes:\n  # the networks\n  a: b # fine\n\
                passwords:\n- one\nlast: |\n  text\n";
    let shown = "# of the installer\nglobal: {user: me, password: ***, port: 443}\nnodes:\n  # the networks\n  a: b # fine\n\
                 passwords:\n***\nlast: |\n  text\n";
    assert_eq!(text(yaml), shown);
    let ini = "[Global]\npassword = x#y # old\nregion = y # fine\n; token: \"see\n[Other]\na = b\n";
    let shown = "[Global]\npassword = ***\nregion = y # fine\n; token: ***\n[Other]\na = b\n";
    assert_eq!(text(ini).replace("******", "***").replace("*** ***", "***"), shown);
    let stray = "[Global]\npassword =\nhunter2\nMIIabc==\n\nregion = y\n";
    assert_eq!(text(stray), "[Global]\npassword =\n***\n***\n\nregion = y\n");
}
