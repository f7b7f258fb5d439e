//! The programs of the bootstrap pods get past their flags and the files that `render` writes.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{Programs, starts};
use crate::{
    contract,
    lab::binary,
    support::{pool, process},
};

/// The files that `render` writes for a cluster, with this cloud configuration or without one.
fn rendered(platform: &str, config: Option<&str>, folder: &Path) -> Result<PathBuf> {
    let vcenters = json!({"vcenters": [{"server": "vcenter.invalid", "datacenters": ["dc"]}]});
    let mut spec = json!({"platformSpec": {"type": platform, "vsphere": vcenters}});
    if config.is_some() {
        spec["cloudConfig"] = json!({"name": "config", "key": "config"});
    }
    let status = json!({"platformStatus": {"type": platform}, "infrastructureName": "lab"});
    let infrastructure =
        json!({"kind": "Infrastructure", "metadata": {"name": "cluster"}, "spec": spec, "status": status});
    let images = json!({"kind": "ConfigMap", "data": {"images.json": contract::images()}});
    let config =
        json!({"kind": "ConfigMap", "metadata": {"name": "config"}, "data": {"config": config.unwrap_or_default()}});
    let mut command = Command::new(binary());
    command.arg("render").arg("--dest-dir").arg(folder);
    for (flag, object) in
        [("--cluster-infrastructure-file", infrastructure), ("--images-file", images), ("--cloud-config-file", config)]
    {
        let file = folder.join(flag.trim_start_matches('-'));
        fs::write(&file, object.to_string())?;
        command.arg(flag).arg(file);
    }
    let output = command.output()?;
    ensure!(output.status.success(), "{platform}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(folder.join("config/cloud.conf"))
}

/// The programs of the bootstrap pods read their flags and the configuration that `render` wrote, up to the first step that
/// needs the cloud. What each says there was seen in its log; it says none of it without the file.
#[tokio::test]
async fn every_bootstrap_pod_reads_what_render_wrote() -> Result<()> {
    // Without a subscription it ends before it would send a request.
    const AZURE: &str = r#"{"tenantId": "t", "resourceGroup": "r", "location": "l"}"#;
    let plane = pool::lease().await?;
    let programs = Programs::new().await?;
    for (platform, config, reached) in [
        ("AWS", "[Global]\nZone = eu-north-1a\n", "AWS_EC2_METADATA_DISABLED"),
        ("Azure", AZURE, "Azure cloud provider is starting without credentials"),
        ("AzureStackHub", AZURE, "Azure cloud provider is starting without credentials"),
        (
            "OpenStack",
            "[Global]\nauth-url = http://127.0.0.1:1\nusername = a\n",
            "could not init cloud provider \"openstack\": ",
        ),
        (
            "VSphere",
            "global: {user: a, password: b}\nvcenter: {vcenter.invalid: {server: vcenter.invalid, datacenters: [dc]}}\n",
            "Config initialized",
        ),
    ] {
        let starts: Vec<_> = starts()?.into_iter().filter(|start| start.container.starts_with("Pod/")).collect();
        let start = starts.iter().find(|start| start.platform == platform).context(platform)?;
        for config in [None, Some(config)] {
            let folder = process::temp_dir()?;
            let file = rendered(if platform == "AzureStackHub" { "Azure" } else { platform }, config, folder.path())?;
            let (success, said) = programs.end_of(start, &file, &plane.kubeconfig_admin(), reached).await?;
            ensure!(!success && said.contains(reached), "{platform}, {config:?}: ended with:\n{said}");
            let (_, said) =
                programs.end_of(start, &file.with_file_name("none"), &plane.kubeconfig_admin(), reached).await?;
            ensure!(!said.contains(reached), "{platform}: passes without a configuration:\n{said}");
        }
    }
    Ok(())
}
