//! `rlm attach`: the screen of a run whose process is another one, and what a person wants of it from here.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use loop_runner::control::{Answer, Attached, Ended, LiveRun, Reached, ask};
use loop_runner::{Control, events_before};
use loop_state::Timestamp;
use rlm_store::{PromptSource, RunState};
use rlm_terminal::{PressActions, Shown, Subject};
use tokio::sync::mpsc;

use crate::args::AttachArgs;
use crate::command::live;
use crate::command::stop::{self, Form};
use crate::exit::{Code, Failure};
use crate::hint;
use crate::render::{Level, Screen};
use crate::session::{self, Session};

/// How long what a person wants may take to be recorded.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the first news may take of a run that has told any.
const FIRST_NEWS: Duration = Duration::from_millis(300);
/// Who is given up as soon as this does not look another time.
const AT_ONCE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);
/// How many wishes of a person wait.
const WISHES: usize = 64;

pub(crate) fn execute(directory: &Path, args: &AttachArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(args.no_input, false)?;
    let target = live::find(directory, args.run.as_deref())?;
    let screen = Screen::new(args.json).at(Level::wished(args.quiet, args.verbose));
    let mut attached = open(&session, &target, None)?;
    screen.attached(&target.run, target.holder.as_ref());
    let mut before = Vec::new();
    if !args.json {
        let until = attached.tells_from(FIRST_NEWS).unwrap_or_else(now);
        before = events_before(&target.project, &target.run, until);
    }
    loop {
        let began = Instant::now();
        let news = attached.news().expect("nobody has taken them yet");
        let (control, wanted) = mpsc::channel(WISHES);
        let (to_person, told) = mpsc::channel(WISHES);
        let shown = Shown {
            run: target.run.to_string(),
            view: attached.view(),
            control,
            interrupts: session.interrupts(),
            prompts: prompts(&target)?,
            log: screen.printed_log(),
            signals: session::signals,
            left_code: Code::Done as u8,
            // The process that has the run sees to its own end.
            on_stop: Box::new(|| ()),
            presses: PressActions::default(),
            bell: false,
            attached: true,
            before: std::mem::take(&mut before),
            told: Some(told),
        };
        carry(&target, wanted, to_person);
        if let Some(cause) = session.look_on(shown, news, || attached.leave()) {
            let (rlm, run) = (hint::rlm(), &target.run);
            // What is saved is newer than what was shown last.
            let saved = target.project.run(&target.run);
            let goes_on = match saved.is_ok_and(|run| run.state == RunState::Paused) {
                true => "waits for your word",
                false => "goes on",
            };
            anstream::eprintln!("detached; run {run} {goes_on}: {rlm} attach {run}");
            return session.leave(cause);
        }
        let seen = attached.seen();
        let ended = attached.ended();
        if ended.is_some() || !target.is_live() {
            return over(&session, &target, ended, args.json);
        }
        // Who took nothing for a while, as behind a ^Z, was given up.
        let again = match began.elapsed() < AT_ONCE {
            true => Err(unseen(&target)),
            false => open(&session, &target, Some(seen)),
        };
        attached = match again {
            Err(_) if goes(&session, &target) => {
                return over(&session, &target, None, args.json);
            }
            again => match session.interrupts().cause() {
                Some(cause) => return session.leave(cause),
                None => again?,
            },
        };
        screen.attached(&target.run, target.holder.as_ref());
    }
}

/// Connects, also to a run that has just begun. What was `seen` is not told again. A press ends the wait for it.
fn open(session: &Session, target: &LiveRun, seen: Option<Timestamp>) -> Result<Attached, Failure> {
    let (target, attended) = (target.clone(), session.options().interactive);
    let seen = seen.unwrap_or_default();
    session.prepare(move || match target.attach(attended, seen)? {
        Reached::Yes(attached) => Ok(attached),
        Reached::NotLive => Err(live::not_live(&target.project.run(&target.run)?)),
        _ => Err(live::mute(&target, PATIENCE)),
    })
}

/// Returns whether its process was about to go: one that is killed loses its sockets before it lets go of the run. A press ends the wait.
fn goes(session: &Session, target: &LiveRun) -> bool {
    let by = Instant::now() + AT_ONCE;
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
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp(since.unwrap_or_default().as_millis() as u64)
}

/// Returns what the editor opens.
fn prompts(target: &LiveRun) -> Result<Vec<Subject>, Failure> {
    let saved = target
        .project
        .run(&target.run)?
        .head
        .map_err(Failure::failed)?;
    let texts = target.project.prompts(&saved)?;
    let phases = saved.settings.phases.into_iter().zip(texts);
    let subject = |(phase, text): (rlm_store::PhaseSettings, String)| match phase.prompt {
        PromptSource::File(path) => Subject::File(path),
        _ => Subject::Text(text),
    };
    Ok(phases.map(subject).collect())
}

/// Carries what the person wants to the run, one after another. What becomes of it is among the news; that nothing does is said here.
fn carry(target: &LiveRun, mut wanted: mpsc::Receiver<Control>, to_person: mpsc::Sender<String>) {
    let run_dir = target.project.run_dir(&target.run);
    let silent = live::silent(target, PATIENCE).message;
    std::thread::spawn(move || {
        while let Some(control) = wanted.blocking_recv() {
            let Control::Request(request) = control else {
                continue;
            };
            let answers = ask(&run_dir, request);
            let told = match answers.and_then(|mut answers| answers.next(PATIENCE)) {
                Ok(Some(Answer::Busy)) => "too many ask the run at once; say it again",
                Ok(None) => &silent,
                Err(e) if e.is_silent() => &silent,
                // One that is gone says so by the end of its news.
                _ => continue,
            };
            // A full queue says it often enough.
            let _full = to_person.try_send(format!("rlm: {told}\n"));
        }
    });
}

/// Waits until nothing of the run is left, unless somebody presses, and says how it ended.
fn over(
    session: &Session,
    target: &LiveRun,
    ended: Option<Ended>,
    json: bool,
) -> Result<ExitCode, Failure> {
    let form = if json { Form::Event } else { Form::Words };
    let (waited_for, by_whom) = (target.clone(), ended.clone());
    let left = session.prepare(move || stop::left(&waited_for, by_whom.as_ref()))?;
    if target.successor().is_some() && target.is_live() {
        return Err(unseen(target));
    }
    stop::over(target, ended.as_ref(), left, form)?;
    let run = target.project.run(&target.run)?;
    let reason = run.head.ok().and_then(|head| head.machine.end);
    Ok(reason
        .map_or(Code::Failed, |end| Code::of(&end.reason))
        .into())
}

/// Says that there is nothing more to be seen.
fn unseen(target: &LiveRun) -> Failure {
    let (run, rlm) = (&target.run, hint::rlm());
    Failure::failed(format!(
        "run `{run}` does not show itself any more, and goes on: {rlm} attach {run}"
    ))
}
