//! The permissions that roles grant (pure). This is the only reader of role rules: for the provider rules, for plans and
//! for printed roles.
//!
//! Go decodes `null` in a list of texts as an empty text. In a role that means the core group, or requests without a
//! name. So nothing is skipped here: anything but a list of texts is an error.

use serde_json::Value;

use crate::error::brief;

/// The maximum length of an API group, resource, verb or name in bytes, as for object names in the API server. A rule combines each
/// with all others, so every combination would store a longer text again.
const LONGEST: usize = 253;

/// A rule of a role: it grants every combination of the items of its lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyRule<'a> {
    /// API groups; the core group is empty.
    pub groups: Vec<&'a str>,
    /// Resources, with a subresource after a slash.
    pub resources: Vec<&'a str>,
    /// The names of objects; an empty list means all. An empty name means requests without a name, such as a list.
    pub names: Vec<&'a str>,
    /// Verbs.
    pub verbs: Vec<&'a str>,
    /// Non-resource paths of the API server.
    pub urls: Vec<&'a str>,
}

/// A verb on a resource of an API group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission<'a> {
    /// The API group; the core group is empty.
    pub group: &'a str,
    /// The resource, with a subresource after a slash.
    pub resource: &'a str,
    /// The names of objects; none for all of them.
    pub names: Vec<&'a str>,
    /// The verb.
    pub verb: &'a str,
}

/// A malformed rule of a role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct Error {
    /// The JSON pointer of the value in the role.
    pub pointer: String,
    problem: String,
}

impl<'a> PolicyRule<'a> {
    /// The number of permissions that it grants, counted without creating them: a few lines can grant millions.
    pub fn count(&self) -> usize {
        let lists = [self.groups.len(), self.resources.len(), self.verbs.len(), self.names.len().max(1)];
        lists.into_iter().fold(1, usize::saturating_mul)
    }

    /// Returns every permission that it grants.
    pub fn permissions(&self) -> impl Iterator<Item = Permission<'a>> {
        let pairs = self.groups.iter().flat_map(|group| self.resources.iter().map(move |resource| (*group, *resource)));
        pairs.flat_map(move |(group, resource)| {
            let of_verb = move |verb: &&'a str| Permission { group, resource, names: self.names.clone(), verb };
            self.verbs.iter().map(of_verb)
        })
    }
}

/// Returns the rules of a role in their order. An object without `rules` has none.
/// Fails if a value in them has the wrong type, because the API server refuses it or reads it differently.
pub fn rules(role: &Value) -> Result<Vec<PolicyRule<'_>>, Error> {
    let rules = list(&role["rules"], "/rules")?;
    rules.iter().enumerate().map(|(index, rule)| read(rule, &format!("/rules/{index}"))).collect()
}

/// Every permission of a role.
pub fn of_role(role: &Value) -> Result<Vec<Permission<'_>>, Error> {
    Ok(rules(role)?.iter().flat_map(PolicyRule::permissions).collect())
}

fn read<'a>(rule: &'a Value, at: &str) -> Result<PolicyRule<'a>, Error> {
    if !rule.is_object() {
        return Err(Error { pointer: at.to_owned(), problem: "a rule that is not a mapping".to_owned() });
    }
    let texts = |field: &str, longest| texts(&rule[field], longest, &format!("{at}/{field}"));
    Ok(PolicyRule {
        groups: texts("apiGroups", LONGEST)?,
        resources: texts("resources", LONGEST)?,
        names: texts("resourceNames", LONGEST)?,
        verbs: texts("verbs", LONGEST)?,
        // These are not combined.
        urls: texts("nonResourceURLs", usize::MAX)?,
    })
}

fn texts<'a>(value: &'a Value, longest: usize, at: &str) -> Result<Vec<&'a str>, Error> {
    let text = |(index, item): (usize, &'a Value)| {
        let error = |problem| Error { pointer: format!("{at}/{index}"), problem };
        let text = item.as_str().ok_or_else(|| {
            let item = item.to_string();
            error(format!("{} is no text; the API server reads null in this list as an empty text", brief(&item)))
        })?;
        if text.len() > longest {
            return Err(error(format!("a text with {} bytes; it may have {longest}", text.len())));
        }
        Ok(text)
    };
    list(value, at)?.iter().enumerate().map(text).collect()
}

/// Reads an absent list and null as empty, as the API server does.
fn list<'a>(value: &'a Value, at: &str) -> Result<&'a [Value], Error> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(Error { pointer: at.to_owned(), problem: "not a list".to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_verb_on_every_resource_is_a_permission() {
        let role = json!({"rules": [
            {"apiGroups": ["", "apps"], "resources": ["a", "b/c"], "resourceNames": ["n", ""], "verbs": ["get", "list"]},
            {"nonResourceURLs": ["/logs"], "verbs": ["get"]},
        ]});
        let granted = of_role(&role).unwrap();
        let words: Vec<_> = granted.iter().map(|one| format!("{}/{}:{}", one.group, one.resource, one.verb)).collect();
        let expected = [
            "/a:get",
            "/a:list",
            "/b/c:get",
            "/b/c:list",
            "apps/a:get",
            "apps/a:list",
            "apps/b/c:get",
            "apps/b/c:list",
        ];
        assert_eq!(words, expected);
        assert!(granted.iter().all(|one| one.names == ["n", ""]));
        let rules = rules(&role).unwrap();
        assert_eq!((rules[0].count(), rules[1].count(), &rules[1].urls), (16, 0, &vec!["/logs"]));
        for none in [json!({}), json!({"rules": null}), json!({"rules": []}), json!({"rules": [{}]})] {
            assert_eq!(of_role(&none).unwrap(), [], "{none}");
        }
    }

    #[test]
    fn what_is_no_text_is_an_error_with_its_place() {
        for (rules, pointer) in [
            (json!([{"apiGroups": [null]}]), "/rules/0/apiGroups/0"),
            (json!([{}, {"resources": ["a", 1]}]), "/rules/1/resources/1"),
            (json!([{"resourceNames": ["a", null]}]), "/rules/0/resourceNames/1"),
            (json!([{"verbs": [["get"]]}]), "/rules/0/verbs/0"),
            (json!([{"verbs": "get"}]), "/rules/0/verbs"),
            (json!([{"nonResourceURLs": [true]}]), "/rules/0/nonResourceURLs/0"),
            (json!([null]), "/rules/0"),
            (json!({"apiGroups": [""]}), "/rules"),
            (json!([{"apiGroups": ["", "a".repeat(LONGEST + 1)]}]), "/rules/0/apiGroups/1"),
            (json!([{"resources": ["a".repeat(900_000)]}]), "/rules/0/resources/0"),
            (json!([{"verbs": ["a".repeat(900_000)]}]), "/rules/0/verbs/0"),
            (json!([{"resourceNames": ["a".repeat(900_000)]}]), "/rules/0/resourceNames/0"),
        ] {
            let error = of_role(&json!({"rules": rules})).unwrap_err();
            assert_eq!(error.pointer, pointer, "{pointer}");
            assert!(error.problem.len() < 300, "{}", error.problem.len());
        }
        let longest =
            json!({"rules": [{"apiGroups": ["a".repeat(LONGEST)], "nonResourceURLs": ["/".repeat(LONGEST + 1)]}]});
        assert_eq!(rules(&longest).unwrap().len(), 1);
    }
}
