//! The content of the notify command's input and of the heartbeat.

use std::path::Path;

use agent_duplex::Event;
use interrupt_stack::Cause;
use loop_runner::{Beat, Happened, Moment, News, Telling};
use loop_state::{Head, Notice, Step, Wait};
use rlm_text::escape::plain;
use rlm_text::money;
use rlm_text::time::utc;
use serde_json::{Value, json};

use crate::config::Occasion;
use crate::exit::Code;
use crate::hint::go_on;

/// Returns the notify event of a moment, if it is one.
pub(crate) fn occasion(moment: &Moment<'_>) -> Option<Occasion> {
    let News::Run(notice) = (match moment.what {
        Happened::Began { again: false } => return Some(Occasion::Started),
        Happened::Began { .. } => return Some(Occasion::Resumed),
        Happened::Ended(_) => return Some(Occasion::Ended),
        Happened::News(News::Agent(Event::PermissionAsked(_))) => return Some(Occasion::Question),
        Happened::News(news) => news,
        _ => return None,
    }) else {
        return None;
    };
    Some(match notice {
        Notice::IterationEnded { failure: None, .. } => Occasion::Iteration,
        Notice::IterationEnded { .. } => Occasion::Failure,
        Notice::PhaseEnded { .. } => Occasion::Phase,
        Notice::Waiting {
            why: Wait::Limit, ..
        } => Occasion::Limit,
        Notice::Waiting { .. } => Occasion::Retry,
        Notice::Paused | Notice::Interrupted => Occasion::Paused,
        Notice::Review(_) => Occasion::Review,
        _ => return None,
    })
}

/// Returns the input of the notify command: one JSON object, and the same data in variables. `cause` is the cause of the shutdown.
pub(crate) fn telling(
    occasion: Occasion,
    moment: &Moment<'_>,
    project: &Path,
    cause: Option<Cause>,
) -> Telling {
    let (head, run) = (moment.head, moment.run);
    let (reason, exit_code) = match moment.what {
        Happened::Ended(Ok(outcome)) => {
            let code = crate::exit::exit_code(outcome, cause);
            (Some(outcome.reason.to_string()), Some(code))
        }
        Happened::Ended(Err(e)) => (Some(e.to_string()), Some(Code::Failed as i32)),
        Happened::News(news) => (reason(news), None),
        _ => (None, None),
    };
    let reason = reason.map(|reason| plain(&reason));
    let ended = match moment.what {
        Happened::Ended(Ok(outcome)) => Some(match outcome.reason.is_stopped() {
            true => "stopped",
            false => "ended",
        }),
        Happened::Ended(_) => Some("crashed"),
        _ => None,
    };
    let state = ended.unwrap_or_else(|| state(head));
    let event = occasion.name();
    let again = match moment.what {
        Happened::Ended(Ok(outcome)) => go_on(run, &outcome.reason),
        _ => None,
    };
    // When an iteration is complete, the head is already at the next one.
    let iteration = match moment.what {
        Happened::News(News::Run(Notice::IterationEnded { iteration, .. })) => *iteration,
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
        "go_on": again,
        "usage": money::json(head.usage),
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
    Telling {
        variables: variables.map(|(name, value)| (name.into(), value)).into(),
        input: format!("{input}\n"),
    }
}

/// Returns the reason as text; without the arguments of a tool, which may be secret.
fn reason(news: &News) -> Option<String> {
    match news {
        News::Agent(Event::PermissionAsked(ask)) => Some(format!("permission for {}?", ask.tool)),
        News::Run(Notice::IterationEnded { failure, .. }) => failure.clone(),
        News::Run(Notice::Waiting { until, .. }) => Some(format!("until {}", utc(*until))),
        News::Run(Notice::PhaseEnded { name, .. }) => Some(format!("phase {name}")),
        News::Run(Notice::Review(of)) => Some(format!("the {of} is finished")),
        _ => None,
    }
}

fn words(occasion: Occasion, head: &Head, iteration: u32, reason: Option<&str>) -> String {
    let at = format!("iteration {iteration}");
    let what = match occasion {
        Occasion::Started => "started".into(),
        Occasion::Resumed => format!("resumed at iteration {}", head.resumes_at().0),
        Occasion::Iteration => format!("{at} complete"),
        Occasion::Failure => format!("{at} failed"),
        Occasion::Phase => "finished a phase".into(),
        Occasion::Limit => "waits for a rate limit or an outage".into(),
        Occasion::Retry => "tries again".into(),
        Occasion::Paused => "is paused".into(),
        Occasion::Review => "waits for your approval".into(),
        Occasion::Question => "the agent asks".into(),
        Occasion::Ended => return reason.unwrap_or("ended").into(),
    };
    match reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what,
    }
}

fn state(head: &Head) -> &'static str {
    match head.is_waiting() {
        true => "paused",
        false => "running",
    }
}

/// Returns the content of the heartbeat file.
pub(crate) fn heartbeat(beat: &Beat<'_>) -> String {
    let head = beat.head;
    let doing = match head.step {
        Step::Ready => "ready",
        Step::Turn { .. } => "turn",
        Step::Gate { .. } => "gate",
        Step::Check | Step::Recheck { .. } => "check",
        Step::Settling { .. } => "settling",
        Step::Sleeping { .. } => "sleep",
        Step::Waiting { .. } => "wait",
        Step::Interrupted { .. } => "interrupted",
        Step::Paused { .. } => "paused",
        Step::Review { .. } => "review",
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
