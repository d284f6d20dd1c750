//! `rlm set`: changes rules of a live run, all of them read before the first one is sent.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use loop_runner::control::{Change, Request};
use loop_state::{RuleChange, RulesError};

use crate::args::SetArgs;
use crate::command::control::request;
use crate::command::live::Target;
use crate::config::{LIVE, nearest};
use crate::exit::{Code, Failure};
use crate::{duration, money};

pub(crate) fn execute(directory: &Path, args: &SetArgs) -> Result<ExitCode, Failure> {
    let (run, words) = match args.words.as_slice() {
        [run, words @ ..] if !run.contains('=') => (Some(run.as_str()), words),
        words => (None, words),
    };
    if words.is_empty() {
        return Err(Failure::usage("say what to set: rlm set RUN KEY=VALUE"));
    }
    // All are read before the first one is sent: half of them would be a surprise.
    let changes = words.iter().map(|word| change(word));
    let changes = changes.collect::<Result<Vec<_>, _>>()?;
    let target = Target::find(directory, run)?;
    let of_phase = changes.iter().any(|it| RuleChange::from(*it).is_of_phase());
    for (at, change) in changes.into_iter().enumerate() {
        let told = request(&target, &Request::Set(change), args.how.json, args.how.wait);
        told.map_err(|failure| stands(failure, &words[..at]))?;
    }
    if of_phase && !args.how.json {
        tell_phase(&target)?;
    }
    Ok(Code::Done.into())
}

/// Says what was set before the one that was refused.
fn stands(mut failure: Failure, set: &[String]) -> Failure {
    if !set.is_empty() {
        failure.message += &format!("; what stands: {}", set.join(", "));
    }
    failure
}

/// Says for which of several phases something was set.
fn tell_phase(target: &Target) -> Result<(), Failure> {
    let run = target.project.run(&target.run)?;
    if let Ok(head) = &run.head
        && head.settings.phases.len() > 1
    {
        let phase = &head.machine.phase_rules().name;
        // Who asked may not want to know.
        let _gone = writeln!(
            anstream::stdout(),
            "{}: that is for phase {phase}; the others have what they had",
            target.run
        );
    }
    Ok(())
}

/// Reads what is to be set.
fn change(word: &str) -> Result<Change, Failure> {
    let Some((key, value)) = word.split_once('=') else {
        return Err(Failure::usage(format!(
            "`{word}` sets nothing: write KEY=VALUE"
        )));
    };
    let wrong = |e: String| Failure::usage(format!("{key}: {e}"));
    let number = |most: u64| {
        let read = value.parse::<u64>().ok().filter(|it| *it <= most);
        read.ok_or_else(|| wrong(format!("`{value}` is no number from 0 to {most}")))
    };
    let small = || number(u32::MAX.into()).map(|number| number as u32);
    let time = || duration::parse(value).map_err(wrong);
    let some = value != "none";
    Ok(match key {
        "max-iterations" => Change::MaxIterations(some.then(small).transpose()?),
        "max-duration" => Change::MaxDuration(some.then(time).transpose()?),
        "iteration-timeout" => Change::IterationTimeout(some.then(time).transpose()?),
        "idle-timeout" => Change::IdleTimeout(some.then(time).transpose()?),
        "check-timeout" => Change::CheckTimeout(time()?),
        "max-failures" if some => Change::MaxFailures(small()?),
        "max-failures" => Change::MaxFailures(0),
        "sleep" => Change::Sleep(time()?),
        "autonomy" => Change::Autonomy(
            value
                .parse()
                .map_err(|e: RulesError| wrong(e.to_string()))?,
        ),
        "max-cost" => {
            let cost = || money::parse(value).map_err(wrong);
            Change::MaxCost(some.then(cost).transpose()?)
        }
        "max-tokens" => {
            let tokens = || money::tokens(value).map_err(wrong);
            Change::MaxTokens(some.then(tokens).transpose()?)
        }
        "wait-on-limit" => Change::WaitOnLimit(time()?),
        _ => return Err(unknown(key)),
    })
}

fn unknown(key: &str) -> Failure {
    // A file is no person's word on whether they are asked.
    let keys = [&LIVE[..], &["autonomy"]].concat();
    let what = match nearest(key, &keys) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("what can is {}", keys.join(", ")),
    };
    Failure::usage(format!("`{key}` can't be set while a run goes on; {what}"))
}
