//! A program whose writer has a replica, on a modelled computer. It knows the state of each record.

use std::path::Path;
use std::sync::{Arc, Mutex};

use checkpoint_store::{Error, Loaded, Options, PhaseMeta, Record, Seq, Writer, rebuild_on};

use crate::computer::{Computer, Plan, Progress};
use crate::disk::Disk;
use crate::reference::{CheckResult, Event, Head, State, broken, text};
use crate::replica::server::{ReplicaFault, Server, SimReplica, locked, newest};
use crate::session::{lose, strict};
use crate::sim_disk::Shared;
use crate::step::{Step, Workload};

/// The fault of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// The number of the call of the replica, and its fault.
    Replica(usize, ReplicaFault),
    Disk(Plan),
}

type Log = Writer<Head, Event>;

/// A program whose writer has a replica.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) shared: Shared,
    pub(super) server: Arc<Mutex<Server>>,
    writer: Option<Log>,
    progress: Progress,
    /// All states that were passed to a save; the first one is that of an empty store.
    pub(super) attempts: Vec<State>,
    /// The index in `attempts` of the state of each record.
    pub(super) stored: Vec<usize>,
    marks: Vec<(Seq, State)>,
    number: u32,
}

impl Program {
    pub(super) fn new(workload: &Workload, fault: Fault) -> Self {
        let shared = Shared::new(Computer::new(Disk::new(workload.sector), 0));
        let server = Arc::new(Mutex::new(Server::default()));
        shared.pc().ahead = workload.ahead;
        shared.pc().watch();
        match fault {
            Fault::None => {}
            Fault::Replica(at, fault) => locked(&server).fault = Some((at, fault)),
            Fault::Disk(plan) => shared.pc().hit(Some(plan)),
        }
        Self {
            shared,
            server,
            writer: None,
            progress: Progress::default(),
            attempts: vec![State::default()],
            stored: Vec::new(),
            marks: Vec::new(),
            number: 1_000,
        }
    }

    pub(super) fn run(&mut self, steps: &[Step]) -> CheckResult {
        for &step in steps {
            if self.shared.pc().is_off() {
                break;
            }
            if self.writer.is_none() {
                self.claim()?;
            }
            self.step(step)?;
        }
        match self.shared.pc().endless {
            true => broken('B', "the program made more calls than any run makes"),
            false => Ok(()),
        }
    }

    fn reached(&mut self) {
        self.progress.replicated = locked(&self.server).records.len();
        self.shared.pc().reached(self.progress);
    }

    /// Claims the replica, and continues from its records in a new directory.
    fn claim(&mut self) -> CheckResult {
        let old = self.writer.take();
        let (records, own) = {
            let mut server = locked(&self.server);
            server.owner += 1;
            (server.records.clone(), server.owner)
        };
        match self.claimed(records, own) {
            Ok(loaded) => {
                let state = State::loaded(&loaded)?;
                let newest = self.stored.last().copied().unwrap_or(0);
                if newest < self.progress.acked || state != self.attempts[newest] {
                    return broken('A', format!("a rebuilt store has the state {state:?}"));
                }
                // The program continues from this state, also if no writer acknowledged it.
                self.progress.acked = newest;
                self.marks = vec![(loaded.seq, state)];
                self.progress.claims += 1;
                self.progress.is_void = false;
                self.reached();
            }
            Err(err) => self.failure(&err)?,
        }
        match old.map(|old| self.may_save_again(old)) {
            Some(true) => broken(
                'F',
                "a writer saves although another one claimed its replica",
            ),
            _ => Ok(()),
        }
    }

    fn claimed(&mut self, records: Vec<Record>, own: u64) -> Result<Loaded<Head, Event>, Error> {
        let name = directory(self.progress.claims + 1);
        // An earlier claim may have failed in the middle.
        lose(&self.shared, &name, true);
        let known = records.len();
        rebuilt(&self.shared, &name, &records)?;
        let disk = self.shared.make_directory(&name);
        let (mut writer, loaded) = Log::open_on(disk, Path::new(&name), Options::default())?;
        let blobs = locked(&self.server).blobs.clone();
        for (name, bytes) in blobs {
            writer.put_blob(&name, &bytes)?;
        }
        writer.set_replica(Box::new(SimReplica {
            server: self.server.clone(),
            shared: self.shared.clone(),
            own,
            known,
            is_dead: false,
        }))?;
        self.writer = Some(writer);
        Ok(loaded)
    }

    /// Fails if an error has no cause.
    fn failure(&self, err: &Error) -> CheckResult {
        let has_fault = self.shared.pc().harmed || locked(&self.server).fault.is_some();
        match has_fault {
            true => Ok(()),
            false => broken('L', format!("a call failed without a fault: {err}")),
        }
    }

    /// Returns whether a writer that must not save acknowledges anything. Its files may then have one save more.
    fn may_save_again(&mut self, mut writer: Log) -> bool {
        let head = (1, text(1, 9));
        let mut state = self.attempts[self.stored.last().copied().unwrap_or(0)].clone();
        state.head = Some(head.0);
        self.begin(&state);
        let seq = writer.seq();
        writer.append(&head, &[]).is_ok()
            || writer.truncate_to(seq).is_ok()
            || writer.save_phase("p", &head, PhaseMeta::default()).is_ok()
            || writer.put_blob("late", b"late").is_ok()
    }

    fn step(&mut self, step: Step) -> CheckResult {
        match step {
            Step::Reopen => return self.claim(),
            Step::Full(room) => {
                let mut pc = self.shared.pc();
                (pc.room, pc.harmed) = (Some(room.into()), true);
                return Ok(());
            }
            Step::Room => {
                self.shared.pc().room = None;
                return Ok(());
            }
            Step::LoseJournal | Step::LoseAll => {
                self.progress.is_void = true;
                self.reached();
                lose(
                    &self.shared,
                    &directory(self.progress.claims),
                    step == Step::LoseAll,
                );
                return Ok(());
            }
            _ => {}
        }
        let Some(mut writer) = self.writer.take() else {
            return Ok(());
        };
        self.number += 100;
        let done = self.write(&mut writer, step);
        let grown = locked(&self.server).records.len() - self.stored.len();
        self.stored.extend(vec![self.progress.tried; grown]);
        let Err(err) = done else {
            let server = locked(&self.server);
            let has_blob = server.blobs.contains_key(&blob_name(self.number));
            if newest(&server.records) != writer.seq() || step == Step::Blob && !has_blob {
                return broken(
                    'D',
                    "a call was acknowledged, but the replica lacks its data",
                );
            }
            drop(server);
            self.writer = Some(writer);
            return Ok(());
        };
        self.failure(&err)?;
        if err.is_full() {
            self.writer = Some(writer);
        } else if (err.is_fenced() || err.is_unreplicated()) && self.may_save_again(writer) {
            return broken('F', format!("a writer saves again after the error: {err}"));
        }
        Ok(())
    }

    fn begin(&mut self, state: &State) {
        self.attempts.push(state.clone());
        self.progress.tried = self.attempts.len() - 1;
        self.reached();
    }

    fn write(&mut self, writer: &mut Log, step: Step) -> Result<(), Error> {
        let head = (self.number, text(self.number, 8));
        let mut state = self
            .marks
            .last()
            .map_or_else(State::default, |it| it.1.clone());
        match step {
            Step::Append { events, letters } => {
                let added: Vec<Event> = (1..=u32::from(events))
                    .map(|n| (head.0 + n, text(head.0 + n, letters.into())))
                    .collect();
                state.head = Some(head.0);
                state.events.extend(added.iter().map(|(number, _)| number));
                self.begin(&state);
                self.marks.push((writer.append(&head, &added)?, state));
            }
            Step::Head(letters) => {
                let head = (self.number, text(self.number, letters.into()));
                state.head = Some(head.0);
                self.begin(&state);
                self.marks.push((writer.append(&head, &[])?, state));
            }
            Step::Undo(back) => {
                let index = self.marks.len().saturating_sub(1 + usize::from(back));
                let (seq, state) = self.marks[index].clone();
                self.begin(&state);
                let seq = writer.truncate_to(seq)?;
                self.marks.truncate(index + 1);
                self.marks.push((seq, state));
            }
            Step::Phase => {
                state.head = Some(head.0);
                self.begin(&state);
                writer.save_phase("p", &head, PhaseMeta::default())?;
                self.marks = vec![(writer.seq(), state)];
            }
            Step::Blob => {
                return writer.put_blob(&blob_name(head.0), head.1.as_bytes());
            }
            Step::CleanOpen => return writer.clean(strict()).map(drop),
            _ => return Ok(()),
        }
        self.progress.acked = self.progress.tried;
        self.progress.is_void = false;
        self.reached();
        Ok(())
    }
}

/// Returns the name of the directory in which a program has its store after this number of claims.
pub(super) fn directory(claim: usize) -> String {
    format!("claim{claim}")
}

fn blob_name(number: u32) -> String {
    format!("b{number}")
}

/// Rebuilds a store.
pub(crate) fn rebuilt(shared: &Shared, name: &str, records: &[Record]) -> Result<Seq, Error> {
    let disk = shared.make_directory(name);
    let records = records.iter().cloned().map(Ok::<_, Error>);
    rebuild_on(disk, Path::new(name), &Options::default(), records)
}
