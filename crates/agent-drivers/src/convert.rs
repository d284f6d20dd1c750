//! Functions that all drivers share: translations from types of `agent-subprocess` to types of `agent-duplex`.

use agent_duplex::{
    Error, ExitStatus, Line, Observation, ProcessName, StopReport, StopStage, Stream,
};
use agent_subprocess::{Exit, Output, ProcessTree, TreeCommand};
use std::io;

pub(crate) async fn start(command: TreeCommand) -> Result<ProcessTree, Error> {
    command.spawn().await.map_err(not_spawned)
}

fn not_spawned(error: agent_subprocess::Error) -> Error {
    let Some(lost) = error.lost_processes().cloned() else {
        return not_started(error);
    };
    let report = StopReport {
        stage: StopStage::Kill,
        ended: names(lost.ended),
        survivors: names(lost.survivors),
        proven: false,
    };
    Error::lost_start(error.to_string(), Some(error.into()), report)
}

/// Makes the error of a conversation that can't begin; `why` includes the next step.
pub(crate) fn not_started(why: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::start(why.to_string(), Some(why.into()))
}

/// Makes the error of a conversation that can't begin because the descriptor of its lock can't be duplicated.
pub(crate) fn no_descriptor(error: io::Error) -> Error {
    let what = format!("can't pass the lock to the guard: {error}; raise the limit of open files");
    Error::start(what, Some(error.into()))
}

pub(crate) fn exit_status(exit: Exit) -> Option<ExitStatus> {
    exit.code
        .map(ExitStatus::Code)
        .or(exit.signal.map(ExitStatus::Signal))
}

pub(crate) fn observation(output: Output) -> Observation {
    let stream = match output.stream {
        agent_subprocess::Stream::Stdout => Stream::Stdout,
        agent_subprocess::Stream::Stderr => Stream::Stderr,
    };
    let line = Line {
        bytes: output.line.bytes,
        omitted: output.line.truncated.unwrap_or(0),
    };
    Observation::output(stream, line)
}

pub(crate) fn freeze(agent: &mut ProcessTree, frozen: bool) -> Result<(), Error> {
    let done = if frozen {
        agent.suspend()
    } else {
        agent.resume()
    };
    done.map_err(|e| Error::agent_gone(e.to_string()))
}

pub(crate) fn names(processes: Vec<agent_subprocess::ProcessName>) -> Vec<ProcessName> {
    let name = |process: agent_subprocess::ProcessName| ProcessName {
        pid: process.pid,
        name: process.name,
    };
    processes.into_iter().map(name).collect()
}

pub(crate) fn stop_report(report: agent_subprocess::StopReport) -> StopReport {
    use agent_subprocess::StopStage as Tree;
    StopReport {
        stage: match report.stage {
            Tree::AlreadyEnded => StopStage::AlreadyEnded,
            Tree::Interrupt => StopStage::Interrupt,
            Tree::CloseInput => StopStage::CloseInput,
            Tree::Terminate => StopStage::Terminate,
            Tree::Kill => StopStage::Kill,
        },
        proven: report.is_proven(),
        ended: names(report.ended),
        survivors: names(report.survivors),
    }
}

/// Returns the report of a stop before any program was started.
pub(crate) fn nothing_to_stop() -> StopReport {
    StopReport {
        stage: StopStage::AlreadyEnded,
        ended: Vec::new(),
        survivors: Vec::new(),
        proven: true,
    }
}

/// Puts `text` on one line of at most `limit` characters; `…` marks an omission.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::new();
    let (mut count, mut gap) = (0, false);
    for c in text.trim().chars() {
        if c.is_whitespace() || c.is_control() {
            gap = true;
            continue;
        }
        if count + usize::from(gap) >= limit {
            line.push('…');
            break;
        }
        if gap {
            line.push(' ');
        }
        line.push(c);
        count += 1 + usize::from(std::mem::take(&mut gap));
    }
    line
}
