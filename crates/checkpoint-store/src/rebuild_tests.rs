//! Rebuilt stores, compared with a model of the saves; and records that no writer makes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;
use crate::codec::{self, CompressionEffort};
use crate::frame::DELTA;
use crate::meta::{PhaseInfo, PhaseMeta};
use crate::replica::{Replica, ReplicaError};
use crate::test_disk::TestDisk;
use crate::{Migrations, Writer, reader};

type Head = Vec<u64>;
type Log = Writer<Head, u64>;

/// With this number of bytes, a journal is compacted after a few saves, and a rebuild writes a journal after about 60 large heads.
const STRIDE: u64 = 4096;

/// A replica in memory.
#[derive(Debug, Clone, Default)]
struct Records(Arc<Mutex<Vec<Record>>>);

impl Records {
    fn all(&self) -> Vec<Record> {
        self.0.lock().unwrap().clone()
    }
}

impl Replica for Records {
    fn newest(&self) -> Seq {
        self.all().last().map_or(Seq::ZERO, Record::seq)
    }

    fn append(&mut self, record: &Record) -> Result<(), ReplicaError> {
        let parsed = Record::parse(record.as_bytes().to_vec(), "record").unwrap();
        assert_eq!(&parsed, record, "the bytes contain the whole record");
        self.0.lock().unwrap().push(parsed);
        Ok(())
    }

    fn put_blob(&mut self, _: &str, _: &[u8]) -> Result<(), ReplicaError> {
        Ok(())
    }
}

fn disk(path: &Path) -> Box<dyn crate::disk::Directory> {
    TestDisk::open(path, STRIDE, |_| Ok(()))
}

fn open(path: &Path, replica: &Records) -> (Log, crate::Loaded<Head, u64>) {
    let (mut writer, loaded) = Log::open_on(disk(path), path, Options::default()).unwrap();
    writer.set_replica(Box::new(replica.clone())).unwrap();
    (writer, loaded)
}

fn rebuilt(path: &Path, records: &[Record]) -> Result<Seq> {
    let records = records.iter().cloned().map(Ok::<_, Error>);
    rebuild_on(disk(path), path, &Options::default(), records)
}

/// Returns a head of `len` numbers that does not compress and begins with `n`.
fn head(n: u64, len: usize) -> Head {
    let mut state = n | 1 << 40;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    std::iter::once(n).chain((1..len).map(|_| next())).collect()
}

#[derive(Debug, Clone)]
enum Op {
    Append(u8, bool),
    /// Undo to the n-th newest save.
    Undo(usize),
    Phase(bool),
}

#[derive(Debug, Clone)]
enum Event {
    Save(Op),
    /// Removes the journals, or the whole directory, and saves.
    Lose(bool, Op),
    Reopen,
    /// Adds the new records to a store that has the earlier ones.
    Extend,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..3u8, any::<bool>()).prop_map(|(events, large)| Op::Append(events, large)),
        2 => (0..20usize).prop_map(Op::Undo),
        1 => any::<bool>().prop_map(Op::Phase),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => op().prop_map(Event::Save),
        1 => (any::<bool>(), op()).prop_map(|(all, op)| Event::Lose(all, op)),
        1 => Just(Event::Reopen),
        1 => Just(Event::Extend),
    ]
}

#[derive(Debug, Clone, Default, PartialEq)]
struct ModelState {
    head: Option<Head>,
    events: Vec<u64>,
}

#[derive(Debug, Clone)]
struct Mark {
    seq: Seq,
    state: ModelState,
    /// Whether the journal of this save has its head.
    is_in_history: bool,
}

/// The right contents of a store that dropped no head.
struct Model {
    /// The saves to which a caller can return; the first one is the last phase, and the last one the current state.
    marks: Vec<Mark>,
    /// The saves before the last phase.
    earlier: Vec<(Seq, Head)>,
    phases: Vec<PhaseInfo>,
    number: u64,
}

impl Model {
    fn new() -> Self {
        let first = Mark {
            seq: Seq::ZERO,
            state: ModelState::default(),
            is_in_history: false,
        };
        Self {
            marks: vec![first],
            earlier: Vec::new(),
            phases: Vec::new(),
            number: 0,
        }
    }

    fn now(&self) -> &Mark {
        self.marks.last().unwrap()
    }

    fn history(&self) -> Vec<(Seq, Head)> {
        let marks = self.marks.iter().filter(|mark| mark.is_in_history);
        let marks = marks.map(|mark| (mark.seq, mark.state.head.clone().unwrap()));
        self.earlier.iter().cloned().chain(marks).collect()
    }

    fn save(&mut self, writer: &mut Log, op: &Op) {
        self.number += 1;
        let mut state = self.now().state.clone();
        match *op {
            Op::Append(events, is_large) => {
                let head = head(self.number, if is_large { 60 } else { 2 });
                let events: Vec<u64> = (0..events.into()).map(|n| 10 * self.number + n).collect();
                let seq = writer.append(&head, &events).unwrap();
                state.head = Some(head);
                state.events.extend(events);
                self.marks.push(Mark {
                    seq,
                    state,
                    is_in_history: true,
                });
            }
            Op::Undo(back) => {
                let last = self.marks.len() - 1;
                let index = last - back.min(last);
                let target = self.marks[index].clone();
                let Ok(seq) = writer.truncate_to(target.seq) else {
                    // A compaction dropped the head of this save.
                    let kept = history(writer.path());
                    assert!(kept.iter().all(|(seq, _)| *seq != target.seq));
                    return;
                };
                self.marks.truncate(index + 1);
                self.marks.push(Mark { seq, ..target });
            }
            Op::Phase(finished) => {
                let head = head(self.number, 5);
                let meta = PhaseMeta {
                    finished,
                    extra: [("n".into(), self.number.to_string())].into(),
                };
                let id = writer.save_phase("p", &head, meta).unwrap();
                let phases = reader::phases(writer.path()).unwrap();
                assert_eq!(phases[0].id, id);
                self.phases.insert(0, phases[0].clone());
                self.earlier = self.history();
                state.head = Some(head);
                self.marks = vec![Mark {
                    seq: writer.seq(),
                    state,
                    is_in_history: false,
                }];
            }
        }
    }

    /// Compares the newest state of a store with that of the model.
    fn check_newest(&self, path: &Path) -> Result<(), TestCaseError> {
        let loaded = reader::load::<Head, u64>(path).unwrap();
        prop_assert!(loaded.report.is_undamaged(), "{}", loaded.report);
        let state = ModelState {
            head: loaded.head,
            events: loaded.events,
        };
        prop_assert_eq!((loaded.seq, &state), (self.now().seq, &self.now().state));
        Ok(())
    }

    /// Compares everything in a rebuilt store with the model.
    fn check_all(&self, path: &Path) -> Result<(), TestCaseError> {
        self.check_newest(path)?;
        prop_assert_eq!(history(path), self.history());
        prop_assert_eq!(&reader::phases(path).unwrap(), &self.phases);
        for mark in self.marks.iter().filter(|mark| mark.seq != Seq::ZERO) {
            let options = Options::default();
            let loaded = reader::load_at::<Head, u64>(path, mark.seq, &options).unwrap();
            prop_assert_eq!(&loaded.head, &mark.state.head);
            prop_assert_eq!(&loaded.events, &mark.state.events);
        }
        Ok(())
    }
}

fn history(path: &Path) -> Vec<(Seq, Head)> {
    let mut saves = Vec::new();
    let each = |seq, head| saves.push((seq, head));
    reader::history(path, &Options::default(), each).unwrap();
    saves
}

fn lose(path: &Path, all: bool) {
    if all {
        return std::fs::remove_dir_all(path).unwrap();
    }
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().ends_with(".ckj") {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// Returns how many saves the writer's own files no longer have.
fn run(events: &[Event]) -> Result<usize, TestCaseError> {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { root.path().join(name) };
    let (replica, path) = (Records::default(), at("store"));
    let (mut writer, _) = open(&path, &replica);
    let (mut model, mut extended) = (Model::new(), 0);
    for event in events {
        match event {
            Event::Save(op) => model.save(&mut writer, op),
            Event::Lose(all, op) => {
                lose(&path, *all);
                model.save(&mut writer, op);
            }
            Event::Reopen => {
                drop(writer);
                writer = open(&path, &replica).0;
            }
            Event::Extend => {
                let new = replica.all().split_off(extended);
                rebuilt(&at("extended"), &new).unwrap();
                extended += new.len();
                model.check_all(&at("extended"))?;
            }
        }
        prop_assert_eq!(replica.newest(), writer.seq());
        model.check_newest(&path)?;
    }
    let records = replica.all();
    prop_assert_eq!(rebuilt(&at("new"), &records).unwrap(), writer.seq());
    rebuilt(&at("extended"), &records[extended..]).unwrap();
    for name in ["new", "extended"] {
        model.check_all(&at(name))?;
    }
    let (local, whole) = (history(&path), model.history());
    prop_assert!(local.iter().all(|save| whole.contains(save)));
    // A rebuilt store continues like the old one.
    drop(writer);
    let (mut writer, _) = open(&at("new"), &replica);
    for op in [
        Op::Undo(9),
        Op::Append(1, true),
        Op::Phase(false),
        Op::Append(1, false),
    ] {
        model.save(&mut writer, &op);
    }
    rebuilt(&at("extended"), &replica.all()[records.len()..]).unwrap();
    model.check_all(&at("extended"))?;
    Ok(whole.len() - local.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rebuilt_store_equals_the_store_of_the_writer(
        events in proptest::collection::vec(event(), 1..70)
    ) {
        run(&events)?;
    }
}

#[test]
fn rebuilt_store_has_heads_that_a_compaction_dropped() {
    let saves = vec![Event::Save(Op::Append(0, true)); 60];
    assert!(
        run(&saves).unwrap() > 20,
        "the writer must compact its journal"
    );
}

/// The writer returns to its oldest save from time to time. A rebuild that dropped more heads than the writer could not do the same.
#[test]
fn long_rebuild_drops_only_the_heads_that_the_writer_dropped() {
    let root = tempfile::tempdir().unwrap();
    let (path, replica) = (root.path().join("s"), Records::default());
    let (mut writer, _) = open(&path, &replica);
    for n in 1..=400 {
        writer.append(&head(n, 600), &[n]).unwrap();
        if n % 90 == 0 {
            writer.truncate_to(history(&path)[0].0).unwrap();
        }
    }
    let (records, new) = (replica.all(), root.path().join("new"));
    assert_eq!(rebuilt(&new, &records).unwrap(), writer.seq());
    let load = |path: &Path| reader::load::<Head, u64>(path).unwrap();
    let (local, whole) = (load(&path), load(&new));
    assert!(whole.report.is_undamaged(), "{}", whole.report);
    assert_eq!((whole.head, whole.events), (local.head, local.events));

    let (kept, heads) = (history(&path), history(&new));
    assert!(kept.iter().all(|save| heads.contains(save)));
    assert!(heads.len() < 150, "{} of 400 heads", heads.len());
    let journals = std::fs::read_dir(&new).unwrap();
    let bytes: u64 = journals
        .map(|it| it.unwrap().metadata().unwrap().len())
        .sum();
    let all: usize = records.iter().map(|record| record.as_bytes().len()).sum();
    assert!(bytes < all as u64, "{bytes} of {all} bytes");
}

/// Returns the records of two saves, an undo, a phase and a save.
fn some_records() -> Vec<Record> {
    let root = tempfile::tempdir().unwrap();
    let replica = Records::default();
    let (mut writer, _) = open(&root.path().join("s"), &replica);
    writer.append(&head(1, 3), &[1]).unwrap();
    writer.append(&head(2, 3), &[2]).unwrap();
    writer.truncate_to(Seq::new(1)).unwrap();
    writer
        .save_phase("p", &head(4, 3), PhaseMeta::default())
        .unwrap();
    writer.append(&head(5, 3), &[5]).unwrap();
    replica.all()
}

#[track_caller]
fn refused(records: &[Record], reason: &str) -> Error {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let err = rebuilt(&path, records).unwrap_err();
    assert!(err.to_string().contains(reason), "{err}");
    // The records before the wrong one may be there, and are sound.
    let loaded = reader::load::<Head, u64>(&path).unwrap();
    assert!(loaded.report.is_undamaged(), "{}", loaded.report);
    err
}

#[test]
fn missing_or_repeated_record_is_an_error_that_names_it() {
    let all = some_records();
    for missing in 0..all.len() - 1 {
        let mut records = all.clone();
        records.remove(missing);
        let err = refused(&records, "is the record after save");
        let next = format!("record {}", missing + 2);
        assert_eq!(err.path(), Path::new(&next), "{err}");
    }
    for repeated in 0..all.len() {
        let mut records = all.clone();
        records.insert(repeated, all[repeated].clone());
        let err = refused(&records, "is the record after save");
        let name = format!("record {}", repeated + 1);
        assert_eq!(err.path(), Path::new(&name), "{err}");
    }
    let mut records = all.clone();
    records.swap(0, 1);
    refused(&records, "record 2: is the record after save 1");
}

type Change<'a> = &'a dyn Fn(&mut FileMeta, &mut PackedFrame);

/// Returns a changed copy of a record, with right checksums.
fn changed(record: &Record, change: Change<'_>) -> Vec<u8> {
    let (mut meta, mut kept) = (record.meta.clone(), record.packed());
    change(&mut meta, &mut kept);
    let record = Record::new(meta, &kept, 7).unwrap();
    record.as_bytes().to_vec()
}

fn packed(kind: u8, seq: u64, head: &[u8], rest: &[u8]) -> PackedFrame {
    let raw = [head, rest].concat();
    PackedFrame::pack(kind, seq, head.len(), raw, CompressionEffort::Save).unwrap()
}

fn number(n: u64) -> Vec<u8> {
    let mut raw = Vec::new();
    codec::encode(&mut raw, &n).unwrap();
    raw
}

#[test]
fn record_that_is_impossible_after_the_others_is_an_error_that_names_it() {
    let all = some_records();
    let replaced = |index: usize, change: Change<'_>| {
        let mut records = all.clone();
        let bytes = changed(&all[index], change);
        records[index] = Record::parse(bytes, "record").unwrap();
        records
    };
    let unknown = replaced(4, &|_, kept| *kept = packed(TRUNCATE, 5, &[], &number(2)));
    let undone = replaced(3, &|meta, kept| {
        meta.phase = None;
        *kept = packed(TRUNCATE, 4, &[], &number(2));
    });
    refused(
        &undone,
        "record 4: is not a valid record: it is an undo to an unknown save",
    );
    let err = refused(
        &unknown,
        "record 5: is not a valid record: it is an undo to an unknown save",
    );
    assert!(err.is_corrupt());
    let other = replaced(4, &|meta, _| meta.base = None);
    refused(
        &other,
        "record 5: is not a valid record: it continues another phase",
    );
    let name = replaced(3, &|meta, _| meta.phase = Some("../p".into()));
    refused(
        &name,
        "record 4: is not a valid record: the name of its phase",
    );
    let far = replaced(3, &|meta, _| meta.seq += MAX_TAKEN_PHASES + 1);
    refused(&far, "its phase skips more numbers");
    let schema = replaced(1, &|meta, _| meta.schema = "other".into());
    refused(&schema, "record 2: holds schema `other`");
    let newer = replaced(1, &|meta, _| meta.schema_version = 2);
    let err = refused(&newer, "record 2: was written as schema `` version 2");
    assert!(err.is_unsupported_version());
    // A program that rebuilds has an epoch of its own.
    let epoch = replaced(3, &|meta, _| meta.epoch = u64::MAX);
    let root = tempfile::tempdir().unwrap();
    assert_eq!(
        rebuilt(&root.path().join("s"), &epoch).unwrap(),
        Seq::new(5)
    );
    let loaded = reader::load::<Head, u64>(root.path().join("s")).unwrap();
    assert_eq!((loaded.seq, loaded.events), (Seq::new(5), vec![1, 5]));
}

#[test]
fn phase_that_skips_numbers_is_rebuilt_with_its_number() {
    let root = tempfile::tempdir().unwrap();
    let (path, replica) = (root.path().join("s"), Records::default());
    let (mut writer, _) = open(&path, &replica);
    writer.append(&head(1, 3), &[1]).unwrap();
    std::fs::write(
        path.join("phase-0000000000000002.ckpt"),
        "of a fenced writer",
    )
    .unwrap();
    writer
        .save_phase("p", &head(3, 3), PhaseMeta::default())
        .unwrap();
    writer.append(&head(4, 3), &[4]).unwrap();
    assert_eq!(writer.seq(), Seq::new(4));
    let new = root.path().join("new");
    assert_eq!(rebuilt(&new, &replica.all()).unwrap(), Seq::new(4));
    let loaded = reader::load::<Head, u64>(&new).unwrap();
    assert_eq!((loaded.head, loaded.events), (Some(head(4, 3)), vec![1, 4]));
    let missing = [&replica.all()[..1], &replica.all()[2..]].concat();
    refused(
        &missing,
        "record 4: is the record after save 3, but the store ends at save 1",
    );
}

#[test]
fn damaged_store_is_not_extended() {
    let all = some_records();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    rebuilt(&path, &all[..4]).unwrap();
    let phase = path.join("phase-0000000000000004.ckpt");
    let mut bytes = std::fs::read(&phase).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&phase, &bytes).unwrap();
    let err = rebuilt(&path, &all[4..]).unwrap_err();
    assert!(
        err.is_corrupt() && err.to_string().contains("strict mode"),
        "{err}"
    );
    assert!(
        std::fs::read(&phase).unwrap() == bytes,
        "the file is unchanged"
    );
}

#[test]
fn records_of_an_older_schema_are_migrated() {
    let all = some_records();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    rebuilt(&path, &all[..1]).unwrap();
    let options = Options {
        schema_version: 2,
        migrations: Migrations::default()
            .head(1, |old: Head| Ok(old[0].to_string()))
            .event(1, |old: u64| Ok(100 + old)),
        ..Options::default()
    };
    let records = all[1..].iter().cloned().map(Ok::<_, Error>);
    rebuild(&path, &options, records).unwrap();
    let loaded = reader::load_with::<String, u64>(&path, &options).unwrap();
    assert_eq!(
        (loaded.head, loaded.events),
        (Some("5".into()), vec![101, 105])
    );
    let phase = reader::load_phase::<String, u64>(&path, "p", &options).unwrap();
    assert_eq!((phase.head, phase.events), (Some("4".into()), vec![101]));
}

#[test]
fn error_of_the_source_ends_the_rebuild() {
    #[derive(Debug)]
    enum Failure {
        Store(Error),
        Network,
    }
    impl From<Error> for Failure {
        fn from(err: Error) -> Self {
            Self::Store(err)
        }
    }
    let all = some_records();
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s");
    let records = all[..2].iter().cloned().map(Ok);
    let records = records.chain([Err(Failure::Network)]);
    let ended = rebuild(&path, &Options::default(), records);
    assert!(matches!(ended, Err(Failure::Network)), "{ended:?}");
    let locked = crate::raw_writer::RawWriter::open(&path, Options::default()).unwrap();
    let busy = rebuild(&path, &Options::default(), [Err(Failure::Network)]);
    assert!(matches!(busy, Err(Failure::Store(err)) if err.is_locked()));
    drop(locked);
}

#[test]
fn record_with_wrong_contents_is_refused() {
    let all = some_records();
    let cases: [(&str, usize, Change<'_>); 6] = [
        ("another number", 0, &|meta, _| meta.seq = 2),
        ("another number", 3, &|meta, _| meta.seq = 3),
        ("the head cannot be read", 0, &|_, kept| {
            *kept = packed(DELTA, 1, &[0xff], &[])
        }),
        ("the head cannot be read", 0, &|_, kept| {
            *kept = packed(DELTA, 1, &[1, 2], &[])
        }),
        ("an event cannot be read", 0, &|_, kept| {
            *kept = packed(DELTA, 1, &[1], &[0x9b, 0x80])
        }),
        ("events follow the head", 3, &|_, kept| {
            *kept = packed(DELTA, 4, &[1], &[0x81, 1])
        }),
    ];
    for (reason, index, change) in cases {
        let err = Record::parse(changed(&all[index], change), "place").unwrap_err();
        assert!(
            err.is_corrupt() && err.to_string().contains(reason),
            "{reason}: {err}"
        );
        assert_eq!(err.path(), Path::new("place"));
    }
    for (kind, reason) in [
        (TRUNCATE, "the undo cannot be read"),
        (crate::frame::END, "in the wrong place"),
        (crate::frame::EVENTS, "in the wrong place"),
        (9, "written as frame kind version 9"),
    ] {
        let bytes = changed(&all[0], &|_, kept| *kept = packed(kind, 1, &[], &number(1)));
        let err = Record::parse(bytes, "place").unwrap_err();
        assert!(err.to_string().contains(reason), "{reason}: {err}");
    }
}
