use super::*;

#[test]
fn mounts_identify_the_pod() {
    let uid = "0f4b2c9e-52d8-4a66-9e36-2d0e1a2f8b11";
    let line =
        format!("1011 990 8:1 /var/lib/kubelet/pods/{uid}/etc-hosts /etc/hosts rw,relatime - ext4 /dev/sda1 rw\n");
    assert_eq!(pod_uid(&format!("36 35 98:0 / / rw - ext3 /dev/root rw\n{line}")), Some(uid.to_owned()));
    assert_eq!(pod_uid("36 35 98:0 /mnt/pods/some /etc/hosts rw\n"), None);
    let foreign = format!("36 35 98:0 / /var/lib/kubelet/pods/{uid}/volumes/x rw\n");
    assert_eq!(pod_uid(&foreign), None, "a node's mount namespace shows the mounts of every Pod");
}

#[test]
fn timings_that_allow_two_leaders_are_refused() {
    assert_eq!(Timings::HIGHLY_AVAILABLE.problem(), None);
    assert_eq!(Timings::SINGLE_REPLICA.problem(), None);
    for (lease, renew, retry) in [(60, 107, 26), (107, 107, 26), (137, 30, 26), (0, 0, 0)] {
        assert!(Timings::seconds(lease, renew, retry).problem().is_some(), "{lease} {renew} {retry}");
    }
}

#[test]
fn the_next_try_is_never_early_and_at_most_a_fifth_late() {
    let period = Duration::from_secs(10);
    for _ in 0..100 {
        assert!((period..=period * 6 / 5).contains(&jittered(period)));
    }
}
