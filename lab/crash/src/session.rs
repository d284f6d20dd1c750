//! A program that uses a store on a modelled computer, compared with the reference.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use checkpoint_store::{Error, Options, PhaseMeta, Seq, Store, Writer, reader};

mod around;

pub(crate) use around::{lose, strict};

use crate::computer::Computer;
use crate::disk::{Disk, ROOT};
use crate::reference::{BrokenPromise, CheckResult, Event, Head, Reference, State, broken, text};
use crate::sim_disk::Shared;
use crate::step::{Step, Workload};

pub(crate) const DIR: &str = "store";
/// Number of tries to open the store again after a failed call.
const TRIES: usize = 3;

/// The store in use.
#[derive(Debug)]
enum Open {
    Writer(Box<Writer<Head, Event>>),
    Store(Box<Store>),
}

/// A program, its store, and the right contents of the store.
#[derive(Debug)]
pub struct Session {
    /// The computer on which the program runs.
    pub shared: Shared,
    /// The right contents of the store.
    pub reference: Reference,
    open: Option<Open>,
    /// The state to which the writer's next save adds.
    pub(crate) present: State,
    is_store: bool,
    /// The saves to which the writer can return, oldest first; the last one is the current state.
    pub(crate) marks: Vec<(Seq, State)>,
    /// All states that were ever passed to a save.
    pub(crate) ever: Vec<State>,
    /// The number of acknowledged saves.
    pub acknowledged: u64,
    pub(crate) number: u32,
    /// Whether the program continues to use a writer after a failed call, as long as the writer stays usable.
    pub is_stubborn: bool,
}

impl Session {
    /// Starts a computer with an empty disk.
    pub fn new(workload: &Workload) -> Self {
        // The random numbers are the same for all seeds. So states that differ only in their salts and ids are the same state, and count once.
        let shared = Shared::new(Computer::new(Disk::new(workload.sector), 0));
        shared.pc().ahead = workload.ahead;
        drop(shared.make_directory(DIR));
        Self::with(shared, Reference::default(), workload)
    }

    /// Starts a computer after a power cut, with the disk that the cut left.
    pub fn after(disk: Disk, reference: Reference, workload: &Workload, depth: u64) -> Self {
        let mut computer = Computer::new(disk, depth);
        computer.ahead = workload.ahead;
        computer.clock = depth * 3_600_000;
        computer.progress = reference.progress();
        Self::with(Shared::new(computer), reference, workload)
    }

    fn with(shared: Shared, reference: Reference, workload: &Workload) -> Self {
        let mut numbers = reference
            .acked()
            .events
            .iter()
            .copied()
            .chain(reference.acked().head);
        // The number is above every number of a save that a load may return.
        let number = numbers.by_ref().max().unwrap_or(0) + 1_000;
        Self {
            shared,
            reference,
            open: None,
            present: State::default(),
            is_store: workload.is_store(),
            marks: Vec::new(),
            ever: Vec::new(),
            acknowledged: 0,
            number,
            is_stubborn: workload.seed % 2 == 1,
        }
    }

    /// Opens the store and checks the loaded state.
    pub fn open(&mut self) -> CheckResult {
        self.open_again()?;
        let is_off = self.shared.pc().is_off();
        if is_off { Ok(()) } else { self.forks() }
    }

    fn open_again(&mut self) -> CheckResult {
        self.open = None;
        let mut last = None;
        for _ in 0..TRIES {
            self.open = None;
            if self.shared.pc().is_off() {
                return self.bounded();
            }
            match self.opened() {
                Ok(()) => return self.bounded(),
                Err(Ok(broken)) => return Err(broken),
                // Removed files cannot be loaded; the store reports that, so the program ends.
                Err(Err(err)) if err.is_corrupt() && self.reference.is_void() => return Ok(()),
                Err(Err(err)) => {
                    self.failure(&err)?;
                    last = Some(err);
                }
            }
        }
        match last {
            Some(err) if !err.is_full() && !self.shared.pc().is_off() => {
                broken('L', format!("the store can no longer be opened: {err}"))
            }
            _ => Ok(()),
        }
    }

    fn opened(&mut self) -> Result<(), Result<BrokenPromise, Error>> {
        let (disk, path) = (self.shared.make_directory(DIR), Path::new(DIR));
        if self.is_store {
            let store = Store::open_on(disk, path).map_err(Err)?;
            let value = store.load::<Head>().map_err(Err)?;
            let state = State::of(value.as_ref(), &[]).map_err(Ok)?;
            self.reference.check(&state, true).map_err(Ok)?;
            self.present = state;
            self.open = Some(Open::Store(Box::new(store)));
        } else {
            let (writer, loaded) = Writer::open_on(disk, path, Options::default()).map_err(Err)?;
            let state = State::loaded(&loaded).map_err(Ok)?;
            self.reference.check(&state, true).map_err(Ok)?;
            // This code cannot know which saves were undone or precede a phase, so only the current state is certain to be there.
            match self
                .marks
                .iter()
                .position(|(seq, old)| *seq == loaded.seq && *old == state)
            {
                Some(index) => self.marks.truncate(index + 1),
                None => self.marks = vec![(loaded.seq, state.clone())],
            }
            self.present = state;
            self.open = Some(Open::Writer(Box::new(writer)));
        }
        self.settle_lock();
        self.reached();
        self.blobs()
    }

    /// Makes the text of the lock durable once the store is open. The text is for people only, and would be one more decision in every later power
    /// cut.
    fn settle_lock(&self) {
        let mut pc = self.shared.pc();
        let lock = pc
            .disk
            .lookup(ROOT, DIR)
            .and_then(|dir| pc.disk.lookup(dir, "LOCK"));
        if let Some(lock) = lock {
            pc.disk.sync_file(lock).expect("the lock is a file");
        }
    }

    /// Opens the store if it is closed, and returns its writer and its reference.
    pub(crate) fn take_writer(&mut self) -> CheckResult<Option<(Writer<Head, Event>, Reference)>> {
        if self.open.is_none() {
            self.open()?;
        }
        match self.open.take() {
            Some(Open::Writer(writer)) => Ok(Some((*writer, self.reference.clone()))),
            _ => Ok(None),
        }
    }

    /// Closes the store.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// Returns whether the store is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.open.is_none()
    }

    fn reached(&self) {
        let progress = self.reference.progress();
        self.shared.pc().reached(progress);
    }

    fn bounded(&self) -> CheckResult {
        match self.shared.pc().endless {
            true => broken('B', "the program made more calls than any run makes"),
            false => Ok(()),
        }
    }

    fn failure(&self, err: &Error) -> CheckResult {
        let acked = *self.reference.acked() != State::default();
        let harmed = self.shared.pc().harmed;
        match (harmed, acked && err.is_corrupt()) {
            (false, _) => broken('L', format!("a call failed without a fault: {err}")),
            (_, true) => broken(
                'L',
                format!("saves were acknowledged, but the store reports: {err}"),
            ),
            _ => Ok(()),
        }
    }

    /// Executes all steps of a workload; ends early when the power fails.
    pub fn run(&mut self, steps: &[Step]) -> CheckResult {
        for &step in steps {
            self.step(step)?;
            self.bounded()?;
            if self.shared.pc().is_off() {
                break;
            }
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> CheckResult {
        match step {
            Step::Reopen => return self.open(),
            Step::Load => return self.load(),
            Step::LookBack => return self.look_back(),
            Step::Verify => return self.verify(),
            Step::Clean => return self.clean(),
            Step::Fork => return self.fork(),
            Step::Full(room) => {
                let mut pc = self.shared.pc();
                pc.room = Some(room.into());
                pc.harmed = true;
                return Ok(());
            }
            Step::Room => {
                self.shared.pc().room = None;
                return Ok(());
            }
            Step::LoseJournal | Step::LoseAll => {
                self.lose(step == Step::LoseAll);
                return Ok(());
            }
            _ => {}
        }
        if self.open.is_none() {
            self.open()?;
        }
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        self.number += 100;
        let done = match open {
            Open::Writer(mut writer) => {
                let done = self.write(&mut writer, step);
                self.open = Some(Open::Writer(writer));
                done
            }
            Open::Store(mut store) => {
                let done = self.put(&mut store, step);
                self.open = Some(Open::Store(store));
                done
            }
        };
        let Err(err) = done else { return Ok(()) };
        self.failure(&err)?;
        let is_over = err.is_poisoned() || err.is_fenced() || err.is_vanished();
        if is_over || !(self.is_stubborn || err.is_full()) {
            self.open = None;
        }
        Ok(())
    }

    fn next(&self, letters: usize) -> (u32, String) {
        (self.number, text(self.number, letters))
    }

    fn write(&mut self, writer: &mut Writer<Head, Event>, step: Step) -> Result<(), Error> {
        let mut state = self.present.clone();
        match step {
            Step::Append { events, letters } => {
                let head = self.next(8);
                let added: Vec<Event> = (1..=u32::from(events))
                    .map(|n| (head.0 + n, text(head.0 + n, letters.into())))
                    .collect();
                state.head = Some(head.0);
                state.events.extend(added.iter().map(|(number, _)| number));
                self.begin(&state);
                let seq = writer.append(&head, &added)?;
                self.marks.push((seq, state.clone()));
            }
            Step::Head(letters) => {
                let head = self.next(letters.into());
                state.head = Some(head.0);
                self.begin(&state);
                let seq = writer.append(&head, &[])?;
                self.marks.push((seq, state.clone()));
            }
            Step::Undo(back) => {
                let index = self.marks.len().saturating_sub(1 + usize::from(back));
                let seq = self.marks[index].0;
                state = self.marks[index].1.clone();
                self.begin(&state);
                let new = writer.truncate_to(seq)?;
                self.marks.truncate(index + 1);
                self.marks.push((new, state.clone()));
            }
            Step::Phase => {
                let head = self.next(8);
                state.head = Some(head.0);
                self.begin(&state);
                writer.save_phase("p", &head, PhaseMeta::default())?;
                self.marks = vec![(writer.seq(), state.clone())];
            }
            Step::Blob => {
                let (number, bytes) = self.next(around::BLOB);
                writer.put_blob(&format!("b{number}"), bytes.as_bytes())?;
                self.reference.blobs.push(number);
                self.reached();
                return Ok(());
            }
            Step::CleanOpen => {
                writer.clean(around::strict())?;
                return Ok(());
            }
            _ => return Ok(()),
        }
        self.present = state;
        self.reference.ack();
        self.acknowledged += 1;
        self.reached();
        Ok(())
    }

    fn put(&mut self, store: &mut Store, step: Step) -> Result<(), Error> {
        if let Step::Value(letters) = step {
            let value = self.next(letters.into());
            self.begin(&State {
                head: Some(value.0),
                events: Vec::new(),
            });
            store.save(&value)?;
            self.reference.ack();
            self.acknowledged += 1;
            self.reached();
        }
        Ok(())
    }

    fn begin(&mut self, state: &State) {
        self.reference.try_save(state.clone());
        self.ever.push(state.clone());
        self.reached();
    }

    /// Loads without a lock and checks the loaded state. It may be a state that is not durable yet.
    pub fn load(&mut self) -> CheckResult {
        let disk = self.shared.directory(DIR);
        match reader::load_on::<Head, Event>(disk, Path::new(DIR)) {
            Ok(loaded) => {
                let state = State::loaded(&loaded)?;
                self.reference.check(&state, false).map(drop)
            }
            Err(err) if err.is_corrupt() && self.reference.is_void() => Ok(()),
            Err(_) if self.shared.pc().is_off() => Ok(()),
            Err(err) => self.failure(&err),
        }
    }
}

/// Runs `act`, and treats a panic as a broken promise.
pub(crate) fn catching_panics<T>(act: impl FnOnce() -> CheckResult<T>) -> CheckResult<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text
            .or(panic.downcast_ref::<&str>().copied())
            .unwrap_or("without a message");
        broken('B', format!("a panic: {text}"))
    })
}
