//! The programs accept the arguments of the flavour upstream, and every further flag that a provider allows.

use std::collections::BTreeMap;

use anyhow::Result;
use ccm_operator::{
    api::placement::Distribution,
    facts::{cluster::Cluster, manager::Manager},
    plan::Plan,
    provider::{
        Phase, embedded,
        upstream::{Descriptor, Upstream},
    },
};
use serde_json::json;

use super::{Programs, Start, starts_of_plan};

/// Everything that can be asked for.
fn manager(descriptor: &Descriptor) -> Result<Manager> {
    let value = |flag: &str| {
        let is_number = ["-burst", "-qps", "-syncs"].iter().any(|end| flag.ends_with(end));
        if is_number { "2" } else { "10s" }
    };
    let arguments: BTreeMap<_, _> = descriptor.allowed_arguments.iter().map(|flag| (flag, value(flag))).collect();
    let key = json!({"name": "a", "key": "b"});
    let mut spec = json!({
        "provider": descriptor.name,
        "arguments": arguments,
        "featureGates": {"CloudControllerManagerWebhook": false},
        "network": {"podCIDRs": ["10.244.0.0/16"]},
        "controllers": {"route": if descriptor.routes.is_some() { "Enabled" } else { "Disabled" }},
    });
    if descriptor.cloud_config.is_some() {
        spec["cloudConfig"] = json!({ "configMapRef": key });
    }
    if descriptor.credentials.is_some() {
        spec["credentials"] = json!({"secretRef": {"name": "a"}});
    }
    let cluster = Cluster {
        minor: "1.35".parse().map_err(anyhow::Error::msg)?,
        distribution: Distribution::Other,
        control_plane_nodes: 3,
    };
    Ok(Manager { name: "cluster".into(), spec: serde_json::from_value(spec)?, cluster, skips: Vec::new() })
}

fn starts(provider: &Upstream) -> Result<Vec<Start>> {
    let facts = manager(&provider.descriptor)?.facts();
    let plan = Plan::new(&embedded::catalog()?, &facts, Phase::Cluster)?;
    starts_of_plan(&plan, &format!("{}/upstream", provider.descriptor.name), true)
}

#[tokio::test]
async fn every_program_starts_with_the_arguments_of_its_flavour_upstream() -> Result<()> {
    let programs = Programs::new().await?;
    for provider in embedded::catalog()?.upstream() {
        let starts = starts(provider)?;
        assert_eq!(starts.len(), 1, "{}", provider.descriptor.name);
        programs.check_start(&starts[0]).await?;
        programs.check_version(&starts[0]).await?;
        let wrong = starts[0].with(&["--no-such-flag=1"]);
        assert!(programs.check_start(&wrong).await.is_err(), "{}", provider.descriptor.name);
    }
    Ok(())
}
