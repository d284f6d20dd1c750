//! A conversation with a coding agent, free of any transport.
//!
//! An agent CLI is a process that speaks some protocol; a program that drives it wants none of that. Here a [`Driver`] knows one agent and opens
//! [`Connection`]s; a [`Conversation`] holds one of those at a time, takes [`Input`]s at any moment and answers each with a [`Receipt`], and tells its
//! readers what became of them, and what the agent does as neutral [`Event`]s with the agent's own bytes beside them.
//!
//! # What it is not for
//!
//! It starts no process, opens no socket and knows no agent: drivers do, and live elsewhere. It keeps nothing on disk and takes no decision about a
//! loop.
//!
//! # Theory of operation
//!
//! A *turn* is one request and its response, made of one or more inputs. An input goes from its receipt to an [`Assignment`], which names the turn that
//! took it, to a [`Completion`], of which every turn has exactly one, whatever became of its agent: it finished, was interrupted or stopped, died, broke
//! its protocol, or its driver panicked.
//!
//! Messages and turns are not one to one. Inputs that wait while no turn runs become one message and one turn; an agent with [`Capability::Steer`] is
//! handed an input during a turn and folds it into that turn, queues it, or merges it with others; some agents begin turns by themselves. The *ledger*, a
//! pure state machine, keeps the books: it believes what a driver names, drops what comes too late or twice, and writes what is owed at the end of a turn:
//! the ends of its open tools, the withdrawal of its open asks, the completion.
//!
//! One task, the *actor*, holds the connection and calls it one method at a time. It looks for a stop, for interrupts, for commands, for inputs and for
//! the agent's output, in this order, and a stop cuts off whatever it waits for.
//!
//! Closing is no exception: the actor goes on with all of that until the turn is over and the agent reports no task in the background, for 30 s at most,
//! and leaves [`Connection::close`] for a moment whenever something else is to be obeyed.
//!
//! There are two kinds of readers. The one [`Primary`] misses nothing: while its backlog is full, the agent is not read any further, so that nothing grows
//! without bound. A [`Subscription`] reads along; one that falls behind is dropped and told at which position, and nobody waits for it.
//!
//! What an agent cannot do is said beforehand in its [`Capabilities`], and answered with an [`Error`] whose [`Error::is_unsupported`] is true when
//! it is asked for all the same. It is never silently ignored.
//!
//! Drivers never retry, and wait only where their protocol wants it: the caller owns time.
//!
//! # Limits
//!
//! A new subscription begins with what is published next: there is no replay. Inputs live in memory; [`Conversation::pending`] gives back those that no
//! turn took. The enums are `#[non_exhaustive]`.

mod actor;
mod ask;
mod capability;
mod conversation;
mod driver;
mod error;
mod event;
mod execution;
mod inbox;
mod input;
mod ledger;
mod lifecycle;
mod options;
mod persistence;
mod published;
mod replay;
mod restart;
#[cfg(feature = "test-util")]
pub mod scripted;
mod shared;
mod starts;
mod stop;
mod subscription;
mod turn;
mod usage;

pub use ask::{Ask, Decision, Permissions};
pub use capability::{Capabilities, Capability};
pub use conversation::Conversation;
pub use driver::{BoxFuture, Connection, Driver, InputPolicy, SessionChoice};
pub use error::Error;
pub use event::{Event, InputState, Line, Observation, Stream, ToolOutcome};
pub use execution::Execution;
pub use input::{Input, Message, Queued, Receipt};
pub use lifecycle::Lifecycle;
pub use options::ConversationOptions;
#[cfg(feature = "sqlite")]
pub use persistence::SqlitePersistence;
pub use persistence::{MemoryPersistence, Persistence, Record, Recovered};
pub use published::{Assignment, Completion, InputRef, Published, TurnId, What};
pub use restart::{LostSession, Mode, RestartPolicy};
pub use stop::{ProcessName, StopReport, StopStage};
pub use subscription::{Dropped, Primary, Subscription};
pub use turn::{EndReason, ExitStatus, TurnEnd};
pub use usage::Usage;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
