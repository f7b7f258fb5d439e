//! A proxy in front of a fake cloud that holds one kind of request.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Condvar, Mutex,
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
    gate: Arc<Gate>,
    runtime: Option<tokio::runtime::Runtime>,
    _server: Server,
}

/// Closed until it is opened.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Stalled {
    /// Serves a cloud, and holds requests with this action until [`Stalled::release`].
    pub(crate) fn new(file: &std::path::Path, action: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = {
            let _entered = runtime.enter();
            Server::start(Arc::new(Cloud::in_file(file))).unwrap()
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (endpoint, upstream) = (listener.local_addr().unwrap().to_string(), server.address());
        let ((holds, held), gate) = (channel(), Arc::new(Gate::default()));
        let shared = gate.clone();
        let action = format!("\"action\":\"{action}\"");
        thread::spawn(move || {
            for client in listener.incoming() {
                let (action, holds, gate) = (action.clone(), holds.clone(), shared.clone());
                thread::spawn(move || pass_on(client.unwrap(), upstream, &action, &holds, &gate));
            }
        });
        Self { endpoint, held, gate, runtime: Some(runtime), _server: server }
    }

    /// Waits until a request is held.
    pub(crate) fn wait(&self) {
        self.held.recv_timeout(LIMIT).unwrap();
    }

    /// Passes on what is held, and all that follows.
    pub(crate) fn release(&self) {
        *self.gate.is_open.lock().unwrap() = true;
        self.gate.opened.notify_all();
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}

fn pass_on(mut client: TcpStream, upstream: SocketAddr, action: &str, holds: &Sender<()>, gate: &Gate) {
    let mut cloud = TcpStream::connect(upstream).unwrap();
    let mut answers = BufReader::new(cloud.try_clone().unwrap());
    for request in BufReader::new(client.try_clone().unwrap()).lines() {
        let Ok(request) = request else { return };
        if request.contains(action) {
            let _ = holds.send(());
            drop(gate.opened.wait_while(gate.is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        }
        let mut answer = String::new();
        let passed = writeln!(cloud, "{request}").and_then(|()| answers.read_line(&mut answer));
        if passed.and_then(|_| client.write_all(answer.as_bytes())).is_err() {
            return;
        }
    }
}
