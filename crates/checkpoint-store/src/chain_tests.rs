//! Journals that continue other journals. The disk reserves little room, so short journals are long enough for a link.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::load::{self, Index, LoadPurpose, Loaded};
use crate::meta::PhaseMeta;
use crate::options::{Migrations, Options};
use crate::raw_writer::RawWriter;
use crate::report::LoadReport;
use crate::test_disk::TestDisk;
use crate::{Seq, newest_head, reader, verify};

const AHEAD: u64 = 1 << 10;

fn dir(path: &Path) -> Dir {
    Dir::on(TestDisk::open(path, AHEAD, |_| Ok(())), path).unwrap()
}

fn open(path: &Path) -> (RawWriter, Loaded) {
    RawWriter::open_on(dir(path), Options::default()).unwrap()
}

/// Saves the head `n` and the one event `n`.
fn save(writer: &mut RawWriter, n: u64) {
    let mut raw = Vec::new();
    codec::encode(&mut raw, &n).unwrap();
    let head_len = raw.len();
    codec::encode(&mut raw, &[n]).unwrap();
    writer.append(raw, head_len).unwrap();
}

/// Returns a store with the saves 1 to `saves`, all from one writer.
fn store(saves: u64) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let (mut writer, _) = open(&path);
    (1..=saves).for_each(|n| save(&mut writer, n));
    (root, path)
}

fn journals(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = dir(path).names().unwrap().into_iter();
    let names = names.filter(|name| name.starts_with("progress-"));
    names
        .map(|name| (name.clone(), fs::read(path.join(name)).unwrap()))
        .collect()
}

fn name(epoch: u64) -> String {
    FileName::Progress { epoch, base: 0 }.to_string()
}

/// Checks that a load without damage returns the saves 1 to `saves`.
fn assert_loads(path: &Path, saves: u64) {
    let loaded = reader::load::<u64, u64>(path).unwrap();
    assert!(loaded.report.is_undamaged(), "{}", loaded.report);
    assert_eq!((loaded.head, loaded.seq.get()), (Some(saves), saves));
    assert_eq!(loaded.events, (1..=saves).collect::<Vec<_>>());
    let (head, seq, report) = in_one_pass(path).expect("the store is undamaged");
    assert_eq!((head, seq, report), (loaded.head, saves, loaded.report));
}

/// Reads the newest head without the whole load.
fn in_one_pass(path: &Path) -> Option<(Option<u64>, u64, LoadReport)> {
    let Loaded {
        state, seq, report, ..
    } = newest_head::read(&dir(path), LoadPurpose::Anything).ok()??;
    let head = state.head.map(|head| codec::decode(&head).unwrap());
    Some((head, seq, report))
}

/// A chain of three journals whose files are longer than the part that is in memory.
#[test]
fn one_pass_returns_the_newest_head_or_leaves_it_to_the_whole_load() {
    let (_root, path) = store(100);
    for saves in [150, 200] {
        let (mut writer, _) = open(&path);
        (saves - 49..=saves).for_each(|n| save(&mut writer, n));
    }
    assert_loads(&path, 200);
    let mut plain = 0;
    for (name, sound) in journals(&path) {
        for at in (0..sound.len()).step_by(5) {
            let mut damaged = sound.clone();
            damaged[at] ^= 0x20;
            for bytes in [&damaged[..], &sound[..at]] {
                fs::write(path.join(&name), bytes).unwrap();
                let Some((head, seq, report)) = in_one_pass(&path) else {
                    continue;
                };
                plain += 1;
                let loaded = reader::load::<u64, u64>(&path).unwrap();
                let expected = (loaded.head, loaded.seq.get(), loaded.report);
                assert_eq!((head, seq, report), expected, "{name} at {at}");
            }
        }
        fs::write(path.join(&name), &sound).unwrap();
    }
    assert!(plain > 10, "bytes that no save uses may change");
}

#[test]
fn one_pass_leaves_an_undo_to_the_whole_load() {
    let (_root, path) = store(100);
    let (mut writer, _) = open(&path);
    writer.truncate_to(50).unwrap();
    assert_eq!(in_one_pass(&path), None);
    let loaded = reader::head_on::<u64>(TestDisk::open(&path, AHEAD, |_| Ok(())), &path).unwrap();
    assert_eq!((loaded.head, loaded.seq.get()), (Some(50), 101));
}

#[test]
fn k4a_open_leaves_a_sound_journal_as_it_is_and_copies_only_its_end() {
    let (_root, path) = store(100);
    let before = journals(&path);
    let (mut writer, loaded) = open(&path);
    assert_eq!(loaded.seq, 100);
    let after = journals(&path);
    assert_eq!(after[&name(1)], before[&name(1)]);
    assert!(after[&name(2)].len() < before[&name(1)].len() / 4);
    assert_loads(&path, 100);
    save(&mut writer, 101);
    assert_loads(&path, 101);
    let seen = verify::verify_on(TestDisk::open(&path, AHEAD, |_| Ok(())), &path).unwrap();
    let whole = |file: &verify::File| (file.condition.clone(), file.saves);
    let saves = |last| Some((Seq::new(1), Seq::new(last)));
    let valid = verify::FileCondition::Valid;
    let files: Vec<_> = seen.files.iter().map(whole).collect();
    assert_eq!(files, [(valid.clone(), saves(100)), (valid, saves(101))]);
}

#[test]
fn old_saves_can_be_loaded_undone_and_listed_through_a_link() {
    let (_root, path) = store(100);
    let (mut writer, _) = open(&path);
    save(&mut writer, 101);
    for seq in [1, 50, 99, 101] {
        let loaded = reader::load_at::<u64, u64>(&path, Seq::new(seq), &Options::default());
        let events: Vec<_> = (1..=seq).collect();
        assert_eq!(loaded.unwrap().events, events);
    }
    writer.truncate_to(50).unwrap();
    let mut heads = Vec::new();
    reader::history::<u64>(&path, &Options::default(), |_, head| heads.push(head)).unwrap();
    assert_eq!(heads.len(), 51);
    drop(writer);
    let (mut writer, loaded) = open(&path);
    assert_eq!((loaded.seq, loaded.seqs.len()), (102, 51));
    writer
        .save_phase("p", vec![7], PhaseMeta::default())
        .unwrap();
    drop(writer);
    let loaded = reader::load::<u64, u64>(&path).unwrap();
    assert_eq!(loaded.events, (1..=50).collect::<Vec<_>>());
}

/// Each writer makes enough saves for a link of its own. The chain stays short, and so does the list of files.
#[test]
fn chain_of_many_writers_has_a_bounded_number_of_files() {
    let (_root, path) = store(100);
    let mut saves = 100;
    let mut most = 0;
    for _ in 0..60 {
        let (mut writer, loaded) = open(&path);
        assert_eq!(loaded.seq, saves);
        for _ in 0..6 {
            saves += 1;
            save(&mut writer, saves);
        }
        most = most.max(writer.saves.linked().count());
        assert!(journals(&path).len() <= MAX_LINKED + 2);
        assert_loads(&path, saves);
    }
    assert_eq!(most, MAX_LINKED);
}

#[test]
fn writers_without_saves_leave_no_files() {
    let (_root, path) = store(100);
    for _ in 0..5 {
        open(&path);
        assert!(journals(&path).contains_key(&name(1)));
        assert!(journals(&path).len() <= 3);
        assert_loads(&path, 100);
    }
}

/// A journal whose writer took no save may have a name that is not durable. The next journal continues the file before it.
#[test]
fn link_passes_over_a_journal_without_saves_of_its_own() {
    let (_root, path) = store(100);
    open(&path);
    let (mut writer, _) = open(&path);
    save(&mut writer, 101);
    fs::remove_file(path.join(name(2))).unwrap();
    assert_loads(&path, 101);
}

/// The same for a long journal: it copied the newest files of a chain that was too long, and its writer took no save.
#[test]
fn link_passes_over_a_long_journal_without_saves_of_its_own() {
    let (_root, path) = store(100);
    let (mut saves, mut linked) = (100, 0);
    let unused = (2..60).find(|_| {
        let (mut writer, _) = open(&path);
        let now = writer.saves.linked().count();
        let is_folded = now < linked;
        linked = now;
        for _ in 0..if is_folded { 0 } else { 6 } {
            saves += 1;
            save(&mut writer, saves);
        }
        is_folded
    });
    let unused = name(unused.expect("a writer copies the newest files"));
    let long = journals(&path)[&unused].len();
    let (mut writer, _) = open(&path);
    assert!(long > 1000 && writer.saves.linked().all(|it| it.name != unused));
    saves += 1;
    save(&mut writer, saves);
    fs::remove_file(path.join(unused)).unwrap();
    assert_loads(&path, saves);
}

#[test]
fn last_save_is_always_copied() {
    let (_root, path) = store(100);
    let (writer, _) = open(&path);
    let linked = writer.saves.linked().next().unwrap();
    let bytes = &journals(&path)[&linked.name];
    let (frames, _) = scan(bytes, linked.salt).unwrap();
    let (part, link, _) = scanned(
        &name(2),
        read_meta(&journals(&path)[&name(2)]).unwrap(),
        journals(&path)[&name(2)].clone(),
    )
    .unwrap();
    let (last_linked, link) = link.unwrap();
    assert_eq!(part.frames[0].seq, last_linked + 1);
    assert_eq!(part.frames.last().unwrap().seq, 100);
    let last = frames.last().unwrap();
    assert!(link.end + least_copied(dir(&path).disk()) <= last.offset as u64);
}

/// A fenced writer that passed its last check still writes its save, after the link.
#[test]
fn late_write_of_a_fenced_writer_changes_nothing() {
    let (_root, path) = store(100);
    let (mut old, _) = open(&path);
    (101..=200).for_each(|n| save(&mut old, n));
    fs::remove_file(path.join("LOCK")).unwrap();
    let (mut new, loaded) = open(&path);
    assert_eq!(loaded.seq, 200);
    let mut raw = Vec::new();
    codec::encode(&mut raw, &999).unwrap();
    let late = PackedFrame::pack(frame::DELTA, 201, raw.len(), raw, CompressionEffort::Save);
    let journal = old.journal.take().unwrap();
    journal.put(&old.dir, &[late.unwrap()]).unwrap();
    assert!(old.confirm().unwrap_err().is_fenced());
    assert_loads(&path, 200);
    save(&mut new, 201);
    assert_loads(&path, 201);
    drop((old, new));
    assert_eq!(open(&path).1.seq, 201);
    assert_loads(&path, 201);
}

/// Every changed byte in the linked part is found; the load returns the state before the damage, and the next writer continues from there.
#[test]
fn damage_in_a_linked_file_is_reported_and_copied_around() {
    let (_root, path) = store(100);
    let (mut writer, _) = open(&path);
    save(&mut writer, 101);
    drop(writer);
    let file = path.join(name(1));
    let sound = fs::read(&file).unwrap();
    for at in (500..2500).step_by(90) {
        let mut damaged = sound.clone();
        damaged[at] ^= 4;
        fs::write(&file, damaged).unwrap();
        let loaded = reader::load::<u64, u64>(&path).unwrap();
        let seq = loaded.seq.get();
        assert!((1..100).contains(&seq), "{}", loaded.report);
        assert_eq!(loaded.events, (1..=seq).collect::<Vec<_>>());
        let skipped = loaded.report.skipped.iter();
        let skipped: Vec<_> = skipped.map(|it| it.file.clone()).collect();
        assert_eq!(skipped, [name(2), name(1)], "{}", loaded.report);
    }
    let (mut writer, loaded) = open(&path);
    assert_eq!(loaded.report.set_aside.len(), 2);
    assert_eq!(writer.saves.linked().count(), 0);
    let seq = loaded.seq;
    save(&mut writer, seq + 1);
    assert_loads(&path, seq + 1);
}

#[test]
fn missing_linked_file_is_damage_for_a_load_and_repaired_by_a_live_writer() {
    let (_root, path) = store(100);
    let (mut writer, _) = open(&path);
    save(&mut writer, 101);
    fs::remove_file(path.join(name(1))).unwrap();
    let err = reader::load::<u64, u64>(&path).unwrap_err();
    assert!(
        err.is_corrupt() && err.to_string().contains("is missing"),
        "{err}"
    );
    save(&mut writer, 102);
    assert!(writer.last_repair().is_some());
    assert_eq!(writer.saves.linked().count(), 0);
    assert_loads(&path, 102);
}

/// After damage to the first saves of the new journal, the older journal still has all saves that it had.
#[test]
fn damaged_link_falls_back_to_the_journal_that_it_continues() {
    let (_root, path) = store(100);
    drop(open(&path));
    let file = path.join(name(2));
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes
        .windows(4)
        .enumerate()
        .filter(|(_, four)| four == b"CKF1");
    let at = at.map(|(at, _)| at).nth(1).unwrap();
    assert_eq!(
        bytes[at + 4..at + 6],
        [LINK, CRITICAL],
        "an older program refuses the frame"
    );
    bytes[at + 20] ^= 1;
    fs::write(&file, bytes).unwrap();
    let (_, loaded) = open(&path);
    assert_eq!((loaded.seq, loaded.report.skipped.len()), (100, 1));
    assert_loads(&path, 100);
}

/// Links of hostile files end in an error, not in an endless loop or in a wrong state.
#[test]
fn link_to_another_file_is_refused() {
    let (_root, path) = store(100);
    drop(open(&path));
    let bytes = journals(&path)[&name(2)].clone();
    let meta = read_meta(&bytes).unwrap();
    let (part, link, _) = scanned(&name(2), meta.clone(), bytes).unwrap();
    let (seq, link) = link.unwrap();
    let other = PhaseId::new(std::time::SystemTime::UNIX_EPOCH, [1, 2]);
    let own = meta.id;
    for (bad, reason) in [
        (Link { id: other, ..link }, "damaged"),
        (
            Link {
                epoch: 2,
                id: own,
                ..link
            },
            "not older than itself",
        ),
        (Link { epoch: 9, ..link }, "not older than itself"),
        (
            Link {
                end: link.end - 1,
                ..link
            },
            "damaged",
        ),
        (
            Link {
                end: link.end + 1,
                ..link
            },
            "damaged",
        ),
        (
            Link {
                end: u64::MAX,
                ..link
            },
            "part of a chain that is too long",
        ),
    ] {
        let mut file = crate::file_builder::FileBuilder::new(&meta, seq - 1, 7).unwrap();
        file.push_stored(&pack(&bad, seq).unwrap());
        part.frames
            .iter()
            .for_each(|&frame| file.push_stored(&part.packed(frame)));
        let read = read(
            &dir(&path),
            &name(2),
            &meta,
            file.bytes,
            u64::MAX,
            Needed::Everything,
        );
        let skipped = read.unwrap().unwrap_err();
        assert!(skipped.reason.ends_with(reason), "{bad:?}: {skipped}");
    }
}

#[test]
fn values_of_an_older_version_are_copied_and_not_linked() {
    let (_root, path) = store(100);
    let options = Options {
        schema_version: 2,
        migrations: Migrations::default().event(1, |n: u64| Ok(n)),
        ..Options::default()
    };
    let (writer, _) = RawWriter::open_on(dir(&path), options).unwrap();
    assert_eq!(writer.saves.linked().count(), 0);
}

/// A repair writes all saves to one file, so a chain has at most as many bytes as one file may have.
#[test]
fn chain_stays_below_the_largest_file_size() {
    let (_root, path) = store(100);
    let (mut writer, _) = open(&path);
    let mut journal = writer.journal.take().unwrap();
    assert!(journal.linked > 1000);
    let kept = PackedFrame::pack(frame::DELTA, 101, 1, vec![1], CompressionEffort::Save).unwrap();
    journal.check_room(&writer.dir, &kept).unwrap();
    journal.linked = MAX_FILE - 1500;
    assert!(journal.check_room(&writer.dir, &kept).is_err());
}

#[test]
fn compaction_of_a_chain_keeps_all_events_and_one_file() {
    let (_root, path) = store(100);
    let (mut writer, _) = open(&path);
    let index = |path: &Path| Index::read(&dir(path), LoadPurpose::Anything).unwrap();
    let before = load::newest(&dir(&path), index(&path)).unwrap();
    for n in 101..=160_u64 {
        // Heads that don't compress outweigh the events.
        let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let noise = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        });
        let mut raw = Vec::new();
        codec::encode(&mut raw, &noise.take(200).collect::<Vec<u8>>()).unwrap();
        let head_len = raw.len();
        writer.append(raw, head_len).unwrap();
    }
    assert_eq!(
        writer.saves.linked().count(),
        0,
        "the journal was compacted"
    );
    drop(writer);
    let after = load::newest(&dir(&path), index(&path)).unwrap();
    let bytes = |loaded: &Loaded| {
        let rows = loaded.state.events.iter();
        rows.flat_map(|row| row.bytes().to_vec())
            .collect::<Vec<_>>()
    };
    assert_eq!(bytes(&after), bytes(&before));
}
