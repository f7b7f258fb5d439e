//! The Go operator's Deployment with this program in place of its own: two containers side by side, each with a shell that
//! reads the address of the API server and then becomes the program.

use std::{fs, os::unix::fs::symlink, path::Path};

use anyhow::{Context, Result, ensure};

use crate::{
    contract::{images, statuses},
    lab::{Lab, binary, for_each},
    support::{lab::VERSION, openshift::Cluster, operator::Operator},
};

/// The arguments of both of its containers.
const LEADER_ELECTION: &str = "--leader-elect=true --leader-elect-lease-duration=137s --leader-elect-renew-deadline=107s \
    --leader-elect-retry-period=26s --leader-elect-resource-namespace=openshift-cloud-controller-manager-operator";

/// Starts one of its containers in a shell. What differs from a Pod are the paths, and ports that are free.
fn container(lab: &Lab, root: &Path, program: &str, arguments: &str) -> Result<Operator> {
    let script = format!(
        "set -o allexport\n\
         if [[ -f {root}/apiserver-url.env ]]; then source {root}/apiserver-url.env; fi\n\
         exec {root}/{program} {LEADER_ELECTION} {arguments} --health-addr=127.0.0.1:0 --system-trust-bundle={}\n",
        lab.system_bundle().display(),
        root = root.display(),
    );
    Operator::start(Path::new("/bin/bash"), lab.kubeconfig(), &["-c", &script], &[("RELEASE_VERSION", VERSION)])
}

#[tokio::test]
async fn the_go_operators_deployment_converges_on_every_platform() -> Result<()> {
    for_each(statuses(), async |(name, status)| {
        let lab = Lab::new(&Cluster::on(status)).await?;
        lab.write_images(&images())?;
        let root = tempfile::tempdir()?;
        let root = root.path();
        for program in ["cluster-controller-manager-operator", "config-sync-controllers"] {
            symlink(binary(), root.join(program))?;
        }
        let port = lab.plane.port();
        fs::write(
            root.join("apiserver-url.env"),
            format!("KUBERNETES_SERVICE_HOST='127.0.0.1'\nKUBERNETES_SERVICE_PORT='{port}'\n"),
        )?;
        let config_sync = container(&lab, root, "config-sync-controllers", "")?;
        let arguments = format!(
            "--images-json={} --webhook-port=9443 --metrics-bind-address=127.0.0.1:0 -v=2",
            lab.images_file().display()
        );
        let operator = container(&lab, root, "cluster-controller-manager-operator", &arguments)?;
        lab.converged(&operator).await.context(name)?;
        // The operator's process does not do the other's work.
        ensure!(!operator.log().contains("cloud-conf"), "{name}: {}", operator.log());
        ensure!(config_sync.log().contains("ConfigMap"), "{name}: {}", config_sync.log());
        Ok(())
    })
    .await
}
