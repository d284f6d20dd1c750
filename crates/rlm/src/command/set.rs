//! `rlm set`: changes limits of a live run. All arguments are parsed before the first request.

use std::path::Path;
use std::process::ExitCode;

use loop_runner::control::LiveRun;
use loop_state::Request;

use crate::args::SetArgs;
use crate::command::control::request;
use crate::command::limit_change::change;
use crate::command::pick;
use crate::command::target::{self, Target};
use crate::exit::{Code, Failure};
use crate::output;

pub(crate) fn execute(directory: &Path, args: &SetArgs) -> Result<ExitCode, Failure> {
    let (run, words) = match args.words.as_slice() {
        [run, words @ ..] if !run.contains('=') => (Some(run.as_str()), words),
        words => (None, words),
    };
    if words.is_empty() {
        return Err(Failure::usage("the key is missing: rlm set RUN KEY=VALUE"));
    }
    // Parse all before sending any, so that a typing mistake doesn't leave half of them applied.
    let changes = words.iter().map(|word| change(word));
    let changes = changes.collect::<Result<Vec<_>, _>>()?;
    let run = pick::live(directory, !args.wait_args.json, run)?;
    let target = target::find(directory, run.as_deref())?;
    let of_phase = changes.iter().any(|it| it.is_phase_rule());
    for (at, change) in changes.into_iter().enumerate() {
        let sent = request(
            &target,
            &Request::Set(change),
            args.wait_args.json,
            args.wait_args.wait,
        );
        sent.map_err(|failure| with_already_set(failure, &words[..at]))?;
    }
    if let (Target::Here(target), true, false) = (&target, of_phase, args.wait_args.json) {
        print_phase(target)?;
    }
    Ok(Code::Done.into())
}

/// Adds to an error the changes that were applied before it.
fn with_already_set(mut failure: Failure, set: &[String]) -> Failure {
    if !set.is_empty() {
        failure.message += &format!("; already set: {}", set.join(", "));
    }
    failure
}

/// Prints for which of several phases a limit was set.
fn print_phase(target: &LiveRun) -> Result<(), Failure> {
    let run = target.project.run(&target.run)?;
    if let Ok(head) = &run.head
        && head.settings.phases.len() > 1
    {
        let phase = &head.machine.phase_rules().name;
        output::line(&format!("{}: this changes only phase {phase}", target.run));
    }
    Ok(())
}
