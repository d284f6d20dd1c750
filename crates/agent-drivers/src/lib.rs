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
//! Modules in reading order: `config` (all agents, one match an item), `choices`, `command` (the smallest driver), `converse` (what the drivers of conversing agents share),
//! `claude`, `codex`, `acp`, then `mcp`, `environment` and `session_locks`, which the drivers use, and `duplex`, which
//! translates the types of one crate into those of the other.
//!
//! `examples/duplex.rs` holds a conversation with Claude Code.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

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
mod session_locks;

pub use choices::Choices;
pub use config::{AgentConfig, AgentOptions, HandedOn};
pub use hidden::Hidden;
pub use session_locks::{SessionHeld, SessionLocks};
