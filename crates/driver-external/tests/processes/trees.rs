//! Nothing that a driver has started is left, whatever happens.

use std::{
    env, fs,
    process::{Command, Stdio},
};

use ccm_drivers::contract::{DriverType, ErrorKind};

use crate::lab::{ACCOUNT, Lab, PROGRAM, count, eventually, marker, open, run, start, values, wait};

crate::tests![
    what_is_left_of_a_driver_is_ended,
    a_driver_that_does_not_end_is_ended,
    a_flood_of_processes_is_ended,
    a_driver_ends_when_nobody_waits_for_it,
    a_driver_ends_with_its_program,
    a_driver_that_kills_its_supervisor_is_ended_and_nothing_else,
    a_driver_that_stops_its_supervisor_is_ended,
    a_program_that_was_started_with_children_ignored_has_drivers,
    a_session_from_outside_of_the_pid_namespace_is_told_apart,
];

/// Shell commands that start processes with a marker in several ways, and wait until all of them run.
fn family(marker: &str) -> String {
    format!(
        "sleep {marker} &\n\
         (sleep {marker} &)\n\
         setsid sleep {marker} &\n\
         setsid setsid sh -c 'trap \"\" TERM HUP INT; sleep {marker}; :' </dev/null >/dev/null 2>&1 &\n\
         nohup sleep {marker} >/dev/null 2>&1 &\n\
         python3 -c '\n\
import os, sys\n\
if os.fork(): os._exit(0)\n\
os.setsid()\n\
if os.fork(): os._exit(0)\n\
os.chdir(\"/\")\n\
os.closerange(0, 100)\n\
os.execvp(\"sleep\", [\"sleep\", \"{marker}\"])'\n\
         while [ $(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -o 'sleep {marker}' | wc -l) -lt 7 ]; do sleep 0.01; done\n"
    )
}

const REGIONS: &str = "echo '{\"protocolVersion\":1,\"account\":\"account-1\",\"result\":{\"regions\":[]}}'\n";

fn what_is_left_of_a_driver_is_ended() {
    for (end, kind) in [(REGIONS, None), ("exit 1", Some(ErrorKind::Internal))] {
        let (lab, marker) = (Lab::new(), marker());
        let opened = open(&lab.shell(&(family(&marker) + end)), &[("timeout", "0")]);
        let result = run(opened.topology().regions());
        assert_eq!(count(&marker), 0, "{result:?}");
        assert_eq!(result.err().map(|error| error.kind), kind);
    }
}

fn a_driver_that_does_not_end_is_ended() {
    for end in [
        "exec sleep MARKER",
        "trap '' TERM INT HUP; while :; do sleep MARKER; done",
        // Its answer is whole, and it closes what it was given.
        "echo '{\"protocolVersion\":1,\"account\":\"account-1\",\"result\":{\"regions\":[]}}'; exec sleep MARKER >&- 2>&- <&-",
        "kill -STOP $$",
    ] {
        let (lab, marker) = (Lab::new(), marker());
        let body = format!("setsid sleep {marker} &\n{}", end.replace("MARKER", &marker));
        let error = run(open(&lab.shell(&body), &[("timeout", "500ms")]).topology().regions()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout, "{end}: {error}");
        assert_eq!(count(&marker), 0, "{end}");
    }
}

fn a_flood_of_processes_is_ended() {
    let (lab, marker) = (Lab::new(), marker());
    // Each process starts two others in sessions of their own, up to 1023 of them.
    let driver = lab.python(&format!(
        "depth = 0\n\
         while depth < 9:\n    \
             depth += 1\n    \
             if os.fork() == 0: os.setsid()\n    \
             elif os.fork() == 0: os.setsid()\n    \
             else: break\n\
         os.execvp('sleep', ['sleep', '{marker}'])"
    ));
    let error = run(open(&driver, &[("timeout", "0")]).topology().regions()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal);
    assert!(error.message.contains("more than 64 processes"), "{error}");
    assert_eq!(count(&marker), 0);
}

fn a_driver_ends_when_nobody_waits_for_it() {
    let (lab, marker) = (Lab::new(), marker());
    let driver = lab.shell(&(family(&marker) + "wait"));
    run(async {
        let opened = driver.open(&values(&driver, &[("timeout", "0")])).await.unwrap();
        let topology = opened.topology();
        let regions = topology.regions();
        tokio::select! {
            result = regions => panic!("{result:?}"),
            () = eventually("the start of the driver", || count(&marker) >= 7) => {}
        }
        // The supervisor is reaped as well.
        let own = std::process::id().to_string();
        let supervisors = || {
            let children = Command::new("ps").args(["--ppid", &own, "-o", "args="]).output().unwrap();
            String::from_utf8(children.stdout).unwrap().matches("--supervise-driver").count()
        };
        eventually("the end of the driver and its supervisor", || count(&marker) == 0 && supervisors() == 0).await;
    });
}

fn a_driver_ends_with_its_program() {
    for end in ["wait", "kill -STOP $PPID; touch stopped; wait"] {
        let (lab, marker) = (Lab::new(), marker());
        let stopped = lab.folder().join("stopped");
        let end = end.replace("touch stopped", &format!("touch {}", stopped.display()));
        drop(lab.shell(&format!("# {ACCOUNT}\n{}{end}", family(&marker))));
        let mut program = start(&lab.folder().join("cloud.sh"));
        wait("the start of the driver", || count(&marker) >= 7 && (end == "wait" || stopped.exists()));
        program.kill().unwrap();
        program.wait().unwrap();
        wait("the end of the driver", || count(&marker) == 0);
    }
}

fn a_driver_that_kills_its_supervisor_is_ended_and_nothing_else() {
    let (lab, other_lab, marker, other_marker) = (Lab::new(), Lab::new(), marker(), marker());
    let go = other_lab.folder().join("go");
    let other = format!("sleep {other_marker} &\nwhile [ ! -e {} ]; do sleep 0.01; done\n{REGIONS}", go.display());
    let other = open(&other_lab.shell(&other), &[("timeout", "0")]);
    let killing = ["kill -KILL $PPID; wait", "setsid kill -KILL $PPID & wait"]
        .map(|end| open(&lab.shell(&(family(&marker) + REGIONS + end)), &[("timeout", "0")]));
    // A process that this program has started for something else.
    let mut own = Command::new("sleep").arg(&other_marker).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    run(async {
        let killers = async {
            eventually("the start of the other driver", || count(&other_marker) == 2).await;
            for opened in killing {
                let error = opened.topology().regions().await.unwrap_err();
                assert_eq!(error.kind, ErrorKind::Internal, "{error}");
                assert_eq!(count(&marker), 0, "{error}");
            }
            assert_eq!(count(&other_marker), 2);
            fs::write(&go, "").unwrap();
        };
        let topology = other.topology();
        let (result, ()) = tokio::join!(topology.regions(), killers);
        result.unwrap();
    });
    wait("the end of the other driver", || count(&other_marker) == 1);
    own.kill().unwrap();
    own.wait().unwrap();
}

fn a_driver_that_stops_its_supervisor_is_ended() {
    let (lab, marker) = (Lab::new(), marker());
    let body = family(&marker) + "kill -STOP $PPID\nwait";
    let error = run(open(&lab.shell(&body), &[("timeout", "2s")]).topology().regions()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    assert_eq!(count(&marker), 0);
}

fn a_program_that_was_started_with_children_ignored_has_drivers() {
    let lab = Lab::new();
    drop(lab.shell(
        "echo '{\"protocolVersion\":1,\"account\":\"a\",\"result\":{\"regions\":[{\"id\":\"r\",\"name\":\"n\"}]}}'",
    ));
    let start =
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])";
    let mut python = Command::new("python3");
    python.args(["-c", start]).arg(env::current_exe().unwrap()).arg(PROGRAM).arg(lab.folder().join("cloud.sh"));
    let output = python.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "r=n\n", "{output:?}");
}

fn a_session_from_outside_of_the_pid_namespace_is_told_apart() {
    // As in a shell that somebody has brought into a container. The tests that end what a driver has left run once more.
    let mut namespace = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        namespace.args(["--user", "--map-root-user"]);
    }
    namespace.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(env::current_exe().unwrap());
    let tests = ["when_nobody_waits", "kills_its_supervisor", "stops_its_supervisor"];
    let output = namespace.args(tests).stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("3 passed; 0 failed"), "{printed}{output:?}");
}
