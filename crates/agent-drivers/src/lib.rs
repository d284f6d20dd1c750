//! Conversations with coding agents: the protocols of [`agent_duplex`] drivers over the processes of [`agent_subprocess`].
//!
//! Each driver implements [`agent_duplex::Driver`] for one family of agents: it starts the agent under a guard, translates
//! lines into events and messages into lines, and ends the agent's process tree with a proof.
//!
//! This crate must not know loops, iterations, files of runs or terminals, and it does not decide when to try again: a
//! driver reports, its caller decides. How a process is started, contained and killed belongs to `agent-subprocess`; what a
//! turn, a receipt or a subscriber is belongs to `agent-duplex`.
//!
//! Modules in reading order: `command` (the smallest driver), `converse` (what the drivers of conversing agents share),
//! `claude`, `codex`, `acp`, then `mcp`, `environment` and `session_locks`, which the drivers use, and `duplex`, which
//! translates the types of one crate into those of the other.
//!
//! `examples/duplex.rs` holds a conversation with Claude Code.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(feature = "acp")]
pub mod acp;
#[cfg(feature = "claude")]
pub mod claude;
#[cfg(feature = "codex")]
pub mod codex;
#[cfg(feature = "command")]
pub mod command;
#[cfg(any(feature = "acp", feature = "claude", feature = "codex"))]
mod converse;
#[cfg(any(
    feature = "acp",
    feature = "claude",
    feature = "codex",
    feature = "command"
))]
mod duplex;
#[cfg(any(feature = "acp", feature = "claude", feature = "codex"))]
mod environment;
pub mod mcp;
#[cfg(any(feature = "acp", feature = "claude"))]
mod session_locks;

#[cfg(any(feature = "acp", feature = "claude"))]
pub use session_locks::{SessionHeld, SessionLocks};
