use serde_json::{Value, json};

use super::*;
use crate::{
    api::placement::Distribution,
    facts::{cluster::Cluster, version::Minor},
    provider::embedded,
};

/// The reason and the message for a `CloudControllerManager` of hcloud with these fields; `None` if it is allowed.
fn refused(limits: &Limits, name: &str, fields: &Value) -> Option<LimitError> {
    let mut spec = json!({"provider": "hcloud"});
    for (field, value) in fields.as_object().unwrap() {
        spec[field] = value.clone();
    }
    let cluster = Cluster { minor: Minor(35), distribution: Distribution::Other, control_plane_nodes: 3 };
    let ccm = Ccm::new(name.to_owned(), serde_json::from_value(spec).unwrap(), cluster);
    let catalog = embedded::catalog().unwrap();
    let descriptor = &catalog.kubernetes_of("hcloud").unwrap().descriptor;
    limits.check(&ccm, Some(descriptor)).err()
}

fn list(items: &[&str]) -> Vec<String> {
    items.iter().map(|&item| item.to_owned()).collect()
}

#[test]
fn only_names_that_are_listed_are_allowed() {
    let limits = Limits::default();
    assert_eq!(refused(&limits, ONLY, &json!({})), None);
    let (reason, message) = refused(&limits, "second", &json!({})).unwrap();
    assert_eq!(reason, "NameNotAllowed");
    assert_eq!(
        message,
        "metadata.name: the operator may not keep the objects of a CloudControllerManager named second: --names of its \
         installation lists cluster"
    );
    let both = Limits { names: list(&["cluster", "second"]), ..limits };
    assert_eq!(refused(&both, "second", &json!({})), None);
}

#[test]
fn only_images_of_the_provider_are_allowed_unless_others_are_listed() {
    let asked = |image: Value| json!({"image": image});
    let own = asked(json!({"repository": "docker.io/hetznercloud/hcloud-cloud-controller-manager"}));
    let copy = asked(json!({"repository": "ghcr.io/acme/ccm"}));
    let mirror = asked(json!({"registryMirror": "mirror:5000/proxied"}));
    let none = asked(json!({"version": "v1.30.0"}));
    let limits = Limits::default();
    for allowed in [&own, &none] {
        assert_eq!(refused(&limits, ONLY, allowed), None, "{allowed}");
    }
    let (reason, message) = refused(&limits, ONLY, &copy).unwrap();
    assert_eq!(reason, "ImageNotAllowed");
    assert_eq!(
        message,
        "spec.image.repository: the operator may not run an image of ghcr.io/acme/ccm: --image-repositories of its \
         installation is not given"
    );
    let (_, message) = refused(&limits, ONLY, &mirror).unwrap();
    assert!(message.starts_with("spec.image.registryMirror: ") && message.contains("--registry-mirrors"), "{message}");
    let mirrored = Limits { registry_mirrors: list(&["mirror:5000/proxied"]), ..Limits::default() };
    for allowed in [&own, &none, &mirror] {
        assert_eq!(refused(&mirrored, ONLY, allowed), None, "{allowed}");
    }
    let path = asked(json!({"repository": "mirror:5000/proxied/other/ccm"}));
    assert!(refused(&mirrored, ONLY, &path).is_some(), "another image of the mirror");
    for (entry, image, is_allowed) in [
        ("ghcr.io/acme/ccm", &copy, true),
        ("ghcr.io/acme/", &copy, true),
        ("ghcr.io/acm", &copy, false),
        ("ghcr.io/acme", &copy, false),
        ("mirror:5000/", &mirror, true),
        // A list replaces the default.
        ("ghcr.io/acme/", &none, false),
    ] {
        let limits = Limits { image_repositories: list(&[entry]), ..Limits::default() };
        assert_eq!(refused(&limits, ONLY, image).is_none(), is_allowed, "{entry} {image}");
    }
}

#[test]
fn only_leases_of_the_listed_names_are_allowed_unless_others_are_listed() {
    let asked = |lease: &str| json!({"leaderElection": {"leaseName": lease}});
    let limits = Limits { names: list(&["cluster", "second"]), ..Limits::default() };
    for allowed in ["cloud-controller-manager", "cloud-controller-manager-second"] {
        assert_eq!(refused(&limits, "second", &asked(allowed)), None, "{allowed}");
    }
    for other in ["cloud-controller-manager-third", "cert-manager-controller", "plndr-cp-lock"] {
        assert_eq!(refused(&limits, ONLY, &asked(other)).unwrap().0, "LeaseNotAllowed", "{other}");
    }
    let listed = Limits { leases: list(&["own"]), ..limits };
    assert_eq!(refused(&listed, ONLY, &asked("own")), None);
}

#[test]
fn only_pull_secrets_that_are_listed_are_allowed() {
    let asked = json!({"image": {"pullSecrets": [{"name": "a"}, {"name": "b"}]}});
    let limits = Limits { image_pull_secrets: list(&["a"]), ..Limits::default() };
    let (reason, message) = refused(&limits, ONLY, &asked).unwrap();
    assert_eq!(reason, "PullSecretNotAllowed");
    assert_eq!(
        message,
        "spec.image.pullSecrets: no image may be pulled with the Secret b: --image-pull-secrets of its installation lists a"
    );
    let limits = Limits { image_pull_secrets: list(&["b", "a"]), ..Limits::default() };
    assert_eq!(refused(&limits, ONLY, &asked), None);
}

#[test]
fn what_is_limited_stands_in_the_arguments() {
    assert!(Limits::default().arguments().is_empty());
    let limits = Limits {
        image_repositories: list(&["a/", "b/c"]),
        registry_mirrors: list(&["m"]),
        image_pull_secrets: list(&["p"]),
        leases: list(&["l"]),
        ..Limits::default()
    };
    let expected = ["--image-repositories=a/,b/c", "--registry-mirrors=m", "--image-pull-secrets=p", "--leases=l"];
    assert_eq!(limits.arguments(), expected);
}
