//! Going back to the Go operator: it can write over our objects.

use anyhow::{Context, Result};
use ccm_operator::cluster::request;
use kube::api::{DynamicObject, PostParams};
use serde_json::json;

use crate::{
    contract::{cluster_on, images, plans},
    lab::{LIMIT, Lab, PREDECESSOR, for_each},
    support::eventually,
};

#[tokio::test]
async fn a_plain_update_of_every_object_is_taken_after_ours() -> Result<()> {
    let plans = plans()?;
    for_each(["AWS", "Azure"], async |name| {
        let lab = Lab::new(&cluster_on(name)?).await?;
        lab.write_images(&images())?;
        let operator = lab.start()?;
        lab.converged(&operator).await?;
        operator.terminate()?;
        operator.wait(LIMIT).await?;
        let (_, plan) = plans.iter().find(|(other, _)| *other == name).context("a plan")?;
        for object in plan.objects() {
            let api = request::api(&lab.client, object.kind(), object.namespace());
            let params = PostParams { field_manager: Some(PREDECESSOR.into()), ..PostParams::default() };
            // The stand-in for the workload controllers may write at the same time.
            let updated = eventually("the plain update", LIMIT, async || {
                let live = api.get(object.name()).await?;
                assert_eq!(live.metadata.finalizers, None, "{}", object.key());
                assert_eq!(live.metadata.owner_references, None, "{}", object.key());
                // As the Go operator writes: its whole specification, over the live one.
                let mut value = object.value().clone();
                value["metadata"]["resourceVersion"] = json!(live.metadata.resource_version);
                value["metadata"]["annotations"]["operator.openshift.io/spec-hash"] = json!("0123");
                if object.kind().kind == "Deployment" {
                    value["spec"]["template"]["spec"]["containers"][0]["command"] =
                        json!(["/bin/bash", "-c", "exec x"]);
                }
                let written: DynamicObject = serde_json::from_value(value)?;
                Ok(Some(api.replace(object.name(), &params, &written).await?))
            })
            .await
            .with_context(|| object.key().to_string())?;
            assert_eq!(updated.metadata.annotations.unwrap_or_default()["operator.openshift.io/spec-hash"], "0123");
        }
        Ok(())
    })
    .await
}
