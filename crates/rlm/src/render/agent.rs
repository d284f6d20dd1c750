//! The actions of an agent, as text for people and JSON for programs.

use agent_duplex::{Event, ToolOutcome};
use rlm_terminal::background;
use rlm_terminal::style::{BAD, BOLD, DIM, WARNING_STYLE, styled};
use rlm_text::count;
use rlm_text::duration::show;
use rlm_text::escape::{plain, safe};
use serde_json::{Value, json};

use crate::render::event::whole;

/// The maximum number of characters that are shown of a tool's result.
const RESULT: usize = 160;

/// Returns one event as lines; empty if there is nothing to show. Streamed text is left out, because a message repeats it.
pub(crate) fn text(event: &Event) -> String {
    match event {
        Event::Message { text, partial } => {
            let cut = if *partial {
                styled(WARNING_STYLE, " (cut off)")
            } else {
                String::new()
            };
            format!("{}{cut}", safe(text.trim_end()))
        }
        Event::ToolStarted { name, summary, .. } => {
            format!("{} {}: {}", styled(BOLD, "●"), plain(name), plain(summary))
        }
        Event::ToolFinished { outcome, text, .. } => {
            let (style, what, head, tail) = match outcome {
                ToolOutcome::Succeeded => (DIM, "", 1, 1),
                ToolOutcome::Interrupted => return styled(WARNING_STYLE, "  ⎿ cut off"),
                ToolOutcome::Denied => (WARNING_STYLE, "denied: ", 1, 0),
                _ => (BAD, "failed: ", 2, 4),
            };
            let lines = ends(text, head, tail);
            let marks =
                std::iter::once(format!("  ⎿ {what}")).chain(std::iter::repeat("    ".into()));
            let lines = lines
                .iter()
                .zip(marks)
                .map(|(line, mark)| styled(style, mark + line));
            lines.collect::<Vec<_>>().join("\n")
        }
        Event::PermissionRequested(ask) => format!(
            "{} {}: {}",
            styled(WARNING_STYLE, "the agent asks:"),
            plain(&ask.tool),
            plain(&ask.summary)
        ),
        Event::PermissionDenied { tool, message } => {
            format!(
                "{} {} ({})",
                styled(WARNING_STYLE, "denied:"),
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
                styled(WARNING_STYLE, format!("rate limit {what}:")),
                plain(limit)
            )
        }
        Event::Retrying {
            attempt,
            max_attempts: of,
            delay,
            status,
            error,
        } => {
            let status = status.map_or("no response".into(), |status| status.to_string());
            let mut text = format!(
                "the service failed ({status}, {}); the agent tries again",
                plain(error)
            );
            // Not every agent reports a delay or a number of attempts.
            if !delay.is_zero() {
                text.push_str(&format!(" in {}", show(whole(*delay))));
            }
            if *of > 0 {
                text.push_str(&format!(" ({attempt} of {of})"));
            }
            styled(WARNING_STYLE, text)
        }
        Event::ContextReset { reason: why } => {
            styled(DIM, format!("context reset: {}", plain(why)))
        }
        Event::Identified { agent, model } => {
            let model = match model.as_str() {
                "" => String::new(),
                model => format!(", model {}", plain(model)),
            };
            styled(DIM, format!("{}{model}", plain(agent)))
        }
        Event::BackgroundTasks(running) => {
            styled(DIM, format!("the agent has {}", background(*running)))
        }
        Event::Warning(text) => format!("{} {}", styled(WARNING_STYLE, "warning:"), plain(text)),
        _ => String::new(),
    }
}

/// Returns the first and the last lines of a text, without empty lines, and between them the number of other lines. An empty text gives one empty
/// line.
fn ends(text: &str, head: usize, tail: usize) -> Vec<String> {
    let short = |line: &&str| plain(line.trim_end()).chars().take(RESULT).collect();
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let more = lines.len().saturating_sub(head + tail);
    let mut shown: Vec<String> = match more {
        // One line takes as much space as a note about one more line.
        0 | 1 if tail > 0 => lines.iter().map(short).collect(),
        _ => {
            let mut shown: Vec<String> = lines.iter().take(head).map(short).collect();
            if more > 0 {
                shown.push(format!("… {}", count(more, "more line", "more lines")));
            }
            shown.extend(
                lines[lines.len() - tail.min(lines.len())..]
                    .iter()
                    .map(short),
            );
            shown
        }
    };
    if shown.is_empty() {
        shown.push(String::new());
    }
    shown
}

/// Returns one event as JSON; `None` for an event that programs don't get.
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
            "outcome": outcome.name(),
            "text": text,
        }),
        Event::PermissionRequested(ask) => json!({
            "event": "permission_requested", "id": ask.id, "tool": ask.tool, "summary": ask.summary,
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
            max_attempts: of,
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
        Event::ContextReset { reason } => json!({"event": "context_reset", "reason": reason}),
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
    fn tool_result_shows_both_ends() {
        let shown = |outcome, lines: usize| {
            let text: String = (1..=lines).map(|n| format!("line {n}\n\n")).collect();
            let id = String::new();
            let shown = super::text(&Event::ToolFinished { id, outcome, text });
            anstream::adapter::strip_str(&shown).to_string()
        };
        let all = [
            shown(ToolOutcome::Succeeded, 0),
            shown(ToolOutcome::Succeeded, 3),
            shown(ToolOutcome::Succeeded, 40),
            shown(ToolOutcome::Failed, 40),
            shown(ToolOutcome::Denied, 2),
            shown(ToolOutcome::Interrupted, 2),
        ];
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn retry_shows_time_and_count_only_if_the_agent_reported_them() {
        let shown = |attempt, of, seconds| {
            let delay = Duration::from_secs(seconds);
            let (status, error) = (Some(529), "overloaded".to_owned());
            text(&Event::Retrying {
                attempt,
                max_attempts: of,
                delay,
                status,
                error,
            })
        };
        let all = [shown(1, 10, 2), shown(2, 5, 0), shown(0, 0, 0)];
        let all = all.map(|line| anstream::adapter::strip_str(&line).to_string());
        insta::assert_snapshot!(all.join("\n"), @r"
        the service failed (529, overloaded); the agent tries again in 2s (1 of 10)
        the service failed (529, overloaded); the agent tries again (2 of 5)
        the service failed (529, overloaded); the agent tries again
        ");
    }
}
