//! Objects read once, for commands that look at a cluster and end (IO). Nothing here writes.

use std::time::Duration;

use kube::{Client, api::ListParams};
use serde_json::Value;

use crate::{
    cluster::request::{self, Cause, NO_DEADLINE, api, describe_objects},
    object::{Kind, Object},
};

/// Why objects could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or did not answer.
    #[error("failed to read {what}")]
    Read {
        /// The objects, as [`describe_objects`] puts them.
        what: String,
        /// The cause.
        source: Cause,
    },
    /// The object does not have the expected form.
    #[error("failed to parse {what}")]
    Parse {
        /// The object, as [`describe_objects`] puts it.
        what: String,
        /// The cause.
        source: serde_json::Error,
    },
    /// The API server does not serve this kind.
    #[error("this cluster does not serve {0}")]
    NotServed(String),
}

impl Error {
    /// The pause that the API server asks for; else zero.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Read { source, .. } => source.retry_after(),
            Self::Parse { .. } | Self::NotServed(_) => Duration::ZERO,
        }
    }

    /// Whether the API server answered; if it did not, further requests are of no use.
    pub fn is_an_answer(&self) -> bool {
        match self {
            Self::Read { source, .. } => source.is_answer(),
            Self::Parse { .. } | Self::NotServed(_) => true,
        }
    }
}

/// The live state of a planned object.
pub async fn live(client: &Client, object: &Object) -> Result<Option<Value>, Error> {
    get(client, object.kind(), object.namespace(), object.name()).await
}

/// One object, `None` if it does not exist. The namespace of a cluster-scoped kind is empty.
pub async fn get(client: &Client, kind: &Kind, namespace: &str, name: &str) -> Result<Option<Value>, Error> {
    let answer = request::send(NO_DEADLINE, api(client, kind, namespace).get_opt(name)).await;
    let answer = answer.map_err(|source| {
        // That an object does not exist is no error.
        if source.is_absent() {
            return Error::NotServed(format!("{}.{}", kind.plural, kind.api_version()));
        }
        Error::Read { what: describe_objects(kind, namespace, name), source }
    });
    Ok(answer?.as_ref().map(request::to_value))
}

/// The objects of a kind in a namespace. The namespace of a cluster-scoped kind is empty.
pub async fn list(client: &Client, kind: &Kind, namespace: &str, params: &ListParams) -> Result<Vec<Value>, Error> {
    let mut objects = Vec::new();
    each(client, kind, namespace, params, |object| objects.push(object)).await?;
    Ok(objects)
}

/// The same, one after the other: with a limit in pages, of which only one is held.
pub async fn each(
    client: &Client,
    kind: &Kind,
    namespace: &str,
    params: &ListParams,
    mut take: impl FnMut(Value),
) -> Result<(), Error> {
    let mut params = params.clone();
    loop {
        let answer = request::send(NO_DEADLINE, api(client, kind, namespace).list(&params)).await;
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
