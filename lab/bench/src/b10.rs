//! B10: the time that the loop adds to each iteration of a trivial agent, and its growth.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{
    Contender, Outcome, Progress, Result, Role, Sample, Series, Turn, in_turn, pause, slope,
    summarise,
};
use crate::programs::{
    command_in, expect_success, is_in_path, make_place, resident_kib, rlm_or_skip, timed,
};
use crate::{Bench, Plan, peers};

pub(crate) const BENCH: Bench = Bench {
    id: "b10",
    title: "a loop around `true`",
    run,
    measured: None,
};

const OURS: &str = "rlm run";
const SHELL: &str = "bash while loop";
const SYNCS: &str = "syncs of our saves";
const QUANTITY: &str = "one iteration";
/// The loop runner that works with any command.
const RUNNER: &str = "ralphify";
const RUNNER_SCRIPT: &str = include_str!("../peers/ralphify.py");
/// The other loop runners that the bench looks for. It measures none of them, because each needs a model or its own setup.
const PEERS: [&str; 4] = ["ralph", "ralphex", "autoloop", "ralph-tui"];
/// The time between two measurements of the memory of a loop.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);

/// The measurements of a loop.
#[derive(Debug, Default)]
struct LoopResult {
    /// The number of complete iterations, and the resident memory at that moment, in KiB.
    resident: Vec<(f64, f64)>,
    saves: f64,
}

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let Some(rlm) = rlm_or_skip(OURS, outcome) else {
        return Ok(());
    };
    let sizes: &[(usize, &'static str)] = plan.scale.pick(
        &[(100, "100"), (1000, "1,000"), (5000, "5,000")],
        &[(30, "30"), (150, "150")],
        &[(2, "2")],
    );
    let rounds = plan.scale.pick(5, 2, 1);
    let mut seen = LoopResult::default();
    let mut last = None;
    let has_runner = runner(&plan.scratch, 0)
        .map_err(|why| outcome.skip(RUNNER, &why))
        .is_ok();
    for &(count, label) in sizes {
        let progress = Progress::of(format!("b10 {label}"));
        // The largest size is long enough to be measured only once.
        let rounds = if count > 1000 { 1 } else { rounds };
        let mut turns = vec![
            Turn::new(OURS, Role::Ours, |round| {
                let dir = plan.scratch.join(format!("b10-{count}-{round}"));
                let (took, looked) = ours(&rlm, &dir, count)?;
                seen = looked;
                Ok(Some(took))
            })
            .within(Duration::from_secs(900)),
            Turn::new(SHELL, Role::Peer, |_| shell(count).map(Some)),
            Turn::new(SYNCS, Role::Floor, |_| {
                syncs(&plan.scratch, count).map(Some)
            }),
        ];
        if has_runner && rounds > 1 {
            let turn = Turn::new(RUNNER, Role::Peer, |_| {
                runner(&plan.scratch, count).map(Some)
            });
            turns.push(turn.within(Duration::from_secs(40)));
        }
        let found = in_turn(0..rounds, turns, &progress)?;
        if count >= 1000 || plan.scale != crate::harness::Scale::Full {
            last = Some((found.clone(), label));
        }
        outcome
            .series
            .push(Series::new(QUANTITY, "ms", found).sized(count as f64, label));
    }
    if let Some((found, label)) = last {
        let added = added(&found);
        outcome
            .at_most(
                &format!("{OURS} over {SHELL} and {SYNCS}, {label}"),
                added,
                2.0,
                "ms per iteration",
            )
            .about(format!("{QUANTITY}, {label}"), OURS);
    }
    judge_growth(outcome);
    let progress = Progress::of("b10 memory");
    progress.show(|| "running".into());
    let count = plan.scale.pick(10_000, 300, 2);
    judge_memory(
        &ours(&rlm, &plan.scratch.join("b10-memory"), count)?.1,
        outcome,
    );
    for peer in PEERS {
        let why: &dyn std::fmt::Display = match is_in_path(peer) {
            true => &"it is installed, but can't loop around `true`",
            false => &"not installed",
        };
        outcome.skip(peer, why);
    }
    outcome.notes.push(format!(
        "{:.1} saves per iteration, each synced; no git calls: the loop runs outside a repository; {RUNNER} saves nothing on disk",
        seen.saves
    ));
    Ok(())
}

/// Returns the time of one of our iterations minus those of the shell and the syncs, as the median of the rounds.
fn added(found: &[Contender]) -> Option<f64> {
    let of = |name: &str, round: usize| {
        let contender = found.iter().find(|it| it.name == name)?;
        { contender.samples.iter() }
            .find(|it| it.round == round)
            .map(|it| it.value)
    };
    let ours = &found.iter().find(|it| it.name == OURS)?.samples;
    let added: Vec<Sample> = { ours.iter() }
        .filter_map(|&Sample { round, value }| {
            let value = value - of(SHELL, round)? - of(SYNCS, round)?;
            Some(Sample { round, value })
        })
        .collect();
    Some(summarise(&added)?.median)
}

/// Judges whether an iteration of a long loop takes as long as one of a short loop.
fn judge_growth(outcome: &mut Outcome) {
    let (Some(first), Some(last)) = (outcome.series.first(), outcome.series.last()) else {
        return;
    };
    let grown = last
        .median(OURS)
        .zip(first.median(OURS))
        .map(|(last, first)| last / first);
    let what = format!("{OURS}, {} over {}", last.title(), first.title());
    let title = last.title();
    outcome.at_most(&what, grown, 1.2, "×").about(title, OURS);
}

fn judge_memory(seen: &LoopResult, outcome: &mut Outcome) {
    let most = { seen.resident.iter() }
        .map(|(_, kib)| *kib)
        .fold(0.0, f64::max);
    outcome.at_most(
        "resident memory",
        (most > 0.0).then_some(most / 1024.0),
        20.0,
        "MiB",
    );
    // The first third fills the caches. A line through all later points, because a single one can be in the middle of a save.
    let end = seen.resident.last().map_or(0.0, |(at, _)| *at);
    let late: Vec<_> = { seen.resident.iter() }
        .filter(|(at, _)| *at >= end / 3.0)
        .copied()
        .collect();
    let grown = slope(&late);
    outcome.at_most(
        "growth of the resident memory",
        grown,
        0.1,
        "KiB per iteration",
    );
}

/// Runs our loop and returns the milliseconds for each iteration.
fn ours(rlm: &Path, dir: &Path, count: usize) -> Result<(f64, LoopResult)> {
    make_place(dir)?;
    let work = dir.join("work");
    let begun = Instant::now();
    let mut child = command_in(dir, rlm)
        .args(["run", "--sleep", "0", "--prompt", "x", "-n"])
        .arg(count.to_string())
        .args(["--", "/bin/true"])
        .spawn()?;
    let mut looked = LoopResult::default();
    while child.try_wait()?.is_none() {
        if let Some(kib) = resident_kib(child.id()) {
            looked.resident.push((transcripts(&work) as f64, kib));
        }
        pause(SAMPLE_INTERVAL);
    }
    let took = begun.elapsed();
    expect_success(&child.wait_with_output()?)?;
    looked.saves = saves(&work).unwrap_or_default() / count as f64;
    fs_err::remove_dir_all(dir)?;
    Ok((each(took, count), looked))
}

/// Returns the directory of the only run.
fn run_dir(work: &Path) -> Option<PathBuf> {
    let runs = fs_err::read_dir(work.join(".rlm/runs")).ok()?;
    runs.filter_map(|run| Some(run.ok()?.path())).next()
}

fn transcripts(work: &Path) -> usize {
    let there = run_dir(work).and_then(|run| fs_err::read_dir(run.join("transcripts")).ok());
    there.map_or(0, Iterator::count)
}

/// Returns the number of the last save, which is in the name of the last phase file.
pub(crate) fn saves(work: &Path) -> Option<f64> {
    let files = fs_err::read_dir(run_dir(work)?).ok()?;
    let seq = |name: &str| {
        let digits = name.strip_prefix("phase-")?.strip_suffix(".ckpt")?;
        u64::from_str_radix(digits, 16).ok()
    };
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    names
        .filter_map(|name| seq(&name))
        .max()
        .map(|seq| seq as f64)
}

/// Runs a minimal loop in bash.
fn shell(count: usize) -> Result<f64> {
    let text = format!("i=0; while [ $i -lt {count} ]; do echo x | /bin/true; i=$((i + 1)); done");
    let took = timed(
        Command::new("bash")
            .args(["-c", &text])
            .stdin(Stdio::null()),
    )?;
    Ok(each(took, count))
}

/// Runs another loop runner, which saves nothing on disk.
fn runner(scratch: &Path, count: usize) -> Result<f64> {
    let (home, folder) = (scratch.join("home"), scratch.join("b10-runner"));
    fs_err::create_dir_all(&folder)?;
    fs_err::write(folder.join("RALPH.md"), "---\nagent: /bin/true\n---\nx\n")?;
    let mut command = peers::python(RUNNER_SCRIPT, &home)?;
    command.arg("b10-runner").arg(count.to_string());
    command
        .current_dir(scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Ok(each(timed(&mut command)?, count))
}

/// Appends and syncs as much as our saves do, twice for each iteration.
pub(crate) fn syncs(dir: &Path, count: usize) -> Result<f64> {
    let path = dir.join("b10-syncs");
    let mut file = fs_err::File::create(&path)?;
    let begun = Instant::now();
    for _ in 0..count * 2 {
        file.write_all(&[1; 700])?;
        file.sync_data()?;
    }
    let took = begun.elapsed();
    fs_err::remove_file(path)?;
    Ok(each(took, count))
}

/// Returns the milliseconds of one of `count` iterations.
pub(crate) fn each(took: Duration, count: usize) -> f64 {
    took.as_secs_f64() * 1e3 / count.max(1) as f64
}
