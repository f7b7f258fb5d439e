//! `make rbac`: prints the permissions that the operator's Roles and `ClusterRole` grant, on OpenShift those of `manifests/`, elsewhere
//! those of an installation for all providers, and that no request in the audit logs of the tests has used. A permission that stays
//! has a comment in the manifest that says why; those of the providers are held in order to be granted. The same for our own
//! cloud-controller-manager and `assets/docker/`.
#![allow(clippy::print_stdout, reason = "a program for people")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::{env, path::Path};

use anyhow::{Result, ensure};
use ccm_operator::{
    api::placement::Distribution,
    plan::{
        install::{Installation, NAME, external::CarriedProviders},
        limits::Limits,
    },
    provider::embedded,
    text::yaml,
};
use support::{
    audit::{self, AuditLog},
    objects, permissions,
};

/// The operator on OpenShift, and elsewhere, and our cloud-controller-manager.
const ACCOUNTS: [&str; 3] = [
    "system:serviceaccount:openshift-cloud-controller-manager-operator:cluster-cloud-controller-manager",
    "system:serviceaccount:ccm-operator:ccm-operator",
    "system:serviceaccount:kube-system:docker-cloud-controller-manager",
];
const MANIFEST: &str = "manifests/0000_26_cloud-controller-manager-operator_02_rbac_operator.yaml";
const DOCKER: &str = "assets/docker/kubernetes/rbac.yaml";

fn main() -> Result<()> {
    let logs: Vec<_> = env::args_os().skip(1).collect();
    ensure!(!logs.is_empty(), "usage: rbac AUDIT-LOG...");
    let mut all = Vec::new();
    for log in logs {
        all.extend(AuditLog::new(log.into()).all()?);
    }
    let read = |file: &str| objects::read_yaml(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
    let manifests = [read(MANIFEST)?, yaml::documents(&installation()?)?, read(DOCKER)?];
    for (account, manifests) in ACCOUNTS.into_iter().zip(manifests) {
        let requests = audit::by_user(all.clone(), account);
        let (unused, granted) = permissions::unused(&manifests, &requests)?;
        println!("{account}: {} requests; {} of {granted} permissions are unused", requests.len(), unused.len());
        for permission in unused {
            println!("  {permission}");
        }
    }
    Ok(())
}

/// The installation for all providers.
fn installation() -> Result<String> {
    let catalog = embedded::catalog()?;
    let installation = Installation {
        providers: catalog.kubernetes().collect(),
        namespaces: vec!["kube-system".to_owned()],
        operator_namespace: NAME.to_owned(),
        secrets: vec!["hcloud".to_owned()],
        image: None,
        distribution: Distribution::Other,
        control_plane_nodes: 3,
        api_server: None,
        node_deletion: true,
        expose_metrics: false,
        metrics_certificate: None,
        limits: Limits::default(),
        external: CarriedProviders::default(),
    };
    let mut texts = Vec::new();
    for (_, bytes) in embedded::install() {
        texts.push(installation.of(std::str::from_utf8(bytes)?)?);
    }
    Ok(texts.join("---\n"))
}
