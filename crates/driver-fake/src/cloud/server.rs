//! Serves a cloud on a port of the loopback interface (IO).

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    task::{JoinHandle, JoinSet},
};

use super::Cloud;
use crate::protocol::MAX_LINE;

/// The pause after a connection could not be accepted, as when there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// A server of a cloud. It ends with this value, and so do its connections.
pub struct Server {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves a cloud on a free port. Fails outside of a runtime, and if there is no port.
    pub fn start(cloud: Arc<Cloud>) -> io::Result<Self> {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = TcpListener::from_std(listener)?;
        Ok(Self { address, task: runtime.spawn(accept(listener, cloud)) })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it serves. It ends with the runtime that it was started in.
    pub fn is_running(&self) -> bool {
        !self.task.is_finished()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, cloud: Arc<Cloud>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, cloud.clone()));
                }
                Err(error) => {
                    tracing::warn!("the fake cloud cannot accept a connection: {error}");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Answers each line until the client closes the connection, or sends a line that is too long.
async fn serve(stream: TcpStream, cloud: Arc<Cloud>) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut session = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut read).take(MAX_LINE as u64).read_until(b'\n', &mut line).await?;
        if !line.ends_with(b"\n") {
            return Ok(());
        }
        write.write_all(&cloud.answer(&mut session, &line).await).await?;
    }
}
