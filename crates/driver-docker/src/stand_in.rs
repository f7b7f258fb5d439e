//! A server in place of an Engine, for tests of what a real one does not do on demand.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use ccm_drivers::{
    contract::{Driver, DriverType, Result},
    settings::{COMMON, Given, Values},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, UnixListener},
    task::JoinHandle,
};
use tokio_rustls::TlsAcceptor;

use crate::Docker;

pub(crate) mod certificates;

/// The id of the stand-in.
pub(crate) const ID: &str = "ENGINE";

/// An answer.
pub(crate) enum Reply {
    Json(u16, Value),
    /// These bytes, and then the end of the connection.
    Bytes(Vec<u8>),
    /// The end of the connection.
    Cut,
    /// None, ever.
    Never,
}

/// A request: method and path with its query, without the version, and the body.
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

type Answerer = dyn Fn(&Asked) -> Option<Reply> + Send + Sync;

/// What it has seen.
#[derive(Default)]
struct Seen {
    /// The requests with the version, but the first two of each connection.
    lines: Mutex<Vec<String>>,
    connections: AtomicUsize,
}

/// The server, which ends when it is dropped.
pub(crate) struct StandIn {
    pub(crate) host: String,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
    _folder: TempDir,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl StandIn {
    /// Answers on a socket. Where the function returns nothing, it answers as an Engine of version 1.41 without containers.
    pub(crate) fn start(answerer: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("docker.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (seen, answerer): (Arc<Seen>, Arc<Answerer>) = (Arc::default(), Arc::new(answerer));
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, shared.clone(), answerer.clone()));
            }
        });
        Self { host: format!("unix://{}", path.display()), seen, task, _folder: folder }
    }

    /// Answers with TLS on a port of the loopback.
    pub(crate) async fn start_tls(config: Arc<rustls::ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = format!("tcp://{}", listener.local_addr().unwrap());
        let seen: Arc<Seen> = Arc::default();
        let shared = seen.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen) = (TlsAcceptor::from(config.clone()), shared.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        serve(stream, seen, Arc::new(|_: &Asked| None)).await;
                    }
                });
            }
        });
        Self { host, seen, task, _folder: tempfile::tempdir().unwrap() }
    }

    /// The driver of this Engine.
    pub(crate) async fn driver(&self) -> Box<dyn Driver> {
        open(&[("host", &self.host)]).await.unwrap()
    }

    /// The requests so far, without those that open a connection.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.lines.lock().unwrap().clone()
    }

    /// The number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }
}

/// Values of the settings.
pub(crate) fn values(given: &[(&str, &str)]) -> Values {
    let flags = given.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect();
    let given = Given { flags, ..Given::default() };
    Values::resolve("docker", Docker.settings().iter().chain(&COMMON), &given).unwrap()
}

/// The driver with these settings.
pub(crate) async fn open(given: &[(&str, &str)]) -> Result<Box<dyn Driver>> {
    Docker.open(&values(given)).await
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, seen: Arc<Seen>, answerer: Arc<Answerer>) {
    seen.connections.fetch_add(1, Ordering::SeqCst);
    let mut buffer = Vec::new();
    let mut count = 0;
    while let Some((line, body)) = request(&mut stream, &mut buffer).await {
        count += 1;
        if count > 2 {
            seen.lines.lock().unwrap().push(line.clone());
        }
        let asked = Asked { line: unversioned(&line), body };
        match answerer(&asked).unwrap_or_else(|| usual(&asked.line)) {
            Reply::Json(status, value) => {
                let body = if status == 204 { String::new() } else { value.to_string() };
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                if stream.write_all(head.as_bytes()).await.is_err() {
                    return;
                }
            }
            Reply::Bytes(bytes) => {
                let _ = stream.write_all(&bytes).await;
                let _ = stream.shutdown().await;
                return;
            }
            Reply::Cut => return,
            Reply::Never => std::future::pending().await,
        }
    }
}

/// The first line of the next request without `HTTP/1.1`, and its body.
async fn request(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    loop {
        let text = String::from_utf8_lossy(buffer).into_owned();
        if let Some(end) = text.find("\r\n\r\n") {
            let head = text[..end].to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            let all = end + 4 + length;
            if buffer.len() >= all {
                let line = text.lines().next()?.strip_suffix(" HTTP/1.1")?.to_owned();
                let body = buffer[end + 4..all].to_vec();
                buffer.drain(..all);
                return Some((line, body));
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

fn unversioned(line: &str) -> String {
    let Some((method, path)) = line.split_once(" /v1.") else { return line.to_owned() };
    format!("{method} /{}", path.split_once('/').map_or("", |(_, rest)| rest))
}

fn usual(line: &str) -> Reply {
    match line {
        "GET /version" => Reply::Json(200, json!({"ApiVersion": "1.41", "MinAPIVersion": "1.12"})),
        "GET /info" => Reply::Json(200, json!({"ID": ID, "Name": "name"})),
        _ if line.starts_with("GET /containers/json") => Reply::Json(200, json!([])),
        _ if line.contains(" /containers/") => {
            let id = line.split(['/', '?']).nth(2).unwrap_or_default();
            Reply::Json(404, json!({"message": format!("No such container: {id}")}))
        }
        _ => Reply::Json(404, json!({"message": "page not found"})),
    }
}
