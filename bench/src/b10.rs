//! B10: what the loop adds to a trivial agent, an iteration, and whether that grows.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{
    Contender, Outcome, Progress, Result, Role, Sample, Series, Turn, in_turn, pause, summarise,
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
const SYNCS: &str = "its syncs";
const QUANTITY: &str = "one iteration";
/// The loop runner that can be told to loop around any command.
const RUNNER: &str = "ralphify";
const RUNNER_SCRIPT: &str = include_str!("../peers/ralphify.py");
/// The other loop runners that are looked for; each needs a model or a setup of its own, so that none is measured unasked.
const PEERS: [&str; 4] = ["ralph", "ralphex", "autoloop", "ralph-tui"];
/// Between two looks at the memory of a loop.
const LOOK: Duration = Duration::from_millis(50);

/// What is known of a loop that ran.
#[derive(Debug, Default)]
struct Looked {
    /// How many of its iterations were complete, and what was resident then, in KiB.
    resident: Vec<(f64, f64)>,
    saves: f64,
}

fn run(plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let Some(rlm) = rlm_or_skip(outcome) else {
        return Ok(());
    };
    let sizes: &[(usize, &'static str)] = plan.scale.pick(
        &[(100, "100"), (1000, "1,000"), (5000, "5,000")],
        &[(30, "30"), (150, "150")],
        &[(2, "2")],
    );
    let rounds = plan.scale.pick(5, 2, 1);
    let mut seen = Looked::default();
    let mut last = None;
    let has_runner = runner(&plan.scratch, 0)
        .map_err(|why| outcome.skip(RUNNER, &why))
        .is_ok();
    for &(count, label) in sizes {
        let progress = Progress::of(format!("b10 {label}"));
        // The largest one is long enough to be believed at once.
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
                5.0,
                "ms an iteration",
            )
            .about(format!("{QUANTITY}, {label}"), OURS);
    }
    judge_growth(outcome);
    judge_memory(&seen, outcome);
    for peer in PEERS {
        let why: &dyn std::fmt::Display = match in_path(peer) {
            true => &"it is there, and can't be told to loop around `true`",
            false => &"not installed",
        };
        outcome.skip(peer, why);
    }
    outcome.notes.push(format!(
        "{:.1} saves an iteration, each synced; no git calls: the loop runs outside a repository; {RUNNER} keeps nothing on disk",
        seen.saves
    ));
    Ok(())
}

/// Returns what an iteration of ours takes that neither the shell's nor the syncs do, in the median of the rounds.
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

/// An iteration of a long loop takes as long as one of a short loop.
fn judge_growth(outcome: &mut Outcome) {
    let median = |series: &Series| Some(series.get(OURS)?.summary()?.median);
    let (Some(first), Some(last)) = (outcome.series.first(), outcome.series.last()) else {
        return;
    };
    let grown = median(last)
        .zip(median(first))
        .map(|(last, first)| last / first);
    let what = format!("{OURS}, {} over {}", last.title(), first.title());
    let title = last.title();
    outcome.at_most(&what, grown, 1.2, "×").about(title, OURS);
}

fn judge_memory(seen: &Looked, outcome: &mut Outcome) {
    let most = { seen.resident.iter() }
        .map(|(_, kib)| *kib)
        .fold(0.0, f64::max);
    outcome.at_most(
        "resident memory",
        (most > 0.0).then_some(most / 1024.0),
        20.0,
        "MiB",
    );
    // The first third makes its caches.
    let end = seen.resident.last().map_or(0.0, |(at, _)| *at);
    let late: Vec<_> = { seen.resident.iter() }
        .filter(|(at, _)| *at >= end / 3.0)
        .collect();
    let grown = match (late.first(), late.last()) {
        (Some((from, before)), Some((to, after))) if to > from => {
            Some((after - before) / (to - from))
        }
        _ => None,
    };
    outcome.at_most(
        "growth of the resident memory",
        grown,
        0.1,
        "KiB an iteration",
    );
}

/// Runs our loop and returns the milliseconds of an iteration.
fn ours(rlm: &Path, dir: &Path, count: usize) -> Result<(f64, Looked)> {
    make_place(dir)?;
    let work = dir.join("work");
    let begun = Instant::now();
    let mut child = command_in(dir, rlm)
        .args(["run", "--sleep", "0", "--prompt", "x", "-n"])
        .arg(count.to_string())
        .args(["--", "/bin/true"])
        .spawn()?;
    let mut looked = Looked::default();
    while child.try_wait()?.is_none() {
        if let Some(kib) = resident(child.id()) {
            looked.resident.push((transcripts(&work) as f64, kib));
        }
        pause(LOOK);
    }
    let took = begun.elapsed();
    expect_success(&child.wait_with_output()?)?;
    looked.saves = saves(&work).unwrap_or_default() / count as f64;
    fs_err::remove_dir_all(dir)?;
    Ok((each(took, count), looked))
}

/// What is resident now, in KiB.
fn resident(pid: u32) -> Option<f64> {
    status_of(pid, "VmRSS:")
}

/// The most that ever was resident, in KiB.
pub(crate) fn peak(pid: u32) -> Option<f64> {
    status_of(pid, "VmHWM:")
}

fn status_of(pid: u32, key: &str) -> Option<f64> {
    let status = fs_err::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
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

/// Returns the number of the last save, which is in the name of the sealed state.
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

/// The loop that people write first.
fn shell(count: usize) -> Result<f64> {
    let text = format!("i=0; while [ $i -lt {count} ]; do echo x | /bin/true; i=$((i + 1)); done");
    let begun = Instant::now();
    let status = Command::new("bash")
        .args(["-c", &text])
        .stdin(Stdio::null())
        .status()?;
    if !status.success() {
        return Err(status.to_string().into());
    }
    Ok(each(begun.elapsed(), count))
}

/// Another loop runner, which keeps nothing on disk.
fn runner(scratch: &Path, count: usize) -> Result<f64> {
    let (home, folder) = (scratch.join("home"), scratch.join("b10-runner"));
    fs_err::create_dir_all(&folder)?;
    fs_err::write(folder.join("RALPH.md"), "---\nagent: /bin/true\n---\nx\n")?;
    let mut command = peers::python(RUNNER_SCRIPT, &home)?;
    command.arg("b10-runner").arg(count.to_string());
    let begun = Instant::now();
    let ended = command
        .current_dir(scratch)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()?;
    let took = begun.elapsed();
    expect_success(&ended)?;
    Ok(each(took, count))
}

/// Appends and syncs as much as our saves do, two an iteration.
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

/// Finds the program that is measured: beside this one, or where a variable says.
pub(crate) fn find_rlm() -> Option<PathBuf> {
    let named = std::env::var_os("BENCH_RLM").map(PathBuf::from);
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("rlm"));
    named.or_else(beside).filter(|path| path.is_file())
}

/// Finds the program as [`find_rlm`] does, and reports a skip when it is not there.
pub(crate) fn rlm_or_skip(outcome: &mut Outcome) -> Option<PathBuf> {
    let found = find_rlm();
    if found.is_none() {
        let why = "it is not beside this program; `cargo xtask bench` puts it there";
        outcome.skip("rlm", &why);
    }
    found
}

/// Makes the directories `home` and `work` in `dir`.
pub(crate) fn make_place(dir: &Path) -> Result<()> {
    fs_err::create_dir_all(dir.join("home"))?;
    fs_err::create_dir_all(dir.join("work"))?;
    Ok(())
}

/// Returns a command that runs in `work` of `dir`, with `home` and the path as its environment. Only its errors are read.
pub(crate) fn command_in(dir: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(dir.join("work"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir.join("home"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Fails with what a program has said unless it succeeded.
pub(crate) fn expect_success(ended: &Output) -> Result<()> {
    match ended.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&ended.stderr);
            Err(format!("{}: {}", ended.status, said.trim()).into())
        }
    }
}

/// Returns the milliseconds of one of `count` iterations.
pub(crate) fn each(took: Duration, count: usize) -> f64 {
    took.as_secs_f64() * 1e3 / count.max(1) as f64
}

fn in_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}
