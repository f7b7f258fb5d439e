//! The trusted certificates.

use super::*;
use crate::support::pki;

#[tokio::test]
async fn trusted_certificates_are_merged_without_unusable_ones() -> Result<()> {
    let (user, system, cloud) = (pki::authority("user")?, pki::authority("system")?, pki::authority("cloud")?);
    let cluster = Cluster { proxy_spec: json!({"trustedCA": {"name": "user-ca"}}), ..openstack() };
    let lab = with_images(Lab::new(&cluster).await?)?;
    lab.write_system_bundle(&format!("# comment\n{system}"))?;
    let set_user_ca = async |text: &str| {
        let metadata = json!({"name": "user-ca", "namespace": USER});
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata,
            "data": {"ca-bundle.crt": text}});
        objects::apply(&lab.client, object).await.map(drop)
    };
    set_user_ca(&user).await?;
    set_source(&lab, json!({"config": SOURCE, "ca-bundle.pem": cloud})).await?;
    let operator = lab.start()?;
    lab.converged(&operator).await?;
    let lines = |text: &str| text.lines().map(ToOwned::to_owned).collect::<Vec<_>>();
    let bundle = async |expected: &[&str]| {
        let waited = eventually("the bundle", LIMIT, async || {
            let live = data(&lab, "ccm-trusted-ca").await?;
            let found = lines(live["ca-bundle.crt"].as_str().unwrap_or_default());
            let mut missing = expected.iter().filter(|part| {
                let part = lines(part);
                !found.windows(part.len()).any(|window| window == part)
            });
            ensure!(
                missing.next().is_none() && found.len() == expected.iter().map(|part| lines(part).len()).sum::<usize>()
            );
            Ok(Some(()))
        })
        .await;
        waited.with_context(|| operator.log())
    };
    bundle(&[&user, &cloud, &system]).await?;
    let first = data(&lab, "ccm-trusted-ca").await?;
    let (of_user, of_system) = (lines(&user)[1].clone(), lines(&system)[1].clone());
    let text = first["ca-bundle.crt"].as_str().unwrap();
    assert!(text.find(&of_user).unwrap() < text.find(&of_system).unwrap(), "the user's certificates come first");

    set_user_ca("-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n").await?;
    bundle(&[&cloud, &system]).await?;
    let left_out = "left out of the trusted certificates: ConfigMap openshift-config/user-ca";
    assert!(operator.log().contains(left_out));
    let events: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::namespaced(lab.client.clone(), "default");
    eventually("the Event", LIMIT, async || {
        let about = kube::api::ListParams::default().fields("reason=TrustedCertificatesLeftOut");
        let found = events.list(&about).await?;
        let messages: Vec<_> = found.items.into_iter().filter_map(|event| event.message).collect();
        ensure!(messages.iter().any(|message| message.starts_with(left_out)), "{messages:?}");
        Ok(Some(()))
    })
    .await?;
    lab.conditions(&operator, &WELL).await?;
    set_user_ca(&user).await?;
    bundle(&[&user, &cloud, &system]).await?;

    // Too much for a ConfigMap: the last good one stays.
    let many: String = std::iter::repeat_with(|| pki::authority("many")).take(2000).collect::<Result<_>>()?;
    assert!(many.len() < 1024 * 1024 && many.len() > 900 * 1024, "{}", many.len());
    set_user_ca(&many).await?;
    eventually("many certificates", LIMIT, async || {
        let live = data(&lab, "ccm-trusted-ca").await?;
        let length = live["ca-bundle.crt"].as_str().unwrap_or_default().len();
        ensure!(length > many.len(), "{length}");
        Ok(Some(()))
    })
    .await?;
    let before = data(&lab, "ccm-trusted-ca").await?;
    lab.write_system_bundle(&format!("{system}{}", many_more(1024 * 1024 - many.len())?))?;
    let said =
        lab.conditions(&operator, &["TrustedCABundleControllerControllerDegraded=True", "Degraded=True"]).await?;
    let text = message(&said, "TrustedCABundleControllerControllerDegraded");
    assert!(text.contains("1048576") && text.contains(&format!("{} of the Proxy's", many.len())), "{text}");
    assert_eq!(data(&lab, "ccm-trusted-ca").await?, before);
    set_user_ca(&user).await?;
    lab.conditions(&operator, &WELL).await?;
    Ok(())
}

#[tokio::test]
async fn a_certificate_that_expires_soon_is_reported() -> Result<()> {
    let cluster = Cluster { proxy_spec: json!({"trustedCA": {"name": "user-ca"}}), ..Cluster::default() };
    let lab = Lab::new(&cluster).await?;
    let metadata = json!({"name": "user-ca", "namespace": USER});
    let text = pki::authority("lasting")? + &pki::authority_until("ending", 10)?;
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca-bundle.crt": text}});
    objects::apply(&lab.client, object).await?;
    let port = crate::support::scrape::free_port()?;
    let address = format!("--metrics-bind-address=127.0.0.1:{port}");
    let operator = lab.start_as(POD_UID, &[&address])?;
    lab.converged(&operator).await?;
    let events: kube::Api<k8s_openapi::api::core::v1::Event> = kube::Api::namespaced(lab.client.clone(), "default");
    let message = eventually("the Event", LIMIT, async || {
        let about = kube::api::ListParams::default().fields("reason=TrustedCertificatesExpiring");
        Ok(events.list(&about).await?.items.into_iter().find_map(|event| event.message))
    })
    .await?;
    assert!(message.contains("CN=ending ends at ") && !message.contains("lasting"), "{message}");
    let (code, metrics) = crate::support::scrape::scrape(&lab, port).await?;
    let end = "ccm_operator_trusted_certificate_expiration_timestamp_seconds{source=\"proxy\"}";
    assert!(code == 200 && metrics.contains(end), "{code} {metrics}");
    let created = "ccm_operator_object_changes_total{action=\"created\",kind=\"Deployment\"} 1";
    assert!(metrics.contains(created), "{metrics}");
    Ok(())
}

#[tokio::test]
async fn a_broken_system_bundle_is_waited_for_and_a_proxy_is_not_needed() -> Result<()> {
    let lab = Lab::new(&Cluster::default()).await?;
    lab.write_system_bundle("nothing")?;
    let port = crate::support::scrape::free_port()?;
    let operator = lab.start_as(POD_UID, &[&format!("--health-addr=127.0.0.1:{port}")])?;
    let bundle = lab.system_bundle().display().to_string();
    eventually("the broken bundle in /readyz", LIMIT, async || {
        let (_, text) = crate::bad_input::get(port, "/readyz").await?;
        ensure!(text.contains(&bundle), "{text}");
        Ok(Some(()))
    })
    .await?;
    let found = conditions(&lab.cluster_operator().await?);
    let of_trust = found.iter().filter(|condition| condition.starts_with("TrustedCA")).count();
    assert_eq!(of_trust, 0, "the system may be writing its bundle: {found:?}");
    lab.write_system_bundle(&pki::authority("system")?)?;
    lab.converged(&operator).await?;
    // Pods mount the bundle also where there is no Proxy.
    openshift::delete_proxy(&lab.client).await?;
    let bundles = config_maps(&lab.client, NAMESPACE);
    bundles.delete("ccm-trusted-ca", &kube::api::DeleteParams::default()).await?;
    eventually("the bundle", LIMIT, async || Ok(bundles.get_opt("ccm-trusted-ca").await?)).await?;
    let mark = lab.mark().await?;
    lab.write_system_bundle("nothing")?;
    lab.settle(&operator, mark).await?;
    lab.conditions(&operator, &WELL).await?;
    Ok(())
}

#[tokio::test]
async fn the_end_of_an_error_is_reported_though_the_other_controller_has_no_result_yet() -> Result<()> {
    let lab = Lab::new(&super::openstack()).await?;
    super::set_source(&lab, json!({"config": "[Global\n"})).await?;
    let first = lab.start()?;
    lab.conditions(&first, &["CloudConfigControllerDegraded=True"]).await?;
    first.terminate()?;
    first.wait(LIMIT).await?;
    super::set_source(&lab, json!({"config": super::SOURCE})).await?;
    lab.write_system_bundle("nothing")?;
    let second = lab.start()?;
    lab.conditions(&second, &["CloudConfigControllerDegraded=False"]).await?;
    Ok(())
}
