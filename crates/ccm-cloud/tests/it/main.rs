//! Tests of the program as people run it, with the driver `fake`.

#![cfg(feature = "fake")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy takes the helpers of tests for production code")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

mod api_server;
mod commands;
mod external;
mod new_driver;
mod page;
mod programs;
mod proxy;
mod settings;
mod signals;
mod sweep;
mod verify;
mod write_a_driver;

/// The program without any variable of this process.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccm-cloud"));
    command.env_clear();
    command
}

/// Runs the program to its end.
fn ccm_cloud(words: &[&str]) -> Done {
    Done::of(program().args(words).output().unwrap())
}

/// What a command has printed, and its exit code.
#[derive(Debug)]
struct Done {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Done {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// What it has printed, if it has succeeded without a word about a failure.
    #[track_caller]
    fn good(self) -> String {
        assert!(self.code == Some(0) && self.stderr.is_empty(), "{self:?}");
        self.stdout
    }

    /// The one line of its failure.
    #[track_caller]
    fn bad(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.stderr.starts_with("ccm-cloud: ") && self.stderr.lines().count() == 1, "{self:?}");
        self.stderr.trim_end().to_owned()
    }
}

/// A fake cloud in a file.
struct Cloud {
    folder: TempDir,
}

impl Cloud {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("cloud.json")
    }

    /// The program with this cloud.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = program();
        command.arg("fake").args(words).env("FAKE_FILE", self.file()).current_dir(self.folder.path());
        command
    }

    fn run(&self, words: &[&str]) -> Done {
        Done::of(self.command(words).output().unwrap())
    }

    fn json(&self, words: &[&str]) -> Value {
        let words: Vec<_> = words.iter().copied().chain(["-o", "json"]).collect();
        serde_json::from_str(&self.run(&words).good()).unwrap()
    }

    /// Makes an instance, and returns its id.
    fn create(&self, name: &str, key: &str, words: &[&str]) -> String {
        let words: Vec<_> = ["instance-create", "--name", name, "--key", key].iter().chain(words).copied().collect();
        self.json(&words)["id"].as_str().unwrap().to_owned()
    }

    /// The names of all instances.
    fn names(&self) -> Vec<String> {
        let listed = self.json(&["instance-list"]);
        listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Gives the account another token.
    fn set_token(&self, token: &str) {
        self.run(&["account-show"]).good();
        let mut cloud: Value = serde_json::from_str(&std::fs::read_to_string(self.file()).unwrap()).unwrap();
        cloud["account"]["token"] = token.into();
        std::fs::write(self.file(), cloud.to_string()).unwrap();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
