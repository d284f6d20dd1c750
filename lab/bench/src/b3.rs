//! B3: the time from the third press to the end of the process, while the rest of the program hangs.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interrupt_stack::{Handler, Interrupts};
use rustix::process::Signal;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::b1::{LIMIT, report_time};
use crate::harness::{
    Bench, Child, Outcome, Plan, Progress, Result, Role, Series, Turn, in_turn, one_thread, park,
    pause, workers,
};

pub(crate) const BENCH: Bench = Bench {
    id: "b3",
    title: "three presses → gone",
    run,
    measured: Some(measured),
};

const OURS: &str = "interrupt-stack";
const PEER: &str = "tokio handler";
/// The name of each state, and the name of its series.
const STATES: [(&str, &str); 4] = [
    ("deadlocked", "third press to gone: workers deadlocked"),
    (
        "never-yields",
        "third press to gone: one thread, never yields",
    ),
    ("drop", "third press to gone: runtime drop blocked"),
    ("atexit", "third press to gone: atexit handler hangs"),
];
/// The time between presses, longer than the debounce.
const APART: Duration = Duration::from_millis(60);
/// A process that lives longer than this hangs. It is twice the target.
const HANGS: Duration = Duration::from_millis(500);

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let rounds: usize = plan.scale.pick(100, 5, 1);
    for (state, quantity) in STATES {
        let progress = Progress::of(format!("b3 {state}"));
        let fourth = Cell::new(0);
        let turns = vec![
            Turn::new(OURS, Role::Ours, |_| press_thrice("ours", state, &fourth)),
            // Each round costs the whole limit, and ten rounds show as much as a hundred.
            Turn::new(PEER, Role::Peer, |_| {
                press_thrice("tokio", state, &Cell::new(0))
            })
            .within(Duration::from_secs(plan.scale.pick(12, 2, 0))),
        ];
        let series = Series::new(quantity, "ms", in_turn(0..rounds, turns, &progress)?);
        let ours = series.get(OURS);
        let gone = ours.map(|ours| ours.samples.len() as f64);
        outcome.at_least(&format!("{state}: gone"), gone, rounds as f64, "times");
        let slowest = ours.and_then(|ours| Some(ours.summary()?.max));
        outcome
            .at_most(&format!("{state}: slowest"), slowest, 250.0, "ms")
            .about(quantity, OURS);
        if let Some(peer) = series.get(PEER) {
            let of = peer.samples.len() + peer.lost;
            outcome.notes.push(format!(
                "{state}: the {PEER} hung {} of {of} times",
                peer.lost
            ));
        }
        if fourth.get() > 0 {
            // If a process does not run for 30 ms, it may see two presses closer together than the debounce.
            outcome.notes.push(format!(
                "{state}: {} of the hanging processes ended at the fourth press: they saw two of the three presses as one",
                fourth.get()
            ));
        }
        outcome.series.push(series);
    }
    Ok(())
}

/// Returns the ms from the third press to the end of a process in `state`; counts the processes that end at a fourth press.
fn press_thrice(who: &str, state: &str, fourth: &Cell<usize>) -> Result<Option<f64>> {
    let mut child = Child::start(&["b3", who, state])?;
    if !child.read_exact(&mut [0; 8], LIMIT)? {
        return Err("the measured process did not get ready".into());
    }
    for _ in 0..2 {
        pause(APART);
        child.signal(Signal::INT)?;
    }
    if child.gone_within(APART)? {
        return Err(format!("{who}, {state}: the process ended before the third press").into());
    }
    let begun = Instant::now();
    child.signal(Signal::INT)?;
    if child.gone_within(HANGS)? {
        return Ok(Some(begun.elapsed().as_secs_f64() * 1e3));
    }
    child.signal(Signal::INT)?;
    fourth.update(|count| count + usize::from(child.gone_within(HANGS).unwrap_or(false)));
    Ok(None)
}

fn measured(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["ours", state] => {
            let installed = Interrupts::builder().install()?;
            // The handler is not in a task, so dropping the runtime does not drop it.
            let _outermost = installed.push("outermost");
            enter(state, keep(installed.push("bench")))
        }
        ["tokio", state] => enter(state, count_to_three()),
        _ => Err("there is no such contender".into()),
    }
}

/// Takes a notice and leaves it open, like a menu without an answer.
async fn keep(mut handler: Handler) {
    let _open = handler.notified().await;
    std::future::pending().await
}

/// Ends the process at the third press, if this task and `exit` still run.
#[expect(
    clippy::disallowed_methods,
    reason = "the bench shows that `exit` blocks"
)]
async fn count_to_three() {
    if let Ok(mut presses) = signal(SignalKind::interrupt()) {
        for _ in 0..3 {
            presses.recv().await;
        }
        std::process::exit(130);
    }
}

/// Brings this process into `state`, with the task of a contender in its runtime. Never returns.
fn enter(state: &str, contender: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    match state {
        "never-yields" => one_thread()?.block_on(async {
            tokio::spawn(contender);
            tokio::task::yield_now().await; // so that the contender listens
            report_time(0);
            loop {
                std::hint::spin_loop();
            }
        }),
        "deadlocked" => {
            let runtime = listening(contender)?;
            let lock = Arc::new(Mutex::new(()));
            let inside = Arc::new(AtomicUsize::new(0));
            let _held = lock.lock();
            let workers = runtime.metrics().num_workers();
            for _ in 0..workers {
                let (lock, inside) = (lock.clone(), inside.clone());
                runtime.spawn(async move {
                    inside.fetch_add(1, Ordering::Relaxed);
                    drop(lock.lock());
                });
            }
            while inside.load(Ordering::Relaxed) < workers {
                pause(Duration::from_millis(1));
            }
            report_time(0);
            park()
        }
        "drop" => {
            let runtime = listening(contender)?;
            runtime.spawn_blocking(|| park());
            report_time(0);
            drop(runtime);
            park()
        }
        "atexit" => {
            let _runtime = listening(contender)?;
            crate::sys::hang_at_exit();
            report_time(0);
            #[expect(
                clippy::disallowed_methods,
                reason = "the bench shows that `exit` blocks"
            )]
            std::process::exit(0)
        }
        _ => Err("there is no such state".into()),
    }
}

/// Starts a runtime in which the contender's task already listens.
fn listening(contender: impl Future<Output = ()> + Send + 'static) -> Result<Runtime> {
    let runtime = workers()?;
    let here = Arc::new(Notify::new());
    let running = here.clone();
    runtime.spawn(async move {
        running.notify_one();
        contender.await;
    });
    runtime.block_on(here.notified());
    Ok(runtime)
}
