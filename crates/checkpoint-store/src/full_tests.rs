//! A writer on a disk that others fill.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::dir::Dir;
use crate::error::Kind;
use crate::raw_writer::RawWriter;
use crate::test_disk::{Call, TestDisk};
use crate::{Meta, Options};

#[derive(Debug, Default)]
struct Space {
    is_full: AtomicBool,
    /// Bytes that were asked for in vain, at most.
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

/// A head of about a hundred bytes.
fn head(n: u64) -> Vec<u8> {
    let mut raw = Vec::new();
    crate::codec::encode(&mut raw, &(n, "x".repeat(100))).unwrap();
    raw
}

fn save(writer: &mut RawWriter, n: u64) -> crate::Result<u64> {
    let head = head(n);
    let len = head.len();
    writer.append(head, len)
}

fn newest(path: &Path) -> Option<Vec<u8>> {
    let (writer, loaded) = RawWriter::open(path, Options::default()).unwrap();
    assert!(loaded.report.is_sound(), "{}", loaded.report);
    drop(writer);
    loaded.state.head
}

#[test]
fn c62_saves_into_the_room_ahead_succeed_on_a_full_disk_and_the_next_says_what_it_needs() {
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
    assert!(n > 20, "4 KiB hold more than {n} saves");
    assert!(err.is_full() && !err.is_poisoned(), "{err}");
    let needed = space.wanted.load(Ordering::Relaxed);
    assert!(err.to_string().contains("bytes are needed"), "{err}");
    assert!(needed > 100 * n, "the new file would hold all saves");
    assert!(save(&mut writer, n + 1).unwrap_err().is_full());
    let sealed = writer.save_phase("p", head(9), Meta::default());
    assert!(sealed.unwrap_err().is_full());

    space.is_full.store(false, Ordering::Relaxed);
    assert_eq!(save(&mut writer, n + 1).unwrap(), n + 1);
    assert!(writer.healed().is_some(), "by a new file");
    drop(writer);
    assert_eq!(newest(&path), Some(head(n + 1)));
}

/// Who makes as much room as the error asks for is not asked for more.
#[test]
fn c62_a_full_disk_is_told_in_bytes_that_are_enough() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, _) = open(&path, 0);
    let noise = |n: u64| -> Vec<u8> {
        let noise =
            (0..5000_u64).map(|i| ((i + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
        let mut raw = Vec::new();
        crate::codec::encode(&mut raw, &noise.collect::<Vec<u8>>()).unwrap();
        raw
    };
    for n in 0..100 {
        writer.append(noise(n), 0).unwrap();
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
    let err = open(100_000).err().unwrap();
    let Kind::Full { bytes } = *err.kind() else {
        panic!("{err}")
    };
    const LOCK: u64 = 64; // its text is written anew
    open(bytes + LOCK).unwrap();
}

/// A file that does not fit is nothing to the journal, whose room ahead is there for just this.
#[test]
fn c62_no_room_for_a_blob_or_a_phase_leaves_the_journal_its_room() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, space) = open(&path, 8 * 4096);
    save(&mut writer, 1).unwrap();
    space.is_full.store(true, Ordering::Relaxed);
    assert!(writer.put_blob("b", b"bytes").unwrap_err().is_full());
    let sealed = writer.save_phase("p", head(9), Meta::default());
    assert!(sealed.unwrap_err().is_full());
    assert_eq!(save(&mut writer, 2).unwrap(), 2);
    assert!(writer.healed().is_none());
    drop(writer);
    assert_eq!(newest(&path), Some(head(2)));
}

/// Where zeros reserve nothing the state on disk is intact all the same.
#[test]
fn c62_control_without_room_ahead_the_first_save_on_a_full_disk_fails() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, space) = open(&path, 0);
    save(&mut writer, 1).unwrap();
    space.is_full.store(true, Ordering::Relaxed);
    assert!(save(&mut writer, 2).unwrap_err().is_full());
    drop(writer);
    assert_eq!(newest(&path), Some(head(1)));
}

/// A disk with room for the saves but not for what is reserved ahead of them.
#[test]
fn c62_what_cannot_be_reserved_is_left_to_others() {
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
        assert!(writer.healed().is_none());
        let len = writer.journal.as_ref().unwrap().file.stat().unwrap().len;
        assert!(len < 700, "{len}");
    }
    drop(writer);
    assert_eq!(newest(&path), Some(head(3)));
}

/// A directory that vanishes just while a writer makes up for a full disk.
#[test]
fn x128_a_removal_while_a_full_disk_is_made_up_for_is_tried_again() {
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

/// The old journal still has room when no file can be made to compact it into.
#[test]
fn a_full_disk_that_takes_no_new_file_does_not_stop_a_save_that_would_compact() {
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
        let large = |n: u64| -> Vec<u8> {
            let noise =
                (0..900_u64).map(|i| ((i + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
            let mut raw = Vec::new();
            crate::codec::encode(&mut raw, &noise.collect::<Vec<u8>>()).unwrap();
            raw
        };
        let mut n = 0;
        while !writer.weight.is_due(1 << 12) || writer.seqs.before_last(19).is_none() {
            n += 1;
            let raw = large(n);
            let head_len = raw.len();
            writer.append(raw, head_len).unwrap();
        }
        left.store(made, Ordering::Relaxed);
        let raw = large(n + 1);
        let head_len = raw.len();
        assert_eq!(writer.append(raw.clone(), head_len).unwrap(), n + 1);
        assert!(writer.healed().is_none(), "nothing had to be written again");
        drop(writer);
        assert_eq!(newest(&path), Some(raw));
    }
}
