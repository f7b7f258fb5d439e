//! `make rbac`: prints the rights that the operator's Roles and `ClusterRole` in `manifests/` grant and that no request in
//! the audit logs of the tests has used. A right that stays has a comment in the manifest that says why.
#![allow(clippy::print_stdout, reason = "a program for people")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{collections::BTreeSet, env, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use support::{
    audit::{self, AuditLog, Request},
    objects,
};

const OPERATOR: &str =
    "system:serviceaccount:openshift-cloud-controller-manager-operator:cluster-cloud-controller-manager";
const MANIFEST: &str = "manifests/0000_26_cloud-controller-manager-operator_02_rbac_operator.yaml";

/// One right: a verb on a resource, in a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    role: String,
    namespace: String,
    group: String,
    resource: String,
    verb: String,
}

fn main() -> Result<()> {
    let logs: Vec<_> = env::args_os().skip(1).collect();
    ensure!(!logs.is_empty(), "usage: rbac AUDIT-LOG...");
    let mut requests = Vec::new();
    for log in logs {
        let log = AuditLog::new(log.into());
        requests.extend(audit::by_user(log.all()?, OPERATOR));
    }
    let granted = rights(&Path::new(env!("CARGO_MANIFEST_DIR")).join(MANIFEST))?;
    let unused: Vec<_> = granted.iter().filter(|right| !requests.iter().any(|request| uses(right, request))).collect();
    println!("{} requests of the operator; {} of {} rights are unused", requests.len(), unused.len(), granted.len());
    for Right { role, namespace, group, resource, verb } in unused {
        let group = if group.is_empty() { "core" } else { group };
        let place = if namespace.is_empty() { "cluster" } else { namespace };
        println!("  {verb:<8} {resource} ({group}), in {place}, by {role}");
    }
    Ok(())
}

fn rights(manifest: &Path) -> Result<BTreeSet<Right>> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(ToOwned::to_owned)).collect()
    };
    let mut rights = BTreeSet::new();
    for role in objects::read_yaml(manifest)?.iter().filter(|object| object["rules"].is_array()) {
        let name = role["metadata"]["name"].as_str().context("a role without a name")?;
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    rights.extend(texts(&rule["verbs"]).into_iter().map(|verb| Right {
                        role: name.to_owned(),
                        namespace: namespace.to_owned(),
                        group: group.clone(),
                        resource: resource.clone(),
                        verb,
                    }));
                }
            }
        }
    }
    Ok(rights)
}

fn uses(right: &Right, request: &Request) -> bool {
    let resource = match request.subresource.as_str() {
        "" => request.resource.clone(),
        subresource => format!("{}/{subresource}", request.resource),
    };
    // A server-side apply that creates its object needs `create` as well.
    let creates = right.verb == "create" && request.verb == "patch" && request.code == 201;
    (right.verb == request.verb || creates)
        && right.group == request.group
        && right.resource == resource
        && (right.namespace.is_empty() || right.namespace == request.namespace)
}
