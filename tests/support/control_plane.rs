//! A real control plane on loopback: etcd, kube-apiserver and, on request, kube-controller-manager and kube-scheduler.
//!
//! Owns the servers, their flags, their folder and their credentials. Creates nothing in the cluster except namespaces
//! on request: [`super::openshift`] creates OpenShift's objects, [`super::kubelet`] nodes and pods. [`super::pool`]
//! shares control planes between tests.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Error, Result, bail};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{Namespace, ServiceAccount},
    scheduling::v1::PriorityClass,
};
use kube::{
    Client, Config,
    api::{Api, ObjectMeta, PostParams},
};
use serde_json::json;
use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use tokio::net::TcpStream;

use super::{artifacts, audit::AuditLog, pki, process, process::Process};

/// The bearer token of `admin`, a member of `system:masters`.
const ADMIN_TOKEN: &str = "admin-token";
const ADMIN_KUBECONFIG: &str = "admin.kubeconfig";
const TOKENS: &str = "tokens.csv";
const AUDIT_POLICY: &str = "audit-policy.json";
const API_SERVER: &str = "kube-apiserver";
const AUDIT_LOG: &str = "audit.log";
const ETCD_DATA: &str = "etcd";
const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Ready to serve. The excluded hooks take a second longer, and an admin can start without the default roles and
/// priority classes that they create.
const READY: &str = "/readyz?exclude=poststarthook/rbac/bootstrap-roles\
    &exclude=poststarthook/scheduling/bootstrap-system-priority-classes";

/// Whether the API servers of this run stream lists, as they do by default; `WATCH_LIST=false` starts them without.
pub fn streams_lists() -> bool {
    std::env::var_os("WATCH_LIST").is_none_or(|value| value != "false")
}

/// Options of a control plane.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is independent of the others")]
pub struct Options {
    /// Runs kube-controller-manager and kube-scheduler: Deployments get Pods, Pods get Nodes, and Pods need a
    /// ServiceAccount.
    pub controllers: bool,
    /// The API server keeps no watch cache: watches come from etcd, and lists are not streamed.
    pub without_watch_cache: bool,
    /// The API server ends a connection after one in fifty requests, as one behind a load balancer may.
    pub ends_connections: bool,
    /// etcd syncs every write to disk, as it does by default. Tests do without: they are about behavior, not time.
    pub is_durable: bool,
}

/// A running control plane. Dropping it stops its servers and removes its folder.
#[derive(Debug)]
pub struct ControlPlane {
    /// In start order.
    processes: Vec<Process>,
    port: ReservedPort,
    etcd_port: ReservedPort,
    ca_der: Vec<u8>,
    dir: TempDir,
    options: Options,
}

impl ControlPlane {
    /// Starts the servers and returns once the API server serves.
    pub async fn start(options: Options) -> Result<Self> {
        let binaries = artifacts::binaries().await?;
        let dir = process::temp_dir()?;
        let ca_der = pki::write(dir.path())?;
        fs::write(dir.path().join(TOKENS), format!("{ADMIN_TOKEN},admin,admin,system:masters\n"))?;
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
            "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}],
        });
        fs::write(dir.path().join(AUDIT_POLICY), policy.to_string())?;
        let (port, etcd_port) = (ReservedPort::new()?, ReservedPort::new()?);
        let mut plane = Self { processes: Vec::new(), port, etcd_port, ca_der, dir, options };
        plane.write_kubeconfig(ADMIN_KUBECONFIG, plane.port(), ADMIN_TOKEN)?;

        plane.start_servers(&binaries).await?;
        Ok(plane)
    }

    async fn start_servers(&mut self, binaries: &Path) -> Result<()> {
        self.spawn(binaries, "etcd", self.etcd_flags())?;
        // After a refused connection gRPC waits for a second: start the API server once etcd listens.
        let etcd_port = self.etcd_port.number;
        self.until("etcd listens", async || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, etcd_port)).await.map(drop).map_err(Error::from)
        })
        .await?;

        self.start_api_server(binaries).await?;

        if self.options.controllers {
            self.spawn(binaries, "kube-controller-manager", self.controller_manager_flags())?;
            self.spawn(binaries, "kube-scheduler", self.controller_flags())?;
        }
        Ok(())
    }

    /// Stops all servers and copies etcd's data, for [`Self::restore`]; returns once the servers serve again.
    pub async fn back_up(&mut self) -> Result<()> {
        self.restart_with(copy).await
    }

    /// Stops all servers and puts the backup of etcd's data in place, as after a disaster: resource versions go back. Returns
    /// once the servers serve again.
    pub async fn restore(&mut self) -> Result<()> {
        self.restart_with(|data, backup| {
            fs::remove_dir_all(data)?;
            copy(backup, data)
        })
        .await
    }

    async fn restart_with(&mut self, change: impl FnOnce(&Path, &Path) -> Result<()>) -> Result<()> {
        self.stop();
        self.processes.clear();
        change(&self.file(ETCD_DATA), &self.file("etcd-backup"))?;
        self.start_servers(&artifacts::binaries().await?).await
    }

    async fn start_api_server(&mut self, binaries: &Path) -> Result<()> {
        self.spawn(binaries, API_SERVER, self.api_server_flags(self.options))?;
        let client = self.client()?;
        self.until("kube-apiserver is ready", async || {
            client.request_text(http::Request::get(READY).body(Vec::new())?).await?;
            // Created in the background; manifests refer to them.
            Api::<Namespace>::all(client.clone()).get("kube-system").await?;
            Api::<PriorityClass>::all(client.clone()).get("system-node-critical").await?;
            Api::<PriorityClass>::all(client.clone()).get("system-cluster-critical").await?;
            Ok(())
        })
        .await
    }

    /// Stops the API server, restarts it after a pause, and returns once it serves.
    pub async fn restart_api_server(&mut self, away: Duration) -> Result<()> {
        let position = self.processes.iter().position(|process| process.name() == API_SERVER);
        let running = self.processes.remove(position.context("there is no API server")?);
        running.end();
        drop(running);
        tokio::time::sleep(away).await;
        self.start_api_server(&artifacts::binaries().await?).await
    }

    /// The port of the API server on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number
    }

    /// The folder of certificates, kubeconfigs and logs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The audit log: every request that the API server has answered.
    pub fn audit(&self) -> AuditLog {
        AuditLog::new(self.file(AUDIT_LOG))
    }

    /// The admin's client configuration.
    pub fn config(&self) -> Result<Config> {
        let mut config = Config::new(format!("https://127.0.0.1:{}", self.port()).parse()?);
        config.root_cert = Some(vec![self.ca_der.clone()]);
        config.auth_info.token = Some(ADMIN_TOKEN.to_owned().into());
        Ok(config)
    }

    /// The admin's client. It is bound to the runtime on which it is first used, so each test needs its own.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::try_from(self.config()?)?)
    }

    /// The admin's kubeconfig.
    pub fn kubeconfig_admin(&self) -> PathBuf {
        self.file(ADMIN_KUBECONFIG)
    }

    /// A kubeconfig with a token of an existing ServiceAccount, which has the same permissions as in a cluster.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        self.service_account_kubeconfig_via(self.port(), namespace, name).await
    }

    /// A kubeconfig of a ServiceAccount for another port of 127.0.0.1, such as that of a [`super::latency::Latency`].
    pub async fn service_account_kubeconfig_via(&self, port: u16, namespace: &str, name: &str) -> Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client()?, namespace);
        // Longer than `make soak`.
        let spec = TokenRequestSpec { expiration_seconds: Some(86_400), ..TokenRequestSpec::default() };
        let request = TokenRequest { spec, ..TokenRequest::default() };
        let answer = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .with_context(|| format!("failed to get a token for the ServiceAccount {namespace}/{name}"))?;
        let token = answer.status.context("the TokenRequest came back without a token")?.token;
        self.write_kubeconfig(&format!("{namespace}-{name}-{port}.kubeconfig"), port, &token)
    }

    /// Creates a namespace whose name starts with `prefix`.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let created = Api::all(self.client()?).create(&PostParams::default(), &namespace).await?;
        created.metadata.name.context("the created namespace has no name")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// `--<flag>=<path of the file>`.
    fn file_flag(&self, flag: &str, name: &str) -> String {
        format!("--{flag}={}", self.file(name).display())
    }

    fn etcd_flags(&self) -> Vec<String> {
        let url = format!("http://127.0.0.1:{}", self.etcd_port.number);
        vec![
            self.file_flag("data-dir", ETCD_DATA),
            format!("--listen-client-urls={url}"),
            format!("--advertise-client-urls={url}"),
            "--listen-peer-urls=http://127.0.0.1:0".into(),
            "--socket-reuse-port=true".into(),
            format!("--unsafe-no-fsync={}", !self.options.is_durable),
            "--log-level=warn".into(),
            // A single member elects itself as soon as the timeout allows.
            "--heartbeat-interval=10".into(),
            "--election-timeout=50".into(),
        ]
    }

    fn api_server_flags(&self, options: Options) -> Vec<String> {
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port.number),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", self.port()),
            "--permit-port-sharing=true".into(),
            self.file_flag("tls-cert-file", pki::SERVER_CERT),
            self.file_flag("tls-private-key-file", pki::SERVER_KEY),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            self.file_flag("service-account-key-file", pki::SERVICE_ACCOUNT_PUB),
            self.file_flag("service-account-signing-key-file", pki::SERVICE_ACCOUNT_KEY),
            self.file_flag("token-auth-file", TOKENS),
            "--authorization-mode=RBAC".into(),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--allow-privileged=true".into(),
            // The default refuses a loopback address.
            "--endpoint-reconciler-type=none".into(),
            self.file_flag("audit-policy-file", AUDIT_POLICY),
            self.file_flag("audit-log-path", AUDIT_LOG),
            "--audit-log-mode=blocking".into(),
            // Marks are offsets, so the file must not be rotated.
            "--audit-log-maxsize=100000".into(),
        ];
        // Admission that changes objects, without a webhook.
        let mut gates = vec!["MutatingAdmissionPolicy=true"];
        // Servers before Kubernetes 1.34 stream lists only if a feature gate enables it.
        if !streams_lists() {
            gates.push("WatchList=false");
        }
        flags.push(format!("--feature-gates={}", gates.join(",")));
        flags.push("--runtime-config=admissionregistration.k8s.io/v1beta1=true".into());
        if options.without_watch_cache {
            flags.push("--watch-cache=false".into());
        }
        if options.ends_connections {
            flags.push("--goaway-chance=0.02".into());
        }
        if !options.controllers {
            // Without kube-controller-manager nothing creates the "default" ServiceAccounts that this plug-in requires.
            flags.push("--disable-admission-plugins=ServiceAccount".into());
        }
        flags
    }

    fn controller_flags(&self) -> Vec<String> {
        vec![
            self.file_flag("kubeconfig", ADMIN_KUBECONFIG),
            self.file_flag("authentication-kubeconfig", ADMIN_KUBECONFIG),
            self.file_flag("authorization-kubeconfig", ADMIN_KUBECONFIG),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
        ]
    }

    fn controller_manager_flags(&self) -> Vec<String> {
        let mut flags = self.controller_flags();
        flags.extend([
            self.file_flag("service-account-private-key-file", pki::SERVICE_ACCOUNT_KEY),
            self.file_flag("root-ca-file", pki::CA_CERT),
            // No kubelet renews a Node's lease, so the lifecycle controllers would consider the Node dead.
            "--controllers=*,-node-ipam-controller,-node-lifecycle-controller,-cloud-node-lifecycle-controller".into(),
        ]);
        flags
    }

    fn spawn(&mut self, binaries: &Path, name: &str, flags: Vec<String>) -> Result<()> {
        let mut command = Command::new(binaries.join(name));
        // Several control planes share few cores; memory is what there is enough of.
        command.args(flags).current_dir(self.dir()).env_remove("KUBECONFIG").env("GOGC", "400");
        self.processes.push(Process::spawn(name, command, &self.file(&format!("{name}.log")))?);
        Ok(())
    }

    /// Waits until `probe` succeeds; fails when a server exits.
    async fn until(&self, what: &str, probe: impl AsyncFn() -> Result<()>) -> Result<()> {
        let started = Instant::now();
        loop {
            let Err(error) = probe().await else { return Ok(()) };
            for process in &self.processes {
                if let Some(status) = process.try_wait()? {
                    bail!("{} exited with {status} before {what}:\n{}", process.name(), process.log_tail());
                }
            }
            if started.elapsed() > START_TIMEOUT {
                let tails = self.processes.iter().map(Process::log_tail).collect::<Vec<_>>().join("\n");
                return Err(error.context(format!("timed out after {START_TIMEOUT:?}: {what}\n{tails}")));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn write_kubeconfig(&self, name: &str, port: u16, token: &str) -> Result<PathBuf> {
        let server = format!("https://127.0.0.1:{port}");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "testplane",
            "clusters": [{"name": "testplane", "cluster": {
                "server": server, "certificate-authority": self.file(pki::CA_CERT)}}],
            "users": [{"name": "testplane", "user": {"token": token}}],
            "contexts": [{"name": "testplane", "context": {"cluster": "testplane", "user": "testplane"}}],
        });
        let path = self.file(name);
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all(kubeconfig.to_string().as_bytes())?;
        Ok(path)
    }

    /// Whether every server runs.
    pub fn is_healthy(&self) -> bool {
        self.processes.len() >= 2 && self.processes.iter().all(|process| matches!(process.try_wait(), Ok(None)))
    }

    /// Stops the servers, clients before the servers that they use.
    pub fn stop(&self) {
        self.processes.iter().rev().for_each(Process::end);
    }
}

/// Copies a folder of files and folders.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A reserved port: bound without listening, so that the kernel gives it to no other process, and shared with the
/// server through `SO_REUSEPORT`.
#[derive(Debug)]
struct ReservedPort {
    number: u16,
    _socket: Socket,
}

impl ReservedPort {
    fn new() -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
        let number = socket.local_addr()?.as_socket().context("the socket has no address")?.port();
        Ok(Self { number, _socket: socket })
    }
}
