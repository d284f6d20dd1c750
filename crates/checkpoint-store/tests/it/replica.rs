//! A replica gets every save before the save is acknowledged, and a writer that its replica does not confirm ends.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use checkpoint_store::{
    Error, Options, PhaseMeta, Record, Replica, ReplicaError, Seq, fork, reader, rebuild,
};

use crate::support::{Dir, Log, files};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    Fenced,
    /// The replica has the record, but the answer is lost.
    AnswerLost,
    /// The request is lost.
    RequestLost,
    Panic,
}

#[derive(Debug, Default)]
struct Inner {
    records: Vec<Vec<u8>>,
    blobs: BTreeMap<String, Vec<u8>>,
    /// The fault of the next call.
    fault: Option<Fault>,
    calls: usize,
    /// The number of the save with which the replica began.
    begin: u64,
    /// The store that must already have whatever the replica gets.
    dir: Option<PathBuf>,
}

/// A replica in memory; its clones are the same replica.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<Inner>>);

impl Memory {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn records(&self) -> Vec<Record> {
        let parse = |bytes: &Vec<u8>| Record::parse(bytes.clone(), "memory").unwrap();
        self.inner().records.iter().map(parse).collect()
    }

    fn seqs(&self) -> Vec<u64> {
        self.records().iter().map(|it| it.seq().get()).collect()
    }

    fn call(&self, store: impl FnOnce(&mut Inner)) -> Result<(), ReplicaError> {
        let mut inner = self.inner();
        inner.calls += 1;
        match inner.fault.take() {
            None => store(&mut inner),
            Some(Fault::Fenced) => return Err(ReplicaError::Fenced { by: 7 }),
            Some(Fault::Panic) => panic!("the replica panics"),
            Some(fault) => {
                if fault == Fault::AnswerLost {
                    store(&mut inner);
                }
                return Err(std::io::Error::other("no answer for 3s").into());
            }
        }
        Ok(())
    }

    fn rebuild(&self) -> Dir {
        let dir = Dir::new();
        let records = self.records().into_iter().map(Ok::<_, Error>);
        rebuild(&dir.path, &Options::default(), records).unwrap();
        dir
    }
}

impl Replica for Memory {
    fn newest(&self) -> Seq {
        let begin = Seq::new(self.inner().begin);
        self.records().last().map_or(begin, Record::seq)
    }

    fn append(&mut self, record: &Record) -> Result<(), ReplicaError> {
        if let Some(dir) = &self.inner().dir {
            let local = reader::load::<u64, u64>(dir).unwrap();
            assert_eq!(local.seq, record.seq(), "the files have the save first");
        }
        self.call(|inner| inner.records.push(record.as_bytes().to_vec()))
    }

    fn put_blob(&mut self, name: &str, bytes: &[u8]) -> Result<(), ReplicaError> {
        if let Some(dir) = &self.inner().dir {
            let local = reader::blob(dir, name, u64::MAX).unwrap();
            assert_eq!(local, bytes, "the files have the blob first");
        }
        self.call(|inner| drop(inner.blobs.insert(name.into(), bytes.into())))
    }
}

fn open(dir: &Path, replica: &Memory) -> Log {
    let (mut writer, _) = Log::open(dir, Options::default()).unwrap();
    writer.set_replica(Box::new(replica.clone())).unwrap();
    writer
}

fn finished() -> PhaseMeta {
    PhaseMeta {
        finished: true,
        extra: [("commit".into(), "abc".into())].into(),
    }
}

#[test]
fn replica_gets_every_save_after_the_files_have_it() {
    let (dir, replica) = (Dir::new(), Memory::default());
    let mut writer = open(&dir.path, &replica);
    replica.inner().dir = Some(dir.path.clone());
    writer.append(&1, &[1]).unwrap();
    writer.put_blob("prompt", b"text").unwrap();
    writer.append(&2, &[2]).unwrap();
    writer.truncate_to(Seq::new(1)).unwrap();
    writer.save_phase("p", &4, PhaseMeta::default()).unwrap();
    writer.append(&5, &[5]).unwrap();
    let id = writer.save_phase("q", &6, finished()).unwrap();
    assert_eq!(replica.seqs(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(replica.inner().blobs.get("prompt").unwrap(), b"text");

    let new = replica.rebuild();
    let (local, rebuilt) = (dir.load(), new.load());
    assert_eq!(
        (rebuilt.head, &rebuilt.events[..], rebuilt.seq),
        (Some(6), &[1, 5][..], local.seq)
    );
    let phases = reader::phases(&new.path).unwrap();
    assert_eq!(phases, reader::phases(&dir.path).unwrap());
    assert_eq!((phases[0].id, &phases[0].meta), (id, &finished()));
    let stores = |dir: &Dir| reader::list(dir.path.parent().unwrap()).unwrap();
    assert!(stores(&new)[0].finished && stores(&dir)[0].finished);
}

type Call = fn(&mut Log) -> Result<(), Error>;

/// The calls of a writer that the replica must confirm.
const CALLS: [(&str, Call); 4] = [
    ("append", |writer| writer.append(&9, &[9]).map(drop)),
    ("undo", |writer| writer.truncate_to(Seq::new(1)).map(drop)),
    ("phase", |writer| {
        writer.save_phase("p", &9, finished()).map(drop)
    }),
    ("blob", |writer| writer.put_blob("b", b"bytes")),
];

#[test]
fn writer_ends_when_the_replica_does_not_confirm() {
    for (name, call) in CALLS {
        for fault in [
            Fault::Fenced,
            Fault::AnswerLost,
            Fault::RequestLost,
            Fault::Panic,
        ] {
            let (dir, replica) = (Dir::new(), Memory::default());
            let mut writer = open(&dir.path, &replica);
            writer.append(&1, &[1]).unwrap();
            writer.append(&2, &[2]).unwrap();
            replica.inner().fault = Some(fault);
            let failed = catch_unwind(AssertUnwindSafe(|| call(&mut writer)));
            let calls = replica.inner().calls;
            let expected = |err: &Error| match fault {
                Fault::Fenced => err.is_fenced() && !err.is_unreplicated(),
                _ => err.is_unreplicated() && !err.is_fenced(),
            };
            assert_eq!(failed.is_err(), fault == Fault::Panic);
            if let Ok(failed) = failed {
                let err = failed.unwrap_err();
                assert!(expected(&err), "{name}, {fault:?}: {err}");
            }
            assert_eq!(writer.seq(), Seq::new(2), "{name}, {fault:?}");
            for (then, call) in CALLS {
                let err = call(&mut writer).unwrap_err();
                assert!(expected(&err), "{name}, {fault:?}, then {then}: {err}");
            }
            let again = writer.set_replica(Box::new(replica.clone()));
            assert!(expected(&again.unwrap_err()));
            assert_eq!(replica.inner().calls, calls, "{name}, {fault:?}");
            drop(writer);
            let stored = fault == Fault::AnswerLost && name != "blob";
            let (local, seqs) = (dir.load().seq.get(), replica.seqs());
            assert_eq!(seqs.len(), if stored { 3 } else { 2 });
            assert_eq!(local, if name == "blob" { 2 } else { 3 });
        }
    }
}

#[test]
fn store_with_other_saves_than_the_replica_is_refused() {
    let replica = Memory::default();
    let old = Dir::new();
    let (mut writer, _) = old.open();
    writer.append(&1, &[1]).unwrap();
    drop(writer);
    let forked = Dir::new();
    fork(&old.path, Seq::new(1), &forked.path, &Options::default()).unwrap();
    for dir in [&old, &forked] {
        let (mut writer, _) = dir.open();
        let err = writer.set_replica(Box::new(replica.clone())).unwrap_err();
        assert!(err.is_unreplicated(), "{err}");
        let text = "ends at save 1, but its replica ends at save 0";
        assert!(err.to_string().contains(text), "{err}");
        // The caller may overlook the error. The save must not be acknowledged without the replica.
        assert!(writer.append(&2, &[]).unwrap_err().is_unreplicated());
        assert_eq!(dir.load().head, Some(1));
    }
    assert_eq!(replica.inner().calls, 0);
}

/// After a kill between the two copies of a save, the files have one save more than the replica.
#[test]
fn store_continues_from_its_replica_after_a_kill_between_both_copies() {
    let (dir, replica) = (Dir::new(), Memory::default());
    let mut writer = open(&dir.path, &replica);
    writer.append(&1, &[1]).unwrap();
    replica.inner().fault = Some(Fault::RequestLost);
    writer.append(&2, &[2]).unwrap_err();
    drop(writer);
    let (mut writer, loaded) = dir.open();
    assert_eq!(loaded.head, Some(2));
    let err = writer.set_replica(Box::new(replica.clone())).unwrap_err();
    assert!(err.is_unreplicated(), "{err}");

    let new = replica.rebuild();
    let mut writer = open(&new.path, &replica);
    assert_eq!(writer.append(&3, &[3]).unwrap(), Seq::new(2));
    assert_eq!(new.load().events, [1, 3]);
    assert_eq!(replica.seqs(), [1, 2]);
}

#[test]
fn replica_may_begin_with_a_copy_of_the_store() {
    let (old, forked, copy) = (Dir::new(), Dir::new(), Dir::new());
    let mut writer = old.with_history();
    writer.append(&8, &[8]).unwrap();
    fork(&old.path, Seq::new(7), &forked.path, &Options::default()).unwrap();
    drop(copy.open());
    for (name, bytes) in files(&forked.path) {
        std::fs::write(copy.path.join(name), bytes).unwrap();
    }
    let replica = Memory::default();
    replica.inner().begin = 1;
    let mut writer = open(&forked.path, &replica);
    writer.append(&9, &[9]).unwrap();
    writer.save_phase("p", &10, finished()).unwrap();
    writer.append(&11, &[11]).unwrap();
    let records = replica.records().into_iter().map(Ok::<_, Error>);
    let seq = rebuild(&copy.path, &Options::default(), records).unwrap();
    assert_eq!(seq, writer.seq());
    let copied = copy.load();
    assert_eq!(copied.head, Some(11));
    assert_eq!(copied.events, [1, 4, 6, 7, 9, 11]);
    assert_eq!(copied.events, forked.load().events);
}

#[test]
fn replica_gets_the_blobs_that_the_store_already_has() {
    let (dir, replica) = (Dir::new(), Memory::default());
    let (mut writer, _) = dir.open();
    writer.put_blob("prompt", b"text").unwrap();
    drop(writer);
    drop(open(&dir.path, &replica));
    assert_eq!(replica.inner().blobs.get("prompt").unwrap(), b"text");

    let (mut writer, _) = dir.open();
    replica.inner().fault = Some(Fault::AnswerLost);
    let err = writer.set_replica(Box::new(replica.clone())).unwrap_err();
    assert!(err.to_string().contains("no answer for 3s"), "{err}");
    assert!(writer.append(&1, &[]).unwrap_err().is_unreplicated());
    assert_eq!(replica.seqs().len(), 0);
}

/// A save that fails because of its own files is no save of the replica, so the caller may save again.
#[test]
fn replica_does_not_get_a_refused_save() {
    let (dir, replica) = (Dir::new(), Memory::default());
    let mut writer = open(&dir.path, &replica);
    writer.append(&1, &[1]).unwrap();
    assert!(writer.truncate_to(Seq::new(5)).is_err());
    assert!(writer.save_phase("../p", &1, finished()).is_err());
    assert!(writer.put_blob("../b", b"").is_err());
    assert_eq!(replica.inner().calls, 1);
    writer.append(&2, &[2]).unwrap();
    assert_eq!(replica.seqs(), [1, 2]);
}

/// A writer that was taken over sends nothing.
#[test]
fn replica_gets_nothing_from_a_fenced_writer() {
    let (dir, replica) = (Dir::new(), Memory::default());
    let mut old = open(&dir.path, &replica);
    old.append(&1, &[1]).unwrap();
    std::fs::remove_file(dir.path.join("LOCK")).unwrap();
    let mut new = open(&dir.path, &replica);
    assert!(old.append(&2, &[2]).unwrap_err().is_fenced());
    assert_eq!(replica.seqs(), [1]);
    new.append(&3, &[3]).unwrap();
    assert_eq!(replica.rebuild().load().events, [1, 3]);
}
