//! The required fields of a configuration in YAML or JSON (pure).

use serde_json::Value;

use crate::{
    config::Problem,
    text::{json::folded, yaml},
};

/// Refuses a text that cannot be read, or that lacks one of these fields, each a JSON pointer. Names ignore case in JSON, as in Go,
/// but not in YAML. The message contains no value, because it may be a secret.
pub fn check(text: &str, is_json: bool, needed: &[String]) -> Result<(), Problem> {
    if needed.is_empty() {
        return Ok(());
    }
    let document: Value = yaml::from_str(text)
        .map_err(|error| Problem { place: error.place, message: "neither YAML nor JSON: correct the syntax".into() })?;
    let is_missing = |pointer: &&String| match find(&document, is_json, pointer) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.trim().is_empty(),
        Some(_) => false,
    };
    let Some(missing) = needed.iter().find(is_missing) else { return Ok(()) };
    let path = missing.trim_start_matches('/').replace('/', ".");
    Err(Problem::new(format!("`{path}` is missing: the cloud-controller-manager needs it")))
}

fn find<'a>(document: &'a Value, is_json: bool, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(document, |value, name| match value {
        Value::Array(items) => items.get(name.parse::<usize>().ok()?),
        Value::Object(fields) => {
            let is_it = |key: &str| key == name || (is_json && folded(key) == folded(name));
            fields.iter().find(|(key, _)| is_it(key)).map(|(_, value)| value)
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_missing_is_named_and_no_value_is() {
        let needed = ["/global/projectId".to_owned(), "/clusters/0/url".to_owned()];
        let problem = |text: &str| check(text, text.starts_with('{'), &needed).err().map(|problem| problem.to_string());
        assert_eq!(problem("global: {projectId: p}\nclusters: [{url: u}]\n"), None);
        assert_eq!(
            problem("{\"Global\": {\"projectID\": 1}, \"clusters\": [{\"url\": \"u\"}]}"),
            None,
            "Go ignores case"
        );
        for text in [
            "clusters: [{url: u}]",
            "global: {projectID: p}\n",
            "global: {projectId: ''}\n",
            "global: {projectId: }\n",
            "global: s3cret\n",
            "",
        ] {
            let said = problem(text).unwrap();
            assert!(said.starts_with("`global.projectId` is missing"), "{text}: {said}");
        }
        let said = problem("global: {projectId: p}\nclusters: []\n").unwrap();
        assert_eq!(said, "`clusters.0.url` is missing: the cloud-controller-manager needs it");
        assert_eq!(problem("a: 1\nb: [s3cret\n").unwrap(), "2:4: neither YAML nor JSON: correct the syntax");
        assert!(check("b: [", false, &[]).is_ok(), "a configuration without needs is not read");
    }
}
