//! What is refused before a driver runs, or when it cannot be started.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::Command,
};

use ccm_driver_external::{Pin, Problem, Program};

use crate::lab::{Lab, digest, pin};

crate::tests![
    a_file_is_taken_only_from_the_folder,
    what_is_no_executable_file_is_refused,
    a_file_system_without_execution_is_refused,
    a_machine_without_executable_memory_is_named,
    one_flipped_byte_is_refused,
    another_architecture_is_named,
    a_library_is_named,
    a_missing_interpreter_is_named,
    what_the_kernel_cannot_run_is_said,
];

const SCRIPT: &str = "#!/bin/sh\nexit 1\n";

fn load(folder: &Path, path: impl Into<PathBuf>) -> Result<Program, Problem> {
    Program::load(folder, &Pin::new(path, &digest(SCRIPT.as_bytes())).unwrap())
}

fn a_file_is_taken_only_from_the_folder() {
    let (lab, other) = (Lab::new(), Lab::new());
    let path = lab.file("cloud", SCRIPT);
    let program = load(lab.folder(), &path).unwrap();
    assert_eq!(program.path(), path.canonicalize().unwrap());
    assert_eq!(program.digest(), digest(SCRIPT.as_bytes()));
    fs::create_dir(lab.folder().join("below")).unwrap();
    load(lab.folder(), lab.folder().join("below/../cloud")).unwrap();
    fs::copy(&path, lab.folder().join("below/cloud")).unwrap();
    for path in [other.file("cloud", SCRIPT), lab.folder().join("below/cloud"), "/".into(), lab.folder().join("..")] {
        let problem = load(lab.folder(), &path).unwrap_err();
        assert!(matches!(problem, Problem::OutsideFolder { .. }), "{problem}");
    }
    // The folder itself may be named by a link.
    let link = other.folder().join("link");
    symlink(lab.folder(), &link).unwrap();
    load(&link, &path).unwrap();
    for path in [lab.folder().join("nothing"), "/nonexistent/cloud".into()] {
        let problem = load(lab.folder(), path).unwrap_err();
        assert!(matches!(problem, Problem::Unreadable { .. }), "{problem}");
    }
    let problem = load(Path::new("/nonexistent"), path).unwrap_err();
    assert!(
        matches!(problem, Problem::NoFolder { .. }) && problem.to_string().contains("--driver-folder"),
        "{problem}"
    );
}

fn what_is_no_executable_file_is_refused() {
    let lab = Lab::new();
    let path = lab.file("cloud", SCRIPT);
    let at = |name: &str| lab.folder().join(name);
    symlink(&path, at("link")).unwrap();
    symlink("cloud", at("short")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    let _socket = UnixListener::bind(at("socket")).unwrap();
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    for name in ["link", "short"] {
        assert!(matches!(load(lab.folder(), at(name)).unwrap_err(), Problem::Link { .. }), "{name}");
    }
    for name in ["folder", "socket", "pipe"] {
        assert!(matches!(load(lab.folder(), at(name)).unwrap_err(), Problem::NotRegular { .. }), "{name}");
    }
    for mode in [0o644, 0o600] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let problem = load(lab.folder(), &path).unwrap_err();
        assert!(matches!(problem, Problem::NotExecutable { .. }), "{mode:o}: {problem}");
    }
    for mode in [0o775, 0o757, 0o777] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let problem = load(lab.folder(), &path).unwrap_err();
        assert!(problem.to_string().contains(&format!("(mode 0{mode:o})")), "{mode:o}: {problem}");
    }
    for mode in [0o755, 0o500, 0o555] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        load(lab.folder(), &path).unwrap();
    }
}

/// What this program says when it uses a driver in namespaces of its own, which a script prepares with the driver's path as `$1`.
fn in_namespaces(script: &str) -> Option<String> {
    let lab = Lab::new();
    let path = lab.file("cloud.sh", SCRIPT);
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c"])
        .arg(format!("{script} && \"$0\" --use-driver \"$1\""))
        .arg(std::env::current_exe().unwrap())
        .arg(&path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if text.contains("panicked") {
        return Some(text);
    }
    println!("not run: this machine does not allow it in a namespace: {text}");
    None
}

fn a_file_system_without_execution_is_refused() {
    let mount = "bytes=$(cat \"$1\") && mount -t tmpfs -o noexec,mode=0755 none \"${1%/*}\" && echo \"$bytes\" > \"$1\" && \
                 chmod 0755 \"$1\"";
    let Some(text) = in_namespaces(mount) else { return };
    assert!(text.contains("NoExec { path: "), "{text}");
}

fn a_machine_without_executable_memory_is_named() {
    let Some(text) = in_namespaces("echo 2 > /proc/sys/vm/memfd_noexec") else { return };
    assert!(text.contains("MemfdNoExec"), "{text}");
}

fn one_flipped_byte_is_refused() {
    let lab = Lab::new();
    // More than one block is read and hashed.
    let bytes = [SCRIPT.as_bytes(), &vec![b'#'; 200_000]].concat();
    let path = lab.file("cloud", &bytes);
    let pin = pin(&path);
    Program::load(lab.folder(), &pin).unwrap();
    for at in [0, 1, bytes.len() / 2, 65_535, 65_536, bytes.len() - 2, bytes.len() - 1] {
        for bit in [1, 1 << 7] {
            let mut flipped = bytes.clone();
            flipped[at] ^= bit;
            lab.file("cloud", &flipped);
            let problem = Program::load(lab.folder(), &pin).unwrap_err();
            assert!(matches!(problem, Problem::OtherDigest { .. }), "{at}: {problem}");
        }
    }
    for other in [&bytes[1..], &bytes[..bytes.len() - 1], &[&bytes[..], b"\n"].concat(), b""] {
        lab.file("cloud", other);
        assert!(matches!(Program::load(lab.folder(), &pin).unwrap_err(), Problem::OtherDigest { .. }));
    }
    lab.file("cloud", &bytes);
    Program::load(lab.folder(), &pin).unwrap();
}

fn another_architecture_is_named() {
    let lab = Lab::new();
    let mut bytes = fs::read("/bin/true").unwrap();
    // That of s390x, with its order of bytes.
    (bytes[5], bytes[18], bytes[19]) = (2, 0, 22);
    let problem = lab.problem(&lab.file("cloud", &bytes));
    assert!(matches!(&problem, Problem::OtherArchitecture { found, .. } if found == "s390x"), "{problem}");
}

fn a_library_is_named() {
    let lab = Lab::new();
    // One of those that this program is linked with. The one with the loader in it runs as a program.
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let Some(path) =
        maps.lines().find_map(|line| line.find('/').map(|at| &line[at..]).filter(|path| path.contains("libgcc_s.so")))
    else {
        println!("not run: this program is static");
        return;
    };
    let problem = lab.load(&lab.file("cloud.so", fs::read(path).unwrap())).unwrap_err();
    assert!(matches!(problem, Problem::Library { .. }), "{problem}");
}

fn a_missing_interpreter_is_named() {
    let lab = Lab::new();
    for (line, name) in [
        ("#!/usr/bin/python4 -I", "/usr/bin/python4"),
        ("#!/usr/bin/env python4", "python4"),
        ("#!/usr/bin/env -S python4 -I", "python4"),
        ("#!/bin/sh\r", "/bin/sh\r"),
        ("#!/usr/bin/env python3\r", "python3\r"),
    ] {
        let problem = lab.problem(&lab.file("cloud", format!("{line}\n")));
        assert!(
            matches!(&problem, Problem::NoInterpreter { interpreter, .. } if interpreter == name),
            "{line}: {problem}"
        );
    }
    // A program whose loader is not here: one of this machine with another path of it.
    let mut bytes = fs::read("/bin/true").unwrap();
    let at = bytes.windows(4).position(|window| window == b"/ld-").unwrap();
    bytes[at + 1] = b'x';
    let problem = lab.problem(&lab.file("cloud", &bytes));
    assert!(problem.to_string().contains("the loader of its C library"), "{problem}");
}

fn what_the_kernel_cannot_run_is_said() {
    let lab = Lab::new();
    for bytes in [&b""[..], b"echo hello\n", b"\x7fELF"] {
        let problem = lab.problem(&lab.file("cloud", bytes));
        assert!(matches!(problem, Problem::NotAProgram { .. }), "{problem}");
    }
    // The interpreter may not be executed.
    let text = lab.file("text", "");
    fs::set_permissions(&text, Permissions::from_mode(0o644)).unwrap();
    let problem = lab.problem(&lab.file("cloud", format!("#!{}\n", text.display())));
    assert!(matches!(problem, Problem::CannotStart { .. }), "{problem}");
    // A program that runs, and is no driver.
    let problem = lab.problem(&lab.file("cloud", fs::read("/bin/true").unwrap()));
    assert!(matches!(problem, Problem::NoAnswer { .. }), "{problem}");
}
