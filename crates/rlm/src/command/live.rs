//! Shared code of the commands for a live run: it finds the run, and reports its responses and missing responses.

use std::path::Path;
use std::time::Duration;

use loop_runner::control::{AskOutcome, LiveRun, Response, ResponseLimits};
use loop_state::Request;
use rlm_store::{Project, RunEntry, RunId, RunState};

use crate::command::select;
use crate::exit::{Code, Failure};
use crate::hint;
use crate::render::{self, RequestProgress, print};

pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);
/// The maximum number of characters that are shown of a response.
const SHOWN: usize = 1000;

/// Finds the run: the named one, or the only live one.
pub(crate) fn find(directory: &Path, name: Option<&str>) -> Result<LiveRun, Failure> {
    let here = Project::find(directory)?;
    let (project, entry) = select::live(here, name)?;
    live_run_of(project, entry.id)
}

/// Finds the run for `stop --force`. If the saved state is gone, finds the run by the process that holds the lock on the working tree.
pub(crate) fn find_for_force_stop(
    directory: &Path,
    name: Option<&str>,
) -> Result<LiveRun, Failure> {
    let failure = match find(directory, name) {
        Err(failure) => failure,
        found => return found,
    };
    let Ok(project) = Project::find_for_stop(directory) else {
        return Err(failure);
    };
    let is_several = failure.code == Code::Usage && project.runs().is_ok();
    let run = match name {
        // If the state is gone, no run has the name, but a process can.
        Some(name) => { select::run_id(&project, name).ok() }.or_else(|| name.parse().ok()),
        None if is_several => None,
        None => project.run_of_lock(),
    };
    let Some(run) = run.filter(|run| project.is_owned(run)) else {
        return Err(failure);
    };
    live_run_of(project, run)
}

/// Returns the run and its process; an error if this command runs inside that run.
fn live_run_of(project: Project, run: RunId) -> Result<LiveRun, Failure> {
    refuse_own_agent(&run)?;
    Ok(LiveRun::of(project, run))
}

/// Sends a request, and prints each response except the last one. Returns an error if the run is not live.
pub(crate) fn send_request(
    target: &LiveRun,
    request: &Request,
    json: bool,
    limits: ResponseLimits,
    mut on_answer: impl FnMut(&Response),
) -> Result<AskOutcome, Failure> {
    let received = target.ask(request, limits, |answer| {
        on_answer(answer);
        print_response(&target.run, request, answer, json);
    });
    match received? {
        AskOutcome::NotLive => Err(not_live(&target.project.run(&target.run)?)),
        received => Ok(received),
    }
}

pub(crate) fn print_response(run: &RunId, request: &Request, answer: &Response, json: bool) {
    let progress = RequestProgress {
        run,
        request,
        answer,
    };
    // A closed output is not an error here.
    let _gone = print(json, &progress);
}

/// Returns the run with the pid of its process, if that is known.
pub(crate) fn process(target: &LiveRun) -> String {
    match &target.holder {
        Some(holder) => format!("run `{}` (pid {})", target.run, holder.process.pid),
        None => format!("run `{}`", target.run),
    }
}

/// Returns the error for a process that doesn't respond to a request.
pub(crate) fn unresponsive(target: &LiveRun, wait: Duration) -> Failure {
    unresponsive_error(target, wait, "; the request may still be applied")
}

/// Returns the error for a process that doesn't respond to a query. A query changes nothing.
pub(crate) fn unresponsive_status(target: &LiveRun, wait: Duration) -> Failure {
    unresponsive_error(target, wait, "")
}

fn unresponsive_error(target: &LiveRun, wait: Duration, effect: &str) -> Failure {
    let (run, rlm) = (&target.run, hint::program_command());
    let waited = rlm_text::duration::show(ResponseLimits::new(wait).first());
    let holder = target.holder.as_ref();
    let kill = holder.map_or_else(String::new, |holder| {
        let pid = holder.process.pid;
        format!(", or kill -9 {pid}; then its guard ends the agent's processes")
    });
    let (why, fix) = match holder.filter(|holder| holder.process.is_suspended()) {
        Some(holder) => (
            "it is suspended",
            format!("{}; to end it: ", hint::continues(holder.process.pid)),
        ),
        None => ("it hangs, or its control socket was removed", String::new()),
    };
    Failure::failed(format!(
        "{} did not respond within {waited}: {why}{effect}. Fix: {fix}{rlm} stop {run} --force{kill}",
        process(target),
    ))
}

/// Returns the error for a refused request or an unexpected response.
pub(crate) fn request_error(run: &RunId, answer: &Response) -> Failure {
    let message = match answer {
        Response::Refused { reason: why } => {
            return Failure::usage(format!("run `{run}` refused the request: {}", shown(why)));
        }
        Response::Rejected { reason: why } => {
            format!("run `{run}` rejected the request: {}", shown(why))
        }
        Response::Unsupported { what } => {
            format!(
                "run `{run}` uses another version of rlm, which doesn't support this: {}",
                shown(what)
            )
        }
        Response::Malformed { reason: why } => {
            format!("run `{run}` can't read the request: {}", shown(why))
        }
        Response::Busy => format!("run `{run}` is busy with other requests; try again"),
        Response::RunEnded(ended) => format!(
            "run `{run}` ended before the request took effect: {}; a recorded request applies after {} resume {run}",
            shown(&ended.reason),
            hint::program_command()
        ),
        _ => format!("run `{run}` sent an unexpected response"),
    };
    Failure::failed(message)
}

pub(crate) fn process_gone(target: &LiveRun) -> Failure {
    Failure::failed(format!(
        "{} exited before it responded; a recorded request applies after {} resume {}",
        process(target),
        hint::program_command(),
        target.run
    ))
}

/// Refuses a request from inside the run before it is sent. If an agent removes the variable, the run itself refuses the request.
pub(crate) fn refuse_own_agent(run: &RunId) -> Result<(), Failure> {
    match std::env::var("RLM_RUN_ID") {
        Ok(outer) if outer == run.as_str() => Err(Failure::usage(format!(
            "this command runs inside the agent of run `{run}`, and an agent may not control its own run; use another terminal"
        ))),
        _ => Ok(()),
    }
}

/// Shortens and escapes the text of a response, because any process may listen at the socket.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(SHOWN).collect();
    rlm_text::escape::plain(&short)
}

/// Returns the error for a run that is not live, with the next command.
pub(crate) fn not_live(run: &RunEntry) -> Failure {
    let id = &run.id;
    let next = match run.state {
        RunState::Stopped | RunState::Crashed => {
            format!("to continue it: {} resume {id}", hint::program_command())
        }
        _ => format!("details: {} status {id}", hint::program_command()),
    };
    let state = render::state(run.state);
    Failure::not_found(format!("run `{id}` is not live: it is {state}; {next}"))
}
