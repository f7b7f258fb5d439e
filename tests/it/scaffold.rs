//! `provider new`: the folder of a new provider, as a user gets it.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::Result;
use tempfile::TempDir;

use crate::lab::binary;

/// Runs `provider new` in a folder, without a terminal.
pub(crate) fn new(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.args(["provider", "new"]).args(arguments).current_dir(folder).stdin(Stdio::null());
    command.output().expect("the binary")
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_folder_is_written_that_describes_the_next_steps() -> Result<()> {
    let folder = TempDir::new()?;
    let output = new(
        folder.path(),
        &["acme", &format!("--image=ghcr.io/acme/ccm:v1.2.3@sha256:{}", "0".repeat(64)), "--flavor=both"],
    );
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    let printed = String::from_utf8(output.stdout)?;
    for file in ["README.md", "assets/provider.yaml", "assets/kubernetes/provider.yaml", "bootstrap/pod.yaml"] {
        assert!(printed.contains(&format!("  acme/{file}\n")), "{printed}");
        assert!(folder.path().join("acme").join(file).is_file(), "{file}");
    }
    for command in ["verify", "digest"] {
        let next = Command::new(binary()).args(["provider", command, "./acme"]).current_dir(folder.path()).output()?;
        assert_eq!(next.status.code(), Some(0), "{}{}", String::from_utf8_lossy(&next.stdout), error(&next));
    }
    let readme = fs::read_to_string(folder.path().join("acme/README.md"))?;
    let commands: Vec<_> = readme.lines().filter(|line| line.starts_with("ccm-operator ")).collect();
    assert_eq!(commands.len(), 3, "{readme}");
    assert!(readme.lines().filter(|line| line.starts_with("- `")).all(|line| {
        let file = line.split('`').nth(1).unwrap_or_default();
        folder.path().join("acme").join(file).is_file()
    }));
    Ok(())
}

#[test]
fn nothing_is_overwritten_and_no_bad_name_is_taken() -> Result<()> {
    let folder = TempDir::new()?;
    fs::create_dir(folder.path().join("mine"))?;
    fs::write(folder.path().join("mine/note"), "mine")?;
    for (arguments, why) in [
        (&["mine", "--image=a.io/a/b:1"][..], "mine exists and is not an empty folder"),
        (&["aws", "--image=a.io/a/b:1"], "\"aws\" is a provider of this program"),
        (&["../a", "--image=a.io/a/b:1"], "\"../a\" is no name for a provider"),
        (&["yes", "--image=a.io/a/b:1"], "it has another meaning"),
        (&["acme"], "--image is needed"),
        (&["acme", "--image=a.io/a/b:1", "--flavor=openshift"], "OpenShift's flavor needs the digest"),
        (&["acme", "--image=a"], "must be REPOSITORY:TAG"),
        (&["acme", "--image=a.io/a/b:1", "--credentials=token"], "\"token\" is not VARIABLE=KEY"),
        (&["acme", "--image=a.io/a/b:1", "--holds-credentials"], "--holds-credentials is about"),
        (&["acme", "--image=a.io/a/b:1", "--rule=SameMinor"], "--rule must be OneLine"),
    ] {
        let output = new(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(error(&output).contains(why), "{arguments:?}: {}", error(&output));
    }
    assert_eq!(fs::read_dir(folder.path())?.count(), 1, "nothing is written");
    assert_eq!(fs::read_to_string(folder.path().join("mine/note"))?, "mine");
    Ok(())
}

#[test]
fn an_image_without_a_digest_is_written_and_said_to_be_refused() -> Result<()> {
    let folder = TempDir::new()?;
    let output = new(folder.path(), &["acme", "--image=ghcr.io/acme/ccm:v1.2.3"]);
    assert_eq!(output.status.code(), Some(0), "{}", error(&output));
    assert!(
        error(&output).starts_with("ghcr.io/acme/ccm:v1.2.3 has no digest: the operator refuses it until"),
        "{}",
        error(&output)
    );
    let run = |arguments: &[&str]| {
        let output = Command::new(binary()).arg("provider").args(arguments).current_dir(folder.path()).output()?;
        anyhow::Ok((output.status.code(), String::from_utf8([output.stdout, output.stderr].concat())?))
    };
    let (code, text) = run(&["verify", "./acme"])?;
    assert!(code == Some(1) && text.contains("1 finding") && text.contains("external-image-digest"), "{text}");
    // What is printed is a policy, and it is enough.
    let (code, text) = run(&["rbac", "./acme"])?;
    assert_eq!(code, Some(2), "{text}");
    let policy: String = text.lines().skip(1).take(3).flat_map(|line| [line, "\n"]).collect();
    fs::write(folder.path().join("policy.yaml"), &policy)?;
    let (code, text) = run(&["rbac", "./acme", "--provider-policy=policy.yaml"])?;
    assert_eq!(code, Some(0), "{policy}{text}");
    Ok(())
}
