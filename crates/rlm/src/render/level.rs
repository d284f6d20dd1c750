//! How much of a run people see; programs see everything.

use agent_duplex::{Event, ToolOutcome};
use loop_runner::News;
use loop_state::{CheckResult, Notice};
use rlm_terminal::style::{DIM, styled};
use rlm_text::escape::{plain, safe};

use crate::render::event;

/// The maximum number of lines that `-v` shows of one tool's result.
const RESULT_LINES: usize = 100;

/// How much of a run is shown.
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
    pub(crate) fn wished(quiet: bool, verbose: bool) -> Self {
        match (quiet, verbose) {
            (true, _) => Self::Quiet,
            (_, true) => Self::Verbose,
            _ => Self::Normal,
        }
    }

    /// Returns the text that this level shows instead of the ordinary lines; `None` to keep those. An empty text shows nothing.
    pub(crate) fn instead(self, news: &News) -> Option<String> {
        match self {
            Self::Quiet if !is_needed(news) => Some(String::new()),
            Self::Verbose => in_full(news),
            _ => None,
        }
    }
}

/// Returns whether `-q` shows this event too.
fn is_needed(news: &News) -> bool {
    match news {
        News::Run(notice) => !matches!(
            notice,
            Notice::AttemptStarted { .. } | Notice::Sleeping { .. } | Notice::Steer { .. }
        ),
        News::Agent(event) => matches!(
            event,
            Event::PermissionAsked(_) | Event::PermissionDenied { .. } | Event::Warning(_)
        ),
        News::CommandEnded { result, .. } => *result != CheckResult::Passed,
        News::AgentStarted { .. }
        | News::Said { .. }
        | News::Output { .. }
        | News::InPrompt(_)
        | News::CommandStarted { .. }
        | News::Committed { .. }
        | News::Holding { .. }
        | News::Missed(_) => false,
        _ => true,
    }
}

fn in_full(news: &News) -> Option<String> {
    Some(match news {
        News::Agent(Event::ToolFinished {
            outcome: ToolOutcome::Done | ToolOutcome::Failed,
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
        News::Agent(Event::Session { id }) => styled(DIM, format!("session {}", plain(id))),
        News::Agent(Event::Exited(status)) => styled(DIM, format!("agent ended: {status}")),
        News::CommandEnded {
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

    fn result(text: &str) -> News {
        News::Agent(Event::ToolFinished {
            id: "t".into(),
            outcome: ToolOutcome::Done,
            text: text.into(),
        })
    }

    #[test]
    fn x115a_what_is_shown_in_full_is_as_harmless_and_bounded() {
        let shown = Level::Verbose
            .instead(&result("one\n\u{1b}]0;mine\u{7}"))
            .unwrap();
        assert!(
            shown.contains("mine") && !shown.contains('\u{7}'),
            "{shown}"
        );
        let many = "line\n".repeat(RESULT_LINES + 5);
        let shown = Level::Verbose.instead(&result(&many)).unwrap();
        assert_eq!(shown.lines().count(), RESULT_LINES + 1);
        assert!(shown.contains("5 more lines"), "{shown}");
        assert_eq!(Level::Verbose.instead(&result("one\n")), None);
    }

    #[test]
    fn quiet_leaves_out_what_goes_well() {
        let ended = |failure: Option<&str>| {
            News::Run(Notice::IterationEnded {
                iteration: 1,
                failure: failure.map(Into::into),
                leftovers: Default::default(),
                usage: Default::default(),
            })
        };
        let said = News::Agent(Event::Message {
            text: "I work".into(),
            partial: false,
        });
        for (news, is_shown) in [
            (said, false),
            (result("x"), false),
            (News::AgentStarted { pid: 1 }, false),
            (News::Warning("mind".into()), true),
            (ended(None), true),
            (ended(Some("it broke")), true),
        ] {
            assert_eq!(Level::Quiet.instead(&news).is_none(), is_shown, "{news:?}");
        }
    }
}
