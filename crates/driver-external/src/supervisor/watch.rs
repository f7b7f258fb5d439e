//! Starts a driver, gives it its input, takes its output, and returns when it has ended or has to be ended (IO).

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::{Errno, ioctl_fionbio},
    process::{Pid, PidfdFlags, pidfd_open, setpriority_process},
};

use crate::{
    frame::{Ended, Order, Report},
    tree,
};

/// The maximum number of bytes of an answer: a list of some ten thousand instances.
pub(crate) const MAX_OUTPUT: usize = 32 << 20;

/// The maximum number of processes of one operation.
pub(crate) const MAX_PROCESSES: usize = 64;

/// How much of the end of standard error is kept, in bytes.
pub(crate) const KEPT: usize = 64 << 10;

/// How many times a pipe is read at a time: more than a pipe holds.
const READS: u32 = 256;

/// How often processes are counted.
const COUNT: Duration = Duration::from_millis(100);

/// The whole environment of a driver.
const ENVIRONMENT: [(&str, &str); 3] =
    [("HOME", "/nonexistent"), ("LANG", "C.UTF-8"), ("PATH", "/usr/local/bin:/usr/bin:/bin")];

/// The priority of a driver, so that this process is heard among many that it has to end.
const NICE: i32 = 10;

/// A driver that runs, or has run.
pub(super) struct Watched {
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    input: Vec<u8>,
    written: usize,
    report: Report,
}

/// Runs the driver until it ends or has to be ended. Then processes may be left. `None`: the program does not wait any more.
pub(super) fn run(program: &OwnedFd, socket: &UnixStream, order: Order) -> io::Result<Option<Watched>> {
    let deadline = order.limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut child = match started(program) {
        Ok(child) => child,
        Err(error) => {
            let Some(errno) = error.raw_os_error() else { return Err(error) };
            return Ok(Some(Watched::of(Ended::NotStarted(errno))));
        }
    };
    let id = Pid::from_child(&child);
    // It may have ended already.
    let _ = setpriority_process(Some(id), NICE);
    // Before Linux 5.3 its end is seen when processes are counted.
    let process = pidfd_open(id, PidfdFlags::empty()).ok();
    let mut watched = Watched { input: order.input, ..Watched::of(Ended::TimedOut) };
    watched.take(&mut child)?;
    let mut counted = Instant::now();
    loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Ok(Some(watched));
        }
        let wait = deadline.map_or(COUNT, |deadline| COUNT.min(deadline - now));
        if watched.wait(socket, process.as_ref().map(AsFd::as_fd), wait)? {
            return Ok(None);
        }
        watched.transfer()?;
        if watched.report.stdout.len() > MAX_OUTPUT {
            return Ok(Some(watched.ended(Ended::TooMuchOutput)));
        }
        let mut ended = None;
        tree::reap(|pid, status| {
            if pid == id {
                let exited = status.exit_status().map(Ended::Exited);
                ended = exited.or(status.terminating_signal().map(Ended::Signaled));
            }
        });
        if let Some(ended) = ended {
            return Ok(Some(watched.ended(ended)));
        }
        if counted.elapsed() >= COUNT {
            if tree::descendants(|_| false).len() > MAX_PROCESSES {
                return Ok(Some(watched.ended(Ended::TooManyProcesses)));
            }
            counted = Instant::now();
        }
    }
}

fn started(program: &OwnedFd) -> io::Result<Child> {
    // A script's interpreter opens it by this path as well, so the descriptor has to stay open in the driver.
    Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .env_clear()
        .envs(ENVIRONMENT)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
}

impl Watched {
    fn of(ended: Ended) -> Self {
        let report = Report { ended, stdout: Vec::new(), stderr: Vec::new() };
        Self { stdin: None, stdout: None, stderr: None, input: Vec::new(), written: 0, report }
    }

    fn ended(mut self, ended: Ended) -> Self {
        self.report.ended = ended;
        self
    }

    fn take(&mut self, child: &mut Child) -> io::Result<()> {
        (self.stdin, self.stdout, self.stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let pipes = [self.stdin.as_ref().map(AsFd::as_fd), self.stdout.as_ref().map(AsFd::as_fd)];
        for pipe in pipes.into_iter().chain([self.stderr.as_ref().map(AsFd::as_fd)]).flatten() {
            ioctl_fionbio(pipe, true)?;
        }
        Ok(())
    }

    /// Waits until something has happened, and returns whether the program has closed its end of the socket.
    fn wait(&self, socket: &UnixStream, process: Option<BorrowedFd<'_>>, most: Duration) -> io::Result<bool> {
        let mut all = vec![PollFd::new(socket, PollFlags::IN)];
        all.extend(self.stdin.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        all.extend(self.stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        all.extend(self.stderr.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        let process = process.map(|process| PollFd::from_borrowed_fd(process, PollFlags::IN));
        all.extend(process);
        let most = Timespec::try_from(most).map_err(io::Error::other)?;
        match poll(&mut all, Some(&most)) {
            // It writes nothing after the order.
            Ok(_) => Ok(!all[0].revents().is_empty()),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Writes and reads what can be written and read without waiting.
    fn transfer(&mut self) -> io::Result<()> {
        self.feed();
        let Report { stdout, stderr, .. } = &mut self.report;
        drain(&mut self.stdout, stdout, |stdout| stdout.len() <= MAX_OUTPUT)?;
        drain(&mut self.stderr, stderr, |stderr| {
            if stderr.len() > 2 * KEPT {
                stderr.drain(..stderr.len() - KEPT);
            }
            true
        })
    }

    fn feed(&mut self) {
        while let Some(pipe) = &mut self.stdin {
            match pipe.write(&self.input[self.written..]) {
                Ok(written) if self.written + written < self.input.len() => self.written += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // All of it is written, or the driver reads no more, which it may.
                _ => self.stdin = None,
            }
        }
    }

    /// The report, with the rest of the output. All processes have ended.
    pub(super) fn finish(mut self) -> Report {
        // What cannot be read any more is missing in the answer, which is then no answer.
        let _ = self.transfer();
        let Report { ended, stdout, stderr } = &mut self.report;
        if stdout.len() > MAX_OUTPUT {
            *ended = Ended::TooMuchOutput;
        }
        if *ended == Ended::TooMuchOutput {
            stdout.clear();
        }
        stderr.drain(..stderr.len().saturating_sub(KEPT));
        self.report
    }
}

/// Reads what there is, while it is wanted.
fn drain<P: Read>(
    pipe: &mut Option<P>,
    into: &mut Vec<u8>,
    mut is_wanted: impl FnMut(&mut Vec<u8>) -> bool,
) -> io::Result<()> {
    let mut buffer = [0; 1 << 14];
    // A flood does not keep this process from looking at the rest.
    for _ in 0..READS {
        let Some(open) = pipe else { return Ok(()) };
        match open.read(&mut buffer) {
            Ok(0) => *pipe = None,
            Ok(read) => {
                into.extend_from_slice(&buffer[..read]);
                if !is_wanted(into) {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
