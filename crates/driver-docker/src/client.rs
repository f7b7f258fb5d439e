//! A client of one Docker Engine. It keeps a few connections, and each of them has proven which Engine it leads to before it is
//! used: see [`connection`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccm_drivers::contract::{Endpoint, Error, ErrorKind, Result};
use http_body_util::{BodyExt, Limited};
use hyper::{
    Method, Request,
    body::{Bytes, Incoming},
    header,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{hosts::Host, tls::Tls};

mod answer;
mod connection;
mod failure;
mod identity;
mod url;
mod version;

pub(crate) use answer::{Answer, No};
pub(crate) use identity::{Identities, Info};
pub(crate) use url::{filters, query, segment};
pub(crate) use version::Version;

use connection::Connection;

/// The maximum size of an answer: ten thousand containers with many labels have a quarter of it.
const MOST_OF_AN_ANSWER: usize = 64 << 20;

/// How many connections wait for their next request.
const IDLE: usize = 4;

/// A Docker Engine, as one region.
pub(crate) struct Engine {
    pub(crate) host: Host,
    tls: Option<Tls>,
    /// The version of the API that the settings demand.
    pinned: Option<Version>,
    identities: Arc<Identities>,
    idle: Mutex<Vec<Connection>>,
}

/// The body of a request.
pub(crate) enum Body {
    None,
    Json(Value),
    Tar(Bytes),
}

impl Engine {
    pub(crate) fn new(host: Host, tls: Option<Tls>, pinned: Option<Version>, identities: Arc<Identities>) -> Self {
        // The socket of a path is protected by the permissions of the file.
        let tls = tls.filter(|_| matches!(host.endpoint, Endpoint::Tcp(..)));
        Self { host, tls, pinned, identities, idle: Mutex::default() }
    }

    /// Sends a GET and parses the answer.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.send(Method::GET, path, Body::None).await?.ok()?.json()
    }

    /// Sends a request to a path below the version of the API, and reads the whole answer, whatever its status.
    pub(crate) async fn send(&self, method: Method, path: &str, body: Body) -> Result<Answer> {
        let (connection, head, body) = self.open(method.clone(), path, body).await?;
        let read = Limited::new(body, MOST_OF_AN_ANSWER).collect().await;
        let body = read.map_err(|error| failure::of(&*error).context(self.context(&method, path)))?.to_bytes();
        self.keep(connection);
        Ok(head.whole(self.context(&method, path), body))
    }

    /// Sends a request whose answer is a stream without a known end. The connection ends with it.
    pub(crate) async fn stream(&self, method: Method, path: &str, body: Body) -> Result<Stream> {
        let (connection, head, body) = self.open(method.clone(), path, body).await?;
        let what = self.context(&method, path);
        if head.is_success() {
            return Ok(Stream { body, what, _connection: connection });
        }
        let read = Limited::new(body, MOST_OF_AN_ANSWER).collect().await;
        let body = read.map_err(|error| failure::of(&*error).context(&what))?.to_bytes();
        Err(head.whole(what, body).error())
    }

    /// Asks the Engine who it is, and checks it again.
    pub(crate) async fn info(&self) -> Result<Info> {
        let info = self.get("/info").await?;
        let checked = self.identities.admit(&self.host.region, &info);
        checked.map(|()| info).map_err(|error| error.context(format!("region {}", self.host.region)))
    }

    /// The version of the API on the newest connection.
    pub(crate) async fn version(&self) -> Result<Version> {
        let connection = self.connection().await?;
        let version = connection.version;
        self.keep(connection);
        Ok(version)
    }

    /// Forgets all connections.
    pub(crate) fn close(&self) {
        self.idle().clear();
    }

    async fn open(&self, method: Method, path: &str, body: Body) -> Result<(Connection, Answer, Incoming)> {
        let mut connection = self.connection().await?;
        let sent = match self.request(&connection, &method, path, body) {
            Ok(request) => connection.send(request).await,
            Err(error) => Err(error),
        };
        let (head, body) = sent.map_err(|error| error.context(self.context(&method, path)))?.into_parts();
        tracing::debug!(region = self.host.region, %method, path, status = head.status.as_u16(), "asked the Engine");
        Ok((connection, Answer::of(&head), body))
    }

    /// A connection that waits, or a new one.
    async fn connection(&self) -> Result<Connection> {
        loop {
            let waiting = self.idle().pop();
            let Some(mut connection) = waiting else { break };
            if connection.is_ready().await {
                return Ok(connection);
            }
        }
        let (host, tls) = (&self.host, self.tls.as_ref());
        let connected = connection::connect(host, tls, self.pinned, &self.identities).await;
        connected.map_err(|error| error.context(format!("region {}", host.region)))
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle();
        if idle.len() < IDLE {
            idle.push(connection);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn request(
        &self,
        connection: &Connection,
        method: &Method,
        path: &str,
        body: Body,
    ) -> Result<Request<connection::Content>> {
        let (kind, bytes) = match body {
            Body::None => (None, Bytes::new()),
            Body::Json(value) => (Some("application/json"), Bytes::from(value.to_string())),
            Body::Tar(bytes) => (Some("application/x-tar"), bytes),
        };
        let mut request = Request::builder()
            .method(method.clone())
            .uri(format!("/v{}{path}", connection.version))
            .header(header::HOST, connection::host_header(&self.host));
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        request
            .body(connection::Content::new(bytes))
            .map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))
    }

    fn context(&self, method: &Method, path: &str) -> String {
        let path = path.split('?').next().unwrap_or_default();
        format!("region {}: {method} {path}", self.host.region)
    }
}

/// An answer that is read piece by piece.
pub(crate) struct Stream {
    body: Incoming,
    what: String,
    _connection: Connection,
}

impl Stream {
    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| failure::of(&error).context(&self.what))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
