//! `rlm attach`: shows the screen of a run of another process, and sends a person's requests to it.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use loop_runner::control::{AttachedRun, ConnectOutcome, EndReport, LiveRun, Response, ask};
use loop_runner::{RunControl, events_before};
use loop_state::Timestamp;
use rlm_store::{PromptSource, RunState};
use rlm_terminal::{EditTarget, ForegroundRun, PressActions};
use tokio::sync::mpsc;

use crate::args::AttachArgs;
use crate::command::fleet::FleetRun;
use crate::command::live;
use crate::command::pick;
use crate::command::stop::{self, EndFormat};
use crate::exit::{Code, Failure};
use crate::hint;
use crate::render::{Level, Screen};
use crate::session::{self, Session};

/// The time in which the run must record a request.
const RECORD_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum wait for the first event of a run that has reported events.
const FIRST_EVENT: Duration = Duration::from_millis(300);
/// If a connection ends within this time after it began, `attach` doesn't connect again.
const MIN_CONNECTION_TIME: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);
/// The number of requests that can wait.
const REQUEST_QUEUE: usize = 64;

pub(crate) fn execute(directory: &Path, args: &AttachArgs) -> Result<ExitCode, Failure> {
    if let Some(target) = FleetRun::named(directory, args.run.as_deref())? {
        return target.attach(args);
    }
    let asks = !args.json && !args.no_input;
    let run = pick::live(directory, asks, args.run.as_deref())?;
    let session = Session::begin(args.no_input, false)?;
    let target = live::find(directory, run.as_deref())?;
    let screen = Screen::new(args.json).with_level(Level::from_flags(args.quiet, args.verbose));
    let mut attached = open(&session, &target, None)?;
    screen.attached(&target.run, target.holder.as_ref(), session.can_ask());
    let mut before = Vec::new();
    if !args.json {
        let until = attached.first_event_at(FIRST_EVENT).unwrap_or_else(now);
        before = events_before(&target.project, &target.run, until);
    }
    loop {
        let began = Instant::now();
        let events = attached.events().expect("the events were not taken yet");
        let (control, requests) = mpsc::channel(REQUEST_QUEUE);
        let (to_person, messages) = mpsc::channel(REQUEST_QUEUE);
        let shown = ForegroundRun {
            run: target.run.to_string(),
            view: attached.view(),
            control,
            interrupts: session.interrupts(),
            prompts: prompts(&target)?,
            log: screen.printed_log(),
            signals: session::signals,
            detached_exit_code: Code::Done as u8,
            // The other process handles the stop of its run.
            on_stop: Box::new(|| ()),
            presses: PressActions::default(),
            bell: false,
            attached: true,
            earlier_events: std::mem::take(&mut before),
            messages: Some(messages),
        };
        forward_requests(&target, requests, to_person);
        if let Some(cause) = session.show_attached(shown, events, || attached.detach()) {
            let (rlm, run) = (hint::program_command(), &target.run);
            // The saved state is newer than the state that was shown last.
            let saved = target.project.run(&target.run);
            let activity = match saved.is_ok_and(|run| run.state == RunState::Paused) {
                true => "waits for you",
                false => "continues",
            };
            anstream::eprintln!(
                "detached; run {run} {activity}; to attach again: {rlm} attach {run}"
            );
            return session.exit_attached(cause);
        }
        let seen = attached.last_event_at();
        let ended = attached.wait_for_end();
        if ended.is_some() || !target.is_live() {
            return finish(&session, &target, ended, args.json);
        }
        // The run drops a viewer that reads nothing for a while, for example after ^Z.
        let again = match began.elapsed() < MIN_CONNECTION_TIME {
            true => Err(unseen(&target)),
            false => open(&session, &target, Some(seen)),
        };
        attached = match again {
            Err(_) if exits_soon(&session, &target) => {
                return finish(&session, &target, None, args.json);
            }
            again => match session.interrupts().cause() {
                Some(cause) => return session.exit_attached(cause),
                None => again?,
            },
        };
        screen.attached(&target.run, target.holder.as_ref(), session.can_ask());
    }
}

/// Connects to the run, even if the run has just begun. Events up to `seen` are not shown again. A press ends the wait.
fn open(
    session: &Session,
    target: &LiveRun,
    seen: Option<Timestamp>,
) -> Result<AttachedRun, Failure> {
    let (target, attended) = (target.clone(), session.options().interactive);
    let seen = seen.unwrap_or_default();
    session.prepare(move || match target.attach(attended, seen)? {
        ConnectOutcome::Connected(attached) => Ok(attached),
        ConnectOutcome::NotLive => Err(live::not_live(&target.project.run(&target.run)?)),
        _ => Err(live::unresponsive_status(&target, RECORD_TIMEOUT)),
    })
}

/// Waits until the process of the run exits, and returns whether it did: a killed process loses its sockets before it releases the run. A press ends
/// the wait.
fn exits_soon(session: &Session, target: &LiveRun) -> bool {
    let by = Instant::now() + MIN_CONNECTION_TIME;
    let interrupts = session.interrupts();
    while target.is_live() {
        if Instant::now() >= by || interrupts.cause().is_some() {
            return false;
        }
        std::thread::park_timeout(POLL);
    }
    true
}

fn now() -> Timestamp {
    SystemTime::now().into()
}

/// Returns the prompts that the editor can open.
fn prompts(target: &LiveRun) -> Result<Vec<EditTarget>, Failure> {
    let saved = target
        .project
        .run(&target.run)?
        .head
        .map_err(Failure::failed)?;
    let texts = target.project.prompts(&saved)?;
    let phases = saved.settings.phases.into_iter().zip(texts);
    let subject = |(phase, text): (rlm_store::PhaseSettings, String)| match phase.prompt {
        PromptSource::File(path) => EditTarget::File(path),
        _ => EditTarget::Text(text),
    };
    Ok(phases.map(subject).collect())
}

/// Sends a person's requests to the run, one after another. The run's events show the progress; a missing response is reported here.
fn forward_requests(
    target: &LiveRun,
    mut requests: mpsc::Receiver<RunControl>,
    to_person: mpsc::Sender<String>,
) {
    let run_dir = target.project.run_dir(&target.run);
    let silent = live::unresponsive(target, RECORD_TIMEOUT).message;
    std::thread::spawn(move || {
        while let Some(control) = requests.blocking_recv() {
            let RunControl::Request(request) = control else {
                continue;
            };
            let answers = ask(&run_dir, request);
            let problem = match answers.and_then(|mut answers| answers.next(RECORD_TIMEOUT)) {
                Ok(Some(Response::Busy)) => "the run is busy with other requests; try again".into(),
                Ok(None) => silent.clone(),
                Err(e) if e.is_unresponsive() => silent.clone(),
                Err(e) if e.is_other_version() => e.to_string(),
                // If the run has ended, its events end too, and the caller reports that.
                _ => continue,
            };
            // If the channel is full, the same message is already in it.
            let _full = to_person.try_send(format!("rlm: {problem}\n"));
        }
    });
}

/// Waits until every process of the run is gone, unless a press ends the wait, and prints how the run ended.
fn finish(
    session: &Session,
    target: &LiveRun,
    ended: Option<EndReport>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let form = if json {
        EndFormat::Event
    } else {
        EndFormat::Text
    };
    let (run, report) = (target.clone(), ended.clone());
    let left = session.prepare(move || stop::wait_for_processes(&run, report.as_ref()))?;
    if target.successor().is_some() && target.is_live() {
        return Err(unseen(target));
    }
    stop::print_end(target, ended.as_ref(), left, form)?;
    let run = target.project.run(&target.run)?;
    let reason = run.head.ok().and_then(|head| head.machine.end);
    Ok(reason
        .map_or(Code::Failed, |end| Code::of(&end.reason))
        .into())
}

/// Returns the error for a run that no longer sends its events.
fn unseen(target: &LiveRun) -> Failure {
    let (run, rlm) = (&target.run, hint::program_command());
    Failure::failed(format!(
        "run `{run}` continues, but no longer sends its output; to attach again: {rlm} attach {run}"
    ))
}
