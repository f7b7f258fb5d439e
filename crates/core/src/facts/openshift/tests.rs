use super::*;
use crate::facts::Fact;
use serde_json::json;

#[test]
fn the_host_is_found_in_every_form_of_url() {
    for (url, expected) in [
        ("https://api-int.example.com:6443", Some(("api-int.example.com", 6443))),
        ("https://api-int.example.com", Some(("api-int.example.com", 443))),
        ("https://api-int.example.com?a=b", Some(("api-int.example.com", 443))),
        ("https://api-int.example.com#a", Some(("api-int.example.com", 443))),
        ("https://[fd00::1]:6443/", Some(("fd00::1", 6443))),
        ("https://[fd00::1]", Some(("fd00::1", 443))),
        ("https://[a]b]:1", None),
        ("api-int.example.com:6443", None),
        ("https://", None),
        ("https://host:port", None),
        ("https://host:0", None),
        ("https://user@host:6443", None),
    ] {
        assert_eq!(host_and_port(url), expected.map(|(host, port)| (host.to_owned(), port)), "{url}");
    }
}

#[test]
fn a_platform_must_have_a_type() {
    for infrastructure in [
        json!({}),
        json!({"status": {}}),
        json!({"status": {"platformStatus": {}}}),
        json!({"status": {"platformStatus": {"type": ""}}}),
    ] {
        let infrastructure = serde_json::from_value(infrastructure).unwrap();
        let facts = Documents { infrastructure, ..Documents::default() }.facts(&Settings::default());
        let error = facts.platform.unwrap_err().to_string();
        assert!(error.starts_with("Infrastructure/cluster: status.platformStatus.type is empty"), "{error}");
    }
    assert_eq!(Documents::default().facts(&Settings::default()).platform, Ok(None));
}

#[test]
fn every_document_is_read() {
    let object = |kind: &str| match kind {
        "Infrastructure" => json!({"status": {"platformStatus": {"type": "AWS"}}}),
        "Proxy" => json!({"status": {"httpProxy": "http://proxy"}}),
        "FeatureGate" => json!({"status": {"featureGates": [{"version": "1", "enabled": [{"name": "Gate"}]}]}}),
        "APIServer" => {
            json!({"spec": {"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": {"type": "Modern"}}})
        }
        "Network" => json!({"spec": {"serviceNetwork": ["fd02::/112"]}}),
        _ => json!({"status": {"history": [{"version": "1"}]}}),
    };
    let mut documents = Documents::default();
    for document in &DOCUMENTS {
        documents.take(document, Some(&object(document.kind.kind))).unwrap();
    }
    let facts = documents.facts(&Settings::default());
    assert!(matches!(&facts.platform, Ok(Some(platform)) if platform.name == "AWS"));
    assert!(facts.proxy.contains(&("HTTP_PROXY", "http://proxy".into())), "{:?}", facts.proxy);
    assert_eq!(facts.feature_gates, ["Gate"], "of the version of the cluster");
    assert_eq!(facts.tls.unwrap().min_version, "VersionTLS13");
    assert_eq!(facts.service_networks, ["fd02::/112"]);
    for document in &DOCUMENTS {
        documents.take(document, None).unwrap();
    }
    assert_eq!(documents, Documents::default());
    assert!(documents.take(&DOCUMENTS[0], Some(&json!({"status": 1}))).is_err());
}

#[test]
fn gates_are_those_of_the_running_version() {
    let gates = json!({"status": {"featureGates": [
        {"version": "1", "enabled": [{"name": "Old"}]},
        {"version": "2", "enabled": [{"name": "CloudControllerManagerWebhook"}, {"name": "Other"}]},
    ]}});
    let version = json!({"status": {"desired": {"version": ""}, "history": [{"version": "2"}, {"version": "1"}]}});
    let documents = Documents {
        feature_gate: serde_json::from_value(gates).unwrap(),
        cluster_version: serde_json::from_value(version).unwrap(),
        ..Documents::default()
    };
    let facts = |release: Option<&str>| {
        documents.facts(&Settings { release_version: release.map(Into::into), ..Settings::default() })
    };
    for (release, expected) in [
        (None, &["CloudControllerManagerWebhook", "Other"][..]),
        (Some("0.0.1-snapshot"), &["CloudControllerManagerWebhook", "Other"]),
        (Some("1"), &["Old"]),
        (Some("3"), &[]),
    ] {
        assert_eq!(facts(release).feature_gates, expected);
    }
    assert_eq!(facts(None).value(Fact::FeatureGates).as_deref(), Some("CloudControllerManagerWebhook=true"));
}

#[test]
fn only_documents_that_are_needed_are_read() {
    let needed = |release: Option<&str>, with_cloud_config, platform: Option<&str>| {
        let settings = Settings { release_version: release.map(Into::into), ..Settings::default() };
        let platform = platform.map(|name| Platform { name: name.into(), variant: None });
        let documents = Documents::needed(&settings, with_cloud_config, platform.as_ref());
        documents.map(|document| document.kind.kind).collect::<Vec<_>>()
    };
    let always = ["Infrastructure", "Proxy", "FeatureGate", "APIServer"];
    for (with_cloud_config, platform) in [(false, Some("VSphere")), (true, Some("AWS")), (true, None)] {
        assert_eq!(needed(Some("1"), with_cloud_config, platform), always);
    }
    assert_eq!(needed(None, true, Some("VSphere")), [&always[..], &["Network", "ClusterVersion"]].concat());
}
