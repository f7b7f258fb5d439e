//! Masks the secrets of an object in a diff (pure).
//!
//! Values are masked before the object is rendered, so that a change of a secret is still visible.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::text::mask::{self, MASK, is_secret_key};

/// Masks the secrets in both states of an object.
pub(super) fn masked(before: Option<Value>, after: Option<Value>) -> (Option<Value>, Option<Value>) {
    let secrets = |object: &Option<Value>| {
        let mut found = BTreeSet::new();
        object.clone().iter_mut().for_each(|object| each_secret(object, &mut |text| found.extend([text.clone()])));
        found
    };
    let (old, new) = (secrets(&before), secrets(&after));
    let has_both = before.is_some() && after.is_some();
    let mask = |object: Option<Value>, others: &BTreeSet<String>, when: &str| {
        object.map(|mut object| {
            each_secret(&mut object, &mut |text| {
                let differs = has_both && !others.contains(text);
                *text = if differs { format!("{MASK} ({when})") } else { MASK.to_owned() };
            });
            object
        })
    };
    (mask(before, &new, "before"), mask(after, &old, "after"))
}

/// Visits every string of an object that is or contains a secret.
fn each_secret(object: &mut Value, visit: &mut impl FnMut(&mut String)) {
    if object["kind"] == "Secret" {
        for field in ["data", "stringData"] {
            if let Some(values) = object.get_mut(field).and_then(Value::as_object_mut) {
                values.values_mut().for_each(|value| visit_text(value, visit));
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

/// Whether a string contains a secret, such as `--password=x` or a password in a URL.
fn holds_secret(text: &str) -> bool {
    mask::lines(text).iter().zip(text.lines()).any(|(shown, line)| shown != line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
        assert_eq!(container["args"], json!(["***", "--v=2"]));
        assert_eq!(container["env"][0]["value"], "*** (before)");
        assert_eq!(container["env"][1]["value"], "***");
        assert_eq!(after["spec"]["containers"][0]["env"][0]["value"], "*** (after)");

        let secret = json!({"kind": "Secret", "data": {"any": "eA=="}, "stringData": {"other": "y"}});
        let (shown, _) = masked(Some(secret), None);
        assert_eq!(shown, Some(json!({"kind": "Secret", "data": {"any": "***"}, "stringData": {"other": "***"}})));
    }
}
