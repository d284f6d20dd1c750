//! F16: a large fleet for two hours, with the same decisions: the messages of the server, its storage, and the times of takeovers.
//!
//! Workers are killed, lose their power, freeze, lose their connection and get SIGTERM; the server restarts. No worker is frozen or cut off while the
//! server restarts: then two agents could overlap, as `rlm-fleet` documents.

use std::time::{Duration, Instant};

use crate::fleet::model::{Fault, Measured, Millis, Network, Setup, Traffic, World};
use crate::fleet::store::PlainState;
use crate::rng::Rng;

const MINUTE: Millis = 60_000;
/// When the server restarts, and for how long it is away: shorter than a lease, and longer.
const RESTARTS: [(Millis, Millis); 3] = [
    (20 * MINUTE, 3_000),
    (40 * MINUTE, 10_000),
    (60 * MINUTE, 90_000),
];
/// No worker is frozen or cut off in this time before a restart and after its end.
const APART: Millis = 3 * MINUTE;
/// The faults stop after this time.
const FAULTS: Millis = 90 * MINUTE;

/// The bytes of a record in the stream, as a real run stores them: the average of its saves, and those of a claim.
const SAVE_BYTES: u64 = 3_300;
const CLAIM_BYTES: u64 = 900;

/// The result of one simulation.
#[derive(Debug)]
pub struct Simulated {
    /// The number of runs.
    pub runs: usize,
    /// The number of workers.
    pub workers: usize,
    /// The measurements.
    pub measured: Measured,
    /// The broken promise, if any.
    pub broken: Option<String>,
    /// The time that the simulation took.
    pub took: Duration,
}

/// Returns a fleet with one worker for ten runs, and its faults.
fn setup(runs: usize, seed: u64) -> Setup {
    let workers = (runs / 10).max(2);
    let mut rng = Rng::new(seed);
    let mut below = |limit: u64| rng.draw() % limit;
    let mut faults: Vec<(Millis, Fault)> = RESTARTS
        .iter()
        .map(|(at, away)| (*at, Fault::Restart(*away)))
        .collect();
    // In 90 minutes, each worker has one fault on average.
    for _ in 0..workers.max(12) {
        let worker = below(workers as u64) as usize;
        let at = MINUTE + below(FAULTS - MINUTE);
        let fault = match below(6) {
            0 => Fault::Kill(worker, 5_000),
            1 => Fault::PowerOff(worker, 2 * MINUTE),
            2 => Fault::Freeze(worker, 1_000 + below(2 * MINUTE)),
            3 | 4 => Fault::Cut(worker, 1_000 + below(2 * MINUTE)),
            _ => Fault::Terminate(worker),
        };
        let is_near = RESTARTS
            .iter()
            .any(|(restart, away)| at + APART > *restart && at < restart + away + APART);
        if is_near && matches!(fault, Fault::Freeze(..) | Fault::Cut(..)) {
            continue;
        }
        faults.push((at, fault));
    }
    Setup {
        seed,
        workers,
        slots: 11,
        runs,
        submitted_within: 5 * MINUTE,
        iterations: 10,
        saves: (2, 3),
        agent: (4 * MINUTE, 12 * MINUTE),
        lease: Duration::from_secs(60),
        kill_takes: 300,
        is_poison: false,
        faults,
        network: Network::default(),
        faults_until: 0,
        is_exclusive: true,
        limit: 600 * MINUTE,
    }
}

/// Simulates a fleet with this number of runs.
#[must_use]
pub fn simulate(runs: usize, seed: u64) -> Simulated {
    let began = Instant::now();
    let mut world = World::<PlainState>::new(setup(runs, seed));
    world.run();
    let broken = world
        .broken
        .map(|it| format!("{}: {}", it.invariant, it.what));
    Simulated {
        runs,
        workers: world.setup.workers,
        measured: world.measured,
        broken,
        took: began.elapsed(),
    }
}

/// Returns the median, the 99th percentile and the largest of these times, in seconds.
fn spread(times: &[Millis]) -> String {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
    let text = |part| {
        at(part).map_or("–".into(), |time| {
            format!("{:.1}", *time as f64 / 1_000.0)
        })
    };
    format!("{} / {} / {}", text(50), text(99), text(100))
}

impl Simulated {
    /// Returns the bytes of all streams.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let it = &self.measured;
        it.saves * SAVE_BYTES + (it.records - it.saves) * CLAIM_BYTES
    }

    /// Returns the messages of one kind in a second, on average.
    fn rate(&self, traffic: Traffic) -> f64 {
        let seconds = self.measured.ended_at as f64 / 1_000.0;
        self.measured.messages[traffic as usize] as f64 / seconds
    }
}

/// Returns a table with a column for each simulation.
#[must_use]
pub fn table(all: &[Simulated]) -> String {
    let row = |name: &str, cell: &dyn Fn(&Simulated) -> String| {
        let cells: Vec<String> = all.iter().map(cell).collect();
        format!("| {name} | {} |\n", cells.join(" | "))
    };
    let mut text = row("runs, workers", &|it| {
        format!("{} on {}", it.runs, it.workers)
    });
    text += &format!("|---|{}\n", "---|".repeat(all.len()));
    for (traffic, name) in Traffic::ALL {
        text += &row(&format!("{name}, messages/s"), &|it| {
            format!("{:.1}", it.rate(traffic))
        });
    }
    text += &row("all, messages/s", &|it| {
        let all = Traffic::ALL.iter().map(|(traffic, _)| it.rate(*traffic));
        format!("{:.1}", all.sum::<f64>())
    });
    text += &row("busiest second without rebuilds, messages", &|it| {
        it.measured.busiest[0].to_string()
    });
    text += &row("busiest second, messages", &|it| {
        it.measured.busiest[1].to_string()
    });
    text += &row("records, of them claims", &|it| {
        format!("{}, {}", it.measured.records, it.measured.claims)
    });
    text += &row("records, MB", &|it| {
        format!("{:.1}", it.bytes() as f64 / 1e6)
    });
    text += &row("faults", &|it| it.measured.faults.to_string());
    text += &row("takeovers", &|it| it.measured.takeovers.len().to_string());
    text += &row("takeover, s: median / p99 / max", &|it| {
        spread(&it.measured.takeovers)
    });
    text += &row("changes of the owner after an outage of 90 s", &|it| {
        it.measured.outages.len().to_string()
    });
    text += &row(
        "from the begin of the outage to the next owner, s: median / p99 / max",
        &|it| spread(&it.measured.outages),
    );
    text += &row("hand-overs", &|it| it.measured.handovers.len().to_string());
    text += &row("hand-over, s: median / p99 / max", &|it| {
        spread(&it.measured.handovers)
    });
    text += &row("runs ended, parked", &|it| {
        format!("{}, {}", it.measured.ended, it.measured.parked)
    });
    text += &row("all runs ended after, min", &|it| {
        (it.measured.ended_at / MINUTE).to_string()
    });
    text
}
