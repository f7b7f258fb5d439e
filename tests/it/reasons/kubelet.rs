//! A kubelet that shows a container: its pod, as an object of the API, and its log, which the API server reads
//! from the kubelet's port.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    lab::ignore_absent,
    support::{kubelet, objects},
};

/// The end of a log that becomes the message of a container that has ended, in bytes and lines.
const MESSAGE: (usize, usize) = (2048, 80);

/// The kubelet of a node, for one pod.
pub(super) struct Kubelet {
    client: Client,
    node: &'static str,
    /// The file of the container's output.
    log: Arc<Mutex<PathBuf>>,
    pods: u32,
    pod: Option<Pod>,
    _server: JoinSet<()>,
}

impl Kubelet {
    /// The kubelet of an existing node, which reports its address to the API server.
    pub(super) async fn start(client: &Client, node: &'static str) -> Result<Self> {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let log = Arc::new(Mutex::new(PathBuf::new()));
        let mut server = JoinSet::new();
        let (tls, path) = (TlsAcceptor::from(Arc::new(config)), log.clone());
        server.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that disconnects early must not affect others.
                let _ = answer(&tls, stream, &path).await;
            }
        });
        let status = json!({
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        });
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": status});
        objects::apply_status_as(client, "kubelet", object).await?;
        Ok(Self { client: client.clone(), node, log, pods: 0, pod: None, _server: server })
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Takes away the pod, if there is one.
    pub(super) async fn remove_pod(&mut self) -> Result<()> {
        let Some(pod) = self.pod.take() else { return Ok(()) };
        let pods = self.pods(&pod.namespace().unwrap_or_default());
        ignore_absent(pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await)
    }

    /// Replaces the pod by one of this workload, whose container has this output and runs.
    pub(super) async fn show_running(&mut self, workload: &Value, log: &Path) -> Result<()> {
        let pod = self.replace_pod(workload, log).await?;
        self.set_status(&pod, kubelet::running(&pod)).await
    }

    /// Shows a container that has ended three times.
    pub(super) async fn show_crashed(&mut self, workload: &Value, log: &Path, code: i32) -> Result<()> {
        let pod = self.replace_pod(workload, log).await?;
        let mut status = kubelet::running(&pod);
        let now = Timestamp::now();
        let ended = json!({
            "exitCode": code, "reason": "Error", "message": end_of(&fs::read_to_string(log)?),
            "startedAt": now, "finishedAt": now, "containerID": "containerd://none",
        });
        let container = &mut status["containerStatuses"][0];
        container["ready"] = json!(false);
        container["started"] = json!(false);
        container["restartCount"] = json!(3);
        container["state"] = json!({"waiting": {
            "reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container",
        }});
        container["lastState"] = json!({"terminated": ended});
        for condition in status["conditions"].as_array_mut().into_iter().flatten().skip(1) {
            condition["status"] = json!("False");
        }
        self.set_status(&pod, status).await
    }

    /// Shows another pod that runs, of another workload.
    pub(super) async fn show_another(&mut self, workload: &Value) -> Result<()> {
        let pod = self.create_pod(workload).await?;
        self.set_status(&pod, kubelet::running(&pod)).await
    }

    async fn replace_pod(&mut self, workload: &Value, log: &Path) -> Result<Pod> {
        self.remove_pod().await?;
        log.clone_into(&mut self.log.lock().unwrap_or_else(PoisonError::into_inner));
        let pod = self.create_pod(workload).await?;
        self.pod = Some(pod.clone());
        Ok(pod)
    }

    async fn create_pod(&mut self, workload: &Value) -> Result<Pod> {
        self.pods += 1;
        let (metadata, template) = (&workload["metadata"], &workload["spec"]["template"]);
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["name"] = json!(format!("{}-{:05}", metadata["name"].as_str().unwrap_or_default(), self.pods));
        pod["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": metadata["name"], "uid": metadata["uid"], "controller": true,
        }]);
        // As the controller of DaemonSets labels it.
        let mut hasher = DefaultHasher::new();
        template.to_string().hash(&mut hasher);
        pod["metadata"]["labels"]["controller-revision-hash"] = json!(format!("{:x}", hasher.finish()));
        pod["spec"]["nodeName"] = json!(self.node);
        let namespace = metadata["namespace"].as_str().context("namespace")?;
        Ok(self.pods(namespace).create(&PostParams::default(), &serde_json::from_value(pod)?).await?)
    }

    async fn set_status(&self, pod: &Pod, status: Value) -> Result<()> {
        let pods = self.pods(&pod.namespace().unwrap_or_default());
        pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
        Ok(())
    }
}

/// The end of a container's output, as `terminationMessagePolicy: FallbackToLogsOnError` keeps it.
fn end_of(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    let text = lines[lines.len().saturating_sub(MESSAGE.1)..].join("\n");
    let start = (text.len().saturating_sub(MESSAGE.0)..=text.len()).find(|start| text.is_char_boundary(*start));
    text[start.unwrap_or_default()..].to_owned()
}

/// Answers `GET /containerLogs/NAMESPACE/POD/CONTAINER?tailLines=N`.
async fn answer(acceptor: &TlsAcceptor, stream: TcpStream, log: &Mutex<PathBuf>) -> Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let target = head.split(' ').nth(1).unwrap_or_default();
    let (code, body) = if target.starts_with("/containerLogs/") {
        let file = log.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ("200 OK", tail(&fs::read_to_string(file)?, target))
    } else {
        ("404 Not Found", String::new())
    };
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await?;
    Ok(stream.shutdown().await?)
}

fn tail(log: &str, target: &str) -> String {
    let wanted = target.split(['?', '&']).find_map(|one| one.strip_prefix("tailLines=")?.parse::<usize>().ok());
    let lines: Vec<_> = log.lines().collect();
    let mut text = lines[lines.len().saturating_sub(wanted.unwrap_or(usize::MAX))..].join("\n");
    text.push('\n');
    text
}
