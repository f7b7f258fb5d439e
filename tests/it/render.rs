//! `ccm-operator render` on files: its output; bad input writes nothing.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use anyhow::{Result, ensure};
use ccm_operator::text::yaml;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    contract,
    lab::{binary, can, repository},
};

/// The input files of one cluster, and a destination.
struct Files {
    dir: TempDir,
}

impl Files {
    fn new() -> Result<Self> {
        let files = Self { dir: TempDir::new()? };
        files.write("infrastructure", &infrastructure(&json!({"type": "AWS", "aws": {"region": "eu-north-1"}})))?;
        files.write("images", &images(r#"{"cloudControllerManagerAWS": "registry.example/aws@sha256:0"}"#))?;
        files.write("cloud-config", &cloud_config(&json!({"config": "[Global]\nZone = a\n"})))?;
        Ok(files)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(fs::write(self.path(name), text)?)
    }

    fn destination(&self) -> PathBuf {
        self.path("destination")
    }

    /// Renders as a bootstrap VM does, without a subcommand.
    fn render(&self, more: &[&str]) -> Output {
        self.subcommand(None, more)
    }

    fn subcommand(&self, name: Option<&str>, more: &[&str]) -> Output {
        let mut command = Command::new(binary());
        command.arg("render").args(name);
        for (flag, file) in [
            ("--cluster-infrastructure-file", "infrastructure"),
            ("--images-file", "images"),
            ("--cloud-config-file", "cloud-config"),
        ] {
            // The running cluster has its configuration.
            if file != "cloud-config" || (self.path(file).exists() && name != Some("cluster")) {
                command.arg(flag).arg(self.path(file));
            }
        }
        if !more.contains(&"--dest-dir") {
            command.arg("--dest-dir").arg(self.destination());
        }
        command.args(more).output().expect("the binary")
    }

    /// Renders, which must fail with one line that contains the text, and write nothing.
    fn refused(&self, expected: &str) {
        let output = self.render(&[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(error.starts_with("ccm-operator: ") && error.contains(expected), "{expected:?} is not in {error}");
        assert_eq!(tree(&self.destination()), Vec::<String>::new(), "{error}");
    }
}

fn infrastructure(platform_status: &Value) -> String {
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure", "metadata": {"name": "cluster"},
        "spec": {"cloudConfig": {"name": "cloud-provider-config", "key": "config"}, "aFieldOfTomorrow": {}},
        "status": {"platformStatus": platform_status, "infrastructureName": "lab", "apiServerInternalURI": "https://api-int.lab:6443"},
    })
    .to_string()
}

fn images(json: &str) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cloud-controller-manager-images"}, "data": {"images.json": json}})
        .to_string()
}

fn cloud_config(data: &Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cloud-provider-config"}, "data": data})
        .to_string()
}

/// Every file below a folder, by its path there.
fn tree(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            files.extend(tree(&path).into_iter().map(|file| format!("{name}/{file}")));
        } else {
            files.push(name);
        }
    }
    files.sort();
    files
}

#[test]
fn writes_the_static_pod_and_the_cloud_config() -> Result<()> {
    let files = Files::new()?;
    let output = files.render(&[]);
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let written = ["bootstrap/aws-cloud-controller-manager-pod.yaml", "config/cloud.conf"];
    assert_eq!(tree(&files.destination()), written);
    assert_eq!(fs::read_to_string(files.destination().join(written[1]))?, "[Global]\nZone = a\n");
    let text = fs::read_to_string(files.destination().join(written[0]))?;
    insta::assert_snapshot!("bootstrap_pod", text);
    let mode = fs::metadata(files.destination().join(written[0]))?.permissions().mode();
    assert_eq!(mode & 0o777, 0o640, "of umask 022");
    Ok(())
}

#[test]
fn the_objects_of_a_cluster_are_a_folder_or_one_stream() -> Result<()> {
    let files = Files::new()?;
    assert!(files.subcommand(Some("cluster"), &[]).status.success());
    let folder = tree(&files.destination());
    assert!(folder.iter().all(|file| file.starts_with("manifests/")), "{folder:?}");
    let output = files.subcommand(Some("cluster"), &["--dest-dir", "-"]);
    let stream = String::from_utf8(output.stdout)?;
    let documents = yaml::documents(&stream)?;
    assert_eq!(documents.len(), folder.len());
    for (file, document) in folder.iter().zip(&documents) {
        let text = fs::read_to_string(files.destination().join(file))?;
        assert_eq!(yaml::from_str::<Value>(&text)?, *document, "{file}");
    }
    insta::assert_snapshot!("cluster_stream", stream);
    Ok(())
}

#[test]
fn other_files_are_left_alone_and_ours_are_replaced() -> Result<()> {
    let files = Files::new()?;
    fs::create_dir_all(files.destination().join("bootstrap"))?;
    let other = files.destination().join("bootstrap/other.yaml");
    let ours = files.destination().join("bootstrap/aws-cloud-controller-manager-pod.yaml");
    fs::write(&other, "other")?;
    fs::write(&ours, "old")?;
    assert!(files.render(&[]).status.success());
    assert_eq!(fs::read_to_string(&other)?, "other");
    assert!(fs::read_to_string(&ours)?.contains("registry.example/aws@sha256:0"));
    Ok(())
}

#[test]
fn a_platform_without_a_provider_is_explained_and_no_error() -> Result<()> {
    let files = Files::new()?;
    files.write("infrastructure", &infrastructure(&json!({"type": "Libvirt"})))?;
    let output = files.render(&[]);
    let text = String::from_utf8(output.stderr)?;
    assert!(output.status.success(), "{text}");
    assert!(text.contains("no manifests are written: no provider of this operator serves platform Libvirt"), "{text}");
    assert_eq!(tree(&files.destination()), ["config/cloud.conf"]);
    assert!(files.destination().join("bootstrap").is_dir(), "both folders are always created");
    Ok(())
}

#[test]
fn a_cluster_without_a_cloud_config_gets_the_smallest() -> Result<()> {
    let vsphere = json!({"vcenters": [{"server": "vcenter.example.com", "datacenters": ["dc"]}]});
    for (platform, spec, expected) in [
        ("AWS", json!({}), ""),
        ("Azure", json!({}), "{}\n"),
        ("GCP", json!({}), ""),
        ("IBMCloud", json!({}), ""),
        ("Nutanix", json!({}), "{}\n"),
        ("OpenStack", json!({}), ""),
        ("PowerVS", json!({}), ""),
        ("VSphere", json!({"type": "VSphere", "vsphere": vsphere}), "server: vcenter.example.com"),
        ("VSphere", json!({}), "secretName: vsphere-creds"),
    ] {
        let files = Files::new()?;
        let mut infrastructure: Value = serde_json::from_str(&infrastructure(&json!({"type": platform})))?;
        infrastructure["spec"] = json!({"platformSpec": spec});
        files.write("infrastructure", &infrastructure.to_string())?;
        files.write("images", &images(&contract::images()))?;
        fs::remove_file(files.path("cloud-config"))?;
        let output = files.render(&[]);
        ensure!(output.status.success(), "{platform}: {}", String::from_utf8_lossy(&output.stderr));
        let config = fs::read_to_string(files.destination().join("config/cloud.conf"))?;
        ensure!(
            if expected.is_empty() { config.is_empty() } else { config.contains(expected) },
            "{platform}: {config}"
        );
    }
    Ok(())
}

#[test]
fn files_that_may_hold_passwords_are_not_readable_by_others() -> Result<()> {
    let files = Files::new()?;
    for (umask, expected) in [("077", 0o600), ("000", 0o640)] {
        let script = format!(
            "umask {umask}; exec {} render --cluster-infrastructure-file {} --images-file {} --cloud-config-file {} \
             --dest-dir {}",
            binary().display(),
            files.path("infrastructure").display(),
            files.path("images").display(),
            files.path("cloud-config").display(),
            files.destination().display(),
        );
        let output = Command::new("sh").args(["-c", &script]).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for file in ["config/cloud.conf", "bootstrap/aws-cloud-controller-manager-pod.yaml"] {
            let mode = fs::metadata(files.destination().join(file))?.permissions().mode();
            assert_eq!(mode & 0o777, expected, "umask {umask}: {file}");
        }
    }
    Ok(())
}

#[test]
fn files_of_a_killed_process_are_removed() -> Result<()> {
    let files = Files::new()?;
    for folder in ["bootstrap", "config"] {
        fs::create_dir_all(files.destination().join(folder))?;
        let file = fs::File::create(files.destination().join(folder).join(".ccm-operator-Xy1z23"))?;
        file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(3600))?;
    }
    assert!(files.render(&[]).status.success());
    assert_eq!(tree(&files.destination()), ["bootstrap/aws-cloud-controller-manager-pod.yaml", "config/cloud.conf"]);
    Ok(())
}

#[test]
fn a_bad_infrastructure_file_is_refused() -> Result<()> {
    let files = Files::new()?;
    fs::remove_file(files.path("infrastructure"))?;
    files.refused("failed to read the infrastructure file");
    fs::create_dir(files.path("infrastructure"))?;
    files.refused("Is a directory");
    fs::remove_dir(files.path("infrastructure"))?;
    for (text, expected) in [
        ("", ": empty; it must hold one manifest of kind Infrastructure"),
        ("a: [", "/infrastructure:1:4: "),
        ("just words", "not a Kubernetes manifest"),
        (&*images("{}"), "a manifest of kind ConfigMap; it must hold one manifest of kind Infrastructure"),
        (r#"{"kind": "Infrastructure", "status": {}}"#, "status.platformStatus.type is empty"),
        (r#"{"kind": "Infrastructure"}"#, "status.platformStatus.type is empty"),
        (r#"{"kind": "Infrastructure", "status": 1}"#, "not of kind Infrastructure"),
        ("kind: Infrastructure\n---\nkind: Infrastructure\n", "more than one document"),
    ] {
        files.write("infrastructure", text)?;
        files.refused(expected);
    }
    Ok(())
}

#[test]
fn a_bad_images_file_is_refused() -> Result<()> {
    let files = Files::new()?;
    fs::remove_file(files.path("images"))?;
    files.refused("failed to read the images file");
    let without = json!({"kind": "ConfigMap", "data": {}}).to_string();
    for (text, expected) in [
        (&*infrastructure(&json!({})), "it must hold one manifest of kind ConfigMap"),
        (&*without, "data has no key \"images.json\""),
        (&*images("{\n \"a\": ]"), "(key images.json):2:7: invalid JSON: expected value"),
        (&*images("{}"), "have no key \"cloudControllerManagerAWS\""),
        (&*images(r#"{"cloudControllerManagerAWS": ""}"#), "key \"cloudControllerManagerAWS\" is empty"),
        (&*images(r#"{"cloudControllerManagerAws": "x"}"#), r#"have no key "cloudControllerManagerAWS": add it"#),
    ] {
        files.write("images", text)?;
        files.refused(expected);
    }
    Ok(())
}

#[test]
fn a_bad_cloud_config_file_is_refused() -> Result<()> {
    let files = Files::new()?;
    for (text, expected) in [
        ("\t- x: [", "/cloud-config:1:7: "),
        (&*cloud_config(&json!({"other": "x"})), "data has none of the keys [\"cloud.conf\", \"config\"]"),
        (&*infrastructure(&json!({})), "it must hold one manifest of kind ConfigMap"),
    ] {
        files.write("cloud-config", text)?;
        files.refused(expected);
    }
    fs::remove_file(files.path("cloud-config"))?;
    files.refused("names the cloud configuration \"cloud-provider-config\" (spec.cloudConfig.name): give its manifest");
    Ok(())
}

#[test]
fn a_destination_that_cannot_be_written_is_refused() -> Result<()> {
    let files = Files::new()?;
    files.write("destination", "a file")?;
    let output = files.render(&[]);
    let error = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("ccm-operator: failed to write ") && error.lines().count() == 1, "{error}");
    fs::remove_file(files.destination())?;
    // A folder has the name of the second file: the first is not written either.
    fs::create_dir_all(files.destination().join("config/cloud.conf"))?;
    let output = files.render(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(tree(&files.destination()), Vec::<String>::new());
    Ok(())
}

#[test]
fn a_write_that_fails_leaves_nothing() -> Result<()> {
    let files = Files::new()?;
    // The limit of a file's size is 0: the first write fails for every user.
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(binary()).arg("render").arg("--dest-dir").arg(files.destination());
    command.arg("--cluster-infrastructure-file").arg(files.path("infrastructure"));
    command.arg("--images-file").arg(files.path("images")).arg("--cloud-config-file").arg(files.path("cloud-config"));
    let output = command.output()?;
    let error = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("File too large") && error.lines().count() == 1, "{error}");
    assert!(!files.destination().exists(), "the folders are removed as well");
    Ok(())
}

#[test]
fn a_full_disk_leaves_nothing() -> Result<()> {
    let files = Files::new()?;
    fs::create_dir(files.destination())?;
    let destination = files.destination();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4k", "none"]).arg(&destination).status();
    if !can("mount a file system of one page", mounted.is_ok_and(|status| status.success())) {
        return Ok(());
    }
    let output = files.render(&[]);
    let left = tree(&destination);
    Command::new("umount").arg(&destination).status()?;
    let error = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("No space left on device") && error.lines().count() == 1, "{error}");
    assert_eq!(left, Vec::<String>::new());
    Ok(())
}

#[test]
fn the_payload_is_written_unchanged() -> Result<()> {
    let dir = TempDir::new()?;
    let render = |more: &[&str]| Command::new(binary()).args(["render", "payload"]).args(more).output();
    assert!(render(&["--dest-dir", dir.path().to_str().unwrap()])?.status.success());
    let files = tree(dir.path());
    assert!(files.len() > 10, "{files:?}");
    for file in &files {
        assert_eq!(fs::read(dir.path().join(file))?, fs::read(repository().join(file))?, "{file}");
    }
    let stream = String::from_utf8(render(&[])?.stdout)?;
    let kinds: Vec<_> = yaml::documents(&stream)?.iter().map(|document| document["kind"].clone()).collect();
    assert!(kinds.contains(&json!("Deployment")) && !kinds.contains(&json!("ImageStream")), "{kinds:?}");
    Ok(())
}

#[test]
fn two_processes_plan_the_same_bytes() -> Result<()> {
    let files = Files::new()?;
    let first = files.subcommand(Some("cluster"), &["--dest-dir", "-"]);
    let second = files.subcommand(Some("cluster"), &["--dest-dir", "-"]);
    assert!(first.status.success() && !first.stdout.is_empty());
    assert_eq!(first.stdout, second.stdout);
    Ok(())
}

#[test]
fn image_references_are_printed_unchanged() -> Result<()> {
    let output = Command::new(binary()).arg("image-references").output()?;
    assert_eq!(output.stdout, fs::read(repository().join("image-references"))?);
    Ok(())
}

#[test]
fn a_configuration_that_the_operator_would_refuse_is_written_with_a_warning() -> Result<()> {
    let files = Files::new()?;
    files.write("infrastructure", &infrastructure(&json!({"type": "AWS"})))?;
    let output = files.render(&[]);
    let error = String::from_utf8(output.stderr)?;
    assert!(output.status.success() && !error.contains("warning: "), "{error}");
    let config = |name: &str, text: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "openshift-config"},
            "data": {"cloud.conf": text}})
        .to_string()
    };
    files.write("cloud-config", &config("cloud-provider-config", "[Global"))?;
    let named = json!({"type": "AWS"});
    let mut manifest: Value = yaml::from_str(&infrastructure(&named))?;
    for (name, expected) in [
        (Some("cloud-provider-config"), "the operator will refuse the cloud configuration"),
        (None, "Infrastructure cluster names none"),
    ] {
        manifest["spec"]["cloudConfig"] = name.map_or(json!({}), |name| json!({"name": name, "key": "cloud.conf"}));
        files.write("infrastructure", &manifest.to_string())?;
        let output = files.render(&[]);
        let error = String::from_utf8(output.stderr)?;
        assert!(output.status.success() && error.contains("warning: ") && error.contains(expected), "{error}");
    }
    Ok(())
}

#[test]
fn render_without_a_subcommand_is_that_of_the_bootstrap_vm() -> Result<()> {
    let files = Files::new()?;
    let read = |output: Output| -> Result<Vec<String>> {
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        tree(&files.destination()).iter().map(|file| Ok(fs::read_to_string(files.destination().join(file))?)).collect()
    };
    let without = read(files.render(&[]))?;
    fs::remove_dir_all(files.destination())?;
    assert_eq!(read(files.subcommand(Some("bootstrap"), &["-v=4"]))?, without);
    Ok(())
}

#[test]
fn a_subcommand_has_its_own_flags_only() -> Result<()> {
    let files = Files::new()?;
    for (subcommand, flag) in [
        (None, "--namespace"),
        (Some("bootstrap"), "--image"),
        (Some("cluster"), "--image"),
        (Some("cluster"), "--cloud-config-file"),
        (Some("payload"), "--cluster-infrastructure-file"),
        (Some("payload"), "--providers"),
        (Some("install"), "--images-file"),
        (Some("install"), "--release-version"),
        (Some("ccm"), "--providers"),
    ] {
        let output = Command::new(binary()).arg("render").args(subcommand).args([flag, "x"]).output()?;
        let error = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{subcommand:?} {flag}");
        assert!(error.contains(&format!("unexpected argument '{flag}'")), "{error}");
    }
    let output = Command::new(binary()).args(["render", "--dest-dir", "x", "payload"]).output()?;
    assert_eq!(output.status.code(), Some(2), "a flag before the subcommand would count for nothing");
    assert!(!files.destination().exists());
    Ok(())
}

/// Runs the program with a file as its standard input.
fn render_with_stdin(arguments: &[&str], stdin: &Path) -> Result<Output> {
    Ok(Command::new(binary()).arg("render").args(arguments).stdin(fs::File::open(stdin)?).output()?)
}

#[test]
fn a_file_may_be_the_standard_input() -> Result<()> {
    let files = Files::new()?;
    let (images, infrastructure) = (files.path("images"), files.path("infrastructure"));
    let arguments = |infrastructure: &Path, images: &Path| {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        ["cluster", "--cluster-infrastructure-file", &text(infrastructure), "--images-file", &text(images)]
            .map(str::to_owned)
    };
    let render = |arguments: [String; 5]| render_with_stdin(&arguments.each_ref().map(String::as_str), &infrastructure);
    let of_file = render(arguments(&infrastructure, &images))?;
    let of_stdin = render(arguments("-".as_ref(), &images))?;
    assert!(of_file.status.success() && of_stdin.status.success(), "{}", String::from_utf8_lossy(&of_stdin.stderr));
    assert_eq!(of_file.stdout, of_stdin.stdout);
    assert_eq!(render(arguments("-".as_ref(), "-".as_ref()))?.status.code(), Some(2));
    let wrong = render(arguments(&infrastructure, "-".as_ref()))?;
    let error = String::from_utf8(wrong.stderr)?;
    assert!(error.contains("the images file (standard input): a manifest of kind Infrastructure"), "{error}");
    Ok(())
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() -> Result<()> {
    let mut child =
        Command::new(binary()).args(["render", "payload"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    drop(child.stdout.take());
    let output = child.wait_with_output()?;
    let error = String::from_utf8(output.stderr)?;
    assert!(output.status.success() && !error.contains("pipe"), "{error}");
    Ok(())
}

#[test]
fn the_objects_of_a_cluster_depend_on_every_document() -> Result<()> {
    let files = Files::new()?;
    let document = |name: &str, kind: &str, rest: &str| {
        let text = format!("apiVersion: config.openshift.io/v1\nkind: {kind}\nmetadata: {{name: cluster}}\n{rest}\n");
        files.write(name, &text).map(|()| files.path(name).to_str().unwrap().to_owned())
    };
    let proxy = document("proxy", "Proxy", "status: {httpsProxy: 'http://proxy.example.com:3128'}")?;
    let gates = "status: {featureGates: [{version: 4.99.0, enabled: [{name: CloudControllerManagerWebhook}]}]}";
    let gates = document("gates", "FeatureGate", gates)?;
    let api_server = document(
        "api-server",
        "APIServer",
        "spec: {tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Modern, modern: {}}}",
    )?;
    let plain = files.subcommand(Some("cluster"), &["--dest-dir", "-"]);
    let note = String::from_utf8(plain.stderr)?;
    assert!(note.contains("--proxy-file") && note.contains("--api-server-file"), "{note}");
    let sources = ["--proxy-file", &proxy, "--feature-gate-file", &gates, "--api-server-file", &api_server];
    let arguments = [&["--dest-dir", "-", "--release-version", "4.99.0"], &sources[..]].concat();
    let output = files.subcommand(Some("cluster"), &arguments);
    let (text, note) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    for expected in ["http://proxy.example.com:3128", "CloudControllerManagerWebhook=true", "VersionTLS13"] {
        assert!(
            text.contains(expected) && !String::from_utf8_lossy(&plain.stdout).contains(expected),
            "{expected}: {note}"
        );
    }
    assert!(note.contains("digests") && !note.contains("-file"), "{note}");
    let output = files.subcommand(Some("cluster"), &["--feature-gate-file", &gates]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("--release-version"), "gates belong to a version");
    Ok(())
}

#[test]
fn an_installation_has_the_given_images_and_version() -> Result<()> {
    let files = Files::new()?;
    let images = files.path("images");
    let install = ["render", "payload"];
    let output = Command::new(binary()).args(install).output()?;
    let note = String::from_utf8(output.stderr)?;
    assert!(note.contains("give --image, --release-version, --images-file"), "{note}");
    let given = ["--image", "registry.example.com/operator:1", "--release-version", "4.99.0", "--images-file"];
    let output = Command::new(binary()).args(install).args(given).arg(images).output()?;
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    assert!(!text.contains("0.0.1-snapshot") && !text.contains("quay.io"), "{text}");
    let documents = yaml::documents(&text)?;
    let deployment = documents.iter().find(|document| document["kind"] == "Deployment").unwrap();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], given[1]);
    Ok(())
}

#[test]
fn wrong_usage_is_exit_code_two() -> Result<()> {
    let files = Files::new()?;
    assert_eq!(files.render(&["--dest-dir", "-"]).status.code(), Some(2), "the bootstrap VM gets more than a stream");
    assert_eq!(files.subcommand(Some("other"), &[]).status.code(), Some(2));
    assert_eq!(Command::new(binary()).arg("render").output()?.status.code(), Some(2));
    Ok(())
}
