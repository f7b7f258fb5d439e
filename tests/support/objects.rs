//! Writes to the cluster as its administrator: server-side apply of any object, and of folders of manifests as the
//! cluster version operator installs them.
//!
//! Knows no particular object. Everything is applied with one field manager, so a field that a later apply omits is
//! removed.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use kube::{
    Client,
    api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams, TypeMeta},
};
use serde_json::Value;

/// The field manager of the fixture's writes.
pub const FIELD_MANAGER: &str = "testplane";

/// Kinds in a release's manifests whose CRDs belong to other operators, or that exist only in the release's payload.
const OTHER_KINDS: &[&str] =
    &["CredentialsRequest", "ImageStream", "PrometheusRule", "SecurityContextConstraints", "ServiceMonitor"];
const WORKLOAD_KINDS: &[&str] = &["CronJob", "DaemonSet", "Deployment", "Job", "Pod", "StatefulSet"];

/// Whether [`install_manifests`] installs workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workloads {
    /// Installs everything, as in a cluster.
    Install,
    /// Skips Deployments and the like: the test runs the operator itself.
    Skip,
}

/// Applies an object with force. Unknown fields are errors.
pub async fn apply(client: &Client, object: Value) -> Result<DynamicObject> {
    let (api, name) = locate(client, &object)?;
    let params = PatchParams::apply(FIELD_MANAGER).force().validation_strict();
    api.patch(&name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("failed to apply {}", describe(&object)))
}

/// Creates an object as this field manager.
pub async fn create_as(client: &Client, manager: &str, object: Value) -> Result<DynamicObject> {
    let (api, _) = locate(client, &object)?;
    let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
    let created = api.create(&params, &serde_json::from_value(object.clone())?).await;
    created.with_context(|| format!("failed to create {}", describe(&object)))
}

/// Applies the `status` of an existing object. Fields that an earlier call set and this one omits are removed.
pub async fn apply_status(client: &Client, object: Value) -> Result<DynamicObject> {
    apply_status_as(client, FIELD_MANAGER, object).await
}

/// Applies a status as another field manager.
pub async fn apply_status_as(client: &Client, manager: &str, object: Value) -> Result<DynamicObject> {
    let (api, name) = locate(client, &object)?;
    let params = PatchParams::apply(manager).force().validation_strict();
    api.patch_status(&name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("failed to apply the status of {}", describe(&object)))
}

/// Deletes the object with this `apiVersion`, `kind` and `metadata`, if it exists.
pub async fn delete(client: &Client, object: &Value) -> Result<()> {
    let (api, name) = locate(client, object)?;
    match api.delete(&name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => result.map(drop).with_context(|| format!("failed to delete {}", describe(object))),
    }
}

/// Applies the YAML files of `folder` in the order of their names, as the cluster version operator does, except kinds
/// that need another operator's CRDs.
pub async fn install_manifests(client: &Client, folder: &Path, workloads: Workloads) -> Result<()> {
    for object in read_folder(folder)? {
        let kind = object["kind"].as_str().unwrap_or_default();
        let skip = workloads == Workloads::Skip && WORKLOAD_KINDS.contains(&kind);
        if !skip && !OTHER_KINDS.contains(&kind) {
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

/// The documents of a YAML file, without empty ones.
pub fn read_yaml(file: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).with_context(|| format!("failed to read {}", file.display()))?;
    // Kubernetes reads 0644 as an octal number.
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    serde_saphyr::from_multiple_with_options(&text, options)
        .with_context(|| format!("failed to parse {}", file.display()))
}

/// The API that serves the object, and the object's name. A kind is namespaced if the metadata has a namespace.
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

/// Plurals that kube derives wrongly.
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
