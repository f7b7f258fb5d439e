//! What is secret in an object that is shown, and how it is hidden (pure).
//!
//! Secret values become stars before a text is made of the object. That two of them differ still shows.

use std::collections::BTreeSet;

use serde_json::Value;

/// What stands for a secret.
const STARS: &str = "***";

/// Words that a name has whose value is secret.
const SECRET_WORDS: [&str; 7] = ["password", "passwd", "secret", "token", "credential", "apikey", "privatekey"];

/// Words after which such a name only says where the secret is.
const PLACES: [&str; 6] = ["name", "namespace", "file", "path", "dir", "ref"];

/// Whether the value of a variable or key of this name is secret.
fn is_secret_key(name: &str) -> bool {
    let plain: String = name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    let is_place = PLACES.iter().any(|place| plain.ends_with(place));
    !is_place && SECRET_WORDS.iter().any(|word| plain.contains(word))
}

/// A line of somebody else's text with what looks like a secret masked.
pub(super) fn shown_line(line: &str) -> String {
    let is_secret_pair = |word: &str| {
        let pair = word.split_once('=').or_else(|| word.split_once(':'));
        pair.is_some_and(|(name, value)| !value.is_empty() && is_secret_key(name))
    };
    let mut follows_secret_name = false;
    let words = line.split_whitespace().map(|word| {
        let is_secret = follows_secret_name || is_secret_pair(word) || holds_secret(word);
        follows_secret_name = word.ends_with([':', '=']) && is_secret_key(word);
        if is_secret { STARS } else { word }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Both states of an object with their secrets masked.
pub(super) fn masked(before: Option<Value>, after: Option<Value>) -> (Option<Value>, Option<Value>) {
    let secrets = |object: &Option<Value>| {
        let mut found = BTreeSet::new();
        let mut object = object.clone();
        if let Some(object) = &mut object {
            each_secret(object, &mut |text| {
                found.insert(text.clone());
            });
        }
        found
    };
    let (old, new) = (secrets(&before), secrets(&after));
    let has_both = before.is_some() && after.is_some();
    let mask = |object: Option<Value>, others: &BTreeSet<String>, when: &str| {
        object.map(|mut object| {
            each_secret(&mut object, &mut |text| {
                let differs = has_both && !others.contains(text);
                *text = if differs { format!("{STARS} ({when})") } else { STARS.to_owned() };
            });
            object
        })
    };
    (mask(before, &new, "before"), mask(after, &old, "after"))
}

/// Visits every text of an object that is secret, or that holds a secret.
fn each_secret(object: &mut Value, visit: &mut impl FnMut(&mut String)) {
    if object["kind"] == "Secret" {
        for field in ["data", "stringData"] {
            for value in
                object.get_mut(field).and_then(Value::as_object_mut).into_iter().flat_map(|map| map.values_mut())
            {
                visit_text(value, visit);
            }
        }
    }
    each_secret_inside(object, visit);
}

fn each_secret_inside(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::Object(members) => {
            let is_secret = members.get("name").and_then(Value::as_str).is_some_and(is_secret_key);
            if is_secret && let Some(value) = members.get_mut("value") {
                visit_text(value, visit);
            }
            members.values_mut().for_each(|value| each_secret_inside(value, visit));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| each_secret_inside(item, visit)),
        Value::String(text) if holds_secret(text) => visit(text),
        _ => {}
    }
}

fn visit_text(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    if let Value::String(text) = value {
        visit(text);
    }
}

/// A URL with a password in it, or an argument such as `--password=x`.
fn holds_secret(text: &str) -> bool {
    let argument = text.strip_prefix("--").and_then(|text| text.split_once('='));
    let is_secret_argument = argument.is_some_and(|(name, value)| !value.is_empty() && is_secret_key(name));
    let authority = text.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
    is_secret_argument
        || authority.and_then(|authority| authority.rsplit_once('@')).is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_that_only_say_where_a_secret_is_are_shown() {
        for name in ["AWS_SECRET_ACCESS_KEY", "password", "client-secret", "OS_TOKEN", "API_KEY"] {
            assert!(is_secret_key(name), "{name}");
        }
        for name in ["VSPHERE_SECRET_NAME", "VSPHERE_SECRET_NAMESPACE", "azure-federated-token-file", "REGION"] {
            assert!(!is_secret_key(name), "{name}");
        }
    }

    #[test]
    fn lines_of_others_keep_all_but_secrets() {
        for (line, shown) in [
            ("login with password=abc failed", "login with *** failed"),
            ("clientSecret: abc is wrong", "clientSecret: *** is wrong"),
            ("GET https://u:p@host/x: 401", "GET *** 401"),
            ("secret azure-cloud-credentials not found", "secret azure-cloud-credentials not found"),
        ] {
            assert_eq!(shown_line(line), shown);
        }
    }

    #[test]
    fn secrets_become_stars_and_their_change_still_shows() {
        let object = |password: &str, proxy: &str| {
            Some(json!({
                "kind": "Deployment",
                "spec": {"containers": [{
                    "args": ["--client-secret=abc", "--v=2"],
                    "env": [{"name": "PASSWORD", "value": password}, {"name": "HTTPS_PROXY", "value": proxy}],
                }]},
            }))
        };
        let (before, after) = masked(object("one", "http://u:p@proxy/"), object("two", "http://u:p@proxy/"));
        let (before, after) = (before.unwrap(), after.unwrap());
        let container = &before["spec"]["containers"][0];
        assert_eq!(container["args"], json!(["***", "--v=2"]));
        assert_eq!(container["env"][0]["value"], "*** (before)");
        assert_eq!(container["env"][1]["value"], "***");
        assert_eq!(after["spec"]["containers"][0]["env"][0]["value"], "*** (after)");

        let secret = json!({"kind": "Secret", "data": {"any": "eA=="}, "stringData": {"other": "y"}});
        let (shown, _) = masked(Some(secret), None);
        assert_eq!(shown, Some(json!({"kind": "Secret", "data": {"any": "***"}, "stringData": {"other": "***"}})));
    }
}
