//! D0, with a fleet: two or three workers, a server and its stream. Messages are lost, late and repeated; workers are killed, freeze, lose their
//! connection and get SIGTERM; machines pause with their clock; the server restarts and forgets leases. The workers execute the decisions of
//! `rlm-fleet`. Each owner of a run has a real store on a modelled disk, whose replica is the stream. So the records are those that the store with its
//! own files writes, and each successor rebuilds its store from them.
//!
//! `judge.rs` states the promises. One search places each fault at each message of a history, the other one draws many faults from a seed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::fleet::model::{Fault, Measured, MessageFault, Millis, Network, Setup, World};
use crate::fleet::store::RealStore;
use crate::outcome::{Finding, Level, Outcome};
use crate::reference::CheckResult;
use crate::rng::{Rng, mix};
use crate::session::catching_panics;
use crate::{mistake, parallel};

mod faults;
mod judge;
mod model;
mod server;
pub mod simulation;
mod store;
mod worker;

/// The shortest and the longest time of a long iteration: it is still running when the lease of its owner ends.
const LONG: (Millis, Millis) = (5_000, 40_000);
/// The time in which faults begin.
const FAULTS: Millis = 45_000;

/// One history: the seed of its faults, those of them that are left out, and the fault of one message.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    seed: u64,
    /// A bit for each part of the faults that is left out; the first one is the network.
    without: u32,
    message: Option<(u64, MessageFault)>,
}

const LETTERS: [(char, MessageFault); 7] = [
    ('q', MessageFault::Lost),
    ('l', MessageFault::Late),
    ('r', MessageFault::Repeated),
    ('f', MessageFault::Freeze),
    ('k', MessageFault::Kill),
    ('s', MessageFault::Restart),
    ('t', MessageFault::RestartTwice),
];

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:x}", self.seed, self.without)?;
        if let Some((number, fault)) = self.message {
            let letter = LETTERS.iter().find(|(_, known)| *known == fault);
            write!(f, "/{number}{}", letter.map_or('-', |(letter, _)| *letter))?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a case of a fleet");
        let mut parts = text.split('/');
        let mut part = || parts.next();
        let seed = part().and_then(|it| it.parse().ok()).ok_or_else(bad)?;
        let without = part().and_then(|it| u32::from_str_radix(it, 16).ok());
        let message = |text: &str| {
            let mut known = LETTERS.iter();
            let (number, fault) = known.find_map(|(letter, fault)| {
                let number = text.strip_suffix(*letter)?;
                Some((number.parse().ok()?, *fault))
            })?;
            Some((number, fault))
        };
        let message = part().map(|text| message(text).ok_or_else(bad));
        Ok(Self {
            seed,
            without: without.ok_or_else(bad)?,
            message: message.transpose()?,
        })
    }
}

impl Case {
    fn of(seed: u64) -> Self {
        Self {
            seed,
            without: 0,
            message: None,
        }
    }

    /// Returns the fleet of this history, and its faults.
    fn setup(self) -> Setup {
        let mut rng = Rng::new(mix(self.seed));
        let mut below = |limit: u64| rng.draw() % limit;
        let mut setup = Setup {
            seed: self.seed,
            workers: 2 + below(2) as usize,
            slots: 1 + below(2) as usize,
            runs: 1 + below(2) as usize,
            submitted_within: 1_000,
            iterations: 4,
            saves: (1 + below(2) as u32, 1 + below(2) as u32),
            agent: [(500, 9_000), LONG][below(2) as usize],
            lease: Duration::from_secs(10),
            // Less than half of the lease.
            kill_takes: 4_400,
            is_poison: false,
            faults: Vec::new(),
            network: Network::default(),
            faults_until: FAULTS + 15_000,
            is_exclusive: true,
            limit: 900_000,
        };
        if self.message.is_some() {
            setup.network.one = self.message;
            setup.agent = LONG;
            return setup;
        }
        let lossy = |most: u64, below: &mut dyn FnMut(u64) -> u64| Network {
            lost: below(most) as usize,
            late: below(most) as usize,
            repeated: below(most) as usize,
            one: None,
        };
        let workers = setup.workers as u64;
        // The kinds of faults that a history combines.
        type Make = fn(usize, Millis) -> Fault;
        let (network, count, makes): (u64, u64, &[Make]) = match self.seed % 6 {
            // The assumptions hold that a lease needs.
            0 => (
                250,
                5,
                &[
                    |worker, time| Fault::Kill(worker, time / 4),
                    |worker, time| Fault::PowerOff(worker, time),
                    Fault::Freeze,
                    Fault::Cut,
                    |worker, _| Fault::Terminate(worker),
                ],
            ),
            // The server forgets leases. An owner whose agent runs is connected again in time, so no worker is killed, cut off or frozen.
            1 => (
                1,
                2,
                &[Fault::PowerOff, |worker, _| Fault::Terminate(worker)],
            ),
            // Machines pause for longer than the lease, so two agents can overlap. The stream must be right all the same.
            2 => (
                150,
                4,
                &[Fault::Pause, Fault::Pause, Fault::Freeze, Fault::Cut],
            ),
            // The agents of a run kill their workers.
            3 => (1, 0, &[]),
            // Only messages have faults.
            4 => (700, 0, &[]),
            // Clocks lose a part of a lease.
            _ => (
                150,
                4,
                &[
                    |worker, time| Fault::Pause(worker, time / 50),
                    Fault::Freeze,
                    Fault::Cut,
                    |worker, time| Fault::Kill(worker, time / 4),
                ],
            ),
        };
        let is_on = |part: u64| self.without & (1 << part) == 0;
        let network = lossy(network, &mut below);
        if is_on(0) {
            setup.network = network;
        }
        let (mut at, mut worker) = (0, 0);
        for part in 1..=count {
            // Half of the faults hit the worker of the fault before, seconds later.
            match below(2) {
                0 => (at, worker) = (below(FAULTS), below(workers) as usize),
                _ => at += below(5_000),
            }
            let make = makes[below(makes.len() as u64) as usize];
            let longest = [6_000, 20_000][below(2) as usize];
            let fault = make(worker, 200 + below(longest));
            if is_on(part) {
                setup.faults.push((at, fault));
            }
        }
        match self.seed % 6 {
            1 => {
                // The second restart can come while a claimant waits for the owner to connect after the first.
                let mut at = 1_000 + below(15_000);
                for apart in [2_000, 20_000] {
                    let away = 200 + below(4_000);
                    setup.faults.push((at, Fault::Restart(away)));
                    at += away + below(apart);
                }
                setup.faults.push((at, Fault::Restart(1_000)));
            }
            2 => setup.is_exclusive = false,
            // The lost time of the clocks is a part of the same half.
            5 => setup.kill_takes = 1_500,
            3 => setup.is_poison = true,
            _ => {}
        }
        setup
    }
}

/// Runs one history.
fn measured(case: Case) -> CheckResult<Measured> {
    catching_panics(|| {
        let mut world = World::<RealStore>::new(case.setup());
        world.run();
        match world.broken {
            Some(broken) => Err(broken),
            None => Ok(world.measured),
        }
    })
}

/// Returns the cases in which each message of a history has each fault.
fn each_message(seed: u64) -> Vec<Case> {
    // No message has the number 0.
    let none = Case {
        message: Some((0, MessageFault::Lost)),
        ..Case::of(seed)
    };
    let mut world = World::<RealStore>::new(none.setup());
    world.run();
    let faults = LETTERS.map(|(_, fault)| fault);
    let messages = 1..=world.sent;
    messages
        .flat_map(|at| {
            faults.map(|fault| Case {
                message: Some((at, fault)),
                ..Case::of(seed)
            })
        })
        .collect()
}

/// Runs the layer.
pub fn run(level: Level) -> Outcome {
    let seeds = level.of([600, 3_000, 20_000, 600_000]);
    let bases = level.of([1, 2, 10, 200]);
    let random = (0..seeds).map(Case::of);
    let mut cases: Vec<Case> = random.collect();
    cases.extend((0..bases).flat_map(each_message));
    let one = |case: &Case| (*case, measured(*case));
    let mut outcome = Outcome::default();
    let mut first = None;
    for (case, found) in parallel::map(&cases, one, |(_, found)| found.is_err()) {
        outcome.tried += 1;
        match found {
            Ok(measured) => {
                outcome.faults += measured.faults;
                outcome.acked += measured.saves;
            }
            Err(broken) => {
                outcome.lost += 1;
                first.get_or_insert(Finding::new(case, broken));
            }
        }
    }
    if let Some(found) = first {
        let found = shrink(found);
        let (invariant, what) = (found.broken.invariant, found.broken.what);
        let case = found.case;
        outcome.notes.push(format!(
            "{invariant}: {what}\n  again: cargo xtask crash-test --case fleet={case}"
        ));
    }
    outcome
}

/// Leaves out each part of the faults that the broken promise does not need.
fn shrink(mut found: Finding<Case>) -> Finding<Case> {
    if mistake::now().is_some() || found.case.message.is_some() {
        return found;
    }
    for part in 0..6 {
        let mut case = *found.case;
        case.without |= 1 << part;
        if let Err(broken) = measured(case) {
            found = Finding::new(case, broken);
        }
    }
    found
}

/// Runs one case again.
///
/// # Errors
/// If it breaks a promise.
pub fn replay(case: Case) -> CheckResult {
    measured(case).map(drop)
}
