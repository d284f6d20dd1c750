//! Returns to older saves, forks, migrations and compactions.

use checkpoint_store::{Migrations, Options, PhaseMeta, Seq, Writer, fork, reader};

use crate::support::{Dir, Log, Random, files};

fn at(dir: &Dir, seq: u64) -> Option<(Option<u64>, Vec<u64>)> {
    match reader::load_at::<u64, u64>(&dir.path, Seq::new(seq), &Options::default()) {
        Ok(loaded) => Some((loaded.head, loaded.events)),
        Err(err) => {
            assert!(err.is_not_found(), "{err}");
            None
        }
    }
}

#[test]
fn every_save_can_be_loaded_even_undone_and_older_phase_saves() {
    let dir = Dir::new();
    let _writer = dir.with_history();
    let expected = [
        (1, vec![1]),
        (2, vec![1, 2]),
        (1, vec![1]),
        (4, vec![1, 4]),
        (5, vec![1, 4]),
        (6, vec![1, 4, 6]),
        (7, vec![1, 4, 6, 7]),
    ];
    for (seq, (head, events)) in (1..).zip(expected) {
        assert_eq!(at(&dir, seq), Some((Some(head), events)), "save {seq}");
    }
    assert_eq!(at(&dir, 8), None);
}

#[test]
fn fork_begins_with_an_old_state_and_records_its_origin() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.append(&1, &[1]).unwrap();
    writer.put_blob("prompt", b"text").unwrap();
    writer.append(&2, &[2]).unwrap();
    let to = Dir::new();
    let options = Options::default();
    let id = fork(&dir.path, Seq::new(1), &to.path, &options).unwrap();
    let loaded = to.load();
    assert_eq!((loaded.head, loaded.events), (Some(1), vec![1]));
    let phase = loaded.report.phase.unwrap();
    let parent = phase.parent.unwrap();
    assert_eq!(phase.id, id);
    assert_eq!(
        (Some(parent.id), parent.seq),
        (dir.load().report.file, Seq::new(1))
    );
    assert_eq!(reader::blob(&to.path, "prompt", u64::MAX).unwrap(), b"text");

    let again = fork(&dir.path, Seq::new(1), &to.path, &options).unwrap_err();
    assert!(again.to_string().contains("choose another"), "{again}");
    let (mut fork, _) = to.open();
    fork.append(&9, &[9]).unwrap();
    assert_eq!(to.load().events, [1, 9]);
    assert_eq!(dir.load().events, [1, 2]);
    let missing = fork_of_missing(&dir);
    assert!(missing.is_not_found(), "{missing}");
}

fn fork_of_missing(dir: &Dir) -> checkpoint_store::Error {
    let to = Dir::new();
    let err = fork(&dir.path, Seq::new(7), &to.path, &Options::default()).unwrap_err();
    assert!(!to.path.exists(), "no store is made for a missing save");
    err
}

fn version(version: u32) -> Options {
    let migrations = Migrations::default()
        .head(1, |old: u64| Ok(old.to_string()))
        .event(1, |old: u64| {
            if old < 1000 {
                Ok(old + 100)
            } else {
                Err("too large".into())
            }
        })
        .head(2, |old: String| Ok(vec![old]));
    Options {
        schema_version: version,
        migrations,
        ..Options::default()
    }
}

type New = Writer<Vec<String>, u64>;

#[test]
fn c64a_c64b_older_versions_are_migrated_only_in_memory() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.append(&1, &[1]).unwrap();
    writer.save_phase("p", &2, PhaseMeta::default()).unwrap();
    writer.append(&3, &[3]).unwrap();
    drop(writer);
    let before = files(&dir.path);
    let options = version(3);
    let loaded = reader::load_with::<Vec<String>, u64>(&dir.path, &options).unwrap();
    assert_eq!(
        (loaded.head, loaded.events),
        (Some(vec!["3".into()]), vec![101, 103])
    );

    let (mut writer, loaded) = New::open(&dir.path, options.clone()).unwrap();
    assert_eq!(
        (loaded.head, loaded.events),
        (Some(vec!["3".into()]), vec![101, 103])
    );
    let mut unchanged = 0;
    for (name, bytes) in before.iter().filter(|(name, _)| name.starts_with("p")) {
        let now = files(&dir.path);
        assert_eq!(now.get(name), Some(bytes), "{name} is unchanged");
        unchanged += 1;
    }
    assert_eq!(
        unchanged,
        3,
        "a phase and two journals: {:?}",
        before.keys()
    );
    let four = vec!["4".to_owned()];
    writer.append(&four, &[4]).unwrap();
    let loaded = reader::load_with::<Vec<String>, u64>(&dir.path, &options).unwrap();
    assert_eq!(
        (loaded.head, loaded.events),
        (Some(four.clone()), vec![101, 103, 4])
    );
    writer.save_phase("p", &four, PhaseMeta::default()).unwrap();
    drop(writer);
    let (_, loaded) = New::open(&dir.path, options).unwrap();
    assert_eq!(
        (loaded.head, loaded.events),
        (Some(four), vec![101, 103, 4])
    );

    let err = Log::open(&dir.path, Options::default()).unwrap_err();
    assert!(err.is_unsupported_version(), "{err}");
    assert!(
        err.to_string()
            .contains("version 3, this program reads up to 1"),
        "{err}"
    );
}

#[test]
fn c64c_a_migration_that_fails_names_its_version_and_touches_nothing() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.append(&1, &[1000]).unwrap();
    drop(writer);
    let err = New::open(&dir.path, version(3)).unwrap_err();
    assert!(
        err.to_string().contains("version 1 to the next: too large"),
        "{err}"
    );
    assert_eq!(dir.load().events, [1000]);
}

#[test]
fn c64d_newer_version_can_allow_reads_but_no_writes_by_older_programs() {
    let dir = Dir::new();
    let newer = Options {
        schema_version: 5,
        min_reader_version: 3,
        ..Options::default()
    };
    let (mut writer, _) = Log::open(&dir.path, newer).unwrap();
    writer.append(&1, &[1]).unwrap();
    drop(writer);
    let of = |schema_version| Options {
        schema_version,
        ..Options::default()
    };
    let read = |version| reader::load_with::<u64, u64>(&dir.path, &of(version));
    assert_eq!(read(3).unwrap().head, Some(1));
    assert!(read(2).unwrap_err().is_unsupported_version());
    assert!(
        Log::open(&dir.path, of(4))
            .unwrap_err()
            .is_unsupported_version()
    );
    Log::open(&dir.path, of(6)).unwrap();
}

/// With large heads and few events, most of the journal is heads that nothing can return to.
#[test]
fn compaction_drops_old_heads_and_keeps_the_newest_saves() {
    let dir = Dir::new();
    let mut random = Random(7);
    let mut head =
        |n: u64| -> (u64, Vec<u64>) { (n, (0..8000).map(|_| random.below(u64::MAX)).collect()) };
    type Heavy = Writer<(u64, Vec<u64>), u64>;
    let (mut writer, _) = Heavy::open(&dir.path, Options::default()).unwrap();
    let heads: Vec<_> = (1..=100).map(&mut head).collect();
    for head in &heads {
        writer.append(head, &[head.0]).unwrap();
    }
    let size: usize = files(&dir.path).values().map(Vec::len).sum();
    assert!(
        size < 8 << 20,
        "two generations take at most 3 MiB, but these take {size} bytes"
    );
    assert!(writer.last_repair().is_none());
    let load = |seq| {
        reader::load_at::<(u64, Vec<u64>), u64>(&dir.path, Seq::new(seq), &Options::default())
    };
    for seq in 90..=100 {
        let loaded = load(seq).unwrap();
        assert_eq!(loaded.head.as_ref(), Some(&heads[seq as usize - 1]));
        assert_eq!(loaded.events, (1..=seq).collect::<Vec<_>>());
    }
    assert!(load(3).unwrap_err().is_not_found());
    assert!(writer.truncate_to(Seq::new(3)).is_err());
    writer.truncate_to(Seq::new(95)).unwrap();
    drop(writer);
    let (_, loaded) = Heavy::open(&dir.path, Options::default()).unwrap();
    assert!(loaded.report.is_undamaged());
    assert_eq!(loaded.head.as_ref(), Some(&heads[94]));
    assert_eq!(loaded.events, (1..=95).collect::<Vec<_>>());
}

/// An undo at the moment when old heads are due to be dropped still finds its save.
#[test]
fn undo_never_returns_to_a_save_without_head() {
    let mut random = Random(7);
    let mut undone = 0;
    for saves in 20..30 {
        let dir = Dir::new();
        let (mut writer, _) =
            Writer::<(u64, Vec<u64>), u64>::open(&dir.path, Options::default()).unwrap();
        for n in 1..=saves {
            let head = (n, (0..5000).map(|_| random.below(u64::MAX)).collect());
            writer.append(&head, &[n]).unwrap();
        }
        let kept = writer.truncate_to(Seq::new(1));
        drop(writer);
        let loaded = reader::load::<(u64, Vec<u64>), u64>(&dir.path).unwrap();
        if kept.is_err() {
            // A later save dropped the head of the first.
            assert_eq!(loaded.head.unwrap().0, saves);
            continue;
        }
        undone += 1;
        assert!(loaded.report.is_undamaged(), "{saves}: {}", loaded.report);
        assert_eq!(
            (loaded.head.unwrap().0, loaded.events),
            (1, vec![1]),
            "{saves}"
        );
    }
    assert!((1..10).contains(&undone), "both cases were tried");
}

#[test]
fn strict_programs_get_an_error_instead_of_an_older_state() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.append(&1, &[1]).unwrap();
    writer.save_phase("p", &2, PhaseMeta::default()).unwrap();
    drop(writer);
    let path = dir.only("phase-");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let strict = Options {
        strict: true,
        ..Options::default()
    };
    let read = reader::load_with::<u64, u64>(&dir.path, &strict);
    assert!(read.unwrap_err().is_corrupt());
    assert!(Log::open(&dir.path, strict).unwrap_err().is_corrupt());
    assert!(path.exists(), "nothing was set aside");
    assert_eq!(dir.load().head, Some(1));
}
