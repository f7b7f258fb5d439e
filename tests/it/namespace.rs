//! Another namespace than the default one: the payload is rendered for it, and everything works there.

use std::process::Command;

use anyhow::{Context, Result};
use ccm_operator::cluster::request;
use ccm_operator::facts::DEFAULT_NAMESPACE;
use serde_json::json;

use crate::{
    contract::{images, plans_for, statuses},
    lab::{LIMIT, Lab, binary, describe},
    support::openshift::Cluster,
};

const OTHER: &str = "other-cloud-controller-manager";

#[tokio::test]
async fn everything_works_in_another_namespace() -> Result<()> {
    let payload = tempfile::tempdir()?;
    let mut render = Command::new(binary());
    render.args(["render", "--phase", "install", "--namespace", OTHER, "--dest-dir"]).arg(payload.path());
    let output = render.output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let manifests = payload.path().join("manifests");
    assert!(manifests.join("image-references").is_file());

    let plans = plans_for(OTHER)?;
    for name in ["AWS", "Azure", "VSphere", "Nutanix"] {
        let (_, status) = statuses().find(|(other, _)| *other == name).context("a status")?;
        let mut lab = Lab::with_payload(&Cluster::on(status), &manifests).await?;
        lab.finish_workloads();
        lab.write_images(&images())?;
        let mark = lab.mark().await?;
        let operator = lab.start_as("5a1ec0de-0000-4000-8000-000000000002", &["--namespace", OTHER])?;
        let cluster_operator = lab.converged(&operator).await.context(name)?;
        let related = cluster_operator["status"]["relatedObjects"].as_array().context("related objects")?;
        let namespace = json!({"group": "", "resource": "namespaces", "name": OTHER});
        assert!(related.contains(&namespace), "{related:#?}");
        let refused: Vec<_> = lab.requests(mark)?.into_iter().filter(|request| request.code >= 400).collect();
        let refused: Vec<_> = refused.iter().filter(|request| !request.is_lease()).map(describe).collect();
        assert_eq!(refused, Vec::<String>::new(), "{name}");

        // What is deleted while it runs comes back.
        operator.terminate()?;
        operator.wait(LIMIT).await?;
        let (_, plan) = plans.iter().find(|(other, _)| *other == name).context("a plan")?;
        for object in plan.objects() {
            assert_ne!(object.namespace(), DEFAULT_NAMESPACE, "{}", object.key());
            let api = request::api(&lab.client, object.kind(), object.namespace());
            assert!(api.get_opt(object.name()).await?.is_some(), "{name}: {}", object.key());
            api.delete(object.name(), &kube::api::DeleteParams::default()).await?;
        }
    }
    Ok(())
}
