//! Runs of many iterations, and a long transcript.

use std::path::Path;
use std::time::Duration;

use loop_state::simulate::{SimulatedTurn, Simulation};
use loop_state::{Effect, Head, ResumeOptions, TimedInput};
use rlm_store::journal::Journal;
use rlm_store::{Project, RunHead};

use super::place::{Place, copy_all};
use crate::harness::{
    Outcome, Plan, Progress, Result, Role, Scale, Series, Turn, in_turn, now, one_thread,
};
use crate::programs::{read_all, timed};
use crate::scripted_agent;

const STATUS: &str = "rlm status";
const RESUME: &str = "rlm resume";
const REPORT: &str = "rlm report";
const FILES: &str = "reading the files of the run";
const COMMANDS: &str = "a command on a run of many iterations";
const LOGS: &str = "rlm logs --tail 20";
const TAIL: &str = "tail -n 20";
/// A simulated turn takes so long.
const TURN: Duration = Duration::from_secs(30);

/// Returns the numbers of iterations, with their labels.
pub(super) fn sizes(scale: Scale) -> Vec<(u32, &'static str)> {
    let all = [(1_000, "1,000"), (10_000, "10,000"), (100_000, "100,000")];
    match scale {
        Scale::Full => all.to_vec(),
        Scale::Quick => all[..2].to_vec(),
        Scale::Tiny => vec![(10, "10")],
    }
}

/// Measures commands on a run of `count` iterations. The run is simulated after its first iteration, but saved as `rlm` saves it.
pub(super) fn iterations(
    place: &Place,
    count: u32,
    label: &'static str,
    plan: &Plan,
    outcome: &mut Outcome,
) -> Result<()> {
    let progress = Progress::of(format!("b18 {label} iterations"));
    progress.show(|| "saving".into());
    let stamp = place.dir.join("stamp");
    let agent = scripted_agent::words(&["stamp", &stamp.to_string_lossy()])?;
    let run = ["run", "-n", "1", "--sleep", "0", "--prompt", "x", "--"];
    timed(place.rlm(&run).args(agent))?;
    let run_dir = place.run_dir()?;
    let grown = place.dir.join("grown");
    copy_all(&run_dir, &grown)?;
    grow(&run_dir, &grown, count)?;
    let restore = || -> Result<()> {
        fs_err::remove_dir_all(&run_dir)?;
        copy_all(&grown, &run_dir)
    };
    restore()?;
    let limit = (count + 1).to_string();
    let turns = vec![
        Turn::new(STATUS, Role::Ours, |_| place.time(&["status"]).map(Some)),
        Turn::new(REPORT, Role::Ours, |_| {
            place.time(&["report", "--force"]).map(Some)
        }),
        Turn::new(RESUME, Role::Ours, |_| {
            restore()?;
            fs_err::remove_file(&stamp)?;
            let begun = now();
            timed(&mut place.rlm(&["resume", "-n", &limit]))?;
            let stamped: u64 = fs_err::read_to_string(&stamp)?.parse()?;
            // The resume ended the run.
            restore()?;
            Ok(Some((stamped - begun) as f64 / 1e6))
        }),
        Turn::new(FILES, Role::Floor, |_| {
            let begun = now();
            read_all(&run_dir)?;
            Ok(Some((now() - begun) as f64 / 1e6))
        }),
    ];
    let rounds = plan.scale.pick(15, 3, 1);
    let found = in_turn(0..rounds, turns, &progress)?;
    let series = Series::new(COMMANDS, "ms", found).sized(f64::from(count), label);
    outcome.series.push(series);
    Ok(())
}

pub(super) fn judge_iterations(outcome: &mut Outcome) {
    // In a short run of the bench, this is a smaller run.
    let largest = { outcome.series.iter() }
        .rfind(|it| it.quantity == COMMANDS)
        .cloned();
    for (name, limit) in [(STATUS, 50.0), (RESUME, 200.0), (REPORT, 2000.0)] {
        let median = largest.as_ref().and_then(|series| series.median(name));
        let title = largest.as_ref().map_or_else(String::new, Series::title);
        let what = format!("{name}, {title}");
        outcome
            .at_most(&what, median, limit, "ms")
            .about(title, name);
    }
}

/// Replaces the files of a run by those of a run with many iterations that crashed in the next one. The saves are written to a file system in memory, if
/// there is one, because a sync of each would take minutes.
fn grow(run_dir: &Path, files: &Path, count: u32) -> Result<()> {
    let memory = Path::new("/dev/shm");
    let scratch = match memory.is_dir() {
        true => tempfile::tempdir_in(memory)?,
        false => tempfile::tempdir()?,
    };
    let name = run_dir.file_name().and_then(|name| name.to_str());
    let run = name.ok_or("a run without a name")?.parse()?;
    let project = Project::find(scratch.path())?;
    let copy = project.run_dir(&run);
    let ended = checkpoint_store::reader::load::<RunHead, TimedInput>(files)?;
    let ended = ended.head.ok_or("the run has no state")?;
    let mut rules = ended.machine.rules;
    rules.phases[0].limits.max_iterations = Some(u32::MAX);
    let mut head = RunHead::new(run, Head::new(rules)?, ended.settings);
    (head.prompts, head.scope) = (ended.prompts, ended.scope);
    let (mut journal, _) = Journal::open(&project, &head.run, true)?;
    let agent = |_: &_, _: &mut _| SimulatedTurn::completed().takes(TURN);
    let simulation = |limit| {
        let mut machine = head.machine.clone();
        machine.rules.phases[0].limits.max_iterations = Some(limit);
        Simulation::from_head(machine, ResumeOptions::default())
    };
    let inputs = simulation(count).max_inputs(u32::MAX).run(0, agent).inputs;
    let endless = simulation(u32::MAX).max_inputs(inputs);
    let runtime = one_thread()?;
    let mut failed = None;
    endless.run_observed(0, agent, |input, effects, machine| {
        if !input.what.is_transient() {
            journal.note(input.clone());
        }
        if effects.contains(&Effect::Save) {
            head.machine = machine.clone();
            let saved = runtime.block_on(journal.save(&head));
            failed = failed.take().or(saved.err());
        }
    });
    drop(journal);
    copy_all(&files.join("blobs"), &copy.join("blobs"))?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    fs_err::remove_dir_all(files)?;
    copy_all(&copy, files)
}

/// Measures the end of a long transcript.
pub(super) fn transcript(place: &Place, plan: &Plan, outcome: &mut Outcome) -> Result<()> {
    let (bytes, label) = plan.scale.pick(
        (1_000_000_000_u64, "1 GB"),
        (20_000_000, "20 MB"),
        (20_000, "20 KB"),
    );
    let progress = Progress::of(format!("b18 {label} of output"));
    progress.show(|| "writing".into());
    let text = format!("yes 'a line of output of an agent, as long as usual' | head -c {bytes}");
    let run = ["run", "-n", "1", "--prompt", "x", "--", "sh", "-c", &text];
    timed(&mut place.rlm(&run))?;
    let transcripts = place.run_dir()?.join("transcripts");
    let mut files = fs_err::read_dir(&transcripts)?;
    let file = files.next().ok_or("there is no transcript")??.path();
    outcome.notes.push(format!(
        "the transcript of {label} of output has {:.0} MB",
        fs_err::metadata(&file)?.len() as f64 / 1e6
    ));
    let turns = vec![
        Turn::new(LOGS, Role::Ours, |_| {
            place.time(&["logs", "--tail", "20"]).map(Some)
        }),
        Turn::new(TAIL, Role::Floor, |_| {
            let mut tail = std::process::Command::new("tail");
            let took = timed(tail.args(["-n", "20"]).arg(&file))?;
            Ok(Some(took.as_secs_f64() * 1e3))
        }),
    ];
    let rounds = plan.scale.pick(20, 5, 1);
    let found = in_turn(0..rounds, turns, &progress)?;
    let series = Series::new("the end of a transcript", "ms", found).sized(bytes as f64, label);
    let median = series.median(LOGS);
    let what = format!("{LOGS}, {label} of output");
    outcome
        .at_most(&what, median, 50.0, "ms")
        .about(series.title(), LOGS);
    outcome.series.push(series);
    Ok(())
}
