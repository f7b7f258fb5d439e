//! Child processes that never outlive the tests, and their temporary folders.
//!
//! A child is killed when its [`Process`] is dropped and, by the kernel, when the test process dies. All of the fixture's
//! libc calls are here.
#![allow(unsafe_code, reason = "signals, exit handlers and prctl have no safe interface in the standard library")]

use std::{
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError, mpsc},
    time::Duration,
};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// The folders of all runs begin with this, followed by the process id of the run.
const FOLDER_PREFIX: &str = "ccm-operator-test-";

/// A running child whose output goes to a file.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    child: Mutex<Child>,
    log: PathBuf,
}

impl Process {
    /// Starts `command` without input; its output and errors are written to `log`.
    pub fn spawn(name: &str, mut command: Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("failed to create {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        // Ctrl-C on a terminal reaches only this process, which stops its children in the right order.
        command.process_group(0);
        let parent = std::process::id().cast_signed();
        // SAFETY: the closure runs between fork and exec and calls only prctl and getppid, which are async-signal-safe;
        // it allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent may have died before the line above took effect.
                if libc::getppid() != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Ok(())
            });
        }
        let child = spawn_on_keeper(command).with_context(|| format!("failed to start {name}"))?;
        Ok(Self { name: name.to_owned(), pid: child.id(), child: Mutex::new(child), log: log.to_owned() })
    }

    /// The name given at the start.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Standard output and standard error.
    pub fn log(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// The last lines of the log, for error messages.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// The exit status, once the process has ended.
    pub fn try_wait(&self) -> Result<Option<ExitStatus>> {
        Ok(self.child().try_wait()?)
    }

    /// Sends SIGTERM, unless the process has exited.
    pub fn terminate(&self) -> Result<()> {
        self.signal(libc::SIGTERM)
    }

    /// Interrupts it as Ctrl-C does (SIGINT).
    pub fn interrupt(&self) -> Result<()> {
        self.signal(libc::SIGINT)
    }

    /// Asks it what it does (SIGUSR1).
    pub fn ask(&self) -> Result<()> {
        self.signal(libc::SIGUSR1)
    }

    /// Stops it for some time (SIGSTOP).
    pub fn pause(&self) -> Result<()> {
        self.signal(libc::SIGSTOP)
    }

    /// Lets it go on (SIGCONT).
    pub fn resume(&self) -> Result<()> {
        self.signal(libc::SIGCONT)
    }

    fn signal(&self, signal: libc::c_int) -> Result<()> {
        let mut child = self.child();
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        // SAFETY: the child was not reaped, and cannot be while the lock is held: the id is still its own.
        if unsafe { libc::kill(self.pid.cast_signed(), signal) } != 0 {
            return Err(io::Error::last_os_error()).with_context(|| format!("failed to signal {}", self.name));
        }
        Ok(())
    }

    /// Sends SIGKILL, unless the process has exited.
    pub fn kill(&self) -> Result<()> {
        Ok(self.child().kill()?)
    }

    /// Kills the process and waits until it has exited.
    pub fn end(&self) {
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Resident memory in KiB; zero once the process has ended.
    pub fn rss_kib(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// Resident memory that is backed by no file, in KiB; zero once the process has ended.
    pub fn anonymous_kib(&self) -> u64 {
        self.memory("RssAnon:")
    }

    fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let value = status.lines().find_map(|line| line.strip_prefix(field));
        value.and_then(|value| value.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
    }

    /// Processor time used so far, user and system, of all its threads; zero once the process was reaped.
    pub fn cpu_seconds(&self) -> f64 {
        let (pid, mut clock) = (self.pid.cast_signed(), 0);
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // In nanoseconds, unlike /proc/PID/stat, whose hundredths of a second are a third of a whole start.
        // SAFETY: both write to their argument, or fail.
        unsafe {
            if libc::clock_getcpuclockid(pid, &raw mut clock) == 0 {
                libc::clock_gettime(clock, &raw mut time);
            }
        }
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default()).as_secs_f64()
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

/// Spawns on a thread that lives as long as the process: the kernel sends the parent-death signal when the thread that
/// forked ends, and each test has its own thread.
fn spawn_on_keeper(command: Command) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static KEEPER: OnceLock<mpsc::Sender<Job>> = OnceLock::new();
    let keeper = KEEPER.get_or_init(|| {
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            for (mut command, answer) in queue {
                let _ = answer.send(command.spawn());
            }
        });
        jobs
    });
    let (answer, result) = mpsc::channel();
    keeper.send((command, answer)).map_err(io::Error::other)?;
    result.recv().map_err(io::Error::other)?
}

/// Runs `handler` when the process exits normally: statics are never dropped.
pub fn at_exit(handler: extern "C" fn()) -> Result<()> {
    // SAFETY: atexit only stores the pointer, and a function lives for ever.
    anyhow::ensure!(unsafe { libc::atexit(handler) } == 0, "failed to register an exit handler");
    Ok(())
}

/// A temporary folder of this run. The first call removes the folders of killed runs.
pub fn temp_dir() -> Result<TempDir> {
    static SWEEP: Once = Once::new();
    SWEEP.call_once(sweep);
    tempfile::Builder::new()
        .prefix(&format!("{FOLDER_PREFIX}{}-", std::process::id()))
        .tempdir()
        .context("failed to create a temporary folder")
}

/// Removes the folders of dead processes, except folders of other users.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner =
            name.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
