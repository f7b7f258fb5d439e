//! A Docker Engine of its own with mutual TLS.

use std::{
    env, fs,
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use ccm_driver_docker::Docker;
use ccm_drivers::contract::DriverType;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;

use crate::{dockerd, run, values};

/// An Engine with mutual TLS, ended when it is dropped.
pub(crate) struct Secured {
    process: Child,
    pub(crate) folder: TempDir,
    pub(crate) host: String,
}

impl Drop for Secured {
    fn drop(&mut self) {
        // It ends its own containerd when it is asked to.
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

/// Writes an authority, and the certificates and keys of a server and of a client.
pub(crate) fn certificates(folder: &Path) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "authority");
    let key = KeyPair::generate().unwrap();
    fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = Issuer::new(params, key);
    let usages = [("server", ExtendedKeyUsagePurpose::ServerAuth), ("", ExtendedKeyUsagePurpose::ClientAuth)];
    for (name, usage) in usages {
        let mut params = CertificateParams::default();
        params.subject_alt_names.push(SanType::IpAddress(Ipv4Addr::LOCALHOST.into()));
        params.extended_key_usages.push(usage);
        let key = KeyPair::generate().unwrap();
        let prefix = if name.is_empty() { String::new() } else { format!("{name}-") };
        fs::write(folder.join(format!("{prefix}cert.pem")), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
        fs::write(folder.join(format!("{prefix}key.pem")), key.serialize_pem()).unwrap();
    }
}

impl Secured {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        certificates(folder.path());
        // These namespaces have no other listeners.
        let host = "tcp://127.0.0.1:23760".to_owned();
        let (program, packages) = dockerd();
        let libraries = run(Command::new("sh").arg("-c").arg(format!("echo {}/lib/*-linux-gnu", packages.display())));
        let socket = env::var("DOCKER_HOST").unwrap();
        // As hack/e2e/inside.sh does it, with its runtime.
        let settings = Path::new(socket.trim_start_matches("unix://")).with_file_name("daemon.json");
        let settings: serde_json::Value = serde_json::from_slice(&fs::read(settings).unwrap()).unwrap();
        let own = serde_json::json!({
            "hosts": [host], "data-root": at("data"), "exec-root": at("exec"), "pidfile": at("docker.pid"),
            // Docker 20.10 keeps its id outside of its data.
            "deprecated-key-path": at("key.json"), "bridge": "none", "iptables": false, "ip-masq": false, "ip6tables": false,
            "exec-opts": settings["exec-opts"], "cgroup-parent": settings["cgroup-parent"],
            "runtimes": settings["runtimes"], "default-runtime": settings["default-runtime"],
            "tlsverify": true, "tlscacert": at("ca.pem"), "tlscert": at("server-cert.pem"), "tlskey": at("server-key.pem"),
        });
        fs::write(at("daemon.json"), own.to_string()).unwrap();
        let mut command = Command::new(program);
        command.arg("--config-file").arg(at("daemon.json")).env("LD_LIBRARY_PATH", libraries).env_remove("DOCKER_HOST");
        let log = fs::File::create(at("log")).unwrap();
        let process = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        Self { process, folder, host }
    }

    pub(crate) fn certificates(&self) -> String {
        self.folder.path().display().to_string()
    }

    pub(crate) fn client(&self) -> Vec<String> {
        let file = |option: &str, name: &str| format!("--{option}={}", self.folder.path().join(name).display());
        let files = [file("tlscacert", "ca.pem"), file("tlscert", "cert.pem"), file("tlskey", "key.pem")];
        [format!("--host={}", self.host), "--tlsverify".to_owned()].into_iter().chain(files).collect()
    }

    pub(crate) async fn answers(&self) {
        let values = values(&[("host", &self.host), ("certPath", &self.certificates())]);
        for _ in 0..600 {
            if Docker.open(&values).await.unwrap().account().verify().await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{}", fs::read_to_string(self.folder.path().join("log")).unwrap());
    }
}
