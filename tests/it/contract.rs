//! The plan of each platform, compared by meaning with the Go operator's objects in a cluster
//! (`tests/contract/<platform>.json`). Every difference is intended, and listed here with its reason.
//!
//! A provider for a platform that the Go operator does not know has no such file: it is planned like the others, and
//! compared with its snapshots, if it has any.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::LazyLock,
};

use anyhow::{Context, Result, ensure};
use ccm_operator::{
    config::ConfigSource,
    facts::{DEFAULT_NAMESPACE, Documents, Facts, Settings, images::Images},
    object::Object,
    plan::{Plan, write},
    provider::{OpenShiftProvider, Phase, catalog::Catalog, embedded, payload},
};
use serde_json::{Value, json};

use crate::{lab::repository, support::openshift::Cluster};

mod differences;
mod meaning;

use differences::*;
use meaning::meaning;

type Meaning = BTreeMap<String, Value>;

/// A platform of the catalog.
pub(crate) struct Platform {
    /// The platform's name: that of its contract's file, if it has one.
    pub(crate) name: String,
    /// The cluster on it.
    cluster: Cluster,
    /// The contract, if the Go operator knows the platform.
    known: Option<&'static Known>,
}

impl Platform {
    pub(crate) fn is_known(&self) -> bool {
        self.known.is_some()
    }
}

/// A platform that the Go operator knows: the name of its contract's file, its `platformStatus`, and the intended
/// differences that it alone has.
struct Known {
    name: &'static str,
    status: fn() -> Value,
    wanted: fn() -> Vec<Difference>,
}

static PLATFORMS: LazyLock<Vec<Platform>> =
    LazyLock::new(|| platforms(&embedded::catalog().expect("the embedded catalog")).expect("the plans"));

const KNOWN: &[Known] = &[
    Known { name: "AWS", status: || json!({"type": "AWS"}), wanted: Vec::new },
    Known {
        name: "Azure",
        status: || json!({"type": "Azure", "azure": {"cloudName": "AzurePublicCloud"}}),
        wanted: || {
            let mut all = of_azure();
            all.push(Difference::changed(
                NODE_MANAGER,
                "initContainers[azure-inject-credentials] mount:/etc/cloud-config",
                json!("configMap cloud-conf [('cloud.conf', 'cloud.conf')]"),
                "the configuration that is synced, not the one that is left over on the node's disk",
            ));
            all
        },
    },
    Known {
        name: "AzureStackHub",
        status: || json!({"type": "Azure", "azure": {"cloudName": "AzureStackCloud"}}),
        wanted: || {
            let mut all = of_azure();
            all.push(Difference::gone(NODE_MANAGER, "containers[cloud-node-manager] mount:/etc/kubernetes", NO_SHELL));
            all
        },
    },
    Known { name: "GCP", status: || json!({"type": "GCP"}), wanted: || vec![loopback()] },
    Known { name: "IBMCloud", status: || json!({"type": "IBMCloud"}), wanted: || vec![loopback()] },
    Known { name: "PowerVS", status: || json!({"type": "PowerVS"}), wanted: Vec::new },
    Known { name: "OpenStack", status: || json!({"type": "OpenStack"}), wanted: || vec![loopback(), no_gates()] },
    Known {
        name: "VSphere",
        status: || json!({"type": "VSphere"}),
        wanted: || {
            vec![
                loopback(),
                no_gates(),
                Difference::gone(
                    DEPLOYMENT,
                    "containers[cloud-controller-manager] env:ADDITIONAL_NODE_LABELS",
                    "from here a shell made --node-labels; without the feature gate it is empty, and the argument left out",
                ),
            ]
        },
    },
    Known { name: "Nutanix", status: || json!({"type": "Nutanix"}), wanted: Vec::new },
];

/// The known platforms, and one for each provider of the catalog that serves none of them.
pub(crate) fn platforms(catalog: &Catalog) -> Result<Vec<Platform>> {
    let known = KNOWN.iter().map(|known| Platform {
        name: known.name.to_owned(),
        cluster: Cluster::on((known.status)()),
        known: Some(known),
    });
    let mut platforms: Vec<_> = known.collect();
    let mut served = BTreeSet::new();
    for platform in &platforms {
        if let Plan::Objects { provider, .. } = plan(catalog, platform, DEFAULT_NAMESPACE, Phase::Cluster)? {
            served.insert(provider);
        }
    }
    platforms.extend(catalog.providers().filter(|provider| !served.contains(provider.name())).map(unknown));
    Ok(platforms)
}

/// The platform of a provider that the Go operator does not know.
fn unknown(provider: &OpenShiftProvider) -> Platform {
    let served = &provider.descriptor.platform;
    let mut status = json!({"type": served.type_});
    if let Some(name) = &served.cloud_name {
        status["azure"] = json!({"cloudName": name});
    }
    let mut cluster = Cluster::on(status);
    if let Some(name) = &served.platform_name {
        cluster.platform_status["external"] = json!({"cloudControllerManager": {"state": "External"}});
        cluster.platform_spec = json!({"type": "External", "external": {"platformName": name}});
    }
    // Clouds that need a configuration have one. Without a transform any text is one.
    match provider.descriptor.cloud_config.as_ref().filter(|settings| !settings.allow_empty) {
        Some(settings) if settings.sources.contains(&ConfigSource::Managed) => {
            cluster.kube_cloud_config = Some(json!({"cloud.conf": "[Global]\n"}));
        }
        Some(_) => {
            cluster.cloud_config = Some(("cloud-provider-config".into(), "config".into()));
            cluster.cloud_config_data = Some(json!({"config": "[Global]\n"}));
        }
        None => {}
    }
    Platform { name: provider.name().to_owned(), cluster, known: None }
}

/// The plan of each platform, by the platform's name.
pub(crate) fn plans() -> Result<Vec<(&'static str, Plan)>> {
    plans_for(DEFAULT_NAMESPACE)
}

/// The plans for another namespace.
pub(crate) fn plans_for(namespace: &str) -> Result<Vec<(&'static str, Plan)>> {
    let catalog = embedded::catalog()?;
    let plan = |platform| plan(&catalog, platform, namespace, Phase::Cluster);
    PLATFORMS.iter().map(|platform| Ok((platform.name.as_str(), plan(platform)?))).collect()
}

fn plan(catalog: &Catalog, platform: &Platform, namespace: &str, phase: Phase) -> Result<Plan> {
    Ok(Plan::new(catalog, &plain_facts(catalog, platform, namespace)?, phase)?)
}

/// The images file of a cluster that has every image.
pub(crate) fn images() -> String {
    images_of(&embedded::catalog().expect("the embedded catalog"))
}

/// The images of the contract, and the images of other providers by their tag.
fn images_of(catalog: &Catalog) -> String {
    const CONTRACT: &[(&str, &str)] = &[
        ("cloudControllerManagerAWS", "aws-ccm"),
        ("cloudControllerManagerAzure", "azure-ccm"),
        ("cloudNodeManagerAzure", "azure-cnm"),
        ("cloudControllerManagerOperator", "cccmo"),
        ("cloudControllerManagerGCP", "gcp-ccm"),
        ("cloudControllerManagerIBM", "ibm-ccm"),
        ("cloudControllerManagerPowerVS", "powervs-ccm"),
        ("cloudControllerManagerOpenStack", "openstack-ccm"),
        ("cloudControllerManagerVSphere", "vsphere-ccm"),
        ("cloudControllerManagerNutanix", "nutanix-ccm"),
    ];
    let images = payload::images(catalog).into_iter().chain(CONTRACT.iter().copied());
    let images: BTreeMap<_, _> =
        images.map(|(key, image)| (key, format!("registry.example/ocp/{image}:lab"))).collect();
    json!(images).to_string()
}

/// Every platform's name, and a cluster on it.
pub(crate) fn clusters() -> impl Iterator<Item = (&'static str, Cluster)> {
    PLATFORMS.iter().map(|platform| (platform.name.as_str(), platform.cluster.clone()))
}

/// The cluster on one platform.
pub(crate) fn cluster_on(name: &str) -> Result<Cluster> {
    let found = clusters().find(|(other, _)| *other == name);
    found.map(|(_, cluster)| cluster).with_context(|| format!("no platform {name}"))
}

/// The facts of a cluster on a platform.
pub(crate) fn facts(
    catalog: &Catalog,
    platform: &Platform,
    documents: Documents,
    settings: &Settings,
) -> Result<Facts> {
    let images = Images::parse(&images_of(catalog), "images.json");
    let mut infrastructure = json!({"status": {
        "platformStatus": platform.cluster.platform_status,
        "infrastructureName": "lab-x7k2p",
        "controlPlaneTopology": "HighlyAvailable",
        "apiServerInternalURI": "https://api-int.lab.example.com:6443",
    }});
    if !platform.cluster.platform_spec.is_null() {
        infrastructure["spec"] = json!({"platformSpec": platform.cluster.platform_spec});
    }
    let infrastructure = Some(serde_json::from_value(infrastructure)?);
    Ok(Facts { images, ..Documents { infrastructure, ..documents }.facts(settings) })
}

/// The facts of a cluster that has nothing but its Infrastructure.
fn plain_facts(catalog: &Catalog, platform: &Platform, namespace: &str) -> Result<Facts> {
    facts(catalog, platform, Documents::default(), &Settings { namespace: namespace.to_owned(), ..Settings::default() })
}

/// A platform's contract, changed by the intended differences.
fn expected(platform: &Known) -> Result<BTreeMap<String, Meaning>> {
    let path = format!("tests/contract/{}.json", platform.name);
    let text = fs::read_to_string(repository().join(&path)).context(path)?;
    let mut contract: BTreeMap<String, Meaning> = serde_json::from_str(&text)?;
    // The ClusterOperator is not planned; the tests of the running operator check it.
    contract.retain(|object, _| !object.starts_with("ClusterOperator/"));
    for Difference { objects, key, ours, why } in everywhere(platform).into_iter().chain((platform.wanted)()) {
        let name = platform.name;
        let mut meanings = contract.iter_mut().filter(|(object, _)| object.starts_with(objects)).peekable();
        assert!(meanings.peek().is_some(), "{name} has no {objects}");
        for (object, meaning) in meanings {
            let before = match &ours {
                Some(value) => meaning.insert(key.clone(), value.clone()),
                None => meaning.remove(&key),
            };
            assert_ne!(before, ours, "{name}: {object}: {key} is not a difference any more ({why})");
        }
    }
    Ok(contract)
}

/// Compares the plans of the known platforms with their contracts.
pub(crate) fn check_contracts(catalog: &Catalog) -> Result<()> {
    for platform in platforms(catalog)? {
        let (name, Some(known)) = (&platform.name, platform.known) else { continue };
        let contract = expected(known)?;
        let plan = plan(catalog, &platform, DEFAULT_NAMESPACE, Phase::Cluster)?;
        let mut ours: BTreeMap<String, Meaning> = BTreeMap::new();
        for object in plan.objects() {
            let namespace = if object.namespace().is_empty() { "-" } else { object.namespace() };
            ours.insert(format!("{}/{namespace}/{}", object.kind().kind, object.name()), meaning(object));
        }
        assert_eq!(ours.keys().collect::<Vec<_>>(), contract.keys().collect::<Vec<_>>(), "{name}");
        for (object, expected) in &contract {
            let found = &ours[object];
            // The contract was read from a live cluster: fields that the server fills in may be absent from the manifest.
            let filled_in =
                ["internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy", "sessionAffinity", "rollingUpdate/maxSurge"];
            for (key, value) in expected {
                if !filled_in.iter().any(|field| key.contains(field)) {
                    assert_eq!(found.get(key), Some(value), "{name}: {object}: {key}");
                }
            }
            // The contract leaves out the expressions and messages of policies.
            let wording = ["/expression", "/message", "/messageExpression"];
            let more: Vec<_> = found
                .keys()
                .filter(|key| !expected.contains_key(*key))
                .filter(|key| !wording.iter().any(|field| key.ends_with(field)))
                .filter(|key| !key.starts_with("/spec/matchConditions/") && !key.starts_with("/spec/variables/"))
                .collect();
            assert_eq!(more, Vec::<&String>::new(), "{name}: {object} has fields that the contract does not have");
        }
    }
    Ok(())
}

#[test]
fn every_plan_matches_its_contract_except_for_the_intended_differences() -> Result<()> {
    check_contracts(&embedded::catalog()?)
}

#[test]
fn every_contract_is_compared() -> Result<()> {
    let files = fs::read_dir(repository().join("tests/contract"))?;
    let files: BTreeSet<_> = files.map(|file| Ok(file?.file_name())).collect::<Result<_>>()?;
    assert_eq!(files, KNOWN.iter().map(|known| format!("{}.json", known.name).into()).collect());
    Ok(())
}

/// Plans every platform, and compares the plans with their snapshots. A known platform must have them; a provider without
/// bootstrap manifests has none of that phase.
#[expect(clippy::print_stderr, reason = "a test without a snapshot reports that")]
pub(crate) fn check_plans(catalog: &Catalog, phase: Phase) -> Result<()> {
    for platform in platforms(catalog)? {
        let prefix = if phase == Phase::Cluster { "plan" } else { "bootstrap" };
        let name = format!("{prefix}_{}", platform.name);
        let plan = plan(catalog, &platform, DEFAULT_NAMESPACE, phase)?;
        ensure!(matches!(plan, Plan::Objects { .. }), "{}: no provider serves it", platform.name);
        if plan.objects().is_empty() {
            ensure!(phase == Phase::Bootstrap, "{}: nothing is planned", platform.name);
            continue;
        }
        let file = repository().join(format!("tests/it/snapshots/it__contract__{name}.snap"));
        if platform.is_known() || file.is_file() || std::env::var_os("INSTA_UPDATE").is_some() {
            insta::assert_snapshot!(name, write::stream(&write::cluster_files(plan.objects())?));
        } else {
            eprintln!("not compared: there is no snapshot {}", file.display());
        }
    }
    Ok(())
}

#[test]
fn every_plan_matches_its_snapshot() -> Result<()> {
    check_plans(&embedded::catalog()?, Phase::Cluster)
}

#[test]
fn every_bootstrap_pod_matches_its_snapshot() -> Result<()> {
    check_plans(&embedded::catalog()?, Phase::Bootstrap)
}

#[test]
fn vsphere_labels_nodes_only_where_other_platforms_may_be_mixed_in() -> Result<()> {
    let vsphere = PLATFORMS.iter().find(|platform| platform.name == "VSphere").context("vSphere")?;
    let feature_gates = vec!["VSphereMixedNodeEnv".to_owned()];
    let catalog = embedded::catalog()?;
    let facts = Facts { feature_gates, ..plain_facts(&catalog, vsphere, DEFAULT_NAMESPACE)? };
    let plan = Plan::new(&catalog, &facts, Phase::Cluster)?;
    let deployment = plan.objects().iter().find(|object| object.kind().kind == "Deployment").context("Deployment")?;
    let labels = meaning(deployment).remove("containers[cloud-controller-manager] arg:--node-labels");
    assert_eq!(labels, Some(json!("node.openshift.io/platform-type=vsphere")));
    Ok(())
}
