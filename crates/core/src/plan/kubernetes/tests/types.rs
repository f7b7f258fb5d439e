//! Manifests with values of wrong types, which the rules refuse in a package. Planning returns an error or a plan, and
//! never panics.

use super::*;
use crate::{
    plan::kubernetes::objects,
    provider::{Flavor, folder::parsed_providers_of, kubernetes::KubernetesProvider},
};

/// The JSON pointer of every value.
fn pointers(value: &Value, at: &str, into: &mut Vec<String>) {
    into.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, one)| pointers(one, &crate::text::yaml::outline::child(at, key), into));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, one)| pointers(one, &format!("{at}/{index}"), into));
        }
        _ => {}
    }
}

/// A provider's own folder, with one value of a manifest replaced; `None` if the result is no longer an object.
fn with(provider: &KubernetesProvider, index: usize, pointer: &str, value: &Value) -> Option<KubernetesProvider> {
    let mut changed = provider.manifests[index].value().clone();
    *changed.pointer_mut(pointer)? = value.clone();
    let mut provider = provider.clone();
    provider.manifests[index] = Object::new(changed).ok()?;
    Some(provider)
}

#[test]
fn no_value_in_a_manifest_makes_the_plan_panic() {
    let mut tried = 0;
    for name in ["azure", "hcloud"] {
        let parsed = embedded::parsed_providers()
            .into_iter()
            .find(|one| one.name == name && one.flavor == Flavor::Kubernetes)
            .unwrap();
        let provider = parsed.kubernetes().unwrap();
        // Everything that enters a manifest.
        let asked = json!({
            "cloudConfig": {"inline": "{}"}, "placement": {
                "apiServer": {"host": "192.0.2.1", "port": 6443}, "tolerations": [{"operator": "Exists"}], "nodeSelector": {"a": "b"},
            },
        });
        let asked = if name == "azure" { asked } else { json!({"placement": asked["placement"]}) };
        let ccm = ccm(name, asked);
        assert!(objects(&provider, &ccm, Some(Digests::default())).is_ok());
        for index in 0..provider.manifests.len() {
            let mut all = Vec::new();
            pointers(provider.manifests[index].value(), "", &mut all);
            for (pointer, value) in all.iter().flat_map(|pointer| {
                let values = [json!(null), json!("x"), json!(7), json!(true), json!([]), json!(["x"]), json!({})];
                values.into_iter().map(move |value| (pointer, value))
            }) {
                let Some(changed) = with(&provider, index, pointer, &value) else { continue };
                tried += 1;
                drop(objects(&changed, &ccm, Some(Digests::default())));
            }
        }
    }
    assert!(tried > 3_000, "{tried}");
}

#[test]
fn what_is_in_the_way_is_named() {
    let parsed = embedded::parsed_providers()
        .into_iter()
        .find(|one| one.name == "hcloud" && one.flavor == Flavor::Kubernetes)
        .unwrap();
    let provider = parsed.kubernetes().unwrap();
    let ccm = ccm("hcloud", json!({}));
    let deployment = provider.manifests.iter().position(|one| one.kind().kind == "Deployment").unwrap();
    for (pointer, expected) in [
        ("/spec/template/metadata/annotations", "spec.template.metadata.annotations is not a mapping"),
        ("/spec/template/metadata", "spec.template.metadata.annotations is not a mapping"),
        ("/spec", "spec is not a mapping"),
    ] {
        let mut changed = provider.manifests[deployment].value().clone();
        if pointer.ends_with("annotations") {
            changed["spec"]["template"]["metadata"]["annotations"] = json!([]);
        } else {
            *changed.pointer_mut(pointer).unwrap() = json!([]);
        }
        let mut provider = provider.clone();
        provider.manifests[deployment] = Object::new(changed).unwrap();
        let error = objects(&provider, &ccm, Some(Digests::default())).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

#[test]
fn a_role_with_something_else_than_texts_is_no_provider() {
    let hcloud = embedded::package("hcloud").unwrap();
    let files = hcloud.files().map(|(path, bytes)| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        (path.to_owned(), text.replacen("resources: [leases]", "resources: [leases, null]", 1).into_bytes())
    });
    let error = parsed_providers_of("hcloud", files).remove(0).kubernetes().unwrap_err().to_string();
    assert!(error.contains("rbac.yaml:") && error.contains("null is no text"), "{error}");
}
