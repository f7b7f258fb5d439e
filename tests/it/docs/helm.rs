//! What `docs/installing-with-helm.md` does to a cluster that is not OpenShift: the chart is installed, changed, upgraded and
//! uninstalled by Helm, and the operator acts with the permissions of the chart.

use std::{fs, os::unix::fs::symlink};

use anyhow::{Context, Result, ensure};

use super::{
    any_kubernetes::{Fixture, left, run, uid},
    paths::follow,
    shell::Shell,
};
use crate::{
    lab::{LIMIT, repository},
    support::{artifacts, eventually},
};

/// A cluster, and the shell of somebody who has Helm, in the folder of the project.
async fn fixture() -> Result<(Fixture, Shell)> {
    let (fixture, shell) = Fixture::new().await?;
    shell.program("helm", &format!("exec {} \"$@\"", artifacts::helm().await?.display()))?;
    for folder in ["charts", "install", "kustomize"] {
        symlink(repository().join(folder), shell.folder().join(folder))?;
    }
    Ok((fixture, shell))
}

/// Whether the operator may create objects of a kind in kube-system.
async fn may_create(shell: &Shell, kind: &str) -> Result<bool> {
    let command = format!(
        "kubectl --namespace kube-system auth can-i create {kind} --as=system:serviceaccount:ccm-operator:ccm-operator"
    );
    Ok(shell.run(&command).await?.0 == Some(0))
}

/// The existing objects of the installation, except the namespace and the definition.
async fn installed(shell: &Shell) -> Result<String> {
    let kinds = "deployments,poddisruptionbudgets,serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings";
    run(shell, &format!("kubectl get {kinds} --all-namespaces --selector app.kubernetes.io/name=ccm-operator -o name"))
        .await
}

/// Prints the description of a field in the live definition.
const DESCRIPTION: &str = "kubectl get crd cloudcontrollermanagers.ccm-operator.dev \
                           -o jsonpath='{.spec.versions[0].schema.openAPIV3Schema.properties.spec.description}'";
/// Makes it the definition of an older chart, which Helm has created.
const OLDER: &str = "kubectl patch crd cloudcontrollermanagers.ccm-operator.dev --field-manager=helm --type=json \
                     --patch='[{\"op\": \"replace\", \"value\": \"old\", \
                     \"path\": \"/spec/versions/0/schema/openAPIV3Schema/properties/spec/description\"}]'";

#[tokio::test]
async fn the_chart_is_installed_changed_upgraded_and_uninstalled() -> Result<()> {
    let (fixture, shell) = fixture().await?;
    follow(&shell, ("docs/installing-with-helm.md", "The namespace")).await?;
    follow(&shell, ("docs/installing-with-helm.md", "Installing")).await?;
    assert_eq!(fixture.uninitialized().await?.len(), 4, "the operator does not initialize nodes");
    let notes = run(&shell, "helm get notes ccm-operator --namespace ccm-operator").await?;
    for text in ["managers of: hcloud.", "IMAGE IS A PLACEHOLDER", "goes on running"] {
        assert!(notes.contains(text), "{notes}");
    }
    follow(&shell, ("docs/any-kubernetes.md", "The first cloud-controller-manager")).await?;
    assert_eq!(fixture.uninitialized().await?, Vec::<String>::new());
    let before = uid(&shell).await?;

    assert!(may_create(&shell, "deployments").await? && !may_create(&shell, "daemonsets").await?);
    follow(&shell, ("docs/installing-with-helm.md", "Changing values")).await?;
    assert!(may_create(&shell, "deployments").await? && may_create(&shell, "daemonsets").await?);
    let upgrade =
        "helm upgrade ccm-operator charts/ccm-operator --namespace ccm-operator --wait --reset-then-reuse-values";
    run(&shell, &format!("{upgrade} --set providers='{{aws}}' --set namespaces='{{default}}'")).await?;
    assert!(!may_create(&shell, "deployments").await? && !may_create(&shell, "daemonsets").await?);
    run(&shell, &format!("{upgrade} --set providers='{{hcloud}}' --set namespaces='{{kube-system}}'")).await?;
    assert!(may_create(&shell, "deployments").await? && !may_create(&shell, "daemonsets").await?);
    let others = "kubectl --namespace default get roles,rolebindings --ignore-not-found ccm-operator-managed -o name";
    assert_eq!(run(&shell, others).await?, "", "what another namespace had");

    let description = run(&shell, DESCRIPTION).await?;
    run(&shell, OLDER).await?;
    run(&shell, upgrade).await?;
    assert_eq!(run(&shell, DESCRIPTION).await?, "old", "Helm takes no notice");
    let unforced = "helm show crds charts/ccm-operator | kubectl apply --server-side -f -";
    let (code, output) = shell.run(unforced).await?;
    assert!(code == Some(1) && output.contains("conflict with \"helm\""), "{output}");
    follow(&shell, ("docs/installing-with-helm.md", "Upgrading")).await?;
    assert_eq!(run(&shell, DESCRIPTION).await?, description);
    assert_eq!(uid(&shell).await?, before, "the CCM has run all the time");

    follow(&shell, ("docs/installing-with-helm.md", "Uninstalling, but not the CCMs")).await?;
    assert_eq!(installed(&shell).await?, "");
    run(&shell, "kubectl get ccm cluster").await?;
    run(&shell, "kubectl --namespace ccm-operator get configmap ccm-operator-inventory").await?;
    assert_eq!(uid(&shell).await?, before, "the CCM is still there");

    follow(&shell, ("docs/any-kubernetes.md", "Installing the operator")).await?;
    follow(&shell, ("docs/installing-with-helm.md", "From kubectl to Helm")).await?;
    changes(&shell, 6).await?;
    assert_eq!(uid(&shell).await?, before, "it was taken over");

    follow(&shell, ("docs/any-kubernetes.md", "Changing, pausing, removing")).await?;
    follow(&shell, ("docs/installing-with-helm.md", "Uninstalling everything")).await?;
    assert_eq!((installed(&shell).await?, left(&shell).await?), (String::new(), String::new()));
    ensure!(shell.run("kubectl get ccm").await?.0 != Some(0), "the definition is still there");
    Ok(())
}

/// Changes the `CloudControllerManager`, and waits until its Deployment follows.
async fn changes(shell: &Shell, verbosity: u8) -> Result<()> {
    let spec = format!("{{\"spec\": {{\"logging\": {{\"verbosity\": {verbosity}}}}}}}");
    run(shell, &format!("kubectl patch ccm cluster --type=merge --patch='{spec}'")).await?;
    eventually("the change", LIMIT, async || {
        let arguments = "kubectl --namespace kube-system get deployments --selector app.kubernetes.io/instance=cluster \
                         -o jsonpath='{..args}'";
        let arguments = run(shell, arguments).await?;
        ensure!(arguments.contains(&format!("--v={verbosity}")), "{arguments}");
        Ok(Some(()))
    })
    .await
}

#[test]
fn the_page_names_the_version_of_helm() -> Result<()> {
    let read = |path: &str| fs::read_to_string(repository().join(path));
    let module = read("hack/helm/go.mod")?;
    let version =
        module.lines().find_map(|line| line.strip_prefix("require helm.sh/helm/v3 v")).context("a version")?;
    let version = version.split(' ').next().unwrap_or_default();
    assert!(read("docs/installing-with-helm.md")?.contains(&format!("tested with {version}")), "{version}");
    assert!(read("docs/supported-versions.md")?.contains(&format!("Helm {version}")), "{version}");
    Ok(())
}

#[tokio::test]
async fn kustomize_installs_an_operator_that_works() -> Result<()> {
    let (fixture, shell) = fixture().await?;
    follow(&shell, ("docs/installing-with-helm.md", "With kustomize")).await?;
    run(&shell, "kubectl --namespace ccm-operator rollout status deployment ccm-operator --timeout=1m").await?;
    run(&shell, "kubectl get ccm").await.context("the definition is served")?;
    follow(&shell, ("docs/any-kubernetes.md", "The first cloud-controller-manager")).await?;
    assert_eq!(fixture.uninitialized().await?, Vec::<String>::new());
    Ok(())
}
