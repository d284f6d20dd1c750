//! What an attempt is told.

use loop_state::{Brief, Command};
use rlm_store::PhaseSettings;

/// Returns the whole prompt: first what is special about this attempt, then the phase's own text. `before` is the name of the phase before it.
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
            "Note from the loop: until now another agent ({before}) worked on this. You don't have its conversation: \
             what it did is in the working tree, and perhaps in git's log; look there before you go on."
        ));
    }
    if let Some(cut) = brief.cut {
        let cause = cut.cause;
        let mut note = format!(
            "Note from the loop: attempt {} of iteration {} was cut because {cause}. \
             What it had changed is still there; look at it before you go on.",
            cut.attempt, brief.iteration
        );
        match changed {
            Some([]) => note.push_str(" Git shows no uncommitted change."),
            Some(paths) => {
                note.push_str(&format!(" Uncommitted changes now:\n{}", paths.join("\n")))
            }
            None => {}
        }
        parts.push(note);
    }
    if let Some(feedback) = &brief.feedback {
        let (what, command) = match feedback.source {
            Command::Gate(index) => ("gate", phase.gates.get(index as usize)),
            Command::Check => ("check", phase.until.as_ref()),
        };
        let command = command.map(|c| format!(" `{c}`")).unwrap_or_default();
        parts.push(format!(
            "Note from the loop: the {what}{command} did not pass. The end of its output:\n{}",
            feedback.text.trim_end()
        ));
    }
    parts.extend(brief.steers.iter().map(|steer| steer_note(&steer.text)));
    if let (Some(result), false) = (&brief.result, brief.prompted) {
        parts.push(format!(
            "Note from the loop: what phase `{}` came to, in the words of its agent:\n{}",
            before.unwrap_or("before"),
            result.trim_end()
        ));
    }
    match brief.session.is_some() && brief.prompted {
        // It has the prompt; to send that again would have the work done twice.
        true => parts.push("Go on where you were cut off.".to_owned()),
        false => {
            parts.push(text.to_owned());
            parts.extend(phase.promise.as_deref().map(promise_note));
        }
    }
    parts.join("\n\n")
}

/// Says a steer so that the agent knows whose word it is.
pub(crate) fn steer_note(text: &str) -> String {
    format!(
        "Note from the person who runs the loop: {}",
        text.trim_end()
    )
}

fn promise_note(promise: &str) -> String {
    format!(
        "Note from the loop: when the whole task is done, and only then, end your last message with this line:\n\
         <promise>{promise}</promise>"
    )
}

/// What an interrupted agent is told when nobody had anything to say.
pub(crate) const GO_ON: &str = "Go on where you were interrupted.";

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
            !text.contains("Do it.") && text.ends_with("cut off."),
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
        Note from the loop: until now another agent (claude) worked on this. You don't have its conversation: what it did is in the working tree, and perhaps in git's log; look there before you go on.

        Note from the loop: attempt 1 of iteration 3 was cut because the loop's process died. What it had changed is still there; look at it before you go on. Uncommitted changes now:
         M src/lib.rs
        ?? notes

        Note from the loop: the check `cargo test` did not pass. The end of its output:
        1 failed

        Note from the person who runs the loop: mind the docs

        Note from the loop: what phase `plan` came to, in the words of its agent:
        1. Rename it.
        2. Test it.

        Do it.
        ");
    }
}
