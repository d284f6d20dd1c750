//! Run events as text for people and JSON for programs.

#[cfg(test)]
mod tests;

use std::time::Duration;

use agent_duplex::{ProcessName, Stream};
use jiff::tz::TimeZone;
use loop_runner::{Awaited, RunEvent};
use loop_state::{
    CheckOutcome, CheckResult, LoopCommand, RedoScope, ReviewDecision, RunUpdate, SteerState,
    Timestamp, UsageTotal, WaitCause,
};
use rlm_terminal::format_steer;
use rlm_terminal::style::{BAD, BOLD, DIM, GOOD, WARNING_STYLE, styled};
use rlm_text::duration::show;
use rlm_text::escape::{line, plain, safe};
use rlm_text::time::{instant, utc};
use rlm_text::{count, money};
use serde_json::{Value, json};

use crate::hint::program_command;
use crate::render::warning;
use crate::render::{agent, git};

/// The number of lines that are shown of a failed command's output; the next prompt and the transcript have more.
const TAIL_LINES: usize = 8;

/// Returns a run event as lines; empty if there is nothing to show.
pub(crate) fn text(event: &RunEvent, zone: &TimeZone) -> String {
    match event {
        RunEvent::Update(notice) => notice_text(notice, zone),
        RunEvent::Phase {
            name,
            number,
            count: of,
        } => styled(
            BOLD,
            format!("── phase {} ({number} of {of}) ──", plain(name)),
        ),
        RunEvent::AgentStarted { pid } => styled(DIM, format!("agent runs (pid {pid})")),
        RunEvent::Output {
            stream: Stream::Stdout,
            line: l,
        } => format!("{} {}", styled(DIM, "│"), line(&l.bytes, l.omitted)),
        RunEvent::Output { line: l, .. } => {
            format!(
                "{} {}",
                styled(WARNING_STYLE, "┆"),
                line(&l.bytes, l.omitted)
            )
        }
        RunEvent::Agent(event) => agent::text(event),
        RunEvent::TurnContinued => {
            "interrupted; the agent continues with your earlier messages".into()
        }
        RunEvent::SteerRecorded { text, .. } => format_steer(text),
        RunEvent::SteerNextTurn(id) => {
            format!("steer {id}: queued; sent after this turn")
        }
        RunEvent::InPrompt(id) => format!("steer {id}: sent with the prompt"),
        RunEvent::RequestRejected(why) => format!("{} {why}", styled(WARNING_STYLE, "rejected:")),
        RunEvent::PauseReason(reason) => format!("pause requested: {}", plain(reason)),
        RunEvent::Paused { reason } => {
            let reason = reason
                .as_deref()
                .map(|reason| format!(": {}", plain(reason)));
            styled(
                BOLD,
                format!(
                    "paused{}; /continue resumes (elsewhere: {} resume)",
                    reason.unwrap_or_default(),
                    program_command()
                ),
            )
        }
        RunEvent::CommandStarted { command, text } => {
            styled(DIM, format!("{}: {}", command_name(*command), plain(text)))
        }
        RunEvent::CommandEnded {
            command,
            result,
            took,
        } => command_text(*command, result, *took, TAIL_LINES),
        RunEvent::IterationChanges {
            files,
            added,
            removed,
            summary,
            ..
        } => git::changes(*files, (*added, *removed), summary.as_deref()),
        RunEvent::IterationCommitted {
            iteration,
            commit,
            left_out,
        } => git::committed(*iteration, commit, left_out),
        RunEvent::EndingTurn { why, budget } => {
            format!(
                "{}; stopping the agent (up to {})",
                plain(why),
                show(whole(*budget))
            )
        }
        RunEvent::AgentSilent { silent, of } => styled(
            WARNING_STYLE,
            format!(
                "no output from the agent for {} (limit {})",
                show(whole(*silent)),
                show(*of)
            ),
        ),
        RunEvent::AwaitingTasks { tasks, timeout } => format!(
            "the turn ended; waiting for {}, up to {} without progress",
            rlm_terminal::background(*tasks),
            show(*timeout)
        ),
        RunEvent::StillWaiting { until, left } => styled(
            DIM,
            format!(
                "still waiting: {} left, until {}",
                show(whole(*left)),
                clock(*until, zone)
            ),
        ),
        RunEvent::Stopping { budget, awaited } => stopping(*budget, *awaited),
        RunEvent::StopAwaits { awaited, left } => format!(
            "stopping: waiting for {awaited}, {} left",
            show(whole(*left))
        ),
        RunEvent::ProcessesEnded {
            why,
            run,
            processes,
        } => {
            let of_run = run.as_ref().map(|run| format!("of run {run} "));
            format!(
                "ended {} {}{why}: {}",
                count(processes.len(), "process", "processes"),
                of_run.unwrap_or_default(),
                names(processes)
            )
        }
        RunEvent::Survivors(processes) => {
            format!("{} {}", styled(BAD, "could not end:"), names(processes))
        }
        RunEvent::Warning(text) => warning(text),
        RunEvent::EventsMissed(lines) => styled(
            DIM,
            match lines {
                1 => "(1 line not shown; the transcript has it)".to_owned(),
                lines => format!("({lines} lines not shown; the transcript has them)"),
            },
        ),
        _ => String::new(),
    }
}

/// Returns the text for a stop, with the process or step that the stop waits for.
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
    command: LoopCommand,
    result: &CheckResult,
    took: Duration,
    tail: usize,
) -> String {
    let name = command_name(command);
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

fn notice_text(notice: &RunUpdate, zone: &TimeZone) -> String {
    match notice {
        RunUpdate::AttemptStarted {
            iteration,
            is_retry: false,
            ..
        } => styled(BOLD, format!("── iteration {iteration} ──")),
        RunUpdate::AttemptStarted {
            iteration, attempt, ..
        } => styled(
            BOLD,
            format!("── iteration {iteration}, attempt {attempt} ──"),
        ),
        RunUpdate::IterationEnded {
            iteration,
            failure: None,
            usage,
            took,
            check,
            ..
        } => format!(
            "iteration {iteration} complete{}",
            iteration_facts(*took, *check, *usage)
        ),
        RunUpdate::IterationEnded {
            iteration,
            failure: Some(why),
            usage,
            took,
            check,
            ..
        } => {
            format!(
                "iteration {iteration} {}{}: {}",
                styled(BAD, "failed"),
                iteration_facts(*took, *check, *usage),
                plain(why)
            )
        }
        RunUpdate::PhaseEnded { name, usage } => {
            format!("phase {} finished{}", plain(name), usage_suffix(*usage))
        }
        RunUpdate::Sleeping { until } => {
            styled(DIM, format!("next iteration at {}", clock(*until, zone)))
        }
        RunUpdate::Waiting { why, until, what } => {
            let what = what.as_deref().map(|what| format!(": {}", plain(what)));
            let (what, until) = (what.unwrap_or_default(), clock(*until, zone));
            match why {
                WaitCause::RateLimit => format!(
                    "{} until {until}{what}; not a failure; /skip tries now (elsewhere: {} resume)",
                    styled(WARNING_STYLE, "waiting"),
                    program_command()
                ),
                _ => format!("{} again at {until}{what}", styled(WARNING_STYLE, "trying")),
            }
        }
        RunUpdate::Review(of) => styled(
            BOLD,
            format!(
                "the {of} is finished; review it: Ctrl-C opens the menu (elsewhere: {0} resume, or to revise it: {0} steer TEXT)",
                program_command()
            ),
        ),
        RunUpdate::Reviewed(verdict) => match verdict {
            ReviewDecision::Revise(_) => "revising".into(),
            ReviewDecision::StartOver => "starting over".into(),
            ReviewDecision::Exit => "stopping here".into(),
            _ => "continuing".into(),
        },
        RunUpdate::RuleChanged(change) => format!("changed: {change}"),
        RunUpdate::PhaseRuleChanged { phase, change } => {
            format!("phase {phase}: changed: {change}")
        }
        RunUpdate::SteerAdvanced { id, state } => match state {
            SteerState::Recorded => format!("steer {id}: recorded"),
            SteerState::Delivered => format!("steer {id}: delivered to the agent"),
            SteerState::Seen => format!("steer {id}: {}", styled(GOOD, "seen by the agent")),
        },
        RunUpdate::NoProgress { in_a_row } => format!(
            "{} no tool ran and nothing changed ({in_a_row} in a row)",
            styled(WARNING_STYLE, "warning:")
        ),
        RunUpdate::SessionLost => format!(
            "{} the session no longer exists; a fresh session gets the prompt",
            styled(WARNING_STYLE, "warning:")
        ),
        RunUpdate::Interrupted => styled(
            BOLD,
            format!(
                "interrupted; the session waits: send a message, /continue, or Ctrl-C (elsewhere: {0} steer TEXT, or {0} resume)",
                program_command()
            ),
        ),
        RunUpdate::Pausing => "will pause when the iteration is complete".into(),
        RunUpdate::Continued => "continuing".into(),
        RunUpdate::Redoing(RedoScope::Iteration) => {
            "stopping the agent to run the iteration again".into()
        }
        RunUpdate::Redoing(RedoScope::Phase) => "stopping the agent to start over".into(),
        RunUpdate::FreshSession => "the next attempt gets a fresh session".into(),
        RunUpdate::StoppingAfterIteration => "will stop when the iteration is complete".into(),
        // A pause, a stop and the end of the run have their own lines.
        _ => String::new(),
    }
}

/// The number of seconds from which the duration of an iteration is shown. A shorter one says nothing about the work of an agent.
const SHOWN_SECONDS: u64 = 10;

/// Returns the duration, the result of the check and the usage of an iteration in parentheses.
fn iteration_facts(took: Duration, check: Option<CheckOutcome>, usage: UsageTotal) -> String {
    let took = Duration::from_secs(took.as_secs());
    let took = (took.as_secs() >= SHOWN_SECONDS).then(|| show(took));
    let check = check.map(|check| match check {
        CheckOutcome::Passed => "check passed".to_owned(),
        CheckOutcome::Failed => "check did not pass".to_owned(),
        CheckOutcome::NotRun => "check could not run".to_owned(),
    });
    let facts: Vec<String> = [took, check, money::usage_text(usage)]
        .into_iter()
        .flatten()
        .collect();
    match facts.is_empty() {
        true => String::new(),
        false => format!(" ({})", facts.join("; ")),
    }
}

/// Returns the usage in parentheses.
fn usage_suffix(usage: UsageTotal) -> String {
    money::usage_text(usage).map_or_else(String::new, |used| format!(" ({used})"))
}

/// Returns the name of a command in the text output.
fn command_name(command: LoopCommand) -> String {
    match command {
        LoopCommand::RequiredCheck(index) => format!("required check {}", index + 1),
        LoopCommand::Check => "check".into(),
    }
}

/// Returns the name of a command in JSON.
fn command_key(command: LoopCommand) -> String {
    match command {
        LoopCommand::RequiredCheck(index) => format!("gate {}", index + 1),
        LoopCommand::Check => "check".into(),
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
pub(crate) fn json(at: Timestamp, event: &RunEvent) -> Option<Value> {
    let mut value = match event {
        RunEvent::Update(notice) => notice_json(notice)?,
        RunEvent::Phase {
            name,
            number,
            count: of,
        } => {
            json!({"event": "phase_started", "phase": name, "number": number, "of": of})
        }
        RunEvent::AgentStarted { pid } => json!({"event": "agent_started", "pid": pid}),
        RunEvent::Output { stream, line } => json!({
            "event": "output",
            "stream": match stream { Stream::Stdout => "stdout", Stream::Stderr => "stderr" },
            "text": String::from_utf8_lossy(&line.bytes),
            "omitted": line.omitted,
        }),
        RunEvent::Agent(event) => agent::json(event)?,
        RunEvent::TurnContinued => json!({"event": "turn_continued"}),
        RunEvent::SteerRecorded { id, text } => {
            json!({"event": "steer_sent", "id": id, "text": text})
        }
        RunEvent::SteerNextTurn(id) => json!({"event": "steer", "id": id, "state": "next_prompt"}),
        RunEvent::InPrompt(id) => json!({"event": "steer", "id": id, "state": "in_prompt"}),
        RunEvent::RequestRejected(why) => json!({"event": "request_rejected", "reason": why}),
        RunEvent::PauseReason(reason) => json!({"event": "pause_reason", "reason": reason}),
        RunEvent::Paused { reason } => json!({"event": "paused", "reason": reason}),
        RunEvent::CommandStarted { command, text } => {
            json!({"event": "command_started", "command": command_key(*command), "text": text})
        }
        RunEvent::CommandEnded {
            command,
            result,
            took,
        } => json!({
            "event": "command_ended",
            "command": command_key(*command),
            "passed": *result == CheckResult::Passed,
            "output": match result { CheckResult::Failed(text) => text.as_str(), _ => "" },
            "took_ms": took.as_millis() as u64,
        }),
        RunEvent::IterationChanges {
            iteration,
            files,
            added,
            removed,
            summary,
        } => json!({
            "event": "iteration_changes",
            "iteration": iteration,
            "files": files,
            "added": added,
            "removed": removed,
            "summary": summary,
        }),
        RunEvent::IterationCommitted {
            iteration,
            commit,
            left_out,
        } => git::committed_json(*iteration, commit, left_out),
        RunEvent::EndingTurn { why, budget } => {
            json!({"event": "ending_turn", "reason": why, "budget_ms": budget.as_millis() as u64})
        }
        RunEvent::AgentSilent { silent, of } => json!({
            "event": "agent_silent",
            "silent_ms": silent.as_millis() as u64,
            "limit_ms": of.as_millis() as u64,
        }),
        RunEvent::AwaitingTasks { tasks, timeout } => json!({
            "event": "awaiting_tasks",
            "tasks": tasks,
            "task_timeout_ms": timeout.as_millis() as u64,
        }),
        RunEvent::StillWaiting { until, left } => json!({
            "event": "still_waiting",
            "until": utc(*until),
            "left_ms": left.as_millis() as u64,
        }),
        RunEvent::Stopping { budget, awaited } => {
            let mut value = json!({"event": "stopping", "budget_ms": budget.as_millis() as u64});
            if let Some(awaited) = awaited {
                value["waits_for"] = json!(awaited);
            }
            value
        }
        RunEvent::StopAwaits { awaited, left } => json!({
            "event": "stop_progress",
            "waits_for": awaited,
            "left_s": left.as_secs(),
        }),
        RunEvent::ProcessesEnded {
            why,
            run,
            processes,
        } => json!({
            "event": "processes_ended",
            "reason": why,
            "of_run": run,
            "processes": processes_json(processes),
        }),
        RunEvent::Survivors(processes) => {
            json!({"event": "survivors", "processes": processes_json(processes)})
        }
        RunEvent::Warning(text) => json!({"event": "warning", "text": text}),
        RunEvent::EventsMissed(lines) => json!({"event": "events_missed", "lines": lines}),
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

fn notice_json(notice: &RunUpdate) -> Option<Value> {
    Some(match notice {
        RunUpdate::AttemptStarted {
            iteration, attempt, ..
        } => {
            json!({"event": "attempt_started", "iteration": iteration, "attempt": attempt})
        }
        RunUpdate::IterationEnded {
            iteration,
            failure,
            leftovers,
            usage,
            took,
            check,
        } => json!({
            "event": "iteration_ended",
            "iteration": iteration,
            "failure": failure,
            "leftovers_ended": leftovers.ended,
            "took_ms": took.as_millis() as u64,
            "check": check,
            "usage": money::usage_json(*usage),
        }),
        RunUpdate::PhaseEnded { name, usage } => {
            json!({"event": "phase_ended", "phase": name, "usage": money::usage_json(*usage)})
        }
        RunUpdate::Sleeping { until } => json!({"event": "sleeping", "until": utc(*until)}),
        RunUpdate::Waiting { why, until, what } => json!({
            "event": "waiting",
            "for": match why { WaitCause::RateLimit => "rate_limit", _ => "retry" },
            "until": utc(*until),
            "what": what,
        }),
        RunUpdate::Review(of) => json!({"event": "review", "of": of.to_string()}),
        RunUpdate::Reviewed(verdict) => {
            json!({"event": "reviewed", "decision": json!(verdict)["decision"]})
        }
        RunUpdate::RuleChanged(change) => {
            json!({"event": "rule_changed", "rule": change.to_string()})
        }
        RunUpdate::PhaseRuleChanged { phase, change } => {
            json!({"event": "rule_changed", "rule": change.to_string(), "phase": phase})
        }
        RunUpdate::SteerAdvanced { id, state } => {
            json!({"event": "steer", "id": id, "state": state})
        }
        RunUpdate::NoProgress { in_a_row } => {
            json!({"event": "no_progress", "in_a_row": in_a_row})
        }
        RunUpdate::SessionLost => json!({"event": "session_lost"}),
        RunUpdate::Interrupted => json!({"event": "interrupted"}),
        RunUpdate::Pausing => json!({"event": "pausing"}),
        RunUpdate::Continued => json!({"event": "continued"}),
        RunUpdate::Redoing(again) => json!({"event": "redoing", "what": again}),
        RunUpdate::FreshSession => json!({"event": "fresh_session"}),
        RunUpdate::StoppingAfterIteration => json!({"event": "stopping_after_iteration"}),
        // A pause, a stop and the end of the run have their own events.
        _ => return None,
    })
}
