//! Providers that do not come with this program: what `provider verify` and `provider rbac` say of one's own folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    cluster::request,
    object::Object,
    provider::{Flavor, Origin, package, verify::rules},
    text::yaml,
};
use kube::{
    Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::{
    lab::{LIMIT, binary, repository},
    support::{eventually, objects, objects::Workloads, openshift, pool},
};

const OPERATOR: [&str; 2] = ["openshift-cloud-controller-manager-operator", "cluster-cloud-controller-manager"];

fn provider(arguments: &[&str]) -> Output {
    Command::new(binary()).arg("provider").args(arguments).output().expect("the binary")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A descriptor for any Kubernetes with a digest, which nobody has, for each tag that has none. Other files stay.
pub(crate) fn with_digests(text: &str) -> String {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let pinned = |entry: &str| {
        let (minor, tag) = entry.split_once(": ").filter(|(_, tag)| !tag.starts_with('{'))?;
        Some(format!("{minor}: {{tag: {tag}, digest: \"{digest}\"}}"))
    };
    let line = |line: &str| {
        let (indent, tags) = line.split_once("tags: {")?;
        let tags = tags.strip_suffix('}')?.split(", ").map(pinned).collect::<Option<Vec<_>>>()?;
        Some(format!("{indent}tags: {{{}}}", tags.join(", ")))
    };
    text.lines().flat_map(|one| [line(one).unwrap_or_else(|| one.to_owned()), "\n".to_owned()]).collect()
}

/// The own folder of a provider for any Kubernetes, with one text of its Deployment replaced.
fn kubernetes(from: &str, to: &str) -> Result<(TempDir, PathBuf)> {
    let temporary = TempDir::new()?;
    let folder = temporary.path().join("exoscale");
    fs::create_dir_all(folder.join("assets/kubernetes"))?;
    for entry in fs::read_dir(repository().join("assets/exoscale/kubernetes"))? {
        let entry = entry?;
        let text = with_digests(&fs::read_to_string(entry.path())?).replace(from, to);
        fs::write(folder.join("assets/kubernetes").join(entry.file_name()), text)?;
    }
    Ok((temporary, folder))
}

/// The own folder of a provider for OpenShift, with an account of its own.
fn for_openshift() -> Result<(TempDir, PathBuf)> {
    let temporary = TempDir::new()?;
    let folder = temporary.path().join("demo");
    fs::create_dir_all(folder.join("assets"))?;
    let account = "---\napiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: demo-cloud-controller-manager\n  namespace: \
                   openshift-cloud-controller-manager\n";
    let image = format!("quay.io/demo/ccm:1@sha256:{}", "0a".repeat(32));
    for file in ["deployment.yaml", "provider.yaml", "role.yaml"] {
        let text = fs::read_to_string(repository().join("tests/sound/assets/demo").join(file))?
            .replace("serviceAccountName: cloud", "serviceAccountName: demo-cloud")
            .replace("- kind: ServiceAccount\n  name: cloud", "- kind: ServiceAccount\n  name: demo-cloud")
            .replace("quay.io/openshift/origin-demo-ccm", &image)
            .replace("        seccompProfile:\n", "        runAsNonRoot: true\n        seccompProfile:\n");
        let end = if file == "role.yaml" { account } else { "" };
        fs::write(folder.join("assets").join(file), text + end)?;
    }
    Ok((temporary, folder))
}

#[test]
fn the_folder_of_one_provider_is_checked_by_the_rules_for_external_ones() -> Result<()> {
    let (_kept, sound) = kubernetes("", "")?;
    let output = provider(&["verify", path(&sound)]);
    let table = String::from_utf8(output.stdout)?;
    assert_eq!((output.status.code(), table.ends_with("rules: nothing found\n")), (Some(0), true), "{table}");
    let (_kept, sound) = for_openshift()?;
    let output = provider(&["verify", path(&sound)]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));

    let (_kept, folder) = kubernetes("hostNetwork: true", "hostNetwork: true\n      hostPID: true")?;
    let output = provider(&["verify", path(&folder), "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let [finding] = &report["findings"].as_array().context("findings")?[..] else { panic!("{report:#}") };
    assert_eq!(
        (&finding["rule"], &finding["value"]),
        (&"external-host-namespace".into(), &"hostPID".into()),
        "{report:#}"
    );
    let table = String::from_utf8(provider(&["verify", path(&folder)]).stdout)?;
    assert!(table.lines().all(|line| line.len() <= 100) && table.contains("external-host-namespace:\n"), "{table}");
    let xml = String::from_utf8(provider(&["verify", path(&folder), "-o", "junit"]).stdout)?;
    assert!(xml.contains("<testcase classname=\"exoscale/kubernetes\" name=\"external-host-namespace\">"), "{xml}");
    Ok(())
}

#[test]
fn a_policy_allows_the_values_that_it_lists() -> Result<()> {
    let (kept, folder) = kubernetes("hostNetwork: true", "hostNetwork: true\n      hostPID: true")?;
    let policy = kept.path().join("policy.yaml");
    let verify = |text: &str| -> Result<(Option<i32>, String)> {
        fs::write(&policy, text)?;
        let output = provider(&["verify", path(&folder), "--provider-policy", path(&policy)]);
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    assert_eq!(verify("exoscale: {external-host-namespace: [hostPID]}\n")?, (Some(0), String::new()));
    // As for the operator it may be pinned.
    let digest = provider(&["digest", path(&policy)]);
    let digest = String::from_utf8(digest.stdout)?.trim().to_owned();
    let sum = Command::new("sha256sum").arg(&policy).output()?;
    assert_eq!(String::from_utf8(sum.stdout)?.split_whitespace().next(), digest.strip_prefix("sha256:"));
    for (pin, code) in [(digest.clone(), 0), (format!("sha256:{}", "0".repeat(64)), 2), ("sha256:0".into(), 2)] {
        let pinned = format!("{}@{pin}", path(&policy));
        let output = provider(&["verify", path(&folder), "--provider-policy", &pinned]);
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (code, warning) = verify("exoscale:\n  external-host-namespace: [hostPID]\n  external-host-port: [1]\n")?;
    assert_eq!(code, Some(0));
    assert!(
        warning.starts_with("warning: ") && warning.contains("policy.yaml:3: exoscale: external-host-port: unused"),
        "{warning}"
    );
    let (code, warning) = verify("other: {external-host-namespace: [hostPID]}\n")?;
    assert_eq!(code, Some(1));
    assert!(warning.contains("policy.yaml: it allows nothing for exoscale, only for other"), "{warning}");
    let (code, error) = verify("exoscale: {external-hostpid: [hostPID]}\n")?;
    assert_eq!(code, Some(2));
    assert!(error.contains("policy.yaml:1: unknown rule `external-hostpid`") && error.lines().count() == 1, "{error}");

    let output = provider(&["verify", "aws", "--provider-policy", path(&policy)]);
    assert_eq!(output.status.code(), Some(2), "a provider that comes with this program needs none");
    Ok(())
}

#[test]
fn the_documented_schema_of_policies_is_current() -> Result<()> {
    let rules = rules().filter(|rule| rule.can_be_allowed()).map(|rule| {
        let values = json!({"type": "array", "items": {"type": ["string", "integer"]}, "description": rule.why()});
        (rule.id.to_owned(), values)
    });
    let rules: Map<_, _> = rules.collect();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ProviderPolicy",
        "description": "The file of `--provider-policy`: what providers may have beyond the rules, by provider and rule, as exact values.",
        "type": "object",
        "additionalProperties": {"type": "object", "properties": rules, "additionalProperties": false},
    });
    let path = repository().join("docs/provider-policy.schema.json");
    let schema = serde_json::to_string_pretty(&schema)? + "\n";
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, &schema)?;
    }
    let documented = fs::read_to_string(&path).unwrap_or_default();
    assert!(schema == documented, "{} is out of date: run `make generate`", path.display());
    Ok(())
}

#[test]
fn an_installation_has_the_permissions_that_are_printed_for_a_provider() -> Result<()> {
    let (kept, folder) = kubernetes(
        "kind: ClusterRole\n  name: exoscale-cloud-controller-manager\nsubjects",
        "kind: ClusterRole\n  name: view\nsubjects",
    )?;
    let policy = kept.path().join("policy.yaml");
    fs::write(&policy, "exoscale: {external-reference: [ClusterRole view]}\n")?;
    let output = provider(&["rbac", path(&folder), "--provider-policy", path(&policy)]);
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = yaml::documents(&String::from_utf8(output.stdout)?)?;
    ensure!(json!(printed).to_string().contains(r#""resourceNames":["view"],"#), "{printed:#?}");
    let install = ["render", "install", "--replace-built-in=exoscale", "--provider-policy"];
    let output = Command::new(binary()).args(install).arg(&policy).args(["--provider", path(&folder)]).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let installed = yaml::documents(&String::from_utf8(output.stdout)?)?;
    // The operator reads no other policy than the one that was looked at.
    let digest = String::from_utf8(provider(&["digest", path(&policy)]).stdout)?;
    let pinned = format!("--provider-policy=/etc/ccm-operator/providers/policy.yaml@{}", digest.trim());
    ensure!(json!(installed).to_string().contains(&pinned), "{pinned}");
    for object in printed {
        assert!(installed.contains(&object), "{object:#}");
    }
    Ok(())
}

/// Runs a command that prints what would be applied, or pulled.
fn printed(arguments: &[&str]) -> Result<String> {
    let output = Command::new(binary()).args(arguments).output()?;
    ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn the_pinned_image_is_listed_and_applied() -> Result<()> {
    let (kept, folder) = kubernetes("", "")?;
    let image = format!("docker.io/exoscale/cloud-controller-manager:0.34.0@sha256:{}", "0a".repeat(32));
    let listed = printed(&["images", "--kubernetes=1.34", "--provider", path(&folder), "-o", "json"])?;
    let listed: Value = serde_json::from_str(&listed)?;
    assert_eq!(listed[0]["image"], image.as_str(), "{listed:#}");
    let ccm = kept.path().join("ccm.yaml");
    let spec = json!({"provider": "exoscale", "credentials": {"secretRef": {"name": "a"}}});
    let object = json!({"apiVersion": "ccm-operator.dev/v1alpha1", "kind": "CloudControllerManager",
        "metadata": {"name": "cluster"}, "spec": spec});
    fs::write(&ccm, object.to_string())?;
    let render = [
        "render",
        "ccm",
        "--config",
        path(&ccm),
        "--kubernetes-version=1.34",
        "--replace-built-in=exoscale",
        "--provider",
    ];
    let text = printed(&[&render[..], &[path(&folder)]].concat())?;
    assert!(text.contains(&format!("image: {image}\n")), "{text}");

    // Without a digest nothing uses it, unless a policy names the tag.
    let (_kept, open) = kubernetes(&format!("{{tag: 0.33.0, digest: \"sha256:{}\"}}", "0a".repeat(32)), "0.33.0")?;
    let policy = kept.path().join("policy.yaml");
    fs::write(&policy, "exoscale: {external-image-digest: ['docker.io/exoscale/cloud-controller-manager:0.33.0']}\n")?;
    let further = ["--provider-policy", path(&policy)];
    for arguments in [&["provider", "rbac", path(&open)][..], &[&render[..], &[path(&open)]].concat()] {
        let error = printed(arguments).unwrap_err().to_string();
        assert!(error.contains("docker.io/exoscale/cloud-controller-manager:0.33.0 has no digest"), "{error}");
        printed(&[arguments, &further].concat())?;
    }
    Ok(())
}

#[test]
fn a_folder_for_openshift_only_is_not_installed_elsewhere() -> Result<()> {
    let (_kept, folder) = for_openshift()?;
    let install = ["render", "install", "--provider", path(&folder)];
    let output = Command::new(binary()).args(install).output()?;
    let error = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("demo is for OpenShift only: it has no assets/kubernetes/"), "{error}");
    assert!(error.contains("Usage: ccm-operator render install "), "the usage of what was called: {error}");
    Ok(())
}

#[test]
fn permissions_are_printed_only_for_accepted_providers() -> Result<()> {
    let (_kept, folder) = kubernetes("", "")?;
    let output = provider(&["rbac", path(&folder), "--namespaces", "cloud", "--secrets", "token"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let documents = yaml::documents(&String::from_utf8(output.stdout)?)?;
    let kinds: Vec<_> = documents.iter().filter_map(|one| one["kind"].as_str()).collect();
    assert_eq!(kinds, ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]);
    assert_eq!(documents[2]["metadata"]["namespace"], "cloud");
    assert!(documents[2]["rules"].to_string().contains("\"token\""));

    let (_kept, folder) = kubernetes("hostNetwork: true", "hostNetwork: true\n      hostPID: true")?;
    for (arguments, expected) in [
        (
            vec!["rbac", path(&folder)],
            ": hostPID (external-host-namespace); `ccm-operator provider verify` explains each rule",
        ),
        (vec!["rbac", path(&folder)], "looked at each value:\nexoscale:\n  external-host-namespace:\n  - hostPID\n"),
        (vec!["rbac", "aws"], "give --flavor"),
        (vec!["rbac", "exoscale", "--flavor", "openshift"], "has nothing for this --flavor"),
        (vec!["rbac", "exoscale", "--namespace", "a"], "--namespace has no use with --flavor kubernetes"),
        (vec!["rbac", "ibm", "--secrets", "a"], "--secrets has no use with --flavor openshift"),
        (vec!["rbac", path(repository())], "give one provider's own folder"),
    ] {
        let output = provider(&arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{error}");
        assert!(error.contains(expected), "{error}");
    }
    Ok(())
}

/// A client with the permissions of the operator's ServiceAccount on OpenShift.
fn operator(plane: &pool::Lease) -> Result<Client> {
    let [namespace, name] = OPERATOR;
    let mut config = plane.config()?;
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:{name}"));
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
    config.auth_info.impersonate_groups = Some(groups.map(str::to_owned).into());
    Ok(Client::try_from(config)?)
}

/// Applies an object: roles for good, because bindings refer to them, and others by a dry run.
async fn apply(client: &Client, object: &Object) -> kube::Result<()> {
    let mut params = PatchParams::apply("test").force().validation_strict();
    params.dry_run = !object.kind().kind.ends_with("Role");
    let api = request::api(client, object.kind(), object.namespace());
    api.patch(object.name(), &params, &Patch::Apply(object.value())).await.map(drop)
}

#[tokio::test]
async fn on_openshift_the_printed_permissions_are_those_that_the_operator_lacks() -> Result<()> {
    let (_kept, folder) = for_openshift()?;
    let plane = pool::lease().await?;
    let client = plane.client()?;
    openshift::install_crds(&client).await?;
    objects::install_manifests(&client, &repository().join("manifests"), Workloads::Skip).await?;
    let parsed_providers = package::read::read(&folder)?.package.parsed_providers();
    let parsed = parsed_providers.into_iter().find(|parsed| parsed.flavor == Flavor::OpenShift).context("a flavor")?;
    let manifests = parsed.openshift()?.restricted(&Origin::default())?.manifests;
    let operator = operator(&plane)?;
    for object in &manifests {
        let refused = apply(&operator, object).await;
        ensure!(
            matches!(&refused, Err(kube::Error::Api(status)) if status.is_forbidden()),
            "{}: {refused:?}",
            object.key()
        );
    }
    let output = provider(&["rbac", path(&folder)]);
    let granted = yaml::documents(&String::from_utf8(output.stdout)?)?;
    for object in &granted {
        objects::apply(&client, object.clone()).await?;
    }
    for object in &manifests {
        // The API server knows a permission a moment after it was written.
        eventually(&object.key().to_string(), LIMIT, async || Ok(apply(&operator, object).await.ok())).await?;
    }
    for role in manifests.iter().filter(|object| object.kind().kind.ends_with("Role")) {
        request::api(&client, role.kind(), role.namespace()).delete(role.name(), &DeleteParams::default()).await?;
    }
    for object in &granted {
        objects::delete(&client, object).await?;
    }
    Ok(())
}
