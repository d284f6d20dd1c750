//! The `claude` driver: Claude Code in duplex mode, over lines of JSON on its standard input and output.
//!
//! One process handles many turns. A message that is sent while a turn runs joins the turn at its next model request, or begins the next turn. An
//! interrupt ends the turn and keeps the process, its session and its context. The driver chooses the session's id, so that a later process can
//! resume the session even if this one crashes.
//!
//! The parser is tolerant: it passes unknown types, subtypes and fields on as raw lines, and reads a line even if one of its fields has a wrong type.
//!
//! If the [permissions](ClaudeDriver::permissions) require it, the agent asks before it uses a tool, and then it waits without a limit. Answer each
//! [`PermissionRequested`](agent_duplex::Event::PermissionRequested), or choose permissions that never ask.
//!
//! # Examples
//! A single connection. Most programs use a [`Conversation`](agent_duplex::Conversation) on top of it: see the README, and `examples/duplex.rs` for a
//! program with a person at the keyboard.
//! ```no_run
//! use agent_duplex::{Driver as _, Event, Message, SessionChoice};
//! use agent_drivers::claude::ClaudeDriver;
//! use agent_subprocess::ProcessContext;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let context = ProcessContext::new(std::env::current_dir()?, std::env::temp_dir().join("my-program"));
//! let driver = ClaudeDriver::new(vec!["claude".into()], context);
//! let mut agent = driver.connect(SessionChoice::Fresh).await?;
//! agent.send(Message::new("What is in this folder?")).await?;
//! while let Some(seen) = agent.next().await {
//!     for event in seen.events {
//!         match event {
//!             Event::Message { text, .. } => println!("{text}"),
//!             Event::TurnCompleted(end) => return Ok(println!("{}", end.reason)),
//!             _ => {}
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod arguments;
mod connection;
mod driver;
mod failure;
pub(crate) mod login;
mod options;
mod protocol;

pub use driver::ClaudeDriver;
pub use options::ClaudeOptions;

pub(crate) use driver::NAME;

/// Returns the observations of the driver for a recording.
#[cfg(feature = "test-util")]
pub(crate) fn recorded(recording: &str) -> Vec<agent_duplex::Observation> {
    use agent_duplex::Event;
    let mut replay = protocol::replay::Replay::new(recording);
    // The agent names the messages of its turns only if they were sent with an id.
    let is_named = recording.contains(r#""command_lifecycle""#);
    let mut seen = Vec::new();
    for (number, line) in (0..).zip(recording.lines()) {
        let mut events = replay.line(line.as_bytes());
        for event in &mut events {
            if let Event::TurnStarted { inputs } = event
                && !is_named
            {
                inputs.push(uuid::Uuid::from_u128(number));
            }
        }
        seen.push(crate::dialogue::recorded_line(line, events));
    }
    if replay.session.is_turn_expected() {
        let end =
            crate::dialogue::recorded_death(|exit| replay.session.exited(exit, String::new()));
        seen.push(end);
    }
    seen
}
