//! What an agent did, in words.

use agent_duplex::{Event, ToolOutcome};
use serde_json::{Value, json};

use crate::duration::show;
use crate::render::event::whole;
use crate::render::text::{plain, safe};
use crate::render::{BAD, BOLD, DIM, MIND, styled};

/// The most characters of what a tool returned that are shown.
const RESULT: usize = 160;

/// One event as lines for the screen; empty when there is nothing to show. Streamed text is not shown here: its message says it again.
pub(crate) fn text(event: &Event) -> String {
    match event {
        Event::Message { text, partial } => {
            let cut = if *partial {
                styled(MIND, " (cut off)")
            } else {
                String::new()
            };
            format!("{}{cut}", safe(text.trim_end()))
        }
        Event::ToolStarted { name, summary, .. } => {
            format!("{} {}: {}", styled(BOLD, "●"), plain(name), plain(summary))
        }
        Event::ToolFinished { outcome, text, .. } => {
            let first = text
                .lines()
                .find(|line| !line.trim().is_empty())
                .unwrap_or_default();
            let first: String = plain(first).chars().take(RESULT).collect();
            match outcome {
                ToolOutcome::Done => styled(DIM, format!("  ⎿ {first}")),
                ToolOutcome::Cut => styled(MIND, "  ⎿ cut off"),
                ToolOutcome::Denied => styled(MIND, format!("  ⎿ denied: {first}")),
                _ => styled(BAD, format!("  ⎿ failed: {first}")),
            }
        }
        Event::PermissionAsked(ask) => format!(
            "{} {}: {}",
            styled(MIND, "the agent asks:"),
            plain(&ask.tool),
            plain(&ask.summary)
        ),
        Event::PermissionDenied { tool, message } => {
            format!(
                "{} {} ({})",
                styled(MIND, "denied:"),
                plain(tool),
                plain(message)
            )
        }
        Event::RateLimited {
            rejected, limit, ..
        } => {
            let what = if *rejected { "reached" } else { "near" };
            format!(
                "{} {}",
                styled(MIND, format!("rate limit {what}:")),
                plain(limit)
            )
        }
        Event::Retrying {
            attempt,
            of,
            delay,
            status,
            error,
        } => {
            let status = status.map_or("no answer".into(), |status| status.to_string());
            let mut text = format!(
                "the service failed ({status}, {}); the agent tries again",
                plain(error)
            );
            // Not every agent says when, or how often.
            if !delay.is_zero() {
                text.push_str(&format!(" in {}", show(whole(*delay))));
            }
            if *of > 0 {
                text.push_str(&format!(" ({attempt} of {of})"));
            }
            styled(MIND, text)
        }
        Event::ContextReset { why } => styled(DIM, format!("context reset: {}", plain(why))),
        Event::Identified { agent, model } => {
            styled(DIM, format!("{}, model {}", plain(agent), plain(model)))
        }
        Event::BackgroundTasks(running) => {
            styled(DIM, format!("the agent has {}", background(*running)))
        }
        Event::Warning(text) => format!("{} {}", styled(MIND, "warning:"), plain(text)),
        _ => String::new(),
    }
}

/// Tasks of an agent's own.
pub(crate) fn background(tasks: u32) -> String {
    match tasks {
        0 => "no task in the background".to_owned(),
        1 => "1 task in the background".to_owned(),
        several => format!("{several} tasks in the background"),
    }
}

/// One event for programs; `None` for what says nothing to them.
pub(crate) fn json(event: &Event) -> Option<Value> {
    Some(match event {
        Event::TextDelta(text) => json!({"event": "text", "text": text}),
        Event::ThinkingDelta(text) => json!({"event": "thinking", "text": text}),
        Event::Message { text, partial } => {
            json!({"event": "message", "text": text, "partial": partial})
        }
        Event::ToolStarted { id, name, summary } => {
            json!({"event": "tool_started", "id": id, "tool": name, "summary": summary})
        }
        Event::ToolFinished { id, outcome, text } => json!({
            "event": "tool_finished",
            "id": id,
            "outcome": match outcome {
                ToolOutcome::Done => "done",
                ToolOutcome::Denied => "denied",
                ToolOutcome::Cut => "cut",
                _ => "failed",
            },
            "text": text,
        }),
        Event::PermissionAsked(ask) => json!({
            "event": "permission_asked", "id": ask.id, "tool": ask.tool, "summary": ask.summary,
        }),
        Event::PermissionWithdrawn { id } => json!({"event": "permission_withdrawn", "id": id}),
        Event::PermissionDenied { tool, message } => {
            json!({"event": "permission_denied", "tool": tool, "message": message})
        }
        Event::RateLimited {
            rejected, limit, ..
        } => {
            json!({"event": "rate_limited", "rejected": rejected, "limit": limit})
        }
        Event::Retrying {
            attempt,
            of,
            delay,
            status,
            error,
        } => json!({
            "event": "retrying",
            "attempt": attempt,
            "of": of,
            "delay_ms": delay.as_millis() as u64,
            "status": status,
            "error": error,
        }),
        Event::ContextReset { why } => json!({"event": "context_reset", "why": why}),
        Event::Identified { agent, model } => {
            json!({"event": "agent_identified", "agent": agent, "model": model})
        }
        Event::Warning(text) => json!({"event": "warning", "text": text}),
        Event::Exited(status) => json!({"event": "agent_ended", "status": status.to_string()}),
        Event::BackgroundTasks(running) => {
            json!({"event": "background_tasks", "running": running})
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_try_tells_when_and_how_often_only_if_the_agent_did() {
        let said = |attempt, of, seconds| {
            let delay = Duration::from_secs(seconds);
            let (status, error) = (Some(529), "overloaded".to_owned());
            text(&Event::Retrying {
                attempt,
                of,
                delay,
                status,
                error,
            })
        };
        let all = [said(1, 10, 2), said(2, 5, 0), said(0, 0, 0)];
        let all = all.map(|line| anstream::adapter::strip_str(&line).to_string());
        insta::assert_snapshot!(all.join("\n"), @r"
        the service failed (529, overloaded); the agent tries again in 2s (1 of 10)
        the service failed (529, overloaded); the agent tries again (2 of 5)
        the service failed (529, overloaded); the agent tries again
        ");
    }
}
