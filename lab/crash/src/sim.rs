//! D0: cuts the power after every call of a workload, with many outcomes. The next program recovers and continues, and the power is cut again after
//! every call of that one.

use std::fmt;
use std::str::FromStr;

use crate::choice::{Decisions, Outcomes};
use crate::computer::DiskSnapshot;
use crate::disk::Disk;
use crate::fingerprints::FingerprintSet;
use crate::outcome::{Level, Outcome};
use crate::reference::{BrokenPromise, CheckResult, Reference};
use crate::rng::{Rng, mix};
use crate::session::{Session, catching_panics};
use crate::step::{Step, Workload};
use crate::{parallel, workloads};

/// A power cut: the snapshot of the run after which it happens, and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PowerCut {
    shot: usize,
    /// `None` if only the program was killed, and the machine continues.
    choice: Option<Outcomes>,
}

impl PowerCut {
    fn apply(&self, shot: &DiskSnapshot) -> Disk {
        match &self.choice {
            Some(choice) => Decisions::of(&shot.disk).apply(&shot.disk, choice),
            None => shot.disk.clone(),
        }
    }
}

/// One history: a workload with its power cuts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    workload: Workload,
    cuts: Vec<PowerCut>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.workload)?;
        self.cuts.iter().try_for_each(|cut| match &cut.choice {
            Some(choice) => write!(f, "@{}:{choice}", cut.shot),
            None => write!(f, "@{}:kill", cut.shot),
        })
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('@');
        let workload = parts.next().unwrap_or_default().parse()?;
        let cut = |part: &str| {
            let (shot, choice) = part.split_once(':')?;
            Some(PowerCut {
                shot: shot.parse().ok()?,
                choice: match choice {
                    "kill" => None,
                    choice => Some(Outcomes::parse(choice)?),
                },
            })
        };
        let cuts =
            parts.map(|part| cut(part).ok_or_else(|| format!("`{part}` is not a power cut")));
        Ok(Self {
            workload,
            cuts: cuts.collect::<Result<_, _>>()?,
        })
    }
}

/// The number of outcomes that are tried for each power cut; a second power cut has its own number.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// For each snapshot of the workload itself.
    pub first: usize,
    /// For each examined snapshot of a recovery.
    pub second: usize,
    /// One snapshot in this many of a recovery is examined; which one differs between the recoveries.
    pub every: usize,
}

/// A broken promise, and the history that shows it.
type Finding = crate::outcome::Finding<Case>;

/// Sets of the states so far, shared by the threads.
#[derive(Debug, Default)]
pub struct Counts {
    states: FingerprintSet,
    /// States, each combined with the states that may be loaded from it.
    checks: FingerprintSet,
}

/// Runs the layer.
pub fn run(level: Level) -> Outcome {
    let budget = Budget {
        first: level.of([24, 60, 160, 600]),
        second: level.of([1, 2, 3, 5]),
        every: level.of([12, 1, 1, 1]),
    };
    let seeds = level.of([1, 1, 38, 100]);
    explore(&workloads::sim(seeds), budget)
}

/// Examines all power cuts in all workloads.
pub fn explore(workloads: &[Workload], budget: Budget) -> Outcome {
    let counts = Counts::default();
    let one = |workload: &Workload| one(workload, budget, &counts);
    let mut outcome = parallel::search(workloads, one, |found| shrink(found, budget), explain);
    outcome.distinct = Some(counts.states.len());
    outcome
}

/// Examines all power cuts in one workload, up to the first broken promise.
pub fn one(workload: &Workload, budget: Budget, counts: &Counts) -> (Outcome, Option<Finding>) {
    let mut outcome = Outcome::default();
    let found = search(workload, budget, counts, &mut outcome);
    (outcome, found.err())
}

fn search(
    workload: &Workload,
    budget: Budget,
    counts: &Counts,
    outcome: &mut Outcome,
) -> Result<(), Finding> {
    let finding = |cuts: Vec<PowerCut>| {
        let workload = workload.clone();
        move |broken| Finding::new(Case { workload, cuts }, broken)
    };
    let (shots, reference) = catching_panics(|| record(workload)).map_err(finding(Vec::new()))?;
    outcome.acked += reference.progress().tried as u64;
    for (index, shot) in shots.iter().enumerate() {
        let reference = reference.at(shot.progress);
        for (choice, disk) in cuts(shot, budget.first, mix(workload.seed) ^ index as u64)
            .chain([(None, shot.disk.clone())])
        {
            outcome.tried += 1;
            // After a kill, the disk also has pending writes, which the fingerprint does not cover.
            if !is_new(&disk, &reference, counts) && choice.is_some() {
                continue;
            }
            let cut = PowerCut {
                shot: index,
                choice,
            };
            let (again, after) = catching_panics(|| recover(disk, reference.clone(), workload, 1))
                .map_err(finding(vec![cut.clone()]))?;
            outcome.acked += 1;
            let pictures = again.iter().enumerate();
            for (second, shot) in pictures.skip(index % budget.every).step_by(budget.every) {
                let reference = after.at(shot.progress);
                let seed = mix(workload.seed ^ (index as u64) << 20) ^ second as u64;
                for (choice, disk) in cuts(shot, budget.second, seed) {
                    outcome.tried += 1;
                    if is_new(&disk, &reference, counts) {
                        let cuts = vec![
                            cut.clone(),
                            PowerCut {
                                shot: second,
                                choice,
                            },
                        ];
                        catching_panics(|| recover(disk, reference.clone(), workload, 2))
                            .map_err(finding(cuts))?;
                        outcome.acked += 1;
                    }
                }
            }
        }
    }
    Ok(())
}

fn cuts(
    shot: &DiskSnapshot,
    limit: usize,
    seed: u64,
) -> impl Iterator<Item = (Option<Outcomes>, Disk)> {
    let freedom = Decisions::of(&shot.disk);
    let choices = freedom.choices(limit, &mut Rng::new(seed));
    choices.into_iter().map(move |choice| {
        let disk = freedom.apply(&shot.disk, &choice);
        (Some(choice), disk)
    })
}

fn is_new(disk: &Disk, reference: &Reference, counts: &Counts) -> bool {
    let state = disk.fingerprint();
    counts.states.add(state);
    counts.checks.add(mix(state) ^ reference.fingerprint())
}

/// Runs a workload without a power cut and keeps the snapshots.
fn record(workload: &Workload) -> CheckResult<(Vec<DiskSnapshot>, Reference)> {
    let mut session = Session::new(workload);
    session.shared.pc().watch();
    session.run(&workload.steps)?;
    session.open()?;
    let shots = session.shared.pc().shots();
    Ok((shots, session.reference))
}

/// Starts after a power cut, recovers and continues to save; after the first cut, keeps snapshots.
fn recover(
    disk: Disk,
    reference: Reference,
    workload: &Workload,
    depth: u64,
) -> CheckResult<(Vec<DiskSnapshot>, Reference)> {
    let mut session = Session::after(disk, reference, workload, depth);
    let steps: &[Step] = match (workload.is_store(), depth, workload.seed % 4) {
        (true, 1, _) => &[Step::Value(40), Step::Value(600)],
        (true, ..) => &[Step::Value(20)],
        (_, 1, 0) => &[APPEND, LONG, Step::Phase],
        (_, 1, 1) => &[Step::Phase, APPEND],
        (_, 1, 2) => &[LONG, Step::Undo(1), APPEND],
        (_, 1, _) => &[APPEND, Step::Reopen, LONG],
        _ => &[APPEND],
    };
    if depth == 1 {
        session.load()?;
        session.shared.pc().watch();
    }
    session.open()?;
    session.run(steps)?;
    if depth > 1 {
        session.load()?;
        return Ok((Vec::new(), session.reference));
    }
    session.open()?;
    let shots = session.shared.pc().shots();
    Ok((shots, session.reference))
}

const APPEND: Step = Step::Append {
    events: 1,
    letters: 20,
};
const LONG: Step = Step::Append {
    events: 1,
    letters: 400,
};

/// Runs one case again.
///
/// # Errors
/// If it breaks a promise.
pub fn replay(case: &Case) -> Result<(), Finding> {
    let finding = |broken| Finding::new(case.clone(), broken);
    let (mut shots, mut reference) = catching_panics(|| record(&case.workload)).map_err(finding)?;
    for (depth, cut) in case.cuts.iter().enumerate() {
        let missing = || BrokenPromise {
            invariant: '-',
            what: "the run is shorter than the case".into(),
        };
        let shot = shots.get(cut.shot).ok_or_else(missing).map_err(finding)?;
        let disk = cut.apply(shot);
        let at = reference.at(shot.progress);
        (shots, reference) =
            catching_panics(|| recover(disk, at, &case.workload, depth as u64 + 1))
                .map_err(finding)?;
    }
    Ok(())
}

/// Searches for a shorter workload that also breaks a promise.
fn shrink(found: Finding, budget: Budget) -> Finding {
    let once = Budget {
        second: 0,
        ..budget
    };
    let whole = found.case.workload.clone();
    if let Err(simpler) = search(&whole, once, &Counts::default(), &mut Outcome::default()) {
        return shrink_steps(simpler, once);
    }
    shrink_steps(found, budget)
}

fn shrink_steps(mut found: Finding, budget: Budget) -> Finding {
    let mut index = 0;
    while index < found.case.workload.steps.len() {
        let mut shorter = found.case.workload.clone();
        shorter.steps.remove(index);
        match search(
            &shorter,
            budget,
            &Counts::default(),
            &mut Outcome::default(),
        ) {
            Err(smaller) if smaller.case.cuts.len() <= found.case.cuts.len() => found = smaller,
            _ => index += 1,
        }
    }
    keep_more(&mut found);
    found
}

/// Reduces the lost writes to those that are needed to show the mistake.
fn keep_more(found: &mut Finding) {
    for cut in 0..found.case.cuts.len() {
        let Ok(shot) = shot(&found.case, cut) else {
            return;
        };
        let newest = Decisions::of(&shot.disk).newest();
        for (digit, &kept) in newest.0.iter().enumerate() {
            let mut case = (*found.case).clone();
            if let Some(choice) = &mut case.cuts[cut].choice {
                choice.0[digit] = kept;
            }
            if let Err(smaller) = replay(&case)
                && smaller.broken.invariant == found.broken.invariant
            {
                *found = smaller;
            }
        }
    }
}

/// Returns the snapshot from which a cut of a case was made.
fn shot(case: &Case, cut: usize) -> CheckResult<DiskSnapshot> {
    let (mut shots, mut reference) = catching_panics(|| record(&case.workload))?;
    for (depth, earlier) in case.cuts[..cut].iter().enumerate() {
        let shot = &shots[earlier.shot];
        let disk = earlier.apply(shot);
        let at = reference.at(shot.progress);
        (shots, reference) =
            catching_panics(|| recover(disk, at, &case.workload, depth as u64 + 1))?;
    }
    Ok(shots.swap_remove(case.cuts[cut].shot))
}

fn explain(found: Finding) -> String {
    let Finding { case, broken } = found;
    let mut text = format!("{}: {}\n", broken.invariant, broken.what);
    for (index, cut) in case.cuts.iter().enumerate() {
        if let Ok(shot) = shot(&case, index) {
            let lost = match &cut.choice {
                Some(choice) => Decisions::of(&shot.disk).explain(&shot.disk, choice),
                None => "the program is killed, the machine continues".into(),
            };
            text += &format!(
                "  power cut {} after call {} ({} saves acknowledged, {} begun): {lost}\n",
                index + 1,
                shot.call,
                shot.progress.acked,
                shot.progress.tried
            );
        }
    }
    text + &format!("  again: cargo xtask crash-test --case sim={case}")
}
