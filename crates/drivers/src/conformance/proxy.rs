//! A proxy between a driver and its cloud, which makes the faults of a network. It passes bytes and knows no protocol, so that TLS
//! passes, too.
//!
//! It counts *turns*: a turn begins with the first bytes of the client on a connection, or the first ones after bytes of the server.
//! So after `n` turns the client has got `n` answers, and the next request is not on its way yet.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream},
    task::{AbortHandle, JoinSet},
};

use crate::contract::Endpoint;

/// The name of the socket in its folder.
const SOCKET: &str = "cloud.sock";

/// What the proxy does.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// It passes everything.
    None,
    /// It closes each connection.
    Refuse,
    /// It passes this many turns. Then it closes each connection on which the client writes, and each new one.
    Cut(usize),
    /// It passes this many turns. Then it answers with these bytes, and closes the connection.
    Garbage(usize, Arc<[u8]>),
}

#[derive(Debug)]
struct State {
    fault: Fault,
    turns: usize,
    /// Whether the fault has happened.
    hit: bool,
    used: bool,
}

/// What happens with the first bytes of a turn.
enum Turn {
    Pass,
    Close,
    Answer(Arc<[u8]>),
}

impl State {
    fn begins(&mut self) -> Turn {
        let turns = self.turns;
        self.turns += 1;
        let turn = match &self.fault {
            Fault::None => Turn::Pass,
            Fault::Cut(passed) | Fault::Garbage(passed, _) if turns < *passed => Turn::Pass,
            Fault::Refuse | Fault::Cut(_) => Turn::Close,
            Fault::Garbage(_, answer) => Turn::Answer(Arc::clone(answer)),
        };
        self.hit |= !matches!(turn, Turn::Pass);
        turn
    }

    fn accepts(&mut self) -> bool {
        self.used = true;
        let refused = matches!(self.fault, Fault::Refuse) || (self.hit && matches!(self.fault, Fault::Cut(_)));
        self.hit |= refused;
        !refused
    }
}

/// A folder that only this user can enter, removed at the end.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("ccm-verify-{}-{count}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => Box::new(listener.accept().await?.0),
            Self::Unix(listener) => Box::new(listener.accept().await?.0),
        })
    }
}

/// A proxy. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Proxy {
    endpoint: Endpoint,
    state: Arc<Mutex<State>>,
    task: AbortHandle,
    _folder: Option<Folder>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Proxy {
    /// Starts a proxy that passes everything to a place. It listens on a place of the same kind.
    pub(super) async fn start(to: &Endpoint) -> io::Result<Self> {
        let (listener, endpoint, folder) = match to {
            Endpoint::Tcp(..) => {
                let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
                let port = listener.local_addr()?.port();
                (Listener::Tcp(listener), Endpoint::Tcp("127.0.0.1".to_owned(), port), None)
            }
            Endpoint::Unix(_) => {
                let folder = Folder::new()?;
                let path = folder.0.join(SOCKET);
                (Listener::Unix(UnixListener::bind(&path)?), Endpoint::Unix(path), Some(folder))
            }
        };
        let state = Arc::new(Mutex::new(State { fault: Fault::None, turns: 0, hit: false, used: false }));
        let task = tokio::spawn(serve(listener, to.clone(), Arc::clone(&state))).abort_handle();
        Ok(Self { endpoint, state, task, _folder: folder })
    }

    /// The place where it listens.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Makes it do something else from now on, and counts turns from 0.
    pub(super) fn set(&self, fault: Fault) {
        let mut state = locked(&self.state);
        (state.fault, state.turns, state.hit) = (fault, 0, false);
    }

    /// Whether its fault has happened.
    pub(super) fn hit(&self) -> bool {
        locked(&self.state).hit
    }

    /// Whether anybody has connected.
    pub(super) fn was_used(&self) -> bool {
        locked(&self.state).used
    }
}

/// A place where nobody listens.
#[derive(Debug)]
pub(super) struct Nowhere {
    pub(super) endpoint: Endpoint,
    /// Bound, so that nobody else can listen there.
    _socket: Option<TcpSocket>,
    _folder: Option<Folder>,
}

impl Nowhere {
    /// A place of the same kind as another one.
    pub(super) fn like(endpoint: &Endpoint) -> io::Result<Self> {
        Ok(match endpoint {
            Endpoint::Tcp(..) => {
                let socket = TcpSocket::new_v4()?;
                socket.bind((std::net::Ipv4Addr::LOCALHOST, 0).into())?;
                let endpoint = Endpoint::Tcp("127.0.0.1".to_owned(), socket.local_addr()?.port());
                Self { endpoint, _socket: Some(socket), _folder: None }
            }
            Endpoint::Unix(_) => {
                let folder = Folder::new()?;
                Self { endpoint: Endpoint::Unix(folder.0.join(SOCKET)), _socket: None, _folder: Some(folder) }
            }
        })
    }
}

async fn serve(listener: Listener, to: Endpoint, state: Arc<Mutex<State>>) {
    // They end with this task.
    let mut connections = JoinSet::new();
    loop {
        let Ok(client) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        if locked(&state).accepts() {
            connections.spawn(pass(client, to.clone(), Arc::clone(&state)));
        }
    }
}

async fn connect(to: &Endpoint) -> io::Result<Box<dyn Stream>> {
    Ok(match to {
        Endpoint::Tcp(host, port) => Box::new(TcpStream::connect((host.as_str(), *port)).await?),
        Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await?),
    })
}

/// Passes the bytes of a connection until one side ends it, or the fault does.
async fn pass(client: Box<dyn Stream>, to: Endpoint, state: Arc<Mutex<State>>) -> io::Result<()> {
    let (mut from_client, mut to_client) = split(client);
    let (mut from_server, mut to_server) = split(connect(&to).await?);
    let (mut requests, mut answers) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    let mut begins = true;
    loop {
        tokio::select! {
            // What the server has said is delivered before a fault.
            biased;
            count = from_server.read(&mut answers) => {
                let count = count?;
                if count == 0 {
                    return to_client.shutdown().await;
                }
                to_client.write_all(&answers[..count]).await?;
                begins = true;
            }
            count = from_client.read(&mut requests) => {
                let count = count?;
                if count == 0 {
                    to_server.shutdown().await?;
                    tokio::io::copy(&mut from_server, &mut to_client).await?;
                    return to_client.shutdown().await;
                }
                let turn = if begins { locked(&state).begins() } else { Turn::Pass };
                begins = false;
                match turn {
                    Turn::Pass => to_server.write_all(&requests[..count]).await?,
                    Turn::Close => return Ok(()),
                    Turn::Answer(answer) => {
                        to_server.shutdown().await?;
                        to_client.write_all(&answer).await?;
                        to_client.shutdown().await?;
                        // A connection that is closed with unread bytes is reset, and the client may lose the answer.
                        while from_client.read(&mut requests).await? > 0 {}
                        return Ok(());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
