//! The `acp` driver: any agent that speaks the Agent Client Protocol, version 1, over its standard input and output.
//!
//! One process carries many turns of one session. A turn is a request, and the answer to it is the turn's end. The protocol
//! has no way to say something while a turn runs (one agent queues a second request, another ends its first turn for it),
//! so the driver never does; an input waits for the end of the turn.
//!
//! An interrupt is a notification that agents answer in different ways: as cancelled, as finished, with an error. What ends
//! after the driver asked for it was interrupted, whatever the agent calls it.
//!
//! What the agent says is taken as it comes: methods, kinds and fields that are not known pass as raw lines. It is offered
//! neither files nor terminals, and a request that can't be met is answered with an error, once.
//!
//! # Limits
//! 64 questions that wait, 1024 open tools a turn, lines of 64 MiB. What a denial says does not reach the agent: the
//! protocol has no place for it. Agents tell the money that a session has cost, not a turn: of a session that is gone on
//! with, what is told first is taken for what it had cost before, except of the adapter for Claude Code, which begins again
//! with each process.
//!
//! # Examples
//! ```no_run
//! use agent_duplex::{Driver as _, Event, Message, SessionChoice};
//! use agent_drivers::acp::AcpDriver;
//!
//! # async fn example(context: agent_subprocess::Context) -> Result<(), agent_duplex::Error> {
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
mod options;
mod preset;
// Messages are taken by their fields and not by the types of `agent-client-protocol-schema` (1.15 was looked at). In those,
// updates, stop reasons and kinds of options are closed: one word of a newer agent loses the whole message, and with a
// question its answer, for which the agent then waits for ever. They do not have the models that agents still offer. And
// they switch `preserve_order` of `serde_json` on, for whoever builds with this crate.
mod protocol;

pub use driver::AcpDriver;
pub use options::AcpOptions;
pub use preset::AcpPreset;
