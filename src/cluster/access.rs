//! What accounts may do, as the API server answers a review (IO).

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};

use super::request::{self, Cause};

/// Whether the ServiceAccount with this user name may do something, or the caller for `None`.
///
/// # Errors
///
/// The request failed, took longer than `within`, or the caller may not ask.
pub async fn may(
    client: &Client,
    account: Option<&str>,
    attributes: ResourceAttributes,
    within: Option<Duration>,
) -> Result<bool, Cause> {
    let (resource_attributes, params) = (Some(attributes), PostParams::default());
    let status = if let Some(account) = account {
        let (groups, user) = (Some(groups(account)), Some(account.to_owned()));
        let spec = SubjectAccessReviewSpec { resource_attributes, groups, user, ..SubjectAccessReviewSpec::default() };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        request::send(within, Api::all(client.clone()).create(&params, &review)).await?.status
    } else {
        let spec = SelfSubjectAccessReviewSpec { resource_attributes, ..SelfSubjectAccessReviewSpec::default() };
        let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
        request::send(within, Api::all(client.clone()).create(&params, &review)).await?.status
    };
    Ok(status.is_some_and(|status| status.allowed))
}

/// The groups of a ServiceAccount: rights may be granted to them.
fn groups(account: &str) -> Vec<String> {
    let namespace = account.split(':').nth(2).unwrap_or_default();
    let own = format!("system:serviceaccounts:{namespace}");
    ["system:serviceaccounts".to_owned(), own, "system:authenticated".to_owned()].into()
}
