//! A writer that is taken over, that repairs after a failure, or that has a long history.

use super::*;
use crate::codec;
use crate::file_builder::FileBuilder;
use crate::meta::{FileMeta, PhaseMeta};
use crate::replay::State;
use crate::saves::PackedFrame;
use crate::test_disk::{Call, TestDisk};

fn open(dir: &Path) -> (RawWriter, Loaded) {
    RawWriter::open(dir, Options::default()).unwrap()
}

/// Encodes a head without events.
fn head(n: u64) -> Vec<u8> {
    let mut raw = Vec::new();
    crate::codec::encode(&mut raw, &n).unwrap();
    raw
}

/// This test and the next one try both orders of a takeover and a save. They remove the lock file, so that two writers hold a lock at the same time.
#[test]
fn fenced_writer_that_wakes_before_its_write_acknowledges_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("s");
    let (mut old, _) = open(&dir);
    old.append(head(1), 1).unwrap();
    std::fs::remove_file(dir.join("LOCK")).unwrap();
    let (mut new, loaded) = open(&dir);
    assert_eq!(loaded.seq, 1);

    assert!(old.append(head(2), 1).unwrap_err().is_fenced());
    assert!(
        old.append(head(2), 1).unwrap_err().is_fenced(),
        "the error is permanent"
    );
    assert!(
        old.save_phase("p", head(2), PhaseMeta::default())
            .unwrap_err()
            .is_fenced()
    );
    assert!(old.put_blob("b", b"x").unwrap_err().is_fenced());
    new.append(head(3), 1).unwrap();
    drop((old, new));
    let (_, loaded) = open(&dir);
    assert_eq!((loaded.seq, loaded.state.head), (2, Some(head(3))));
}

#[test]
fn fenced_writer_that_wakes_after_its_write_acknowledges_nothing() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("s");
    let (mut old, _) = open(&dir);
    old.append(head(1), 1).unwrap();
    let frame = PackedFrame::pack(DELTA, 2, 1, head(2), CompressionEffort::Save).unwrap();
    old.put(&[frame]).unwrap();
    std::fs::remove_file(dir.join("LOCK")).unwrap();
    let (new, loaded) = open(&dir);
    assert_eq!(
        loaded.seq, 2,
        "the takeover sees the bytes that were on disk before it"
    );
    assert!(old.confirm().unwrap_err().is_fenced());
    assert!(new.epoch() > old.epoch());
}

/// A fenced writer that has passed its last check can still rename a phase file. That must neither hide the newer writer's saves nor block its
/// phases.
#[test]
fn a_phase_file_of_a_fenced_writer_does_not_hide_newer_saves() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("s");
    let (mut old, _) = open(&dir);
    old.append(head(1), 1).unwrap();
    let mut meta = FileMeta::new(&old.options, old.epoch.number, old.dir.disk());
    meta.phase = Some("p".into());
    meta.seq = 2;
    std::fs::remove_file(dir.join("LOCK")).unwrap();
    let (mut new, _) = open(&dir);
    let late = FileBuilder::new(&meta, 0, 7)
        .unwrap()
        .write_phase(&State {
            head: Some(head(9)),
            events: Vec::new(),
            ..State::default()
        })
        .unwrap();
    std::fs::write(dir.join("phase-0000000000000002.ckpt"), late).unwrap();

    new.append(head(2), 1).unwrap();
    let loaded = load::newest(
        &new.dir,
        Index::read(&new.dir, LoadPurpose::Anything).unwrap(),
    )
    .unwrap();
    assert_eq!(loaded.state.head, Some(head(2)));
    new.append(head(3), 1).unwrap();
    new.save_phase("p", head(4), PhaseMeta::default()).unwrap();
    drop((old, new));
    let (mut new, loaded) = open(&dir);
    assert_eq!(loaded.state.head, Some(head(4)));
    new.seq = 1;
    assert_eq!(new.free_phase().unwrap(), 3, "taken numbers are skipped");
}

#[test]
fn epochs_grow_even_without_their_markers() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("s");
    for _ in 0..3 {
        let (mut writer, _) = open(&dir);
        writer
            .save_phase("p", head(1), PhaseMeta::default())
            .unwrap();
    }
    std::fs::remove_file(dir.join("epoch-00000003")).unwrap();
    assert_eq!(open(&dir).0.epoch(), 4);
}

#[test]
fn c67a_c67c_only_temporary_files_of_older_epochs_are_removed() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("s");
    drop(open(&dir));
    for epoch in [1, 2, 99] {
        std::fs::write(
            dir.join(FileName::Temp { epoch, random: 7 }.to_string()),
            "x",
        )
        .unwrap();
    }
    assert_eq!(open(&dir).1.report.removed_temps, 1);
    assert_eq!(open(&dir).1.report.removed_temps, 1);
    assert_eq!(open(&dir).1.report.removed_temps, 0);
}

/// A read-only descriptor simulates a disk that fails.
fn break_journal(writer: &mut RawWriter, dir: &Path) {
    let journal = writer.journal.as_mut().unwrap();
    let dir = Dir::open(dir).unwrap();
    let file = dir.open_file(&journal.name, OpenMode::Read).unwrap();
    journal.file = file.unwrap().into();
}

#[test]
fn failed_write_is_repaired_with_a_new_file() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("s");
    let (mut writer, _) = open(&dir);
    writer.append(head(1), 1).unwrap();
    break_journal(&mut writer, &dir);
    assert_eq!(writer.append(head(2), 1).unwrap(), 2);
    let repaired = writer.last_repair().unwrap().clone();
    assert_eq!((repaired.epoch, writer.epoch()), (2, 2));
    assert!(repaired.what.contains("cannot write"), "{repaired}");
    assert_eq!(repaired.lost, [""; 0]);
    for n in 3..6 {
        break_journal(&mut writer, &dir);
        writer.append(head(n), 1).unwrap();
    }
    let journals = |name: &FileName| matches!(name, FileName::Progress { .. });
    let own = writer.dir.own().unwrap();
    assert_eq!(own.iter().filter(|name| journals(name)).count(), 2);
    drop(writer);
    let (_, loaded) = open(&dir);
    assert_eq!((loaded.seq, loaded.state.head), (5, Some(head(5))));
}

#[test]
fn fenced_writer_does_not_repair() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("s");
    let (mut old, _) = open(&dir);
    old.append(head(1), 1).unwrap();
    std::fs::remove_file(dir.join("LOCK")).unwrap();
    let (mut new, _) = open(&dir);
    break_journal(&mut old, &dir);
    assert!(old.append(head(2), 1).unwrap_err().is_fenced());
    new.append(head(3), 1).unwrap();
    assert_eq!(new.epoch(), 2);
}

/// While a writer is about to take an epoch, two other writers take theirs and end.
#[test]
fn outdated_epoch_is_not_used() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let others = path.clone();
    let first = std::sync::atomic::AtomicBool::new(true);
    let hook = move |call| {
        if matches!(call, Call::Make) && first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            // The second writer removes the marker of the first, as every writer does.
            std::fs::write(others.join("epoch-00000002"), "")?;
        }
        Ok(())
    };
    let dir = Dir::on(TestDisk::open(&path, 0, hook), &path).unwrap();
    assert_eq!(Epoch::take(&dir, 0).unwrap().number, 3);
    let markers: Vec<_> = dir.own().unwrap();
    assert_eq!(markers, [FileName::Marker { epoch: 3 }]);
}

/// Each part was small enough to be saved, so a phase must accept both together.
#[test]
fn large_head_and_events_fit_a_checkpoint() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut noise = |mib: usize| -> Vec<u8> {
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        words.take(mib << 17).flatten().collect()
    };
    let (head, events) = (noise(5), noise(60));
    let state = State {
        head: Some(head.clone()),
        events: vec![crate::replay::Events::new(events.clone())],
        ..State::default()
    };
    let root = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(&root.path().join("s"));
    writer
        .save_state("p", state, PhaseMeta::default(), None)
        .unwrap();
    let index = Index::read(&writer.dir, LoadPurpose::Anything).unwrap();
    let loaded = load::newest(&writer.dir, index).unwrap().state;
    assert!(loaded.head == Some(head) && loaded.events[0].bytes() == events);
}

/// A store's own phase stays, however high the numbers of foreign phases are.
#[test]
fn just_saved_value_is_not_treated_as_old() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("s");
    let (mut writer, _) = open(&dir);
    writer
        .save_phase("p", head(1), PhaseMeta::default())
        .unwrap();
    for stray in [8, 9] {
        let name = FileName::Phase { seq: stray }.to_string();
        std::fs::write(dir.join(name), "x").unwrap();
    }
    writer.keep_phases(2).unwrap();
    let own = FileName::Phase { seq: 1 }.to_string();
    assert!(writer.dir.exists(&own).unwrap());
}

/// The journal of the next writer may have longer metadata, and must also fit into a file.
#[test]
fn journal_stays_below_the_largest_file_size() {
    let root = tempfile::tempdir().unwrap();
    let (mut writer, _) = open(&root.path().join("s"));
    writer.append(head(1), 1).unwrap();
    let (file, name) = writer.journal.take().map(|it| (it.file, it.name)).unwrap();
    let journal = Journal::new(file, name, 0, MAX_FILE - 200, &writer.dir);
    let kept = PackedFrame::pack(DELTA, 2, 1, head(2), CompressionEffort::Save).unwrap();
    assert!(journal.check_room(&writer.dir, &kept).is_err());
}

/// Returns a writer on a disk that keeps 64 KiB in memory, with 3,000 saves of 200 bytes that do not compress.
fn long_history(path: &Path) -> (RawWriter, Vec<u64>) {
    let dir = Dir::on(TestDisk::open(path, 0, |_| Ok(())), path).unwrap();
    let (mut writer, _) = RawWriter::open_on(dir, Options::default()).unwrap();
    let events: Vec<u64> = (1..=75_000_u64)
        .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .collect();
    for (n, events) in (1..).zip(events.chunks(25)) {
        let mut raw = head(n);
        let head_len = raw.len();
        codec::encode(&mut raw, events).unwrap();
        writer.append(raw, head_len).unwrap();
    }
    (writer, events)
}

fn events(loaded: &Loaded) -> Vec<u64> {
    let rows = loaded.state.events.iter();
    rows.flat_map(|row| {
        let mut row = row.bytes();
        let mut events: Vec<u64> = Vec::new();
        while !row.is_empty() {
            events.extend(codec::decode_next::<Vec<u64>>(&mut row).unwrap());
        }
        events
    })
    .collect()
}

#[test]
fn open_for_the_head_counts_the_events_that_it_does_not_unpack() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (writer, _) = long_history(&path);
    let expected = writer.event_bytes;
    drop(writer);
    let (mut writer, loaded) = RawWriter::open_head(&path, Options::default()).unwrap();
    assert!(loaded.state.events.is_empty() && loaded.state.head.is_some());
    assert_eq!((writer.event_bytes, expected > 0), (expected, true));
    writer.append(head(0), 1).unwrap();
    drop(writer);
    let (writer, loaded) = RawWriter::open(&path, Options::default()).unwrap();
    assert_eq!(writer.event_bytes, loaded.state.event_bytes());
}

#[test]
fn x116e_writer_memory_is_independent_of_history_length() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, saved) = long_history(&path);
    assert!(writer.saves.in_memory() <= 64 << 10);
    // The saves that are not in memory must be there when a file fails, when a file is removed, and when a phase is written.
    break_journal(&mut writer, &path);
    writer.append(head(0), 1).unwrap();
    assert_eq!(writer.last_repair().map(|repaired| repaired.epoch), Some(2));
    let index = Index::read(&writer.dir, LoadPurpose::Anything).unwrap();
    let loaded = load::newest(&writer.dir, index).unwrap();
    assert_eq!(events(&loaded), saved);
    std::fs::remove_dir_all(&path).unwrap();
    writer.append(head(0), 1).unwrap();
    assert!(writer.saves.in_memory() <= 64 << 10);
    drop(writer);
    let (mut writer, loaded) = open(&path);
    assert_eq!((loaded.seq, events(&loaded)), (3002, saved.clone()));
    assert!(writer.saves.in_memory() <= 64 << 10);
    writer.truncate_to(1).unwrap();
    writer.truncate_to(3002).unwrap_err();
    writer
        .save_phase("p", head(1), PhaseMeta::default())
        .unwrap();
    drop(writer);
    assert_eq!(events(&open(&path).1), saved[..25]);
}

/// Somebody truncates an open journal, so the writer cannot restore the lost saves. It then accepts no save, because no load could read that save.
#[test]
fn missing_older_saves_are_an_error_and_never_skipped() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, _) = long_history(&path);
    let name = writer.journal.as_ref().unwrap().name.clone();
    let journal = std::fs::File::options().write(true).open(path.join(name));
    journal.unwrap().set_len(100_000).unwrap();
    break_journal(&mut writer, &path);
    let err = writer.append(head(0), 1).unwrap_err();
    assert!(
        err.is_poisoned() && err.to_string().contains("damaged"),
        "{err}"
    );
    assert!(writer.append(head(0), 1).unwrap_err().is_poisoned());
}
