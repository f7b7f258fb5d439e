//! The cluster of [`crate::support::lab`] with the objects of the provider AWS, which most tests use.

use std::{io::Write, path::Path};

use anyhow::{Result, ensure};
use ccm_operator::{cluster::request, object::Object, provider::embedded};
use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::Value;

pub(crate) use crate::support::lab::*;
use crate::support::{eventually, operator::Operator};

/// The field manager of the Go operator's requests.
pub(crate) const PREDECESSOR: &str = "cluster-controller-manager-operator";

impl Lab {
    /// A live object of AWS, by its kind; `None` if it does not exist.
    pub(crate) async fn live(&self, kind: &str) -> Result<Option<Value>> {
        let object = aws_manifest(kind);
        let live = self.api(&object).get_opt(object.name()).await?;
        Ok(live.map(serde_json::to_value).transpose()?)
    }

    /// Waits until an object of AWS exists.
    pub(crate) async fn exists(&self, kind: &str, operator: &Operator) -> Result<()> {
        let exists = eventually(kind, LIMIT, async || Ok(self.live(kind).await?.map(drop))).await;
        exists.map_err(|error| error.context(format!("the operator's log:\n{}", operator.log())))
    }

    /// Waits until the Deployment of AWS has two replicas.
    pub(crate) async fn has_two_replicas(&self, operator: &Operator) -> Result<()> {
        let repaired = eventually("two replicas", LIMIT, async || {
            let live = self.live("Deployment").await?.unwrap_or_default();
            ensure!(live["spec"]["replicas"] == 2, "{}", live["spec"]["replicas"]);
            Ok(Some(()))
        });
        repaired.await.map_err(|error| error.context(format!("the operator's log:\n{}", operator.log())))
    }

    /// Changes a live object of AWS as an administrator's client does, by a patch that counts as an update.
    pub(crate) async fn update(&self, kind: &str, patch: &Value) -> Result<Value> {
        let object = aws_manifest(kind);
        let params = PatchParams { field_manager: Some("kubectl-edit".into()), ..PatchParams::default() };
        Ok(serde_json::to_value(self.api(&object).patch(object.name(), &params, &Patch::Merge(patch)).await?)?)
    }

    /// Deletes a live object of AWS.
    pub(crate) async fn delete(&self, kind: &str) -> Result<()> {
        let object = aws_manifest(kind);
        self.api(&object).delete(object.name(), &DeleteParams::default()).await?;
        Ok(())
    }

    /// The API of an object's kind in its namespace.
    pub(crate) fn api(&self, object: &Object) -> Api<DynamicObject> {
        request::api(&self.client, object.kind(), object.namespace())
    }
}

/// The operator's binary.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ccm-operator"))
}

/// Whether the user who runs the tests has the permissions that a test needs. In CI a missing permission fails the test: it must
/// not pass without a check.
pub(crate) fn can(what: &str, is_possible: bool) -> bool {
    assert!(is_possible || std::env::var_os("CI").is_none(), "CI must run this test as a user who can {what}");
    if !is_possible {
        let _ = writeln!(std::io::stderr(), "skipped: this user cannot {what}");
    }
    is_possible
}

/// Runs a check for each item, several at a time. Each needs at most one cluster, and other tests need some of them too.
pub(crate) async fn for_each<T>(
    items: impl IntoIterator<Item = T>,
    check: impl AsyncFn(T) -> Result<()>,
) -> Result<()> {
    stream::iter(items).map(|item| check(item)).buffer_unordered(4).try_collect().await
}

/// The manifests of the provider AWS.
pub(crate) fn aws_manifests() -> Vec<Object> {
    let catalog = embedded::catalog().expect("the embedded catalog");
    catalog.providers().find(|provider| provider.name() == "aws").expect("aws").manifests.clone()
}

/// The one of a kind.
pub(crate) fn aws_manifest(kind: &str) -> Object {
    aws_manifests().into_iter().find(|object| object.kind().kind == kind).expect("a manifest of this kind")
}
