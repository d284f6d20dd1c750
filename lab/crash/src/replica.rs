//! D0, with a replica: the power is cut, calls of the disk fail, and a replica refuses a record, loses a request or an answer, or dies. At each moment,
//! the acknowledged saves must be a prefix of the replica, and the replica a prefix of the program's files, which may have one save more. A rebuild
//! must make the acknowledged state from the replica.
//!
//! A program never opens the files of an earlier writer: each writer claims the replica, and rebuilds the store in a directory of its own.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use checkpoint_store::{Record, Seq, reader};

use crate::choice::{Decisions, Outcomes};
use crate::computer::{Call, CallFault, Computer, DiskSnapshot, Plan, Progress};
use crate::disk::Disk;
use crate::outcome::{Level, Outcome};
use crate::reference::{CheckResult, Event, Head, State, broken};
use crate::replica::program::{Fault, Program, directory, rebuilt};
use crate::replica::server::{ReplicaFault, locked, newest};
use crate::rng::{Rng, mix};
use crate::session::catching_panics;
use crate::sim_disk::Shared;
use crate::step::Workload;
use crate::{parallel, workloads};

pub(crate) mod program;
mod server;

/// One history: a workload, its fault, and a power cut after one of its snapshots.
#[derive(Debug, Clone)]
pub struct Case {
    workload: Workload,
    fault: Fault,
    cut: Option<(usize, Outcomes)>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.workload)?;
        match self.fault {
            Fault::None => f.write_str("-")?,
            Fault::Disk(plan) => write!(f, "disk{plan}")?,
            Fault::Replica(at, fault) => {
                let known = ReplicaFault::ALL.iter().find(|(_, it)| *it == fault);
                write!(f, "{at}{}", known.map_or('-', |(letter, _)| *letter))?;
            }
        }
        let cut = self.cut.iter();
        cut.into_iter()
            .try_for_each(|(shot, choice)| write!(f, "@{shot}:{choice}"))
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a case of a replica");
        let mut parts = text.split('@');
        let workload = parts.next().ok_or_else(bad)?.parse()?;
        let fault = parts.next().ok_or_else(bad)?;
        let fault = match fault.strip_prefix("disk") {
            Some(plan) => Fault::Disk(plan.parse()?),
            None if fault == "-" => Fault::None,
            None => {
                let known = ReplicaFault::ALL.iter();
                let mut known =
                    known.filter_map(|(letter, it)| Some((fault.strip_suffix(*letter)?, *it)));
                let (at, fault) = known.next().ok_or_else(bad)?;
                Fault::Replica(at.parse().map_err(|_| bad())?, fault)
            }
        };
        let cut = |part: &str| {
            let (shot, choice) = part.split_once(':')?;
            Some((shot.parse().ok()?, Outcomes::parse(choice)?))
        };
        let cut = parts.next().map(|part| cut(part).ok_or_else(bad));
        Ok(Self {
            workload,
            fault,
            cut: cut.transpose()?,
        })
    }
}

fn loaded(shared: &Shared, name: &str) -> CheckResult<(Seq, State)> {
    match reader::load_on::<Head, Event>(shared.directory(name), Path::new(name)) {
        Ok(loaded) => Ok((loaded.seq, State::loaded(&loaded)?)),
        Err(err) => broken('L', format!("{name}: {err}")),
    }
}

/// A run of a program: the snapshots of its disk, and what the replica has at the end.
struct Run {
    shots: Vec<DiskSnapshot>,
    calls: usize,
    disk_calls: Vec<Call>,
    records: Vec<Record>,
    attempts: Vec<State>,
    stored: Vec<usize>,
}

fn record(workload: &Workload, fault: Fault) -> CheckResult<Run> {
    let mut program = Program::new(workload, fault);
    program.run(&workload.steps)?;
    let mut pc = program.shared.pc();
    let server = locked(&program.server);
    Ok(Run {
        shots: pc.shots(),
        calls: server.calls,
        disk_calls: pc.calls().to_vec(),
        records: server.records.clone(),
        attempts: program.attempts.clone(),
        stored: program.stored.clone(),
    })
}

/// Returns the records of a workload.
pub(crate) fn records(workload: &Workload) -> CheckResult<Vec<Record>> {
    record(workload, Fault::None).map(|run| run.records)
}

impl Run {
    /// Returns the number and the attempt of the newest one of the first `count` records.
    fn newest(&self, count: usize) -> (Seq, usize) {
        let at = count.checked_sub(1).map_or(0, |last| self.stored[last]);
        (newest(&self.records[..count]), at)
    }

    /// Checks the order of the acknowledgements, the replica and the files after a power cut.
    fn check_order(&self, disk: Disk, progress: Progress) -> CheckResult {
        let (seq, at) = self.newest(progress.replicated);
        let stored = &self.stored[..progress.replicated];
        let ahead = stored.iter().filter(|it| **it > progress.acked).count();
        if at < progress.acked || ahead > 1 {
            return broken(
                'D',
                format!("the replica ends at save {seq}, {ahead} after the acknowledged ones"),
            );
        }
        if progress.claims == 0 || progress.is_void {
            return Ok(());
        }
        let shared = Shared::new(Computer::new(disk, 1));
        let (own, state) = loaded(&shared, &directory(progress.claims))?;
        let is_right = match own.cmp(&seq) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => state == self.attempts[at],
            std::cmp::Ordering::Greater => self.attempts[at + 1..=progress.tried].contains(&state),
        };
        match is_right {
            true => Ok(()),
            false => broken(
                'D',
                format!(
                    "the replica ends at save {seq}, but the files end at save {own}: {state:?}"
                ),
            ),
        }
    }

    /// Checks the store that a rebuild makes from the first `count` records, also after a power cut in the middle.
    fn check_rebuild(&self, count: usize, cuts: usize) -> CheckResult {
        const NAME: &str = "rebuilt";
        let records = &self.records[..count];
        let (seq, at) = self.newest(count);
        let is_whole = |shared: &Shared| match loaded(shared, NAME)? {
            found if found == (seq, self.attempts[at].clone()) => Ok(()),
            found => broken('A', format!("a rebuild up to save {seq} makes {found:?}")),
        };
        let shared = Shared::new(Computer::new(Disk::new(512), 1));
        shared.pc().watch();
        if let Err(err) = rebuilt(&shared, NAME, records) {
            return broken('L', format!("a rebuild up to save {seq} fails: {err}"));
        }
        is_whole(&shared)?;
        for missing in 0..count.saturating_sub(1) {
            let rest = [&records[..missing], &records[missing + 1..]].concat();
            let other = Shared::new(Computer::new(Disk::new(512), 1));
            if rebuilt(&other, NAME, &rest).is_ok() {
                return broken(
                    'A',
                    format!("a rebuild accepts the lack of record {missing}"),
                );
            }
        }
        let shots = shared.pc().shots();
        for (index, shot) in shots.iter().enumerate() {
            let freedom = Decisions::of(&shot.disk);
            for choice in freedom.choices(cuts, &mut Rng::new(index as u64)) {
                let disk = freedom.apply(&shot.disk, &choice);
                let again = Shared::new(Computer::new(disk, 2));
                drop(again.make_directory(NAME));
                let (found, state) = loaded(&again, NAME)?;
                let known = records.iter().filter(|it| it.seq() <= found).count();
                if (found, &state) != (newest(&records[..known]), self.state(known)) {
                    return broken('A', format!("half a rebuild is {state:?} at save {found}"));
                }
                if let Err(err) = rebuilt(&again, NAME, &records[known..]) {
                    return broken('L', format!("a second rebuild fails: {err}"));
                }
                is_whole(&again)?;
            }
        }
        Ok(())
    }

    fn state(&self, count: usize) -> &State {
        &self.attempts[self.newest(count).1]
    }
}

/// The number of tries.
#[derive(Debug, Clone, Copy)]
struct Budget {
    /// Outcomes of each power cut.
    cuts: usize,
    /// One snapshot in this many is examined in a run with a fault.
    every: usize,
    /// One disk call in this many fails.
    disk: usize,
}

/// Runs the layer.
pub fn run(level: Level) -> Outcome {
    let budget = Budget {
        cuts: level.of([1, 2, 8, 40]),
        every: level.of([7, 5, 1, 1]),
        disk: level.of([29, 13, 1, 1]),
    };
    let one = |workload: &Workload| {
        let mut outcome = Outcome::default();
        let found = search(workload, budget, &mut outcome);
        (outcome, found.err())
    };
    let workloads = workloads::replica();
    parallel::search(
        &workloads,
        one,
        |found| found,
        |found: Finding| {
            let (case, broken) = (found.case, found.broken);
            let (invariant, what) = (broken.invariant, broken.what);
            format!("{invariant}: {what}\n  again: cargo xtask crash-test --case replica={case}")
        },
    )
}

/// A broken promise, and the history that shows it.
type Finding = crate::outcome::Finding<Case>;

fn search(workload: &Workload, budget: Budget, outcome: &mut Outcome) -> Result<(), Finding> {
    let run = examine(workload, Fault::None, 1, budget.cuts, outcome)?;
    for count in 0..=run.records.len() {
        outcome.tried += 1;
        let kept = catching_panics(|| run.check_rebuild(count, budget.cuts));
        kept.map_err(|broken| Finding::new(Case::whole(workload, Fault::None), broken))?;
    }
    let replica =
        (0..run.calls).flat_map(|at| ReplicaFault::ALL.map(|(_, fault)| Fault::Replica(at, fault)));
    let calls = run.disk_calls.iter().enumerate();
    let calls = calls.skip(workload.seed as usize % budget.disk);
    let disk = calls.step_by(budget.disk).flat_map(|(at, call)| {
        let hits = CallFault::ALL.into_iter().filter(|hit| hit.applies(*call));
        hits.map(move |hit| Fault::Disk(Plan { at: at as u64, hit }))
    });
    for fault in replica.chain(disk) {
        outcome.faults += 1;
        let run = examine(workload, fault, budget.every, 1, outcome)?;
        let kept = catching_panics(|| run.check_rebuild(run.records.len(), 0));
        kept.map_err(|broken| Finding::new(Case::whole(workload, fault), broken))?;
    }
    Ok(())
}

impl Case {
    fn whole(workload: &Workload, fault: Fault) -> Self {
        Self {
            workload: workload.clone(),
            fault,
            cut: None,
        }
    }
}

/// Runs a workload with a fault, and cuts the power after one call in `every`, and at the end.
fn examine(
    workload: &Workload,
    fault: Fault,
    every: usize,
    cuts: usize,
    outcome: &mut Outcome,
) -> Result<Run, Finding> {
    let case = || Case::whole(workload, fault);
    let run = catching_panics(|| record(workload, fault))
        .map_err(|broken| Finding::new(case(), broken))?;
    outcome.tried += 1;
    outcome.acked += run.stored.len() as u64;
    let last = run.shots.len().saturating_sub(1);
    for (index, shot) in run.shots.iter().enumerate() {
        if index % every != 0 && index != last {
            continue;
        }
        let freedom = Decisions::of(&shot.disk);
        let mut rng = Rng::new(mix(workload.seed) ^ index as u64);
        for choice in freedom.choices(cuts, &mut rng) {
            outcome.tried += 1;
            let disk = freedom.apply(&shot.disk, &choice);
            catching_panics(|| run.check_order(disk, shot.progress)).map_err(|broken| {
                let cut = Some((index, choice));
                Finding::new(Case { cut, ..case() }, broken)
            })?;
        }
    }
    Ok(run)
}

/// Runs one case again.
///
/// # Errors
/// If it breaks a promise.
pub fn replay(case: &Case) -> CheckResult {
    catching_panics(|| {
        let run = record(&case.workload, case.fault)?;
        let Some((shot, choice)) = &case.cut else {
            return (0..=run.records.len()).try_for_each(|count| run.check_rebuild(count, 1));
        };
        match run.shots.get(*shot) {
            None => broken('-', "the run is shorter than the case"),
            Some(shot) => {
                let disk = Decisions::of(&shot.disk).apply(&shot.disk, choice);
                run.check_order(disk, shot.progress)
            }
        }
    })
}
