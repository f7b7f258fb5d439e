//! The rehearsal is enforced: whatever permission somebody else grants, no node is deleted that was not confirmed.

use super::*;
use crate::support::faults::{Fault, Faults, Rule, Seen};

/// Binds a permission to delete nodes to the account.
async fn free(client: &Client, role: &str) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io";
    if role != "cluster-admin" {
        let rules = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["delete"]}]);
        let metadata = json!({"name": role});
        let role =
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rules});
        objects::apply(client, role).await?;
    }
    let binding = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "free"},
        "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "aws-cloud-controller-manager", "namespace": "kube-system"}],
    });
    objects::apply(client, binding).await.map(drop)
}

async fn is_denied(ccm: &Client, node: &str) -> Result<()> {
    let denied = eventually("the denial", LIMIT, async || {
        let answer = delete_with(ccm, node, &DeleteParams::default().dry_run()).await;
        ensure!(answer.as_ref().is_err_and(|why| why.contains("its deletion is not confirmed")), "{answer:?}");
        Ok(Some(()))
    });
    denied.await?;
    let answer = delete(ccm, node).await.expect_err("a node that is not confirmed");
    ensure!(answer.contains("its deletion is not confirmed"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_permission_of_others_deletes_nothing_in_any_mode_of_the_default_installation() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let client = &cluster.client;
    let start = cluster.mark().await?;
    add_node(client, "gone", ago(700), json!({})).await?;
    let operator = cluster.start()?;
    let (bindings, ccm) = (request::api(client, kind("ClusterRoleBinding"), ""), client_as(&cluster.plane, USER)?);

    // A binding that was there before.
    free(client, "cluster-admin").await?;
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    let live = cluster.conditions(&operator, "cluster", &["PreflightPassed=False", "Stalled=True"]).await?;
    let why = message(&live, "PreflightPassed");
    assert!(why.contains("deletion-permission: ") && why.contains("may delete nodes already, by free: "), "{why}");
    assert!(why.contains("kubectl delete clusterrolebinding free"), "{why}");
    assert_eq!(cluster.objects(None).await?, Vec::<String>::new());
    bindings.delete("free", &DeleteParams::default()).await?;
    cluster.conditions(&operator, "cluster", &["Ready=True", "NodeDeletionSafe=True"]).await?;

    // One that comes later, of each kind, in each mode.
    for (role, mode) in [("cluster-admin", "Rehearsal"), ("deleter", "Rehearsal"), ("deleter", "Disabled")] {
        cluster.patch("cluster", json!({"spec": {"controllers": {"cloudNodeLifecycle": mode}}})).await?;
        cluster.ready(&operator, "cluster").await?;
        free(client, role).await?;
        is_denied(&ccm, "gone").await.with_context(|| format!("{role}, {mode}"))?;
        if mode == "Rehearsal" {
            // A change of permissions asks again; so does a minute, while a node is not ready.
            let touched = Patch::Merge(json!({"metadata": {"annotations": {"x": role}}}));
            request::api(client, kind("ClusterRole"), "")
                .patch("aws-cloud-controller-manager", &PatchParams::default(), &touched)
                .await?;
            let live = cluster.conditions(&operator, "cluster", &["NodeDeletionSafe=False"]).await?;
            let why = message(&live, "NodeDeletionSafe");
            assert!(why.contains(&format!("until then only ValidatingAdmissionPolicy {NAME} keeps it")), "{why}");
        }
        bindings.delete("free", &DeleteParams::default()).await?;
    }

    // The policy comes back, and nobody else's deletions are concerned.
    let policies = request::api(client, kind("ValidatingAdmissionPolicy"), "");
    policies.delete(NAME, &DeleteParams::default()).await?;
    eventually("the policy to come back", LIMIT, async || Ok(policies.get_opt(NAME).await?)).await?;
    assert_eq!(delete(client, "gone").await, Ok(()));

    // It goes with the object, and the permissions of the default installation were enough.
    cluster.delete("cluster").await?;
    cluster.objects_are(&operator, None, <[String]>::is_empty).await?;
    let refused: Vec<_> = cluster.requests(start).await?.into_iter().filter(|one| one.code == 403).collect();
    assert!(refused.is_empty(), "{refused:#?}");
    Ok(())
}

/// The rules about policies in the operator's ClusterRole, taken away; the role as it was is returned.
async fn withhold(client: &Client, keeps: impl Fn(&Value) -> bool) -> Result<DynamicObject> {
    let api = request::api(client, kind("ClusterRole"), "");
    let before = api.get("ccm-operator").await?;
    let is_of_policies = |rule: &Value| rule["apiGroups"][0] == "admissionregistration.k8s.io";
    let rules = before.data["rules"].as_array().cloned().unwrap_or_default();
    let left: Vec<_> = rules.iter().filter(|rule| !is_of_policies(rule) || keeps(rule)).cloned().collect();
    ensure!(left.len() < rules.len(), "{rules:?}");
    api.patch("ccm-operator", &PatchParams::default(), &Patch::Merge(json!({"rules": left}))).await?;
    Ok(before)
}

#[tokio::test]
async fn where_the_permission_is_withheld_the_status_says_so_and_all_else_is_done() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let client = &cluster.client;
    // It may look, and not write.
    let before = withhold(client, |rule| rule["verbs"] == json!(["list", "watch"])).await?;
    let operator = cluster.start()?;
    cluster.create("cluster", json!({"provider": "aws"})).await?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=True", "NodeDeletionSafe=Unknown"]).await?;
    let why = message(&live, "NodeDeletionSafe");
    assert!(why.contains("forbidden") && why.contains("--names"), "{why}");
    assert!(message(&live, "PreflightPassed").contains("permissions: the operator may not"), "{live:#}");
    let objects = cluster.objects(None).await?;
    assert!(objects.iter().all(|object| !object.ends_with(NAME)), "{objects:?}");
    // It is also missed with the controller off.
    cluster.patch("cluster", json!({"spec": {"controllers": {"cloudNodeLifecycle": "Disabled"}}})).await?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=True", "NodeDeletionSafe=Unknown"]).await?;
    let why = message(&live, "NodeDeletionSafe");
    assert!(why.contains("cloudNodeLifecycle is Disabled, but ") && why.contains("forbidden"), "{why}");
    cluster.patch("cluster", json!({"spec": {"management": "Removed"}})).await?;
    cluster.conditions(&operator, "cluster", &["Ready=False", "Reconciling=False"]).await?;
    cluster.objects_are(&operator, None, <[String]>::is_empty).await?;

    // It has written them, and may not even look any more: `Removed` is reached, and says what may be left.
    request::api(client, kind("ClusterRole"), "")
        .patch("ccm-operator", &PatchParams::default(), &Patch::Merge(json!({"rules": before.data["rules"]})))
        .await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let operator = cluster.start()?;
    cluster.patch("cluster", json!({"spec": {"management": "Managed"}})).await?;
    cluster.conditions(&operator, "cluster", &["Ready=True", "NodeDeletionSafe=True"]).await?;
    withhold(client, |_| false).await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let operator = cluster.start()?;
    cluster.patch("cluster", json!({"spec": {"management": "Removed"}})).await?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=False", "Reconciling=False"]).await?;
    let why = message(&live, "Ready");
    assert!(
        why.contains("all its objects are deleted") && why.contains(&format!("ValidatingAdmissionPolicy {NAME}")),
        "{why}"
    );
    Ok(())
}

#[tokio::test]
async fn an_installation_without_the_flag_can_remove_a_ccm_that_needed_it() -> Result<()> {
    let fixture = Fixture::new().await?;
    let cluster = &fixture.cluster;
    fixture.operator.terminate()?;
    fixture.operator.wait(LIMIT).await?;
    cluster.install("aws").await?;
    let operator = cluster.start()?;
    cluster.conditions(&operator, "cluster", &["ConfigurationValid=False", "Stalled=True"]).await?;
    cluster.patch("cluster", json!({"spec": {"management": "Removed"}})).await?;
    let live = cluster.conditions(&operator, "cluster", &["Ready=False", "Reconciling=False"]).await?;
    assert!(message(&live, "Ready").contains("all its objects are deleted"), "{live:#}");
    cluster.objects_are(&operator, None, <[String]>::is_empty).await.map(drop)
}

#[tokio::test]
async fn the_status_of_a_ccm_with_another_name_reports_the_missing_flag() -> Result<()> {
    let cluster = Kubernetes::new("aws").await?;
    let namespaces = "--namespaces=kube-system";
    let operator = cluster.start_with(&[namespaces, "--names=cluster"])?;
    cluster.create("second", json!({"provider": "aws"})).await?;
    let live = cluster.conditions(&operator, "second", &["ConfigurationValid=False", "Stalled=True"]).await?;
    let why = message(&live, "ConfigurationValid");
    assert!(why.contains("second") && why.contains("--names"), "{why}");
    assert_eq!(cluster.objects(None).await?, Vec::<String>::new());
    // With its name in --names the operator may manage all of its objects, also the policy.
    cluster.install_with(&["--providers", "aws", "--names=cluster,second"]).await?;
    operator.terminate()?;
    operator.wait(LIMIT).await?;
    let operator = cluster.start_with(&[namespaces, "--names=cluster,second"])?;
    cluster.conditions(&operator, "second", &["Ready=True", "NodeDeletionSafe=True"]).await.map(drop)
}

/// Whether a request reads the policies.
fn is_look(seen: &Seen) -> bool {
    !seen.is_write() && seen.path.ends_with("/validatingadmissionpolicies")
}

/// Whether a request writes the policy or its binding.
fn is_lock(seen: &Seen) -> bool {
    seen.is_write() && seen.path.contains("/validatingadmissionpolic")
}

#[tokio::test]
async fn a_workload_is_not_created_before_the_policy_that_keeps_it_from_deleting_nodes() -> Result<()> {
    let mut cluster = Kubernetes::new("aws").await?;
    let own = cluster.kubeconfig.clone();
    let faults = Faults::start(&own, own.parent().context("its folder")?).await?;
    cluster.kubeconfig = faults.kubeconfig().to_owned();
    let operator = cluster.start()?;
    // The API server fails for another reason than a permission that is withheld: at first to show policies, then to take them.
    for (number, applies) in [is_look, is_lock].into_iter().enumerate() {
        faults.inject(vec![Rule { fault: Fault::Answer(500, None), applies, times: usize::MAX }]);
        if number == 0 {
            cluster.create("cluster", json!({"provider": "aws"})).await?;
        }
        eventually("several tries", LIMIT, async || {
            let tries = faults.seen().iter().filter(|seen| seen.is_faulty && applies(seen)).count();
            ensure!(tries >= 3, "{tries}");
            Ok(Some(()))
        })
        .await
        .with_context(|| operator.log())?;
        let objects = cluster.objects(None).await?;
        assert!(!objects.iter().any(|object| object.starts_with("DaemonSet ")), "{number}: {objects:?}");
    }
    faults.inject(Vec::new());
    cluster.ready(&operator, "cluster").await?;
    let seen = faults.seen();
    let first = |kind: &str| seen.iter().position(|one| one.is_write() && !one.is_faulty && one.path.contains(kind));
    let [policy, binding, workload] =
        ["/validatingadmissionpolicies/", "/validatingadmissionpolicybindings/", "/daemonsets/"].map(first);
    let are_written = policy.is_some() && binding.is_some();
    assert!(are_written && policy.max(binding) < workload, "{policy:?} {binding:?} {workload:?}");
    Ok(())
}
