//! Real agent CLIs: one fault of each score, with a scripted model. Apart from the other scores, because the faults come from the model or the lab here.

use std::time::Duration;

use rlm_tests::model::{Outcome, Request};
use rustix::process::Signal;

use crate::scene::{Job, Scene, Waited, tail};
use crate::{Cell, Lab, ScoreName};

/// The time limit of a part of a scene: an agent may need half a minute to start on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// The number of iterations that the tool is asked for.
const ITERATIONS: u32 = 3;
/// The number of iterations of a night: each of the two faults may cost an iteration.
const NIGHT_ITERATIONS: u32 = 6;
/// The message of the score `control`.
const MESSAGE: &str = "lab-message-7c1f";
/// The model's reply that makes the agent do a step.
const STEP: &str = "[[sh echo step >>{lab}/steps; echo step >>work.txt]]";

/// Plays the fault of a score.
pub(crate) fn cell(lab: Lab<'_>, score: ScoreName) -> Cell {
    match score {
        ScoreName::Stop => stop(lab),
        ScoreName::Resume => resume(lab),
        ScoreName::Done => done(lab),
        ScoreName::Night => night(lab),
        ScoreName::Control => control(lab),
    }
}

/// Sends SIGTERM while a command of the agent runs.
fn stop(lab: Lab<'_>) -> Cell {
    let name = "SIGTERM in a command";
    let script = "[[sh echo landed >>{lab}/landed; sleep 600]]";
    let scene = Scene::new(lab, &Job::endless(script, ITERATIONS));
    let mut tool = scene.start();
    let landed = scene.wait(&mut tool, LIMIT, || (scene.landed() > 0).then_some(()));
    if landed != Waited::Found(()) {
        return Cell::not_shown(name, "the agent ran no command");
    }
    tool.signal(Signal::TERM);
    let Waited::Ended = scene.wait(&mut tool, LIMIT, || None::<()>) else {
        return Cell::judged(name, 1, false, "the tool ignored the stop");
    };
    match scene.left() {
        left if left.is_empty() => Cell::judged(name, 1, true, ""),
        left => Cell::judged(name, 1, false, format!("alive: {}", left.join(", "))),
    }
}

/// Kills the tool while its second agent works, and starts the tool again.
fn resume(lab: Lab<'_>) -> Cell {
    let name = "kill -9 and a restart";
    if !lab.tool.takes_iterations() {
        return Cell::skipped(name, "the command has no {iterations}");
    }
    let scene = Scene::new(lab, &Job::endless(STEP, ITERATIONS));
    let mut tool = scene.start();
    let second = || (scene.steps() >= 1 && scene.lines("calls").len() >= 2).then_some(());
    if scene.wait(&mut tool, LIMIT, second) != Waited::Found(()) {
        return Cell::not_shown(name, "the tool started no second agent");
    }
    if let Err(why) = scene.kill(tool) {
        return Cell::not_shown(name, why);
    }
    let Some(ended) = scene.end(scene.restart(), LIMIT) else {
        return Cell::judged(name, 1, false, "the restarted tool has no end");
    };
    let (steps, overlaps) = (scene.steps(), scene.overlaps());
    // The kill may cost the iteration in flight.
    let is_kept = (ITERATIONS..=ITERATIONS + 1).contains(&steps) && overlaps == 0;
    let why = match is_kept {
        true => String::new(),
        false => format!(
            "{steps} instead of {ITERATIONS} steps; {overlaps} agents beside another one{}",
            tail(&ended)
        ),
    };
    Cell::judged(name, 1, is_kept, why)
        .figure("steps", steps)
        .figure("overlaps", overlaps)
}

/// The model says that the work is done, and does nothing.
fn done(lab: Lab<'_>) -> Cell {
    let name = "lying model";
    let scene = Scene::new(lab, &Job::two_steps("[[text {promise}]]", ITERATIONS));
    let ended = scene.end(scene.start(), LIMIT);
    if replies(&scene, Outcome::Sent) == 0 {
        return Cell::not_shown(name, "the agent asked for no reply");
    }
    let reports_done = ended.as_ref().is_some_and(|it| scene.reports_done(it));
    let why = match (&ended, reports_done) {
        (Some(ended), true) => format!("reported done after 0 of 2 steps{}", tail(ended)),
        _ => String::new(),
    };
    Cell::judged(name, 1, !reports_done, why)
}

/// The service drops a stream and refuses a request. The work must be finished all the same.
fn night(lab: Lab<'_>) -> Cell {
    let name = "dropped stream and 429";
    let script = format!("[[drop 3 1]][[status 429 1 1]]{STEP}");
    let scene = Scene::new(lab, &Job::two_steps(script, NIGHT_ITERATIONS));
    let ended = scene.end(scene.start(), LIMIT);
    let (dropped, refused) = (
        replies(&scene, Outcome::Dropped),
        replies(&scene, Outcome::Refused),
    );
    if dropped == 0 || refused == 0 {
        let why = format!("{dropped} streams were dropped, and {refused} requests were refused");
        return Cell::not_shown(name, why);
    }
    let reports_done = ended.as_ref().is_some_and(|it| scene.reports_done(it));
    let (steps, left) = (scene.steps(), scene.left());
    let is_kept = reports_done && steps >= 2 && left.is_empty();
    let how = ended.as_ref().map(tail).unwrap_or_default();
    let why = match is_kept {
        true => String::new(),
        false => format!("{steps} of 2 steps; alive: {}{how}", left.len()),
    };
    Cell::judged(name, dropped + refused, is_kept, why).figure("steps", steps)
}

/// Sends a message while the first agent works. A later request to the model must contain it.
fn control(lab: Lab<'_>) -> Cell {
    let name = "message reaches the model";
    if lab.tool.message.is_none() && !lab.tool.start.contains("{prompt}") {
        return Cell::skipped(name, "the tool has neither a message command nor {prompt}");
    }
    let scene = Scene::new(lab, &Job::endless(STEP, ITERATIONS));
    let mut tool = scene.start();
    let first = || (!scene.requests().is_empty()).then_some(());
    if scene.wait(&mut tool, LIMIT, first) != Waited::Found(()) {
        return Cell::not_shown(name, "the agent asked for no reply");
    }
    if let Err(why) = scene.send(MESSAGE) {
        return Cell::judged(name, 1, false, why);
    }
    let has = |request: &Request| request.last_user.contains(MESSAGE);
    let arrived = || scene.requests().iter().any(has).then_some(());
    match scene.wait(&mut tool, LIMIT, arrived) {
        Waited::Found(()) => Cell::judged(name, 1, true, ""),
        _ => Cell::judged(name, 1, false, "no request contains the message"),
    }
}

/// Returns the number of replies with this end.
fn replies(scene: &Scene<'_>, outcome: Outcome) -> u32 {
    let requests = scene.requests();
    let ended = requests.iter().filter(|it| it.outcome == Some(outcome));
    u32::try_from(ended.count()).unwrap_or(u32::MAX)
}
