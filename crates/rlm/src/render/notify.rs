//! The content of a notification, and that of the heartbeat file.

use std::path::{Path, PathBuf};

use agent_duplex::Event;
use interrupt_stack::Cause;
use loop_runner::{HeartbeatContext, HookEvent, HookEventKind, RunEvent};
use loop_state::{Head, IterationStep, RunUpdate, StopReason, WaitCause};
use rlm_store::{RunId, index};
use rlm_text::escape::plain;
use rlm_text::money;
use rlm_text::time::utc;
use serde_json::{Value, json};

use crate::config::NotifyEvent;
use crate::exit::Code;
use crate::hint::resume_hint;

/// The longest title and the longest line of a notification, in characters.
const MAX_LINE: usize = 200;

/// The facts about a run that its events don't contain.
#[derive(Clone, Debug)]
pub(crate) struct NotifyContext {
    pub(crate) project: PathBuf,
    /// The root of the project, which is a part of the name of the run's page.
    pub(crate) root: PathBuf,
    /// The title of the run.
    pub(crate) title: Option<String>,
    /// The address of the user's page of the runs.
    pub(crate) view_url: Option<String>,
}

/// One notification, for every channel.
#[derive(Clone, Debug)]
pub(crate) struct Notification {
    pub(crate) event: String,
    pub(crate) title: String,
    /// The event, and the place of the run.
    pub(crate) body: [String; 2],
    /// The page of the run.
    pub(crate) link: Option<String>,
    /// All data of the event.
    pub(crate) json: Value,
    /// The same data in variables.
    pub(crate) variables: Vec<(String, String)>,
}

/// Returns the event that channels report, if there is one for this event of the run.
pub(crate) fn notify_event(moment: &HookEvent<'_>) -> Option<NotifyEvent> {
    let RunEvent::Update(notice) = (match moment.kind {
        HookEventKind::Event(RunEvent::Paused { .. }) => return Some(NotifyEvent::Paused),
        HookEventKind::Started { resumed: false } => return Some(NotifyEvent::Started),
        HookEventKind::Started { .. } => return Some(NotifyEvent::Resumed),
        HookEventKind::Ended(Ok(outcome)) => return Some(ended(&outcome.reason)),
        HookEventKind::Ended(_) => return Some(NotifyEvent::Failed),
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
        RunUpdate::IterationEnded { .. } => NotifyEvent::IterationFailed,
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

/// Returns the event for the end of a run.
fn ended(reason: &StopReason) -> NotifyEvent {
    match Code::of(reason) {
        Code::Done => NotifyEvent::Done,
        Code::Stuck => NotifyEvent::Stuck,
        Code::Stopped => NotifyEvent::Stopped,
        _ => NotifyEvent::Failed,
    }
}

/// Returns the notification for an event. `cause` is the cause of the shutdown.
pub(crate) fn notification(
    occasion: NotifyEvent,
    moment: &HookEvent<'_>,
    context: &NotifyContext,
    cause: Option<Cause>,
) -> Notification {
    let project = &context.project;
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
    let name = context.title.as_ref().map(|title| plain(title));
    let name = name.unwrap_or_else(|| format!("run {run}"));
    let what = headline(occasion, head, iteration);
    let title = line(&format!("{name}: {what}"));
    let text = match &reason {
        Some(reason) if occasion.is_end() => reason.clone(),
        Some(reason) => format!("{what}: {reason}"),
        None => what,
    };
    let body = [
        line(&text),
        line(&place(
            run,
            head,
            iteration,
            &plain(&project.to_string_lossy()),
        )),
    ];
    let text = format!("run {run}: {text}");
    let link = context.view_url.as_deref();
    let link = link.map(|base| run_link(base, &context.root, run));
    let cost = head.usage.cost_microusd;
    let json = json!({
        "event": event,
        "at": utc(moment.at),
        "run": run,
        "project": project,
        "text": text,
        "title": title,
        "body": body,
        "link": link,
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
        ("RLM_EVENT", event.clone()),
        ("RLM_TEXT", text),
        ("RLM_LINK", link.clone().unwrap_or_default()),
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
    Notification {
        event,
        title,
        body,
        link,
        json,
        variables: variables.map(|(name, value)| (name.into(), value)).into(),
    }
}

/// Returns the address of the page of a run, as `rlm view` serves it.
fn run_link(base: &str, root: &Path, run: &RunId) -> String {
    let key = index::key(root, run);
    format!("{}/runs/{key}", base.trim_end_matches('/'))
}

/// Makes one line of at most [`MAX_LINE`] characters.
fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = words.join(" ");
    if let Some((end, _)) = line.char_indices().nth(MAX_LINE) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// Returns the second line of a notification: the run, its place and its cost.
fn place(run: &RunId, head: &Head, iteration: u32, project: &str) -> String {
    let usage = money::usage_text(head.usage);
    let usage = usage.map_or_else(String::new, |usage| format!(", {usage}"));
    format!("run {run}, iteration {iteration}{usage}, in {project}")
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

/// Returns what happened, without its reason.
fn headline(occasion: NotifyEvent, head: &Head, iteration: u32) -> String {
    let at = format!("iteration {iteration}");
    match occasion {
        NotifyEvent::Started => "started".into(),
        NotifyEvent::Resumed => format!("resumed at iteration {}", head.resume_point().iteration),
        NotifyEvent::Iteration => format!("{at} complete"),
        NotifyEvent::IterationFailed => format!("{at} failed"),
        NotifyEvent::Phase => "finished a phase".into(),
        NotifyEvent::Limit => "waits for a rate limit or an outage".into(),
        NotifyEvent::Retry => "tries again".into(),
        NotifyEvent::Paused => "is paused".into(),
        NotifyEvent::Review => "waits for your approval".into(),
        NotifyEvent::Permission => "the agent asks".into(),
        NotifyEvent::Done => "done".into(),
        NotifyEvent::Stuck => "stuck".into(),
        NotifyEvent::Stopped => "stopped".into(),
        NotifyEvent::Failed => "failed".into(),
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
