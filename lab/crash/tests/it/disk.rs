//! The model, compared with small cases.

use rlm_crash::choice::Decisions;
use rlm_crash::disk::{Disk, ROOT};
use rlm_crash::rng::Rng;

/// Returns all contents that a file may have after a power cut now; `None` stands for a missing file.
fn outcomes(disk: &Disk, name: &str) -> Vec<Option<String>> {
    let freedom = Decisions::of(disk);
    let mut found: Vec<_> = freedom
        .choices(usize::MAX, &mut Rng::new(0))
        .iter()
        .map(|choice| {
            let disk = freedom.apply(disk, choice);
            let ino = disk.lookup(ROOT, name)?;
            Some(String::from_utf8_lossy(disk.read(ino).unwrap()).replace('\0', "0"))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

fn texts(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

/// Returns a disk with sectors of two bytes and a durable file `f`.
fn with(text: &str) -> (Disk, usize) {
    let mut disk = Disk::new(2);
    let ino = disk.create(ROOT, "f", false).unwrap();
    disk.write(ino, 0, text.as_bytes()).unwrap();
    disk.sync_file(ino).unwrap();
    disk.sync_dir(ROOT).unwrap();
    (disk, ino)
}

#[test]
fn synced_data_has_one_outcome() {
    let (disk, _) = with("abcd");
    assert_eq!(outcomes(&disk, "f"), texts(&["abcd"]));
}

#[test]
fn a_name_needs_the_sync_of_its_directory() {
    let mut disk = Disk::new(2);
    let ino = disk.create(ROOT, "f", false).unwrap();
    disk.write(ino, 0, b"ab").unwrap();
    disk.sync_file(ino).unwrap();
    assert_eq!(outcomes(&disk, "f"), [None, Some("ab".into())]);
}

#[test]
fn any_subset_of_sectors_persists_each_in_any_version() {
    let (mut disk, ino) = with("abcd");
    disk.write(ino, 1, b"XY").unwrap();
    disk.write(ino, 1, b"Z").unwrap();
    assert_eq!(
        outcomes(&disk, "f"),
        texts(&["aXYd", "aXcd", "aZYd", "aZcd", "abYd", "abcd"])
    );
}

#[test]
fn file_length_may_persist_without_its_data() {
    let (mut disk, ino) = with("a");
    disk.write(ino, 1, b"b").unwrap();
    assert_eq!(
        outcomes(&disk, "f"),
        [
            Some("a".into()),
            Some("a0".into()),
            Some("ab".into()),
            Some("a\u{fffd}".into())
        ]
    );
}

#[test]
fn unwritten_bytes_may_come_from_a_removed_file() {
    let (mut disk, _) = with("OLD");
    disk.unlink(ROOT, "f").unwrap();
    disk.sync_dir(ROOT).unwrap();
    let ino = disk.create(ROOT, "g", false).unwrap();
    disk.sync_dir(ROOT).unwrap();
    disk.set_len(ino, 3).unwrap();
    assert!(outcomes(&disk, "g").contains(&Some("OLD".into())));
}

#[test]
fn truncation_may_be_undone() {
    let (mut disk, ino) = with("abcd");
    disk.set_len(ino, 1).unwrap();
    let found = outcomes(&disk, "f");
    assert!(
        found.contains(&Some("a".into())) && found.contains(&Some("abcd".into())),
        "{found:?}"
    );
    disk.sync_file(ino).unwrap();
    assert_eq!(outcomes(&disk, "f"), texts(&["a"]));
}

#[test]
fn a_renamed_file_is_never_without_a_name() {
    let (mut disk, _) = with("ab");
    let sub = disk.create(ROOT, "d", true).unwrap();
    disk.sync_dir(ROOT).unwrap();
    assert!(disk.rename_new(ROOT, "f", sub, "g").unwrap());
    let freedom = Decisions::of(&disk);
    let mut found = Vec::new();
    let choices = Vec::from_iter(freedom.choices(usize::MAX, &mut Rng::new(0)));
    assert!(choices.len() > 2, "{choices:?}");
    for choice in choices {
        let disk = freedom.apply(&disk, &choice);
        let sub = disk.lookup(ROOT, "d").unwrap();
        found.push((
            disk.lookup(ROOT, "f").is_some(),
            disk.lookup(sub, "g").is_some(),
        ));
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, [(false, true), (true, false), (true, true)]);
}

#[test]
fn any_subset_of_directory_entries_persists() {
    let mut disk = Disk::new(2);
    disk.create(ROOT, "f", false).unwrap();
    disk.create(ROOT, "g", false).unwrap();
    disk.unlink(ROOT, "f").unwrap();
    assert_eq!(Decisions::of(&disk).total(), 8);
    assert_eq!(outcomes(&disk, "f"), [None, Some(String::new())]);
}

#[test]
fn sync_after_failed_sync_reports_false_success() {
    let (mut disk, ino) = with("ab");
    disk.write(ino, 0, b"XY").unwrap();
    disk.fail_sync(ino);
    disk.sync_file(ino).unwrap();
    assert_eq!(disk.read(ino).unwrap(), b"XY");
    assert_eq!(outcomes(&disk, "f"), texts(&["XY", "ab"]));
    // Bytes that are written again are dirty again.
    disk.write(ino, 0, b"XY").unwrap();
    disk.sync_file(ino).unwrap();
    assert_eq!(outcomes(&disk, "f"), texts(&["XY"]));
}

#[test]
fn choice_round_trips() {
    let (mut disk, ino) = with("abcdef");
    disk.write(ino, 0, b"ABCDEF").unwrap();
    let freedom = Decisions::of(&disk);
    for choice in freedom.choices(usize::MAX, &mut Rng::new(0)) {
        assert_eq!(
            rlm_crash::choice::Outcomes::parse(&choice.to_string()),
            Some(choice)
        );
    }
}

#[test]
fn directory_entries_of_failed_sync_need_another_change() {
    let mut disk = Disk::new(2);
    disk.create(ROOT, "f", false).unwrap();
    disk.fail_sync(ROOT);
    disk.sync_dir(ROOT).unwrap();
    assert_eq!(outcomes(&disk, "f"), [None, Some(String::new())]);
    disk.create(ROOT, "g", false).unwrap();
    disk.sync_dir(ROOT).unwrap();
    assert_eq!(outcomes(&disk, "f"), texts(&[""]));
}
