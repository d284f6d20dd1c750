//! A conversation with a coding agent, independent of any transport.
//!
//! The program of an agent is a process with its own protocol. This crate hides process and protocol from the program that uses the agent. A
//! [`Driver`] knows one agent and opens [`Connection`]s. A [`Conversation`] has one connection at a time, accepts [`Input`]s at any time and returns
//! a [`Receipt`] for each. It reports to its readers the progress of the inputs and the actions of the agent, as [`Event`]s that are the same for all
//! agents, with the agent's own bytes.
//!
//! ```
//! # use agent_duplex::scripted::{Script, ScriptedDriver};
//! use agent_duplex::{Capabilities, Conversation, ConversationOptions, EndReason, Error};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Error> {
//! # let script = Script::new().message().begin().report_message("It is a parser.");
//! # let script = script.end(EndReason::Completed);
//! # let driver = ScriptedDriver::new(Capabilities::none()).with_script(script);
//! let conversation = Conversation::new(Box::new(driver), ConversationOptions::default());
//! let answer = conversation.ask("What does this project do?").await?; // starts the agent
//! assert_eq!(answer.text, "It is a parser.");
//! assert_eq!(answer.end.reason, EndReason::Completed);
//! # Ok(())
//! # }
//! ```
//!
//! # Scope
//!
//! The crate starts no process, opens no socket and knows no agent: drivers do this, in other crates. It doesn't decide when a caller sends an input.
//!
//! `examples/driver.rs` is a driver of 20 lines and a program that asks it. `examples/restart.rs` plays an agent that dies during its answer, and the
//! next agent, which continues.
//!
//! # Theory of operation
//!
//! A *turn* is one exchange with the agent, with one or more inputs. An input first has a receipt. Then an [`Assignment`] names the turn that
//! contains it. Each turn has exactly one [`Completion`], even if the agent was interrupted or stopped, died or broke its protocol, or if the driver
//! panicked.
//!
//! There is no fixed number of messages for each turn. Inputs that wait while no turn runs become one message and one turn. The driver's
//! [`InputPolicy`] decides about inputs during a turn: an agent can add them to that turn, queue them, or merge them with others. Some agents also
//! start turns by themselves. The *ledger* is a pure state machine that keeps the records. It trusts the message ids that a driver reports, and drops
//! late and duplicate events. At the end of a turn it writes the missing events: the ends of open tools, the withdrawal of open permission requests,
//! and the completion.
//!
//! One task, the *actor*, owns the connection and calls its methods one at a time. It checks for a stop, for interrupts, for commands, for inputs and
//! for output of the agent, in this order. A stop cancels everything else that the actor waits for.
//!
//! During a close, the actor works in the same way until the turn has ended and the agent reports no background task, for 30 s at most. Then it calls
//! [`Connection::close`]. It drops that future whenever it has to handle something else, and calls the method again.
//!
//! If there are inputs and no agent, the conversation starts one by its [`RestartPolicy`], or the caller does
//! ([`ConversationOptions::with_manual_start`]). Another pure state machine counts the starts that failed, calculates the pauses, and gives up after too many. The ledger knows the session that the next
//! agent continues: the last session in which an agent has *answered*. A name alone is not enough, because some agents name a session before it
//! exists. The first piece of an answer is enough: a delta of text or thoughts, a message, a tool.
//!
//! A [`Persistence`] stores a conversation that was [opened](Conversation::open), on a thread of its own. The order matters. An input is stored
//! before its delivery. The delivery is stored before the agent gets the message. A completion or a dropped input is stored before it is published.
//! So a crash can't undo an end that was published, and an input that an agent possibly got is never delivered to another agent. The
//! agent's output in between is published immediately, and stored at most 64 records later. A panic of a driver and a shutdown of the runtime leave
//! no time to wait for the store. If a record can't be stored, the conversation stops the agent and accepts no more inputs.
//!
//! There are two kinds of readers. The one [`Primary`], which [`Conversation::with_primary`] returns, misses nothing: while its backlog is full, the conversation doesn't read from the agent
//! (back-pressure), so that memory stays bounded. A [`Subscription`] also reads, but the conversation never waits for it: it drops a slow
//! subscription and reports the position. The latest events are stored, for [`Conversation::history`] and [`Conversation::replay`].
//!
//! The [`Capabilities`] declare in advance which capabilities an agent has. A call that needs a missing capability fails with an [`Error`] whose
//! [`Error::is_unsupported`] is true. It is never silently ignored.
//!
//! Drivers never retry, and only wait if their protocol requires it: the conversation controls time, within the limits of the caller.
//!
//! # Writing a driver
//!
//! A [`Driver`] contains configuration; [`connect`](Driver::connect) starts an agent and returns its [`Connection`]. One task calls the methods of
//! that connection, one at a time. It drops the future of [`next`](Connection::next) whenever it has to do something else, so store the bytes that
//! were read in the connection.
//!
//! - [`send`](Connection::send) gets a [`Message`] with an id of its own. If the agent reports the progress of messages, pass that id to the agent,
//!   and put it into [`Event::Input`] and [`Event::TurnStarted`]. A driver doesn't know receipts.
//! - Some agents can only start with their first message. Then a failed start is an error of `send`, the same error as that of `connect`.
//! - A turn starts with the delivery of a message. [`Event::TurnStarted`] is optional, but a connection that reports it for one turn must report it
//!   for all turns. The event is required for turns that the agent starts by itself, and if messages are queued or merged.
//! - Each turn ends with one [`Event::TurnCompleted`]. Without it the turn runs until the connection ends, no matter how long the agent is silent:
//!   only the driver can read the end of a turn from its protocol.
//! - Deltas are for live readers. The whole text must also come as [`Event::Message`], because the conversation stores only this event.
//! - `None` from `next` means that no output ever follows. If a turn runs at that time, it has [died](EndReason::Died), with the status of an earlier
//!   [`Event::Exited`]. After `None`, the conversation calls neither `next` nor `send` on that connection. It calls [`stop`](Connection::stop), and
//!   then drops the connection. If an agent ends during a turn, it is better to return `TurnCompleted` with exit and detail, and then `None`;
//!   `Exited` is for an agent that ends between turns.
//! - The ledger ends the open tools and permission requests of a turn, and drops late or duplicate events, so a driver doesn't have to.
//! - `stop` ends everything that the connection started, within its budget. The report is [`proven`](StopReport::proven) only if no process can be
//!   left.
//!
//! `contract` (feature `test-util`) checks these rules with a driver and its agent, scenario by scenario, and reports the results. There are
//! scenarios for turns, tools, messages during a turn, interrupts, crashes and resumed sessions, rate limits, deaths, truncated lines, slow readers,
//! stops, permission requests, usage and forks. The test author only implements how the agent does these things. For tests without an agent, the
//! scripts of `scripted` are a driver. `scripted::ContractChecker` checks the events of a conversation against its promises.
//!
//! # Limits
//!
//! A message for an agent that is about to end is part of the turn that died, even if the agent never got it. A conversation without automatic
//! restarts and without persistence is different: there, [`Conversation::pending`] contains these inputs, and they are delivered to the next agent.
//!
//! The last 10,000 ids identify repeated inputs. The history and a replay contain at most 10,000 events and 8 MiB. The enums are `#[non_exhaustive]`.
#![cfg_attr(docsrs, feature(doc_cfg))]

// The modules in reading order; each uses only those above it:
//   permission, capability, turn, stop, ids    the small public types
//   lifecycle, error, input, event, published  inputs, events of an agent, events for readers
//   times                                      the times for the end of a conversation
//   driver                                     the traits that a driver implements
//   options, restart                           restarts of agents, and the pure state machine that counts them
//   persistence                                the stored records, and the thread that stores them
//   inbox, ledger                              pure records: accepted inputs and turns
//   subscription, execution, answer            readers; the stream of one input's turn, and its whole answer
//   history                                    the latest events, and the replay of the running turn
//   shared                                     the state behind the one lock
//   actor                                      the one task that owns the connection
//   conversation                               the handle for callers
//   scripted, contract                         for tests of drivers, and of programs that use them
mod actor;
mod answer;
mod capability;
#[cfg(feature = "test-util")]
pub mod contract;
mod conversation;
mod driver;
mod error;
mod event;
mod execution;
mod history;
mod ids;
mod inbox;
mod input;
mod ledger;
mod lifecycle;
mod options;
mod permission;
mod persistence;
mod published;
mod restart;
#[cfg(feature = "test-util")]
pub mod scripted;
mod shared;
mod stop;
mod subscription;
mod times;
mod turn;

pub use answer::Answer;
pub use capability::{Capabilities, Capability};
pub use conversation::Conversation;
pub use driver::{BoxFuture, Connection, Driver, InputPolicy, PendingChange, SessionChoice};
pub use error::Error;
pub use event::{Event, InputState, Line, Observation, Stream, ToolOutcome, Usage};
pub use execution::Execution;
pub use history::History;
pub use input::{Input, Message, Part, QueuedMessages, Receipt};
pub use lifecycle::Lifecycle;
pub use options::{ConversationOptions, LostSession, Mode, RestartPolicy};
pub use permission::{Decision, PermissionRequest, Permissions};
#[cfg(feature = "sqlite")]
pub use persistence::SqlitePersistence;
pub use persistence::{
    InterruptedTurn, MemoryPersistence, PersistedRecord, Persistence, RecoveredConversation,
};
pub use published::{Assignment, Completion, ConversationEvent, InputRef, Published, TurnId};
pub use stop::{ProcessName, StopReport, StopStage};
pub use subscription::{Lagged, Primary, Subscription};
pub use turn::{EndReason, ExitStatus, TurnEnd};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
