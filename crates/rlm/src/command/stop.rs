//! `rlm stop`: requests the stop of a run, waits until every process is gone, and with `--force` ends the process.

use std::path::Path;
use std::process::ExitCode;

use agent_duplex::ProcessName;
use loop_runner::control::{
    AskOutcome, EndReport, ForceCause, LiveRun, Response, ResponseLimits, StopOrForce,
};
use loop_state::{Request, StopTiming};
use rlm_store::{Holder, RunEntry, RunState};
use serde_json::json;

use crate::args::StopArgs;
use crate::command::live::{self, DEFAULT_WAIT, shown};
use crate::command::pick;
use crate::command::target::{self, Target};
use crate::exit::{Code, Failure};
use crate::hint;
use crate::output;
use crate::render::{self, EndWords};

pub(crate) fn execute(directory: &Path, args: &StopArgs) -> Result<ExitCode, Failure> {
    let run = pick::live(directory, !args.json, args.run.as_deref())?;
    if args.force {
        return by_force(directory, args, run.as_deref());
    }
    let mut target = match target::find(directory, run.as_deref())? {
        Target::Here(target) => *target,
        Target::Fleet(target) => return target.stop(args),
    };
    let after = args.after.unwrap_or_default();
    let request = match args.now {
        true => Request::Abort,
        false => Request::Stop { when: after },
    };
    let wait = args.wait.unwrap_or(DEFAULT_WAIT);
    let limits = ResponseLimits::new(wait);
    let limits = match args.wait {
        None => limits.or_budget(),
        Some(_) => limits,
    };
    let mut recorder = None;
    // Another process may have taken the run since `find`: wait for the process that recorded the request.
    let received = live::send_request(&target, &request, args.json, limits, |answer| {
        if matches!(answer, Response::Recorded { .. }) && recorder.is_none() {
            recorder = target.project.holder(&target.run);
        }
    })?;
    if let Some(holder) = recorder {
        target.holder = Some(holder);
    }
    match received {
        AskOutcome::Final(Response::RunEnded(ended)) => {
            process_gone(&target, Some(&ended), EndFormat::of(args.json))
        }
        AskOutcome::TimedOut(Some(_)) if after == StopTiming::AfterIteration => {
            Ok(Code::Done.into())
        }
        AskOutcome::TimedOut(None) => Err(live::unresponsive(&target, wait)),
        AskOutcome::TimedOut(Some(_)) => Err(unstopped(&target)),
        AskOutcome::Final(answer) => Err(live::request_error(&target.run, &answer)),
        _ => process_gone(&target, None, EndFormat::of(args.json)),
    }
}

/// The format in which the end of a run is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndFormat {
    Text,
    /// The last response to a request.
    Response,
    /// The last event of the run.
    Event,
}

impl EndFormat {
    fn of(json: bool) -> Self {
        if json { Self::Response } else { Self::Text }
    }
}

/// Waits until every process of an ending run is gone, and prints how it ended.
fn process_gone(
    target: &LiveRun,
    ended: Option<&EndReport>,
    form: EndFormat,
) -> Result<ExitCode, Failure> {
    print_end(target, ended, wait_for_processes(target, ended)?, form)
}

/// Waits until the process of an ending run is gone, with all that it started. Returns the processes that are left.
pub(crate) fn wait_for_processes(
    target: &LiveRun,
    ended: Option<&EndReport>,
) -> Result<Vec<ProcessName>, Failure> {
    target.await_end(ended).ok_or_else(|| unstopped(target))
}

/// Prints how a run ended, and the processes that are left.
pub(crate) fn print_end(
    target: &LiveRun,
    ended: Option<&EndReport>,
    left: Vec<ProcessName>,
    form: EndFormat,
) -> Result<ExitCode, Failure> {
    let survivors = ended.map_or(&[][..], |ended| &ended.survivors[..]);
    let named = survivors.iter().map(|it| ProcessName {
        pid: it.pid,
        name: it.name.clone(),
    });
    let mut all: Vec<ProcessName> = named.collect();
    let known = |pid| survivors.iter().any(|it| it.pid == pid);
    all.extend(left.into_iter().filter(|it| !known(it.pid)));
    let seen = ProcessEnd {
        reason: ended.map(|ended| ended.reason.as_str()),
        ended: ended.map_or(0, |ended| ended.ended_processes),
        survivors: &all,
        proven: ended.is_some_and(|ended| ended.proven),
    };
    print_result(target, &seen, form)
}

/// The observed end of a run's process.
struct ProcessEnd<'a> {
    /// The stop reason that the process reported.
    reason: Option<&'a str>,
    ended: usize,
    survivors: &'a [ProcessName],
    proven: bool,
}

/// Requests a stop, and ends the process by force if it is not gone in time.
fn by_force(directory: &Path, args: &StopArgs, run: Option<&str>) -> Result<ExitCode, Failure> {
    let wait = args.wait.unwrap_or(DEFAULT_WAIT);
    let mut target = live::find_for_force_stop(directory, run)?;
    let (requested, stop) = (
        target.clone(),
        Request::Stop {
            when: StopTiming::Now,
        },
    );
    let on_answer =
        |answer: &Response| live::print_response(&requested.run, &stop, answer, args.json);
    let on_force = |target: &LiveRun, cause: ForceCause| {
        if !args.json && !matches!(cause, ForceCause::Refused) {
            let (process, why) = (live::process(target), why(target, cause));
            anstream::eprintln!("{process}: {}; ending it by force", shown(&why));
        }
    };
    let ended = target.stop_or_force(wait, on_answer, on_force);
    let forced = match ended {
        Ok(StopOrForce::Forced(forced)) => forced,
        Ok(StopOrForce::Stopped(ended)) => {
            return process_gone(&target, ended.as_ref(), EndFormat::of(args.json));
        }
        Ok(_) => return process_gone(&target, None, EndFormat::of(args.json)),
        Err(e) if e.is_not_running() => {
            return Err(Failure::failed(format!(
                "no process of run `{}` is known: no process holds the lock on its working tree; look for remaining processes with: ps -ef",
                target.run
            )));
        }
        Err(e) => return Err(e.into()),
    };
    let stays = target.holder.as_ref().filter(|it| it.process.is_alive());
    if let Some(holder) = stays {
        let pid = holder.process.pid;
        return Err(Failure::failed(format!(
            "{} was killed but still exists: the kernel holds it; inspect it with: ps -fp {pid}",
            live::process(&target)
        )));
    }
    if !args.json && forced.killed {
        anstream::eprintln!(
            "{} did not exit after SIGTERM, and was killed",
            live::process(&target)
        );
    }
    let seen = ProcessEnd {
        reason: None,
        ended: forced.ended.len(),
        survivors: &forced.survivors,
        proven: false,
    };
    print_result(&target, &seen, EndFormat::of(args.json))
}

/// Explains why a run is ended by force.
fn why(target: &LiveRun, cause: ForceCause) -> String {
    let why = match cause {
        ForceCause::Alive => "the run reported its end, but its process is alive",
        ForceCause::Silent => "no response",
        ForceCause::Slow => "it has not exited yet",
        ForceCause::NotLive => match target.project.run(&target.run) {
            Ok(run) => return live::not_live(&run).message,
            Err(e) => return Failure::from(e).message,
        },
        ForceCause::Failed(e) if e.is_other_version() => "it is another version of rlm",
        ForceCause::Failed(e) => return Failure::from(e).message,
        _ => "it does not stop on request",
    };
    why.to_owned()
}

/// Prints how the run ended and what is left of it, from its saved state and from the observed end.
fn print_result(
    target: &LiveRun,
    seen: &ProcessEnd<'_>,
    form: EndFormat,
) -> Result<ExitCode, Failure> {
    let run = match target.project.run(&target.run) {
        Err(e) if form != EndFormat::Event => {
            let state = match e.is_not_found() {
                true => "its saved state was removed".to_owned(),
                false => unreadable(&e.to_string()),
            };
            return print_without_state(target, seen, form, &state);
        }
        run => run?,
    };
    let is_live = target.is_live();
    // Check this last: a process that takes over a run first records itself, so a successor is not missed.
    match target.successor() {
        Some(successor) if form != EndFormat::Event => {
            return print_resumed_since(&run, seen, &successor, form);
        }
        _ if is_live => return Err(unstopped(target)),
        _ => {}
    }
    if let (Err(e), true) = (&run.head, form != EndFormat::Event) {
        return print_without_state(target, seen, form, &unreadable(e));
    }
    let &ProcessEnd {
        ended,
        survivors,
        proven,
        ..
    } = seen;
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
    let text = match form {
        EndFormat::Response => render::json_line(&json!({
            "run": run.id,
            "response": "process_gone",
            "state": run.state,
            "reason": reason.map(ToString::to_string),
            "left": survivors.len(),
            "of": survivors.len() + ended,
            "proven": proven,
            "survivors": names(survivors),
        })),
        EndFormat::Event => render::ended_elsewhere(&words, survivors),
        EndFormat::Text => format!("{}: {words}", run.id),
    };
    output::line(&text);
    ended_but(survivors, code(&run))
}

fn unreadable(why: &str) -> String {
    format!("its saved state can't be read: {}", shown(why))
}

/// Prints the end of a run whose saved state was removed or can't be read.
fn print_without_state(
    target: &LiveRun,
    seen: &ProcessEnd<'_>,
    form: EndFormat,
    state: &str,
) -> Result<ExitCode, Failure> {
    let run = &target.run;
    let left = seen.survivors.len();
    let of = left + seen.ended;
    let text = match form {
        EndFormat::Text => format!(
            "{run}: its process is gone; {}; {state}",
            render::left(left, of, seen.proven)
        ),
        _ => json!({
            "run": run,
            "response": "process_gone",
            "state": RunState::Damaged,
            "reason": null,
            "left": left,
            "of": of,
            "proven": seen.proven,
            "survivors": names(seen.survivors),
        })
        .to_string(),
    };
    output::line(&text);
    ended_but(seen.survivors, Code::Done)
}

/// Prints how the process ended if another process has taken the run over since, because the saved state now belongs to that process.
fn print_resumed_since(
    run: &RunEntry,
    seen: &ProcessEnd<'_>,
    successor: &Holder,
    form: EndFormat,
) -> Result<ExitCode, Failure> {
    let (id, pid) = (&run.id, successor.process.pid);
    let left = seen.survivors.len();
    let of = left + seen.ended;
    let text = match form {
        EndFormat::Response => render::json_line(&json!({
            "run": id,
            "response": "process_gone",
            "state": run.state,
            "reason": seen.reason,
            "left": left,
            "of": of,
            "proven": seen.proven,
            "survivors": names(seen.survivors),
            "since_then": pid,
        })),
        _ => format!(
            "{id}: {}; {}; pid {pid} has resumed it since: {} status {id}",
            rlm_text::escape::plain(seen.reason.unwrap_or(render::KILLED)),
            render::left(left, of, seen.proven),
            hint::program_command(),
        ),
    };
    output::line(&text);
    ended_but(seen.survivors, Code::Done)
}

fn names(processes: &[ProcessName]) -> Vec<String> {
    processes.iter().map(ToString::to_string).collect()
}

/// Returns the exit code `code`, or the one for survivors if there are any.
fn ended_but(survivors: &[ProcessName], code: Code) -> Result<ExitCode, Failure> {
    if survivors.is_empty() {
        return Ok(code.into());
    }
    Err(Failure::new(
        Code::Survivors,
        format!(
            "could not end: {}; inspect them with ps, and end them yourself",
            names(survivors).join(", ")
        ),
    ))
}

/// Returns success for every ended run, except damaged ones: a killed run is stopped too, and can be resumed.
fn code(run: &RunEntry) -> Code {
    match run.state {
        RunState::Damaged => Code::Failed,
        _ => Code::Done,
    }
}

fn unstopped(target: &LiveRun) -> Failure {
    let (run, rlm) = (&target.run, hint::program_command());
    let alive = target.holder.as_ref().filter(|it| it.process.is_alive());
    let kill = alive.map_or_else(String::new, |holder| {
        format!(
            ", or kill -9 {}; then its guard ends the agent's processes",
            holder.process.pid
        )
    });
    Failure::failed(format!(
        "{} received the request but has not exited yet; wait, or: {rlm} stop {run} --force{kill}",
        live::process(target)
    ))
}
