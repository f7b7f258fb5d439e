//! The configuration of the Azure cloud-controller-manager: cloud.conf in JSON (pure).
//!
//! The cloud-controller-manager would also accept YAML. But installers write JSON and the contract requires it, so
//! anything else is an error. As in the cloud-controller-manager, names ignore case and a blank value is unset. If
//! several members have one name, the last one is effective; a rule sets all of them, so that every reader finds the
//! same value.

pub mod credentials;
pub mod read;

use std::collections::BTreeMap;

use serde_json::json;

use crate::{
    config::{
        Change, Output, Problem,
        keys::{KEYS, Kind},
    },
    facts::Facts,
    text::{
        json::{self, Document, Member, folded},
        suggest::{Hints, did_you_mean},
    },
};

/// The values of `platformStatus.azure.cloudName` that the API defines.
const CLOUD_NAMES: [&str; 5] =
    ["AzurePublicCloud", "AzureUSGovernmentCloud", "AzureChinaCloud", "AzureGermanCloud", "AzureStackCloud"];

const CLOUD: &str = "cloud";
const VM_TYPE: &str = "vmType";
const PROBE_MODE: &str = "clusterServiceLoadBalancerHealthProbeMode";

pub(super) fn transform(source: &str, facts: &Facts) -> Result<Output, Problem> {
    let cloud = cloud_name(facts.platform_variant())?;
    let mut edit = Edit::of(source)?;
    if let Some((member, text)) = edit.text(CLOUD)?
        && !text.eq_ignore_ascii_case(cloud)
    {
        let why = match facts.platform_variant() {
            "" => "the cloud of an Infrastructure/cluster without status.platformStatus.azure.cloudName",
            _ => "which Infrastructure/cluster sets in status.platformStatus.azure.cloudName",
        };
        let message = format!("`cloud` differs from {cloud}, {why}; correct it, or leave it out");
        return Err(Problem::at(member.line, message));
    }
    edit.set("the Infrastructure names the cloud", CLOUD, cloud);
    edit.default_vm_type()?;
    edit.set("one health probe is shared by all Services with the traffic policy Cluster", PROBE_MODE, "shared");
    Ok(edit.finish())
}

/// Checks a configuration that is used as it is.
pub(super) fn check(source: &str) -> Result<Vec<Problem>, Problem> {
    let edit = Edit::of(source)?;
    edit.text(VM_TYPE)?;
    Ok(edit.warnings)
}

pub(super) fn transform_stack(source: &str) -> Result<Output, Problem> {
    let mut edit = Edit::of(source)?;
    edit.default_vm_type()?;
    Ok(edit.finish())
}

fn cloud_name(given: &str) -> Result<&'static str, Problem> {
    if given.is_empty() {
        return Ok(CLOUD_NAMES[0]);
    }
    CLOUD_NAMES.into_iter().find(|name| *name == given).ok_or_else(|| {
        let hint = did_you_mean(given, CLOUD_NAMES);
        Problem::new(format!(
            "Infrastructure/cluster: status.platformStatus.azure.cloudName {given:?} is not one of {}{hint}",
            CLOUD_NAMES.join(", ")
        ))
    })
}

/// A configuration to which rules are being applied.
struct Edit<'a> {
    document: Document<'a>,
    changes: Vec<Change>,
    warnings: Vec<Problem>,
}

impl<'a> Edit<'a> {
    fn of(source: &'a str) -> Result<Self, Problem> {
        let document = Document::parse(source)?;
        let warnings = checked(&document)?;
        let dropped = document.had_byte_order_mark;
        let changes = dropped.then(|| rewritten("JSON has no byte order mark", "byte order mark"));
        Ok(Self { document, changes: changes.into_iter().collect(), warnings })
    }

    /// The effective value, unless it is blank.
    fn text(&self, name: &str) -> Result<Option<(&Member<'a>, String)>, Problem> {
        let Some(member) = self.document.last(name) else { return Ok(None) };
        let wrong = || Problem::at(member.line, format!("`{}` must be a string", member.name));
        let text = member.as_text().ok_or_else(wrong)?;
        Ok((!text.trim().is_empty()).then_some((member, text)))
    }

    fn default_vm_type(&mut self) -> Result<(), Problem> {
        let given = self.text(VM_TYPE)?.map_or_else(|| "standard".to_owned(), |(_, text)| text);
        self.set("the type of virtual machines is standard unless set otherwise", VM_TYPE, &given);
        Ok(())
    }

    fn set(&mut self, rule: &'static str, name: &'static str, value: &str) {
        let found: Vec<_> = self.document.named(name).map(Member::as_text).collect();
        if !found.is_empty() && found.iter().all(|text| text.as_deref() == Some(value)) {
            return;
        }
        let before = self.document.last(name).map(|member| member.as_text().unwrap_or_else(|| member.value.to_owned()));
        self.document.set(name, &json!(value));
        self.changes.push(Change { rule, key: name.to_owned(), before, after: Some(value.to_owned()) });
    }

    fn finish(mut self) -> Output {
        let mut text = self.document.write();
        if let Some(readable) = json::readable_as_yaml(&text) {
            text = readable;
            let rule = "the cloud-controller-manager reads the file as YAML, which lacks some of the escapes of JSON";
            self.changes.push(rewritten(rule, "escapes"));
        }
        Output { text, changes: self.changes, warnings: self.warnings }
    }
}

/// A change of notation only.
fn rewritten(rule: &'static str, key: &str) -> Change {
    Change { rule, key: key.to_owned(), before: None, after: None }
}

/// Warns about members that have no effect, and refuses values that the cloud-controller-manager would refuse.
fn checked(document: &Document<'_>) -> Result<Vec<Problem>, Problem> {
    let kinds: BTreeMap<_, _> = KEYS.azure.iter().map(|(known, kind)| (folded(known), *kind)).collect();
    let names: Vec<_> = document.members.iter().map(|member| folded(&member.name)).collect();
    let last: BTreeMap<_, _> = names.iter().enumerate().map(|(index, name)| (name, index)).collect();
    let (mut warnings, hints) = (Vec::new(), Hints::default());
    for (index, (member, folded)) in document.members.iter().zip(&names).enumerate() {
        let Member { name, line, .. } = member;
        let Some(kind) = kinds.get(folded) else {
            let hint = hints.of(name, KEYS.azure.keys());
            let what = if hint.is_empty() { "this name".to_owned() } else { format!("`{name}`") };
            warnings.push(Problem::at(*line, format!("{what} is unknown and has no effect{hint}")));
            continue;
        };
        if let Some(wanted) = mismatch(*kind, member.value) {
            return Err(Problem::at(*line, format!("`{name}` must be {wanted}")));
        }
        if last.get(folded) != Some(&index) {
            warnings.push(Problem::at(*line, format!("`{name}` is given again further down: the last one counts")));
        }
    }
    Ok(warnings)
}

/// Returns the required type if a value has another one. Null is always valid and means unset; the
/// cloud-controller-manager's YAML decoder converts numbers and booleans to strings.
fn mismatch(kind: Kind, value: &str) -> Option<&'static str> {
    let first = value.bytes().next();
    let (right, wanted) = match kind {
        Kind::Text | Kind::Word | Kind::Duration => (!matches!(first, Some(b'{' | b'[')), "a string"),
        Kind::Bool => (matches!(first, Some(b't' | b'f')), "true or false, without quotes"),
        Kind::Float | Kind::Int | Kind::Int32 | Kind::Uint => {
            (first.is_some_and(|first| first == b'-' || first.is_ascii_digit()), "a number, without quotes")
        }
        Kind::Map => (first == Some(b'{'), "an object"),
        Kind::List => (first == Some(b'['), "a list"),
    };
    (!right && value != "null").then_some(wanted)
}

#[cfg(test)]
mod tests;
