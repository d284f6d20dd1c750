//! Writers that SIGKILL ends at random points.

use checkpoint_store::{Options, PhaseMeta, Store, reader};

use crate::effort::Effort;
use crate::support::{self, Dir, Log, Random, child_dir, print_line, spawn};

/// The number of writers that each test kills.
const C60_KILLS: Effort = Effort {
    ci: 100,
    nightly: 1000,
};

/// The body of a child: saves for ever. Head n always comes with the events 1 to n.
#[test]
fn writer() {
    let Some(dir) = child_dir() else { return };
    let (mut writer, loaded) = Log::open(dir, Options::default()).unwrap();
    assert!(loaded.report.is_undamaged(), "{}", loaded.report);
    for n in loaded.head.unwrap_or(0) + 1.. {
        if n % 7 == 0 {
            let before = writer.seq();
            writer.append(&n, &[n, n]).unwrap();
            writer.truncate_to(before).unwrap();
        }
        writer.append(&n, &[n]).unwrap();
        if n % 5 == 0 {
            writer.save_phase("p", &n, PhaseMeta::default()).unwrap();
        }
        print_line(&n.to_string());
    }
}

/// The body of a child that acknowledges each save before it writes it, as a write-behind cache does. The design forbids this.
#[test]
fn hasty_writer() {
    let Some(dir) = child_dir() else { return };
    let (mut writer, loaded) = Log::open(dir, Options::default()).unwrap();
    let first = loaded.head.unwrap_or(0) + 1;
    print_line(&first.to_string());
    for n in first.. {
        print_line(&(n + 1).to_string());
        writer.append(&n, &[n]).unwrap();
    }
}

#[test]
fn value_writer() {
    let Some(dir) = child_dir() else { return };
    let mut store = Store::open(dir).unwrap();
    let first = store
        .load::<Vec<u64>>()
        .unwrap()
        .map_or(0, |value| value[0]);
    for n in first + 1.. {
        store.save(&vec![n; 1000]).unwrap();
        print_line(&n.to_string());
    }
}

/// The number of writers that continue the same store. Each load reads the whole store, so a longer one would cost time and show nothing more.
const WRITERS: u32 = 10;

/// Runs a writer, kills it, and returns the last acknowledged number.
fn killed(name: &str, dir: &Dir, random: &mut Random) -> u64 {
    let mut child = spawn(support::command(&[], name, &dir.path));
    let mut last = 0;
    for _ in 0..random.below(12) {
        last = child
            .next()
            .expect("the writer saves until it is killed")
            .parse()
            .unwrap();
    }
    for _ in 0..random.below(200) {
        std::thread::yield_now();
    }
    child
        .kill()
        .last()
        .map_or(last, |lines| lines.parse().unwrap())
}

#[test]
fn c60_kill_at_any_point_loses_no_acknowledged_save() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut dir, mut acknowledged) = (Dir::new(), 0);
    let mut all = 0;
    for round in 0..C60_KILLS.number() {
        if round % WRITERS == 0 {
            all += acknowledged;
            (dir, acknowledged) = (Dir::new(), 0);
        }
        acknowledged = killed("kill::writer", &dir, &mut random).max(acknowledged);
        let loaded = match reader::load::<u64, u64>(&dir.path) {
            Ok(loaded) => loaded,
            // The writer was killed before it made the directory.
            Err(err) if err.is_not_found() && acknowledged == 0 => continue,
            Err(err) => panic!("round {round}: {err}"),
        };
        assert!(
            loaded.report.is_undamaged(),
            "round {round}: {}",
            loaded.report
        );
        let head = loaded.head.unwrap_or(0);
        assert!(
            head >= acknowledged,
            "round {round}: {head} of {acknowledged}"
        );
        let mut events = loaded.events;
        // Every seventh number is saved twice and undone; a kill may come in between.
        events.dedup();
        assert_eq!(events, (1..=head).collect::<Vec<_>>(), "round {round}");
    }
    assert!(all > C60_KILLS.number().into());
}

#[test]
fn c60_kill_at_any_point_leaves_the_old_or_the_new_value() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let (mut dir, mut acknowledged) = (Dir::new(), 0);
    for round in 0..C60_KILLS.number() {
        if round % WRITERS == 0 {
            (dir, acknowledged) = (Dir::new(), 0);
        }
        acknowledged = killed("kill::value_writer", &dir, &mut random).max(acknowledged);
        let store = Store::open(&dir.path).unwrap();
        assert!(
            store.report().is_undamaged(),
            "round {round}: {}",
            store.report()
        );
        let Some(value) = store.load::<Vec<u64>>().unwrap() else {
            assert_eq!(acknowledged, 0, "round {round}");
            continue;
        };
        assert!(
            value.len() == 1000 && value.iter().all(|n| *n == value[0]),
            "the value is torn"
        );
        assert!(
            value[0] >= acknowledged,
            "round {round}: {} of {acknowledged}",
            value[0]
        );
    }
}

#[test]
fn c60_control_a_writer_that_acknowledges_first_loses_saves() {
    let dir = Dir::new();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let lost = (0..C60_KILLS.number()).any(|_| {
        let acknowledged = killed("kill::hasty_writer", &dir, &mut random);
        let loaded = reader::load::<u64, u64>(&dir.path);
        loaded.ok().and_then(|loaded| loaded.head).unwrap_or(0) < acknowledged
    });
    assert!(lost, "this test would not detect lost saves");
}

/// While a writer saves, writes phases and reopens the store, a reader always finds a valid state.
#[test]
fn concurrent_readers_see_only_complete_states() {
    let dir = Dir::new();
    drop(dir.open());
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut n = 0;
            for _ in 0..10 {
                let (mut writer, loaded) = dir.open();
                assert_eq!(loaded.head.unwrap_or(0), n);
                for _ in 0..12 {
                    n += 1;
                    writer.append(&n, &[n]).unwrap();
                }
                writer.save_phase("p", &n, PhaseMeta::default()).unwrap();
                n += 1;
                writer.append(&n, &[n]).unwrap();
            }
        });
        let mut seen = 0;
        while !writing.is_finished() {
            let loaded = dir.load();
            let head = loaded.head.unwrap_or(0);
            assert!(loaded.report.is_undamaged(), "{}", loaded.report);
            assert_eq!(loaded.events, (1..=head).collect::<Vec<_>>());
            assert!(head >= seen, "a later load has no older state");
            seen = head;
        }
    });
}
