//! The commands without a driver, and wrong usage.

use std::process::Command;

use serde_json::Value;

use crate::{Done, ccm_cloud};

#[test]
fn drivers_and_the_version_are_printed() {
    let listed: Value = serde_json::from_str(&ccm_cloud(&["drivers", "-o", "json"]).good()).unwrap();
    let fake = listed.as_array().unwrap().iter().find(|driver| driver["name"] == "fake").unwrap();
    assert!(fake["settings"].as_u64().unwrap() > 4 && !fake["summary"].as_str().unwrap().is_empty());
    assert!(ccm_cloud(&["drivers"]).good().contains("fake"));
    assert!(ccm_cloud(&["version"]).good().starts_with("ccm-cloud "));
}

#[test]
fn wrong_usage_has_its_exit_code_and_the_help_is_a_success() {
    for words in [
        &[][..],
        &["nocloud"],
        &["fake"],
        &["fake", "instance-lst"],
        &["fake", "instance-list", "--none"],
        &["fake", "instance-list", "-o", "xml"],
        &["fake", "instance-show"],
        &["fake", "instance-run", "a"],
        &["fake", "instance-create", "--name", "a"],
        &["fake", "instance-create", "--name", "a", "--key", "1", "--cluster-id", "c", "--kubeconfig", "k"],
        &["fake", "--account", "a", "account-show"],
        &["fake", "account-show", "--account", "a"],
        &["fake", "instance-sweep"],
        &["fake", "instance-sweep", "--owners", "pods", "--all"],
        &["fake", "instance-sweep", "--owners", "pods", "--grace", "0s"],
        &["fake", "verify", "--only", "I0"],
        &["fake", "verify", "--wrong", "none=1"],
        &["fake", "verify", "--clean-up", "--zone", "north-1"],
        &["fake", "verify", "--clean-up", "-o", "junit"],
        &["new-driver", "my-cloud"],
        &["new-driver", "my-cloud", "--language", "perl"],
        &["--driver", "my-cloud.py", "drivers"],
        &["fake", "account-show", "--driver"],
    ] {
        let done = ccm_cloud(words);
        assert!(done.code == Some(2) && done.stdout.is_empty() && !done.stderr.is_empty(), "{words:?}: {done:?}");
    }
    let line = ccm_cloud(&["fak"]).stderr;
    assert!(line.contains("there is no driver or command \"fak\" (did you mean `fake`?); the drivers are "), "{line}");
    assert!(line.contains("needs --driver PATH@sha256:HEX and --driver-folder FOLDER"), "{line}");
    let pin = format!("/somewhere/aws.py@sha256:{}", "0".repeat(64));
    let line = ccm_cloud(&["--driver", &pin, "aws", "account-show"]).bad(2);
    assert!(
        line.contains("cannot read the folder of drivers /cloud-providers") && line.contains("--driver-folder"),
        "{line}"
    );
    for words in [&["fake", "--help"][..], &["fake", "instance-list", "--help"], &["fake", "verify", "--help"]] {
        assert!(ccm_cloud(words).good().contains("Exit codes: see ccm-cloud --help"), "{words:?}");
    }
    // It has the name that instance-create has for a label as well.
    let line = ccm_cloud(&["fake", "instance-list", "--label", "a"]).stderr;
    assert!(line.contains("'--selector <NAME=VALUE>'"), "{line}");
    let help = ccm_cloud(&["--help"]).good();
    assert!(help.contains("\n  10  NotFound: ") && help.contains("\n 143  terminated (SIGTERM)"), "{help}");
    assert!(ccm_cloud(&["fake", "instance-create", "--help"]).good().contains("  cpus=INTEGER\n"));
    ccm_cloud(&["--version"]).good();
}

#[test]
fn an_empty_word_names_nothing() {
    let create = |flag| ["instance-create", "--name", "a", "--key", "1", flag, ""];
    for words in [
        &["instance-delete", ""][..],
        &["instance-delete", "a", ""],
        &["instance-show", ""],
        &["instance-start", ""],
        &["instance-stop", ""],
        &["instance-metrics", ""],
        &["instance-run", "", "--", "true"],
        &["instance-create", "--name", "", "--key", "1"],
        &["instance-create", "--name", "a", "--key", ""],
        &create("--region"),
        &create("--zone"),
        &create("--image"),
        &create("--instance-type"),
        &create("--network"),
        &create("--cluster-id"),
        &create("--kubeconfig"),
        &["instance-list", "--region", ""],
        &["instance-list", "--zone", ""],
        &["image-list", "--region", ""],
        &["zone-list", "--region", ""],
        &["zone-show", ""],
        &["region-show", ""],
        &["verify", "--other-image", ""],
        &["instance-sweep", "--owners", ""],
        &["--config", "accounts", "--account", "", "account-show"],
    ] {
        let words: Vec<_> = ["fake"].iter().chain(words).copied().collect();
        let done = ccm_cloud(&words);
        assert!(done.code == Some(2) && done.stderr.contains("a value is required"), "{words:?}: {done:?}");
    }
}

#[test]
fn the_help_warns_of_owners_that_are_not_named_and_of_commands_that_take_long() {
    let help = |words: &[&str]| ccm_cloud(words).good().split_whitespace().collect::<Vec<_>>().join(" ");
    let sweep = help(&["fake", "instance-sweep", "--help"]);
    assert!(sweep.contains("owners of a kind that is not named count as gone"), "{sweep}");
    assert!(help(&["fake", "instance-run", "--help"]).contains("--timeout 0"));
}

#[test]
fn there_is_a_manual_page_of_the_program_and_of_each_command() {
    let page = ccm_cloud(&["man"]).good();
    assert!(page.contains(".TH ccm-cloud 1") && page.contains("NotFound"), "{page}");
    let page = ccm_cloud(&["man", "fake", "instance-sweep"]).good();
    assert!(page.contains(".TH ccm-cloud-fake-instance-sweep 1") && page.contains("\\-\\-grace"), "{page}");
    assert!(ccm_cloud(&["man", "fake", "none"]).bad(2).contains("\"fake none\""));
}

#[test]
fn bash_completes_operations_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script"), ccm_cloud(&["completion", "bash"]).good()).unwrap();
    let completed = |words: &[&str]| {
        let last = words.len() - 1;
        let quoted = words.join(" ");
        let call = format!(
            "source ./script; COMP_WORDS=({quoted}); COMP_CWORD={last}\n\
             $(complete -p ccm-cloud | sed 's/.*-F \\([^ ]*\\) .*/\\1/') ccm-cloud '{}' '{}' 2>/dev/null\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words[last],
            words[last - 1]
        );
        Done::of(Command::new("bash").args(["--norc", "-c", &call]).current_dir(folder.path()).output().unwrap()).stdout
    };
    assert!(completed(&["ccm-cloud", "fa"]).lines().any(|word| word == "fake"));
    let operations = completed(&["ccm-cloud", "fake", "instance-"]);
    assert!(operations.lines().any(|word| word == "instance-create") && !operations.contains("region"), "{operations}");
    let flags = completed(&["ccm-cloud", "fake", "instance-create", "--o"]);
    for flag in ["--option", "--output", "--operations-per-second"] {
        assert!(flags.lines().any(|word| word == flag), "{flags}");
    }
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(ccm_cloud(&["completion", shell]).good().contains("instance-sweep"), "{shell}");
    }
}
