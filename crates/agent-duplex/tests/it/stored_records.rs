//! The stored records, and the errors for a damaged or foreign file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use agent_duplex::{
    Assignment, EndReason, Error, Input, InputRef, MemoryPersistence, PersistedRecord, Persistence,
    Receipt, RecoveredConversation, SqlitePersistence, TurnId,
};
use proptest::prelude::*;
use tempfile::TempDir;
use uuid::Uuid;

pub(crate) fn accepted(id: &str, parent: Option<TurnId>) -> PersistedRecord {
    let mut input = Input::new(format!("{id}\0 says \u{1f980}"));
    if matches!(id, "1" | "3" | "5") {
        input = input.with_image("/a b.png").with_text("and\n");
        input = input.with_file("/\u{1f980}");
    }
    input.id = id.to_owned();
    input.parent = parent;
    let receipt = Receipt::stored(Uuid::new_v4(), id, SystemTime::now(), false);
    PersistedRecord::Accepted { receipt, input }
}

fn turn(number: u64) -> TurnId {
    number.to_string().parse().expect("the number of a turn")
}

fn assigned(number: u64, receipts: &[Uuid]) -> PersistedRecord {
    let inputs = receipts.iter().map(|receipt| InputRef::new(*receipt, ""));
    let mut assignment = Assignment::new(turn(number), 1, inputs.collect());
    assignment.parent = (number > 1).then(|| turn(number - 1));
    PersistedRecord::Assigned(assignment)
}

fn receipt(record: &PersistedRecord) -> Uuid {
    match record {
        PersistedRecord::Accepted { receipt, .. } => receipt.id,
        other => panic!("{other:?} has no receipt"),
    }
}

fn opened(path: &Path) -> (SqlitePersistence, RecoveredConversation) {
    let mut kept = SqlitePersistence::open(path, "talk").expect("the file is valid");
    let recovered = kept.recover().expect("the file is valid");
    (kept, recovered)
}

#[derive(Clone, Debug)]
enum Op {
    Accept(u8),
    Hand(usize),
    Return(usize),
    Assign(usize),
    Drop(usize),
    Session(Option<String>),
    Message(String),
    Complete(usize),
    Commit,
    Recover,
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0u8..6).prop_map(Op::Accept),
        4 => (1usize..4).prop_map(Op::Hand),
        1 => any::<usize>().prop_map(Op::Return),
        3 => any::<usize>().prop_map(Op::Assign),
        1 => any::<usize>().prop_map(Op::Drop),
        1 => proptest::option::of("[a-z]{0,3}").prop_map(Op::Session),
        1 => any::<String>().prop_map(Op::Message),
        2 => any::<usize>().prop_map(Op::Complete),
        4 => Just(Op::Commit),
        1 => Just(Op::Recover),
    ]
}

/// A simulated conversation, and its records.
#[derive(Default)]
struct Talk {
    waiting: Vec<Uuid>,
    handed: Vec<(Uuid, Vec<Uuid>)>,
    running: Vec<u64>,
    turns: u64,
    records: Vec<PersistedRecord>,
}

impl Talk {
    fn op(&mut self, op: Op) {
        let pick = |of: usize, at: usize| at.checked_rem(of);
        let record = match op {
            Op::Accept(id) => {
                let parent = self.running.last().copied().map(turn);
                let record = accepted(&id.to_string(), parent);
                self.waiting.push(receipt(&record));
                record
            }
            Op::Hand(count) => {
                let count = count.min(self.waiting.len());
                let receipts: Vec<Uuid> = self.waiting.drain(..count).collect();
                let message = Uuid::new_v4();
                self.handed.push((message, receipts.clone()));
                PersistedRecord::Delivered { message, receipts }
            }
            Op::Return(at) => {
                let Some(at) = pick(self.handed.len(), at) else {
                    return;
                };
                let (message, receipts) = self.handed.remove(at);
                self.waiting.extend(receipts);
                PersistedRecord::Returned { message }
            }
            Op::Assign(at) => {
                let receipts = match pick(self.handed.len(), at) {
                    Some(at) => self.handed.remove(at).1,
                    None => Vec::new(),
                };
                if at % 2 == 0 || self.running.is_empty() {
                    self.turns += 1;
                    self.running.push(self.turns);
                }
                assigned(*self.running.last().expect("a turn runs"), &receipts)
            }
            Op::Drop(at) => {
                let Some(at) = pick(self.waiting.len(), at) else {
                    return;
                };
                let receipt = self.waiting.remove(at);
                PersistedRecord::Dropped { receipt }
            }
            Op::Session(id) => PersistedRecord::Session { id },
            Op::Message(text) => PersistedRecord::Message {
                turn: self.running.last().copied().map(turn),
                text,
                partial: false,
            },
            Op::Complete(at) => {
                let Some(at) = pick(self.running.len(), at) else {
                    return;
                };
                PersistedRecord::Completed {
                    turn: turn(self.running.remove(at)),
                    reason: EndReason::Completed,
                    detail: String::new(),
                }
            }
            Op::Commit | Op::Recover => return,
        };
        self.records.push(record);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// After any records and any number of recoveries, the file store and the memory store return the same, which is the state of the simulated
    /// conversation.
    #[test]
    fn l100a_file_store_recovers_like_memory_store(ops in proptest::collection::vec(any_op(), 0..80)) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("talks");
        let mut talk = Talk::default();
        let mut memory = MemoryPersistence::new();
        memory.recover().unwrap();
        let (mut file, _) = opened(&path);
        for op in ops.into_iter().chain([Op::Recover, Op::Recover]) {
            talk.op(op.clone());
            if matches!(op, Op::Commit | Op::Recover) {
                memory.append(&talk.records).unwrap();
                file.append(&talk.records).unwrap();
                talk.records.clear();
            }
            if matches!(op, Op::Recover) {
                memory = memory.clone();
                let expected = memory.recover().unwrap();
                let recovered;
                (file, recovered) = opened(&path);
                prop_assert_eq!(&recovered, &expected);
                let pending: Vec<_> = recovered.pending.iter().map(|(receipt, _)| receipt.id).collect();
                let mut waiting = talk.waiting.clone();
                waiting.sort_by_key(|id| recovered.accepted.iter().position(|r| r.id == *id));
                prop_assert_eq!(pending, waiting);
                prop_assert_eq!(recovered.interrupted.len(), talk.running.len() + lost(&talk));
                prop_assert_eq!(recovered.turns, talk.turns + lost(&talk) as u64);
                talk.turns = recovered.turns;
                talk.running.clear();
                talk.handed.clear();
            }
        }
    }
}

/// Returns the number of messages that were delivered and are in no turn. A message without inputs can't be missed.
fn lost(talk: &Talk) -> usize {
    talk.handed.iter().filter(|(_, of)| !of.is_empty()).count()
}

#[test]
fn database_and_its_log_are_private() {
    let directory = TempDir::new().unwrap();
    let (mut kept, _) = opened(&directory.path().join("talks"));
    kept.append(&[accepted("a", None)]).unwrap();
    let mut modes = Vec::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        modes.push((entry.file_name().into_string().unwrap(), mode));
    }
    modes.sort();
    let names = ["talks", "talks-shm", "talks-wal"];
    assert_eq!(modes, names.map(|name| (name.to_owned(), 0o600)));
}

#[test]
fn the_answers_are_read_page_by_page_and_by_conversation() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let message = |text: &str| PersistedRecord::Message {
        turn: None,
        text: text.into(),
        partial: true,
    };
    let (mut kept, _) = opened(&path);
    kept.append(&[message("a"), message("b"), message("c")])
        .unwrap();
    let mut other = SqlitePersistence::open(&path, "other").unwrap();
    assert_eq!(other.recover().unwrap(), RecoveredConversation::default());
    other.append(&[message("x")]).unwrap();
    // The writer of the other conversation did not fence the writer of this one.
    kept.append(&[message("d")]).unwrap();
    let page = kept.messages(0, 2).unwrap();
    assert_eq!(page, [(1, message("a")), (2, message("b"))]);
    let rest = kept.messages(2, 10).unwrap();
    assert_eq!(rest, [(3, message("c")), (5, message("d"))]);
    assert_eq!(opened(&path).1.messages, 4);
}

#[test]
fn later_of_two_writers_writes_the_conversation() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let (mut first, _) = opened(&path);
    let a = accepted("a", None);
    first.append(std::slice::from_ref(&a)).unwrap();
    let (mut second, recovered) = opened(&path);
    assert_eq!(recovered.pending.len(), 1);
    let fenced = first.append(&[accepted("lost", None)]).unwrap_err();
    assert!(fenced.is_persistence());
    second.append(&[accepted("b", None)]).unwrap();
    let again = first.append(&[accepted("lost", None)]).unwrap_err();
    let memory = {
        let mut first = MemoryPersistence::new();
        first.recover().unwrap();
        first.clone().recover().unwrap();
        first.append(&[accepted("lost", None)]).unwrap_err()
    };
    insta::assert_snapshot!(told(&[fenced, again, memory], &path), @r"
    can't store the conversation: another writer took over PATH; stop one of the two
    can't store the conversation: recover it before writing to it
    can't store the conversation: another writer took over the conversation in memory; stop one of the two
    ");
    let ids: Vec<_> = opened(&path).1.pending;
    let ids: Vec<_> = ids.iter().map(|(receipt, _)| &*receipt.input_id).collect();
    assert_eq!(ids, ["a", "b"]);
}

#[test]
fn append_stores_all_records_or_none() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let unsound = [
        PersistedRecord::Delivered {
            message: Uuid::new_v4(),
            receipts: vec![Uuid::new_v4()],
        },
        PersistedRecord::Dropped {
            receipt: Uuid::new_v4(),
        },
        PersistedRecord::Completed {
            turn: turn(7),
            reason: EndReason::Completed,
            detail: String::new(),
        },
        assigned(1, &[Uuid::new_v4()]),
    ];
    for record in unsound {
        let (mut file, _) = opened(&path);
        let mut memory = MemoryPersistence::new();
        memory.recover().unwrap();
        let records = [accepted("a", None), record];
        assert!(file.append(&records).unwrap_err().is_persistence());
        assert!(memory.append(&records).unwrap_err().is_persistence());
        assert_eq!(memory.recover().unwrap(), RecoveredConversation::default());
        assert_eq!(opened(&path).1, RecoveredConversation::default());
    }
}

#[test]
fn file_of_the_version_without_parts_is_read_and_extended() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let (mut kept, _) = opened(&path);
    kept.append(&[accepted("old", None)]).unwrap();
    drop(kept);
    let old = rusqlite::Connection::open(&path).unwrap();
    old.execute_batch("DROP TABLE part; PRAGMA user_version = 1")
        .unwrap();
    drop(old);
    let (mut kept, recovered) = opened(&path);
    assert_eq!(recovered.pending[0].1.parts, []);
    let with_parts = accepted("1", None);
    kept.append(std::slice::from_ref(&with_parts)).unwrap();
    let (_, recovered) = opened(&path);
    let PersistedRecord::Accepted { input, .. } = with_parts else {
        unreachable!()
    };
    assert_eq!(recovered.pending[0].1.text, "old\0 says \u{1f980}");
    assert_eq!(recovered.pending[1].1, input);
}

/// Returns the texts of the errors, without the parts that differ from run to run.
fn told(errors: &[Error], path: &Path) -> String {
    let path = path.display().to_string();
    let lines = errors.iter().map(|e| {
        assert!(e.is_persistence());
        e.to_string().replace(&path, "PATH")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn l100b_invalid_file_is_an_error_and_never_an_empty_history() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let mut errors = Vec::new();
    let mut refused = |change: &dyn Fn()| {
        change();
        let before = fs::read(&path).unwrap_or_default();
        let opened = SqlitePersistence::open(&path, "talk").and_then(|mut kept| kept.recover());
        errors.push(opened.unwrap_err());
        assert_eq!(fs::read(&path).unwrap_or_default(), before);
    };
    let sql = |sql: &'static str| {
        let path = &path;
        move || {
            let other = rusqlite::Connection::open(path).unwrap();
            other.execute_batch(sql).unwrap();
        }
    };
    refused(&|| fs::write(&path, "no database, however long it is ".repeat(99)).unwrap());
    refused(&|| {
        fs::remove_file(&path).unwrap();
        sql("CREATE TABLE theirs (a)")();
    });
    refused(&|| {
        fs::remove_file(&path).unwrap();
        let (mut kept, _) = opened(&path);
        let inputs: Vec<_> = (0..2000).map(|i| accepted(&i.to_string(), None)).collect();
        kept.append(&inputs).unwrap();
        drop(kept);
        fs::copy(&path, directory.path().join("sound")).unwrap();
        sql("PRAGMA user_version = 3")();
    });
    refused(&|| {
        let sound = fs::read(directory.path().join("sound")).unwrap();
        fs::write(&path, &sound[..sound.len() / 2]).unwrap();
    });
    refused(&|| {
        let mut damaged = fs::read(directory.path().join("sound")).unwrap();
        damaged[4096..]
            .chunks_mut(4096)
            .for_each(|page| page[..8].fill(0xee));
        fs::write(&path, damaged).unwrap();
    });
    refused(&|| fs::write(&path, "").unwrap());
    refused(&|| fs::write(&path, "S").unwrap());
    refused(&|| {
        fs::remove_file(&path).unwrap();
        sql("CREATE TABLE a (a); DROP TABLE a")();
    });
    refused(&|| {
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
    });
    errors.push(SqlitePersistence::open(path.join("no/where"), "talk").unwrap_err());
    insta::assert_snapshot!(told(&errors, &path), @r"
    can't store the conversation: PATH is not a database; choose another file
    can't store the conversation: PATH is a database of another program; choose another file
    can't store the conversation: PATH was written by a newer version of this program (schema 3, this one supports 2); update this program
    can't store the conversation: PATH is damaged; restore a copy of it, or choose another file
    can't store the conversation: PATH is damaged; restore a copy of it, or choose another file
    can't store the conversation: PATH is empty: it was truncated, or another program created it; restore a copy, or remove it to start again
    can't store the conversation: PATH is empty: it was truncated, or another program created it; restore a copy, or remove it to start again
    can't store the conversation: PATH is empty: it was truncated, or another program created it; restore a copy, or remove it to start again
    can't store the conversation: PATH is a directory; choose a file in it
    can't store the conversation: PATH/no/where can't be created; choose a file in a writable directory that exists
    ");
}

#[test]
fn l100c_replaced_file_acknowledges_nothing() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let aside = directory.path().join("aside");
    let replaced = || {
        fs::rename(&path, &aside).unwrap();
        opened(&path);
    };
    let changes: [&dyn Fn(); 3] = [
        &|| fs::remove_file(&path).unwrap(),
        &|| fs::rename(&path, &aside).unwrap(),
        &replaced,
    ];
    let mut errors = Vec::new();
    for change in changes {
        let (mut kept, _) = opened(&path);
        kept.append(&[accepted("a", None)]).unwrap();
        change();
        errors.push(kept.append(&[accepted("lost", None)]).unwrap_err());
        errors.push(kept.recover().unwrap_err());
        if aside.exists() {
            // Put the file back.
            drop(kept);
            fs::rename(&aside, &path).unwrap();
            assert!(!opened(&path).1.pending.is_empty());
        }
    }
    errors.dedup_by_key(|e| e.to_string());
    insta::assert_snapshot!(told(&errors, &path), @"can't store the conversation: PATH was removed, renamed or replaced while it was open; restore it or a copy and open the conversation again");
}

#[test]
fn busy_database_is_waited_for() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    let (mut kept, _) = opened(&path);
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (begun, begins) = std::sync::mpsc::channel();
    let writer = std::thread::spawn(move || {
        begun.send(()).unwrap();
        kept.append(&[accepted("a", None)])
    });
    begins.recv().unwrap();
    other.execute_batch("COMMIT").unwrap();
    writer.join().unwrap().unwrap();
}

#[test]
fn many_threads_can_open_a_new_file_at_once() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("talks");
    std::thread::scope(|scope| {
        for i in 0..8 {
            let path = &path;
            scope.spawn(move || {
                let mut kept = SqlitePersistence::open(path, &i.to_string()).unwrap();
                kept.recover().unwrap();
                kept.append(&[accepted("a", None)]).unwrap();
            });
        }
    });
    // The temporary files of the slower writers are gone.
    let left: Vec<_> = fs::read_dir(&directory).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
