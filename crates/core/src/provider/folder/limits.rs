//! The limits for single texts and lists of a provider's folder (pure).
//!
//! Rules, plans and reports combine many of them: an argument is written with the name of its container, a tag with its
//! repository. Anything beyond a limit is not stored, so that no caller can compute anything from it.

use serde_json::Value;

use crate::{
    error::MOST_OF_A_TEXT,
    object::{self, Object},
    text::yaml::outline::walk,
};

/// The longest text in a column of a table: the name of a container, which the API server limits as well, or a platform.
const LABEL: usize = 63;

/// The largest number of variables, and of mounts, of one container.
const MOST_OF_A_CONTAINER: usize = 256;

/// Returns the first place where an object exceeds a limit: JSON pointer and text.
pub(super) fn of_object(object: &Object) -> Option<(String, String)> {
    let (at, pod) = (object.pod_spec_pointer()?, object.pod_spec()?);
    ["initContainers", "containers"].into_iter().find_map(|list| {
        let mut containers = pod[list].as_array()?.iter().enumerate();
        containers.find_map(|(index, container)| {
            let (field, problem) = of_container(container)?;
            Some((format!("{at}/{list}/{index}/{field}"), problem))
        })
    })
}

fn of_container(container: &Value) -> Option<(&'static str, String)> {
    let name = object::container_name(container).len();
    if name > LABEL {
        return Some(("name", format!("the name of a container has {name} bytes; it may have {LABEL}")));
    }
    ["env", "volumeMounts"].into_iter().find_map(|field| {
        let count = container[field].as_array().map_or(0, Vec::len);
        (count > MOST_OF_A_CONTAINER).then(|| (field, too_many(count, MOST_OF_A_CONTAINER)))
    })
}

/// Returns the first place where a descriptor exceeds a limit: JSON pointer and text.
pub(super) fn of_descriptor(document: &Value) -> Option<(String, String)> {
    first(document, beyond)
}

/// Returns the first finding in a document. `find` gets each value with its JSON pointer.
pub(super) fn first<T>(document: &Value, find: impl Fn(&str, &Value) -> Option<T>) -> Option<T> {
    let mut first = None;
    walk(document, "", &mut |pointer, value| {
        if first.is_none() {
            first = find(pointer, value);
        }
    });
    first
}

fn beyond(pointer: &str, value: &Value) -> Option<(String, String)> {
    let path: Vec<_> = pointer.split('/').skip(1).collect();
    let problem = match value {
        Value::String(text) => too_long(text, longest(&path)),
        Value::Array(items) => (items.len() > most(&path)).then(|| too_many(items.len(), most(&path))),
        Value::Object(members) => members
            .keys()
            .find_map(|key| too_long(key, MOST_OF_A_TEXT))
            .or_else(|| (members.len() > most(&path)).then(|| too_many(members.len(), most(&path)))),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    };
    problem.map(|problem| (pointer.to_owned(), problem))
}

fn too_long(text: &str, longest: usize) -> Option<String> {
    // A character has at least one byte.
    let length = if text.len() > longest { text.chars().count() } else { 0 };
    (length > longest).then(|| format!("a text with {length} characters; it may have {longest}"))
}

fn too_many(count: usize, most: usize) -> String {
    format!("{count} entries; there may be {most}")
}

/// Returns the largest number of characters of a text at a place of a descriptor: the limit for a text in a message, unless the text has
/// its own format or is in no message.
fn longest(path: &[&str]) -> usize {
    match path {
        // The sum of all of these has a limit.
        ["arguments" | "environment", _, _, "value"] | ["cloudConfig", "empty"] => usize::MAX,
        ["images", _, "repository"] => 255,
        ["cloudConfig", "file"] => 253,
        ["platform", _] => LABEL,
        _ => MOST_OF_A_TEXT,
    }
}

/// Returns the largest number of entries of a list or a mapping at a place of a descriptor. Other entries are limited by their
/// targets, such as the containers of the manifests.
fn most(path: &[&str]) -> usize {
    match path {
        ["images", _, "versions", "tags" | "verified"] => 256,
        ["allowedArguments" | "allowedEnvironment" | "absentFlags"] => 128,
        ["credentials", "keys" | "optionalKeys"] => 64,
        ["nodes", "providerIDs" | "metadataPrefixes"]
        | ["services", "metadataPrefixes"]
        | ["nodes", "names", "prefixes"]
        | ["images", _, "architectures"]
        | ["cloudConfig", "needs" | "sources"]
        | ["routes", "needsOneOf"]
        | ["permissions"]
        | ["permissions", _, "verbs" | "controllers"] => 32,
        _ => usize::MAX,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::provider::folder::parsed_providers;

    /// An object with this field, which is a path of names and indexes.
    fn at(pointer: &str, value: Value) -> Value {
        pointer.rsplit('/').filter(|part| !part.is_empty()).fold(value, |value, part| match part.parse::<usize>() {
            Ok(index) => Value::Array([vec![Value::Null; index], vec![value]].concat()),
            Err(_) => json!({ part: value }),
        })
    }

    #[test]
    fn a_text_of_a_descriptor_has_a_limit() {
        for (pointer, most) in [
            ("/name", 200),
            ("/nodeManager", 200),
            ("/platform/type", 63),
            ("/platform/cloudName", 63),
            ("/platform/platformName", 63),
            ("/images/a/repository", 255),
            ("/images/a/key", 200),
            ("/images/a/versions/asOf", 200),
            ("/images/a/versions/tags/1.35", 200),
            ("/images/a/versions/verified/0", 200),
            ("/arguments/a/--b", 200),
            ("/arguments/a/--b/featureGate", 200),
            ("/cloudConfig/file", 253),
            ("/cloudConfig/needs/1", 200),
            ("/credentials/keys/0", 200),
            ("/credentials/optionalKeys/0", 200),
            ("/credentials/environment/A", 200),
            ("/credentials/onlyWith", 200),
            ("/routes/needsOneOf/0", 200),
            ("/nodes/providerIDs/0", 200),
            ("/nodes/metadataPrefixes/0", 200),
            ("/nodes/names/are", 200),
            ("/nodes/names/prefixes/0", 200),
            ("/nodes/privateAddresses", 200),
            ("/nodes/atCloud", 200),
            ("/allowedArguments/0", 200),
            ("/absentFlags/2", 200),
            ("/permissions/0/reason", 200),
            ("/permissions/0/apiGroup", 200),
            ("/permissions/0/resource", 200),
            ("/permissions/3/verbs/1", 200),
        ] {
            assert_eq!(of_descriptor(&at(pointer, "é".repeat(most).into())), None, "{pointer}");
            let (place, problem) = of_descriptor(&at(pointer, "é".repeat(most + 1).into())).unwrap();
            let expected = format!("a text with {} characters; it may have {most}", most + 1);
            assert_eq!((place.as_str(), problem), (pointer, expected));
        }
        for pointer in ["/arguments/a/--b/value", "/environment/a/B/value", "/cloudConfig/empty"] {
            assert_eq!(of_descriptor(&at(pointer, "x".repeat(900_000).into())), None, "{pointer}");
        }
        // A key counts as a text, and is not part of the message.
        for pointer in ["", "/arguments", "/environment/a", "/credentials/environment", "/images"] {
            let (place, problem) = of_descriptor(&at(pointer, json!({ "x".repeat(900_000): "" }))).unwrap();
            assert_eq!((place.as_str(), problem.len() < 100), (pointer, true));
        }
    }

    #[test]
    fn a_list_of_a_descriptor_has_a_limit() {
        for (pointer, most) in [
            ("/images/a/versions/verified", 256),
            ("/images/a/architectures", 32),
            ("/credentials/keys", 64),
            ("/credentials/optionalKeys", 64),
            ("/cloudConfig/needs", 32),
            ("/routes/needsOneOf", 32),
            ("/nodes/providerIDs", 32),
            ("/nodes/metadataPrefixes", 32),
            ("/services/metadataPrefixes", 32),
            ("/nodes/names/prefixes", 32),
            ("/allowedArguments", 128),
            ("/absentFlags", 128),
            ("/permissions", 32),
            ("/permissions/0/verbs", 32),
            ("/permissions/0/controllers", 32),
        ] {
            assert_eq!(of_descriptor(&at(pointer, vec!["a"; most].into())), None, "{pointer}");
            let expected = (pointer.to_owned(), format!("{} entries; there may be {most}", most + 1));
            assert_eq!(of_descriptor(&at(pointer, vec!["a"; most + 1].into())), Some(expected));
        }
        let tags = |count: usize| at("/images/a/versions/tags", (0..count).map(|n| (n.to_string(), "v1")).collect());
        assert_eq!(of_descriptor(&tags(256)), None);
        assert_eq!(of_descriptor(&tags(257)).unwrap().0, "/images/a/versions/tags");
    }

    #[test]
    fn a_container_has_limits() {
        let object = |list: &str, container: Value| {
            let spec = json!({"template": {"spec": { list: [{}, container] }}});
            Object::new(json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "b"}, "spec": spec,
            }))
        };
        for list in ["initContainers", "containers"] {
            for (field, within, beyond) in [
                ("name", json!("a".repeat(63)), json!("a".repeat(64))),
                ("env", json!(vec![0; 256]), json!(vec![0; 257])),
                ("volumeMounts", json!(vec![0; 256]), json!(vec![0; 257])),
            ] {
                assert_eq!(of_object(&object(list, json!({ field: within })).unwrap()), None, "{field}");
                let (pointer, problem) = of_object(&object(list, json!({ field: beyond })).unwrap()).unwrap();
                assert_eq!(pointer, format!("/spec/template/spec/{list}/1/{field}"));
                assert!(problem.contains("may "), "{problem}");
            }
        }
        let other = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "b"}});
        assert_eq!(of_object(&Object::new(other).unwrap()), None);
    }

    #[test]
    fn what_is_beyond_a_limit_is_not_kept() {
        let deployment = |name: &str, containers: &str| {
            let spec = format!("{{template: {{spec: {{initContainers: [{containers}], containers: [{{name: a}}]}}}}}}");
            format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: b}}\nspec: {spec}\n---\n"
            )
        };
        let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: a\n";
        let many = |count: usize| "{name: a},".repeat(count);
        for (text, kept, expected) in [
            (deployment("a", &many(255)), 1, ""),
            (deployment("a", &many(256)), 0, "a.yaml:1: an object too many"),
            (
                deployment("a", &many(200)) + &deployment("b", &many(54)) + &deployment("c", ""),
                2,
                "a.yaml:11: an object",
            ),
            (deployment("a", &format!("{{name: {}}}", "x".repeat(64))), 0, "a.yaml:4: the name of a container has 64"),
            (deployment(&"x".repeat(254), ""), 0, "a.yaml:3: Deployment: metadata.name has 254 bytes"),
            (format!("{role}rules: [{{verbs: [{}]}}]\n", "x".repeat(254)), 1, "a.yaml:5: a text with 254 bytes"),
        ] {
            let descriptor = "name: a\nplatform: {type: A}\nimages: {}\n".to_owned();
            let files = [("assets/a/a.yaml", text), ("assets/a/provider.yaml", descriptor)];
            let parsed = parsed_providers(files.map(|(path, text)| (path, text.into_bytes()))).remove(0);
            let defects: Vec<_> = parsed.defects.iter().map(ToString::to_string).collect();
            assert_eq!(
                (parsed.manifests.len(), defects.len()),
                (kept, usize::from(!expected.is_empty())),
                "{defects:?}"
            );
            assert!(defects.iter().all(|defect| defect.starts_with(&format!("assets/a/{expected}"))), "{defects:?}");
        }
        let long = "x".repeat(900_000);
        let descriptor = format!("name: a\nplatform:\n  type: {long}\nimages: {{}}\n").into_bytes();
        let parsed = parsed_providers([("assets/a/provider.yaml", descriptor)]).remove(0);
        assert!(parsed.descriptor.is_none());
        let expected = "assets/a/provider.yaml:3: a text with 900000 characters; it may have 63";
        assert_eq!(parsed.defects.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    }
}
