//! Reads objects once, for commands that end afterwards (IO). Writes nothing.

use std::{collections::BTreeSet, time::Duration};

use axum::http::Request;
use kube::{
    Client,
    api::{DynamicObject, GetParams, ListParams, ObjectList},
};
use serde_json::Value;

use crate::{
    cluster::{
        client::Repeatable,
        request::{self, Cause, NO_DEADLINE, api, describe_objects},
    },
    object::{Kind, Object},
};

/// An error of a read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server has refused the request, or has not answered.
    #[error("failed to read {what}")]
    Read {
        /// The objects, as [`describe_objects`] describes them.
        what: String,
        /// The cause.
        source: Cause,
    },
    /// The object does not have the expected form.
    #[error("failed to parse {what}")]
    Parse {
        /// The object, as [`describe_objects`] describes it.
        what: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// The API server does not serve this kind.
    #[error("this cluster does not serve {0}")]
    NotServed(String),
}

impl Error {
    /// The pause that the API server asks for; zero if there is none.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Read { source, .. } => source.retry_after(),
            Self::Parse { .. } | Self::NotServed(_) => Duration::ZERO,
        }
    }

    /// Whether the API server has answered. If not, further requests are useless.
    pub fn is_an_answer(&self) -> bool {
        match self {
            Self::Read { source, .. } => source.is_answer(),
            Self::Parse { .. } | Self::NotServed(_) => true,
        }
    }
}

/// Reads the live state of a planned object.
pub async fn live(client: &Client, object: &Object) -> Result<Option<Value>, Error> {
    get(client, object.kind(), object.namespace(), object.name()).await
}

/// Reads an object; `None` if it does not exist. The namespace of a cluster-scoped kind is empty.
pub async fn get(client: &Client, kind: &Kind, namespace: &str, name: &str) -> Result<Option<Value>, Error> {
    let objects = api(client, kind, namespace);
    let request = kube::core::Request::new(objects.resource_url()).get(name, &GetParams::default());
    let read = async {
        match client.request::<DynamicObject>(repeatable(request)?).await {
            Ok(object) => Ok(Some(object)),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    };
    let answer = request::send(NO_DEADLINE, read).await.map_err(|source| {
        // A missing object is not an error.
        if source.is_absent() {
            return Error::NotServed(format!("{}.{}", kind.plural, kind.api_version()));
        }
        Error::Read { what: describe_objects(kind, namespace, name), source }
    });
    Ok(answer?.as_ref().map(request::to_value))
}

/// Reads the objects of a kind in a namespace. The namespace of a cluster-scoped kind is empty.
pub async fn list(client: &Client, kind: &Kind, namespace: &str, params: &ListParams) -> Result<Vec<Value>, Error> {
    let mut objects = Vec::new();
    each(client, kind, namespace, params, |object| objects.push(object)).await?;
    Ok(objects)
}

/// Calls `take` with each object of a kind in a namespace. With a limit, objects are read in pages, and only one page is in memory.
pub async fn each(
    client: &Client,
    kind: &Kind,
    namespace: &str,
    params: &ListParams,
    mut take: impl FnMut(Value),
) -> Result<(), Error> {
    let (mut params, objects) = (params.clone(), api(client, kind, namespace));
    loop {
        let request = kube::core::Request::new(objects.resource_url()).list(&params);
        let read = async { client.request::<ObjectList<DynamicObject>>(repeatable(request)?).await };
        let answer = request::send(NO_DEADLINE, read).await;
        let list = answer.map_err(|source| Error::Read { what: describe_objects(kind, namespace, ""), source })?;
        for object in &list.items {
            let mut value = request::to_value(object);
            // The items of a list have no types of their own.
            value["apiVersion"] = kind.api_version().into();
            value["kind"] = kind.kind.into();
            take(value);
        }
        params.continue_token = list.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(());
        }
    }
}

/// The largest number of objects whose names are read at once.
const MAX_NAMES: u32 = 500;

/// Reads the names of the objects of a kind in a namespace within a time limit, with one request that is not repeated; `None` if there
/// are more than 500.
pub async fn names(
    client: &Client,
    kind: &Kind,
    namespace: &str,
    limit: Option<Duration>,
) -> Result<Option<BTreeSet<String>>, Error> {
    let objects = api(client, kind, namespace);
    let params = ListParams::default().limit(MAX_NAMES);
    let answer = request::send(limit, objects.list_metadata(&params)).await;
    let list = answer.map_err(|source| Error::Read { what: describe_objects(kind, namespace, ""), source })?;
    let is_whole = list.metadata.continue_.is_none_or(|token| token.is_empty());
    Ok(is_whole.then(|| list.items.into_iter().filter_map(|object| object.metadata.name).collect()))
}

/// Marks a request so that the client repeats it.
fn repeatable(request: Result<Request<Vec<u8>>, kube::core::request::Error>) -> kube::Result<Request<Vec<u8>>> {
    let mut request = request.map_err(kube::Error::BuildRequest)?;
    request.extensions_mut().insert(Repeatable);
    Ok(request)
}
