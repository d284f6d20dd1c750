//! Run events as text, for the log of a program.

use std::fmt;
use std::time::Duration;

use agent_duplex::{Event, ProcessName};
use loop_state::{
    CheckOutcome, CheckResult, LoopCommand, RedoScope, ReviewDecision, RunUpdate, SteerState,
    Timestamp, WaitCause,
};

use super::RunEvent;

/// The maximum number of characters of a text that an agent, a command or a person wrote.
const LONGEST: usize = 200;

impl fmt::Display for RunEvent {
    /// Writes the event on one line, for a log: without colours, with control characters escaped and line feeds as spaces. Of a long text it writes the
    /// first 200 characters; of the output of a command, the last 200. The transcript has them in full. Times are in UTC. Events that people don't need,
    /// such as pieces of streamed text, give an empty string.
    ///
    /// The words may change with any version. A program that evaluates events uses the variants, or their `serde` form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Update(update) => write_update(f, update),
            Self::Phase {
                name,
                number,
                count,
            } => write!(f, "phase {} ({number} of {count})", OneLine(name)),
            Self::AgentStarted { pid } => write!(f, "agent started (pid {pid})"),
            Self::Output { stream, line } => {
                let stream = match stream {
                    agent_duplex::Stream::Stdout => "agent",
                    agent_duplex::Stream::Stderr => "agent (standard error)",
                };
                let text = String::from_utf8_lossy(&line.bytes);
                write!(f, "{stream}: {}", OneLine(&text))
            }
            Self::Agent(event) => write_agent(f, event),
            Self::TurnContinued => f.write_str("the interrupted turn continues"),
            Self::SteerNextTurn(id) => write!(f, "steer {id}: waits for the next turn"),
            Self::InPrompt(id) => write!(f, "steer {id}: is part of the prompt"),
            Self::SteerRecorded { id, text } => write!(f, "steer {id}: {}", OneLine(text)),
            Self::RequestRejected(why) => write!(f, "request rejected: {}", OneLine(why)),
            Self::PauseReason(reason) => write!(f, "pause requested: {}", OneLine(reason)),
            Self::Paused { reason: None } => f.write_str("paused"),
            Self::Paused {
                reason: Some(reason),
            } => write!(f, "paused: {}", OneLine(reason)),
            Self::CommandStarted { command, text } => {
                write!(f, "{} started: {}", Command(*command), OneLine(text))
            }
            Self::CommandEnded {
                command,
                result,
                took,
            } => write_command_end(f, *command, result, *took),
            Self::IterationChanges {
                iteration,
                files,
                added,
                removed,
                summary,
            } => {
                write!(
                    f,
                    "iteration {iteration} changed {files} files, {added} lines added, {removed} removed"
                )?;
                write_reason(f, summary.as_deref())
            }
            Self::IterationCommitted {
                iteration,
                commit,
                left_out,
            } => {
                write!(f, "iteration {iteration} committed as {}", OneLine(commit))?;
                if !left_out.is_empty() {
                    write!(f, ", without {}", OneLine(&left_out.join(", ")))?;
                }
                Ok(())
            }
            Self::EndingTurn { why, budget } => {
                write!(
                    f,
                    "ending the turn within {}: {}",
                    seconds(*budget),
                    OneLine(why)
                )
            }
            Self::AgentSilent { silent, of } => write!(
                f,
                "the agent has been silent for {} (limit {})",
                seconds(*silent),
                seconds(*of)
            ),
            Self::AwaitingTasks { tasks, timeout } => write!(
                f,
                "the turn ended; waiting for background tasks ({tasks}), up to {} without progress",
                seconds(*timeout)
            ),
            Self::StillWaiting { until, left } => {
                write!(
                    f,
                    "still waiting, until {} ({} left)",
                    Clock(*until),
                    seconds(*left)
                )
            }
            Self::Stopping {
                budget,
                awaited: Some(awaited),
            } => write!(
                f,
                "stopping within {}: waiting for {awaited}",
                seconds(*budget)
            ),
            Self::Stopping { awaited: None, .. } => f.write_str("stopping: nothing runs"),
            Self::StopAwaits { awaited, left } => {
                write!(
                    f,
                    "stopping: waiting for {awaited}, {} left",
                    seconds(*left)
                )
            }
            Self::ProcessesEnded {
                why,
                run,
                processes,
            } => {
                f.write_str("ended processes")?;
                if let Some(run) = run {
                    write!(f, " of run {run}")?;
                }
                write!(f, ", {}: {}", OneLine(why), Names(processes))
            }
            Self::Survivors(processes) => {
                write!(f, "could not end processes: {}", Names(processes))
            }
            Self::Warning(text) => write!(f, "warning: {}", OneLine(text)),
            Self::EventsMissed(count) => write!(f, "missed {count} events"),
        }
    }
}

fn write_update(f: &mut fmt::Formatter<'_>, update: &RunUpdate) -> fmt::Result {
    match update {
        RunUpdate::AttemptStarted {
            iteration, attempt, ..
        } => write!(f, "iteration {iteration}, attempt {attempt} started"),
        RunUpdate::IterationEnded {
            iteration,
            failure,
            usage,
            took,
            check,
            ..
        } => {
            let how = match failure {
                None => "complete",
                Some(_) => "failed",
            };
            write!(f, "iteration {iteration} {how} after {}", tenths(*took))?;
            if usage.tokens() > 0 {
                write!(f, ", {} tokens", usage.tokens())?;
            }
            match check {
                Some(CheckOutcome::Passed) => f.write_str(", check passed")?,
                Some(CheckOutcome::Failed) => f.write_str(", check did not pass")?,
                Some(CheckOutcome::NotRun) => f.write_str(", check could not run")?,
                None => {}
            }
            write_reason(f, failure.as_deref())
        }
        RunUpdate::PhaseEnded { name, .. } => write!(f, "phase {} finished", OneLine(name)),
        RunUpdate::Sleeping { until } => write!(f, "next iteration at {}", Clock(*until)),
        RunUpdate::Waiting { why, until, what } => {
            let why = match why {
                WaitCause::RateLimit => "rate limit",
                _ => "the failure may be temporary",
            };
            write!(f, "waiting until {}: {why}", Clock(*until))?;
            write_reason(f, what.as_deref())
        }
        RunUpdate::Review(point) => write!(f, "{point} finished: review it"),
        RunUpdate::Reviewed(ReviewDecision::Continue) => f.write_str("reviewed: continue"),
        RunUpdate::Reviewed(ReviewDecision::Revise(text)) => {
            write!(f, "reviewed: revise: {}", OneLine(text))
        }
        RunUpdate::Reviewed(ReviewDecision::StartOver) => f.write_str("reviewed: start over"),
        RunUpdate::Reviewed(ReviewDecision::Exit) => f.write_str("reviewed: stop"),
        RunUpdate::RuleChanged(change) => write!(f, "changed: {}", OneLine(&change.to_string())),
        RunUpdate::PhaseRuleChanged { phase, change } => write!(
            f,
            "phase {} changed: {}",
            OneLine(phase),
            OneLine(&change.to_string())
        ),
        RunUpdate::SteerAdvanced { id, state } => {
            let state = match state {
                SteerState::Recorded => "recorded",
                SteerState::Delivered => "delivered to the agent",
                SteerState::Seen => "seen by the agent",
            };
            write!(f, "steer {id}: {state}")
        }
        RunUpdate::NoProgress { in_a_row } => {
            write!(f, "no tool ran and nothing changed ({in_a_row} in a row)")
        }
        RunUpdate::SessionLost => f.write_str("the session no longer exists; a fresh one begins"),
        RunUpdate::Interrupted => f.write_str("the turn was interrupted"),
        RunUpdate::Pausing => f.write_str("will pause after the iteration"),
        RunUpdate::Paused => f.write_str("paused"),
        RunUpdate::Continued => f.write_str("continuing"),
        RunUpdate::Redoing(RedoScope::Iteration) => f.write_str("running the iteration again"),
        RunUpdate::Redoing(RedoScope::Phase) => f.write_str("running the phase again"),
        RunUpdate::FreshSession => f.write_str("the next attempt gets a fresh session"),
        RunUpdate::StoppingAfterIteration => f.write_str("will stop after the iteration"),
        RunUpdate::Stopping => f.write_str("stopping"),
        RunUpdate::Ended(reason) => write!(f, "ended: {}", OneLine(&reason.to_string())),
        _ => Ok(()),
    }
}

fn write_agent(f: &mut fmt::Formatter<'_>, event: &Event) -> fmt::Result {
    match event {
        Event::Message { text, .. } => write!(f, "agent: {}", OneLine(text.trim_end())),
        Event::ToolStarted { name, summary, .. } => {
            write!(f, "tool {} started: {}", OneLine(name), OneLine(summary))
        }
        Event::ToolFinished { outcome, text, .. } => {
            write!(f, "tool {}: {}", outcome.name(), OneLine(text.trim_end()))
        }
        Event::PermissionRequested(request) => write!(
            f,
            "permission requested for {}: {}",
            OneLine(&request.tool),
            OneLine(&request.summary)
        ),
        Event::PermissionDenied { tool, message } => {
            write!(
                f,
                "permission denied for {}: {}",
                OneLine(tool),
                OneLine(message)
            )
        }
        Event::RateLimited {
            rejected, limit, ..
        } => {
            let how = if *rejected { "reached" } else { "near" };
            write!(f, "rate limit {how}: {}", OneLine(limit))
        }
        Event::Retrying { error, .. } => {
            write!(
                f,
                "the agent tries a failed request again: {}",
                OneLine(error)
            )
        }
        Event::BackgroundTasks(count) => write!(f, "background tasks of the agent: {count}"),
        Event::ContextReset { reason } => write!(f, "context reset: {}", OneLine(reason)),
        Event::Identified { agent, model } => {
            write!(f, "agent {}, model {}", OneLine(agent), OneLine(model))
        }
        Event::Warning(text) => write!(f, "warning: {}", OneLine(text)),
        _ => Ok(()),
    }
}

fn write_command_end(
    f: &mut fmt::Formatter<'_>,
    command: LoopCommand,
    result: &CheckResult,
    took: Duration,
) -> fmt::Result {
    let (how, output) = match result {
        CheckResult::Passed => ("passed", None),
        CheckResult::Failed(output) => ("did not pass", Some(output)),
        CheckResult::NotRun(output) => ("could not run", Some(output)),
        _ => ("was stopped", None),
    };
    write!(f, "{} {how} after {}", Command(command), tenths(took))?;
    let last_lines = output.map(|output| last_characters(output.trim_end()));
    write_reason(f, last_lines)
}

/// Writes `: reason`, if there is one.
fn write_reason(f: &mut fmt::Formatter<'_>, reason: Option<&str>) -> fmt::Result {
    match reason.filter(|reason| !reason.is_empty()) {
        Some(reason) => write!(f, ": {}", OneLine(reason)),
        None => Ok(()),
    }
}

/// Returns the end of an output: a command writes its error last.
fn last_characters(text: &str) -> &str {
    match text.char_indices().nth_back(LONGEST - 1) {
        Some((start, _)) => &text[start..],
        None => text,
    }
}

/// Rounds up to whole seconds.
fn seconds(time: Duration) -> String {
    format!("{}s", time.as_millis().div_ceil(1000))
}

fn tenths(time: Duration) -> String {
    format!("{:.1}s", time.as_secs_f64())
}

/// A text from outside, shortened and on one line. Characters that control a terminal, or that nobody sees, are escaped.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars().take(LONGEST) {
            match c {
                '\n' => f.write_str(" ")?,
                '"' | '\'' | '\\' => write!(f, "{c}")?,
                c => write!(f, "{}", c.escape_debug())?,
            }
        }
        match self.0.chars().nth(LONGEST) {
            Some(_) => f.write_str(" …"),
            None => Ok(()),
        }
    }
}

struct Command(LoopCommand);

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            LoopCommand::RequiredCheck(index) => write!(f, "required check {}", index + 1),
            LoopCommand::Check => f.write_str("check"),
        }
    }
}

struct Names<'a>(&'a [ProcessName]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, process) in self.0.iter().enumerate() {
            let comma = if n > 0 { ", " } else { "" };
            write!(f, "{comma}{}", OneLine(&process.to_string()))?;
        }
        Ok(())
    }
}

/// The time of day in UTC.
struct Clock(Timestamp);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let second = self.0.as_millis() / 1000 % 86_400;
        let (hours, minutes) = (second / 3600, second / 60 % 60);
        write!(f, "{hours:02}:{minutes:02}:{:02} UTC", second % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_one_line_without_control_characters() {
        let hostile = "a\nb\u{1b}[2J\u{202e}c".to_owned();
        let events = [
            RunEvent::Warning(hostile.clone()),
            RunEvent::SteerRecorded {
                id: 1,
                text: hostile.clone(),
            },
            RunEvent::Agent(Event::Message {
                text: hostile.clone(),
                partial: false,
            }),
            RunEvent::CommandEnded {
                command: LoopCommand::RequiredCheck(0),
                result: CheckResult::Failed(hostile),
                took: Duration::from_millis(1200),
            },
        ];
        let lines: Vec<String> = events.iter().map(ToString::to_string).collect();
        let escaped = "a b\\u{1b}[2J\\u{202e}c";
        assert_eq!(
            lines,
            [
                format!("warning: {escaped}"),
                format!("steer 1: {escaped}"),
                format!("agent: {escaped}"),
                format!("required check 1 did not pass after 1.2s: {escaped}"),
            ]
        );
    }

    #[test]
    fn long_text_is_cut_and_an_output_keeps_its_end() {
        let long = "ä".repeat(LONGEST + 1);
        let warning = RunEvent::Warning(long.clone()).to_string();
        let shown = "ä".repeat(LONGEST);
        assert_eq!(warning, format!("warning: {shown} …"));
        let ended = RunEvent::CommandEnded {
            command: LoopCommand::Check,
            result: CheckResult::Failed(format!("{long}\nerror: the end\n")),
            took: Duration::ZERO,
        };
        let ended = ended.to_string();
        assert!(ended.ends_with("error: the end"), "{ended}");
    }

    #[test]
    fn time_of_day_is_in_utc() {
        let until = Timestamp::from_millis(1_000_000_010_000);
        let update = RunEvent::Update(RunUpdate::Sleeping { until });
        assert_eq!(update.to_string(), "next iteration at 01:46:50 UTC");
    }
}
