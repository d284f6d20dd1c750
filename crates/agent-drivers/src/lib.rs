//! Conversations with coding agents: the protocols of [`agent_duplex`] drivers over the processes of [`agent_subprocess`].
//!
//! Each driver implements [`agent_duplex::Driver`] for one family of agents: it starts the agent under a guard, translates
//! lines into events and messages into lines, and ends the agent's process tree with a proof.
//!
//! This crate must not know loops, iterations, files of runs or terminals, and it does not decide when to try again: a
//! driver reports, its caller decides. How a process is started, contained and killed belongs to `agent-subprocess`; what a
//! turn, a receipt or a subscriber is belongs to `agent-duplex`.
//!
//! [`AgentConfig`] is an agent as a person configures it. It is saved as it is, and makes the driver.
//!
//! `examples/duplex.rs` holds a conversation with Claude Code.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

// The modules in reading order; each takes from those above it:
//   hidden               values that may be secrets, and what of them is handed on
//   section              the keys of an agent's section in a configuration file
//   times                in which a driver ends a turn or its agent
//   duplex               the words of `agent-subprocess` in those of `agent-duplex`
//   environment          what an agent inherits of the host's environment, and what was set for it
//   mcp, session_locks   the servers that an agent is handed; one writer a session
//   converse             what the connections share whose agents converse over lines of JSON
//   choices              the options of one conversation that all drivers share
//   command              the smallest driver: one process a turn
//   claude, codex, acp   a driver each: its options, its protocol (pure), then its connection and how it is started
//   config               an agent as it is configured and saved, one match an item
pub mod acp;
mod choices;
pub mod claude;
pub mod codex;
pub mod command;
mod config;
mod converse;
mod duplex;
mod environment;
mod hidden;
pub mod mcp;
mod section;
mod session_locks;
mod times;

pub use choices::Choices;
pub use config::{AgentConfig, AgentOptions};
pub use hidden::{HandedOn, Hidden};
pub use section::{OptionKey, OptionKind};
pub use session_locks::{SessionHeld, SessionLocks};
