//! The cipher suites of the metrics server in each TLS profile, as OpenSSL finds them, compared with the table of docs/operations.md.

use std::{
    fs,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, Lab, POD_UID},
    support::{
        eventually,
        lab::repository,
        openshift::{self, Cluster},
        scrape::serving_from,
    },
};

/// Every version that OpenSSL speaks, with its flag.
const VERSIONS: [(&str, &str); 4] = [("1.0", "-tls1"), ("1.1", "-tls1_1"), ("1.2", "-tls1_2"), ("1.3", "-tls1_3")];

/// The kinds of keys of a certificate, as arguments of `openssl req`.
const KEYS: [&[&str]; 2] = [&["ec", "-pkeyopt", "ec_paramgen_curve:P-256"], &["rsa:2048"]];

/// The rows of the table, each with the profile and whether the cluster's components follow it.
fn profiles() -> [(&'static str, &'static str, Value); 5] {
    const STRICT: &str = "StrictAllComponents";
    let of_type = |name: &str| json!({"type": name, name.to_lowercase(): {}});
    let custom = json!({"type": "Custom", "custom": {
        "minTLSVersion": "VersionTLS11",
        "ciphers": ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-SHA", "AES128-GCM-SHA256"],
    }});
    [
        ("not followed", "LegacyAdheringComponentsOnly", of_type("Modern")),
        ("Old", STRICT, of_type("Old")),
        ("Intermediate", STRICT, of_type("Intermediate")),
        ("Modern", STRICT, of_type("Modern")),
        ("Custom", STRICT, custom),
    ]
}

/// The suites that a server accepts in a version, found by a client that removes one after the other from its offer.
fn suites(server: &str, flag: &str) -> Result<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    loop {
        let ciphers = std::iter::once("ALL:COMPLEMENTOFALL:@SECLEVEL=0").chain(found.iter().map(String::as_str));
        let ciphers = ciphers.collect::<Vec<_>>().join(":!");
        let all_of_13 = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
        let rest: Vec<_> = all_of_13.into_iter().filter(|suite| !found.iter().any(|one| one == suite)).collect();
        if rest.is_empty() {
            return Ok(found);
        }
        let output = Command::new("openssl")
            .args(["s_client", "-connect", server, flag])
            .args(["-cipher", &ciphers, "-ciphersuites", &rest.join(":")])
            .stdin(Stdio::null())
            .output()
            .context("failed to run openssl, which this test needs")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let cipher = text.lines().find_map(|line| line.split_once("Cipher is ").map(|(_, cipher)| cipher.trim()));
        match cipher {
            Some("(NONE)") => return Ok(found),
            Some(cipher) => found.push(cipher.to_owned()),
            None => bail!("openssl s_client {flag}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

/// Replaces the server's certificate by one with such a key, and waits until it is served.
async fn serve_with(key: &[&str], lab: &Lab, server: &str) -> Result<()> {
    let folder = lab.dir.path().join("serving");
    let (certificate, secret) = (folder.join("tls.crt"), folder.join("tls.key"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-subj", "/CN=metrics", "-days", "2", "-newkey"])
        .args(key)
        .arg("-out")
        .arg(&certificate)
        .arg("-keyout")
        .arg(&secret)
        .output()
        .context("failed to run openssl, which this test needs")?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let own: String = fs::read_to_string(&certificate)?.lines().filter(|line| !line.starts_with('-')).collect();
    eventually("the new certificate", LIMIT, async || {
        let shown = Command::new("openssl").args(["s_client", "-connect", server]).stdin(Stdio::null()).output()?;
        let text: String = String::from_utf8_lossy(&shown.stdout).lines().collect();
        Ok(text.contains(&own).then_some(()))
    })
    .await
}

/// A row of the table: the versions, and the suites of TLS 1.2.
async fn row(name: &str, lab: &Lab, server: &str) -> Result<String> {
    let (mut versions, mut suites_of_12) = (Vec::new(), Vec::new());
    for key in KEYS {
        serve_with(key, lab, server).await?;
        for (version, flag) in VERSIONS {
            let found = suites(server, flag)?;
            if !found.is_empty() && !versions.contains(&version) {
                versions.push(version);
            }
            if version == "1.2" {
                suites_of_12.extend(found);
            }
        }
    }
    versions.sort_unstable();
    suites_of_12.sort();
    let suites = if suites_of_12.is_empty() { "none".to_owned() } else { format!("`{}`", suites_of_12.join("`, `")) };
    Ok(format!("| {name} | {} | {suites} |", versions.join(", ")))
}

#[tokio::test]
async fn the_table_of_the_docs_has_the_suites_of_the_metrics_server() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let (port, arguments) = serving_from(&lab.dir.path().join("serving"))?;
    let operator = lab.start_as(POD_UID, &arguments.each_ref().map(String::as_str))?;
    lab.converged(&operator).await?;
    let server = format!("127.0.0.1:{port}");
    let docs = fs::read_to_string(repository().join("docs/operations.md"))?;
    for (name, adherence, profile) in profiles() {
        openshift::set_api_server(&lab.client, json!({"tlsAdherence": adherence, "tlsSecurityProfile": profile}))
            .await?;
        let expected = docs.lines().find(|line| line.starts_with(&format!("| {name} | ")));
        let expected = expected.with_context(|| format!("docs/operations.md has no row for the profile {name}"))?;
        eventually(&format!("the profile {name}"), LIMIT, async || {
            let found = row(name, &lab, &server).await?;
            ensure!(found == expected, "{found}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}
