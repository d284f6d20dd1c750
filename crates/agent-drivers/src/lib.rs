//! Conversations with coding agents: drivers for the interface of [`agent_duplex`], with processes from [`agent_subprocess`].
//!
//! Each driver implements [`agent_duplex::Driver`] for one family of agents. The driver starts the agent under a guard, translates lines into events
//! and messages into lines, and ends the agent's process tree with a proof.
//!
//! This crate knows nothing of loops, iterations, files of runs or terminals. A driver only reports; its caller decides whether to try again.
//! `agent-subprocess` defines how a process is started, contained and killed; `agent-duplex` defines turns, receipts and subscribers.
//!
//! [`AgentConfig`] is the configuration of an agent. A run saves it unchanged, and creates the driver from it.
//!
//! `examples/duplex.rs` holds a conversation with Claude Code.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

// The modules in reading order; each uses those above it:
// - redacted             values that can be secret
// - section              the keys of an agent's section in a configuration file
// - times                the times in which a driver ends a turn or its agent
// - convert              translations from types of `agent-subprocess` to types of `agent-duplex`
// - host_variables       the variables of this process, also those that were erased
// - environment          the environment of an agent: inherited and configured variables
// - mcp, session_locks   the agent's MCP servers; one writer per session
// - parts                the images and files of a message, checked and read
// - dialogue             the shared parts of connections to agents that exchange lines of JSON
// - choices              the options of one conversation that all drivers share
// - probe                queries the version and login of an agent, without a prompt
// - command              the smallest driver: one process per turn
// - api                  the agent of this project, over `agent-api`
// - claude, codex, acp   one driver each: its options, its protocol (pure), its connection, and its start
// - recorded             recordings of agents as scripts, for tests
// - config               the configuration of an agent, as a run saves it
pub mod acp;
pub mod api;
mod choices;
pub mod claude;
pub mod codex;
pub mod command;
mod config;
mod convert;
mod dialogue;
mod environment;
mod host_variables;
pub mod mcp;
mod parts;
mod probe;
#[cfg(feature = "test-util")]
pub mod recorded;
mod redacted;
mod section;
mod session_locks;
mod times;

pub use choices::Choices;
pub use config::{AgentConfig, AgentOptions};
pub use probe::{LoggedIn, Login, LoginFacts, Probe};
#[doc(hidden)] // only `rlm` shows it
pub use redacted::PassedThrough;
pub use redacted::Redacted;
#[doc(hidden)] // the keys of the configuration file of `rlm`; they are no part of the API
pub use section::{OptionKey, OptionKind};
pub use session_locks::{SessionInUse, SessionLocks};
