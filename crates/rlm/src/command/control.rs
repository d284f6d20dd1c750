//! `rlm interrupt`, `rlm pause` and `rlm steer`; also the request that ends a pause.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use loop_runner::control::{AskOutcome, Response, ResponseLimits};
use loop_state::Request;
use rlm_text::duration;

use crate::args::{InterruptArgs, PauseArgs, SteerArgs};
use crate::command::live::{self, DEFAULT_WAIT};
use crate::command::pick;
use crate::command::target::{self, Target};
use crate::exit::{Code, Failure};
use crate::hint;
use crate::stdin;

/// The maximum number of bytes that are read from standard input. A run accepts fewer, and reports its own limit.
const MOST: u64 = 1 << 20;

pub(crate) fn interrupt(directory: &Path, args: &InterruptArgs) -> Result<ExitCode, Failure> {
    let how = &args.target.wait_args;
    let run = pick::live(directory, !how.json, args.target.run.as_deref())?;
    let target = target::find(directory, run.as_deref())?;
    request(&target, &Request::Interrupt, how.json, how.wait)
}

pub(crate) fn pause(directory: &Path, args: PauseArgs) -> Result<ExitCode, Failure> {
    let (how, reason) = (&args.target.wait_args, args.reason);
    let run = pick::live(directory, !how.json, args.target.run.as_deref())?;
    let target = target::find(directory, run.as_deref())?;
    let after = args.after.unwrap_or_default();
    request(
        &target,
        &Request::Pause { reason, after },
        how.json,
        how.wait,
    )
}

fn no_message(why: &str, run: &str) -> Failure {
    let rlm = hint::program_command();
    Failure::usage(format!("the message is {why}: {rlm} steer {run} TEXT"))
}

pub(crate) fn steer(directory: &Path, args: SteerArgs) -> Result<ExitCode, Failure> {
    let (run, words) = match args.words.as_slice() {
        [text] => (None, std::slice::from_ref(text)),
        [run, words @ ..] => (Some(run.as_str()), words),
        [] => return Err(no_message("missing", "RUN")),
    };
    let found = pick::live(directory, !args.wait_args.json, run);
    let found = found.and_then(|run| target::find(directory, run.as_deref()));
    let target = found.map_err(|mut failure| {
        if run.is_some() && failure.code != Code::Failed {
            let rlm = hint::program_command();
            failure.message += &format!("; to omit RUN, quote the text: {rlm} steer 'TEXT'");
        }
        failure
    })?;
    if words == [target.run().as_str()] {
        return Err(no_message("missing", target.run().as_str()));
    }
    let text = message_text(words.join(" "))?;
    if text.trim().is_empty() {
        return Err(no_message("empty", "RUN"));
    }
    let now = args.now;
    request(
        &target,
        &Request::Steer { text, now },
        args.wait_args.json,
        args.wait_args.wait,
    )
}

/// Sends a request, and prints its progress.
pub(crate) fn request(
    target: &Target,
    request: &Request,
    json: bool,
    wait: Option<Duration>,
) -> Result<ExitCode, Failure> {
    let wait = wait.unwrap_or(DEFAULT_WAIT);
    let target = match target {
        Target::Here(target) => target,
        Target::Fleet(target) => return target.request(request, json, wait),
    };
    match live::send_request(target, request, json, ResponseLimits::new(wait), |_| ())? {
        AskOutcome::Final(answer @ (Response::Applied | Response::NextPrompt)) => {
            live::print_response(&target.run, request, &answer, json);
            Ok(Code::Done.into())
        }
        AskOutcome::Final(answer) => Err(live::request_error(&target.run, &answer)),
        AskOutcome::TimedOut(None) => Err(live::unresponsive(target, wait)),
        AskOutcome::TimedOut(Some(_)) => {
            if !json {
                anstream::eprintln!(
                    "the request has no effect yet after {}; it may still be applied; to check: {} status {}",
                    duration::show(wait),
                    hint::program_command(),
                    target.run
                );
            }
            Ok(Code::Done.into())
        }
        _ => Err(live::process_gone(target)),
    }
}

/// Returns the message: the argument, or standard input for `-`.
pub(crate) fn message_text(text: String) -> Result<String, Failure> {
    match text.as_str() {
        "-" => stdin::text("the message", MOST),
        _ => Ok(text),
    }
}
