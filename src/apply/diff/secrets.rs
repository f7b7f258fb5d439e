//! Masks the secrets of an object in a diff (pure).
//!
//! Values are masked before the object is rendered, so that a change to a secret is still visible.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    error::MOST_OF_A_MESSAGE,
    text::mask::{self, MASK, excerpt::Excerpt, is_secret_key},
};

/// Masks the secrets in both states of an object.
pub(super) fn masked(before: Option<Value>, after: Option<Value>) -> (Option<Value>, Option<Value>) {
    let secrets = |object: &Option<Value>| {
        let mut found = BTreeSet::new();
        object.clone().iter_mut().for_each(|object| {
            each_secret(object, &mut |secret| {
                found.insert(secret.to_owned());
                String::new()
            });
        });
        found
    };
    let (old, new) = (secrets(&before), secrets(&after));
    let has_both = before.is_some() && after.is_some();
    let mask = |object: Option<Value>, others: &BTreeSet<String>, when: &str| {
        object.map(|mut object| {
            each_secret(&mut object, &mut |secret| {
                let differs = has_both && !others.contains(secret);
                if differs { format!("{MASK} ({when})") } else { MASK.to_owned() }
            });
            object
        })
    };
    (mask(before, &new, "before"), mask(after, &old, "after"))
}

/// The minimum length of a secret to search for in a message: a shorter secret is part of too many words.
const SHORTEST: usize = 4;

/// Returns the beginning of a message about an object, without the object's secrets and their lines and words: admission may quote
/// parts of an object that it refuses. A message longer than this program's longest is cut first, to limit the work.
pub(in crate::apply) fn redacted<'a>(message: &str, objects: impl Iterator<Item = &'a Value>) -> String {
    let mut excerpt = Excerpt::of(message, MOST_OF_A_MESSAGE);
    for object in objects {
        each_secret(&mut object.clone(), &mut |secret| {
            let whole = secret.trim().trim_matches(['"', '\'']);
            let parts = [whole].into_iter().chain(whole.lines()).chain(whole.split_whitespace());
            parts.filter(|part| part.len() >= SHORTEST).for_each(|part| excerpt.hide(part));
            String::new()
        });
    }
    excerpt.masked()
}

type Replace<'a> = &'a mut dyn FnMut(&str) -> String;

/// Replaces the secrets of an object.
fn each_secret(object: &mut Value, replace: Replace) {
    let is_secret = object["kind"] == "Secret";
    for (field, value) in object.as_object_mut().into_iter().flatten() {
        match value.as_object_mut() {
            Some(data) if is_secret && matches!(field.as_str(), "data" | "stringData") => {
                data.values_mut().for_each(|value| hide(value, replace));
            }
            _ if is_secret_key(field) => hide(value, replace),
            _ => each_secret_inside(value, replace),
        }
    }
}

fn each_secret_inside(value: &mut Value, replace: Replace) {
    match value {
        Value::Object(members) => {
            let names_secret = members.get("name").and_then(Value::as_str).is_some_and(is_secret_key);
            for (key, value) in members {
                if is_secret_key(key) || (names_secret && key == "value") {
                    hide(value, replace);
                } else {
                    each_secret_inside(value, replace);
                }
            }
        }
        Value::Array(items) => {
            let mut is_behind_flag = false;
            for item in items {
                let is_flag = |text: &str| text.starts_with('-') && !text.contains('=') && is_secret_key(text);
                let hides = std::mem::replace(&mut is_behind_flag, item.as_str().is_some_and(is_flag));
                if hides { hide(item, replace) } else { each_secret_inside(item, replace) }
            }
        }
        Value::String(text) => *text = mask::replaced(text, replace),
        _ => {}
    }
}

/// Hides the value, or each value of the list, of a secret's key. Nested objects have their own keys, such as `secret.secretName`.
fn hide(value: &mut Value, replace: Replace) {
    match value {
        Value::String(text) => *text = replace(text),
        Value::Number(number) => *value = replace(&number.to_string()).into(),
        Value::Array(items) if items.iter().all(Value::is_string) => {
            for item in items {
                hide(item, replace);
            }
        }
        Value::Array(_) | Value::Object(_) => each_secret_inside(value, replace),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::work;
    use serde_json::json;

    #[test]
    fn a_message_repeats_no_part_of_an_objects_secrets() {
        let object = json!({
            "kind": "ConfigMap",
            "data": {"cloud.conf": "[Global]\npassword = correct horse battery\ntoken = \"a b c12d\"\nzone = x\n", "other-secret": "li\nnes one"},
        });
        let message = "denied: [Global] password = correct horse battery token = \"a b c12d\" zone = x, lines: one nes";
        let shown = redacted(message, [&object].into_iter());
        assert_eq!(shown, "denied: [Global] password = *** token = \"***\" zone = x, lines: one nes");
        let quoted = redacted("value \"horse\" and c12d", [&object].into_iter());
        assert_eq!(quoted, "value \"***\" and ***");
    }

    #[test]
    fn a_long_message_is_cut_and_shows_no_part_of_a_secret_there() {
        let object = json!({"kind": "Secret", "stringData": {"a": "correct horse battery"}});
        let secret = "correct horse battery";
        for shown in 0..24 {
            let message = format!("{}{secret}, and more", "x".repeat(MOST_OF_A_MESSAGE - shown));
            let rest = if shown == 0 {
                String::new()
            } else {
                format!("***{}", ", ".get(..shown.saturating_sub(secret.len())).unwrap())
            };
            let masked = redacted(&message, [&object].into_iter());
            assert_eq!(masked.trim_start_matches('x'), format!("{rest}…"), "{shown}");
        }
    }

    #[test]
    fn the_work_for_a_message_grows_with_it_and_with_the_secrets() {
        let steps = |n: usize| {
            let words = |prefix: &str| (0..n).map(|at| format!("{prefix}{at:05}")).collect::<Vec<_>>().join(" ");
            let object = json!({
                "kind": "Deployment",
                "env": [{"name": "PASSWORD", "value": words("pass")}, {"name": "URL", "value": "://a:b/".repeat(n)}],
            });
            let message = format!("{} {}", words("pas"), words("word"));
            work::of(|| assert!(redacted(&message, [&object, &object].into_iter()).len() >= message.len()))
        };
        let (small, large) = (steps(500), steps(1_000));
        assert!(small > 500 && large < 3 * small, "{small} steps, and {large} for twice the size");
    }

    #[test]
    fn secrets_are_masked_and_their_change_is_visible() {
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
        assert_eq!(container["args"], json!(["--client-secret=***", "--v=2"]));
        assert_eq!(container["env"][0]["value"], "*** (before)");
        assert_eq!(container["env"][1]["value"], "http://u:***@proxy/");
        assert_eq!(after["spec"]["containers"][0]["env"][0]["value"], "*** (after)");

        let object = json!({
            "kind": "ConfigMap",
            "metadata": {"annotations": {"example.com/token": "x", "example.com/token-file": "y"}},
            "data": {"password": "x", "cloud.conf": "[Global]\npassword = x\nregion = y\n"},
            "args": ["--client-secret", "x", "--token-file", "y"],
            "volumes": [{"secret": {"secretName": "y"}, "name": "credentials"}],
            "tokens": ["x", "z"],
        });
        let (shown, _) = masked(Some(object), None);
        let expected = json!({
            "kind": "ConfigMap",
            "metadata": {"annotations": {"example.com/token": "***", "example.com/token-file": "y"}},
            "data": {"password": "***", "cloud.conf": "[Global]\npassword = ***\nregion = y\n"},
            "args": ["--client-secret", "***", "--token-file", "y"],
            "volumes": [{"secret": {"secretName": "y"}, "name": "credentials"}],
            "tokens": ["***", "***"],
        });
        assert_eq!(shown, Some(expected));

        let secret = json!({"kind": "Secret", "data": {"any": "eA=="}, "stringData": {"other": "y"}});
        let (shown, _) = masked(Some(secret), None);
        assert_eq!(shown, Some(json!({"kind": "Secret", "data": {"any": "***"}, "stringData": {"other": "***"}})));
    }
}
