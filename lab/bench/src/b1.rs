//! B1: the time from `kill(SIGINT)` in another process to the code of the handler, in an idle process.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;

use interrupt_stack::{Handler, Interrupts, Notice};
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use crate::harness::{
    Bench, Child, Outcome, Plan, Progress, Result, Role, Series, Turn, in_turn, now, one_thread,
    pause, workers,
};

pub(crate) const BENCH: Bench = Bench {
    id: "b1",
    title: "press → notice, idle",
    run,
    measured: Some(measured),
};

const FLOOR: &str = "sigaction + eventfd thread";
const OURS: &str = "interrupt-stack, one thread";
const OURS_MULTI: &str = "interrupt-stack, workers";
const OURS_BLOCKING: &str = "interrupt-stack, no runtime";
const OURS_DRIVEN: &str = "interrupt-stack, driver";
const PEER: &str = "tokio::signal, one thread";
const PEER_MULTI: &str = "tokio::signal, workers";
const CONTENDERS: [(&str, Role, &str); 7] = [
    (OURS, Role::Ours, "ours"),
    (OURS_MULTI, Role::Ours, "ours-multi"),
    (OURS_BLOCKING, Role::Ours, "ours-blocking"),
    (OURS_DRIVEN, Role::Ours, "ours-driven"),
    (PEER, Role::Peer, "tokio"),
    (PEER_MULTI, Role::Peer, "tokio-multi"),
    (FLOOR, Role::Floor, "floor"),
];

/// A signal that has no effect within this time is lost.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let groups = plan.scale.pick(5, 2, 1);
    let signals = plan.scale.pick(2000, 250, 3);
    let mut series = Series::new("kill to handler", "µs", Vec::new());
    for group in 0..groups {
        let progress = Progress::of(format!("b1 {}/{groups}", group + 1));
        let mut children = Vec::new();
        for (name, role, what) in CONTENDERS {
            children.push((name, role, Target::start(&["b1", what])?));
        }
        let turns = children.iter_mut().map(|(name, role, target)| {
            Turn::new(name, *role, |_| {
                // Gives all threads of the target time to sleep again.
                pause(Duration::from_micros(200));
                target.shoot().map(Some)
            })
        });
        let first = group * signals;
        series.absorb(in_turn(first..first + signals, turns.collect(), &progress)?);
    }
    let over_floor = series.ratio(OURS, FLOOR, |summary| summary.median);
    outcome
        .at_most("p50 over the floor's", over_floor, 2.0, "×")
        .about(series.title(), OURS);
    outcome.notes.push(format!(
        "debounce 0; {} signals each, from {groups} sets of processes",
        groups * signals
    ));
    outcome.series.push(series);
    Ok(())
}

/// A measured process that reports, for each signal, when its code ran.
pub(crate) struct Target(Child);

impl Target {
    /// Starts the process and waits until it catches signals.
    pub(crate) fn start(what: &[&str]) -> Result<Self> {
        let mut child = Child::start(what)?;
        if !child.read_exact(&mut [0; 8], LIMIT)? {
            return Err("the measured process did not get ready".into());
        }
        Ok(Self(child))
    }

    /// Sends `SIGINT` and returns the µs until the process's code ran.
    ///
    /// # Errors
    ///
    /// Fails when the process does not report the signal: if it misses one signal, it misses all later ones.
    pub(crate) fn shoot(&mut self) -> Result<f64> {
        let mut stamp = [0; 8];
        let before = now();
        self.0.signal(Signal::INT)?;
        if !self.0.read_exact(&mut stamp, LIMIT)? {
            return Err(format!("the process did not report a signal within {LIMIT:?}").into());
        }
        Ok(u64::from_le_bytes(stamp).saturating_sub(before) as f64 / 1e3)
    }
}

/// Reports a time to the measuring process. The first report says that the process catches signals from now on.
pub(crate) fn report_time(stamp: u64) {
    let mut out = std::io::stdout().lock();
    let told = out
        .write_all(&stamp.to_le_bytes())
        .and_then(|()| out.flush());
    told.expect("the measuring process outlives this one");
}

fn measured(arguments: &[&str]) -> Result<()> {
    match arguments {
        ["ours"] => {
            let installed = install()?;
            one_thread()?.block_on(answer(installed.push("bench")))
        }
        ["ours-multi"] => {
            let installed = install()?;
            let runtime = workers()?;
            runtime.block_on(runtime.spawn(answer(installed.push("bench"))))?
        }
        ["ours-blocking"] => {
            let installed = install()?;
            let mut handler = installed.push("bench");
            report_time(0);
            while let Some(notice) = handler.wait() {
                seen(notice);
            }
            Ok(())
        }
        ["ours-driven"] => {
            let builder = Interrupts::builder().debounce(Duration::ZERO);
            let (installed, driver) = builder.install_driven()?;
            one_thread()?.block_on(async {
                tokio::spawn(driver);
                answer(installed.push("bench")).await
            })
        }
        ["tokio"] => one_thread()?.block_on(listen()),
        ["tokio-multi"] => {
            let runtime = workers()?;
            runtime.block_on(runtime.spawn(listen()))?
        }
        ["floor"] => floor(),
        _ => Err("there is no such contender".into()),
    }
}

pub(crate) fn install() -> Result<Interrupts> {
    Ok(Interrupts::builder().debounce(Duration::ZERO).install()?)
}

/// Handles presses for ever.
pub(crate) async fn answer(mut handler: Handler) -> Result<()> {
    report_time(0);
    loop {
        seen(handler.notified().await);
    }
}

fn seen(notice: Notice) {
    let stamp = now();
    notice.handled();
    report_time(stamp);
}

/// Receives signals with tokio for ever.
pub(crate) async fn listen() -> Result<()> {
    let mut signals = signal(SignalKind::interrupt())?;
    report_time(0);
    while signals.recv().await.is_some() {
        report_time(now());
    }
    Ok(())
}

/// Receives signals for ever with a handler that only wakes a thread.
pub(crate) fn floor() -> Result<()> {
    let (reader, writer) = wake_pair()?;
    crate::sys::catch_sigint_into(writer)?;
    let reading = std::thread::spawn(move || {
        report_time(0);
        let mut eight = [0; 8];
        while let Ok(8) = rustix::io::read(&reader, &mut eight) {
            report_time(now());
        }
    });
    reading.join().map_err(|_| "the reading thread panicked")?;
    Ok(())
}

#[cfg(target_os = "linux")]
fn wake_pair() -> Result<(OwnedFd, OwnedFd)> {
    let writer = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
    Ok((writer.try_clone()?, writer))
}

#[cfg(not(target_os = "linux"))]
fn wake_pair() -> Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe()?)
}
