//! The checks of conformance on real Docker Engines: that of the tests, another one with mutual TLS, and a current one. The results
//! stand in `docs/drivers/conformance.md`; `UPDATE_GENERATED=1` writes them.

use std::{
    env, fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result, bail, ensure};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{IDLE, engine, load};
use crate::{
    docker::{docker, owns_the_engine, run},
    image::ccm_cloud,
    support::{
        artifacts, eventually,
        lab::{LIMIT, repository},
        process::{self, Process},
    },
};

/// The image that differs from [`IDLE`] in its name only.
const OTHER: &str = "localhost/ccm-operator-e2e-other:latest";
const PAGE: &str = "docs/drivers/conformance.md";
/// What stands before and after the results.
const MARKER: &str = "<!-- results -->";

#[tokio::test]
async fn the_driver_passes_every_check_on_the_engine_of_the_tests() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    load("pause").await?;
    docker(&["tag", IDLE, OTHER])?;
    let engine = engine()?;
    let version = docker(&["version", "--format", "{{.Server.Version}}, API {{.Server.APIVersion}}"])?;
    let report = verify("docker", &["--host", &engine, "--image", IDLE, "--other-image", OTHER]).await?;
    // A socket of this machine has no credentials.
    ensure!(not_run(&report) == ["I7"], "{report:#}");
    published(&format!("Docker Engine {version}, by its socket"), &report)?;
    published("The fake cloud", &verify("fake", &["--other-image", "fedora"]).await?)
}

#[tokio::test]
async fn the_driver_passes_every_check_over_mutual_tls() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    passes_over_tls(&dockerd()?).await
}

#[tokio::test]
#[ignore = "builds a current Docker Engine, for five minutes once: make e2e-all"]
async fn the_driver_passes_every_check_on_a_current_engine() -> Result<()> {
    if !owns_the_engine()? {
        return Ok(());
    }
    passes_over_tls(&artifacts::current_engine().await?).await
}

/// The program of the engine of the tests.
pub(crate) fn dockerd() -> Result<PathBuf> {
    let path = env::var_os("PATH").context("PATH")?;
    let mut programs = env::split_paths(&path).map(|folder| folder.join("dockerd"));
    programs.find(|program| program.exists()).context("no dockerd")
}

async fn passes_over_tls(dockerd: &Path) -> Result<()> {
    let engine = Engine::start(dockerd).await?;
    let image = artifacts::node_images().await?.join("pause.tar");
    engine.docker(&["load", "--quiet", "--input", &image.to_string_lossy()])?;
    engine.docker(&["tag", IDLE, OTHER])?;
    let version = engine.docker(&["version", "--format", "{{.Server.Version}}, API {{.Server.APIVersion}}"])?;
    let wrong = format!("certPath={}", engine.strangers().display());
    let (host, certificates) = (engine.host(), &engine.certificates);
    let flags = ["--host", &host, "--cert-path", &certificates.to_string_lossy(), "--wrong", &wrong];
    let report = verify("docker", &[&flags[..], &["--image", IDLE, "--other-image", OTHER]].concat()).await?;
    ensure!(not_run(&report).is_empty(), "{report:#}");
    ensure!(engine.docker(&["ps", "--all", "--quiet"])?.is_empty(), "a container was left");
    published(&format!("Docker Engine {version}, over mutual TLS"), &report)
}

/// The report of `ccm-cloud DRIVER verify`, of which no check has failed.
async fn verify(driver: &str, flags: &[&str]) -> Result<Value> {
    let mut command = Command::new(ccm_cloud()?);
    command.args([driver, "verify"]).args(flags).args(["-o", "json"]);
    report_of(command).await
}

/// The report that a command prints, of which no check has failed.
pub(super) async fn report_of(mut command: Command) -> Result<Value> {
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let report: Value = serde_json::from_str(&text[0]).with_context(|| text.concat())?;
    let failed = results(&report).filter(|(_, outcome, _)| *outcome == "failed");
    let failed: Vec<_> = failed.map(|(id, _, why)| format!("{id}: {why}")).collect();
    ensure!(output.status.success() && failed.is_empty(), "{failed:#?}, left: {}\n{}", report["left"], text[1]);
    Ok(report)
}

fn results(report: &Value) -> impl Iterator<Item = (&str, &str, String)> {
    report["results"].as_array().into_iter().flatten().map(|result| {
        let reasons = result["reasons"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let of = |key: &str| result[key].as_str().unwrap_or_default();
        (of("id"), of("outcome"), reasons.collect::<Vec<_>>().join("; "))
    })
}

pub(super) fn not_run(report: &Value) -> Vec<&str> {
    results(report).filter(|(_, outcome, _)| *outcome != "passed").map(|(id, ..)| id).collect()
}

/// Compares a section of the page, or writes it.
pub(super) fn published(title: &str, report: &Value) -> Result<()> {
    static PAGE_IN_USE: Mutex<()> = Mutex::new(());
    let _in_use = PAGE_IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
    let all = results(report).count();
    let others: Vec<_> = results(report).filter(|(_, outcome, _)| *outcome != "passed").collect();
    let list: Vec<_> = others.iter().map(|(id, _, why)| format!("\n- {id} was not run: {why}")).collect();
    let list = list.concat();
    let gap = if list.is_empty() { "" } else { "\n" };
    let section = format!("{title}\n\n{} of {all} checks passed.{gap}{list}", all - others.len());
    let path = repository().join(PAGE);
    let page = fs::read_to_string(&path)?;
    let parts: Vec<_> = page.split(MARKER).collect();
    let [before, published, after] = parts.as_slice() else { bail!("{PAGE} has not two lines {MARKER}") };
    // A title has a version: the section of the one before goes.
    let kind = |section: &str| section.lines().next().unwrap_or_default().replace(|c: char| c.is_ascii_digit(), "");
    let sections =
        published.split("### ").map(str::trim).filter(|other| !other.is_empty() && kind(other) != kind(title));
    let mut sections: Vec<_> = sections.chain([section.as_str()]).collect();
    sections.sort_unstable();
    let sections: Vec<_> = sections.iter().map(|section| format!("### {section}\n\n")).collect();
    let sections = sections.concat();
    let updated = format!("{before}{MARKER}\n\n{sections}{MARKER}{after}");
    if env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, updated)?;
    } else {
        ensure!(page == updated, "{PAGE} has other results: see them, and run this with UPDATE_GENERATED=1\n{section}");
    }
    Ok(())
}

/// A further engine in the namespaces of the tests, with mutual TLS. Dropping it ends it.
pub(crate) struct Engine {
    address: SocketAddr,
    _dockerd: Process,
    /// The certificates of a client.
    certificates: PathBuf,
    dir: TempDir,
}

impl Engine {
    async fn start(dockerd: &Path) -> Result<Self> {
        let dir = process::temp_dir()?;
        let path = |name: &str| dir.path().join(name);
        let authority = Authority::new()?;
        authority.write(&path("server"))?;
        authority.write(&path("client"))?;
        Authority::new()?.write(&path("stranger"))?;
        // The server is the right one: only who asks is a stranger.
        fs::copy(path("client").join("ca.pem"), path("stranger").join("ca.pem"))?;
        let server = ["ca.pem", "cert.pem", "key.pem"].map(|name| path("server").join(name));
        let certificates = path("client");
        Self::start_at(dockerd, Ipv4Addr::LOCALHOST, dir, server, certificates).await
    }

    /// Starts one at an address. The files of the server are its authority, its certificate and its key.
    pub(crate) async fn start_at(
        dockerd: &Path,
        address: Ipv4Addr,
        dir: TempDir,
        [ca, certificate, key]: [PathBuf; 3],
        certificates: PathBuf,
    ) -> Result<Self> {
        let path = |name: &str| dir.path().join(name);
        let address = TcpListener::bind((address, 0))?.local_addr()?;
        let port = address.port();
        // As the engine of the tests, see hack/e2e/inside.sh.
        let folder = env::var_os("TMPDIR").map(PathBuf::from).context("TMPDIR")?;
        let base = folder.parent().context("no folder")?.join("daemon.json");
        let mut config: Value = serde_json::from_str(&fs::read_to_string(base)?)?;
        // Debian's engine has its id there, and a current one no such setting.
        if let (Some(key), Some(all)) = (config.get("deprecated-key-path").cloned(), config.as_object_mut()) {
            all.remove("deprecated-key-path");
            if libraries(dockerd)?.is_some() {
                let file = key.as_str().context("no path")?.replace("key.json", &format!("key-{port}.json"));
                all.insert("deprecated-key-path".to_owned(), json!(file));
            }
        }
        for (setting, value) in [
            ("hosts", json!([format!("tcp://{address}")])),
            ("data-root", json!(path("data"))),
            // The path of a socket is short, and this folder belongs to the namespaces of the tests.
            ("exec-root", json!(format!("/run/docker-{port}"))),
            ("pidfile", json!(path("docker.pid"))),
            ("tlsverify", json!(true)),
            ("tlscacert", json!(ca)),
            ("tlscert", json!(certificate)),
            ("tlskey", json!(key)),
        ] {
            config[setting] = value;
        }
        fs::write(path("daemon.json"), config.to_string())?;
        let mut command = Command::new(dockerd);
        command.arg("--config-file").arg(path("daemon.json")).env_remove("DOCKER_HOST");
        if let Some(libraries) = libraries(dockerd)? {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        let dockerd = Process::spawn("dockerd", command, &path("dockerd.log"))?;
        let engine = Self { address, _dockerd: dockerd, certificates, dir };
        let serves = eventually("the engine serves", LIMIT, async || engine.docker(&["version"]).map(Some)).await;
        serves.with_context(|| fs::read_to_string(engine.dir.path().join("dockerd.log")).unwrap_or_default())?;
        Ok(engine)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn host(&self) -> String {
        format!("tcp://{}", self.address)
    }

    /// The certificate of a client that the engine does not know.
    fn strangers(&self) -> PathBuf {
        self.dir.path().join("stranger")
    }

    /// The output of a command of docker for this engine.
    pub(crate) fn docker(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("docker");
        command
            .args(["--host", &self.host(), "--tlsverify"])
            .args(arguments)
            .env("DOCKER_CERT_PATH", &self.certificates);
        run(&mut command)
    }
}

/// The folder of the libraries beside Debian's unpacked engine.
fn libraries(dockerd: &Path) -> Result<Option<PathBuf>> {
    let root = dockerd.ancestors().nth(3).context("no folder")?.join("lib");
    let entries = fs::read_dir(root).into_iter().flatten();
    let found = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with("-linux-gnu"));
    Ok(found)
}

/// Who signs certificates.
pub(crate) struct Authority {
    certificate: rcgen::Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut of_authority = CertificateParams::default();
        of_authority.distinguished_name.push(DnType::CommonName, "engine-ca");
        of_authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self { certificate: of_authority.self_signed(&key)?, issuer: Issuer::new(of_authority, key) })
    }

    /// Writes ca.pem, cert.pem and key.pem, of a server at 127.0.0.1 that is a client, too.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let key = KeyPair::generate()?;
        let mut certificate = CertificateParams::new(vec!["localhost".into()])?;
        certificate.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        certificate.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        fs::create_dir_all(folder)?;
        fs::write(folder.join("ca.pem"), self.certificate.pem())?;
        fs::write(folder.join("cert.pem"), certificate.signed_by(&key, &self.issuer)?.pem())?;
        Ok(fs::write(folder.join("key.pem"), key.serialize_pem())?)
    }
}
