//! What this process is doing: shown by SIGUSR1, and on a terminal once it takes longer than a second.

use std::{
    fs,
    future::pending,
    io::{self, IsTerminal},
    pin::pin,
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ccm_drivers::middleware::InFlightHandle;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::terminal::{clear, draw, say};

/// The time after which progress is shown, and the interval of its changes.
const PERIOD: Duration = Duration::from_secs(1);

/// What is in flight. Clones show the same.
#[derive(Clone, Default)]
pub(crate) struct Activity {
    /// The operations of sessions.
    pub(crate) sessions: InFlightHandle,
    /// What is done besides, and since when.
    step: Arc<Mutex<Option<(String, Instant)>>>,
}

impl Activity {
    /// Begins a step that is no operation of a driver, or that has several.
    pub(crate) fn step(&self, step: &str) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = Some((step.to_owned(), Instant::now()));
    }

    /// A line for the step and for each operation.
    pub(crate) fn lines(&self) -> Vec<String> {
        let step = self.step.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let step = step.map(|(step, begin)| format!("{step}, for {:.1}s", begin.elapsed().as_secs_f64()));
        step.into_iter().chain(self.sessions.list().iter().map(ToString::to_string)).collect()
    }

    /// Prints the lines at each SIGUSR1, as long as the runtime lives.
    pub(crate) fn print_on_signal(&self) -> io::Result<()> {
        let (mut asked, activity) = (signal(SignalKind::user_defined1())?, self.clone());
        tokio::spawn(async move {
            while asked.recv().await.is_some() {
                let lines = activity.lines();
                say(if lines.is_empty() { "in flight: nothing" } else { "in flight:" });
                for line in lines {
                    say(&format!("  {line}"));
                }
            }
        });
        Ok(())
    }

    /// Waits for some work. On a terminal it shows the first line while that takes long, and removes it at the end.
    pub(crate) async fn during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if !io::stderr().is_terminal() {
            return work.await;
        }
        loop {
            if let Ok(done) = tokio::time::timeout(PERIOD, &mut work).await {
                clear();
                return done;
            }
            draw(self.lines().first().map_or("", String::as_str));
        }
    }
}

/// Whether an operation has taken the signals over.
static ARE_TAKEN: AtomicBool = AtomicBool::new(false);

/// SIGINT, SIGTERM and SIGHUP.
pub(crate) struct Ends {
    interrupt: Signal,
    terminate: Signal,
    /// `None` if this process was started to survive the end of its terminal.
    hangup: Option<Signal>,
}

impl Ends {
    /// Takes the signals over: from now on they end nothing by themselves.
    pub(crate) fn take() -> io::Result<Self> {
        ARE_TAKEN.store(true, Ordering::SeqCst);
        Self::listen()
    }

    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) },
        })
    }

    /// Waits for the next of them, and returns the exit code for it.
    pub(crate) async fn next(&mut self) -> u8 {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            _ = hangup => 129,
        }
    }

    /// Returns the exit code for one that has come; `None` if none has.
    pub(crate) async fn come(&mut self) -> Option<u8> {
        // The runtime looks for signals when a task yields.
        tokio::select! {
            biased;
            code = self.next() => Some(code),
            () = tokio::task::yield_now() => None,
        }
    }
}

/// Waits for a signal that ends process 1, as in a container without an init, and returns the exit code for it. The kernel ends that
/// process by none, and any other one itself, also one that waits for its input.
pub(crate) async fn ended_by_signal() -> io::Result<u8> {
    if process::id() == 1 {
        let mut ends = Ends::listen()?;
        let code = ends.next().await;
        if !ARE_TAKEN.load(Ordering::SeqCst) {
            return Ok(code);
        }
    }
    pending().await
}

/// Whether SIGHUP is ignored, as nohup arranges it.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_show_the_same_step() {
        let activity = Activity::default();
        assert!(activity.lines().is_empty());
        let clone = activity.clone();
        activity.step("read the owners");
        let lines = clone.lines();
        assert!(lines.len() == 1 && lines[0].starts_with("read the owners, for 0."), "{lines:?}");
    }
}
