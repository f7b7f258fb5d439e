//! Two Engines as two regions.

use std::fs;

use ccm_driver_docker::Docker;
use ccm_drivers::contract::{DriverType, Endpoint, ErrorKind, Filter, InstanceSpec};

use crate::{
    host, import, instances, output,
    secured::{self, Secured},
    spec, values,
};

#[tokio::test]
async fn two_engines_with_and_without_tls_are_two_regions() {
    let (host, image, engine) = (host(), "localhost/regions:1", Secured::start());
    engine.answers().await;
    import(&["--host".to_owned(), host.clone()], image);
    import(&engine.client(), image);
    let certificates = engine.certificates();
    let both = format!("near={host},far={}", engine.host);
    let driver = Docker.open(&values(&[("host", &both), ("certPath", &certificates)])).await.unwrap();
    let account = driver.account().verify().await.unwrap();
    let wanted = values(&[("host", &both), ("certPath", &certificates), ("accountID", &account.id)]);
    let driver = Docker.open(&wanted).await.unwrap();
    let all = instances(&*driver);
    let networks = || vec!["none".to_owned()];
    let far = InstanceSpec { networks: networks(), region: "far".to_owned(), ..spec(image, "regions-1") };
    let near = InstanceSpec { networks: networks(), ..spec(image, "regions-2") };
    let (far, near) = (all.create(&far).await.unwrap(), all.create(&near).await.unwrap());
    assert_eq!((far.zone.as_str(), near.zone.as_str()), ("far-a", "near-a"));
    // A name is the providerID of one Node.
    let same = InstanceSpec { networks: networks(), region: "near".to_owned(), ..spec(image, "regions-1") };
    assert_eq!(all.create(&same).await.unwrap_err().kind, ErrorKind::AlreadyExists);
    let listed = all.list(&Filter::default()).await.unwrap();
    assert!(listed.contains(&far) && listed.contains(&near));
    assert_eq!(output(&*driver, &far.id, &["hostname"]).await, "regions-1\n");

    // The wrong certificate, no certificate, no TLS, and another account.
    let other = tempfile::tempdir().unwrap();
    secured::certificates(other.path());
    fs::copy(engine.folder.path().join("ca.pem"), other.path().join("ca.pem")).unwrap();
    let other = other.path().display().to_string();
    let cases = [
        values(&[("host", &engine.host), ("certPath", &other)]),
        values(&[("host", &engine.host)]),
        values(&[("host", &host), ("accountID", &account.id)]),
    ];
    for values in cases {
        let driver = Docker.open(&values).await.unwrap();
        for error in [
            driver.account().verify().await.unwrap_err(),
            instances(&*driver).get(&far.id).await.unwrap_err(),
            instances(&*driver).delete(&far.id).await.unwrap_err(),
        ] {
            assert_eq!(error.kind, ErrorKind::InvalidCredentials, "{error}");
        }
    }
    let endpoint = Endpoint::Tcp("localhost".to_owned(), 23760);
    let moved =
        Docker.through(&values(&[("host", &engine.host), ("certPath", &certificates)]), &endpoint).await.unwrap();
    Docker.open(&moved).await.unwrap().account().verify().await.unwrap();

    // Of an Engine that has ended nothing is gone.
    all.delete(&near.id).await.unwrap();
    drop(engine);
    for error in [all.get(&near.id).await.unwrap_err(), all.delete(&far.id).await.unwrap_err()] {
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        assert!(error.message.contains("region far"), "{error}");
    }
    assert_eq!(all.list(&Filter::default()).await.unwrap_err().kind, ErrorKind::Unavailable);
}
