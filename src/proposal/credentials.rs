//! Credentials in the input formats: `KEY=VALUE` lines, the manifest of a Secret, or a folder with a file for each
//! key (pure).
//!
//! No message contains a value.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

pub use crate::plan::kubernetes::sources::fits;

use crate::{
    object::reference::SECRET,
    provider::kubernetes::Credentials,
    text::{suggest::did_you_mean, yaml},
};

/// The values of a Secret, by key.
pub type Values = BTreeMap<String, Vec<u8>>;

/// Parses `KEY=VALUE` lines or the manifest of a Secret, and returns the values by the keys of the provider. Also accepts the name of the
/// environment variable of the cloud-controller-manager as a key.
pub fn of_text(text: &str, needed: &Credentials) -> Result<Values, String> {
    let given = if is_manifest(text) { of_manifest(text)? } else { of_lines(text)? };
    by_keys(given, needed)
}

/// Returns the values of files by file name, without the line breaks at the end.
pub fn of_files(files: Values, needed: &Credentials) -> Result<Values, String> {
    let trimmed = |bytes: Vec<u8>| {
        let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r')).map_or(0, |at| at + 1);
        bytes[..end].to_vec()
    };
    by_keys(files.into_iter().map(|(name, bytes)| (name, trimmed(bytes))).collect(), needed)
}

/// Whether a text looks like a manifest.
fn is_manifest(text: &str) -> bool {
    text.trim_start().starts_with('{') || text.lines().any(|line| line.starts_with("kind:"))
}

fn of_manifest(text: &str) -> Result<Values, String> {
    let documents = yaml::documents(text).map_err(|error| {
        // The parser error may contain a value.
        let place = error.place.map_or_else(String::new, |place| format!("{place}: "));
        format!("{place}the manifest is not valid YAML or JSON")
    })?;
    let [secret] = &documents[..] else { return Err("it must hold one Secret and nothing else".to_owned()) };
    if secret["kind"] != SECRET.kind {
        return Err("it is no manifest of a Secret".to_owned());
    }
    let mut values = Values::new();
    for (key, value) in members(&secret["data"]) {
        let decoded = STANDARD.decode(value.as_str().unwrap_or_default());
        values.insert(key.clone(), decoded.map_err(|_| format!("data.{key} is not base64"))?);
    }
    for (key, value) in members(&secret["stringData"]) {
        let text = value.as_str().ok_or_else(|| format!("stringData.{key} is no text: put it in quotes"))?;
        values.insert(key.clone(), text.as_bytes().to_vec());
    }
    Ok(values)
}

fn members(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten()
}

fn of_lines(text: &str) -> Result<Values, String> {
    let mut values = Values::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((key, value)) = line.split_once('=') else {
            return Err(format!("line {}: not KEY=VALUE", index + 1));
        };
        let quoted = ['"', '\''].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
        values.insert(key.trim().to_owned(), quoted.unwrap_or(value.trim()).as_bytes().to_vec());
    }
    Ok(values)
}

fn by_keys(given: Values, needed: &Credentials) -> Result<Values, String> {
    let known = || needed.keys.iter().chain(&needed.optional_keys);
    let mut values = Values::new();
    for (name, value) in given {
        let key = if known().any(|pattern| fits(pattern, &name)) { Some(&name) } else { needed.environment.get(&name) };
        let Some(key) = key else {
            let hint = did_you_mean(&name, known().map(String::as_str));
            let known = known().map(String::as_str).collect::<Vec<_>>().join(", ");
            // A value in the place of a key must not be shown.
            let shown = if is_shown(&name) { format!("{name:?}{hint}") } else { "one of the names".to_owned() };
            return Err(format!("{shown} is none of the keys {known}"));
        };
        if value.iter().all(u8::is_ascii_whitespace) {
            return Err(format!("{key} is empty"));
        }
        values.insert(key.clone(), value);
    }
    match needed.keys.iter().find(|pattern| !values.keys().any(|key| fits(pattern, key))) {
        Some(missing) => Err(format!("{missing} is missing; it must hold {}", needed.keys.join(", "))),
        None => Ok(values),
    }
}

/// Whether a name looks like the name of a key or a variable.
fn is_shown(name: &str) -> bool {
    name.len() <= 40 && name.chars().any(|c| c.is_ascii_alphabetic()) && !name.chars().any(|c| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hcloud() -> Credentials {
        let environment = [("HCLOUD_TOKEN", "token")].map(|(name, key)| (name.to_owned(), key.to_owned()));
        Credentials {
            keys: vec!["token".to_owned()],
            optional_keys: vec!["network".to_owned()],
            environment: environment.into(),
            optional: false,
            only_with: None,
        }
    }

    fn vsphere() -> Credentials {
        let keys = ["*.username", "*.password"].map(str::to_owned).into();
        Credentials { keys, optional_keys: Vec::new(), environment: BTreeMap::new(), optional: false, only_with: None }
    }

    fn text(values: &Values) -> String {
        let one = |(key, value): (&String, &Vec<u8>)| format!("{key}={}", String::from_utf8_lossy(value));
        values.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_form_of_a_file_gives_the_same_values() {
        for file in [
            "token=a=b==\n",
            "# mine\nexport HCLOUD_TOKEN='a=b=='\n\n",
            "{\"kind\": \"Secret\", \"data\": {\"token\": \"YT1iPT0=\"}}",
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: any\nstringData:\n  token: a=b==\n",
        ] {
            assert_eq!(of_text(file, &hcloud()).map(|values| text(&values)), Ok("token=a=b==".to_owned()), "{file}");
        }
        let folder = Values::from([("token".to_owned(), b"a=b==\n".to_vec())]);
        assert_eq!(of_files(folder, &hcloud()).map(|values| text(&values)), Ok("token=a=b==".to_owned()));
        let file = "vc.example.com.username=a\nvc.example.com.password=b\n";
        let expected = "vc.example.com.password=b vc.example.com.username=a".to_owned();
        assert_eq!(of_text(file, &vsphere()).map(|values| text(&values)), Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_named_without_a_value() {
        for (file, problem) in [
            ("", "token is missing; it must hold token"),
            ("token=\n", "token is empty"),
            ("tokn=s3cret\n", "\"tokn\" (did you mean `token`?) is none of the keys token, network"),
            ("s3cret==\n", "one of the names is none of the keys token, network"),
            ("s3cret\n", "line 1: not KEY=VALUE"),
            ("network=s3cret\n", "token is missing; it must hold token"),
            ("kind: ConfigMap\ndata: {token: s3cret}\n", "it is no manifest of a Secret"),
            ("kind: Secret\ndata: {token: s3cret!}\n", "data.token is not base64"),
            ("kind: Secret\nstringData: {token: 73}\n", "stringData.token is no text: put it in quotes"),
            ("kind: Secret\ndata: {token: [s3cret\n", "the manifest is not valid YAML or JSON"),
            ("kind: Secret\n---\nkind: Secret\n", "it must hold one Secret and nothing else"),
        ] {
            let found = of_text(file, &hcloud()).unwrap_err();
            assert!(found.ends_with(problem), "{file}: {found}");
            assert!(!found.contains("s3cret"), "{found}");
        }
        assert!(of_text("a.username=a\n", &vsphere()).unwrap_err().starts_with("*.password is missing"));
    }
}
