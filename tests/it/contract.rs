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
    facts::{DEFAULT_NAMESPACE, Documents, Facts, Settings, images::Images},
    object::Object,
    plan::{Plan, write},
    provider::{Phase, Provider, catalog::Catalog, embedded, payload},
};
use serde_json::{Value, json};

use crate::lab::repository;

type Meaning = BTreeMap<String, Value>;

/// A platform of the catalog.
pub(crate) struct Platform {
    /// Its name: that of its contract's file, if it has one.
    pub(crate) name: String,
    status: Value,
    /// Its contract, if the Go operator knows it.
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

const DEPLOYMENT: &str = "Deployment/";
const NODE_MANAGER: &str = "DaemonSet/";
const NO_SHELL: &str = "no shell and no host path: the API server's endpoint is a fact";

/// One intended difference between the contract and our objects.
struct Difference {
    /// The prefix of the names of the objects that have it; all of them must.
    objects: &'static str,
    key: String,
    /// Our value; `None`: absent.
    ours: Option<Value>,
    why: &'static str,
}

impl Difference {
    fn changed(objects: &'static str, key: &str, ours: Value, why: &'static str) -> Self {
        Self { objects, key: key.to_owned(), ours: Some(ours), why }
    }

    fn gone(objects: &'static str, key: &str, why: &'static str) -> Self {
        Self { objects, key: key.to_owned(), ours: None, why }
    }
}

/// The differences of every platform, except one that Azure cannot have.
fn everywhere(platform: &Known) -> Vec<Difference> {
    let probed = "probed and scraped on the secure port";
    let tolerated = "control planes are tainted under both names; Cluster API taints as well";
    let ccm = |key: &str| format!("containers[cloud-controller-manager] {key}");
    let mut all = vec![
        // IBM's clouds do not set it; the default is the same port.
        Difference::changed(DEPLOYMENT, &ccm("arg:--secure-port"), json!("10258"), probed),
        Difference::gone(DEPLOYMENT, &ccm("mount:/etc/kubernetes"), NO_SHELL),
        Difference::changed(
            DEPLOYMENT,
            "toleration:node-role.kubernetes.io/control-plane/Exists/NoSchedule/None",
            json!(true),
            tolerated,
        ),
        Difference::changed(
            DEPLOYMENT,
            "toleration:node.cluster.x-k8s.io/uninitialized/Exists/NoSchedule/None",
            json!(true),
            tolerated,
        ),
        Difference::changed(DEPLOYMENT, &ccm("startupProbe"), json!("/healthz"), probed),
        Difference::changed(DEPLOYMENT, &ccm("livenessProbe"), json!("/healthz"), probed),
    ];
    // Azure's has neither webhooks nor the flag.
    if !platform.name.starts_with("Azure") {
        let why = "otherwise it binds 10260, which nothing uses";
        all.push(Difference::changed(DEPLOYMENT, &ccm("arg:--webhook-secure-port"), json!("0"), why));
    }
    all.extend(confined(DEPLOYMENT, "containers[cloud-controller-manager]"));
    all.extend(endpoint(DEPLOYMENT, "containers[cloud-controller-manager]"));
    all.push(seccomp(DEPLOYMENT));
    all
}

/// The differences of both kinds of Azure.
fn of_azure() -> Vec<Difference> {
    let one_user = "every container can read the merged configuration, whatever its mode";
    let mut all = vec![loopback(), seccomp(NODE_MANAGER)];
    all.extend(confined(NODE_MANAGER, "containers[cloud-node-manager]"));
    all.extend(endpoint(NODE_MANAGER, "containers[cloud-node-manager]"));
    for objects in [DEPLOYMENT, NODE_MANAGER] {
        all.extend(confined(objects, "initContainers[azure-inject-credentials]"));
        for (field, value) in [("runAsNonRoot", json!(true)), ("runAsUser", json!(65532)), ("runAsGroup", json!(65532))]
        {
            all.push(Difference::changed(objects, &format!("pod:/securityContext/{field}"), value, one_user));
        }
    }
    all
}

fn confined(objects: &'static str, container: &str) -> [Difference; 4] {
    let why = "confined: no privilege, no capability, a read-only root with an emptyDir at /tmp";
    [
        Difference::changed(objects, &format!("{container} mount:/tmp"), json!("emptyDir  []"), why),
        Difference::changed(objects, &format!("{container} readOnlyRootFilesystem"), json!(true), why),
        Difference::changed(objects, &format!("{container} allowPrivilegeEscalation"), json!(false), why),
        Difference::changed(objects, &format!("{container} capabilities/drop/0"), json!("ALL"), why),
    ]
}

fn seccomp(objects: &'static str) -> Difference {
    let field = "pod:/securityContext/seccompProfile/type";
    Difference::changed(
        objects,
        field,
        json!("RuntimeDefault"),
        "confined: the runtime's default filter of system calls",
    )
}

fn endpoint(objects: &'static str, container: &str) -> [Difference; 2] {
    let variable = |name: &str, value: &str| {
        Difference::changed(objects, &format!("{container} env:{name}"), json!(value), NO_SHELL)
    };
    [variable("KUBERNETES_SERVICE_HOST", "api-int.lab.example.com"), variable("KUBERNETES_SERVICE_PORT", "6443")]
}

/// The Go operator binds the CCM to an address that cannot be probed or scraped.
fn loopback() -> Difference {
    let argument = "containers[cloud-controller-manager] arg:--bind-address";
    Difference::gone(DEPLOYMENT, argument, "probed and scraped on the secure port, on every address")
}

/// The Go operator passes an empty list of feature gates.
fn no_gates() -> Difference {
    let argument = "containers[cloud-controller-manager] arg:--feature-gates";
    Difference::gone(DEPLOYMENT, argument, "no gate that a cloud-controller-manager knows, no argument")
}

/// The known platforms, and one for each provider of the catalog that serves none of them.
pub(crate) fn platforms(catalog: &Catalog) -> Result<Vec<Platform>> {
    let known = KNOWN.iter().map(|known| Platform {
        name: known.name.to_owned(),
        status: (known.status)(),
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
fn unknown(provider: &Provider) -> Platform {
    let served = &provider.descriptor.platform;
    let mut status = json!({"type": served.type_});
    if let Some(name) = &served.cloud_name {
        status["azure"] = json!({"cloudName": name});
    }
    Platform { name: provider.name().to_owned(), status, known: None }
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

/// The images of the contract, and those of other providers by their tag.
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

/// Every platform's name and `platformStatus`.
pub(crate) fn statuses() -> impl Iterator<Item = (&'static str, Value)> {
    PLATFORMS.iter().map(|platform| (platform.name.as_str(), platform.status.clone()))
}

/// The facts of a cluster on a platform.
pub(crate) fn facts(
    catalog: &Catalog,
    platform: &Platform,
    documents: Documents,
    settings: &Settings,
) -> Result<Facts> {
    let images = Images::parse(&images_of(catalog), "images.json");
    let infrastructure = Some(serde_json::from_value(json!({"status": {
        "platformStatus": platform.status,
        "infrastructureName": "lab-x7k2p",
        "controlPlaneTopology": "HighlyAvailable",
        "apiServerInternalURI": "https://api-int.lab.example.com:6443",
    }}))?);
    Ok(Facts { images, ..Documents { infrastructure, ..documents }.facts(settings) })
}

/// The facts of a cluster that has nothing but its Infrastructure.
fn plain_facts(catalog: &Catalog, platform: &Platform, namespace: &str) -> Result<Facts> {
    facts(catalog, platform, Documents::default(), &Settings { namespace: namespace.to_owned(), ..Settings::default() })
}

/// An object in the words of the contract.
fn meaning(object: &Object) -> Meaning {
    let value = object.value();
    let mut meaning = Meaning::new();
    let mut say = |key: String, value: Value| drop(meaning.insert(key, value));
    for (prefix, of) in [("label", "labels"), ("annotation", "annotations")] {
        for (name, text) in members(&value["metadata"][of]) {
            say(format!("{prefix}:{name}"), text.clone());
        }
    }
    if let Some(pod) = object.pod_spec() {
        let template = &value["spec"]["template"]["metadata"];
        for (name, label) in members(&template["labels"]) {
            say(format!("podlabel:{name}"), label.clone());
        }
        for (name, annotation) in members(&template["annotations"]) {
            say(format!("podannotation:{name}"), annotation.clone());
        }
        for field in
            ["affinity", "hostNetwork", "nodeSelector", "priorityClassName", "serviceAccountName", "securityContext"]
        {
            leaves(&format!("pod:/{field}"), &pod[field], &mut say);
        }
        for toleration in items(&pod["tolerations"]) {
            let text = |field: &str| toleration[field].as_str().unwrap_or("None").to_owned();
            let seconds =
                toleration["tolerationSeconds"].as_i64().map_or("None".to_owned(), |seconds| seconds.to_string());
            say(format!("toleration:{}/{}/{}/{seconds}", text("key"), text("operator"), text("effect")), json!(true));
        }
        for field in ["replicas", "selector", "strategy", "updateStrategy"] {
            leaves(&format!("spec:/{field}"), &value["spec"][field], &mut say);
        }
        for list in ["initContainers", "containers"] {
            for container in items(&pod[list]) {
                container_meaning(list, container, pod, &mut say);
            }
        }
    } else {
        leaves("/spec", &value["spec"], &mut say);
        leaves("/roleRef", &value["roleRef"], &mut say);
        leaves("/subjects", &value["subjects"], &mut say);
        for rule in items(&value["rules"]) {
            rule_meaning(rule, &mut say);
        }
    }
    meaning
}

fn rule_meaning(rule: &Value, say: &mut impl FnMut(String, Value)) {
    let texts = |field: &str| items(&rule[field]).iter().map(|item| item.as_str().unwrap().to_owned());
    let names = texts("resourceNames").collect::<Vec<_>>().join(",");
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            for verb in texts("verbs") {
                say(format!("rule:{group}/{resource}[{names}] {verb}"), json!(true));
            }
        }
    }
}

fn container_meaning(list: &str, container: &Value, pod: &Value, say: &mut impl FnMut(String, Value)) {
    let prefix = format!("{list}[{}]", container["name"].as_str().unwrap());
    say(format!("{prefix} image"), container["image"].clone());
    say(format!("{prefix} exe"), container["command"][0].clone());
    for argument in items(&container["args"]) {
        // A flag without a value is a Boolean that is set.
        let argument = argument.as_str().unwrap();
        let (name, value) = argument.split_once('=').unwrap_or((argument, "true"));
        say(format!("{prefix} arg:--{}", name.trim_start_matches('-')), json!(value));
    }
    for variable in items(&container["env"]) {
        let field = variable["valueFrom"]["fieldRef"]["fieldPath"].as_str();
        let value = match field {
            Some(path) => json!(format!("{{'fieldRef': {{'apiVersion': 'v1', 'fieldPath': '{path}'}}}}")),
            None => variable["value"].clone(),
        };
        say(format!("{prefix} env:{}", variable["name"].as_str().unwrap()), value);
    }
    for mount in items(&container["volumeMounts"]) {
        let volume = items(&pod["volumes"]).iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        say(format!("{prefix} mount:{}", mount["mountPath"].as_str().unwrap()), json!(source(volume)));
    }
    for (resource, quantity) in members(&container["resources"]["requests"]) {
        say(format!("{prefix} requests/{resource}"), quantity.clone());
    }
    for (resource, quantity) in members(&container["resources"]["limits"]) {
        say(format!("{prefix} limits/{resource}"), quantity.clone());
    }
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let path = &container[probe]["httpGet"]["path"];
        if !path.is_null() {
            say(format!("{prefix} {probe}"), path.clone());
        }
    }
    leaves(&prefix, &container["securityContext"], &mut |path, value| say(path.replacen("]/", "] ", 1), value));
}

/// Where a volume's files come from, and which of them, as `kind name [files]`.
fn source(volume: &Value) -> String {
    let files = |source: &Value| {
        let keys = items(&source["items"])
            .iter()
            .map(|item| format!("('{}', '{}')", item["key"].as_str().unwrap(), item["path"].as_str().unwrap()));
        keys.collect::<Vec<_>>().join(", ")
    };
    if let Some(name) = volume["configMap"]["name"].as_str() {
        return format!("configMap {name} [{}]", files(&volume["configMap"]));
    }
    if let Some(name) = volume["secret"]["secretName"].as_str() {
        return format!("secret {name} [{}]", files(&volume["secret"]));
    }
    if let [source] = items(&volume["projected"]["sources"]) {
        let token = &source["serviceAccountToken"];
        let fields: Vec<_> = members(token).map(|(name, value)| format!("'{name}': {value}")).collect();
        let text = format!("{{'serviceAccountToken': {{{}}}}}", fields.join(", ")).replace('"', "'");
        return format!("projected  [\"{text}\"]");
    }
    assert!(volume["emptyDir"].is_object(), "a source that the contract has no word for: {volume}");
    "emptyDir  []".to_owned()
}

fn leaves(path: &str, value: &Value, say: &mut impl FnMut(String, Value)) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| leaves(&format!("{path}/{name}"), value, say));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| leaves(&format!("{path}/{index}"), value, say));
        }
        Value::Null => {}
        scalar => say(path.to_owned(), scalar.clone()),
    }
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
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

/// Plans every platform, and compares the plans with their snapshots. A known platform must have them.
#[expect(clippy::print_stderr, reason = "a test without a snapshot reports that")]
pub(crate) fn check_plans(catalog: &Catalog, phase: Phase) -> Result<()> {
    for platform in platforms(catalog)? {
        let prefix = if phase == Phase::Cluster { "plan" } else { "bootstrap" };
        let name = format!("{prefix}_{}", platform.name);
        let plan = plan(catalog, &platform, DEFAULT_NAMESPACE, phase)?;
        ensure!(matches!(plan, Plan::Objects { .. }), "{}: no provider serves it", platform.name);
        let file = repository().join(format!("tests/it/snapshots/it__contract__{name}.snap"));
        if platform.is_known() || file.is_file() || std::env::var_os("INSTA_UPDATE").is_some() {
            insta::assert_snapshot!(name, write::stream(plan.objects())?);
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
