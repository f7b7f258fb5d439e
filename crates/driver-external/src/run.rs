//! Runs a driver once, by a supervisor (IO).

use std::{
    io::{self, Read, Write},
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    thread,
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    task::spawn_blocking,
};

use crate::{
    frame::{Ended, Order, Report},
    problem::Problem,
    program::Program,
};

mod child;

use child::Supervisor;

/// How much longer than the driver its supervisor may take, to end all that the driver has started. One that takes longer was stopped.
const GRACE: Duration = Duration::from_secs(5);

/// Runs a driver with this input. It has ended, with everything that it has started, when this returns. If the future is dropped it ends
/// soon after; the runtime does not end before.
pub(crate) async fn run(program: &Program, limit: Option<Duration>, input: Vec<u8>) -> Result<Report, Problem> {
    let done = async {
        // Whoever has started this program may ignore this signal. Then neither it nor the supervisor would learn how a child has ended.
        let _children = signal(SignalKind::child())?;
        let order = Order { limit, input }.write()?;
        let bytes = program.fd().try_clone_to_owned()?;
        let (ours, theirs) = UnixStream::pair()?;
        let _interest = Interest(ours.try_clone()?);
        // The runtime panics if it cannot start a thread, as at the limit of processes.
        let _ = thread::Builder::new().spawn(|| ())?.join();
        spawn_blocking(move || exchange(bytes, ours, theirs, &order, limit)).await?
    };
    done.await.map_err(|error: io::Error| Problem::Supervisor { reason: error.to_string() })
}

/// The future that waits for the answer. Without it the socket is closed, which ends the run.
struct Interest(UnixStream);

impl Drop for Interest {
    fn drop(&mut self) {
        // It may be closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

fn exchange(
    bytes: OwnedFd,
    mut ours: UnixStream,
    theirs: UnixStream,
    order: &[u8],
    limit: Option<Duration>,
) -> io::Result<Report> {
    let most = limit.map(|limit| limit.saturating_add(GRACE));
    ours.set_read_timeout(most)?;
    ours.set_write_timeout(most)?;
    let mut supervisor = Supervisor::start(bytes, theirs)?;
    let mut answer = Vec::new();
    let answered = ours.write_all(order).and_then(|()| ours.read_to_end(&mut answer));
    if let Ok(report) = Report::read(&mut &answer[..]) {
        supervisor.end()?;
        return Ok(report);
    }
    let status = supervisor.end_all()?;
    match answered {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Ok(Report { ended: Ended::TimedOut, stdout: Vec::new(), stderr: Vec::new() })
        }
        _ => Err(io::Error::other(format!("it has ended without a report ({status})"))),
    }
}
