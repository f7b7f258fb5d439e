//! The shell of a reader.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use super::{Commands, is_shown};

/// What the shell prints after each command, with its exit code.
const END: &str = "end of the command:";
/// How often a command is repeated until it succeeds, and the pause before the next time.
const ATTEMPTS: usize = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// A shell whose folder, variables, functions and background processes last until it is dropped.
pub(crate) struct Shell {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Shell {
    /// Starts one in a folder with these variables, and with programs of another folder in front of those of this process.
    pub(crate) fn start(folder: &Path, programs: &Path, variables: &[(&str, &OsStr)]) -> Self {
        let mut bash = Command::new("bash");
        bash.args(["--noprofile", "--norc"]).current_dir(folder).env_clear().env("HOME", folder);
        bash.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()));
        bash.envs(variables.iter().copied());
        // A group of its own, which ends with the test.
        bash.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = bash.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// The exit code of a command, and what it prints.
    pub(crate) fn run(&mut self, command: &str) -> (i32, String) {
        writeln!(self.input, "{{ {command}\n}} </dev/null 2>&1; echo \"\n{END} $?\"").unwrap();
        let mut printed = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the shell has ended at {command}: {printed}");
            if let Some(code) = line.strip_prefix(END) {
                return (code.trim().parse().unwrap(), printed);
            }
            printed.push_str(&line);
        }
    }

    /// Runs the commands of a block, after a change of their text. Fails unless each ends and prints as the page shows.
    pub(crate) fn follow(&mut self, commands: &Commands, change: impl Fn(&str) -> String) -> Result<(), String> {
        let Commands { exit_code, repeated, all } = commands;
        for command in all {
            let text = change(&command.text);
            let (mut code, mut printed) = self.run(&text);
            for _ in 0..if *repeated { ATTEMPTS } else { 0 } {
                if code == *exit_code {
                    break;
                }
                sleep(PAUSE);
                (code, printed) = self.run(&text);
            }
            if code != *exit_code {
                return Err(format!("exit code {code} of {text}\n{printed}"));
            }
            is_shown(&command.output, &printed).map_err(|problem| format!("{text}: {problem}"))?;
        }
        Ok(())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        drop(Command::new("kill").args(["-KILL", "--", &group]).status());
        drop(self.child.wait());
    }
}
