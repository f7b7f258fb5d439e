#![allow(clippy::needless_pass_by_value, reason = "a literal reads best where it stands")]

use serde_json::json;

use super::*;
use crate::{
    facts::{Documents, Settings},
    provider::embedded,
};

fn preview(platform: &str, named: Value, config_map: Option<Value>) -> Result<Preview, Error> {
    let catalog = embedded::catalog().unwrap();
    let infrastructure = json!({"spec": {"cloudConfig": named}, "status": {"platformStatus": {"type": platform}}});
    let infrastructure = serde_json::from_value(infrastructure).unwrap();
    let facts = Documents { infrastructure, ..Documents::default() }.facts(&Settings::default());
    let settings = catalog.provider(&facts).unwrap().descriptor.cloud_config.clone().unwrap();
    Preview::new(&settings, &facts, config_map.as_ref())
}

#[test]
fn only_config_maps_that_the_cluster_reads_are_accepted() {
    let mine = json!({"name": "mine"});
    let user = "ConfigMap openshift-config/mine, key cloud.conf";
    let managed = "ConfigMap openshift-config-managed/kube-cloud-config, key cloud.conf";
    for (platform, named, metadata, expected) in [
        ("AWS", mine.clone(), json!({"name": "mine", "namespace": "openshift-config"}), Some(user)),
        ("AWS", mine.clone(), json!({"name": "mine"}), Some(user)),
        ("AWS", mine.clone(), json!({}), Some(user)),
        (
            "AWS",
            mine.clone(),
            json!({"name": "kube-cloud-config", "namespace": "openshift-config-managed"}),
            Some(managed),
        ),
        (
            "AWS",
            json!({}),
            json!({"name": "kube-cloud-config", "namespace": "openshift-config-managed"}),
            Some(managed),
        ),
        (
            "OpenStack",
            mine.clone(),
            json!({"name": "kube-cloud-config", "namespace": "openshift-config-managed"}),
            None,
        ),
        ("AWS", mine.clone(), json!({"name": "mine", "namespace": "openshift-config-managed"}), None),
        ("AWS", mine.clone(), json!({"name": "kube-cloud-config"}), None),
        ("AWS", mine, json!({"name": "other"}), None),
        ("AWS", json!({}), json!({"name": "other"}), None),
        ("AWS", json!({}), json!({}), None),
    ] {
        let what = format!("{platform} {named} {metadata}");
        let preview =
            preview(platform, named, Some(json!({"metadata": metadata, "data": {"cloud.conf": "[Global]\n"}})));
        match (preview, expected) {
            (Ok(preview), expected) => assert_eq!(Some(preview.from.as_str()), expected, "{what}"),
            (Err(error), None) if error.to_string().starts_with("the cluster would not read ConfigMap ") => {}
            (Err(error), _) => panic!("{what}: {error}"),
        }
    }
}

#[test]
fn a_diff_starts_from_the_original_key() {
    let config_map = |key: &str| json!({"data": {key: "[Global]\npassword = hunter2\nZone = a\n"}});
    let named = json!({"name": "mine", "key": "config"});
    let diff = preview("AWS", named.clone(), Some(config_map("config"))).unwrap().diff();
    let expected = "--- ConfigMap openshift-config/mine, key config\n+++ ConfigMap cloud-conf, key cloud.conf\n\
                    @@ -1,3 +1,4 @@\n [Global]\n password = ***\n Zone = a\n\
                    +ClusterServiceLoadBalancerHealthProbeMode = Shared\n\
                    # [Global] ClusterServiceLoadBalancerHealthProbeMode: \
                    health probes of load balancers are shared unless set otherwise\n";
    assert_eq!(diff, expected);

    let synced = preview("AWS", named.clone(), Some(config_map("config"))).unwrap().synced;
    let again = json!({"data": {"cloud.conf": synced.text()}});
    assert_eq!(preview("AWS", named, Some(again)).unwrap().diff(), "", "nothing changes twice");

    let none = preview("AWS", json!({}), None).unwrap();
    assert_eq!((none.from.as_str(), none.before.as_str()), ("no configuration", ""));
    assert!(none.diff().starts_with("--- no configuration\n"), "{}", none.diff());
}

#[test]
fn a_cluster_without_a_configuration_is_explained() {
    let error = |platform| preview(platform, json!({}), None).unwrap_err().to_string();
    assert!(error("Azure").contains("spec.cloudConfig.name is empty; set it"), "{}", error("Azure"));
}
