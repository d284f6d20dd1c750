//! A conversation with a coding agent, free of any transport.
//!
//! An agent CLI is a process that speaks some protocol; a program that drives it wants none of that. This crate holds the words both sides share:
//! a [`Driver`] knows one agent and opens [`Connection`]s, a connection takes [`Input`]s and answers each with a [`Receipt`], and everything that
//! the agent does comes back as neutral [`Event`]s with the agent's own bytes beside them.
//!
//! # What it is not for
//!
//! It starts no process, opens no socket and knows no agent: drivers do, and live elsewhere. It keeps nothing on disk and takes no decision about a
//! loop.
//!
//! # Theory of operation
//!
//! A *turn* is one request and its response, made of one or more inputs. However a turn ends, its connection reports exactly one
//! [`Event::TurnCompleted`], and after it nothing more of that turn. Drivers see to that as well as they can; [`Turn`] makes it a guarantee: it
//! stands between a connection and its reader, drops what comes too late and writes the completion that a dead process still owes.
//!
//! What an agent cannot do is said beforehand in its [`Capabilities`], and answered with an [`Error`] whose [`Error::is_unsupported`] is true when
//! it is asked for all the same. It is never silently ignored.
//!
//! Drivers never wait by themselves and never retry: the caller owns time.
//!
//! # Limits
//!
//! This version carries one-shot agents: an inbox, subscriptions, replay and restarts with a session are still to come, and the enums are
//! `#[non_exhaustive]` for them.

mod actor;
mod ask;
mod capability;
mod conversation;
mod driver;
mod error;
mod event;
mod inbox;
mod input;
mod ledger;
mod lifecycle;
mod published;
#[cfg(feature = "test-util")]
pub mod scripted;
mod stop;
mod subscription;
mod turn;
mod usage;

pub use ask::{Ask, Decision, Permissions};
pub use capability::{Capabilities, Capability};
pub use conversation::{Conversation, ConversationOptions};
pub use driver::{BoxFuture, Connection, Driver, SessionChoice};
pub use error::Error;
pub use event::{Event, InputState, Line, Observation, Stream, ToolOutcome};
pub use input::{Input, Message, Queued, Receipt};
pub use lifecycle::Lifecycle;
pub use published::{Assignment, Completion, InputRef, Published, TurnId, What};
pub use stop::{ProcessName, StopReport, StopStage};
pub use subscription::{Dropped, Primary, Subscription};
pub use turn::{EndReason, ExitStatus, Turn, TurnEnd};
pub use usage::Usage;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
