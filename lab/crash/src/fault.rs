//! D1: makes every call of a workload fail in every possible way, cuts the power afterwards, and makes calls of the recovery fail too.

use std::fmt;
use std::str::FromStr;

use crate::choice::{Decisions, Outcomes};
use crate::computer::{Call, CallFault, Plan};
use crate::disk::Disk;
use crate::outcome::{Level, Outcome};
use crate::reference::{BrokenPromise, CheckResult, Reference};
use crate::rng::{Rng, mix};
use crate::session::{Session, catching_panics};
use crate::step::{Step, Workload};
use crate::{parallel, workloads};

/// One history: a workload, its fault, the outcome of the power cut, and the fault in the recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    workload: Workload,
    first: Plan,
    choice: Option<Outcomes>,
    second: Option<Plan>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.workload, self.first)?;
        if let Some(choice) = &self.choice {
            write!(f, "@{choice}")?;
        }
        self.second
            .iter()
            .try_for_each(|second| write!(f, "@{second}"))
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split('@');
        let mut next = || parts.next();
        let bad = || format!("`{text}` is not a case of a fault");
        Ok(Self {
            workload: next().ok_or_else(bad)?.parse()?,
            first: next().ok_or_else(bad)?.parse()?,
            choice: next()
                .map(|part| Outcomes::parse(part).ok_or_else(bad))
                .transpose()?,
            second: next().map(str::parse).transpose()?,
        })
    }
}

/// A broken promise, and the history that shows it.
type Finding = crate::outcome::Finding<Case>;

/// The number of tries for each fault.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Number of outcomes of the power cut after the fault.
    pub cuts: usize,
    /// Number of second faults.
    pub seconds: usize,
}

/// Runs the layer.
pub fn run(level: Level) -> Outcome {
    let budget = Budget {
        cuts: level.of([1, 2, 3, 8]),
        seconds: level.of([1, 2, 18, 200]),
    };
    let some = workloads::fault()
        .into_iter()
        .step_by(level.of([10, 1, 1, 1]));
    explore(&some.collect::<Vec<_>>(), budget)
}

/// Makes every call of all workloads fail.
pub fn explore(workloads: &[Workload], budget: Budget) -> Outcome {
    let one = |workload: &Workload| {
        let mut outcome = Outcome::default();
        let found = search(workload, budget, &mut outcome);
        (outcome, found.err())
    };
    parallel::search(workloads, one, |found| shrink(found, budget), explain)
}

fn search(workload: &Workload, budget: Budget, outcome: &mut Outcome) -> Result<(), Finding> {
    let calls = calls(workload);
    for (number, &call) in calls.iter().enumerate() {
        for hit in fitting(call) {
            let first = Plan {
                at: number as u64,
                hit,
            };
            outcome.faults += 1;
            outcome.tried += 1;
            let finding = |choice: Option<&Outcomes>, second| {
                let case = Case {
                    workload: workload.clone(),
                    first,
                    choice: choice.cloned(),
                    second,
                };
                move |broken| Finding::new(case, broken)
            };
            let (disk, reference) =
                catching_panics(|| faulty(workload, first)).map_err(finding(None, None))?;
            outcome.acked += reference.progress().acked as u64;
            let seed = mix(workload.seed ^ (number as u64) << 8 ^ hit as u64);
            let mut rng = Rng::new(seed);
            let freedom = Decisions::of(&disk);
            for choice in freedom.choices(budget.cuts, &mut rng) {
                outcome.tried += 1;
                let disk = freedom.apply(&disk, &choice);
                let recovered = catching_panics(|| recover(&disk, &reference, workload, None));
                let calls = recovered.map_err(finding(Some(&choice), None))?;
                for _ in 0..budget.seconds.div_ceil(budget.cuts) {
                    let at = rng.below(calls.len());
                    let hits: Vec<CallFault> = fitting(calls[at]).collect();
                    let second = Some(Plan {
                        at: at as u64,
                        hit: hits[rng.below(hits.len())],
                    });
                    outcome.faults += 1;
                    outcome.tried += 1;
                    catching_panics(|| recover(&disk, &reference, workload, second))
                        .map_err(finding(Some(&choice), second))?;
                }
            }
        }
    }
    Ok(())
}

/// Returns the faults that a call can have.
fn fitting(call: Call) -> impl Iterator<Item = CallFault> {
    CallFault::ALL
        .into_iter()
        .filter(move |hit| hit.applies(call))
}

/// Returns the calls of a workload without faults.
fn calls(workload: &Workload) -> Vec<Call> {
    let mut session = Session::new(workload);
    // Another layer checks for errors without a fault.
    drop(catching_panics(|| session.run(&workload.steps)));
    session.shared.pc().calls().to_vec()
}

/// Runs a workload with a fault in it.
fn faulty(workload: &Workload, plan: Plan) -> CheckResult<(Disk, Reference)> {
    let mut session = Session::new(workload);
    session.shared.pc().hit(Some(plan));
    session.run(&workload.steps)?;
    if !session.shared.pc().is_off() {
        session.load()?;
    }
    let disk = session.shared.pc().disk.clone();
    Ok((disk, session.reference))
}

/// Starts after a power cut, with or without a second fault, and saves. After a second fault, does the same once more without a fault.
fn recover(
    disk: &Disk,
    reference: &Reference,
    workload: &Workload,
    second: Option<Plan>,
) -> CheckResult<Vec<Call>> {
    let step = match workload.is_store() {
        true => Step::Value(40),
        false => Step::Append {
            events: 1,
            letters: 40,
        },
    };
    let mut session = Session::after(disk.clone(), reference.clone(), workload, 1);
    session.shared.pc().hit(second);
    session.open()?;
    session.run(&[step])?;
    let calls = session.shared.pc().calls().to_vec();
    if second.is_some() {
        let disk = session.shared.pc().disk.clone();
        let freedom = Decisions::of(&disk);
        for choice in freedom.choices(1, &mut Rng::new(calls.len() as u64)) {
            let disk = freedom.apply(&disk, &choice);
            let mut session = Session::after(disk, session.reference.clone(), workload, 2);
            session.open()?;
            session.run(&[step])?;
        }
    }
    Ok(calls)
}

/// Runs one case again.
///
/// # Errors
/// If it breaks a promise; the text names the promise.
pub fn replay(case: &Case) -> Result<(), String> {
    let told = |broken: BrokenPromise| format!("{}: {}", broken.invariant, broken.what);
    let (disk, reference) = catching_panics(|| faulty(&case.workload, case.first)).map_err(told)?;
    let Some(choice) = &case.choice else {
        return Ok(());
    };
    let disk = Decisions::of(&disk).apply(&disk, choice);
    catching_panics(|| recover(&disk, &reference, &case.workload, case.second))
        .map(drop)
        .map_err(told)
}

/// Searches for a shorter workload that also breaks a promise.
fn shrink(mut found: Finding, budget: Budget) -> Finding {
    let mut index = 0;
    while index < found.case.workload.steps.len() {
        let mut shorter = found.case.workload.clone();
        shorter.steps.remove(index);
        match search(&shorter, budget, &mut Outcome::default()) {
            Err(smaller) if smaller.case.second.is_none() || found.case.second.is_some() => {
                found = smaller;
            }
            _ => index += 1,
        }
    }
    found
}

fn explain(found: Finding) -> String {
    let Finding { case, broken } = found;
    let calls = calls(&case.workload);
    let name = calls
        .get(case.first.at as usize)
        .map(|call| format!("{call:?}"));
    let mut text = format!("{}: {}\n", broken.invariant, broken.what);
    text += &format!(
        "  {:?} at call {}, {}",
        case.first.hit,
        case.first.at,
        name.unwrap_or_default()
    );
    if let (Some(choice), Ok((disk, _))) = (
        &case.choice,
        catching_panics(|| faulty(&case.workload, case.first)),
    ) {
        text += &format!(
            "; then a power cut: {}",
            Decisions::of(&disk).explain(&disk, choice)
        );
    }
    if let Some(second) = case.second {
        text += &format!(
            "; then {:?} at call {} of the recovery",
            second.hit, second.at
        );
    }
    text + &format!("\n  again: cargo xtask crash-test --case fault={case}")
}
