//! The process between a program and its driver (IO): this program once more. It starts the driver with limits and without the
//! environment, and ends everything that the driver has started, whatever happens: the driver ends, takes too long, writes too much, or
//! the program has ended or has lost interest. It has one thread and no runtime.

use std::{
    ffi::OsString,
    io::{self, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    process::ExitCode,
};

use rustix::{
    fs::Mode,
    process::{Signal, getpid, set_child_subreaper, set_parent_process_death_signal, setsid, umask},
    thread::set_no_new_privs,
};

use crate::{frame::Order, tree};

mod limits;
mod watch;

pub(crate) use watch::{KEPT, MAX_OUTPUT, MAX_PROCESSES};

/// The first argument of a supervisor. Its standard input is the sealed bytes of the driver, and its standard output is a socket to the
/// program.
pub(crate) const ARGUMENT: &str = "--supervise-driver";

/// The work of the process that a program starts itself as, to run a driver; `None` if this process is not one. A program with drivers
/// calls it before anything else, with all its arguments ([`std::env::args_os`]), the name of the program first.
pub fn supervise(arguments: &[OsString]) -> Option<ExitCode> {
    if arguments.get(1).is_none_or(|argument| argument != ARGUMENT) {
        return None;
    }
    // The program sees the end of the socket without a report, and says so.
    Some(run().map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn run() -> io::Result<()> {
    // Of both only this copy of the program's bytes is inherited by the driver.
    let program = rustix::io::dup(io::stdin())?;
    let mut socket = UnixStream::from(io::stdout().as_fd().try_clone_to_owned()?);
    // Signals of a terminal are for the program, which then closes the socket.
    setsid()?;
    // The orphans of the driver become children of this process.
    set_child_subreaper(Some(getpid()))?;
    // The driver may have stopped this process by the time that the program ends.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    set_no_new_privs(true)?;
    limits::set()?;
    // What a driver writes may have secrets.
    umask(Mode::RWXG | Mode::RWXO);
    let order = Order::read(&mut socket)?;
    let report = watch::run(&program, &socket, order);
    tree::end(|| {
        let is_left = tree::reap(|_, _| ()).is_some();
        if is_left {
            tree::kill(|_| false);
        }
        is_left
    });
    let Some(report) = report? else { return Ok(()) };
    socket.write_all(&report.finish().write()?)
}
