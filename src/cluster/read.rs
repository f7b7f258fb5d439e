//! Objects read once, for commands that look at a cluster and end (IO). Nothing here writes.

use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams},
};
use serde_json::Value;

use crate::{
    cluster::request::{self, Cause, REQUEST_TIMEOUT},
    object::Object,
};

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or did not answer.
    #[error("failed to read {what}")]
    Read {
        /// What was asked for, as RBAC and kubectl name it.
        what: String,
        /// The cause.
        source: Cause,
    },
    /// It is not what it should be.
    #[error("failed to understand {what}")]
    Parse {
        /// What was read.
        what: String,
        /// The cause.
        source: serde_json::Error,
    },
}

impl Error {
    /// How long the API server has asked to be left alone.
    pub fn retry_after(&self) -> std::time::Duration {
        match self {
            Self::Read { source, .. } => source.retry_after(),
            Self::Parse { .. } => std::time::Duration::ZERO,
        }
    }

    /// Whether the API server answered; if it did not, asking for more is of no use.
    pub fn is_an_answer(&self) -> bool {
        matches!(self, Self::Parse { .. } | Self::Read { source: Cause::Api(kube::Error::Api(_)), .. })
    }
}

/// Reads objects with the rights of the user.
#[derive(Clone)]
pub struct Reader {
    client: Client,
}

impl Reader {
    /// Asks for nothing yet.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The connection.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The live state of a planned object.
    pub async fn live(&self, object: &Object) -> Result<Option<Value>, Error> {
        let kind = object.kind();
        self.get(&request::resource(kind), kind.namespaced.then(|| object.namespace()), object.name()).await
    }

    /// One object, `None` when it is not there.
    pub async fn get(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, Error> {
        let answer = request::send(Some(REQUEST_TIMEOUT), self.api(resource, namespace).get_opt(name)).await;
        let failed = |source| Error::Read { what: describe(resource, namespace, name), source };
        Ok(answer.map_err(failed)?.as_ref().map(request::to_value))
    }

    /// The objects of a resource, of one namespace or of all.
    pub async fn list(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Vec<Value>, Error> {
        let answer = request::send(Some(REQUEST_TIMEOUT), self.api(resource, namespace).list(params)).await;
        let list = answer.map_err(|source| Error::Read { what: describe(resource, namespace, ""), source })?;
        let with_types = |object: &DynamicObject| {
            let mut value = request::to_value(object);
            // The items of a list have no types of their own.
            value["apiVersion"] = resource.api_version.clone().into();
            value["kind"] = resource.kind.clone().into();
            value
        };
        Ok(list.items.iter().map(with_types).collect())
    }

    fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }
}

/// A resource and a name, as RBAC and kubectl put them.
pub fn describe(resource: &ApiResource, namespace: Option<&str>, name: &str) -> String {
    let ApiResource { group, plural, .. } = resource;
    let resource = if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") };
    let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    format!("{resource}{name}{place}")
}
