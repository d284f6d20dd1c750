//! Resume: a crash costs at most the iteration in flight, and two resumes never work at once.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use fs_err as fs;
use rlm_tests::{Running, poll_until};

use crate::random::Random;
use crate::scene::{Effort, Job, Scene, Waited, step, tail};
use crate::{Cell, Lab};

/// The time limit for two iterations, and for all iterations.
const LIMIT: Duration = Duration::from_secs(45);
/// The duration of an iteration of the agent, in milliseconds.
const WORK: u64 = 100;
/// The duration of an iteration during which the tool is killed and started again, in milliseconds.
const LONG_WORK: u64 = 10_000;
/// The latest moment of a kill, after the second step since the start.
const LATEST: u64 = 300;
/// The steps that the tool must make between two kills. A tool that begins again from zero then repeats more than one iteration for each kill.
const BETWEEN: u32 = 2;
/// The number of resumes that start at the same moment.
const RACERS: usize = 8;
/// The number of iterations of the history with a torn write.
const TORN_ITERATIONS: u32 = 7;
/// The steps before the kill of the history with a torn write.
const TORN_AFTER: u32 = 4;
/// The number of files of which the last write is torn, each in a history of its own.
const TORN_FILES: usize = 3;
/// The bytes that a torn write loses.
const TORN_BYTES: u64 = 9;

/// The cells of one history with kills at random moments.
const KILLS: [&str; 2] = ["iterations lost", "iterations done twice"];
const AT_ONCE: &str = "two agents at once";
const RACE: &str = "eight racing resumes";
const TORN: &str = "torn last write";

const NO_COUNT: &str = "the command has no {iterations}";

/// Returns the number of kills.
fn kills(lab: Lab<'_>) -> u32 {
    match lab.effort {
        Effort::Quick => 3,
        Effort::Full => 12,
    }
}

/// The counts of a history with kills.
#[derive(Debug, Default)]
struct History {
    kills: u32,
    steps: u32,
    /// The reason why the history has no regular end.
    end: Option<String>,
}

/// Kills the tool at random moments, and starts it again each time.
pub(crate) fn killed(lab: Lab<'_>) -> Vec<Cell> {
    let kills = kills(lab);
    // The tool must still have work after the last kill, also if each kill costs an iteration.
    let iterations = (BETWEEN + 2) * kills + 2;
    let scene = Scene::new(lab, &Job::endless(step("", WORK), iterations));
    let history = history(&scene, kills);
    let why = history.end.as_deref().unwrap_or("it ended by itself");
    let [lost_name, twice_name] = KILLS;
    if history.kills == 0 {
        return { KILLS.iter() }
            .map(|name| Cell::not_shown(name, format!("no kill hit the tool; {why}")))
            .collect();
    }
    let (lost, twice) = (
        iterations.saturating_sub(history.steps),
        history.steps.saturating_sub(iterations),
    );
    let counted = |name: &str, count: u32, allowed: u32| {
        if !lab.tool.takes_iterations() {
            return Cell::skipped(name, NO_COUNT);
        }
        let is_kept = count <= allowed && history.end.is_none();
        let text = match (&history.end, count) {
            (Some(why), _) => format!("{count} of {iterations}; {why}"),
            (None, 0) => String::new(),
            (None, _) => format!("{count} of {iterations}, in {} kills", history.kills),
        };
        Cell::judged(name, history.kills, is_kept, text)
            .figure("iterations", iterations)
            .figure("steps", history.steps)
            .figure("kills", history.kills)
    };
    vec![
        counted(lost_name, lost, 0).figure("lost", lost),
        counted(twice_name, twice, history.kills).figure("twice", twice),
    ]
}

fn history(scene: &Scene<'_>, kills: u32) -> History {
    let mut random = Random::new(scene.lab().seed);
    let mut history = History::default();
    let (mut tool, mut before) = (scene.start(), 0);
    for number in 0..kills {
        let goal = scene.steps() + BETWEEN;
        match scene.wait(&mut tool, LIMIT, || (scene.steps() >= goal).then_some(())) {
            Waited::Found(()) => {}
            Waited::Ended => break,
            Waited::Late | Waited::Outgrown => {
                history.end = Some("the loop made no further step".into());
                scene.kill_all();
                break;
            }
        }
        let delay = Duration::from_millis(random.below(LATEST));
        if poll_until(delay, || tool.has_ended().then_some(())).is_some() {
            break;
        }
        let is_alive = || (!scene.agents_alive().is_empty()).then_some(());
        // Half of the kills hit any moment. The others wait for the next agent, which a tool may start seldom.
        if number % 2 == 0 {
            let _any = scene.wait(&mut tool, LIMIT, is_alive);
        }
        // The lost iterations count against a tool that ends by itself.
        if tool.has_ended() {
            break;
        }
        if let Err(why) = scene.kill(tool) {
            // The rest of this history is unknown, so it shows nothing.
            return History {
                end: Some(why),
                ..History::default()
            };
        }
        history.kills += 1;
        before = scene.steps();
        tool = scene.restart();
    }
    if history.end.is_none() {
        history.end = finish(scene, tool, before);
    }
    history.steps = scene.steps();
    history
}

/// Lets the tool work to its end. `before` is the number of steps at its start. Returns a reason if it does not come there.
fn finish(scene: &Scene<'_>, mut tool: Running, before: u32) -> Option<String> {
    if !scene.lab().tool.takes_iterations() {
        // Such a tool has no end: two further steps show how it continues.
        let goal = scene.steps() + BETWEEN;
        let _any = scene.wait(&mut tool, LIMIT, || (scene.steps() >= goal).then_some(()));
        scene.kill_all();
        return None;
    }
    match scene.end(tool, LIMIT) {
        None => Some(format!("no end within {} s", LIMIT.as_secs())),
        Some(ended) if scene.steps() == before => {
            Some(format!("the restart made no step{}", tail(&ended)))
        }
        Some(_) => None,
    }
}

/// Kills the tool while its agent works for a long time, and starts the tool again. The next agent must work alone.
pub(crate) fn overlap(lab: Lab<'_>) -> Cell {
    let script = format!("@1 delay {LONG_WORK}\n{}", step("@2..", WORK));
    let scene = Scene::new(lab, &Job::endless(script, 2));
    let mut tool = scene.start();
    let is_alive = || (!scene.agents_alive().is_empty()).then_some(());
    if scene.wait(&mut tool, LIMIT, is_alive) != Waited::Found(()) {
        return Cell::not_shown(AT_ONCE, "the agent did not start");
    }
    if let Err(why) = scene.kill(tool) {
        return Cell::not_shown(AT_ONCE, why);
    }
    let mut tool = scene.restart();
    // The record of a start comes after the receipt of an overlap.
    let second = || (scene.start_count() >= 2).then_some(());
    if scene.wait(&mut tool, LIMIT, second) != Waited::Found(()) {
        return Cell::not_shown(AT_ONCE, "the restart started no agent");
    }
    match scene.overlaps() {
        0 => Cell::judged(AT_ONCE, 1, true, ""),
        _ => Cell::judged(
            AT_ONCE,
            1,
            false,
            "the next agent began while the first one was alive",
        ),
    }
}

/// Kills the tool in its only iteration, and starts eight resumes at the same moment. Together they must do the work once.
pub(crate) fn race(lab: Lab<'_>) -> Cell {
    let script = format!("@1 hang\n{}", step("@2..", 300));
    let job = Job {
        steps: 1,
        ..Job::endless(script, 1)
    };
    let scene = Scene::new(lab, &job);
    let mut tool = scene.start();
    let begun = scene.wait(&mut tool, LIMIT, || {
        (!scene.agents_alive().is_empty()).then_some(())
    });
    if begun != Waited::Found(()) {
        return Cell::not_shown(RACE, "the agent did not start");
    }
    if let Err(why) = scene.kill(tool) {
        return Cell::not_shown(RACE, why);
    }
    scene.kill_all(); // an agent that outlived its tool belongs to another cell
    let racers = match scene.race(RACERS) {
        Ok(racers) => racers,
        Err(ready) => return Cell::not_shown(RACE, format!("only {ready} resumes were ready")),
    };
    let has_end = lab.tool.takes_iterations() || lab.tool.takes_check();
    let limit = match has_end {
        true => LIMIT,
        false => Duration::from_secs(3),
    };
    let mut racers = racers;
    let ended = poll_until(limit, || {
        let ended = racers
            .iter_mut()
            .filter_map(|it| it.has_ended().then_some(()));
        (ended.count() == RACERS).then_some(())
    });
    scene.kill_all();
    let (steps, overlaps) = (scene.steps(), scene.overlaps());
    let is_kept = match has_end {
        true => steps == 1 && overlaps == 0 && ended.is_some(),
        false => overlaps == 0,
    };
    let why = match (is_kept, ended) {
        (true, _) => String::new(),
        (false, None) if has_end => format!("{steps} effects; some resumes did not end"),
        (false, _) => {
            format!("{steps} effects; {overlaps} agents began while another one was alive")
        }
    };
    Cell::judged(RACE, 1, is_kept, why)
        .figure("effects", steps)
        .figure("overlaps", overlaps)
}

/// Kills the tool, shortens a file that it wrote last, and starts it again.
pub(crate) fn torn(lab: Lab<'_>) -> Cell {
    if !lab.tool.takes_iterations() {
        return Cell::skipped(TORN, NO_COUNT);
    }
    // Without a torn write, the same history shows whether the tool continues at all.
    match history_with_kill(lab, |_, _| Ok(None)) {
        Torn::Continued => {}
        Torn::NotShown(why) => return Cell::not_shown(TORN, why),
        Torn::Broken(why) => {
            return Cell::skipped(TORN, format!("also without a torn write{why}"));
        }
        Torn::NoFile => return Cell::skipped(TORN, "the tool keeps no file"),
    }
    let (mut landed, mut bad, mut other) = (0, Vec::new(), None);
    let mut torn = Vec::new();
    for _ in 0..TORN_FILES {
        match history_with_kill(lab, |scene, begun| tear(scene, begun, &mut torn)) {
            Torn::Continued => landed += 1,
            Torn::Broken(why) => {
                landed += 1;
                bad.push(why);
            }
            Torn::NoFile => {}
            Torn::NotShown(why) => other = Some(why),
        }
    }
    match (landed, other) {
        (0, Some(why)) => Cell::not_shown(TORN, why),
        (0, None) => Cell::skipped(TORN, "the tool keeps no file"),
        (landed, _) => {
            let why = match bad.as_slice() {
                [] => format!("torn: {}", torn.join(", ")),
                bad => bad.join("; "),
            };
            Cell::judged(TORN, landed, bad.is_empty(), why)
        }
    }
}

/// The result of a torn write.
enum Torn {
    Continued,
    Broken(String),
    /// The tool has no such file.
    NoFile,
    NotShown(String),
}

/// Plays a history with a kill, and with `damage` before the restart. `damage` returns the damaged file.
fn history_with_kill(
    lab: Lab<'_>,
    damage: impl FnOnce(&Scene<'_>, SystemTime) -> Result<Option<String>, Torn>,
) -> Torn {
    let scene = Scene::new(lab, &Job::endless(step("", WORK), TORN_ITERATIONS));
    let begun = SystemTime::now();
    let mut tool = scene.start();
    let before = scene.wait(&mut tool, LIMIT, || {
        (scene.steps() >= TORN_AFTER).then_some(())
    });
    if before != Waited::Found(()) {
        return Torn::NotShown("the loop did not make enough steps".into());
    }
    if let Err(why) = scene.kill(tool) {
        return Torn::NotShown(why);
    }
    scene.kill_all(); // a survivor would write into the torn file
    let name = match damage(&scene, begun) {
        Ok(name) => name.unwrap_or_default(),
        Err(torn) => return torn,
    };
    let Some(ended) = scene.end(scene.restart(), LIMIT) else {
        return Torn::Broken(format!("{name}: no end within {} s", LIMIT.as_secs()));
    };
    // The iteration in flight and the iteration of the torn write may be repeated.
    let steps = scene.steps();
    match (TORN_ITERATIONS..=TORN_ITERATIONS + 2).contains(&steps) {
        true => Torn::Continued,
        false => Torn::Broken(format!(
            "{name}: {steps} instead of {TORN_ITERATIONS} iterations{}",
            tail(&ended)
        )),
    }
}

/// Shortens the file that was written last and is not in the list yet.
fn tear(
    scene: &Scene<'_>,
    begun: SystemTime,
    torn: &mut Vec<String>,
) -> Result<Option<String>, Torn> {
    let mut files = state_files(scene, begun);
    files.sort_by_key(|(_, written)| std::cmp::Reverse(*written));
    let name = |file: &Path| kind(file.strip_prefix(scene.sandbox.path()).unwrap_or(file));
    let mut others = { files.iter() }.filter(|(file, _)| !torn.contains(&name(file)));
    let (file, _) = others.next().ok_or(Torn::NoFile)?;
    let name = name(file);
    torn.push(name.clone());
    shorten(file).map_err(|error| Torn::NotShown(format!("{name}: {error}")))?;
    Ok(Some(name))
}

/// Cuts the last bytes of a file off.
fn shorten(path: &Path) -> std::io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    let length = file.metadata()?.len();
    let rest = length.saturating_sub(TORN_BYTES).max(length / 2);
    file.set_len(rest)?;
    let now = file.metadata()?.len();
    match now < length {
        true => Ok(()),
        false => Err(std::io::Error::other("the file was not shortened")),
    }
}

/// Returns the path without the names that differ from history to history, such as the id of a run.
fn kind(path: &Path) -> String {
    let parts = path.iter().map(|part| {
        let part = part.to_string_lossy();
        match part.contains(|character: char| character.is_ascii_digit()) {
            true => "*".into(),
            false => part.into_owned(),
        }
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Returns the files that the tool wrote, with the times of their last writes. Skips empty files, git's files, and the files of the lab.
fn state_files(scene: &Scene<'_>, begun: SystemTime) -> Vec<(PathBuf, SystemTime)> {
    let (repo, home) = (scene.sandbox.repo(), scene.sandbox.home());
    let ours = [repo.join("work.txt"), scene.prompt(), repo.join(".git")];
    let mut found = Vec::new();
    let mut folders = vec![repo, home, scene.sandbox.path().join("run")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(about) = fs::symlink_metadata(&path) else {
                continue;
            };
            if ours.contains(&path) {
                continue;
            }
            if about.is_dir() {
                folders.push(path);
            } else if about.is_file()
                && about.len() > 0
                && let Ok(written) = about.modified()
                && written >= begun
            {
                found.push((path, written));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_two_runs_have_the_same_kind() {
        let of = |path: &str| kind(Path::new(path));
        assert_eq!(of("repo/.x/runs/20-7f/journal"), "repo/.x/runs/*/journal");
        assert_eq!(of("repo/.x/runs/21-00/journal"), "repo/.x/runs/*/journal");
    }
}
