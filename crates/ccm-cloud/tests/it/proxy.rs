//! A proxy in front of a fake cloud that never passes on one kind of request.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::Duration,
};

use ccm_driver_fake::cloud::{Cloud, Server};

/// Much more than anything takes that is waited for.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A fake cloud in a file, and a proxy in front of it.
pub(crate) struct Stalled {
    /// The address of the proxy.
    pub(crate) endpoint: String,
    held: Receiver<()>,
    runtime: Option<tokio::runtime::Runtime>,
    _server: Server,
}

impl Stalled {
    /// Serves a cloud, and never passes on requests with this action.
    pub(crate) fn new(file: &std::path::Path, action: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = {
            let _entered = runtime.enter();
            Server::start(Arc::new(Cloud::in_file(file))).unwrap()
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (endpoint, upstream) = (listener.local_addr().unwrap().to_string(), server.address());
        let (holds, held) = channel();
        let action = format!("\"action\":\"{action}\"");
        thread::spawn(move || {
            for client in listener.incoming() {
                let (action, holds) = (action.clone(), holds.clone());
                thread::spawn(move || pass_on(client.unwrap(), upstream, &action, &holds));
            }
        });
        Self { endpoint, held, runtime: Some(runtime), _server: server }
    }

    /// Waits until a request is held.
    pub(crate) fn wait(&self) {
        self.held.recv_timeout(LIMIT).unwrap();
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

fn pass_on(mut client: TcpStream, upstream: SocketAddr, action: &str, holds: &Sender<()>) {
    let mut cloud = TcpStream::connect(upstream).unwrap();
    let mut answers = BufReader::new(cloud.try_clone().unwrap());
    for request in BufReader::new(client.try_clone().unwrap()).lines() {
        let Ok(request) = request else { return };
        if request.contains(action) {
            let _ = holds.send(());
            continue;
        }
        let mut answer = String::new();
        let passed = writeln!(cloud, "{request}").and_then(|()| answers.read_line(&mut answer));
        if passed.and_then(|_| client.write_all(answer.as_bytes())).is_err() {
            return;
        }
    }
}
