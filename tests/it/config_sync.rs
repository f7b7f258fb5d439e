//! The config-sync controllers: the cloud's configuration and the trusted certificates follow their sources with one
//! write a change, and a defect in a source changes only the status.

use anyhow::{Context, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    lab::{LIMIT, Lab, NAMESPACE, POD_UID, conditions, config_maps, message},
    support::{
        audit::Mark,
        eventually,
        faults::Faults,
        objects,
        openshift::{self, Cluster},
        operator::Operator,
        pki,
    },
};

mod trusted_ca;

const USER: &str = "openshift-config";
const MANAGED: &str = "openshift-config-managed";
const WELL: [&str; 3] =
    ["CloudConfigControllerDegraded=False", "TrustedCABundleControllerControllerDegraded=False", "Degraded=False"];

/// An OpenStack cluster whose configuration stands in `openshift-config/cloud-provider-config`, key `config`.
pub(crate) fn openstack() -> Cluster {
    Cluster {
        cloud_config: Some(("cloud-provider-config".into(), "config".into())),
        cloud_config_data: Some(json!({"config": SOURCE, "ca-bundle.pem": ""})),
        ..Cluster::on(json!({"type": "OpenStack", "openstack": {}}))
    }
}

const SOURCE: &str =
    "[Global]\nsecret-name = openstack-credentials\n\n# ours\n[LoadBalancer]\nmax-shared-lb = 3\nflavor-id = one\n";

async fn set_source(lab: &Lab, data: Value) -> Result<()> {
    let metadata = json!({"name": "cloud-provider-config", "namespace": USER});
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    objects::apply(&lab.client, object).await.map(drop)
}

async fn data(lab: &Lab, name: &str) -> Result<Value> {
    let live = config_maps(&lab.client, NAMESPACE).get_opt(name).await?.with_context(|| format!("no {name}"))?;
    Ok(json!(live.data.unwrap_or_default()))
}

/// Waits until `cloud-conf` has the expected content.
async fn cloud_conf(lab: &Lab, operator: &Operator, expected: impl Fn(&str) -> bool) -> Result<String> {
    let waited = eventually("cloud-conf", LIMIT, async || {
        let data = data(lab, "cloud-conf").await?;
        let text = data["cloud.conf"].as_str().unwrap_or_default().to_owned();
        ensure!(expected(&text), "{text}");
        Ok(Some(text))
    })
    .await;
    waited.with_context(|| operator.log())
}

async fn openstack_deployment(lab: &Lab) -> Result<Value> {
    let api: kube::Api<k8s_openapi::api::apps::v1::Deployment> = kube::Api::namespaced(lab.client.clone(), NAMESPACE);
    Ok(serde_json::to_value(api.get("openstack-cloud-controller-manager").await?)?)
}

fn hash(deployment: &Value) -> &str {
    deployment["spec"]["template"]["metadata"]["annotations"]["operator.openshift.io/config-hash"]
        .as_str()
        .unwrap_or_default()
}

/// The writes to objects of this name since the mark, once the operator has settled.
async fn writes_of(lab: &Lab, operator: &Operator, mark: Mark, name: &str) -> Result<Vec<String>> {
    let writes = lab.settled_writes(operator, mark).await?;
    Ok(writes.into_iter().filter(|write| write.ends_with(name)).collect())
}

fn with_images(lab: Lab) -> Result<Lab> {
    lab.write_images(&crate::contract::images())?;
    Ok(lab)
}

#[tokio::test]
async fn the_configuration_follows_its_source_with_one_write_and_pods_restart_once() -> Result<()> {
    let lab = with_images(Lab::new(&openstack()).await?)?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let text = cloud_conf(&lab, &operator, |_| true).await?;
    let expected = "use-clouds = true";
    assert!(text.replace(" = ", "=").contains(&expected.replace(" = ", "=")) && text.contains("# ours\n"), "{text}");
    assert!(text.contains("flavor-id = one\n") && !text.contains("secret-name"), "{text}");
    let before = openstack_deployment(&lab).await?;
    assert!(!hash(&before).is_empty(), "{before:#}");

    let mark = lab.mark().await?;
    set_source(&lab, json!({"config": SOURCE.replace("one", "two")})).await?;
    cloud_conf(&lab, &operator, |text| text.contains("flavor-id = two")).await?;
    let after = eventually("another hash", LIMIT, async || {
        let after = openstack_deployment(&lab).await?;
        ensure!(hash(&after) != hash(&before), "the same hash");
        Ok(Some(after))
    })
    .await?;
    lab.converged(&operator).await?;
    assert_eq!(writes_of(&lab, &operator, mark, "cloud-conf").await?.len(), 1);
    let writes = lab.writes(mark).await?;
    let of_deployment = writes.iter().filter(|write| write.ends_with("openstack-cloud-controller-manager"));
    assert_eq!(of_deployment.count(), 1, "{writes:?}");
    assert_eq!(hash(&openstack_deployment(&lab).await?), hash(&after));
    Ok(())
}

#[tokio::test]
async fn a_source_that_changes_quickly_is_followed_without_a_limit() -> Result<()> {
    let lab = with_images(Lab::new(&openstack()).await?)?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    for number in 0..20 {
        set_source(&lab, json!({"config": SOURCE.replace("one", &format!("number-{number}"))})).await?;
        cloud_conf(&lab, &operator, |text| text.contains(&format!("flavor-id = number-{number}\n"))).await?;
    }
    // Repairs in such a row are limited to two a second, and logged.
    assert!(!operator.log().contains("its repairs are limited"), "{}", operator.log());
    Ok(())
}

#[tokio::test]
async fn a_bad_source_is_reported_and_the_last_good_configuration_stays() -> Result<()> {
    let lab = with_images(Lab::new(&openstack()).await?)?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let good = data(&lab, "cloud-conf").await?;
    let bad = [
        (json!({"config": "[Global]\nuse-clouds = true\n[broken\n"}), "key config:3:"),
        (json!({"config": "[Global]\n\nsecret-name = mine\n"}), "key config:3:"),
        (json!({"other": "x"}), "has no key \"config\""),
    ];
    for (data_of_source, expected) in bad {
        let mark = lab.mark().await?;
        set_source(&lab, data_of_source).await?;
        let said = lab
            .conditions(&operator, &["CloudConfigControllerDegraded=True", "Degraded=True", "Available=True"])
            .await?;
        for type_ in ["CloudConfigControllerDegraded", "Degraded"] {
            let text = message(&said, type_);
            assert!(text.contains("ConfigMap openshift-config/cloud-provider-config"), "{text}");
            assert!(text.contains(expected), "{text}");
        }
        // Objects are still repaired.
        let api: kube::Api<k8s_openapi::api::apps::v1::Deployment> =
            kube::Api::namespaced(lab.client.clone(), NAMESPACE);
        api.delete("openstack-cloud-controller-manager", &kube::api::DeleteParams::default()).await?;
        eventually("the Deployment again", LIMIT, async || openstack_deployment(&lab).await.map(Some)).await?;
        assert_eq!(data(&lab, "cloud-conf").await?, good);
        assert_eq!(writes_of(&lab, &operator, mark, "cloud-conf").await?, Vec::<String>::new());
        // A recreated report says that the controller has been available.
        openshift::delete_cluster_operator(&lab.client).await?;
        let again = ["CloudConfigControllerAvailable=True", "CloudConfigControllerDegraded=True", "Available=True"];
        lab.conditions(&operator, &again).await?;
        set_source(&lab, json!({"config": SOURCE, "ca-bundle.pem": ""})).await?;
        lab.conditions(&operator, &WELL).await?;
    }
    config_maps(&lab.client, USER).delete("cloud-provider-config", &kube::api::DeleteParams::default()).await?;
    let said = lab.conditions(&operator, &["CloudConfigControllerDegraded=True"]).await?;
    let text = message(&said, "CloudConfigControllerDegraded");
    assert!(text.contains("ConfigMap openshift-config/cloud-provider-config does not exist"), "{text}");
    assert_eq!(data(&lab, "cloud-conf").await?, good);
    set_source(&lab, json!({"config": SOURCE, "ca-bundle.pem": ""})).await?;
    lab.conditions(&operator, &WELL).await?;
    Ok(())
}

#[tokio::test]
async fn the_operator_waits_for_the_config_sync_controllers_of_another_process() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let mark = lab.mark().await?;
    let port = crate::support::scrape::free_port()?;
    let address = format!("--health-addr=127.0.0.1:{port}");
    let operator = lab.start_as(POD_UID, &["--controllers=operator", &address])?;
    eventually("the operator to wait", LIMIT, async || {
        let (_, text) = crate::bad_input::get(port, "/readyz").await?;
        ensure!(text.contains("nothing is applied before the"), "{text}");
        Ok(Some(()))
    })
    .await?;
    assert_eq!(lab.writes(mark).await?, Vec::<String>::new(), "neither an object nor a report");
    let config_sync = lab.start_config_sync("5a1ec0de-0000-4000-8000-000000000002")?;
    lab.converged(&operator).await?;
    let found = conditions(&lab.cluster_operator().await?);
    assert!(found.contains(&"CloudConfigControllerAvailable=True".into()), "{found:?}");
    assert!(found.contains(&"TrustedCABundleControllerControllerAvailable=True".into()), "{found:?}");
    // An edit of the copy is repaired before the operator would start the pods again for it.
    let hash = async || {
        let live = lab.live("Deployment").await?.unwrap_or_default();
        anyhow::Ok(live["spec"]["template"]["metadata"]["annotations"].clone())
    };
    let (before, good) = (hash().await?, data(&lab, "cloud-conf").await?);
    let (mark, edit) = (lab.mark().await?, Patch::Merge(json!({"data": {"cloud.conf": "edited"}})));
    config_maps(&lab.client, NAMESPACE).patch("cloud-conf", &PatchParams::default(), &edit).await?;
    eventually("the repair", LIMIT, async || Ok((data(&lab, "cloud-conf").await? == good).then_some(()))).await?;
    lab.settle(&operator, mark).await?;
    assert_eq!(hash().await?, before);
    let writes = lab.writes(mark).await?;
    assert!(!writes.iter().any(|write| write.contains("deployments")), "{writes:?}");
    // The operator waits for them only once.
    config_sync.terminate()?;
    assert!(config_sync.wait(LIMIT).await?.success());
    lab.delete("Deployment").await?;
    lab.exists("Deployment", &operator).await
}

#[tokio::test]
async fn changed_or_immutable_copies_are_repaired() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    let api = config_maps(&lab.client, NAMESPACE);
    let frozen = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cloud-conf"},
        "data": {"cloud.conf": "old", "gone": "x"}, "immutable": true});
    api.create(&kube::api::PostParams::default(), &serde_json::from_value(frozen)?).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let good = data(&lab, "cloud-conf").await?;
    assert!(good.get("gone").is_none() && good["cloud.conf"] != "old", "{good}");
    for (name, patch) in [
        ("cloud-conf", json!({"data": {"cloud.conf": "changed"}})),
        ("cloud-conf", json!({"data": {"added": "x"}})),
        ("ccm-trusted-ca", json!({"data": {"ca-bundle.crt": null}})),
    ] {
        let before = data(&lab, name).await?;
        let params = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
        api.patch(name, &params, &Patch::Merge(&patch)).await?;
        let waited = eventually("the repair", LIMIT, async || {
            let live = data(&lab, name).await?;
            ensure!(live == before, "{live}");
            Ok(Some(()))
        })
        .await;
        assert!(waited.is_ok(), "{patch}: {waited:?}\n{}", operator.log());
    }
    lab.converged(&operator).await?;
    Ok(())
}

/// Certificates of at least this length together.
fn many_more(length: usize) -> Result<String> {
    let mut text = String::new();
    while text.len() < length {
        text.push_str(&pki::authority("more")?);
    }
    Ok(text)
}

#[tokio::test]
async fn a_large_configuration_works_and_unrelated_ones_cost_nothing() -> Result<()> {
    let lab = with_images(Lab::new(&openstack()).await?)?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let mark = lab.mark().await?;
    let comment = format!("# {}\n", "x".repeat(97)).repeat(9 * 1024);
    set_source(&lab, json!({"config": format!("{comment}{SOURCE}")})).await?;
    let text = cloud_conf(&lab, &operator, |text| text.len() > 900 * 1024).await?;
    assert!(text.starts_with(&comment));
    lab.converged(&operator).await?;

    lab.settle(&operator, mark).await?;
    let mark = lab.mark().await?;
    let api = config_maps(&lab.client, USER);
    for index in 0..50 {
        let name = format!("unrelated-{index}");
        let object = json!({"metadata": {"name": name}, "data": {"cloud.conf": "x"}});
        api.create(&kube::api::PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    let mut requests = lab.settle(&operator, mark).await?;
    requests.retain(|request| !request.is_lease() && !request.is_event());
    for index in 0..50 {
        api.delete(&format!("unrelated-{index}"), &kube::api::DeleteParams::default()).await?;
    }
    assert!(requests.is_empty(), "{requests:#?}");
    Ok(())
}

#[tokio::test]
async fn a_configuration_that_was_refused_several_times_recovers_at_once() -> Result<()> {
    let lab = with_images(Lab::new(&openstack()).await?)?;
    let proxy = Faults::start(lab.kubeconfig(), lab.dir.path()).await?;
    let operator = lab.start_through(proxy.kubeconfig())?;
    lab.converged(&operator).await?;
    // The source is as long as a ConfigMap may be; completed it is longer.
    let rest = 1024 * 1024 - SOURCE.len() - "# \n".len();
    set_source(&lab, json!({"config": format!("# {}\n{SOURCE}", "x".repeat(rest))})).await?;
    lab.conditions(&operator, &["CloudConfigControllerDegraded=True"]).await?;
    // The pause before the next retry grows: a few retries are enough to tell it from a new source.
    eventually("four retries", LIMIT, async || {
        let seen = proxy.seen();
        let tries = seen.iter().filter(|one| one.is_write() && one.path.ends_with("/configmaps/cloud-conf")).count();
        ensure!(tries >= 4, "{tries}");
        Ok(Some(()))
    })
    .await?;
    proxy.forget();
    set_source(&lab, json!({"config": SOURCE.replace("one", "two")})).await?;
    cloud_conf(&lab, &operator, |text| text.contains("flavor-id = two")).await?;
    lab.conditions(&operator, &WELL).await?;
    let seen = proxy.seen();
    let tries = seen.iter().filter(|one| one.is_write() && one.path.ends_with("/configmaps/cloud-conf")).count();
    assert_eq!(tries, 1, "the new source is written at once, and not after another retry of the old one: {seen:#?}");
    Ok(())
}

#[tokio::test]
async fn vspheres_configuration_is_published_behind_its_gate() -> Result<()> {
    let spec = json!({"type": "VSphere", "vsphere": {
        "vcenters": [{"server": "one.example.com", "datacenters": ["dc"]}],
        "failureDomains": [], "nodeNetworking": {"external": {}, "internal": {}},
        "apiServerInternalIPs": [], "ingressIPs": [], "machineNetworks": [],
    }});
    let cluster = Cluster {
        platform_spec: spec,
        cloud_config_data: None,
        enabled_gates: vec!["VSphereMultiVCenterDay2".into()],
        ..Cluster::on(json!({"type": "VSphere"}))
    };
    let lab = with_images(Lab::new(&cluster).await?)?;
    crate::lab::ignore_absent(
        config_maps(&lab.client, USER).delete("cloud-provider-config", &kube::api::DeleteParams::default()).await,
    )?;
    let operator = lab.start()?;
    let text = cloud_conf(&lab, &operator, |text| text.contains("one.example.com")).await?;
    let published = eventually("the published configuration", LIMIT, async || {
        Ok(Some(config_maps(&lab.client, MANAGED).get("kube-cloud-config").await?))
    })
    .await?;
    assert_eq!(published.data.unwrap_or_default().get("cloud.conf"), Some(&text));
    lab.converged(&operator).await?;
    Ok(())
}

#[tokio::test]
async fn a_secret_that_pods_mount_restarts_them_and_its_absence_does_not_matter() -> Result<()> {
    let lab = with_images(Lab::new(&openstack()).await?)?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> = kube::Api::namespaced(lab.client.clone(), NAMESPACE);
    let mut last = hash(&openstack_deployment(&lab).await?).to_owned();
    assert!(!last.is_empty(), "the Secret is not there yet, the configuration is");
    let original = last.clone();
    for value in ["s3cr3t-one", "s3cr3t-two"] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "openstack-cloud-credentials", "namespace": NAMESPACE}, "stringData": {"clouds.yaml": value}});
        let params = PatchParams::apply("test").force();
        secrets.patch("openstack-cloud-credentials", &params, &Patch::Apply(secret)).await?;
        last = eventually("another hash", LIMIT, async || {
            let now = hash(&openstack_deployment(&lab).await?).to_owned();
            ensure!(now != last, "the same");
            Ok(Some(now))
        })
        .await?;
    }
    secrets.delete("openstack-cloud-credentials", &kube::api::DeleteParams::default()).await?;
    eventually("the first hash", LIMIT, async || {
        let now = hash(&openstack_deployment(&lab).await?).to_owned();
        ensure!(now == original, "{now}");
        Ok(Some(()))
    })
    .await?;
    assert!(!operator.log().contains("s3cr3t"));
    Ok(())
}
