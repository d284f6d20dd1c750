//! The events of an agent's process, and the end of the process.

use crate::convert::{one_line, stop_report};
use agent_duplex::{Event, ProcessName, StopReport, StopStage};
use agent_subprocess::{Exit, Output, ProcessTree, Signal, StopPolicy};
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// An event of a process.
pub(crate) enum ProcessEvent {
    Output(Output),
    /// Both outputs reached their end.
    OutputEnded,
    Exit(Exit),
    /// The time is over.
    TimedOut,
}

/// Waits until `until` for output of the agent; if `output_ended` is true, waits only for the exit of the agent.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn wait_for_event(
    agent: &mut ProcessTree,
    output_ended: bool,
    until: Option<Instant>,
) -> ProcessEvent {
    let something = async {
        if output_ended {
            return ProcessEvent::Exit(agent.wait().await);
        }
        let output = agent.next_output().await;
        output.map_or(ProcessEvent::OutputEnded, ProcessEvent::Output)
    };
    match until {
        Some(until) => timeout_at(until, something)
            .await
            .unwrap_or(ProcessEvent::TimedOut),
        None => something.await,
    }
}

/// Sends the agent a signal, and returns an event with the reason.
pub(crate) fn signal(agent: &mut ProcessTree, signal: Signal, why: &str) -> Event {
    Event::Warning(match agent.signal(signal) {
        Ok(()) => format!("{why}; sent {signal}"),
        Err(error) => format!("{why}; can't send {signal}: {error}"),
    })
}

/// Ends the process tree of an agent within the time `left`. `stage` is the stage that the protocol's own requests reached, if the agent `was_alive`
/// before them.
pub(crate) async fn stop(
    agent: &mut ProcessTree,
    policy: &StopPolicy,
    left: Duration,
    (was_alive, stage): (bool, StopStage),
    program: &str,
) -> StopReport {
    // The protocol has already interrupted the turn, so SIGINT would only cost time.
    let policy = policy.clone().without_interrupt().within(left);
    let mut report = stop_report(agent.stop(&policy).await);
    if !was_alive {
        return report;
    }
    report.stage = report.stage.max(stage);
    let pid = agent.pid();
    let mut named = report.ended.iter().chain(&report.survivors);
    if !named.any(|named| named.pid == pid) {
        // The agent exited before the stop listed its processes, so its name is taken from the program.
        let name = Path::new(program).file_name().unwrap_or_default();
        let name = name.to_string_lossy().chars().take(15).collect();
        report.ended.insert(0, ProcessName { pid, name });
    }
    report
}

/// Returns the last line of the agent's output without colours, as the end of a sentence; empty if there is none.
pub(crate) fn last_line(output: &str) -> String {
    let output = plain(output);
    // Some programs end with the closing brace of a printed object.
    let has_text = |line: &&str| line.contains(char::is_alphanumeric);
    let last = output.lines().rev().find(has_text);
    let detail = last.map(|line| format!(": {}", one_line(line.trim_end_matches('.'), 300)));
    detail.unwrap_or_default()
}

/// Removes the colours from a text.
fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        plain.push_str(end.map_or("", |end| &part[end + 1..]));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p48_last_line_is_reported_without_colours() {
        let output = "first\n\u{1b}[1;31mError:\u{1b}[0m no\tluck.\n}\n\n";
        assert_eq!(last_line(output), ": Error: no luck");
        assert_eq!(last_line(" \n"), "");
    }
}
