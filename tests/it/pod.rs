//! The container of a live workload as a process, with what a kubelet would give it. Command, arguments, environment, volumes,
//! user and account are the live object's; the only argument of the test's own keeps the process on loopback.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::TokenRequest,
        core::v1::{ConfigMap, Secret, ServiceAccount},
    },
};
use kube::{Api, api::PostParams};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    lab::LIMIT,
    support::{eventually, kubernetes::Kubernetes, pki, process, process::Process, scrape},
};

/// Where a container finds its account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The file of the output.
const LOG: &str = "log";

type Files = BTreeMap<String, Vec<u8>>;

/// The parts of a container that come from its image and its machine.
pub(crate) struct Image {
    /// The image's program, which brings the libraries that it is linked to.
    pub(crate) program: PathBuf,
    /// The variables that the image and the machine set; the pod overrides them.
    pub(crate) environment: Vec<(String, String)>,
    /// The host name of the node, which every pod on the network of the host has.
    pub(crate) node: &'static str,
}

impl Image {
    /// Sets a variable of the environment.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }
}

/// A container that was started. Dropping it kills it.
pub(crate) struct Container {
    process: Process,
    port: u16,
    probe: String,
    /// The token of its account.
    pub(crate) token: String,
    /// The folder with the container's root folder and its log.
    dir: TempDir,
}

/// Whether this user can give a process its own root folder and user.
pub(crate) fn is_possible() -> bool {
    let tried = unshare("node", "65532", "65532", Path::new("/")).arg("true").stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Runs a program with a host name, a user, a group and a root folder of its own, and without permissions.
fn unshare(host: &str, user: &str, group: &str, root: &Path) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--uts", "sh", "-euc", "hostname \"$1\"; shift; exec unshare \"$@\"", "sh", host])
        .arg(format!("--map-user={user}"))
        .arg(format!("--map-group={group}"))
        .arg(format!("--root={}", root.display()));
    command
}

/// The files of the libraries that a program is linked to, and of their loader; none for a static program.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let output = Command::new("ldd").arg(program).output().context("ldd")?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text
        .split_whitespace()
        .filter(|word| word.starts_with('/') && !word.ends_with(':'))
        .map(str::to_owned)
        .collect())
}

impl Container {
    /// Starts the container of a pod of a live workload, and waits until its start-up probe succeeds.
    pub(crate) async fn start(cluster: &Kubernetes, workload: &Value, image: &Image) -> Result<Self> {
        let started = Self::spawn(cluster, workload, image).await?;
        started.until_it_serves().await?;
        Ok(started)
    }

    /// Starts the container of a pod of a live workload.
    pub(crate) async fn spawn(cluster: &Kubernetes, workload: &Value, image: &Image) -> Result<Self> {
        let (namespace, pod) = (text(&workload["metadata"]["namespace"])?, &workload["spec"]["template"]["spec"]);
        let containers = items(&pod["containers"]);
        ensure!(containers.len() == 1 && pod["initContainers"].is_null(), "{pod:#}");
        let container = &containers[0];
        let dir = process::temp_dir()?;
        let root = dir.path().join("root");
        let words: Vec<_> =
            items(&container["command"]).iter().chain(items(&container["args"])).map(text).collect::<Result<_>>()?;
        let file = inside(&root, words.first().context("the container has no command")?);
        fs::create_dir_all(file.parent().context("a file at the root")?)?;
        // A link: the program is large.
        fs::hard_link(&image.program, &file).or_else(|_| fs::copy(&image.program, &file).map(drop))?;
        for library in libraries(&image.program)? {
            let file = inside(&root, &library);
            fs::create_dir_all(file.parent().context("a file at the root")?)?;
            fs::copy(&library, &file)?;
        }
        for mount in items(&container["volumeMounts"]) {
            let volume = items(&pod["volumes"]).iter().find(|volume| volume["name"] == mount["name"]);
            let files = files(cluster, namespace, volume.with_context(|| format!("no volume: {mount}"))?).await?;
            project(&inside(&root, text(&mount["mountPath"])?), files)?;
        }
        let (token, files) = account(cluster, namespace, text(&pod["serviceAccountName"])?).await?;
        project(&inside(&root, ACCOUNT), files)?;

        let user = &pod["securityContext"];
        let mut command = unshare(image.node, &user["runAsUser"].to_string(), &user["runAsGroup"].to_string(), &root);
        command
            .args(words.iter().map(|word| word.replace("$(NODE_NAME)", image.node)))
            // On a node it listens on every address.
            .arg("--bind-address=127.0.0.1")
            .env_clear()
            .envs(image.environment.iter().map(|(name, value)| (name, value)));
        for variable in items(&container["env"]) {
            if let Some(value) = value(cluster, (namespace, image.node), variable).await? {
                command.env(text(&variable["name"])?, value);
            }
        }
        let probe = &container["startupProbe"]["httpGet"];
        let port = items(&container["ports"]).iter().find(|port| port["name"] == probe["port"]);
        // Without a probe nobody asks it.
        let port = port.and_then(|port| port["containerPort"].as_u64()).unwrap_or_default();
        let process = Process::spawn("the container", command, &dir.path().join(LOG))?;
        let probe = probe["path"].as_str().unwrap_or_default().to_owned();
        Ok(Self { process, port: u16::try_from(port)?, probe, token, dir })
    }

    async fn until_it_serves(&self) -> Result<()> {
        let healthy = eventually("the start-up probe", LIMIT, async || {
            Ok(match (self.process.try_wait()?, self.get(&self.probe, None).await) {
                (Some(ended), _) => Some(Err(ended)),
                (None, answer) => (answer? == 200).then_some(Ok(())),
            })
        });
        let healthy = healthy.await.with_context(|| self.log())?;
        ensure!(healthy.is_ok(), "{healthy:?}:\n{}", self.log());
        Ok(())
    }

    /// The code of its answer.
    pub(crate) async fn get(&self, path: &str, token: Option<&str>) -> Result<u16> {
        Ok(scrape::get(self.port, token, path).await?.0)
    }

    /// The output of the container.
    pub(crate) fn log(&self) -> String {
        self.process.log()
    }

    /// The file of its output.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.dir.path().join(LOG)
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(&self) -> Result<ExitStatus> {
        let ended = eventually("the end of the container", LIMIT, async || self.process.try_wait()).await;
        ended.with_context(|| self.log())
    }

    /// Stops it as a kubelet does.
    pub(crate) async fn stop(self) -> Result<()> {
        self.process.terminate()?;
        self.ended().await.map(drop)
    }
}

/// The value of a variable; `None` if it is that of an optional key that is absent.
async fn value(cluster: &Kubernetes, (namespace, node): (&str, &str), variable: &Value) -> Result<Option<String>> {
    match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
        Some("metadata.namespace") => return Ok(Some(namespace.to_owned())),
        Some("spec.nodeName") => return Ok(Some(node.to_owned())),
        _ => {}
    }
    let source = &variable["valueFrom"]["secretKeyRef"];
    if source.is_null() {
        return text(&variable["value"]).map(|text| Some(text.to_owned()));
    }
    let secret = Api::<Secret>::namespaced(cluster.client.clone(), namespace).get(text(&source["name"])?).await?;
    let value = secret.data.as_ref().and_then(|data| data.get(text(&source["key"]).ok()?));
    ensure!(value.is_some() || source["optional"] == true, "there is no key for {variable}");
    value.map(|ByteString(bytes)| Ok(String::from_utf8(bytes.clone())?)).transpose()
}

/// The files of a volume.
async fn files(cluster: &Kubernetes, namespace: &str, volume: &Value) -> Result<Files> {
    let client = || cluster.client.clone();
    let (all, source): (Files, _) = if let Some(source) = volume.get("configMap") {
        let map = Api::<ConfigMap>::namespaced(client(), namespace).get(text(&source["name"])?).await?;
        (map.data.into_iter().flatten().map(|(key, value)| (key, value.into_bytes())).collect(), source)
    } else if let Some(source) = volume.get("secret") {
        let secret = Api::<Secret>::namespaced(client(), namespace).get(text(&source["secretName"])?).await?;
        (secret.data.into_iter().flatten().map(|(key, ByteString(value))| (key, value)).collect(), source)
    } else if volume.get("emptyDir").is_some() {
        return Ok(Files::new());
    } else {
        bail!("no kubelet here knows this volume: {volume}");
    };
    let Some(wanted) = source["items"].as_array() else { return Ok(all) };
    let wanted = wanted.iter().map(|item| {
        let value = all.get(text(&item["key"])?).with_context(|| format!("there is no key for {item}"))?;
        Ok((text(&item["path"])?.to_owned(), value.clone()))
    });
    wanted.collect()
}

/// A token of an account, and the files by which its processes find the API server's certificate and the token.
async fn account(cluster: &Kubernetes, namespace: &str, name: &str) -> Result<(String, Files)> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), namespace);
    let answer = accounts.create_token_request(name, &PostParams::default(), &TokenRequest::default()).await?;
    let token = answer.status.context("no token")?.token;
    let files = [
        ("ca.crt", fs::read(cluster.plane.dir().join(pki::CA_CERT))?),
        ("namespace", namespace.into()),
        ("token", token.clone().into()),
    ];
    Ok((token, files.map(|(name, bytes)| (name.to_owned(), bytes)).into()))
}

/// Writes the files of a volume as a kubelet does: each is a link through a link to the folder of the current version.
fn project(folder: &Path, files: Files) -> Result<()> {
    let version = "..2026_01_01";
    fs::create_dir_all(folder.join(version))?;
    symlink(version, folder.join("..data"))?;
    for (name, bytes) in files {
        fs::write(folder.join(version).join(&name), bytes)?;
        symlink(Path::new("..data").join(&name), folder.join(&name))?;
    }
    Ok(())
}

/// The place in a root folder of an absolute path of a container.
fn inside(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("a text is expected: {value}"))
}
