use std::path::PathBuf;

use ccm_drivers::contract::ErrorKind;
use serde_json::json;

use super::*;
use crate::stand_in::{Reply, StandIn, open, values};

#[test]
fn variables_are_those_of_docker() {
    let variables: Vec<_> = Docker.settings().iter().map(|setting| setting.variable("docker")).collect();
    for variable in ["DOCKER_HOST", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "DOCKER_API_VERSION"] {
        assert!(variables.iter().any(|one| one == variable), "{variables:?}");
    }
}

#[tokio::test]
async fn a_bad_setting_is_refused_before_a_request() {
    for (name, text) in [("host", "ssh://a"), ("certPath", "/nonexistent"), ("tlsVerify", "1"), ("apiVersion", "41")] {
        let field = if name == "tlsVerify" { "certPath" } else { name };
        let error = open(&[(name, text)]).await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::InvalidArgument(field.to_owned()), "{error}");
    }
}

#[tokio::test]
async fn a_network_without_tls_has_to_be_asked_for() {
    for host in ["tcp://192.0.2.1:2375", "tcp://engine.example", "a=unix:///a,b=tcp://[2001:db8::1]:1"] {
        let error = open(&[("host", host)]).await.err().unwrap();
        assert_eq!(error.kind, ErrorKind::InvalidArgument("host".to_owned()));
        assert!(error.message.contains("certPath") && error.message.contains("tlsVerify"), "{error}");
        open(&[("host", host), ("tlsVerify", "false")]).await.unwrap();
    }
    for host in ["tcp://127.0.0.1:2375", "tcp://localhost", "tcp://[::1]:2375"] {
        open(&[("host", host)]).await.unwrap();
    }
}

#[tokio::test]
async fn the_defaults_of_create_have_to_exist() {
    let engine = StandIn::start(|asked| match asked.line.as_str() {
        "GET /images/example%2Fnode%3A1/json" => Some(Reply::Json(200, json!({}))),
        "GET /images/nope/json" => Some(Reply::Json(404, json!({"message": "No such image: nope:latest"}))),
        "GET /networks" => Some(Reply::Json(200, json!([{"Name": "kind"}]))),
        _ => None,
    });
    let verify = async |image, network| {
        let driver = open(&[("host", &engine.host), ("image", image), ("network", network)]).await.unwrap();
        // Nothing else needs them.
        driver.instances().unwrap().list(&ccm_drivers::contract::Filter::default()).await.unwrap();
        driver.account().verify_settings().await
    };
    verify("example/node:1", "kind").await.unwrap();
    verify("", "").await.unwrap();
    let error = verify("nope", "kind").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument("image".to_owned()));
    assert!(error.message.contains("docker pull nope"), "{error}");
    // A part of a name is none.
    let error = verify("example/node:1", "kin").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument("network".to_owned()));
    let error = verify("unknown", "kind").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal, "a page that is not found is no missing image: {error}");
}

#[tokio::test]
async fn a_proxy_can_stand_in_between() {
    let through = async |given: &[(&str, &str)], endpoint| {
        let moved = Docker.through(&values(given), &endpoint).await.unwrap();
        let text = |name| moved.text(name).unwrap_or("-").to_owned();
        [text("host"), text("tlsServerName"), text("certPath")]
    };
    let endpoint = async |given: &[(&str, &str)]| Docker.endpoint(&values(given)).await.unwrap();
    let proxy = || Endpoint::Tcp("127.0.0.1".to_owned(), 7);
    let socket = || Endpoint::Unix(PathBuf::from("/p.sock"));

    assert_eq!(endpoint(&[]).await, Some(Endpoint::Unix(PathBuf::from("/var/run/docker.sock"))));
    assert_eq!(through(&[], socket()).await, ["default=unix:///p.sock", "-", ""]);
    let tls = [("host", "a=tcp://engine.example"), ("certPath", "/c")];
    assert_eq!(endpoint(&tls).await, Some(Endpoint::Tcp("engine.example".to_owned(), 2376)));
    assert_eq!(through(&tls, proxy()).await, ["a=tcp://127.0.0.1:7", "engine.example", "/c"]);
    let named = [tls[0], tls[1], ("tlsServerName", "other")];
    assert_eq!(through(&named, proxy()).await, ["a=tcp://127.0.0.1:7", "other", "/c"]);
    let open = [("host", "a=tcp://192.0.2.1"), ("tlsVerify", "false")];
    assert_eq!(through(&open, proxy()).await, ["a=tcp://127.0.0.1:7", "-", "-"]);
    let several = [("host", "a=unix:///a,b=unix:///b")];
    assert_eq!(endpoint(&several).await, None);
    assert_eq!(through(&several, proxy()).await[0], several[0].1);
}
