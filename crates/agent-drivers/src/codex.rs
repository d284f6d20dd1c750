//! The `codex` driver: Codex in duplex mode, over the JSON lines of its app server on standard input and output.
//!
//! One process handles many turns. The driver sends a message into the running turn. If the agent refuses the message there, the message begins the
//! next turn. If the agent loses such messages at an interrupt, the driver sends them again.
//!
//! An interrupt ends the turn and keeps the process and its context. Codex leaves the turn's commands running. The driver ends them before it reports
//! the end of the turn, and names them in a warning. Background tasks, which the agent starts so that they outlive a turn, continue. The driver
//! reports their number ([`Event::BackgroundTasks`](agent_duplex::Event)).
//!
//! Settings, instructions and MCP servers go through standard input, never through arguments, which every user can read. The driver doesn't use
//! `codex exec`: for one turn, `exec` starts the same process, but it reports less, sends no permission requests, and loses the end of an interrupted
//! turn.
//!
//! The parser is tolerant: it passes unknown methods, kinds and fields on as raw lines, answers unknown requests with an error, and joins a message
//! that is spread over several lines.
//!
//! # Platform
//! The driver finds and ends the commands of an interrupted turn on Linux only.
//!
//! # Examples
//! ```no_run
//! use agent_duplex::{Driver as _, Event, Message, SessionChoice};
//! use agent_drivers::codex::CodexDriver;
//!
//! # async fn example(context: agent_subprocess::ProcessContext) -> Result<(), agent_duplex::Error> {
//! let driver = CodexDriver::new(vec!["codex".into()], context);
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
#[cfg(target_os = "linux")]
mod commands;
mod connection;
mod driver;
pub(crate) mod login;
mod open_request;
mod options;
mod protocol;

pub use driver::CodexDriver;
pub use options::CodexOptions;

pub(crate) use driver::NAME;

/// Returns the observations of the driver for a recording.
#[cfg(feature = "test-util")]
pub(crate) fn recorded(recording: &str) -> Vec<agent_duplex::Observation> {
    let mut replay = protocol::replay::Replay::new(recording);
    let mut seen = Vec::new();
    for line in recording.lines() {
        let events = replay.line(line.as_bytes()).events;
        seen.push(match line.starts_with(r#"{"sent":"#) {
            true => crate::dialogue::recorded_events(events),
            false => crate::dialogue::recorded_line(line, events),
        });
    }
    if replay.session.is_turn_expected() {
        seen.push(crate::dialogue::recorded_death(|exit| {
            replay.session.exited(exit, String::new())
        }));
    }
    seen
}
