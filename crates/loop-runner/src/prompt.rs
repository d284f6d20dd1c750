//! The prompt of an attempt.

use loop_state::{LoopCommand, PromptContext};
use rlm_store::PhaseSettings;

/// Returns the whole prompt: first the notes about this attempt, then the phase's own text. `before` is the name of the previous phase.
pub(crate) fn build_prompt(
    brief: &PromptContext,
    phase: &PhaseSettings,
    before: Option<&str>,
    text: &str,
    changed: Option<&[String]>,
) -> String {
    let mut parts = Vec::new();
    if let (Some(before), false) = (&brief.previous_agent, brief.has_prompt) {
        parts.push(format!(
            "Note from the loop: another agent ({before}) worked on this before you. You don't have its conversation. \
             Its work is in the working tree, and perhaps in the git log; look there before you continue."
        ));
    }
    if let Some(unfinished) = brief.unfinished {
        let cause = unfinished.cause;
        let mut note = format!(
            "Note from the loop: attempt {} of iteration {} did not finish because {cause}. \
             Its changes are still there; look at them before you continue.",
            unfinished.attempt, brief.iteration
        );
        match changed {
            Some([]) => note.push_str(" Git shows no uncommitted changes."),
            Some(paths) => {
                note.push_str(&format!(" Uncommitted changes now:\n{}", paths.join("\n")))
            }
            None => {}
        }
        parts.push(note);
    }
    if let Some(feedback) = &brief.feedback {
        let (what, command) = match feedback.source {
            LoopCommand::RequiredCheck(index) => {
                ("required check", phase.required_checks.get(index as usize))
            }
            LoopCommand::Check => ("check", phase.check.as_ref()),
        };
        let command = command.map(|c| format!(" `{c}`")).unwrap_or_default();
        parts.push(format!(
            "Note from the loop: the {what}{command} failed. The end of its output:\n{}",
            feedback.text.trim_end()
        ));
    }
    parts.extend(brief.steers.iter().map(|steer| format_steer(&steer.text)));
    if let (Some(result), false) = (&brief.result, brief.has_prompt) {
        parts.push(format!(
            "Note from the loop: the final message of phase `{}`:\n{}",
            before.unwrap_or("before"),
            result.trim_end()
        ));
    }
    match brief.session.is_some() && brief.has_prompt {
        // The session has the prompt; a second copy would make the agent repeat the work.
        true => parts.push("Continue where you left off.".to_owned()),
        false => {
            parts.push(text.to_owned());
            parts.extend(phase.promise.as_deref().map(promise_note));
        }
    }
    parts.join("\n\n")
}

/// Returns the text of a steer with a note that a person sent it.
pub(crate) fn format_steer(text: &str) -> String {
    format!(
        "Note from the person who runs the loop: {}",
        text.trim_end()
    )
}

fn promise_note(promise: &str) -> String {
    format!(
        "Note from the loop: only when the whole task is done, end your last message with this line:\n\
         <promise>{promise}</promise>"
    )
}

/// The message to an interrupted agent if no person sent one.
pub(crate) const CONTINUE_MESSAGE: &str = "Continue where you were interrupted.";

#[cfg(test)]
mod tests {
    use super::*;
    use agent_drivers::AgentConfig;
    use loop_state::{Feedback, Steer, Timestamp, UnfinishedAttempt, UnfinishedCause};
    use rlm_store::PromptSource;

    fn phase() -> PhaseSettings {
        let agent = AgentConfig::command(vec!["agent".into()]);
        let mut phase = PhaseSettings::new("main", PromptSource::Stored("prompt-1".into()), agent);
        phase.required_checks = vec!["cargo fmt --check".into()];
        phase.check = Some("cargo test".into());
        phase
    }

    fn plain() -> PromptContext {
        PromptContext {
            phase: 0,
            iteration: 3,
            attempt: 2,
            unfinished: None,
            feedback: None,
            steers: vec![],
            result: None,
            previous_agent: None,
            session: None,
            new_session: None,
            has_prompt: false,
        }
    }

    #[test]
    fn ordinary_attempt_gets_only_the_prompt_text() {
        assert_eq!(
            build_prompt(&plain(), &phase(), None, "Do it.\n", Some(&["M a".into()])),
            "Do it.\n"
        );
    }

    #[test]
    fn session_with_prompt_gets_continue_message() {
        let unfinished = PromptContext {
            unfinished: Some(UnfinishedAttempt {
                attempt: 1,
                cause: UnfinishedCause::Stop,
            }),
            session: Some("s".into()),
            ..plain()
        };
        let text = build_prompt(&unfinished, &phase(), None, "Do it.", None);
        assert!(text.ends_with("Do it."), "{text}");
        let knows = PromptContext {
            has_prompt: true,
            ..unfinished
        };
        let text = build_prompt(&knows, &phase(), None, "Do it.", None);
        assert!(
            !text.contains("Do it.") && text.ends_with("left off."),
            "{text}"
        );
    }

    #[test]
    fn attempt_notes_come_first() {
        let brief = PromptContext {
            unfinished: Some(UnfinishedAttempt {
                attempt: 1,
                cause: UnfinishedCause::ProcessDied,
            }),
            feedback: Some(Feedback {
                source: LoopCommand::Check,
                text: "1 failed\n".into(),
            }),
            steers: vec![Steer {
                id: 1,
                at: Timestamp::from_millis(1),
                text: "mind the docs".into(),
                state: Default::default(),
            }],
            ..plain()
        };
        let brief = PromptContext {
            previous_agent: Some("claude".into()),
            result: Some("1. Rename it.\n2. Test it.\n".into()),
            ..brief
        };
        let changed = [" M src/lib.rs".to_owned(), "?? notes".to_owned()];
        insta::assert_snapshot!(build_prompt(&brief, &phase(), Some("plan"), "Do it.", Some(&changed)), @r"
        Note from the loop: another agent (claude) worked on this before you. You don't have its conversation. Its work is in the working tree, and perhaps in the git log; look there before you continue.

        Note from the loop: attempt 1 of iteration 3 did not finish because the loop's process died. Its changes are still there; look at them before you continue. Uncommitted changes now:
         M src/lib.rs
        ?? notes

        Note from the loop: the check `cargo test` failed. The end of its output:
        1 failed

        Note from the person who runs the loop: mind the docs

        Note from the loop: the final message of phase `plan`:
        1. Rename it.
        2. Test it.

        Do it.
        ");
    }
}
