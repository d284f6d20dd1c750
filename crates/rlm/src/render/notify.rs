//! The input of the notify command, and the content of the heartbeat file.

use std::path::Path;

use agent_duplex::Event;
use interrupt_stack::Cause;
use loop_runner::{HeartbeatContext, HookEvent, HookEventKind, HookInput, RunEvent};
use loop_state::{Head, IterationStep, RunUpdate, WaitCause};
use rlm_text::escape::plain;
use rlm_text::money;
use rlm_text::time::utc;
use serde_json::{Value, json};

use crate::config::NotifyEvent;
use crate::exit::Code;
use crate::hint::resume_hint;

/// Returns the event for the notify command, if there is one for this event of the run.
pub(crate) fn notify_event(moment: &HookEvent<'_>) -> Option<NotifyEvent> {
    let RunEvent::Update(notice) = (match moment.kind {
        HookEventKind::Event(RunEvent::Paused { .. }) => return Some(NotifyEvent::Paused),
        HookEventKind::Started { resumed: false } => return Some(NotifyEvent::Started),
        HookEventKind::Started { .. } => return Some(NotifyEvent::Resumed),
        HookEventKind::Ended(_) => return Some(NotifyEvent::Ended),
        HookEventKind::Event(RunEvent::Agent(Event::PermissionRequested(_))) => {
            return Some(NotifyEvent::Permission);
        }
        HookEventKind::Event(event) => event,
        _ => return None,
    }) else {
        return None;
    };
    Some(match notice {
        RunUpdate::IterationEnded { failure: None, .. } => NotifyEvent::Iteration,
        RunUpdate::IterationEnded { .. } => NotifyEvent::Failure,
        RunUpdate::PhaseEnded { .. } => NotifyEvent::Phase,
        RunUpdate::Waiting {
            why: WaitCause::RateLimit,
            ..
        } => NotifyEvent::Limit,
        RunUpdate::Waiting { .. } => NotifyEvent::Retry,
        RunUpdate::Interrupted => NotifyEvent::Paused,
        RunUpdate::Review(_) => NotifyEvent::Review,
        _ => return None,
    })
}

/// Returns the input of the notify command: one JSON object, and the same data in variables. `cause` is the cause of the shutdown.
pub(crate) fn hook_input(
    occasion: NotifyEvent,
    moment: &HookEvent<'_>,
    project: &Path,
    cause: Option<Cause>,
) -> HookInput {
    let (head, run) = (moment.head, moment.run);
    let (reason, exit_code) = match moment.kind {
        HookEventKind::Ended(Ok(outcome)) => {
            let code = crate::exit::exit_code(outcome, cause);
            (Some(outcome.reason.to_string()), Some(code))
        }
        HookEventKind::Ended(Err(e)) => (Some(e.to_string()), Some(Code::Failed as i32)),
        HookEventKind::Event(event) => (reason(event), None),
        _ => (None, None),
    };
    let reason = reason.map(|reason| plain(&reason));
    let ended = match moment.kind {
        HookEventKind::Ended(Ok(outcome)) => Some(match outcome.reason.is_stopped() {
            true => "stopped",
            false => "ended",
        }),
        HookEventKind::Ended(_) => Some("crashed"),
        _ => None,
    };
    let state = ended.unwrap_or_else(|| state(head));
    let event = occasion.name();
    let again = match moment.kind {
        HookEventKind::Ended(Ok(outcome)) => resume_hint(run, &outcome.reason),
        _ => None,
    };
    // When an iteration is complete, the head is already at the next one.
    let iteration = match moment.kind {
        HookEventKind::Event(RunEvent::Update(RunUpdate::IterationEnded { iteration, .. })) => {
            *iteration
        }
        _ => head.iteration,
    };
    let text = words(occasion, head, iteration, reason.as_deref());
    let text = format!("run {run}: {text}");
    let cost = head.usage.cost_microusd;
    let input = json!({
        "event": event,
        "at": utc(moment.at),
        "run": run,
        "project": project,
        "text": text,
        "state": state,
        "phase": head.phase_rules().name,
        "iteration": iteration,
        "iterations_complete": head.iterations_complete(),
        "reason": reason,
        "exit_code": exit_code,
        "next": again,
        "usage": money::usage_json(head.usage),
        "missed": moment.missed,
    });
    let variables = [
        ("RLM_EVENT", event),
        ("RLM_TEXT", text),
        ("RLM_ITERATION", iteration.to_string()),
        ("RLM_STATE", state.to_owned()),
        ("RLM_REASON", reason.unwrap_or_default()),
        (
            "RLM_EXIT_CODE",
            exit_code.map_or_else(String::new, |code| code.to_string()),
        ),
        ("RLM_COST", format!("{:.2}", cost as f64 / 1e6)),
        ("RLM_TOKENS", head.usage.tokens().to_string()),
        ("RLM_PROJECT", project.to_string_lossy().into_owned()),
    ];
    HookInput {
        variables: variables.map(|(name, value)| (name.into(), value)).into(),
        input: format!("{input}\n"),
    }
}

/// Returns the reason as text; without the arguments of a tool, which may be secret.
fn reason(event: &RunEvent) -> Option<String> {
    match event {
        RunEvent::Agent(Event::PermissionRequested(ask)) => {
            Some(format!("permission for {}?", ask.tool))
        }
        RunEvent::Paused { reason } => reason.clone(),
        RunEvent::Update(RunUpdate::IterationEnded { failure, .. }) => failure.clone(),
        RunEvent::Update(RunUpdate::Waiting { until, .. }) => {
            Some(format!("until {}", utc(*until)))
        }
        RunEvent::Update(RunUpdate::PhaseEnded { name, .. }) => Some(format!("phase {name}")),
        RunEvent::Update(RunUpdate::Review(of)) => Some(format!("the {of} is finished")),
        _ => None,
    }
}

fn words(occasion: NotifyEvent, head: &Head, iteration: u32, reason: Option<&str>) -> String {
    let at = format!("iteration {iteration}");
    let what = match occasion {
        NotifyEvent::Started => "started".into(),
        NotifyEvent::Resumed => format!("resumed at iteration {}", head.resume_point().iteration),
        NotifyEvent::Iteration => format!("{at} complete"),
        NotifyEvent::Failure => format!("{at} failed"),
        NotifyEvent::Phase => "finished a phase".into(),
        NotifyEvent::Limit => "waits for a rate limit or an outage".into(),
        NotifyEvent::Retry => "tries again".into(),
        NotifyEvent::Paused => "is paused".into(),
        NotifyEvent::Review => "waits for your approval".into(),
        NotifyEvent::Permission => "the agent asks".into(),
        NotifyEvent::Ended => return reason.unwrap_or("ended").into(),
    };
    match reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what,
    }
}

fn state(head: &Head) -> &'static str {
    match head.awaits_person() {
        true => "paused",
        false => "running",
    }
}

/// Returns the content of the heartbeat file.
pub(crate) fn heartbeat(beat: &HeartbeatContext<'_>) -> String {
    let head = beat.head;
    let doing = match head.step {
        IterationStep::Ready => "ready",
        IterationStep::Turn { .. } => "turn",
        IterationStep::RequiredCheck { .. } => "gate",
        IterationStep::Check | IterationStep::Recheck { .. } => "check",
        IterationStep::EndingLeftovers { .. } => "settling",
        IterationStep::Sleeping { .. } => "sleep",
        IterationStep::Waiting { .. } => "wait",
        IterationStep::Interrupted { .. } => "interrupted",
        IterationStep::Paused { .. } => "paused",
        IterationStep::Review { .. } => "review",
        _ => "other",
    };
    let state = match beat.ended {
        Some(_) => "ended",
        None => state(head),
    };
    let value: Value = json!({
        "run": beat.run,
        "state": state,
        "doing": beat.ended.is_none().then_some(doing),
        "phase": head.phase_rules().name,
        "iteration": head.iteration,
        "attempt": head.attempt,
        "at": utc(beat.at),
        "next": beat.due.map(utc),
        "reason": beat.ended.map(plain),
        "pid": std::process::id(),
    });
    format!("{value}\n")
}
