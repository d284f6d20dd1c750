//! A writer on a disk that other programs fill.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::dir::Dir;
use crate::error::Kind;
use crate::raw_writer::RawWriter;
use crate::retention::RetentionPolicy;
use crate::test_disk::{Call, TestDisk};
use crate::{Options, PhaseMeta};

#[derive(Debug, Default)]
struct Space {
    is_full: AtomicBool,
    /// The largest number of bytes that a failed write requested.
    wanted: AtomicU64,
}

fn open(path: &Path, ahead: u64) -> (RawWriter, Arc<Space>) {
    let space = Arc::new(Space::default());
    let seen = space.clone();
    let hook = move |call| match call {
        Call::Grow(bytes) if seen.is_full.load(Ordering::Relaxed) => {
            seen.wanted.fetch_max(bytes, Ordering::Relaxed);
            Err(io::ErrorKind::StorageFull.into())
        }
        _ => Ok(()),
    };
    let dir = Dir::on(TestDisk::open(path, ahead, hook), path).unwrap();
    let (writer, _) = RawWriter::open_on(dir, Options::default()).unwrap();
    (writer, space)
}

/// Returns a head of about 100 bytes.
fn head(n: u64) -> Vec<u8> {
    let mut raw = Vec::new();
    crate::codec::encode(&mut raw, &(n, "x".repeat(100))).unwrap();
    raw
}

/// Returns bytes that hardly compress.
fn noise(len: u64, n: u64) -> Vec<u8> {
    let noise = (0..len).map(|i| ((i + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
    let mut raw = Vec::new();
    crate::codec::encode(&mut raw, &noise.collect::<Vec<u8>>()).unwrap();
    raw
}

fn save(writer: &mut RawWriter, n: u64) -> crate::Result<u64> {
    let head = head(n);
    let len = head.len();
    writer.append(head, len)
}

fn newest(path: &Path) -> Option<Vec<u8>> {
    let (writer, loaded) = RawWriter::open(path, Options::default()).unwrap();
    assert!(loaded.report.is_undamaged(), "{}", loaded.report);
    drop(writer);
    loaded.state.head
}

fn loaded_head(path: &Path) -> Option<Vec<u8>> {
    let loaded = crate::reader::load::<(u64, String), u64>(path).unwrap();
    assert!(loaded.report.is_undamaged(), "{}", loaded.report);
    loaded.head.map(|(n, _)| head(n))
}

#[test]
fn c62a_c62b_c62d_saves_into_reserved_space_succeed_on_a_full_disk() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, space) = open(&path, 8 * 4096);
    save(&mut writer, 1).unwrap();
    space.is_full.store(true, Ordering::Relaxed);
    let mut n = 1;
    let err = loop {
        match save(&mut writer, n + 1) {
            Ok(_) => n += 1,
            Err(err) => break err,
        }
    };
    assert!(n > 20, "4 KiB must hold more than {n} saves");
    assert!(err.is_full() && !err.is_poisoned(), "{err}");
    let needed = space.wanted.load(Ordering::Relaxed);
    assert!(err.to_string().contains("bytes are needed"), "{err}");
    assert!(
        needed > 100 * n,
        "the needed bytes include those of a new file with all saves"
    );
    assert!(save(&mut writer, n + 1).unwrap_err().is_full());
    let saved = writer.save_phase("p", head(9), PhaseMeta::default());
    assert!(saved.unwrap_err().is_full());

    space.is_full.store(false, Ordering::Relaxed);
    assert_eq!(save(&mut writer, n + 1).unwrap(), n + 1);
    assert!(writer.last_repair().is_some(), "the save needed a new file");
    drop(writer);
    assert_eq!(newest(&path), Some(head(n + 1)));
}

/// If a user frees as many bytes as the error requests, no later error requests more.
#[test]
fn c62b_c62d_full_disk_error_names_sufficient_bytes() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, _) = open(&path, 0);
    for n in 0..100 {
        writer.append(noise(5_000, n), 0).unwrap();
    }
    drop(writer);
    let open = |room| {
        let left = AtomicU64::new(room);
        let take = move |bytes| {
            let (same, set) = (Ordering::Relaxed, Ordering::Relaxed);
            left.fetch_update(same, set, |left| left.checked_sub(bytes))
        };
        let hook = move |call| match call {
            Call::Grow(bytes) if take(bytes).is_err() => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        };
        let dir = Dir::on(TestDisk::open(&path, 0, hook), &path).unwrap();
        RawWriter::open_on(dir, Options::default())
    };
    let err = open(30_000).err().unwrap();
    let Kind::Full { bytes } = *err.kind() else {
        panic!("{err}")
    };
    const LOCK: u64 = 64; // the text of the lock is written again
    open(bytes + LOCK).unwrap();
}

/// Opens a store on a disk with as much room as the counter has.
fn open_with_room(path: &Path, ahead: u64) -> (RawWriter, Arc<AtomicU64>) {
    let room = Arc::new(AtomicU64::new(u64::MAX));
    let left = room.clone();
    let take = move |bytes| {
        let (same, set) = (Ordering::Relaxed, Ordering::Relaxed);
        left.fetch_update(same, set, |left| left.checked_sub(bytes))
    };
    let hook = move |call| match call {
        Call::Grow(bytes) if take(bytes).is_err() => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    };
    let dir = Dir::on(TestDisk::open(path, ahead, hook), path).unwrap();
    let (writer, _) = RawWriter::open_on(dir, Options::default()).unwrap();
    (writer, room)
}

fn needed(err: &crate::Error) -> u64 {
    match *err.kind() {
        Kind::Full { bytes } => bytes,
        _ => panic!("{err}"),
    }
}

/// Two cases: neither the journal nor the save fits into the room, or only the save does not. In each case, the freed room is also tried with one
/// byte too few.
#[test]
fn c62b_c62d_failed_save_fits_into_the_bytes_of_its_error() {
    for ahead in [0, 1 << 12] {
        for (saves, room, len) in [(40, 0, 500), (40, 20_000, 500), (1, 1_200, 4_500)] {
            for lacks in [0, 1] {
                let root = tempfile::tempdir().unwrap();
                let path = root.path().join("s");
                let (mut writer, left) = open_with_room(&path, ahead);
                let save = |writer: &mut RawWriter, len| {
                    let raw = noise(len, writer.seq());
                    writer.append(raw, 0)
                };
                for _ in 0..saves {
                    save(&mut writer, 500).unwrap();
                }
                left.store(room, Ordering::Relaxed);
                let mut err = loop {
                    match save(&mut writer, len) {
                        Ok(_) => {}
                        Err(err) => break err,
                    }
                };
                if lacks > 0 {
                    left.store(needed(&err) - lacks, Ordering::Relaxed);
                    err = save(&mut writer, len).unwrap_err();
                }
                left.store(needed(&err), Ordering::Relaxed);
                let seq = writer.seq();
                let why = format!("ahead {ahead}, saves {saves}, lacks {lacks}");
                save(&mut writer, len).unwrap_or_else(|err| panic!("{err}: {why}"));
                assert!(writer.last_repair().is_some(), "the save needed a new file");
                drop(writer);
                let loaded = RawWriter::open(&path, Options::default()).unwrap().1;
                assert_eq!(loaded.seq, seq + 1);
                assert!(loaded.report.is_undamaged(), "{}", loaded.report);
            }
        }
    }
}

#[test]
fn compacting_save_fits_into_the_bytes_of_its_error() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, left) = open_with_room(&path, 1 << 12);
    let save = |writer: &mut RawWriter| {
        let raw = noise(5_000, writer.seq());
        let head_len = raw.len();
        writer.append(raw, head_len)
    };
    while !writer.weight.is_due(1 << 12) || writer.seqs.before_last(19).is_none() {
        save(&mut writer).unwrap();
    }
    left.store(0, Ordering::Relaxed);
    while let Ok(seq) = writer.truncate_to(writer.seq()) {
        assert!(
            seq < 1_000,
            "the undos must not all fit into the reserved room"
        );
    }
    assert!(writer.weight.is_due(1 << 12));
    let err = save(&mut writer).unwrap_err();
    left.store(needed(&err), Ordering::Relaxed);
    save(&mut writer).unwrap();
}

#[test]
fn blob_after_a_full_disk_fits_into_the_bytes_of_its_error() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, left) = open_with_room(&path, 0);
    save(&mut writer, 1).unwrap();
    left.store(0, Ordering::Relaxed);
    assert!(save(&mut writer, 2).unwrap_err().is_full());
    let err = writer.put_blob("b", &[7; 5_000]).unwrap_err();
    left.store(needed(&err), Ordering::Relaxed);
    writer.put_blob("b", &[7; 5_000]).unwrap();
}

fn phases(path: &Path) -> usize {
    let names = std::fs::read_dir(path).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("phase-")).count()
}

#[test]
fn writer_stopped_by_a_full_disk_removes_unneeded_files() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, left) = open_with_room(&path, 0);
    for n in 1..=4 {
        writer
            .save_phase("p", head(n), PhaseMeta::default())
            .unwrap();
        save(&mut writer, 10 + n).unwrap();
    }
    left.store(0, Ordering::Relaxed);
    assert!(save(&mut writer, 15).unwrap_err().is_full());
    let policy = RetentionPolicy {
        keep: 1,
        ..RetentionPolicy::default()
    };
    let removed = writer.clean(policy).unwrap();
    assert!(removed.len() >= 3, "{removed:?}");
    assert_eq!(phases(&path), 1);
    assert!(
        save(&mut writer, 15).unwrap_err().is_full(),
        "there is no room yet"
    );
    assert_eq!(loaded_head(&path), Some(head(14)));
    left.store(u64::MAX, Ordering::Relaxed);
    save(&mut writer, 15).unwrap();
    drop(writer);
    assert_eq!(newest(&path), Some(head(15)));
}

/// If the sync of its directory failed, it is uncertain whether a phase is on disk.
#[test]
fn uncertain_newest_phase_keeps_earlier_files() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let fails = Arc::new(AtomicBool::new(false));
    let (seen, phase) = (fails.clone(), path.join("phase-0000000000000003.ckpt"));
    let hook = move |call| match call {
        // Every call succeeds until the file of the phase has its name.
        Call::Other if seen.load(Ordering::Relaxed) && phase.exists() => {
            Err(io::Error::other("the medium failed"))
        }
        Call::Make if seen.load(Ordering::Relaxed) && phase.exists() => {
            Err(io::ErrorKind::StorageFull.into())
        }
        _ => Ok(()),
    };
    let dir = Dir::on(TestDisk::open(&path, 0, hook), &path).unwrap();
    let (mut writer, _) = RawWriter::open_on(dir, Options::default()).unwrap();
    writer
        .save_phase("p", head(1), PhaseMeta::default())
        .unwrap();
    save(&mut writer, 2).unwrap();
    fails.store(true, Ordering::Relaxed);
    let saved = writer.save_phase("p", head(3), PhaseMeta::default());
    assert!(saved.unwrap_err().is_full());
    fails.store(false, Ordering::Relaxed);
    assert_eq!(phases(&path), 2);
    let policy = RetentionPolicy {
        keep: 0,
        ..RetentionPolicy::default()
    };
    assert_eq!(writer.clean(policy).unwrap(), []);
    save(&mut writer, 4).unwrap();
    drop(writer);
    assert_eq!(newest(&path), Some(head(4)));
}

/// A new file that does not fit does not affect the journal, whose reserved room is for this case.
#[test]
fn c62b_c62e_full_disk_for_blob_or_phase_keeps_reserved_journal_space() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, space) = open(&path, 8 * 4096);
    save(&mut writer, 1).unwrap();
    space.is_full.store(true, Ordering::Relaxed);
    assert!(writer.put_blob("b", b"bytes").unwrap_err().is_full());
    let saved = writer.save_phase("p", head(9), PhaseMeta::default());
    assert!(saved.unwrap_err().is_full());
    assert_eq!(save(&mut writer, 2).unwrap(), 2);
    assert!(writer.last_repair().is_none());
    drop(writer);
    assert_eq!(newest(&path), Some(head(2)));
}

/// Where zeros reserve nothing, the state on disk is still intact.
#[test]
fn c62a_c62b_control_first_save_on_a_full_disk_fails_without_reserved_space() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, space) = open(&path, 0);
    save(&mut writer, 1).unwrap();
    space.is_full.store(true, Ordering::Relaxed);
    assert!(save(&mut writer, 2).unwrap_err().is_full());
    drop(writer);
    assert_eq!(newest(&path), Some(head(1)));
}

/// A disk with room for the saves, but not for the reserved room after them.
#[test]
fn failed_reservation_leaves_space_to_others() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let hook = |call| match call {
        Call::Grow(bytes) if bytes > 4000 => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    };
    let dir = Dir::on(TestDisk::open(&path, 1 << 20, hook), &path).unwrap();
    let (mut writer, _) = RawWriter::open_on(dir, Options::default()).unwrap();
    for n in 1..=3 {
        save(&mut writer, n).unwrap();
        assert!(writer.last_repair().is_none());
        let len = writer.journal.as_ref().unwrap().file.stat().unwrap().len;
        assert!(len < 700, "{len}");
    }
    drop(writer);
    assert_eq!(newest(&path), Some(head(3)));
}

/// A directory that disappears while a writer repairs after a full disk.
#[test]
fn x128d_removal_during_full_disk_repair_is_retried() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (is_full, removals) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (seen, left) = (is_full.clone(), removals.clone());
    let hook = move |call| match call {
        Call::Grow(_) if seen.load(Ordering::Relaxed) => Err(io::ErrorKind::StorageFull.into()),
        Call::Make if left.load(Ordering::Relaxed) > 0 => {
            left.fetch_sub(1, Ordering::Relaxed);
            Err(io::ErrorKind::NotFound.into())
        }
        _ => Ok(()),
    };
    let dir = Dir::on(TestDisk::open(&path, 0, hook), &path).unwrap();
    let (mut writer, _) = RawWriter::open_on(dir, Options::default()).unwrap();
    save(&mut writer, 1).unwrap();
    is_full.store(true, Ordering::Relaxed);
    assert!(save(&mut writer, 2).unwrap_err().is_full());
    is_full.store(false, Ordering::Relaxed);
    removals.store(3, Ordering::Relaxed);
    save(&mut writer, 2).unwrap();
    assert_eq!(removals.load(Ordering::Relaxed), 0);
    drop(writer);
    assert_eq!(newest(&path), Some(head(2)));
}

/// The old journal still has room when there is no room for a new, compacted one.
#[test]
fn save_due_for_compaction_works_without_space_for_a_new_file() {
    for made in 0..2 {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("s");
        let left = Arc::new(std::sync::atomic::AtomicI64::new(i64::MAX));
        let budget = left.clone();
        let hook = move |call| match call {
            Call::Make if budget.fetch_sub(1, Ordering::Relaxed) <= 0 => {
                Err(io::ErrorKind::StorageFull.into())
            }
            _ => Ok(()),
        };
        let dir = Dir::on(TestDisk::open(&path, 1 << 12, hook), &path).unwrap();
        let (mut writer, _) = RawWriter::open_on(dir, Options::default()).unwrap();
        let mut n = 0;
        while !writer.weight.is_due(1 << 12) || writer.seqs.before_last(19).is_none() {
            n += 1;
            let raw = noise(900, n);
            let head_len = raw.len();
            writer.append(raw, head_len).unwrap();
        }
        left.store(made, Ordering::Relaxed);
        let raw = noise(900, n + 1);
        let head_len = raw.len();
        assert_eq!(writer.append(raw.clone(), head_len).unwrap(), n + 1);
        assert!(writer.last_repair().is_none(), "no repair was necessary");
        drop(writer);
        assert_eq!(newest(&path), Some(raw));
    }
}
