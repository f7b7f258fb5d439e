//! The processes below this one (IO): below a supervisor those that its driver has started, and below the program what a supervisor has
//! left that was killed. Both are subreapers, so orphans become their children.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
    thread,
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open, pidfd_send_signal, wait,
        waitpid,
    },
};

/// How often processes that were started meanwhile are looked for, before the stopped ones are killed.
const ROUNDS: u32 = 100;

/// The pause after which killed processes are looked for, and the longest one: a process that hangs in the kernel ends late.
const PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// The processes below this one, each with its parent, without the children that are spared and those below them.
pub(crate) fn descendants(is_spared: impl Fn(i32) -> bool) -> BTreeMap<i32, i32> {
    let mut children = BTreeMap::<i32, Vec<i32>>::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some(parent) = parent(pid)
        {
            children.entry(parent).or_default().push(pid);
        }
    }
    let own = getpid().as_raw_pid();
    let listed = own_children();
    let seen = children.entry(own).or_default();
    seen.extend(listed.into_iter().filter(|child| !seen.contains(child)).collect::<Vec<_>>());
    let (mut found, mut open) = (BTreeMap::new(), vec![own]);
    while let Some(parent) = open.pop() {
        let below = children.remove(&parent).unwrap_or_default();
        for child in below.into_iter().filter(|child| parent != own || !is_spared(*child)) {
            found.insert(child, parent);
            open.push(child);
        }
    }
    found
}

/// The children of this process, also those that `/proc` hides: mounted with `hidepid`, it hides what a driver has made undumpable, such
/// as an agent with keys. What is below them becomes a child when they have ended. Empty with a kernel that has no such list.
fn own_children() -> Vec<i32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Fails if `/proc` is not mounted, or is of another PID namespace: then its numbers are those of other processes.
pub(crate) fn check_proc() -> io::Result<()> {
    if fs::read_link("/proc/self")? == Path::new(&getpid().as_raw_pid().to_string()) {
        return Ok(());
    }
    Err(io::Error::other("/proc is of another PID namespace"))
}

/// The parent of a process, if there is such a process.
fn parent(pid: i32) -> Option<i32> {
    stat(pid, 1)
}

/// The session of a process, if there is such a process. It is 0 for a session that began outside of this PID namespace, as after
/// `unshare` or `nsenter`: `getsid` of rustix has no value for that.
pub(crate) fn session(pid: i32) -> Option<i32> {
    stat(pid, 3)
}

/// A number in the kernel's line about a process, counted after the name of its program.
fn stat(pid: i32, index: usize) -> Option<i32> {
    // The name stands in parentheses, and may have some itself.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[end + 1..]).ok()?;
    rest.split_whitespace().nth(index)?.parse().ok()
}

/// Repeats a round, with pauses, until it says that nothing is left.
pub(crate) fn end(mut round: impl FnMut() -> bool) {
    let mut pause = PAUSE;
    while round() {
        thread::sleep(pause);
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Kills the processes below this one, without the children that are spared and those below them, and returns whether there was any.
pub(crate) fn kill(is_spared: impl Fn(i32) -> bool) -> bool {
    // A killed process makes room for another one. A stopped one does not, so a flood comes to its end.
    let mut stopped = BTreeSet::new();
    for _ in 0..ROUNDS {
        let all = descendants(&is_spared);
        let new: Vec<_> = all.keys().copied().filter(|pid| stopped.insert(*pid)).collect();
        if new.is_empty() {
            break;
        }
        for pid in new {
            signal(pid, &all, Signal::STOP);
        }
    }
    let all = descendants(is_spared);
    let own = getpid().as_raw_pid();
    for (pid, parent) in &all {
        signal(*pid, &all, Signal::KILL);
        if *parent == own {
            // It is there until its exit status is taken, here or in a later round.
            let _ = waitpid(Pid::from_raw(*pid), WaitOptions::NOHANG);
        }
    }
    !all.is_empty()
}

/// Signals a process if it is still the one that was found: by now its id may belong to another one, unless it is a child of this
/// process, which keeps its id until it is reaped.
fn signal(pid: i32, found: &BTreeMap<i32, i32>, signal: Signal) {
    let Some(id) = Pid::from_raw(pid) else { return };
    let own = getpid().as_raw_pid();
    // It may have ended meanwhile.
    let _ = match found.get(&pid) {
        Some(parent) if *parent == own => kill_process(id, signal),
        // Without these calls, as before Linux 5.3 and with some seccomp profiles, it is signaled when its parents have ended.
        _ => pidfd_open(id, PidfdFlags::empty()).and_then(|process| match parent(pid) {
            Some(parent) if parent == own || found.contains_key(&parent) => pidfd_send_signal(process, signal),
            _ => Ok(()),
        }),
    };
}

/// Takes the exit status of each child that has ended; `None` if there is no child.
pub(crate) fn reap(mut ended: impl FnMut(Pid, WaitStatus)) -> Option<()> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => ended(pid, status),
            Ok(None) => return Some(()),
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}
