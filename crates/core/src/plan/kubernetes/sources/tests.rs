use serde_json::json;

use super::*;
use crate::{
    facts::{cluster::Cluster, version::Minor},
    object::Object,
    plan::kubernetes::validation::{Validation, validate},
    provider::embedded,
};

fn ccm(spec: Value) -> Ccm {
    let found =
        Cluster { minor: Minor(35), distribution: crate::api::placement::Distribution::Other, control_plane_nodes: 3 };
    Ccm::new("cluster".into(), serde_json::from_value(spec).unwrap(), found)
}

fn vsphere() -> Ccm {
    ccm(json!({
        "provider": "vsphere",
        "cloudConfig": {"secretRef": {"name": "config", "key": "vsphere.conf"}},
        "credentials": {"secretRef": {"name": "creds"}},
        "trustBundle": {"configMapRef": {"name": "trust", "key": "ca.crt"}},
    }))
}

const CONFIG: &str = "global:\n  secretName: creds\n  secretNamespace: kube-system\nvcenter:\n  a:\n    server: a.example\n    datacenters: [dc]\n";

fn secret(data: &[(&str, &str)]) -> Value {
    json!({"data": data.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value))).collect::<BTreeMap<_, _>>()})
}

/// Validates vSphere with these objects; an object without a value does not exist.
fn validated(config: &Value, creds: &Value, trust: &Value) -> Validation {
    let ccm = vsphere();
    let catalog = embedded::catalog().unwrap();
    let checks = checks(named(&catalog.kubernetes_of("vsphere").unwrap().descriptor, &ccm).iter());
    validate(&catalog, &ccm, |reference| {
        let object = match reference.name.as_str() {
            "config" => config,
            "creds" => creds,
            _ => trust,
        };
        match object {
            Value::Null => SourceState::Absent,
            Value::String(why) => SourceState::Unreadable(why.clone()),
            object => SourceState::Present(Source::of(object, reference, &checks[reference])),
        }
    })
}

fn good() -> (Value, Value, Value) {
    (
        secret(&[("vsphere.conf", CONFIG)]),
        secret(&[("a.example.username", "me"), ("a.example.password", "s3cret")]),
        json!({"data": {"ca.crt": "-----BEGIN CERTIFICATE-----"}}),
    )
}

#[test]
fn objects_are_planned_once_all_inputs_are_good() {
    let (config, creds, trust) = good();
    let validated = validated(&config, &creds, &trust);
    assert_eq!(validated.problem(), None);
    assert_eq!(validated.credentials, Some(Ok(Some(Vec::new()))));
    let objects = validated.objects.unwrap();
    let pod = objects.iter().find_map(Object::pod_spec).unwrap().to_string();
    assert!(pod.contains("creds") && pod.contains("trust"), "{pod}");
    assert!(!validated.version.unwrap().0.tag.is_empty());
}

#[test]
fn what_is_missing_is_named_with_its_field() {
    let problem = |config: &Value, creds: &Value, trust: &Value| {
        let validated = validated(config, creds, trust);
        assert_eq!(validated.objects, None, "nothing is planned");
        let problem = validated.problem().unwrap().clone();
        format!("{}: {}", problem.reason, problem.message)
    };
    let (config, creds, trust) = good();
    let none = Value::Null;
    assert_eq!(
        problem(&none, &creds, &trust),
        "NotFound: spec.cloudConfig: Secret kube-system/config does not exist: create it"
    );
    assert_eq!(
        problem(&config, &secret(&[("a.example.username", "me")]), &trust),
        "KeyNotFound: spec.credentials.secretRef: Secret kube-system/creds has no key *.password; it has a.example.username"
    );
    let empty = secret(&[("a.example.username", "me"), ("a.example.password", "\n")]);
    assert_eq!(
        problem(&config, &empty, &trust),
        "KeyEmpty: spec.credentials.secretRef: the key a.example.password of Secret kube-system/creds is empty"
    );
    assert_eq!(
        problem(&config, &creds, &json!({"data": {}})),
        "KeyNotFound: spec.trustBundle.configMapRef: ConfigMap kube-system/trust has no key ca.crt; it has none"
    );
    let denied = problem(&config, &"secrets \"creds\" is forbidden".into(), &trust);
    assert!(
        denied.starts_with("NotReadable: spec.credentials.secretRef: Secret kube-system/creds cannot be read: "),
        "{denied}"
    );
}

#[test]
fn a_configuration_is_checked_wherever_it_stands() {
    let (_, creds, trust) = good();
    let broken = secret(&[("vsphere.conf", "global:\n  port: [443\n  password: s3cret\n")]);
    let validated = validated(&broken, &creds, &trust);
    let problem = validated.problem().unwrap();
    assert_eq!(problem.reason, "Invalid");
    assert!(
        problem.message.starts_with("spec.cloudConfig: key vsphere.conf of Secret kube-system/config:"),
        "{problem:?}"
    );
    assert!(!problem.message.contains("s3cret"), "{problem:?}");
}

#[test]
fn no_data_is_kept() {
    let (config, creds, _) = good();
    let reference = Reference { kind: &SECRET, namespace: "n".into(), name: "x".into() };
    let kept = |object: &Value| {
        let file =
            ConfigFile { required: true, holds_credentials: false, file: "f".into(), format: None, needs: vec![] };
        let checks = Checkers::from([("vsphere.conf".to_owned(), vec![file])]);
        serde_json::to_string(&Source::of(object, &reference, &checks)).unwrap()
    };
    assert!(!kept(&creds).contains("s3cret") && !kept(&creds).contains(&STANDARD.encode("s3cret")));
    assert!(!kept(&config).contains("a.example"), "{}", kept(&config));
    let before = Source::of(&creds, &reference, &Checkers::new());
    let changed = secret(&[("a.example.username", "me"), ("a.example.password", "other")]);
    assert_ne!(Source::of(&changed, &reference, &Checkers::new()).digest, before.digest);
}

#[test]
fn what_is_to_go_needs_no_inputs() {
    let mut ccm = vsphere();
    ccm.spec.management = crate::api::spec::Management::Removed;
    let validated = validate(&embedded::catalog().unwrap(), &ccm, |_| SourceState::Absent);
    assert_eq!(validated.objects, Some(Vec::new()));
}

#[test]
fn a_line_break_at_the_end_of_a_variable_is_a_warning() {
    let catalog = embedded::catalog().unwrap();
    let of = |provider: &str, data: &[(&str, &str)]| {
        let ccm = ccm(json!({"provider": provider, "credentials": {"secretRef": {"name": "creds"}}}));
        let secret = secret(data);
        let validated = validate(&catalog, &ccm, |reference| {
            SourceState::Present(Source::of(&secret, reference, &Checkers::new()))
        });
        validated.credentials.unwrap().unwrap().unwrap()
    };
    let warnings = of("hcloud", &[("token", "s3cret\n"), ("network", "net\n")]);
    let expected = |key: &str| {
        format!("spec.credentials.secretRef: the key {key} of Secret kube-system/creds ends with a line break")
    };
    assert_eq!(warnings, [expected("token"), expected("network")]);
    assert!(of("hcloud", &[("token", "s3cret")]).is_empty());
    let in_files = [("vc.example.username", "me\n"), ("vc.example.password", "s3cret\n")];
    assert!(of("vsphere", &in_files).is_empty(), "the program reads files");
    let both = [("host", "tcp://a:1\n"), ("ca.pem", "PEM\n"), ("cert.pem", "PEM\n"), ("key.pem", "PEM\n")];
    assert_eq!(of("docker", &both), [expected("host")], "the others are files");
}
