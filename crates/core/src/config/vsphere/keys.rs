//! Checks a configuration against the keys that the vSphere cloud-controller-manager knows (pure).
//!
//! Keys are matched exactly; any other spelling has no effect. A value of the wrong type in `global`, `vcenter`, `labels`
//! or `nodes` ends the program; in the other sections it disables the section.

use serde_json::Value;

use crate::{
    config::{
        Problem,
        keys::{KEYS, Kind, Section},
    },
    text::{
        Place,
        suggest::Hints,
        yaml::outline::{Member, Node},
    },
};

/// Names of sections in the legacy INI that differ in more than the case of the first letter.
const LEGACY: [(&str, &str); 2] = [("vcenter", "VirtualCenter"), ("nsxt", "NSXT")];

/// Sections in which a value of the wrong type ends the cloud-controller-manager.
const REQUIRED: [&str; 4] = ["global", "vcenter", "labels", "nodes"];

impl Section {
    /// Its name in the legacy INI.
    pub(super) fn legacy(&self) -> String {
        let (first, rest) = self.name.split_at(1);
        let known = LEGACY.iter().find(|(name, _)| *name == self.name);
        known.map_or_else(|| first.to_uppercase() + rest, |(_, legacy)| (*legacy).to_owned())
    }

    /// Whether a wrong type in it ends the cloud-controller-manager.
    pub(super) fn is_required(&self) -> bool {
        REQUIRED.contains(&self.name.as_str())
    }
}

/// Whether the value of a key may be shown: the key is known and not a secret.
pub(super) fn is_public(section: &str, key: &str) -> bool {
    !matches!(key, "user" | "password" | "vmcAccessToken")
        && KEYS.vsphere.iter().any(|known| known.name == section && known.keys.contains_key(key))
}

/// Refuses values of the wrong type that end the cloud-controller-manager, and warns about those that disable a
/// section.
pub(super) fn types(document: &Value, place: impl Fn(&[&str]) -> Option<Place>) -> Result<Vec<Problem>, Problem> {
    let mut warnings = Vec::new();
    for section in &KEYS.vsphere {
        for (path, wanted) in mismatches(section, &document[&section.name]) {
            let place = place(&path);
            let path = path.into_iter().map(shown).collect::<Vec<_>>().join(".");
            if section.is_required() {
                return Err(Problem { place, message: format!("`{path}` must be {wanted}: write it so") });
            }
            let message = format!("`{path}` must be {wanted}: until then section `{}` has no effect", section.name);
            warnings.push(Problem { place, message });
        }
    }
    Ok(warnings)
}

/// The paths of values of the wrong type, with the type that each must have.
fn mismatches<'a>(section: &'a Section, value: &'a Value) -> Vec<(Vec<&'a str>, &'static str)> {
    let mut found = Vec::new();
    let mut members = |path: Vec<&'a str>, value: &'a Value| match value {
        Value::Object(members) => found.extend(members.iter().filter_map(|(key, value)| {
            let wanted = mismatch(*section.keys.get(key)?, value)?;
            Some(([&path[..], &[key]].concat(), wanted))
        })),
        Value::Null if !section.each => {}
        _ => found.push((path, "a mapping")),
    };
    match value {
        Value::Object(names) if section.each => {
            names.iter().for_each(|(name, value)| members(vec![&section.name, name], value));
        }
        Value::Null => {}
        _ => members(vec![&section.name], value),
    }
    found
}

/// Returns the required type if a value has another one. Null is always valid.
fn mismatch(kind: Kind, value: &Value) -> Option<&'static str> {
    let is_scalar = |value: &Value| !value.is_array() && !value.is_object();
    let (right, wanted) = match kind {
        Kind::Text | Kind::Word | Kind::Duration => (is_scalar(value), "a string"),
        Kind::Float | Kind::Int | Kind::Int32 | Kind::Uint => {
            (value.as_f64().is_some_and(|number| number >= 0.0), "a whole number without quotes")
        }
        Kind::Bool => (value.is_boolean(), "`true` or `false` without quotes"),
        Kind::List => (value.as_array().is_some_and(|items| items.iter().all(is_scalar)), "a list of strings"),
        Kind::Map => (value.as_object().is_some_and(|items| items.values().all(is_scalar)), "a mapping to strings"),
    };
    (!right && !value.is_null()).then_some(wanted)
}

/// Returns a missing value that the cloud-controller-manager requires, with its path.
pub(super) fn missing(document: &Value) -> Option<(Vec<&str>, String)> {
    let is_set = |value: &Value, key: &str| match &value[key] {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        _ => true,
    };
    let global = &document["global"];
    let vcenters = document["vcenter"].as_object().into_iter().flatten();
    if vcenters.clone().next().is_none() && !is_set(global, "server") {
        return Some((vec!["vcenter"], "no vCenter is listed: `vcenter` needs one".to_owned()));
    }
    let has_secret = |value: &Value| is_set(value, "secretName") && is_set(value, "secretNamespace");
    let has_directory = is_set(global, "secretsDirectory");
    let global_secret = if has_directory {
        !is_set(global, "secretName") && !is_set(global, "secretNamespace")
    } else {
        has_secret(global)
    };
    let credentials = |vcenter: &Value| {
        let either = |key| is_set(vcenter, key) || is_set(global, key);
        global_secret || has_secret(vcenter) || (either("user") && either("password"))
    };
    for (name, vcenter) in vcenters {
        if !is_set(vcenter, "server") {
            return Some((vec!["vcenter", name], format!("`vcenter.{}` names no `server`: set it", shown(name))));
        }
        if !credentials(vcenter) {
            let message = format!(
                "no credentials for `vcenter.{}`: set `global.secretName` and `global.secretNamespace` (and no \
                 `global.secretsDirectory`)",
                shown(name)
            );
            return Some((vec!["vcenter", name], message));
        }
    }
    None
}

/// Warns about keys without effect, in the order of the source.
pub(super) fn ignored(root: &Node) -> Vec<Problem> {
    let (mut warnings, hints) = (Vec::new(), Hints::default());
    for top in root.members() {
        let Some(section) = KEYS.vsphere.iter().find(|section| section.name == top.key) else {
            let key = name_of(top);
            let legacy = KEYS.vsphere.iter().find(|section| bare(&section.legacy()) == bare(key));
            let key = legacy.map_or(key, |section| &section.name);
            let near = nearest(&hints, key, KEYS.vsphere.iter().map(|section| &section.name));
            warnings.extend(warning(top, "", &near));
            continue;
        };
        let mut check = |path: &str, node: &Node| {
            for member in node.members().iter().filter(|member| !section.keys.contains_key(&member.key)) {
                let key = name_of(member);
                let mut hint = nearest(&hints, key, section.keys.keys());
                if let (true, Some(other)) = (hint.is_empty(), home(key)) {
                    hint = format!(" (it belongs in `{other}`)");
                }
                warnings.extend(warning(member, path, &hint));
            }
        };
        if section.each {
            for member in top.value.members() {
                check(&format!("{}.{}", top.key, shown(&member.key)), &member.value);
            }
        } else {
            check(&top.key, &top.value);
        }
    }
    warnings
}

/// Returns a key up to a colon: without a space after the colon, the rest is its value.
fn name_of(member: &Member) -> &str {
    member.key.split_once(':').map_or(&member.key, |(name, _)| name)
}

/// Returns the name of a vCenter or of a class, as chosen by the user, unless it may contain a value.
fn shown(name: &str) -> &str {
    if name.contains(|c: char| c == ':' || c == '=' || c.is_whitespace()) { "<name>" } else { name }
}

/// Returns a warning about a key without effect. It repeats the key only with a hint, because the key may be part of a secret.
fn warning(member: &Member, section: &str, hint: &str) -> Option<Problem> {
    let what = match (section, hint) {
        ("", "") => "this key".to_owned(),
        (_, "") => format!("this key of `{section}`"),
        ("", _) => format!("`{}`", name_of(member)),
        _ => format!("`{section}.{}`", name_of(member)),
    };
    let hint = if member.key.contains(':') { " (is a space missing after the colon?)" } else { hint };
    // A merge key is part of YAML.
    (member.key != "<<").then(|| Problem::at(member.line, format!("{what} is unknown and has no effect{hint}")))
}

/// Suggests the key that differs only in dashes and case, else the nearest one.
fn nearest<'a>(hints: &Hints, key: &str, known: impl Iterator<Item = &'a String> + Clone) -> String {
    match known.clone().find(|name| bare(name) == bare(key)) {
        Some(name) => format!(" (did you mean `{name}`?)"),
        None => hints.of(key, known),
    }
}

/// Returns a key without dashes and case.
fn bare(key: &str) -> String {
    key.replace(['-', '_'], "").to_lowercase()
}

/// Returns the section that a key belongs to.
fn home(key: &str) -> Option<String> {
    let section = KEYS.vsphere.iter().find(|section| section.keys.contains_key(key))?;
    Some(if section.each { format!("{}.<name>", section.name) } else { section.name.clone() })
}
