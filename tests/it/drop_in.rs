//! The Go operator's Deployment with this program in place of its own: two containers side by side, each with a shell that
//! reads the address of the API server and then becomes the program.

use std::{fs, os::unix::fs::symlink, path::Path};

use anyhow::{Context, Result, ensure};

use crate::{
    contract::{clusters, images},
    lab::{Lab, binary, for_each},
    support::{
        go_operator::{API_SERVER_ENV_FILE, CONFIG_SYNC, Container, OPERATOR, api_server_env},
        lab::VERSION,
        operator::Operator,
    },
};

/// Starts one of its containers in a shell. What differs from a Pod are the paths, and ports that are free.
fn start(lab: &Lab, root: &Path, container: &Container, others: &[String]) -> Result<Operator> {
    let everywhere =
        ["--health-addr=127.0.0.1:0".into(), format!("--system-trust-bundle={}", lab.system_bundle().display())];
    let script = container.script(&root.to_string_lossy(), &[&everywhere, others].concat());
    Operator::start(Path::new("/bin/bash"), lab.kubeconfig(), &["-c", &script], &[("RELEASE_VERSION", VERSION)])
}

#[tokio::test]
async fn the_go_operators_deployment_converges_on_every_platform() -> Result<()> {
    for_each(clusters(), async |(name, cluster)| {
        let lab = Lab::new(&cluster).await?;
        lab.write_images(&images())?;
        let root = tempfile::tempdir()?;
        let root = root.path();
        for Container { program, .. } in [OPERATOR, CONFIG_SYNC] {
            symlink(binary(), root.join(program))?;
        }
        fs::create_dir_all(root.join("etc/kubernetes"))?;
        fs::write(root.join(API_SERVER_ENV_FILE), api_server_env(lab.plane.port()))?;
        let config_sync = start(&lab, root, &CONFIG_SYNC, &[])?;
        let others = [
            format!("--images-json={}", lab.images_file().display()),
            "--metrics-bind-address=127.0.0.1:0".into(),
            "-v=2".into(),
        ];
        let operator = start(&lab, root, &OPERATOR, &others)?;
        lab.converged(&operator).await.context(name)?;
        // The operator's process does not do the other's work.
        ensure!(!operator.log().contains("cloud-conf"), "{name}: {}", operator.log());
        ensure!(config_sync.log().contains("ConfigMap"), "{name}: {}", config_sync.log());
        Ok(())
    })
    .await
}
