//! Reads objects once, for commands that end afterwards (IO). Writes nothing.

use std::time::Duration;

use kube::{Client, api::ListParams};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    cluster::request::{self, Cause, api, describe_objects},
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
    let objects = api(client, kind, namespace);
    let answer = ask(|| objects.get_opt(name)).await;
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
    let (mut params, objects) = (params.clone(), api(client, kind, namespace));
    loop {
        let answer = ask(|| objects.list(&params)).await;
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

/// Sends a request, and repeats it after the pause that the API server asks for, as client-go does: the storage of a kind that was
/// just defined takes a moment. All tries together take no longer than a request may.
async fn ask<T, F: Future<Output = kube::Result<T>>>(request: impl Fn() -> F) -> Result<T, Cause> {
    let deadline = Instant::now() + request::timeout();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = request::send(Some(left), request()).await;
        let pause = answer.as_ref().err().map_or(Duration::ZERO, Cause::retry_after);
        if pause.is_zero() || Instant::now() + pause > deadline {
            return answer;
        }
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use kube::core::Status;
    use serde_json::json;

    use super::*;

    fn refusal(seconds: u32) -> kube::Error {
        let details = serde_json::from_value(json!({"retryAfterSeconds": seconds})).unwrap();
        kube::Error::Api(Box::new(Status { code: 429, details: Some(details), ..Status::failure("wait", "wait") }))
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_api_server_asks_to_repeat_is_repeated_for_the_time_of_a_request() {
        let tries = Cell::new(0);
        let answer = async |works_at: u32, pause: u32| {
            tries.set(0);
            ask(|| {
                tries.set(tries.get() + 1);
                std::future::ready(if tries.get() < works_at { Err(refusal(pause)) } else { Ok(()) })
            })
            .await
            .is_ok()
        };
        assert!(answer(4, 1).await && tries.get() == 4);
        assert!(!answer(2, 0).await && tries.get() == 1, "a refusal that asks for no pause");
        assert!(!answer(100, 2).await && tries.get() == 8, "{} tries", tries.get());
        assert!(!answer(2, 60).await && tries.get() == 1, "a pause that is too long");
    }
}
