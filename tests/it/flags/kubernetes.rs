//! The programs accept the arguments of the flavor kubernetes, and every further flag that a provider allows.

use std::collections::BTreeMap;

use anyhow::Result;
use ccm_operator::{
    api::placement::Distribution,
    facts::{ccm::Ccm, cluster::Cluster},
    plan::{
        Plan,
        kubernetes::{flags, trial::Trial},
    },
    provider::{
        embedded,
        kubernetes::{Descriptor, KubernetesProvider},
    },
};
use serde_json::json;

use super::{Programs, Start, built_as, real, starts_of_plan};
use crate::support::kubernetes::asking_for;

/// Everything that can be asked for.
fn ccm(descriptor: &Descriptor) -> Result<Ccm> {
    // One of two flags that exclude each other.
    let excluded = ["--vpc-ids", "--subnet-ids", "--nodebalancer-backend-ipv4-subnet-id"];
    let allowed = descriptor.allowed_arguments.iter().filter(|flag| !excluded.contains(&flag.as_str()));
    let value = |flag: &str| flags::example(&descriptor.name, flag).unwrap_or("any");
    let arguments: BTreeMap<_, _> = allowed.map(|flag| (flag, value(flag))).collect();
    let mut spec = asking_for(descriptor);
    spec["arguments"] = json!(arguments);
    spec["featureGates"] = json!({"CloudControllerManagerWebhook": false});
    let cluster = Cluster {
        minor: "1.35".parse().map_err(anyhow::Error::msg)?,
        distribution: Distribution::Other,
        control_plane_nodes: 3,
    };
    Ok(Ccm { name: "cluster".into(), spec: serde_json::from_value(spec)?, cluster, skips: Vec::new() })
}

fn starts(provider: &KubernetesProvider) -> Result<Vec<Start>> {
    let plan = Plan::of_ccm(&embedded::catalog()?, &ccm(&provider.descriptor)?)?;
    let name = &provider.descriptor.name;
    let mut starts = starts_of_plan(&plan, &format!("{name}/kubernetes"), true)?;
    for start in &mut starts {
        start.program = built_as(name, &start.program);
    }
    Ok(starts)
}

#[tokio::test]
async fn every_program_starts_with_the_arguments_of_its_flavor_kubernetes() -> Result<()> {
    let programs = Programs::new().await?;
    for provider in embedded::catalog()?.kubernetes() {
        let starts = starts(provider)?;
        assert_eq!(starts.len(), provider.descriptor.images.len(), "{}", provider.descriptor.name);
        for start in starts {
            let start = programs.without_own_flags(&start).await?;
            programs.check_start(&start).await?;
            programs.check_version(&start).await?;
            let wrong = start.with(&["--no-such-flag=1"]);
            assert!(programs.check_start(&wrong).await.is_err(), "{}", provider.descriptor.name);
            let misspelt = start.with(&["--cluster-cidrs=10.244.0.0/16"]);
            let is_built = real(programs.folder, &start.program)?.is_file();
            assert!(is_built || programs.without_own_flags(&misspelt).await.is_err(), "{}", provider.descriptor.name);
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_program_starts_without_any_controller_for_a_test() -> Result<()> {
    let programs = Programs::new().await?;
    for provider in embedded::catalog()?.kubernetes() {
        let name = &provider.descriptor.name;
        let trial = Trial {
            name: "ccm-test-abcde",
            port: 12_345,
            initializes: false,
            has_config: provider.descriptor.cloud_config.is_some(),
            has_credentials: provider.descriptor.credentials.is_some(),
            api_server: None,
            cluster: ccm(&provider.descriptor)?.cluster,
        };
        let objects = trial.objects(provider, &trial.ccm(provider)?)?;
        let plan = Plan::Objects { provider: name.clone(), objects };
        for mut start in starts_of_plan(&plan, &format!("{name}/test"), true)? {
            start.program = built_as(name, &start.program);
            let start = programs.without_own_flags(&start).await?;
            programs.check_start(&start).await?;
            // It is no way to say that none runs.
            assert!(programs.check_start(&start.with(&["--controllers=-*"])).await.is_err(), "{name}");
        }
    }
    Ok(())
}
