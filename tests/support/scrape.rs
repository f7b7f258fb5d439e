//! A client of the operator's metrics server, such as a monitoring system.

use std::{fs, net::TcpListener, path::Path, sync::Arc};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{Api, api::PostParams};
use rustls::{
    ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{
    eventually,
    lab::{LIMIT, Lab},
    objects,
};

/// A port that nobody listens on.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A port, and the operator's arguments with which it serves its metrics there, with the certificate in a new folder.
pub fn serving_from(folder: &Path) -> Result<(u16, [String; 2])> {
    fs::create_dir(folder)?;
    let port = free_port()?;
    let address = format!("--metrics-bind-address=127.0.0.1:{port}");
    Ok((port, [address, format!("--metrics-cert-dir={}", folder.display())]))
}

/// The code and the body of an answer, and the certificate of the server.
pub async fn get(port: u16, token: Option<&str>, path: &str) -> Result<(u16, String, Vec<u8>)> {
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer))
        .with_no_client_auth();
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut stream = TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost")?, stream).await?;
    let authorization = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let certificate = stream.get_ref().1.peer_certificates().context("a certificate")?[0].to_vec();
    let mut answer = String::new();
    // The server need not say good-bye.
    let _ = stream.read_to_string(&mut answer).await;
    let code = answer.split(' ').nth(1).unwrap_or_default().parse()?;
    Ok((code, answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned(), certificate))
}

/// The token of a new ServiceAccount, which may get `/metrics` or not.
pub async fn token(lab: &Lab, name: &str, may_get: bool) -> Result<String> {
    let group = "rbac.authorization.k8s.io";
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}});
    objects::apply(&lab.client, account).await?;
    if may_get {
        let metadata = json!({"name": "metrics-reader"});
        let rules = json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]);
        let role =
            json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rules});
        objects::apply(&lab.client, role).await?;
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "metrics-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        });
        objects::apply(&lab.client, binding).await?;
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(lab.client.clone(), "default");
    let answer = accounts.create_token_request(name, &PostParams::default(), &TokenRequest::default()).await?;
    Ok(answer.status.context("a token")?.token)
}

/// The code and the metrics, as a monitoring system gets them.
pub async fn scrape(lab: &Lab, port: u16) -> Result<(u16, String)> {
    let token = token(lab, "monitoring", true).await?;
    eventually("the permission", LIMIT, async || {
        let (code, text, _) = get(port, Some(&token), "/metrics").await?;
        ensure!(code == 200, "{code} {text}");
        Ok(Some((code, text)))
    })
    .await
}

/// Trusts every server: only its choice of version and suite is of interest.
#[derive(Debug)]
pub struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
