//! Permissions that are granted, and whether requests have used them.

use std::{collections::BTreeSet, fmt};

use anyhow::{Context, Result};
use serde_json::Value;

use super::audit::Request;

/// A permission: a verb on a resource, in a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeededPermission {
    pub role: String,
    pub namespace: String,
    pub group: String,
    pub resource: String,
    pub verb: String,
}

impl fmt::Display for NeededPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, namespace, group, resource, verb } = self;
        let group = if group.is_empty() { "core" } else { group };
        let place = if namespace.is_empty() { "cluster" } else { namespace };
        write!(f, "{verb:<8} {resource} ({group}), in {place}, by {role}")
    }
}

/// The permissions in the roles among these objects that no request has used, and the number of all permissions.
pub fn unused(objects: &[Value], requests: &[Request]) -> Result<(Vec<NeededPermission>, usize)> {
    let granted = granted(objects)?;
    let all = granted.len();
    let unused =
        granted.into_iter().filter(|permission| !requests.iter().any(|request| uses(permission, request))).collect();
    Ok((unused, all))
}

/// The permissions of the roles among these objects.
pub fn granted(objects: &[Value]) -> Result<BTreeSet<NeededPermission>> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(ToOwned::to_owned)).collect()
    };
    let mut permissions = BTreeSet::new();
    for role in objects.iter().filter(|object| object["rules"].is_array()) {
        let name = role["metadata"]["name"].as_str().context("a role without a name")?;
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    permissions.extend(texts(&rule["verbs"]).into_iter().map(|verb| NeededPermission {
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
    Ok(permissions)
}

fn uses(permission: &NeededPermission, request: &Request) -> bool {
    let resource = match request.subresource.as_str() {
        "" => request.resource.clone(),
        subresource => format!("{}/{subresource}", request.resource),
    };
    // A server-side apply that creates its object also needs `create`.
    let creates = permission.verb == "create" && request.verb == "patch" && request.code == 201;
    (permission.verb == request.verb || creates)
        && permission.group == request.group
        && permission.resource == resource
        && (permission.namespace.is_empty() || permission.namespace == request.namespace)
}
