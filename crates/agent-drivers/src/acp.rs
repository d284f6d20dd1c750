//! The `acp` driver: any agent that implements the Agent Client Protocol, version 1, over its standard input and output.
//!
//! One process handles many turns of one session. A turn is a request, and the answer to it ends the turn. The protocol has no message that joins a
//! running turn (one agent queues a second request; another ends the first turn when a second request arrives). So the driver sends no message during
//! a turn; an input waits for the end of the turn.
//!
//! An interrupt is a notification. Agents answer it in different ways: as cancelled, as finished, or with an error. A turn that ends after the driver
//! requested an interrupt counts as interrupted, whatever the answer.
//!
//! The parser is tolerant: it passes unknown methods, kinds and fields on as raw lines. The driver offers the agent neither files nor terminals, and
//! answers an unsupported request once with an error.
//!
//! # Limits
//! 64 open permission requests, 1024 open tool calls per turn, lines of 64 MiB. The explanation of a denial does not reach the agent, because the
//! protocol has no field for it. Agents report the total cost of a session, not the cost of a turn. For a resumed session, the driver
//! counts the first report as the cost before the resume. The adapter for Claude Code is the exception: its total begins at zero with each process.
//!
//! # Examples
//! ```no_run
//! use agent_duplex::{Driver as _, Event, Message, SessionChoice};
//! use agent_drivers::acp::AcpDriver;
//!
//! # async fn example(context: agent_subprocess::ProcessContext) -> Result<(), agent_duplex::Error> {
//! let driver = AcpDriver::gemini(vec!["gemini".into()], context);
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

mod connection;
mod driver;
pub(crate) mod gemini;
pub(crate) mod login;
mod options;
mod preset;
// The parser reads fields directly instead of using the types of `agent-client-protocol-schema` (checked: 1.15). Its enums of updates, stop reasons
// and option kinds are closed, so a message with a new value can't be read at all. If that message is a permission request, it gets no answer, and
// the agent waits forever. The crate lacks the models that agents still offer. It also enables `preserve_order` of `serde_json` for every crate in
// the build.
mod protocol;

pub use driver::AcpDriver;
pub use options::AcpOptions;
pub use preset::AcpPreset;

/// Returns the observations of the driver for a recording.
#[cfg(feature = "test-util")]
pub(crate) fn recorded(recording: &str) -> Vec<agent_duplex::Observation> {
    let request = protocol::replay::session_request("/");
    let mut session = protocol::Session::new(request);
    let mut seen = Vec::new();
    for line in recording.lines() {
        let events = protocol::replay::line(&mut session, line).events;
        seen.push(match line.strip_prefix("< ") {
            None => crate::dialogue::recorded_events(events),
            Some(line) => crate::dialogue::recorded_line(line, events),
        });
    }
    if session.is_turn_expected() {
        seen.push(crate::dialogue::recorded_death(|exit| {
            session.exited(exit, String::new())
        }));
    }
    seen
}
