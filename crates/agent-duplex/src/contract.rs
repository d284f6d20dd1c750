//! The contract of a driver as scenarios, which any driver can play with its real agent.
//!
//! A program with conversations relies on the same behaviour of every [`Driver`](crate::Driver). A turn has one end. An interrupt ends the turn and
//! keeps the process. A death is reported as a death. After a crash, the next agent knows the earlier messages. This module contains these rules as a
//! list of [`Scenario`]s. [`play`] runs one scenario in a [`Conversation`](crate::Conversation) with the driver of a [`TestAgent`], which can make
//! its agent do something. There are four [`ScenarioResult`]s: the scenario passed; the driver does not declare the capability, and the promised
//! fallback works; the test can't make the agent do what the scenario needs; the contract is broken. [`table`] prints the results.
//!
//! A declared capability must work. A missing capability must be rejected with an error for which [`is_unsupported`](crate::Error::is_unsupported) is
//! true, or have the documented fallback. Without steering, an input during a turn waits for the end of the turn. Without
//! interrupts, an interrupt ends the turn together with the process. Without resuming, the next agent starts a new session.
//!
//! Each scenario checks two levels: the events that the conversation publishes (see [`ContractChecker`](crate::scripted::ContractChecker)), and the
//! calls and reports of the driver below it. Faults of a driver are, for example, turns that end twice, messages that were never sent, and text that
//! comes only in deltas. It is also a fault if a driver reports undeclared tools or usage, or if the second report of a stop differs from the first.
//!
//! The tests of `agent-drivers` (`tests/it/contract.rs`) contain an implementation with real processes: four drivers, each with a shell script that
//! speaks the protocol of its agent.
//!
//! # Limits
//!
//! [`play`] needs a tokio runtime with its timer. Every wait ends after [`TestAgent::timeout`]. A test agent is for one scenario at a time; with one
//! test agent for each, scenarios can run in parallel. The agent's own actions between two turns are not checked.
//!
//! # Examples
//!
//! An agent that repeats its input. This example uses a script; for a real agent, the implementation starts a process:
//!
//! ```
//! use std::time::Duration;
//!
//! use agent_duplex::contract::{ScenarioResult, TestAction, Scenario, TestAgent, play};
//! use agent_duplex::scripted::{Script, ScriptedDriver};
//! use agent_duplex::{Capabilities, Driver, EndReason, Event};
//!
//! struct Parrot;
//!
//! impl TestAgent for Parrot {
//!     fn driver(&self) -> Box<dyn Driver> {
//!         let script = Script::new().message().begin().make(|messages| {
//!             let text = messages[messages.len() - 1].text.clone();
//!             Event::Message { text, partial: false }.into()
//!         });
//!         Box::new(ScriptedDriver::new(Capabilities::none()).with_script(script.end(EndReason::Completed)))
//!     }
//!
//!     fn prompt_for(&self, action: &TestAction) -> Result<String, String> {
//!         match action {
//!             TestAction::Say(word) => Ok(word.clone()),
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
//!     fn timeout(&self) -> Duration {
//!         Duration::from_secs(5)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! assert!(matches!(play(&Parrot, Scenario::Turn).await, ScenarioResult::Passed(_)));
//! assert_eq!(play(&Parrot, Scenario::Tool).await, ScenarioResult::NotApplicable("it only repeats".to_owned()));
//! # }
//! ```

mod record;
mod recording;
mod rules;
mod scenario;
mod scenario_run;
mod scenarios;
mod second_connection;

pub use scenario::{Scenario, ScenarioResult, table};
pub use scenario::{TestAction, TestAgent};
pub use scenarios::play;
