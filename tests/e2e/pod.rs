//! A container of a Pod as `docker run`: what a kubelet makes of its manifest, as far as the image has a part in it.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Capabilities, Container, EnvVar, PodSpec, SecurityContext};

/// The arguments of `docker run`, the image included, for a container of the Pod. `volumes` are folders and files of this host
/// in place of the Pod's volumes.
pub(crate) fn arguments(
    image: &str,
    spec: &PodSpec,
    container: &Container,
    volumes: &[(&str, &Path)],
) -> Result<Vec<String>> {
    let network = if spec.host_network == Some(true) { "host" } else { "none" };
    let mut all = vec![format!("--network={network}")];
    for EnvVar { name, value, value_from } in container.env.iter().flatten() {
        let field = value_from.as_ref().and_then(|from| from.field_ref.as_ref()).map(|field| field.field_path.as_str());
        match (value, field) {
            (Some(value), _) => all.push(format!("--env={name}={value}")),
            (None, Some("metadata.uid")) => all.push(format!("--env={name}={}", crate::support::lab::POD_UID)),
            (None, other) => bail!("{name}: {other:?} is not known here"),
        }
    }
    for mount in container.volume_mounts.iter().flatten() {
        let source = volumes.iter().find(|(name, _)| *name == mount.name);
        let (_, source) = source.with_context(|| format!("the test has no volume {}", mount.name))?;
        let mode = if mount.read_only == Some(true) { "ro" } else { "rw" };
        all.push(format!("--volume={}:{}:{mode}", source.display(), mount.mount_path));
    }
    all.extend(security(spec, container)?);
    let mut command = container.command.iter().flatten().chain(container.args.iter().flatten()).cloned();
    all.push(format!("--entrypoint={}", command.next().context("the container has no command")?));
    all.push(image.to_owned());
    all.extend(command);
    Ok(all)
}

/// The user, the permissions and the file system.
fn security(spec: &PodSpec, container: &Container) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let pod = spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    if let Some(user) = own.run_as_user.or(pod.run_as_user) {
        let group = own.run_as_group.or(pod.run_as_group).unwrap_or_default();
        ensure!(user != 0 || pod.run_as_non_root != Some(true), "runAsNonRoot and runAsUser 0");
        all.push(format!("--user={user}:{group}"));
    }
    let SecurityContext { read_only_root_filesystem, allow_privilege_escalation, capabilities, .. } = own;
    if read_only_root_filesystem == Some(true) {
        all.push("--read-only".into());
    }
    if allow_privilege_escalation == Some(false) {
        all.push("--security-opt=no-new-privileges".into());
    }
    let Capabilities { drop, add } = capabilities.unwrap_or_default();
    all.extend(drop.iter().flatten().map(|name| format!("--cap-drop={name}")));
    all.extend(add.iter().flatten().map(|name| format!("--cap-add={name}")));
    Ok(all)
}
