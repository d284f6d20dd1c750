//! Run events as text for people and JSON for programs.

#[cfg(test)]
mod tests;

use std::time::Duration;

use agent_duplex::{ProcessName, Stream};
use jiff::tz::TimeZone;
use loop_runner::{Awaited, News};
use loop_state::{
    Again, CheckResult, Command, Notice, SteerState, Timestamp, Usage, Verdict, Wait,
};
use rlm_terminal::said;
use rlm_terminal::style::{BAD, BOLD, DIM, GOOD, MIND, styled};
use rlm_text::duration::show;
use rlm_text::escape::{line, plain, safe};
use rlm_text::time::{instant, utc};
use rlm_text::{count, money};
use serde_json::{Value, json};

use crate::render::warning;
use crate::render::{agent, git};

/// The number of lines that are shown of a failed command's output; the next prompt and the transcript have more.
const TAIL_LINES: usize = 8;

/// Returns a run event as lines; empty if there is nothing to show.
pub(crate) fn text(news: &News, zone: &TimeZone) -> String {
    match news {
        News::Run(notice) => notice_text(notice, zone),
        News::Phase { name, number, of } => styled(
            BOLD,
            format!("── phase {} ({number} of {of}) ──", plain(name)),
        ),
        News::AgentStarted { pid } => styled(DIM, format!("agent runs (pid {pid})")),
        News::Output {
            stream: Stream::Stdout,
            line: l,
        } => format!("{} {}", styled(DIM, "│"), line(&l.bytes, l.omitted)),
        News::Output { line: l, .. } => {
            format!("{} {}", styled(MIND, "┆"), line(&l.bytes, l.omitted))
        }
        News::Agent(event) => agent::text(event),
        News::GoesOn => "interrupted; the agent continues with your earlier messages".into(),
        News::Said { text, .. } => said(text),
        News::NextPrompt(id) => {
            format!("steer {id}: queued; sent after this turn")
        }
        News::InPrompt(id) => format!("steer {id}: sent with the prompt"),
        News::Rejected(why) => format!("{} {why}", styled(MIND, "rejected:")),
        News::PauseReason(reason) => format!("pause requested: {}", plain(reason)),
        News::CommandStarted { command, text } => {
            styled(DIM, format!("{}: {}", name(*command), plain(text)))
        }
        News::CommandEnded {
            command,
            result,
            took,
        } => command_text(*command, result, *took, TAIL_LINES),
        News::Committed {
            iteration,
            commit,
            left_out,
        } => git::committed(*iteration, commit, left_out),
        News::EndingTurn { why, budget } => {
            format!(
                "{}; stopping the agent (up to {})",
                plain(why),
                show(whole(*budget))
            )
        }
        News::Silent { silent, of } => styled(
            MIND,
            format!(
                "no output from the agent for {} (limit {})",
                show(whole(*silent)),
                show(*of)
            ),
        ),
        News::Holding { tasks, patience } => format!(
            "the turn ended; waiting for {}, up to {} without progress",
            rlm_terminal::background(*tasks),
            show(*patience)
        ),
        News::StillWaiting { until, left } => styled(
            DIM,
            format!(
                "still waiting: {} left, until {}",
                show(whole(*left)),
                clock(*until, zone)
            ),
        ),
        News::Stopping { budget, awaited } => stopping(*budget, *awaited),
        News::StopWaiting { awaited, left } => format!(
            "stopping: waiting for {awaited}, {} left",
            show(whole(*left))
        ),
        News::Ended { why, processes } => {
            format!(
                "ended {} {why}: {}",
                count(processes.len(), "process", "processes"),
                names(processes)
            )
        }
        News::Survivors(processes) => {
            format!("{} {}", styled(BAD, "could not end:"), names(processes))
        }
        News::Warning(text) => warning(text),
        News::Missed(lines) => styled(
            DIM,
            format!("({lines} lines not shown; the transcript has them)"),
        ),
        _ => String::new(),
    }
}

/// Returns the text for a stop, and for the subject of its wait.
fn stopping(budget: Duration, awaited: Option<Awaited>) -> String {
    match awaited {
        None => "stopping: state saved".into(),
        Some(awaited) if budget.is_zero() => {
            format!("stopping: state saved; ending {awaited} immediately")
        }
        Some(awaited) => format!(
            "stopping: state saved; waiting for {awaited}, up to {}",
            show(whole(budget))
        ),
    }
}

/// Returns how a required check or the check ended, with the last `tail` lines of its output if it failed.
pub(super) fn command_text(
    command: Command,
    result: &CheckResult,
    took: Duration,
    tail: usize,
) -> String {
    let name = name(command);
    let text = match result {
        CheckResult::Passed => {
            return format!("{name} {} ({})", styled(GOOD, "passed"), seconds(took));
        }
        CheckResult::Failed(text) | CheckResult::NotRun(text) => text,
        _ => return format!("{name} was stopped ({})", seconds(took)),
    };
    let mut shown = format!("{name} {} ({})", styled(BAD, "did not pass"), seconds(took));
    let lines: Vec<&str> = text.trim_end().lines().collect();
    for line in &lines[lines.len().saturating_sub(tail)..] {
        shown.push_str(&format!("\n{} {}", styled(DIM, "┆"), safe(line)));
    }
    shown
}

fn notice_text(notice: &Notice, zone: &TimeZone) -> String {
    match notice {
        Notice::AttemptStarted {
            iteration,
            again: false,
            ..
        } => styled(BOLD, format!("── iteration {iteration} ──")),
        Notice::AttemptStarted {
            iteration, attempt, ..
        } => styled(
            BOLD,
            format!("── iteration {iteration}, attempt {attempt} ──"),
        ),
        Notice::IterationEnded {
            iteration,
            failure: None,
            usage,
            ..
        } => format!("iteration {iteration} complete{}", spent(*usage)),
        Notice::IterationEnded {
            iteration,
            failure: Some(why),
            usage,
            ..
        } => {
            format!(
                "iteration {iteration} {}{}: {}",
                styled(BAD, "failed"),
                spent(*usage),
                plain(why)
            )
        }
        Notice::PhaseEnded { name, usage } => {
            format!("phase {} finished{}", plain(name), spent(*usage))
        }
        Notice::Sleeping { until } => {
            styled(DIM, format!("next iteration at {}", clock(*until, zone)))
        }
        Notice::Waiting { why, until, what } => {
            let what = what.as_deref().map(|what| format!(": {}", plain(what)));
            let (what, until) = (what.unwrap_or_default(), clock(*until, zone));
            match why {
                Wait::Limit => format!(
                    "{} until {until}{what}; not a failure; /skip tries now (elsewhere: rlm resume)",
                    styled(MIND, "waiting")
                ),
                _ => format!("{} again at {until}{what}", styled(MIND, "trying")),
            }
        }
        Notice::Review(of) => styled(
            BOLD,
            format!(
                "the {of} is finished; review it: Ctrl-C opens the menu (elsewhere: rlm resume, or to revise it: rlm steer TEXT)"
            ),
        ),
        Notice::Reviewed(verdict) => match verdict {
            Verdict::Revise(_) => "revising".into(),
            Verdict::StartOver => "starting over".into(),
            Verdict::Exit => "stopping here".into(),
            _ => "continuing".into(),
        },
        Notice::RuleSet(change) => format!("changed: {change}"),
        Notice::PhaseRuleSet { phase, change } => format!("phase {phase}: changed: {change}"),
        Notice::Steer { id, state } => match state {
            SteerState::Recorded => format!("steer {id}: recorded"),
            SteerState::Delivered => format!("steer {id}: delivered to the agent"),
            SteerState::Seen => format!("steer {id}: {}", styled(GOOD, "seen by the agent")),
        },
        Notice::NothingDone { in_a_row } => format!(
            "{} no tool ran and nothing changed ({in_a_row} in a row)",
            styled(MIND, "warning:")
        ),
        Notice::SessionLost => format!(
            "{} the session no longer exists; a fresh one gets the prompt",
            styled(MIND, "warning:")
        ),
        Notice::Interrupted => styled(
            BOLD,
            "interrupted; the session waits: send a message, /continue, or Ctrl-C (elsewhere: rlm steer, rlm resume)",
        ),
        Notice::Pausing => "will pause when the iteration is complete".into(),
        Notice::Paused => styled(BOLD, "paused; /continue resumes (elsewhere: rlm resume)"),
        Notice::Continued => "continuing".into(),
        Notice::Again(Again::Iteration) => "stopping the agent to run the iteration again".into(),
        Notice::Again(Again::Phase) => "stopping the agent to start over".into(),
        Notice::Fresh => "the next attempt gets a fresh session".into(),
        Notice::StoppingLater => "will stop when the iteration is complete".into(),
        // The end of the run has its own line.
        _ => String::new(),
    }
}

/// Returns the usage in parentheses.
fn spent(usage: Usage) -> String {
    money::used(usage).map_or_else(String::new, |used| format!(" ({used})"))
}

fn name(command: Command) -> String {
    match command {
        Command::Gate(index) => format!("gate {}", index + 1),
        Command::Check => "check".into(),
    }
}

fn names(processes: &[ProcessName]) -> String {
    let names: Vec<String> = processes.iter().map(|p| plain(&p.to_string())).collect();
    names.join(", ")
}

/// Rounds up to whole seconds.
pub(crate) fn whole(time: Duration) -> Duration {
    let seconds = time.as_millis().div_ceil(1000);
    Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX))
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

fn clock(at: Timestamp, zone: &TimeZone) -> String {
    let at = instant(at);
    at.to_zoned(zone.clone()).strftime("%H:%M:%S").to_string()
}

/// Returns a run event as JSON; `None` for an event that is reported elsewhere.
pub(crate) fn json(at: Timestamp, news: &News) -> Option<Value> {
    let mut value = match news {
        News::Run(notice) => notice_json(notice)?,
        News::Phase { name, number, of } => {
            json!({"event": "phase_started", "phase": name, "number": number, "of": of})
        }
        News::AgentStarted { pid } => json!({"event": "agent_started", "pid": pid}),
        News::Output { stream, line } => json!({
            "event": "output",
            "stream": match stream { Stream::Stdout => "stdout", Stream::Stderr => "stderr" },
            "text": String::from_utf8_lossy(&line.bytes),
            "omitted": line.omitted,
        }),
        News::Agent(event) => agent::json(event)?,
        News::GoesOn => json!({"event": "goes_on"}),
        News::Said { id, text } => json!({"event": "said", "id": id, "text": text}),
        News::NextPrompt(id) => json!({"event": "steer", "id": id, "state": "next_prompt"}),
        News::InPrompt(id) => json!({"event": "steer", "id": id, "state": "in_prompt"}),
        News::Rejected(why) => json!({"event": "rejected", "why": why}),
        News::PauseReason(reason) => json!({"event": "pause_reason", "reason": reason}),
        News::CommandStarted { command, text } => {
            json!({"event": "command_started", "command": name(*command), "text": text})
        }
        News::CommandEnded {
            command,
            result,
            took,
        } => json!({
            "event": "command_ended",
            "command": name(*command),
            "passed": *result == CheckResult::Passed,
            "output": match result { CheckResult::Failed(text) => text.as_str(), _ => "" },
            "took_ms": took.as_millis() as u64,
        }),
        News::Committed {
            iteration,
            commit,
            left_out,
        } => git::committed_json(*iteration, commit, left_out),
        News::EndingTurn { why, budget } => {
            json!({"event": "ending_turn", "why": why, "budget_ms": budget.as_millis() as u64})
        }
        News::Silent { silent, of } => json!({
            "event": "silent",
            "silent_ms": silent.as_millis() as u64,
            "of_ms": of.as_millis() as u64,
        }),
        News::Holding { tasks, patience } => json!({
            "event": "holding",
            "tasks": tasks,
            "patience_ms": patience.as_millis() as u64,
        }),
        News::StillWaiting { until, left } => json!({
            "event": "still_waiting",
            "until": utc(*until),
            "left_ms": left.as_millis() as u64,
        }),
        News::Stopping { budget, awaited } => {
            let mut value = json!({"event": "stopping", "budget_ms": budget.as_millis() as u64});
            if let Some(awaited) = awaited {
                value["waits_for"] = json!(awaited);
            }
            value
        }
        News::StopWaiting { awaited, left } => json!({
            "event": "stop_waiting",
            "waits_for": awaited,
            "left_s": left.as_secs(),
        }),
        News::Ended { why, processes } => {
            json!({"event": "processes_ended", "why": why, "processes": processes_json(processes)})
        }
        News::Survivors(processes) => {
            json!({"event": "survivors", "processes": processes_json(processes)})
        }
        News::Warning(text) => json!({"event": "warning", "text": text}),
        News::Missed(lines) => json!({"event": "missed", "lines": lines}),
        _ => return None,
    };
    value["at"] = utc(at).into();
    Some(value)
}

pub(crate) fn processes_json(processes: &[ProcessName]) -> Value {
    processes
        .iter()
        .map(|p| json!({"pid": p.pid, "name": p.name}))
        .collect()
}

fn notice_json(notice: &Notice) -> Option<Value> {
    Some(match notice {
        Notice::AttemptStarted {
            iteration, attempt, ..
        } => {
            json!({"event": "attempt_started", "iteration": iteration, "attempt": attempt})
        }
        Notice::IterationEnded {
            iteration,
            failure,
            leftovers,
            usage,
        } => json!({
            "event": "iteration_ended",
            "iteration": iteration,
            "failure": failure,
            "leftovers_ended": leftovers.ended,
            "usage": money::json(*usage),
        }),
        Notice::PhaseEnded { name, usage } => {
            json!({"event": "phase_ended", "phase": name, "usage": money::json(*usage)})
        }
        Notice::Sleeping { until } => json!({"event": "sleeping", "until": utc(*until)}),
        Notice::Waiting { why, until, what } => json!({
            "event": "waiting",
            "for": match why { Wait::Limit => "rate_limit", _ => "retry" },
            "until": utc(*until),
            "what": what,
        }),
        Notice::Review(of) => json!({"event": "review", "of": of.to_string()}),
        Notice::Reviewed(verdict) => {
            json!({"event": "reviewed", "verdict": json!(verdict)["verdict"]})
        }
        Notice::RuleSet(change) => json!({"event": "rule_set", "rule": change.to_string()}),
        Notice::PhaseRuleSet { phase, change } => {
            json!({"event": "rule_set", "rule": change.to_string(), "phase": phase})
        }
        Notice::Steer { id, state } => json!({"event": "steer", "id": id, "state": state}),
        Notice::NothingDone { in_a_row } => json!({"event": "nothing_done", "in_a_row": in_a_row}),
        Notice::SessionLost => json!({"event": "session_lost"}),
        Notice::Interrupted => json!({"event": "interrupted"}),
        Notice::Pausing => json!({"event": "pausing"}),
        Notice::Paused => json!({"event": "paused"}),
        Notice::Continued => json!({"event": "continued"}),
        Notice::Again(again) => json!({"event": "again", "what": again}),
        Notice::Fresh => json!({"event": "fresh_session"}),
        Notice::StoppingLater => json!({"event": "stopping_later"}),
        // The end of the run has its own event.
        _ => return None,
    })
}
