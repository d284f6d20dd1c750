//! A writer whose calls fail, or that is killed, during repairs and compactions.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::dir::Dir;
use crate::raw_writer::RawWriter;
use crate::test_disk::TestDisk;
use crate::{Options, reader};

/// With this number of saves, the writer compacts its journal at least once.
const SAVES: u64 = 36;

/// Returns a head that does not compress and begins with its number.
fn head(n: u64) -> Vec<u64> {
    let mut state = n | 1 << 40;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    std::iter::once(n).chain((0..30).map(|_| next())).collect()
}

fn save(writer: &mut RawWriter, n: u64) -> crate::Result<u64> {
    let (raw, len) = crate::writer::encode_save(Path::new("s"), &head(n), &[n]).unwrap();
    writer.append(raw, len)
}

fn newest(path: &Path) -> u64 {
    let loaded = reader::load::<Vec<u64>, u64>(path).unwrap();
    assert!(loaded.report.is_undamaged(), "{}", loaded.report);
    let n = loaded.head.as_ref().map_or(0, |head| head[0]);
    assert!(
        n == 0 || loaded.head == Some(head(n)),
        "the loaded state is one of the saved states"
    );
    assert_eq!(loaded.events, (1..=n).collect::<Vec<_>>());
    n
}

/// Makes [`SAVES`] saves on a disk that calls `at` before each of its own calls. The arguments of `at` are the path, the number of the call and the
/// last acknowledged save. Returns the number of calls and the last epoch.
fn run(at: impl Fn(&Path, u64, u64) -> io::Result<()> + Send + Sync + 'static) -> (u64, u64) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (calls, acknowledged) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (count, known, place) = (calls.clone(), acknowledged.clone(), path.clone());
    let hook = move |_| at(&place, count.fetch_add(1, Relaxed), known.load(Relaxed));
    let dir = Dir::on(TestDisk::open(&path, 4096, hook), &path).unwrap();
    let Ok((mut writer, _)) = RawWriter::open_on(dir, Options::default()) else {
        return (calls.load(Relaxed), 0);
    };
    for n in 1..=SAVES {
        // A full disk may have room again.
        if save(&mut writer, n).is_err() && save(&mut writer, n).is_err() {
            break;
        }
        acknowledged.store(n, Relaxed);
        if n % 4 == 0 {
            assert!(newest(&path) >= n);
        }
    }
    let epoch = writer.epoch();
    drop(writer);
    assert!(newest(&path) >= acknowledged.load(Relaxed));
    (calls.load(Relaxed), epoch)
}

/// Loads the store before each call of a run, as after a kill at this point: every acknowledged save is there.
#[test]
fn c60_a_kill_at_any_call_while_old_heads_are_dropped_loses_nothing() {
    let (calls, epoch) = run(|path, _, acknowledged| {
        if acknowledged > 0 {
            assert!(newest(path) >= acknowledged);
        }
        Ok(())
    });
    assert!(
        calls > 2 * SAVES && epoch >= 2,
        "{calls} calls, epoch {epoch}"
    );
}

/// In each run, one call fails. The call `second` fails too; it may be the same one, or a later one during the repair.
fn with_faults(second: impl Fn(u64) -> u64) {
    let (calls, _) = run(|_, _, _| Ok(()));
    for first in 0..calls {
        let second = second(first);
        let kind = match first % 2 {
            0 => io::ErrorKind::Other,
            _ => io::ErrorKind::StorageFull,
        };
        run(move |_, call, _| match call == first || call == second {
            true => Err(kind.into()),
            false => Ok(()),
        });
    }
}

#[test]
fn a_fault_at_any_call_loses_nothing() {
    with_faults(|first| first);
}

#[test]
fn fault_at_any_call_and_during_repair_loses_nothing() {
    with_faults(|first| first + 1 + first % 7);
}
