//! The usual features of a command line: versions, completions, helpful errors.

use std::{
    fs,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::Value;

use crate::{
    lab::{LIMIT, Lab, binary},
    support::{
        control_plane::{ControlPlane, Options},
        openshift::Cluster,
    },
};

fn run(arguments: &[&str]) -> Output {
    Command::new(binary())
        .args(arguments)
        .env_remove("KUBECONFIG")
        .env("HOME", "/nowhere")
        .output()
        .expect("the binary")
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

#[tokio::test]
async fn the_version_is_this_programs_and_the_clusters() -> Result<()> {
    let client = run(&["version", "--client"]);
    assert!(text(client.stdout).starts_with(&format!("Client  ccm-operator {}", env!("CARGO_PKG_VERSION"))));

    let lab = Lab::new(&Cluster::default()).await?;
    let kubeconfig = lab.kubeconfig().to_str().unwrap();
    let both: Value = serde_json::from_slice(&run(&["version", "-o", "json", "--kubeconfig", kubeconfig]).stdout)?;
    assert_eq!(both["clientVersion"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(both["serverVersion"]["gitVersion"], lab.client.apiserver_version().await?.git_version);

    let unreachable = run(&["version"]);
    assert_eq!(unreachable.status.code(), Some(2));
    assert!(text(unreachable.stdout).starts_with("Client "), "this program's version is known without a cluster");
    assert!(text(unreachable.stderr).contains("kubeconfig"));
    Ok(())
}

#[tokio::test]
async fn a_cluster_that_is_not_openshift_is_said_to_be_none() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    let kubeconfig = plane.kubeconfig_admin();
    for command in ["status", "diff"] {
        let output = run(&[command, "--kubeconfig", kubeconfig.to_str().unwrap()]);
        let error = text(output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert_eq!(
            text(output.stdout) + &error,
            "ccm-operator: this cluster does not serve infrastructures.config.openshift.io/v1: it is no OpenShift or OKD cluster; on others `kubectl describe ccm` shows the state\n"
        );
    }
    Ok(())
}

#[test]
fn completions_name_every_command() -> Result<()> {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = text(run(&["completion", shell]).stdout);
        assert!(script.contains("image-references") && script.contains("cluster-infrastructure-file"), "{shell}");
    }
    for (words, expected) in [("status --outp", "--output"), ("provider ver", "verify"), ("render boot", "bootstrap")] {
        let last = words.split(' ').next_back().unwrap_or_default();
        let script = format!(
            "source <('{}' completion bash); COMP_WORDS=(ccm-operator {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            _ccm__operator ccm-operator {last} \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; echo \"${{COMPREPLY[@]}}\"",
            binary().display()
        );
        let completed = Command::new("bash").args(["-c", &script]).output()?;
        assert_eq!(text(completed.stdout).trim(), expected, "{words}: {}", text(completed.stderr));
    }
    Ok(())
}

#[test]
fn an_unknown_flag_or_command_names_the_nearest_one() {
    for (arguments, nearest) in [
        (&["operator", "--leader-elct"][..], "'--leader-elect'"),
        (&["render", "--images-fle", "x"], "'--images-file'"),
        (&["staus"], "'status'"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2));
        let error = text(output.stderr);
        assert!(error.contains(nearest), "{error}");
    }
}

/// The memory of every command may hold Secrets.
#[test]
fn no_command_leaves_a_core_dump() -> Result<()> {
    // Waits for its input.
    let arguments = ["render", "ccm", "--kubernetes-version", "1.35", "--config", "-"];
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut waiting = command.spawn()?;
    let limits = format!("/proc/{}/limits", waiting.id());
    let started = Instant::now();
    let limit = loop {
        let text = fs::read_to_string(&limits).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap_or_default();
        let limit = line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        if limit == "1 1" || started.elapsed() > LIMIT {
            break limit;
        }
        thread::sleep(Duration::from_millis(10));
    };
    let _ = waiting.kill();
    waiting.wait()?;
    assert_eq!(limit, "1 1", "with 1 Linux makes no dump, neither into a file nor into a pipe");
    Ok(())
}
