//! The driver contract as scenarios that any driver plays, against its real agent.
//!
//! A program that holds conversations relies on the same behaviour whichever agent is behind the [`Driver`](crate::Driver): a turn has one end, an interrupt ends it
//! and keeps the process, a death is told as a death, what was said before a crash is known after it. Here that is a list of [`Scenario`]s. [`play`]
//! plays one over a [`Conversation`](crate::Conversation) with the driver of a [`Stage`], which knows how to make its agent do something, and returns
//! a [`Cell`] of the [`table`]: it held, the driver does not declare that it can (and what is promised instead was checked), the agent can't be made to,
//! or it is broken.
//!
//! A capability that is declared has to hold; one that is not has to be refused with an error for which
//! [`is_unsupported`](crate::Error::is_unsupported) is true, or fall back as documented: an input during a turn waits for its end, a turn that can't be
//! interrupted alone ends with its process, an agent that can't resume begins anew.
//!
//! On the way everything is audited twice: what the conversation publishes (see [`Audit`](crate::scripted::Audit)), and what the driver says and does
//! below it: turns that end twice, messages that were never sent, text that comes in deltas and never whole, tools or usage that are not declared,
//! a second report of a stop that differs from the first.
//!
//! A stage over real processes is among the tests of `agent-drivers` (`tests/it/contract.rs`): four drivers, each with a shell script that speaks
//! the protocol of its agent.
//!
//! # Limits
//!
//! It needs a tokio runtime with its timer. Every wait ends after [`Stage::patience`]. A stage is for one scenario at a time; one of its own for each
//! lets them run side by side. What an agent does on its own account between two turns is not looked at.
//!
//! # Examples
//!
//! An agent that repeats what it is told (here it is played by a script; a stage of a real one starts a process):
//!
//! ```
//! use std::time::Duration;
//!
//! use agent_duplex::contract::{Cell, Deed, Scenario, Stage, play};
//! use agent_duplex::scripted::{Script, ScriptedDriver};
//! use agent_duplex::{Capabilities, Driver, EndReason, Event};
//!
//! struct Parrot;
//!
//! impl Stage for Parrot {
//!     fn driver(&self) -> Box<dyn Driver> {
//!         let script = Script::new().message().begin().make(|messages| {
//!             let text = messages[messages.len() - 1].text.clone();
//!             Event::Message { text, partial: false }.into()
//!         });
//!         Box::new(ScriptedDriver::new(Capabilities::none()).plays(script.end(EndReason::Completed)))
//!     }
//!
//!     fn words(&self, deed: &Deed) -> Result<String, String> {
//!         match deed {
//!             Deed::Say(word) => Ok(word.clone()),
//!             _ => Err("it only repeats".to_owned()),
//!         }
//!     }
//!
//!     fn kill(&self, _pid: u32) -> Result<(), String> {
//!         Err("it has no process".to_owned())
//!     }
//!
//!     fn alive(&self, _tool: &str) -> Option<bool> {
//!         None
//!     }
//!
//!     fn patience(&self) -> Duration {
//!         Duration::from_secs(5)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! assert!(matches!(play(&Parrot, Scenario::Turn).await, Cell::Held(_)));
//! assert_eq!(play(&Parrot, Scenario::Tool).await, Cell::Impossible("it only repeats".to_owned()));
//! # }
//! ```

mod beside;
mod cell;
mod plays;
mod record;
mod rules;
mod scene;
mod witness;

pub use cell::{Cell, Scenario, table};
pub use cell::{Deed, Stage};
pub use plays::play;
