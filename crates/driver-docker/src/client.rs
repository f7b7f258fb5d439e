//! A client of one Docker Engine. It keeps a few connections, and each of them has proven which Engine it leads to before it is
//! used: see [`connection`].

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ccm_drivers::contract::{Endpoint, Error, ErrorKind, Result};
use http_body_util::{BodyExt, Limited};
use hyper::{
    Method, Request,
    body::{Bytes, Incoming},
    header,
};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::{hosts::Host, tls::Tls};

mod answer;
mod connection;
mod failure;
mod identity;
mod url;
mod version;

pub(crate) use answer::{Answer, Reason};
pub(crate) use identity::{Identities, Info};
pub(crate) use url::{filters, query, segment};
pub(crate) use version::Version;

use connection::{Connection, Failed};

/// The maximum size of an answer: ten thousand containers with many labels have a quarter of it.
const MAX_ANSWER: usize = 64 << 20;

/// How many connections wait for their next request.
const MAX_IDLE: usize = 4;

/// How long a connection waits for its next request. A firewall may have forgotten an older one without a word.
const IDLE_LIMIT: Duration = Duration::from_secs(30);

/// A Docker Engine, as one region.
pub(crate) struct Engine {
    pub(crate) host: Host,
    tls: Option<Tls>,
    /// The version of the API that the settings demand.
    pinned: Option<Version>,
    identities: Arc<Identities>,
    /// The connections that wait, and since when.
    idle: Mutex<Vec<(Connection, Instant)>>,
}

/// Forgets the connections that wait, unless the request ends well: they are as old as the one that failed.
struct Unfinished<'a>(Option<&'a Engine>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if let Some(engine) = self.0 {
            engine.close();
        }
    }
}

/// Whether a text is the whole id of a container. Names and parts of ids, which an Engine also takes, are not.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|at| at.is_ascii_digit() || (b'a'..=b'f').contains(&at))
}

/// The body of a request.
#[derive(Clone)]
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
        let mut unfinished = Unfinished(Some(self));
        let (connection, head, body) = self.open(&method, path, body).await?;
        let read = Limited::new(body, MAX_ANSWER).collect().await;
        let body = read.map_err(|error| failure::of(&*error).context(self.context(&method, path)))?.to_bytes();
        unfinished.0 = None;
        self.keep(connection);
        Ok(head.whole(self.context(&method, path), body))
    }

    /// Sends a request whose answer is a stream without a known end. The connection ends with it.
    pub(crate) async fn stream(&self, method: Method, path: &str, body: Body) -> Result<Stream> {
        let mut unfinished = Unfinished(Some(self));
        let (connection, head, body) = self.open(&method, path, body).await?;
        unfinished.0 = None;
        let what = self.context(&method, path);
        if head.is_success() {
            return Ok(Stream { body, what, _connection: connection });
        }
        let read = Limited::new(body, MAX_ANSWER).collect().await;
        let body = read.map_err(|error| failure::of(&*error).context(&what))?.to_bytes();
        Err(head.whole(what, body).error())
    }

    /// Asks the Engine who it is, and checks it again. A new connection has just done so.
    pub(crate) async fn info(&self) -> Result<Info> {
        let mut connection = self.connection().await?;
        let greeting = connection.greeting.take();
        self.keep(connection);
        if let Some(info) = greeting {
            return Ok(info);
        }
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

    /// Sends a request. Only one of which nothing was sent is sent again, over a new connection.
    async fn open(&self, method: &Method, path: &str, body: Body) -> Result<(Connection, Answer, Incoming)> {
        let mut is_again = false;
        loop {
            let mut connection = self.connection().await?;
            let request = self.request(&connection, method, path, body.clone())?;
            match connection.send(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    return Ok((connection, Answer::of(&head), body));
                }
                Err(Failed { is_unsent: true, .. }) if !is_again => {
                    self.close();
                    is_again = true;
                }
                Err(Failed { error, .. }) => return Err(error.context(self.context(method, path))),
            }
        }
    }

    /// A connection that waits, or a new one.
    async fn connection(&self) -> Result<Connection> {
        let waiting = self.idle().pop();
        if let Some((connection, _)) = waiting.filter(|(_, since)| since.elapsed() < IDLE_LIMIT) {
            return Ok(connection);
        }
        // The others have waited longer.
        self.close();
        let (host, tls) = (&self.host, self.tls.as_ref());
        let connected = connection::connect(host, tls, self.pinned, &self.identities).await;
        connected.map_err(|error| error.context(format!("region {}", host.region)))
    }

    fn keep(&self, connection: Connection) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push((connection, Instant::now()));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Connection, Instant)>> {
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
