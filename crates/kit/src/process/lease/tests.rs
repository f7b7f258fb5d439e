use super::*;

#[test]
fn timings_that_allow_two_leaders_are_refused() {
    assert_eq!(Timings::seconds(137, 107, 26).problem(), None);
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

#[test]
fn a_resource_version_that_goes_back_is_noticed() {
    let lease = |version: &str| {
        let mut lease = Lease::default();
        lease.metadata.resource_version = Some(version.to_owned());
        lease
    };
    assert!(is_older(&lease("9"), &lease("10")));
    assert!(!is_older(&lease("10"), &lease("10")) && !is_older(&lease("11"), &lease("10")));
}
