//! Finished phases: each is separate, an absent one gives a different error, and the last one limits an undo.

use std::collections::BTreeSet;

use checkpoint_store::{Options, PhaseMeta, Seq, reader};

use crate::support::{Dir, files};

#[test]
fn c66_phase_of_another_name_is_distinguished_from_a_missing_one() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    let load = |phase| reader::load_phase::<u64, u64>(&dir.path, phase, &Options::default());
    let absent = load("plan").unwrap_err();
    assert!(
        absent.is_not_found() && !absent.is_other_phase(),
        "{absent}"
    );
    writer.save_phase("plan", &2, PhaseMeta::default()).unwrap();
    writer
        .save_phase("implement", &4, PhaseMeta::default())
        .unwrap();
    let other = load("verify").unwrap_err();
    assert!(other.is_other_phase() && !other.is_not_found(), "{other}");
    assert!(other.to_string().contains("implement, plan"), "{other}");
}

#[test]
fn c65a_phases_are_separate() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    writer.append(&1, &[1]).unwrap();
    let meta = PhaseMeta {
        extra: [("commit".into(), "abc".into())].into(),
        ..PhaseMeta::default()
    };
    let plan = writer.save_phase("plan", &2, meta.clone()).unwrap();
    writer.append(&3, &[3]).unwrap();
    writer
        .save_phase("implement", &4, PhaseMeta::default())
        .unwrap();

    let loaded = reader::load_phase::<u64, u64>(&dir.path, "plan", &Options::default()).unwrap();
    assert_eq!((loaded.head, loaded.events), (Some(2), vec![1]));
    let info = loaded.report.phase.unwrap();
    assert_eq!((info.id, info.meta), (plan, meta));
    let names: Vec<_> = reader::phases(&dir.path)
        .unwrap()
        .into_iter()
        .map(|info| (info.phase, info.seq))
        .collect();
    assert_eq!(
        names,
        [
            ("implement".into(), Seq::new(4)),
            ("plan".into(), Seq::new(2))
        ]
    );
}

#[test]
fn s21a_checkpoints_of_the_same_phase_have_different_names() {
    let dir = Dir::new();
    let mut ids = BTreeSet::new();
    for n in 0..6 {
        // Every second checkpoint is saved by another writer.
        let (mut writer, _) = dir.open();
        for _ in 0..2 {
            assert!(ids.insert(writer.save_phase("p", &n, PhaseMeta::default()).unwrap()));
        }
    }
    let names = files(&dir.path).into_keys();
    let names = names.filter(|name| name.starts_with("phase-"));
    assert_eq!((ids.len(), names.count()), (12, 12));
}

#[test]
fn events_survive_phases_and_older_progress_is_stale() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    for n in 1..=3 {
        writer.append(&n, &[n]).unwrap();
    }
    writer.save_phase("a", &10, PhaseMeta::default()).unwrap();
    let loaded = dir.load();
    assert_eq!((loaded.head, loaded.events), (Some(10), vec![1, 2, 3]));
    writer.append(&11, &[4]).unwrap();
    writer.save_phase("a", &12, PhaseMeta::default()).unwrap();
    writer.append(&13, &[5, 6]).unwrap();
    drop(writer);
    let (writer, loaded) = dir.open();
    assert_eq!(
        (loaded.head, loaded.events),
        (Some(13), vec![1, 2, 3, 4, 5, 6])
    );
    assert_eq!(writer.seq(), Seq::new(7));
    assert_eq!(loaded.report.phase.unwrap().seq, Seq::new(6));
}

#[test]
fn undo_stops_at_the_last_phase() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    let one = writer.append(&1, &[1]).unwrap();
    let two = writer.append(&2, &[2]).unwrap();
    let back = writer.truncate_to(one).unwrap();
    assert_eq!((dir.load().head, dir.load().events), (Some(1), vec![1]));
    let three = writer.append(&3, &[3]).unwrap();
    assert!(
        writer.truncate_to(two).is_err(),
        "an undone save cannot be the target of an undo"
    );
    writer.truncate_to(back).unwrap();
    assert_eq!((dir.load().head, dir.load().events), (Some(1), vec![1]));
    assert!(writer.truncate_to(three).is_err());
    writer.truncate_to(Seq::ZERO).unwrap();
    assert_eq!((dir.load().head, dir.load().events), (None, vec![]));
    writer.append(&4, &[4]).unwrap();
    writer.save_phase("p", &5, PhaseMeta::default()).unwrap();
    assert!(writer.truncate_to(Seq::ZERO).is_err());
    let phase = writer.seq();
    writer.append(&6, &[6]).unwrap();
    drop(writer);
    let (mut writer, _) = dir.open();
    writer.truncate_to(phase).unwrap();
    assert_eq!((dir.load().head, dir.load().events), (Some(5), vec![4]));
}

#[test]
fn x117c_invalid_phase_names_are_refused() {
    let dir = Dir::new();
    let (mut writer, _) = dir.open();
    for name in ["", "..", "a/b", "a\u{7}", "a..b", "NUL.txt"] {
        assert!(checkpoint_store::check_name(name).is_err(), "{name:?}");
        let err = writer
            .save_phase(name, &1, PhaseMeta::default())
            .unwrap_err();
        assert!(
            err.to_string().contains("is not a valid phase name"),
            "{err}"
        );
    }
    assert_eq!(checkpoint_store::check_name("ok"), Ok(()));
    writer.save_phase("ok", &1, PhaseMeta::default()).unwrap();
}

/// The events are like a transcript: pieces of this crate's own sources, as a tool prints them.
#[cfg(feature = "zstd")]
#[test]
fn c69_compressed_transcript_is_no_larger_than_gzip() {
    use std::io::Write;

    let src = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let all: Vec<u8> = crate::support::files(src.as_ref())
        .into_values()
        .flatten()
        .collect();
    let all = String::from_utf8(all).unwrap();
    let lines: Vec<&str> = all.lines().collect();
    let mut random = crate::support::Random(11);
    let events: Vec<String> = (0..700)
        .map(|n| {
            let from = random.below(lines.len() as u64 - 120) as usize;
            let to = from + 20 + random.below(100) as usize;
            format!(
                "{{\"tool\":\"read\",\"call\":{n}}}\n{}",
                lines[from..to].join("\n")
            )
        })
        .collect();
    let dir = Dir::new();
    let (mut writer, _) = checkpoint_store::Writer::<u64, String>::open(
        &dir.path,
        checkpoint_store::Options::default(),
    )
    .unwrap();
    writer.append(&1, &events).unwrap();
    writer.save_phase("p", &2, PhaseMeta::default()).unwrap();
    let phase_bytes = std::fs::metadata(dir.only("phase-")).unwrap().len();

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    events
        .iter()
        .for_each(|event| gzip.write_all(event.as_bytes()).unwrap());
    let gzip = gzip.finish().unwrap().len() as u64;
    assert!(
        phase_bytes <= gzip,
        "the phase takes {phase_bytes} bytes, gzip {gzip}"
    );
}
