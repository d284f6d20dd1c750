//! The prompt of an attempt.

use loop_state::{Brief, Command};
use rlm_store::PhaseSettings;

/// Returns the whole prompt: first the notes about this attempt, then the phase's own text. `before` is the name of the previous phase.
pub(crate) fn compose(
    brief: &Brief,
    phase: &PhaseSettings,
    before: Option<&str>,
    text: &str,
    changed: Option<&[String]>,
) -> String {
    let mut parts = Vec::new();
    if let (Some(before), false) = (&brief.predecessor, brief.prompted) {
        parts.push(format!(
            "Note from the loop: another agent ({before}) worked on this before you. You don't have its conversation. \
             Its work is in the working tree, and perhaps in the git log; look there before you continue."
        ));
    }
    if let Some(cut) = brief.cut {
        let cause = cut.cause;
        let mut note = format!(
            "Note from the loop: attempt {} of iteration {} did not finish because {cause}. \
             Its changes are still there; look at them before you continue.",
            cut.attempt, brief.iteration
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
            Command::Gate(index) => ("required check", phase.gates.get(index as usize)),
            Command::Check => ("check", phase.until.as_ref()),
        };
        let command = command.map(|c| format!(" `{c}`")).unwrap_or_default();
        parts.push(format!(
            "Note from the loop: the {what}{command} failed. The end of its output:\n{}",
            feedback.text.trim_end()
        ));
    }
    parts.extend(brief.steers.iter().map(|steer| steer_note(&steer.text)));
    if let (Some(result), false) = (&brief.result, brief.prompted) {
        parts.push(format!(
            "Note from the loop: the final message of phase `{}`:\n{}",
            before.unwrap_or("before"),
            result.trim_end()
        ));
    }
    match brief.session.is_some() && brief.prompted {
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
pub(crate) fn steer_note(text: &str) -> String {
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
pub(crate) const GO_ON: &str = "Continue where you were interrupted.";

#[cfg(test)]
mod tests {
    use super::*;
    use agent_drivers::AgentConfig;
    use loop_state::{Cut, CutCause, Feedback, Steer, Timestamp};
    use rlm_store::PromptSource;

    fn phase() -> PhaseSettings {
        let agent = AgentConfig::command(vec!["agent".into()]);
        let mut phase = PhaseSettings::new("main", PromptSource::Kept("prompt-1".into()), agent);
        phase.gates = vec!["cargo fmt --check".into()];
        phase.until = Some("cargo test".into());
        phase
    }

    fn plain() -> Brief {
        Brief {
            phase: 0,
            iteration: 3,
            attempt: 2,
            cut: None,
            feedback: None,
            steers: vec![],
            result: None,
            predecessor: None,
            session: None,
            prompted: false,
        }
    }

    #[test]
    fn an_ordinary_attempt_gets_the_text_and_nothing_else() {
        assert_eq!(
            compose(&plain(), &phase(), None, "Do it.\n", Some(&["M a".into()])),
            "Do it.\n"
        );
    }

    #[test]
    fn a_session_that_has_the_prompt_is_told_to_go_on_and_one_that_has_not_gets_it() {
        let cut = Brief {
            cut: Some(Cut {
                attempt: 1,
                cause: CutCause::Stop,
            }),
            session: Some("s".into()),
            ..plain()
        };
        let text = compose(&cut, &phase(), None, "Do it.", None);
        assert!(text.ends_with("Do it."), "{text}");
        let knows = Brief {
            prompted: true,
            ..cut
        };
        let text = compose(&knows, &phase(), None, "Do it.", None);
        assert!(
            !text.contains("Do it.") && text.ends_with("left off."),
            "{text}"
        );
    }

    #[test]
    fn what_is_special_comes_first() {
        let brief = Brief {
            cut: Some(Cut {
                attempt: 1,
                cause: CutCause::Crash,
            }),
            feedback: Some(Feedback {
                source: Command::Check,
                text: "1 failed\n".into(),
            }),
            steers: vec![Steer {
                id: 1,
                at: Timestamp(1),
                text: "mind the docs".into(),
                state: Default::default(),
            }],
            ..plain()
        };
        let brief = Brief {
            predecessor: Some("claude".into()),
            result: Some("1. Rename it.\n2. Test it.\n".into()),
            ..brief
        };
        let changed = [" M src/lib.rs".to_owned(), "?? notes".to_owned()];
        insta::assert_snapshot!(compose(&brief, &phase(), Some("plan"), "Do it.", Some(&changed)), @r"
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
