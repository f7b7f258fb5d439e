//! The command `init` on a real control plane: what it proposes for every provider, what it asks, and a migration from published
//! objects as far as it goes without a cloud.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    provider::{embedded, kubernetes::Descriptor},
    text::yaml,
};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::Node},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    lab::{LIMIT, binary},
    published,
    support::{
        eventually,
        kubernetes::{Kubernetes, configuration},
        objects,
    },
};

/// In every Secret, and in no output.
const SECRET: &str = "s3cret-of-the-cloud";

/// A cluster, and a folder for the files of its administrator.
struct Fixture {
    cluster: Kubernetes,
    folder: TempDir,
}

impl Fixture {
    async fn new(providers: &str) -> Result<Self> {
        let cluster = Kubernetes::new(providers).await?;
        let list = async || Ok(Some(cluster.ccms().list(&ListParams::default()).await?));
        eventually("the definition", LIMIT, list).await?;
        Ok(Self { cluster, folder: TempDir::new()? })
    }

    fn file(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    fn command(&self, command: &str, arguments: &[&str]) -> Result<Output> {
        let mut program = Command::new(binary());
        program.arg(command).args(arguments).current_dir(self.folder.path()).stdin(Stdio::null());
        let output = program.env("KUBECONFIG", self.cluster.plane.kubeconfig_admin()).output()?;
        let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes)).concat();
        ensure!(!text.contains(SECRET), "{text}");
        Ok(output)
    }

    /// The exit code of `init`, and what it prints as JSON.
    fn init(&self, arguments: &[&str]) -> Result<(i32, Value)> {
        let output = self.command("init", &[arguments, &["-o", "json"]].concat())?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let report = serde_json::from_slice(&output.stdout).with_context(|| error.clone())?;
        Ok((output.status.code().unwrap_or(-1), report))
    }

    /// The message with which it fails.
    fn fails(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command("init", arguments)?;
        ensure!(output.status.code() == Some(2), "{output:?}");
        ensure!(output.stdout.is_empty(), "{output:?}");
        Ok(String::from_utf8(output.stderr)?)
    }

    fn read(&self, path: &str) -> Result<Value> {
        Ok(yaml::from_str(&fs::read_to_string(self.folder.path().join(path)).context(path.to_owned())?)?)
    }

    async fn set_provider_id(&self, id: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.cluster.client.clone());
        let patch = Patch::Merge(json!({"spec": {"providerID": id}}));
        nodes.patch("control-plane", &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// Runs `init` for a provider with all that it needs, and checks the files.
async fn is_proposed(fixture: &Fixture, descriptor: &Descriptor) -> Result<()> {
    let name = descriptor.name.as_str();
    let (dir, credentials) = (format!("out/{name}"), fixture.folder.path().join("credentials"));
    let config = fixture.folder.path().join("config");
    let mut arguments = vec!["--provider", name, "--cluster-name", "prod", "--dest-dir", &dir];
    if let Some(needed) = &descriptor.credentials {
        let line = |key: &String| format!("{}={SECRET}\n", key.replace('*', "server"));
        fs::write(&credentials, needed.keys.iter().map(line).collect::<String>())?;
        arguments.extend(["--credentials", "credentials"]);
    }
    if let Some(file) = &descriptor.cloud_config {
        fs::write(&config, configuration(file, if descriptor.credentials.is_none() { SECRET } else { "value" }))?;
        arguments.extend(["--cloud-config", "config"]);
    }
    let (code, report) = fixture.init(&arguments)?;
    ensure!(code == 0, "{name}: {report:#}");
    let written = report["files"].as_array().map_or(0, Vec::len);
    let manifest = fixture.read(&format!("{dir}/ccm.yaml"))?;
    ensure!(manifest["spec"]["clusterName"] == "prod" && manifest["metadata"]["name"] == "cluster", "{manifest:#}");
    let ccm = format!("{dir}/ccm.yaml");
    let rendered = fixture.command("render", &["ccm", "--config", &ccm, "--kubernetes-version", "1.35"])?;
    ensure!(rendered.status.success(), "{name}: {}", String::from_utf8_lossy(&rendered.stderr));
    if written == 2 {
        let path = fixture.folder.path().join(&dir).join("secret.yaml");
        ensure!(fs::metadata(&path)?.permissions().mode() & 0o777 == 0o600);
        objects::apply(&fixture.cluster.client, fixture.read(&format!("{dir}/secret.yaml"))?).await?;
    } else {
        ensure!(descriptor.credentials.is_none(), "{name} needs a Secret: {report:#}");
    }
    // What it says of files, the cluster says of objects.
    let checked = fixture.command("preflight", &["-f", &ccm, "-o", "json"])?;
    let checked: Value = serde_json::from_slice(&checked.stdout)?;
    ensure!(checked["checks"] == report["preflight"]["checks"], "{name}: {checked:#}\n{:#}", report["preflight"]);
    for row in checked["checks"].as_array().into_iter().flatten().take(2) {
        ensure!(row["result"] == "Passed" || row["result"] == "Warned", "{name}: {row:#}");
    }
    Ok(())
}

#[tokio::test]
async fn the_files_for_every_provider_pass_all_checks() -> Result<()> {
    let catalog = embedded::catalog()?;
    let all: Vec<_> = catalog.kubernetes().map(|one| &one.descriptor).collect();
    let names = all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>().join(",");
    let namespaces = all.iter().map(|one| one.home()).collect::<BTreeSet<_>>();
    let fixture = Fixture::new("aws").await?;
    for name in namespaces.iter().filter(|name| **name != "kube-system") {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        objects::apply(&fixture.cluster.client, namespace).await?;
    }
    let namespaces = namespaces.into_iter().collect::<Vec<_>>().join(",");
    fixture.cluster.install_with(&["--providers", &names, "--namespaces", &namespaces]).await?;
    for provider in catalog.kubernetes() {
        is_proposed(&fixture, &provider.descriptor).await?;
    }
    Ok(())
}

#[tokio::test]
async fn without_a_terminal_flags_are_asked_for_by_name_and_nothing_is_overwritten() -> Result<()> {
    let fixture = Fixture::new("hcloud").await?;
    let none = fixture.fails(&[])?;
    assert!(none.contains("--provider is needed: the provider, one of aws, "), "{none}");
    assert!(fixture.fails(&["--provider", "hclod"])?.contains("did you mean `hcloud`"));

    // A node shows the provider, but nothing shows the credentials.
    fixture.set_provider_id("hcloud://1").await?;
    let token = fixture.fails(&[])?;
    assert!(token.contains("--credentials is needed: the file or folder with the credentials"), "{token}");
    fixture.file("wrong", &format!("tokn={SECRET}\n"))?;
    let wrong = fixture.fails(&["--credentials", "wrong"])?;
    assert!(wrong.contains("failed to read the credentials of wrong: \"tokn\" (did you mean `token`?)"), "{wrong}");
    assert!(fixture.fails(&["--credentials", "none"])?.contains("No such file"));
    assert!(fixture.fails(&["--credentials", "a\u{1b}[2J"])?.contains("the credentials of a\u{fffd}[2J"));
    let controllers = fixture.fails(&["--controllers", "nodes"])?;
    assert!(controllers.contains("the controllers are cloudNode, "), "{controllers}");
    assert!(fixture.fails(&["--credentials", "wrong", "--pod-cidrs", "10.0.0.0/8"])?.contains("--pod-cidrs is for"));
    assert!(fixture.fails(&["--from-existing"])?.contains("the API shows no cloud-controller-manager"));
    assert!(!fixture.folder.path().join("ccm.yaml").exists());

    // A folder with a file for each key.
    let folder = fixture.folder.path().join("hcloud");
    fs::create_dir(&folder)?;
    fs::write(folder.join("token"), format!("{SECRET}\n"))?;
    let routes = ["--controllers", "cloudNode,route", "--pod-cidrs", "10.244.0.0/16"];
    let (code, report) = fixture.init(&[&["--credentials", "hcloud"], &routes[..]].concat())?;
    assert_eq!((code, report["provider"].as_str()), (0, Some("hcloud")), "{report:#}");
    assert!(report["because"].as_str().is_some_and(|text| text.contains("1 of 1 nodes")), "{report:#}");
    let spec = fixture.read("ccm.yaml")?["spec"].clone();
    let expected = json!({
        "provider": "hcloud", "clusterName": "kubernetes", "credentials": {"secretRef": {"name": "hcloud"}},
        "controllers": {"cloudNodeLifecycle": "Disabled", "route": "Enabled", "service": "Disabled"},
        "network": {"podCIDRs": ["10.244.0.0/16"]},
    });
    assert_eq!(spec, expected);
    let entry = &report["migrationResults"][0];
    assert_eq!(
        (&entry["result"], &entry["what"]),
        (&json!("ToDo"), &json!("spec.clusterName: kubernetes")),
        "{report:#}"
    );
    assert!(
        fixture
            .fails(&["--credentials", "hcloud", "--dest-dir", "-"])?
            .contains("'--dest-dir <DIR>': the files go into a folder")
    );
    let before = fs::read(fixture.folder.path().join("secret.yaml"))?;
    let exists = fixture.fails(&["--credentials", "hcloud"])?;
    assert!(exists.contains("ccm.yaml exists: give --force to overwrite it"), "{exists}");
    assert_eq!(fs::read(fixture.folder.path().join("secret.yaml"))?, before);

    // A Secret that is there is used, and a CloudControllerManager that is there keeps its name.
    objects::apply(&fixture.cluster.client, fixture.read("secret.yaml")?).await?;
    fixture.cluster.create("cluster", expected).await?;
    let (_, report) = fixture.init(&["--force", "--dest-dir", "."])?;
    assert_eq!(report["files"], json!(["ccm.yaml"]), "{report:#}");
    assert_eq!(fixture.read("ccm.yaml")?["metadata"]["name"], "hcloud");
    Ok(())
}

/// Runs `init` on a terminal of its own, with these answers.
fn answered(fixture: &Fixture, answers: &str) -> Result<(Option<i32>, String)> {
    let line = format!("{} init --dest-dir asked --color never", binary().display());
    let mut terminal = Command::new("script");
    terminal.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
    terminal.current_dir(fixture.folder.path()).env("KUBECONFIG", fixture.cluster.plane.kubeconfig_admin());
    let answers = fixture.file("answers", answers)?;
    let output = terminal.stdin(fs::File::open(answers)?).output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

#[tokio::test]
async fn on_a_terminal_it_asks_and_an_empty_answer_accepts_its_proposal() -> Result<()> {
    let fixture = Fixture::new("hcloud").await?;
    fixture.set_provider_id("hcloud://1").await?;
    fixture.file("bad", "tokn=x\n")?;
    fixture.file("good", &format!("HCLOUD_TOKEN={SECRET}\n"))?;
    let (code, shown) = answered(&fixture, "aws-typo\n\nprod\n\nbad\ngood\n")?;
    assert_eq!(code, Some(0), "{shown}");
    for part in [
        "hcloud: 1 of 1 nodes have a providerID such as hcloud://",
        "the provider, one of aws, ",
        " [hcloud]: ",
        "there is no provider",
        "the cluster's name in the cloud [kubernetes]: ",
        "[cloudNode,cloudNodeLifecycle,service]: ",
        "(did you mean `token`?)",
        "Next:",
        "kubectl apply --server-side -f asked/secret.yaml",
    ] {
        assert!(shown.contains(part), "{part:?}: {shown}");
    }
    assert!(!shown.contains(SECRET), "{shown}");
    let manifest = fixture.read("asked/ccm.yaml")?;
    let expected =
        json!({"provider": "hcloud", "clusterName": "prod", "credentials": {"secretRef": {"name": "hcloud"}}});
    assert_eq!(manifest["spec"], expected);
    Ok(())
}

/// The published objects of AWS, and a pod of them.
fn published() -> Vec<Value> {
    let arguments =
        ["--v=2", "--cloud-provider=aws", "--cluster-name=prod", "--configure-cloud-routes=false", "--profiling=false"];
    let mut objects = published::objects(&arguments);
    let template = objects.last().map(|daemon_set| daemon_set["spec"]["template"].clone()).unwrap_or_default();
    let owner = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "name": published::DAEMON_SET, "uid": "1"});
    let metadata = json!({"name": "old-1", "namespace": "kube-system", "ownerReferences": [owner]});
    let containers = &template["spec"]["containers"];
    let spec = json!({"hostNetwork": true, "nodeName": "control-plane", "containers": containers});
    objects.push(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}));
    objects
}

#[tokio::test]
async fn the_operator_installs_beside_published_objects_and_touches_none_of_them() -> Result<()> {
    let fixture = Fixture::new("aws").await?;
    let client = &fixture.cluster.client;
    for object in published() {
        objects::create_as(client, "kubectl-create", object).await?;
    }
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "cloud-controller-manager", "namespace": "kube-system"},
        "spec": {"holderIdentity": "control-plane_1", "leaseDurationSeconds": 3600, "renewTime": format!("{:.6}", Timestamp::now())},
    });
    objects::apply(client, lease).await?;
    let operator = fixture.cluster.start()?;

    // As for a new cluster: it is refused, because there is one.
    let (code, report) = fixture.init(&["--dest-dir", "fresh"])?;
    assert_eq!((code, &report["preflight"]["passed"]), (1, &json!(false)), "{report:#}");
    assert_eq!(report["existing"][0]["lease"], "kube-system/cloud-controller-manager", "{report:#}");
    assert_eq!(
        report["steps"]["next"][0]["commands"],
        json!(["ccm-operator init --from-existing --dest-dir fresh/migration"]),
        "{report:#}"
    );
    let (code, report) = fixture.init(&["--from-existing"])?;
    assert_eq!(code, 0, "{report:#}");
    let lost: Vec<_> =
        report["migrationResults"].as_array().into_iter().flatten().filter(|one| one["result"] == "NotKept").collect();
    assert_eq!(lost.iter().map(|one| &one["what"]).collect::<Vec<_>>(), [] as [&Value; 0], "{report:#}");
    let table = String::from_utf8(fixture.command("init", &["--from-existing", "--force"])?.stdout)?;
    let texts = table.lines().filter(|line| !line.trim_start().starts_with('$'));
    assert!(texts.clone().all(|line| line.chars().count() <= 100), "{table}");
    assert!(table.contains("changed  --profiling=false") && table.contains("Back again:\n1. Start"), "{table}");
    let mut manifest = fixture.read("ccm.yaml")?;
    let expected = json!({
        "provider": "aws", "clusterName": "prod", "leaderElection": {"leaseName": "cloud-controller-manager"},
        "ports": {"secure": 10268},
    });
    assert_eq!((&manifest["spec"], &manifest["metadata"]["name"]), (&expected, &json!("main")));
    let kinds = |path: &str| -> Result<Vec<String>> {
        let text = fs::read_to_string(fixture.folder.path().join(path))?;
        Ok(yaml::documents(&text)?
            .iter()
            .map(|one| format!("{} {}", one["kind"], one["metadata"]["name"]).replace('"', ""))
            .collect())
    };
    let all = [
        "ClusterRoleBinding system:cloud-controller-manager",
        "ClusterRole system:cloud-controller-manager",
        "RoleBinding cloud-controller-manager:apiserver-authentication-reader",
        "ServiceAccount cloud-controller-manager",
        "DaemonSet aws-cloud-controller-manager",
    ];
    assert_eq!(kinds("existing.yaml")?, all);

    manifest["metadata"]["managedFields"] = Value::Null;
    objects::apply(client, manifest).await?;
    let live = fixture.cluster.ready(&operator, "main").await?;
    let checks =
        live["status"]["conditions"].as_array().into_iter().flatten().find(|one| one["type"] == "PreflightPassed");
    assert!(checks.is_some_and(|one| one["status"] == "True" && one["reason"] == "Warnings"), "{live:#}");
    let objects = fixture.cluster.objects(Some("main")).await?;
    assert!(objects.iter().any(|one| one == "DaemonSet aws-cloud-controller-manager-main"), "{objects:?}");
    let kept = leases.get("cloud-controller-manager").await?.spec.and_then(|spec| spec.holder_identity);
    assert_eq!(kept.as_deref(), Some("control-plane_1"));
    let of_operator = fixture.cluster.objects(None).await?;
    assert!(!of_operator.iter().any(|one| all.contains(&one.as_str())), "{of_operator:?}");
    Ok(())
}
