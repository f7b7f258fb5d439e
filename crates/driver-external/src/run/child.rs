//! The supervisors that run, as children of this process, and what is left of one that was killed (IO).

use std::{
    collections::BTreeSet,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::process::{Pid, getpid, set_child_subreaper};

use crate::{supervisor::ARGUMENT, tree};

/// The ids of all supervisors whose exit status was not taken yet. It is locked while one starts, so that it is never missing.
static RUNNING: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn running() -> MutexGuard<'static, BTreeSet<i32>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A supervisor that runs.
pub(super) struct Supervisor(Child);

impl Supervisor {
    /// Starts this program as a supervisor. What it leaves if it is killed becomes a child of this process.
    pub(super) fn start(driver: OwnedFd, socket: UnixStream) -> io::Result<Self> {
        tree::check_proc()?;
        set_child_subreaper(Some(getpid()))?;
        let mut running = running();
        let child = Command::new("/proc/self/exe")
            .arg(ARGUMENT)
            // A driver could read it in /proc.
            .env_clear()
            .stdin(driver)
            .stdout(OwnedFd::from(socket))
            .stderr(Stdio::null())
            .spawn()?;
        running.insert(Pid::from_child(&child).as_raw_pid());
        Ok(Self(child))
    }

    /// Ends one that has reported, and so has ended all that its driver has started.
    pub(super) fn end(&mut self) -> io::Result<ExitStatus> {
        self.0.kill()?;
        // Once the status is taken, its id may be that of another process.
        let mut running = running();
        let status = self.0.wait()?;
        running.remove(&Pid::from_child(&self.0).as_raw_pid());
        Ok(status)
    }

    /// Ends one that has not reported, and all that its driver has started: the driver may have killed or stopped it.
    pub(super) fn end_all(&mut self) -> io::Result<ExitStatus> {
        let status = self.end()?;
        let session = tree::session(getpid().as_raw_pid());
        tree::end(|| {
            let running = running();
            // A driver begins with another session, and no process comes back into one. So what has the session of this process was
            // started by this program for something else.
            let is_own = |id| session.is_some() && tree::session(id) == session;
            tree::kill(|id| running.contains(&id) || is_own(id))
        });
        Ok(status)
    }
}
