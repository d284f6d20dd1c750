//! Random histories, compared with a simple model.

use checkpoint_store::{Loaded, Options, PhaseMeta, Seq, Writer, reader};
use proptest::prelude::*;

use crate::fold::{folded, parts};
use crate::support::{Dir, torn_len, without_room};

type Head = (u32, String);

#[derive(Debug, Clone)]
enum Op {
    Append(String, Vec<String>),
    /// Undo to the n-th save to which a caller can return.
    Undo(usize),
    Phase,
    /// Drop the writer and open the store again. Dropping writes nothing, so a crash has the same effect.
    Reopen,
    /// Crash inside a save: this many bytes of the save are on disk.
    Torn(usize),
    /// Crash with junk after the end.
    Junk(Vec<u8>),
}

fn op() -> impl Strategy<Value = Op> {
    let text = || proptest::string::string_regex("[a-c]{0,9}|[a-z]{700}").unwrap();
    prop_oneof![
        6 => (text(), proptest::collection::vec(text(), 0..4)).prop_map(|(h, e)| Op::Append(h, e)),
        2 => (0..20usize).prop_map(Op::Undo),
        1 => Just(Op::Phase),
        2 => Just(Op::Reopen),
        1 => (1..60usize).prop_map(Op::Torn),
        1 => proptest::collection::vec(any::<u8>(), 1..80).prop_map(Op::Junk),
    ]
}

#[derive(Debug, Clone, Default, PartialEq)]
struct State {
    head: Option<Head>,
    events: Vec<String>,
}

/// All saves to which a caller can return, oldest first; the last one is the current state.
struct Model(Vec<(Seq, State)>);

impl Model {
    fn now(&self) -> &(Seq, State) {
        self.0.last().unwrap()
    }

    fn check(&self, loaded: Loaded<Head, String>) -> Result<(), TestCaseError> {
        prop_assert!(loaded.report.is_undamaged(), "{}", loaded.report);
        let state = State {
            head: loaded.head,
            events: loaded.events,
        };
        prop_assert_eq!(&(loaded.seq, state), self.now());
        Ok(())
    }
}

fn open(dir: &Dir) -> (Writer<Head, String>, Loaded<Head, String>) {
    Writer::open(&dir.path, Options::default()).unwrap()
}

fn newest_journal(dir: &Dir) -> Option<std::path::PathBuf> {
    let mut names: Vec<_> = crate::support::files(&dir.path).into_keys().collect();
    names.retain(|name| name.starts_with("progress-"));
    names.pop().map(|name| dir.path.join(name))
}

fn run(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let dir = Dir::new();
    let (mut writer, _) = open(&dir);
    let mut model = Model(vec![(Seq::ZERO, State::default())]);
    let mut number = 0;
    for op in ops {
        number += 1;
        match op {
            Op::Append(text, events) => {
                let mut state = model.now().1.clone();
                let head = (number, text);
                let seq = writer.append(&head, &events).unwrap();
                state.head = Some(head);
                state.events.extend(events);
                model.0.push((seq, state));
            }
            Op::Undo(index) => {
                let index = index % model.0.len();
                let (seq, state) = model.0[index].clone();
                let new = writer.truncate_to(seq).unwrap();
                model.0.truncate(index + 1);
                model.0.push((new, state));
            }
            Op::Phase => {
                let mut state = model.now().1.clone();
                let head = (number, String::new());
                writer.save_phase("p", &head, PhaseMeta::default()).unwrap();
                state.head = Some(head);
                model.0 = vec![(writer.seq(), state)];
            }
            Op::Reopen => {
                drop(writer);
                let (new, loaded) = open(&dir);
                writer = new;
                model.check(loaded)?;
            }
            Op::Torn(kept) => {
                let (seq, _) = *model.now();
                writer
                    .append(&(number, "cut".into()), &["cut".into()])
                    .unwrap();
                drop(writer);
                let path = newest_journal(&dir).unwrap();
                let whole = std::fs::read(&path).unwrap();
                let whole = without_room(&whole);
                let start = whole.windows(4).rposition(|four| four == b"CKF1").unwrap();
                let kept = kept.min(whole.len() - start - 1);
                std::fs::write(&path, &whole[..start + kept]).unwrap();
                let (new, loaded) = open(&dir);
                writer = new;
                let cut = torn_len(&whole[start..start + kept]);
                prop_assert_eq!(loaded.report.repaired_tail, Some(cut as u64));
                prop_assert_eq!(loaded.seq, seq);
                model.check(loaded)?;
            }
            Op::Junk(junk) => {
                drop(writer);
                if let Some(path) = newest_journal(&dir) {
                    let mut bytes = std::fs::read(&path).unwrap();
                    bytes.truncate(without_room(&bytes).len());
                    bytes.extend(junk);
                    std::fs::write(&path, bytes).unwrap();
                }
                let (new, loaded) = open(&dir);
                writer = new;
                model.check(loaded)?;
            }
        }
        prop_assert_eq!(writer.seq(), model.now().0);
        let loaded: Loaded<Head, String> = reader::load(&dir.path).unwrap();
        let head = reader::head::<Head>(&dir.path, &Options::default()).unwrap();
        prop_assert_eq!(
            (&head.head, head.seq, &head.report),
            (&loaded.head, loaded.seq, &loaded.report)
        );
        let folded = folded(&dir.path, &Options::default()).unwrap();
        prop_assert_eq!(folded, parts(loaded.clone()));
        model.check(loaded)?;
    }
    drop(writer);
    model.check(open(&dir).1)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_loads_as_acknowledged(ops in proptest::collection::vec(op(), 1..24)) {
        run(ops)?;
    }
}
