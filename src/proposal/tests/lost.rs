//! The files, the fields of pods and the node managers of published sets, which are reported where they are lost.

use serde_json::{Value, json};

use super::{
    catalog, existing,
    published::{Set, parts},
    put, with,
};
use crate::proposal::{
    existing::Existing,
    keep_node_manager, keep_pod,
    proposed::{Handling, ProposedCcm},
};

#[test]
fn a_file_that_the_configuration_names_is_not_lost_in_silence() {
    let mut set = Set::of("openstack");
    let config = "[Global]\nauth-url = https://keystone:5000/v3\nca-file=/etc/config/ca.cert\n";
    put(&mut set.found, "Secret", "kube-system", "cloud-config", &json!({"cloud.conf": config, "ca.cert": "x"}));
    let lost = "volume cloud-config-volume (Secret kube-system/cloud-config), further keys ca.cert";
    let named = set.proposed();
    assert_eq!(parts(&named, Handling::NotKept), [lost]);
    assert!(with(&named, Handling::NotKept)[0].ends_with("although the configuration names /etc/config/ca.cert"));
    assert_eq!(named.spec["cloudConfig"], json!({"secretRef": {"name": "cloud-config", "key": "cloud.conf"}}));
    put(&mut set.found, "Secret", "kube-system", "cloud-config", &json!({"cloud.conf": "[Global]", "ca.cert": "x"}));
    let unnamed = set.proposed();
    assert!(parts(&unnamed, Handling::NotKept).is_empty() && parts(&unnamed, Handling::Changed).contains(&lost));

    let in_certificates = config.replace("/etc/config/ca.cert", "/etc/ssl/certs/own.pem");
    put(&mut set.found, "Secret", "kube-system", "cloud-config", &json!({"cloud.conf": in_certificates}));
    assert_eq!(parts(&set.proposed(), Handling::NotKept), ["hostPath /etc/ssl/certs"]);
}

#[test]
fn a_projected_volume_is_kept_only_with_its_keys() {
    let mut set = Set::of("openstack");
    let config = "[Global]\nca-file=/etc/config/ca.cert\n";
    put(&mut set.found, "Secret", "kube-system", "cloud-config", &json!({"cloud.conf": config, "ca.cert": "x"}));
    let volume = |keys: Value| {
        let items: Vec<_> = keys.as_array().unwrap().iter().map(|key| json!({"key": key, "path": key})).collect();
        json!({"name": "cloud-config-volume", "projected": {"sources": [{"secret": {"name": "cloud-config", "items": items}}]}})
    };
    let mut lost = |keys: Value| {
        let volumes = set.pod()["volumes"].as_array_mut().unwrap();
        let place = volumes.iter_mut().find(|one| one["name"] == "cloud-config-volume").unwrap();
        *place = volume(keys);
        let found = set.proposed();
        parts(&found, Handling::NotKept).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lost(json!(["cloud.conf"])), [""; 0]);
    assert_eq!(lost(json!(["cloud.conf", "ca.cert"])), ["volume cloud-config-volume"]);
}

#[test]
fn a_lease_that_the_api_does_not_show_is_none() {
    let mut set = Set::of("hcloud");
    set.container()["env"].as_array_mut().unwrap().extend([
        json!({"name": "LEASE", "valueFrom": {"secretKeyRef": {"name": "hcloud", "key": "lease"}}}),
        json!({"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}),
    ]);
    set.arguments().retain(|one| one != "--leader-elect=false");
    set.arguments().push(json!("--leader-elect-resource-namespace=$(POD_NAMESPACE)"));
    let shared = set.proposed();
    assert_eq!((shared.skips, shared.namespace()), (Some("other-ccm"), "kube-system"));
    assert!(parts(&shared, Handling::Kept).contains(&"lease kube-system/cloud-controller-manager"));
    let flags = |of: &ProposedCcm| {
        let lost = parts(of, Handling::NotKept).into_iter().filter(|what| what.starts_with("--"));
        lost.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(flags(&shared), [""; 0]);
    set.arguments().push(json!("--leader-elect-resource-name=$(LEASE)"));
    let unknown = set.proposed();
    assert_eq!(unknown.skips, None, "both would act");
    assert_eq!(
        flags(&unknown),
        ["--leader-elect-resource-name=$(LEASE)", "--leader-elect-resource-namespace=$(POD_NAMESPACE)"]
    );
}

#[test]
fn what_is_lowered_or_turned_off_has_one_line() {
    let mut set = Set::of("scaleway");
    set.arguments().push(json!("--v=10"));
    set.container()["env"] = json!([
        {"name": "DISABLE_INTERFACES", "value": "instances"},
        {"name": "HTTPS_PROXY", "valueFrom": {"configMapKeyRef": {"name": "proxy", "key": "https"}}},
    ]);
    let proposed = set.proposed();
    assert_eq!(proposed.spec["controllers"]["cloudNodeLifecycle"], "Disabled");
    let changed = parts(&proposed, Handling::Changed);
    assert!(
        changed.contains(&"--v=10") && changed.iter().all(|what| !what.contains("deletion of nodes")),
        "{changed:?}"
    );
    let to_do = with(&proposed, Handling::ToDo).join("\n");
    assert!(to_do.contains("spec.proxy.httpsProxy"), "{to_do}");
}

#[test]
fn azures_token_is_lost_only_if_the_configuration_may_name_it() {
    let mut set = Set::of("azure-chart");
    let folder = json!([
        {"name": "azure-identity-token", "mountPath": "/var/run/secrets/azure/tokens"}, {"name": "conf", "mountPath": "/etc/kubernetes"},
    ]);
    set.container()["volumeMounts"] = folder;
    set.pod()["volumes"].as_array_mut().unwrap().push(json!({"name": "conf", "secret": {"secretName": "azure"}}));
    let mut lost = |config: &str| {
        put(&mut set.found, "Secret", "kube-system", "azure", &json!({"azure.json": config}));
        let kept = set.proposed();
        parts(&kept, Handling::NotKept).into_iter().any(|what| what.starts_with("volume azure-identity-token"))
    };
    assert!(!lost(r#"{"cloud": "AzurePublicCloud"}"#));
    assert!(lost(r#"{"aadFederatedTokenFile":"/var/run/secrets/azure/tokens/azure-identity-token"}"#));
}

#[test]
fn a_file_comes_before_the_secret_that_only_reloading_reads() {
    let mut set = Set::of("azure-chart");
    set.arguments().push(json!("--cloud-config-secret-name=azure"));
    put(&mut set.found, "Secret", "kube-system", "azure", &json!({"cloud-config": "{}"}));
    let both = set.proposed();
    assert!(
        parts(&both, Handling::Unused).contains(&"--cloud-config-secret-name=azure"),
        "{:?}",
        both.migration_results
    );
    assert_eq!(both.spec.get("cloudConfig"), None);
    set.arguments().retain(|one| one != "--cloud-config=/etc/kubernetes/azure.json");
    set.arguments().extend([json!("--cloud-config="), json!("--enable-dynamic-reloading=true")]);
    let secret = set.proposed();
    assert_eq!(secret.spec["cloudConfig"], json!({"secretRef": {"name": "azure", "key": "cloud-config"}}));
    assert!(parts(&secret, Handling::Unused).contains(&"--enable-dynamic-reloading=true"));
}

#[test]
fn fields_of_the_pods_and_annotations_of_the_account_are_reported() {
    let mut set = Set::of("openstack");
    let pod = set.pod();
    pod["hostAliases"] = json!([{"ip": "10.0.0.1", "hostnames": ["keystone"]}]);
    pod["dnsConfig"] = json!({"nameservers": ["10.0.0.2"]});
    pod["dnsPolicy"] = json!("ClusterFirstWithHostNet");
    pod["initContainers"] = json!([{"name": "prepare"}]);
    pod["affinity"]["podAffinity"] = json!({});
    pod["volumes"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "vault", "csi": {"driver": "secrets-store.csi.k8s.io"}}));
    set.container()["volumeMounts"].as_array_mut().unwrap().push(json!({"name": "vault", "mountPath": "/vault"}));
    let mut kept = set.proposed();
    assert_eq!(parts(&kept, Handling::NotKept), ["hostAliases", "dnsConfig", "init container prepare", "volume vault"]);
    for part in ["dnsPolicy ClusterFirstWithHostNet", "affinity"] {
        assert!(parts(&kept, Handling::Changed).contains(&part), "{part}: {:?}", kept.migration_results);
    }
    kept.migration_results.clear();
    let annotations =
        json!({"eks.amazonaws.com/role-arn": "x", "example.com/a": "x", "meta.helm.sh/release-name": "x"});
    let metadata = json!({"name": "ccm", "namespace": "kube-system", "annotations": annotations});
    keep_pod::account(&mut kept, &json!({"metadata": metadata}));
    let name = "of ServiceAccount kube-system/ccm";
    assert_eq!(parts(&kept, Handling::NotKept), [format!("annotation eks.amazonaws.com/role-arn {name}")]);
    assert_eq!(parts(&kept, Handling::Changed), [format!("annotation example.com/a {name}")]);
}

/// Azure's node manager, with this change of its pods.
fn node_manager(change: impl FnOnce(&mut Value)) -> Existing {
    let mut live = Set::of("azure-chart").others.remove(0);
    change(&mut live["spec"]["template"]["spec"]);
    existing(&live).unwrap()
}

#[test]
fn the_settings_of_a_node_manager_are_reported() {
    let catalog = catalog();
    let azure = catalog.kubernetes_of("azure").unwrap();
    let settings = |manager: &Existing, route: &str| {
        let mut proposed = ProposedCcm::default();
        proposed.set("controllers.route", route);
        keep_node_manager::settings(&mut proposed, manager, azure);
        proposed
    };
    let of = "of DaemonSet kube-system/cloud-node-manager";
    let plain = node_manager(|_| {});
    assert!(plain.is_node_manager && plain.is_beside(azure));
    assert!(settings(&plain, "Disabled").migration_results.is_empty());
    let waits = settings(&plain, "Enabled");
    assert_eq!(parts(&waits, Handling::Changed), [format!("--wait-routes=false {of}")]);
    assert!(with(&waits, Handling::Changed)[0].contains("NetworkUnavailable until it has its route"));
    assert_eq!(waits.migration_results.len(), 1);

    let changed = node_manager(|pod| {
        let proxy = json!({"name": "health-probe-proxy", "image": "mcr.microsoft.com/oss/v2/kubernetes/azure-health-probe-proxy:v1.34.3"});
        let containers = pod["containers"].as_array_mut().unwrap();
        containers.insert(0, proxy);
        let arguments = containers[1]["args"].as_array_mut().unwrap();
        let more = [
            "--use-instance-metadata=false",
            "--cloud-config=/etc/kubernetes/azure.json",
            "--wait-routes=true",
            "--node-status-update-frequency=1m",
            "--tls-min-version=VersionTLS12",
            "--unknown=1",
        ];
        arguments.extend(more.map(Value::from));
        containers[1]["env"].as_array_mut().unwrap().push(json!({"name": "AZURE_CLIENT_ID", "value": "x"}));
        pod["nodeSelector"]["pool"] = json!("azure");
        pod["volumes"] = json!([{"name": "etc", "hostPath": {"path": "/etc/kubernetes"}}]);
    });
    assert!(changed.is_node_manager && changed.is_beside(azure), "the proxy is the first container: {}", changed.image);
    let settings = settings(&changed, "Disabled");
    let named = |what: &[&str]| what.iter().map(|what| format!("{what} {of}")).collect::<Vec<_>>();
    let lost = [
        "--unknown=1",
        "--use-instance-metadata=false",
        "variable AZURE_CLIENT_ID",
        "nodeSelector",
        "container health-probe-proxy",
    ];
    assert_eq!(parts(&settings, Handling::NotKept), named(&lost));
    let shown = with(&settings, Handling::NotKept).join("\n");
    assert!(shown.contains("come from their machine's metadata service") && shown.contains("probes"), "{shown}");
    assert_eq!(
        parts(&settings, Handling::Changed),
        named(&["--tls-min-version=VersionTLS12", "--wait-routes=true", "volume etc"])
    );
    let unused = ["--cloud-config=/etc/kubernetes/azure.json", "--node-status-update-frequency=1m"];
    assert_eq!(parts(&settings, Handling::Unused), named(&unused));
}
