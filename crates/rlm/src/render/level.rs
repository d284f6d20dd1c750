//! The amount of a run's output that people see. Programs always get everything.

use agent_duplex::{Event, ToolOutcome};
use loop_runner::RunEvent;
use loop_state::{CheckResult, RunUpdate};
use rlm_terminal::style::{DIM, styled};
use rlm_text::escape::{plain, safe};

use crate::render::event;

/// The maximum number of lines that `-v` shows of one tool's result.
const RESULT_LINES: usize = 100;

/// The amount of a run's output that is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Level {
    /// The iterations, the failures, the questions to a person, and the end.
    Quiet,
    /// Messages and actions, shortened.
    #[default]
    Normal,
    /// Messages and actions in full.
    Verbose,
}

impl Level {
    /// Returns the level for `-q` and `-v`.
    pub(crate) fn from_flags(quiet: bool, verbose: bool) -> Self {
        match (quiet, verbose) {
            (true, _) => Self::Quiet,
            (_, true) => Self::Verbose,
            _ => Self::Normal,
        }
    }

    /// Returns the text that this level shows instead of the ordinary lines; `None` to keep those. An empty text shows nothing.
    pub(crate) fn replacement_line(self, event: &RunEvent) -> Option<String> {
        match self {
            Self::Quiet if !is_needed(event) => Some(String::new()),
            Self::Verbose => in_full(event),
            _ => None,
        }
    }
}

/// Returns whether `-q` shows this event too.
fn is_needed(event: &RunEvent) -> bool {
    match event {
        RunEvent::Update(notice) => !matches!(
            notice,
            RunUpdate::AttemptStarted { .. }
                | RunUpdate::Sleeping { .. }
                | RunUpdate::SteerAdvanced { .. }
        ),
        RunEvent::Agent(event) => matches!(
            event,
            Event::PermissionRequested(_) | Event::PermissionDenied { .. } | Event::Warning(_)
        ),
        RunEvent::CommandEnded { result, .. } => *result != CheckResult::Passed,
        RunEvent::AgentStarted { .. }
        | RunEvent::SteerRecorded { .. }
        | RunEvent::Output { .. }
        | RunEvent::InPrompt(_)
        | RunEvent::CommandStarted { .. }
        | RunEvent::IterationCommitted { .. }
        | RunEvent::AwaitingTasks { .. }
        | RunEvent::EventsMissed(_) => false,
        _ => true,
    }
}

fn in_full(event: &RunEvent) -> Option<String> {
    Some(match event {
        RunEvent::Agent(Event::ToolFinished {
            outcome: ToolOutcome::Succeeded | ToolOutcome::Failed,
            text,
            ..
        }) if text.trim_end().contains('\n') => {
            let lines: Vec<&str> = text.trim_end().lines().collect();
            let mut shown = String::new();
            for line in lines.iter().take(RESULT_LINES) {
                shown.push_str(&format!("{} {}\n", styled(DIM, "  ⎿"), safe(line)));
            }
            match lines.len().saturating_sub(RESULT_LINES) {
                0 => drop(shown.pop()),
                more => shown.push_str(&styled(DIM, format!("  ⎿ … {more} more lines"))),
            }
            shown
        }
        RunEvent::Agent(Event::Session { id }) => styled(DIM, format!("session {}", plain(id))),
        RunEvent::Agent(Event::Exited(status)) => styled(DIM, format!("agent ended: {status}")),
        RunEvent::CommandEnded {
            command,
            result,
            took,
        } => event::command_text(*command, result, *took, usize::MAX),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(text: &str) -> RunEvent {
        RunEvent::Agent(Event::ToolFinished {
            id: "t".into(),
            outcome: ToolOutcome::Succeeded,
            text: text.into(),
        })
    }

    #[test]
    fn x115a_verbose_output_is_harmless_and_bounded() {
        let shown = Level::Verbose
            .replacement_line(&result("one\n\u{1b}]0;mine\u{7}"))
            .unwrap();
        assert!(
            shown.contains("mine") && !shown.contains('\u{7}'),
            "{shown}"
        );
        let many = "line\n".repeat(RESULT_LINES + 5);
        let shown = Level::Verbose.replacement_line(&result(&many)).unwrap();
        assert_eq!(shown.lines().count(), RESULT_LINES + 1);
        assert!(shown.contains("5 more lines"), "{shown}");
        assert_eq!(Level::Verbose.replacement_line(&result("one\n")), None);
    }

    #[test]
    fn quiet_hides_successful_steps() {
        let ended = |failure: Option<&str>| {
            RunEvent::Update(RunUpdate::IterationEnded {
                iteration: 1,
                failure: failure.map(Into::into),
                leftovers: Default::default(),
                usage: Default::default(),
                took: Default::default(),
                check: None,
            })
        };
        let message = RunEvent::Agent(Event::Message {
            text: "I work".into(),
            partial: false,
        });
        for (event, is_shown) in [
            (message, false),
            (result("x"), false),
            (RunEvent::AgentStarted { pid: 1 }, false),
            (RunEvent::Warning("mind".into()), true),
            (ended(None), true),
            (ended(Some("it broke")), true),
        ] {
            assert_eq!(
                Level::Quiet.replacement_line(&event).is_none(),
                is_shown,
                "{event:?}"
            );
        }
    }
}
