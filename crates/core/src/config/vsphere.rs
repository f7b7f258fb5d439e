//! The configuration of the vSphere cloud-controller-manager, completed from the Infrastructure (pure).
//!
//! The Infrastructure owns `vcenter`, `nodes`, `global.ipFamily` and, with more than one failure domain, the `zone` and
//! `region` of `labels`. The text is edited where their values differ, and keeps every other byte. Then the result is
//! parsed again: it is an error if an anchor, a merge key or a rare layout changed the meaning of the edit.
//! Serialization would lose the comments of the document, and would change bare words such as `y` and `010` where the
//! cloud-controller-manager reads a string. The positions come from the parser that reads the document, because crates
//! for editing YAML use a parser of their own.

use std::{cell::LazyCell, collections::BTreeSet, net::IpAddr};

use serde_json::{Map, Value, json};

use crate::{
    config::{Change, Output, Problem},
    facts::{
        Facts,
        vsphere::{NodeNetwork, VSphere},
    },
    text::{
        Place,
        yaml::{
            self, Lines, edit,
            outline::{Outline, child, outline},
        },
    },
};

mod keys;
mod legacy;

/// The initial configuration of a cluster without one. The installer creates the Secret; without credentials the
/// cloud-controller-manager refuses its configuration.
pub(super) const MINIMAL: &str = "global:\n  secretName: vsphere-creds\n  secretNamespace: kube-system\nvcenter: {}\n";

/// An address that OVN-Kubernetes assigns on every node for internal use; it is never a node address.
const OVN_ADDRESS: &str = "fd69::2/128";

/// The keys that the Infrastructure owns, and the reasons.
const OWNED: &[(&[&str], &str)] = &[
    (&["global", "ipFamily"], "the address families of the service networks, in their order"),
    (&["nodes"], "the Infrastructure defines the networks of node addresses"),
    (&["vcenter"], "the Infrastructure lists the vCenters and their datacenters"),
    (&["labels", "zone"], "there is more than one failure domain"),
    (&["labels", "region"], "there is more than one failure domain"),
];

pub(super) fn transform(source: &str, facts: &Facts) -> Result<Output, Problem> {
    let mut output = Output { text: source.to_owned(), ..Output::default() };
    let (before, places) = match read(source) {
        Err(_) if legacy::is_ini(source) => {
            output = legacy::convert(source)?;
            (read(&output.text)?.0, None)
        }
        read => read.map(|(document, outline)| (document, Some(outline)))?,
    };
    if let Some(outline) = &places {
        let next = outline.next.map(|line| Problem::at(line, "another document begins here: only the first is read"));
        output.warnings.extend(next);
        output.warnings.extend(keys::ignored(&outline.root));
    }
    let wanted = facts.vsphere.as_ref().map_or_else(|| before.clone(), |spec| completed(&before, spec, facts));
    let lines = LazyCell::new(|| places.as_ref().map(|outline| Lines::of_root(&outline.root)).unwrap_or_default());
    let place = |path: &[&str]| {
        places.as_ref()?.root.member(path.first()?)?;
        let pointer = path.iter().fold(String::new(), |pointer, key| child(&pointer, key));
        Some(Place::line(lines.of(&pointer)))
    };
    output.warnings.extend(keys::types(&wanted, place)?);
    if let Some((path, message)) = keys::missing(&wanted) {
        let place = place(&path);
        if facts.vsphere.is_none() {
            return Err(Problem { place, message });
        }
        // Only the Infrastructure can fix it, and the configuration follows the Infrastructure even if that leaves no vCenter.
        let message = format!("{message}; until then the cloud-controller-manager does not start");
        output.warnings.push(Problem { place, message });
    }
    write(&before, &wanted, &mut output)?;
    output.warnings.sort_by_key(|warning| warning.place);
    Ok(output)
}

/// The first document, the only one that the cloud-controller-manager reads, and the positions of its values.
fn read(text: &str) -> Result<(Value, Outline), Problem> {
    let Some(outline) = outline(text).map_err(without_values)? else {
        return Err(Problem::new("the configuration is empty: it needs at least a `vcenter` and its credentials"));
    };
    let document: Value = yaml::from_str(&text[..outline.end]).map_err(without_values)?;
    if !document.is_object() {
        let message = "neither a YAML mapping nor an INI that begins with a section: write `global:` and `vcenter:`";
        return Err(Problem::new(message));
    }
    Ok((document, outline))
}

/// Drops the library's advice, which is for programmers, and the key or value after a colon, which may be a secret.
fn without_values(mut error: yaml::Error) -> Problem {
    for end in [", set ", "; use ", ": "] {
        let end = error.message.find(end);
        error.message.truncate(end.unwrap_or(error.message.len()));
    }
    error
}

/// The desired document. A block with the same meaning is kept.
fn completed(before: &Value, spec: &VSphere, facts: &Facts) -> Value {
    let mut wanted = before.clone();
    if let Some(families) = families(&facts.service_networks) {
        set(&mut wanted, "global", "ipFamily", families);
    }
    for (key, value) in [("nodes", nodes(spec, facts)), ("vcenter", vcenters(spec))] {
        if effective(&before[key]) != effective(&value) {
            wanted[key] = value;
        }
    }
    if spec.failure_domains.len() > 1 {
        set(&mut wanted, "labels", "zone", "openshift-zone".into());
        set(&mut wanted, "labels", "region", "openshift-region".into());
    }
    wanted
}

/// Sets a key of a section. A section of the wrong type is refused later.
fn set(document: &mut Value, section: &str, key: &str, value: Value) {
    if document[section].is_null() || document[section].is_object() {
        document[section][key] = value;
    }
}

/// Returns a value without the members that are equivalent to unset ones.
fn effective(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().map(|(key, value)| (key.clone(), effective(value)));
            let members: Map<String, Value> = members.filter(|(_, value)| !value.is_null()).collect();
            if members.is_empty() { Value::Null } else { members.into() }
        }
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::String(text) if text.is_empty() => Value::Null,
        Value::Bool(false) => Value::Null,
        Value::Number(number) if number.as_u64() == Some(0) => Value::Null,
        other => other.clone(),
    }
}

/// Returns the IP families, unless they are the default; a cluster has at most two.
fn families(service_networks: &[String]) -> Option<Value> {
    match service_networks {
        [one] if is_ipv6(one) => Some(json!(["ipv6"])),
        [first, _] if is_ipv6(first) => Some(json!(["ipv6", "ipv4"])),
        [_, _] => Some(json!(["ipv4", "ipv6"])),
        _ => None,
    }
}

fn is_ipv6(network: &str) -> bool {
    let address = network.split_once('/').map_or(network, |(address, _)| address);
    address.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_ipv6())
}

fn nodes(spec: &VSphere, facts: &Facts) -> Value {
    let mut reserved = Vec::new();
    if facts.service_networks.iter().any(|network| is_ipv6(network)) {
        let addresses = facts.vips.iter().filter_map(|vip| vip.parse::<IpAddr>().ok());
        reserved.extend(addresses.map(|address| format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 })));
        reserved.push(OVN_ADDRESS.to_owned());
    }
    let excluded = |network: &NodeNetwork| {
        let mut excluded = network.exclude_network_subnet_cidr.clone();
        for subnet in &reserved {
            if !excluded.contains(subnet) {
                excluded.push(subnet.clone());
            }
        }
        excluded.join(",")
    };
    let networking = &spec.node_networking;
    let (internal, external) = (&networking.internal, &networking.external);
    let members = [
        ("internalVmNetworkName", internal.network.clone()),
        ("internalNetworkSubnetCidr", internal.network_subnet_cidr.join(",")),
        ("excludeInternalNetworkSubnetCidr", excluded(internal)),
        ("externalVmNetworkName", external.network.clone()),
        ("externalNetworkSubnetCidr", external.network_subnet_cidr.join(",")),
        ("excludeExternalNetworkSubnetCidr", excluded(external)),
    ];
    let members = members.into_iter().filter(|(_, value)| !value.is_empty());
    members.map(|(key, value)| (key.to_owned(), value.into())).collect::<Map<String, Value>>().into()
}

fn vcenters(spec: &VSphere) -> Value {
    let mut vcenters = Map::new();
    let listed = spec.vcenters.iter().map(|vcenter| (&vcenter.server, vcenter.port, vcenter.datacenters.as_slice()));
    let domains = spec.failure_domains.iter();
    let placed = domains.map(|domain| (&domain.server, 0, std::slice::from_ref(&domain.topology.datacenter)));
    for (server, port, datacenters) in listed.chain(placed).filter(|(server, ..)| !server.is_empty()) {
        let vcenter = vcenters.entry(server.as_str()).or_insert_with(|| json!({ "server": server }));
        if port != 0 {
            vcenter["port"] = port.into();
        }
        for datacenter in datacenters.iter().filter(|datacenter| !datacenter.is_empty()) {
            match vcenter["datacenters"].as_array_mut() {
                Some(known) if known.iter().any(|known| known == datacenter) => {}
                Some(known) => known.push(datacenter.as_str().into()),
                None => vcenter["datacenters"] = json!([datacenter]),
            }
        }
    }
    vcenters.into()
}

/// Edits the text to match the desired document, and records the changes.
fn write(before: &Value, wanted: &Value, output: &mut Output) -> Result<(), Problem> {
    if before == wanted {
        return Ok(());
    }
    let at = |document, path: &[&str]| path.iter().fold(document, |value: &Value, key| &value[*key]).clone();
    let mut text = Some(output.text.clone());
    for (path, rule) in OWNED {
        let (before, wanted) = (at(before, path), at(wanted, path));
        if before != wanted {
            text = text.and_then(|text| edit::set(&text, path, &wanted));
            differences(rule, path, &effective(&before), &effective(&wanted), &mut output.changes);
        }
    }
    let is_right = |text: &String| read(text).is_ok_and(|(document, _)| document == *wanted);
    output.text = text.filter(is_right).ok_or_else(|| {
        Problem::new(
            "`global`, `vcenter`, `nodes` and `labels` cannot be completed in this layout: write one key a line, \
             without `?`, tags, and anchors that are used elsewhere",
        )
    })?;
    Ok(())
}

/// Records one change for each value that differs.
fn differences(rule: &'static str, path: &[&str], before: &Value, after: &Value, changes: &mut Vec<Change>) {
    if before == after {
        return;
    }
    let (old, new) = (before.as_object(), after.as_object());
    if old.is_none() && new.is_none() {
        let show = |value: &Value| match value {
            Value::Null => None,
            _ if !keys::is_public(path[0], path[path.len() - 1]) => Some("(not shown)".to_owned()),
            Value::String(text) => Some(text.clone()),
            Value::Array(items) => {
                let items = items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
                Some(items.collect::<Vec<_>>().join(","))
            }
            other => Some(other.to_string()),
        };
        changes.push(Change { rule, key: path.join("."), before: show(before), after: show(after) });
        return;
    }
    let keys: BTreeSet<&str> = old.into_iter().chain(new).flat_map(Map::keys).map(String::as_str).collect();
    for key in keys {
        differences(rule, &[path, &[key]].concat(), &before[key], &after[key], changes);
    }
}

#[cfg(test)]
mod tests;
