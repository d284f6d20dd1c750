//! Ages and sizes, as all of `rlm checkpoints` shows them.

use super::units::{age, ago, size, stamp};
use loop_state::Timestamp;
use std::time::{Duration, SystemTime};

#[test]
fn s21c_a_time_in_the_future_is_new() {
    let now = jiff::Timestamp::from_second(1_000).unwrap();
    assert_eq!(age(Timestamp(999_000), now), 1);
    assert_eq!(age(Timestamp(1_000_001), now), 0);
    assert_eq!(age(Timestamp(u64::MAX), now), 0);
    assert_eq!(
        age(Timestamp(0), jiff::Timestamp::from_second(-1).unwrap()),
        0
    );
    assert_eq!(
        stamp(SystemTime::UNIX_EPOCH - Duration::from_secs(1)),
        Timestamp(0)
    );
    assert_eq!(ago(3_700), "1h1m40s ago");
}

#[test]
fn sizes_are_never_said_to_be_smaller_than_they_are() {
    let sizes = [0, 1023, 1024, 1025, 1 << 20, (1 << 20) + 1, u64::MAX].map(size);
    let expected = [
        "0 B",
        "1023 B",
        "1 KiB",
        "2 KiB",
        "1 MiB",
        "2 MiB",
        "17592186044416 MiB",
    ];
    assert_eq!(sizes, expected);
}
