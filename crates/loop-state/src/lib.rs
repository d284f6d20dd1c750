//! An agent loop as a pure state machine: events in, effects out.
//!
//! A loop around a coding agent looks simple until it has to be stopped, killed and resumed: then what matters is which facts were recorded before
//! which deeds. This crate holds those rules and nothing else. [`Machine::step`] takes what happened and answers with what must be done now, in
//! order, and *save* is one of the things to do: the machine, not its caller, says what must be durable before what.
//!
//! # What it is not for
//!
//! It does no I/O, reads no clock, spawns nothing and knows no agent, no command line and no file. Text that it carries (the tail of a failed
//! check, a steer) is opaque to it.
//!
//! # Theory of operation
//!
//! A *run* goes through *phases*, a phase through *iterations*, an iteration through one or more *attempts*. An attempt is one agent turn, then the
//! gates, then the check, then the end of whatever the agent left running:
//!
//! ```text
//! Turn ─► Gate 0 … n ─► Check ─► Settling ─► next iteration (Sleeping, Turn) or the end
//! ```
//!
//! The [`Head`] is the whole state: small, serialisable, rewritten at each save. Events are history: folding them over the first head gives the
//! present one, and a test says so. What is true only of the live process (when the agent last gave a sign of life) stays out of the head; it can
//! change the state only through an event, see [`Machine::due`].
//!
//! A turn that was under way when the process died is *cut*. Its iteration is done again as a new attempt; the number of an attempt is never used
//! twice for one iteration.
//!
//! # Limits
//!
//! Text in the head is bounded: [`MAX_TEXT`] bytes for each piece, [`MAX_STEERS`] steers of [`MAX_STEER_BYTES`] together. Budgets, rate-limit waits and
//! autonomy modes are not built yet.

mod budget;
mod counts;
mod effect;
mod event;
mod head;
mod lineage;
mod machine;
mod pipeline;
mod rules;
pub mod snapshot;
mod steer;
mod step;
mod stop;
mod text;
mod time;
mod usage;

pub use budget::Budget;
pub use counts::{Counts, Streaks, Waits};
pub use effect::{Brief, Effect, Notice};
pub use event::{CheckResult, Event, Happening, Resume, Timer, Tree, TurnOutcome};
pub use head::{End, Feedback, FeedbackSource, Head, Last};
pub use lineage::Lineage;
pub use machine::Machine;
pub use pipeline::{Autonomy, Failure, Finished, Occasion, Verdict};
pub use rules::{Limits, PhaseRules, RuleChange, Rules, RulesError, SessionPolicy};
pub use steer::{Steer, SteerState};
pub use step::{Again, Cut, CutCause, Step, Then, Wait};
pub use stop::{Evidence, StopCause, StopReason, StopRequest, Streak, When};
pub use text::{MAX_ERRORS, MAX_PHASES, MAX_STEER_BYTES, MAX_STEERS, MAX_TEXT};
pub use time::Timestamp;
pub use usage::Usage;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
