//! The metrics server: over TLS, for those who may, with a certificate that may be replaced.

use std::fs;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::{Api, api::DeleteParams};
use rustls::CipherSuite;
use serde_json::json;

use crate::{
    flags::tls::shake_hands,
    lab::{LIMIT, Lab, NAMESPACE, POD_UID},
    support::{
        eventually,
        openshift::{self, Cluster},
        scrape::{free_port, get, scrape, serving_from, token},
    },
};

#[tokio::test]
async fn only_users_with_permission_get_the_metrics() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let port = free_port()?;
    let address = format!("--metrics-bind-address=127.0.0.1:{port}");
    let operator = lab.start_as(POD_UID, &[&address])?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    let reviews = async || {
        let requests = lab.requests(mark).await?;
        let count = |resource: &str| requests.iter().filter(|request| request.resource == resource).count();
        anyhow::Ok((count("tokenreviews"), count("subjectaccessreviews")))
    };
    assert_eq!(get(port, None, "/metrics").await?.0, 401);
    assert_eq!(reviews().await?, (0, 0), "nothing is asked without a token");
    for _ in 0..3 {
        assert_eq!(get(port, Some("made-up"), "/metrics").await?.0, 401);
    }
    let other = token(&lab, "other", false).await?;
    for _ in 0..3 {
        assert_eq!(get(port, Some(&other), "/metrics").await?.0, 403);
    }
    assert_eq!(reviews().await?, (2, 1), "a denial is remembered");
    let (_, text) = scrape(&lab, port).await?;
    let after = reviews().await?;
    let reader = token(&lab, "monitoring", true).await?;
    for _ in 0..5 {
        assert_eq!(get(port, Some(&reader), "/metrics").await?.0, 200);
    }
    let (tokens, accesses) = reviews().await?;
    assert!(tokens <= after.0 + 1 && accesses <= after.1 + 1, "a permission is remembered");
    for line in [
        "ccm_operator_leading{controllers=\"operator\"} 1\n",
        "ccm_operator_leading{controllers=\"config_sync\"} 1\n",
        "ccm_operator_condition{condition=\"Available\",status=\"True\"} 1\n",
        "ccm_operator_object_changes_total{action=\"created\",kind=\"Deployment\"} 1\n",
        "ccm_operator_workloads{state=\"done\"} 1\n",
        "ccm_operator_contested_objects 0\n",
        "ccm_operator_api_requests_total{verb=\"watch\",code=\"200\"} ",
        "ccm_operator_watch_last_event_timestamp_seconds{kind=\"Deployment\"} 1",
        "ccm_operator_last_success_timestamp_seconds{controller=\"operator\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert_eq!(get(port, Some(&reader), "/other").await?.0, 403, "the permission is for one path");

    assert!(!text.contains("drift_repairs_total{"), "nothing was repaired: {text}");
    let services: Api<Service> = Api::namespaced(lab.client.clone(), NAMESPACE);
    services.delete("aws-cloud-controller-manager", &DeleteParams::default()).await?;
    eventually("a counted repair", LIMIT, async || {
        let (_, text) = scrape(&lab, port).await?;
        ensure!(text.contains("ccm_operator_drift_repairs_total{kind=\"Service\"} 1\n"), "{text}");
        Ok(Some(()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn the_metrics_server_follows_its_certificate_and_the_tls_profile() -> Result<()> {
    use rustls::version::{TLS12, TLS13};
    const AES_128: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let lab = Lab::new(&Cluster::default()).await?;
    let folder = lab.dir.path().join("serving");
    let (port, arguments) = serving_from(&folder)?;
    let operator = lab.start_as(POD_UID, &arguments.each_ref().map(String::as_str))?;
    lab.converged(&operator).await?;
    let own = get(port, None, "/metrics").await?.2;
    let key = rcgen::KeyPair::generate()?;
    let issued = rcgen::CertificateParams::new(vec!["metrics".to_owned()])?.self_signed(&key)?;
    fs::write(folder.join("tls.crt"), issued.pem())?;
    fs::write(folder.join("tls.key"), key.serialize_pem())?;
    eventually("the new certificate", LIMIT, async || {
        let certificate = get(port, None, "/metrics").await?.2;
        ensure!(certificate != own, "the old one\n{}", operator.log());
        Ok((certificate == issued.der().to_vec()).then_some(()))
    })
    .await?;
    let server = format!("127.0.0.1:{port}");
    ensure!(shake_hands(&server, &TLS12, AES_128).await?.is_some(), "profile Intermediate has TLS 1.2");
    let profile =
        json!({"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": {"type": "Modern", "modern": {}}});
    openshift::set_api_server(&lab.client, profile).await?;
    eventually("profile Modern", LIMIT, async || {
        ensure!(shake_hands(&server, &TLS12, AES_128).await?.is_none(), "TLS 1.2 is served");
        Ok(Some(()))
    })
    .await?;
    ensure!(shake_hands(&server, &TLS13, CipherSuite::TLS13_AES_128_GCM_SHA256).await?.is_some(), "TLS 1.3 is not");
    Ok(())
}
