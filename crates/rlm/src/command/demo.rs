//! `rlm demo`: creates a project and runs the scripted agent in it, as a user would.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use rlm_store::{Project, RunEntry};
use rlm_text::duration;

use crate::args::{Args, Command, DEMO_AGENT, DemoArgs};
use crate::command::run;
use crate::config::Layers;
use crate::exit::Failure;
use crate::hint;
use crate::render::{RunStart, Screen};
use crate::resolve::Resolved;
use crate::session::Session;
use crate::{demo, output, resolve};

/// The command line of the run. The demo needs far fewer than twenty iterations, unless a person reverts the work.
const TYPED: &str = "rlm run --agent claude --model scripted --permissions all -n 20";
const CHECK: &str = "sh check.sh";

/// The times between two words and between two iterations, on a terminal. Elsewhere there is no wait.
const WATCHED: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

const INVITATION: &str = "\
A demo of half a minute, in a temporary repository: no account, no network.
While it runs, press Ctrl-C: a menu opens, and the agent continues.
Press Enter to begin.";

pub(crate) fn execute(directory: &Path, args: DemoArgs) -> Result<ExitCode, Failure> {
    let watched = std::io::stdout().is_terminal();
    if watched && args.pace.is_none() && std::io::stdin().is_terminal() {
        show(INVITATION);
        let _any_line = std::io::stdin().read_line(&mut String::new());
    }
    let session = Session::begin(false, false)?;
    let chosen = args.dir.map(|dir| directory.join(dir));
    let (project, resolved) = session.prepare(move || {
        let project = Project::find(&demo::make_project(chosen.as_deref())?)?;
        let (pace, sleep) = if watched { WATCHED } else { Default::default() };
        let resolved = settings(project.directory(), args.pace.unwrap_or(pace), sleep)?;
        Ok((project, resolved))
    })?;
    let place = hint::quoted(&project.directory().to_string_lossy());
    // The run is not in the directory where the user typed the command.
    hint::set_directory(project.directory());
    show(&introduction(&place, watched));
    let (screen, beginning) = (Screen::new(false), RunStart::new(vec![]));
    let ended = run::begin(
        session,
        screen,
        &project,
        run::new_id(),
        resolved,
        &beginning,
    )?;
    let runs = project.runs().unwrap_or_default();
    let again = runs.last().and_then(again);
    show(&conclusion(&place, again.as_deref()));
    Ok(ended)
}

/// Returns the settings of the run; its agent is this program.
fn settings(directory: &Path, pace: Duration, sleep: Duration) -> Result<Resolved, Failure> {
    let this = std::env::current_exe()
        .map_err(|e| Failure::failed(format!("can't find the program file of rlm: {e}")))?;
    let sleep = duration::show(sleep);
    let words = TYPED.split(' ').map(OsString::from);
    // The scripted agent begins with the check itself.
    let ends = ["--no-first-check", "--until", CHECK].map(OsString::from);
    let rest = ["--sleep", &sleep, "--agent-bin"].map(OsString::from);
    let words = words.chain(ends).chain(rest).chain([this.into_os_string()]);
    let Ok(Args {
        command: Command::Run(args),
        ..
    }) = Args::try_parse_from(words)
    else {
        unreachable!("the line is a run")
    };
    let mut resolved = resolve::new_run(*args, &Layers::default(), directory, directory)?;
    let program = &mut resolved.settings.phases[0].agent.program;
    let pace = format!("--pace={}ms", pace.as_millis());
    program.extend([DEMO_AGENT.into(), pace.into(), "--".into()]);
    Ok(resolved)
}

fn show(text: &str) {
    let mut output = output::text();
    let _noted = output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush());
}

fn introduction(place: &str, watched: bool) -> String {
    let mut text = format!(
        "A demo in {place}: no account, no network.\n\
         A scripted agent writes a small program until `{CHECK}` passes: three iterations.\n"
    );
    if watched {
        text.push_str(&format!(
            "Press Ctrl-C while it works: a menu opens.\n\
             - Steer: send the agent a message. The agent writes it into NOTES.md.\n\
             - Save and exit; continue later with: {} resume\n",
            hint::program_command()
        ));
    }
    text.push('\n');
    text
}

/// Returns the command that continues the run, if it can continue.
fn again(run: &RunEntry) -> Option<String> {
    if run.is_resumable() {
        return Some(format!("{} resume", hint::program_command()));
    }
    let end = run.head.as_ref().ok()?.machine.end.as_ref()?;
    hint::resume_hint(&run.id, &end.reason)
}

fn conclusion(place: &str, again: Option<&str>) -> String {
    let resume = again.map_or_else(String::new, |again| {
        format!("Continue where it stopped:\n  {again}\n")
    });
    let (rlm, program) = (hint::program_command(), hint::program());
    format!(
        "\n{resume}See what happened:\n  \
           git -C {place} log -p\n  \
           {rlm} status\n  \
           {rlm} logs\n\
         With a real agent, in your own repository:\n  \
           {program} run --until 'cargo test' --agent claude\n\
         Remove the demo:\n  \
           rm -r {place}\n"
    )
}
