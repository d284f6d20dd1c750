//! Files that were truncated or changed: a load returns an exact state or an error, and never an old state without a report.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;

use checkpoint_store::{Error, Loaded, Options, PhaseMeta, Seq, reader};

use crate::support::{Dir, Log, cut_room, files, torn_len, without_room};

type State = (Option<u64>, Vec<u64>);

/// Writes a short history and returns every state that was acknowledged, oldest first.
fn history(dir: &Dir) -> Vec<State> {
    let (mut writer, _) = dir.open();
    let mut states = vec![(None, vec![])];
    let mut saved = |dir: &Dir| {
        let loaded = dir.load();
        states.push((loaded.head, loaded.events));
    };
    writer.append(&1, &[10, 11]).unwrap();
    saved(dir);
    let two = writer.append(&2, &[20]).unwrap();
    saved(dir);
    writer.append(&3, &[]).unwrap();
    saved(dir);
    writer.truncate_to(two).unwrap();
    saved(dir);
    writer.append(&4, &[40]).unwrap();
    saved(dir);
    cut_room(&dir.only("progress-"));
    states
}

/// Checks the result of loading a damaged store: an exact state or an error, and the newest state unless the load reports something.
fn check(what: &str, loaded: Result<Loaded<u64, u64>, Error>, states: &[State]) -> Option<usize> {
    match loaded {
        Ok(loaded) => {
            let report = loaded.report;
            let state = (loaded.head, loaded.events);
            let Some(index) = states.iter().rposition(|known| *known == state) else {
                panic!("{what}: {state:?} was never saved")
            };
            // A truncation exactly between two saves leaves no trace; any other loss must be reported.
            if !what.starts_with("cut") && report.is_undamaged() && report.repaired_tail.is_none() {
                assert_eq!(
                    index,
                    states.len() - 1,
                    "{what}: a save was lost without a report"
                );
            }
            Some(index)
        }
        Err(err) => {
            assert!(err.is_corrupt(), "{what}: {err}");
            None
        }
    }
}

/// Makes a copy of a store with one changed file, in its own directory.
fn with(original: &BTreeMap<String, Vec<u8>>, name: &str, bytes: &[u8]) -> Dir {
    let dir = Dir::new();
    std::fs::create_dir(&dir.path).unwrap();
    for (file, contents) in original {
        std::fs::write(dir.path.join(file), contents).unwrap();
    }
    std::fs::write(dir.path.join(name), bytes).unwrap();
    dir
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn every_truncation_of_a_journal_gives_an_exact_state_or_an_error() {
    let dir = Dir::new();
    let states = history(&dir);
    let path = dir.only("progress-");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let mut seen = Seq::new(5);
    for len in (0..file.metadata().unwrap().len()).rev() {
        file.set_len(len).unwrap();
        let loaded = reader::load(&dir.path);
        if let Ok(loaded) = &loaded {
            assert!(loaded.seq <= seen, "a shorter file has no newer state");
            assert!(loaded.seq.get() + 1 >= seen.get(), "no save is skipped");
            seen = loaded.seq;
        }
        check(&format!("cut to {len}"), loaded, &states);
    }
    assert_eq!(seen, Seq::ZERO, "all lengths were tried");
}

/// Runs `each` with every bit of a file flipped in turn.
fn with_flips(path: &Path, mut each: impl FnMut(usize)) {
    let bytes = std::fs::read(path).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    for bit in 0..bytes.len() * 8 {
        let at = bit / 8;
        file.write_all_at(&[bytes[at] ^ (1 << (bit % 8))], at as u64)
            .unwrap();
        each(bit);
        file.write_all_at(&bytes[at..=at], at as u64).unwrap();
    }
}

#[test]
fn every_bit_flip_in_a_journal_gives_an_exact_state_or_an_error() {
    let dir = Dir::new();
    let states = history(&dir);
    let path = dir.only("progress-");
    with_flips(&path, |bit| {
        let index = check(&format!("bit {bit}"), reader::load(&dir.path), &states);
        assert_ne!(index, Some(states.len() - 1), "no check detects bit {bit}");
    });
}

#[test]
fn every_bit_flip_in_a_phase_falls_back_to_the_previous_state() {
    let dir = Dir::new();
    let mut states = history(&dir);
    let (mut writer, _) = dir.open();
    writer.save_phase("p", &5, PhaseMeta::default()).unwrap();
    drop(writer);
    states.push((Some(5), vec![10, 11, 20, 40]));
    let path = dir.only("phase-");
    with_flips(&path, |bit| {
        let index = check(&format!("bit {bit}"), reader::load(&dir.path), &states);
        assert_eq!(index, Some(states.len() - 2), "bit {bit}");
    });
}

/// A writer that opens a damaged store loads an exact state and can continue from it.
#[test]
fn c63a_c63b_c63c_writers_continue_from_the_last_valid_state() {
    let source = Dir::new();
    let states = history(&source);
    let original = files(&source.path);
    let name = name_of(&source.only("progress-"));
    let bytes = &original[&name];
    for at in (0..bytes.len()).step_by(5) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let dir = with(&original, &name, &damaged);
        let opened = Log::open(&dir.path, Options::default());
        let Ok((mut writer, loaded)) = opened else {
            assert!(opened.unwrap_err().is_corrupt());
            assert_eq!(
                files(&dir.path)[&name],
                damaged,
                "a lost store is unchanged"
            );
            continue;
        };
        if let Some(skipped) = loaded.report.skipped.first() {
            assert_eq!(skipped.file, name);
            let aside = dir.path.join(&loaded.report.set_aside[0]);
            assert_eq!(
                std::fs::read(aside).unwrap(),
                damaged,
                "damaged bytes are set aside, not deleted"
            );
        }
        let mut events = loaded.events.clone();
        check(&format!("byte {at}"), Ok(loaded), &states);
        writer.append(&99, &[99]).unwrap();
        drop(writer);
        events.push(99);
        let (_, again) = dir.open();
        assert_eq!((again.head, again.events), (Some(99), events));
        assert!(again.report.is_undamaged() && again.report.repaired_tail.is_none());
    }
}

#[test]
fn c63a_c63d_store_without_valid_save_is_an_error_and_not_empty() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.save_phase("p", &1, PhaseMeta::default()).unwrap();
    drop(writer);
    std::fs::write(dir.only("phase-"), "nonsense").unwrap();
    assert!(
        reader::load::<u64, u64>(&dir.path)
            .unwrap_err()
            .is_corrupt()
    );
    for _ in 0..2 {
        assert!(
            Log::open(&dir.path, Options::default())
                .unwrap_err()
                .is_corrupt()
        );
    }
}

/// Flips a bit in the n-th frame of a file; the metadata is frame 0.
fn flip_in_frame(path: &Path, n: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    let mut frames = bytes
        .windows(4)
        .enumerate()
        .filter(|(_, four)| four == b"CKF1");
    let at = frames.nth(n).unwrap().0;
    bytes[at + 20] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn c63a_c63d_loss_of_all_saves_is_an_error_and_not_an_empty_store() {
    let dir = Dir::new();
    history(&dir);
    flip_in_frame(&dir.only("progress-"), 1);
    assert!(
        reader::load::<u64, u64>(&dir.path)
            .unwrap_err()
            .is_corrupt()
    );
    assert!(
        Log::open(&dir.path, Options::default())
            .unwrap_err()
            .is_corrupt()
    );
    dir.only("progress-");
}

/// If the copied journal is damaged, the generation before it is used.
#[test]
fn c63c_damaged_copy_falls_back_to_its_original() {
    let dir = Dir::new();
    history(&dir);
    let (writer, loaded) = dir.open();
    let copy = dir.path.join("progress-00000002-0000000000000000.ckj");
    drop(writer);
    flip_in_frame(&copy, 2);
    let (_, again) = dir.open();
    assert_eq!((again.head, again.events), (loaded.head, loaded.events));
    assert_eq!(again.report.skipped.len(), 1);
}

/// The report has the facts that a person needs. The names are the same in every run.
#[test]
fn reports_are_readable_lines() {
    let dir = Dir::new();
    history(&dir);
    let (mut writer, _) = dir.open();
    writer.save_phase("plan", &5, PhaseMeta::default()).unwrap();
    drop(writer);
    let mut bytes = std::fs::read(dir.only("phase-")).unwrap();
    bytes[0] = 0;
    std::fs::write(dir.only("phase-"), bytes).unwrap();
    std::fs::write(dir.path.join(".tmp-00000001-0000000000000001"), "x").unwrap();
    let journal = dir.path.join("progress-00000002-0000000000000000.ckj");
    let mut bytes = std::fs::read(&journal).unwrap();
    bytes.extend_from_slice(b"CKF1 half a frame");
    std::fs::write(&journal, bytes).unwrap();
    insta::assert_snapshot!(dir.open().1.report);
    insta::assert_snapshot!(Dir::new().open().1.report, @"nothing was saved yet");
}

/// Simulates a writer that appends after a torn tail, which the design forbids. Its acknowledged save is lost. So this test shows why a torn tail
/// must not stay.
#[test]
fn c60_control_a_writer_that_appends_after_a_torn_tail_loses_its_save() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.append(&1, &[1]).unwrap();
    let path = dir.only("progress-");
    let read = || without_room(&std::fs::read(&path).unwrap()).to_vec();
    let before = read();
    writer.append(&2, &[2]).unwrap();
    drop(writer);
    let after = read();
    let frame = &after[before.len()..];
    let naive = [&before[..], &frame[..20], frame].concat();
    std::fs::write(&path, &naive).unwrap();
    let loaded = dir.load();
    assert_eq!(
        loaded.head,
        Some(1),
        "no load finds the second save after the torn one"
    );
    assert!(!loaded.report.is_undamaged(), "the load reports the loss");

    // With the same tail, the real writer loses nothing.
    std::fs::write(&path, [&before[..], &frame[..20]].concat()).unwrap();
    let (mut writer, loaded) = dir.open();
    assert_eq!(
        loaded.report.repaired_tail,
        Some(torn_len(&frame[..20]) as u64)
    );
    writer.append(&2, &[2]).unwrap();
    drop(writer);
    let (_, loaded) = dir.open();
    assert_eq!((loaded.head, loaded.events), (Some(2), vec![1, 2]));
    assert_eq!(loaded.report.repaired_tail, None);
}
