use serde_json::json;

use super::*;
use crate::{
    facts::{cluster::Cluster, version::Minor},
    object::Object,
    plan::upstream::judgement::{Judgement, judge, needs},
    provider::embedded,
};

fn manager(spec: Value) -> Manager {
    let found =
        Cluster { minor: Minor(35), distribution: crate::api::placement::Distribution::Other, control_plane_nodes: 3 };
    Manager::new("cluster".into(), serde_json::from_value(spec).unwrap(), found)
}

fn vsphere() -> Manager {
    manager(json!({
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

/// Judges vSphere with these objects; one without a value does not exist.
fn judged(config: &Value, creds: &Value, trust: &Value) -> Judgement {
    let manager = vsphere();
    let catalog = embedded::catalog().unwrap();
    let checks = checks(needs(&catalog, &manager).iter());
    judge(&catalog, &manager, |reference| {
        let object = match reference.name.as_str() {
            "config" => config,
            "creds" => creds,
            _ => trust,
        };
        match object {
            Value::Null => Found::Absent,
            Value::String(why) => Found::Unreadable(why.clone()),
            object => Found::Present(Source::of(object, reference, &checks[reference])),
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
    let judged = judged(&config, &creds, &trust);
    assert_eq!(judged.trouble(), None);
    assert_eq!(judged.credentials, Some(Ok(true)));
    let objects = judged.objects.unwrap();
    let pod = objects.iter().find_map(Object::pod_spec).unwrap().to_string();
    assert!(pod.contains("creds") && pod.contains("trust"), "{pod}");
    assert!(!judged.version.unwrap().0.tag.is_empty());
}

#[test]
fn what_is_missing_is_named_with_its_field() {
    let problem = |config: &Value, creds: &Value, trust: &Value| {
        let judged = judged(config, creds, trust);
        assert_eq!(judged.objects, None, "nothing is planned");
        let trouble = judged.trouble().unwrap().clone();
        format!("{}: {}", trouble.reason, trouble.message)
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
    let judged = judged(&broken, &creds, &trust);
    let trouble = judged.trouble().unwrap();
    assert_eq!(trouble.reason, "Invalid");
    assert!(
        trouble.message.starts_with("spec.cloudConfig: key vsphere.conf of Secret kube-system/config:"),
        "{trouble:?}"
    );
    assert!(!trouble.message.contains("s3cret"), "{trouble:?}");
}

#[test]
fn no_data_is_kept() {
    let (config, creds, _) = good();
    let reference = Reference { kind: &SECRET, namespace: "n".into(), name: "x".into() };
    let kept = |object: &Value| {
        let file =
            ConfigFile { required: true, holds_credentials: false, file: "f".into(), format: None, needs: vec![] };
        let checks = Checks::from([("vsphere.conf".to_owned(), vec![file])]);
        serde_json::to_string(&Source::of(object, &reference, &checks)).unwrap()
    };
    assert!(!kept(&creds).contains("s3cret") && !kept(&creds).contains(&STANDARD.encode("s3cret")));
    assert!(!kept(&config).contains("a.example"), "{}", kept(&config));
    let before = Source::of(&creds, &reference, &Checks::new());
    let changed = secret(&[("a.example.username", "me"), ("a.example.password", "other")]);
    assert_ne!(Source::of(&changed, &reference, &Checks::new()).digest, before.digest);
}

#[test]
fn what_is_to_go_needs_no_inputs() {
    let mut manager = vsphere();
    manager.spec.management = crate::api::spec::Management::Removed;
    let judged = judge(&embedded::catalog().unwrap(), &manager, |_| Found::Absent);
    assert_eq!(judged.objects, Some(Vec::new()));
}
