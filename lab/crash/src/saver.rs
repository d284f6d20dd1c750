//! A program that saves on a real disk and reports its calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use checkpoint_store::retention::RetentionPolicy;
use checkpoint_store::{Error, Options, PhaseMeta, Seq, Writer, reader};

use crate::ledger::{Failure, Ledger, Note, fingerprint};
use crate::program;
use crate::reference::{BrokenPromise, CheckResult, Event, Head, State, broken, text};
use crate::rng::Rng;

/// Letters of a blob.
const BLOB: usize = 700;
/// The time between the early acknowledgement of the control and its save.
const EARLY: Duration = Duration::from_millis(1);
/// A saver ends after more failed calls in a row than this.
const TRIES: u32 = 3;

/// The actions of a saver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaverKind {
    /// All actions of a writer.
    Mixed,
    /// Only saves of one event, so that histories can be compared.
    Plain,
    /// A control: it reports each save as acknowledged before it begins.
    Early,
}

/// Records the notes of a saver; fails if there is no listener any more.
pub type NoteSink<'a> = dyn FnMut(Note) -> Result<(), Stop> + 'a;

/// There is no listener any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop;

/// A writer, and the state of its store.
#[derive(Debug)]
pub struct Saver {
    dir: PathBuf,
    rng: Rng,
    number: u32,
    present: State,
    /// The saves to which the writer can return, oldest first; the last one is the current state.
    marks: Vec<(Seq, State)>,
    writer: Option<Writer<Head, Event>>,
    is_early: bool,
}

impl Saver {
    /// Begins with a number above all numbers that were ever used in this store.
    pub fn new(dir: &Path, first: u32) -> Self {
        Self {
            dir: dir.into(),
            rng: Rng::new(first.into()),
            number: first,
            present: State::default(),
            marks: Vec::new(),
            writer: None,
            is_early: false,
        }
    }

    /// Does `steps` steps, and reports them. Opens the store again after a failed call, unless the disk is full.
    pub fn work(
        &mut self,
        kind: SaverKind,
        steps: u32,
        say: &mut NoteSink<'_>,
    ) -> Result<(), Stop> {
        let mut failed = 0;
        self.is_early = kind == SaverKind::Early;
        for _ in 0..steps {
            let Err(err) = self.step(kind, say)? else {
                failed = 0;
                continue;
            };
            let note = Note::from(&err);
            let is_over = matches!(note, Note::Fail(Failure::Locked | Failure::Fenced, _));
            say(note)?;
            failed += 1;
            if is_over || failed > TRIES {
                return Ok(());
            }
            if !err.is_full() {
                self.writer = None;
            }
        }
        say(Note::End)
    }

    fn step(&mut self, kind: SaverKind, say: &mut NoteSink<'_>) -> Result<Result<(), Error>, Stop> {
        if self.writer.is_none()
            && let Err(err) = self.open(say)?
        {
            return Ok(Err(err));
        }
        let letters = self.rng.below(600);
        match (kind, self.rng.below(20)) {
            (SaverKind::Plain, _) => self.append(1, 20, say),
            (_, 0) => self.undo(say),
            (_, 1 | 2) => self.phase(say),
            (_, 3) => self.blob(say),
            (_, 4) => Ok(self.clean()),
            (_, 5) => {
                self.writer = None;
                self.open(say)
            }
            (_, 6) => self.append(1, 8 * letters, say),
            (_, events) => self.append(events as u32 % 3, letters, say),
        }
    }

    /// Opens the store.
    pub fn open(&mut self, say: &mut NoteSink<'_>) -> Result<Result<(), Error>, Stop> {
        self.writer = None;
        let (writer, loaded) = match Writer::open(&self.dir, Options::default()) {
            Ok(opened) => opened,
            Err(err) => return Ok(Err(err)),
        };
        // If a text does not fit its number, this is a state that was never saved, and the ledger then reports that.
        self.present = State::loaded(&loaded).unwrap_or(State {
            head: None,
            events: vec![u32::MAX],
        });
        say(Note::Open(fingerprint(&self.present)))?;
        self.marks = vec![(loaded.seq, self.present.clone())];
        self.writer = Some(writer);
        Ok(Ok(()))
    }

    /// Returns the open writer.
    pub fn writer(&self) -> Option<&Writer<Head, Event>> {
        self.writer.as_ref()
    }

    fn save<T>(
        &mut self,
        state: State,
        say: &mut NoteSink<'_>,
        act: impl FnOnce(&mut Writer<Head, Event>) -> Result<T, Error>,
    ) -> Result<Result<T, Error>, Stop> {
        let Some(writer) = &mut self.writer else {
            return Err(Stop);
        };
        say(Note::Try(fingerprint(&state), self.number))?;
        if self.is_early {
            say(Note::Ack)?;
            program::pause(EARLY);
        }
        let done = act(writer);
        if done.is_ok() {
            say(Note::Ack)?;
            self.present = state;
        }
        Ok(done)
    }

    fn next(&mut self) -> u32 {
        self.number += 10;
        self.number
    }

    /// Adds events of `letters` letters each.
    pub fn append(
        &mut self,
        events: u32,
        letters: usize,
        say: &mut NoteSink<'_>,
    ) -> Result<Result<(), Error>, Stop> {
        let number = self.next();
        let mut state = self.present.clone();
        let added: Vec<Event> = (1..=events)
            .map(|n| (number + n, text(number + n, letters)))
            .collect();
        state.head = Some(number);
        state.events.extend(added.iter().map(|(number, _)| number));
        let head = (number, text(number, 8));
        let done = self.save(state, say, |writer| writer.append(&head, &added))?;
        Ok(done.map(|seq| self.marks.push((seq, self.present.clone()))))
    }

    /// Returns to an earlier save.
    pub fn undo(&mut self, say: &mut NoteSink<'_>) -> Result<Result<(), Error>, Stop> {
        self.next();
        let index = self.marks.len().saturating_sub(2);
        let Some((seq, state)) = self.marks.get(index).cloned() else {
            return Ok(Ok(()));
        };
        let done = self.save(state, say, |writer| writer.truncate_to(seq))?;
        Ok(done.map(|seq| {
            self.marks.truncate(index + 1);
            self.marks.push((seq, self.present.clone()));
        }))
    }

    /// Saves a phase.
    pub fn phase(&mut self, say: &mut NoteSink<'_>) -> Result<Result<(), Error>, Stop> {
        let number = self.next();
        let mut state = self.present.clone();
        state.head = Some(number);
        let head = (number, text(number, 8));
        let done = self.save(state, say, |writer| {
            writer.save_phase("p", &head, PhaseMeta::default())?;
            Ok(writer.seq())
        })?;
        Ok(done.map(|seq| self.marks = vec![(seq, self.present.clone())]))
    }

    fn blob(&mut self, say: &mut NoteSink<'_>) -> Result<Result<(), Error>, Stop> {
        let number = self.next();
        let Some(writer) = &mut self.writer else {
            return Err(Stop);
        };
        let done = writer.put_blob(&format!("b{number}"), text(number, BLOB).as_bytes());
        if done.is_ok() {
            say(Note::Blob(number))?;
        }
        Ok(done)
    }

    fn clean(&mut self) -> Result<(), Error> {
        let policy = RetentionPolicy {
            keep: 2,
            ..RetentionPolicy::default()
        };
        match &mut self.writer {
            Some(writer) => writer.clean(policy).map(drop),
            None => Ok(()),
        }
    }
}

/// Fails unless a program without faults reached its end.
pub fn finished(ledger: &Ledger) -> CheckResult {
    match ledger.is_at_end {
        true => Ok(()),
        false => broken('L', format!("the next program failed: {:?}", ledger.failed)),
    }
}

/// Loads a store as a reader does, and fails unless the ledger allows the loaded state.
pub fn check_load(dir: &Path, ledger: &mut Ledger) -> CheckResult<State> {
    let state = match reader::load::<Head, Event>(dir) {
        Ok(loaded) if !loaded.report.is_undamaged() => {
            return broken('L', format!("damage is reported: {}", loaded.report));
        }
        Ok(loaded) => State::loaded(&loaded)?,
        // The program was killed before it made the directory.
        Err(err) if err.is_not_found() => State::default(),
        Err(err) => return broken('L', err.to_string()),
    };
    ledger.check(&state)?;
    for &number in &ledger.blobs {
        match reader::blob(dir, &format!("b{number}"), u64::MAX) {
            Ok(bytes) if bytes == text(number, BLOB).as_bytes() => {}
            Ok(_) => return broken('A', format!("blob b{number} has other bytes")),
            Err(err) => {
                return Err(BrokenPromise {
                    invariant: 'D',
                    what: err.to_string(),
                });
            }
        }
    }
    Ok(state)
}
