//! The store of a claimed run at its worker: the real one, whose replica is the stream, and a plain state for large simulations.

use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use checkpoint_store::{Options, PhaseMeta, Record, Replica, ReplicaError, Seq, Writer};

use crate::computer::Computer;
use crate::disk::Disk;
use crate::mistake;
use crate::reference::{Event, Head, State, text};
use crate::replica::program::rebuilt;
use crate::sim_disk::Shared;

/// How far a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RunState {
    /// The number of completed iterations.
    pub(super) completed: u32,
    /// The number of saves of the iteration after them.
    pub(super) step: u32,
}

/// The store of a run. Each save is a record, which the caller appends to the stream, and whose result it passes.
pub(super) trait RunStore: Sized + fmt::Debug {
    /// The record of a save.
    type Body: Clone + fmt::Debug;

    /// Makes the store from the records of the stream, and returns the state that it loads.
    fn rebuild<'a>(
        records: impl DoubleEndedIterator<Item = &'a (RunState, Self::Body)>,
    ) -> Result<(Self, RunState), String>
    where
        Self::Body: 'a;

    /// Begins a save, and returns its record.
    fn save(&mut self, state: RunState) -> Result<Self::Body, String>;

    /// The record is in the stream: the save must be acknowledged.
    fn saved(&mut self) -> Result<(), String>;

    /// The stream did not confirm the record: the store must refuse this save, and each later one. `by` is the epoch of another owner.
    fn refused(&mut self, by: Option<u64>) -> Result<(), String>;
}

/// A state without files.
#[derive(Debug)]
pub(super) struct PlainState;

impl RunStore for PlainState {
    type Body = ();

    fn rebuild<'a>(
        mut records: impl DoubleEndedIterator<Item = &'a (RunState, ())>,
    ) -> Result<(Self, RunState), String> {
        let state = records.next_back().map(|(state, ())| *state);
        Ok((Self, state.unwrap_or_default()))
    }

    fn save(&mut self, _: RunState) -> Result<(), String> {
        Ok(())
    }

    fn saved(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn refused(&mut self, _: Option<u64>) -> Result<(), String> {
        Ok(())
    }
}

type Answer = Result<(), Option<u64>>;
const NAME: &str = "run";
const GONE: &str = "the program of the run panicked";

/// A real store on a modelled disk. Its saves block, so they run on a thread of their own, which waits whenever this value is not in a call.
pub(super) struct RealStore {
    saves: Option<Sender<RunState>>,
    answers: Option<Sender<Answer>>,
    reports: Receiver<Report>,
    thread: Option<thread::JoinHandle<()>>,
}

impl fmt::Debug for RealStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealStore").finish_non_exhaustive()
    }
}

/// A message of the thread of a store.
enum Report {
    Loaded(Result<RunState, String>),
    /// The replica got this record, and waits for the answer.
    Append(Box<Record>),
    /// A save returned.
    Saved(Result<(), String>),
}

impl Drop for RealStore {
    fn drop(&mut self) {
        (self.saves, self.answers) = (None, None);
        if let Some(thread) = self.thread.take() {
            // A panic was reported as the end of its reports.
            drop(thread.join());
        }
    }
}

impl RunStore for RealStore {
    type Body = Record;

    fn rebuild<'a>(
        records: impl DoubleEndedIterator<Item = &'a (RunState, Record)>,
    ) -> Result<(Self, RunState), String> {
        let records: Vec<Record> = records.map(|(_, record)| record.clone()).collect();
        let (saves, begin) = channel();
        let (answers, answered) = channel();
        let (report, reports) = channel();
        let mistake = mistake::now();
        let work = move || {
            mistake::set(mistake);
            run(&records, &begin, Mutex::new(answered), &report);
        };
        let store = Self {
            saves: Some(saves),
            answers: Some(answers),
            reports,
            thread: Some(thread::spawn(work)),
        };
        match store.reports.recv() {
            Ok(Report::Loaded(loaded)) => loaded.map(|state| (store, state)),
            _ => Err(GONE.into()),
        }
    }

    fn save(&mut self, state: RunState) -> Result<Record, String> {
        match self.begin(state)? {
            Report::Append(record) => Ok(*record),
            Report::Saved(saved) => Err(format!("a save has no record: {saved:?}")),
            Report::Loaded(_) => Err(GONE.into()),
        }
    }

    fn saved(&mut self) -> Result<(), String> {
        match self.answer(Ok(()))? {
            Report::Saved(Ok(())) => Ok(()),
            Report::Saved(Err(why)) => Err(format!("a confirmed save fails: {why}")),
            _ => Err("one save has two records".into()),
        }
    }

    fn refused(&mut self, by: Option<u64>) -> Result<(), String> {
        match self.answer(Err(by))? {
            Report::Saved(Err(_)) => {}
            _ => return Err("a save was acknowledged that the stream did not confirm".into()),
        }
        match self.begin(RunState::default())? {
            Report::Saved(Err(_)) => Ok(()),
            _ => Err("a writer saves again after its replica refused a save".into()),
        }
    }
}

impl RealStore {
    fn begin(&mut self, state: RunState) -> Result<Report, String> {
        let sent = self.saves.as_ref().map(|saves| saves.send(state));
        match sent {
            Some(Ok(())) => self.reports.recv().map_err(|_| GONE.into()),
            _ => Err(GONE.into()),
        }
    }

    fn answer(&mut self, answer: Answer) -> Result<Report, String> {
        let sent = self.answers.as_ref().map(|answers| answers.send(answer));
        match sent {
            Some(Ok(())) => self.reports.recv().map_err(|_| GONE.into()),
            _ => Err(GONE.into()),
        }
    }
}

/// The stream, as the writer of a store sees it.
#[derive(Debug)]
struct StreamReplica {
    newest: Seq,
    reports: Sender<Report>,
    answers: Mutex<Receiver<Answer>>,
}

impl Replica for StreamReplica {
    fn newest(&self) -> Seq {
        self.newest
    }

    fn append(&mut self, record: &Record) -> Result<(), ReplicaError> {
        let ended = || ReplicaError::Unconfirmed("the process was killed".into());
        let sent = self.reports.send(Report::Append(Box::new(record.clone())));
        sent.map_err(|_| ended())?;
        let answers = self.answers.get_mut().map_err(|_| ended())?;
        match answers.recv().map_err(|_| ended())? {
            Ok(()) => {
                self.newest = record.seq();
                Ok(())
            }
            Err(Some(by)) => Err(ReplicaError::Fenced { by }),
            Err(None) => Err(ReplicaError::Unconfirmed("no answer".into())),
        }
    }

    fn put_blob(&mut self, _: &str, _: &[u8]) -> Result<(), ReplicaError> {
        Ok(())
    }
}

/// The thread of a store.
fn run(
    records: &[Record],
    saves: &Receiver<RunState>,
    answers: Mutex<Receiver<Answer>>,
    reports: &Sender<Report>,
) {
    // A send fails only if the store was dropped, and then the next receive fails too.
    let (mut writer, mut present) = match open(records, answers, reports) {
        Ok((writer, state)) => {
            drop(reports.send(Report::Loaded(Ok(state))));
            (writer, state)
        }
        Err(why) => return drop(reports.send(Report::Loaded(Err(why)))),
    };
    while let Ok(state) = saves.recv() {
        let head = (number(state), text(number(state), 8));
        let saved = match state.completed > present.completed {
            true => {
                let done = (state.completed, text(state.completed, 30));
                writer.append(&head, &[done]).map(drop)
            }
            // Some saves are phases, so that the stream has both kinds.
            false if state.completed % 3 == 2 && state.step == 1 => writer
                .save_phase("p", &head, PhaseMeta::default())
                .map(drop),
            false => writer.append(&head, &[]).map(drop),
        };
        if saved.is_ok() {
            present = state;
        }
        let saved = saved.map_err(|e| e.to_string());
        drop(reports.send(Report::Saved(saved)));
    }
}

fn number(state: RunState) -> u32 {
    state.completed * 16 + state.step
}

type Opened = (Writer<Head, Event>, RunState);

fn open(
    records: &[Record],
    answers: Mutex<Receiver<Answer>>,
    reports: &Sender<Report>,
) -> Result<Opened, String> {
    let shared = Shared::new(Computer::new(Disk::new(512), 1));
    rebuilt(&shared, NAME, records).map_err(|e| format!("a rebuild fails: {e}"))?;
    let disk = shared.make_directory(NAME);
    let opened = Writer::<Head, Event>::open_on(disk, Path::new(NAME), Options::default());
    let (mut writer, loaded) = opened.map_err(|e| format!("a rebuilt store fails: {e}"))?;
    let state = State::loaded(&loaded).map_err(|broken| broken.what)?;
    let number = state.head.unwrap_or(0);
    let (completed, step) = (number / 16, number % 16);
    if state.events != (1..=completed).collect::<Vec<_>>() {
        return Err(format!("a rebuilt store has the state {state:?}"));
    }
    let newest = records.last().map_or(Seq::ZERO, Record::seq);
    let replica = StreamReplica {
        newest,
        reports: reports.clone(),
        answers,
    };
    let set = writer.set_replica(Box::new(replica));
    set.map_err(|e| format!("a rebuilt store takes no replica: {e}"))?;
    Ok((writer, RunState { completed, step }))
}
