//! Programs with drivers where something is forbidden or hidden.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Output, Stdio},
};

use crate::lab::{Lab, PROGRAM};

crate::tests![
    a_process_that_proc_hides_is_ended,
    a_proc_of_another_pid_namespace_is_refused,
    processes_are_ended_without_their_descriptors,
    a_limit_of_processes_is_an_error,
];

/// Opens the program of the arguments, and becomes another user, who may not see its path.
const NOBODY: &str = "import os, resource, sys\n\
    program = os.open(sys.argv[1], os.O_RDONLY)\n\
    if os.getuid() == 0: os.setgroups([]); os.setgid(65533); os.setuid(65533)\n";

/// Runs a command, and ends it after a minute.
fn limited(arguments: &[&str], lab: &Lab, name: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "60"]).args(arguments).arg(env::current_exe().unwrap());
    command.arg(PROGRAM).arg(lab.folder().join(name)).stdin(Stdio::null()).output().unwrap()
}

fn a_process_that_proc_hides_is_ended() {
    let lab = Lab::new();
    fs::set_permissions(lab.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    drop(lab.python(
        "import subprocess\n\
         hide = 'import ctypes, time; ctypes.CDLL(None).prctl(4, 0); print(flush=True); time.sleep(86400)'\n\
         child = subprocess.Popen([sys.executable, '-c', hide], start_new_session=True, stdout=subprocess.PIPE)\n\
         child.stdout.readline()\n\
         regions(hidden=not os.path.exists(f'/proc/{child.pid}'))",
    ));
    let mount = "mount -t proc -o hidepid=2 proc /proc && exec \"$@\"";
    let unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"];
    // The administrator and its group see everything.
    let output = if rustix::process::geteuid().is_root() {
        let start = format!("{NOBODY}os.execve(program, sys.argv[1:], {{}})");
        limited(&[&unshare[..], &["sh", "-c", mount, "sh", "python3", "-c", &start]].concat(), &lab, "cloud.py")
    } else {
        let setpriv = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"];
        let arguments = [&unshare[..], &["--user", "--map-root-user", "sh", "-c", mount, "sh"], &setpriv].concat();
        limited(&arguments, &lab, "cloud.py")
    };
    let (printed, problem) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if problem.contains("mount:") {
        println!("not run: this machine does not allow it in a namespace: {problem}");
        return;
    }
    assert_eq!(printed, "hidden=True\n", "{output:?}");
}

fn a_proc_of_another_pid_namespace_is_refused() {
    let lab = Lab::new();
    drop(lab.shell(""));
    let user: &[_] = if rustix::process::geteuid().is_root() { &[] } else { &["--user", "--map-root-user"] };
    let output = limited(&[&["unshare", "--pid", "--fork", "--kill-child"], user].concat(), &lab, "cloud.sh");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(problem.contains("/proc is of another PID namespace"), "{problem}");
}

fn processes_are_ended_without_their_descriptors() {
    // A profile of seccomp that refuses pidfd_open and pidfd_send_signal, whose numbers are those of all machines.
    let start = "import ctypes, os, struct, sys\n\
                 refuse = lambda number, to: struct.pack('HBBI', 0x15, to, 0, number)\n\
                 code = struct.pack('HBBI', 0x20, 0, 0, 0) + refuse(434, 2) + refuse(424, 1) + \
                 struct.pack('HBBI', 6, 0, 0, 0x7fff0000) + struct.pack('HBBI', 6, 0, 0, 0x50001)\n\
                 code = ctypes.create_string_buffer(code)\n\
                 filter = ctypes.create_string_buffer(struct.pack('HL', 5, ctypes.addressof(code)))\n\
                 c = ctypes.CDLL(None, use_errno=True)\n\
                 assert c.prctl(38, 1, 0, 0, 0) == 0 and c.prctl(22, 2, filter) == 0\n\
                 try: os.pidfd_open(os.getpid())\n\
                 except PermissionError: os.execv(sys.argv[1], sys.argv[1:])";
    let tests = ["what_is_left", "that_does_not_end", "flood_of_processes", "kills_its_supervisor"];
    let mut python = Command::new("timeout");
    python.args(["--signal=KILL", "120", "python3", "-c", start]).arg(env::current_exe().unwrap());
    let output = python.args(tests).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("4 passed; 0 failed"), "{printed}{output:?}");
}

fn a_limit_of_processes_is_an_error() {
    let lab = Lab::new();
    drop(lab.shell(""));
    fs::set_permissions(lab.folder(), fs::Permissions::from_mode(0o755)).unwrap();
    // The administrator has no such limit.
    let start =
        format!("{NOBODY}resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))\nos.execve(program, sys.argv[1:], {{}})");
    let output = limited(&["python3", "-c", &start], &lab, "cloud.sh");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(problem.contains("Supervisor { reason: \"Resource temporarily unavailable"), "{problem}");
}
