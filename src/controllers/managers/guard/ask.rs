//! What the guard asks the API server, because no watch shows it (IO).

use k8s_openapi::{
    api::{
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
        coordination::v1::Lease,
    },
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use tracing::debug;

use crate::cluster::request::{self, Cause, REQUEST_TIMEOUT};

/// Whether a ServiceAccount may delete every node. Rights on single nodes do not count: the operator grants these.
pub(super) async fn may_delete_any_node(client: &Client, user: &str, namespace: &str) -> Result<bool, Cause> {
    let delete = ResourceAttributes {
        verb: Some("delete".to_owned()),
        resource: Some("nodes".to_owned()),
        version: Some("v1".to_owned()),
        ..ResourceAttributes::default()
    };
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    let spec = SubjectAccessReviewSpec {
        user: Some(user.to_owned()),
        groups: Some(groups.to_vec()),
        resource_attributes: Some(delete),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = request::send(Some(REQUEST_TIMEOUT), reviews.create(&PostParams::default(), &review)).await;
    let answer = answer.inspect_err(|error| debug!("failed to ask for the rights of {user}: {error}"))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// Since when the holder of a lease has held it; `None` if nobody holds it, or if it cannot be read.
pub(super) async fn leads_since(client: &Client, namespace: &str, name: &str) -> Option<Timestamp> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = request::send(Some(REQUEST_TIMEOUT), leases.get(name)).await;
    let lease = lease.inspect_err(|error| debug!("failed to read lease {namespace}/{name}: {error}")).ok()?;
    let spec = lease.spec?;
    spec.holder_identity.filter(|holder| !holder.is_empty())?;
    spec.acquire_time.map(|time| time.0)
}
