//! B9: the start and the end of a program, with a small and a large parent.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_subprocess::{Containment, Marker, StopPolicy, TreeCommand, WarmGuard};
use tokio::runtime::Runtime;

use crate::harness::{
    Bench, Outcome, Plan, Progress, Result, Role, Series, Turn, find, in_turn, join, one_thread,
    paired_ratio,
};
use crate::scripted_agent::PLAYED;
use crate::sys::spawn_and_wait;

pub(crate) const BENCH: Bench = Bench {
    id: "b9",
    title: "spawn and exit of `true`",
    run,
    measured: None,
};

const FLOOR: &str = "posix_spawn";
const TWO: &str = "posix_spawn, twice";
/// The lowest possible cost of a guard that is this program.
const SELF: &str = "posix_spawn, this program and `true`";
const BARE: &str = "Agent without a guard";
const GUARDED: &str = "Agent under a guard";
/// The guard was started before, and waits.
const WARM: &str = "Agent under a warm guard";
const QUANTITY: &str = "spawn to exit";
const GONE: &str = "spawn to the end of the stop";
const PROGRAM: &str = "/bin/true";
/// The maximum time for the start of a warm guard.
const WARM_UP: Duration = Duration::from_secs(10);

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let sizes = plan.scale.pick(
        [(10, "10 MiB"), (1024, "1 GiB")],
        [(10, "10 MiB"), (256, "256 MiB")],
        [(1, "1 MiB"), (2, "2 MiB")],
    );
    let (groups, rounds) = plan.scale.pick((5, 100), (2, 20), (1, 2));
    let mut found: Vec<Series> = Vec::new();
    let runtime = one_thread()?;
    let own = std::env::current_exe()?;
    let own = own.to_str().ok_or("a path that is not text")?;
    for group in 0..groups {
        for (mib, label) in sizes {
            let progress = Progress::of(format!("b9 {label}, {}/{groups}", group + 1));
            // The memory is written, so that it is resident, and lives until the samples are taken.
            let resident = vec![1_u8; mib << 20];
            let range = group * rounds..(group + 1) * rounds;
            let turns = vec![
                Turn::new(BARE, Role::Ours, |_| agent(&runtime, Start::Bare, false)),
                Turn::new(WARM, Role::Ours, |_| agent(&runtime, Start::Warm, false)),
                Turn::new(GUARDED, Role::Ours, |_| {
                    agent(&runtime, Start::Guarded, false)
                }),
                Turn::new("std Command", Role::Peer, |_| timed(with_std)),
                Turn::new("tokio Command, output", Role::Peer, |_| {
                    with_tokio(&runtime)
                }),
                Turn::new(TWO, Role::Floor, |_| timed(twice)),
                Turn::new(SELF, Role::Peer, |_| {
                    timed(|| {
                        spawn_and_wait(&[own, PLAYED, "nothing"])?;
                        spawn_and_wait(&[PROGRAM])
                    })
                }),
                Turn::new(FLOOR, Role::Floor, |_| timed(|| spawn_and_wait(&[PROGRAM]))),
            ];
            let spawned = in_turn(range.clone(), turns, &progress)?;
            let turns = vec![
                Turn::new(BARE, Role::Ours, |_| agent(&runtime, Start::Bare, true)),
                Turn::new(WARM, Role::Ours, |_| agent(&runtime, Start::Warm, true)),
                Turn::new(GUARDED, Role::Ours, |_| {
                    agent(&runtime, Start::Guarded, true)
                }),
                Turn::new(TWO, Role::Floor, |_| timed(twice)),
            ];
            let ended = in_turn(range, turns, &progress)?;
            drop(std::hint::black_box(resident));
            for (quantity, contenders) in [(QUANTITY, spawned), (GONE, ended)] {
                let later = Series::new(quantity, "µs", contenders).sized(mib as f64, label);
                join(&mut found, later);
            }
        }
    }
    judge(&found, sizes.map(|(_, label)| label), outcome);
    outcome.series.extend(found);
    outcome.notes.push(
        "ours makes pipes for both outputs and reads them to their end; the floor makes none"
            .into(),
    );
    Ok(())
}

fn judge(found: &[Series], [small, large]: [&'static str; 2], outcome: &mut Outcome) {
    let samples = |label, name| Some(&find(found, QUANTITY, label)?.get(name)?.samples);
    let over = |(one, other): (&Vec<_>, &Vec<_>)| paired_ratio(one, other);
    for label in [small, large] {
        let bare = samples(label, BARE)
            .zip(samples(label, FLOOR))
            .and_then(over);
        outcome
            .at_most(&format!("{BARE}, {label}"), bare, 1.15, "× posix_spawn")
            .about(format!("{QUANTITY}, {label}"), BARE);
        let warm = samples(label, WARM)
            .zip(samples(label, BARE))
            .and_then(over);
        outcome
            .at_most(&format!("{WARM}, {label}"), warm, 1.15, "× without a guard")
            .about(format!("{QUANTITY}, {label}"), WARM);
        let guarded = samples(label, GUARDED)
            .zip(samples(label, TWO))
            .and_then(over);
        outcome
            .at_most(&format!("{GUARDED}, {label}"), guarded, 1.5, "× two spawns")
            .about(format!("{QUANTITY}, {label}"), GUARDED);
    }
    for name in [BARE, WARM, GUARDED] {
        let grown = samples(large, name)
            .zip(samples(small, name))
            .and_then(over);
        let floor = samples(large, FLOOR)
            .zip(samples(small, FLOOR))
            .and_then(over);
        outcome
            .at_most(
                &format!("{name}, parent of {large} over {small}"),
                grown,
                1.15,
                "×",
            )
            .about(format!("{QUANTITY}, {large}"), name);
        if let Some(floor) = floor {
            outcome.notes.push(format!(
                "{FLOOR}, parent of {large} over {small}: {floor:.2} ×"
            ));
        }
    }
}

fn timed(work: impl FnOnce() -> std::io::Result<()>) -> Result<Option<f64>> {
    let begun = Instant::now();
    work()?;
    Ok(Some(begun.elapsed().as_secs_f64() * 1e6))
}

fn twice() -> std::io::Result<()> {
    spawn_and_wait(&[PROGRAM])?;
    spawn_and_wait(&[PROGRAM])
}

fn with_std() -> std::io::Result<()> {
    Command::new(PROGRAM)
        .stdin(Stdio::null())
        .status()
        .map(drop)
}

fn with_tokio(runtime: &Runtime) -> Result<Option<f64>> {
    let _inside = runtime.enter();
    timed(|| {
        runtime
            .block_on(tokio::process::Command::new(PROGRAM).output())
            .map(drop)
    })
}

#[derive(Clone, Copy)]
enum Start {
    Bare,
    Guarded,
    Warm,
}

/// Spawns the program and waits for its exit; with `stop`, the time includes the stop.
fn agent(runtime: &Runtime, start: Start, stop: bool) -> Result<Option<f64>> {
    runtime.block_on(async {
        let marker = Marker {
            variable: "RLM_BENCH".to_owned(),
            scope: "b9".to_owned(),
            member: "1".to_owned(),
        };
        let warm = WarmGuard::new(&marker.scope);
        if matches!(start, Start::Warm) {
            warm.want();
            wait_until_it_waits(&warm)?;
        }
        let containment = match start {
            Start::Bare => Containment::Group,
            Start::Guarded | Start::Warm => Containment::Guard,
        };
        let begun = Instant::now();
        let mut command = TreeCommand::new(PROGRAM)
            .containment(containment)
            .marker(marker);
        if matches!(start, Start::Warm) {
            command = command.warm_guard(&warm);
        }
        let mut agent = command.spawn().await?;
        let exit = agent.wait().await;
        let mut took = begun.elapsed();
        let report = agent.stop(&StopPolicy::kill()).await;
        if stop {
            took = begun.elapsed();
        }
        // A guard that is not reaped yet would take time from the next measurement.
        warm.close().await;
        if exit.code != Some(0) || !report.survivors.is_empty() {
            return Err(format!("{exit}; {report}").into());
        }
        Ok(Some(took.as_secs_f64() * 1e6))
    })
}

/// Waits until the guard sleeps under its own name: then it waits for its program.
fn wait_until_it_waits(warm: &WarmGuard) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < WARM_UP {
        let stat = warm.pid().map(|pid| format!("/proc/{pid}/stat"));
        let stat = stat.and_then(|path| fs_err::read_to_string(path).ok());
        if stat.is_some_and(|stat| stat.contains("(agent-guard) S")) {
            return Ok(());
        }
        std::thread::yield_now();
    }
    Err("no warm guard waits".into())
}
