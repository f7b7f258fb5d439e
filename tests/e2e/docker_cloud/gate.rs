//! The way to an engine, which a test closes or leads to another one. It passes bytes, so that TLS passes, too.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// Where clients connect; dropping it closes all connections.
pub(super) struct Gate {
    address: SocketAddr,
    to: watch::Sender<Option<SocketAddr>>,
    task: JoinHandle<()>,
}

impl Gate {
    /// Opens one on the same host as the engine.
    pub(super) async fn open(to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((to.ip(), 0)).await?;
        let address = listener.local_addr()?;
        let (to, leads) = watch::channel(Some(to));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, leads.clone()));
            }
        });
        Ok(Self { address, to, task })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads to another engine, or to none: new connections are closed at once. All open connections end.
    pub(super) fn lead(&self, to: Option<SocketAddr>) {
        self.to.send_replace(to);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Passes a connection on, until one side closes it or the gate changes.
async fn pass(mut client: TcpStream, mut leads: watch::Receiver<Option<SocketAddr>>) {
    let to = *leads.borrow_and_update();
    let Some(to) = to else { return };
    let work = async {
        let mut server = TcpStream::connect(to).await?;
        copy_bidirectional(&mut client, &mut server).await
    };
    // How it ends shows at both sides.
    tokio::select! {
        _ = work => {}
        _ = leads.changed() => {}
    }
}
