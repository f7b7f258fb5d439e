//! A TLS client of a real cloud-controller-manager sees what a custom profile asks for, and no more.

use std::{fs, sync::Arc};

use anyhow::{Context, Result, ensure};
use ccm_operator::provider::embedded;
use rustls::{CipherSuite, ClientConfig, SupportedProtocolVersion, pki_types::ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{Programs, Start, custom, free_address, starts_of, without_http2, words};
use crate::{
    lab::LIMIT,
    support::{eventually, scrape::AnyServer},
};

/// Shakes hands with a server as a client of one version and, below TLS 1.3, of one cipher suite that offers HTTP/2. Returns
/// whether HTTP/2 was chosen, or `None` if the server refuses.
pub(crate) async fn shake_hands(
    address: &str,
    version: &'static SupportedProtocolVersion,
    suite: CipherSuite,
) -> Result<Option<bool>> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|offered| offered.suite() == suite);
    let config = ClientConfig::builder_with_provider(Arc::new(provider)).with_protocol_versions(&[version])?;
    let mut config = config.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer)).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost")?;
    let answer = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    Ok(answer.ok().map(|stream| stream.get_ref().1.alpn_protocol() == Some(b"h2")))
}

/// vSphere's program serves while it waits for its lease, for which it needs no cloud.
#[tokio::test]
async fn a_custom_profile_is_served_exactly() -> Result<()> {
    use rustls::version::{TLS12, TLS13};
    const AES_128: CipherSuite = CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
    const AES_256: CipherSuite = CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384;
    const MODERN: CipherSuite = CipherSuite::TLS13_AES_256_GCM_SHA384;
    let programs = Programs::new().await?;
    let config = programs.dir.path().join("cloud.conf");
    fs::write(&config, "global: {user: a, password: b}\nvcenter: {vcenter.invalid: {server: vcenter.invalid}}\n")?;
    let kubeconfig = programs.unreachable_kubeconfig()?;
    let start = |profile: &Value| -> Result<(Start, String)> {
        let starts = starts_of(&embedded::catalog()?, profile)?;
        let is_wanted = |start: &&Start| start.platform == "VSphere" && start.container.starts_with("Deployment/");
        let mut start = starts.iter().find(is_wanted).context("VSphere")?.clone();
        start.arguments.retain(|argument| !argument.starts_with("--cloud-config="));
        let [address, port] = free_address()?;
        let server = format!("127.0.0.1:{}", port.trim_start_matches("--secure-port="));
        let start = start.with(&[address, port, format!("--cloud-config={}", config.display())]);
        Ok((start.with(&[format!("--kubeconfig={}", kubeconfig.display())]), server))
    };
    for (profile, expected) in [
        (without_http2(), [(&TLS12, AES_128, None), (&TLS12, AES_256, Some(false)), (&TLS13, MODERN, Some(false))]),
        (custom(&["unknown"]), [(&TLS12, AES_128, None), (&TLS12, AES_256, None), (&TLS13, MODERN, Some(true))]),
        (
            custom(&["ECDHE-RSA-AES128-GCM-SHA256", "unknown"]),
            [(&TLS12, AES_128, Some(true)), (&TLS12, AES_256, None), (&TLS13, MODERN, Some(true))],
        ),
    ] {
        let (start, server) = start(&profile)?;
        let process = programs.spawn(&start)?;
        eventually(&format!("{profile}: it serves"), LIMIT, async || {
            ensure!(process.try_wait()?.is_none(), "it ended with:\n{}", words(&process));
            Ok(process.log().contains("Serving securely").then_some(()))
        })
        .await?;
        for (version, suite, answer) in expected {
            let found = shake_hands(&server, version, suite).await?;
            assert_eq!(found, answer, "{profile}: {:?} with {suite:?}", version.version);
        }
    }
    // Without our argument such a profile ends the program.
    let (mut start, _) = start(&without_http2())?;
    start.arguments.retain(|argument| !argument.starts_with("--disable-http2-serving"));
    let (success, said) = programs.run(&start).await?;
    ensure!(!success && said.contains("HTTP/2-required AES_128_GCM_SHA256"), "{said}");
    Ok(())
}
