//! `rlm stop`: asks a run to end, waits until nothing of it is left, and forces that only where it was told to.

use std::cell::OnceCell;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use agent_duplex::ProcessName;
use loop_runner::control::{Answer, Ended, end_by_force};
use loop_state::{Request, When, times};
use rlm_store::{Holder, RunEntry, RunState};
use serde_json::json;

use crate::args::StopArgs;
use crate::command::live::{DEFAULT_WAIT, Outcome, Target, shown};
use crate::exit::{Code, Failure};
use crate::hint;
use crate::output;
use crate::render::{self, EndWords};

const POLL: Duration = Duration::from_millis(20);

pub(crate) fn execute(directory: &Path, args: &StopArgs) -> Result<ExitCode, Failure> {
    if args.force {
        return by_force(directory, args);
    }
    let mut target = Target::find(directory, args.run.as_deref())?;
    let after = args.after.unwrap_or_default();
    let request = match args.now {
        true => Request::Abort,
        false => Request::Stop { after },
    };
    let wait = args.wait.unwrap_or(DEFAULT_WAIT);
    let heard = OnceCell::new();
    // Who hears it may have taken the run up while it was looked for.
    let hears = || target.project.holder(&target.run);
    // Once it has begun it has as long as the run itself takes for it, unless somebody said how long.
    let longer = |answer: &Answer| match answer {
        Answer::Recorded { budget_ms, .. } => {
            heard.get_or_init(hears);
            let budget = budget_ms.filter(|_| args.wait.is_none());
            budget.map(|budget| Duration::from_millis(budget) + times::STOP_MARGIN)
        }
        _ => None,
    };
    let outcome = target.ask(&request, args.json, wait, longer)?;
    if let Some(holder) = heard.into_inner().flatten() {
        target.holder = Some(holder);
    }
    match outcome {
        Outcome::Told(Answer::Ended(ended)) => gone(&target, Some(&ended), Form::of(args.json)),
        Outcome::Gone => gone(&target, None, Form::of(args.json)),
        Outcome::SoFar(Some(_)) if after == When::AfterIteration => Ok(Code::Done.into()),
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
fn gone(target: &Target, ended: Option<&Ended>, form: Form) -> Result<ExitCode, Failure> {
    over(target, ended, left(target, ended)?, form)
}

/// Waits until nothing is left of a run whose process ends; returns what is there all the same. Whoever takes the run up meanwhile is not waited for:
/// guards hold the working tree until nothing is left of what was before.
pub(crate) fn left(target: &Target, ended: Option<&Ended>) -> Result<Vec<ProcessName>, Failure> {
    let by = Instant::now() + times::PROCESS_EXIT;
    let alive = || {
        let process = target.holder.as_ref().map(|holder| holder.process);
        process.is_some_and(|it| it.is_alive()) || target.is_live()
    };
    while alive() && target.successor().is_none() {
        if Instant::now() >= by {
            return Err(unstopped(target));
        }
        std::thread::park_timeout(POLL);
    }
    let mut left = target.project.left_of(&target.run);
    // What could not be ended stays; what guards are just ending does not.
    let hopeless = ended.is_some_and(|ended| !ended.survivors.is_empty());
    while !left.is_empty() && !hopeless && Instant::now() < by && target.successor().is_none() {
        std::thread::park_timeout(POLL);
        left = target.project.left_of(&target.run);
    }
    match target.successor() {
        // What carries the run's mark is that one's.
        Some(_) => Ok(Vec::new()),
        None => Ok(left),
    }
}

/// Says how a run ended that is over, and what is left of it.
pub(crate) fn over(
    target: &Target,
    ended: Option<&Ended>,
    left: Vec<ProcessName>,
    form: Form,
) -> Result<ExitCode, Failure> {
    let survivors = ended.map_or(&[][..], |ended| &ended.survivors[..]);
    let named = survivors.iter().map(|it| ProcessName {
        pid: it.pid,
        name: it.name.clone(),
    });
    let mut all: Vec<ProcessName> = named.collect();
    let known = |pid| survivors.iter().any(|it| it.pid == pid);
    all.extend(left.into_iter().filter(|it| !known(it.pid)));
    let seen = Seen {
        reason: ended.map(|ended| ended.reason.as_str()),
        ended: ended.map_or(0, |ended| ended.ended),
        survivors: &all,
        proven: ended.is_some_and(|ended| ended.proven),
    };
    tell(target, &seen, form)
}

/// What was seen of the end of a run's process.
struct Seen<'a> {
    /// What that said of it.
    reason: Option<&'a str>,
    ended: usize,
    survivors: &'a [ProcessName],
    proven: bool,
}

/// Asks the run to stop, and ends its process whatever the answer is, all within one deadline. Only the kernel's word counts for its end.
fn by_force(directory: &Path, args: &StopArgs) -> Result<ExitCode, Failure> {
    let wait = args.wait.unwrap_or(DEFAULT_WAIT);
    let by = Instant::now() + wait;
    let mut target = Target::find_by_force(directory, args.run.as_deref())?;
    let first = (wait / 2).clamp(times::FORCE_LEAST, times::FORCE_ANSWER);
    let stop = Request::Stop { after: When::Now };
    let asked = target.ask_within(&stop, args.json, first, wait, |_| None);
    let why = match &asked {
        Ok(Outcome::Told(Answer::Ended(_)) | Outcome::Gone) => {
            if is_gone(&target, by) {
                let ended = match &asked {
                    Ok(Outcome::Told(Answer::Ended(ended))) => Some(ended),
                    _ => None,
                };
                return gone(&target, ended, Form::of(args.json));
            }
            "it has ended by its own account, and its process lives".to_owned()
        }
        Ok(Outcome::Told(_)) => "it does not stop when it is asked to".to_owned(),
        Ok(Outcome::SoFar(None)) => "it does not answer".to_owned(),
        Ok(Outcome::SoFar(Some(_))) => "it is not gone yet".to_owned(),
        Err(failure) => failure.message.clone(),
    };
    target.holder = target.project.holder(&target.run);
    let is_refused = matches!(&asked, Ok(Outcome::Told(Answer::Refused { .. })));
    if !args.json && !is_refused {
        anstream::eprintln!("{}: {}; ending it by force", target.process(), shown(&why));
    }
    let now = Instant::now();
    let patience = by.saturating_duration_since(now).max(times::FORCE_LEAST);
    let limit = (by + times::FORCE_MARGIN).saturating_duration_since(now);
    let forced = end_by_force(&target.project, &target.run, patience, limit).map_err(|e| match e.is_nobody() {
            true => Failure::failed(format!(
                "no process is known to have run `{}`: none holds the lock on its working tree; look for what is left of it with: ps -ef",
                target.run
            )),
            false => e.into(),
        })?;
    let stays = target.holder.as_ref().filter(|it| it.process.is_alive());
    if let Some(holder) = stays {
        let pid = holder.process.pid;
        return Err(Failure::failed(format!(
            "{} was killed and is not gone: the system holds it; look at it: ps -fp {pid}",
            target.process()
        )));
    }
    if !args.json && forced.killed {
        anstream::eprintln!(
            "{} did not go when it was asked to, and was killed",
            target.process()
        );
    }
    let seen = Seen {
        reason: None,
        ended: forced.ended.len(),
        survivors: &forced.survivors,
        proven: false,
    };
    tell(&target, &seen, Form::of(args.json))
}

/// Waits until no process has the run any more, until `by` and a moment more; says whether that is so.
fn is_gone(target: &Target, by: Instant) -> bool {
    let by = by.max(Instant::now() + times::FORCE_LEAST);
    while target.project.is_owned(&target.run) || target.is_live() {
        if Instant::now() >= by {
            return false;
        }
        std::thread::park_timeout(POLL);
    }
    true
}

/// Says how the run ended and what is left of it: from its saved state, and from what was seen.
fn tell(target: &Target, seen: &Seen<'_>, form: Form) -> Result<ExitCode, Failure> {
    let run = match target.project.run(&target.run) {
        Err(e) if form != Form::Event => {
            let state = match e.is_not_found() {
                true => "its saved state was removed".to_owned(),
                false => unreadable(&e.to_string()),
            };
            return tell_without_state(target, seen, form, &state);
        }
        run => run?,
    };
    let is_live = target.is_live();
    // Asked last: whoever takes a run up signs before anything else.
    match target.successor() {
        Some(successor) if form != Form::Event => return taken_up(&run, seen, &successor, form),
        _ if is_live => return Err(unstopped(target)),
        _ => {}
    }
    if let (Err(e), true) = (&run.head, form != Form::Event) {
        return tell_without_state(target, seen, form, &unreadable(e));
    }
    let &Seen {
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
        Form::Answer => render::json_line(&json!({
            "run": run.id,
            "answer": "gone",
            "state": run.state,
            "reason": reason.map(ToString::to_string),
            "left": survivors.len(),
            "of": survivors.len() + ended,
            "proven": proven,
            "survivors": names(survivors),
        })),
        Form::Event => render::ended_elsewhere(&words, survivors),
        Form::Words => format!("{}: {words}", run.id),
    };
    output::line(&text);
    ended_but(survivors, code(&run))
}

fn unreadable(why: &str) -> String {
    format!("its saved state can't be read: {}", shown(why))
}

/// The same of a run whose state somebody removed, or made unreadable.
fn tell_without_state(
    target: &Target,
    seen: &Seen<'_>,
    form: Form,
    state: &str,
) -> Result<ExitCode, Failure> {
    let run = &target.run;
    let left = seen.survivors.len();
    let of = left + seen.ended;
    let text = match form {
        Form::Words => format!(
            "{run}: its process is gone; {}; {state}",
            render::left(left, of, seen.proven)
        ),
        _ => json!({
            "run": run,
            "answer": "gone",
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

/// Says how a process ended whose run another one has had since: what is saved is that one's by now.
fn taken_up(
    run: &RunEntry,
    seen: &Seen<'_>,
    successor: &Holder,
    form: Form,
) -> Result<ExitCode, Failure> {
    let (id, pid) = (&run.id, successor.process.pid);
    let left = seen.survivors.len();
    let of = left + seen.ended;
    let text = match form {
        Form::Answer => render::json_line(&json!({
            "run": id,
            "answer": "gone",
            "state": run.state,
            "reason": seen.reason,
            "left": left,
            "of": of,
            "proven": seen.proven,
            "survivors": names(seen.survivors),
            "since_then": pid,
        })),
        _ => format!(
            "{id}: {}; {}; pid {pid} has had it since: {} status {id}",
            rlm_text::escape::plain(seen.reason.unwrap_or(render::KILLED)),
            render::left(left, of, seen.proven),
            hint::rlm(),
        ),
    };
    output::line(&text);
    ended_but(seen.survivors, Code::Done)
}

fn names(processes: &[ProcessName]) -> Vec<String> {
    processes.iter().map(ToString::to_string).collect()
}

/// What could not be ended is worth more than any other `code`.
fn ended_but(survivors: &[ProcessName], code: Code) -> Result<ExitCode, Failure> {
    if survivors.is_empty() {
        return Ok(code.into());
    }
    Err(Failure::new(
        Code::Survivors,
        format!(
            "could not end: {}; look at them with ps, and end them yourself",
            names(survivors).join(", ")
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
    let (run, rlm) = (&target.run, hint::rlm());
    let alive = target.holder.as_ref().filter(|it| it.process.is_alive());
    let kill = alive.map_or_else(String::new, |holder| {
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
