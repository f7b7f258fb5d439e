//! `ccm-operator provider pack` and `provider digest`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::Result;
use base64::{Engine, engine::general_purpose::STANDARD};
use ccm_operator::{
    provider::{embedded, package::Package},
    text::yaml,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::lab::binary;

mod memory;

fn provider(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(binary()).current_dir(folder).arg("provider").args(arguments).output().expect("the binary")
}

/// The output of a successful run, and its messages.
fn printed(folder: &Path, arguments: &[&str]) -> Result<(String, String)> {
    let output = provider(folder, arguments);
    let messages = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(0), "{messages}");
    Ok((String::from_utf8(output.stdout)?, messages))
}

/// The message of a run that fails.
fn refused(folder: &Path, arguments: &[&str]) -> Result<String> {
    let output = provider(folder, arguments);
    let message = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty());
    Ok(message)
}

fn write(folder: &Path, files: impl IntoIterator<Item = (impl AsRef<Path>, impl AsRef<[u8]>)>) -> Result<()> {
    for (path, bytes) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().expect("a folder"))?;
        fs::write(path, bytes)?;
    }
    Ok(())
}

fn exoscale() -> Result<Package> {
    Ok(embedded::package("exoscale")?)
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        names.push(entry?.file_name().into_string().expect("UTF-8"));
    }
    names.sort();
    Ok(names)
}

#[test]
fn every_form_of_a_provider_has_one_digest() -> Result<()> {
    let folder = TempDir::new()?;
    let digest = exoscale()?.digest().to_owned() + "\n";
    write(&folder.path().join("exoscale"), exoscale()?.files())?;
    let (listed, _) = printed(folder.path(), &["list", "-o", "json"])?;
    let listed: Value = serde_json::from_str(&listed)?;
    let listed = listed.as_array().and_then(|all| all.iter().find(|one| one["name"] == "exoscale")).expect("exoscale");
    assert_eq!(listed["digest"], digest.trim());
    for (target, message) in [("exoscale", "the folder is ./exoscale"), ("./exoscale", ""), ("exoscale/", "")] {
        let (printed, messages) = printed(folder.path(), &["digest", target])?;
        assert_eq!(printed, digest, "{target}");
        let form = if message.is_empty() { "a folder" } else { "a part of this program" };
        assert!(messages.contains(message) && messages.contains(&format!("{target}: read as {form}\n")), "{messages}");
        // What is a part of this program is nobody else's.
        assert_eq!(messages.contains("warning: the operator would refuse it: "), message.is_empty(), "{messages}");
    }
    assert_eq!(printed(&folder.path().join("exoscale"), &["digest", "."])?.0, digest);
    // In scripts: DIGEST=$(ccm-operator provider pack exoscale).
    let (out, messages) = printed(folder.path(), &["pack", "./exoscale"])?;
    assert_eq!(out, digest);
    let warned = messages.strip_suffix("exoscale.tar: written\n").expect("what was written");
    assert!(warned.starts_with("warning: the operator would refuse it: ") && warned.lines().count() == 1, "{messages}");
    assert_eq!(printed(folder.path(), &["digest", "exoscale.tar"])?.0, digest);
    assert_eq!(fs::read(folder.path().join("exoscale.tar"))?, exoscale()?.tar());
    let (json, _) = printed(folder.path(), &["digest", "exoscale.tar", "-o", "json"])?;
    let expected = serde_json::json!({"name": "exoscale", "form": "tar", "digest": digest.trim()});
    assert_eq!(serde_json::from_str::<Value>(&json)?, expected);
    let output = provider(folder.path(), &["pack", "exoscale.tar", "-o", "-"]);
    assert_eq!(output.stdout, exoscale()?.tar());
    assert!(String::from_utf8(output.stderr)?.ends_with(&digest));
    assert_eq!(names(folder.path())?, ["exoscale", "exoscale.tar"]);
    Ok(())
}

#[test]
fn both_flavors_of_a_provider_are_listed_with_the_digest_of_their_package() -> Result<()> {
    let (listed, _) = printed(Path::new("/"), &["list", "-o", "json"])?;
    let listed: Vec<Value> = serde_json::from_str(&listed)?;
    let aws: Vec<_> = listed.iter().filter(|one| one["name"] == "aws").map(|one| &one["digest"]).collect();
    assert!(aws.len() == 2 && aws[0] == aws[1], "{aws:?}");
    let (shown, _) = printed(Path::new("/"), &["show", "aws", "-o", "json"])?;
    assert_eq!(&serde_json::from_str::<Value>(&shown)?["digest"], aws[0]);
    Ok(())
}

#[test]
fn a_config_map_carries_the_tar_and_not_its_digest() -> Result<()> {
    let folder = TempDir::new()?;
    let (digest, _) = printed(folder.path(), &["pack", "exoscale", "--configmap"])?;
    assert_eq!(digest.trim(), exoscale()?.digest());
    let text = fs::read_to_string(folder.path().join("exoscale.yaml"))?;
    assert!(!text.contains("sha256"), "{text}");
    let manifest: Value = yaml::from_str(&text)?;
    assert_eq!((&manifest["apiVersion"], &manifest["kind"]), (&"v1".into(), &"ConfigMap".into()));
    let expected = serde_json::json!({"name": "provider-exoscale", "namespace": "ccm-operator"});
    assert_eq!(manifest["metadata"], expected);
    let tar = STANDARD.decode(manifest["binaryData"]["exoscale.tar"].as_str().expect("a tar"))?;
    assert_eq!(tar, exoscale()?.tar());
    let (printed, messages) = printed(folder.path(), &["pack", "exoscale", "--configmap", "--namespace=other", "-o-"])?;
    assert_eq!(yaml::from_str::<Value>(&printed)?["metadata"]["namespace"], "other");
    assert_eq!(messages, digest);
    // What does not fit is written in no form of a ConfigMap.
    let large = folder.path().join("large");
    write(&large, (0..2).map(|n| (format!("assets/{n}.yaml"), vec![b'#'; 1 << 19])))?;
    let message = refused(folder.path(), &["pack", "./large", "--configmap"])?;
    assert!(message.contains("has 1050624 bytes, and the API server takes 1048576 in a ConfigMap"), "{message}");
    assert_eq!(names(folder.path())?, ["exoscale.yaml", "large"]);
    Ok(())
}

#[test]
fn an_image_layout_is_written_whole_or_not_at_all() -> Result<()> {
    let folder = TempDir::new()?;
    let (digest, messages) = printed(folder.path(), &["pack", "exoscale", "--oci-layout", "exoscale"])?;
    assert_eq!(digest.trim(), exoscale()?.oci_layout().digest);
    assert!(messages.contains(exoscale()?.digest()), "{messages}");
    assert_eq!(names(&folder.path().join("exoscale"))?, ["blobs", "index.json", "oci-layout"]);
    assert_eq!(printed(folder.path(), &["digest", "./exoscale"])?.0, digest);
    let (_, messages) = printed(folder.path(), &["digest", "./exoscale"])?;
    assert!(messages.starts_with("./exoscale: read as the layout of an OCI image\nwarning: "), "{messages}");
    let verified = provider(folder.path(), &["verify", "./exoscale"]);
    let table = String::from_utf8(verified.stdout)?;
    assert!(table.contains("\nread as the layout of an OCI image: 1 provider checked by "), "{table}");
    let before = fs::read(folder.path().join("exoscale/index.json"))?;
    let message = refused(folder.path(), &["pack", "exoscale", "--oci-layout", "exoscale"])?;
    assert!(message.contains("--oci-layout: exoscale is not empty: remove it"), "{message}");
    assert_eq!(fs::read(folder.path().join("exoscale/index.json"))?, before);
    assert_eq!(names(folder.path())?, ["exoscale"]);
    Ok(())
}

#[test]
fn written_packages_are_as_readable_as_the_umask_allows() -> Result<()> {
    let image = format!("--image=registry.example.test/acme:v1@sha256:{}", "0".repeat(64));
    let script = "umask \"$1\" && \"$0\" provider pack exoscale && \"$0\" provider pack exoscale --configmap && \
                  \"$0\" provider pack exoscale --oci-layout exoscale && \"$0\" provider new acme \"$2\"";
    for (umask, of_files, of_folders) in [("077", 0o600, 0o700), ("027", 0o640, 0o750), ("000", 0o644, 0o755)] {
        let folder = TempDir::new()?;
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(binary()).args([umask, &image]);
        let output = command.current_dir(folder.path()).stdin(Stdio::null()).output()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut left: Vec<_> = names(folder.path())?.into_iter().map(|name| folder.path().join(name)).collect();
        assert_eq!(left.len(), 4, "{left:?}");
        while let Some(path) = left.pop() {
            let meta = fs::metadata(&path)?;
            let expected = if meta.is_dir() { of_folders } else { of_files };
            assert_eq!(meta.permissions().mode() & 0o777, expected, "umask {umask}: {}", path.display());
            if meta.is_dir() {
                left.extend(names(&path)?.into_iter().map(|name| path.join(name)));
            }
        }
    }
    Ok(())
}

/// Files beside the blobs of a layout are refused: a reviewer, or `verify`, could take them for the package that is pinned.
#[test]
fn nothing_beside_a_layout_is_taken_for_the_package() -> Result<()> {
    let folder = TempDir::new()?;
    let demo = folder.path().join("exoscale");
    printed(folder.path(), &["pack", "exoscale", "--oci-layout", "exoscale"])?;
    // A tree of a repository that is as good as can be.
    write(
        &demo.join("assets/demo"),
        exoscale()?.files().map(|(path, bytes)| (path.replace('/', "-"), bytes.to_vec())),
    )?;
    for command in ["digest", "verify", "rbac"] {
        let message = refused(folder.path(), &[command, "./exoscale"])?;
        assert!(message.contains("assets: not a part of the image"), "{message}");
    }
    // Without the mark it is a tree, and with manifests of its own it is a package.
    fs::remove_file(demo.join("oci-layout"))?;
    let message = String::from_utf8(provider(folder.path(), &["verify", "./exoscale"]).stdout)?;
    assert!(message.contains("1 provider checked by") && !message.contains("read as"), "{message}");
    fs::remove_dir_all(&demo)?;
    write(&demo, exoscale()?.files().map(|(path, bytes)| (path.to_owned(), bytes.to_vec())))?;
    write(&demo, [("assets/docs/x.yaml", "a: 1\n")])?;
    for command in ["digest", "verify", "rbac"] {
        let message = refused(folder.path(), &[command, "./exoscale"])?;
        assert!(message.contains("assets/docs: unknown file"), "{message}");
    }
    Ok(())
}

/// Neither the tables nor the JSON contain control characters.
#[test]
fn nothing_in_an_output_steers_a_terminal() -> Result<()> {
    let folder = TempDir::new()?;
    printed(folder.path(), &["new", "demo", "--image", "registry.example.test/demo:v1"])?;
    let file = folder.path().join("demo/assets/kubernetes/deployment.yaml");
    let text = fs::read_to_string(&file)?;
    for (raw, expected) in [
        ("\u{202e}", "1: the character U+202E"),
        ("\u{9b}2J", "1: the character U+009B"),
        ("\r#", "1: the character U+000D"),
    ] {
        fs::write(&file, format!("# a{raw}\n{text}"))?;
        for command in ["digest", "verify", "rbac", "show", "pack"] {
            let message = refused(folder.path(), &[command, "./demo"])?;
            assert!(message.contains("assets/kubernetes/deployment.yaml:1:4: the character U+"), "{message}");
            assert!(message.contains(&expected[3..]) && !message.contains(raw), "{message}");
        }
    }
    fs::write(&file, text.replacen("args:\n", "args:\n        - \"--x\\e[2J\\u202e\"\n", 1))?;
    for format in ["table", "json", "junit"] {
        let verified = provider(folder.path(), &["verify", "./demo", "-o", format]);
        let out = String::from_utf8(verified.stdout)?;
        assert_eq!(verified.status.code(), Some(1), "{out}");
        assert!(out.contains("the character U+001B") && !out.contains(['\u{1b}', '\u{202e}']), "{out}");
    }
    let message = refused(folder.path(), &["rbac", "./demo"])?;
    assert!(message.contains("the character U+001B"), "{message}");
    Ok(())
}

#[test]
fn a_folder_that_is_no_package_is_refused_with_a_reason() -> Result<()> {
    let folder = TempDir::new()?;
    let mut tar = exoscale()?.tar();
    tar[100] = b'1';
    write(folder.path(), [("exoscale.tar", &tar[..]), ("demo/assets/a.txt", b""), ("policy.yml", b"")])?;
    for (arguments, problem) in [
        (&["digest", "exoscal"][..], "there is no provider \"exoscal\" (did you mean `exoscale`?)"),
        (&["digest", "./demo@sha256:0a"], "./demo@sha256:0a: give the path without @sha256:…: ./demo"),
        (&["verify", "./demo@sha256:0a"], "give the path without @sha256:…: ./demo"),
        (&["digest", "policy.yml"], "policy.yml: the name of a policy has to end with .yaml"),
        (&["digest", "./none"], "there is no folder or file \"./none\""),
        (
            &["digest", "exoscale.tar"],
            "exoscale/assets/kubernetes/deployment.yaml: its mode is \"1000644\", not \"0000644\"; pack",
        ),
        (&["pack", "./demo"], "./demo is not a package of a provider: assets/a.txt: unknown file"),
        (&["pack", "exoscale", "-o", "/dev/null"], "failed to write /dev/null: not a regular file"),
        (&["pack", "exoscale", "-o", "none/exoscale.tar"], "failed to write none/exoscale.tar"),
        (
            &["pack", "exoscale", "-o", "none/x.tar"],
            "none/x.tar: a package has the name of its provider: write none/exoscale.tar",
        ),
        // Its name would have the extension.
        (&["pack", "exoscale", "-o", "exoscale.txt"], "exoscale.txt: a package has the name of its provider: write"),
        (&["pack", "exoscale", "--oci-layout", "demo"], "demo: a package has the name of its provider: write exoscale"),
        (&["pack", "exoscale", "--oci-layout", "x", "--configmap"], "cannot be used with"),
    ] {
        let message = refused(folder.path(), arguments)?;
        assert!(message.contains(problem), "{message}\nis not {problem}");
    }
    assert_eq!(names(folder.path())?, ["demo", "exoscale.tar", "policy.yml"]);
    Ok(())
}

#[test]
fn every_defect_of_a_package_is_warned_of() -> Result<()> {
    let folder = TempDir::new()?;
    let example = folder.path().join("example");
    write(&example, embedded::scaffold())?;
    // A defect of the folder, and no finding of a rule for external providers.
    write(&example, [("assets/kubernetes/secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n")])?;
    for command in ["digest", "pack"] {
        let (_, messages) = printed(folder.path(), &[command, "./example"])?;
        let is_named = messages.contains("warning: the operator would refuse it: assets/kubernetes/secret.yaml:2: ");
        assert!(is_named, "{messages}");
    }
    Ok(())
}
