//! A program that uses a store on a modelled computer, with the reference beside it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, SystemTime};

use checkpoint_store::retention::{Policy, clean_on};
use checkpoint_store::verify::{Next, verify_on};
use checkpoint_store::{Error, Meta, Options, Seq, Store, Writer, fork_on, reader};

use crate::computer::Computer;
use crate::disk::{Disk, ROOT};
use crate::reference::{Broken, Event, Head, Kept, Reference, State, broken, text};
use crate::seam::Shared;
use crate::step::{Step, Workload};

pub(crate) const DIR: &str = "store";
/// Letters of a blob.
const BLOB: usize = 700;
/// How often a program opens its store again after a call that failed.
const TRIES: usize = 3;

/// The store in use.
#[derive(Debug)]
enum Open {
    Writer(Box<Writer<Head, Event>>),
    Store(Box<Store>),
}

/// A program, its store, and what the store ought to hold.
#[derive(Debug)]
pub struct Session {
    /// The computer that it runs on.
    pub shared: Shared,
    /// What the store ought to hold.
    pub reference: Reference,
    open: Option<Open>,
    /// What the writer's next save adds to.
    pub(crate) present: State,
    is_store: bool,
    /// The saves that can be returned to, oldest first; the last is the present.
    pub(crate) marks: Vec<(Seq, State)>,
    /// All states that ever were handed to a save.
    pub(crate) ever: Vec<State>,
    /// How many saves were acknowledged.
    pub acknowledged: u64,
    pub(crate) number: u32,
    /// How many calls of the store failed.
    pub failed: usize,
    /// Whether the program goes on with a writer whose call failed, as long as that is offered.
    pub is_stubborn: bool,
}

impl Session {
    /// Starts a computer with an empty disk.
    pub fn new(workload: &Workload) -> Self {
        // The same random numbers for all seeds: a state that differs in its salts and ids only
        // is the same state, and counted once.
        let shared = Shared::new(Computer::new(Disk::new(workload.sector), 0));
        shared.pc().ahead = workload.ahead;
        drop(shared.make_directory(DIR));
        Self::with(shared, Reference::default(), workload)
    }

    /// Starts a computer after a power cut, with the disk that it left.
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
        // Above every number of a save that may turn up.
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
            failed: 0,
            is_stubborn: workload.seed % 2 == 1,
        }
    }

    /// Opens the store and looks at what is loaded.
    pub fn open(&mut self) -> Kept {
        self.open_again()?;
        let is_off = self.shared.pc().is_off();
        if is_off { Ok(()) } else { self.forks() }
    }

    fn open_again(&mut self) -> Kept {
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
                // Nobody can load what somebody removed; it is said, and that is the end.
                Err(Err(err)) if err.is_corrupt() && self.reference.is_void() => return Ok(()),
                Err(Err(err)) => {
                    self.failure(&err)?;
                    last = Some(err);
                }
            }
        }
        match last {
            Some(err) if !err.is_full() && !self.shared.pc().is_off() => {
                broken('L', format!("the store cannot be opened any more: {err}"))
            }
            _ => Ok(()),
        }
    }

    fn opened(&mut self) -> Result<(), Result<Broken, Error>> {
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
            // What was undone or sealed meanwhile cannot be told apart here, so only the
            // present is sure to be there.
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

    /// Makes the text of the lock durable once the store is open. It is for people only, and
    /// would be a thing to lose or keep in every power cut to come.
    fn settle_lock(&self) {
        let mut pc = self.shared.pc();
        let lock = pc
            .disk
            .lookup(ROOT, DIR)
            .and_then(|dir| pc.disk.lookup(dir, "LOCK"));
        if let Some(lock) = lock {
            pc.disk.sync_file(lock).expect("it is a file");
        }
    }

    /// Looks whether all acknowledged blobs are there.
    fn blobs(&self) -> Result<(), Result<Broken, Error>> {
        for &number in &self.reference.blobs {
            let (disk, name) = (self.shared.directory(DIR), format!("b{number}"));
            match reader::blob_on(disk, Path::new(DIR), &name) {
                Ok(bytes) if bytes == text(number, BLOB).as_bytes() => {}
                Ok(_) => return broken('A', format!("blob {name} has other bytes")).map_err(Ok),
                Err(err) if err.is_not_found() => {
                    return broken('D', format!("blob {name} was acknowledged and is gone"))
                        .map_err(Ok);
                }
                Err(err) => return Err(Err(err)),
            }
        }
        Ok(())
    }

    /// Opens the store if it is not, and hands its writer and what it ought to hold over.
    pub(crate) fn take_writer(&mut self) -> Kept<Option<(Writer<Head, Event>, Reference)>> {
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

    /// Tells whether the store is not open.
    pub(crate) fn is_closed(&self) -> bool {
        self.open.is_none()
    }

    fn reached(&self) {
        let progress = self.reference.progress();
        self.shared.pc().reached(progress);
    }

    fn bounded(&self) -> Kept {
        match self.shared.pc().endless {
            true => broken('B', "more calls than any run makes"),
            false => Ok(()),
        }
    }

    fn failure(&mut self, err: &Error) -> Kept {
        self.failed += 1;
        let acked = *self.reference.acked() != State::default();
        let harmed = self.shared.pc().harmed;
        match (harmed, acked && err.is_corrupt()) {
            (false, _) => broken('L', format!("a call fails though nothing is broken: {err}")),
            (_, true) => broken('L', format!("saves were acknowledged, and now: {err}")),
            _ => Ok(()),
        }
    }

    /// Does all steps of a workload; ends early when the power goes.
    pub fn run(&mut self, steps: &[Step]) -> Kept {
        for &step in steps {
            self.step(step)?;
            self.bounded()?;
            if self.shared.pc().is_off() {
                break;
            }
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Kept {
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
                writer.save_phase("p", &head, Meta::default())?;
                self.marks = vec![(writer.seq(), state.clone())];
            }
            Step::Blob => {
                let (number, bytes) = self.next(BLOB);
                writer.put_blob(&format!("b{number}"), bytes.as_bytes())?;
                self.reference.blobs.push(number);
                self.reached();
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

    /// Loads without a lock and looks at what is there. What is not yet durable may be seen.
    pub fn load(&mut self) -> Kept {
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

    /// Loads every save that can be returned to.
    fn look_back(&mut self) -> Kept {
        for (seq, state) in self.marks.clone() {
            if seq == Seq::ZERO {
                continue;
            }
            let disk = self.shared.directory(DIR);
            let options = Options::default();
            match reader::load_at_on::<Head, Event>(disk, Path::new(DIR), seq, &options) {
                Ok(found) if State::loaded(&found)? == state => {}
                Ok(_) => return broken('A', format!("save {seq} is loaded as another state")),
                Err(err) => self.failure(&err)?,
            }
        }
        Ok(())
    }

    fn verify(&mut self) -> Kept {
        match verify_on(self.shared.directory(DIR), Path::new(DIR)) {
            Ok(found) if self.shared.pc().harmed => drop(found),
            Ok(found) if matches!(found.next, Next::Start | Next::Resume { .. }) => {}
            // It cannot know whether the writer is in the middle of a save.
            Ok(found) if found.next == Next::Wait && self.open.is_some() => {}
            Ok(found) => {
                return broken(
                    'L',
                    format!("verify sees damage that is not there: {found}"),
                );
            }
            Err(err) => self.failure(&err)?,
        }
        Ok(())
    }

    /// Removes what retention may remove, and looks whether the present is still there.
    fn clean(&mut self) -> Kept {
        self.close();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
        let policy = Policy {
            keep: 1,
            max_age: Duration::ZERO,
            now,
            ..Policy::default()
        };
        if let Err(err) = clean_on(self.shared.directory(DIR), Path::new(DIR), policy) {
            self.failure(&err)?;
        }
        self.open()
    }

    /// Makes a store of its own from the present state.
    fn fork(&mut self) -> Kept {
        let newest = self.marks.last().filter(|(seq, _)| *seq != Seq::ZERO);
        let Some((seq, state)) = newest.cloned() else {
            return Ok(());
        };
        let name = fork_name(self.reference.forks.len());
        let from = (self.shared.directory(DIR), Path::new(DIR));
        let to = (self.shared.make_directory(&name), Path::new(&name));
        match fork_on(from, seq, to, &Options::default()) {
            Ok(_) => {
                self.reference.forks.push(state);
                self.reached();
            }
            Err(err) => self.failure(&err)?,
        }
        self.forks()
    }

    /// Looks whether all acknowledged forks are there.
    fn forks(&mut self) -> Kept {
        for (index, state) in self.reference.forks.clone().iter().enumerate() {
            let name = fork_name(index);
            match reader::load_on::<Head, Event>(self.shared.directory(&name), Path::new(&name)) {
                Ok(found) if State::loaded(&found)? == *state => {}
                Ok(found) => {
                    let found = State::loaded(&found)?;
                    return broken('D', format!("{name} is {state:?}, loaded is {found:?}"));
                }
                Err(err) => self.failure(&err)?,
            }
        }
        Ok(())
    }

    /// Removes files behind the writer's back, as a careless command does.
    fn lose(&mut self, all: bool) {
        self.shared.pc().harmed = true;
        self.reference.void();
        self.reached();
        let mut pc = self.shared.pc();
        let Some(dir) = pc.disk.lookup(ROOT, DIR) else {
            return;
        };
        let names = pc
            .disk
            .names(dir)
            .map(|names| names.map(str::to_owned).collect::<Vec<_>>());
        for name in names.unwrap_or_default() {
            if (all || name.starts_with("progress-")) && pc.disk.lookup(dir, &name).is_some() {
                remove(&mut pc.disk, dir, &name);
            }
        }
        if all {
            remove(&mut pc.disk, ROOT, DIR);
        }
    }
}

fn fork_name(index: usize) -> String {
    format!("fork{index}")
}

fn remove(disk: &mut Disk, dir: usize, name: &str) {
    if let Some(ino) = disk.lookup(dir, name).filter(|&ino| disk.is_dir(ino)) {
        let inside: Vec<String> = disk
            .names(ino)
            .map(|names| names.map(str::to_owned).collect())
            .unwrap_or_default();
        inside.iter().for_each(|name| remove(disk, ino, name));
    }
    disk.unlink(dir, name)
        .expect("it was just looked up, and emptied");
}

/// A panic breaks a promise as well.
pub(crate) fn calmly<T>(act: impl FnOnce() -> Kept<T>) -> Kept<T> {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text
            .or(panic.downcast_ref::<&str>().copied())
            .unwrap_or("without a text");
        broken('B', format!("a panic: {text}"))
    })
}
