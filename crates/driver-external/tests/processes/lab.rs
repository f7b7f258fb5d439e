//! Writes drivers, and runs them.

use std::{
    env,
    ffi::OsString,
    fs,
    future::Future,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use ccm_driver_external::{External, Pin, Problem, Program};
use ccm_drivers::{
    contract::{Driver, DriverType},
    settings::{COMMON, Given, Values},
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The account of all drivers of these tests.
pub(crate) const ACCOUNT: &str = "account-1";

/// What a driver says about itself.
pub(crate) const DESCRIBED: &str = r#"{"protocolVersion":1,"result":{"name":"cloud","version":"1.2","summary":"A cloud.",
    "settings":[{"name":"token","type":"text","secret":true,"help":"The token."},
        {"name":"certPath","type":"path","help":"A folder."}],
    "options":[{"name":"pin","type":"text","secret":true,"help":"A pin."}],"idPrefix":"cloud/",
    "capabilities":{"instances":{},"networks":{"readOnly":true},"metrics":{},"run-command":{},"teleport":{}}}}"#;

/// A folder of drivers.
pub(crate) struct Lab {
    folder: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes an executable file.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder().join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    pub(crate) fn load(&self, path: &Path) -> Result<Program, Problem> {
        Program::load(self.folder(), &pin(path))
    }

    /// A shell script that describes itself, and answers everything else by `body`. The request is in `$request`.
    pub(crate) fn shell(&self, body: &str) -> External {
        let script = format!(
            "#!/bin/sh\nrequest=$(cat)\ncase \"$request\" in *'\"operation\":\"describe\"'*)\ncat <<'END'\n{DESCRIBED}\nEND\n\
             exit;;\nesac\n{body}\n"
        );
        self.described(&self.file("cloud.sh", script))
    }

    /// A Python script in place of a shell script. The request is in `request`, and `answer` prints a result.
    pub(crate) fn python(&self, body: &str) -> External {
        let script = format!(
            "#!/usr/bin/env python3\nimport json, os, sys, time\nrequest = json.load(sys.stdin)\n\
             def answer(result):\n    print(json.dumps({{'protocolVersion': 1, 'account': '{ACCOUNT}', 'result': result}}), flush=True)\n\
             def regions(**texts):\n    answer({{'regions': [{{'id': id, 'name': str(text)}} for id, text in texts.items()]}})\n\
             if request['operation'] == 'describe':\n    print('''{DESCRIBED}''')\n    sys.exit()\n{body}\n"
        );
        self.described(&self.file("cloud.py", script))
    }

    fn described(&self, path: &Path) -> External {
        run(External::describe(self.load(path).unwrap())).unwrap()
    }

    /// Describes a driver that fails.
    pub(crate) fn problem(&self, path: &Path) -> Problem {
        run(async { External::describe(self.load(path)?).await }).err().unwrap()
    }
}

/// The pin of a file as it is now.
pub(crate) fn pin(path: &Path) -> Pin {
    Pin::new(path, &digest(&fs::read(path).unwrap())).unwrap()
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}

pub(crate) fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn values(driver: &External, given: &[(&str, &str)]) -> Values {
    let flags = given.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    Values::resolve(driver.name(), COMMON.iter().chain(driver.settings()), &Given { flags, ..Given::default() })
        .unwrap()
}

pub(crate) fn open(driver: &External, given: &[(&str, &str)]) -> Box<dyn Driver> {
    run(driver.open(&values(driver, given))).unwrap()
}

/// A number of seconds that no other process sleeps for, by which processes of a test are found.
pub(crate) fn marker() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("86400.{:07}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// How many processes have a text in their command lines.
pub(crate) fn count(marker: &str) -> usize {
    let command_line = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    let all = fs::read_dir("/proc").unwrap().flatten().map(command_line);
    all.filter(|line| String::from_utf8_lossy(line).contains(marker)).count()
}

/// Waits for something that happens soon.
pub(crate) fn wait(what: &str, happened: impl FnMut() -> bool) {
    run(eventually(what, happened));
}

/// The same for a test that has a runtime.
pub(crate) async fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if happened() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} has not happened");
}

/// The first argument of a program with a driver.
pub(crate) const PROGRAM: &str = "--use-driver";

/// The work of a program with a driver: it lists the regions, and prints their names. `None` if this process is not one.
pub(crate) fn program(arguments: &[OsString]) -> Option<ExitCode> {
    if arguments.get(1).is_none_or(|argument| argument != PROGRAM) {
        return None;
    }
    let path = PathBuf::from(&arguments[2]);
    let regions = run(async {
        let driver = External::describe(Program::load(path.parent().unwrap(), &pin(&path)).unwrap()).await.unwrap();
        let opened = driver.open(&values(&driver, &[("timeout", "0"), ("token", "token-of-the-cloud")])).await.unwrap();
        opened.topology().regions().await.unwrap()
    });
    for region in regions {
        println!("{}={}", region.id, region.name);
    }
    Some(ExitCode::SUCCESS)
}

/// Starts a program with a driver, with a secret in its environment.
pub(crate) fn start(path: &Path) -> Child {
    let mut command = Command::new(env::current_exe().unwrap());
    command.arg(PROGRAM).arg(path).env("OTHER_SECRET", "secret-of-the-program").stdout(Stdio::piped()).spawn().unwrap()
}
