//! B4: many sleepers, one task each, woken at once; and the heap that each needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use cancellable_sleep::SleepGate;
use tokio_util::sync::CancellationToken;

use crate::harness::{
    Bench, Child, Outcome, Plan, Progress, Result, Role, Series, Turn, in_turn, in_turn_beside,
    pause, workers,
};
use crate::sys::CountingAllocator;

pub(crate) const BENCH: Bench = Bench {
    id: "b4",
    title: "sleepers woken at once",
    run,
    measured: Some(measured),
};

const OURS: &str = "SleepGate";
const FLOOR: &str = "select! { sleep, token }";
const CONTENDERS: [(&str, Role, &str); 2] =
    [(OURS, Role::Ours, "gate"), (FLOOR, Role::Floor, "select")];
const HOUR: Duration = Duration::from_secs(3600);
const LIMIT: Duration = Duration::from_secs(120);

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    const SIZES: [(usize, &str); 3] = [
        (1_000, "1,000"),
        (100_000, "100,000"),
        (1_000_000, "1,000,000"),
    ];
    let rounds = plan.scale.pick([31, 11, 5], [11, 5, 0], [1, 0, 0]);
    let sizes = SIZES.into_iter().zip(rounds);
    for ((count, label), rounds) in sizes.filter(|(_, rounds)| *rounds > 0) {
        let progress = Progress::of(format!("b4 {label}"));
        let heap = CONTENDERS.map(|(name, role, what)| {
            Turn::new(name, role, move |_| {
                let [heap, _, _] = sleep_and_wake(what, count, "heap")?;
                Ok(Some(heap / count as f64))
            })
        });
        let heap = Series::new(
            "heap per sleeper",
            "B",
            in_turn(0..1, heap.into(), &progress)?,
        )
        .sized(count as f64, label);

        let awake = CONTENDERS.map(|(name, role, what)| {
            Turn::beside(name, role, move |_| {
                let [_, call, awake] = sleep_and_wake(what, count, "time")?;
                Ok((Some(awake), Some(call)))
            })
        });
        let (awake, calls) = in_turn_beside(0..rounds, awake.into(), &progress)?;
        let awake = Series::new("all awake", "ms", awake).sized(count as f64, label);
        let calls = Series::new("wake call", "ms", calls).sized(count as f64, label);

        let over = heap.ratio(OURS, FLOOR, |summary| summary.median);
        outcome
            .at_most(&format!("heap, {label}"), over, 1.0, "× floor")
            .about(heap.title(), OURS);
        let over = awake.paired(OURS, FLOOR);
        outcome
            .at_most(&format!("all awake, {label}"), over, 1.1, "× floor")
            .about(awake.title(), OURS);
        outcome.series.extend([heap, calls, awake]);
    }
    outcome.notes.push(
        "each sample is from a process of its own; heap and times are never measured in the same process; the figures include the cost of the tasks"
            .into(),
    );
    Ok(())
}

/// Returns the bytes in use, the ms of the call that wakes, and the ms until all are awake.
fn sleep_and_wake(what: &str, count: usize, mode: &str) -> Result<[f64; 3]> {
    let mut child = Child::start(&["b4", what, &count.to_string(), mode])?;
    child.read_figures(LIMIT)
}

fn measured(arguments: &[&str]) -> Result<()> {
    let [what, count, mode] = arguments else {
        return Err("contender, number and mode are expected".into());
    };
    let count = count.parse()?;
    let counts = Arc::new(Counts {
        of: count,
        asleep: AtomicUsize::new(0),
        awake: AtomicUsize::new(0),
        waiting: std::thread::current(),
    });
    let runtime = workers()?;
    let _guard = runtime.enter();
    if *mode == "heap" {
        CountingAllocator::start();
    }
    match *what {
        "gate" => {
            let gate = SleepGate::new();
            for _ in 0..count {
                let (gate, counts) = (gate.clone(), counts.clone());
                tokio::spawn(async move {
                    counts.asleep();
                    let _why = gate.sleep(HOUR).await;
                    counts.awake();
                });
            }
            measure(&counts, || gate.shutdown());
        }
        "select" => {
            let token = CancellationToken::new();
            for _ in 0..count {
                let (token, counts) = (token.clone(), counts.clone());
                tokio::spawn(async move {
                    counts.asleep();
                    #[expect(clippy::disallowed_methods, reason = "the floor is hand-written code")]
                    let sleep = tokio::time::sleep(HOUR);
                    tokio::select! {
                        () = token.cancelled() => {}
                        () = sleep => {}
                    }
                    counts.awake();
                });
            }
            measure(&counts, || token.cancel());
        }
        _ => return Err("there is no such contender".into()),
    }
    Ok(())
}

/// Waits for all to sleep, wakes them, waits for all to be awake, and prints the figures.
fn measure(counts: &Counts, wake: impl FnOnce()) {
    counts.wait(&counts.asleep);
    // The last tasks have counted themselves but may not sleep yet.
    pause(Duration::from_millis(50));
    let heap = CountingAllocator::in_use();
    let begun = Instant::now();
    wake();
    let call = begun.elapsed();
    counts.wait(&counts.awake);
    let awake = begun.elapsed();
    println!(
        "{heap} {} {}",
        call.as_secs_f64() * 1e3,
        awake.as_secs_f64() * 1e3
    );
    // Dropping a million tasks takes longer than all of the above.
    crate::sys::exit_now();
}

struct Counts {
    of: usize,
    asleep: AtomicUsize,
    awake: AtomicUsize,
    waiting: Thread,
}

impl Counts {
    fn asleep(&self) {
        self.add(&self.asleep);
    }

    fn awake(&self) {
        self.add(&self.awake);
    }

    fn add(&self, count: &AtomicUsize) {
        if count.fetch_add(1, Ordering::AcqRel) + 1 == self.of {
            self.waiting.unpark();
        }
    }

    fn wait(&self, count: &AtomicUsize) {
        while count.load(Ordering::Acquire) < self.of {
            std::thread::park();
        }
    }
}
