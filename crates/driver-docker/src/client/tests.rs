use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use ccm_drivers::contract::{Driver, Filter, Instances, Result};
use serde_json::json;

use super::*;
use crate::stand_in::{Asked, ID, Reply, StandIn, certificates::Authority, open};

fn instances(driver: &dyn Driver) -> &dyn Instances {
    driver.instances().unwrap()
}

async fn list(driver: &dyn Driver) -> Result<usize> {
    instances(driver).list(&Filter::default()).await.map(|all| all.len())
}

async fn kind(driver: &dyn Driver) -> ErrorKind {
    list(driver).await.unwrap_err().kind
}

#[tokio::test]
async fn one_connection_is_used_again_and_speaks_the_negotiated_version() {
    let engine = StandIn::start(|_| None);
    let driver = engine.driver().await;
    for _ in 0..3 {
        assert_eq!(list(&*driver).await.unwrap(), 0);
    }
    assert_eq!(engine.connections(), 1);
    let lines = engine.requests();
    assert!(
        lines.len() == 3 && lines.iter().all(|line| line.starts_with("GET /v1.41/containers/json?all=1")),
        "{lines:?}"
    );
    driver.close().await.unwrap();
    list(&*driver).await.unwrap();
    assert_eq!(engine.connections(), 2);
}

#[tokio::test]
async fn calls_at_once_have_connections_of_their_own() {
    let engine = StandIn::start(|_| None);
    let driver = engine.driver().await;
    let results = tokio::join!(list(&*driver), list(&*driver), list(&*driver));
    assert!(results.0.is_ok() && results.1.is_ok() && results.2.is_ok());
    assert_eq!(engine.connections(), 3);
}

#[tokio::test]
async fn an_engine_that_closes_waiting_connections_is_asked_again() {
    let has_answered = AtomicBool::new(false);
    // Each connection has one answer after its greeting, and is closed then.
    let engine = StandIn::start(move |asked: &Asked| {
        (asked.line.starts_with("GET /containers") && !has_answered.swap(true, Ordering::SeqCst))
            .then(|| Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]".to_vec()))
    });
    let driver = engine.driver().await;
    list(&*driver).await.unwrap();
    list(&*driver).await.unwrap();
    assert_eq!(engine.connections(), 2);
}

#[tokio::test]
async fn a_new_connection_has_asked_who_the_engine_is() {
    let engine = StandIn::start(|_| None);
    let driver = engine.driver().await;
    driver.account().verify().await.unwrap();
    assert_eq!(engine.requests(), Vec::<String>::new());
    driver.topology().regions().await.unwrap();
    assert_eq!(engine.requests(), ["GET /v1.41/info"]);
}

#[tokio::test]
async fn connections_that_waited_for_long_are_not_used() {
    let engine = StandIn::start(|_| None);
    let driver = engine.driver().await;
    for (seconds, expected) in [(0, 1), (29, 1), (30, 2)] {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
        list(&*driver).await.unwrap();
        assert_eq!(engine.connections(), expected, "{seconds} seconds");
    }
}

#[tokio::test]
async fn connections_that_are_as_old_as_one_that_failed_are_not_used() {
    let (fails, hangs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (cuts, waits) = (fails.clone(), hangs.clone());
    let engine = StandIn::start(move |asked: &Asked| {
        let is_list = asked.line.starts_with("GET /containers");
        let cut = (is_list && cuts.swap(false, Ordering::SeqCst)).then_some(Reply::Cut);
        cut.or_else(|| (is_list && waits.swap(false, Ordering::SeqCst)).then_some(Reply::Never))
    });
    let driver = engine.driver().await;
    let two = async || {
        let results = tokio::join!(list(&*driver), list(&*driver));
        assert!(results.0.is_ok() && results.1.is_ok());
    };
    two().await;
    fails.store(true, Ordering::SeqCst);
    assert_eq!(kind(&*driver).await, ErrorKind::Unavailable);
    two().await;
    assert_eq!(engine.connections(), 4);
    hangs.store(true, Ordering::SeqCst);
    let is_asked = async {
        while hangs.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = list(&*driver) => panic!("there is no answer"),
        () = is_asked => {}
    }
    two().await;
    assert_eq!(engine.connections(), 6);
}

#[tokio::test]
async fn an_engine_of_another_version_is_not_supported() {
    for (oldest, newest) in [("1.12", "1.39"), ("1.60", "1.61")] {
        let version = json!({"ApiVersion": newest, "MinAPIVersion": oldest});
        let answer = move |asked: &Asked| (asked.line == "GET /version").then(|| Reply::Json(200, version.clone()));
        let engine = StandIn::start(answer);
        let error = list(&*engine.driver().await).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotSupported);
        assert!(error.message.contains(oldest) && error.message.contains("1.40 to 1.51"), "{error}");
    }
    // The version of a newer Engine is limited by the driver, and by the setting.
    let version = json!({"ApiVersion": "1.56", "MinAPIVersion": "1.40"});
    let engine = StandIn::start(move |asked| (asked.line == "GET /version").then(|| Reply::Json(200, version.clone())));
    list(&*engine.driver().await).await.unwrap();
    list(&*open(&[("host", &engine.host), ("apiVersion", "1.45")]).await.unwrap()).await.unwrap();
    let versions: Vec<_> = engine.requests().iter().map(|line| line[..10].to_owned()).collect();
    assert_eq!(versions, ["GET /v1.51", "GET /v1.45"]);
}

#[tokio::test]
async fn another_account_gets_no_answer_from_any_operation() {
    let engine = StandIn::start(|_| None);
    let driver = open(&[("host", &engine.host), ("accountID", "OTHER")]).await.unwrap();
    let id = "a".repeat(64);
    let all = instances(&*driver);
    for result in [
        all.list(&Filter::default()).await.map(drop),
        all.get(&id).await.map(drop),
        all.get("name").await.map(drop),
        all.delete(&id).await,
        all.delete("name").await,
        all.start(&id).await,
        all.stop(&id).await,
        driver.account().verify().await.map(drop),
        driver.topology().regions().await.map(drop),
        driver.topology().zones(None).await.map(drop),
        driver.inventory().unwrap().list(ccm_drivers::contract::ResourceKind::Image, None).await.map(drop),
        driver.metrics().unwrap().usage(&id).await.map(drop),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidCredentials, "{error}");
        assert!(error.message.contains(ID) && error.message.contains("OTHER"), "{error}");
    }
    assert_eq!(engine.requests(), Vec::<String>::new());
    let driver = open(&[("host", &engine.host), ("accountID", ID)]).await.unwrap();
    assert_eq!(driver.account().verify().await.unwrap().id, ID);
}

#[tokio::test]
async fn another_engine_at_the_same_place_is_noticed_when_it_is_connected_to() {
    let is_other = Arc::new(AtomicBool::new(false));
    let shared = is_other.clone();
    let engine = StandIn::start(move |asked: &Asked| {
        let id = if shared.load(Ordering::SeqCst) { "OTHER" } else { ID };
        (asked.line == "GET /info").then(|| Reply::Json(200, json!({"ID": id})))
    });
    let driver = engine.driver().await;
    list(&*driver).await.unwrap();
    is_other.store(true, Ordering::SeqCst);
    // The first connection still leads to the first one.
    list(&*driver).await.unwrap();
    driver.close().await.unwrap();
    assert_eq!(kind(&*driver).await, ErrorKind::InvalidCredentials);
    assert_eq!(instances(&*driver).get(&"a".repeat(64)).await.unwrap_err().kind, ErrorKind::InvalidCredentials);
    is_other.store(false, Ordering::SeqCst);
    list(&*driver).await.unwrap();
}

#[tokio::test]
async fn two_regions_are_two_engines() {
    let (one, other) = (StandIn::start(|_| None), StandIn::start(|_| None));
    let host = format!("a={},b={}", one.host, other.host);
    let driver = open(&[("host", &host)]).await.unwrap();
    let error = driver.account().verify().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidArgument("host".to_owned()));
    assert!(error.message.contains("same Engine"), "{error}");
}

#[tokio::test]
async fn faults_have_classes() {
    let cases: [(&'static [u8], &str); 7] = [
        (b"", "Unavailable"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "Unavailable"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[", "Unavailable"),
        (b"\x16\x03\x01nonsense\r\n\r\n", "Internal"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "Internal"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "Internal"),
        (b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", "Internal"),
    ];
    for place in ["GET /version", "GET /info", "GET /containers/json"] {
        for (bytes, expected) in cases {
            let answer = move |asked: &Asked| {
                asked
                    .line
                    .starts_with(place)
                    .then(|| if bytes.is_empty() { Reply::Cut } else { Reply::Bytes(bytes.to_vec()) })
            };
            let engine = StandIn::start(answer);
            let error = list(&*engine.driver().await).await.unwrap_err();
            assert_eq!(error.kind.name(), expected, "{place} {bytes:?}: {error}");
            assert!(error.message.contains("region default"), "{error}");
        }
    }
}

#[tokio::test]
async fn an_endless_answer_is_refused() {
    let answer = |asked: &Asked| {
        let mut bytes = b"HTTP/1.1 200 OK\r\n\r\n[".to_vec();
        bytes.resize(MAX_ANSWER + 100, b' ');
        asked.line.starts_with("GET /containers").then_some(Reply::Bytes(bytes))
    };
    let engine = StandIn::start(answer);
    assert_eq!(kind(&*engine.driver().await).await, ErrorKind::Internal);
}

#[tokio::test]
async fn an_endpoint_without_an_engine_is_named() {
    let driver = open(&[("host", "here=unix:///nonexistent/docker.sock")]).await.unwrap();
    let error = list(&*driver).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.starts_with("region here: unix:///nonexistent/docker.sock was not reached"), "{error}");
    let error = instances(&*driver).get("name").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable, "what is no id is not looked for, and still not gone");
    assert_eq!(instances(&*driver).delete("name").await.unwrap_err().kind, ErrorKind::Unavailable);
}

async fn over_tls(settings: &[(&str, &str)]) -> Result<usize> {
    list(&*open(settings).await?).await
}

#[tokio::test]
async fn both_sides_of_tls_are_verified() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let folder = |clients: &Authority, servers: &Authority| {
        let folder = tempfile::tempdir().unwrap();
        clients.write_client(folder.path(), servers);
        folder
    };
    let engine = StandIn::start_tls(ours.server("127.0.0.1")).await;
    let right = folder(&ours, &ours);
    let right = right.path().to_str().unwrap();
    let host = ("host", engine.host.as_str());
    assert_eq!(over_tls(&[host, ("certPath", right)]).await.unwrap(), 0);
    assert_eq!(over_tls(&[host, ("certPath", right), ("tlsVerify", "true")]).await.unwrap(), 0);

    let client = folder(&others, &ours);
    let error = over_tls(&[host, ("certPath", client.path().to_str().unwrap())]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidCredentials, "{error}");
    let server = folder(&ours, &others);
    let error = over_tls(&[host, ("certPath", server.path().to_str().unwrap())]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidCredentials, "{error}");
    let anonymous = folder(&ours, &ours);
    std::fs::remove_file(anonymous.path().join("cert.pem")).unwrap();
    std::fs::remove_file(anonymous.path().join("key.pem")).unwrap();
    let error = over_tls(&[host, ("certPath", anonymous.path().to_str().unwrap())]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidCredentials, "{error}");

    let named = StandIn::start_tls(ours.server("engine.example")).await;
    let host = ("host", named.host.as_str());
    let error = over_tls(&[host, ("certPath", right)]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidCredentials, "{error}");
    assert_eq!(over_tls(&[host, ("certPath", right), ("tlsServerName", "engine.example")]).await.unwrap(), 0);
}
