//! Reviews the permissions of accounts with the API server (IO).

use std::time::Duration;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::{Api, Client, api::PostParams};

use super::request::{self, Cause};

/// A name that no namespace has. Its rules are the rules of the cluster. The API server requires a name.
const NO_NAMESPACE: &str = "_";

/// Whether the ServiceAccount with this user name has a permission; `None` means the caller.
pub async fn may(
    client: &Client,
    account: Option<&str>,
    attributes: ResourceAttributes,
    within: Option<Duration>,
) -> Result<bool, Cause> {
    let (resource_attributes, params) = (Some(attributes), PostParams::default());
    let status = if let Some(account) = account {
        let (groups, user) = (Some(groups(account).into()), Some(account.to_owned()));
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

/// Whether the ServiceAccount with this user name, or the caller for `None`, may delete every node. Permissions for single nodes do not
/// count.
pub async fn may_delete_any_node(client: &Client, user: Option<&str>, within: Option<Duration>) -> Result<bool, Cause> {
    let delete = ResourceAttributes {
        verb: Some("delete".to_owned()),
        resource: Some("nodes".to_owned()),
        version: Some("v1".to_owned()),
        ..ResourceAttributes::default()
    };
    may(client, user, delete, within).await
}

/// Returns the rules of the caller in a namespace, or on the cluster if it is empty, and whether there may be more rules that the API
/// server cannot list.
pub async fn own_rules(client: &Client, namespace: &str) -> Result<(Vec<ResourceRule>, bool), Cause> {
    let namespace = if namespace.is_empty() { NO_NAMESPACE } else { namespace };
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) };
    let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
    let api = Api::all(client.clone());
    let answer = request::send(request::NO_DEADLINE, api.create(&PostParams::default(), &review)).await?;
    Ok(answer.status.map_or((Vec::new(), true), |status| (status.resource_rules, status.incomplete)))
}

/// Returns the groups of a ServiceAccount, which may have permissions.
pub fn groups(account: &str) -> [String; 3] {
    let namespace = account.split(':').nth(2).unwrap_or_default();
    let own = format!("system:serviceaccounts:{namespace}");
    ["system:serviceaccounts".to_owned(), own, "system:authenticated".to_owned()]
}
