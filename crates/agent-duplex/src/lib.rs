//! A conversation with a coding agent, free of any transport.
//!
//! An agent CLI is a process that speaks some protocol; a program that drives it wants none of that. Here a [`Driver`] knows one agent and opens
//! [`Connection`]s; a [`Conversation`] holds one of those at a time, takes [`Input`]s at any moment and answers each with a [`Receipt`], and tells its
//! readers what became of them, and what the agent does as neutral [`Event`]s with the agent's own bytes beside them.
//!
//! # What it is not for
//!
//! It starts no process, opens no socket and knows no agent: drivers do, and live elsewhere. It takes no decision about a loop.
//!
//! `examples/restart.rs` plays an agent that dies in its answer, and the one that goes on.
//!
//! # Theory of operation
//!
//! A *turn* is one request and its response, made of one or more inputs. An input goes from its receipt to an [`Assignment`], which names the turn that
//! took it, to a [`Completion`], of which every turn has exactly one, whatever became of its agent: it finished, was interrupted or stopped, died, broke
//! its protocol, or its driver panicked.
//!
//! Messages and turns are not one to one. Inputs that wait while no turn runs become one message and one turn; what comes during a turn goes by the
//! driver's [`InputPolicy`]: an agent may fold it into that turn, queue it, or merge it with others; some begin turns by themselves. The *ledger*, a
//! pure state machine, keeps the books: it believes what a driver names, drops what comes too late or twice, and writes what is owed at the end of a turn:
//! the ends of its open tools, the withdrawal of its open asks, the completion.
//!
//! One task, the *actor*, holds the connection and calls it one method at a time. It looks for a stop, for interrupts, for commands, for inputs and for
//! the agent's output, in this order, and a stop cuts off whatever it waits for.
//!
//! Closing is no exception: the actor goes on with all of that until the turn is over and the agent reports no task in the background, for 30 s at most,
//! and leaves [`Connection::close`] for a moment whenever something else is to be obeyed.
//!
//! When there are inputs and the agent is gone, the caller starts the next one, or the conversation does by a [`RestartPolicy`]: another pure machine
//! counts the starts that came to nothing, says how long to pause, and when to give up. Which session the next agent goes on with is known to the ledger:
//! the last one in which an agent has *answered*, for some name a session before there is one. The first piece of an answer is enough: a delta of text or
//! thoughts, a message, a tool.
//!
//! A conversation that was [opened](Conversation::open) is kept by a [`Persistence`], on a thread of its own. The order is all: an input is kept before it
//! is handed on, its handing-on before the agent gets it, a completion before it is told, and so is an input that is thrown away. So nobody is told of an
//! end that a crash takes back, and nothing that an agent may have got is given to another one. What the agent says in between is told at once and kept
//! at most 64 pieces later; a driver that panics and a runtime that is shut down leave no time to wait. Whatever can't be kept stops the agent, and the
//! conversation takes nothing more.
//!
//! There are two kinds of readers. The one [`Primary`] misses nothing: while its backlog is full, the agent is not read any further, so that nothing grows
//! without bound. A [`Subscription`] reads along; one that falls behind is dropped and told at which position, and nobody waits for it.
//!
//! What an agent cannot do is said beforehand in its [`Capabilities`], and answered with an [`Error`] whose [`Error::is_unsupported`] is true when
//! it is asked for all the same. It is never silently ignored.
//!
//! Drivers never retry, and wait only where their protocol wants it: the conversation owns time, as far as the caller lets it.
//!
//! # Writing a driver
//!
//! A [`Driver`] holds configuration; [`connect`](Driver::connect) starts an agent and returns its [`Connection`]. One task calls that, one method at a
//! time, and drops the future of [`next`](Connection::next) whenever something else is to be done: keep what was read in the connection.
//!
//! - [`send`](Connection::send) gets a [`Message`] with an id of its own. An agent that reports what became of a message gets that id, and
//!   [`Event::Input`] and [`Event::TurnStarted`] name it; receipts are the conversation's business.
//! - An agent that can only be started with its first message may fail in `send`: its error says so as that of `connect` would.
//! - A turn begins when a message was sent. [`Event::TurnStarted`] may be left out; a connection that says it for one turn has to for all, and it is
//!   needed for turns that the agent begins by itself, and where messages are queued or merged.
//! - Each turn ends by one [`Event::TurnCompleted`]. Without it the turn runs until the connection ends, however long the agent is silent: who reads its
//!   protocol knows, and nobody else does.
//! - Deltas are for those who watch. What was written comes as [`Event::Message`] too, whole: that is what is kept. With deltas only, nothing is.
//! - `None` from `next` says that nothing further comes, for good. A turn that runs then [died](EndReason::Died), with the status of
//!   [`Event::Exited`] if that came before. Neither `next` nor `send` is called on that connection again; [`stop`](Connection::stop) and a drop are.
//!   An agent that ends during a turn is better told by `TurnCompleted` with exit and detail, and `None`; `Exited` is for one that ends between turns.
//! - Open tools and asks need no end of their own at the end of a turn, and late or double events do no harm: the ledger closes and drops them.
//! - `stop` ends all that was started, in its budget, and its report is [`proven`](StopReport::proven) only if that is known.
//!
//! `contract` (feature `test-util`) plays all of this with a driver and its agent, scenario by scenario, and tells what held: a turn, a tool, a message
//! during a turn, interrupts, a crash and the session after it, rate limits, deaths, cut lines, a slow reader, a stop, asks, usage, copies. It wants to know how to make the
//! agent do these things, and nothing else. Before there is an agent, the programs of `scripted` are a driver as well, and `scripted::Audit` holds what a
//! conversation publishes against its promises.
//!
//! # Limits
//!
//! What is handed to an agent on its last legs is in the turn that died with it, even if the agent never got it. Without restarts and persistence, where
//! the caller starts agents, it is given back by [`Conversation::pending`] and delivered to the next one instead.
//!
//! Repeated inputs are known by the last 10,000 ids; a replay holds 10,000 things or 8 MiB. The enums are `#[non_exhaustive]`.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules in reading order; each takes from those above it:
//   ask, capability, turn, stop, ids           the small types of the public side
//   lifecycle, error, input, event, published  what goes in, what an agent does, what readers get
//   times                                      the times of a conversation's end
//   driver                                     what a driver of an agent implements
//   options, starts                            how agents are started again, and the pure machine that counts it
//   persistence                                what is kept, and the thread that keeps it
//   inbox, ledger, replay                      the books, pure: inputs on their way, turns, and the turn that runs once more
//   subscription, execution                    readers; the stream of one input's turn
//   shared                                     what lies behind the one lock
//   actor                                      the one task that holds the connection
//   conversation                               the handle that callers hold
//   scripted, contract                         for tests of drivers, and of programs that use them
mod actor;
mod ask;
mod capability;
#[cfg(feature = "test-util")]
pub mod contract;
mod conversation;
mod driver;
mod error;
mod event;
mod execution;
mod ids;
mod inbox;
mod input;
mod ledger;
mod lifecycle;
mod options;
mod persistence;
mod published;
mod replay;
#[cfg(feature = "test-util")]
pub mod scripted;
mod shared;
mod starts;
mod stop;
mod subscription;
mod times;
mod turn;

pub use ask::{Ask, Decision, Permissions};
pub use capability::{Capabilities, Capability};
pub use conversation::Conversation;
pub use driver::{BoxFuture, Changing, Connection, Driver, InputPolicy, SessionChoice};
pub use error::Error;
pub use event::{Event, InputState, Line, Observation, Stream, ToolOutcome, Usage};
pub use execution::Execution;
pub use input::{Input, Message, Queued, Receipt};
pub use lifecycle::Lifecycle;
pub use options::{ConversationOptions, LostSession, Mode, RestartPolicy};
#[cfg(feature = "sqlite")]
pub use persistence::SqlitePersistence;
pub use persistence::{Interrupted, MemoryPersistence, Persistence, Record, Recovered};
pub use published::{Assignment, Completion, InputRef, Published, TurnId, What};
pub use stop::{ProcessName, StopReport, StopStage};
pub use subscription::{Dropped, Primary, Subscription};
pub use turn::{EndReason, ExitStatus, TurnEnd};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
