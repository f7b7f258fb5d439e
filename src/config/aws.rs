//! The configuration of the AWS cloud-controller-manager (pure).

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::Facts;
use crate::{
    config::{
        Error, Output,
        ini_keys::{
            self,
            Kind::{Flag, List, OneOf, Text, Whole},
            Section,
        },
    },
    text::ini::Document,
};

const GLOBAL: &str = "Global";
const OVERRIDE: &str = "ServiceOverride";
const PROBE_MODE: &str = "ClusterServiceLoadBalancerHealthProbeMode";
const SECURITY_GROUPS: &str = "NLBSecurityGroupMode";

/// The feature gate by which load balancers get security groups of their own.
const SECURITY_GROUPS_GATE: &str = "AWSServiceLBNetworkSecurityGroup";

/// `CloudConfig` of k8s.io/cloud-provider-aws, `pkg/providers/v1/config/config.go`.
pub(super) const SECTIONS: [Section; 2] = [
    Section {
        name: GLOBAL,
        each: false,
        keys: &[
            ("Zone", Text),
            ("Region", Text),
            ("VPC", Text),
            ("SubnetID", Text),
            ("RouteTableID", Text),
            ("RoleARN", Text),
            ("SourceARN", Text),
            ("KubernetesClusterTag", Text),
            ("KubernetesClusterID", Text),
            ("DisableSecurityGroupIngress", Flag),
            ("ElbSecurityGroup", Text),
            ("NodeIPFamilies", List),
            (PROBE_MODE, OneOf(&["Shared", "ServiceNodePort"])),
            ("ClusterServiceSharedLoadBalancerHealthProbePort", Whole(i32::MIN as i128..=i32::MAX as i128)),
            ("ClusterServiceSharedLoadBalancerHealthProbePath", Text),
            ("SupportedTopologyInstanceTypePattern", Text),
            (SECURITY_GROUPS, OneOf(&["Managed"])),
        ],
    },
    Section {
        name: OVERRIDE,
        each: true,
        keys: &[
            ("Service", Text),
            ("Region", Text),
            ("URL", Text),
            ("SigningRegion", Text),
            ("SigningMethod", Text),
            ("SigningName", Text),
        ],
    },
];

/// What an override has to have.
const REQUIRED: [&str; 4] = ["Service", "Region", "URL", "SigningRegion"];

pub(super) fn transform(source: &str, facts: &Facts) -> Result<Output, Error> {
    let mut document = Document::parse(source)?;
    let managed = facts.has_feature_gate(SECURITY_GROUPS_GATE);
    let probe_mode_is_set = document.get(GLOBAL, PROBE_MODE).is_some_and(|found| found.entry.set().is_some());
    let warnings = ini_keys::check(&document, &SECTIONS, |section, key| {
        section == GLOBAL
            && key.is_some_and(|key| {
                (managed && key.eq_ignore_ascii_case(SECURITY_GROUPS))
                    || (!probe_mode_is_set && key.eq_ignore_ascii_case(PROBE_MODE))
            })
    })?;
    check_overrides(&document)?;
    document.set_unless_set(
        "health probes of load balancers are shared unless set otherwise",
        GLOBAL,
        PROBE_MODE,
        "Shared",
    );
    if managed {
        document.set(
            "the cluster's feature gate has the security groups of network load balancers managed",
            GLOBAL,
            SECURITY_GROUPS,
            "Managed",
        );
    }
    let (text, changes) = document.finish();
    Ok(Output { text, changes, warnings })
}

/// The cloud-controller-manager ends at once when an override is not whole, or there twice.
fn check_overrides(document: &Document) -> Result<(), Error> {
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
            let message = format!("the cloud-controller-manager refuses [{OVERRIDE} {sub:?}]: {what}");
            Error { line: Some(line), message }
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
