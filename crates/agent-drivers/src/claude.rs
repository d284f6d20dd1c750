//! The `claude` driver: Claude Code in duplex, over line-delimited JSON on its standard input and output.
//!
//! One process carries many turns. A message that is sent while a turn runs joins it at its next request, or makes the
//! turn after it; an interrupt ends the turn and leaves the process, its session and its context as they are. The
//! session's id is chosen by the driver, so that a later process can go on with it whatever happens to this one.
//!
//! What the agent says is taken as it comes: types, subtypes and fields that are not known pass as raw lines, and one
//! field of a wrong type does not lose the line that it stands in.
//!
//! What it may not do by its [permissions](ClaudeDriver::permissions) it asks where these say so, and then it waits for ever: answer each
//! [`PermissionAsked`](agent_duplex::Event::PermissionAsked), or choose permissions that never ask.
//!
//! # Examples
//! One connection by itself; a [`Conversation`](agent_duplex::Conversation) over it, which most programs want, is in the README and, with a person who
//! types, in `examples/duplex.rs`.
//! ```no_run
//! use agent_duplex::{Driver as _, Event, Message, SessionChoice};
//! use agent_drivers::claude::ClaudeDriver;
//! use agent_subprocess::Context;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::new(std::env::current_dir()?, std::env::temp_dir().join("my-program"));
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
mod options;
mod protocol;

pub use driver::ClaudeDriver;
pub use options::ClaudeOptions;

pub(crate) use driver::NAME;
