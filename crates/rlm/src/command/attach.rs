//! `rlm attach`

use std::path::Path;
use std::process::ExitCode;
use std::thread::JoinHandle;
use std::time::Duration;

use loop_runner::control::{Answer, Attached, Request, ask, attach};
use loop_runner::{Control, PromptSource};
use tokio::sync::mpsc;

use crate::args::AttachArgs;
use crate::command::live::Target;
use crate::command::stop;
use crate::exit::{Code, Failure};
use crate::presses::PressActions;
use crate::render::{self, Screen};
use crate::session::Session;
use crate::terminal::{Shown, Subject};

/// How long what a person wants may take to be recorded.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many wishes of a person wait.
const WISHES: usize = 64;

pub(crate) fn execute(directory: &Path, args: &AttachArgs) -> Result<ExitCode, Failure> {
    let session = Session::begin(args.no_input, false)?;
    let target = Target::find(directory, args.run.as_deref())?;
    let mut attached = open(&target, session.options().interactive)?;
    let news = attached.news().expect("nobody has taken them yet");
    let (control, wanted) = mpsc::channel(WISHES);
    let screen = Screen::new(args.json);
    screen.attached(&target.run, target.holder.as_ref());
    let shown = Shown {
        run: target.run.to_string(),
        view: attached.view(),
        control,
        interrupts: session.interrupts(),
        prompts: prompts(&target)?,
        screen,
        presses: PressActions::default(),
        bell: false,
        attached: true,
    };
    let carrier = carry(&target, wanted);
    let left = session.look_on(shown, news, || attached.leave());
    drop(carrier);
    match left {
        Some(cause) => {
            let (rlm, run) = (render::rlm(), &target.run);
            anstream::eprintln!("detached; run {run} goes on: {rlm} attach {run}");
            session.leave(cause)
        }
        None => ended(&target, attached, args.json),
    }
}

/// Connects, also to a run that has just begun.
fn open(target: &Target, attended: bool) -> Result<Attached, Failure> {
    let run_dir = target.project.run_dir(&target.run);
    target.try_for(|| match attach(&run_dir, attended) {
        Ok(attached) => Ok(Some(attached)),
        Err(e) if e.is_nobody() => Ok(None),
        Err(e) if e.is_silent() => Err(target.silent(PATIENCE)),
        Err(e) => Err(e.into()),
    })
}

/// Returns what the editor opens.
fn prompts(target: &Target) -> Result<Vec<Subject>, Failure> {
    let saved = target
        .project
        .run(&target.run)?
        .head
        .map_err(|why| Failure {
            code: Code::Failed,
            message: why,
        })?;
    let texts = target.project.prompts(&saved)?;
    let phases = saved.settings.phases.into_iter().zip(texts);
    let subject = |(phase, text): (loop_runner::PhaseSettings, String)| match phase.prompt {
        PromptSource::File(path) => Subject::File(path),
        _ => Subject::Text(text),
    };
    Ok(phases.map(subject).collect())
}

/// Carries what the person wants to the run, one after another. What becomes of it is among the news.
fn carry(target: &Target, mut wanted: mpsc::Receiver<Control>) -> JoinHandle<()> {
    let run_dir = target.project.run_dir(&target.run);
    std::thread::spawn(move || {
        while let Some(control) = wanted.blocking_recv() {
            let Some(request) = Request::of(&control) else {
                continue;
            };
            // One that is gone says so by the end of its news.
            let answers = ask(&run_dir, &request);
            let told = answers.and_then(|mut answers| answers.next(PATIENCE));
            if matches!(told, Ok(Some(Answer::Busy))) {
                anstream::eprintln!("rlm: too many ask the run at once; say it again");
            }
        }
    })
}

/// Says how the run ended, or why there is nothing more to be seen.
fn ended(target: &Target, attached: Attached, json: bool) -> Result<ExitCode, Failure> {
    let ended = attached.ended();
    if ended.is_none() && target.is_live() {
        let (run, rlm) = (&target.run, render::rlm());
        return Err(Failure {
            code: Code::Failed,
            message: format!(
                "run `{run}` does not show itself any more, and goes on: {rlm} attach {run}"
            ),
        });
    }
    stop::gone(target, ended.as_ref(), json)?;
    let run = target.project.run(&target.run)?;
    let reason = run.head.ok().and_then(|head| head.machine.end);
    Ok(reason
        .map_or(Code::Failed, |end| Code::of(&end.reason))
        .into())
}
