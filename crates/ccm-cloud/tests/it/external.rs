//! Drivers that are programs of their own: how they are named, and what is refused. Those of `new-driver` are used.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Done, program, text};

/// A folder with a new driver.
pub(crate) struct Driver {
    pub(crate) folder: TempDir,
    pub(crate) name: String,
    pub(crate) file: String,
}

impl Driver {
    pub(crate) fn new(name: &str, language: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let words = ["new-driver", name, "--language", language, "--folder", text(folder.path())];
        Done::of(program().args(words).output().unwrap()).good();
        let extension = if language == "python" { "py" } else { "sh" };
        Self { folder, name: name.to_owned(), file: format!("{name}.{extension}") }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(&self.file)
    }

    /// Changes the driver, which stays executable.
    pub(crate) fn edit(&self, from: &str, to: &str) {
        let code = fs::read_to_string(self.path()).unwrap();
        assert!(code.contains(from), "{from}");
        fs::write(self.path(), code.replace(from, to)).unwrap();
    }

    pub(crate) fn digest(&self) -> String {
        digest(&self.path())
    }

    pub(crate) fn pin(&self) -> String {
        format!("{}@sha256:{}", self.path().display(), self.digest())
    }

    /// The program with some words, and with the file of the cloud in the folder.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = program();
        let variable = format!("{}_FILE", self.name.replace('-', "_").to_uppercase());
        command.args(words).env(variable, self.folder.path().join("cloud.json"));
        command
    }

    /// Runs a command of the driver.
    pub(crate) fn run(&self, words: &[&str]) -> Done {
        let flags = ["--driver", &self.pin(), "--driver-folder", text(self.folder.path()), &self.name];
        Done::of(self.command(&flags).args(words).output().unwrap())
    }

    /// Runs a command with the variables of seed 000, but for one.
    fn run_by_variables(&self, words: &[&str], variable: (&str, Option<&str>)) -> Done {
        let (path, digest) = (self.path(), self.digest());
        let mut command = self.command(&["--driver-folder", text(self.folder.path())]);
        command.args(words).envs([
            ("CLOUD_PROVIDER", &*self.name),
            ("ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN", "true"),
            ("CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH", text(&path)),
            ("CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH", &digest),
        ]);
        match variable {
            (name, Some(value)) => command.env(name, value),
            (name, None) => command.env_remove(name),
        };
        Done::of(command.output().unwrap())
    }
}

fn digest(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

const UNCHANGED: (&str, Option<&str>) = ("ANOTHER", None);

#[test]
fn a_driver_is_named_by_the_flag_or_by_the_variables_and_is_a_command_as_others() {
    let driver = Driver::new("my-cloud", "python");
    let made = driver.run(&["instance-create", "--name", "a", "--key", "1", "-o", "json"]).good();
    let id = serde_json::from_str::<Value>(&made).unwrap()["id"].as_str().unwrap().to_owned();
    let listed = driver.run_by_variables(&["my-cloud", "instance-list", "-o", "json"], UNCHANGED).good();
    assert_eq!(serde_json::from_str::<Value>(&listed).unwrap()[0]["id"], *id);
    // Flags of the driver, and its own settings, stand wherever others do.
    let (pin, folder) = (driver.pin(), text(driver.folder.path()).to_owned());
    let words = ["my-cloud", "instance-show", &id, "--image", "fedora", "--driver", &pin, "--driver-folder", &folder];
    Done::of(driver.command(&words).output().unwrap()).good();
    assert!(driver.run(&["instance-show", "b"]).bad(10).starts_with("ccm-cloud: NotFound: "));
    assert!(driver.run(&["--token", "wrong", "instance-show", &id]).bad(12).contains("InvalidCredentials"));
    assert!(driver.run(&["--read-only", "instance-delete", &id]).bad(16).contains("ReadOnly"));
    let help = driver.run(&["--help"]).good().split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["[env: MY_CLOUD_FILE] [required]", "[env: MY_CLOUD_TOKEN] [secret:", "--ca-bundle", "--driver-folder"]
    {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert!(driver.run(&["capabilities"]).good().contains("run-command"));
    assert_eq!(driver.run(&["instance-run", "a", "--", "hostname"]).good(), "a\n");
    assert!(driver.run(&["instance-metrics", "a"]).good().contains("67108864"));
    driver.run(&["instance-delete", &id]).good();
}

#[test]
fn drivers_are_listed_with_path_and_digest() {
    let driver = Driver::new("my-cloud", "sh");
    let words = ["--driver-folder", text(driver.folder.path()), "--driver", &driver.pin(), "drivers", "-o", "json"];
    let listed = Done::of(driver.command(&words).output().unwrap()).good();
    let rows: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"fake") && names.last() == Some(&"my-cloud"), "{names:?}");
    let row = rows.last().unwrap();
    let path = fs::canonicalize(driver.path()).unwrap();
    assert_eq!((&row["path"], &row["digest"]), (&json!(path), &json!(format!("sha256:{}", driver.digest()))));
    assert!(rows[0]["path"].is_null() && rows[0]["digest"].is_null());
    let table = Done::of(driver.command(&words[..5]).output().unwrap()).good();
    assert!(table.contains(&format!(" sha256:{}\n", driver.digest())) && table.contains(text(&path)), "{table}");
    let is_wide = |line: &&str| line.split_whitespace().count() > 1 && line.chars().count() > 100;
    assert!(!table.lines().any(|line| is_wide(&line)), "{table}");
    // As those of the other commands. The driver declares a sentence.
    for list in [table, Done::of(driver.command(&["--help"]).output().unwrap()).good()] {
        assert!(list.contains("Containers of Docker Engines\n") && list.contains("for tests\n"), "{list}");
    }
    assert_eq!(row["summary"], "Instances of my-cloud");
}

#[test]
fn each_start_is_logged_with_path_digest_protocol_version_and_settings_but_no_secret() {
    let driver = Driver::new("my-cloud", "python");
    driver.run(&["account-show"]).good();
    let state = fs::read_to_string(driver.folder.path().join("cloud.json")).unwrap();
    fs::write(driver.folder.path().join("cloud.json"), state.replace("change-me", "Qk7token9Zx")).unwrap();
    let done = driver.run(&["--debug", "--token", "Qk7token9Zx", "account-show"]);
    let path = fs::canonicalize(driver.path()).unwrap();
    let line = done.stderr.lines().find(|line| line.contains("external driver")).unwrap();
    for part in [
        "driver=\"my-cloud\"",
        &format!("path={}", path.display()),
        &driver.digest(),
        "protocol=1",
        "version=\"0.1.0\"",
        "cloud.json",
        "\"(secret)\"",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(done.code == Some(0) && !done.stderr.contains("Qk7token9Zx") && !done.stdout.contains("Qk7token9Zx"));
}

#[test]
fn each_guard_of_the_variables_fails_closed() {
    let driver = Driver::new("my-cloud", "sh");
    // What it would write if it ran.
    let ran = driver.folder.path().join("ran");
    driver.edit("set -eu\n", &format!("set -eu\ntouch {}\n", ran.display()));
    let run = |variable| driver.run_by_variables(&["my-cloud", "account-show"], variable);
    let other = format!("{}/other.sh", driver.folder.path().display());
    let wrong = driver.digest().replace(['0', '1', '2'], "3");
    for (variable, value, reason) in [
        ("ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN", None, "is set and not enabled"),
        ("ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN", Some("false"), "is set and not enabled"),
        ("ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN", Some("yes"), "is \"yes\", not true or false"),
        ("CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH", None, "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH is missing"),
        ("CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH", None, "CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH is missing"),
        ("CLOUD_PROVIDER", None, "CLOUD_PROVIDER is missing"),
        ("CLOUD_PROVIDER", Some("docker"), "both have to be the name of the driver"),
        ("CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH", Some(&*other), "both have to be the name of the driver"),
        ("CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH", Some("/my-cloud.sh"), "is not directly in the folder"),
        ("CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH", Some(&*wrong), "has the digest sha256:"),
    ] {
        let done = run((variable, value));
        assert!(
            done.code == Some(2) && done.stderr.contains(reason) && done.stdout.is_empty(),
            "{variable} {value:?}: {done:?}"
        );
        assert!(!ran.exists(), "{variable} {value:?}: it ran");
    }
    let (pin, folder) = (driver.pin(), text(driver.folder.path()).to_owned());
    let pin = pin.replace(&folder, &format!("{folder}/../{}", driver.folder.path().file_name().unwrap().display()));
    let words = ["--driver", &pin, "my-cloud", "account-show"];
    let done = driver.run_by_variables(&words, UNCHANGED);
    assert!(done.bad(2).contains("give one of both, or the same path and digest") && !ran.exists());
    // The built-in ones need no variable.
    let done = driver.run_by_variables(&["fake", "account-show"], ("ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN", None));
    done.good();
    assert!(!ran.exists());
    run(UNCHANGED).good();
    assert!(ran.exists());
}

#[test]
fn what_needs_no_driver_works_although_the_one_of_the_variables_is_refused() {
    let driver = Driver::new("my-cloud", "sh");
    let made = driver.folder.path().join("made");
    let ran = driver.folder.path().join("ran");
    driver.edit("set -eu\n", &format!("set -eu\ntouch {}\n", ran.display()));
    let wrong = Some("0000000000000000000000000000000000000000000000000000000000000000");
    for (variable, reason) in [
        (("CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH", wrong), "has the digest sha256:"),
        (("CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH", Some("/elsewhere/my-cloud.sh")), "cannot read /elsewhere: "),
        (("CLOUD_PROVIDER", None), "CLOUD_PROVIDER is missing"),
    ] {
        let made = format!("{}{}", made.display(), reason.len());
        for (words, part) in [
            (&["--help"][..], "Exit codes:"),
            (&["help"], "Exit codes:"),
            (&["--version"], "ccm-cloud "),
            (&["version"], "ccm-cloud "),
            (&["completion", "bash"], "instance-sweep"),
            (&["man"], ".TH ccm-cloud 1"),
            (&["new-driver", "other", "--language", "sh", "--folder", &made], "written:"),
        ] {
            let done = driver.run_by_variables(words, variable);
            assert!(done.code == Some(0) && done.stdout.contains(part), "{words:?}: {done:?}");
            assert!(
                done.stderr.starts_with("ccm-cloud: note: ") && done.stderr.contains(reason),
                "{words:?}: {done:?}"
            );
        }
        for words in
            [&["my-cloud", "account-show"][..], &["fake", "account-show"], &["drivers"], &["my-cloud", "--help"]]
        {
            let line = driver.run_by_variables(words, variable).bad(2);
            assert!(line.contains(reason) && !line.contains("note:"), "{words:?}: {line}");
        }
        assert!(!ran.exists());
    }
    driver.run_by_variables(&["version"], UNCHANGED).good();
}

#[test]
fn one_changed_byte_is_refused_and_so_is_another_name() {
    let driver = Driver::new("my-cloud", "sh");
    let pin = driver.pin();
    let with = |pin: &str, words: &[&str]| {
        let flags = ["--driver", pin, "--driver-folder", text(driver.folder.path())];
        Done::of(driver.command(&flags).args(words).output().unwrap())
    };
    with(&pin, &["my-cloud", "account-show"]).good();
    driver.edit("version: \"0.1.0\"", "version: \"0.1.1\"");
    for words in [&["my-cloud", "account-show"][..], &["fake", "account-show"], &["drivers"], &["version"]] {
        assert!(with(&pin, words).bad(2).contains("has the digest"), "{words:?}");
    }
    with(&driver.pin(), &["my-cloud", "account-show"]).good();
    // The answer has another name than the file.
    for name in ["other", "fake"] {
        let renamed = driver.folder.path().join(format!("{name}.sh"));
        fs::copy(driver.path(), &renamed).unwrap();
        let pin = format!("{}@sha256:{}", renamed.display(), digest(&renamed));
        let (code, reason) =
            if name == "fake" { (2, "the built-in driver fake has this name") } else { (20, "rename the file") };
        assert!(with(&pin, &[name, "account-show"]).bad(code).contains(reason), "{name}");
    }
}

#[test]
fn a_driver_that_the_command_line_cannot_have_is_refused() {
    let driver = Driver::new("my-cloud", "python");
    driver.edit(
        "{\"name\": \"image\", ",
        "{\"name\": \"key\", \"type\": \"text\", \"help\": \"A key.\"},\n    {\"name\": \"image\", ",
    );
    let line = driver.run(&["account-show"]).bad(2);
    assert!(
        line.contains("the setting \"key\": the flag --key is one of instance-create: rename the setting"),
        "{line}"
    );
    let driver = Driver::new("my-cloud", "sh");
    let path = driver.folder.path().join("version.sh");
    fs::write(&path, fs::read_to_string(driver.path()).unwrap().replace("my-cloud", "version")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let pin = format!("{}@sha256:{}", path.display(), digest(&path));
    let words = ["--driver", &pin, "--driver-folder", text(driver.folder.path()), "version"];
    let line = Done::of(driver.command(&words).output().unwrap()).bad(2);
    assert!(line.contains("has a command of the name \"version\": rename the driver"), "{line}");
}
