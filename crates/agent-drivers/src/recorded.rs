//! Recordings of real agents as scripts for `agent_duplex::scripted`, for tests of programs with conversations.
//!
//! A recording is a text file of the lines that one process of an agent exchanged with its driver. The script reports the same lines and the same
//! events as the driver, without a process, and waits where the agent waited for its caller (see [`Script::replaying`]). Ids in raw lines stay those of
//! the recording. Lines that are not in the format of the recording are passed on as raw lines.
//!
//! # Examples
//!
//! A program asks Claude Code, and its test replays what Claude Code once answered:
//!
//! ```
//! use agent_drivers::recorded;
//! use agent_duplex::scripted::ScriptedDriver;
//! use agent_duplex::{Capabilities, Conversation, ConversationOptions, EndReason};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let recording = std::fs::read_to_string("tests/golden/claude_01_simple.ndjson")?;
//! let script = recorded::claude(&recording);
//! let driver = ScriptedDriver::new(Capabilities::none()).with_script(script);
//! let conversation = Conversation::new(Box::new(driver.clone()), ConversationOptions::default());
//! let answer = conversation.ask("Say hello.").await?;
//! assert_eq!(answer.end.reason, EndReason::Completed);
//! assert_eq!(driver.messages(), ["Say hello."]); // the test knows what its program sent
//! # Ok(())
//! # }
//! ```

use crate::{acp, claude, codex};
use agent_duplex::scripted::Script;

/// Returns the script for a recording of Claude Code: its standard output with `--output-format stream-json`. If its messages were sent without an id,
/// each turn waits for one message.
#[must_use]
pub fn claude(recording: &str) -> Script {
    Script::replaying(claude::recorded(recording))
}

/// Returns the script for a recording of `codex app-server`: its standard output, and between its lines those of the driver, each as
/// `{"sent": LINE}`.
#[must_use]
pub fn codex(recording: &str) -> Script {
    Script::replaying(codex::recorded(recording))
}

/// Returns the script for a recording of an agent that speaks the Agent Client Protocol: each line of the agent after `< `, and each line of the
/// driver after `> `.
#[must_use]
pub fn acp(recording: &str) -> Script {
    Script::replaying(acp::recorded(recording))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_duplex::scripted::ScriptedDriver;
    use agent_duplex::{
        Capabilities, Conversation, ConversationOptions, Decision, Driver as _, EndReason, Event,
        Message, Observation, QueuedMessages, SessionChoice,
    };
    use std::path::Path;
    use std::time::Duration;
    use tokio::time::timeout;
    use uuid::Uuid;

    fn recordings() -> Vec<(String, String)> {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let files = std::fs::read_dir(golden).unwrap().map(|file| {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read_to_string(path).unwrap())
        });
        files.filter(|(name, _)| name != "README.md").collect()
    }

    fn of(name: &str, recording: &str) -> (Script, Vec<Observation>) {
        match name.split_once('_').unwrap().0 {
            "claude" => (claude(recording), claude::recorded(recording)),
            "codex" => (codex(recording), codex::recorded(recording)),
            _ => (acp(recording), acp::recorded(recording)),
        }
    }

    /// Shows events with numbers instead of the ids of messages.
    fn numbered(events: &[Event]) -> Vec<String> {
        let mut ids: Vec<Uuid> = Vec::new();
        let lines = events.iter().map(|event| {
            match event {
                Event::TurnStarted { inputs } => ids.extend(inputs),
                Event::Input { id, .. } => ids.push(*id),
                _ => {}
            }
            let mut line = format!("{event:?}");
            for id in &ids {
                let number = ids.iter().position(|first| first == id).unwrap();
                line = line.replace(&id.to_string(), &format!("#{number}"));
            }
            line
        });
        lines.collect()
    }

    /// Plays a script for a caller that sends a message, interrupts and allows everything whenever the agent waits.
    async fn played(script: Script, events: usize) -> Vec<Observation> {
        let driver = ScriptedDriver::new(Capabilities::none()).with_script(script);
        let mut connection = driver.connect(SessionChoice::Fresh).await.unwrap();
        let mut seen: Vec<Observation> = Vec::new();
        while seen.iter().map(|seen| seen.events.len()).sum::<usize>() < events {
            let next = tokio::select! {
                biased;
                next = connection.next() => Some(next),
                () = std::future::ready(()) => None,
            };
            match next {
                Some(Some(observation)) => seen.push(observation),
                Some(None) => break,
                None => {
                    connection.send(Message::new("next")).await.unwrap();
                    connection.interrupt(QueuedMessages::Keep).await.unwrap();
                    connection.answer("any", Decision::Allow).await.unwrap();
                }
            }
        }
        seen
    }

    #[tokio::test]
    async fn every_recording_is_replayed_whole() {
        let recordings = recordings();
        assert!(recordings.len() > 40, "{}", recordings.len());
        for (name, recording) in recordings {
            let (script, recorded) = of(&name, &recording);
            let events = |seen: &[Observation]| -> Vec<Event> {
                seen.iter().flat_map(|seen| seen.events.clone()).collect()
            };
            let lines = |seen: &[Observation]| -> Vec<_> {
                seen.iter().filter_map(|seen| seen.raw.clone()).collect()
            };
            let expected = events(&recorded);
            let played = played(script, expected.len()).await;
            assert_eq!(numbered(&events(&played)), numbered(&expected), "{name}");
            // Lines after the last event are not waited for.
            let played = lines(&played);
            assert_eq!(played, lines(&recorded)[..played.len()], "{name}");
        }
    }

    #[tokio::test]
    async fn k2h_recorded_agents_answer_a_conversation() {
        let names = [
            ("claude_01_simple.ndjson", "Hello from the fake model."),
            ("codex_01_turns.ndjson", "answer"),
            ("acp_gemini.txt", "answer"),
        ];
        for (name, text) in names {
            let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
            let recording = std::fs::read_to_string(golden.join(name)).unwrap();
            let driver = ScriptedDriver::new(Capabilities::none());
            let driver = driver.with_script(of(name, &recording).0);
            let options = ConversationOptions::default();
            let conversation = Conversation::new(Box::new(driver), options);
            let answer = timeout(Duration::from_secs(20), conversation.ask("one"));
            let answer = answer.await.unwrap().unwrap();
            assert_eq!(
                (&*answer.text, answer.end.reason),
                (text, EndReason::Completed)
            );
        }
    }
}
