//! The command `instance-sweep`, with a stand-in for the API server.

use serde_json::Value;

use crate::{
    Cloud, Done,
    api_server::{ApiServer, Pods},
};

pub(crate) const SWEEP: [&str; 7] =
    ["instance-sweep", "--kubeconfig", "kubeconfig", "--owners", "pods", "--grace", "1ms"];

/// Instances of which each has another reason to be kept or deleted.
fn cloud_of_all_kinds() -> Cloud {
    let cloud = Cloud::new();
    cloud.create("gone", "uid-gone", &["--cluster-id", "this"]);
    cloud.create("alive", "uid-alive", &["--cluster-id", "this"]);
    cloud.create("other-cluster", "uid-other", &["--cluster-id", "other"]);
    cloud.create("no-cluster", "uid-none", &[]);
    cloud
}

fn sweep(cloud: &Cloud, server: &ApiServer, words: &[&str]) -> Done {
    server.write_kubeconfig(&cloud.path("kubeconfig"));
    cloud.run(&SWEEP.iter().chain(words).copied().collect::<Vec<_>>())
}

fn pages(pages: &[&[&'static str]]) -> Pods {
    Pods::Pages(pages.iter().map(|page| page.to_vec()).collect())
}

#[test]
fn a_dry_run_shows_the_reason_for_each_instance_and_deletes_nothing() {
    let cloud = cloud_of_all_kinds();
    let server = ApiServer::new(&["this"], &[pages(&[&["uid-1"], &["uid-alive"]])]);
    let done = sweep(&cloud, &server, &["-o", "json"]);
    assert!(done.code == Some(0) && done.stderr.contains("--yes"), "{done:?}");
    let rows: Value = serde_json::from_str(&done.stdout).unwrap();
    let row = |row: &Value| ["name", "action", "reason"].map(|field| row[field].as_str().unwrap().to_owned()).join(" ");
    let rows: Vec<_> = rows.as_array().unwrap().iter().map(row).collect();
    let expected = [
        "gone wouldDelete ownerGone",
        "alive keep ownerExists",
        "other-cluster keep otherCluster",
        "no-cluster keep noCluster",
    ];
    assert_eq!(rows, expected);
    assert_eq!(cloud.names().len(), 4);
    assert_eq!(server.lists().len(), 4, "two reads of two pages: {:?}", server.lists());
}

#[test]
fn only_what_has_lost_its_owner_in_both_reads_is_deleted() {
    let cloud = cloud_of_all_kinds();
    let server = ApiServer::new(&["this"], &[pages(&[&["uid-alive"]])]);
    let done = sweep(&cloud, &server, &["--yes"]);
    assert!(done.code == Some(0) && done.stdout.contains("its owner is gone"), "{done:?}");
    assert!(done.stderr.starts_with("deleting gone i-") && done.stderr.lines().count() == 1, "{done:?}");
    assert_eq!(cloud.names(), ["alive", "other-cluster", "no-cluster"]);
    for reads in [[&["uid-alive", "uid-gone"][..], &["uid-alive"]], [&["uid-alive"], &["uid-alive", "uid-gone"]]] {
        let cloud = cloud_of_all_kinds();
        let server = ApiServer::new(&["this"], &reads.map(|read| pages(&[read])));
        assert_eq!(sweep(&cloud, &server, &["--yes"]).code, Some(0));
        assert_eq!(cloud.names().len(), 4, "{reads:?}");
    }
}

#[test]
fn an_instance_that_has_changed_meanwhile_is_kept() {
    for (change, action) in [
        (r#""ccm-operator.dev/owner":"uid-alive""#, "changed"),
        (r#""ccm-operator.dev/cluster":"other""#, "changed"),
        ("", "deleted"),
    ] {
        let cloud = cloud_of_all_kinds();
        let server = ApiServer::new(&["this"], &[pages(&[&["uid-alive"]])]);
        let file = cloud.file();
        server.before_second_read(move || {
            let mut state: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            let labels = state["instances"][0]["labels"].as_object_mut().unwrap();
            labels.extend(serde_json::from_str::<serde_json::Map<_, _>>(&format!("{{{change}}}")).unwrap());
            std::fs::write(&file, state.to_string()).unwrap();
        });
        let done = sweep(&cloud, &server, &["--yes", "-o", "json"]);
        let rows: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(rows[0]["action"], action, "{done:?}");
        assert_eq!(cloud.names().contains(&"gone".to_owned()), action == "changed");
    }
}

#[test]
fn a_list_that_fails_or_is_not_whole_ends_the_sweep() {
    let good = || pages(&[&["uid-alive"]]);
    for (reads, code) in [
        (vec![Pods::FailsWith(403)], 13),
        (vec![good(), Pods::FailsWith(403)], 13),
        (vec![Pods::FailsWith(401)], 12),
        (vec![good(), Pods::FailsWith(410)], 20),
        (vec![good(), Pods::FailsWith(404)], 20),
        (vec![good(), Pods::FailsWith(500)], 19),
        (vec![good(), Pods::FailsWith(503)], 19),
        // Without a UID.
        (
            vec![
                good(),
                Pods::Raw(r#"{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}]}"#),
            ],
            20,
        ),
        (vec![Pods::Raw(r#"{"kind": "Status", "apiVersion": "v1", "status": "Success"}"#)], 20),
        (vec![Pods::Raw(r#"{"kind": "Status", "apiVersion": "v1", "items": []}"#)], 20),
        (vec![Pods::Raw(r#"{"kind": "ConfigMapList", "apiVersion": "v1", "items": []}"#)], 20),
        (vec![Pods::Raw(r#"{"items": []}"#)], 20),
        (
            vec![Pods::Raw(
                r#"{"kind": "PodList", "apiVersion": "v1", "items": [{"kind": "Job", "apiVersion": "batch/v1", "metadata": {"uid": "1"}}]}"#,
            )],
            20,
        ),
        (
            vec![Pods::Raw(
                r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {"remainingItemCount": 1}, "items": []}"#,
            )],
            20,
        ),
        (
            vec![Pods::Raw(
                r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": "again"}, "items": []}"#,
            )],
            20,
        ),
    ] {
        let cloud = cloud_of_all_kinds();
        let server = ApiServer::new(&["this"], &reads);
        let line = sweep(&cloud, &server, &["--yes", "--all"]).bad(code);
        assert!(line.contains("failed to list pods"), "{line}");
        assert_eq!(cloud.names().len(), 4);
    }
}

#[test]
fn another_cluster_in_one_of_both_reads_deletes_nothing() {
    for ids in [["this", "this", "that"], ["that", "that", "this"]] {
        let cloud = cloud_of_all_kinds();
        let server = ApiServer::new(&ids, &[pages(&[&["uid-alive"]])]);
        assert_eq!(sweep(&cloud, &server, &["--yes", "--all"]).code, Some(0));
        assert_eq!(cloud.names().len(), 4, "{ids:?}");
    }
}

#[test]
fn an_empty_list_may_be_null() {
    let cloud = cloud_of_all_kinds();
    let null = r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {"remainingItemCount": 0}, "items": null}"#;
    let server = ApiServer::new(&["this"], &[Pods::Raw(null)]);
    assert_eq!(sweep(&cloud, &server, &["--yes", "--all"]).code, Some(0));
    assert_eq!(cloud.names(), ["other-cluster", "no-cluster"]);
}

#[test]
fn another_namespace_than_the_one_of_the_cluster_ends_the_sweep() {
    let cloud = cloud_of_all_kinds();
    let server = ApiServer::new(&["this/default"], &[pages(&[&[]])]);
    assert!(sweep(&cloud, &server, &["--yes", "--all"]).bad(20).contains("namespace kube-system"));
    assert_eq!(cloud.names().len(), 4);
}

#[test]
fn another_cluster_during_a_read_ends_the_sweep() {
    for ids in [&["this", "that"][..], &["that", "this"], &["this", "this", "that", "this"]] {
        let cloud = cloud_of_all_kinds();
        let server = ApiServer::new(ids, &[pages(&[&["uid-alive"]])]);
        let line = sweep(&cloud, &server, &["--yes", "--all"]).bad(20);
        assert!(line.contains("two clusters") && line.contains("\"this\"") && line.contains("\"that\""), "{line}");
        assert_eq!(cloud.names().len(), 4, "{ids:?}");
    }
}

#[test]
fn where_no_owner_is_left_all_is_needed() {
    let cloud = cloud_of_all_kinds();
    let server = ApiServer::new(&["this"], &[pages(&[&[]])]);
    for words in [&[][..], &["--yes"]] {
        let done = sweep(&cloud, &server, words);
        assert!(done.stdout.contains("refused"), "{done:?}");
        assert!(done.bad(1).contains("--all"));
        assert_eq!(cloud.names().len(), 4);
    }
    assert_eq!(sweep(&cloud, &server, &["--yes", "--all"]).code, Some(0));
    assert_eq!(cloud.names(), ["other-cluster", "no-cluster"]);
}

#[test]
fn a_kind_of_owners_that_is_not_served_or_not_listed_is_wrong_usage() {
    let cloud = cloud_of_all_kinds();
    let server = ApiServer::new(&["this"], &[pages(&[&[]])]);
    server.write_kubeconfig(&cloud.path("kubeconfig"));
    for owners in ["pod", "machines", "machines.cluster.x-k8s.io", "bindings"] {
        let words =
            ["instance-sweep", "--kubeconfig", "kubeconfig", "--owners", "pods", "--owners", owners, "--yes", "--all"];
        assert!(cloud.run(&words).bad(2).contains("--owners: "), "{owners}");
    }
    assert_eq!(cloud.names().len(), 4);
    assert_eq!(server.lists(), [""; 0]);
}

#[test]
fn an_api_server_that_is_not_there_is_unavailable_and_deletes_nothing() {
    let cloud = cloud_of_all_kinds();
    let config = "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], \
                  contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}";
    std::fs::write(cloud.path("kubeconfig"), config).unwrap();
    let words: Vec<_> = SWEEP.iter().copied().chain(["--yes", "--all"]).collect();
    cloud.run(&words).bad(19);
    assert_eq!(cloud.names().len(), 4);
}

#[test]
#[cfg(feature = "docker")]
fn the_manifests_of_the_page_are_right() {
    let page = include_str!("../../../../docs/drivers/sweep.md");
    let block = page.split_once("\n```yaml\n").unwrap().1.split_once("\n```\n").unwrap().0;
    let objects: Vec<Value> =
        block.split("\n---\n").map(|object| ccm_base::text::yaml::from_str(object).unwrap()).collect();
    let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap();
    let pod = &of_kind("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], of_kind("ServiceAccount")["metadata"]["name"]);
    let container = &pod["containers"][0];
    let words = |list: &Value| {
        list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let mut command = crate::program();
    command.args(words(&container["args"])).arg("--help");
    assert!(Done::of(command.output().unwrap()).good().contains("--owners"));
    let declared: Value = serde_json::from_str(&crate::ccm_cloud(&["docker", "config", "-o", "json"]).good()).unwrap();
    for variable in container["env"].as_array().unwrap() {
        assert!(declared.as_array().unwrap().iter().any(|one| one["variable"] == variable["name"]), "{variable}");
    }
    let rule = &of_kind("ClusterRole")["rules"][1];
    let owners = format!("{}.{}", words(&rule["resources"])[0], words(&rule["apiGroups"])[0]);
    assert!(words(&container["args"]).contains(&owners), "{owners}");
}

#[test]
fn create_takes_the_cluster_from_a_kubeconfig() {
    let cloud = Cloud::new();
    ApiServer::new(&["this"], &[]).write_kubeconfig(&cloud.path("kubeconfig"));
    cloud.create("a", "1", &["--kubeconfig", "kubeconfig"]);
    assert_eq!(cloud.json(&["instance-show", "a"])["cluster"], "this");
    // An empty context names no cluster. Here there is none to ask.
    cloud.create("b", "2", &["--context", ""]);
    assert_eq!(cloud.json(&["instance-show", "b"])["cluster"], Value::Null);
}
