//! `ccm-operator azure-inject-credentials` on files, also under the Go program's name.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, symlink},
        process::CommandExt,
    },
    path::PathBuf,
    process::{Command, Output},
};

use anyhow::Result;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lab::binary;

const SECRET: &str = "s3cret-of-the-test";

/// The files of a pod.
struct Pod {
    dir: TempDir,
}

impl Pod {
    fn new() -> Result<Self> {
        let pod = Self { dir: TempDir::new()? };
        for folder in ["credentials", "merged"] {
            fs::create_dir(pod.path(folder))?;
        }
        fs::write(pod.path("cloud.conf"), r#"{"cloud": "AzurePublicCloud", "useManagedIdentityExtension": true}"#)?;
        pod.credential("azure_client_id", "the-id")?;
        pod.credential("azure_client_secret", SECRET)?;
        Ok(pod)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn credential(&self, name: &str, value: &str) -> Result<()> {
        Ok(fs::write(self.path("credentials").join(name), value)?)
    }

    fn output(&self) -> PathBuf {
        self.path("merged/cloud.conf")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(binary());
        command.arg("azure-inject-credentials");
        self.flags(&mut command);
        command
    }

    fn flags(&self, command: &mut Command) {
        command.arg("--cloud-config-file-path").arg(self.path("cloud.conf"));
        command.arg("--output-file-path").arg(self.output());
        command.arg("--creds-path").arg(self.path("credentials"));
    }

    fn written(&self) -> Result<Value> {
        Ok(serde_json::from_str(&fs::read_to_string(self.output())?)?)
    }
}

/// The messages of a command, which must not contain a secret.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned();
    assert!(!text.contains(SECRET) && !text.contains("the-id"), "{text}");
    text
}

#[test]
fn the_file_is_readable_by_owner_and_group_only() -> Result<()> {
    let pod = Pod::new()?;
    let output = pod.command().arg("-v=6").output()?;
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("the credentials may not be used"), "{}", said(&output));
    let text = fs::read_to_string(pod.output())?;
    let expected = format!(
        r#"{{"cloud": "AzurePublicCloud", "useManagedIdentityExtension": true,"aadClientId":"the-id","aadClientSecret":"{SECRET}"}}"#
    );
    assert_eq!(text, expected);
    assert_eq!(fs::metadata(pod.output())?.mode() & 0o7777, 0o640);
    assert_eq!(fs::read_dir(pod.path("merged"))?.count(), 1, "nothing else is left");
    Ok(())
}

#[test]
fn behaves_as_the_go_program_when_called_by_its_name() -> Result<()> {
    let pod = Pod::new()?;
    fs::remove_file(pod.path("credentials/azure_client_secret"))?;
    pod.credential("azure_tenant_id", "the-tenant\n")?;
    pod.credential("azure_federated_token_file", "/var/run/token\r\n")?;
    fs::write(
        pod.path("cloud.conf"),
        "\u{feff}{\"n\": 12345678901234567890123, \"useManagedIdentityExtension\": true}",
    )?;
    let program = pod.path("azure-config-credentials-injector");
    symlink(binary(), &program)?;
    let mut command = Command::new(&program);
    pod.flags(&mut command);
    let output =
        command.args(["--disable-identity-extension-auth", "--enable-azure-workload-identity=true"]).output()?;
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    for words in
        ["a line break at the end of azure_tenant_id", "byte order mark", "useManagedIdentityExtension is set to false"]
    {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(
        fs::read_to_string(pod.output())?
            .starts_with("{\"n\": 12345678901234567890123, \"useManagedIdentityExtension\": false,")
    );
    let written = pod.written()?;
    assert_eq!(written["tenantId"], "the-tenant");
    assert_eq!(written["aadFederatedTokenFile"], "/var/run/token");
    assert_eq!(written["useFederatedWorkloadIdentityExtension"], true);
    assert_eq!(written.get("aadClientSecret"), None);
    Ok(())
}

#[test]
fn errors_are_reported_and_the_last_good_file_is_kept() -> Result<()> {
    let breakages: [(&str, &str, &str); 8] = [
        ("cloud.conf", "null", "cloud.conf:1: expected a JSON object"),
        ("cloud.conf", "[]", "expected a JSON object"),
        ("cloud.conf", "{\"a\": s3cret-of-the-test}", "cloud.conf:1:7: invalid JSON"),
        ("credentials/azure_client_id", " \n", "the credentials have no azure_client_id"),
        ("credentials/azure_client_secret", "", "neither azure_client_secret nor azure_federated_token_file"),
        ("credentials/azure_federated_token_file", "/token", "both azure_client_secret and azure_federated_token_file"),
        ("cloud.conf", "-", "cloud.conf: No such file or directory"),
        ("credentials/azure_client_id", "-", "the credentials have no azure_client_id"),
    ];
    for (file, text, expected) in breakages {
        let pod = Pod::new()?;
        fs::write(pod.output(), "the last good one")?;
        if text == "-" {
            fs::remove_file(pod.path(file))?;
        } else {
            fs::write(pod.path(file), text)?;
        }
        let output = pod.command().output()?;
        let error = String::from_utf8(output.stderr.clone())?;
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        let last = error.lines().last().unwrap_or_default();
        assert!(last.starts_with("ccm-operator: ") && last.contains(expected), "{expected:?} is not in {error}");
        assert_eq!(fs::read_to_string(pod.output())?, "the last good one");
        assert_eq!(fs::read_dir(pod.path("merged"))?.count(), 1, "{expected}");
    }
    Ok(())
}

#[test]
fn a_binary_credential_is_named_but_not_shown() -> Result<()> {
    let pod = Pod::new()?;
    fs::write(pod.path("credentials/azure_client_secret"), [SECRET.as_bytes(), &[0xff]].concat())?;
    let output = pod.command().output()?;
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("azure_client_secret: not UTF-8"), "{}", said(&output));
    assert!(!pod.output().exists());
    Ok(())
}

/// In a pod with an fsGroup the volume's folder belongs to that group, and so do new files in it.
#[test]
fn the_files_group_is_the_folders_and_may_read_it_if_the_umask_lets_it() -> Result<()> {
    // SAFETY: it only answers who runs the test.
    #[allow(unsafe_code)]
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("not tested: only root can give a folder to another group");
        return Ok(());
    }
    for umask in [0o000, 0o022, 0o077] {
        let pod = Pod::new()?;
        chown(pod.path("merged"), None, Some(4242))?;
        fs::set_permissions(pod.path("merged"), Permissions::from_mode(0o2777))?;
        fs::write(pod.output(), "before")?;
        let mut command = pod.command();
        // SAFETY: between fork and exec it makes one system call, which cannot fail.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(move || {
                libc::umask(umask);
                Ok(())
            });
        }
        let output = command.output()?;
        assert!(output.status.success(), "{}", said(&output));
        let written = fs::metadata(pod.output())?;
        assert_eq!((written.mode() & 0o7777, written.gid()), (0o640 & !umask, 4242), "umask {umask:o}");
        assert_eq!(pod.written()?["aadClientId"], json!("the-id"));
    }
    Ok(())
}
