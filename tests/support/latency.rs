//! A slow network: a TCP proxy on loopback that delays the data of the client, or accepts connections and is silent.
//!
//! Runs on its own thread and runtime, so that a busy test does not add to the delay. Data of the server is not delayed: a
//! request, or a round trip of the TLS handshake, takes longer by one delay.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

/// A running proxy; dropping it closes its connections.
#[derive(Debug)]
pub struct Latency {
    port: u16,
    /// Whether all connections are silent.
    is_silent: watch::Sender<bool>,
    /// Changed to forget the connections that there are.
    forgotten: watch::Sender<()>,
    /// The number of accepted connections.
    accepted: Arc<AtomicUsize>,
    /// Dropped to stop the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Latency {
    /// Starts a proxy in front of `to_port` of 127.0.0.1.
    pub fn start(to_port: u16, delay: Duration) -> Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to listen on loopback")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let ((is_silent, silent), (forgotten, forgetting)) = (watch::channel(false), watch::channel(()));
        let accepted = Arc::<AtomicUsize>::default();
        let counter = Arc::clone(&accepted);
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                // If this fails, connections are refused, and the test fails.
                let _ = tokio::select! {
                    _ = stopped => Ok(()),
                    result = serve(listener, to_port, delay, (silent, forgetting), &counter) => result,
                };
            });
        });
        Ok(Self { port, is_silent, forgotten, accepted, stop: Some(stop), thread: Some(thread) })
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of connections since the start.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Breaks all connections; the next ones are accepted and get no byte, so that no TLS handshake ends. Or ends that.
    pub fn silence(&self, is_silent: bool) {
        self.is_silent.send_replace(is_silent);
    }

    /// Forwards nothing any more on the connections that there are, and keeps them open, as a load balancer that has forgotten them.
    pub fn forget(&self) {
        self.forgotten.send_replace(());
    }
}

impl Drop for Latency {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(
    listener: std::net::TcpListener,
    to_port: u16,
    delay: Duration,
    (mut silent, forgotten): (watch::Receiver<bool>, watch::Receiver<()>),
    accepted: &AtomicUsize,
) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        accepted.fetch_add(1, Ordering::Relaxed);
        let is_silent = *silent.borrow_and_update();
        let (mut changed, mut forgotten) = (silent.clone(), forgotten.clone());
        forgotten.mark_unchanged();
        let connection = async move {
            if is_silent {
                // Open until that is over.
                return std::future::pending().await;
            }
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to_port)).await?;
            client.set_nodelay(true)?;
            server.set_nodelay(true)?;
            let (from_client, mut to_client) = client.into_split();
            let (mut from_server, to_server) = server.into_split();
            let (chunks, delayed) = mpsc::unbounded_channel();
            tokio::try_join!(stamp(from_client, chunks, delay), release(delayed, to_server), async {
                tokio::io::copy(&mut from_server, &mut to_client).await?;
                to_client.shutdown().await
            })
            .map(drop)
        };
        // Both ends see a broken connection.
        tokio::spawn(async move {
            let mut connection = std::pin::pin!(connection);
            tokio::select! {
                result = &mut connection => result,
                _ = changed.changed() => Ok(()),
                _ = forgotten.changed() => std::future::pending().await,
            }
        });
    }
}

/// A piece of the stream, and when it may be sent.
type Chunk = (Instant, Vec<u8>);

/// Reads without delay, so that the delays of successive chunks overlap.
async fn stamp(mut from: OwnedReadHalf, chunks: mpsc::UnboundedSender<Chunk>, delay: Duration) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 || chunks.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
            return Ok(());
        }
    }
}

/// Sends each chunk at its time.
async fn release(mut chunks: mpsc::UnboundedReceiver<Chunk>, mut to: OwnedWriteHalf) -> std::io::Result<()> {
    while let Some((due, bytes)) = chunks.recv().await {
        tokio::time::sleep_until(due).await;
        to.write_all(&bytes).await?;
    }
    to.shutdown().await
}
