//! The configuration of the AWS cloud-controller-manager (pure).

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    config::{Output, Problem, ini_keys, keys::KEYS},
    facts::Facts,
    text::ini::{Document, Placed},
};

const GLOBAL: &str = "Global";
const OVERRIDE: &str = "ServiceOverride";
const PROBE_MODE: &str = "ClusterServiceLoadBalancerHealthProbeMode";
const SECURITY_GROUPS: &str = "NLBSecurityGroupMode";

/// The feature gate that gives load balancers security groups of their own.
const SECURITY_GROUPS_GATE: &str = "AWSServiceLBNetworkSecurityGroup";

/// The valid values of keys. Any other value fails later, when it is used.
const VALUES: [(&str, &[&str]); 2] = [(PROBE_MODE, &["Shared", "ServiceNodePort"]), (SECURITY_GROUPS, &["Managed"])];

/// The required keys of an override.
const REQUIRED: [&str; 4] = ["Service", "Region", "URL", "SigningRegion"];

pub(super) fn transform(source: &str, facts: &Facts) -> Result<Output, Problem> {
    let mut document = Document::parse(source)?;
    let managed = facts.has_feature_gate(SECURITY_GROUPS_GATE);
    let probe_mode_is_set = document.get(GLOBAL, PROBE_MODE).is_some_and(|found| found.entry.set().is_some());
    let is_set_below = |section: &str, key: &str| {
        section == GLOBAL
            && ((managed && key.eq_ignore_ascii_case(SECURITY_GROUPS))
                || (!probe_mode_is_set && key.eq_ignore_ascii_case(PROBE_MODE)))
    };
    let mut warnings =
        ini_keys::check(&document, &KEYS.aws, |section, key| key.is_some_and(|key| is_set_below(section, key)))?;
    let kept = document.entries().filter(|placed| placed.header.is(GLOBAL) && !is_set_below(GLOBAL, &placed.entry.key));
    warnings.extend(kept.filter_map(useless_value));
    warnings.sort_by_key(|warning| warning.place);
    check_overrides(&document)?;
    document.set_unless_set(
        "health probes of load balancers are shared unless set otherwise",
        GLOBAL,
        PROBE_MODE,
        "Shared",
    );
    if managed {
        document.set(
            "a feature gate enables managed security groups for network load balancers",
            GLOBAL,
            SECURITY_GROUPS,
            "Managed",
        );
    }
    let (text, changes) = document.finish();
    Ok(Output { text, changes, warnings })
}

fn useless_value(Placed { line, entry, .. }: Placed<'_>) -> Option<Problem> {
    let (key, valid) = VALUES.iter().find(|(key, _)| key.eq_ignore_ascii_case(&entry.key))?;
    if valid.contains(&entry.set()?) {
        return None;
    }
    let valid: Vec<_> = valid.iter().map(|valid| format!("`{valid}`")).collect();
    Some(Problem::at(line, format!("[{GLOBAL}] {key} takes {} only, spelled like this", valid.join(" or "))))
}

/// The cloud-controller-manager exits if an override is incomplete or repeated.
fn check_overrides(document: &Document) -> Result<(), Problem> {
    let mut overrides: BTreeMap<&str, (usize, BTreeMap<String, &str>)> = BTreeMap::new();
    for (line, header) in document.headers().filter(|(_, header)| header.name.eq_ignore_ascii_case(OVERRIDE)) {
        overrides.entry(&header.sub).or_insert((line, BTreeMap::new()));
    }
    for placed in document.entries().filter(|placed| placed.header.name.eq_ignore_ascii_case(OVERRIDE)) {
        if let Some((_, keys)) = overrides.get_mut(placed.header.sub.as_str()) {
            keys.insert(placed.entry.key.to_lowercase(), placed.entry.set().map_or("", str::trim));
        }
    }
    let mut seen = BTreeSet::new();
    for (sub, (line, keys)) in overrides {
        let value = |key: &str| keys.get(&key.to_lowercase()).copied().unwrap_or_default();
        let refused = |what: String| {
            Problem::at(line, format!("the cloud-controller-manager refuses [{OVERRIDE} {sub:?}]: {what}"))
        };
        if let Some(missing) = REQUIRED.iter().find(|key| value(key).is_empty()) {
            return Err(refused(format!("give {missing} a value")));
        }
        if !seen.insert((value("Service"), value("Region"))) {
            return Err(refused("its Service and Region are those of another override; remove one".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
