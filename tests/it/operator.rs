//! The operator's main job: from an empty cluster to converged, and its number of requests.

use anyhow::{Result, ensure};
use ccm_operator::status::cluster_operator::CONDITIONS;
use serde_json::{Value, json};

use crate::{
    lab::{IMAGE, LIMIT, Lab, VERSION, aws_manifests, conditions, describe, message},
    support::{
        control_plane::streams_lists,
        eventually,
        faults::{Fault, Faults, Rule},
        openshift::{self, Cluster, Topology},
    },
};

/// The configuration, the certificates and the inventory.
const CONFIG_MAPS: usize = 3;

/// The largest number of requests from start to converged.
const REQUESTS: usize = 30;

#[tokio::test]
async fn converges_with_one_write_for_each_object() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let mark = lab.mark().await?;
    let operator = lab.start()?;
    let cluster_operator = lab.converged(&operator).await?;

    assert_eq!(cluster_operator["status"]["versions"], json!([{"name": "operator", "version": VERSION}]));
    let text = format!("Cluster Cloud Controller Manager Operator is available at {VERSION}");
    assert_eq!(message(&cluster_operator, "Available"), text);
    let related = cluster_operator["status"]["relatedObjects"].as_array().unwrap();
    assert_eq!(related.len(), 3 + aws_manifests().len());

    let requests = lab.settle(&operator, mark).await?;
    let all: Vec<_> = requests.iter().map(describe).collect();
    // Else each watch is refused once, and then needs a list.
    let most = if streams_lists() {
        REQUESTS
    } else {
        REQUESTS + 2 * all.iter().filter(|one| one.starts_with("list")).count()
    };
    assert!(all.len() <= most, "{} requests: {all:#?}", all.len());
    assert!(requests.iter().all(|request| request.code != 403), "{requests:#?}");
    let documented = documented_requests();
    for request in all.iter().filter(|one| !one.starts_with("list")) {
        assert!(documented.iter().any(|one| request.starts_with(one)), "docs/operations.md does not have {request}");
    }
    for one in documented {
        assert!(all.iter().any(|request| request.starts_with(one)), "docs/operations.md has {one}, which was not sent");
    }
    let writes: Vec<_> = requests.iter().filter(|request| request.counts_as_write()).map(describe).collect();
    let status = writes.iter().filter(|write| write.contains("clusteroperators/status")).count();
    assert!(status <= 3, "two by the operator, one by the config-sync controllers: {writes:#?}");
    assert_eq!(writes.len() - status, aws_manifests().len() + CONFIG_MAPS, "{writes:#?}");

    let deployment = lab.live("Deployment").await?.unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], IMAGE);
    assert_eq!(deployment["spec"]["replicas"], 2);
    Ok(())
}

/// The requests in the table of docs/operations.md, some without the name of the object.
fn documented_requests() -> Vec<&'static str> {
    let page = include_str!("../../docs/operations.md");
    let section = page.split("## Requests\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
    let cells = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let requests: Vec<_> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert!(!requests.is_empty(), "{section}");
    requests
}

#[tokio::test]
async fn a_second_run_writes_nothing_and_idle_is_idle() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let first = lab.start()?;
    lab.converged(&first).await?;
    first.terminate()?;
    assert!(first.wait(LIMIT).await?.success(), "{}", first.log());

    let mark = lab.mark().await?;
    let second = lab.start()?;
    eventually("the second run's lease", LIMIT, async || {
        ensure!(second.log().contains("everything is applied and runs"), "{}", second.log());
        Ok(Some(()))
    })
    .await?;
    assert_eq!(lab.settled_writes(&second, mark).await?, Vec::<String>::new());
    let idle = lab.mark().await?;
    let requests = lab.settle(&second, idle).await?;
    let requests: Vec<_> = requests.iter().filter(|request| !request.is_lease()).map(describe).collect();
    assert_eq!(requests, Vec::<String>::new(), "an idle operator only watches and renews its Leases");
    Ok(())
}

#[tokio::test]
async fn progress_is_reported_until_the_rollout_is_complete() -> Result<()> {
    let mut lab = Lab::without_workloads(&Cluster::default()).await?;
    let operator = lab.start()?;
    let progressing = lab.conditions(&operator, &["Progressing=True", "Available=False", "Degraded=False"]).await?;
    assert_eq!(message(&progressing, "Progressing"), format!("Progressing towards operator: {VERSION}"));
    let versions = progressing["status"]["versions"].as_array().map_or(&[][..], Vec::as_slice);
    assert!(versions.iter().all(|version| version["version"] != VERSION), "reported before it is reached");
    lab.finish_workloads();
    let done = lab.converged(&operator).await?;
    assert_eq!(done["status"]["versions"][0]["version"], VERSION);
    Ok(())
}

#[tokio::test]
async fn inputs_are_followed_while_running() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;

    lab.write_images(r#"{"cloudControllerManagerAWS": "registry.example/new"}"#)?;
    let proxied = Cluster {
        proxy_status: json!({"httpsProxy": "http://proxy.example:3128", "noProxy": ".cluster.local"}),
        api_server_spec: json!({"tlsAdherence": "StrictAllComponents", "tlsSecurityProfile": {"type": "Modern", "modern": {}}}),
        enabled_gates: vec!["CloudControllerManagerWebhook".into(), "SomethingElse".into()],
        ..Cluster::default()
    };
    openshift::seed(&lab.client, &proxied).await?;
    eventually("the new image, proxy, TLS profile and gates", LIMIT, async || {
        let deployment = lab.live("Deployment").await?.unwrap_or_default();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        let arguments = container["args"].as_array().map_or(&[][..], Vec::as_slice);
        let has = |text: &str| arguments.iter().any(|argument| argument == text);
        ensure!(container["image"] == "registry.example/new", "{container}");
        ensure!(variable(container, "HTTPS_PROXY") == Some("http://proxy.example:3128"), "{container}");
        ensure!(variable(container, "NO_PROXY") == Some(".cluster.local"), "{container}");
        ensure!(variable(container, "HTTP_PROXY").is_none(), "{container}");
        ensure!(has("--tls-min-version=VersionTLS13"), "{container}");
        ensure!(!arguments.iter().any(|argument| argument.to_string().contains("--tls-cipher-suites")), "{container}");
        ensure!(has("--feature-gates=CloudControllerManagerWebhook=true"), "{container}");
        Ok(Some(()))
    })
    .await?;
    lab.converged(&operator).await?;
    Ok(())
}

#[tokio::test]
async fn a_single_node_gets_one_replica_and_no_budget() -> Result<()> {
    let lab = Lab::new(&Cluster { topology: Topology::SingleReplica, ..Cluster::default() }).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    assert_eq!(lab.live("Deployment").await?.unwrap()["spec"]["replicas"], 1);
    assert_eq!(lab.live("PodDisruptionBudget").await?, None);
    Ok(())
}

#[tokio::test]
async fn platforms_without_a_provider_are_available_with_a_reason() -> Result<()> {
    for (platform, why) in [
        (json!({"type": "None"}), "platform None has no cloud and needs no cloud-controller-manager"),
        (json!({"type": "External", "external": {}}), "platform External provides its own cloud-controller-manager"),
    ] {
        let lab = Lab::new(&Cluster::on(platform)).await?;
        let operator = lab.start()?;
        let cluster_operator = lab.converged(&operator).await?;
        assert!(message(&cluster_operator, "Available").ends_with(why), "{cluster_operator}");
        assert_eq!(lab.live("Deployment").await?, None);
    }
    Ok(())
}

#[tokio::test]
async fn a_deleted_cluster_operator_is_recreated() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    openshift::delete_cluster_operator(&lab.client).await?;
    let again = lab.converged(&operator).await?;
    let annotations = &again["metadata"]["annotations"];
    assert_eq!(annotations["exclude.release.openshift.io/internal-openshift-hosted"], "true");
    eventually("every controller's conditions", LIMIT, async || {
        let found = conditions(&lab.cluster_operator().await?);
        ensure!(found.len() == CONDITIONS.len(), "{found:?}");
        Ok(Some(()))
    })
    .await?;
    let writes = lab.settled_writes(&operator, mark).await?;
    assert_eq!(writes.len(), 3, "created, and the conditions of both writers: {writes:?}");
    Ok(())
}

#[tokio::test]
async fn the_obsolete_condition_is_removed_and_conditions_of_other_writers_stay() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    openshift::set_conditions(&lab.client, &["CloudControllerOwner", "SomebodyElses"]).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    eventually("the obsolete condition to go", LIMIT, async || {
        let found = conditions(&lab.cluster_operator().await?);
        ensure!(!found.iter().any(|condition| condition.starts_with("CloudControllerOwner")), "{found:?}");
        ensure!(found.iter().any(|condition| condition == "SomebodyElses=True"), "{found:?}");
        Ok(Some(()))
    })
    .await
}

fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let variables = container["env"].as_array()?;
    variables.iter().find(|variable| variable["name"] == name)?["value"].as_str()
}

#[tokio::test]
async fn signals_log_the_state_and_end_the_process_at_once() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    let operator = lab.start_through(proxy.kubeconfig())?;
    lab.converged(&operator).await?;
    operator.ask()?;
    eventually("the answer", LIMIT, async || {
        let log = operator.log();
        ensure!(
            log.contains("the controllers last passed ") && log.contains("the watches of Deployment last"),
            "{log}"
        );
        Ok(Some(()))
    })
    .await?;
    // The lease cannot be released while nothing is answered.
    proxy.inject(vec![Rule { fault: Fault::Slow(LIMIT), applies: |seen| seen.is_write(), times: usize::MAX }]);
    operator.terminate()?;
    eventually("the end to begin", LIMIT, async || Ok(operator.log().contains("stopping").then_some(()))).await?;
    operator.terminate()?;
    let status = operator.wait(LIMIT).await?;
    ensure!(status.code() == Some(2), "{status}");
    ensure!(operator.log().contains("stopped at once by a second signal"), "{}", operator.log());
    Ok(())
}
