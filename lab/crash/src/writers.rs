//! D6: several writers at once, and one that is suspended while its lock is taken away.
//!
//! Each save of a program adds one event with a number of its own. So one load at the end shows the result: every acknowledged save must be there,
//! and the events of one program must be consecutive, because the saves form one sequence.

use std::path::Path;
use std::time::Duration;

use checkpoint_store::reader;
use nix::sys::signal::Signal;

use crate::child;
use crate::ledger::{Failure, Ledger, Note};
use crate::outcome::{Level, Outcome};
use crate::parallel;
use crate::program::{self, Running};
use crate::reference::{CheckResult, Event, Head, State, broken};
use crate::rng::Rng;
use crate::saver::SaverKind;
use crate::storm::{APART, STEPS};

/// Number of programs that open one store at the same time; two such races may run in parallel.
const RACERS: u32 = 4;
/// Number of saves of a program that reaches its end.
const SOME: u32 = 5;

/// The order in which two writers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriterOrder {
    /// All start at once.
    Race,
    /// The second ends before the first continues.
    Second,
    /// The first continues while the second opens the store.
    Both,
    /// The second is suspended during its opening, the first continues, then the second continues.
    First,
}

/// Runs writers that compete for a store.
pub fn run(level: Level) -> Outcome {
    if let Err(why) = program::own() {
        return Outcome::skip(format!("two writers: {why}"));
    }
    let cases: Vec<u64> = (0..level.of([12, 50, 500, 10_000])).collect();
    parallel::map(&cases, |&case| one(case), |_| false)
        .into_iter()
        .sum()
}

fn one(case: u64) -> Outcome {
    let place = match tempfile::tempdir() {
        Ok(place) => place,
        Err(err) => return Outcome::skip(format!("two writers: no temporary directory: {err}")),
    };
    const ORDERS: [WriterOrder; 4] = [
        WriterOrder::Race,
        WriterOrder::Second,
        WriterOrder::Both,
        WriterOrder::First,
    ];
    let order = ORDERS[case as usize % ORDERS.len()];
    let (dir, mut rng) = (place.path().join("store"), Rng::new(case));
    let mut outcome = Outcome::default();
    let kept = match order {
        WriterOrder::Race => race(&dir, &mut rng),
        order => zombie(&dir, order, &mut rng),
    };
    let kept = kept.and_then(|acked| {
        outcome.acked = acked.len() as u64;
        line(&dir, &acked)
    });
    outcome.judge(format_args!("case {case}, {order:?}"), kept);
    outcome.faults = u64::from(order != WriterOrder::Race);
    outcome
}

fn start(dir: &Path, index: u32, steps: u32) -> Running {
    child::start_saver(dir, (index + 1) * APART, steps, SaverKind::Plain)
        .expect("the program was found")
}

/// Records the notes of one of several programs. The state that it loaded when it opened the store came from the others, so it is not checked here.
fn record_notes(running: &Running, ledger: &mut Ledger, count: usize) -> CheckResult<bool> {
    for _ in 0..count {
        match running.note()? {
            Some(Note::Open(_)) => {}
            Some(note) => ledger.note(note)?,
            None => return Ok(false),
        }
    }
    Ok(true)
}

fn race(dir: &Path, rng: &mut Rng) -> CheckResult<Vec<u32>> {
    let mut running: Vec<Running> = (0..RACERS).map(|index| start(dir, index, SOME)).collect();
    // In half of the cases, the lock's file is removed during the race.
    if rng.below(2) == 0 {
        program::pause(Duration::from_micros(rng.below(4_000) as u64));
        drop(std::fs::remove_file(dir.join("LOCK")));
    }
    let mut acked = Vec::new();
    for one in &mut running {
        let mut ledger = Ledger::default();
        while record_notes(one, &mut ledger, 1)? {}
        match &ledger.failed {
            Some((Failure::Locked | Failure::Fenced, _)) | None => {}
            Some((_, text)) => return broken('L', format!("a racer failed: {text}")),
        }
        acked.append(&mut ledger.numbers);
    }
    Ok(acked)
}

fn zombie(dir: &Path, order: WriterOrder, rng: &mut Rng) -> CheckResult<Vec<u32>> {
    let (mut early, mut late) = (Ledger::default(), Ledger::default());
    let mut first = start(dir, 0, STEPS);
    record_notes(&first, &mut early, 3 + rng.below(20))?;
    program::pause(Duration::from_micros(rng.below(2_000) as u64));
    first.signal(Signal::SIGSTOP);
    drop(std::fs::remove_file(dir.join("LOCK")));
    let mut second = start(dir, 1, SOME);
    match order {
        WriterOrder::First => {
            program::pause(Duration::from_micros(rng.below(4_000) as u64));
            second.signal(Signal::SIGSTOP);
            first.signal(Signal::SIGCONT);
            record_notes(&first, &mut early, rng.below(12))?;
            second.signal(Signal::SIGCONT);
        }
        WriterOrder::Both => {
            program::pause(Duration::from_micros(rng.below(4_000) as u64));
            first.signal(Signal::SIGCONT);
        }
        WriterOrder::Second | WriterOrder::Race => {}
    }
    while record_notes(&second, &mut late, 1)? {}
    first.signal(Signal::SIGCONT);
    while record_notes(&first, &mut early, 1)? {}
    for running in [&mut first, &mut second] {
        running.wait(&mut Ledger::default())?;
    }
    if !late.is_at_end {
        return broken('F', format!("the newer writer failed: {:?}", late.failed));
    }
    match &early.failed {
        Some((Failure::Fenced, _)) => {}
        other => {
            return broken('F', format!("the older writer was not fenced: {other:?}"));
        }
    }
    let mut acked = early.numbers;
    acked.append(&mut late.numbers);
    Ok(acked)
}

/// Fails unless the events are one sequence that contains all acknowledged events.
fn line(dir: &Path, acked: &[u32]) -> CheckResult {
    let loaded = match reader::load::<Head, Event>(dir) {
        Ok(loaded) => loaded,
        Err(err) => return broken('L', err.to_string()),
    };
    if !loaded.report.is_undamaged() {
        return broken('L', format!("damage is reported: {}", loaded.report));
    }
    let events = State::loaded(&loaded)?.events;
    if let Some(lost) = acked
        .iter()
        .find(|&&number| !events.contains(&(number + 1)))
    {
        return broken('D', format!("save {lost} was acknowledged, but is missing"));
    }
    let mut owners: Vec<u32> = events.iter().map(|event| event / APART).collect();
    owners.dedup();
    let mut unique = owners.clone();
    unique.sort_unstable();
    unique.dedup();
    match unique.len() == owners.len() && events.is_sorted_by_key(|event| position(event, &owners))
    {
        true => Ok(()),
        false => broken(
            'F',
            format!("the saves split into two branches: {events:?}"),
        ),
    }
}

/// Returns the position of the event's writer in the order of the writers, and the event's number.
fn position(event: &u32, owners: &[u32]) -> (Option<usize>, u32) {
    (
        owners.iter().position(|owner| *owner == event / APART),
        *event,
    )
}
