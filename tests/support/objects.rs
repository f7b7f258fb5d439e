//! Writing to the cluster as its administrator does: server-side apply of whatever object a test gives, and of folders
//! of manifests as the cluster version operator installs them.
//!
//! Knows no particular object. Everything is applied under one field manager, so a field that a test leaves out the
//! next time goes away.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use kube::{
    Client,
    api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, TypeMeta},
};
use serde_json::Value;

/// The field manager of all that the fixture writes.
pub const FIELD_MANAGER: &str = "testplane";

/// Kinds of a release's manifests whose CRDs belong to other operators, or that only the release's payload holds.
const FOREIGN_KINDS: &[&str] =
    &["CredentialsRequest", "ImageStream", "PrometheusRule", "SecurityContextConstraints", "ServiceMonitor"];
const WORKLOAD_KINDS: &[&str] = &["CronJob", "DaemonSet", "Deployment", "Job", "Pod", "StatefulSet"];

/// Whether [`install_manifests`] installs what would run Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workloads {
    /// Everything, as in a cluster.
    Install,
    /// All but Deployments and the like: the test runs the operator itself.
    Skip,
}

/// Applies an object, taking over what others own of it. Unknown fields are errors.
pub async fn apply(client: &Client, object: Value) -> Result<DynamicObject> {
    let (api, name) = locate(client, &object)?;
    let params = PatchParams::apply(FIELD_MANAGER).force().validation_strict();
    api.patch(&name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("failed to apply {}", describe(&object)))
}

/// Applies the `status` of an existing object. Like all that is applied it is the whole of it: what an earlier call set
/// and this one leaves out is removed.
pub async fn apply_status(client: &Client, object: Value) -> Result<DynamicObject> {
    let (api, name) = locate(client, &object)?;
    let params = PatchParams::apply(FIELD_MANAGER).force().validation_strict();
    api.patch_status(&name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("failed to apply the status of {}", describe(&object)))
}

/// Deletes an object, named by its `apiVersion`, `kind` and `metadata`; one that is absent is fine.
pub async fn delete(client: &Client, object: &Value) -> Result<()> {
    let (api, name) = locate(client, object)?;
    match api.delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => result.map(drop).with_context(|| format!("failed to delete {}", describe(object))),
    }
}

/// Applies the YAML files of `folder` in the order of their names, as the cluster version operator does. Left out are
/// kinds that need another operator's CRDs.
pub async fn install_manifests(client: &Client, folder: &Path, workloads: Workloads) -> Result<()> {
    for object in read_folder(folder)? {
        let kind = object["kind"].as_str().unwrap_or_default();
        let skip = workloads == Workloads::Skip && WORKLOAD_KINDS.contains(&kind);
        if !skip && !FOREIGN_KINDS.contains(&kind) {
            apply(client, object).await?;
        }
    }
    Ok(())
}

fn read_folder(folder: &Path) -> Result<Vec<Value>> {
    let entries = fs::read_dir(folder).with_context(|| format!("failed to read the folder {}", folder.display()))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml" || extension == "yml"));
    files.sort();
    let mut objects = Vec::new();
    for file in files {
        objects.extend(read_yaml(&file)?);
    }
    Ok(objects)
}

/// The documents of a YAML file; empty ones are left out.
pub fn read_yaml(file: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    // Kubernetes reads 0644 as an octal number.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_multiple_with_options(&text, options)
        .with_context(|| format!("failed to parse {}", file.display()))
}

/// The API that serves the object, and its name there. A namespace in the metadata says that the kind has namespaces.
fn locate(client: &Client, object: &Value) -> Result<(Api<DynamicObject>, String)> {
    let types: TypeMeta = serde_json::from_value(object.clone()).context("an object needs apiVersion and kind")?;
    let kind = GroupVersionKind::try_from(&types)?;
    let resource = match plural(&kind.kind) {
        Some(plural) => ApiResource::from_gvk_with_plural(&kind, plural),
        None => ApiResource::from_gvk(&kind),
    };
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().with_context(|| format!("a {} has no name", kind.kind))?;
    let api = match metadata["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Ok((api, name.to_owned()))
}

/// Plurals that kube's rules for English get wrong.
fn plural(kind: &str) -> Option<&'static str> {
    (kind == "SecurityContextConstraints").then_some("securitycontextconstraints")
}

fn describe(object: &Value) -> String {
    let metadata = &object["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{} {namespace}/{}", text(&object["kind"]), text(&metadata["name"])),
        None => format!("{} {}", text(&object["kind"]), text(&metadata["name"])),
    }
}
