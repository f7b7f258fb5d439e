//! What is kept of the sets that clouds publish, as `tests/published/` has them.

use serde_json::{Value, json};

use super::{CLUSTER, Found, catalog, proposed, put, with};
use crate::{
    object::{Object, items, reference::Reference},
    plan::Plan,
    proposal::proposed::{Handling, ProposedCcm},
    text::yaml,
};

/// The value of every Secret that a set has.
const SECRET: &str = "s3cret-of-the-cloud";

const SETS: [(&str, &str); 8] = [
    ("azure-chart", include_str!("../../../tests/published/azure-chart.yaml")),
    ("digitalocean", include_str!("../../../tests/published/digitalocean.yaml")),
    ("hcloud", include_str!("../../../tests/published/hcloud.yaml")),
    ("hcloud-chart", include_str!("../../../tests/published/hcloud-chart.yaml")),
    ("linode-chart", include_str!("../../../tests/published/linode-chart.yaml")),
    ("openstack", include_str!("../../../tests/published/openstack.yaml")),
    ("scaleway", include_str!("../../../tests/published/scaleway.yaml")),
    ("vultr", include_str!("../../../tests/published/vultr.yaml")),
];

/// A set: the workload of the cloud-controller-manager, the other workloads, and its ConfigMaps and Secrets.
pub(super) struct Set {
    ccm: Value,
    pub(super) others: Vec<Value>,
    pub(super) found: Found,
}

impl Set {
    pub(super) fn of(name: &str) -> Self {
        let (_, text) = SETS.iter().find(|(known, _)| *known == name).unwrap();
        let (mut workloads, mut found) = (Vec::new(), Found::new());
        for one in yaml::documents(text).unwrap() {
            let (kind, metadata) = (one["kind"].as_str().unwrap(), &one["metadata"]);
            let (namespace, name) =
                (metadata["namespace"].as_str().unwrap_or_default(), metadata["name"].as_str().unwrap());
            let data = match kind {
                "Secret" => &one["stringData"],
                "ConfigMap" => &one["data"],
                "Deployment" | "DaemonSet" => {
                    workloads.push(one.clone());
                    continue;
                }
                _ => continue,
            };
            put(&mut found, kind, namespace, name, data);
            let map = Reference::config_map(namespace, name);
            let reference = if kind == "Secret" { Reference::secret(namespace, name) } else { map };
            found.get_mut(&reference).unwrap()["metadata"] = metadata.clone();
        }
        let ccm = workloads.remove(0);
        Self { ccm, others: workloads, found }
    }

    pub(super) fn pod(&mut self) -> &mut Value {
        &mut self.ccm["spec"]["template"]["spec"]
    }

    pub(super) fn container(&mut self) -> &mut Value {
        &mut self.pod()["containers"][0]
    }

    /// The list of its arguments.
    pub(super) fn arguments(&mut self) -> &mut Vec<Value> {
        self.container()["args"].as_array_mut().unwrap()
    }

    /// Gives the container another value of a variable, or one more.
    fn set(&mut self, variable: &Value) {
        let all = self.container()["env"].as_array_mut().unwrap();
        all.retain(|one| one["name"] != variable["name"]);
        all.push(variable.clone());
    }

    pub(super) fn proposed(&self) -> ProposedCcm {
        proposed(&self.ccm, &self.found)
    }
}

/// The parts with this result.
pub(super) fn parts(proposed: &ProposedCcm, result: Handling) -> Vec<&str> {
    let all = proposed.migration_results.iter().filter(|entry| entry.result == result);
    all.map(|entry| entry.what.as_str()).collect()
}

fn is_planned(proposed: &ProposedCcm) -> bool {
    Plan::of_ccm(&catalog(), &proposed.ccm(CLUSTER).unwrap()).is_ok()
}

#[test]
fn an_unchanged_set_loses_only_what_the_operator_cannot_do() {
    for (name, _) in SETS {
        let (kept, is_azure) = (Set::of(name).proposed(), name == "azure-chart");
        let expected: &[&str] = if is_azure {
            &[
                "--allocate-node-cidrs=true, the controller of the nodes' pod subnets",
                "volume azure-identity-token (a token of its ServiceAccount)",
            ]
        } else {
            &[]
        };
        assert_eq!(parts(&kept, Handling::NotKept), expected, "{name}");
        let to_do: &[&str] =
            if is_azure { &["the file /etc/kubernetes/azure.json of the machine (--cloud-config)"] } else { &[] };
        assert_eq!(parts(&kept, Handling::ToDo), to_do, "{name}");
        assert_eq!(is_planned(&kept), !is_azure, "{name}");
        assert!(!format!("{:?}", kept.migration_results).contains(SECRET), "{name}");
    }
}

#[test]
fn routes_are_on_only_if_the_switch_of_the_cloud_has_them_on() {
    let network = json!({"podCIDRs": ["10.42.0.0/16"]});
    let robot = Set::of("hcloud-chart").proposed();
    assert_eq!((&robot.spec["controllers"], &robot.spec["network"]), (&Value::Null, &network));
    let line = "variable HCLOUD_NETWORK_ROUTES_ENABLED=false -> spec.controllers.route: Disabled".to_owned();
    assert!(with(&robot, Handling::Kept).contains(&line), "{:?}", robot.migration_results);
    assert_eq!(Set::of("hcloud").proposed().spec["controllers"]["route"], "Enabled", "the variable is absent");
    let mut hidden = Set::of("hcloud");
    hidden.set(
        &json!({"name": "HCLOUD_NETWORK_ROUTES_ENABLED", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}),
    );
    let hidden = hidden.proposed();
    assert_eq!(hidden.spec["controllers"], Value::Null);
    assert_eq!(parts(&hidden, Handling::NotKept), ["variable HCLOUD_NETWORK_ROUTES_ENABLED"]);

    let mut linode = Set::of("linode-chart");
    assert_eq!(linode.proposed().spec["controllers"]["route"], "Enabled");
    linode.arguments().retain(|one| one != "--enable-route-controller=true");
    let without = linode.proposed();
    assert_eq!(without.spec["controllers"], Value::Null, "its default is false");
    let line = "no --enable-route-controller -> spec.controllers.route: Disabled".to_owned();
    assert!(with(&without, Handling::Kept).contains(&line), "{:?}", without.migration_results);
    linode.arguments().retain(|one| !one.as_str().unwrap().starts_with("--vpc-") && one != "--subnet-names=nodes");
    assert!(is_planned(&linode.proposed()), "without routes it needs no VPC");
}

#[test]
fn a_value_with_a_space_is_kept_whole() {
    let kept = Set::of("linode-chart").proposed();
    assert_eq!(kept.spec["arguments"]["--nodebalancer-tags"], "prod team-a");
}

#[test]
fn a_reference_to_a_variable_is_filled_in_or_reported_and_never_kept() {
    let of = |kind: &str| json!({"name": "VPC", "valueFrom": {kind: {"name": "vpc", "key": "name"}}});
    let mut set = Set::of("linode-chart");
    put(&mut set.found, "ConfigMap", "kube-system", "vpc", &json!({"name": "prod"}));
    put(&mut set.found, "Secret", "kube-system", "vpc", &json!({"name": SECRET}));
    set.arguments().retain(|one| one != "--vpc-names=prod");
    set.arguments().extend([json!("--vpc-names=$(VPC)"), json!("--cluster-name=$(VPC)")]);
    set.set(&of("configMapKeyRef"));
    let filled = set.proposed();
    assert_eq!(
        (&filled.spec["clusterName"], &filled.spec["arguments"]["--vpc-names"]),
        (&json!("prod"), &json!("prod"))
    );
    set.set(&of("secretKeyRef"));
    let open = set.proposed();
    assert_eq!(parts(&open, Handling::NotKept), ["--cluster-name=$(VPC)", "--vpc-names=$(VPC)"]);
    assert_eq!((open.spec.get("clusterName"), open.spec["arguments"].get("--vpc-names")), (None, None));
    assert!(!format!("{:?}", open.migration_results).contains(SECRET));

    // A shell replaces more.
    let container = set.container();
    container["command"] = json!(["/bin/sh", "-c", "exec /ccm --cloud-provider=linode --vpc-names=\"$NAMES\""]);
    container["args"] = Value::Null;
    assert_eq!(parts(&set.proposed(), Handling::NotKept), ["--vpc-names=$NAMES", "variable VPC"]);
}

#[test]
fn flags_that_only_node_ipam_reads_are_lost_only_with_it() {
    let mut set = Set::of("linode-chart");
    set.arguments().push(json!("--node-cidr-mask-size-ipv4=25"));
    assert_eq!(parts(&set.proposed(), Handling::Unused), ["--node-cidr-mask-size-ipv4=25"]);
    set.arguments().push(json!("--allocate-node-cidrs=true"));
    let lost = with(&set.proposed(), Handling::NotKept).join("\n");
    assert!(lost.contains("--node-cidr-mask-size-ipv4=25 -> ") && lost.contains("Linode's IPv6 range"), "{lost}");
}

#[test]
fn what_no_node_and_no_load_balancer_depends_on_is_harmless() {
    let mut linode = Set::of("linode-chart");
    linode.arguments().extend([json!("--load-balancer-type=nodebalancer"), json!("--allow-untagged-cloud")]);
    let kept = linode.proposed();
    assert_eq!(parts(&kept, Handling::Unused), ["--allow-untagged-cloud=true", "--load-balancer-type=nodebalancer"]);
    linode
        .arguments()
        .extend([json!("--load-balancer-type=cilium-bgp"), json!("--kubeconfig=/etc/kubernetes/ccm.conf")]);
    linode.set(&json!({"name": "LINODE_URL", "value": "https://api.example.com"}));
    let lost = with(&linode.proposed(), Handling::NotKept).join("\n");
    for part in [
        "--load-balancer-type=cilium-bgp -> provider linode does not allow it in spec.arguments: v0.9.8 and newer",
        "--kubeconfig=/etc/kubernetes/ccm.conf -> provider linode does not allow it in spec.arguments: the pods connect",
        "hostPath /etc/kubernetes -> not mounted, although --kubeconfig names /etc/kubernetes/ccm.conf",
        "variable LINODE_URL -> provider linode has no such variable: requests go to the public API",
    ] {
        assert!(lost.contains(part), "{part}: {lost}");
    }
    assert_eq!(parts(&Set::of("vultr").proposed(), Handling::Unused), ["--allow-untagged-cloud=true"]);
}

#[test]
fn a_variable_that_turns_load_balancers_off_turns_the_controller_off() {
    for (name, variable, value, expected) in [
        ("hcloud", "HCLOUD_LOAD_BALANCERS_ENABLED", "F", json!({"route": "Enabled", "service": "Disabled"})),
        ("hcloud", "HCLOUD_LOAD_BALANCERS_ENABLED", "true", json!({"route": "Enabled"})),
        ("scaleway", "DISABLE_INTERFACES", "zones,LoadBalancer", json!({"service": "Disabled"})),
        ("scaleway", "DISABLE_INTERFACES", "zones", Value::Null),
        (
            "scaleway",
            "DISABLE_INTERFACES",
            "instances",
            json!({"cloudNode": "Disabled", "cloudNodeLifecycle": "Disabled"}),
        ),
    ] {
        let mut set = Set::of(name);
        if set.container()["env"].is_array() {
            set.set(&json!({"name": variable, "value": value}));
        } else {
            let data =
                json!({"SCW_ACCESS_KEY": "a", "SCW_SECRET_KEY": "b", "SCW_DEFAULT_REGION": "c", variable: value});
            put(&mut set.found, "Secret", "kube-system", "scaleway-secret", &data);
        }
        let kept = set.proposed();
        assert_eq!(kept.spec["controllers"], expected, "{variable}={value}");
        assert!(parts(&kept, Handling::NotKept).is_empty(), "{:?}", kept.migration_results);
        let kept = with(&kept, Handling::Kept).join("\n");
        assert!(kept.contains(&format!("variable {variable}")), "{kept}");
    }
}

/// Linode's, with the token in a file of a Secret of the user, by this key.
fn token_in_a_file(key: &str) -> Set {
    let mut set = Set::of("linode-chart");
    let data = json!({"apiToken": "one", "token": "other", "region": "eu", "stale": "one\n"});
    put(&mut set.found, "Secret", "kube-system", "ccm-linode", &data);
    set.container()["env"].as_array_mut().unwrap().retain(|one| one["name"] != "LINODE_API_TOKEN");
    set.set(&json!({"name": "LINODE_API_TOKEN_FILE", "value": "/var/run/secrets/linode/api-token"}));
    let mount = json!({"name": "token", "mountPath": "/var/run/secrets/linode"});
    set.container()["volumeMounts"].as_array_mut().unwrap().push(mount);
    let items = json!([{"key": key, "path": "api-token"}]);
    let volume = json!({"name": "token", "secret": {"secretName": "ccm-linode", "items": items}});
    set.pod()["volumes"].as_array_mut().unwrap().push(volume);
    set
}

#[test]
fn a_secret_is_referred_to_only_if_its_keys_hold_the_values_in_use() {
    let kept = token_in_a_file("apiToken").proposed();
    assert_eq!(kept.spec["credentials"]["secretRef"]["name"], "ccm-linode");
    for result in [Handling::ToDo, Handling::NotKept] {
        assert_eq!(with(&kept, result), [""; 0]);
    }
    // The program omits the line break at the end of a file.
    for (key, expected) in [("token", Some(json!("b3RoZXI="))), ("stale", None)] {
        let copied = token_in_a_file(key).proposed().secret.map(|secret| secret.manifest()["data"]["apiToken"].clone());
        assert_eq!(copied, expected, "{key}");
    }

    let mut set = Set::of("hcloud");
    let data = json!({"token": "one", "token2": "other", "network": "net"});
    put(&mut set.found, "Secret", "kube-system", "hcloud", &data);
    set.set(&json!({"name": "HCLOUD_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hcloud", "key": "token2"}}}));
    let kept = set.proposed();
    assert_eq!(kept.spec["credentials"]["secretRef"]["name"], "new-secret");
    assert_eq!(kept.secret.unwrap().manifest()["data"]["token"], "b3RoZXI=");
}

#[test]
fn what_a_migration_says_of_a_setting_contradicts_no_other_field() {
    for provider in catalog().kubernetes() {
        let descriptor = &provider.descriptor;
        let pods = provider.manifests.iter().filter_map(Object::pod_spec);
        let set = pods.flat_map(|pod| items(&pod["containers"])).flat_map(|one| items(&one["env"]));
        let set: Vec<_> = set.filter_map(|variable| variable["name"].as_str()).collect();
        let known = descriptor.migration.harmless.keys().chain(descriptor.migration.lost.keys());
        for name in known.chain(descriptor.migration.switches.keys()) {
            assert!(!descriptor.allowed_environment.contains(name), "{}: {name} is allowed", descriptor.name);
            assert!(!set.contains(&name.as_str()), "{}: {name} is set", descriptor.name);
            // A node manager has flags of its own.
            let is_allowed = descriptor.allowed_arguments.contains(name) && descriptor.node_manager.is_none();
            assert!(!is_allowed, "{}: {name} is allowed", descriptor.name);
        }
    }
}
