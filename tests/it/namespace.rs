//! Another namespace than the default one: the payload is rendered for it, and the operator works there.

use std::process::Command;

use anyhow::{Context, Result};
use ccm_operator::facts::DEFAULT_NAMESPACE;
use serde_json::json;

use crate::{
    contract::{cluster_on, images, plans_for},
    lab::{LIMIT, Lab, binary, describe, for_each},
    support::{audit::Request, eventually},
};

const OTHER: &str = "other-cloud-controller-manager";

#[tokio::test]
async fn everything_works_in_another_namespace() -> Result<()> {
    let payload = tempfile::tempdir()?;
    let mut render = Command::new(binary());
    render.args(["render", "payload", "--namespace", OTHER, "--dest-dir"]).arg(payload.path());
    let output = render.output()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let manifests = payload.path().join("manifests");
    assert!(manifests.join("image-references").is_file());

    let plans = plans_for(OTHER)?;
    for_each(["AWS", "Azure", "VSphere", "Nutanix"], async |name| {
        let mut lab = Lab::with_payload(&cluster_on(name)?, &manifests).await?;
        lab.finish_workloads();
        lab.write_images(&images())?;
        let mark = lab.mark().await?;
        let operator = lab.start_as("5a1ec0de-0000-4000-8000-000000000002", &["--namespace", OTHER])?;
        let cluster_operator = lab.converged(&operator).await.context(name)?;
        let related = cluster_operator["status"]["relatedObjects"].as_array().context("related objects")?;
        let namespace = json!({"group": "", "resource": "namespaces", "name": OTHER});
        assert!(related.contains(&namespace), "{related:#?}");
        let refused: Vec<_> = lab.requests(mark).await?.into_iter().filter(Request::is_refused).collect();
        let refused: Vec<_> = refused.iter().filter(|request| !request.is_lease()).map(describe).collect();
        assert_eq!(refused, Vec::<String>::new(), "{name}");

        // Deleted objects are recreated, there and in the cluster.
        let (_, plan) = plans.iter().find(|(other, _)| *other == name).context("a plan")?;
        for object in plan.objects() {
            assert_ne!(object.namespace(), DEFAULT_NAMESPACE, "{}", object.key());
            let deleted =
                lab.api(object).get(object.name()).await.with_context(|| format!("{name}: {}", object.key()))?;
            lab.api(object).delete(object.name(), &kube::api::DeleteParams::default()).await?;
            let recreated = eventually("the object to be recreated", LIMIT, async || {
                let live = lab.api(object).get(object.name()).await?;
                Ok((live.metadata.uid != deleted.metadata.uid).then_some(()))
            });
            recreated.await.with_context(|| format!("{name}: {}\n{}", object.key(), operator.log()))?;
        }
        Ok(())
    })
    .await
}
