//! What the vSphere cloud-controller-manager (v1.36) reads of its configuration, and what it refuses (pure).
//!
//! Keys are matched exactly; one that is spelt otherwise has no effect there. Its parsers of `global`, `vcenter`,
//! `labels` and `nodes` end the program when a value has the wrong type, those of the other sections only leave them out.

use serde_json::Value;

use crate::config::{Error, Warning, hint};
use crate::text::yaml::outline::{Member, Node};

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any scalar.
    Text,
    /// A whole number, not quoted.
    Number,
    /// A boolean, not quoted.
    Flag,
    /// A list of scalars.
    List,
    /// A mapping to scalars.
    Map,
}

/// A top-level key.
#[derive(Debug)]
pub(super) struct Section {
    /// Its name.
    pub(super) name: &'static str,
    /// Its name in the legacy INI.
    pub(super) legacy: &'static str,
    /// Whether it is a mapping of names to such sections.
    pub(super) named: bool,
    /// Whether a wrong type in it ends the cloud-controller-manager.
    pub(super) required: bool,
    /// What may stand in it.
    pub(super) keys: &'static [(&'static str, Kind)],
}

impl Section {
    fn kind(&self, key: &str) -> Option<Kind> {
        self.keys.iter().find(|(known, _)| *known == key).map(|(_, kind)| *kind)
    }
}

const GLOBAL: &[(&str, Kind)] = &[
    ("user", Kind::Text),
    ("password", Kind::Text),
    ("server", Kind::Text),
    ("port", Kind::Number),
    ("insecureFlag", Kind::Flag),
    ("datacenters", Kind::List),
    ("soapRoundtripCount", Kind::Number),
    ("caFile", Kind::Text),
    ("thumbprint", Kind::Text),
    ("secretName", Kind::Text),
    ("secretNamespace", Kind::Text),
    ("secretsDirectory", Kind::Text),
    ("apiDisable", Kind::Flag),
    ("apiBinding", Kind::Text),
    ("ipFamily", Kind::List),
];

const VCENTER: &[(&str, Kind)] = &[
    ("user", Kind::Text),
    ("password", Kind::Text),
    ("server", Kind::Text),
    ("port", Kind::Number),
    ("insecureFlag", Kind::Flag),
    ("datacenters", Kind::List),
    ("soapRoundtripCount", Kind::Number),
    ("caFile", Kind::Text),
    ("thumbprint", Kind::Text),
    ("secretName", Kind::Text),
    ("secretNamespace", Kind::Text),
    ("ipFamily", Kind::List),
];

const NODES: &[(&str, Kind)] = &[
    ("internalNetworkSubnetCidr", Kind::Text),
    ("externalNetworkSubnetCidr", Kind::Text),
    ("internalVmNetworkName", Kind::Text),
    ("externalVmNetworkName", Kind::Text),
    ("excludeInternalNetworkSubnetCidr", Kind::Text),
    ("excludeExternalNetworkSubnetCidr", Kind::Text),
];

const LOAD_BALANCER: &[(&str, Kind)] = &[
    ("size", Kind::Text),
    ("lbServiceId", Kind::Text),
    ("tier1GatewayPath", Kind::Text),
    ("snatDisabled", Kind::Flag),
    ("tags", Kind::Map),
    ("ipPoolName", Kind::Text),
    ("ipPoolId", Kind::Text),
    ("tcpAppProfileName", Kind::Text),
    ("tcpAppProfilePath", Kind::Text),
    ("udpAppProfileName", Kind::Text),
    ("udpAppProfilePath", Kind::Text),
];

const LOAD_BALANCER_CLASS: &[(&str, Kind)] = &[
    ("ipPoolName", Kind::Text),
    ("ipPoolId", Kind::Text),
    ("tcpAppProfileName", Kind::Text),
    ("tcpAppProfilePath", Kind::Text),
    ("udpAppProfileName", Kind::Text),
    ("udpAppProfilePath", Kind::Text),
];

const NSXT: &[(&str, Kind)] = &[
    ("user", Kind::Text),
    ("password", Kind::Text),
    ("host", Kind::Text),
    ("insecureFlag", Kind::Flag),
    ("remoteAuth", Kind::Flag),
    ("secretName", Kind::Text),
    ("secretNamespace", Kind::Text),
    ("vmcAccessToken", Kind::Text),
    ("vmcAuthHost", Kind::Text),
    ("clientAuthCertFile", Kind::Text),
    ("clientAuthKeyFile", Kind::Text),
    ("caFile", Kind::Text),
];

const LABELS: &[(&str, Kind)] = &[("zone", Kind::Text), ("region", Kind::Text)];
const ROUTE: &[(&str, Kind)] = &[("routerPath", Kind::Text)];

const fn section(
    name: &'static str,
    legacy: &'static str,
    named: bool,
    required: bool,
    keys: &'static [(&'static str, Kind)],
) -> Section {
    Section { name, legacy, named, required, keys }
}

/// Every section.
pub(super) const SECTIONS: &[Section] = &[
    section("global", "Global", false, true, GLOBAL),
    section("vcenter", "VirtualCenter", true, true, VCENTER),
    section("labels", "Labels", false, true, LABELS),
    section("nodes", "Nodes", false, true, NODES),
    section("loadBalancer", "LoadBalancer", false, false, LOAD_BALANCER),
    section("loadBalancerClass", "LoadBalancerClass", true, false, LOAD_BALANCER_CLASS),
    section("nsxt", "NSXT", false, false, NSXT),
    section("route", "Route", false, false, ROUTE),
];

/// Whether the value of a key may be shown: it is known, and no secret.
pub(super) fn is_public(section: &str, key: &str) -> bool {
    !matches!(key, "user" | "password" | "vmcAccessToken")
        && SECTIONS.iter().any(|known| known.name == section && known.kind(key).is_some())
}

/// Refuses values of a type that the cloud-controller-manager refuses, and warns of those that make it leave a
/// section out.
pub(super) fn types(document: &Value, root: &Node) -> Result<Vec<Warning>, Error> {
    let mut warnings = Vec::new();
    for section in SECTIONS {
        for (path, wanted) in mismatches(section, &document[section.name]) {
            let keys: Vec<&str> = path.iter().map(String::as_str).collect();
            let (line, place) = (root.line(&keys), path.join("."));
            if section.required {
                return Err(Error { line, message: format!("`{place}` has to be {wanted}: write it so") });
            }
            let message = format!("`{place}` has to be {wanted}: until then all of `{}` has no effect", section.name);
            warnings.push(Warning { line, message });
        }
    }
    Ok(warnings)
}

fn mismatches(section: &Section, value: &Value) -> Vec<(Vec<String>, &'static str)> {
    let mut found = Vec::new();
    let mut members = |path: &[&str], value: &Value| {
        let owned = |last: Option<&str>| path.iter().copied().chain(last).map(str::to_owned).collect();
        match value {
            Value::Object(members) => found.extend(members.iter().filter_map(|(key, value)| {
                let wanted = mismatch(section.kind(key)?, value)?;
                Some((owned(Some(key)), wanted))
            })),
            Value::Null if !section.named => {}
            _ => found.push((owned(None), "a mapping")),
        }
    };
    match value {
        Value::Object(names) if section.named => {
            names.iter().for_each(|(name, value)| members(&[section.name, name], value));
        }
        Value::Null => {}
        _ => members(&[section.name], value),
    }
    found
}

/// What the value should be instead; nothing when it is right. Unset is always right.
fn mismatch(kind: Kind, value: &Value) -> Option<&'static str> {
    let is_scalar = |value: &Value| !value.is_array() && !value.is_object();
    let (right, wanted) = match kind {
        Kind::Text => (is_scalar(value), "a string"),
        Kind::Number => (value.as_f64().is_some_and(|number| number >= 0.0), "a whole number without quotes"),
        Kind::Flag => (value.is_boolean(), "`true` or `false` without quotes"),
        Kind::List => (value.as_array().is_some_and(|items| items.iter().all(is_scalar)), "a list of strings"),
        Kind::Map => (value.as_object().is_some_and(|items| items.values().all(is_scalar)), "a mapping to strings"),
    };
    (!right && !value.is_null()).then_some(wanted)
}

/// What the cloud-controller-manager would not find, with the path it looks at.
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
            return Some((vec!["vcenter", name], format!("`vcenter.{name}` names no `server`: set it")));
        }
        if !credentials(vcenter) {
            let message = format!(
                "no credentials for `vcenter.{name}`: set `global.secretName` and `global.secretNamespace` (and no \
                 `global.secretsDirectory`)"
            );
            return Some((vec!["vcenter", name], message));
        }
    }
    None
}

/// Warns of every key that has no effect, in the order of the source.
pub(super) fn ignored(root: &Node) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for top in root.members() {
        let Some(section) = SECTIONS.iter().find(|section| section.name == top.key) else {
            let known = SECTIONS.iter().map(|section| (section.name, section.legacy));
            let near = nearest(&warnings, &top.key, known);
            warnings.extend(warning(top, &top.key, &near));
            continue;
        };
        let mut check = |path: &str, node: &Node| {
            for member in node.members().iter().filter(|member| section.kind(&member.key).is_none()) {
                let mut hint = nearest(&warnings, &member.key, section.keys.iter().map(|(key, _)| (*key, *key)));
                if let (true, Some(other)) = (hint.is_empty(), home(&member.key)) {
                    hint = format!(" (it belongs into `{other}`)");
                }
                warnings.extend(warning(member, &format!("{path}.{}", member.key), &hint));
            }
        };
        if section.named {
            for member in top.value.members() {
                check(&format!("{}.{}", top.key, member.key), &member.value);
            }
        } else {
            check(&top.key, &top.value);
        }
    }
    warnings
}

fn warning(member: &Member, path: &str, hint: &str) -> Option<Warning> {
    // A merge key is none of the document's own.
    (member.key != "<<").then(|| {
        // Without a blank behind its colon a key holds its value, which may be a secret.
        let (name, hint) = match path.split_once(':') {
            Some((name, _)) => (name, " (is there a blank behind the colon?)"),
            None => (path, hint),
        };
        Warning { line: Some(member.line), message: format!("`{name}` is not known and has no effect{hint}") }
    })
}

/// A key that differs in its dashes and capitals alone is surely meant; otherwise the nearest one is offered.
fn nearest<'a>(warnings: &[Warning], key: &str, known: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> String {
    let bare = |key: &str| key.replace(['-', '_'], "").to_lowercase();
    let same = known.clone().find(|(name, other)| [bare(name), bare(other)].contains(&bare(key)));
    match same {
        Some((name, _)) => format!(" (did you mean `{name}`?)"),
        None => hint(warnings, key, known.map(|(name, _)| name)),
    }
}

/// Where else the key is known.
fn home(key: &str) -> Option<String> {
    let section = SECTIONS.iter().find(|section| section.kind(key).is_some())?;
    Some(if section.named { format!("{}.<name>", section.name) } else { section.name.to_owned() })
}
