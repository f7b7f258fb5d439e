//! Old names in the files of providers, each with its new name for the error message (pure).
//!
//! Nothing is read under an old name.

use serde_json::Value;

/// The old and the current name of the folder for any Kubernetes.
const FOLDER: (&str, &str) = ("upstream", "kubernetes");

/// The renamed fields of a descriptor: old JSON pointer and new name.
const FIELDS: [(&str, &str); 2] = [("/rights", "permissions"), ("/nodes/foreignProviderID", "otherCloudProviderID")];

/// The renamed rules, and prefixes of renamed rules.
const RULES: [(&str, &str); 4] = [
    ("foreign-rights", "external-permissions"),
    ("foreign-right", "external-permission"),
    ("foreign-", "external-"),
    ("upstream-", "kubernetes-"),
];

/// Returns the problem of a file in a folder with an old name. `below` follows `assets/` in the paths of the provider's files: `aws/`
/// in a tree of providers, empty in a provider's own folder.
pub(super) fn of_path(path: &str, below: &str) -> Option<String> {
    let (old, new) = FOLDER;
    let inside = path.strip_prefix("assets/")?.strip_prefix(below)?.strip_prefix(old)?;
    let is_inside = inside.is_empty() || inside.starts_with('/');
    is_inside.then(|| format!("this folder has another name now: rename assets/{below}{old} to assets/{below}{new}"))
}

/// Returns the first field of a descriptor with an old name: its JSON pointer and the problem.
pub(super) fn of_descriptor(document: &Value) -> Option<(&'static str, String)> {
    let (pointer, new) = FIELDS.into_iter().find(|(pointer, _)| document.pointer(pointer).is_some())?;
    let old = pointer.rsplit('/').next().unwrap_or_default();
    Some((pointer, format!("this field has another name now: rename `{old}` to `{new}`")))
}

pub(super) fn of_rule(name: &str) -> Option<String> {
    let (old, new) =
        RULES.into_iter().find(|(old, _)| name == *old || (old.ends_with('-') && name.starts_with(old)))?;
    Some(format!("this rule has another name now: rename `{name}` to `{}`", name.replacen(old, new, 1)))
}

#[cfg(test)]
mod tests {
    use crate::provider::{
        folder::{parsed_providers, parsed_providers_of},
        package::Package,
        verify::Policy,
    };

    #[test]
    fn the_old_folder_is_one_error_that_names_the_new_one() {
        let files = ["provider", "deployment"].map(|name| (format!("assets/upstream/{name}.yaml"), "a: b\n"));
        let problem = "this folder has another name now: rename assets/upstream to assets/kubernetes";
        let error = Package::new("demo", files.clone()).unwrap_err().to_string();
        assert_eq!(error, format!("assets/upstream/provider.yaml: {problem}"));
        let defects = &parsed_providers_of("demo", files)[0].defects;
        assert_eq!(defects.len(), 1, "{defects:?}");
        let files = ["provider", "deployment"].map(|name| (format!("assets/demo/upstream/{name}.yaml"), "a: b\n"));
        let defects = &parsed_providers(files)[0].defects;
        assert!(
            defects[0].to_string().ends_with("rename assets/demo/upstream to assets/demo/kubernetes"),
            "{defects:?}"
        );
        assert_eq!(defects.len(), 1, "{defects:?}");
        let error = Package::new("demo", [("assets/upstreams/a.yaml", "")]).unwrap_err().to_string();
        assert!(error.contains("unknown file"), "{error}");
    }

    #[test]
    fn an_old_field_and_an_old_rule_name_the_new_ones() {
        for (text, problem) in [
            ("name: demo\nrights: []\n", ":2: this field has another name now: rename `rights` to `permissions`"),
            ("nodes: {foreignProviderID: Gone}\n", "rename `foreignProviderID` to `otherCloudProviderID`"),
        ] {
            let read = parsed_providers_of("demo", [("assets/kubernetes/provider.yaml", text)]);
            assert!(read[0].defects[0].to_string().contains(problem), "{:?}", read[0].defects);
        }
        for (old, new) in [
            ("foreign-host-path", "external-host-path"),
            ("foreign-right", "external-permission"),
            ("upstream-arguments", "kubernetes-arguments"),
        ] {
            let error = Policy::parse(&format!("demo: {{{old}: [x]}}\n")).unwrap_err().message;
            assert!(error.contains(&format!("this rule has another name now: rename `{old}` to `{new}`")), "{error}");
        }
        assert!(Policy::parse("demo: {other: [x]}\n").unwrap_err().message.contains("unknown rule"));
    }
}
