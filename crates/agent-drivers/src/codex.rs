//! The `codex` driver: Codex in duplex, over the JSON lines of its app server on standard input and output.
//!
//! One process carries many turns. A message that is sent while a turn runs is pushed into it, or begins the turn after it
//! where the agent does not take it. What the agent forgets of such messages at an interrupt is handed to it again.
//!
//! An interrupt ends the turn and leaves the process and its context as they are. Codex leaves the turn's commands
//! running; the driver ends them before it tells the end of the turn, and a warning names them. What runs longer than a
//! turn because the agent wanted it is left alone and counted ([`Event::BackgroundTasks`](agent_duplex::Event)).
//!
//! Settings, instructions and MCP servers go by standard input, never by arguments that everybody may read. The program's
//! other way to be driven, `codex exec`, is not used: for one turn it starts the same process, and it tells less, asks
//! nothing and loses the end of what is interrupted.
//!
//! What the agent says is taken as it comes: methods, kinds and fields that are not known pass as raw lines, requests that
//! are not known are answered with an error, and a message that was written on several lines is put together.
//!
//! # Platform
//! The commands of an interrupted turn are found and ended on Linux only.
//!
//! # Examples
//! ```no_run
//! use agent_duplex::{Driver as _, Event, Message, SessionChoice};
//! use agent_drivers::codex::CodexDriver;
//!
//! # async fn example(context: agent_subprocess::Context) -> Result<(), agent_duplex::Error> {
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
mod opening;
mod options;
mod protocol;

pub use driver::CodexDriver;
pub use options::CodexOptions;

pub(crate) use driver::NAME;
