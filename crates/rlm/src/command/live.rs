//! What the commands for a live run share: they find it, and put its answers and its silence into words.

use std::path::Path;
use std::time::Duration;

use loop_runner::control::{Answer, Asked, LiveRun, Patience};
use loop_state::Request;
use rlm_store::{Project, RunEntry, RunId, RunState};

use crate::command::meant;
use crate::exit::{Code, Failure};
use crate::hint;
use crate::render::{self, Told, print};

pub(crate) const DEFAULT_WAIT: Duration = Duration::from_secs(10);
/// The most characters of an answer's text that are shown.
const SHOWN: usize = 1000;

/// Finds the run that is meant: the named one, or the only one that is live.
pub(crate) fn find(directory: &Path, name: Option<&str>) -> Result<LiveRun, Failure> {
    let here = Project::find(directory)?;
    let (project, entry) = meant::live(here, name)?;
    of(project, entry.id)
}

/// The same for a run that is ended by force: whatever became of its state, the process that has its working tree counts.
pub(crate) fn find_by_force(directory: &Path, name: Option<&str>) -> Result<LiveRun, Failure> {
    let failure = match find(directory, name) {
        Err(failure) => failure,
        found => return found,
    };
    let Ok(project) = Project::find_to_stop(directory) else {
        return Err(failure);
    };
    let is_several = failure.code == Code::Usage && project.runs().is_ok();
    let run = match name {
        Some(name) => name.parse().ok(),
        None if is_several => None,
        None => project.owned_run(),
    };
    let Some(run) = run.filter(|run| project.is_owned(run)) else {
        return Err(failure);
    };
    of(project, run)
}

/// Names a run and the process that has it, unless this is inside that run.
fn of(project: Project, run: RunId) -> Result<LiveRun, Failure> {
    refuse_own_agent(&run)?;
    Ok(LiveRun::of(project, run))
}

/// Asks the run, and prints each answer that others follow. Fails when no process has the run.
pub(crate) fn asked(
    target: &LiveRun,
    request: &Request,
    json: bool,
    patience: Patience,
    mut on_answer: impl FnMut(&Answer),
) -> Result<Asked, Failure> {
    let asked = target.ask(request, patience, |answer| {
        on_answer(answer);
        say(target, request, answer, json);
    });
    match asked? {
        Asked::NotLive => Err(not_live(&target.project.run(&target.run)?)),
        asked => Ok(asked),
    }
}

pub(crate) fn say(target: &LiveRun, request: &Request, answer: &Answer, json: bool) {
    let run = &target.run;
    let told = Told {
        run,
        request,
        answer,
    };
    // Who asked may not want to know.
    let _gone = print(json, &told);
}

/// Names the process, as far as it is known.
pub(crate) fn process(target: &LiveRun) -> String {
    match &target.holder {
        Some(holder) => format!("run `{}` (pid {})", target.run, holder.process.pid),
        None => format!("run `{}`", target.run),
    }
}

/// Says that its process does not answer to what it was asked, and what to do.
pub(crate) fn silent(target: &LiveRun, wait: Duration) -> Failure {
    unheard(target, wait, "; what was asked may still come to be")
}

/// The same where nothing was asked that would come to be.
pub(crate) fn mute(target: &LiveRun, wait: Duration) -> Failure {
    unheard(target, wait, "")
}

fn unheard(target: &LiveRun, wait: Duration, asked: &str) -> Failure {
    let (run, rlm) = (&target.run, hint::rlm());
    let (cont, kill) = match &target.holder {
        Some(holder) => {
            let pid = holder.process.pid;
            (
                format!(" (kill -CONT {pid} if somebody did)"),
                format!(", or kill -9 {pid}, upon which its guard ends the agent's tree"),
            )
        }
        None => Default::default(),
    };
    Failure::failed(format!(
        "{} does not answer within {}: it stands still{cont}, hangs, or its socket was removed and can't be made again\
             {asked}. The mend: {rlm} stop {run} --force{kill}",
        process(target),
        rlm_text::duration::show(Patience::new(wait).first()),
    ))
}

/// Says why something did not come to be, and what an answer means that is none.
pub(crate) fn refusal(target: &LiveRun, answer: &Answer) -> Failure {
    let run = &target.run;
    let message = match answer {
        Answer::Refused { why } => {
            return Failure::usage(format!("run `{run}` refuses this: {}", shown(why)));
        }
        Answer::Rejected { why } => format!("run `{run}`: no: {}", shown(why)),
        Answer::Unsupported { what } => {
            format!(
                "the program of run `{run}` is another version and can't do that: {}",
                shown(what)
            )
        }
        Answer::Malformed { why } => format!("run `{run}` does not understand: {}", shown(why)),
        Answer::Busy => format!("too many ask run `{run}` at once; ask again"),
        Answer::Ended(ended) => format!(
            "run `{run}` is over before that came to be: {}; what was recorded is kept for {} resume {run}",
            shown(&ended.reason),
            hint::rlm()
        ),
        _ => format!("run `{run}` gives an answer to something else"),
    };
    Failure::failed(message)
}

pub(crate) fn gone(target: &LiveRun) -> Failure {
    Failure::failed(format!(
        "{} was gone before it said more; what was recorded is kept for {} resume {}",
        process(target),
        hint::rlm(),
        target.run
    ))
}

/// Refuses a request from inside the run before it is sent. One that removes the variable is refused by the run itself.
fn refuse_own_agent(run: &RunId) -> Result<(), Failure> {
    match std::env::var("RLM_RUN_ID") {
        Ok(outer) if outer == run.as_str() => Err(Failure::usage(format!(
            "this is inside run `{run}`, which its agent does not control: a person does, from another terminal"
        ))),
        _ => Ok(()),
    }
}

/// Makes the text of an answer short and harmless: whoever listens at the socket chose it.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(SHOWN).collect();
    rlm_text::escape::plain(&short)
}

/// Says that nobody has a run, and how it can be taken up.
pub(crate) fn not_live(run: &RunEntry) -> Failure {
    let id = &run.id;
    let mend = match run.state {
        RunState::Stopped | RunState::Crashed => {
            format!("go on with: {} resume {id}", hint::rlm())
        }
        _ => format!("look at it with: {} status {id}", hint::rlm()),
    };
    let state = render::state(run.state);
    Failure::not_found(format!(
        "nothing reached: no process has run `{id}`, it is {state}; {mend}"
    ))
}
