use k8s_openapi::jiff::SignedDuration;

use super::*;

/// The number of deletions that count at each of these times, in seconds of the wall clock and of the monotonic clock.
fn counts<const N: usize>(before: &Deletion, start: Timestamp, times: [(i64, u64); N]) -> [usize; N] {
    let (mut guarded, clock) = (Guarded::default(), Instant::now());
    times.map(|(wall, own)| {
        guarded.count(before, &[], start + SignedDuration::from_secs(wall), clock + Duration::from_secs(own));
        guarded.deleted.as_ref().unwrap().len()
    })
}

#[test]
fn a_wall_clock_that_jumps_makes_no_deletion_forgotten() {
    let start = Timestamp::from_second(1_750_000_000).unwrap();
    let one = Deleted { node: "a".into(), uid: "u".into(), at: start.to_string() };
    let before = Deletion { deleted: vec![one], ..Deletion::default() };
    let hours = 2 * 3600;
    let times = [(60, 0), (60 + hours, 1), (62, 2), (3599, 3539), (3600, 3540), (60, 3541)];
    assert_eq!(counts(&before, start, times), [1, 1, 1, 1, 0, 0]);

    // A deletion that was seen while the clock was ahead counts for an hour after that, too.
    let confirmed = Deletion { confirmed: vec!["b/v".into()], ..Deletion::default() };
    let mut guarded = Guarded::default();
    guarded.count(&confirmed, &[], start + SignedDuration::from_secs(hours), Instant::now());
    let before = Deletion { deleted: guarded.deleted.unwrap(), ..Deletion::default() };
    assert_eq!(counts(&before, start, [(60, 0), (3659, 3599), (3660, 3600)]), [1, 1, 0]);
}
