//! `rlm status RUN --alive`: the question of a liveness probe.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use loop_runner::control::{Answer, Request, ask};
use loop_runner::{Project, RunEntry};

use crate::command::live::is_live;
use crate::duration;
use crate::exit::{Code, Failure};

/// How long a run may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long ago its loop may have turned; it does each 5 s.
const STALE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// Asks the process that has the run whether its loop turns.
pub(crate) fn execute(project: &Project, run: &RunEntry) -> Result<ExitCode, Failure> {
    let id = &run.id;
    let dead = |why: String| Failure {
        code: Code::Failed,
        message: format!("run `{id}` {why}"),
    };
    if !is_live(run) {
        return Err(dead("is not alive: no process has it".into()));
    }
    let by = Instant::now() + PATIENCE;
    let standing = loop {
        let left = by.saturating_duration_since(Instant::now());
        let answer = ask(&project.run_dir(id), &Request::Status);
        match answer.and_then(|mut answers| answers.next(left)) {
            Ok(Some(Answer::Status(standing))) => break Some(standing),
            // It has just begun, or its socket is made again within seconds.
            Err(e) if e.is_nobody() && !left.is_zero() => std::thread::park_timeout(POLL),
            Ok(Some(Answer::Busy)) if !left.is_zero() => std::thread::park_timeout(POLL),
            _ => break None,
        }
    };
    let silent = || {
        let patience = duration::show(PATIENCE);
        dead(format!(
            "has a process that does not answer within {patience}"
        ))
    };
    let turned = standing.ok_or_else(silent)?.turned_ms;
    let age = Duration::from_millis(turned.unwrap_or_default());
    if age > STALE {
        let age = duration::show(Duration::from_secs(age.as_secs()));
        return Err(dead(format!(
            "hangs: its loop turned {age} ago for the last time"
        )));
    }
    // A probe has the exit code.
    let _gone = writeln!(anstream::stdout(), "run {id} is alive");
    Ok(Code::Done.into())
}
