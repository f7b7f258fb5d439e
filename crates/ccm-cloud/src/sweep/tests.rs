use super::*;

fn owners(cluster: &str, uids: &[&str]) -> Owners {
    Owners { cluster: cluster.to_owned(), uids: uids.iter().map(|uid| (*uid).to_owned()).collect() }
}

fn marks(owner: Option<&str>, cluster: Option<&str>) -> Marks {
    Marks { owner: owner.map(ToOwned::to_owned), cluster: cluster.map(ToOwned::to_owned) }
}

#[test]
fn only_an_owned_instance_of_this_cluster_whose_owner_is_in_no_read_is_deleted() {
    let this = Some("this");
    for (owner, cluster, first, second, expected) in [
        (Some("a"), this, &["b"][..], &["b"][..], Verdict::OwnerGone),
        (Some("a"), this, &["a"], &["a"], Verdict::OwnerExists),
        (Some("a"), this, &["a"], &[], Verdict::OwnerExists),
        (Some("a"), this, &[], &["a"], Verdict::OwnerExists),
        // The UID has to be whole.
        (Some("a"), this, &["ab"], &["ab"], Verdict::OwnerGone),
        (None, this, &[], &[], Verdict::NotOwned),
        (Some(""), this, &[], &[], Verdict::NotOwned),
        (Some("a"), None, &[], &[], Verdict::NoCluster),
        (Some("a"), Some(""), &[], &[], Verdict::NoCluster),
        (Some("a"), Some("other"), &[], &[], Verdict::OtherCluster),
        (Some("a"), Some("thi"), &[], &[], Verdict::OtherCluster),
    ] {
        let reads = [owners("this", first), owners("this", second)];
        assert_eq!(verdict(&marks(owner, cluster), &reads), expected, "{owner:?} {cluster:?} {first:?} {second:?}");
    }
}

#[test]
fn another_cluster_in_one_of_both_reads_keeps_everything() {
    for reads in [["this", "other"], ["other", "this"]] {
        let reads = reads.map(|cluster| owners(cluster, &["b"]));
        for cluster in ["this", "other"] {
            assert_eq!(verdict(&marks(Some("a"), Some(cluster)), &reads), Verdict::OtherCluster, "{cluster}");
        }
    }
}

#[test]
fn deleting_every_instance_of_the_cluster_needs_a_flag_and_others_do_not_count() {
    use Verdict::{NoCluster, NotOwned, OtherCluster, OwnerExists, OwnerGone};
    for (verdicts, expected) in [
        (&[][..], false),
        (&[OwnerGone], true),
        (&[OwnerGone, OwnerGone, NotOwned, NoCluster, OtherCluster], true),
        (&[OwnerGone, OwnerExists], false),
        (&[OwnerExists, OtherCluster], false),
        (&[NotOwned], false),
    ] {
        assert_eq!(leaves_none(verdicts), expected, "{verdicts:?}");
    }
}

#[test]
fn an_instance_with_another_owner_or_cluster_is_another_one() {
    let instance = |id: &str, owner: &str, cluster: &str| -> Instance {
        let text = serde_json::json!({
            "id": id, "providerID": "", "name": "n", "region": "", "zone": "", "state": "running", "image": "",
            "instanceType": "", "addresses": [], "labels": {}, "owner": owner, "cluster": cluster, "created": "",
        });
        serde_json::from_value(text).unwrap()
    };
    let judged = instance("1", "a", "c");
    assert!(is_same(&judged, &Instance { state: ccm_drivers::contract::State::Stopped, ..judged.clone() }));
    for other in [instance("2", "a", "c"), instance("1", "b", "c"), instance("1", "a", "d")] {
        assert!(!is_same(&judged, &other));
    }
}
