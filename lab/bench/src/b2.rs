//! B2: the time from `kill(SIGINT)` to the decision, while every worker of the runtime is busy in slices of 1 ms.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::b1::{Target, answer, floor, install, listen, report_time};
use crate::harness::{
    Bench, Contender, Outcome, Plan, Progress, Random, Result, Role, Sample, Series, now, pause,
    workers,
};

pub(crate) const BENCH: Bench = Bench {
    id: "b2",
    title: "press → decision, workers busy in 1 ms slices",
    run,
    measured: Some(measured),
};

const SLICE: Duration = Duration::from_millis(1);
const OURS: &str = "interrupt-stack, decision";
const PEER: &str = "tokio::signal";
const CONTENDERS: [(&str, Role, &str); 4] = [
    (OURS, Role::Ours, "decision"),
    ("interrupt-stack, busy task", Role::Ours, "task"),
    (PEER, Role::Peer, "tokio"),
    ("sigaction + eventfd thread", Role::Floor, "floor"),
];

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let groups: usize = plan.scale.pick(20, 4, 1);
    let signals: usize = plan.scale.pick(75, 25, 3);
    let mut series = Series::new("kill to decision", "µs", Vec::new());
    let mut random = Random::seeded(2);
    for group in 0..groups {
        let progress = Progress::of(format!("b2 {}/{groups}", group + 1));
        let mut order = CONTENDERS;
        if group % 2 == 1 {
            order.reverse();
        }
        // The processes run one after the other, because two busy processes would slow each other down.
        for (name, role, what) in order {
            progress.show(|| name.into());
            let mut target = Target::start(&["b2", what])?;
            let mut contender = Contender::new(name, role);
            for round in group * signals..(group + 1) * signals {
                pause(Duration::from_micros(500 + random.below(2000)));
                let value = target.shoot()?;
                contender.samples.push(Sample { round, value });
            }
            series.absorb(vec![contender]);
        }
    }
    let sooner = series.ratio(PEER, OURS, |summary| summary.median);
    outcome
        .at_least("decision sooner than tokio::signal, p50", sooner, 50.0, "×")
        .about(series.title(), OURS);
    outcome.notes.push(
        "the time of the decision is the call of the waker, on the router's thread, before any task runs"
            .into(),
    );
    outcome.series.push(series);
    Ok(())
}

fn measured(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["decision"] => {
            let installed = install()?;
            let _busy = busy()?;
            decide(&installed)
        }
        ["task"] => {
            let installed = install()?;
            let busy = busy()?;
            busy.block_on(busy.spawn(answer(installed.push("bench"))))?
        }
        ["tokio"] => {
            let busy = busy()?;
            busy.block_on(busy.spawn(listen()))?
        }
        ["floor"] => {
            let _busy = busy()?;
            floor()
        }
        _ => Err("there is no such contender".into()),
    }
}

/// Starts a runtime with four tasks for each worker, which spin for a slice and then let others run.
fn busy() -> Result<Runtime> {
    let runtime = workers()?;
    for _ in 0..4 * runtime.metrics().num_workers() {
        runtime.spawn(async {
            loop {
                let begun = Instant::now();
                while begun.elapsed() < SLICE {
                    std::hint::spin_loop();
                }
                tokio::task::yield_now().await;
            }
        });
    }
    Ok(runtime)
}

/// Handles presses for ever on this thread, and reports when the router woke it, not when it ran.
fn decide(installed: &interrupt_stack::Interrupts) -> Result<()> {
    let mut handler = installed.push("bench");
    let stamp = Arc::new(WakeTime {
        at: AtomicU64::new(0),
        waiting: std::thread::current(),
    });
    let waker = stamp.clone().into();
    let mut context = Context::from_waker(&waker);
    report_time(0);
    loop {
        let notice = {
            let mut notified = pin!(handler.notified());
            loop {
                match notified.as_mut().poll(&mut context) {
                    Poll::Ready(notice) => break notice,
                    Poll::Pending => std::thread::park(),
                }
            }
        };
        notice.handled();
        report_time(stamp.at.swap(0, Ordering::Relaxed));
    }
}

/// A waker that records the time of its call.
struct WakeTime {
    at: AtomicU64,
    waiting: Thread,
}

impl Wake for WakeTime {
    fn wake(self: Arc<Self>) {
        self.at.store(now(), Ordering::Relaxed);
        self.waiting.unpark();
    }
}
