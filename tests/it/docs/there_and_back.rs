//! Migrations from the objects that seven clouds publish, and back, by the commands that `init --from-existing` prints. `tests/published/`
//! has their shapes. Here no container runs: a stand-in starts their pods, so that only the objects and settings are compared.

use std::{collections::BTreeMap, fs};

use anyhow::{Context, Result, ensure};
use ccm_operator::text::yaml;
use serde_json::{Value, json};

use super::{any_kubernetes::Fixture, shell::Shell};
use crate::{
    lab::{LIMIT, repository},
    support::eventually,
};

/// What is published for a cloud.
struct Published {
    /// The file below `tests/published/`.
    file: &'static str,
    provider: &'static str,
    /// The kind and the name of the cloud-controller-manager's workload.
    workload: (&'static str, &'static str),
    /// The beginning of the providerIDs of its nodes.
    provider_id: &'static str,
    /// Further arguments of `init`.
    arguments: &'static str,
    exit_code: i32,
}

/// Settings of our manifests, whose values other tests compare with what the programs do without them.
const COMMON: [&str; 16] = [
    "--authentication-skip-lookup",
    "--bind-address",
    "--cloud-provider",
    "--configure-cloud-routes",
    "--controllers",
    "--feature-gates",
    "--leader-elect",
    "--leader-elect-resource-name",
    "--leader-elect-resource-namespace",
    "--secure-port",
    "--use-service-account-credentials",
    "--v",
    "--webhook-secure-port",
    // A line about the port says what becomes of it.
    "HCLOUD_METRICS_ENABLED",
    // Its default; a line about the controller of routes says it, too.
    "HCLOUD_NETWORK_ROUTES_ENABLED",
    "METRICS_ADDR",
];

/// Flags that lines about the lease and the controllers mean.
const ELSEWHERE: [&str; 5] = [
    "--controllers",
    "--leader-elect",
    "--leader-elect-resource-lock",
    "--leader-elect-resource-name",
    "--leader-elect-resource-namespace",
];

/// Commands that change something or wait. The others only show.
const CHANGING: [&str; 7] = [" apply ", " create ", " delete ", " patch ", " wait ", " uninstall ", " rollback "];

/// A cluster with published objects, and the shell of its administrator.
struct Cluster {
    _fixture: Fixture,
    shell: Shell,
    published: &'static Published,
}

impl Cluster {
    async fn new(published: &'static Published) -> Result<Self> {
        let (fixture, shell) = Fixture::new().await?;
        let file = repository().join("tests/published").join(published.file);
        fs::copy(&file, shell.folder().join("published.yaml")).with_context(|| file.display().to_string())?;
        fs::write(shell.folder().join("azure.json"), AZURE)?;
        // What Helm does with a release of these objects.
        let all = "kubectl --kubeconfig \"$KUBECONFIG\"";
        shell.program(
            "helm",
            &format!(
                "case \"$1\" in\n\
                 uninstall) {all} delete -f published.yaml --selector=app.kubernetes.io/managed-by=Helm ;;\n\
                 rollback) {all} apply --server-side -f published.yaml ;;\n\
                 *) true ;;\nesac"
            ),
        )?;
        let cluster = Self { _fixture: fixture, shell, published };
        let nodes = cluster.run(0, "kubectl get nodes --output=name").await?;
        for (number, node) in nodes.split_whitespace().enumerate() {
            // As the old cloud-controller-manager has left it.
            let id = format!("{}{number}", published.provider_id);
            let patch = json!({"spec": {"providerID": id, "podCIDR": format!("10.244.{number}.0/24"), "taints": null}});
            cluster.run(0, &format!("kubectl patch {node} --type=merge --patch='{patch}'")).await?;
        }
        cluster.run(0, "kubectl apply --server-side -f published.yaml").await?;
        cluster.rolled_out().await?;
        Ok(cluster)
    }

    /// The output of a command that ends with this code.
    async fn run(&self, expected: i32, command: &str) -> Result<String> {
        let (code, output) = self.shell.run(command).await?;
        ensure!(code == Some(expected), "{}: exit code {code:?} of {command}\n{output}", self.published.file);
        Ok(output)
    }

    async fn rolled_out(&self) -> Result<()> {
        let (kind, name) = self.published.workload;
        let wait = format!("kubectl --namespace kube-system rollout status {kind} {name} --timeout=1m");
        self.run(0, &wait).await.map(drop)
    }

    /// The published objects as they are, without what changes by itself.
    async fn objects(&self) -> Result<Vec<Value>> {
        let text = self.run(0, "kubectl get -f published.yaml --output=json").await?;
        let list: Value = serde_json::from_str(&text)?;
        let mut objects: Vec<Value> = list["items"].as_array().context("items")?.clone();
        for object in &mut objects {
            object["status"] = Value::Null;
            let metadata = object["metadata"].as_object_mut().context("metadata")?;
            for field in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"] {
                metadata.remove(field);
            }
            if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                annotations.retain(|name, _| {
                    !name.starts_with("deployment.kubernetes.io/") && !name.starts_with("deprecated.")
                });
                if annotations.is_empty() {
                    metadata.remove("annotations");
                }
            }
        }
        Ok(objects)
    }

    /// Runs the commands of printed steps that change something.
    async fn follow(&self, steps: &Value) -> Result<()> {
        let steps = steps.as_array().context("steps")?;
        let commands = steps.iter().flat_map(|step| step["commands"].as_array().into_iter().flatten());
        for command in commands.filter_map(Value::as_str) {
            let command = command.replace("IMAGE", "x").replace("REVISION", "1");
            if command.contains("render install") || CHANGING.iter().any(|part| format!("{command} ").contains(part)) {
                eventually("success", LIMIT, async || self.run(0, &command).await.map(Some)).await?;
            }
        }
        Ok(())
    }

    /// The settings of the first workload's container with this name, or of its first one.
    async fn settings(&self, workload: &str, container: &str) -> Result<BTreeMap<String, String>> {
        let text = self.run(0, &format!("kubectl --namespace kube-system get {workload} --output=json")).await?;
        let live: Value = serde_json::from_str(&text)?;
        let live = if live["items"].is_array() { live["items"][0].clone() } else { live };
        let containers = live["spec"]["template"]["spec"]["containers"].as_array().context("containers")?;
        let found = containers.iter().find(|one| one["name"] == container).or(containers.first());
        Ok(settings(found.context("a container")?))
    }
}

/// Flags with their values, and variables with their values or sources. A variable that only a flag uses is a part of that flag.
fn settings(container: &Value) -> BTreeMap<String, String> {
    let items = |field: &str| container[field].as_array().cloned().unwrap_or_default();
    let of = |one: &Value| {
        let reference = &one["valueFrom"]["secretKeyRef"];
        match one["value"].as_str() {
            Some(value) => value.to_owned(),
            None if reference.is_object() => format!("{} of {}", reference["key"], reference["name"]),
            None => one["valueFrom"].to_string(),
        }
    };
    let variables: BTreeMap<_, _> =
        items("env").iter().map(|one| (one["name"].as_str().unwrap_or_default().to_owned(), of(one))).collect();
    let words: Vec<_> = items("command").into_iter().chain(items("args")).collect();
    let words: Vec<_> = words.iter().filter_map(Value::as_str).filter(|word| word.starts_with("--")).collect();
    let is_used = |name: &str| words.iter().any(|word| word.contains(&format!("$({name})")));
    let filled = |text: &str| {
        variables.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
    };
    let flags = words.iter().map(|word| {
        let (flag, value) = word.split_once('=').unwrap_or((word, "true"));
        (flag.to_owned(), filled(value))
    });
    let own = variables.iter().filter(|(name, _)| !is_used(name)).map(|(name, value)| (name.clone(), value.clone()));
    flags.chain(own).collect()
}

/// Migrates, checks that each setting stays or has a line, and goes back.
async fn there_and_back(published: &'static Published) -> Result<()> {
    let cluster = Cluster::new(published).await?;
    let before = cluster.objects().await?;
    let old = cluster.settings(&format!("{}/{}", published.workload.0, published.workload.1), "").await?;
    let init = format!("ccm-operator init --from-existing -o json {} 2>/dev/null", published.arguments);
    let report: Value = serde_json::from_str(&cluster.run(published.exit_code, &init).await?)?;
    ensure!(report["provider"] == published.provider, "{report:#}");
    let results = report["migrationResults"].as_array().context("results")?;
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let lines: Vec<_> = results
        .iter()
        .map(|one| format!("{}  {} -> {}", text(one, "result"), text(one, "what"), text(one, "how")))
        .collect();
    let manifest: Value = yaml::from_str(&fs::read_to_string(cluster.shell.folder().join("ccm.yaml"))?)?;
    let result = format!("{}\n{}\n", yaml::to_string(&manifest["spec"])?, lines.join("\n"));
    ensure!(!result.contains("s3cret"), "{result}");
    insta::assert_snapshot!(published.file.trim_end_matches(".yaml"), result);

    cluster.follow(&report["steps"]["next"]).await?;
    let name = manifest["metadata"]["name"].as_str().context("a name")?;
    let new = format!("deployments,daemonsets --selector=app.kubernetes.io/instance={name}");
    let new = cluster.settings(&new, "cloud-controller-manager").await?;
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    let has = |line: &str, setting: &str| {
        line.match_indices(setting).any(|(at, _)| !line[at + setting.len()..].starts_with(is_name))
    };
    let is_named = |setting: &str| lines.iter().any(|line| has(line, setting));
    // A line names the Secret, and its keys where they are copied.
    let is_of_secret = |value: &str| {
        let secret = value.split_once(" of ").map(|(_, secret)| format!("/{}", secret.trim_matches('"')));
        secret.is_some_and(|secret| lines.iter().any(|line| line.contains(&secret)))
    };
    for (setting, value) in &old {
        // Lines about the lease and the controllers say this.
        let is_elsewhere = ELSEWHERE.contains(&setting.as_str()) || is_of_secret(value);
        ensure!(
            is_elsewhere || new.get(setting) == Some(value) || is_named(setting),
            "no line says what becomes of {setting}: {result}"
        );
    }
    for (setting, value) in &new {
        let is_common = COMMON.contains(&setting.as_str()) || is_of_secret(value);
        let is_known = old.contains_key(setting) || is_common || is_named(setting);
        ensure!(is_known, "no line says that {setting}={value} is new: {result}");
    }

    cluster.follow(&report["steps"]["back"]).await?;
    cluster.rolled_out().await?;
    let after = cluster.objects().await?;
    ensure!(
        before == after,
        "{}",
        similar::TextDiff::from_lines(format!("{before:#?}"), format!("{after:#?}")).unified_diff()
    );
    let left = cluster
        .run(0, "kubectl get deployments,daemonsets,ccm -A --selector=applyset.kubernetes.io/part-of -o name")
        .await?;
    ensure!(left.trim().is_empty() || left.contains("No resources"), "left: {left}");
    Ok(())
}

/// The configuration that Azure's chart expects on each machine.
const AZURE: &str = r#"{"cloud": "AzurePublicCloud", "tenantId": "t", "subscriptionId": "s", "aadClientId": "c",
"aadClientSecret": "s3cret-of-the-cloud", "resourceGroup": "prod", "location": "westeurope", "vmType": "standard",
"vnetName": "prod", "subnetName": "nodes", "routeTableName": "routes", "securityGroupName": "nodes", "loadBalancerSku": "standard"}"#;

macro_rules! published {
    ($($name:ident: $file:literal $provider:literal $workload:expr, $id:literal, $arguments:literal, $exit_code:literal;)+) => {
        $(
            #[tokio::test]
            async fn $name() -> Result<()> {
                static PUBLISHED: Published = Published {
                    file: $file,
                    provider: $provider,
                    workload: $workload,
                    provider_id: $id,
                    arguments: $arguments,
                    exit_code: $exit_code,
                };
                there_and_back(&PUBLISHED).await
            }
        )+
    };
}

published! {
    hcloud: "hcloud.yaml" "hcloud" ("deployment", "hcloud-cloud-controller-manager"), "hcloud://", "", 1;
    hcloud_chart: "hcloud-chart.yaml" "hcloud" ("deployment", "hcloud-cloud-controller-manager"), "hcloud://", "", 1;
    digitalocean: "digitalocean.yaml" "digitalocean" ("deployment", "digitalocean-cloud-controller-manager"), "digitalocean://", "", 1;
    openstack: "openstack.yaml" "openstack" ("daemonset", "openstack-cloud-controller-manager"), "openstack:///", "", 0;
    azure_chart: "azure-chart.yaml" "azure" ("deployment", "cloud-controller-manager"), "azure:///subscriptions/s/vm", "--cloud-config azure.json", 1;
    scaleway: "scaleway.yaml" "scaleway" ("deployment", "scaleway-cloud-controller-manager"), "scaleway://instance/fr-par-1/", "", 0;
    vultr: "vultr.yaml" "vultr" ("daemonset", "vultr-ccm"), "vultr://", "", 0;
    linode_chart: "linode-chart.yaml" "linode" ("daemonset", "ccm-linode"), "linode://", "", 0;
}
