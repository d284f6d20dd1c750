//! `rlm stop`: asks a run to end, waits until nothing of it is left, and forces that only where it was told to.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent_duplex::ProcessName;
use loop_runner::control::{Answer, Ended, Request, StopAfter};
use loop_runner::{RunEntry, RunState};
use serde_json::json;

use crate::args::{StopAfterArg, StopArgs};
use crate::command::live::{DEFAULT_WAIT, Outcome, Target};
use crate::exit::{Code, Failure};
use crate::render::{self, EndWords};

/// How long the run's process may take beyond the time it has for what it ends.
const MARGIN: Duration = Duration::from_secs(5);
/// How long a process may take to be gone that has said its last word, and its guards.
const GOING: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

pub(crate) fn execute(directory: &Path, args: &StopArgs) -> Result<ExitCode, Failure> {
    let target = Target::find(directory, args.run.as_deref())?;
    let after = match args.after {
        Some(StopAfterArg::Iteration) => StopAfter::Iteration,
        _ => StopAfter::Now,
    };
    let request = match args.now {
        true => Request::Abort,
        false => Request::Stop { after },
    };
    let wait = args.wait.unwrap_or(DEFAULT_WAIT);
    // Once it has begun it has as long as the run itself takes for it, unless somebody said how long.
    let longer = |answer: &Answer| match answer {
        Answer::Recorded {
            budget_ms: Some(budget),
            ..
        } if args.wait.is_none() => Some(Duration::from_millis(*budget) + MARGIN),
        _ => None,
    };
    match target.ask(&request, args.json, wait, longer)? {
        Outcome::Told(Answer::Ended(ended)) => gone(&target, Some(&ended), Form::of(args.json)),
        Outcome::Gone => gone(&target, None, Form::of(args.json)),
        Outcome::SoFar(_) if args.force => force(&target, wait, args.json),
        Outcome::SoFar(Some(_)) if after == StopAfter::Iteration => Ok(Code::Done.into()),
        Outcome::SoFar(None) => Err(target.silent(wait)),
        Outcome::SoFar(Some(_)) => Err(unstopped(&target)),
        Outcome::Told(answer) => Err(target.refusal(&answer)),
    }
}

/// For whom it is said how a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Words,
    /// The last answer to a request.
    Answer,
    /// The last event of the run.
    Event,
}

impl Form {
    fn of(json: bool) -> Self {
        if json { Self::Answer } else { Self::Words }
    }
}

/// Waits until nothing is left of a run whose process ends, and says how it ended.
pub(crate) fn gone(
    target: &Target,
    ended: Option<&Ended>,
    form: Form,
) -> Result<ExitCode, Failure> {
    let by = Instant::now() + GOING;
    let alive = || {
        let process = target.holder.as_ref().map(|holder| holder.process);
        process.is_some_and(|it| it.is_alive()) || target.is_live()
    };
    while alive() {
        if Instant::now() >= by {
            return Err(unstopped(target));
        }
        std::thread::park_timeout(POLL);
    }
    let mut left = target.project.left_of(&target.run);
    // What could not be ended stays; what guards are just ending does not.
    let hopeless = ended.is_some_and(|ended| !ended.survivors.is_empty());
    while !left.is_empty() && !hopeless && Instant::now() < by {
        std::thread::park_timeout(POLL);
        left = target.project.left_of(&target.run);
    }
    let survivors = ended.map_or(&[][..], |ended| &ended.survivors[..]);
    let named = survivors.iter().map(|it| ProcessName {
        pid: it.pid,
        name: it.name.clone(),
    });
    let mut all: Vec<ProcessName> = named.collect();
    let known = |pid| survivors.iter().any(|it| it.pid == pid);
    all.extend(left.into_iter().filter(|it| !known(it.pid)));
    let of = ended.map_or(0, |ended| ended.ended);
    let proven = ended.is_some_and(|ended| ended.proven);
    tell(target, of, &all, proven, form)
}

fn force(target: &Target, wait: Duration, json: bool) -> Result<ExitCode, Failure> {
    let forced = target.project.end_by_force(&target.run, wait);
    let forced = forced.map_err(|e| match e.is_nobody() {
        true => Failure::failed(format!(
                "it is not known which process has run `{}`: who it is was written in .rlm/holder.json, which is gone; \
                 look for it with: fuser .",
                target.run
            )),
        false => e.into(),
    })?;
    if !json && forced.killed {
        anstream::eprintln!(
            "{} did not go when it was asked to, and was killed",
            target.process()
        );
    }
    let form = Form::of(json);
    tell(target, forced.ended.len(), &forced.survivors, false, form)
}

/// Says how the run ended and what is left of it: from its saved state, and from what was seen.
fn tell(
    target: &Target,
    ended: usize,
    survivors: &[ProcessName],
    proven: bool,
    form: Form,
) -> Result<ExitCode, Failure> {
    let run = target.project.run(&target.run)?;
    if target.is_live() {
        return Err(unstopped(target));
    }
    let head = run.head.as_ref().ok();
    let usage = head.map_or_else(Default::default, |head| head.machine.usage);
    let uncommitted = head.and_then(|head| head.uncommitted.as_ref());
    let reason = head.and_then(|head| head.machine.end.as_ref());
    let reason = reason.map(|end| &end.reason);
    let words = EndWords {
        run: &run.id,
        reason,
        ended,
        left: survivors.len(),
        proven,
        usage,
        uncommitted,
    };
    let names: Vec<String> = survivors.iter().map(ToString::to_string).collect();
    let text = match form {
        Form::Answer => json!({
            "run": run.id,
            "answer": "gone",
            "state": run.state,
            "reason": reason.map(ToString::to_string),
            "left": survivors.len(),
            "of": survivors.len() + ended,
            "proven": proven,
            "survivors": names,
        })
        .to_string(),
        Form::Event => render::ended_elsewhere(&words, survivors),
        Form::Words => format!("{}: {words}", run.id),
    };
    // Who asked may not want to know.
    let _gone = writeln!(anstream::stdout(), "{text}");
    if survivors.is_empty() {
        return Ok(code(&run).into());
    }
    Err(Failure::new(
        Code::Survivors,
        format!(
            "could not end: {}; look at them with ps, and end them yourself",
            names.join(", ")
        ),
    ))
}

/// A run that came to an end of its own is stopped too; one that was killed is, and can be resumed.
fn code(run: &RunEntry) -> Code {
    match run.state {
        RunState::Damaged => Code::Failed,
        _ => Code::Done,
    }
}

fn unstopped(target: &Target) -> Failure {
    let (run, rlm) = (&target.run, render::rlm());
    let kill = target.holder.as_ref().map_or_else(String::new, |holder| {
        format!(
            ", or kill -9 {}, upon which its guard ends the agent's tree",
            holder.process.pid
        )
    });
    Failure::failed(format!(
        "{} has heard it and is not gone yet; wait, or: {rlm} stop {run} --force{kill}",
        target.process()
    ))
}
